"""The client transports beside the clients' own, against a server that resets, stalls and cuts its responses.

Every fault gives the same exception, and the same bytes before it, as over the client's own transport. The soak mixes
the faults over both transports and cancels requests, for the minutes in `MANYSTREAM_SOAK_MINUTES`; then nothing may be
left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import random
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import anyio
import pytest

import manystream as ms
from tests.soak.books import Sample, drift, sample
from tests.soak.faulty_server import FAULTS, REFUSED, UPLOAD, closed_port, serving
from tests.soak.test_soak import MINUTES, MOST_GROWTH
from tests.support.peers import open_descriptors

Outcome = tuple[str, bytes]
"""The exception's name, or "ok"; and the body's bytes until then."""

LONG = 60.0
"""The timeout in seconds that no request may meet, on a busy machine."""
SHORT_TIMEOUTS = {
    "stalled-head": (LONG, 0.25, LONG, LONG),
    "stalled-body": (LONG, 0.25, LONG, LONG),
    "stalled-upload": (LONG, LONG, 0.25, LONG),
}
"""Fault → timeouts that it meets: connect, read, write, pool."""
OTHERS_SHARE = 0.1
"""The share of a mix's requests that go over the client's own transport."""
CANCELLED_SHARE = 0.1
LOST_RESETS = {"trio": {"reset-upload": "ReadError"}}
"""Event loop → fault → its exception, where the package's own transport takes a reset for an orderly end: the kernel
reports it to the write, whose error that transport drops."""

BACKENDS: dict[str, tuple[str, dict[str, Any]]] = {
    "asyncio": ("asyncio", {}),
    "uvloop": ("asyncio", {"use_uvloop": True}),
    "trio": ("trio", {}),
}
"""Event loop → anyio's name and options for it."""


@dataclass(frozen=True)
class Origins:
    """The server, and a port that refuses connections."""

    serving: str
    refusing: str

    def url(self, fault: str) -> str:
        return f"{self.refusing if fault == REFUSED else self.serving}/{fault}"


@contextlib.contextmanager
def open_origins() -> Iterator[Origins]:
    with serving() as server, closed_port() as unused:
        yield Origins(server, unused)


@pytest.fixture(scope="module")
def origins() -> Iterator[Origins]:
    with open_origins() as opened:
        yield opened


