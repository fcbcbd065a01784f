"""Limits that engines in several processes share. They hold while keepers and engines die, and messages are lost."""

from __future__ import annotations

import random
import time
from bisect import bisect_left
from collections.abc import Callable
from typing import TypeVar

import pytest

import manystream as ms
from manystream.ray import EngineActor, SharedRates
from manystream.ray.rate_leases import LEASE_SECONDS, RENEW_SECONDS, EngineRates, Lease, LeaseRequest, RateKeeper
from manystream.ray.shared_rates import Renewal

Result = TypeVar("Result")
LIMIT = 500
LIMITS = {"*": ms.RateLimit(requests_per_second=LIMIT)}
STEP = 0.01


class World:
    """Virtual time, and a keeper that may be gone."""

    def __init__(self) -> None:
        self.now = 100.0
        self.keeper: RateKeeper | None = None
        self.lost = 0.0
        self.random = random.Random(1)

    def start_keeper(self) -> None:
        self.keeper = RateKeeper(LIMITS, self.now)

    def renew(self, request: LeaseRequest) -> Lease | None:
        if self.keeper is None or self.random.random() < self.lost:
            return None
        lease = self.keeper.renew(request, self.now)
        return None if self.random.random() < self.lost else lease


class FakeEngine:
    """An engine that sends as fast as it may, from a clock of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.offset = world.random.uniform(0, 1e5)
        self.rates = EngineRates(LIMITS, 0.0)
        self.lease = self.rates.declared["*"].lease
        self.lease.is_wanted = lambda: True
        self.renewal = Renewal(self.rates, world, self, lambda: world.now, self.clock)  # type: ignore[arg-type]
        self.renew_at = world.now + world.random.random()

    def clock(self) -> float:
        return self.world.now + self.offset

    def run(self, function: Callable[[], Result]) -> Result:
        return function()

    def work(self) -> int:
        """Renew the lease if it is time, and return the number of requests that are sent."""
        if self.world.now >= self.renew_at:
            self.renewal.renew()
            self.renew_at += RENEW_SECONDS
        bucket, sent = self.lease.buckets[0].bucket, 0
        while self.clock() < self.lease.open_until and bucket.ready_at(1, self.clock()) <= self.clock():
            bucket.take(1, self.clock())
            sent += 1
        return sent


def run(world: World, engines: list[FakeEngine], seconds: float, sent: list[float]) -> None:
    for _ in range(round(seconds / STEP)):
        world.now += STEP
        for engine in engines:
            sent += [world.now] * engine.work()


def most(sent: list[float], seconds: float) -> int:
    """Return the most requests in any span of so many seconds."""
    return max(bisect_left(sent, at + seconds - STEP / 2) - number for number, at in enumerate(sent))


@pytest.mark.parametrize("lost", [0.0, 0.3])
def test_the_limit_holds_while_a_keeper_and_an_engine_are_killed(lost: float) -> None:
    world, sent = World(), list[float]()
    world.lost = lost
    world.start_keeper()
    engines = [FakeEngine(world) for _ in range(3)]
    run(world, engines, 15, sent)
    quiet = len(sent) - bisect_left(sent, world.now - 5)
    world.keeper = None
    engines.pop()
    run(world, engines, 2.5, sent)
    world.start_keeper()
    run(world, engines, 3, sent)
    engines.append(FakeEngine(world))  # in place of the one that was killed
    run(world, engines, 15, sent)
    after = len(sent) - bisect_left(sent, world.now - 5)
    assert most(sent, 1) <= 1.05 * LIMIT
    assert most(sent, 10) <= 1.01 * 10 * LIMIT
    if not lost:
        assert quiet >= 0.95 * 5 * LIMIT
        assert after >= 0.95 * 5 * LIMIT


def test_an_engine_without_a_keeper_stops_with_its_lease() -> None:
    world, sent = World(), list[float]()
    world.start_keeper()
    engines = [FakeEngine(world)]
    run(world, engines, 10, sent)
    world.keeper = None
    gone = world.now
    run(world, engines, 20, sent)
    assert gone + LEASE_SECONDS - RENEW_SECONDS - STEP <= sent[-1] <= gone + LEASE_SECONDS


def test_a_defect_in_a_renewal_does_not_end_the_renewals(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    class Link:
        def renew(self, request: LeaseRequest) -> Lease | None:
            calls.append(len(request.wanted))
            if len(calls) == 3:
                renewal.end()
                return None
            raise ValueError("broken")

    class Thread:
        def run(self, function: Callable[[], Result]) -> Result:
            return function()

    now = iter(range(100))
    renewal = Renewal(EngineRates(LIMITS, 0.0), Link(), Thread(), lambda: float(next(now)), lambda: 0.0)  # type: ignore[arg-type]
    renewal.run()
    assert calls == [1, 1, 1]
    assert "the leases on rate limits could not be renewed" in caplog.text


class HereLink:
    """A keeper in this process. It grants at once."""

    def __init__(self) -> None:
        self.keeper = RateKeeper(LIMITS, time.monotonic() - LEASE_SECONDS)

    def renew(self, request: LeaseRequest) -> Lease | None:
        return self.keeper.renew(request, time.monotonic())


def test_an_engine_actor_sends_within_shared_limits(provider: ms.Provider) -> None:
    actor = EngineActor([provider], shared=SharedRates(LIMITS, HereLink()))
    requests = [ms.Request("sim/sim-text", "hi")] * 10
    results = [completion.success for _, completion in actor.map(requests)]
    actor.close()
    assert results == [True] * 10


def test_a_limit_is_shared_or_the_engine_s_own(provider: ms.Provider) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"traffic.rates\['\*'\]: is also a shared limit"):
        EngineActor([provider], shared=SharedRates(LIMITS, HereLink()), traffic=ms.Traffic(rates=LIMITS))
