"""The objects of a live stream that the garbage collector tracks.

With 10,000 open streams, a full collection visits all of them at once, and every stream waits for it. So data that
lives as long as a stream is in few objects, and what few streams need is made when they need it.
"""

import gc
import os
import socket

import pytest
import trio

import manystream as ms
from tests.support.dialects import ANTHROPIC, CHAT, GEMINI, RESPONSES, Wording
from tests.support.peers import STREAM_HEAD, chunked, hello, until

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
    source.send(STREAM_HEAD.encode() + chunked(dialect.beginning, end=False), number)
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
            prepared = call._running._prepared
            assert b"hello" in prepared.body
            await source.accept()
            source.send(STREAM_HEAD.encode() + chunked(CHAT.beginning, end=False), 1)
            await until(lambda: not prepared.body)
            assert call.completion is None
    finally:
        source.close()
