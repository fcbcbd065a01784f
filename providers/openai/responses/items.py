"""Output items under construction: what a Responses answer is made of, told once, however it arrives.

An item may come in deltas, whole in `response.output_item.done`, whole again in the final response, or only in one
of the three. Each class here takes all of them and tells the caller only what was not told before. The unstreamed
decoder and the stream machine both build their answer from these, so a streamed answer equals an unstreamed one.

Knows the kinds of items and their members. Must not know events' names, statuses of the whole response, or errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ...accumulate import Accumulator, Placed, TextInProgress, ThinkingInProgress, ToolCallInProgress
from ...dialect import MakeId
from ...events import Event
from ...json_values import JSON, JSONObject, MalformedJSONError, arguments_text, items, objects, string
from ...messages import ProviderBlock, ProviderState

CALL_ARGUMENTS: dict[str, str] = {"function_call": "arguments", "custom_tool_call": "input"}
"""Kind of item that asks the caller for something → the member that holds what it asks with."""

CALL_STATE = ("namespace", "caller", "async")
"""Members of a call that must go back with it where they are there."""

TEXT_PARTS = frozenset({"output_text", "text"})

SUMMARY, CONTENT = "summary", "content"
"""The two places of an item's visible reasoning. One of them is shown, never both: they tell the same twice."""


FINAL_TEXT_WINS = (
    "the server's final text differs from the deltas that were reported; the response holds the final text"
)
"""The warning for deltas whose joined text is not the response's."""

REPEATED_ITEM = "the server repeated a message under another id; it is reported once"
"""The warning for a message that was left out because the one directly before it has the same text."""


def settle(pieces: list[str], whole: str, answer: Accumulator) -> str:
    """What the whole text has beyond the pieces reported so far, to be reported now.

    Where it does not continue them (a stream resumed in the middle, or a server that changed its mind), nothing can
    be reported, because events cannot be taken back. The final text wins: it replaces the pieces, so the response holds
    what the answer would have held unstreamed, and a warning on the response says so. No text at all says nothing about
    what was reported.
    """
    if not whole:
        return ""  # before the join: an empty text may come any number of times
    told = "".join(pieces)
    if whole.startswith(told):
        return whole[len(told) :]
    pieces[:] = [whole]
    answer.warn(FINAL_TEXT_WINS)
    return ""


WITHOUT_NUMBERS = frozenset({"message", "reasoning"})


def may_hold_numbers(item: JSONObject) -> bool:
    """Whether numbers in an item are the model's, as in a call's arguments."""
    return string(item, "type") not in WITHOUT_NUMBERS


class MessageItem:
    """The model speaks: text parts, each a block of its own, and refusals, which are no blocks.

    before: the message directly before this one, if there is one. A server may send it again under another id.
    """

    __slots__ = ("answer", "before", "done", "kind", "logprobs", "name", "others", "phase", "refusals", "texts")

    def __init__(self, answer: Accumulator, name: str, before: MessageItem | None = None) -> None:
        self.answer: Accumulator = answer
        self.before: MessageItem | None = before
        self.name: str = name
        self.kind: str = "message"
        self.done: bool = False
        self.phase: str | None = None
        self.texts: dict[int, TextInProgress] = {}
        self.refusals: dict[int, list[str]] = {}
        self.logprobs: dict[int, list[JSON]] = {}
        self.others: dict[int, JSONObject] = {}  # parts of a kind that we do not know

    def text(self, place: int) -> TextInProgress:
        """The block of one content part. It is made when its first text comes: an empty part is no block."""
        block = self.texts.get(place)
        if block is None:
            block = self.texts[place] = self.answer.text()
            self._mark(block)
        return block

    def refusal(self, place: int, text: str) -> None:
        """More of a refusal. It has no event of its own; the response holds it."""
        self.refusals.setdefault(place, []).append(text)
        self.answer.refusal_pieces.append(text)

    def open(self, item: JSONObject) -> Sequence[Event]:
        """The item begins. Content that is there already comes again, in deltas or whole."""
        self.phase = string(item, "phase")
        return ()

    def take(self, item: JSONObject) -> Sequence[Event]:
        """The item as a whole."""
        self.done = True
        self.phase = string(item, "phase") or self.phase
        for block in self.texts.values():
            self._mark(block)
        content = item.get("content")
        parts: list[JSON] = items(item, CONTENT)
        if type(content) is str or type(content) is dict:
            # A few servers send the text itself, or in JSON mode the object, in the place of the list of parts.
            is_part = type(content) is dict and string(content, "type") in TEXT_PARTS
            whole: JSONObject = {"type": "output_text", "text": content}
            parts = [content if is_part else whole]
        self.answer.count.check_parts(len(parts))
        events: list[Event] = []
        for place, part in enumerate(parts):
            if type(part) is dict:
                events.extend(self.take_part(place, part))
        return events

    def take_part(self, place: int, part: JSONObject) -> Sequence[Event]:
        """One content part as a whole."""
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
        """Whether a part that came without deltas is the previous message's part once more."""
        before = self.before
        if before is None or before.phase != self.phase or place not in before.texts:
            return False
        if "".join(before.texts[place].pieces) != text:
            return False
        self.answer.warn(REPEATED_ITEM)
        return True

    def _take_refusal(self, place: int, whole: str) -> None:
        """A refusal as a whole. The final text wins here, too."""
        pieces = self.refusals.get(place, [])
        told = "".join(pieces)
        rest = settle(pieces, whole, self.answer)
        if rest:
            self.refusal(place, rest)
        elif told and whole and whole != told:
            joined = "".join(self.answer.refusal_pieces)
            self.answer.refusal_pieces[:] = [joined.replace(told, whole, 1)]

    def _mark(self, block: TextInProgress) -> None:
        # The API asks for a message's phase back: dropping it makes later turns worse.
        if self.phase is not None:
            block.state = ProviderState(self.name, {"phase": self.phase})


