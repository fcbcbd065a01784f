"""A program that blocks its event loop: what arrived meanwhile is read before any timeout is judged.

The block takes no time: the clock jumps, after the server's thread has sent all that it sends during the block.
"""

import asyncio
import contextlib
import importlib
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio

import manystream as ms
from tests.support.peers import NO_RETRY, chat_stream, chunked, hello, stream_of
from tests.support.threaded_server import CHUNKED, OK, Server, Wire, hang, serving, together
from tests.support.waiting import eventually

TIMEOUT = 10.0
BLOCK = 20.0

Main = Callable[[], Awaitable[None]]
Module = Any  # httpx2 or httpx: their names are the same


class Blocked:
    """A clock for trio and asyncio, and a server that sends the rest of its response during the block.

    first: what it sends at once after each request. rest: what it sends during the block; None: nothing, ever.
    """

    def __init__(self, first: bytes, rest: bytes | None) -> None:
        self.first, self.rest = first, rest
        self.passed = 0.0
        self.requests = 0
        self._asked, self._sent = threading.Event(), threading.Event()

    def now(self) -> float:
        return time.monotonic() + self.passed

    def serve(self, wire: Wire) -> None:
        while True:
            wire.body(wire.head())
            wire.send(self.first)
            self.requests += 1
            if self.rest is None:
                hang(wire)
            elif self.rest and not self._sent.is_set():
                self._asked.wait(30)
                wire.send(self.rest)
                self._sent.set()

    def block(self) -> None:
        """Let the time of the block pass on this thread."""
        if self.rest:
            self._asked.set()
            assert self._sent.wait(30)
        self.passed += BLOCK
        with contextlib.suppress(RuntimeError):  # no trio run
            # A guest's second thread waits in real time, and would have found the deadline during a real block.
            trio.lowlevel.current_trio_token().run_sync_soon(bool)


