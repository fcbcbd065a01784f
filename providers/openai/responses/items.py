"""The output items of a Responses answer under construction. Content is delivered once, however it arrives.

An item may come in deltas, whole in `response.output_item.done`, whole again in the final response, or in only one of
the three. Each class here reads all of them and returns events only for what was not delivered before. The unstreamed
decoder and the stream machine both build their answer from these, so a streamed answer equals an unstreamed one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ...catalog.dialect import MakeId
from ...json.json_values import JSON, JSONObject, MalformedJSONError, arguments_text, items, mapping, objects, string
from ...model.events import Event
from ...model.messages import ProviderBlock, ProviderState
from ...wire.accumulate import Accumulator, Placed, TextInProgress, ThinkingInProgress, ToolCallInProgress, settle


class CallKind(NamedTuple):
    """A type of calls that the caller runs.

    output: the type of the item with the result.
    arguments: the members with the arguments.
    tool: the name of the API's own tool; empty where the call has the name of a tool of the caller.
    """

    output: str
    arguments: tuple[str, ...]
    tool: str = ""


CALL_KINDS: dict[str, CallKind] = {
    "function_call": CallKind("function_call_output", ("arguments",)),
    "custom_tool_call": CallKind("custom_tool_call_output", ("input",)),
    "computer_call": CallKind("computer_call_output", ("actions", "action", "pending_safety_checks"), "computer"),
    "local_shell_call": CallKind("local_shell_call_output", ("action",), "local_shell"),
    "shell_call": CallKind("shell_call_output", ("action",), "shell"),
    "apply_patch_call": CallKind("apply_patch_call_output", ("operation",), "apply_patch"),
    "mcp_approval_request": CallKind(
        "mcp_approval_response", ("server_label", "name", "arguments"), "mcp_approval_request"
    ),
}
"""Type of a call that the caller runs → what belongs to it."""

CALL_ARGUMENTS: dict[str, str] = {kind: row.arguments[0] for kind, row in CALL_KINDS.items() if not row.tool}
"""Type of a call of the caller's own tools → the member with its arguments."""

OUTPUT_KIND: dict[str, str] = {kind: row.output for kind, row in CALL_KINDS.items()}
"""Type of a call → type of its output item."""

NAMES_ITS_CALL = ("call_id", "approval_request_id", "id")
"""Members of an output item that may contain the call's id."""

CALL_STATE = ("namespace", "caller", "async")
"""Members of a call that must be sent back with it if they are present."""

TEXT_PARTS = frozenset({"output_text", "text"})

SUMMARY, CONTENT = "summary", "content"
"""The two places of an item's visible reasoning. Only one of them is delivered, because both have the same content."""


REPEATED_ITEM = "the server repeated a message under another id; it is reported once"
"""The warning for a message that was left out because the message directly before it has the same text."""


WITHOUT_NUMBERS = frozenset({"message", "reasoning"})
"""Types of items that have no numbers of the model."""


def may_hold_numbers(item: JSONObject) -> bool:
    """Return whether an item may have numbers that the model wrote, such as those in a call's arguments."""
    return string(item, "type") not in WITHOUT_NUMBERS


