"""The choice of a target by order, weight, speed and session, and the pause of a failing target."""

from __future__ import annotations

import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Collection
from itertools import repeat
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.traffic.limits.host import Breaker, Host
from manystream.engine.traffic.limits.rate_limit import LimiterStatistics
from manystream.engine.traffic.options import TrafficStatistics
from manystream.engine.traffic.routing.options import Balance, Hedge, RouteStatistics, TargetStatistics
from manystream.engine.traffic.routing.router import (
    MOST_SESSIONS,
    Choice,
    HedgeState,
    ModelKeys,
    Router,
    RouteState,
    RouteTarget,
    Sessions,
    TargetRecord,
)
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.options import Priority
from tests.engine.unit_runtime import Call, UnitRuntime

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
    assert hedge.count(0) == float("inf")
    for number in range(1, 401):
        hedge.first_event(number / 100)
    assert hedge.count(10) == pytest.approx(10 + 3.91)
    assert HedgeState(Hedge(2.5)).count(1) == 3.5


def test_hedges_are_at_most_the_given_part_of_recent_calls() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=0.05))
    for second in range(60):
        hedge.count(float(second))
    assert [hedge.take(59) for _ in range(4)] == [True, True, True, False]
    hedge.count(200)
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


def test_the_figures_are_zero_before_any_call() -> None:
    assert LimiterStatistics() == LimiterStatistics(0, 0, 0, 0, {}, {}, 0, 0, 0.0, 0.0, None)
    assert TargetStatistics("p/m") == TargetStatistics("p/m", 0, 0, "closed", None, None, 0.0)
    assert RouteStatistics() == RouteStatistics((), 0, 0)
    assert TrafficStatistics() == TrafficStatistics({}, {}, ())


# --- second attempts ---


def test_the_options_of_a_second_attempt() -> None:
    assert Hedge() == Hedge("p95", 0.05)
    Hedge(0.001, at_most=1)
    for wrong, words in (
        ({"after": 0}, 'hedge.after: must be "p95" or a number of seconds above 0, not 0'),
        ({"after": INF}, 'hedge.after: must be "p95" or a number of seconds above 0, not inf'),
        ({"after": 10**400}, 'hedge.after: must be "p95" or a number of seconds above 0, not a larger int'),
        ({"at_most": 10**5000}, "hedge.at_most: must be a part above 0 and up to 1, not a larger int"),
        ({"at_most": 0}, "hedge.at_most: must be a part above 0 and up to 1, not 0"),
        ({"at_most": 1.001}, "hedge.at_most: must be a part above 0 and up to 1, not 1.001"),
        ({"at_most": True}, "hedge.at_most: must be a part above 0 and up to 1, not True"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            Hedge(**wrong)  # type: ignore[arg-type]
        assert str(caught.value) == words


def test_there_is_no_percentile_below_twenty_first_events() -> None:
    hedge = HedgeState(Hedge())
    assert hedge.total == 0
    for number in range(19):
        hedge.first_event(number)
    assert hedge.count(5) == INF
    hedge.first_event(100)
    assert hedge.count(5) == 105, "the greatest of twenty"
    hedge.first_event(50)
    assert hedge.count(5) == 55


def test_the_percentile_is_that_of_the_last_two_hundred() -> None:
    hedge = HedgeState(Hedge())
    for seconds in (7.0, *repeat(1.0, 180), *repeat(2.0, 19)):
        hedge.first_event(seconds)
    assert hedge.count(0) == 2
    for seconds in repeat(9.0, 9):
        hedge.first_event(seconds)
    assert hedge.count(0) == 2  # 172 of 1 s, 19 of 2 s, 9 of 9 s
    hedge.first_event(9.0)
    assert hedge.count(0) == 9
    first = HedgeState(Hedge())
    for seconds in (*repeat(9.0, 10), *repeat(1.0, 190)):
        first.first_event(seconds)
    assert first.count(0) == 9


def test_second_attempts_are_a_part_of_the_calls_of_a_minute() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=0.5))
    assert [hedge.count(0.5), hedge.count(0.7, again=True)] == [1.5, 1.7]
    assert not hedge.allows(0.9), "a call that is sent again is counted once"
    hedge.count(0.9)
    assert hedge.allows(0.9)
    assert (hedge.take(0.9), hedge.total, hedge.take(0.9), hedge.total) == (True, 1, False, 1)
    hedge.count(30)
    hedge.count(31)
    assert hedge.take(31)
    hedge.count(59.9)
    assert not hedge.allows(59.9)  # two for five calls
    hedge.count(60)
    assert (hedge.take(60), hedge.take(60), hedge.total) == (True, False, 3)  # the second 0 has left, with two and one
    hedge.count(500)
    assert not hedge.allows(500)
    hedge.count(499)
    assert hedge.allows(499), "time does not run backwards"


def test_all_calls_may_be_sent_twice() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=1))
    hedge.count(3)
    assert [hedge.take(3), hedge.take(3)] == [True, False]


