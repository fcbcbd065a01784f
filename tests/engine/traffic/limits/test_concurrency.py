"""The learned limit for running calls, step by step."""

from __future__ import annotations

import math

from manystream.engine.traffic.limits.concurrency import Concurrency
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.server_load import ServerLoad


def start(concurrency: Concurrency, count: int, now: float) -> list[Permit]:
    tickets = [Permit(100, 10) for _ in range(count)]
    for ticket in tickets:
        concurrency.start(ticket, now)
    return tickets


def test_it_starts_at_eight_and_grows_with_quick_first_tokens() -> None:
    concurrency = Concurrency()
    tickets = start(concurrency, 8, 0)
    assert concurrency.ready_at(0) == math.inf
    for ticket in tickets:
        concurrency.first_token(ticket, 0.1)
        concurrency.first_token(ticket, 0.2)
    # All were sent while it was in use, although 8 of 16 are not in use.
    assert concurrency.limit == 16
    assert concurrency.ready_at(0.2) == 0.2


def test_it_doubles_with_quick_unstreamed_answers_and_grows_slowly_with_others() -> None:
    concurrency = Concurrency()
    waiting = start(concurrency, 8, 0)
    for _ in range(8):
        concurrency.end(waiting.pop(0), 1, 10)
        waiting += start(concurrency, int(concurrency.limit) - concurrency.running, 1)
    assert concurrency.limit == 16
    for _ in range(16):
        concurrency.end(waiting.pop(0), 2.5, 10)
        waiting += start(concurrency, int(concurrency.limit) - concurrency.running, 2.5)
    assert 16 < concurrency.limit < 20


def test_what_runs_during_a_pause_is_not_judged() -> None:
    concurrency = Concurrency()
    for ticket in start(concurrency, 1, 0):
        concurrency.first_token(ticket, 0.1)
        concurrency.leave(ticket)
    streamed, whole = start(concurrency, 4, 1), start(concurrency, 4, 1)
    concurrency.interrupt()
    assert (concurrency.running, concurrency.ready_at(2)) == (8, math.inf)
    for ticket in streamed:
        concurrency.first_token(ticket, 300)
    for ticket in streamed + whole:
        concurrency.end(ticket, 301, 10)
    assert (concurrency.limit, concurrency.running) == (8, 0)
    for ticket in start(concurrency, 8, 302):
        concurrency.first_token(ticket, 302.2)
    assert concurrency.limit == 16


def test_a_refusal_sets_the_limit_to_the_running_calls() -> None:
    concurrency = Concurrency()
    tickets = start(concurrency, 8, 0)
    concurrency.refuse(tickets[0], None, 1)
    assert (concurrency.limit, concurrency.running, concurrency.hold_until) == (7, 7, 1.5)
    concurrency.refuse(tickets[1], 3, 1)
    assert (concurrency.limit, concurrency.running, concurrency.hold_until) == (7, 6, 4)


def test_a_slow_round_does_not_go_back_to_a_refused_limit() -> None:
    concurrency = Concurrency(at_most=8)
    running = start(concurrency, 8, 0)
    for number in range(40):  # ten calls per second
        concurrency.end(running.pop(0), number / 10)
        running += start(concurrency, 1, number / 10)
        concurrency.first_token(running[-1], number / 10 + 0.01)
    for ticket in running[2:-1]:
        concurrency.leave(ticket)
    concurrency.refuse(running[-1], None, 5)
    assert concurrency.limit == 2
    for ticket in running[:2]:
        concurrency.leave(ticket)
    for now in range(10, 60, 10):
        running = start(concurrency, 2, now)
        for ticket in running:
            concurrency.first_token(ticket, now + 8)
        for ticket in running:
            concurrency.end(ticket, now + 9)
    assert concurrency.limit <= 2


def say(concurrency: Concurrency, *reports: tuple[float, float]) -> list[int]:
    """Return the limits after reports of what runs and waits in the server, with all places used."""
    limits: list[int] = []
    for number, (running, waiting) in enumerate(reports):
        start(concurrency, int(concurrency.limit) - concurrency.running, number / 4)
        concurrency.report(ServerLoad(running, waiting), number / 4)
        limits.append(int(concurrency.limit))
    return limits


def test_it_doubles_while_nothing_waits_in_the_server() -> None:
    assert say(Concurrency(), (8, 0), (16, 0), (32, 0)) == [16, 32, 64]
    assert say(Concurrency(at_most=20), (8, 0), (16, 0)) == [16, 20]
    unused = Concurrency()
    unused.report(ServerLoad(0, 0), 0)
    assert unused.limit == 8


def test_it_falls_to_what_runs_there_and_a_tenth() -> None:
    concurrency = Concurrency()
    growth = say(concurrency, (8, 0), (16, 0), (32, 0), (64, 0), (100, 28), (100, 28))
    assert growth == [16, 32, 64, 128, 128, 111]
    for ticket in list(concurrency._calls)[:17]:
        concurrency.end(ticket, 2)
    # While a few wait, each of the clients grows by a part of what runs, and all are cut by the same factor.
    assert say(concurrency, (100, 11), (100, 8), (100, 8), (100, 8)) == [111, 113, 114, 116]


def test_one_report_of_another_kind_changes_little() -> None:
    """One of three replicas is full, or an answer of a server comes between two of its steps."""
    concurrency = Concurrency()
    assert say(concurrency, *[(8, 0), (16, 0), (16, 40)] * 2)[-1] >= 64
    full = Concurrency()
    say(full, (8, 0), (16, 0), (30, 2), (30, 2), (30, 2))
    limit = int(full.limit)
    assert all(0 <= other - limit <= 3 for other in say(full, (1, 31), (32, 0), (30, 2)))


def test_calls_are_not_judged_by_their_times_while_the_server_says_more() -> None:
    concurrency = Concurrency()
    for ticket in start(concurrency, 8, 0):
        concurrency.first_token(ticket, 0.1)
        concurrency.end(ticket, 1)
    concurrency.report(ServerLoad(8, 0.5), 1)
    limit = concurrency.limit
    for ticket in start(concurrency, 11, 1):
        concurrency.first_token(ticket, 9)
        concurrency.end(ticket, 10)
    assert concurrency.limit == limit
    concurrency.no_report()
    assert (concurrency.source, concurrency.load) == ("learned", None)


def test_the_places_that_a_server_reports_are_its_limit() -> None:
    concurrency = Concurrency()
    concurrency.report(ServerLoad(slots=4), 0)
    assert (concurrency.limit, concurrency.source) == (4, "reported")


def test_after_a_refusal_it_does_not_double() -> None:
    concurrency = Concurrency()
    say(concurrency, (8, 0), (16, 0))
    concurrency.refuse(next(iter(concurrency._calls)), None, 1)
    limit = concurrency.limit
    assert say(concurrency, (31, 0), (31, 0), (31, 0))[-1] <= limit + 1
