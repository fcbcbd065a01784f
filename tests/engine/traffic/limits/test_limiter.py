"""A scope: what its next call waits for, its lines, its figures and the time of its next look."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.traffic.limits.limiter import DeclaredLimit, Limiter, LimiterState
from manystream.engine.traffic.limits.quota import Impossible
from manystream.engine.traffic.limits.rate_limit import BucketStatistics, LimiterStatistics, RateLimit
from manystream.engine.traffic.queue.fair_queue import Cost, Permit, PermitState
from manystream.providers.limits.charging import Charging, charging_of
from manystream.providers.limits.limit_reports import reader_of
from manystream.providers.limits.quota_report import MINUTE, QuotaReport, Refusal, ReportedLimit, Unit
from manystream.ray.rate_leases import EngineRates, Lease
from manystream.statistics import RouteStatistics
from tests.engine.unit_runtime import Call, UnitRuntime

INF = math.inf


RATE = QuotaReport(refusal=Refusal.RATE)


def a_scope(charging: Charging | None = None, *, adaptive: bool = True, **limits: float) -> LimiterState:
    declared = [DeclaredLimit("*", RateLimit(**limits), 0)] if limits else []  # type: ignore[arg-type]
    return LimiterState("p/m", charging or Charging(), limits=declared, adaptive=adaptive)


def queued(
    scope: LimiterState, tokens: float = 100, output: float | None = 0, *, now: float = 0, **options: object
) -> Permit:
    ticket = Permit(tokens, output, **options)  # type: ignore[arg-type]
    scope.queue.add(ticket)
    return ticket


def sent(scope: LimiterState, tokens: float = 100, output: float | None = 0, *, now: float = 0) -> Permit:
    ticket = queued(scope, tokens, output, now=now)
    assert scope.admit(now) is ticket
    return ticket


# --- one scope ---


def test_the_figures_of_a_new_scope() -> None:
    assert a_scope().statistics(5) == LimiterStatistics(window=10)
    assert a_scope(adaptive=False).statistics(5) == LimiterStatistics()
    assert a_scope(Charging(limited_by="slots")).statistics(5) == LimiterStatistics(
        window=10, concurrent=8, concurrent_by="learned"
    )
    assert a_scope(Charging(limited_by="slots"), adaptive=False).statistics(5) == LimiterStatistics()
    assert a_scope(Charging(limited_by="slots"), concurrent=3).statistics(5) == LimiterStatistics(
        window=10, concurrent=3, concurrent_by="declared"
    )
    assert a_scope(concurrent=3).statistics(5) == LimiterStatistics(window=10, concurrent=3, concurrent_by="declared")


def test_the_least_declared_number_bounds_the_learned_one() -> None:
    limits = [DeclaredLimit(str(each), RateLimit(concurrent=each), 0) for each in (6, 4, 7)]
    limits.append(DeclaredLimit("no number", RateLimit(requests_per_minute=60), 0))
    scope = LimiterState("p/m", Charging(limited_by="concurrency"), limits=limits)
    assert (scope.concurrency.at_most, scope.concurrency.limit, scope.statistics(0).concurrent) == (4, 4, 4)


def test_the_figures_of_a_scope_that_was_used() -> None:
    scope = a_scope(requests_per_minute=60)
    first = sent(scope)
    sent(scope, now=1)
    refused = sent(scope, now=1)
    for number in range(2):
        queued(scope, now=1, tenant=str(number))
    tokens = ReportedLimit("tokens", Unit.TOKENS, MINUTE, 6000, 3000)
    scope.confirm(first, QuotaReport((tokens,)), 1)
    scope.refuse(refused, QuotaReport(refusal=Refusal.RATE, hint=2.0, refused_by=Unit.TOKENS), 2)
    assert scope.statistics(3) == LimiterStatistics(
        waiting=3, running=2, sent=3, refused=1, reported={"declared requests_per_minute of *": BucketStatistics(1, 60,
        60), "tokens": BucketStatistics(100, 6000, 3200)}, learned={"tokens": BucketStatistics(100, 100, 0)}, window=10,
        unconfirmed=1, held=1.0,
    )  # fmt: skip
    assert scope.running == 2


def test_a_used_up_quota_is_in_the_figures_and_refuses() -> None:
    scope = a_scope()
    assert scope.refuse(sent(scope), QuotaReport(refusal=Refusal.SPENT), 10) is Refusal.SPENT
    figures = scope.statistics(30)
    assert (figures.spent, figures.held, figures.waiting) == (40, 0, 0), "it is not queued again"
    impossible = scope.quota.never(Permit(1, 1), 30)
    assert (impossible.why, impossible.refusal, impossible.retry_after) == (
        "the provider's quota is used up", Refusal.SPENT, 40,
    )  # fmt: skip
    assert (scope.quota.never(Permit(1, 1), 70), scope.statistics(99).spent) == (None, 0)


def test_a_call_that_waits_says_for_what_and_how_long() -> None:
    scope = a_scope(requests_per_minute=6)
    ticket = Permit(100, 0)
    assert scope.waiting_for(ticket, 0) == ""
    for _ in range(6):
        sent(scope)
    tickets = [queued(scope) for _ in range(3)]
    assert [scope.waiting_for(each, 1) for each in tickets] == [
        "declared requests_per_minute of *, 0 ahead, about 9 s",
        "declared requests_per_minute of *, 1 ahead, about 9 s",
        "declared requests_per_minute of *, 2 ahead, about 19 s",
    ]
    assert scope.waiting_for(tickets[0], 9.1) == "declared requests_per_minute of *, 0 ahead"
    assert scope.waiting_for(tickets[0], 9) == "declared requests_per_minute of *, 0 ahead, about 1 s"
    assert scope.waiting_for(tickets[0], 10) == "its turn of p/m, 0 ahead"


def test_a_call_waits_for_the_first_responses_of_a_new_server() -> None:
    scope = a_scope()
    for _ in range(10):
        sent(scope)
    assert scope.waiting_for(queued(scope), 0.1) == "the first responses of p/m, 0 ahead"


def test_a_call_waits_for_a_pause_and_for_a_learned_limit() -> None:
    scope = a_scope()
    ticket = sent(scope)
    scope.refuse(ticket, QuotaReport(refusal=Refusal.RATE, hint=4.0), 1)
    assert scope.waiting_for(ticket, 1) == "the end of a pause that the server asked for of p/m, 0 ahead, about 4 s"
    assert scope.admit(5) is ticket
    # The learned rate is half a request a second: half of the one that was sent in the first second.
    assert scope.waiting_for(queued(scope), 5) == "requests of p/m, 0 ahead, about 2 s"


def test_a_call_waits_for_a_running_call_to_end() -> None:
    full = a_scope(concurrent=1)
    sent(full)
    assert full.waiting_for(queued(full), 0) == "one of 1 calls of * to end, 0 ahead"
    slots = a_scope(Charging(limited_by="slots"))
    for _ in range(8):
        sent(slots)
    assert slots.waiting_for(queued(slots), 0) == "one of 8 calls of p/m to end, 0 ahead"


def test_seconds_ahead_are_those_of_the_slowest_known_rate() -> None:
    scope = a_scope(Charging(), requests_per_minute=60, tokens_per_minute=6000)
    for _ in range(40):
        scope.confirm(sent(scope, 100, 50), QuotaReport(), 0)
    tickets = [queued(scope, 100, 50) for _ in range(31)]
    # 20 requests and no tokens are left: 30 calls ahead need 10 s of requests and 45 s of tokens.
    assert scope.seconds_ahead(tickets[30], 0) == pytest.approx(45)
    assert scope.seconds_ahead(tickets[30], 10) == pytest.approx(35)
    assert scope.seconds_ahead(tickets[0], 0) == 0
    free = a_scope()
    several = [queued(free) for _ in range(3)]
    assert free.seconds_ahead(several[2], 0) == 0


@pytest.mark.parametrize(("deadline", "hopeless"), [(29.9, True), (30.1, False), (INF, False)])
def test_a_call_is_hopeless_that_would_be_late_by_half_its_time(deadline: float, hopeless: bool) -> None:
    scope = a_scope(tokens_per_minute=6000)
    sent(scope, 6000)
    for _ in range(45):
        queued(scope)
    assert scope.is_hopeless(queued(scope), deadline, 0) is hopeless


def test_the_next_look_is_at_the_free_place() -> None:
    scope = a_scope(requests_per_minute=6)
    assert scope.admit(3) == INF
    for _ in range(6):
        sent(scope)
    ticket = queued(scope)
    assert (scope.admit(1), scope.admit(2)) == (10, 10)
    queued(scope)
    assert (scope.admit(2), scope.admit(20)) == (10, ticket)


def test_the_room_of_a_scope_is_the_number_of_such_calls() -> None:
    scope = a_scope(requests_per_minute=60, tokens_per_minute=1200)
    assert scope.room(Permit(100, 100), 0) == 6
    assert scope.room(Permit(1, 1), 0) == 60
    sent(scope, 500)
    assert scope.room(Permit(100, 0), 0) == 7
    free = a_scope()
    assert free.room(Permit(1, 1), 0) == 1e12
    sent(free)
    sent(free)
    assert free.room(Permit(1, 1), 0) == 1e12 - 2


def test_there_is_room_if_nothing_waits_and_every_limit_has_some() -> None:
    scope = a_scope(requests_per_minute=2, tokens_per_minute=1200)
    assert scope.fits(Permit(1200, 0), 0)
    assert scope.fits(Permit(1201, 0), 0) is None, "it can never be sent"
    sent(scope, 300)
    assert [scope.fits(Permit(tokens, 0), 0) for tokens in (900, 1000)] == [True, False]
    ticket = queued(scope)
    assert not scope.fits(Permit(1, 0), 0)
    scope.cancel(ticket, 0)
    scope.quota.hold_until = 5
    assert [scope.fits(Permit(1, 0), now) for now in (4.9, 5)] == [False, True]
    slots = a_scope(Charging(limited_by="slots"))
    for _ in range(7):
        sent(slots)
    assert slots.fits(Permit(1, 0), 0)
    sent(slots)
    assert not slots.fits(Permit(1, 0), 0)


# --- the end of a call ---


def test_a_refused_call_is_queued_again_or_goes_elsewhere() -> None:
    for again, waiting, state in ((True, 1, PermitState.QUEUED), (False, 0, PermitState.ENDED)):
        scope = a_scope(requests_per_minute=60, concurrent=5)
        ticket = sent(scope)
        assert scope.refuse(ticket, RATE, 0, again=again) is Refusal.RATE
        assert (scope.queue.length, ticket.state, scope.limits[0].running) == (waiting, state, 0)


@pytest.mark.parametrize(
    ("limited_by", "refusal", "found", "limit", "held"),
    [
        ("slots", Refusal.RATE, Refusal.OVERLOAD, 1, 3),
        ("slots", Refusal.OVERLOAD, Refusal.OVERLOAD, 1, 3),
        ("slots", Refusal.TOO_LARGE, Refusal.TOO_LARGE, 2, 0),
        ("concurrency", Refusal.OVERLOAD, Refusal.OVERLOAD, 1, 3),
        ("concurrency", Refusal.RATE, Refusal.RATE, 2, 3),
    ],
)
def test_a_refusal_of_many_teaches_a_limit(
    limited_by: str, refusal: Refusal, found: Refusal, limit: int, held: float
) -> None:
    scope = a_scope(Charging(limited_by=limited_by), concurrent=2)  # type: ignore[arg-type]
    ticket, _ = sent(scope), sent(scope)
    assert scope.refuse(ticket, QuotaReport(refusal=refusal, hint=3), 1) is found
    figures = scope.statistics(1)
    assert (figures.concurrent, figures.held, figures.running, bool(figures.learned)) == (
        limit, held, 1, found is Refusal.RATE,
    )  # fmt: skip
    assert scope.concurrency.running == 1


def test_a_call_that_ends_is_settled_everywhere() -> None:
    scope = a_scope(Charging(limited_by="concurrency"), tokens_per_minute=1200, concurrent=4)
    assert scope.concurrency is not None
    ticket = sent(scope, 100, 500)
    assert (scope.limits[0].running, scope.concurrency.running, scope.running) == (1, 1, 1)
    scope.settle(ticket, Cost(1, 100, 50, 150), 0, tokens=150)
    assert (scope.limits[0].running, scope.concurrency.running, scope.running) == (0, 0, 0)
    assert (ticket.state, scope.quota.level(Unit.TOKENS, 0)) == (PermitState.ENDED, 1050)
    kept = sent(scope, 100, 500)
    scope.settle(kept, None, 0)
    assert scope.quota.level(Unit.TOKENS, 0) == 450


def test_an_unstreamed_answer_teaches_by_its_output() -> None:
    scope = a_scope(Charging(limited_by="concurrency"))
    assert scope.concurrency is not None
    scope.settle(sent(scope), None, 10, output=10)
    late = [sent(scope, now=20) for _ in range(7)]
    for ticket in late:
        scope.settle(ticket, None, 60, output=10)
    assert scope.concurrency.limit < 8
    silent = a_scope(Charging(limited_by="concurrency"))
    assert silent.concurrency is not None
    tickets = [sent(silent) for _ in range(8)]
    for ticket in tickets[:7]:
        silent.settle(ticket, None, 60)
    for _ in range(7):
        sent(silent, now=60)
    silent.settle(tickets[7], None, 60)
    assert silent.concurrency.limit == 9


def test_a_first_token_teaches_a_server_that_runs_calls_at_once() -> None:
    scope = a_scope(Charging(limited_by="concurrency"))
    tickets = [sent(scope) for _ in range(7)]
    scope.answered(tickets[0], 1)
    assert scope.concurrency.limit == 9
    plain = a_scope()
    plain.answered(sent(plain), 1)


@pytest.mark.parametrize(
    ("answered", "requests", "tokens"),
    [(True, 59, 1200), (False, 59, 600)],
)
def test_a_failed_call_is_charged_as_its_server_does(answered: bool, requests: float, tokens: float) -> None:
    scope = a_scope(Charging(), requests_per_minute=60, tokens_per_minute=1200)
    ticket = sent(scope, 100, 500)
    report = QuotaReport((ReportedLimit("requests", Unit.REQUESTS, MINUTE, 600, 500),))
    scope.fail(ticket, report, 0, answered=answered)
    assert (scope.quota.level(Unit.REQUESTS, 0), scope.quota.level(Unit.TOKENS, 0)) == (requests, tokens)
    assert ("requests" in scope.quota.reported, ticket.state) == (answered, PermitState.ENDED)


def test_a_cancelled_call_gives_everything_back() -> None:
    scope = a_scope(Charging(limited_by="concurrency"), requests_per_minute=60, tokens_per_minute=1200, concurrent=4)
    assert scope.concurrency is not None
    before = scope.statistics(0)
    ticket = sent(scope, 100, 500)
    scope.cancel(ticket, 0)
    assert (scope.statistics(0), ticket.state) == (before, PermitState.ENDED)
    assert (scope.limits[0].running, scope.concurrency.running, scope.queue.length) == (0, 0, 0)
    waiting = queued(scope)
    scope.cancel(waiting, 0)
    scope.cancel(waiting, 0)
    assert (scope.statistics(0), waiting.state) == (before, PermitState.ENDED)


def test_seconds_without_a_slot_are_added_up() -> None:
    scope = a_scope(concurrent=1)
    first = sent(scope)
    assert scope.slot_seconds(0) == 0
    queued(scope)
    assert scope.admit(5) == INF
    assert (scope.slot_seconds(5), scope.slot_seconds(8)) == (0, 3)
    scope.admit(7)
    assert scope.slot_seconds(8) == 3, "since 5"
    scope.settle(first, None, 9)
    assert isinstance(scope.admit(9), Permit)
    assert (scope.slot_seconds(9), scope.slot_seconds(20)) == (4, 4)
    queued(scope)
    assert (scope.admit(20), scope.slot_seconds(22)) == (INF, 6)
    slots = a_scope(Charging(limited_by="slots"))
    for _ in range(8):
        sent(slots)
    queued(slots)
    assert (slots.admit(1), slots.slot_seconds(3)) == (INF, 2)
    plain = a_scope()
    for _ in range(10):
        sent(plain)
    queued(plain)
    assert (plain.admit(0.1), plain.slot_seconds(3)) == (0.5, 0)


def test_a_call_sent_at_once_is_the_same_as_one_that_was_queued() -> None:
    at_once, by_queue = (
        a_scope(Charging(limited_by="concurrency"), tokens_per_minute=1200, concurrent=2) for _ in range(2)
    )
    one = Permit(100, 200, tenant="t")
    assert at_once.admit_at_once(one, 3)
    two = queued(by_queue, 100, 200, now=3, tenant="t")
    assert by_queue.admit(3) is two
    assert at_once.statistics(3) == by_queue.statistics(3)
    assert (one.cost, one.state, one.sent_at, one.sent_before) == (two.cost, two.state, two.sent_at, two.sent_before)
    assert at_once.limits[0].running == 1
    assert at_once.admit_at_once(Permit(1, 1), 3)
    assert not at_once.admit_at_once(Permit(1, 1), 3), "two run"


def test_a_call_does_not_go_at_once_in_a_pause_or_past_a_limit() -> None:
    scope = a_scope()
    scope.refuse(sent(scope), QuotaReport(refusal=Refusal.RATE, hint=2), 0, again=False)
    assert [scope.admit_at_once(Permit(1, 1), now) for now in (1.9, 2.0)] == [False, True]
    slots = a_scope(Charging(limited_by="slots"))
    assert [slots.admit_at_once(Permit(1, 1), 0) for _ in range(9)] == [True] * 8 + [False]
    windowed = a_scope()
    assert [windowed.admit_at_once(Permit(1, 1), 0) for _ in range(11)] == [True] * 10 + [False]


def test_a_call_sent_at_once_ends_the_time_without_a_slot() -> None:
    scope = a_scope(concurrent=1)
    first, second = sent(scope), queued(scope)
    assert scope.admit(2) == INF
    scope.settle(first, None, 5)
    scope.cancel(second, 5)
    assert scope.admit_at_once(Permit(1, 1), 6)
    assert (scope.slot_seconds(6), scope.slot_seconds(9)) == (4, 4)


# --- shared limits ---


def test_a_declared_limit_says_when_a_scope_may_send() -> None:
    limit = DeclaredLimit("*", RateLimit(requests_per_minute=60, tokens_per_minute=600, concurrent=2), 5)
    assert (limit.name, limit.lease, limit.concurrent, limit.running, limit.is_full) == ("*", None, 2, 0, False)
    cost = Cost(1, 100, 500, 600)
    assert (limit.ready_at(cost, "a", 5), limit.is_open(5), limit.next_in_line()) == (5, True, None)
    for reported in limit.buckets:
        reported.bucket.take(cost[reported.unit], 5)
    assert limit.ready_at(cost, "a", 5) == 65
    limit.running = 2
    assert (limit.ready_at(cost, "a", 70), limit.is_full, limit.is_open(70)) == (INF, True, False)
    assert DeclaredLimit("*", RateLimit(concurrent=1), 0).ready_at(cost, "a", 7) == 7


def test_only_the_first_scope_in_the_line_may_send() -> None:
    limit = DeclaredLimit("*", RateLimit(requests_per_minute=60), 0)
    for scope in ("a", "b", "a"):
        limit.enter_line(scope)
    cost = Cost(1, 0, 0, 0)
    assert (limit.next_in_line(), limit.is_open(0)) == ("a", False)
    assert [limit.ready_at(cost, scope, 0) for scope in ("a", "b", "c")] == [0, INF, INF]
    limit.leave_line("a")
    limit.leave_line("c")
    assert (limit.next_in_line(), limit.ready_at(cost, "b", 0)) == ("b", 0)
    limit.leave_line("b")
    assert (limit.next_in_line(), limit.is_open(0)) == (None, True)


def test_nothing_is_sent_after_the_end_of_a_lease() -> None:
    rates = EngineRates({"*": RateLimit(requests_per_second=100)}, 0)
    lease = rates.declared["*"].lease
    limit = DeclaredLimit("*", lease.limit, 0)
    assert (limit.lease, limit.buckets) == (lease, lease.buckets)
    assert (limit.is_open(0), limit.ready_at(Cost(0, 0, 0, 0), "a", 0)) == (False, INF)
    rates.receive(Lease(5, (50,)), 4, 0, 0)
    assert [limit.is_open(now) for now in (3.9, 4)] == [True, False]
    assert [limit.ready_at(Cost(0, 0, 0, 0), "a", now) for now in (3.9, 4)] == [3.9, INF]


def test_a_scope_stands_in_the_line_of_the_limit_that_binds_it() -> None:
    minute = DeclaredLimit("minute", RateLimit(tokens_per_minute=600), 0)
    second = DeclaredLimit("second", RateLimit(requests_per_second=1), 0)
    scope = LimiterState("p/m", Charging(), limits=[minute, second])
    for now in range(6):
        sent(scope, now=now)
    queued(scope)
    assert (scope.admit(5.5), minute.next_in_line(), second.next_in_line()) == (10, scope, None)
    scope.quota.hold_until = 20
    assert (scope.admit(6), minute.next_in_line()) == (20, None), "it is held back by itself"
    assert isinstance(scope.admit(20), Permit)
    assert (minute.next_in_line(), second.next_in_line()) == (None, None)


def test_a_scope_without_waiting_calls_stands_in_no_line() -> None:
    limit = DeclaredLimit("*", RateLimit(requests_per_minute=6, concurrent=1), 0)
    scope = LimiterState("p/m", Charging(), limits=[limit])
    running = sent(scope)
    waiting = [queued(scope), queued(scope)]
    assert (scope.admit(0), limit.next_in_line()) == (INF, scope)
    scope.cancel(waiting[0], 0)
    assert limit.next_in_line() is scope
    scope.cancel(waiting[1], 0)
    assert limit.next_in_line() is None
    queued(scope)
    scope.admit(0)
    scope.settle(running, None, 1)
    assert (isinstance(scope.admit(1), Permit), limit.next_in_line()) == (True, None)


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
    return Limiter(scope, cast(Any, runtime), "openai-chat", reader, cast(Any, next_in_line), changed)


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
    state, spent = lane(UnitRuntime()).state, Impossible("the quota is spent", Refusal.SPENT, seconds)

    def never(permit: Permit, now: float) -> Impossible:
        return spent

    cast(Any, state.quota).never = never
    error = state.why_never(Permit(1, 1), 0.0)
    assert error is not None
    assert (error.message, error.provider_code, error.retry_after_ms, error.retryable) == (
        "not sent to one/m: the quota is spent", "quota_spent", milliseconds, False
    )  # fmt: skip