@dataclass(slots=True, eq=False, repr=False)
class MessageItem:
    """A message: its text parts, each a block of its own, and its refusals, which are no blocks."""

    answer: Accumulator
    name: str
    # the message directly before this one, or None. A server may send it again under another id.
    before: MessageItem | None = None
    id: str = field(default="", init=False)  # the item's id; empty until it is known
    kind: str = field(default="message", init=False)
    done: bool = field(default=False, init=False)  # whether the whole item was read
    phase: str | None = field(default=None, init=False)  # the item's `phase`, which is sent back, or None
    # position of a content part → the index of its block in the answer. The garbage collector does not track a dict of
    # numbers.
    texts: dict[int, int] = field(default_factory=lambda: {}, init=False)
    # position of a content part → the pieces of the refusal
    refusals: dict[int, list[str]] = field(default_factory=lambda: {}, init=False)
    # position of a content part → its log probabilities
    logprobs: dict[int, list[JSON]] = field(default_factory=lambda: {}, init=False)
    # position of a content part of an unknown type → the part
    others: dict[int, JSONObject] = field(default_factory=lambda: {}, init=False)
    # whether an event is the end of a part → position of the content part that began last, until such an event about it
    # comes
    begun: dict[bool, int] = field(default_factory=lambda: {}, init=False)

    def text(self, place: int) -> TextInProgress:
        """Return the block of a content part. It is made when its first text comes: an empty part is no block."""
        block = self.text_at(place)
        if block is None:
            block = self.answer.text()
            self.texts[place] = block.index
            self._begin(place)
            self._mark(block)
        return block

    def text_at(self, place: int) -> TextInProgress | None:
        """Return the block of a content part, or None if no text of the part has come."""
        index = self.texts.get(place)
        block = None if index is None else self.answer.blocks[index]
        return block if isinstance(block, TextInProgress) else None

    def refusal(self, place: int, text: str) -> None:
        """Append to a refusal. It has no event; the response contains it."""
        if place not in self.refusals:
            self.refusals[place] = []
            self._begin(place)
        self.refusals[place].append(text)
        self.answer.refuse(text, self.name)

    def open(self, item: JSONObject) -> Sequence[Event]:
        """Begin the item. Content that it has already comes again, in deltas or whole."""
        self.phase = string(item, "phase")
        return ()

    def take(self, item: JSONObject) -> Sequence[Event]:
        """Read the whole item. Returns events for what was not delivered before."""
        self.done = True
        self.phase = string(item, "phase") or self.phase
        for place in self.texts:
            self._mark(self.text(place))
        parts = _parts_of(item)
        self.answer.count.check_parts(len(parts))
        places = self._places_of(parts)
        events: list[Event] = []
        for position, part in enumerate(parts):
            if type(part) is dict:
                events.extend(self._take_part(places.get(position, position), part))
        return events

    def _places_of(self, parts: list[JSON]) -> dict[int, int]:
        """Return the places of the received parts that the deltas numbered otherwise, by the position of each."""
        texts: dict[int, str] = {}
        refusals: dict[int, str] = {}
        for position, part in enumerate(parts):
            if type(part) is dict and string(part, "type") == "refusal":
                refusals[position] = string(part, "refusal") or ""
            elif type(part) is dict and string(part, "type") in TEXT_PARTS:
                texts[position] = _text_of(part.get("text"), "the text of a part")
        said = {place: "".join(self.text(place).pieces) for place in self.texts}
        refused = {place: "".join(pieces) for place, pieces in self.refusals.items()}
        return {**matched_places(texts, said), **matched_places(refusals, refused)}

    def said(self) -> str:
        """Return the text so far, of all parts."""
        return "".join(piece for place in sorted(self.texts) for piece in self.text(place).pieces)

    def take_part(self, place: int, part: JSONObject, *, ends: bool) -> Sequence[Event]:
        """Read a whole content part that comes by itself. Returns events for what was not delivered before.

        If the deltas with its text had another place, that place counts.

        ends: the event is the end of the part (`content_part.done`), which follows the one with its whole text.
        """
        begun = self.begun.pop(ends, None)
        if begun is not None and self._delivered(begun) in (part.get("text"), part.get("refusal")):
            # Another part may have the place, if it was numbered otherwise, too.
            place = place if self._delivered(place) == self._delivered(begun) else begun
        return self._take_part(place, part)

    def _begin(self, place: int) -> None:
        self.begun = {False: place, True: place}

    def _delivered(self, place: int) -> str | None:
        """Return the text or the refusal that a part's deltas brought, or None if none came."""
        pieces = self.text(place).pieces if place in self.texts else self.refusals.get(place)
        return None if pieces is None else "".join(pieces)

    def _take_part(self, place: int, part: JSONObject) -> Sequence[Event]:
        """Read a whole content part. Returns events for what was not delivered before."""
        if string(part, "type") == "refusal":
            self._take_refusal(place, string(part, "refusal") or "")
            return ()
        if string(part, "type") not in TEXT_PARTS:
            self.others[place] = part
            return ()
        text = _text_of(part.get("text"), "the text of a part")
        if place not in self.texts and (not text or self._repeats(place, text)):
            return ()
        block = self.text(place)
        block.citations = objects(part, "annotations") or block.citations
        self.logprobs[place] = items(part, "logprobs") or self.logprobs.get(place, [])
        rest = settle(block.pieces, text, self.answer)
        return (block.delta(rest),) if rest else ()

    def _repeats(self, place: int, text: str) -> bool:
        """Return whether a part that came without deltas repeats the previous message's part."""
        before = self.before
        repeated = None if before is None or before.phase != self.phase else before.text_at(place)
        if repeated is None or "".join(repeated.pieces) != text:
            return False
        self.answer.warn(REPEATED_ITEM)
        return True

    def _take_refusal(self, place: int, whole: str) -> None:
        """Read a whole refusal. Its text replaces pieces that differ from it."""
        pieces = self.refusals.get(place, [])
        delivered = "".join(pieces)
        rest = settle(pieces, whole, self.answer)
        if rest:
            self.refusal(place, rest)
        elif delivered and whole and whole != delivered:
            joined = "".join(self.answer.refusal_pieces or ())
            self.answer.refusal_pieces = [joined.replace(delivered, whole, 1)]

    def _mark(self, block: TextInProgress) -> None:
        # The API's documentation asks for the phase to be sent back: without it, later turns are worse.
        if self.phase is not None:
            block.state = ProviderState(self.name, {"phase": self.phase})


