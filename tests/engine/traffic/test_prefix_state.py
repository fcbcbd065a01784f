"""The law of prefixes in a model of servers: what a fan-out pays, how long it waits, and what its end learns."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

import pytest

from manystream.engine.traffic.prefix_state import PROVING, WRITING, CacheFacts, PrefixState

WAIT = 10.0


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server with caches. early: usage comes with the first event. fails: the share of calls that fail, or hang."""

    machines: int = 1
    lag: float = 0.0
    cold: float = 3.0
    warm: float = 0.6
    is_caching: bool = True
    reports_writes: bool = True
    early: bool = True
    fails: float = 0.0


@dataclass
class Outcome:
    cost: float
    sent: list[float]
    waited: list[float]


def run(server: Server, starts: list[float], seed: int, facts: CacheFacts | None = None) -> Outcome:
    """Start calls with one prefix; `facts` None: without the law. The cost is in plain prefixes."""
    law = None if facts is None else PrefixState[int](facts, 20_000, 300)
    ready: dict[int, float] = {}
    events: list[tuple[float, int, str, int, bool]] = [(at, n, "start", n, False) for n, at in enumerate(starts)]
    outcome, number, ticks = Outcome(0.0, [], []), len(starts), set[float]()

    def put(at: float, kind: str, call: int, has_read: bool = False) -> None:
        nonlocal number
        number += 1
        heapq.heappush(events, (at, number, kind, call, has_read))

    def send(call: int, now: float) -> None:
        outcome.sent.append(now)
        outcome.waited.append(now - starts[call])
        chance = random.Random(seed * 1000 + call)  # the same with and without the law
        machine, fate = chance.randrange(server.machines), chance.random()
        if fate < server.fails:
            put(now + (1.0 if fate < server.fails / 2 else 1000.0), "fail", call)
            return
        has_read = server.is_caching and ready.get(machine, math.inf) <= now
        outcome.cost += 0.1 if has_read else 1.25 if server.is_caching else 1.0
        first = now + (server.warm if has_read else server.cold) * chance.uniform(0.8, 1.3)
        if server.is_caching and not has_read:
            ready[machine] = min(ready.get(machine, math.inf), first + server.lag)
        put(first, "first", call, has_read)
        put(first + 8 * chance.uniform(0.5, 1.5), "end", call, has_read)

    while events:
        now, _, kind, call, has_read = heapq.heappop(events)
        if kind == "start" and (law is None or law.enter(call, now)):
            send(call, now)
        if law is None:
            continue
        has_written = (server.is_caching and not has_read) if server.reports_writes else None
        if kind == "end" or (kind == "first" and server.early):
            law.report(call, now, has_read=has_read, has_written=has_written)
        elif kind == "first":
            law.begun(call, now)
        if kind in ("end", "fail"):
            law.leave(call)
        if kind == "start":
            put(now, "tick", call)  # calls that start together are counted together
            continue
        while isinstance(found := law.take(now, WAIT), int):
            send(found, now)
        if found < math.inf and found not in ticks:
            ticks.add(found)
            put(found, "tick", call)
    return outcome


def mean(server: Server, calls: int, *, runs: int = 10) -> tuple[float, float]:
    """The cost as a multiple of the least one, and the time at which the last call is sent."""
    least = calls if not server.is_caching else 1.25 * min(server.machines, calls)
    least += 0.1 * max(0, calls - server.machines) if server.is_caching else 0
    done = [run(server, [0.0] * calls, seed, CacheFacts()) for seed in range(runs)]
    return sum(each.cost for each in done) / least / runs, sum(max(each.sent) for each in done) / runs


@pytest.mark.parametrize("early", [True, False], ids=["early", "late"])
@pytest.mark.parametrize("lag", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("calls", "most"), [(3, 1.01), (10, 1.8), (100, 1.15), (1000, 1.15)])
def test_a_fan_out_pays_little_more_than_the_least(calls: int, most: float, lag: float, early: bool) -> None:
    server = Server(lag=lag, early=early)
    cost, last = mean(server, calls, runs=4)
    assert cost <= most
    assert last <= 2 * server.cold + lag + 5 * server.warm


