"""The client transports beside the clients' own, against a server that resets, stalls and cuts its responses.

Every fault gives the same exception, and the same bytes before it, as over the client's own transport. `make soak`
mixes the faults and cancels requests for the minutes in `MANYSTREAM_SOAK_MINUTES`; then nothing may be left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import random
import socket
import struct
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from types import ModuleType
from typing import Any

import pytest

import manystream as ms
from tests.soak.books import Sample, drift, sample
from tests.soak.test_soak import MINUTES, MOST_GROWTH
from tests.support.peers import open_descriptors

Writer = asyncio.StreamWriter
Act = Callable[[Writer], Awaitable[bool]]
"""Answers one request. Returns whether the connection carries another one."""
Outcome = tuple[str, bytes]
"""The exception's name, or "ok"; and the body's bytes until then."""

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"64\r\n" + b"c" * 100 + b"\r\n"
READ_TIMEOUT = 0.25


def sending(*parts: bytes, then: str = "keep", pause: float = 0.0) -> Act:
    """Send the parts. `then`: keep or close the connection, reset it, or stall until the client closes it."""

    async def act(writer: Writer) -> bool:
        for part in parts:
            writer.write(part)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        if then == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif then == "stall":
            await asyncio.sleep(60)
        return then == "keep"

    return act


ACTS: dict[str, Act] = {
    "whole": sending(LENGTH + b"b" * 1000),
    "chunks": sending(CHUNKED, CHUNK, CHUNK, b"0\r\n\r\n"),
    "trailers": sending(CHUNKED, CHUNK, b"0\r\nX-Late: 1\r\n\r\n"),
    "slow": sending(LENGTH, *[b"b" * 50] * 20, pause=0.001),
    "until-the-end": sending(b"HTTP/1.1 200 OK\r\n\r\n", b"b" * 100, then="close"),
    "no-response": sending(then="close"),
    "reset-before": sending(then="reset"),
    "half-head": sending(LENGTH[:30], then="close"),
    "reset-in-the-head": sending(LENGTH[:30], then="reset"),
    "half-body": sending(LENGTH, b"b" * 400, then="close"),
    "half-chunks": sending(CHUNKED, CHUNK, CHUNK[:40], then="close"),
    "reset-in-the-body": sending(LENGTH, b"b" * 400, then="reset"),
    "reset-in-the-chunks": sending(CHUNKED, CHUNK, then="reset"),
    "bad-chunk": sending(CHUNKED, CHUNK, b"zz\r\n", then="close"),
    "not-HTTP": sending(b"SSH-2.0-OpenSSH\r\n\r\n", then="close"),
    "stalled-head": sending(LENGTH[:30], then="stall"),
    "stalled-body": sending(LENGTH, b"b" * 400, then="stall"),
}


async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
    """Answer the requests of one connection as their paths say."""
    try:
        again = True
        while again:
            head = await reader.readuntil(b"\r\n\r\n")
            again = await ACTS[head.split(b" ")[1].decode().strip("/")](writer)
    except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass  # the client has closed the connection, or the server ends
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def serving() -> AsyncGenerator[str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        stalled = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in stalled:
            task.cancel()
        await asyncio.gather(*stalled, return_exceptions=True)
        await asyncio.sleep(0)  # asyncio closes the sockets in its next iteration


async def outcome(client: Any, origin: str, act: str) -> Outcome:
    """Read one response."""
    reading = READ_TIMEOUT if act.startswith("stalled") else 60
    body, timeout = b"", (60, reading, 60, 60)  # on a busy machine, the wait for a connection is long
    try:
        async with client.stream("GET", f"{origin}/{act}", timeout=timeout) as response:
            async for piece in response.aiter_raw():
                body += piece
    except Exception as error:
        return type(error).__name__, body
    return "ok", body


@pytest.fixture(params=["httpx2", "httpx"])
def package(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def clients(package: Any) -> tuple[Any, Any]:
    """Return a client over our transport, and one over the package's own."""
    ours = importlib.import_module(f"manystream.{package.__name__}").Transport(limits=ms.PoolLimits(max_per_origin=40))
    return package.AsyncClient(transport=ours), package.AsyncClient(trust_env=False)


@pytest.mark.parametrize("act", ACTS)
def test_a_fault_gives_the_same_exception_and_bytes(package: ModuleType, act: str) -> None:
    async def main() -> None:
        ours, theirs = clients(package)
        async with serving() as url, ours, theirs:
            for before in (None, "whole"):  # on a new connection, and on one that has served a response
                if before is not None:
                    assert await outcome(ours, url, before) == await outcome(theirs, url, before)
                assert await outcome(ours, url, act) == await outcome(theirs, url, act)
            assert not ours._transport._core._running.transfers

    asyncio.run(main())


async def mix(package: Any, seconds: float, workers: int) -> list[Sample]:
    """Run random requests, one in ten cancelled. Returns samples of this process, one per second."""
    random_numbers = random.Random(5)
    ours, theirs = clients(package)
    samples: list[Sample] = []
    async with serving() as url:
        expected = {act: await outcome(theirs, url, act) for act in ACTS}
        await theirs.aclose()
        began = time.monotonic()
        wrong: list[tuple[str, Outcome]] = []

        async def work() -> None:
            while time.monotonic() - began < seconds:
                act = random_numbers.choice(list(ACTS))
                task = asyncio.ensure_future(outcome(ours, url, act))
                if random_numbers.random() < 0.1:
                    await asyncio.sleep(random_numbers.random() * 0.02)
                    task.cancel()
                await asyncio.wait([task])
                if not task.cancelled() and task.result() != expected[act]:
                    wrong.append((act, task.result()))

        async def watch() -> None:
            while time.monotonic() - began < seconds:
                await asyncio.sleep(1)
                gc.collect()
                samples.append(sample(time.monotonic() - began, len(asyncio.all_tasks())))

        await asyncio.gather(watch(), *(work() for _ in range(workers)))
        assert not wrong
        assert not ours._transport._core._running.transfers
        await ours.aclose()
    return samples


def test_a_mix_of_faults_leaves_nothing(package: ModuleType) -> None:
    before = open_descriptors()
    asyncio.run(mix(package, 2, 40))
    gc.collect()
    assert open_descriptors() <= before


@pytest.mark.soak
def test_minutes_of_faults_leave_nothing(package: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    before = open_descriptors()
    samples = asyncio.run(mix(package, MINUTES * 60, 100))
    gc.collect()
    assert open_descriptors() <= before
    growth = drift(samples).megabytes
    with capsys.disabled():
        print(f"\n{package.__name__}: {len(samples)} s, memory {growth:+.2f} MB per minute")
    if MINUTES >= 3:
        assert growth < MOST_GROWTH
