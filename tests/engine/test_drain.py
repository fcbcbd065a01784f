"""`drain` finishes the running calls, then closes: on trio, asyncio and portals."""

import asyncio
import math
import threading

import pytest
import trio
import trio.testing

import manystream as ms
from manystream import aio
from manystream.engine import EngineClosedError, Limits
from manystream.portal import open_portal
from manystream.transport.pool import PoolLimits
from tests.support.peers import STREAM_HEAD, Line, Recorder, chat_stream, chunked, hello, open_peer


async def slow(line: Line) -> None:
    """Respond after ten seconds."""
    while await line.request():
        await trio.sleep(10)
        await line.send(STREAM_HEAD.encode() + chunked(*chat_stream("paid for")))


async def at_once(line: Line) -> None:
    while await line.request():
        await line.send(STREAM_HEAD.encode() + chunked(*chat_stream("paid for")))


async def test_running_and_waiting_calls_end_and_no_new_one_starts(autojump_clock: trio.testing.MockClock) -> None:
    recorders = [Recorder() for _ in range(6)]
    limits = Limits(pool=PoolLimits(max_per_origin=3))
    async with open_peer(slow) as peer, ms.open_engine([peer.chat], limits=limits) as engine:
        for each in recorders:
            engine.start_stream(hello(), each.on_event, each.on_completion)
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            drained: list[bool] = []

            async def drain() -> None:
                drained.append(await engine.drain(60))

            nursery.start_soon(drain)
            await trio.sleep(1)
            with pytest.raises(EngineClosedError, match="drain"):
                engine.start_stream(hello())
            with pytest.raises(EngineClosedError, match="drain"):
                engine.start_request(hello())
    assert drained == [True]
    assert [each.completion.success for each in recorders] == [True] * 6


async def test_a_call_beyond_the_drain_timeout_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    recorder = Recorder()
    async with open_peer(slow) as peer:
        async with ms.open_engine([peer.chat]) as engine:
            engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
            began = trio.current_time()
            assert await engine.drain(3) is False
            assert trio.current_time() - began == pytest.approx(3, abs=0.5)
            assert recorder.completions == []
        assert recorder.completion.error_category is ms.ErrorCategory.CANCELLED


async def test_an_engine_without_calls_is_drained_at_once() -> None:
    async with open_peer(at_once) as peer, ms.open_engine([peer.chat]) as engine:
        assert await engine.drain(0) is True
        assert await engine.drain(math.inf) is True
        assert await engine.drain(10**400) is True


@pytest.mark.parametrize("timeout", [-1, -(10**400), math.nan, None, "5"])
async def test_a_timeout_that_is_not_a_number_is_refused(timeout: float) -> None:
    async with open_peer(at_once) as peer, ms.open_engine([peer.chat]) as engine:
        with pytest.raises(ValueError, match="timeout must be seconds"):
            await engine.drain(timeout)
        assert (await engine.start_stream(hello()).wait()).success, "nothing was drained"


def test_on_asyncio() -> None:
    recorders = [Recorder() for _ in range(6)]

    async def main(url: str) -> bool:
        async with aio.open_engine([ms.OpenAIChat(api_key="k", base_url=url)]) as engine:
            for each in recorders:
                engine.start_stream(hello(), each.on_event, each.on_completion)
            with pytest.raises(ValueError, match="timeout must be seconds"):
                await engine.drain(-1)
            drained = await engine.drain(60)
            with pytest.raises(EngineClosedError, match="drain"):
                engine.start_stream(hello())
            return drained

    async def with_peer() -> bool:
        async with open_peer(at_once) as peer:
            return await trio.to_thread.run_sync(lambda: asyncio.run(main(peer.url)))

    assert trio.run(with_peer) is True
    assert [each.completion.success for each in recorders] == [True] * 6


def test_a_drain_on_asyncio_can_be_cancelled() -> None:
    async def main(url: str) -> None:
        async with aio.open_engine([ms.OpenAIChat(api_key="k", base_url=url)]) as engine:
            call = engine.start_stream(hello())
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(engine.drain(math.inf), 0.05)
            assert call.completion is None
            assert await engine.drain(0) is False

    async def silent(line: Line) -> None:
        await line.request()
        await line.closed_by_peer()

    async def with_peer() -> None:
        async with open_peer(silent) as peer:
            await trio.to_thread.run_sync(lambda: asyncio.run(main(peer.url)))

    trio.run(with_peer)


def test_on_a_portal_and_from_another_thread() -> None:
    recorders = [Recorder() for _ in range(6)]

    def use(url: str) -> None:
        with open_portal([ms.OpenAIChat(api_key="k", base_url=url)]) as portal:
            for each in recorders:
                portal.start_stream(hello(), each.on_event, each.on_completion)
            assert portal.drain(60) is True
            with pytest.raises(EngineClosedError, match="drain"):
                portal.start_stream(hello())
        with pytest.raises(EngineClosedError):
            portal.drain(1)

    async def with_peer() -> None:
        async with open_peer(at_once) as peer:
            await trio.to_thread.run_sync(use, peer.url)
            async with ms.open_engine([peer.chat]) as engine:
                drained = await trio.to_thread.run_sync(engine.from_thread.drain, 60.0)
                assert drained is True

    threads = threading.active_count()
    trio.run(with_peer)
    assert threading.active_count() <= threads + 2  # trio keeps workers for a while
    assert [each.completion.success for each in recorders] == [True] * 6
