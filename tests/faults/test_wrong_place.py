"""Use of an engine where it cannot work: in a forked process, in another trio run, after its end, on another thread.

Each entry point raises an error at once instead of waiting forever, and other calls are not affected.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import traceback
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream import aio
from manystream.engine import EngineClosedError
from manystream.portal import Portal, open_portal
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.peers import STREAM_HEAD, Line, chat_chunk, chat_stream, chunked, hello, open_peer

PROVIDER = ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:9/v1")


async def enter(engine: ms.Engine | aio.Engine) -> None:
    async with engine.stream(hello()):
        raise AssertionError("a stream was entered")


WAYS: dict[str, Callable[[ms.Engine], object]] = {
    "start_stream": lambda engine: engine.start_stream(hello()),
    "start_request": lambda engine: engine.start_request(hello()),
    "request": lambda engine: engine.request(hello()),
    "stream": enter,
    "record": lambda engine: engine.record("recording.jsonl"),
}
THREAD_WAYS: dict[str, Callable[[ms.Engine], object]] = {
    "start_stream": lambda engine: engine.from_thread.start_stream(hello()),
    "start_request": lambda engine: engine.from_thread.start_request(hello()),
    "request": lambda engine: engine.from_thread.request(hello()),
}


async def error_of(way: Callable[[ms.Engine], object], engine: ms.Engine) -> str:
    """Return the error of an entry point, which must be raised at once."""
    try:
        with trio.fail_after(1):
            result = way(engine)
            if isinstance(result, Coroutine):
                await result
    except EngineClosedError as error:
        return str(error)
    raise AssertionError(f"it gave {result!r}")


def in_a_child(program: Callable[[], object]) -> str:
    """Return what the program returns or raises in a forked process. It must end within five seconds."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # some versions of Python warn of a fork in a process with threads, which this test needs
        child = os.fork()
    if not child:
        said = "it went on as if nothing had happened"
        try:
            threading.Timer(5, os._exit, [1]).start()
            said = repr(program())
        except BaseException:
            said = traceback.format_exc()
        finally:
            os.write(write, said.encode()[-60_000:])
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


