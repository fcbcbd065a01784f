"""The delivery of events, step by step: the delayed start, the last event, and callbacks that raise or cancel."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.call.attempt import Attempt, Steps
from manystream.engine.call.buffered import Buffered
from manystream.engine.call.call import CallHooks, Counters, RunningCall, TargetRequest, nobody
from manystream.engine.call.timeouts import effective

START, A, B, C = ms.Start("r1", "m"), ms.TextDelta(0, "a"), ms.TextDelta(0, "b"), ms.TextDelta(0, "c")
DONE = ms.Done(ms.FinishReason.STOP, "stop", ms.Usage())
ERROR = ms.ErrorEvent(ms.ProviderError("no", category=ms.ErrorCategory.SERVER))


class Reader:
    """The attempt of a call, as far as the delivery of its events needs one."""

    def __init__(self) -> None:
        self.prepared = PREPARED
        self.status, self.headers, self.request_id = 200, dict[str, str](), None

    def timings(self) -> ms.Timings:
        return ms.Timings()

    def accepted(self) -> None:
        pass

    def with_start(self, events: Sequence[ms.Event]) -> Sequence[ms.Event]:
        return events


PREPARED: Any = SimpleNamespace(
    stream=True, provider=SimpleNamespace(name="p"), model="m", tags=None, durable=None, continued=None, turn=None,
    body=b"",
    head=SimpleNamespace(headers=[(b"host", b"h")]), secrets=None,
)  # fmt: skip
READER: Any = Reader()
CLOCKS = effective(None, None, stream=True)


class Delivered:
    """A call that reads no connection, and what its callbacks got."""

    def __init__(self, on_event: Callable[[ms.Event], object] | None = None, *, has_callback: bool = True) -> None:
        self.seen: list[ms.Event] = []
        self.completions: list[ms.Completion] = []
        self.raised: list[BaseException] = []
        self.counters = Counters()
        self.on_event = on_event
        runtime: Any = SimpleNamespace(
            loop=SimpleNamespace(clock=lambda: 0.0, now=0.0, forked=False),
            soon=lambda action, on_defect: None,
            on_callback_raised=self.raised.append,
        )
        self.call = RunningCall(
            runtime, CallHooks(lambda call, completion: None), PREPARED, self.counters, 1, 0.0, CLOCKS, ms.Retry(),
            self.note if has_callback else nobody, self.completions.append, lambda response: None,
        )  # fmt: skip

    def note(self, event: ms.Event) -> None:
        self.seen.append(event)
        if self.on_event is not None:
            self.on_event(event)

    def first(self, *events: ms.Event) -> None:
        self.call.on_events(READER, events)

    def done(self) -> None:
        self.call.on_answer(READER, ms.Response("r1", "m"), DONE)

    def fail(self) -> None:
        self.call.end(ERROR.error)
        self.call.finish()


class Reported:
    """The events that an attempt reports to its call."""

    def __init__(self) -> None:
        self.events: list[list[ms.Event]] = []

    def on_events(self, attempt: Attempt, events: Sequence[ms.Event]) -> None:
        self.events.append(list(events))


def attempt_of(call: Reported, durable: object = None) -> Attempt:
    runtime = cast(Any, SimpleNamespace(pool=SimpleNamespace(abandon=lambda _: None), buffered=Buffered(1)))
    return Attempt(
        cast(Any, SimpleNamespace(fresh_key=None, durable=durable, reads=durable is not None)), cast(Any, call),
        runtime, effective(None, None, stream=True), started=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("reads", [False, True])
def test_an_attempt_that_reads_an_answer_counts_as_sent(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attempt, "acquire", lambda attempt, *, fresh: None)
    attempt = attempt_of(Reported(), object() if reads else None)
    assert attempt.sent == reads
    attempt.start_over()
    assert attempt.sent == reads


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


def test_the_last_event_is_delivered_once() -> None:
    one = Delivered()
    one.first(START, A, B)
    assert (one.seen, one.counters.events) == ([START, A, B], 3)
    one.call.deliver([C])
    one.done()
    assert (one.seen, one.counters.events) == ([START, A, B, C, DONE], 5)
    one.call.deliver([C])
    one.fail()
    assert (len(one.seen), one.counters.events, len(one.completions)) == (5, 5, 1)


def test_a_call_that_failed_gets_its_last_event_only() -> None:
    for before in ((), (START, A)):
        one = Delivered()
        if before:
            one.first(*before)
        one.call.end(ERROR.error)
        one.call.deliver([B])
        one.call.deliver_matches(cast(Any, None), cast(Any, [1]))
        one.call.finish()
        one.call.finish()
        assert one.seen[:-1] == list(before)
        assert one.seen[-1] == ERROR
        assert one.counters.events == len(one.seen)


def test_a_callback_that_raises_gets_no_further_event() -> None:
    fault = ValueError("mine")

    def on_event(event: ms.Event) -> None:
        if event is B:
            raise fault

    one = Delivered(on_event)
    one.first(START, A, B, C)
    one.call.deliver([C])
    one.done()
    assert (one.seen, one.counters.events, one.raised) == ([START, A, B], 3, [fault])
    (completion,) = one.completions
    assert completion.error_category is ms.ErrorCategory.CALLBACK


def test_a_callback_that_cancels_and_raises_gets_no_more_events() -> None:
    def on_event(event: ms.Event) -> None:
        one.call.end(ERROR.error)
        raise ValueError("mine")

    one = Delivered(on_event)
    one.first(START, A)
    assert (one.seen, one.counters.events, len(one.raised)) == ([START], 1, 1)
    assert [completion.error for completion in one.completions] == [ERROR.error]


def test_a_callback_that_raises_on_the_last_event_fails_its_call() -> None:
    fault = KeyboardInterrupt()

    def on_event(event: ms.Event) -> None:
        if event is DONE:
            raise fault

    one = Delivered(on_event)
    one.done()
    assert (one.seen, one.counters.events, one.raised) == ([DONE], 1, [fault])
    (completion,) = one.completions
    assert completion.error_category is ms.ErrorCategory.CALLBACK
    assert completion.response is not None


def test_a_defect_during_a_callback_s_failure_completes_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_event(event: ms.Event) -> None:
        raise ValueError("mine")

    def fail(*arguments: object) -> ms.Completion:
        raise RuntimeError("defect")

    one = Delivered(on_event)
    monkeypatch.setattr(RunningCall, "_fail", fail)
    one.first(A)
    (completion,) = one.completions
    assert completion.error_message is not None
    assert "defect" in completion.error_message


def test_a_callback_that_ends_its_call_stops_the_delivery() -> None:
    def on_event(event: ms.Event) -> None:
        if event is A:
            one.call.end(ERROR.error)

    one = Delivered(on_event)
    one.first(START, A, B)
    assert (one.seen, one.counters.events) == ([START, A], 2)


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
    target = Target()

    def on_event(event: ms.Event) -> None:
        if event == ms.TextDelta(0, "2"):
            if how == "raises":
                raise fault
            if how == "ends":
                one.call.end(ERROR.error)

    one = Delivered(on_event)
    one.first(A)
    one.call.deliver_matches(cast(Any, target), cast(Any, ["1", "2", "3"]))
    expected = ["1", "2", "3"] if how == "whole" else ["1", "2"]
    assert target.made == expected
    assert one.seen == [A, *(ms.TextDelta(0, text) for text in expected)]
    assert one.counters.events == 1 + len(expected)
    assert one.raised == ([fault] if how == "raises" else [])


def test_events_without_a_callback_are_counted() -> None:
    others = Counters()
    one = Delivered(has_callback=False)
    one.first(START, A)
    one.call.redirect(TargetRequest(PREPARED, others, CLOCKS, lambda response: None))
    one.call.deliver([B])
    one.done()
    assert (one.counters.events, others.events) == (2, 2)


# --- many events of one wire event ---


class Stepping:
    """An attempt that notes the steps."""

    def __init__(self) -> None:
        self.over = False
        self.paused = False
        self.delivered: list[int] = []
        self.due: list[Callable[[], None]] = []
        self.ends = self.resumed = 0

    @property
    def receiver(self) -> Any:
        return SimpleNamespace(deliver=lambda events: self.delivered.append(len(events)))

    def resume(self) -> None:
        self.resumed += 1

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
    steps = Steps(cast(Any, attempt))
    steps.deliver([A] * count, attempt.end)
    for place in range(1, len(expected) + 1):
        assert (attempt.delivered, attempt.ends) == (expected[:place], 0)
        steps.schedule()
        assert len(attempt.due) == 1
        attempt.tick()
    assert (attempt.delivered, attempt.ends, attempt.resumed, attempt.due) == (expected, 1, 1, [])


def test_a_paused_or_ended_attempt_gets_no_step() -> None:
    for what in ("paused", "over"):
        attempt = Stepping()
        steps = Steps(cast(Any, attempt))
        steps.deliver([A] * 100, attempt.end)
        setattr(attempt, what, True)
        attempt.tick()
        assert (attempt.delivered, attempt.due) == ([64], [])
        setattr(attempt, what, False)
        steps.schedule()
        attempt.tick()
        attempt.tick()
        assert (attempt.delivered, attempt.ends) == ([64, 36], 1)
