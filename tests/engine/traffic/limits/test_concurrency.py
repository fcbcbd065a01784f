"""The learned limit for running calls, step by step."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.traffic.limits.concurrency import Concurrency, LeastTimes
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.server_load import ServerLoad
from tests.support.peers import Line, answer, chat_stream, chunked, error_body, open_peer, stream_of


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


INF = math.inf


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


class Slots:
    """A server that runs a fixed number of calls at a time, and refuses further ones."""

    def __init__(self, slots: int, status: str) -> None:
        self.slots, self.status = slots, status
        self.running = self.most = self.refused = 0

    async def serve(self, line: Line) -> None:
        while await line.request():
            if self.running >= self.slots:
                self.refused += 1
                await line.send(answer(error_body("busy"), status=self.status))
                continue
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                first, *rest = chat_stream("fine", "ly")
                await trio.sleep(0.2)
                await line.send(stream_of(first, end=False))
                await trio.sleep(1)
                await line.send(chunked(*rest))
            finally:
                self.running -= 1


@pytest.mark.parametrize(("profile", "status"), [("vllm", "503 Service Unavailable"), ("deepseek", "429 Slots")])
async def test_refusals_teach_how_many_may_run(autojump_clock: MockClock, profile: str, status: str) -> None:
    server = Slots(5, status)
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile=profile)
        no_retry = ms.Retry(max_attempts=1)
        async with ms.open_engine([provider], traffic=ms.Traffic(), retry=no_retry) as engine:
            started = trio.current_time()
            calls = [engine.start_stream(ms.Request("here/m", [ms.Message.user("a")])) for _ in range(100)]
            completions = [await call.wait() for call in calls]
            seconds = trio.current_time() - started
            (scope,) = engine.statistics().traffic.limiters.values()
    assert all(completion.success for completion in completions)
    assert server.most == 5
    assert server.refused < 40
    assert seconds < 1.2 * 100 / 5 * 2
    assert scope.concurrent is not None
    assert (scope.running, scope.waiting) == (0, 0)
    assert any(completion.timings.waited.get("slot", 0) > 1 for completion in completions)


async def test_models_of_one_server_share_its_slots(autojump_clock: MockClock) -> None:
    server = Slots(5, "503 Service Unavailable")
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            calls = [
                engine.start_stream(ms.Request(f"here/{model}", [ms.Message.user("a")]))
                for _ in range(10)
                for model in ("m", "m-lora")
            ]
            assert all([(await call.wait()).success for call in calls])
            assert list(engine.statistics().traffic.limiters) == ["here/*"]