def matched_places(received: dict[int, str], delivered: dict[int, str]) -> dict[int, int]:
    """Return the delivered place of each received part, by its position. A new part has a place that is free.

    Some servers number the parts of a message otherwise in its deltas than in the whole message, and some leave parts
    out. So a part is the one with its text, or else the one at its place; what is left is matched in order, if both
    sides have as many.

    received: position → text, of the parts of a whole message.
    delivered: place → text, of the parts that its deltas brought.
    """
    received = {position: text for position, text in received.items() if text or position in delivered}
    places = sorted(delivered)
    if list(received.values()) == [delivered[place] for place in places]:
        return dict(zip(received, places, strict=True))
    matched = {position: position for position, text in received.items() if delivered.get(position) == text}
    equal: dict[str, deque[int]] = {}
    for place in places:
        if place not in matched:
            equal.setdefault(delivered[place], deque()).append(place)
    for position, text in received.items():
        if position not in matched and equal.get(text):
            matched[position] = equal[text].popleft()
    taken = {*matched.values()}
    free = deque(place for place in places if place not in taken)
    left = [position for position in received if position not in matched]
    in_order = len(left) == len(free)
    spare = max((*received, *delivered), default=0) + 1
    for position in left:
        text = received[position]
        while free and free[0] in taken:
            free.popleft()
        if position in delivered and position not in taken and text.startswith(delivered[position]):
            place = position
        elif free and (in_order or text.startswith(delivered[free[0]])):
            place = free[0]
        elif position not in taken:
            place = position
        else:
            place, spare = spare, spare + 1
        matched[position] = place
        taken.add(place)
    return matched


def _parts_of(message: JSONObject) -> list[JSON]:
    content = message.get(CONTENT)
    if type(content) is str or type(content) is dict:
        # A few servers send the text itself, or in JSON mode the object, instead of the list of parts.
        is_part = type(content) is dict and string(content, "type") in TEXT_PARTS
        whole: JSONObject = {"type": "output_text", "text": content}
        return [content if is_part else whole]
    parts: list[JSON] = []
    for part in items(message, CONTENT):
        text: JSONObject = {"type": "output_text", "text": part}
        parts.append(text if type(part) is str else part)
    return parts


def text_of(item: JSONObject) -> str:
    """Return the text of a whole message, or the visible text of whole reasoning; empty for any other item."""
    kind = string(item, "type")
    if kind == "reasoning":
        return visible_reasoning(item)
    parts = _parts_of(item) if kind == "message" else ()
    texts = [part.get("text") for part in parts if type(part) is dict and string(part, "type") in TEXT_PARTS]
    return "".join(_text_of(text, "the text of a part") for text in texts)


class ReasoningItem:
    """Reasoning: one block, even if none of it is visible, because the next request needs the item.

    done: whether the whole item was read.
    id: the item's id; empty until it is known.
    source: the place whose text is delivered, `summary` or `content`; empty before the first text.
    """

    __slots__ = ("answer", "block", "done", "id", "kind", "name", "source")

    def __init__(self, answer: Accumulator, name: str) -> None:
        self.answer: Accumulator = answer
        self.name: str = name
        self.kind: str = "reasoning"
        self.id: str = ""
        self.done: bool = False
        self.source: str = ""
        self.block: ThinkingInProgress = answer.thinking()
        self.block.state = ProviderState(name, {})  # attributes it to the provider if the stream is cut off

    def delta(self, source: str, text: str) -> Sequence[Event]:
        """Append visible reasoning. Only the place whose text comes first is delivered."""
        self.source = self.source or source
        return (self.block.delta(text),) if source == self.source else ()

    def said(self) -> str:
        """Return the visible text so far."""
        return "".join(self.block.pieces)

    def open(self, item: JSONObject) -> Sequence[Event]:
        """Begin the item. Its `encrypted_content` is not complete yet, so it is not kept as state."""
        return ()

    def take(self, item: JSONObject) -> Sequence[Event]:
        """Read the whole item. Returns events for what was not delivered before.

        If it comes twice, with two ciphertexts and perhaps two ids, id and ciphertext of the later one are kept. An
        item with a ciphertext is not replaced by one without.
        """
        self.done = True
        state = self.block.state
        if state is None or not state.data.get("encrypted_content") or item.get("encrypted_content"):
            self.block.state = ProviderState(self.name, reasoning_state(item))
        rest = settle(self.block.pieces, visible_reasoning(item), self.answer)
        return (self.block.delta(rest),) if rest else ()


