"""The rate limits of one engine that shares them: which leases it asks for, and what it does with those it gets."""

from __future__ import annotations

import math

import pytest

import manystream as ms
from manystream.ray.rate_leases import Lease, LeaseNumber, LeaseRequest
from manystream.ray.shared_rates import EngineRates, RateKeeper

LIMITS = {
    "*": ms.RateLimit(requests_per_minute=120, tokens_per_minute=6000, concurrent=3),
    "sim": ms.RateLimit(requests_per_second=0.5),
}


def test_a_keeper_of_each_limit_waits_for_one_lease() -> None:
    keeper = RateKeeper(LIMITS, 10.0)
    for now, rates in ((13.9, [0.0, 0.0, 0.0]), (14.0, [2.0, 100.0, 0.5])):
        request = LeaseRequest("a", 1.0, LeaseNumber(), 0.0, math.inf)
        found = keeper.renew([request] * 3, now)
        assert [lease.rate for lease in found] == rates
    assert found[0].number == LeaseNumber(1, 2)
    keeper = RateKeeper({"*": LIMITS["sim"]}, 0.0, 9)
    assert keeper.renew([request], 4.0) == (Lease(LeaseNumber(9, 1), 1.0, 0.5),)


def test_an_engine_asks_for_as_much_as_possible_first() -> None:
    rates = EngineRates(LIMITS, 0.0)
    requests = rates.ask(7.0)
    name = requests[0].holder
    assert requests == (LeaseRequest(name, 7.0, LeaseNumber(), 0.0, math.inf),) * 3
    assert name != EngineRates(LIMITS, 0.0).ask(7.0)[0].holder, "each process has a name of its own"
    declared = rates.declared
    assert list(declared) == ["*", "sim"]
    whole = declared["*"]
    assert (whole.requests_per_minute, whole.tokens_per_minute, whole.concurrent) == (120, 6000, 3)
    assert [bucket.bucket.ready_at(1, 0.0) for bucket in whole.lease.buckets] == [math.inf, math.inf]


def lease(count: int, asked_at: float, rate: float) -> Lease:
    return Lease(LeaseNumber(1, count), asked_at, rate)


def test_leases_are_used_by_the_engine_s_clock() -> None:
    rates = EngineRates(LIMITS, 0.0)
    rates.receive((lease(1, 100.0, 2.0), lease(1, 100.0, 50.0), lease(1, 100.0, 0.5)), 103.5, 101.0, 7.0)
    both = [entry.lease for entry in rates.declared.values()]
    assert [each.open_until for each in both] == [9.5, 9.5]
    buckets = [bucket.bucket for each in both for bucket in each.buckets]
    assert [(bucket.rate, bucket.ends_at) for bucket in buckets] == [(2.0, 10.0), (50.0, 10.0), (0.5, 10.0)]  # type: ignore[attr-defined]
    assert rates.ask(101.5)[2] == LeaseRequest(rates.ask(0.0)[0].holder, 101.5, LeaseNumber(1, 1), 0.5, 0.0)
    rates.receive((), 105.0, 102.0, 7.5)
    assert [each.open_until for each in both] == [10.5, 10.5], "without new leases, it may go on"


def test_an_engine_without_waiting_calls_asks_for_a_quarter_more() -> None:
    rates = EngineRates({"*": ms.RateLimit(requests_per_second=100)}, 0.0)
    taken = rates.declared["*"].lease
    bucket = taken.buckets[0].bucket

    def wanted(now: float) -> float:
        rates.receive((), 0.0, now, now)
        return rates.ask(now)[0].wanted

    rates.receive((lease(1, 0.0, 100.0),), 0.0, 0.0, 0.0)
    bucket.take(4, 0.5)
    assert wanted(0.75) == math.inf, "it is measured each second"
    assert wanted(1.0) == pytest.approx(5.0)
    bucket.take(4, 1.5)
    assert wanted(3.0) == pytest.approx(2.5)
    bucket.give_back(3, 3.5)
    assert wanted(4.0) == 0.0
    taken.is_wanted = lambda: True
    assert wanted(4.1) == math.inf
    taken.is_wanted = lambda: False
    assert wanted(5.0) == 0.0