@pytest.mark.parametrize(("now", "allowed"), [(59.9, True), (60.0, False)])
def test_a_call_counts_for_sixty_seconds(now: float, allowed: bool) -> None:
    hedge = HedgeState(Hedge(1.0, at_most=1))
    hedge.count(0.5)
    assert hedge.allows(now) is allowed


def test_calls_and_second_attempts_leave_with_their_second() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=1))
    for second in range(60):
        hedge.count(second)
    assert [hedge.take(59) for _ in range(61)] == [True] * 60 + [False]
    hedge.count(60)
    assert not hedge.allows(60), "60 of 60"
    hedge.count(60.5)
    assert (hedge.allows(60.9), hedge.allows(118.9)) == (True, False)
    assert [hedge.take(119) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("later", [119, 120, 121, 1000])
def test_nothing_is_left_of_an_earlier_minute(later: int) -> None:
    for counted in range(60):
        hedge = HedgeState(Hedge(1.0, at_most=1))
        hedge.count(counted)
        assert not hedge.allows(later)
        hedge = HedgeState(Hedge(1.0, at_most=1))
        hedge.count(counted)
        assert hedge.take(counted)
        hedge.count(later)
        assert hedge.allows(later)


# --- keys ---


def test_a_refused_key_is_left_aside_for_a_minute() -> None:
    keys = ModelKeys("m", 3, Sessions())
    assert (keys.count, keys.usable(0)) == (3, [0, 1, 2])
    keys.put_aside(1, 10)
    assert [keys.usable(now) for now in (10, 69.9, 70)] == [[0, 2], [0, 2], [0, 1, 2]]
    assert keys.usable(10, {0, 2}) == [1], "it is better than none"
    assert keys.usable(10, {0, 1, 2}) == []
    early = ModelKeys("m", 3, Sessions())
    early.put_aside(1, 0)
    assert early.usable(0.5) == [0, 2]
    early.put_aside(0, 0)
    early.restore(1)
    assert early.usable(0.5) == [1, 2]


def test_a_session_keeps_its_key_for_an_hour() -> None:
    keys = ModelKeys("m", 2, Sessions())
    room = {0: 9.0, 1: 1.0}
    keys.keep(1, "a", 0)
    keys.keep(1, "b", 5)
    keys.keep(1, "a", 10)
    assert [keys.best([0, 1], room, each, 3604.9) for each in ("a", "b", None)] == [1, 1, 0]
    assert [keys.best([0, 1], room, each, 3605) for each in ("a", "b")] == [1, 0]
    assert keys.best([0], room, "a", 3605) == 0
    assert keys.best([0, 1], room, "a", 3610) == 0
    keys.keep(1, "a", 3610)
    keys.end_session("a")
    keys.end_session("a")
    keys.keep(1, None, 3610)
    assert keys.best([0, 1], room, "a", 3610) == 0


def test_many_sessions_of_one_key_are_not_kept() -> None:
    sessions = Sessions()
    ModelKeys("m", 1, sessions).keep(0, "a", 0)
    assert sessions.counts.total() == 0
    two = ModelKeys("m", 2, sessions)
    two.keep(0, "a", 0)
    two.keep(1, "b", 3600)
    assert sessions.counts == {0: 0, 1: 1}, "old ones are forgotten by any call"


def test_the_sessions_of_all_models_together_are_bounded() -> None:
    sessions = Sessions()
    all_keys = [ModelKeys(str(model), 2, sessions) for model in range(3)]
    room = {0: 9.0, 1: 1.0}
    for number in range(MOST_SESSIONS):
        all_keys[number % 3].keep(1, str(number), number / 1000)
        all_keys[0].keep(1, "0", number / 1000)  # it is used all the time
        assert sessions.counts[1] <= MOST_SESSIONS
    now = MOST_SESSIONS / 1000
    all_keys[1].keep(1, "one more", now)
    assert sessions.counts == {1: MOST_SESSIONS}
    kept = [all_keys[number % 3].best([0, 1], room, str(number), now) for number in (0, 1, 2, MOST_SESSIONS - 1)]
    assert kept == [1, 0, 1, 1], "the oldest one is forgotten"
    assert all_keys[2].best([0, 1], room, "0", now) == 0, "each model has its own"


class Access:
    """A key of a provider."""

    def __init__(self, name: str) -> None:
        self.provider = self
        self.name = name


def live_route(runtime: UnitRuntime, *names: str, **options: Any) -> Router:
    made = ms.Route("fast", [f"{name}/m" for name in names], **options)
    targets = tuple(RouteTarget((cast(Any, Access(name)),), Host(name), "m", made.targets[0]) for name in names)
    return Router(made, targets, cast(Any, runtime))


def fails(one: Router, place: int = 0, times: int = 5, *, message: str = "down") -> None:
    error = ms.ProviderError(message, category=ms.ErrorCategory.SERVER)
    for _ in range(times):
        number = one.begin(place, 0.0)
        one.fail(place, number, 0.0, None, error)
        one.end(place, number)


NONE_TRIED: frozenset[int] = frozenset()


def test_held_calls_look_in_the_order_of_their_priority() -> None:
    runtime, order = UnitRuntime(), list[str]()

    class Ordered(Call):
        def look_again(self) -> None:
            order.append(self.name)

    one = live_route(runtime, "one", "two")
    groups = (
        ("batch", Priority.BATCH, NONE_TRIED), ("normal", Priority.NORMAL, NONE_TRIED),
        ("interactive", Priority.INTERACTIVE, NONE_TRIED),
        ("first excluded", Priority.INTERACTIVE, frozenset({0})), ("interactive 2", Priority.INTERACTIVE, NONE_TRIED),
        ("all excluded", Priority.INTERACTIVE, frozenset({0, 1})),
    )  # fmt: skip
    for name, priority, excluded in groups:
        one.hold(Ordered(name), priority, excluded)
    runtime.tick()
    assert order == ["interactive", "interactive 2", "first excluded", "normal", "batch"]
    assert one.held == 1


def test_held_calls_look_when_the_pause_of_a_target_ends() -> None:
    runtime = UnitRuntime()
    one, call = live_route(runtime, "one"), Call()
    fails(one)
    assert one.held == 0
    one.hold(call, Priority.NORMAL, NONE_TRIED)
    runtime.tick()
    assert (one.held, runtime.timers.times) == (1, [2.0])
    runtime.go_to(2.0)
    assert (one.held, call.reported) == (0, ["look"])


def test_a_call_that_does_not_wait_any_longer_does_not_look() -> None:
    runtime = UnitRuntime()
    one = live_route(runtime, "one")
    stays, leaves = Call(), Call()
    groups = [one.hold(call, Priority.NORMAL, NONE_TRIED) for call in (stays, leaves)]
    one.end_hold(leaves, groups[1])
    one.end_hold(leaves, groups[1])
    runtime.tick()
    assert (stays.reported, leaves.reported, one.held) == (["look"], [], 0)


def test_calls_waiting_for_room_look_again_at_an_open_breaker() -> None:
    runtime = UnitRuntime()
    one = live_route(runtime, "one", "two")
    waiting, gone = Call(), Call()
    for call in (waiting, gone):
        one.wait_for_room(call)
    one.leave(gone)
    fails(one, times=4)
    assert runtime.due == []
    fails(one, times=1)
    assert runtime.tick() == 1
    assert (waiting.reported, gone.reported) == (["look"], [])


def test_the_log_names_a_target_left_alone_and_back_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "manystream.traffic")
    one = live_route(UnitRuntime(), "one", "two")
    fails(one, 1, 7, message="it is down")
    probe = one.begin(1, 3.0)
    one.succeed(1, probe, 0.5, 3.0)
    one.succeed(1, probe, 0.5, 3.0)
    one.complete(1, probe)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING",
        "route fast: two/m is left alone for 2 s at a time: 5 of its last 5 calls failed; the latest: server,"
        " it is down"), ("INFO", "route fast: two/m answers, and is used again"),
    ]  # fmt: skip
    caplog.clear()
    for balance in ("fastest", "sticky"):
        fails(live_route(UnitRuntime(), "one", "two", balance=balance), 0, 7)
    assert caplog.records == []


