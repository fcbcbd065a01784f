"""The eight events that every dialect's stream is converted to. Values only.

One event is made per wire event, on the hot path. So the classes are slotted and not frozen: making a frozen instance
takes almost three times as long. Treat events as immutable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from ..json.json_types import JSONObject
from .provider_error import ProviderError
from .tokens import Tokens, Usage

if TYPE_CHECKING:
    # To a type checker a member is its text. So both `event.type == "done"` and `event.type == EventType.DONE` narrow
    # an event to `Done`; no type checker does both for a member of an enum.
    _EventNames = str
else:
    _EventNames = enum.StrEnum


class EventType(_EventNames):
    """The type of an event. Each event class has its member as `type`."""

    START: Final = "start"
    TEXT_DELTA: Final = "text_delta"
    THINKING_DELTA: Final = "thinking_delta"
    TOOL_CALL_START: Final = "tool_call_start"
    TOOL_CALL_DELTA: Final = "tool_call_delta"
    TOOL_CALL_DONE: Final = "tool_call_done"
    DONE: Final = "done"
    ERROR: Final = "error"


class FinishReason(enum.StrEnum):
    """Why the model stopped, in the same words for every provider.

    STOP: the model has finished, or met a stop sequence.
    LENGTH: a limit on tokens cut the answer off.
    TOOL_USE: the answer has calls to run, and no other answer has this reason.
    CONTENT_FILTER: the provider stopped the answer because of its content, or the model declined.
    ERROR: a fault of the model or the server ended the answer.
    ABORTED: an operator of the server stopped the answer.
    UNKNOWN: the provider gave no reason, or one without a member here.

    After ERROR and ABORTED the call has failed, and its response has what came before.
    """

    STOP = "stop"
    LENGTH = "length"
    TOOL_USE = "tool_use"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


UNKNOWN, STOP = FinishReason.UNKNOWN, FinishReason.STOP
"""Members for every answer."""


@dataclass(slots=True)
class Start:
    """The answer has begun. The first event, exactly once; only `ErrorEvent` may come without it.

    model: the model's name as the server reports it, or None.
    response_id: the answer's id as the server reports it, or None.
    """

    type: ClassVar[Literal["start"]] = EventType.START
    model: str | None = None
    response_id: str | None = None


class _WithTokens:
    """The tokens of a delta. Few streams have them, so they are no field: to set one more takes a tenth of the time of
    making an event.
    """

    __slots__ = ("_tokens",)

    index: int
    text: str
    _tokens: Tokens

    @property
    def tokens(self) -> Tokens | None:
        """The tokens that came with the delta, if the request asked for tokens; else None."""
        try:
            return self._tokens
        except AttributeError:
            return None

    @tokens.setter
    def tokens(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (self.index, self.text, self.tokens) == (other.index, other.text, other.tokens)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]


@dataclass(slots=True, eq=False)
class TextDelta(_WithTokens):
    """More text for one text block.

    index: the block's position in the response's `content`.
    text: the new text; empty only if tokens came without text.
    """

    type: ClassVar[Literal["text_delta"]] = EventType.TEXT_DELTA
    index: int
    text: str


@dataclass(slots=True, eq=False)
class ThinkingDelta(_WithTokens):
    """More thinking for one thinking block.

    index: the block's position in the response's `content`.
    text: the new text; empty only if tokens came without text.
    """

    type: ClassVar[Literal["thinking_delta"]] = EventType.THINKING_DELTA
    index: int
    text: str


@dataclass(slots=True)
class ToolCallStart:
    """A tool call has begun. Its id and name are complete.

    index: the call's position in the response's `content`.
    id: the call's id, unique in the answer.
    name: the tool's name.
    """

    type: ClassVar[Literal["tool_call_start"]] = EventType.TOOL_CALL_START
    index: int
    id: str
    name: str


@dataclass(slots=True)
class ToolCallDelta:
    """More of a tool call's arguments.

    The deltas of a call, joined, are its arguments. There is one exception, with a warning: a server that streams the
    whole arguments twice, each time in pieces. The deltas have both; the call in the response has them once.

    index: the call's position in the response's `content`.
    arguments: the new part of the JSON text; never empty.
    """

    type: ClassVar[Literal["tool_call_delta"]] = EventType.TOOL_CALL_DELTA
    index: int
    arguments: str


@dataclass(slots=True)
class ToolCallDone:
    """A tool call has ended.

    index: the call's position in the response's `content`.
    complete: False if the answer was cut off inside the call. Do not execute such a call.
    """

    type: ClassVar[Literal["tool_call_done"]] = EventType.TOOL_CALL_DONE
    index: int
    complete: bool = True


@dataclass(slots=True)
class Done:
    """The answer is complete. The last event, exactly once, and never together with `ErrorEvent`.

    finish_reason: why the model stopped, in the word that all providers share.
    raw_finish_reason: the provider's own word for it, or None.
    usage: token counts.
    provider_data: everything else in the answer, raw, under the wire's own names.
    """

    type: ClassVar[Literal["done"]] = EventType.DONE
    finish_reason: FinishReason
    raw_finish_reason: str | None
    usage: Usage
    provider_data: JSONObject = field(default_factory=lambda: {})


@dataclass(slots=True)
class ErrorEvent:
    """The call failed. The last event, exactly once. The completion's response contains what arrived before it."""

    type: ClassVar[Literal["error"]] = EventType.ERROR
    error: ProviderError


Event: TypeAlias = Start | TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | ToolCallDone | Done | ErrorEvent
