"""The window, the learned limit for running calls, and the charge of a call: each rule with literal numbers."""

from __future__ import annotations

import math

import pytest

from manystream.engine.traffic.limits.concurrency import Concurrency, LeastTimes
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
    for now in range(100):
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


# --- running calls ---


def test_the_shortest_time_is_kept_for_each_half_octave() -> None:
    least = LeastTimes()
    assert [least.measure(size, time, 0) for size, time in ((100, 2.0), (100, 3.0), (100, 1.0))] == [2, 2, 1]
    assert least.measure(128, 5.0, 0) == 5, "a longer prompt is in the next half octave"
    assert least.measure(90.6, 4.0, 0) == 1  # 2 × log2(90.6) = 13.003, as for 100
    assert least.measure(90.5, 0.5, 0) == 0.5  # 12.9998
    assert least.measure(100, 4.0, 0) == 1, "a shorter prompt says nothing about a longer one"


def test_sizes_below_one_and_above_all_are_measured() -> None:
    least = LeastTimes()
    assert (least.measure(0, 3.0, 0), least.measure(1.4, 2.0, 0), least.measure(0.5, 9.0, 0)) == (3, 2, 2)
    assert (least.measure(2.0**40, 7.0, 0), least.measure(2.0**31.5, 8.0, 0)) == (7, 7)
    assert (least.measure(2.0**31.5, 5.0, 0), least.measure(2.0**40, 9.0, 0)) == (5, 5)


def test_prompts_of_one_half_octave_share_a_shortest_time() -> None:
    least = LeastTimes()
    assert (least.measure(91, 1.0, 0), least.measure(127, 5.0, 0)) == (1, 1)
    assert (least.measure(2.0**31, 5.0, 0), least.measure(2.0**31.5, 9.0, 0)) == (5, 9)


def test_a_shortest_time_is_replaced_after_ten_minutes() -> None:
    least = LeastTimes()
    assert least.measure(100, 1.0, 0) == 1
    assert least.measure(100, 2.0, 600) == 1
    assert least.measure(100, 3.0, 600.5) == 3
    assert least.measure(4, 9.0, 1200.5) == 3
    assert least.measure(4, 9.0, 1200.6) == 9, "that of the longer prompt is too old"


def test_a_time_of_nothing_is_a_microsecond() -> None:
    assert LeastTimes().measure(1, 0.0, 0) == 1e-6


def running(concurrency: Concurrency, count: int, now: float) -> list[Permit]:
    tickets = [Permit(100, 10) for _ in range(count)]
    for ticket in tickets:
        concurrency.start(ticket, now)
    return tickets


def end(concurrency: Concurrency, tickets: list[Permit], now: float, first: float = 0.0) -> None:
    for ticket in tickets:
        if first:
            concurrency.first_token(ticket, first)
    for ticket in tickets:
        concurrency.end(ticket, now)


def test_the_limit_before_anything_is_learned() -> None:
    found = [
        (each.at_most, each.limit, each.hold_until, each.running, each.ready_at(7))
        for each in (Concurrency(), Concurrency(at_most=3), Concurrency(at_most=20))
    ]
    assert found == [
        (INF, 8, -INF, 0, 7),
        (3, 3, -INF, 0, 7),
        (20, 8, -INF, 0, 7),
    ]


def test_quick_first_tokens_raise_the_limit_while_it_is_in_use() -> None:
    concurrency = Concurrency()
    tickets = running(concurrency, 7, 0)
    concurrency.first_token(tickets[0], 1)  # 7 of 8 are more than 0.8
    assert concurrency.limit == 9
    concurrency.first_token(tickets[0], 1)
    assert concurrency.limit == 9, "the second token says nothing"
    concurrency.first_token(tickets[1], 1)
    assert concurrency.limit == 10, "7 of 9 are less, but it was in use when the call was sent"
    concurrency.first_token(Permit(1, 1), 1)
    assert concurrency.limit == 10
    running(concurrency, 1, 1)
    concurrency.first_token(tickets[0], 1)
    assert concurrency.limit == 10, "the second token says nothing"


@pytest.mark.parametrize(("late", "limit"), [(3.0, 9), (3.1, 8)])
def test_a_first_token_at_three_times_the_shortest_is_not_late(late: float, limit: int) -> None:
    concurrency = Concurrency()
    (quick,) = running(concurrency, 1, 0)
    concurrency.first_token(quick, 1)
    tickets = running(concurrency, 6, 10)
    concurrency.first_token(tickets[0], 10 + late)
    assert concurrency.limit == limit


def after_a_cut(limit: int, now: float = 1.0) -> Concurrency:
    """A limit that was cut at a time by a refusal. No call runs."""
    concurrency = Concurrency()
    tickets = running(concurrency, limit + 1, 0)
    concurrency.refuse(tickets[0], 0, now)
    for ticket in tickets[1:]:
        concurrency.leave(ticket)
    assert (concurrency.limit, concurrency.running, concurrency.hold_until) == (limit, 0, now + 0.1)
    return concurrency


def test_a_round_is_as_many_calls_as_the_limit_and_at_least_four() -> None:
    for limit, calls in ((2, 4), (3, 4), (4, 4), (6, 6)):
        concurrency = after_a_cut(limit)
        tickets = running(concurrency, calls + 10, 2)
        for ticket in tickets:
            concurrency.first_token(ticket, 3)
        end(concurrency, tickets[: calls - 1], 4)
        assert concurrency.limit == limit
        end(concurrency, tickets[calls - 1 : calls], 4)
        assert concurrency.limit == limit + 1


