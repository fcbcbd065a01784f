"""One exchange on one connection: heads, framing, reuse, and the ways in which it can break."""

import os
import random

import h11
import pytest

from manystream.transport.errors import Phase
from manystream.transport.exchange import WireHead
from manystream.transport.http1 import State
from manystream.transport.loop import PollerLoop
from tests.support.exchanges import open_rig

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x\r\n world\r\n0\r\nA: b\r\n\r\n"


@pytest.mark.parametrize("kind", ["epoll", "selector", "tasks"])
@pytest.mark.parametrize(("response", "body"), [(OK, b"hello"), (CHUNKED, b"hello world")])
async def test_a_response_is_read_whole_and_the_connection_is_idle(kind: str, response: bytes, body: bytes) -> None:
    async with open_rig(kind) as rig:
        for _ in range(3):
            exchange = rig.start()
            await rig.settle()
            assert rig.server.recv(1000).endswith(b"\r\n\r\n{}")
            rig.send(response)
            await rig.settle()
            assert (exchange.status, exchange.body, exchange.ended) == (200, body, 1)
        assert rig.owner.idle == 3
        assert rig.connection.state is State.IDLE


@pytest.mark.parametrize("response", [OK, CHUNKED])
async def test_any_split_delivers_the_same_response(response: bytes) -> None:
    async with open_rig() as rig:
        for cut in range(1, len(response)):
            exchange = rig.start()
            rig.send(response[:cut])
            await rig.settle()
            rig.send(response[cut:])
            await rig.settle()
            assert exchange.body in (b"hello", b"hello world")
            assert exchange.ended
            rig.server.recv(1000)
        assert rig.owner.closed == 0


async def test_random_bodies_and_splits_agree_with_h11() -> None:
    rng = random.Random(7)
    async with open_rig() as rig:
        for _ in range(40):
            body = rng.randbytes(rng.randrange(1, 3000))
            raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            position = 0
            while position < len(body):
                size = rng.randrange(1, 500)
                piece = body[position : position + size]
                raw += b"%X\r\n%b\r\n" % (len(piece), piece)
                position += size
            raw += b"0\r\n\r\n"
            reference = h11.Connection(h11.CLIENT)
            reference.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
            reference.send(h11.EndOfMessage())
            exchange = rig.start()
            read = b""
            position = 0
            while position < len(raw):
                piece = raw[position : position + rng.randrange(1, 700)]
                position += len(piece)
                rig.send(piece)
                reference.receive_data(piece)
                while isinstance(event := reference.next_event(), h11.Response | h11.Data | h11.EndOfMessage):
                    read += bytes(event.data) if isinstance(event, h11.Data) else b""
                    if isinstance(event, h11.EndOfMessage):
                        break
                await rig.settle()
            assert exchange.body == read == body
            assert exchange.ended
            rig.server.recv(100_000)


@pytest.mark.parametrize("kind", ["epoll", "selector"])
async def test_a_closed_connection_is_not_watched(kind: str) -> None:
    async with open_rig(kind) as rig:
        rig.start()
        await rig.settle()
        # A child process that has inherited the descriptor keeps the socket open.
        inherited = os.dup(rig.connection.sock.fileno())
        try:
            rig.connection.close()
            rig.send(OK)
            assert isinstance(rig.loop, PollerLoop)
            assert rig.loop.tick() == 0
        finally:
            os.close(inherited)
        assert rig.owner.closed == 1


async def test_informational_responses_are_skipped() -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 3 + OK)
        await rig.settle()
        assert (exchange.status, exchange.body) == (200, b"hello")


@pytest.mark.parametrize(
    ("response", "closed"),
    [
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", True),
        (b"HTTP/1.1 200 OK\r\nConnection: foo, Close\r\nContent-Length: 5\r\n\r\nhello", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nX", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", False),
    ],
)
async def test_a_connection_is_reused_only_if_it_is_clean(response: bytes, closed: bool) -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(response)
        await rig.settle()
        assert exchange.body == b"hello"
        assert exchange.ended
        assert (rig.owner.closed, rig.owner.idle) == ((1, 0) if closed else (0, 1))


async def test_a_body_without_length_ends_with_the_connection() -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await rig.settle()
        assert not exchange.over
        rig.end()
        await rig.settle()
        assert exchange.body == b"hello"
        assert exchange.ended


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_a_status_without_body_ends_at_once(status: bytes) -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 10\r\n\r\n")
        await rig.settle()
        assert exchange.ended


