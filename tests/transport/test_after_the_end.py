"""After an exchange has ended in an unusual way, nothing more is sent, kept or waited for.

The completion does not show that. These tests count bytes, places in the pool, descriptors and deadlines.
"""

import errno
import socket

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.transport.errors import Phase
from manystream.transport.http1 import Connection, State
from manystream.transport.loop import Loop, Pollable
from tests.support.addresses import open_sockets
from tests.support.exchanges import HEAD, RecordedExchange, open_rig
from tests.transport.test_pool import OK, A, B, Rig
from tests.transport.test_pool import open_rig as open_pool

LARGE = bytes(8 * 1024 * 1024)
"""A size larger than the kernel's buffer for a socket."""

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


def received(server: socket.socket) -> int:
    """Read the bytes that have arrived at the server and return their number."""
    count = 0
    try:
        while data := server.recv(1 << 20):
            count += len(data)
    except BlockingIOError:
        pass
    return count


# --- a response before the request was sent ---


@pytest.mark.parametrize("status", [b"400 Bad Request", b"413 Content Too Large", b"503 Service Unavailable"])
async def test_an_early_failure_ends_the_upload(status: bytes) -> None:
    async with open_rig() as rig:
        exchange = rig.start(body=LARGE)
        await rig.settle()
        assert not exchange.status
        rig.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\n\r\nno")
        await rig.settle()
        assert exchange.status == int(status[:3])
        sent = rig.loop.bytes_sent
        assert sent < len(LARGE)
        for _ in range(3):  # the server continues to read, so the client could send more
            received(rig.server)
            await rig.settle()
        assert rig.loop.bytes_sent == sent
        assert not exchange.over
        rig.send(b"!!")
        await rig.settle()
        assert (exchange.body, exchange.ended) == (b"no!!", 1)
        # A connection on which only half of a request was sent cannot be reused.
        assert (rig.owner.idle, rig.owner.closed) == (0, 1)
        assert rig.connection.sock.fileno() == -1


@pytest.mark.parametrize("status", [b"200 OK", b"300 Multiple Choices", b"399 Odd"])
async def test_an_early_success_does_not_end_the_upload(status: bytes) -> None:
    async with open_rig() as rig:
        exchange = rig.start(body=LARGE)
        rig.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 4\r\n\r\nno")
        total = 0
        for _ in range(1000):
            await rig.settle()
            fresh = received(rig.server)
            if not fresh:
                break
            total += fresh
        assert total == rig.loop.bytes_sent == len(LARGE) + len(HEAD.encode(len(LARGE)))
        rig.send(b"!!")
        await rig.settle()
        assert (exchange.ended, rig.owner.idle, rig.owner.closed) == (1, 1, 0)


# --- a descriptor that the system does not watch ---


async def test_an_unwatchable_connection_leaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_pool(ms.PoolLimits(max_per_origin=1, max_connections=1)) as rig:

        def refuse(self: Loop, connection: Pollable) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        loop = type(rig.pool._loop)
        before = len(open_sockets())
        with monkeypatch.context() as patched:
            patched.setattr(loop, "add", refuse)
            first, second, other = rig.ask(A), rig.ask(A), rig.ask(B)
            await rig.settle()
        for asker in (first, second, other):
            assert asker.error.phase is Phase.CONNECT
            assert "cannot watch the connection: No space left on device" in str(asker.error)
        assert repr(rig.pool) == "<Pool 0 open, 0 idle, 0 waiting>"
        assert rig.pool.counts() == {}
        assert rig.pool.opened == 0
        assert [end.fileno() for end in rig.other_end] == [-1] * 3  # the client's ends are closed
        assert len(open_sockets()) == before + 3  # the three servers' ends, which the test owns
        third = rig.ask(A)
        await rig.settle()
        assert third.connection is not None
        assert rig.pool.counts()[str(A)] == (0, 1, 0, 0)


# --- draining: the rest of a body is read so that the connection can be reused ---