@pytest.fixture(params=["trio", "asyncio"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[0, 1], autouse=True)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let trio run the tasks of an iteration in one order and in the other, which it chooses at random otherwise."""
    chosen = random.Random()
    monkeypatch.setattr(chosen, "random", lambda: request.param)
    monkeypatch.setattr("trio._core._run._r", chosen)


def run(door: str, blocked: Blocked, monkeypatch: pytest.MonkeyPatch, main: Main) -> None:
    monkeypatch.setattr("trio._core._run.perf_counter", blocked.now)
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: blocked.now())

    async def bounded() -> None:
        with trio.fail_after(3 * BLOCK):
            await main()

    if door == "trio":
        trio.run(bounded)
    else:
        asyncio.run(asyncio.wait_for(main(), 3 * BLOCK))  # type: ignore[arg-type]


def opened(door: str, server: Server, name: str) -> AbstractAsyncContextManager[Any]:
    timeouts = ms.Timeouts(**{name: TIMEOUT})
    providers = [ms.OpenAIChat("key", f"{server.url}/v1", name="peer")]
    limits = ms.EngineLimits(pool=ms.PoolLimits(max_connections=1))
    return ms.open_engine(providers, retry=NO_RETRY, timeouts=timeouts, limits=limits)


FIRST = stream_of(chat_stream("a")[0], end=False)
REST = chunked(*chat_stream("a")[1:])

ENGINE: dict[str, tuple[bytes, bytes]] = {
    "idle": (FIRST, REST), "first_byte": (b"", FIRST + REST), "total": (FIRST, REST), "queue": (FIRST, REST),
}  # fmt: skip
"""A timeout → what the server sends before the block, and during it."""


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
@pytest.mark.parametrize("name", ENGINE)
def test_a_call_without_bytes_times_out(door: str, name: str, alive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    first, rest = ENGINE[name]
    blocked = Blocked(first, rest if alive else None)

    async def main() -> None:
        events: list[ms.Event] = []
        with serving(blocked.serve) as server:
            async with opened(door, server, name) as engine:
                call = engine.start_stream(hello(), events.append)
                await eventually(lambda: events if first else call.state is ms.CallState.WAITING)
                if name == "queue":  # it waits for the first call's place in the pool, and its answer comes at once
                    blocked.first = FIRST + REST
                    call = engine.start_stream(hello())
                    await eventually(lambda: call.state is ms.CallState.QUEUED)
                began = blocked.now()
                blocked.block()
                completion = await call.wait()
                assert completion.success is alive, completion.error
                if not alive:
                    assert completion.error.provider_code == name
                    assert blocked.now() - began < BLOCK + TIMEOUT / 2, "at most a few iterations after the block"

    run(door, blocked, monkeypatch, main)


class Names(trio.abc.HostnameResolver):
    """Looks up one name during the block. `alive`: whether an answer comes at all."""

    def __init__(self, port: int, alive: bool) -> None:
        self._port = port
        self._alive = alive
        self.asked = False
        self._event: trio.Event | asyncio.Event = trio.Event() if trio.lowlevel.in_trio_run() else asyncio.Event()

    def answer(self) -> None:
        if self._alive:
            self._event.set()

    async def getaddrinfo(self, *args: object, **options: object) -> Any:
        self.asked = True
        await self._event.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", self._port))]

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:
        raise NotImplementedError


@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
def test_a_lookup_ended_during_the_block_has_its_connection(alive: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = Blocked(FIRST + REST, b"")

    async def main() -> None:
        with serving(blocked.serve) as server:
            names = Names(server.port, alive)
            trio.socket.set_custom_hostname_resolver(names)
            provider = ms.OpenAIChat("key", "http://slow.test/v1")
            timeouts = ms.Timeouts(connect=TIMEOUT)
            async with ms.open_engine([provider], retry=NO_RETRY, timeouts=timeouts, proxy="") as engine:
                call = engine.start_stream(hello())
                await eventually(lambda: names.asked)
                names.answer()
                blocked.block()
                completion = await call.wait()
                assert completion.success is alive, completion.error
                assert alive or completion.error.provider_code == "connect"

    run("trio", blocked, monkeypatch, main)


# --- the transports of the SDKs' clients ---

CLIENT: dict[str, tuple[bytes, bytes]] = {
    "read": (b"", OK), "read of the body": (CHUNKED + b"3\r\none\r\n", b"3\r\ntwo\r\n0\r\n\r\n"), "pool": (b"", OK),
    "connect": (OK, b""),
}  # fmt: skip
"""A timeout → what the server sends before the block, and during it."""

ERRORS = {"read": "ReadTimeout", "pool": "PoolTimeout", "connect": "ConnectTimeout"}


@pytest.mark.parametrize("package", ["httpx2", "httpx"])
@pytest.mark.parametrize("alive", [True, False], ids=["alive", "dead"])
@pytest.mark.parametrize("name", CLIENT)
def test_a_client_s_request_times_out_if_nothing_arrived(
    door: str, name: str, alive: bool, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_package: Module = importlib.import_module(package)
    adapter: Module = importlib.import_module(f"manystream.{package}")
    first, rest = CLIENT[name]
    blocked = Blocked(first, rest if alive else None)
    option = name.partition(" ")[0]
    heads: list[int] = []
    outcomes: list[str] = []

    async def main() -> None:
        with serving(blocked.serve) as server:
            names = Names(server.port, alive)
            url = server.url
            if name == "connect":
                url = f"http://slow.test:{server.port}"
                if door == "trio":
                    trio.socket.set_custom_hostname_resolver(names)
                else:
                    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", names.getaddrinfo)
            transport = adapter.Transport(limits=ms.PoolLimits(max_connections=1), trust_env=False)
            client = client_package.AsyncClient(transport=transport)
            ready = {
                "read": lambda: blocked.requests, "read of the body": lambda: heads,
                "pool": lambda: "1 waiting" in repr(transport), "connect": lambda: names.asked,
            }  # fmt: skip

            async def ask() -> None:
                if name == "pool":  # the connection is taken; after the block the answer comes at once
                    await eventually(lambda: blocked.requests)
                    blocked.first = OK
                timeout = client_package.Timeout(None, **{option: TIMEOUT})
                try:
                    async with client.stream("GET", url, timeout=timeout) as response:
                        heads.append(response.status_code)
                        await response.aread()
                        outcomes.append("answered")
                except client_package.TransportError as error:
                    outcomes.append(type(error).__name__)

            async def hold_the_connection() -> None:
                if name == "pool":
                    with contextlib.suppress(client_package.TransportError):
                        await client.get(url, timeout=None)

            async def block() -> None:
                await eventually(ready[name])
                began = blocked.now()
                names.answer()
                blocked.block()
                await eventually(lambda: outcomes)
                assert outcomes == ["answered" if alive else ERRORS[option]]
                assert alive or blocked.now() - began < BLOCK + TIMEOUT / 2
                await client.aclose()

            await together(hold_the_connection, ask, block)

    run(door, blocked, monkeypatch, main)
