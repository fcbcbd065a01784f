"""The race of stale keep-alive connections, many times.

A server closes its connections at random, by FIN and RST: with the response, just after it, or after it has received
the next request. With retries, the caller must not see an error.
"""

from __future__ import annotations

import time

import pytest
import trio

import manystream as ms
from manystream.engine import EngineLimits
from manystream.transport.pool import PoolLimits
from tests.soak.test_soak import open_world
from tests.support.peers import hello

AT_ONCE = 20
RETRY = ms.Retry(base=0, jitter=0)


async def reuse(times: int) -> tuple[ms.Statistics, list[ms.ProviderError]]:
    """Make calls until connections were reused `times` times. Returns the statistics and the errors of the calls."""
    errors: list[ms.ProviderError] = []
    resent = 0
    finished = trio.Event()
    running = 0
    limits = EngineLimits(pool=PoolLimits(max_per_origin=AT_ONCE))
    async with open_world() as world:
        provider = ms.OpenAIChat(api_key="k", base_url=f"http://127.0.0.1:{world.fickle}/v1")
        async with ms.open_engine([provider], retry=RETRY, limits=limits, proxy="") as engine:

            def start() -> None:
                nonlocal running
                running += 1
                engine.start_request(hello(), on_completion)

            def on_completion(completion: ms.Completion) -> None:
                nonlocal running, resent
                running -= 1
                resent += completion.resent
                assert completion.attempts >= 1 + completion.resent
                if completion.error is not None:
                    errors.append(completion.error)
                if engine.statistics().reused < times:
                    start()
                elif not running:
                    finished.set()

            for _ in range(AT_ONCE + 10):  # more than the pool allows, so that some wait in the queue
                start()
            await finished.wait()
            statistics = engine.statistics()
            assert resent == statistics.resent
            return statistics, errors


async def test_two_thousand_reuses_without_a_failure() -> None:
    statistics, errors = await reuse(2_000)
    assert errors == []
    assert statistics.opened > 100  # the server has closed connections


@pytest.mark.soak
async def test_a_hundred_thousand_reuses_without_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.perf_counter()
    statistics, errors = await reuse(100_000)
    with capsys.disabled():
        print(
            f"\n{statistics.reused} reuses in {time.perf_counter() - started:.0f} s, {statistics.opened} connections"
            f" opened, {statistics.discarded} found dead before use: {len(errors)} failures"
        )
    assert errors == []