@pytest.mark.parametrize(
    ("sent", "phase", "message", "protocol"),
    [
        (b"", Phase.HEAD, "without sending a response", False),
        (b"HTTP/1.1 2", Phase.HEAD, "before the response's end", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhell", Phase.BODY, "5 bytes before the body's end", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", Phase.BODY, "before the response's end",
            False),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Phase.HEAD, "not HTTP/1.1", True),
        (b"\x15\x03\x03\x00\x02\x02\x46", Phase.HEAD, "use https://", True),
        (b"HTTP/2 200\r\n\r\n", Phase.HEAD, "not HTTP/1.1", True),
        (b"HTTP/1.1 20x OK\r\n\r\n", Phase.HEAD, "malformed response", True),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", Phase.HEAD, "malformed response", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Phase.BODY, "illegal chunk size", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", Phase.HEAD, "malformed response", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Phase.HEAD, "malformed response", True),
    ],
)  # fmt: skip
async def test_a_broken_response_has_phase_and_reason(sent: bytes, phase: Phase, message: str, protocol: bool) -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(sent)
        await rig.settle()
        rig.end()
        await rig.settle()
        assert exchange.error is not None
        assert message in str(exchange.error)
        assert (exchange.error.phase, exchange.error.protocol) == (phase, protocol)
        assert not exchange.error.unread
        assert rig.owner.closed == 1


async def test_a_protocol_error_is_reported_before_the_peer_closes() -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(b"SSH-2.0")
        await rig.settle()
        assert exchange.error is not None


async def test_an_endless_head_is_refused() -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(b"HTTP/1.1 200 OK\r\n")
        for _ in range(40):
            if exchange.over:
                break
            rig.send(b"X-Filler: " + b"x" * 10_000 + b"\r\n")
            await rig.settle()
        assert exchange.error.protocol


async def test_a_large_body_is_sent_while_an_early_answer_is_read() -> None:
    body = b"x" * 8_000_000
    head = WireHead(b"POST", b"/", [(b"Host", b"h")])
    async with open_rig() as rig:
        exchange = rig.start(head, body)
        await rig.settle()
        rig.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")  # and never reads
        await rig.settle()
        assert (exchange.status, exchange.body, exchange.ended) == (413, b"big", 1)
        assert rig.owner.closed == 1


async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 20_000
    head = WireHead(b"POST", b"/", [(b"Host", b"h")])
    received = b""
    async with open_rig() as rig:
        exchange = rig.start(head, body)
        while not received.endswith(body[-1000:]) or len(received) < len(body):
            try:
                received += rig.server.recv(1_000_000)
            except BlockingIOError:
                await rig.settle()
        assert received.partition(b"\r\n\r\n")[2] == body
        rig.send(OK)
        await rig.settle()
        assert exchange.ended
        assert rig.owner.idle == 1


@pytest.mark.parametrize("event", ["eof", "bytes"])
async def test_an_idle_connection_that_ends_or_has_bytes_is_closed(event: str) -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(OK)
        await rig.settle()
        assert exchange.ended
        if event == "eof":
            rig.end()
        else:
            rig.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        assert not rig.connection.looks_alive()  # before the loop runs
        await rig.settle()
        assert rig.connection.state is State.CLOSED


async def test_pause_stops_reading_and_resume_continues() -> None:
    async with open_rig() as rig:
        exchange = rig.start()
        rig.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await rig.settle()
        rig.connection.pause()
        rig.send(b"world")
        await rig.settle()
        assert exchange.body == b"hello"
        rig.connection.resume()
        await rig.settle()
        assert exchange.body == b"helloworld"
        assert exchange.ended


async def test_drain_reads_a_bounded_rest_and_then_closes() -> None:
    async with open_rig() as rig:
        rig.start()
        rig.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await rig.settle()
        rig.connection.drain()
        rig.send(b"3\r\nxyz\r\n0\r\n\r\n")
        await rig.settle()
        assert rig.owner.idle == 1
        exchange = rig.start()
        rig.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await rig.settle()
        assert exchange.body == b"hello"
        rig.connection.drain()
        for _ in range(3):
            rig.send(b"8000\r\n" + b"x" * 0x8000 + b"\r\n")
            await rig.settle()
            if rig.owner.closed:
                break
        assert rig.owner.closed == 1


async def test_closing_within_a_callback_is_allowed_anywhere() -> None:
    for place in ("on_head", "on_body", "on_end"):
        async with open_rig() as rig:
            exchange = rig.start()
            setattr(exchange, place, lambda *_args: rig.connection.close())
            rig.send(OK)
            await rig.settle()
            assert rig.owner.closed == 1
