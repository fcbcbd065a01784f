"""The memory of calls that wait, beside the text of their requests, as counted by tracemalloc."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
import trio
import trio.testing

import manystream as ms

pytestmark = pytest.mark.trio

CALLS = 500
ONE_LIMIT = {"*": ms.RateLimit(requests_per_minute=1)}


async def bytes_of_a_waiting_call(model: str, traffic: ms.Traffic) -> float:
    providers = [ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name=name) for name in ("a", "b", "c")]
    async with ms.open_engine(providers, traffic=traffic) as engine:
        question = ms.Request(model, [ms.Message.user("hello")])
        warm = [engine.start_stream(question) for _ in range(CALLS)]  # fills caches
        for call in warm:
            call.cancel()
        await trio.sleep(1)
        gc.collect()
        tracemalloc.start(1)
        try:
            before = tracemalloc.get_traced_memory()[0]
            calls = [engine.start_stream(question) for _ in range(CALLS)]
            gc.collect()
            used = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        assert sum(call.waiting_for != "" for call in calls) == CALLS - 1
        for call in calls:
            call.cancel()
    return used / CALLS


async def test_a_waiting_call_needs_less_than_two_kib(autojump_clock: trio.testing.MockClock) -> None:
    assert await bytes_of_a_waiting_call("a/m", ms.Traffic(rates=ONE_LIMIT)) < 2_048


async def test_a_call_that_waits_on_a_route_needs_less_than_two_kib(autojump_clock: trio.testing.MockClock) -> None:
    traffic = ms.Traffic(rates=ONE_LIMIT, routes=[ms.Route("fast", ["a/m", "b/m", "c/m"])])
    assert await bytes_of_a_waiting_call("fast", traffic) < 2_048


async def test_each_further_queue_needs_less_than_600_bytes(autojump_clock: trio.testing.MockClock) -> None:
    traffic = ms.Traffic(rates=ONE_LIMIT, routes=[ms.Route("fast", ["a/m", "b/m", "c/m"], balance="weighted")])
    assert await bytes_of_a_waiting_call("fast", traffic) < 2_048 + 2 * 576