class ReasoningItem:
    """The model thinks: one block, even where nothing of it is visible, because the next request needs the item."""

    __slots__ = ("answer", "block", "done", "kind", "name", "source")

    def __init__(self, answer: Accumulator, name: str) -> None:
        self.answer: Accumulator = answer
        self.name: str = name
        self.kind: str = "reasoning"
        self.done: bool = False
        self.source: str = ""
        self.block: ThinkingInProgress = answer.thinking()
        self.block.state = ProviderState(name, {})  # who made it, if the stream is cut before the item is whole

    def delta(self, source: str, text: str) -> Sequence[Event]:
        """More visible reasoning. The place that speaks first is the one that is shown."""
        self.source = self.source or source
        return (self.block.delta(text),) if source == self.source else ()

    def open(self, item: JSONObject) -> Sequence[Event]:
        """The item begins. What `encrypted_content` it has is not whole yet, so it is no state to send back."""
        return ()

    def take(self, item: JSONObject) -> Sequence[Event]:
        """The item as a whole. Where it comes twice, with two ciphertexts and perhaps two ids, the later one is
        kept, id and ciphertext together; but one that has a ciphertext is not given up for one that has none."""
        self.done = True
        state = self.block.state
        if state is None or not state.data.get("encrypted_content") or item.get("encrypted_content"):
            self.block.state = ProviderState(self.name, reasoning_state(item))
        rest = settle(self.block.pieces, visible_reasoning(item), self.answer)
        return (self.block.delta(rest),) if rest else ()


def visible_reasoning(item: JSONObject) -> str:
    """The text of a whole reasoning item that is shown."""
    texts = ("".join(string(part, "text") or "" for part in objects(item, source)) for source in (SUMMARY, CONTENT))
    return next(filter(None, texts), "")


def _text_of(value: JSON, what: str) -> str:
    """Text; of an object that a server sends in its place, the JSON text. Raises `MalformedJSONError` where that cannot
    be written: an answer or a call must not go on without it."""
    if type(value) is not dict:
        return value if type(value) is str else ""
    try:
        return arguments_text(value)
    except TypeError as error:
        raise MalformedJSONError(f"{what} cannot be written as text ({error})") from None


def reasoning_state(item: JSONObject) -> JSONObject:
    """What goes back: id, summary and ciphertext; the reasoning text only where there is no ciphertext, for a server
    that encrypts refuses the text, and one that does not needs it."""
    state: JSONObject = {"summary": items(item, SUMMARY)}
    identifier, encrypted = string(item, "id"), string(item, "encrypted_content")
    if identifier:
        state["id"] = identifier
    if encrypted:
        state["encrypted_content"] = encrypted
    elif items(item, CONTENT):
        state["content"] = items(item, CONTENT)
    return state


