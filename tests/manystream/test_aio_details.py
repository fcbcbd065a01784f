"""The asyncio engine's own words and small duties: figures, sessions, drains, recordings, pauses and refusals."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import manystream as ms
from manystream import aio
from manystream.portal import open_portal

HELLO = [ms.Message.user("hello")]


def ask(knobs: str = "") -> ms.Request:
    return ms.Request("sim/m", HELLO, extra_headers={"x-simulate": knobs})


def test_a_call_shows_what_the_native_call_does(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            assert repr(engine).startswith("<asyncio <Engine")
            call = engine.start_stream(ask("stall=1"))
            assert repr(call) == repr(call._native)
            assert (call.target, call.completion) == (call._native.target, None)
            assert call.target == "sim/m"
            assert call.waiting_for == call._native.waiting_for
            assert engine.statistics().calls
            assert call.state is call._native.state
            call.pause()
            call.resume()
            async with call:
                pass
            completion = await call.wait()
            assert completion.error_category is ms.ErrorCategory.CANCELLED
            assert call.completion is completion
            assert await call.wait() is completion
            assert call._waiters == []

    asyncio.run(main())


def test_a_map_of_what_cannot_be_iterated_is_refused_at_once(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(ms.InvalidRequestError) as caught:
                engine.map(3)  # type: ignore[call-overload]
            assert str(caught.value) == "requests: must be an iterable of Request, not int"

    asyncio.run(main())


async def turns(count: int = 20) -> None:
    """Let the event loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_cancelled_wait_is_forgotten(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            call = engine.start_request(ask("delay=30"))
            waits = [asyncio.create_task(call.wait()) for _ in range(2)]
            await turns()
            waits[0].cancel()
            await asyncio.wait(waits[:1])
            assert len(call._waiters) == 1
            call.cancel()
            assert (await waits[1]).error_category is ms.ErrorCategory.CANCELLED

    asyncio.run(main())


def test_a_drain_refuses_calls_and_says_whether_all_have_ended(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(ValueError, match="timeout"):
                await engine.drain(-1)
            slow = engine.start_request(ask("delay=30"))
            assert await engine.drain(0.01) is False
            with pytest.raises(ms.EngineClosedError):
                engine.start_request(ask())
            slow.cancel()
            assert await engine.drain(30) is True

    asyncio.run(main())


def test_a_cancelled_drain_leaves_no_task(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            call = engine.start_request(ask("delay=30"))
            drain = asyncio.create_task(engine.drain(60))
            await turns()
            drain.cancel()
            await asyncio.wait([drain])
            assert drain.cancelled()
            call.cancel()
            await call.wait()

    asyncio.run(main())


def test_every_method_belongs_to_the_loops_thread(provider: ms.Provider, tmp_path: Path) -> None:
    words = (
        r"this engine belongs to asyncio loop \w+ of thread 'MainThread', and was used in thread '\w+' without an event"
    )
    words += r" loop: open an engine there, or use loop.call_soon_threadsafe\(…\)"

    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            uses = (
                lambda: engine.start_stream(ask()),
                lambda: engine.start_request(ask()),
                lambda: engine.end_session("s"),
                lambda: engine.record(tmp_path / "r.jsonl"),
            )
            for use in uses:
                with pytest.raises(ms.EngineClosedError) as caught:
                    await asyncio.to_thread(use)
                assert re.fullmatch(words, str(caught.value))
            engine.end_session("s")

    asyncio.run(main())


def test_a_recording_holds_the_calls_of_its_block(provider: ms.Provider, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"

    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            with engine.record(path):
                await engine.request(ask())
            size = path.stat().st_size
            assert size > 0
            with pytest.raises(FileExistsError), engine.record(path):
                pass
            with engine.record(path, replace=True):
                pass
            assert path.stat().st_size < size

    asyncio.run(main())


def test_the_end_of_a_wait_for_an_event_is_noted(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine, engine.stream(ask("delay=30")) as events:
            first = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError) as caught:
                await anext(events)
            assert str(caught.value) == "another task is already waiting for this stream's next event"
            first.cancel()
            await asyncio.wait([first])
            assert events._arrived is None

    asyncio.run(main())


def test_the_words_without_an_event_loop(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]):
            pass

    with pytest.raises(aio.EventLoopError) as caught:
        trio.run(main)
    assert str(caught.value) == (
        "manystream.aio needs a running asyncio loop, and this thread has none: use manystream.open_engine in a trio"
        " program, and manystream.portal without an event loop"
    )
    assert issubclass(aio.EventLoopError, ms.ManystreamError | RuntimeError)


def test_the_task_of_a_map_and_the_thread_of_a_portal_have_names(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine, engine.map([ask()], concurrency=1) as results:
            assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("many")] == [
                "manystream map"
            ]
            assert [completion.success async for _, completion in results] == [True]

    asyncio.run(main())
    with open_portal([provider]):
        (thread,) = [each for each in threading.enumerate() if each.name == "manystream portal"]
        assert thread.daemon
    assert not thread.is_alive()


def end_the_program(_: object) -> None:
    raise SystemExit(7)


async def wait_for_a_call(engine: aio.Engine) -> None:
    await engine.request(ask())  # raises the error of a cancelled call


async def go_on_after_each_error(engine: aio.Engine) -> None:
    for _ in range(3):
        with contextlib.suppress(ms.ManystreamError, asyncio.CancelledError):
            await engine.request(ask())


async def raise_an_own_error(engine: aio.Engine) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    raise LookupError


@pytest.mark.parametrize("body", [wait_for_a_call, go_on_after_each_error, raise_an_own_error, asyncio.sleep])
@pytest.mark.parametrize("name", ["on_event", "on_completion"])
def test_an_exception_that_ends_an_engine_leaves_its_block(
    provider: ms.Provider, name: str, body: Callable[[Any], Awaitable[None]]
) -> None:
    async def leave() -> None:
        async with aio.open_engine([provider]) as engine:
            engine.start_stream(ask(), **{name: end_the_program})
            await body(30 if body is asyncio.sleep else engine)

    async def main() -> None:
        with pytest.raises(SystemExit) as caught:
            await leave()
        assert caught.value.code == 7
        async with aio.open_engine([provider]) as engine:
            assert (await engine.request(ask())).text

    asyncio.run(main())


def leave_with_a_status(provider: ms.Provider) -> None:
    def leave(completion: ms.Completion) -> None:
        raise SystemExit(7)

    with open_portal([provider]) as portal:
        thread = next(each for each in threading.enumerate() if each.name == "manystream portal")
        portal.start_request(ask(), leave)
        thread.join(30)


def test_an_exception_that_ends_a_portals_engine_is_raised(provider: ms.Provider) -> None:
    with pytest.raises(SystemExit) as caught:
        leave_with_a_status(provider)
    assert caught.value.code == 7
