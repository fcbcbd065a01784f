"""The eight events that every dialect's stream is turned into. Values only.

Hot: one is made per wire event, so they are slotted and not frozen (a frozen one costs almost three times as
much to make). Treat them as immutable.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from .errors import ProviderError
from .json_values import JSONObject
from .usage import Usage


class EventType(enum.StrEnum):
    """Which event it is; each event class carries its member as `type`."""

    START = "start"
    TEXT_DELTA = "text_delta"
    THINKING_DELTA = "thinking_delta"
    TOOL_CALL_START = "tool_call_start"
    TOOL_CALL_DELTA = "tool_call_delta"
    TOOL_CALL_DONE = "tool_call_done"
    DONE = "done"
    ERROR = "error"


class FinishReason(enum.StrEnum):
    """Why the model stopped, the same words for every provider."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_USE = "tool_use"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Start:
    """The answer has begun. First, and exactly once, before any other event but `Error`."""

    type: ClassVar[EventType] = EventType.START
    model: str | None = None
    response_id: str | None = None


@dataclass(slots=True)
class TextDelta:
    """More text for the block at `index`. Never empty."""

    type: ClassVar[EventType] = EventType.TEXT_DELTA
    index: int
    text: str


@dataclass(slots=True)
class ThinkingDelta:
    """More thinking for the block at `index`. Never empty."""

    type: ClassVar[EventType] = EventType.THINKING_DELTA
    index: int
    text: str


@dataclass(slots=True)
class ToolCallStart:
    """A tool call begins; its id and name are whole."""

    type: ClassVar[EventType] = EventType.TOOL_CALL_START
    index: int
    id: str
    name: str


@dataclass(slots=True)
class ToolCallDelta:
    """More of a tool call's arguments, as JSON text. Never empty."""

    type: ClassVar[EventType] = EventType.TOOL_CALL_DELTA
    index: int
    arguments: str


@dataclass(slots=True)
class ToolCallDone:
    """A tool call has ended. `complete` is False where the answer was cut off inside it: do not execute it."""

    type: ClassVar[EventType] = EventType.TOOL_CALL_DONE
    index: int
    complete: bool = True


@dataclass(slots=True)
class Done:
    """The answer is whole. Last, exactly once, and never together with `Error`."""

    type: ClassVar[EventType] = EventType.DONE
    finish_reason: FinishReason
    raw_finish_reason: str | None
    usage: Usage
    provider_data: JSONObject = field(default_factory=lambda: {})


@dataclass(slots=True)
class Error:
    """The answer failed. Last, exactly once; what had arrived is in the completion's response."""

    type: ClassVar[EventType] = EventType.ERROR
    error: ProviderError


Event: TypeAlias = "Start | TextDelta | ThinkingDelta | ToolCallStart | ToolCallDelta | ToolCallDone | Done | Error"
