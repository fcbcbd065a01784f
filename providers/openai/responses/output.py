"""The items of one answer, found again by what their events say of them.

`output_index` is the key. Item ids are no key: some servers give an item a new id in every event, and some send a whole
item again under another id. A few servers have index 0 for everything; there a new item takes the index over, and
events belong to the latest. Knows how items are matched, and of what is in them only how to compare it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ...accumulate import Accumulator
from ...dialect import MakeId
from ...events import Event
from ...json_values import JSON, JSONObject, integer, string
from .items import (
    CALL_ARGUMENTS,
    CallItem,
    CustomTools,
    Item,
    MessageItem,
    ProviderItem,
    ReasoningItem,
    arguments_of,
    visible_reasoning,
)


class Output:
    """One answer's items. `name` is the profile's, the tag on whatever must go back to it. `is_history`: the items come
    from a caller's history, where two equal messages side by side are two."""

    __slots__ = ("answer", "at_index", "audio", "custom_tools", "is_history", "items", "make_id", "name", "open_calls")

    def __init__(self, answer: Accumulator, name: str, make_id: MakeId, *, is_history: bool = False) -> None:
        self.answer: Accumulator = answer
        self.name: str = name
        self.is_history: bool = is_history
        self.make_id: MakeId = make_id
        self.custom_tools: CustomTools = CustomTools()
        self.items: list[Item] = []
        self.at_index: dict[int, Item] = {}
        self.open_calls: dict[str, CallItem] = {}  # by call id: another item may take over the index of one
        self.audio: dict[str, list[str]] = {}  # sound belongs to no item: its `data` and its `transcript`, in pieces

    def open(self, index: int, item: JSONObject) -> Sequence[Event]:
        """An item begins at an index."""
        slot = self._begun(index, item)
        events = slot.open(item)
        if isinstance(slot, CallItem) and slot.block.started:
            self.open_calls[slot.block.id] = slot
        return events

    def take(self, index: int, item: JSONObject) -> Sequence[Event]:
        """An item is whole."""
        slot: Item | None = self.open_calls.pop(string(item, "call_id") or "", None)
        if slot is None:
            slot = self.at_index.get(index)
            if slot is None or not comes_again(slot, item):
                slot = self._begun(index, item)
        return slot.take(item)

    def take_all(self, output: list[JSON]) -> list[Event]:
        """The final response's items. What was never told is told now; what it leaves out stays."""
        self.answer.count.check_items(len(output))
        events: list[Event] = []
        waiting = _Waiting(self.items)
        for index, item in enumerate(output):
            if type(item) is not dict:
                continue
            slot = waiting.take(self.at_index.get(index), item)
            if slot is None:
                slot = self._new(item)
            events.extend(slot.take(item))
        return events

    def cut_short(self) -> list[Event]:
        """The answer was cut off: calls that had not ended are closed as incomplete."""
        return [event for slot in self.items if isinstance(slot, CallItem) for event in slot.cut_short()]

    def all_done(self) -> bool:
        """Whether there are items and each has come whole."""
        return bool(self.items) and all(slot.done for slot in self.items)

    def logprobs(self) -> list[JSON]:
        """The log probabilities of all text, where they were asked for."""
        return [
            token
            for slot in self.items
            if isinstance(slot, MessageItem)
            for _, tokens in sorted(slot.logprobs.items())
            for token in tokens
        ]

    def other_parts(self) -> list[JSON]:
        """The parts of messages that are of no kind we know, as received."""
        messages = [slot for slot in self.items if isinstance(slot, MessageItem)]
        return [part for slot in messages for _, part in sorted(slot.others.items())]

    def keep_beside(self, kept: dict[str, JSON]) -> None:
        """Put what has no block of its own where the caller finds it."""
        for name, value in (("logprobs", self.logprobs()), ("content_parts", self.other_parts())):
            if value:
                kept[name] = value
        if self.audio:
            kept["audio"] = {name: "".join(pieces) for name, pieces in self.audio.items()}

    def message_at(self, value: JSONObject) -> MessageItem | None:
        """The message that an event is about, made where the event is the first to name it; None where the index
        belongs to something else."""
        index = integer(value, "output_index") or 0
        slot = self.at_index.get(index)
        if slot is None:
            slot = self.at_index[index] = self._new({"type": "message"})
        return slot if isinstance(slot, MessageItem) else None

    def reasoning_at(self, value: JSONObject) -> ReasoningItem | None:
        """The reasoning that an event is about, as for messages."""
        index = integer(value, "output_index") or 0
        slot = self.at_index.get(index)
        if slot is None:
            slot = self.at_index[index] = self._new({"type": "reasoning"})
        return slot if isinstance(slot, ReasoningItem) else None

    def call_at(self, value: JSONObject) -> CallItem | None:
        """The call that an event is about, if it is the caller's. One that nothing has announced is made when its
        item comes: its name is not known before."""
        slot = self.at_index.get(integer(value, "output_index") or 0)
        return slot if isinstance(slot, CallItem) else None

    def _begun(self, index: int, item: JSONObject) -> Item:
        """The item under construction at an index, if this may be it; else a new one, which takes the index over."""
        slot = self.at_index.get(index)
        if slot is None or slot.done or not fits(slot, item):
            slot = self.at_index[index] = self._new(item)
        return slot

    def _new(self, item: JSONObject) -> Item:
        kind = string(item, "type")
        slot: Item
        if kind == "message":
            last = self.items[-1] if self.items and not self.is_history else None
            slot = MessageItem(self.answer, self.name, last if isinstance(last, MessageItem) else None)
        elif kind == "reasoning":
            slot = ReasoningItem(self.answer, self.name)
        elif kind in CALL_ARGUMENTS and (kind == "function_call" or self.custom_tools.callers(string(item, "name"))):
            slot = CallItem(self.answer, self.name, kind, self.make_id)
        else:
            slot = ProviderItem(self.answer, self.name, item)
        self._add(slot)
        return slot

    def _add(self, slot: Item) -> None:
        self.items.append(slot)
        self.answer.count.check_items(len(self.items))


