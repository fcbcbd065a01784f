"""Use of an engine where it cannot work: in a forked process, in another trio run, after its end, on another thread.

Each entry point raises an error at once instead of waiting forever, and other calls are not affected.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio

import manystream as ms
from manystream.engine import EngineClosedError
from manystream.portal import Portal, open_portal
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.peers import Line, chat_chunk, chat_stream, chunked, hello, open_peer, stream_of

PROVIDER = ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:9/v1")


async def enter(engine: ms.Engine) -> None:
    async with engine.stream(hello()):
        raise AssertionError("a stream was entered")


WAYS: dict[str, Callable[[ms.Engine], object]] = {
    "start_stream": lambda engine: engine.start_stream(hello()),
    "start_request": lambda engine: engine.start_request(hello()), "request": lambda engine: engine.request(hello()),
    "stream": enter, "record": lambda engine: engine.record("recording.jsonl"),
}  # fmt: skip
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
    """Return what the program returns or raises in a forked process. A child that waits forever ends after the test."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # some versions of Python warn of a fork in a process with threads, which this test needs
        child = os.fork()
    if not child:
        said = "it went on as if nothing had happened"
        try:
            threading.Timer(120, os._exit, [1]).start()
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


@pytest.mark.parametrize("way", WAYS)
async def test_a_closed_engine_is_an_error(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with ms.open_engine([PROVIDER]) as engine:
        pass
    assert "its open_engine block was left" in await error_of(WAYS[way], engine)
    assert list(tmp_path.iterdir()) == []  # not even an empty recording


async def test_an_engine_that_the_program_closed_is_an_error() -> None:
    async with ms.open_engine([PROVIDER]) as engine:
        engine.close()
        with pytest.raises(EngineClosedError) as raised:
            engine.start_request(ms.Request("m", "hello"))
    assert str(raised.value) == "this engine is closed: engine.close() was called. Open another engine"


@pytest.mark.parametrize("way", THREAD_WAYS)
async def test_a_closed_engine_is_an_error_on_other_threads(way: str) -> None:
    async with ms.open_engine([PROVIDER]) as engine:
        pass
    with pytest.raises(EngineClosedError, match="its open_engine block was left"):
        await trio.to_thread.run_sync(THREAD_WAYS[way], engine)


class Away:
    """What was made on one event loop, and is used on another."""

    def __init__(self, block: Any, engine: Any) -> None:
        self.block, self.engine = block, engine
        self.call = engine.start_stream(hello())
        self.events = engine.stream(hello())
        self.results = engine.map([hello()])

    async def enter(self) -> None:
        await self.events.__aenter__()
        await self.results.__aenter__()

    async def leave(self) -> None:
        await self.results.__aexit__(None, None, None)
        await self.events.__aexit__(None, None, None)
        await self.block.__aexit__(None, None, None)


AWAY: dict[str, Callable[[Away], object]] = {
    **{name: lambda away, way=way: way(away.engine) for name, way in WAYS.items()},  # type: ignore[misc]
    "map": lambda away: away.engine.map([hello()]),
    "drain": lambda away: away.engine.drain(1),
    "end_session": lambda away: away.engine.end_session("s"),
    "wait": lambda away: away.call.wait(),
    "next event": lambda away: away.events.__anext__(),
    "next result": lambda away: away.results.__anext__(),
    "leave": lambda away: away.block.__aexit__(None, None, None),
}
"""Each way to use an engine elsewhere."""


async def error_away(name: str, way: Callable[[Away], object], away: Away) -> str:
    """Return the error of a use, which must be raised at once."""
    try:
        result = way(away)
        if isinstance(result, Coroutine):
            result.send(None)
    except EngineClosedError as error:
        return str(error)
    raise AssertionError(f"{name} did not raise")


def run_on_trio(use: Coroutine[object, object, str]) -> str:
    async def main() -> str:
        return await use

    return trio.run(main)


async def never(host: str, port: int) -> socket.socket:
    """Dial a server that never answers."""
    await trio.sleep_forever()
    raise AssertionError


async def never_on_asyncio(host: str, port: int) -> socket.socket:
    """As `never`, on asyncio."""
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def test_an_engine_of_another_run_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own run continues meanwhile on another thread."""
    monkeypatch.chdir(tmp_path)
    made: list[Away] = []
    opened, leave = threading.Event(), threading.Event()

    async def first() -> None:
        block = ms.open_engine([PROVIDER], dial=never)
        away = Away(block, await block.__aenter__())
        await away.enter()
        made.append(away)
        opened.set()
        await trio.to_thread.run_sync(leave.wait)
        await away.leave()

    thread = threading.Thread(target=trio.run, args=(first,), name="first")
    thread.start()
    try:
        assert opened.wait(30)
        for name, way in {**AWAY, "close": lambda away: away.engine.close()}.items():
            hint = "leave the block of open_engine on the event loop on which it was entered"
            assert re.fullmatch(
                r"this engine belongs to trio run \w+ of thread 'first', and was used on trio run \w+ of thread"
                f" 'MainThread': ({hint}|open an engine there, or use engine.from_thread there)",
                trio.run(error_away, name, way, made[0]),
            ), name
    finally:
        leave.set()
        thread.join()
    for way in WAYS.values():
        assert "block was left" in trio.run(error_of, way, made[0].engine)
    assert made[0].call.completion.error_category is ms.ErrorCategory.CANCELLED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("other", ["loop", "thread", "trio"])
def test_another_asyncio_loop_s_engine_is_an_error(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own loop does not run meanwhile, so nothing would ever wake the caller."""
    monkeypatch.chdir(tmp_path)

    async def open_it() -> Away:
        block = ms.open_engine([PROVIDER], dial=never_on_asyncio)
        away = Away(block, await block.__aenter__())
        await away.enter()
        return away

    with asyncio.Runner() as own, asyncio.Runner() as another:
        away = own.run(open_it())
        for name, way in AWAY.items():
            use = error_away(name, way, away)
            if other == "loop":
                error, where = another.run(use), f"asyncio loop {id(another.get_loop()):#x} of thread 'MainThread'"
            else:
                run, kind = (asyncio.run, "asyncio loop") if other == "thread" else (run_on_trio, "trio run")
                with ThreadPoolExecutor(1, "other") as executor:
                    error = executor.submit(run, use).result()  # type: ignore[arg-type]
                where = rf"{kind} \w+ of thread 'other_0'"
            hint = "leave the block of open_engine on the event loop on which it was entered"
            assert re.fullmatch(
                rf"this engine belongs to asyncio loop {id(own.get_loop()):#x} \(not running\) of thread 'MainThread',"
                rf" and was used on {where}: ({hint}|open an engine there, or use engine\.from_thread there)",
                error,
            ), (name, error)
        own.run(away.leave())
    assert away.call.completion.error_category is ms.ErrorCategory.CANCELLED
    assert list(tmp_path.iterdir()) == []


async def test_use_in_a_fork_is_an_error_and_harms_no_stream() -> None:
    release = trio.Event()

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(stream_of(chat_chunk("before, "), end=False))
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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.parametrize("door", ["trio", "asyncio", "portal", "client on trio", "client on asyncio"])
def test_a_forked_child_harms_no_call_of_its_parent(door: str, tmp_path: Path) -> None:
    """It leaves by return, by an exception and by `sys.exit`. No callback runs in it, and nothing is written twice."""
    program = [sys.executable, "-m", "tests.faults.forking", door, str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert result["codes"] == {"return": 0, "raise": 1, "exit": 3}, ended.stderr
    of_engine = not door.startswith("client")
    assert result == {
        "codes": result["codes"],
        "seen": [True] * (5 if of_engine else 4),
        "completions": [True] * 4 * of_engine,
        "recorded": 5 * of_engine,  # the first stream waits for its part of the budget, and begins in the recording
        "monitored": of_engine,
    }
    assert (ended.stderr.count("Traceback"), ended.stderr.splitlines()[-1]) == (1, "Left"), "only the child that raised"


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


def test_a_portal_in_a_fork_is_an_error(simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    async def leave() -> ms.Engine:
        async with ms.open_engine([PROVIDER]) as engine:
            said = in_a_child(lambda: engine.start_stream(hello()))
            assert "EngineClosedError: this engine was opened in another process" in said
        return engine

    async def use(engine: ms.Engine) -> None:
        with pytest.raises(EngineClosedError, match="block was left"):
            engine.start_stream(hello())
        with pytest.raises(EngineClosedError, match="block was left"):
            await engine.request(hello())
        with pytest.raises(EngineClosedError, match="block was left"):
            await enter(engine)

    engine = asyncio.run(leave())
    asyncio.run(use(engine))


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
