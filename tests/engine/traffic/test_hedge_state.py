"""Second attempts and keys: each rule with literal numbers."""

from __future__ import annotations

import math
from itertools import repeat

import pytest

from manystream.engine.traffic.routing.options import Hedge
from manystream.engine.traffic.routing.router import MOST_SESSIONS, HedgeState, KeyRing, Sessions
from manystream.providers.errors import InvalidRequestError

INF = math.inf


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
    assert hedge.begin(5) == INF
    hedge.first_event(100)
    assert hedge.begin(5) == 105, "the greatest of twenty"
    hedge.first_event(50)
    assert hedge.begin(5) == 55


def test_the_percentile_is_that_of_the_last_two_hundred() -> None:
    hedge = HedgeState(Hedge())
    for seconds in (7.0, *repeat(1.0, 180), *repeat(2.0, 19)):
        hedge.first_event(seconds)
    assert hedge.begin(0) == 2
    for seconds in repeat(9.0, 9):
        hedge.first_event(seconds)
    assert hedge.begin(0) == 2  # 172 of 1 s, 19 of 2 s, 9 of 9 s
    hedge.first_event(9.0)
    assert hedge.begin(0) == 9
    first = HedgeState(Hedge())
    for seconds in (*repeat(9.0, 10), *repeat(1.0, 190)):
        first.first_event(seconds)
    assert first.begin(0) == 9


def test_second_attempts_are_a_part_of_the_calls_of_a_minute() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=0.5))
    assert [hedge.begin(0.5), hedge.begin(0.7, again=True)] == [1.5, 1.7]
    assert not hedge.allows(0.9), "a call that is sent again is counted once"
    hedge.begin(0.9)
    assert hedge.allows(0.9)
    assert (hedge.take(0.9), hedge.total, hedge.take(0.9), hedge.total) == (True, 1, False, 1)
    hedge.begin(30)
    hedge.begin(31)
    assert hedge.take(31)
    hedge.begin(59.9)
    assert not hedge.allows(59.9)  # two for five calls
    hedge.begin(60)
    assert (hedge.take(60), hedge.take(60), hedge.total) == (True, False, 3)  # the second 0 has left, with two and one
    hedge.begin(500)
    assert not hedge.allows(500)
    hedge.begin(499)
    assert hedge.allows(499), "time does not run backwards"


def test_all_calls_may_be_sent_twice() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=1))
    hedge.begin(3)
    assert [hedge.take(3), hedge.take(3)] == [True, False]


@pytest.mark.parametrize(("now", "allowed"), [(59.9, True), (60.0, False)])
def test_a_call_counts_for_sixty_seconds(now: float, allowed: bool) -> None:
    hedge = HedgeState(Hedge(1.0, at_most=1))
    hedge.begin(0.5)
    assert hedge.allows(now) is allowed


def test_calls_and_second_attempts_leave_with_their_second() -> None:
    hedge = HedgeState(Hedge(1.0, at_most=1))
    for second in range(60):
        hedge.begin(second)
    assert [hedge.take(59) for _ in range(61)] == [True] * 60 + [False]
    hedge.begin(60)
    assert not hedge.allows(60), "60 of 60"
    hedge.begin(60.5)
    assert (hedge.allows(60.9), hedge.allows(118.9)) == (True, False)
    assert [hedge.take(119) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("later", [119, 120, 121, 1000])
def test_nothing_is_left_of_an_earlier_minute(later: int) -> None:
    for counted in range(60):
        hedge = HedgeState(Hedge(1.0, at_most=1))
        hedge.begin(counted)
        assert not hedge.allows(later)
        hedge = HedgeState(Hedge(1.0, at_most=1))
        hedge.begin(counted)
        assert hedge.take(counted)
        hedge.begin(later)
        assert hedge.allows(later)


# --- keys ---


def test_a_refused_key_is_left_aside_for_a_minute() -> None:
    ring = KeyRing("m", 3, Sessions())
    assert (ring.count, ring.usable(0)) == (3, [0, 1, 2])
    ring.put_aside(1, 10)
    assert [ring.usable(now) for now in (10, 69.9, 70)] == [[0, 2], [0, 2], [0, 1, 2]]
    assert ring.usable(10, {0, 2}) == [1], "it is better than none"
    assert ring.usable(10, {0, 1, 2}) == []
    early = KeyRing("m", 3, Sessions())
    early.put_aside(1, 0)
    assert early.usable(0.5) == [0, 2]
    early.put_aside(0, 0)
    early.restore(1)
    assert early.usable(0.5) == [1, 2]


def test_a_session_keeps_its_key_for_an_hour() -> None:
    ring = KeyRing("m", 2, Sessions())
    room = {0: 9.0, 1: 1.0}
    ring.begin(1, "a", 0)
    ring.begin(1, "b", 5)
    ring.begin(1, "a", 10)
    assert [ring.best([0, 1], room, each, 3604.9) for each in ("a", "b", None)] == [1, 1, 0]
    assert [ring.best([0, 1], room, each, 3605) for each in ("a", "b")] == [1, 0]
    assert ring.best([0], room, "a", 3605) == 0
    assert ring.best([0, 1], room, "a", 3610) == 0
    ring.begin(1, "a", 3610)
    ring.end_session("a")
    ring.end_session("a")
    ring.begin(1, None, 3610)
    assert ring.best([0, 1], room, "a", 3610) == 0


def test_many_sessions_of_one_key_are_not_kept() -> None:
    sessions = Sessions()
    KeyRing("m", 1, sessions).begin(0, "a", 0)
    assert sessions.counts.total() == 0
    two = KeyRing("m", 2, sessions)
    two.begin(0, "a", 0)
    two.begin(1, "b", 3600)
    assert sessions.counts == {0: 0, 1: 1}, "old ones are forgotten by any call"


def test_the_sessions_of_all_models_together_are_bounded() -> None:
    sessions = Sessions()
    rings = [KeyRing(str(model), 2, sessions) for model in range(3)]
    room = {0: 9.0, 1: 1.0}
    for number in range(MOST_SESSIONS):
        rings[number % 3].begin(1, str(number), number / 1000)
        rings[0].begin(1, "0", number / 1000)  # it is used all the time
        assert sessions.counts[1] <= MOST_SESSIONS
    now = MOST_SESSIONS / 1000
    rings[1].begin(1, "one more", now)
    assert sessions.counts == {1: MOST_SESSIONS}
    kept = [rings[number % 3].best([0, 1], room, str(number), now) for number in (0, 1, 2, MOST_SESSIONS - 1)]
    assert kept == [1, 0, 1, 1], "the oldest one is forgotten"
    assert rings[2].best([0, 1], room, "0", now) == 0, "each model has its own"
