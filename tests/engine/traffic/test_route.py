"""The choice of a target by order, weight, speed and session, and the pause of a failing target."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from manystream.engine.traffic.routing.hedge import Hedge, HedgeState
from manystream.engine.traffic.routing.route_state import Balance, Choice, RouteState, TargetRecord
from manystream.providers.errors import InvalidRequestError

ALL = (0, 1, 2)


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
    assert route.choose(0, ALL) == Choice(0, (0,))
    assert route.choose(0, (1, 2)) == Choice(None, (0,))
    assert route.choose(0, ALL, tried=(0,)) == Choice(1, (1,))
    fail(route, 0, 5, 1.0)
    assert route.choose(1, ALL) == Choice(1, (1,))
    assert route.choose(3, ALL) == Choice(0, (0,))


def test_if_all_are_open_a_call_waits_for_the_first_to_close() -> None:
    route = a_route(Balance.ORDER, TargetRecord(), TargetRecord())
    fail(route, 0, 5, 1.0)
    fail(route, 1, 5, 1.5)
    assert route.choose(2, (0, 1)) == Choice(None, (), 3.0)


def test_breakers_are_ignored_while_most_targets_are_open() -> None:
    route = a_route(Balance.ORDER)
    fail(route, 0, 5, 1.0)
    fail(route, 1, 5, 1.0)
    assert route.choose(1, ALL) == Choice(0, (0,))


def test_where_every_target_was_tried_there_is_no_choice() -> None:
    assert a_route(Balance.ORDER).choose(0, ALL, tried=ALL) == Choice(None, ())


@pytest.mark.parametrize("balance", list(Balance))
def test_a_fallback_is_used_only_when_no_other_is_left(balance: Balance) -> None:
    route = a_route(balance, TargetRecord(fallback=True), TargetRecord(), TargetRecord(fallback=True))
    assert route.choose(0, ALL, session="s").target == 1
    assert route.choose(0, (0, 2), session="s").target is None
    assert route.choose(0, ALL, tried=(1,), session="s").target == 0
    assert route.choose(0, ALL, tried=(0, 1), session="s").target == 2


def test_weight() -> None:
    route = a_route(Balance.WEIGHTED, TargetRecord(weight=3), TargetRecord(weight=1))
    chosen = Counter(route.choose(0, (0, 1)).target for _ in range(4000))
    assert 2850 < chosen[0] < 3150
    assert route.choose(0, (1,)) == Choice(1, (0, 1))
    assert route.choose(0, ()) == Choice(None, (0, 1))


def test_fastest_tries_each_unknown_target_with_one_call_first() -> None:
    route = a_route(Balance.FASTEST)
    tried = set[int | None]()
    for _ in ALL:
        place = route.choose(0, ALL).target
        assert place is not None
        route.begin(place, 0)
        tried.add(place)
    assert tried == set(ALL)
    route.succeed(0, 1, 0.5, 0.5)
    assert route.choose(0.5, ALL).target == 0


def test_fastest_takes_the_target_with_the_lowest_score() -> None:
    route = a_route(Balance.FASTEST)
    for place, seconds in enumerate((1.0, 0.4, 0.5)):
        answer(route, place, seconds, 0)
    assert route.choose(1, ALL).target == 1
    route.begin(1, 1)
    assert route.choose(1, ALL).target == 2
    fail(route, 2, 3, 1)
    # 0.271 failures: 0.5 + 2 × 0.372 = 1.24 for the third, 0.8 for the second.
    assert route.targets[2].score.value() == pytest.approx(1.2435, abs=1e-4)
    assert route.choose(1, ALL).target == 1


def test_an_idle_target_is_tried_again_after_five_seconds() -> None:
    route = a_route(Balance.FASTEST)
    answer(route, 0, 0.1, 0)
    answer(route, 1, 10, 0)
    answer(route, 2, 10, 0)
    answer(route, 0, 0.1, 4.9)
    assert route.choose(4.9, ALL).target == 0
    assert route.choose(5, ALL).target in (1, 2)


def test_a_session_stays_until_its_target_is_much_worse() -> None:
    route = a_route(Balance.STICKY)
    for place in ALL:
        answer(route, place, 1.0, 0)
    first = route.choose(0, ALL, session="s").target
    assert first is not None
    route.begin(first, 0, "s")
    assert route.choose(0, ALL, session="s") == Choice(first, (first,))
    # It has no room now: full is no failure.
    assert route.choose(0, [place for place in ALL if place != first], session="s") == Choice(None, (first,))
    for _ in range(2):
        route.begin(first, 0)
    assert route.choose(0, ALL, session="s").target == first
    route.begin(first, 0)
    # Four calls under way make five times one second; the others score 1.
    assert route.choose(0, ALL, session="s").target != first
    assert route.sessions.counts[first] == 1
    route.fail(first, 0, 0, "s")
    assert route.sessions.counts[first] == 0


def test_a_session_is_forgotten_when_it_ends_and_after_an_hour() -> None:
    route = a_route(Balance.STICKY)
    for session, now in (("a", 0), ("b", 10)):
        route.begin(0, now, session)
    route.sessions.end("a")
    assert route.sessions.counts[0] == 1
    route.choose(3700, ALL, session="c")
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
