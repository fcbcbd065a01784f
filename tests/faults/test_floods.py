"""Floods: fifty megabytes of each thing of which a server could send too much, and the memory that they need.

A flood ends in an error that names the cap, or has no effect and uses no memory. The process never uses more than a
fixed amount above what the caller keeps.

The floods run one after another in a process of their own. A process that has run many other tests has a large heap
with free pages in many places, so its resident memory grows by megabytes without a need for them.
"""

import ctypes
import gc
import os
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.pool import Pool

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.engine import EngineLimits
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    hello,
    open_peer,
    until,
)

FLOOD = 50_000_000
FINE_FLOOD = 10_000_000
"""The size of a flood of parts of a few bytes each."""
MEGABYTE = 1_000_000
PATIENCE = 90
"""Real seconds that a flood may take on a busy machine."""
PAGE = os.sysconf("SC_PAGE_SIZE")
LIMITS = EngineLimits(max_event_bytes=2 * MEGABYTE, max_response_bytes=200 * MEGABYTE)
"""The cap on a response is above every flood, so that each flood reaches its own cap. The cap on an event is small."""
MOST = 8 * MEGABYTE
"""The peak memory of a flood: one read, twice an event at its cap, and the test itself."""

HEAD = STREAM_HEAD.encode()
WHOLE = chunked(*chat_stream("fine"))
K = "x" * 1000
NETWORK, SERVER = ms.ErrorCategory.NETWORK, ms.ErrorCategory.SERVER


@dataclass(frozen=True)
class Flood:
    """One flood.

    beginning: the bytes before it.
    piece: the bytes that are repeated until `size` is reached or the engine has closed the connection.
    end: the bytes after it.
    outcome: the category of the call's error; None for success.
    words: a part of the error's message.
    size: the total number of bytes.
    most: the peak memory that is allowed, in bytes.
    """

    beginning: bytes
    piece: bytes
    end: bytes = b""
    outcome: ms.ErrorCategory | None = None
    words: str = ""
    size: int = FLOOD
    most: int = MOST


def events(body: str, size: int = FLOOD) -> Flood:
    """Build a flood inside an event stream that has no effect."""
    return Flood(HEAD, chunked(body, end=False), WHOLE, size=size)


FLOODS: dict[str, Flood] = {
    "comments": events(f": {K}\n" * 60),
    "pings": events(": ping\n\n" * 8_000, FINE_FLOOD),
    "empty lines": events("\n" * 64_000, FINE_FLOOD),
    "event names without data": events(f"event: {K}\n" * 60 + "\n"),
    "fields that are none": events(f"{K}: {K}\n" * 30),
    "ids and times": events(f"id: {K}\nretry: 1\n" * 60),
    "events without data": events("data:\n\n" * 9_000, FINE_FLOOD),
    "chunks that say nothing": events(chat_chunk() * 400, FINE_FLOOD),
    "members that nobody knows": events(chat_chunk(unknown={"a": [K] * 50})),
    "usage, again and again": events(chat_chunk(usage={"prompt_tokens": 1, "completion_tokens": 2}) * 300, FINE_FLOOD),
    "chunks of two bytes": Flood(HEAD, b"2\r\n:\n\r\n" * 9_000, WHOLE, size=FINE_FLOOD),
    "one line without end": Flood(
        HEAD + chunked("data: ", end=False), chunked("x" * 60_000, end=False), b"", SERVER, "larger than 2000000 bytes"
    ),
    "one line without end, two bytes at a time": Flood(
        HEAD + chunked("data: ", end=False), b"2\r\nxx\r\n" * 9_000, b"", SERVER, "larger than 2000000 bytes"
    ),
    "one event without end": Flood(
        HEAD, chunked("data: x\n" * 8_000, end=False), b"", SERVER, "larger than 2000000 bytes"
    ),
    "header lines": Flood(
        b"HTTP/1.1 200 OK\r\n", f"X-A: {K}\r\n".encode() * 60, b"", NETWORK, "head is larger than 262144 bytes"
    ),
    "one header": Flood(
        b"HTTP/1.1 200 OK\r\nX-A: ", K.encode() * 60, b"", NETWORK, "header line is longer than 98304 bytes"
    ),
    "one status line": Flood(
        b"HTTP/1.1 200 ", K.encode() * 60, b"", NETWORK, "header line is longer than 98304 bytes"
    ),
    "informational responses": Flood(
        b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1_000, b"", NETWORK, "informational responses"
    ),
    "one chunk extension": Flood(HEAD + b"1;", K.encode() * 60, b"", NETWORK, "longer than 16384 bytes"),
    "chunk extensions": Flood(HEAD, (f"1;{K}\r\n\n\r\n").encode() * 60, WHOLE),
    "trailers of an answer that is whole": Flood(HEAD + WHOLE[:-2], f"X-A: {K}\r\n".encode() * 60),
    "trailers of one that is not": Flood(
        HEAD + chunked(chat_chunk("a"), end=False) + b"0\r\n",
        f"X-A: {K}\r\n".encode() * 60, b"", NETWORK, "longer than 16384 bytes",
    ),
    "a body behind the answer": Flood(HEAD + WHOLE[:-5], chunked(f": {K}\n" * 60, end=False)),
    "responses behind the answer": Flood(HEAD + WHOLE, answer(chat_answer(K * 50))),
    "an error's body": Flood(
        b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n", chunked(K * 60, end=False), b"", SERVER
    ),
    "an error's body as an event stream": Flood(
        HEAD.replace(b"200 OK", b"500 No"), chunked(f"data: {K}\n" * 60, end=False), b"", SERVER
    ),
    "a page instead of a stream": Flood(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
        chunked(K * 60, end=False), chunked(), SERVER,
    ),
    "a coded body": Flood(
        HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"),
        chunked(K * 60, end=False), b"", SERVER, "gzip",
    ),
}  # fmt: skip


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * PAGE


