"""Finds the item of one answer that an event is about.

`output_index` is the key. Item ids are not: some servers give an item a new id in every event, and some send a whole
item again under another id. A few servers have index 0 for everything, or no index. There, a new item takes the index
over, and an event belongs to the item with its `item_id`, or to the latest item if none has that id.

The final response may leave out items or reorder them. So its items are matched by id first, then by content, and by
position last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from ...catalog.dialect import MakeId
from ...json.json_values import JSON, JSONObject, MalformedJSONError, integer, objects, string
from ...model.events import Event
from ...model.messages import ProviderBlock
from ...wire.accumulate import Accumulator
from .items import (
    CALL_ARGUMENTS,
    NAMES_ITS_CALL,
    OUTPUT_KIND,
    CallItem,
    CustomTools,
    Item,
    MessageItem,
    ProviderItem,
    ReasoningItem,
    arguments_of,
    text_of,
    visible_reasoning,
)

OUTPUTS = frozenset(OUTPUT_KIND.values())
"""Types of output items."""

MOST_UNCLAIMED = 64
"""The most output indexes for which arguments are kept that came before their call."""


@dataclass(slots=True, eq=False, repr=False)
class Output:
    """The items of one answer."""

    answer: Accumulator  # the answer that they build
    name: str  # the provider's `maker`, the tag on everything that is sent back to it
    make_id: MakeId
    _: KW_ONLY
    # whether the items come from a caller's history. There, two equal adjacent messages are two messages.
    is_history: bool = False
    custom_tools: CustomTools | None = field(default=None, init=False)  # until a response repeats the request's tools
    items: list[Item] = field(default_factory=lambda: [], init=False)  # the items, in the order of their beginnings
    # output index → the place in `items` of the latest item with that index. The garbage collector does not track a
    # dict of numbers.
    places: dict[int, int] = field(default_factory=lambda: {}, init=False)
    # item id → its place in `items`; None until a second item has an output index of an earlier one
    shared: dict[str, int] | None = field(default=None, init=False)
    # output index → arguments that came before their call, with their item ids; None before the first
    unclaimed: dict[int, list[tuple[str, str]]] | None = field(default=None, init=False)
    # by call id, because another item may take over the index of a call
    open_calls: dict[str, CallItem] = field(default_factory=lambda: {}, init=False)
    # sound, which belongs to no item: pieces of `data` and `transcript`
    audio: dict[str, list[str]] = field(default_factory=lambda: {}, init=False)

    def learn_tools(self, response: JSONObject) -> None:
        """Read the request's tools from a response."""
        tools = objects(response, "tools")
        if tools:
            self.custom_tools = CustomTools(tools)

    def open(self, index: int, item: JSONObject) -> Sequence[Event]:
        """Begin an item at an index. Returns its events."""
        slot = self._begun(index, item)
        slot.id = string(item, "id") or slot.id
        events = slot.open(item)
        if isinstance(slot, CallItem) and slot.block.started:
            self.open_calls[slot.block.id] = slot
        return events

    def take(self, index: int, item: JSONObject) -> Sequence[Event]:
        """Read a whole item. Returns events for what was not delivered before."""
        slot: Item | None = self.open_calls.pop(string(item, "call_id") or "", None)
        if slot is None:
            slot = self._at(index, string(item, "id"))
            if slot is None or not comes_again(slot, item):
                slot = self._begun(index, item)
        slot.id = string(item, "id") or slot.id
        return slot.take(item)

    def take_all(self, output: list[JSON], events: list[Event]) -> None:
        """Read the final response's items. Items that the final response leaves out are kept.

        events: gets the events for what was not delivered before; those before the error, too, if it raises.

        Raises `MalformedJSONError` if an item cannot be read, and `ProviderError` beyond a limit.
        """
        self.answer.count.check_items(len(output))
        waiting = _Waiting(self.items)
        if any(type(item) is str or type(item) is list for item in output):
            raise MalformedJSONError("the output contains a value that is no item")
        whole = [(index, item) for index, item in enumerate(output) if type(item) is dict]
        # Ids are compared first, so that an item without a known id does not take another one's place.
        known = [waiting.take_named(self._at(index), item) for index, item in whole]
        for (index, item), slot in zip(whole, known, strict=True):
            slot = slot or waiting.take(self._at(index), item) or self._new_last(index, item)
            events.extend(slot.take(item))
        for slot in self.items:
            if isinstance(slot, CallItem) and not slot.done:
                events.extend(slot.take_arguments(""))

    def cut_short(self) -> list[Event]:
        """End an answer that was cut off. Calls that had not ended are closed as incomplete."""
        return [event for slot in self.items if isinstance(slot, CallItem) for event in slot.cut_short()]

    def hand_over(self) -> list[Event]:
        """Make tool calls of the calls of the API's own tools that the caller must run. Returns their events."""
        own = [slot for slot in self.items if isinstance(slot, ProviderItem)]
        values = [slot.block.value for slot in own if slot.kind in OUTPUTS]
        outputs = [value.data for value in values if isinstance(value, ProviderBlock)]
        answered = frozenset(id for data in outputs for name in NAMES_ITS_CALL if (id := string(data, name)))
        return [event for slot in own for event in slot.hand_over(self.answer, answered)]

    def nameless_calls(self, final: int = 0) -> int:
        """Return the number of calls that never got a name, so that they are not in the answer.

        final: the number of items in the final output.
        """
        unclaimed = sum(index >= final and index not in self.places for index in self.unclaimed or ())
        return unclaimed + sum(isinstance(slot, CallItem) and not slot.block.started for slot in self.items)

    def marks(self) -> list[tuple[str | None, str | None, str | None, str | None]] | None:
        """Return type, role, id of the call and name of each item; None if one has content that is not sent back."""
        found: list[tuple[str | None, str | None, str | None, str | None]] = []
        for slot in self.items:
            if isinstance(slot, MessageItem):
                if slot.refusals or slot.others:
                    return None
                found.append((slot.kind, "assistant", None, None))
            elif isinstance(slot, CallItem):
                found.append((slot.kind, None, slot.block.wire_id, slot.block.name))
            else:
                value = slot.block.value if isinstance(slot, ProviderItem) else None
                data = value.data if isinstance(value, ProviderBlock) else {}
                found.append((slot.kind, None, string(data, "call_id"), string(data, "name")))
        return found

    def all_done(self) -> bool:
        """Return whether there are items, and all of them came whole."""
        return bool(self.items) and all(slot.done for slot in self.items)

    def logprobs(self) -> list[JSON]:
        """Return the log probabilities of all text, if they were requested."""
        return [
            token
            for slot in self.items
            if isinstance(slot, MessageItem)
            for _, tokens in sorted(slot.logprobs.items())
            for token in tokens
        ]

    def other_parts(self) -> list[JSON]:
        """Return the parts of messages that have an unknown type, as received."""
        messages = [slot for slot in self.items if isinstance(slot, MessageItem)]
        return [part for slot in messages for _, part in sorted(slot.others.items())]

    def keep_beside(self, kept: dict[str, JSON]) -> None:
        """Add content without a block to `kept`: log probabilities, unknown parts and sound."""
        for name, value in (("logprobs", self.logprobs()), ("content_parts", self.other_parts())):
            if value:
                kept[name] = value
        if self.audio:
            kept["audio"] = {name: "".join(pieces) for name, pieces in self.audio.items()}

    def message_at(self, value: JSONObject) -> MessageItem | None:
        """Return the message that an event is about, made if the event is the first to name it.

        Returns None if the index belongs to an item of another type.
        """
        index = integer(value, "output_index") or 0
        slot = self._at(index, string(value, "item_id"))
        if slot is None or _is_others(slot, value, ReasoningItem):
            slot = self._new_at(index, {"type": "message", "id": value.get("item_id")})
        return slot if isinstance(slot, MessageItem) else None

    def reasoning_at(self, value: JSONObject) -> ReasoningItem | None:
        """Return the reasoning that an event is about, made if the event is the first to name it.

        Returns None if the index belongs to an item of another type.
        """
        index = integer(value, "output_index") or 0
        slot = self._at(index, string(value, "item_id"))
        if slot is None or _is_others(slot, value, MessageItem):
            slot = self._new_at(index, {"type": "reasoning", "id": value.get("item_id")})
        return slot if isinstance(slot, ReasoningItem) else None

    def call_at(self, value: JSONObject) -> CallItem | None:
        """Return the call that an event is about, if the caller executes it and its item has come, else None."""
        slot = self._at(integer(value, "output_index") or 0, string(value, "item_id"))
        return slot if isinstance(slot, CallItem) and not _is_others(slot, value, ProviderItem) else None

    def keep_arguments(self, value: JSONObject, text: str, *, whole: bool = False) -> None:
        """Keep arguments that come before their call, whose name is not known yet. `_claim` adds them to it.

        whole: the text is all of the arguments, and not the next piece.
        """
        index, id = integer(value, "output_index") or 0, string(value, "item_id") or ""
        slot = self._at(index, id)
        if isinstance(slot, ProviderItem) and id in ("", slot.id):
            return  # the server executes this call
        self.unclaimed = self.unclaimed or {}
        if index not in self.unclaimed and len(self.unclaimed) >= MOST_UNCLAIMED:
            return
        early = self.unclaimed.setdefault(index, [])
        if whole:
            known = "".join(_arguments_of(early, id))
            if not text.startswith(known):
                early[:], known = [(other, piece) for other, piece in early if other != id], ""
            text = text[len(known) :]
        early.append((id, text))

    def _claim(self, index: int, slot: Item) -> None:
        """Give a new call the arguments that came before it."""
        early = None if self.unclaimed is None else self.unclaimed.get(index)
        if early and isinstance(slot, CallItem):
            slot.block.pieces += _arguments_of(early, slot.id)
            others = [(id, text) for id, text in early if id != slot.id]
            early[:] = others if len(others) < len(early) else []

    def _at(self, index: int, id: str | None = None) -> Item | None:
        """Return the latest item with an output index, or None. Of items that share indexes, this id's is preferred."""
        place = None if self.shared is None or not id else self.shared.get(id)
        if place is None:
            place = self.places.get(index)
        return None if place is None else self.items[place]

    def _new_last(self, index: int, item: JSONObject) -> Item:
        """Make the object for an item that only the final response has."""
        slot = self._new(item)
        self._claim(index, slot)
        return slot

    def _new_at(self, index: int, item: JSONObject) -> Item:
        """Make the object for a new item, which takes over the output index."""
        slot = self._new(item)
        self._claim(index, slot)
        if index in self.places and self.shared is None:
            self.shared = {earlier.id: place for place, earlier in enumerate(self.items) if earlier.id}
        self.places[index] = len(self.items) - 1
        if self.shared is not None and slot.id:
            self.shared[slot.id] = len(self.items) - 1
        return slot

    def _begun(self, index: int, item: JSONObject) -> Item:
        """Return the item under construction at an index if it may be this one, else a new one at that index."""
        slot = self._at(index, string(item, "id"))
        if slot is None or slot.done or not fits(slot, item):
            slot = self._new_at(index, item)
        return slot

    def _new(self, item: JSONObject) -> Item:
        """Make the object for a new item, by its type."""
        kind = string(item, "type")
        slot: Item
        if kind == "message":
            last = self.items[-1] if self.items and not self.is_history else None
            slot = MessageItem(self.answer, self.name, last if isinstance(last, MessageItem) else None)
        elif kind == "reasoning":
            slot = ReasoningItem(self.answer, self.name)
        elif kind in CALL_ARGUMENTS and (kind == "function_call" or self._is_callers(string(item, "name"))):
            slot = CallItem(self.answer, self.name, kind, self.make_id)
        else:
            slot = ProviderItem(self.answer, self.name, item)
        slot.id = string(item, "id") or ""
        self._add(slot)
        return slot

    def _is_callers(self, tool: str | None) -> bool:
        """Return whether the caller executes calls of this custom tool."""
        return self.custom_tools is None or self.custom_tools.callers(tool)

    def _add(self, slot: Item) -> None:
        self.items.append(slot)
        self.answer.count.check_items(len(self.items))


