"""The answer under construction: each method records one fact and returns the event that tells it.

So what the caller was told in events and what the final `Response` holds cannot differ. Stream machines and
unstreamed decoders both build their answer here, which is why a streamed answer equals an unstreamed one.

Knows blocks, their indexes and the rules every dialect shares (when a call is complete, when STOP becomes
TOOL_USE). Must not know any wire format. Pieces are appended and joined once: nothing here is quadratic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from .answer_limits import ANSWER_LIMITS, AnswerCount, AnswerLimits
from .call_ids import TakenIds, unique_id
from .events import (
    Done,
    Event,
    FinishReason,
    Start,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from .json_values import JSON, JSONObject
from .messages import Block, ProviderState, Text, Thinking, ToolCall
from .response import Response
from .usage import Usage

CUT_SHORT = frozenset({FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.ERROR})
"""Reasons after which the answer's last block may be a fragment."""


class TextInProgress:
    """A text block that deltas are being appended to."""

    __slots__ = ("citations", "index", "pieces", "state")

    def __init__(self, index: int) -> None:
        self.index: int = index
        self.pieces: list[str] = []
        self.citations: list[JSONObject] = []
        self.state: ProviderState | None = None

    def delta(self, text: str) -> TextDelta:
        """Append text that is not empty."""
        self.pieces.append(text)
        return TextDelta(self.index, text)

    def block(self) -> Text:
        return Text("".join(self.pieces), citations=list(self.citations), state=self.state)


class ThinkingInProgress:
    """A thinking block that deltas are being appended to. Its signature may come in fragments, too."""

    __slots__ = ("index", "pieces", "signature_pieces", "state")

    def __init__(self, index: int) -> None:
        self.index: int = index
        self.pieces: list[str] = []
        self.signature_pieces: list[str] = []
        self.state: ProviderState | None = None

    def delta(self, text: str) -> ThinkingDelta:
        """Append thinking that is not empty."""
        self.pieces.append(text)
        return ThinkingDelta(self.index, text)

    def block(self) -> Thinking:
        signature = "".join(self.signature_pieces) if self.signature_pieces else None
        return Thinking("".join(self.pieces), signature, state=self.state)


class ToolCallInProgress:
    """A tool call. Until its name is known nothing is told; arguments that come before it are kept for then."""

    __slots__ = ("complete", "done", "id", "index", "name", "pieces", "started", "state", "taken", "wire_id")

    def __init__(self, index: int, taken: TakenIds | None) -> None:
        self.index: int = index
        self.taken: TakenIds | None = taken
        self.wire_id: str = ""
        self.id: str = ""
        self.name: str = ""
        self.pieces: list[str] = []
        self.started: bool = False
        self.done: bool = False
        self.complete: bool = False
        self.state: ProviderState | None = None

    def start(self, id: str, name: str) -> Sequence[Event]:
        """The id and the name are known: tell them, and the arguments that were waiting. An id that another call of
        the answer has is numbered; `wire_id` is the id as received."""
        self.wire_id = id
        self.id, self.name, self.started = id, name, True
        if self.taken is not None:
            self.id = unique_id(id, self.taken)
            self.taken.add(self.id)
        start = ToolCallStart(self.index, self.id, name)
        waiting = "".join(self.pieces)
        return (start, ToolCallDelta(self.index, waiting)) if waiting else (start,)

    def more(self, arguments: str) -> ToolCallDelta:
        """Append arguments that are not empty, of a call that has started."""
        self.pieces.append(arguments)
        return ToolCallDelta(self.index, arguments)

    def delta(self, arguments: str) -> Sequence[Event]:
        """Append arguments."""
        if not arguments:
            return ()
        if self.started:
            return (self.more(arguments),)
        self.pieces.append(arguments)
        return ()

    def finish(self, complete: bool = True) -> Sequence[Event]:
        """The call has ended; a second time, or one that never got a name, tells nothing."""
        if self.done:
            return ()
        self.done, self.complete = True, complete
        return (ToolCallDone(self.index, complete),) if self.started else ()

    def block(self) -> ToolCall:
        return ToolCall(
            self.id, self.name, "".join(self.pieces), complete=self.done and self.complete, state=self.state
        )


class Placed:
    """A block that came whole and has no events of its own: redacted thinking, an image, a provider's block."""

    __slots__ = ("index", "value")

    def __init__(self, index: int, value: Block) -> None:
        self.index: int = index
        self.value: Block = value

    def block(self) -> Block:
        return self.value


