"""Reads Anthropic's content blocks into the answer under construction.

Both the stream machine (blocks arrive in pieces) and the unstreamed decoder (blocks arrive whole) use it, so both build
the same answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from ..catalog.dialect import MakeId
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    arguments_text,
    exact_or_text,
    mapping,
    objects,
    string,
)
from ..model.events import Event
from ..model.messages import ProviderBlock, ProviderState, RedactedThinking
from ..wire.accumulate import (
    Accumulator,
    CallInProgress,
    OwnInProgress,
    Placed,
    TextInProgress,
    ThinkingInProgress,
)
from ..wire.cut_pairs import join_pieces
from .block_writer import FIRST_PARTY

TOOL_CALL_MEMBERS = frozenset({"type", "id", "name", "input", "cache_control"})
"""Members of a call that `ToolCall` has itself. A call's other members (`caller`, `toolset_name`) are its state."""

NO_ARGUMENTS = "{}"
"""The arguments of a call without arguments, which has no text at all in a stream and an empty object unstreamed."""


class ProviderBlockInProgress(OwnInProgress):
    """A block of the provider's own.

    begun: its members as they were before the deltas.
    pieces: member → the texts of its deltas.
    input_pieces: pieces of the input's JSON text.
    """

    __slots__ = ("begun", "data", "input_pieces", "pieces")

    def __init__(self, data: dict[str, JSON]) -> None:
        self.data: dict[str, JSON] = data
        self.begun: dict[str, JSON] = dict(data)
        self.pieces: dict[str, list[str]] = {}
        self.input_pieces: list[str] = []

    def apply(self, delta: JSONObject) -> None:
        """Apply a delta of any type: input is collected as JSON text, other text is appended, other values are set."""
        for member, value in delta.items():
            if member == "type":
                continue
            if member == "partial_json" and type(value) is str:
                self.input_pieces.append(value)
            elif type(value) is str:
                self.pieces.setdefault(member, []).append(value)
            elif value is not None or member not in self.data:
                self.data[member] = self.begun[member] = value

    def settle(self) -> None:
        """Write the collected deltas into the block. Input that was cut off stays text."""
        for member, pieces in self.pieces.items():
            start = self.begun.get(member)
            self.data[member] = join_pieces([start, *pieces] if type(start) is str else pieces)
        text = join_pieces(self.input_pieces)
        if text:
            self.data["input"] = exact_or_text(text)


Opened: TypeAlias = TextInProgress | ThinkingInProgress | CallInProgress | ProviderBlockInProgress | Placed


@dataclass(slots=True, eq=False, repr=False)
class BlockReader:
    """Reads wire blocks into one answer."""

    answer: Accumulator  # the answer
    provider: str  # the provider's `maker`
    make_id: MakeId  # makes an id for a call without one
    _maker: ProviderState | None = field(default=None, init=False)

    @property
    def maker(self) -> ProviderState:
        """The state that attributes thinking to the provider: one object for all blocks of the answer."""
        if self._maker is None:
            self._maker = ProviderState(self.provider, {})
        return self._maker

    @property
    def tag(self) -> ProviderState | None:
        """The state of signed thinking. None for Anthropic's own, which the signature alone attributes."""
        return None if self.provider == FIRST_PARTY else self.maker

    def open(self, wire: JSONObject, events: list[Event]) -> Opened:
        """Begin a block with the content of its start. Adds the events for that content to `events`."""
        opener = OPENERS.get(string(wire, "type") or "")
        return self.open_other(wire) if opener is None else opener(self, wire, events)

    def open_text(self, wire: JSONObject, events: list[Event]) -> Opened:
        block = self.answer.text()
        block.cite(objects(wire, "citations"))
        text = string(wire, "text")
        if text:
            events.append(block.delta(text))
        return block

    def open_thinking(self, wire: JSONObject, events: list[Event]) -> Opened:
        block = self.answer.thinking()
        text, signature = string(wire, "thinking"), string(wire, "signature")
        # A stream that is cut off has sent no signature. Without `maker`, no provider would get such thinking back.
        block.state = self.tag if signature else self.maker
        if text:
            events.append(block.delta(text))
        if signature:
            block.signature_pieces.append(signature)
        return block

    def open_redacted(self, wire: JSONObject, events: list[Event]) -> Opened:
        """Add redacted thinking, which comes whole."""
        return self.answer.place(RedactedThinking(string(wire, "data") or "", state=self.tag))

    def open_call(self, wire: JSONObject, events: list[Event]) -> Opened:
        """Begin a tool call. A call without a name is kept as the provider's own block."""
        name = string(wire, "name")
        if not name:
            return self.open_other(wire)
        given = _arguments_text(wire.get("input"))
        call = self.answer.tool_call()
        extra: JSONObject = {
            key: value for key, value in wire.items() if key not in TOOL_CALL_MEMBERS and value is not None
        }
        if extra:
            call.state = ProviderState(self.provider, extra)
        events.extend(call.start(string(wire, "id") or self.make_id(), name))
        return CallInProgress(call, given)

    def open_other(self, wire: JSONObject) -> Opened:
        """Add a block of the provider's own."""
        data = dict(wire)
        self.answer.place(ProviderBlock(self.provider, data))
        if data.get("type") == "fallback":
            # One model has handed over to another. The answer's model is the one that continues.
            self.answer.model = string(mapping(data, "to"), "model") or self.answer.model
        return ProviderBlockInProgress(data)


OPENERS: dict[str, Callable[[BlockReader, JSONObject, list[Event]], Opened]] = {
    "text": BlockReader.open_text,
    "thinking": BlockReader.open_thinking,
    "redacted_thinking": BlockReader.open_redacted,
    "tool_use": BlockReader.open_call,
}
"""Block type → the method that begins it. Blocks of other types are kept as received, as the provider's own."""


def _arguments_text(value: JSON) -> str:
    """Return a call's arguments as text.

    An object is written as Anthropic streams it (a space after `:` and `,`), so that an answer is the same streamed and
    unstreamed.
    """
    if type(value) is str:
        return value or NO_ARGUMENTS
    try:
        return arguments_text(value, spaced=True) if value else NO_ARGUMENTS
    except TypeError:
        raise MalformedJSONError("a call's input is nested too deeply") from None
