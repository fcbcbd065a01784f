"""The order of events."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.model.provider_error import truncated
from tests.support.event_order import OrderChecker, OrderError

# --- the order of events ---
START, DONE = ms.Start(), ms.Done(ms.FinishReason.STOP, None, ms.Usage())

ERROR = ms.ErrorEvent(truncated())

CALL = ms.ToolCallStart(0, "c", "f")


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([ms.TextDelta(0, "a")], "text_delta is not allowed while the stream is 'before'"),
        ([START, START], "start is not allowed while the stream is 'open'"),
        ([START, DONE, DONE], "done is not allowed while the stream is 'ended'"),
        ([ERROR, ERROR], "error is not allowed while the stream is 'ended'"),
        ([START, CALL, ms.TextDelta(0, "a")], "text_delta is not allowed while block 0 is 'call'"),
        ([START, ms.ToolCallDelta(0, "a")], "tool_call_delta is not allowed while block 0 is 'new'"),
        ([START, CALL, ms.ToolCallDone(0), ms.ToolCallDelta(0, "a")],
            "tool_call_delta is not allowed while block 0 is 'closed'"),
        ([START, CALL, DONE], "DONE while a tool call is open"),
        ([START, CALL, ms.ToolCallDelta(0, "a"), DONE], "DONE while a tool call is open"),
    ],
)  # fmt: skip
def test_events_in_a_wrong_order_are_named(events: list[ms.Event], words: str) -> None:
    checker = OrderChecker()
    for event in events[:-1]:
        checker.check(event)
    with pytest.raises(OrderError) as caught:
        checker.check(events[-1])
    assert str(caught.value) == words


def test_events_in_their_order_are_accepted() -> None:
    checker = OrderChecker()
    for event in (
        START,
        ms.TextDelta(0, "a"),
        ms.ToolCallStart(1, "c", "f"),
        ms.TextDelta(0, "b"),
        ms.ToolCallDone(1),
        DONE,
    ):
        checker.check(event)
    assert checker.stream == "ended"
    checker = OrderChecker()
    events: list[ms.Event] = [START, CALL, ERROR]
    for each in events:
        checker.check(each)