def visible_reasoning(item: JSONObject) -> str:
    """Return the text of a whole reasoning item that is delivered. A few servers send texts instead of parts."""
    for source in (SUMMARY, CONTENT):
        given = item.get(source)
        parts = given if type(given) is list else [given]
        texts = (string(part, "text") if type(part) is dict else part for part in parts)
        text = "".join(text for text in texts if type(text) is str)
        if text:
            return text
    return ""


def _text_of(value: JSON, what: str) -> str:
    """Return a text; for an object or a list that a server sends instead, its JSON text; else an empty text.

    what: the value's name in the error.

    Raises `MalformedJSONError` if the value cannot be written, because content would be lost.
    """
    if type(value) is not dict and type(value) is not list:
        return value if type(value) is str else ""
    try:
        return arguments_text(value)
    except TypeError as error:
        raise MalformedJSONError(f"{what} cannot be written as text ({error})") from None


def reasoning_state(item: JSONObject) -> JSONObject:
    """Return the members that are sent back: id, summary and ciphertext.

    The reasoning's text is included only without a ciphertext: a server that encrypts refuses the text, and one that
    does not needs it.
    """
    state: JSONObject = {"summary": items(item, SUMMARY)}
    identifier, encrypted = string(item, "id"), string(item, "encrypted_content")
    if identifier:
        state["id"] = identifier
    if encrypted:
        state["encrypted_content"] = encrypted
    elif items(item, CONTENT):
        state["content"] = items(item, CONTENT)
    return state


@dataclass(slots=True, eq=False, repr=False)
class CallItem:
    """A call of a function or of a custom tool that the caller executes."""

    answer: Accumulator
    name: str
    kind: str
    make_id: MakeId
    id: str = field(default="", init=False)  # the item's id; empty until it is known
    done: bool = field(default=False, init=False)  # whether the whole item was read
    opening: str = field(default="", init=False)  # the arguments at the item's beginning, used if none follow
    status: str | None = field(default=None, init=False)  # the whole item's status, or None
    block: ToolCallInProgress = field(init=False)

    def __post_init__(self) -> None:
        self.block = self.answer.tool_call()
        self.block.free_text = self.kind == "custom_tool_call"

    def open(self, item: JSONObject) -> Sequence[Event]:
        """Begin the call. Arguments that it has already are used only if none follow."""
        self.opening = self.arguments_in(item)
        call_id, name = string(item, "call_id"), string(item, "name")
        return self.block.start(call_id, name) if call_id and name and not self.block.started else ()

    def take(self, item: JSONObject) -> Sequence[Event]:
        """Read the whole call. Returns events for what was not delivered before."""
        self.done = True
        self.status = string(item, "status")
        events: list[Event] = []
        if not self.block.started:
            name = string(item, "name")
            if name:
                call_id = string(item, "call_id") or string(item, "id") or self.make_id()
                events.extend(self.block.start(call_id, name))
        self._remember(item)
        events.extend(self.take_arguments(self.arguments_in(item)))
        if self.status in ("completed", "incomplete"):
            events.extend(self.block.finish(complete=self.status == "completed"))
        return events

    def take_arguments(self, arguments: str) -> Sequence[Event]:
        """Read the whole arguments. Returns events for what was not delivered before."""
        whole = arguments or ("" if self.block.pieces else self.opening)
        if self.block.done:
            return ()
        return self.block.delta(settle(self.block.pieces, whole, self.answer))

    def cut_short(self) -> Sequence[Event]:
        """End a call of an answer that was cut off. The call is incomplete unless it had ended."""
        ended = self.done and self.status != "in_progress"
        return () if ended else self.block.finish(complete=False)

    def may_become(self, item: JSONObject) -> bool:
        """Return whether a whole item may be this call with another id: its name, and arguments that continue."""
        same_name = self.block.started and self.block.name == string(item, "name")
        return same_name and self.arguments_in(item).startswith(self.asked())

    def asks_the_same(self, item: JSONObject) -> bool:
        """Return whether a whole item has this call's name and arguments, with any id."""
        return self.may_become(item) and self.arguments_in(item) == self.asked()

    def asked(self) -> str:
        """Return the arguments so far. They are joined once, however often this is called."""
        if len(self.block.pieces) > 1:
            self.block.pieces[:] = ["".join(self.block.pieces)]
        return self.block.pieces[0] if self.block.pieces else ""

    def arguments_in(self, item: JSONObject) -> str:
        """Return an item's arguments as text."""
        return arguments_of(self.kind, item)

    def _remember(self, item: JSONObject) -> None:
        """Keep the members that are sent back with the call."""
        state: JSONObject = {member: item[member] for member in CALL_STATE if item.get(member) is not None}
        if self.kind == "custom_tool_call":
            state["type"] = self.kind
        if state:
            self.block.state = ProviderState(self.name, state)