class _Waiting:
    """The items under construction that the final response has not named yet.

    They are found by the content of a received item: comparing each with each would cost the product of both numbers.
    Each group is in order, and may begin with items that were taken.
    """

    __slots__ = ("_all", "_asked", "_ids", "_named", "_open", "_order", "_said")

    def __init__(self, slots: Sequence[Item]) -> None:
        self._order: dict[Item, int] = {slot: place for place, slot in enumerate(slots)}
        self._all: dict[str, deque[Item]] = {}  # by kind
        self._ids: dict[tuple[str, str], deque[Item]] = {}  # by kind and item id: items that have one
        self._named: dict[tuple[str, str], deque[Item]] = {}  # by kind and call id: calls that have one
        self._open: dict[str, deque[Item]] = {}  # by kind: items that may have any call id
        self._asked: dict[tuple[str, str, str], deque[Item]] | None = None  # by kind, name, arguments; made if needed
        self._said: dict[tuple[str, str], deque[Item]] | None = None  # by kind and text; made if needed
        for slot in slots:
            self._all.setdefault(slot.kind, deque()).append(slot)
            if slot.id:
                self._ids.setdefault((slot.kind, slot.id), deque()).append(slot)
            if isinstance(slot, CallItem) and slot.block.started:
                self._named.setdefault((slot.kind, slot.block.wire_id), deque()).append(slot)
            else:
                self._open.setdefault(slot.kind, deque()).append(slot)

    def take_named(self, at_index: Item | None, item: JSONObject) -> Item | None:
        """Return the item under construction with a received one's id, and remove it; None if there is none.

        at_index: the item at the received one's index, which is preferred if it has the id, too.
        """
        id = string(item, "id")
        if not id:
            return None
        named = at_index in self._order and at_index.id == id
        slot = at_index if named else self._head(self._ids.get((string(item, "type") or "", id)))
        if slot is None or not fits(slot, item):
            return None
        del self._order[slot]
        return slot

    def take(self, at_index: Item | None, item: JSONObject) -> Item | None:
        """Return the item under construction that a received one is, and remove it; None if there is none.

        at_index: the item at the received one's index, which is preferred if it fits.
        """
        at_index = at_index if at_index in self._order and fits(at_index, item) else None
        slot = self._saying_the_same(at_index, item) or at_index or self._first(item)
        if slot is not None:
            del self._order[slot]
        return slot

    def _saying_the_same(self, at_index: Item | None, item: JSONObject) -> Item | None:
        """Return the message or reasoning with a received one's text, or None."""
        text = text_of(item)
        if not text or (isinstance(at_index, MessageItem | ReasoningItem) and at_index.said() == text):
            return at_index
        if self._said is None:
            self._said = {}
            for slot in self._order:
                if isinstance(slot, MessageItem | ReasoningItem):
                    self._said.setdefault((slot.kind, slot.said()), deque()).append(slot)
        return self._head(self._said.get((string(item, "type") or "", text)))

    def _first(self, item: JSONObject) -> Item | None:
        """Return the first item that a received one may be, or None."""
        kind, call_id = string(item, "type") or "", string(item, "call_id")
        if not call_id:
            return self._head(self._all.get(kind))
        found = (self._head(self._named.get((kind, call_id))), self._head(self._open.get(kind)))
        first = min((slot for slot in found if slot is not None), key=self._order.__getitem__, default=None)
        return self._asking_the_same(kind, item) if first is None else first

    def _asking_the_same(self, kind: str, item: JSONObject) -> Item | None:
        """Return a call with the same name and arguments but another id: some servers make new ids in each event."""
        if self._asked is None:
            self._asked = {}
            for slot in self._order:
                if isinstance(slot, CallItem):
                    self._asked.setdefault((slot.kind, slot.block.name, slot.asked()), deque()).append(slot)
        if kind not in CALL_ARGUMENTS:
            return None
        return self._head(self._asked.get((kind, string(item, "name") or "", arguments_of(kind, item))))

    def _head(self, group: deque[Item] | None) -> Item | None:
        """Return the first item of a group that was not taken, or None."""
        while group and group[0] not in self._order:
            group.popleft()
        return group[0] if group else None


