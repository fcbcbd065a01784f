"""The choice of a target by order, weight, speed and session, and the pause of a failing target."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection

import pytest

from manystream.engine.traffic.limits.host import Breaker
from manystream.engine.traffic.limits.rate_limit import LimiterStatistics
from manystream.engine.traffic.options import TrafficStatistics
from manystream.engine.traffic.routing.options import Balance, Hedge, RouteStatistics, TargetStatistics
from manystream.engine.traffic.routing.router import MOST_SESSIONS, Choice, HedgeState, RouteState, TargetRecord
from manystream.engine.traffic.targets import is_keys_fault, is_targets_fault, moves_on
from manystream.providers.errors import InvalidRequestError
from manystream.providers.limits.quota_report import Refusal
from manystream.providers.model.provider_error import ErrorCategory, ProviderError

ALL = (0, 1, 2)


def choose(
    state: RouteState, now: float, roomy: Collection[int], *, tried: Collection[int] = (), session: str | None = None
) -> Choice:
    """The choice for a call. roomy: the targets that have room."""
    return state.choose(now, roomy.__contains__, tried=tried, session=session)


def a_route(balance: Balance, *targets: TargetRecord) -> RouteState:
    return RouteState(balance, targets or [TargetRecord() for _ in ALL], random.Random(1).random)


def fail(route: RouteState, place: int, times: int, now: float) -> None:
    for _ in range(times):
        number = route.begin(place, now)
        route.fail(place, number, now)
        route.end(place, number)


def answer(route: RouteState, place: int, seconds: float, now: float) -> None:
    number = route.begin(place, now)
    route.succeed(place, number, seconds, now)
    route.end(place, number)


def test_order_waits_for_the_first_healthy_target() -> None:
    route = a_route(Balance.ORDER)
    assert choose(route, 0, ALL) == Choice(0, (0,))
    assert choose(route, 0, (1, 2)) == Choice(None, (0,))
    assert choose(route, 0, ALL, tried=(0,)) == Choice(1, (1,))
    fail(route, 0, 5, 1.0)
    assert choose(route, 1, ALL) == Choice(1, (1,))
    assert choose(route, 3, ALL) == Choice(0, (0,))


def test_if_all_are_open_a_call_waits_for_the_first_to_close() -> None:
    route = a_route(Balance.ORDER, TargetRecord(), TargetRecord())
    fail(route, 0, 5, 1.0)
    fail(route, 1, 5, 1.5)
    assert choose(route, 2, (0, 1)) == Choice(None, (), 3.0)


def test_breakers_are_ignored_while_most_targets_are_open() -> None:
    route = a_route(Balance.ORDER)
    fail(route, 0, 5, 1.0)
    fail(route, 1, 5, 1.0)
    assert choose(route, 1, ALL) == Choice(0, (0,))


def test_where_every_target_was_tried_there_is_no_choice() -> None:
    assert a_route(Balance.ORDER).choose(0, ALL, tried=ALL) == Choice(None, ())


@pytest.mark.parametrize("balance", list(Balance))
def test_a_fallback_is_used_only_when_no_other_is_left(balance: Balance) -> None:
    route = a_route(balance, TargetRecord(fallback=True), TargetRecord(), TargetRecord(fallback=True))
    assert choose(route, 0, ALL, session="s").target == 1
    assert choose(route, 0, (0, 2), session="s").target is None
    assert choose(route, 0, ALL, tried=(1,), session="s").target == 0
    assert choose(route, 0, ALL, tried=(0, 1), session="s").target == 2


def test_weight() -> None:
    route = a_route(Balance.WEIGHTED, TargetRecord(weight=3), TargetRecord(weight=1))
    chosen = Counter(choose(route, 0, (0, 1)).target for _ in range(4000))
    assert 2850 < chosen[0] < 3150
    assert choose(route, 0, (1,)) == Choice(1, (0, 1))
    assert choose(route, 0, ()) == Choice(None, (0, 1))


def test_fastest_tries_each_unknown_target_with_one_call_first() -> None:
    route = a_route(Balance.FASTEST)
    tried = set[int | None]()
    for _ in ALL:
        place = choose(route, 0, ALL).target
        assert place is not None
        route.begin(place, 0)
        tried.add(place)
    assert tried == set(ALL)
    route.succeed(0, 1, 0.5, 0.5)
    assert choose(route, 0.5, ALL).target == 0


def test_fastest_takes_the_target_with_the_lowest_score() -> None:
    route = a_route(Balance.FASTEST)
    for place, seconds in enumerate((1.0, 0.4, 0.5)):
        answer(route, place, seconds, 0)
    assert choose(route, 1, ALL).target == 1
    route.begin(1, 1)
    assert choose(route, 1, ALL).target == 2
    fail(route, 2, 3, 1)
    # 0.271 failures: 0.5 + 2 × 0.372 = 1.24 for the third, 0.8 for the second.
    assert route.targets[2].score == pytest.approx(1.2435, abs=1e-4)
    assert choose(route, 1, ALL).target == 1


def test_an_idle_target_is_tried_again_after_five_seconds() -> None:
    route = a_route(Balance.FASTEST)
    answer(route, 0, 0.1, 0)
    answer(route, 1, 10, 0)
    answer(route, 2, 10, 0)
    answer(route, 0, 0.1, 4.9)
    assert choose(route, 4.9, ALL).target == 0
    assert choose(route, 5, ALL).target in (1, 2)


def test_a_session_stays_until_its_target_is_much_worse() -> None:
    route = a_route(Balance.STICKY)
    for place in ALL:
        answer(route, place, 1.0, 0)
    first = choose(route, 0, ALL, session="s").target
    assert first is not None
    route.begin(first, 0, "s")
    assert choose(route, 0, ALL, session="s") == Choice(first, (first,))
    # It has no room now: full is no failure.
    assert choose(route, 0, [place for place in ALL if place != first], session="s") == Choice(None, (first,))
    for _ in range(2):
        route.begin(first, 0)
    assert choose(route, 0, ALL, session="s").target == first
    route.begin(first, 0)
    # Four calls under way make five times one second; the others score 1.
    assert choose(route, 0, ALL, session="s").target != first
    assert route.sessions.counts[first] == 1
    route.fail(first, 0, 0, "s")
    assert route.sessions.counts[first] == 0


def test_a_session_is_forgotten_when_it_ends_and_after_an_hour() -> None:
    route = a_route(Balance.STICKY)
    for session, now in (("a", 0), ("b", 10)):
        route.begin(0, now, session)
    route.sessions.end("a")
    assert route.sessions.counts[0] == 1
    choose(route, 3700, ALL, session="c")
    assert route.sessions.counts[0] == 0


def test_a_hedge_waits_for_the_95th_percentile_of_the_last_200() -> None:
    hedge = HedgeState(Hedge())
    assert hedge.begin(0) == float("inf")
    for number in range(1, 401):
        hedge.first_event(number / 100)
    assert hedge.begin(10) == pytest.approx(10 + 3.91)
    assert HedgeState(Hedge(2.5)).begin(1) == 3.5


def test_hedges_are_at_most_the_given_part_of_recent_calls() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=0.05))
    for second in range(60):
        hedge.begin(float(second))
    assert [hedge.take(59) for _ in range(4)] == [True, True, True, False]
    hedge.begin(200)
    assert hedge.take(200) is False


@pytest.mark.parametrize("options", [{"after": 0}, {"after": "p99"}, {"at_most": 0}, {"at_most": 1.5}, {"after": True}])
def test_a_hedge_with_junk_is_an_error(options: dict[str, float]) -> None:
    with pytest.raises(InvalidRequestError, match="hedge"):
        Hedge(**options)


# --- breakers, scores and the choice of a target: each rule with literal numbers ---


INF = math.inf


def a_breaker(failures: int, broken: int = 0, good: int = 0, now: float = 10) -> Breaker:
    """Calls that were sent one after the other: good ones, failures, and broken streams."""
    breaker = Breaker()
    for place in range(good + failures + broken):
        number = breaker.begin(now)
        if place >= good:
            breaker.fail(number, now, broke=place >= good + failures)
        breaker.end(number)
    return breaker


def test_a_new_breaker_lets_calls_through() -> None:
    breaker = Breaker()
    breaker.end(breaker.begin(1))
    assert (breaker.state(1), breaker.is_tripped, breaker.next_time(1)) == ("closed", False, 1)


@pytest.mark.parametrize(
    ("good", "failures", "broken", "state"),
    [
        (0, 4, 0, "closed"), (0, 5, 0, "open"), (0, 0, 4, "closed"), (0, 0, 5, "open"), (0, 2, 3, "open"),
        (4, 5, 0, "open"), (5, 5, 0, "closed"), (5, 6, 0, "open"), (100, 10, 0, "closed"), (100, 11, 0, "open"),
    ],
)  # fmt: skip
def test_a_breaker_opens_at_five_failures_of_most_calls(good: int, failures: int, broken: int, state: str) -> None:
    breaker = a_breaker(failures, broken, good)
    assert (breaker.state(10), breaker.is_tripped) == (state, state == "open")
    assert breaker.next_time(10) == (12 if state == "open" else 10)


def test_failures_count_in_the_order_of_sending() -> None:
    """Of 200 calls at once, eight fail at once; the others answer later."""
    breaker = Breaker()
    numbers = [breaker.begin(0) for _ in range(200)]
    for number in numbers[::25]:
        breaker.fail(number, 0.01)
    assert breaker.state(1) == "closed"
    for number in numbers[-10:]:
        breaker.fail(number, 0.02)
    assert breaker.state(1) == "closed"
    breaker.fail(numbers[-11], 0.03)
    assert breaker.state(1) == "open"


def test_calls_after_the_latest_outcome_are_not_looked_at() -> None:
    """To a target that hangs, fifty calls a second are under way, each until its timeout of two seconds."""
    breaker = Breaker()
    numbers = [breaker.begin(number / 50) for number in range(200)]
    for place, number in enumerate(numbers[:5]):
        assert breaker.state(2 + place / 50) == "closed"
        breaker.fail(number, 2 + place / 50)
    assert breaker.state(2.1) == "open"


def test_failures_before_many_answers_are_forgotten() -> None:
    """A target hung for a while. When the timeouts of these calls end, it has long been answering others."""
    breaker = Breaker()
    hanging, answered = [breaker.begin(0) for _ in range(50)], [breaker.begin(1) for _ in range(20)]
    for number in answered:
        breaker.succeed(number)
    for number in hanging:
        breaker.fail(number, 2)
    assert (breaker.state(2), breaker.counts) == ("closed", (0, 20))


def test_a_breaker_opens_for_two_seconds_and_then_probes() -> None:
    breaker = a_breaker(5)
    assert [breaker.state(now) for now in (10, 11.9, 12, 99)] == ["open", "open", "probing", "probing"]
    assert [breaker.next_time(now) for now in (10, 11.9, 12, 99)] == [12, 12, 12, 99]
    breaker.begin(13)
    assert (breaker.state(20), breaker.next_time(20)) == ("open", INF)


def test_an_earlier_call_says_nothing_while_a_breaker_is_open() -> None:
    breaker = Breaker()
    earlier = [breaker.begin(9) for _ in range(3)]
    for _ in range(5):
        breaker.fail(breaker.begin(10), 10)
    breaker.fail(earlier[0], 11.5)
    breaker.succeed(earlier[1])
    assert breaker.next_time(11.5) == 12
    probe = breaker.begin(12)
    breaker.fail(earlier[1], 12.5)
    breaker.end(earlier[1])
    breaker.complete(earlier[2])
    assert (breaker.state(14.4), breaker.next_time(14.4)) == ("open", INF), "the probing call runs on"
    breaker.fail(probe, 13)
    breaker.end(probe)
    assert (breaker.state(14.9), breaker.next_time(14.9), breaker.state(15)) == ("open", 15, "probing")


def test_a_probe_without_an_outcome_is_followed_by_another() -> None:
    breaker = a_breaker(5)
    probe = breaker.begin(12)
    breaker.end(probe - 1)
    assert breaker.state(30) == "open"
    breaker.end(probe)
    assert breaker.state(30) == "probing"


def test_a_first_event_closes_and_later_failures_count_from_zero() -> None:
    breaker = a_breaker(5)
    probe = breaker.begin(12)
    breaker.succeed(probe)
    assert (breaker.state(12), breaker.next_time(12), breaker.counts) == ("closed", 12, (0, 1))
    for _ in range(4):
        breaker.fail(breaker.begin(13), 13)
    assert breaker.state(13) == "closed"
    breaker.fail(breaker.begin(13), 13.5)
    assert (breaker.state(13.5), breaker.next_time(13.5)) == ("open", 15.5)


def test_a_first_event_does_not_forgive_broken_streams() -> None:
    breaker = a_breaker(0, 5)
    probe = breaker.begin(12)
    breaker.succeed(probe)
    assert breaker.next_time(12) == INF
    breaker.fail(probe, 13, broke=True)
    assert breaker.next_time(13) == 15
    breaker.complete(breaker.begin(15))
    assert (breaker.state(15), breaker.is_tripped) == ("closed", False)
    for _ in range(4):
        breaker.fail(breaker.begin(16), 16, broke=True)
    assert not breaker.is_tripped


def test_a_call_through_an_open_breaker_may_close_it() -> None:
    """A route ignores breakers while most of its targets are open."""
    breaker = a_breaker(5)
    breaker.fail(breaker.begin(11), 11.5)
    assert breaker.next_time(11.5) == 12
    breaker.succeed(breaker.begin(11.6))
    assert breaker.state(11.7) == "closed"


# --- scores ---


def test_a_score_is_the_time_of_a_call_with_those_that_run() -> None:
    score = TargetRecord()
    assert (score.outstanding, score.time, score.failures, score.heard_at) == (0, INF, 0, -INF)
    assert (score.is_known, score.is_stale(0), score.score) == (False, True, INF)
    score.succeed(2, 7)
    assert (score.is_known, score.time, score.failures, score.heard_at, score.score) == (True, 2, 0, 7, 2)
    score.succeed(3, 8)
    assert (score.time, score.heard_at) == (2.2, 8)
    score.outstanding = 3
    assert score.score == 8.8


def test_failures_raise_a_score_and_answers_lower_it() -> None:
    score = TargetRecord()
    score.succeed(2, 0)
    score.fail(5)
    assert (score.failures, score.heard_at, score.time) == (0.1, 5, 2)
    assert score.score == pytest.approx(2 + 2 * 0.1 / 0.9)
    score.fail(6)
    assert score.failures == pytest.approx(0.19)
    score.succeed(2, 6)
    assert score.failures == pytest.approx(0.171)
    score.failures = 0.99
    assert score.score == pytest.approx(2 + 2 * 49), "it grows no further than for 0.98"


def test_an_idle_target_is_tried_after_five_seconds() -> None:
    score = TargetRecord()
    score.succeed(1, 10)
    assert [score.is_stale(now) for now in (14.9, 15, 16)] == [False, True, True]
    score.outstanding = 1
    assert not score.is_stale(16)
    score = TargetRecord()
    score.fail(10)
    assert score.is_stale(10), "it has not answered yet"


# --- the choice of a target ---


def route(balance: Balance, *targets: TargetRecord, random: Callable[[], float] = lambda: 0.0) -> RouteState:
    return RouteState(balance, targets or [TargetRecord() for _ in range(3)], random)


def test_a_new_target_has_the_weight_one_and_is_no_fallback() -> None:
    record = TargetRecord()
    assert (record.weight, record.fallback) == (1, False)
    assert Choice(2) == Choice(2, (), -INF)


@pytest.mark.parametrize(("point", "chosen"), [(0.0, 0), (0.29, 0), (0.3, 1), (0.49, 1), (0.5, 2), (0.99, 2), (1.0, 2)])
def test_a_random_point_falls_into_the_share_of_one_target(point: float, chosen: int) -> None:
    weighted = route(Balance.WEIGHTED, *map(TargetRecord, (3, 2, 5)), random=lambda: point)
    assert choose(weighted, 0, (0, 1, 2)) == Choice(chosen, (0, 1, 2))


def test_of_equal_targets_one_is_chosen_at_random() -> None:
    points = iter((0.0, 0.34, 0.99, 0.4, 0.5))
    fastest = route(Balance.FASTEST, random=lambda: next(points))
    assert [choose(fastest, 0, (0, 1, 2)).target for _ in range(3)] == [0, 1, 2]
    for place, seconds in enumerate((2.0, 1.0, 1.0)):
        fastest.begin(place, 0)
        fastest.succeed(place, 0, seconds, 1)
        fastest.end(place, 0)
    assert [choose(fastest, 1, (0, 1, 2)).target for _ in range(2)] == [1, 2]


def test_the_fastest_with_room_is_chosen() -> None:
    fastest = route(Balance.FASTEST)
    for place in (0, 1):
        fastest.begin(place, 0)
        fastest.succeed(place, 0, 2.0 - place, 1)
    fastest.begin(2, 0)
    assert choose(fastest, 1, (0, 1, 2)) == Choice(1, (0, 1, 2))
    assert choose(fastest, 1, (0, 2)) == Choice(0, (0, 1, 2))
    assert choose(fastest, 1, (2,)) == Choice(2, (0, 1, 2))
    assert choose(fastest, 1, (0, 1, 2), tried=(1,)) == Choice(0, (0, 2))


def test_equal_scores_go_to_the_target_with_fewer_calls() -> None:
    fastest = route(Balance.FASTEST, TargetRecord(), TargetRecord())
    for place, seconds, calls in ((0, 1.0, 4), (1, 2.5, 2)):
        for _ in range(calls):
            fastest.begin(place, 0)
        fastest.succeed(place, 0, seconds, 0)
    fastest.end(1, 0)
    assert choose(fastest, 0, (0, 1)).target == 1  # 5 × 1 s and 2 × 2.5 s


def test_fallbacks_are_taken_in_order_whatever_the_balance() -> None:
    fastest = route(Balance.FASTEST, TargetRecord(), TargetRecord(fallback=True), TargetRecord(fallback=True))
    assert choose(fastest, 0, (2,), tried=(0,)) == Choice(None, (1,))
    assert choose(fastest, 0, (1, 2), tried=(0,)) == Choice(1, (1,))


def test_breakers_hold_for_order_and_weight_only() -> None:
    for balance, healthy in zip(Balance, (False, False, True, True), strict=True):
        state = route(balance)
        state.targets[1].breaker = a_breaker(5)
        assert [state.is_healthy(place, 10) for place in range(3)] == [True, healthy, True]


@pytest.mark.parametrize(
    ("tripped", "healthy"), [((0,), (1, 2, 3)), ((0, 1), (2, 3)), ((0, 1, 2), (0, 1, 2, 3)), ((0, 1, 2, 3), ())]
)
def test_most_targets_failing_means_overload(tripped: tuple[int, ...], healthy: tuple[int, ...]) -> None:
    state = route(Balance.WEIGHTED, *(TargetRecord() for _ in range(4)))
    for place in tripped:
        state.targets[place].breaker = a_breaker(5)
    assert tuple(place for place in range(4) if state.is_healthy(place, 10)) == healthy


def test_fallbacks_do_not_count_as_failing_targets() -> None:
    state = route(Balance.ORDER, TargetRecord(), TargetRecord(), TargetRecord(fallback=True))
    for place in (0, 2):
        state.targets[place].breaker = a_breaker(5)
    assert [state.is_healthy(place, 10) for place in range(3)] == [False, True, False]
    assert choose(state, 10, (0, 1, 2), tried=(1,)) == Choice(None, (), 12)


def test_a_session_stays_at_up_to_four_times_the_best_score() -> None:
    state = route(Balance.STICKY)
    for place, seconds in enumerate((4.0, 1.0, 2.0)):
        state.begin(place, 0, "s" if place == 0 else None)
        state.succeed(place, 0, seconds, 0)
        state.end(place, 0)
    assert choose(state, 1, (0, 1, 2), session="s") == Choice(0, (0,))
    assert choose(state, 1, (1,), session="s") == Choice(None, (0,))
    assert choose(state, 1, (0, 1, 2)) == Choice(1, (0, 1, 2)), "a call without a session"
    assert choose(state, 1, (0, 1, 2), session="other") == Choice(1, (0, 1, 2))
    assert choose(state, 1, (0, 1, 2), tried=(0,), session="s") == Choice(1, (1, 2))
    state.targets[0].time = 4.001
    assert choose(state, 1, (0, 1, 2), session="s") == Choice(1, (0, 1, 2))


def test_a_session_goes_to_a_much_freer_target_rather_than_wait() -> None:
    """Such as one that is back after an outage: its former sessions have gone, and have no cache there."""
    state = route(Balance.STICKY)
    for place in range(3):
        state.begin(place, 0)
        state.succeed(place, 0, 1.0, 0)
    state.targets[0].outstanding, state.targets[1].outstanding, state.targets[2].outstanding = 100, 75, 74
    state.sessions.keep("s", 0, 0)
    assert choose(state, 1, (0, 1, 2), session="s") == Choice(0, (0,)), "its target has room"
    assert choose(state, 1, (1,), session="s") == Choice(None, (0,)), "the others are as busy"
    assert choose(state, 1, (1, 2), session="s") == Choice(2, (2,))
    state.fail(2, 0, 1)
    assert choose(state, 1, (1, 2), session="s") == Choice(None, (0,)), "it is quick, because it fails"
    state.succeed(2, 0, 1.0, 2)
    assert choose(state, 2, (2,), session="s") == Choice(2, (2,))


def test_only_a_sticky_route_keeps_sessions() -> None:
    state = route(Balance.FASTEST)
    state.begin(0, 0, "s")
    assert state.sessions.counts[0] == 0


def test_a_session_moves_and_leaves_a_failing_target() -> None:
    state = route(Balance.STICKY)
    state.begin(0, 5, "s")
    state.begin(1, 6, "s")
    assert [state.sessions.counts[place] for place in range(3)] == [0, 1, 0]
    state.fail(0, 5, 7, "s")
    assert state.sessions.counts[1] == 1, "a call at its former target says nothing"
    state.fail(1, 6, 7)
    assert state.sessions.counts[1] == 1
    state.fail(1, 6, 7, "s", broke=True)
    assert state.sessions.counts[1] == 0
    state.sessions.end("s")
    assert state.sessions.counts[1] == 0


def test_a_session_is_kept_for_an_hour_after_its_last_call() -> None:
    state = route(Balance.STICKY)
    state.begin(0, 0, "a")
    state.begin(1, 5, "b")
    state.begin(0, 10, "a")
    choose(state, 3604.9, (0, 1, 2), session="c")
    assert [state.sessions.counts[place] for place in range(3)] == [1, 1, 0]
    state.begin(2, 3605, "c")
    assert [state.sessions.counts[place] for place in range(3)] == [1, 0, 1]
    choose(state, 3610, (0, 1, 2), session="c")
    assert [state.sessions.counts[place] for place in range(3)] == [0, 0, 1]


def test_no_more_sessions_are_kept_than_are_documented() -> None:
    state = route(Balance.STICKY)
    for number in range(2 * MOST_SESSIONS):
        state.end(0, state.begin(0, number / 1000, str(number)))
        if number % 1000 == 0:
            state.end(1, state.begin(1, number / 1000, "busy"))
    assert (state.sessions.counts[0], state.sessions.counts[1]) == (MOST_SESSIONS - 1, 1)
    now = 2 * MOST_SESSIONS / 1000
    last = [str(2 * MOST_SESSIONS - 1), str(MOST_SESSIONS + 1), str(MOST_SESSIONS), "0", "busy"]
    assert [state.sessions.kept(session, now) for session in last] == [0, 0, None, None, 1]


def test_a_record_counts_calls_and_passes_outcomes_on() -> None:
    state = route(Balance.ORDER)
    record = state.targets[1]
    numbers = [state.begin(1, 3) for _ in range(6)]
    assert record.outstanding == 6
    state.succeed(1, numbers[0], 0.5, 4)
    assert (record.time, record.heard_at) == (0.5, 4)
    for number in numbers[1:]:
        state.fail(1, number, 5, broke=True)
    assert (record.failures, record.heard_at) == (pytest.approx(0.40951), 5)
    assert record.breaker.state(5) == "open"
    probe = state.begin(1, 7)
    state.succeed(1, probe, 0.5, 7)
    assert record.breaker.state(7) == "open"
    state.complete(1, probe)
    assert record.breaker.state(7) == "closed"
    state.end(1, probe)
    assert record.outstanding == 6


def test_a_target_is_healthy_again_after_a_first_event() -> None:
    state = route(Balance.ORDER, TargetRecord())
    for _ in range(5):
        state.fail(0, state.begin(0, 1), 1)
    assert not state.is_healthy(0, 1)
    state.succeed(0, state.begin(0, 1), 0.5, 1)
    assert state.is_healthy(0, 1)


def test_a_probing_call_without_an_outcome_lets_the_next_one_go() -> None:
    state = route(Balance.ORDER, TargetRecord())
    state.targets[0].breaker = a_breaker(5)
    probe = state.begin(0, 12)
    assert choose(state, 13, (0,)) == Choice(None, (), INF)
    state.end(0, probe)
    assert choose(state, 13, (0,)) == Choice(0, (0,))


# --- failures ---


def failure(category: ErrorCategory, **members: object) -> ProviderError:
    return ProviderError("no", category=category, **members)  # type: ignore[arg-type]


MOVES = {
    "auth": (True, True, True), "rate_limit": (False, True, False), "invalid_arg": (False, False, False),
    "not_found": (True, True, False), "server": (True, True, False), "timeout": (True, True, False),
    "content_filter": (False, False, False), "network": (True, True, False), "cancelled": (False, False, False),
    "callback": (False, False, False), "budget": (False, False, False), "unknown": (False, False, False),
}  # fmt: skip
"""Category → whether it counts against the target, moves the call to another one, and is the key's."""