@pytest.fixture(params=["httpx2", "httpx"])
def package(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def over_ours(package: Any) -> Any:
    """Return a client over our transport."""
    transport = importlib.import_module(f"manystream.{package.__name__}").Transport
    return package.AsyncClient(transport=transport(limits=ms.PoolLimits(max_per_origin=40)))


def over_theirs(package: Any) -> Any:
    """Return a client over the package's own transport."""
    return package.AsyncClient(trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


async def upload() -> AsyncGenerator[bytes]:
    for _ in range(UPLOAD // 100_000):
        yield b"u" * 100_000


async def outcome(client: Any, origins: Origins, fault: str) -> Outcome:
    """Send one request and read its response."""
    body, timeout = b"", SHORT_TIMEOUTS.get(fault, (LONG,) * 4)
    async with contextlib.AsyncExitStack() as stack:
        content = await stack.enter_async_context(contextlib.aclosing(upload())) if "upload" in fault else None
        method = "POST" if content else "GET"
        try:
            async with client.stream(method, origins.url(fault), timeout=timeout, content=content) as response:
                async for piece in response.aiter_raw():
                    body += piece
        except Exception as error:
            return type(error).__name__, body
    return "ok", body


def agree(fault: str, one: Outcome, other: Outcome) -> bool:
    """Return whether two outcomes of a fault agree. On a busy machine, a timeout may come before the first bytes."""
    if fault in SHORT_TIMEOUTS:
        return one[0] == other[0]
    return one == other


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_gives_one_exception_and_bytes(package: ModuleType, origins: Origins, fault: str, backend: str) -> None:
    known = LOST_RESETS.get(backend, {}).get(fault)

    async def main() -> None:
        async with over_ours(package) as ours, over_theirs(package) as theirs:
            expected = await outcome(theirs, origins, fault) if known is None else (known, b"")
            assert agree(fault, await outcome(ours, origins, fault), expected)
            if backend == "asyncio" or fault not in SHORT_TIMEOUTS:  # again, on a connection that has served a response
                assert await outcome(ours, origins, "whole") == await outcome(theirs, origins, "whole")
                assert agree(fault, await outcome(ours, origins, fault), expected)
            assert not ours._transport._core._running.transfers

    name, options = BACKENDS[backend]
    anyio.run(main, backend=name, backend_options=options)


@dataclass
class Mix:
    """What a mix of faults found.

    counts: fault → requests over our transport that ran to their end.
    wrong: transport, fault and outcome of each request with another outcome than expected.
    samples: of this process, one per second.
    """

    counts: Counter[str] = field(default_factory=Counter[str])
    others: int = 0
    cancelled: int = 0
    wrong: list[tuple[str, str, Outcome]] = field(default_factory=list[tuple[str, str, Outcome]])
    samples: list[Sample] = field(default_factory=list[Sample])


async def mix(package: Any, origins: Origins, seconds: float, workers: int) -> Mix:
    """Send random requests: nine in ten over our transport, of which one in ten is cancelled; the rest over theirs."""
    numbers, found = random.Random(5), Mix()
    expected: dict[str, Outcome] = {}
    for fault in FAULTS:
        async with over_theirs(package) as theirs:
            expected[fault] = await outcome(theirs, origins, fault)
    began = time.monotonic()

    async def request_of_theirs(fault: str) -> None:
        async with over_theirs(package) as theirs:
            result = await outcome(theirs, origins, fault)
        found.others += 1
        if not agree(fault, result, expected[fault]):
            found.wrong.append(("theirs", fault, result))

    async def request_of_ours(ours: Any, fault: str) -> None:
        task = asyncio.ensure_future(outcome(ours, origins, fault))
        if numbers.random() < CANCELLED_SHARE:
            await asyncio.sleep(numbers.random() * 0.02)
            task.cancel()
        await asyncio.wait([task])
        if task.cancelled():
            found.cancelled += 1
            return
        found.counts[fault] += 1
        if not agree(fault, task.result(), expected[fault]):
            found.wrong.append(("ours", fault, task.result()))

    async def work(ours: Any) -> None:
        while time.monotonic() - began < seconds:
            fault = numbers.choice(FAULTS)
            if numbers.random() < OTHERS_SHARE:
                await request_of_theirs(fault)
            else:
                await request_of_ours(ours, fault)

    async def watch() -> None:
        while time.monotonic() - began < seconds:
            await asyncio.sleep(1)
            gc.collect()
            found.samples.append(sample(time.monotonic() - began, len(asyncio.all_tasks())))

    async with over_ours(package) as ours:
        await asyncio.gather(watch(), *(work(ours) for _ in range(workers)))
        assert not ours._transport._core._running.transfers
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return found


def mixed(package: ModuleType, seconds: float, workers: int) -> Mix:
    """Run a mix of faults, and check that no descriptor is left."""
    before = open_descriptors()
    with open_origins() as origins:
        found = asyncio.run(mix(package, origins, seconds, workers))
    gc.collect()
    assert open_descriptors() <= before
    return found


def test_a_mix_of_faults_leaves_nothing(package: ModuleType) -> None:
    found = mixed(package, 2, 40)
    assert not found.wrong
    assert found.others


@pytest.mark.soak
def test_minutes_of_faults_leave_nothing(package: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    found = mixed(package, MINUTES * 60, 100)
    growth = drift(found.samples)
    with capsys.disabled():
        print(
            f"\n{package.__name__}: {len(found.samples)} s, {found.counts.total()} requests over ours, {found.others}"
            f" over its own, {found.cancelled} cancelled; per minute: memory {growth.megabytes:+.2f} MB,"
            f" objects {growth.objects:+.0f}, descriptors {growth.descriptors:+.2f}, tasks {growth.tasks:+.2f}"
        )
        for fault in FAULTS:
            print(f"  {fault}: {found.counts[fault]}")
    assert not found.wrong[:10]
    if MINUTES >= 3:
        assert growth.megabytes < MOST_GROWTH