def _is_others(slot: Item, value: JSONObject, other: type[MessageItem | ReasoningItem | ProviderItem]) -> bool:
    """Return whether a delta begins a new item at an index, although the item has no beginning of its own.

    other: the type of items at the index to which the delta cannot belong.
    """
    id = string(value, "item_id") or ""
    if "delta" not in value or (id and id == slot.id):
        return False
    return isinstance(slot, other) or (slot.done and bool(id) and bool(slot.id))


def _arguments_of(early: Sequence[tuple[str, str]], id: str) -> list[str]:
    """Return the pieces of arguments with an item id; all of them, if none has it: some servers change the ids."""
    return [text for other, text in early if other and other == id] or [text for _, text in early]


def comes_again(slot: Item, item: JSONObject) -> bool:
    """Return whether a whole item repeats the one at its index under another id. Messages check that themselves."""
    if slot.kind != (string(item, "type") or ""):
        return False
    if isinstance(slot, CallItem):
        if not slot.done:
            return slot.may_become(item)
        return slot.block.id == string(item, "call_id") and slot.asks_the_same(item)
    if isinstance(slot, ReasoningItem):
        shown = visible_reasoning(item)
        return slot.done and bool(shown) and shown == "".join(slot.block.pieces)
    return isinstance(slot, ProviderItem) and slot.done and slot.holds(item)


def fits(slot: Item, item: JSONObject) -> bool:
    """Return whether an item under construction and a received one may be the same."""
    if slot.kind != (string(item, "type") or ""):
        return False
    call_id = string(item, "call_id")
    return not isinstance(slot, CallItem) or not call_id or not slot.block.started or slot.block.wire_id == call_id