@pytest.mark.parametrize(("calls", "most"), [(300, 2.0), (1000, 2.0)])
def test_four_machines_are_each_written_about_once(calls: int, most: float) -> None:
    server = Server(machines=4, lag=0.5)
    cost, last = mean(server, calls)
    assert cost <= most
    assert last <= 10


@pytest.mark.parametrize("reports_writes", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_a_server_without_a_cache_is_found_out(early: bool, reports_writes: bool) -> None:
    server, facts = Server(is_caching=False, early=early, reports_writes=reports_writes), CacheFacts()
    last = max(run(server, [0.0] * 100, 1, facts).sent)
    assert last <= 2 * server.cold * 1.3
    assert not reports_writes or facts.uncached == 20_000


@pytest.mark.parametrize("machines", [1, 4])
def test_the_next_prefix_is_faster(machines: int) -> None:
    server, facts = Server(lag=0.5, machines=machines), CacheFacts()
    first, second = (run(server, [0.0] * 1000, 1, facts) for _ in range(2))
    assert max(second.sent) <= max(first.sent) + 0.5 * (machines > 1)
    assert second.cost < first.cost


def test_workloads_at_random_are_never_dearer() -> None:
    """Failed and hanging calls delay nobody beyond the most that a call waits, and every call is sent."""
    for seed in range(200):
        chance = random.Random(seed)
        spread = chance.choice([0.0, 0.0, 1.0, 30.0, 600.0])
        early, reports = chance.random() < 0.7, chance.random() < 0.8
        server = Server(  # one machine without early reports of writes: a key leads there, or it is one's own
            machines=chance.choice([1, 1, 2, 4, 4 if spread else 16]) if early and reports else 1,
            lag=chance.choice([0.0, 0.2, 0.5, 1.0, 2.0]),
            cold=chance.uniform(0.5, 8), warm=chance.uniform(0.1, 0.5), is_caching=chance.random() < 0.9,
            reports_writes=reports, early=early,
            fails=chance.choice([0.0, 0.0, 0.1, 0.5]),
        )  # fmt: skip
        starts = sorted(chance.uniform(0, spread) for _ in range(chance.choice([1, 2, 5, 20, 100, 300])))
        without, law = run(server, starts, seed), run(server, starts, seed, CacheFacts())
        assert len(law.sent) == len(starts)
        assert max(law.waited) <= WAIT + 1e-6
        assert law.waited[0] == 0, "the first call waits for nobody"
        if not server.fails:
            # 3 %: without the law, another random order may hit other machines.
            assert law.cost <= without.cost * 1.03 + 1.25 * (server.machines > 1), (seed, server)


def test_another_call_writes_where_the_writer_failed() -> None:
    state = PrefixState[str](CacheFacts(), 20_000, 300)
    assert state.enter("a", 0)
    assert not state.enter("b", 1)
    assert not state.enter("c", 1)
    assert state.take(2, WAIT) == 11
    state.leave("a")
    assert (state.take(2, WAIT), state.writer, state.phase) == ("b", "b", WRITING)
    assert state.take(2, WAIT) == 11
    assert state.enter("urgent", 2, may_wait=False), "it goes, and its answer counts"
    state.report("b", 5, has_read=False, has_written=True)
    assert state.phase is PROVING


def test_a_readable_prefix_is_cold_after_its_lifetime() -> None:
    state = PrefixState[str](CacheFacts(), 20_000, 300)
    assert state.enter("a", 0)
    state.report("a", 3, has_read=True, has_written=False)
    assert state.enter("b", 302)
    state.report("b", 302.9, has_read=True, has_written=False)
    assert state.enter("c", 602)
    assert state.enter("d", 603), "it writes again"
    assert not state.enter("e", 603)


def test_misses_in_a_row_are_proven_again() -> None:
    state = PrefixState[str](CacheFacts(), 20_000, 300)
    state.enter("a", 0)
    state.report("a", 1, has_read=True, has_written=False)
    for number in range(3):
        assert state.enter(f"b{number}", 2)
    for number in range(3):
        state.report(f"b{number}", 3, has_read=False, has_written=True)
    assert not state.enter("c", 4)
