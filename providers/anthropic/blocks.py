"""Anthropic's content blocks → the answer under construction.

Used by the stream machine (blocks arrive in pieces) and by the unstreamed decoder (blocks arrive whole), so that both
give the same answer. Knows block shapes. Must not know the events around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..accumulate import Accumulator, Placed, TextInProgress, ThinkingInProgress, ToolCallInProgress
from ..dialect import MakeId
from ..events import Event
from ..json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    arguments_text,
    exact_loads,
    mapping,
    objects,
    string,
)
from ..messages import ProviderBlock, ProviderState, RedactedThinking
from .block_writer import FIRST_PARTY

TOOL_CALL_MEMBERS = frozenset({"type", "id", "name", "input"})
"""What our `ToolCall` holds itself; a call's other members (`caller`, `toolset_name`) ride along as its state."""

NO_ARGUMENTS = "{}"
"""A call without arguments streams no text at all; unstreamed it has an empty object. This is both."""


class CallInProgress:
    """A tool call and what its start said about its arguments, for the case that no delta follows."""

    __slots__ = ("call", "given", "stopped")

    def __init__(self, call: ToolCallInProgress, given: str) -> None:
        self.call: ToolCallInProgress = call
        self.given: str = given
        self.stopped: bool = False

    def settle(self) -> list[Event]:
        """No more arguments will come: tell the ones from the start where none were streamed."""
        if self.call.pieces or self.call.done:
            return []
        return list(self.call.delta(self.given))


class ProviderBlockInProgress:
    """A block of the provider's own, already in its place; what deltas bring is gathered and written into it."""

    __slots__ = ("begun", "data", "input_pieces", "pieces")

    def __init__(self, data: dict[str, JSON]) -> None:
        self.data: dict[str, JSON] = data
        self.begun: dict[str, JSON] = dict(data)
        self.pieces: dict[str, list[str]] = {}
        self.input_pieces: list[str] = []

    def apply(self, delta: JSONObject) -> None:
        """A delta of any kind: a tool's input is gathered as JSON text; else text is appended, the rest is set."""
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
        """Write what was gathered into the block; may be called at any time. Input that was cut off stays text."""
        for member, pieces in self.pieces.items():
            start = self.begun.get(member)
            self.data[member] = "".join([start, *pieces] if type(start) is str else pieces)
        text = "".join(self.input_pieces)
        if text:
            self.data["input"] = _parsed(text)


Opened: TypeAlias = "TextInProgress | ThinkingInProgress | CallInProgress | ProviderBlockInProgress | Placed"


class BlockReader:
    """Puts wire blocks into one answer. `maker` marks thinking with the provider that made it. `tag` is the mark of
    thinking that is signed: none for Anthropic's own, which a signature alone is taken to mean."""

    __slots__ = ("answer", "make_id", "maker", "provider", "tag")

    def __init__(self, answer: Accumulator, provider: str, make_id: MakeId) -> None:
        self.answer: Accumulator = answer
        self.provider: str = provider
        self.make_id: MakeId = make_id
        self.maker: ProviderState = ProviderState(provider, {})
        self.tag: ProviderState | None = None if provider == FIRST_PARTY else self.maker

    def open(self, wire: JSONObject, events: list[Event]) -> Opened:
        """Begin a block with what its start holds, and add the events for that."""
        opener = OPENERS.get(string(wire, "type") or "")
        return self.open_other(wire) if opener is None else opener(self, wire, events)

    def open_text(self, wire: JSONObject, events: list[Event]) -> Opened:
        block = self.answer.text()
        block.citations.extend(objects(wire, "citations"))
        text = string(wire, "text")
        if text:
            events.append(block.delta(text))
        return block

    def open_thinking(self, wire: JSONObject, events: list[Event]) -> Opened:
        block = self.answer.thinking()
        text, signature = string(wire, "thinking"), string(wire, "signature")
        # A stream that is cut has sent no signature: without its maker, such thinking would belong to nobody.
        block.state = self.tag if signature else self.maker
        if text:
            events.append(block.delta(text))
        if signature:
            block.signature_pieces.append(signature)
        return block

    def open_redacted(self, wire: JSONObject, events: list[Event]) -> Opened:
        return self.answer.place(RedactedThinking(string(wire, "data") or "", state=self.tag))

    def open_call(self, wire: JSONObject, events: list[Event]) -> Opened:
        name = string(wire, "name")
        if not name:
            return self.open_other(wire)
        call = self.answer.tool_call()
        extra: JSONObject = {
            key: value for key, value in wire.items() if key not in TOOL_CALL_MEMBERS and value is not None
        }
        if extra:
            call.state = ProviderState(self.provider, extra)
        events.extend(call.start(string(wire, "id") or self.make_id(), name))
        return CallInProgress(call, _arguments_text(wire.get("input")))

    def open_other(self, wire: JSONObject) -> Opened:
        data = dict(wire)
        self.answer.place(ProviderBlock(self.provider, data))
        if data.get("type") == "fallback":
            # One model handed over to another; the message is labelled with the one that went on.
            self.answer.model = string(mapping(data, "to"), "model") or self.answer.model
        return ProviderBlockInProgress(data)


OPENERS: dict[str, Callable[[BlockReader, JSONObject, list[Event]], Opened]] = {
    "text": BlockReader.open_text,
    "thinking": BlockReader.open_thinking,
    "redacted_thinking": BlockReader.open_redacted,
    "tool_use": BlockReader.open_call,
}
"""Block type → how it begins. Every other type is the provider's own business and kept as received."""


def _arguments_text(value: JSON) -> str:
    """A call's arguments as text. An object is written the way Anthropic streams it (a space after `:` and `,`), so
    that the same answer reads the same streamed and unstreamed."""
    if type(value) is str:
        return value or NO_ARGUMENTS
    try:
        return arguments_text(value, spaced=True) if value else NO_ARGUMENTS
    except TypeError:
        raise MalformedJSONError("a call's input is nested too deeply") from None


def _parsed(text: str) -> JSON:
    try:
        return exact_loads(text)
    except MalformedJSONError:
        return text
