"""The lifetime of an engine: leaving its block, draining and closing it, threads, forks, and that nothing is leaked."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import threading

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.engine import EngineClosedError, EngineLimits
from manystream.portal import open_portal
from manystream.transport.pool import PoolLimits
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    hang_in_body,
    hello,
    open_descriptors,
    open_peer,
    replies,
    silent,
    stream_of,
)


async def test_leaving_the_block_ends_each_call_once_without_a_leak() -> None:
    recorders = [Recorder() for _ in range(50)]
    async with open_peer(hang_in_body) as peer:
        gc.collect()
        await trio.testing.wait_all_tasks_blocked(0.02)
        before = open_descriptors()
        threads = threading.active_count()
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with ms.open_engine([peer.chat]) as engine:
            for recorder in recorders:
                engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert all(recorder.text == "partial" for recorder in recorders)
        for recorder in recorders:
            assert recorder.completion.error_category is ms.ErrorCategory.CANCELLED
            assert recorder.completion.response.text == "partial"
            assert recorder.types == ["START", "TEXT_DELTA", "ERROR"]
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert open_descriptors() == before
        assert threading.active_count() <= threads  # idle worker threads of earlier tests may end meanwhile
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_leaving_while_connections_are_opened_leaks_nothing() -> None:
    async with open_peer(lambda line: line.closed_by_peer()) as peer:
        before = open_descriptors()
        provider = ms.OpenAIChat(api_key="k", base_url=f"https://127.0.0.1:{peer.port}/v1")
        async with ms.open_engine([provider]) as engine:
            calls = [engine.start_stream(hello()) for _ in range(20)]
        assert all(call.completion is not None for call in calls)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert open_descriptors() == before


async def test_an_exception_in_the_block_is_raised_unchanged() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with ms.open_engine([ms.Gemini(api_key="k")]):
            raise KeyError("mine")


async def test_a_cancelled_block_ends_its_calls(autojump_clock: MockClock) -> None:
    recorder = Recorder()
    async with open_peer(hang_in_body) as peer:
        with trio.move_on_after(1) as scope:
            async with ms.open_engine([peer.chat]) as engine:
                engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
                await trio.sleep_forever()
        assert scope.cancelled_caught
    assert recorder.completion.error_category is ms.ErrorCategory.CANCELLED


@pytest.mark.parametrize("ticks", range(6))
async def test_an_engine_opens_in_a_task_that_is_cancelled(ticks: int) -> None:
    """Whenever the cancellation comes: before the engine opens, or at any step of it."""

    async def cancel(scope: trio.CancelScope) -> None:
        for _ in range(ticks):
            await trio.lowlevel.cancel_shielded_checkpoint()
        scope.cancel()

    with trio.fail_after(60), trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as scope:
                if ticks:
                    nursery.start_soon(cancel, scope)
                else:
                    scope.cancel()
                async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")]):
                    await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_use_after_close_is_a_clear_error() -> None:
    async with ms.open_engine([ms.OpenAIChat(api_key="k")]) as engine:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        engine.start_stream(hello())


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")  # Python 3.12 and newer
async def test_use_after_fork_is_a_clear_error() -> None:
    async with ms.open_engine([ms.OpenAIChat(api_key="k")]) as engine:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                engine.start_stream(hello())
                os.write(write, b"started")
            except RuntimeError as error:
                os.write(write, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert b"another process" in os.read(read, 1000)
        os.close(read)
        os.close(write)


def test_use_in_another_run_is_a_clear_error() -> None:
    engines: list[ms.Engine] = []

    async def first() -> None:
        async with ms.open_engine([ms.OpenAIChat(api_key="k")]) as engine:
            engines.append(engine)
            with pytest.raises(RuntimeError, match="from_thread"):
                await trio.to_thread.run_sync(engine.start_stream, hello())

    trio.run(first)
    with pytest.raises(RuntimeError, match="closed"):
        engines[0].start_stream(hello())


async def test_another_thread_starts_waits_and_cancels() -> None:

    async with open_peer(replies(answer(chat_answer("threaded")))) as peer, ms.open_engine([peer.chat]) as engine:
        threads: list[int] = []

        def work() -> str:
            call = engine.from_thread.start_request(hello(), lambda _: threads.append(threading.get_ident()))
            call.cancel()
            return engine.from_thread.request(hello()).text

        assert await trio.to_thread.run_sync(work) == "threaded"
        assert threads == [threading.get_ident()]


async def test_a_thousand_streams_end_once_with_their_own_content() -> None:
    async def script(line: Line) -> None:
        while request := await line.request():
            name = request.rpartition(b"name-")[2][:4].decode()
            await line.send(STREAM_HEAD)
            for frame in chat_stream(*(f"{name}:{n} " for n in range(5))):
                await line.send(chunked(frame, end=False))
            await line.send("0\r\n\r\n")

    recorders = [Recorder() for _ in range(1000)]
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        for number, recorder in enumerate(recorders):
            request = ms.Request("m", [ms.Message.user(f"name-{number:04}")])
            engine.start_stream(request, recorder.on_event, recorder.on_completion)
        while engine.statistics().completed < 1000:
            await trio.sleep(0.01)
    for number, recorder in enumerate(recorders):
        assert recorder.completion.success, recorder.completion
        assert recorder.text == "".join(f"{number:04}:{n} " for n in range(5))


async def slow(line: Line) -> None:
    """Respond after ten seconds."""
    while await line.request():
        await trio.sleep(10)
        await line.send(stream_of(*chat_stream("paid for")))


at_once = replies(stream_of(*chat_stream("paid for")))


async def test_running_and_waiting_calls_end_and_no_new_one_starts(autojump_clock: MockClock) -> None:
    recorders = [Recorder() for _ in range(6)]
    limits = EngineLimits(pool=PoolLimits(max_per_origin=3))
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


async def test_a_call_beyond_the_drain_timeout_is_cancelled(autojump_clock: MockClock) -> None:
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
        async with ms.open_engine([ms.OpenAIChat(api_key="k", base_url=url)]) as engine:
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
        async with ms.open_engine([ms.OpenAIChat(api_key="k", base_url=url)]) as engine:
            call = engine.start_stream(hello())
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(engine.drain(math.inf), 0.05)
            assert call.completion is None
            assert await engine.drain(0) is False

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
