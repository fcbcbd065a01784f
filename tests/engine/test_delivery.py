"""The delivery of events, step by step: the delayed start, the last event, and callbacks that raise or cancel."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.call.attempt import Attempt
from manystream.engine.call.body.buffered import Buffered
from manystream.engine.call.delivery import Counters, Delivery
from manystream.engine.call.slices import Steps
from manystream.engine.call.timeouts import effective

START, A, B, C = ms.Start("r1", "m"), ms.TextDelta(0, "a"), ms.TextDelta(0, "b"), ms.TextDelta(0, "c")
DONE = ms.Done(ms.FinishReason.STOP, "stop", ms.Usage())
ERROR = ms.Error(ms.ProviderError("no", category=ms.ErrorCategory.SERVER))


class Owner:
    """The call to which the callback belongs."""

    def __init__(self, defect: Exception | None = None) -> None:
        self.failures: list[BaseException] = []
        self.defects: list[Exception] = []
        self.defect = defect

    def on_callback_failure(self, failure: BaseException) -> None:
        self.failures.append(failure)
        if self.defect is not None:
            raise self.defect

    def on_defect(self, error: Exception) -> None:
        self.defects.append(error)


def delivery(
    on_event: Callable[[ms.Event], object] | None = None, owner: Owner | None = None
) -> tuple[Delivery, list[ms.Event], Counters]:
    """A delivery, the events that its callback got, and its counters."""
    seen: list[ms.Event] = []

    def note(event: ms.Event) -> None:
        seen.append(event)
        if on_event is not None:
            on_event(event)

    counters = Counters()
    return Delivery(note, cast(Any, owner or Owner()), counters), seen, counters


class Reported:
    """The events that an attempt reports to its call."""

    def __init__(self) -> None:
        self.events: list[list[ms.Event]] = []

    def on_events(self, attempt: Attempt, events: Sequence[ms.Event]) -> None:
        self.events.append(list(events))


def attempt_of(call: Reported) -> Attempt:
    runtime = cast(Any, SimpleNamespace(pool=SimpleNamespace(abandon=lambda _: None), buffered=Buffered(1)))
    return Attempt(
        cast(Any, SimpleNamespace(fresh_key=None)), cast(Any, call), runtime, effective(None, None, stream=True),
        started=0.0,
    )  # fmt: skip


def test_an_attempt_holds_its_start_until_the_first_other_event() -> None:
    call = Reported()
    one = attempt_of(call)
    one.deliver([START])
    one.deliver([])
    assert call.events == []
    one.deliver([A, B])
    one.deliver([C])
    assert call.events == [[START, A, B], [C]]
    assert one.with_start((DONE,)) == (DONE,)


def test_a_start_with_other_events_is_not_held() -> None:
    call = Reported()
    attempt_of(call).deliver([START, A])
    assert call.events == [[START, A]]


def test_a_start_that_is_held_goes_before_done() -> None:
    call = Reported()
    one = attempt_of(call)
    one.deliver([START])
    assert one.with_start((DONE,)) == (START, DONE)


def test_an_attempt_that_is_over_reports_no_event() -> None:
    call = Reported()
    one = attempt_of(call)
    one.abort()
    one.receiver.deliver([START, A])
    assert (one.over, call.events) == (True, [])


def test_the_last_events_are_delivered_once() -> None:
    one, seen, counters = delivery()
    assert (one.delivered, counters.events) == (False, 0)
    one.deliver_first([START, A, B])
    assert (seen, one.delivered, counters.events) == ([START, A, B], True, 3)
    one.deliver([C])
    assert one.finish([DONE]) is None
    assert (seen, counters.events) == ([START, A, B, C, DONE], 5)
    assert one.finish([DONE]) is None
    one.deliver([C])
    assert (len(seen), counters.events) == (5, 5)


def test_a_call_without_content_gets_its_last_events() -> None:
    for last in ([START, DONE], [ERROR]):
        one, seen, counters = delivery()
        one.mute()
        assert one.finish(last) is None
        assert (seen, counters.events) == (last, len(last))


def test_a_muted_call_gets_its_last_event_only() -> None:
    one, seen, counters = delivery()
    one.deliver_first([START, A])
    one.mute()
    one.deliver([B])
    one.deliver_matches(cast(Any, None), cast(Any, [1]))
    one.finish([DONE])
    one.mute()
    one.finish([DONE])
    assert (seen, counters.events) == ([START, A, DONE], 3)


def test_a_callback_that_raises_gets_no_further_event() -> None:
    fault = ValueError("mine")

    def on_event(event: ms.Event) -> None:
        if event is B:
            raise fault

    owner = Owner()
    one, seen, counters = delivery(on_event, owner)
    one.deliver_first([START, A, B, C])
    one.deliver([C])
    assert (seen, counters.events, owner.failures) == ([START, A, B], 3, [fault])
    assert (one.finish([DONE]), one.delivered, owner.defects) == (None, True, [])


def test_a_callback_that_raises_on_the_last_event_is_reported() -> None:
    fault = KeyboardInterrupt()

    def on_event(event: ms.Event) -> None:
        if event is DONE:
            raise fault

    owner = Owner()
    one, seen, counters = delivery(on_event, owner)
    assert one.finish([DONE]) is fault
    assert one.finish([DONE]) is None
    assert (seen, counters.events, owner.failures) == ([DONE], 1, [])


def test_a_defect_during_a_callback_s_failure_is_reported() -> None:
    def on_event(event: ms.Event) -> None:
        raise ValueError("mine")

    defect = RuntimeError("defect")
    owner = Owner(defect)
    one, _, _ = delivery(on_event, owner)
    one.deliver_first([A])
    assert owner.defects == [defect]


def test_a_callback_that_ends_its_call_stops_the_delivery() -> None:
    def on_event(event: ms.Event) -> None:
        if event is A:
            one.mute()

    one, seen, counters = delivery(on_event)
    one.deliver_first([START, A, B])
    assert (seen, counters.events) == ([START, A], 2)


class Target:
    """Makes the events of deltas that matched."""

    def __init__(self) -> None:
        self.made: list[object] = []

    def accept(self, match: object) -> ms.Event:
        self.made.append(match)
        return ms.TextDelta(0, str(match))


@pytest.mark.parametrize("how", ["whole", "raises", "ends"])
def test_matched_deltas_are_made_as_they_are_delivered(how: str) -> None:
    fault = ValueError("mine")
    target, owner = Target(), Owner()

    def on_event(event: ms.Event) -> None:
        if event == ms.TextDelta(0, "2"):
            if how == "raises":
                raise fault
            if how == "ends":
                one.mute()

    one, seen, counters = delivery(on_event, owner)
    one.deliver_first([A])
    one.deliver_matches(cast(Any, target), cast(Any, ["1", "2", "3"]))
    expected = ["1", "2", "3"] if how == "whole" else ["1", "2"]
    assert target.made == expected
    assert seen == [A, *(ms.TextDelta(0, text) for text in expected)]
    assert counters.events == 1 + len(expected)
    assert owner.failures == ([fault] if how == "raises" else [])


def test_events_without_a_callback_are_counted() -> None:
    counters, others = Counters(), Counters()
    one = Delivery(None, cast(Any, Owner()), counters)
    one.deliver_first([START, A])
    one.count_in(others)
    one.deliver([B])
    one.finish([DONE])
    assert (counters.events, others.events) == (2, 2)
    assert (counters.started, counters.completed, dict(counters.failures)) == (0, 0, {})


# --- many events of one wire event ---


class Stepping:
    """An attempt that notes the steps."""

    def __init__(self) -> None:
        self.over = False
        self.paused = False
        self.steps: list[int] = []
        self.due: list[Callable[[], None]] = []
        self.ends = 0

    def deliver_step(self, events: list[ms.Event]) -> None:
        self.steps.append(len(events))

    def stepped(self, then: Callable[[], object]) -> None:
        then()

    def soon(self, action: Callable[[], None]) -> None:
        self.due.append(action)

    def end(self) -> None:
        self.ends += 1

    def tick(self) -> None:
        due, self.due = self.due, []
        for each in due:
            each()


@pytest.mark.parametrize(("count", "expected"), [(64, [64]), (65, [64, 1]), (200, [64, 64, 64, 8])])
def test_64_events_are_delivered_in_a_step(count: int, expected: list[int]) -> None:
    attempt = Stepping()
    steps = Steps(cast(Any, attempt), [A] * count, attempt.end, attempt.soon)
    steps.go_on()
    for place in range(1, len(expected) + 1):
        assert (attempt.steps, attempt.ends) == (expected[:place], 0)
        steps.schedule()
        assert len(attempt.due) == 1
        attempt.tick()
    assert (attempt.steps, attempt.ends, attempt.due) == (expected, 1, [])


def test_a_paused_or_ended_attempt_gets_no_step() -> None:
    for what in ("paused", "over"):
        attempt = Stepping()
        steps = Steps(cast(Any, attempt), [A] * 100, attempt.end, attempt.soon)
        steps.go_on()
        setattr(attempt, what, True)
        attempt.tick()
        assert (attempt.steps, attempt.due) == ([64], [])
        setattr(attempt, what, False)
        steps.schedule()
        attempt.tick()
        attempt.tick()
        assert (attempt.steps, attempt.ends) == ([64, 36], 1)