@pytest.mark.trio
@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_engine_is_an_error(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with ms.open_engine([PROVIDER]) as engine:
        pass
    assert "its open_engine block was left" in await error_of(WAYS[way], engine)
    assert list(tmp_path.iterdir()) == []  # not even an empty recording


@pytest.mark.trio
async def test_an_engine_that_the_program_closed_is_an_error() -> None:
    async with ms.open_engine([PROVIDER]) as engine:
        engine.close()
        with pytest.raises(EngineClosedError) as raised:
            engine.start_request(ms.Request("m", "hello"))
    assert str(raised.value) == "this engine is closed: engine.close() was called. Open another engine"


@pytest.mark.trio
@pytest.mark.parametrize("way", THREAD_WAYS)
async def test_a_closed_engine_is_an_error_on_other_threads(way: str) -> None:
    async with ms.open_engine([PROVIDER]) as engine:
        pass
    with pytest.raises(EngineClosedError, match="its open_engine block was left"):
        await trio.to_thread.run_sync(THREAD_WAYS[way], engine)


@pytest.mark.parametrize("way", WAYS)
def test_an_engine_of_another_run_is_an_error(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own run continues meanwhile on another thread."""
    monkeypatch.chdir(tmp_path)
    engines: list[ms.Engine] = []
    opened, leave = threading.Event(), threading.Event()

    async def first() -> None:
        async with ms.open_engine([PROVIDER]) as engine:
            engines.append(engine)
            opened.set()
            await trio.to_thread.run_sync(leave.wait)

    thread = threading.Thread(target=trio.run, args=(first,))
    thread.start()
    try:
        assert opened.wait(5)
        assert "another trio.run or thread" in trio.run(error_of, WAYS[way], engines[0])
    finally:
        leave.set()
        thread.join()
    assert "block was left" in trio.run(error_of, WAYS[way], engines[0])


@pytest.mark.trio
async def test_use_in_a_fork_is_an_error_and_harms_no_stream() -> None:
    release = trio.Event()

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(STREAM_HEAD.encode() + chunked(chat_chunk("before, "), end=False))
            await release.wait()
            await line.send(chunked(*chat_stream("after")))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        texts: list[str] = []
        begun = trio.Event()

        def on_event(event: ms.Event) -> None:
            if isinstance(event, ms.TextDelta):
                texts.append(event.text)
                begun.set()

        call = engine.start_stream(hello(), on_event)
        await begun.wait()
        for way in (*WAYS.values(), *THREAD_WAYS.values()):

            def program(way: Callable[[ms.Engine], object] = way) -> object:
                result = way(engine)
                if isinstance(result, Coroutine):
                    result.send(None)
                return result

            said = in_a_child(program)
            assert re.search("EngineClosedError: this (engine|portal) was opened in another process", said), said
        assert in_a_child(engine.close) == "None"  # it does not close what it shares with the parent
        assert "another process" in in_a_child(engine.from_thread.statistics)
        release.set()
        assert (await call.wait()).success
        assert "".join(texts) == "before, after"
        assert (await engine.start_stream(hello()).wait()).success


@pytest.fixture(scope="module")
def simulator() -> object:
    with open_simulator_thread("events=4") as simulator:
        yield simulator


PORTAL_WAYS: dict[str, Callable[[Portal], object]] = {
    "start_stream": lambda portal: portal.start_stream(hello()),
    "start_request": lambda portal: portal.start_request(hello()),
    "request": lambda portal: portal.request(hello()),
    "stream": lambda portal: portal.stream(hello()).__enter__(),
    "record": lambda portal: portal.record("recording.jsonl"),
    "statistics": lambda portal: portal.statistics(),
}


def test_a_portal_in_a_fork_or_after_its_block_is_an_error(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    provider = ms.OpenAIChat("k", simulator.base_urls["openai-chat"])
    with open_portal([provider]) as portal:
        running = portal.start_stream(hello(extra_headers={"x-simulate": "stall=1"}))
        for way in PORTAL_WAYS.values():
            said = in_a_child(lambda way=way: way(portal))  # type: ignore[misc]
            assert "EngineClosedError: this portal was opened in another process" in said, said
        for wait in (running.wait, running.cancel):
            assert "another process" in in_a_child(wait)
        assert portal.request(hello()).text
    for way in PORTAL_WAYS.values():
        with pytest.raises(EngineClosedError, match="the block of its engine was left"):
            way(portal)
    assert running.wait().error_category is ms.ErrorCategory.CANCELLED
    assert list(tmp_path.iterdir()) == []


def test_in_asyncio_a_closed_engine_is_an_error() -> None:
    async def leave() -> aio.Engine:
        async with aio.open_engine([PROVIDER]) as engine:
            said = in_a_child(lambda: engine.start_stream(hello()))
            assert "EngineClosedError: this engine was opened in another process" in said
        return engine

    async def use(engine: aio.Engine) -> None:
        with pytest.raises(EngineClosedError, match="block was left"):
            engine.start_stream(hello())
        with pytest.raises(EngineClosedError, match="block was left"):
            await engine.request(hello())
        with pytest.raises(EngineClosedError, match="block was left"):
            await enter(engine)

    engine = asyncio.run(leave())
    asyncio.run(use(engine))


@pytest.mark.trio
async def test_a_completed_call_accepts_every_method() -> None:
    async with ms.open_engine([PROVIDER]) as engine:
        call = engine.start_stream(hello(retry=ms.Retry(max_attempts=1)))
        await call.wait()
    for _ in range(2):
        call.cancel()
        call.pause()
        call.resume()
    assert (await call.wait()) is call.completion
    engine.close()
    assert engine.statistics().completed == 1
