"""The order of events that every dialect's stream satisfies, as two tables: one for the stream, one for each block.

Tests run every stream of every dialect through `OrderChecker`.
"""

from __future__ import annotations

from manystream.providers.model.events import Event, EventType

STREAM_ORDER: dict[str, dict[str, str]] = {
    "before": {EventType.START: "open", EventType.ERROR: "ended"},
    "open": {
        EventType.TEXT_DELTA: "open",
        EventType.THINKING_DELTA: "open",
        EventType.TOOL_CALL_START: "open",
        EventType.TOOL_CALL_DELTA: "open",
        EventType.TOOL_CALL_DONE: "open",
        EventType.DONE: "ended",
        EventType.ERROR: "ended",
    },
    "ended": {},
}
"""State of the stream → event → next state. An event that is not in the table is not allowed."""

BLOCK_ORDER: dict[str, dict[str, str]] = {
    "new": {
        EventType.TEXT_DELTA: "text",
        EventType.THINKING_DELTA: "thinking",
        EventType.TOOL_CALL_START: "call",
    },
    "text": {EventType.TEXT_DELTA: "text"},
    "thinking": {EventType.THINKING_DELTA: "thinking"},
    "call": {EventType.TOOL_CALL_DELTA: "call", EventType.TOOL_CALL_DONE: "closed"},
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

    def check(self, event: Event) -> None:
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
        if event.type is EventType.DONE and "call" in self._blocks.values():
            raise OrderError("DONE while a tool call is open")
