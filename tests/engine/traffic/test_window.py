"""The window of calls that a quota admits, and the charge of a call: each rule with literal numbers."""

from __future__ import annotations

import math

import pytest

from manystream.engine.traffic.limits.quota import Quota, Window
from manystream.engine.traffic.queue.fair_queue import Cost, Permit
from manystream.providers.limits.charging import Charging

INF = math.inf


def filled(window: Window, count: int, now: float) -> list[Permit]:
    tickets = [Permit(1, 1) for _ in range(count)]
    for ticket in tickets:
        window.add(ticket, now)
    return tickets


def test_a_window_has_ten_places_for_half_a_second() -> None:
    window = Window()
    assert (window.size, len(window), window.ready_at(3), window.overdue(3)) == (10, 0, 3, None)
    first = filled(window, 1, 1)[0]
    filled(window, 8, 2)
    assert (len(window), window.ready_at(2)) == (9, 2)
    filled(window, 1, 2.25)
    assert (len(window), window.ready_at(2.25)) == (10, 1.5), "the oldest call is overdue"
    assert (window.overdue(1.49), window.overdue(1.5)) == (None, first)
    window.remove(first)
    assert (len(window), window.size, window.ready_at(3.5), window.overdue(2.49)) == (9, 10, 3.5, None)
    window.remove(first)


def test_calls_before_another_are_those_that_were_sent_earlier() -> None:
    window = Window()
    tickets = filled(window, 4, 0)
    assert list(window.before(tickets[2])) == tickets[:2]
    assert list(window.before(tickets[0])) == []
    assert list(window.before(Permit(1, 1))) == [], "an earlier one that has left the window"


def test_a_window_grows_if_half_of_it_was_used() -> None:
    window = Window()
    few = filled(window, 4, 0)
    assert window.confirm(few[0], INF, 0.1)
    assert window.size == 10
    assert not window.confirm(few[0], INF, 0.1), "it was confirmed before"
    filled(window, 2, 0.2)  # five of ten
    assert window.confirm(few[1], INF, 0.3)
    assert window.size == 11
    (late,) = filled(window, 1, 0.4)  # five of eleven
    assert window.confirm(late, INF, 0.5)
    assert (window.size, len(window)) == (11, 4)


@pytest.mark.parametrize(
    ("took", "answered", "size"),
    [
        (0.1, 0.0, 20),
        (0.5, 0.0, 20),
        (0.1, 0.1, 500),
        (0.5, 0.5, 500),
        (0.1, 0.2, 250),
        (0.1, 1.0, 50),
        (0.1, 9.0, 50),
        (0.5, 9.0, 50),
    ],
)
def test_answers_make_the_window_grow_to_the_next_refusal(took: float, answered: float, size: int) -> None:
    """In a tenth of the time of an answer, or in that of a head if that is less, 50 calls are sent."""
    window = Window()
    for ticket in filled(window, 10, 0):
        window.confirm(ticket, INF, took)
    for _ in range(10 if answered else 0):
        window.answered(0, INF, answered)
    assert window.size == pytest.approx(size, abs=1)


def test_a_tenth_of_many_calls_is_untried() -> None:
    window, sent = Window(), 0
    for now in range(50):
        sent += window.size
        for ticket in filled(window, window.size, now):
            window.confirm(ticket, INF, now + 0.1)
        window.answered(now, INF, now + 9)
    assert window.size == pytest.approx(sent / 10, abs=1)


def test_an_answer_adds_nothing_where_a_limit_is_known() -> None:
    window = Window()
    for ticket in filled(window, 10, 0):
        window.confirm(ticket, 1e6, 0.1)
    window.answered(0, 1e6, 0.2)
    assert window.size == 20


def test_an_answer_adds_nothing_to_a_window_that_is_not_used() -> None:
    window = Window()
    for now in range(10):
        (ticket,) = filled(window, 1, now)
        window.confirm(ticket, INF, now + 0.1)
        window.answered(now, INF, now + 0.1)
    assert window.size == 10


def test_a_window_is_spread_over_a_round_trip() -> None:
    window = Window()
    for ticket in filled(window, 10, 0):
        window.confirm(ticket, INF, 0.2)
        window.answered(0, INF, 0.2)
    assert window.size == pytest.approx(500, abs=1)
    while window.ready_at(0.2) == 0.2:
        filled(window, 1, 0.2)
    assert 10 <= len(window) <= 500 / 32, "as many as were confirmed, at least, and a 32nd of the window at once"
    at = window.ready_at(0.2)
    assert 0.2 < at <= 0.2 + 500 / 32 / (500 / 0.2), "500 calls in 0.2 s"
    filled(window, 1, at)
    assert window.ready_at(at) == at


def test_a_call_that_was_not_sent_gives_its_place_back() -> None:
    window = Window()
    for ticket in filled(window, 10, 0):
        window.remove(ticket, was_sent=False)
    assert window.ready_at(0) == 0
    for ticket in filled(window, 10, 0):
        window.remove(ticket)
    assert window.ready_at(0) == pytest.approx(1 / 20)


def test_a_known_limit_allows_three_times_its_round_trip() -> None:
    for rate, size in ((8.0, 12), (7.9, 11), (0.0, 10)):
        window = Window()
        for ticket in filled(window, 40, 0):
            window.confirm(ticket, rate, 0.5)
        assert window.size == size, rate


# --- charges ---


CHARGED = {
    "reserved": ((1, 100, 40, 140), (1, 100, 4000, 4100), (1, 100, 512, 612)),
    "produced": ((1, 100, 40, 140), (1, 100, 512, 612), (1, 100, 512, 612)),
}


@pytest.mark.parametrize("output", CHARGED)
def test_the_estimate_of_a_call_with_and_without_a_limit(output: str) -> None:
    quota = Quota(Charging(output=output))  # type: ignore[arg-type]
    assert (quota.output.value, tuple(quota.estimate(Permit(100, most)) for most in (40, 4000, None))) == (
        512, CHARGED[output],
    )  # fmt: skip


def test_the_least_charge_counts_only_reserved_output() -> None:
    for output, least in (("reserved", (140, 100)), ("produced", (100, 100))):
        quota = Quota(Charging(output=output))  # type: ignore[arg-type]
        assert (quota.least(100, 40).tokens, quota.least(100, None).tokens) == least
    assert Quota(Charging(output="reserved")).least(100, 40) == (1, 100, 40, 140)


def test_the_mean_output_is_arithmetic_and_then_smoothed() -> None:
    quota = Quota(Charging())
    for output in (100, 300, *[200] * 18):
        quota.settled(0, 0, output)
    assert quota.output.value == pytest.approx(200)
    quota.settled(0, 0, 1200)
    assert quota.output.value == pytest.approx(250)
    quota.settled(0, 0, 250)
    assert quota.output.value == pytest.approx(250)


def test_a_failed_call_has_used_a_request() -> None:
    assert Quota(Charging()).used_by_failed(Cost(1, 100, 40, 140)) == (1, 0, 0, 0)
