"""Leased limits: an engine sends within its part of a limit, and nothing when the lease has ended."""

from __future__ import annotations

import dataclasses
import math

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.ray.rate_leases import BURST, EngineRates, LeasedBucket
from tests.support.limited import Limited, open_limited, provider

REQUEST = ms.Request("openai/gpt-5", [ms.Message.user("hello")])


class Leased:
    """A limit with the buckets of its lease. The traffic control of an engine holds it."""

    def __init__(self, *, adaptive: bool = True, of: str = "*", **limits: float) -> None:
        whole = ms.RateLimit(**limits)  # type: ignore[arg-type]
        self.rates = EngineRates({of: whole}, trio.current_time())
        self.lease = self.rates.declared[of].lease
        self.traffic = ms.Traffic(rates={of: self.lease.limit}, adaptive=adaptive)

    def extend(self, seconds: float, *rates: float) -> None:
        """Use these rates for so many seconds."""
        now = trio.current_time()
        for leased, rate in zip(self.lease.buckets, rates, strict=True):
            assert isinstance(leased.bucket, LeasedBucket)
            leased.bucket.lease(rate, now + seconds, now)
        self.rates.receive(None, now + seconds, now, now)


def test_a_bucket_fills_until_its_lease_ends() -> None:
    bucket = LeasedBucket(1.0, 0.0)
    assert bucket.ready_at(1, 0.0) == math.inf
    bucket.lease(100, 4.0, 0.0)
    assert bucket.level == 0
    assert bucket.ready_at(1, 0.0) == pytest.approx(0.01)
    assert bucket.fill(3.0) == pytest.approx(100 * BURST)
    bucket.take(5, 3.0)
    assert bucket.fill(3.02) == pytest.approx(2)
    assert bucket.fill(5.0) == 0, "what was saved up is lost with the lease"
    assert (bucket.ready_at(1, 5.0), bucket.rate, bucket.taken) == (math.inf, 0, 5)


def test_a_bucket_saves_up_for_a_large_cost_and_gives_no_credit() -> None:
    bucket = LeasedBucket(60.0, 0.0)
    bucket.lease(10, 100.0, 0.0)
    assert bucket.ready_at(500, 0.0) == pytest.approx(50.0)
    assert bucket.ready_at(2000, 50.0) == math.inf, "the lease ends before"
    bucket.take(500, 50.0)
    bucket.give_back(480, 50.0)
    assert (bucket.level, bucket.taken) == (pytest.approx(10 * 60 * BURST), 20)


async def test_an_engine_sends_at_the_rate_of_its_lease_alone(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=1e6, seconds=0)
    leased = Leased(requests_per_second=100)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=leased.traffic) as engine:
        calls = [engine.start_stream(REQUEST) for _ in range(60)]
        await trio.sleep(1)
        assert server.sent == 0
        leased.extend(4, 10)
        await trio.sleep(3.95)
        assert 38 <= server.sent <= 40
        assert leased.lease.is_wanted()
        await trio.sleep(10)
        assert server.sent <= 40
        assert "declared requests_per_second of *" in calls[-1].waiting_for
        leased.extend(4, 100)
        for call in calls:
            assert (await call.wait()).success
        assert not leased.lease.is_wanted()


async def test_a_higher_rate_is_used_at_once(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=1e6, seconds=0)
    leased = Leased(requests_per_second=100)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=leased.traffic) as engine:
        leased.extend(100, 0.1)
        calls = [engine.start_stream(REQUEST) for _ in range(10)]
        await trio.sleep(1)
        leased.extend(100, 100)
        started = trio.current_time()
        for call in calls:
            assert (await call.wait()).success
        assert trio.current_time() - started < 1


async def test_a_request_above_the_part_of_a_limit_waits(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=1e6, seconds=0)
    leased = Leased(tokens_per_minute=60_000)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=leased.traffic) as engine:
        leased.extend(1000, 100)  # a tenth of the limit
        large = dataclasses.replace(REQUEST, max_output_tokens=30_000)
        assert (await engine.start_stream(large).wait()).success
        assert trio.current_time() > 200
        too_large = dataclasses.replace(REQUEST, max_output_tokens=90_000)
        error = (await engine.start_stream(too_large).wait()).error
    assert "the request is larger than the whole limit: declared tokens_per_minute of * (60000)" in error.message


@pytest.mark.parametrize("adaptive", [True, False])
async def test_a_call_that_failed_is_not_sent_again_after_the_lease(adaptive: bool, autojump_clock: MockClock) -> None:
    server = Limited(per_minute=1e-6, capacity=0.5, refusal="503 Service Unavailable", refusal_body="{}")
    leased = Leased(adaptive=adaptive, concurrent=10)
    retry = ms.Retry(max_attempts=10)
    async with (
        open_limited(server) as peer,
        ms.open_engine([provider(peer)], traffic=leased.traffic, retry=retry) as engine,
    ):
        leased.extend(2.5)
        call = engine.start_stream(REQUEST)
        await trio.sleep(2.5)
        sent = server.sent
        assert sent >= 1
        await trio.sleep(200)
        assert server.sent == sent
        call.cancel()


async def test_a_scope_that_the_server_holds_back_is_not_forgotten(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=60, capacity=1, seconds=0, refusal_headers="retry-after: 3\r\n")
    leased = Leased(adaptive=False, requests_per_second=100)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=leased.traffic) as engine:
        leased.extend(1, 100)
        calls = [engine.start_stream(REQUEST) for _ in range(3)]
        await trio.sleep(60)  # the lease ends during the pause that the server asks for
        assert any(call.waiting_for for call in calls)
        leased.extend(1000, 100)
        for call in calls:
            assert (await call.wait()).success


async def test_a_leased_limit_is_one_for_all_keys_of_its_entry(autojump_clock: MockClock) -> None:
    server = Limited(per_minute=1e6, seconds=0)
    leased = Leased(of="openai", requests_per_second=100)
    async with open_limited(server) as peer:
        two = ms.OpenAIChat(["first-secret", "second-secret"], peer.url, name="openai")
        async with ms.open_engine([two], traffic=leased.traffic) as engine:
            calls = [engine.start_stream(REQUEST) for _ in range(60)]
            leased.extend(4, 10)
            await trio.sleep(20)
            assert 38 <= server.sent <= 40
            leased.extend(4, 100)
            for call in calls:
                assert (await call.wait()).success