class CallItem:
    """The model asks its caller to run a function or a custom tool."""

    __slots__ = ("answer", "block", "done", "kind", "make_id", "name", "opening", "status")

    def __init__(self, answer: Accumulator, name: str, kind: str, make_id: MakeId) -> None:
        self.answer: Accumulator = answer
        self.name: str = name
        self.kind: str = kind
        self.make_id: MakeId = make_id
        self.done: bool = False
        self.opening: str = ""
        self.status: str | None = None
        self.block: ToolCallInProgress = answer.tool_call()

    def open(self, item: JSONObject) -> Sequence[Event]:
        """The call begins. Arguments that are there already are used only if none follow."""
        self.opening = self.arguments_in(item)
        call_id, name = string(item, "call_id"), string(item, "name")
        return self.block.start(call_id, name) if call_id and name and not self.block.started else ()

    def take(self, item: JSONObject) -> Sequence[Event]:
        """The call as a whole."""
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
        """The arguments as a whole."""
        whole = arguments or ("" if self.block.pieces else self.opening)
        if self.block.done:
            return ()
        return self.block.delta(settle(self.block.pieces, whole, self.answer))

    def cut_short(self) -> Sequence[Event]:
        """The answer was cut off. A call that had not ended then is no call to execute."""
        ended = self.done and self.status != "in_progress"
        return () if ended else self.block.finish(complete=False)

    def may_become(self, item: JSONObject) -> bool:
        """Whether a whole item may be this call under another id: it has the name, and continues the arguments."""
        same_name = self.block.started and self.block.name == string(item, "name")
        return same_name and self.arguments_in(item).startswith(self.asked())

    def asks_the_same(self, item: JSONObject) -> bool:
        """Whether a whole item asks for what this call asks for, under whichever id."""
        return self.may_become(item) and self.arguments_in(item) == self.asked()

    def asked(self) -> str:
        """The arguments so far, joined once however often this is called."""
        if len(self.block.pieces) > 1:
            self.block.pieces[:] = ["".join(self.block.pieces)]
        return self.block.pieces[0] if self.block.pieces else ""

    def arguments_in(self, item: JSONObject) -> str:
        """The arguments as text."""
        return arguments_of(self.kind, item)

    def _remember(self, item: JSONObject) -> None:
        state: JSONObject = {member: item[member] for member in CALL_STATE if item.get(member) is not None}
        if self.kind == "custom_tool_call":
            state["type"] = self.kind
        if state:
            self.block.state = ProviderState(self.name, state)


def arguments_of(kind: str, item: JSONObject) -> str:
    """The arguments of a call of this kind, as text."""
    return _text_of(item.get(CALL_ARGUMENTS[kind]), "the arguments of a call")


class ProviderItem:
    """Anything else: server-side tools, compactions, kinds yet unknown. Kept in its place, as received."""

    __slots__ = ("block", "done", "kind", "name")

    def __init__(self, answer: Accumulator, name: str, item: JSONObject) -> None:
        self.name: str = name
        self.kind: str = string(item, "type") or ""
        self.done: bool = False
        self.block: Placed = answer.place(ProviderBlock(name, item))

    def open(self, item: JSONObject) -> Sequence[Event]:
        """The item begins."""
        self.block.value = ProviderBlock(self.name, item)
        return ()

    def holds(self, item: JSONObject) -> bool:
        """Whether an item is what this one holds, the id aside."""
        held = self.block.value
        return isinstance(held, ProviderBlock) and {**held.data, "id": None} == {**item, "id": None}

    def take(self, item: JSONObject) -> Sequence[Event]:
        """The item as a whole."""
        self.done = True
        return self.open(item)


Item: TypeAlias = "MessageItem | ReasoningItem | CallItem | ProviderItem"


class CustomTools:
    """Which custom tool calls are the caller's to run.

    Some servers report their own searches as completed `custom_tool_call` items. The response echoes the request's
    tools: a call of a custom tool that the request did not define is none of the caller's. Where the echo is
    missing or empty, or where more tools can be found as the answer goes, nothing can be told from it.
    """

    __slots__ = ("known", "names")

    def __init__(self) -> None:
        self.known: bool = False
        self.names: set[str] = set()

    def learn(self, response: JSONObject) -> None:
        """Read the echo."""
        tools = objects(response, "tools")
        if tools:
            self.known = not any(string(tool, "type") == "tool_search" for tool in tools)
            self.names = set(self._custom(tools))

    def callers(self, name: str | None) -> bool:
        """Whether a call of this custom tool is the caller's to run."""
        return not self.known or name in self.names

    def _custom(self, tools: Iterable[JSONObject]) -> Iterable[str]:
        for tool in tools:
            if string(tool, "type") == "custom":
                yield string(tool, "name") or ""
            else:
                # A namespace holds tools of its own.
                yield from self._custom(objects(tool, "tools"))