def test_a_target_that_cannot_take_requests_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one = live_route(UnitRuntime(), "one", "two")
    for place in (0, 1, 0, 1):
        one.cannot_take(place, ValueError("no tools"))
    assert [record.getMessage() for record in caplog.records] == [
        "route fast: one/m cannot take a request: no tools",
        "route fast: two/m cannot take a request: no tools",
    ]


def test_the_figures_of_a_route_are_complete() -> None:
    runtime = UnitRuntime()
    one = live_route(runtime, "one", "two", hedge=ms.Hedge(1.0))
    new = RouteStatistics(
        tuple(TargetStatistics(target, 0, 0, "closed", None, None, 0.0) for target in ("one/m", "two/m")), 0, 0
    )
    assert one.statistics(0.0) == new
    one.succeed(0, one.begin(0, 0.0), 0.5, 0.0)
    one.hold(Call(), Priority.NORMAL, NONE_TRIED)
    fails(one, 1)
    first, second = one.statistics(1.0).targets
    assert (first.outstanding, first.seconds, first.breaker, first.failures) == (1, 0.5, "closed", 0.0)
    assert first.score is not None
    assert (second.outstanding, second.breaker) == (0, "open")
    assert second.failures == pytest.approx(1 - 0.9**5)
    assert one.statistics(1.0).waiting == 1
    assert one.statistics(2.0).targets[1].breaker == "probing"
    fastest = live_route(runtime, "one", balance="fastest")
    fails(fastest)
    assert fastest.statistics(1.0).targets[0].breaker == "closed"


def test_a_place_keeps_the_keys_of_a_thousand_models() -> None:
    target = RouteTarget((cast(Any, Access("one")), cast(Any, Access("one"))), Host("one"))
    first = target.keys_of("0")
    for number in range(1000):
        assert target.keys_of(str(number)).count == 2
    assert target.keys_of("0") is first
    target.keys_of("1000")
    assert target.keys_of("0") is not first
    assert target.provider == "one"