def test_a_good_round_of_many_calls_adds_a_twentieth() -> None:
    concurrency = after_a_cut(40)
    tickets = running(concurrency, 80, 2)
    end(concurrency, tickets[:40], 4, first=3)
    assert concurrency.limit == 42
    capped = Concurrency(at_most=9)
    capped.limit = 9
    end(capped, running(capped, 20, 0)[:9], 4)
    assert capped.limit == 9


def test_a_good_round_that_does_not_use_the_limit_adds_nothing() -> None:
    concurrency = after_a_cut(6)
    for _ in range(6):
        end(concurrency, running(concurrency, 4, 2)[:1], 4, first=3)
        for ticket in list(concurrency._calls):
            concurrency.leave(ticket)
    assert concurrency.limit == 6


def test_a_call_sent_before_the_cut_belongs_to_no_round() -> None:
    concurrency = after_a_cut(4, now=2)
    tickets = running(concurrency, 9, 2)
    end(concurrency, tickets[:8], 5)
    assert (concurrency.limit, concurrency.running) == (4, 1)
    concurrency.refuse(tickets[8], 3, 6)
    assert (concurrency.limit, concurrency.hold_until) == (4, 9)


def test_a_round_that_waits_inside_cuts_by_the_calls_that_wait() -> None:
    concurrency = Concurrency()
    (quick,) = running(concurrency, 1, 0)
    concurrency.first_token(quick, 1)
    concurrency.leave(quick)
    concurrency.limit = 20
    tickets = running(concurrency, 20, 10)
    end(concurrency, tickets, 30, first=16)
    # The first token took 6 s instead of 1 s. 5 of 20 s are a quarter of the 20 calls.
    assert concurrency.limit == 15
    tickets = running(concurrency, 15, 40)
    end(concurrency, tickets[:15], 141, first=44)
    assert concurrency.limit == 14, "at least one less"


@pytest.mark.parametrize(("time", "limit"), [(5.0, 6.4), (3.1, 7), (3.0, 8)])
def test_a_round_is_slow_above_three_times_the_shortest_time(time: float, limit: float) -> None:
    concurrency = Concurrency()
    tickets = running(concurrency, 8, 10)
    for ticket in tickets:
        concurrency._judge(concurrency._calls[ticket], time, 1.0, in_use=False)
    for ticket in tickets:
        concurrency.end(ticket, 30)
    # The excess over the shortest time, 1 s, is waiting: 4 of 20 s are 1.6 of 8 calls. At least one is cut.
    assert concurrency.limit == pytest.approx(limit)


def test_a_short_wait_inside_the_server_counts_in_proportion() -> None:
    concurrency = Concurrency()
    tickets = running(concurrency, 8, 10)
    for ticket in tickets:
        concurrency._judge(concurrency._calls[ticket], 0.5, 0.1, in_use=False)
        concurrency.end(ticket, 11)
    assert concurrency.limit == pytest.approx(8 - 8 * 0.4)


def test_a_cut_begins_a_new_round() -> None:
    concurrency = Concurrency()
    tickets = running(concurrency, 8, 0)
    end(concurrency, tickets[:3], 1)
    concurrency.refuse(tickets[3], 0, 2)
    assert concurrency.limit == 4
    later = running(concurrency, 20, 3)
    end(concurrency, later[:3], 4)
    assert concurrency.limit == 4
    end(concurrency, later[3:4], 4)
    assert concurrency.limit == 5


def test_the_limit_is_never_below_one() -> None:
    concurrency = Concurrency()
    (only,) = running(concurrency, 1, 0)
    concurrency.refuse(only, None, 1)
    assert (concurrency.limit, concurrency.running) == (1, 0)
    concurrency.refuse(only, 0.25, 2)
    assert (concurrency.limit, concurrency.hold_until) == (1, 2.25), "a call that is not known holds, and cuts nothing"
    concurrency.refuse(only, 0.0, 2.1)
    assert concurrency.hold_until == 2.25


def test_an_unstreamed_answer_is_judged_by_time_per_token() -> None:
    concurrency = Concurrency()
    first = running(concurrency, 1, 0)[0]
    concurrency.end(first, 10, 10)  # one second for a token
    tickets = running(concurrency, 7, 20)
    for ticket in tickets[:6]:
        concurrency.end(ticket, 60, 10)  # 40 s instead of 10 s
    assert concurrency.limit == 8
    concurrency.end(tickets[6], 60, 10)
    # Of the 8 calls, the mean is 36.25 s. 30 s of them are spent waiting: 6.62 calls.
    assert concurrency.limit == pytest.approx(8 - 8 * 30 / 36.25)


def test_a_streamed_answer_is_judged_by_its_first_token_only() -> None:
    concurrency = Concurrency()
    for now in (0, 100):
        tickets = running(concurrency, 8, now)
        for ticket in tickets:
            concurrency.first_token(ticket, now + 1)
        limit = concurrency.limit
        for ticket in tickets:
            concurrency.end(ticket, now + 10 + now, 10)
        assert concurrency.limit == limit


# --- charges ---


def test_costs_are_added_member_by_member() -> None:
    assert Cost(1, 2, 3, 4).plus(Cost(10, 20, 30, 40)) == Cost(11, 22, 33, 44)
    assert Cost(10, 20, 30, 40).less(Cost(1, 2, 3, 4)) == Cost(9, 18, 27, 36)


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


def test_a_failed_call_has_used_a_request_or_nothing() -> None:
    found = [Quota(Charging(failed_requests=failed)).failed(Cost(1, 100, 40, 140)) for failed in (True, False)]
    assert found == [(1, 0, 0, 0), (0, 0, 0, 0)]
