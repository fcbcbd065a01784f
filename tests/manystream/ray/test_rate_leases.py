"""Leases on rates: never more than a limit is granted at a time, whatever happens to messages, engines and keepers."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, field
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.ray.rate_leases import (
    BURST,
    LEASE_SECONDS,
    RENEW_SECONDS,
    EngineRates,
    Lease,
    LeasedBucket,
    LeaseRequest,
    RateKeeper,
)

ALL = math.inf
LIMITS = {
    "*": ms.RateLimit(requests_per_minute=120, tokens_per_minute=6000, concurrent=3),
    "sim": ms.RateLimit(requests_per_second=0.5),
}


def limits_of(rate: float) -> dict[str, ms.RateLimit]:
    return {"*": ms.RateLimit(requests_per_second=rate)}


class Engine:
    """An engine with a part of one limit. wanted: what it could use."""

    def __init__(self, now: float = 0.0, wanted: float = ALL, rate: float = 100) -> None:
        self.rates = EngineRates(limits_of(rate), now)
        self.lease = self.rates.declared["*"].lease
        self.bucket = self.lease.buckets[0].bucket
        assert isinstance(self.bucket, LeasedBucket)
        self.wanted = wanted

    def ask(self, now: float) -> LeaseRequest:
        request = self.rates.ask(now, now)
        return LeaseRequest(request.engine, now, request.held, (self.wanted,))

    def receive(self, lease: Lease, now: float) -> None:
        self.rates.receive(lease, ALL, now, now)

    def rate(self, now: float) -> float:
        """Return the rate that the engine may use."""
        self.bucket.fill(now)
        return self.bucket.rate


def a_keeper(rate: float = 100, now: float = -LEASE_SECONDS) -> RateKeeper:
    """Return a keeper, which grants from the time 0 on."""
    return RateKeeper(limits_of(rate), now)


def renew(keeper: RateKeeper, engine: Engine, now: float) -> float:
    """Renew a lease without any delay, and return the rate that the engine may use."""
    engine.receive(keeper.renew(engine.ask(now), now), now)
    return engine.rate(now)


# --- the keeper ---


def test_the_first_engine_gets_all_and_an_empty_bucket() -> None:
    engine = Engine()
    assert engine.bucket.ready_at(1, 0.0) == math.inf
    assert renew(a_keeper(), engine, 0.0) == 100
    assert engine.bucket.ready_at(1, 0.0) == pytest.approx(0.01)


def test_a_second_engine_gets_its_share_after_the_first() -> None:
    keeper, first, second = a_keeper(), Engine(), Engine()
    renew(keeper, first, 0.0)
    assert renew(keeper, second, 0.5) == 0
    assert renew(keeper, first, 1.0) == 50
    assert renew(keeper, second, 1.5) == 0, "the first has not reported yet that it received the lower rate"
    renew(keeper, first, 2.0)
    assert renew(keeper, second, 2.5) == 50


def test_a_reduction_frees_nothing_before_it_is_confirmed() -> None:
    keeper, first, second = a_keeper(), Engine(), Engine()
    renew(keeper, first, 0.0)
    renew(keeper, second, 0.5)
    keeper.renew(first.ask(1.0), 1.0)  # the reply is lost
    assert renew(keeper, second, LEASE_SECONDS - 0.1) == 0
    assert first.rate(LEASE_SECONDS - 0.1) == 100
    keeper.renew(first.ask(LEASE_SECONDS), LEASE_SECONDS)  # it reports that its lease has ended
    assert first.rate(LEASE_SECONDS) == 0
    assert renew(keeper, second, LEASE_SECONDS) == 50


def test_an_increase_counts_although_its_reply_is_lost() -> None:
    keeper, first, second = a_keeper(), Engine(wanted=10.0), Engine()
    assert renew(keeper, first, 0.0) == 100, "nobody else wants the rest"
    for now in (0.2, 0.4):
        renew(keeper, second, now)
        renew(keeper, first, now)
    assert (first.rate(0.4), second.rate(0.4)) == (pytest.approx(100 * 10 / 110, abs=1e-5), 0)
    first.wanted = ALL
    keeper.renew(first.ask(0.5), 0.5)  # the reply is lost
    assert renew(keeper, second, 0.6) == 50
    assert renew(keeper, first, 0.7) == 50


def test_the_share_of_a_dead_engine_is_free_when_its_lease_ends() -> None:
    keeper, first, second = a_keeper(), Engine(), Engine()
    for step in range(4):
        renew(keeper, first, step)
        renew(keeper, second, step)
    assert second.rate(3.0) == 50
    for step in range(4, 7):
        assert renew(keeper, second, step) == 50
    assert renew(keeper, second, 3.0 + LEASE_SECONDS) == 100


def test_an_engine_counts_from_asking_a_keeper_from_granting() -> None:
    keeper, first, second = a_keeper(), Engine(), Engine()
    lease = keeper.renew(first.ask(0.0), 2.0)  # the request took two seconds
    first.receive(lease, 3.0)
    assert (first.rate(3.9), first.rate(4.0)) == (100, 0)
    assert renew(keeper, second, 5.9) == 0
    assert renew(keeper, second, 6.0) == 100


def test_engines_get_what_they_want_and_equal_parts_of_the_rest() -> None:
    keeper = a_keeper()
    engines = [Engine(wanted=wanted) for wanted in (10.0, 50.0, 0.0)]
    for step in range(8):
        rates = [renew(keeper, engine, step) for engine in engines]
    assert rates == pytest.approx([10 + 40 / 3, 50 + 40 / 3, 40 / 3])


def test_engines_that_want_too_much_divide_the_limit() -> None:
    keeper, first, second = a_keeper(), Engine(wanted=50.0), Engine(wanted=300.0)
    for now in range(4):
        rates = [renew(keeper, first, now), renew(keeper, second, now)]
    assert rates == [33.333333, 66.666666]


def test_a_new_keeper_grants_nothing_new_for_one_lease() -> None:
    first, second = Engine(), Engine()
    before = a_keeper()
    for step in range(4):
        renew(before, first, step)
    after = a_keeper(now=3.5)
    assert renew(after, second, 3.6) == 0
    assert renew(after, first, 4.0) == 100
    assert renew(after, first, 5.0) == 100
    assert renew(after, second, 3.4 + LEASE_SECONDS) == 0
    for step in range(8, 12):
        renew(after, first, step)
        renew(after, second, step)
    assert (first.rate(11), second.rate(11)) == (50, 50)


def test_nothing_is_given_while_others_use_more_than_the_whole() -> None:
    keeper = a_keeper(30, now=0.0)
    for engine in "ab":
        assert keeper.renew(LeaseRequest(engine, 0.5, (40.0,), (ALL,)), 0.5) == Lease(0.5, (40.0,))
    assert keeper.renew(LeaseRequest("c", 0.0, (0.0,), (ALL,)), LEASE_SECONDS) == Lease(0.0, (0.0,))


def test_each_limit_over_time_is_shared_by_itself() -> None:
    keeper = RateKeeper(LIMITS, 10.0)
    request = LeaseRequest("a", 1.0, (0.0,) * 3, (ALL,) * 3)
    assert keeper.renew(request, 13.9) == Lease(1.0, (0.0, 0.0, 0.0))
    assert keeper.renew(request, 14.0) == Lease(1.0, (2.0, 100.0, 0.5))


def lines_of_a_renewal(count: int) -> int:
    """Return how many lines of the keeper run for one renewal among so many engines."""
    keeper, engines = a_keeper(500), [Engine(rate=500) for _ in range(count)]
    for step in range(8):
        for number, engine in enumerate(engines):
            renew(keeper, engine, step + number / count / 2)
    lines = 0

    def count_line(frame: FrameType, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count_line

    request, before = engines[0].ask(8.0), sys.gettrace()
    sys.settrace(count_line)  # type: ignore[arg-type]
    try:
        keeper.renew(request, 8.0)
    finally:
        sys.settrace(before)
    return lines


def test_a_renewal_costs_the_same_for_six_engines_and_for_1600() -> None:
    assert lines_of_a_renewal(1600) <= lines_of_a_renewal(6) + 10


# --- an engine ---


def test_an_engine_asks_for_as_much_as_possible_first() -> None:
    rates = EngineRates(LIMITS, 0.0)
    request = rates.ask(7.0, 0.0)
    assert request == LeaseRequest(request.engine, 7.0, (0.0,) * 3, (ALL,) * 3)
    assert request.engine != EngineRates(LIMITS, 0.0).ask(7.0, 0.0).engine, "each process has a name of its own"
    assert list(rates.declared) == ["*", "sim"]
    whole = rates.declared["*"]
    assert (whole.requests_per_minute, whole.tokens_per_minute, whole.concurrent) == (120, 6000, 3)
    assert [bucket.bucket.ready_at(1, 0.0) for bucket in whole.lease.buckets] == [math.inf, math.inf]


def test_a_lease_is_used_by_the_engine_s_clock() -> None:
    rates = EngineRates(LIMITS, 0.0)
    rates.receive(Lease(100.0, (2.0, 50.0, 0.5)), 103.5, 101.0, 7.0)
    both = [limit.lease for limit in rates.declared.values()]
    assert [each.open_until for each in both] == [9.5, 9.5]
    buckets = [bucket.bucket for each in both for bucket in each.buckets]
    assert [(bucket.rate, bucket.ends_at) for bucket in buckets] == [(2.0, 10.0), (50.0, 10.0), (0.5, 10.0)]  # type: ignore[attr-defined]
    assert rates.ask(101.5, 7.5).held == (2.0, 50.0, 0.5)
    rates.receive(None, 105.0, 102.0, 7.5)
    assert [each.open_until for each in both] == [10.5, 10.5], "without a new lease, it may go on"
    assert rates.ask(104.0, 10.0).held == (0.0, 0.0, 0.0), "the lease has ended"


def test_a_lease_that_comes_too_late_is_ignored() -> None:
    engine = Engine()
    engine.receive(Lease(2.0, (50.0,)), 2.0 + LEASE_SECONDS)
    assert engine.rate(2.0 + LEASE_SECONDS) == 0


def test_an_engine_without_waiting_calls_asks_for_a_quarter_more() -> None:
    engine = Engine()
    engine.receive(Lease(0.0, (100.0,)), 0.0)

    def wanted(now: float) -> float:
        return engine.rates.ask(now, now).wanted[0]

    engine.bucket.take(4, 0.5)
    assert wanted(0.75) == math.inf, "it is measured each second"
    assert wanted(1.0) == pytest.approx(5.0)
    engine.bucket.take(4, 1.5)
    assert wanted(3.0) == pytest.approx(2.5)
    engine.bucket.give_back(3, 3.5)
    assert wanted(4.0) == 0.0
    engine.lease.is_wanted = lambda: True
    assert wanted(4.1) == math.inf
    engine.lease.is_wanted = lambda: False
    assert wanted(5.0) == 0.0


# --- a whole cluster: messages are lost and late, engines die, and keepers are replaced ---

TICK = 0.1


@dataclass(slots=True)
class Asked:
    """A request on its way. reply_at: when its reply arrives; None if it is lost."""

    engine: Engine
    request: LeaseRequest
    arrives_at: float | None
    delay: float | None
    lease: Lease | None = None


@dataclass(slots=True)
class World:
    """A keeper, its engines, and the network between them, in steps of a tenth of a second.

    An engine has one request open at a time. It may give it up, and ask again, before the request arrives: the
    messages of one engine arrive in their order, as those of one caller of an actor do.
    """

    random: random.Random
    limit: float
    engine_count: int
    loss: float
    slowness: float
    deaths: float
    cost: float = 1.0
    now: float = 0.0
    keeper: RateKeeper = field(init=False)
    engines: list[Engine] = field(default_factory=list)
    greedy: bool = False
    asked_at: dict[Engine, float] = field(default_factory=dict)
    on_way: list[Asked] = field(default_factory=list)
    taken: float = 0.0
    excess: float = 0.0
    count: int = 0

    def __post_init__(self) -> None:
        self.keeper = a_keeper(self.limit)
        for _ in range(self.engine_count):
            self.add_engine()

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.use(self.now + TICK)
            self.now += TICK
            self.happen()
            self.deliver()
            self.ask()
            assert sum(engine.rate(self.now) for engine in self.engines) <= self.limit * (1 + 1e-9)

    def add_engine(self) -> None:
        self.count += 1
        wanted = ALL if self.greedy or self.random.random() < 0.7 else self.random.uniform(0, self.limit)
        engine = Engine(self.now, wanted, self.limit)
        self.engines.append(engine)
        self.asked_at[engine] = self.now - self.random.uniform(0, RENEW_SECONDS)

    def happen(self) -> None:
        if self.random.random() < self.deaths and len(self.engines) > 1:
            self.engines.pop(self.random.randrange(len(self.engines)))
        if self.random.random() < self.deaths:
            self.add_engine()
        if self.random.random() < self.deaths / 2:
            self.keeper = a_keeper(self.limit, self.now)

    def delay(self) -> float | None:
        return None if self.random.random() < self.loss else self.random.uniform(0, self.slowness)

    def ask(self) -> None:
        for engine in self.engines:
            if self.now - self.asked_at[engine] < RENEW_SECONDS:
                continue
            waits = [asked for asked in self.on_way if asked.engine is engine and asked.delay is not None]
            if waits and self.random.random() < 0.5:
                continue  # it waits longer for the reply, as a driver does
            for asked in waits:
                asked.delay = None  # it gives the reply up, as an engine does whose keeper is an actor
            self.asked_at[engine] = self.now
            delay, earlier = self.delay(), [each.arrives_at for each in self.on_way if each.engine is engine]
            arrives_at = None if delay is None else max([self.now + delay, *(at for at in earlier if at is not None)])
            self.on_way.append(Asked(engine, engine.ask(self.now), arrives_at, self.delay()))

    def deliver(self) -> None:
        for asked in list(self.on_way):
            if asked.lease is None and asked.arrives_at is not None and asked.arrives_at <= self.now:
                asked.lease = self.keeper.renew(asked.request, self.now)
            if asked.arrives_at is None or (asked.lease is not None and asked.delay is None):
                self.on_way.remove(asked)
            elif asked.lease is not None and asked.delay is not None and asked.arrives_at + asked.delay <= self.now:
                asked.engine.receive(asked.lease, self.now)
                self.on_way.remove(asked)

    def use(self, until: float) -> None:
        """Use all that may be used until then, each unit as soon as it may be."""
        self.excess = max(0.0, self.excess - self.limit * TICK)
        for engine in self.engines:
            at = self.now
            while (at := engine.bucket.ready_at(self.cost, at)) <= until:
                engine.bucket.take(self.cost, at)
                self.taken += self.cost
                self.excess += self.cost
        most = self.limit * BURST + self.count * self.cost + self.limit * TICK
        assert self.excess <= most * (1 + 1e-9), "in some span of time, more than the limit and the saved-up part"


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    limit=st.sampled_from((0.7, 5.0, 100.0)),
    engines=st.integers(1, 8),
    loss=st.sampled_from((0.0, 0.1, 0.5)),
    slowness=st.sampled_from((0.0, 0.5, 3.0, 8.0)),
    deaths=st.sampled_from((0.0, 0.01, 0.05)),
)
def test_the_limit_holds_always(
    seed: int, limit: float, engines: int, loss: float, slowness: float, deaths: float
) -> None:
    World(random.Random(seed), limit, engines, loss, slowness, deaths).run(30)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), engines=st.integers(1, 8), slowness=st.sampled_from((0.0, 0.3)))
def test_without_faults_the_whole_limit_is_used(seed: int, engines: int, slowness: float) -> None:
    world = World(random.Random(seed), 200.0, engines, 0.0, slowness, 0.0, greedy=True)
    world.run(8)
    before = world.taken
    world.run(10)
    assert world.taken - before >= 0.95 * 200 * 10


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_whole_limit_is_used_after_two_deaths(seed: int) -> None:
    world = World(random.Random(seed), 200.0, 4, 0.0, 0.1, 0.0, greedy=True)
    world.run(8)
    world.engines.pop()
    world.keeper = a_keeper(200.0, world.now)
    before = world.taken
    world.run(LEASE_SECONDS)
    assert world.taken - before >= 0.7 * 200 * LEASE_SECONDS, "the other three go on"
    world.run(3 * RENEW_SECONDS)
    before = world.taken
    world.run(10)
    assert world.taken - before >= 0.95 * 200 * 10