def resident_at_rest() -> int:
    """Return the resident memory of this process after the allocator has released free memory, in bytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return resident()


@dataclass
class Cost:
    """The cost of a flood.

    peak: the peak resident memory of the process, in bytes.
    sent: the number of bytes that the server could send.
    """

    peak: int = 0
    sent: int = 0


def pouring(flood: Flood, cost: Cost) -> Callable[[Line], Awaitable[None]]:
    async def script(line: Line) -> None:
        while await line.request():
            if cost.sent:
                await line.send(HEAD + WHOLE)
                continue
            cost.sent = 1
            await line.send(flood.beginning)
            while cost.sent < flood.size:
                await line.send(flood.piece)
                cost.sent += len(flood.piece)
                cost.peak = max(cost.peak, resident())
            await line.send(flood.end)

    return script


async def growth_in(flood: Flood) -> int:
    """Send one flood and check its outcome. Return the bytes by which the process has grown at its peak."""
    cost = Cost()
    before = resident_at_rest()
    async with (
        open_peer(pouring(flood, cost)) as peer,
        ms.open_engine([peer.chat], limits=LIMITS, retry=NO_RETRY, proxy="") as engine,
    ):
        with trio.fail_after(PATIENCE):
            completion = await engine.start_stream(hello()).wait()
        await until(lambda: not any(origin.active for origin in engine.statistics().connections.values()))
        cost.peak = max(cost.peak, resident())
        with trio.fail_after(PATIENCE):
            assert (await engine.start_stream(hello()).wait()).success
    assert completion.error_category is flood.outcome, completion
    assert flood.words in (completion.error_message or "")
    if flood.outcome is None:
        assert completion.response.text == "fine"
    else:
        assert cost.sent < 12 * MEGABYTE or flood.end, "what is refused is not read to its end"
    return cost.peak - before


def growth_by(name: str) -> int:
    """Run one flood on the virtual clock. It runs in the process that measures memory."""
    return trio.run(growth_in, FLOODS[name], clock=MockClock(autojump_threshold=0))


@pytest.fixture(scope="module")
def own_process() -> Iterator[Pool]:
    """Start a process that has run no other test. It is ended, even in the middle of a flood, after the last test."""
    with get_context("spawn").Pool(1) as pool:
        yield pool


@pytest.mark.parametrize("name", FLOODS)
def test_fifty_megabytes_of_anything_use_bounded_memory(name: str, own_process: Pool) -> None:
    assert own_process.apply_async(growth_by, [name]).get(PATIENCE) < FLOODS[name].most


SLOW = 3
QUICK = 20


async def consume_slowly() -> int:
    """Run twenty quick streams, five times, beside three whose consumers sleep while their servers send fifty megabytes
    each. Check that no byte of the three is read meanwhile. Return the bytes by which the process has grown.
    """
    sent = [0] * SLOW
    piece = chunked(chat_chunk(K * 50), end=False)

    async def script(line: Line) -> None:
        while request := await line.request():
            if b"flood-" not in request:
                await line.send(HEAD + WHOLE)
                continue
            number = int(request.partition(b"flood-")[2][:1])
            await line.send(HEAD)
            while sent[number] < FLOOD:
                await line.send(piece)
                sent[number] += len(piece)
            await line.send(WHOLE)

    async def consume(engine: ms.Engine, number: int, awake: trio.Event) -> None:
        async with engine.stream(ms.Request("m", [ms.Message.user(f"flood-{number}")])) as events:
            await events.__anext__()
            await awake.wait()
            received = sum([len(event.text) async for event in events if isinstance(event, ms.TextDelta)])
            assert received == sent[number] // len(piece) * len(K * 50) + len("fine")
        assert events.completion.success

    awake = trio.Event()
    before = resident_at_rest()
    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], proxy="") as engine,
        trio.open_nursery() as nursery,
    ):
        for number in range(SLOW):
            nursery.start_soon(consume, engine, number, awake)
        await trio.testing.wait_all_tasks_blocked(0.05)  # until TCP's flow control has stopped every server
        held = list(sent)
        assert max(held) < FLOOD / 2
        kept = engine.statistics().bytes_received
        assert kept < SLOW * 8 * MEGABYTE
        for _ in range(5):
            calls = [engine.start_stream(hello()) for _ in range(QUICK)]
            with trio.fail_after(PATIENCE):
                assert all([(await call.wait()).success for call in calls])
        assert engine.statistics().bytes_received - kept < 5 * QUICK * 2000
        assert sent == held
        growth = resident() - before
        awake.set()
    return growth


def test_a_slow_consumer_delays_only_its_own_stream(own_process: Pool) -> None:
    assert own_process.apply_async(trio.run, [consume_slowly]).get(PATIENCE) < SLOW * MOST