def arguments_of(kind: str, item: JSONObject) -> str:
    """Return the arguments of a call of this type, as text. An empty list stands for an empty object."""
    given = item.get(CALL_ARGUMENTS[kind])
    return _text_of({} if given == [] else given, "the arguments of a call")


class ProviderItem:
    """Any other item, kept as received: server-side tools, compactions, unknown types.

    done: whether the whole item was read.
    id: the item's id; empty until it is known.
    """

    __slots__ = ("block", "done", "id", "kind", "name")

    def __init__(self, answer: Accumulator, name: str, item: JSONObject) -> None:
        self.name: str = name
        self.kind: str = string(item, "type") or ""
        self.id: str = ""
        self.done: bool = False
        self.block: Placed = answer.place(ProviderBlock(name, item))

    def open(self, item: JSONObject) -> Sequence[Event]:
        self.block.value = ProviderBlock(self.name, item)
        return ()

    def hand_over(self, answer: Accumulator, answered: frozenset[str]) -> Sequence[Event]:
        """Make a tool call of an item that the caller must run: a call of the API's own tool without its output in the
        answer. Returns the call's events.
        """
        held, kind = self.block.value, CALL_KINDS.get(self.kind)
        if kind is None or not kind.tool or not isinstance(held, ProviderBlock):
            return ()
        item, own_id = held.data, string(held.data, "call_id") or string(held.data, "id")
        hosted = (string(mapping(item, "environment"), "type") or "").startswith("container")
        if own_id is None or own_id in answered or hosted or string(item, "status") == "incomplete":
            return ()
        given = {name: item[name] for name in kind.arguments if item.get(name)}
        call = answer.call_in_place_of(self.block)
        call.state = ProviderState(self.name, {**item, "type": self.kind})
        arguments = given.get(kind.arguments[0], {}) if len(kind.arguments) == 1 else given
        if type(arguments) is dict:  # so that the order and the nulls of a server do not change the text
            arguments = {name: arguments[name] for name in sorted(arguments) if arguments[name] is not None}
        return [*call.start(own_id, kind.tool), *call.delta(_text_of(arguments, "the arguments of a call"))]

    def holds(self, item: JSONObject) -> bool:
        """Return whether an item equals this one, apart from the id."""
        held = self.block.value
        return isinstance(held, ProviderBlock) and {**held.data, "id": None} == {**item, "id": None}

    def take(self, item: JSONObject) -> Sequence[Event]:
        self.done = True
        return self.open(item)


Item: TypeAlias = MessageItem | ReasoningItem | CallItem | ProviderItem


class CustomTools:
    """Knows which custom tool calls the caller executes.

    Some servers report their own searches as completed `custom_tool_call` items. The response repeats the request's
    tools, so a call of a custom tool that is not among them is the server's. This is unknown if the tools are missing
    or empty, or if the model can find more tools during the answer; then every call is the caller's.

    known: whether `names` are all custom tools.
    """

    __slots__ = ("known", "names")

    def __init__(self, tools: Sequence[JSONObject]) -> None:
        self.known: bool = not any(string(tool, "type") == "tool_search" for tool in tools)
        self.names: frozenset[str] = frozenset(self._custom(tools))

    def callers(self, name: str | None) -> bool:
        """Return whether the caller executes calls of this custom tool."""
        return not self.known or name in self.names

    def _custom(self, tools: Iterable[JSONObject]) -> Iterable[str]:
        """Return the names of the custom tools among some tools."""
        for tool in tools:
            if string(tool, "type") == "custom":
                yield string(tool, "name") or ""
            else:
                # A namespace has its own list of tools.
                yield from self._custom(objects(tool, "tools"))
