"""Calls that wait in a lane, step by step, and what is reported to observers of traffic control."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.traffic.limits.limiter import DeclaredLimit, Limiter, LimiterState
from manystream.engine.traffic.limits.quota import Impossible
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.charging import charging_of
from manystream.providers.limits.limit_reports import reader_of
from manystream.providers.limits.quota_report import Refusal
from manystream.statistics import LimiterStatistics, RouteStatistics
from tests.engine.unit_runtime import Call, UnitRuntime


class Watch:
    """An observer that notes what is reported to it."""

    def __init__(self) -> None:
        self.reported: list[tuple[object, ...]] = []

    def limiter_changed(self, scope: str, statistics: LimiterStatistics) -> None:
        self.reported.append((scope, statistics.waiting, statistics.running))

    def route_changed(self, route: str, statistics: RouteStatistics) -> None:
        self.reported.append((route, statistics.waiting, statistics.targets[0].outstanding))


# --- lanes ---


def lane(
    runtime: UnitRuntime,
    *limits: DeclaredLimit,
    reported: list[object] | None = None,
    adaptive: bool = True,
    watch: Watch | None = None,
) -> Limiter:
    scope = LimiterState("one/m", charging_of("openai-chat"), limits=limits, adaptive=adaptive)

    def next_in_line(limit: DeclaredLimit, scope: LimiterState) -> None:
        if reported is not None:
            reported.append((limit, scope))

    reader = reader_of("openai-chat")
    changed = None if watch is None else watch.limiter_changed
    return Limiter(scope, cast(Any, runtime), "openai-chat", reader, lambda: 0.0, cast(Any, next_in_line), changed)


def declared(**rates: float) -> DeclaredLimit:
    return DeclaredLimit("one", ms.RateLimit(**rates), 0.0)  # type: ignore[arg-type]


def enter(
    lane: Limiter, call: Call, *, deadline: float = math.inf, again: bool = False, tokens: float = 1.0, **options: Any
) -> Permit:
    ticket = Permit(tokens, 1, **options)
    ticket.owner = cast(Any, call)
    lane.enter(ticket, lane.runtime.loop.clock(), again=again, deadline=deadline)
    return ticket


def test_a_lane_s_timer_sends_the_next_call() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=6))
    calls = [Call() for _ in range(9)]
    for call in calls:
        enter(one, call)
    assert [len(call.reported) for call in calls] == [1] * 6 + [0] * 3
    assert runtime.timers.times == [10.0]
    runtime.go_to(9.9)
    assert calls[6].reported == []
    runtime.go_to(10.1)
    assert [call.reported for call in calls[6:]] == [["admitted"], [], []]
    assert runtime.timers.times == [20.0]
    runtime.go_to(31)
    assert [call.reported for call in calls[6:]] == [["admitted"]] * 3
    assert runtime.timers.times == []


def test_a_call_that_waited_before_goes_to_the_head() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=1))
    order: list[str] = []

    class Ordered(Call):
        def admitted(self, permit: object = None, now: float = 0.0) -> None:
            order.append(self.name)

    for name, again in (("a", False), ("b", False), ("c", False), ("again", True)):
        enter(one, Ordered(name), again=again)
    runtime.go_to(200)
    assert order == ["a", "again", "b", "c"]


def test_a_call_that_cannot_be_sent_in_time_fails_at_once() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=60))
    for _ in range(70):
        enter(one, Call())
    late, early = Call(), Call()
    enter(one, late, deadline=5.0)
    (error,) = late.reported
    assert isinstance(error, ms.ProviderError)
    assert error.message == (
        "queue timeout: what waits before the call takes about 10 s, and it may wait 5 s"
        " (waiting for the first responses of one/m)"
    )
    assert (error.category, error.provider_code, error.retryable) == (ms.ErrorCategory.TIMEOUT, "queue", False)
    enter(one, early, deadline=500.0)
    assert early.reported == []


def test_a_call_larger_than_a_limit_is_never_sent() -> None:
    runtime = UnitRuntime()
    one = lane(runtime, declared(tokens_per_minute=100))
    call = Call()
    enter(one, call, tokens=1000.0)
    (error,) = call.reported
    assert isinstance(error, ms.ProviderError)
    assert (error.message, error.category, error.provider_code, error.retryable, error.retry_after_ms) == (
        "not sent to one/m: the request is larger than the whole limit: declared tokens_per_minute of one (100)",
        ms.ErrorCategory.RATE_LIMIT,
        "request_too_large",
        False,
        -1,
    )
    assert one.state.queue.length == 0


def test_a_change_is_passed_on_to_the_scopes_that_share_a_limit() -> None:
    runtime, reported = UnitRuntime(), list[object]()
    shared = declared(requests_per_minute=1)
    one = lane(runtime, shared, reported=reported)
    one.changed()
    assert (reported, runtime.due) == ([], []), "no limiter waits for the limit"
    enter(one, Call())
    enter(one, Call())
    reported.clear()
    one.changed()
    assert (reported, len(runtime.due)) == ([(shared, one.state)], 1)
    reported.clear()
    runtime.tick()
    assert reported == [], "it is still the first in the line, in vain"
    one.state.quota.hold_until = math.inf
    one.schedule()
    runtime.tick()
    assert reported == [(shared, one.state)], "it has left the line"


def test_an_observer_is_told_of_each_change_of_a_lane() -> None:
    watch = Watch()
    runtime = UnitRuntime()
    one = lane(runtime, declared(requests_per_minute=1), watch=watch)
    enter(one, Call())
    runtime.go_to(0.0)
    assert watch.reported == [("one/m", 0, 1)]
    enter(one, Call())
    runtime.go_to(0.9)
    assert len(watch.reported) == 1
    runtime.go_to(1.0)
    assert watch.reported[1:] == [("one/m", 1, 1)]
    runtime.go_to(30.0)
    one.changed()
    runtime.go_to(30.0)
    assert watch.reported[2:] == [("one/m", 1, 1)]


def test_a_strange_header_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one = lane(UnitRuntime())
    for _ in range(2):
        one._report_in({"x-ratelimit-limit-requests": "-" * 100, "x-ratelimit-remaining-requests": "1"})
    assert [record.getMessage() for record in caplog.records] == [
        f"one/m: the header x-ratelimit-limit-requests says nothing ('{'-' * 59}), ignored"
    ]


@pytest.mark.parametrize(("seconds", "milliseconds"), [(-1.0, -1), (0.0, 0), (1.5, 1500), (0.0006, 1)])
def test_the_error_of_a_spent_quota_says_when_to_come_back(seconds: float, milliseconds: int) -> None:
    error = lane(UnitRuntime()).never_sent(Impossible("the quota is spent", Refusal.SPENT, seconds))
    assert (error.message, error.provider_code, error.retry_after_ms, error.retryable) == (
        "not sent to one/m: the quota is spent", "quota_spent", milliseconds, False
    )  # fmt: skip
