"""The order of events that every dialect's stream satisfies, as two tables: one for the stream, one for each block.

Tests run every stream of every dialect through `OrderChecker`.
"""

from __future__ import annotations

import manystream as ms

STREAM_ORDER: dict[str, dict[str, str]] = {
    "before": {ms.EventType.START: "open", ms.EventType.ERROR: "ended"},
    "open": {
        ms.EventType.TEXT_DELTA: "open",
        ms.EventType.THINKING_DELTA: "open",
        ms.EventType.TOOL_CALL_START: "open",
        ms.EventType.TOOL_CALL_DELTA: "open",
        ms.EventType.TOOL_CALL_DONE: "open",
        ms.EventType.DONE: "ended",
        ms.EventType.ERROR: "ended",
    },
    "ended": {},
}
"""State of the stream → event → next state. An event that is not in the table is not allowed."""

BLOCK_ORDER: dict[str, dict[str, str]] = {
    "new": {
        ms.EventType.TEXT_DELTA: "text",
        ms.EventType.THINKING_DELTA: "thinking",
        ms.EventType.TOOL_CALL_START: "call",
    },
    "text": {ms.EventType.TEXT_DELTA: "text"},
    "thinking": {ms.EventType.THINKING_DELTA: "thinking"},
    "call": {ms.EventType.TOOL_CALL_DELTA: "call", ms.EventType.TOOL_CALL_DONE: "closed"},
    "closed": {},
}
"""State of one content block (one index) → event → next state. An event that is not in the table is not allowed."""


class OrderError(AssertionError):
    """A stream broke the event order. This is a defect in its stream machine."""


class OrderChecker:
    """Checks the events of one stream. `check` raises `OrderError` at the first that the tables do not allow."""

    __slots__ = ("_blocks", "stream")

    def __init__(self) -> None:
        self.stream: str = "before"
        self._blocks: dict[int, str] = {}

    def check(self, event: ms.Event) -> None:
        """Check the next event. Raises `OrderError`."""
        following = STREAM_ORDER[self.stream].get(event.type)
        if following is None:
            raise OrderError(f"{event.type} is not allowed while the stream is {self.stream!r}")
        self.stream = following
        index = getattr(event, "index", None)
        if index is not None:
            state = self._blocks.get(index, "new")
            following = BLOCK_ORDER[state].get(event.type)
            if following is None:
                raise OrderError(f"{event.type} is not allowed while block {index} is {state!r}")
            self._blocks[index] = following
        if event.type is ms.EventType.DONE and "call" in self._blocks.values():
            raise OrderError("DONE while a tool call is open")