class _Waiting:
    """The items under construction that the final response has not named yet. They are found by what a received item
    says of itself: comparing each with each would cost the product of both numbers.

    Each group is in order, and may begin with items that were taken since.
    """

    __slots__ = ("_all", "_asked", "_named", "_open", "_order")

    def __init__(self, slots: Sequence[Item]) -> None:
        self._order: dict[Item, int] = {slot: place for place, slot in enumerate(slots)}
        self._all: dict[str, deque[Item]] = {}  # by kind
        self._named: dict[tuple[str, str], deque[Item]] = {}  # by kind and call id: calls that have one
        self._open: dict[str, deque[Item]] = {}  # by kind: what may have any call id
        self._asked: dict[tuple[str, str, str], deque[Item]] | None = None  # by kind, name and arguments; if needed
        for slot in slots:
            self._all.setdefault(slot.kind, deque()).append(slot)
            if isinstance(slot, CallItem) and slot.block.started:
                self._named.setdefault((slot.kind, slot.block.wire_id), deque()).append(slot)
            else:
                self._open.setdefault(slot.kind, deque()).append(slot)

    def take(self, at_index: Item | None, item: JSONObject) -> Item | None:
        """The item already under construction that this is: the one at its index, else the first that it could be.
        It waits no longer."""
        slot = at_index if at_index in self._order and fits(at_index, item) else self._first(item)
        if slot is not None:
            del self._order[slot]
        return slot

    def _first(self, item: JSONObject) -> Item | None:
        kind, call_id = string(item, "type") or "", string(item, "call_id")
        if not call_id:
            return self._head(self._all.get(kind))
        found = (self._head(self._named.get((kind, call_id))), self._head(self._open.get(kind)))
        first = min((slot for slot in found if slot is not None), key=self._order.__getitem__, default=None)
        return self._asking_the_same(kind, item) if first is None else first

    def _asking_the_same(self, kind: str, item: JSONObject) -> Item | None:
        """A call under another id: a server that gives each event new ids may give the call another one, too."""
        if self._asked is None:
            self._asked = {}
            for slot in self._order:
                if isinstance(slot, CallItem):
                    self._asked.setdefault((slot.kind, slot.block.name, slot.asked()), deque()).append(slot)
        if kind not in CALL_ARGUMENTS:
            return None
        return self._head(self._asked.get((kind, string(item, "name") or "", arguments_of(kind, item))))

    def _head(self, group: deque[Item] | None) -> Item | None:
        while group and group[0] not in self._order:
            group.popleft()
        return group[0] if group else None


def comes_again(slot: Item, item: JSONObject) -> bool:
    """Whether a whole item is the one at its index once more, under another id. Messages find that out themselves."""
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
    """Whether an item under construction and a received one may be the same."""
    if slot.kind != (string(item, "type") or ""):
        return False
    call_id = string(item, "call_id")
    return not isinstance(slot, CallItem) or not call_id or not slot.block.started or slot.block.wire_id == call_id
