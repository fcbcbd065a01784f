"""Circuit breakers: when one opens, whom it lets through, and what closes it."""

from __future__ import annotations

import pytest

from manystream.engine.traffic.limits.host import Breaker
from tests.engine.traffic.routing.test_router import INF, a_breaker


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
