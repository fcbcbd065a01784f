"""The objects of a live stream that the garbage collector tracks.

With 10,000 open streams, a full collection visits all of them at once, and every stream waits for it. So data that
lives as long as a stream is in few objects, and what few streams need is made when they need it. An ended call is in no
reference cycle, so that it is freed at once and the collector has nothing to find.
"""

import gc
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from tests.support.dialects import ANTHROPIC, CHAT, DIALECTS, GEMINI, RESPONSES, Wording
from tests.support.peers import (
    Line,
    Script,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    hello,
    open_peer,
    reply_once,
    silent,
    stream_of,
    until,
)

STREAMS = 40

MOST_TRACKED = {CHAT: 18, RESPONSES: 20, ANTHROPIC: 20, GEMINI: 18}
"""Dialect → the most tracked objects of one stream of text without TLS, the socket included. The bound is 20."""


class Source:
    """A listening socket whose connections are plain descriptors, which the garbage collector does not track."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=2 * STREAMS)
        self.listener.setblocking(False)
        self.descriptors: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    async def accept(self) -> None:
        """Accept one connection, and read its request."""
        await trio.lowlevel.wait_readable(self.listener)
        descriptor = self.listener.accept()[0].detach()
        await trio.lowlevel.wait_readable(descriptor)
        os.read(descriptor, 65536)
        self.descriptors.append(descriptor)

    def send(self, data: bytes, number: int) -> None:
        """Send on the `number` latest connections."""
        for descriptor in self.descriptors[-number:]:
            os.write(descriptor, data)

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.listener.close()


async def open_streams(engine: ms.Engine, source: Source, dialect: Wording, number: int) -> None:
    """Start streams that have received some events, each in a read of its own, and go on."""
    arrived = 0

    def on_event(_: ms.Event) -> None:
        nonlocal arrived
        arrived += 1

    for _ in range(number):
        engine.start_stream(hello(), on_event)
    for _ in range(number):
        await source.accept()
    end = "\r\n\r\n" if dialect is GEMINI else "\n\n"
    last = dialect.beginning.removesuffix(end).rpartition(end)[2] + end
    source.send(stream_of(dialect.beginning, end=False), number)
    await until(lambda: arrived == 2 * number)
    for more in range(3):
        source.send(chunked(last, end=False), number)
        await until(lambda wanted=(3 + more) * number: arrived == wanted)  # type: ignore[misc]


def tracked() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize("dialect", MOST_TRACKED, ids=lambda dialect: dialect.name)
async def test_a_live_stream_has_few_tracked_objects(dialect: Wording) -> None:
    source = Source()
    try:
        async with ms.open_engine([dialect.provider(source.url)]) as engine:
            await open_streams(engine, source, dialect, 3)  # imports modules, and fills the caches of the engine
            before = tracked()
            await open_streams(engine, source, dialect, STREAMS)
            each = (tracked() - before) / STREAMS
    finally:
        source.close()
    assert each < MOST_TRACKED[dialect] + 1, each


async def test_a_stream_with_content_keeps_no_request_body() -> None:
    """No attempt follows, so the conversation is not sent again."""
    source = Source()
    try:
        async with ms.open_engine([CHAT.provider(source.url)]) as engine:
            call = engine.start_stream(hello())
            prepared = call._running.prepared
            assert b"hello" in prepared.body
            await source.accept()
            source.send(stream_of(CHAT.beginning, end=False), 1)
            await until(lambda: not prepared.body)
            assert call.completion is None
    finally:
        source.close()


# --- what an ended call leaves to the garbage collector ---

ENDED = 10
"""The calls whose remains are counted."""

End = Callable[[ms.Engine, ms.Request], Awaitable[object]]


async def unstreamed(engine: ms.Engine, request: ms.Request) -> None:
    with suppress(ms.ProviderError):
        await engine.request(request)


async def in_a_stream(engine: ms.Engine, request: ms.Request) -> None:
    await engine.start_stream(request, lambda event: None).wait()


async def iterated(engine: ms.Engine, request: ms.Request) -> None:
    async with engine.stream(request) as events:
        async for _ in events:
            pass


async def left_early(engine: ms.Engine, request: ms.Request) -> None:
    async with engine.stream(request) as events:
        async for _ in events:
            break
    await events.call.wait()


class Agent:
    """Callbacks that refer to their call, for as long as it runs."""

    def __init__(self, *, cancels: bool) -> None:
        self.cancels = cancels
        self.call: ms.Call | None = None

    def on_event(self, event: ms.Event) -> None:
        assert self.call is not None
        if self.cancels:
            self.call.cancel()

    def on_completion(self, completion: ms.Completion) -> None:
        self.completion = completion


async def with_agent(engine: ms.Engine, request: ms.Request, *, cancels: bool = False) -> None:
    agent = Agent(cancels=cancels)
    agent.call = engine.start_stream(request, agent.on_event, agent.on_completion)
    await agent.call.wait()


async def cancelled(engine: ms.Engine, request: ms.Request) -> None:
    await with_agent(engine, request, cancels=True)


def every(*answers: bytes | str) -> Script:
    """A server that gives these answers in turn."""

    async def script(line: Line) -> None:
        while True:
            for each in answers:
                if not await line.request():
                    return
                await line.send(each)

    return script


cut = reply_once(stream_of(chat_chunk("one"), end=False))


async def slow(line: Line) -> None:
    while await line.request():
        await trio.sleep(2)
        await line.send(STREAM)


STREAM = stream_of(*chat_stream("one", "two", "three"))
MANY = {
    "index": 0,
    "delta": {"tool_calls": [{"index": i, "id": f"t{i}", "function": {"name": "f"}} for i in range(200)]},
}
MANY_PARTS = stream_of(chat_chunk(choices=[MANY]), *chat_stream())
REFUSED = answer(error_body("later"), status="429 Too Many Requests", headers="Retry-After: 0\r\n")
FAILED = answer(error_body("no"), status="500 Internal Server Error")

ENDS: dict[str, tuple[End, Script]] = {
    "answer": (unstreamed, every(answer(chat_answer("one")))),
    "stream": (in_a_stream, every(STREAM)),
    "iterator": (iterated, every(STREAM)),
    "iterator that is left early": (left_early, every(STREAM)),
    "callbacks that hold their call": (with_agent, every(STREAM)),
    "cancelled": (cancelled, every(STREAM)),
    "more events than one step": (in_a_stream, every(MANY_PARTS)),
    "cancelled between two steps": (cancelled, every(MANY_PARTS)),
    "refused and repeated": (in_a_stream, every(REFUSED, *[STREAM] * 5)),
    "failed and repeated": (in_a_stream, every(FAILED, STREAM)),
    "refused": (unstreamed, every(answer(error_body("no"), status="400 Bad Request"))),
    "no JSON": (unstreamed, every(answer('{"choices": '))),
    "a malformed event": (in_a_stream, every(stream_of(CHAT.malformed))),
    "an error event": (in_a_stream, every(stream_of(CHAT.overload))),
    "cut": (in_a_stream, cut),
    "timeout": (unstreamed, silent),
    "timeout of a stream": (in_a_stream, silent),
    "late": (in_a_stream, slow),
}  # fmt: skip

HEDGED = ms.Route("m", ["a/m", "b/m"], hedge=ms.Hedge(1.0, at_most=1.0))

TRAFFIC: dict[str, Callable[[], ms.Traffic | None]] = {
    "plain": lambda: None,
    "traffic": ms.Traffic,
    "route": lambda: ms.Traffic(routes=[HEDGED], budgets=[ms.Budget(input_tokens=1e9)]),
}


async def left(engine: ms.Engine, end: End) -> float:
    """Return the objects that each call leaves to the garbage collector."""
    for _ in range(2):  # imports modules, and fills the caches of the engine
        await end(engine, hello())
    gc.collect()
    gc.disable()
    try:
        for _ in range(ENDED):
            await end(engine, hello())
        await trio.testing.wait_all_tasks_blocked()
        return gc.collect() / ENDED
    finally:
        gc.enable()


@pytest.mark.parametrize("traffic", TRAFFIC)
@pytest.mark.parametrize("name", ENDS)
async def test_an_ended_call_leaves_the_collector_nothing(name: str, traffic: str, autojump_clock: MockClock) -> None:
    end, script = ENDS[name]
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(open_peer(script)) for _ in range(2)]
        providers = [ms.OpenAIChat("k", peer.url, name=name) for name, peer in zip("ab", peers, strict=True)]
        engine = await stack.enter_async_context(
            ms.open_engine(
                providers[: 2 if traffic == "route" else 1],
                traffic=TRAFFIC[traffic](),
                retry=ms.Retry(base=0.1, max_attempts=2),
                timeouts=ms.Timeouts(first_byte=3),
            )
        )
        assert await left(engine, end) == 0


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("end", [unstreamed, in_a_stream])
async def test_a_call_of_each_dialect_leaves_nothing_to_the_collector(dialect: Wording, end: End) -> None:
    whole = answer(dialect.whole)
    script = every(stream_of(dialect.beginning, dialect.rest) if end is in_a_stream else whole)
    async with open_peer(script) as peer, ms.open_engine([dialect.provider(peer.origin)]) as engine:
        assert await left(engine, end) == 0


class Watch(ms.Observer):
    """An observer that wants every event."""

    def event(self, call: ms.Call, event: ms.Event) -> None:
        pass


async def test_an_observed_call_leaves_nothing_to_the_collector(tmp_path: Path) -> None:
    async with open_peer(every(STREAM)) as peer, ms.open_engine([peer.chat], observer=Watch()) as engine:
        with engine.record(tmp_path / "recording"):
            assert await left(engine, in_a_stream) == 0