InProgress: TypeAlias = "TextInProgress | ThinkingInProgress | ToolCallInProgress | Placed"


class Accumulator:
    """One answer. Blocks get their index where they first appear, and keep it.

    count: what it is made of so far, beside the other choices of the same answer. A block beyond the limits raises
    `ProviderError`.
    """

    __slots__ = (
        "blocks",
        "call_ids",
        "count",
        "finish_reason",
        "id",
        "model",
        "provider_data",
        "raw_finish_reason",
        "refusal_pieces",
        "usage",
        "warnings",
    )

    def __init__(
        self, limits: AnswerLimits = ANSWER_LIMITS, count: AnswerCount | None = None, *, keep_ids: bool = False
    ) -> None:
        """keep_ids: two calls may have one id, because their results, which are elsewhere, have it, too."""
        self.blocks: list[InProgress] = []
        self.count: AnswerCount = count if count is not None else AnswerCount(limits)
        self.call_ids: TakenIds | None = None if keep_ids else TakenIds()
        self.model: str | None = None
        self.id: str | None = None
        self.finish_reason: FinishReason = FinishReason.UNKNOWN
        self.raw_finish_reason: str | None = None
        self.usage: Usage = Usage()
        self.refusal_pieces: list[str] = []
        self.warnings: list[str] = []
        self.provider_data: dict[str, JSON] = {}

    def warn(self, warning: str) -> None:
        """Put a warning on the response, once however often it is given."""
        if warning not in self.warnings:
            self.warnings.append(warning)

    def start(self, model: str | None, response_id: str | None) -> Start:
        """The answer begins."""
        self.model, self.id = model, response_id
        return Start(model, response_id)

    def text(self) -> TextInProgress:
        """A new text block, at the next index."""
        self.count.add_block()
        block = TextInProgress(len(self.blocks))
        self.blocks.append(block)
        return block

    def thinking(self, *, counted: bool = True) -> ThinkingInProgress:
        """A new thinking block, at the next index. `counted=False` never raises: for what has come already."""
        if counted:
            self.count.add_block()
        block = ThinkingInProgress(len(self.blocks))
        self.blocks.append(block)
        return block

    def tool_call(self) -> ToolCallInProgress:
        """A new tool call, at the next index; not told before its `start`."""
        self.count.add_tool_call()
        block = ToolCallInProgress(len(self.blocks), self.call_ids)
        self.blocks.append(block)
        return block

    def place(self, value: Block) -> Placed:
        """A whole block, at the next index, without events."""
        self.count.add_block()
        block = Placed(len(self.blocks), value)
        self.blocks.append(block)
        return block

    def done(self, reason: FinishReason, raw: str | None) -> list[Event]:
        """The terminal marker came: close what is open, settle the reason, and tell Done."""
        events: list[Event] = []
        calls = False
        for block in self.blocks:
            if isinstance(block, ToolCallInProgress):
                cut = reason in CUT_SHORT and block is self.blocks[-1]
                events.extend(block.finish(complete=not cut))
                calls = calls or block.started
        if calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_USE
        self.finish_reason, self.raw_finish_reason = reason, raw
        events.append(Done(reason, raw, self.usage, self.provider_data))
        return events

    def response(self) -> Response:
        """What has arrived so far; whole once `done` was called."""
        return Response(
            content=[
                block.block() for block in self.blocks if not isinstance(block, ToolCallInProgress) or block.started
            ],
            finish_reason=self.finish_reason,
            raw_finish_reason=self.raw_finish_reason,
            usage=self.usage,
            model=self.model,
            id=self.id,
            refusal="".join(self.refusal_pieces) if self.refusal_pieces else None,
            warnings=list(self.warnings),
            provider_data=self.provider_data,
        )


def events_of(response: Response) -> list[Event]:
    """The events a stream of this answer could have had: for a server that answers a stream request unstreamed."""
    events: list[Event] = [Start(response.model, response.id)]
    for index, block in enumerate(response.content):
        if isinstance(block, Text) and block.text:
            events.append(TextDelta(index, block.text))
        elif isinstance(block, Thinking) and block.text:
            events.append(ThinkingDelta(index, block.text))
        elif isinstance(block, ToolCall):
            events.append(ToolCallStart(index, block.id, block.name))
            if block.arguments:
                events.append(ToolCallDelta(index, block.arguments))
            events.append(ToolCallDone(index, block.complete))
    events.append(Done(response.finish_reason, response.raw_finish_reason, response.usage, response.provider_data))
    return events