async def drained(rig: Rig) -> Connection:
    """Return a draining connection: its response is complete for the call, but the body has not ended."""
    asker = rig.ask()
    await trio.sleep(0.1)
    server = rig.other_end[asker.connection.sock]
    server.recv(10_000)
    server.sendall(CHUNKED)
    await trio.sleep(0.1)
    asker.connection.drain()
    return asker.connection


async def test_a_drained_connection_is_closed_after_two_seconds(autojump_clock: MockClock) -> None:
    async with open_pool() as rig:
        # The two seconds count from the last reading of the clock, which may be 0.1 s old here.
        first = await drained(rig)
        first_began = trio.current_time()
        await trio.sleep(0.8)
        second = await drained(rig)
        second_began = trio.current_time()
        await trio.sleep_until(first_began + 1.85)
        assert (first.state, second.state) == (State.BODY, State.BODY)
        assert rig.pool.counts()[str(A)] == (0, 2, 0, 0)
        await trio.sleep_until(first_began + 2.05)
        assert (first.state, second.state) == (State.CLOSED, State.BODY)
        assert rig.pool.counts()[str(A)] == (0, 1, 0, 0)
        await trio.sleep_until(second_began + 1.85)
        assert second.state is State.BODY
        await trio.sleep_until(second_began + 2.05)
        assert second.state is State.CLOSED
        assert rig.pool.counts() == {}
        assert first.sock.fileno() == second.sock.fileno() == -1


async def test_a_reused_connection_outlives_its_drain_timeout(autojump_clock: MockClock) -> None:
    async with open_pool() as rig:
        connection = await drained(rig)
        rig.other_end[connection.sock].sendall(b"0\r\n\r\n")
        await trio.sleep(0.1)
        assert connection.state is State.IDLE
        again = rig.ask()
        assert again.connection is connection
        await trio.sleep(5)
        assert connection.state is State.HEAD
        await rig.served(again)
        assert rig.pool.counts()[str(A)] == (0, 0, 1, 0)


async def test_a_drained_connection_that_breaks_frees_its_place(autojump_clock: MockClock) -> None:
    async with open_pool(ms.PoolLimits(max_per_origin=1)) as rig:
        connection = await drained(rig)
        waiting = rig.ask()
        rig.other_end[connection.sock].sendall(b"no chunk\r\n")
        await trio.sleep(0.1)
        assert connection.state is State.CLOSED
        assert waiting.connection is not None
        assert waiting.connection is not connection
        assert rig.pool.counts()[str(A)] == (0, 1, 0, 0)


async def test_no_more_than_64_kib_are_drained() -> None:
    async with open_rig() as rig:
        rig.start()
        rig.send(CHUNKED)
        await rig.settle()
        rig.connection.drain()
        for size in (0x8000, 0x8000):
            rig.send(b"%x\r\n%b\r\n" % (size, b"x" * size))
            await rig.settle()
        assert (rig.connection.state, rig.owner.closed) == (State.BODY, 0)  # 65,536 bytes, to the byte
        rig.send(b"1\r\nx\r\n")
        await rig.settle()
        assert (rig.connection.state, rig.owner.closed) == (State.CLOSED, 1)


# --- a failure while the request is sent ---


async def test_a_reset_while_sending_closes_the_socket() -> None:
    async with open_rig() as rig:
        exchange = RecordedExchange()
        rig.connection.send(HEAD, LARGE, exchange)
        await rig.settle()
        sent = rig.loop.bytes_sent
        rig.server.close()
        await rig.settle()
        assert exchange.error is not None
        assert rig.loop.bytes_sent == sent
        assert (rig.owner.idle, rig.owner.closed) == (0, 1)
        assert rig.connection.sock.fileno() == -1


async def test_bytes_after_a_response_free_the_connection_s_place() -> None:
    async with open_pool(ms.PoolLimits(max_per_origin=1)) as rig:
        first, second = rig.ask(), rig.ask()
        await rig.settle()
        server = rig.other_end[first.connection.sock]
        server.recv(10_000)
        server.sendall(OK + OK)
        await rig.settle()
        assert first.connection.state is State.CLOSED
        assert second.reused is False
        assert rig.pool.counts()[str(A)] == (0, 1, 0, 0)
