"""Limits that several engines share in a file, on a simulated clock, whatever is late, lost or killed.

The processes are in `tests/engine/test_sharing.py`."""

from __future__ import annotations

import random
import resource
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.engine.sharing import SharedFile, SharedFileError
from manystream.engine.traffic.budgets.amounts import Amounts
from manystream.engine.traffic.budgets.budgets import Account, BudgetRefusal, BudgetsState, Claim, Reservation
from manystream.engine.traffic.shared_limits import EngineShare, configuration, difference, name_of
from manystream.engine.traffic.shared_rows import LEASE_SECONDS, Ask, PlacesAsk

TICK = 0.25


def free(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
    return 0.0


def dollars(limit: float) -> ms.Traffic:
    return ms.Traffic(budgets=[ms.Budget(usd=limit)], price=free)


FILES: list[SharedFile] = []
"""What a test has opened, until it ends."""


@pytest.fixture(autouse=True)
def closed_files() -> Iterator[None]:
    yield
    while FILES:
        FILES.pop().close()


def open_file(path: Path, configuration: Mapping[str, str | float], clock: Callable[[], float]) -> SharedFile:
    FILES.append(SharedFile(path, configuration, clock))
    return FILES[-1]


class Member:
    """An engine with its way to the file."""

    def __init__(self, traffic: ms.Traffic, path: Path, clock: Callable[[], float]) -> None:
        self.share = EngineShare(traffic, clock, clock)
        self.file = open_file(path, self.share.configuration, clock)
        found = self.file.join()
        assert isinstance(found, int)
        self.holder = found

    def exchange(self, lost: str = "") -> None:
        """lost: what is lost, the `question` or the `reply`."""
        ask = self.share.ask()
        reply = None if lost == "question" else self.file.exchange(self.holder, ask)
        if lost:
            self.share.ask_again()
        elif reply is not None:
            self.share.receive(reply)
        else:
            found = self.file.join(again=True)
            assert isinstance(found, int)
            self.holder = found
            self.share.lose()


class Spender(Member):
    """An engine whose calls wait for a shared budget, run and end.

    running: what each running call has reserved.
    refused: the number of calls that can never be paid for.
    used: what ended calls have used.
    """

    def __init__(self, traffic: ms.Traffic, path: Path, clock: Callable[[], float]) -> None:
        super().__init__(traffic, path, clock)
        self.running: list[Reservation] = []
        self.claims: list[Claim] = []
        self.refused = 0
        self.used = 0.0
        self._clock = clock
        self._budgets = BudgetsState(tuple(traffic.budgets), self.share.amounts, self._go_on)

    @property
    def reserved(self) -> float:
        return sum(holding.amounts.usd for holding in self.running)

    def call(self, dollars: float, tenant: str | None = None) -> None:
        claim = Claim(Amounts(usd=dollars, calls=1), tenant=tenant)
        found = self._budgets.reserve(tenant, claim.amounts, self._clock())
        if isinstance(found, Account):
            self._budgets.wait(claim, found)
            self.claims.append(claim)
        self._note(found)
        self._go_on()

    def end(self, place: int, part: float) -> None:
        holding = self.running.pop(place)
        dollars = holding.amounts.usd * part
        self.used += dollars
        self._budgets.settle(holding, Amounts(usd=dollars, calls=1), self._clock())
        self._go_on()

    def cancel(self) -> None:
        """Cancel all waiting calls."""
        while self.claims:
            self._budgets.withdraw(self.claims.pop())

    def _go_on(self) -> None:
        while (found := self._budgets.next(self._clock())) is not None:
            self.claims.remove(found[0])
            self._note(found[1])

    def _note(self, found: object) -> None:
        if isinstance(found, Reservation):
            self.running.append(found)
        elif isinstance(found, BudgetRefusal):
            self.refused += 1


class World:
    """Engines and their file, on a simulated clock.

    loss: the part of the exchanges that fail, before or after the file has changed.
    deaths: the part of the ticks in which a process is killed, and in which one is stopped for some time.
    cancels: the part of the ticks in which an engine cancels its waiting calls.
    """

    def __init__(
        self, path: Path, seed: int, traffic: ms.Traffic, count: int, loss: float = 0.0, deaths: float = 0.0
    ) -> None:
        self.random = random.Random(seed)
        self.path, self.traffic, self.loss, self.deaths = path, traffic, loss, deaths
        self.cancels = 0.0
        self.now = 1000.0
        self.gone = 0.0
        self.stopped: dict[Spender, float] = {}
        for old in path.parent.glob(f"{path.name}*"):
            old.unlink()
        self.engines = [self.engine() for _ in range(count)]

    def clock(self) -> float:
        return self.now

    def engine(self) -> Spender:
        return Spender(self.traffic, self.path, self.clock)

    @property
    def taken(self) -> float:
        """What calls have used, or may have used when they were killed, or have reserved."""
        return self.gone + sum(engine.used + engine.reserved for engine in self.engines)

    def exchange(self, engine: Spender) -> None:
        engine.exchange(self.random.choice(("question", "reply")) if self.random.random() < self.loss else "")

    def kill_an_engine(self) -> None:
        engine = self.engines.pop(self.random.randrange(len(self.engines)))
        self.gone += engine.used + engine.reserved
        self.engines.append(self.engine())

    def tick(self, cost: float, part: float) -> None:
        self.now += TICK
        for engine in self.engines:
            if self.stopped.get(engine, 0.0) > self.now:
                continue
            while engine.running and self.random.random() < 0.5:
                engine.end(self.random.randrange(len(engine.running)), part)
            if self.random.random() < self.cancels:
                engine.cancel()
            while len(engine.claims) < 3 and not engine.refused:
                engine.call(cost)
            self.exchange(engine)
        if self.random.random() < self.deaths:
            self.kill_an_engine()
        if self.random.random() < self.deaths:
            self.stopped[self.random.choice(self.engines)] = self.now + self.random.uniform(0, 3 * LEASE_SECONDS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "limits"


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path for the many worlds of one test."""
    return tmp_path_factory.mktemp("worlds") / "limits"


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.sampled_from((1.0, 10.0, 300.0)),
    count=st.integers(1, 6),
    loss=st.sampled_from((0.0, 0.1, 0.5)),
    deaths=st.sampled_from((0.0, 0.02, 0.2)),
    part=st.sampled_from((0.0, 0.3, 1.0)),
)
def test_no_budget_is_overspent(
    common: Path, seed: int, limit: float, count: int, loss: float, deaths: float, part: float
) -> None:
    world = World(common, seed, dollars(limit), count, loss, deaths)
    for _ in range(100):
        world.tick(0.4, part)
        assert world.taken <= limit + 1e-6


@pytest.mark.parametrize("part", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 2, 4, 6])
def test_without_a_fault_the_whole_budget_is_used(path: Path, count: int, part: float) -> None:
    world = World(path, count, dollars(3.0), count)
    for _ in range(1000):
        world.tick(0.1, part)
        world.cancels = 0.1 if world.now < 1060.0 else 0.0
        if all(engine.refused for engine in world.engines):
            break
    assert all(engine.refused for engine in world.engines)
    assert 2.9 < world.taken <= 3.0 + 1e-6


def test_a_call_that_is_cancelled_lets_the_others_go_on(path: Path) -> None:
    world = World(path, 1, dollars(1.0), 3)
    one, two, three = world.engines
    one.call(0.6)
    world.exchange(one)
    for engine in (two, three):
        engine.call(0.8)
        world.exchange(engine)
    one.end(0, 0.0)
    two.cancel()
    for _ in range(4):
        world.now += 1.0
        for engine in world.engines:
            world.exchange(engine)
    assert len(three.running) == 1


def test_a_killed_engine_costs_a_small_part_beside_its_calls(path: Path) -> None:
    world = World(path, 1, dollars(640.0), 4)
    for _ in range(40):
        world.tick(0.4, 1.0)
    world.kill_an_engine()
    world.engines.pop()
    for _ in range(4000):
        world.tick(0.4, 1.0)
        if all(engine.refused for engine in world.engines):
            break
    assert 640.0 * (1 - 2 / 64) <= world.taken <= 640.0 + 1e-6


def test_each_tenant_has_a_budget_and_each_window_begins_anew(path: Path) -> None:
    world = World(path, 1, ms.Traffic(budgets=[ms.Budget(calls=3, per="tenant", every=60.0)]), 2)
    for window in (1, 2, 3):
        for _ in range(4):
            for tenant in ("a", "b"):
                world.engines[0].call(0.0, tenant)
                world.engines[1].call(0.0, tenant)
        for _ in range(20):
            world.now += TICK
            for engine in world.engines:
                while engine.running:
                    engine.end(0, 1.0)
                world.exchange(engine)
        assert sum(engine.refused for engine in world.engines) == window * (16 - 6)
        world.now = 1000.0 + 60.0 * window + 1.0
        for _ in range(4):
            for engine in world.engines:
                world.exchange(engine)


def test_configurations_differ_in_words() -> None:
    here = configuration(ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=5)}, budgets=[ms.Budget(calls=1)]))
    there = configuration(ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=6)}, budgets=[ms.Budget(calls=1)]))
    assert difference(there, here) == "traffic.rates['*'].requests_per_second is 6 there and 5 here"
    assert difference(here, here) == ""
    assert "not given here" in difference(here, configuration(ms.Traffic()))


def test_an_amount_that_is_a_function_cannot_be_shared() -> None:
    with pytest.raises(ms.InvalidRequestError, match="must be a number, not a function"):
        configuration(ms.Traffic(budgets=[ms.Budget(calls=lambda tenant: 1.0)]))


def test_the_name_of_a_key_does_not_have_the_key() -> None:
    account = ("http://one", "sk-secret")
    assert name_of(*account) == name_of("http://one", "sk-secret")
    accounts = ((), account, ("http://one", "sk-other"), ("http://two", "sk-secret"))
    assert len({name_of(*each) for each in accounts}) == 4
    assert b"secret" not in name_of(*account)
    assert name_of("http://one", lambda: "a") == name_of("http://one", lambda: "b")


# --- rates and places ---


class Sender(Member):
    """An engine whose calls always wait for a limit."""

    def __init__(self, traffic: ms.Traffic, path: Path, clock: Callable[[], float]) -> None:
        super().__init__(traffic, path, clock)
        self.lease = self.share.rate("*", "").lease
        self.lease.is_wanted = lambda: True
        self.asks_at = 0.0

    def send(self, now: float) -> int:
        """Return how many calls are sent now."""
        count, bucket = 0, self.lease.buckets[0].bucket
        while now < self.lease.open_until and bucket.ready_at(1.0, now) <= now:
            bucket.take(1.0, now)
            count += 1
        return count


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.sampled_from((1, 4, 40, 200)),
    count=st.integers(1, 5),
    late=st.sampled_from((0.005, 0.05, 1.0)),
    deaths=st.sampled_from((0.0, 0.005)),
)
def test_no_rate_is_exceeded_in_any_window(
    common: Path, seed: int, limit: int, count: int, late: float, deaths: float
) -> None:
    """late: the longest time that an engine does nothing."""
    chance, times, world = random.Random(seed), list[float](), [1000.0]
    for old in common.parent.glob("limits*"):
        old.unlink()
    traffic = ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=limit)})
    engines = [Sender(traffic, common, lambda: world[0]) for _ in range(count)]
    while world[0] < 1008.0:
        world[0] += 0.005
        for engine in engines:
            times += [world[0]] * engine.send(world[0])
            if world[0] >= engine.asks_at:
                engine.exchange("reply" if chance.random() < deaths else "")
                times += [world[0]] * engine.send(world[0])
                engine.asks_at = world[0] + chance.uniform(0.0, late)
        if chance.random() < deaths:
            engines[chance.randrange(count)] = Sender(traffic, common, lambda: world[0])
    assert max(bisect_left(times, at + 1.0 - 1e-6) - place for place, at in enumerate(times)) <= limit
    if late < 0.01 and not deaths:
        assert len(times) >= 0.95 * 8 * limit - 1


def test_places_are_divided_and_those_of_the_dead_are_free(path: Path) -> None:
    now = [1000.0]
    traffic = ms.Traffic(rates={"*": ms.RateLimit(concurrent=6)})
    one, two, three = (Sender(traffic, path, lambda: now[0]) for _ in range(3))

    def rates() -> list[float]:
        found: list[float] = []
        for engine in (one, two, three):
            engine.exchange()
            assert engine.lease.slots is not None
            found.append(engine.lease.slots.rate)
        return found

    assert rates() == [6, 0, 0]
    assert rates() == [2, 0, 0], "what it gives back is free when it has said so"
    assert rates() == [2, 2, 2]
    three.lease.is_wanted = lambda: False
    assert rates() == [2, 2, 2], "for calls that may begin"
    four = Sender(traffic, path, lambda: now[0])
    four.lease.is_wanted = lambda: False
    four.exchange()
    rates()
    four.exchange()
    assert sum(rates()) + (four.lease.slots.rate if four.lease.slots else 0) <= 6
    two.lease.is_wanted = three.lease.is_wanted
    one.lease.is_wanted = lambda: True
    now[0] += LEASE_SECONDS - 0.5
    one.exchange()
    for _ in range(2):  # the first one finds that they have ended
        now[0] += 1.0
        one.exchange()
    assert one.lease.slots is not None
    assert one.lease.slots.rate == 6


def test_holders_take_turns_where_there_are_fewer_places(path: Path) -> None:
    now = [1000.0]
    file = open_file(path, {}, lambda: now[0])
    holders = [file.join() for _ in range(3)]
    assert all(isinstance(holder, int) for holder in holders)
    had = dict.fromkeys(holders, 0)
    allowed = dict.fromkeys(holders, 0)
    for _ in range(120):
        now[0] += 0.1
        for holder in holders:
            assert isinstance(holder, int)
            reply = file.exchange(holder, Ask(places=[PlacesAsk(b"one", 1, allowed[holder], 1)]))
            assert reply is not None
            allowed[holder] = reply.places[0]
            had[holder] += allowed[holder]
        assert sum(allowed.values()) <= 1
    assert min(had.values()) > 20


def test_times_of_before_the_machine_was_started_hold_nothing_back(path: Path) -> None:
    now = [1e6]
    traffic = ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=1)}, budgets=[ms.Budget(calls=2, every=60.0)])
    earlier = Spender(traffic, path, lambda: now[0])
    rate = earlier.share.rate("*", "").lease
    rate.is_wanted = lambda: True
    rate.buckets[0].bucket.ready_at(1.0, now[0])
    earlier.call(0.0)
    earlier.exchange()
    assert len(earlier.running) == 1
    now[0] = 5.0
    later = Sender(traffic, path, lambda: now[0])
    for _ in range(1000):
        now[0] += 0.005
        later.exchange()
        if later.send(now[0]):
            break
    assert now[0] < 5.0 + 3.0
    budget = Spender(traffic, path, lambda: now[0])
    budget.call(0.0)
    budget.call(0.0)
    budget.exchange()
    assert len(budget.running) + len(budget.claims) == 2


def test_a_full_disk_gives_nothing(path: Path) -> None:
    now = [1000.0]
    engine = Spender(dollars(400.0), path, lambda: now[0])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("limits-wal").stat().st_size, limits[1]))
    try:
        for _ in range(600):
            engine.call(1.0)
        with pytest.raises(SharedFileError, match="limits' cannot be used"):
            engine.exchange()
        engine.share.ask_again()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not engine.running
    for _ in range(100):
        now[0] += TICK
        engine.exchange()
    assert (len(engine.running), len(engine.claims)) == (400, 200)


def test_nothing_is_given_while_the_file_is_locked(path: Path) -> None:
    now = [1000.0]
    engine = Spender(dollars(1.0), path, lambda: now[0])
    engine.call(0.1)
    engine.exchange()
    assert len(engine.running) == 1
    with closing(sqlite3.connect(path)) as connection:  # another process that writes and does not end
        connection.execute("BEGIN IMMEDIATE")
        engine.call(0.1)
        with pytest.raises(SharedFileError, match=r"limits.* cannot be used: database is locked"):
            engine.exchange()
        engine.share.ask_again()
    assert len(engine.running) == 1
    engine.exchange()
    assert len(engine.running) == 2