@pytest.mark.parametrize("name", MOVES)
def test_what_a_failure_says_of_its_target(name: str) -> None:
    error = failure(ErrorCategory(name))
    found = is_targets_fault(error), moves_on(error, Refusal.NONE, ()), is_keys_fault(error, Refusal.NONE)
    assert found == MOVES[name]


@pytest.mark.parametrize(
    ("refusal", "moves", "key"),
    [("none", False, False), ("rate", False, False), ("overload", False, False), ("too_large", True, False),
     ("spent", True, True)],
)  # fmt: skip
def test_where_a_call_goes_after_a_refusal(refusal: str, moves: bool, key: bool) -> None:
    error = failure(ErrorCategory.UNKNOWN, http_status=402)
    assert (moves_on(error, Refusal(refusal), ()), is_keys_fault(error, Refusal(refusal))) == (moves, key)


@pytest.mark.parametrize(("status", "key"), [(400, False), (401, True), (402, False), (403, True), (404, False)])
def test_a_status_that_refuses_a_key(status: int, key: bool) -> None:
    assert is_keys_fault(failure(ErrorCategory.UNKNOWN, http_status=status), Refusal.NONE) is key


@pytest.mark.parametrize(
    ("code", "status", "is_fault"),
    [("total", 0, False), ("queue", 0, False), ("total", 504, True), ("first_byte", 0, True), ("idle", 0, True)],
)
def test_a_timeout_of_the_whole_call_is_not_the_targets(code: str, status: int, is_fault: bool) -> None:
    error = failure(ErrorCategory.TIMEOUT, provider_code=code, http_status=status)
    assert (is_targets_fault(error), moves_on(error, Refusal.NONE, ())) == (is_fault, is_fault)
    assert is_targets_fault(failure(ErrorCategory.SERVER, provider_code="total"))


def test_a_route_may_move_on_for_a_filter_and_a_long_prompt() -> None:
    filtered = failure(ErrorCategory.CONTENT_FILTER)
    long = failure(ErrorCategory.SERVER, context_overflow=True)
    assert not is_targets_fault(long)
    for added, moves in (
        ((), [False, False]),
        (["content_filter"], [True, False]),
        (["context_overflow"], [False, True]),
    ):
        assert [moves_on(error, Refusal.TOO_LARGE, added) for error in (filtered, long)] == moves


def test_the_figures_are_zero_before_any_call() -> None:
    assert LimiterStatistics() == LimiterStatistics(0, 0, 0, 0, {}, {}, 0, 0, 0.0, 0.0, None)
    assert TargetStatistics("p/m") == TargetStatistics("p/m", 0, 0, "closed", None, None, 0.0)
    assert RouteStatistics() == RouteStatistics((), 0, 0)
    assert TrafficStatistics() == TrafficStatistics({}, {}, ())
