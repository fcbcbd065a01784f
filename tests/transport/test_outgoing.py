"""The unsent bytes of a request: what is sent at once, and what a failed write means."""

import errno
import socket

import pytest

from manystream.transport.outgoing import SEND_BYTES
from tests.support.exchanges import HEAD, RecordedExchange, open_rig


class FailingSocket(socket.socket):
    """A socket whose writes fail with `failure` once it is set."""

    failure: OSError | None = None

    def send(self, data: bytes | memoryview, flags: int = 0, /) -> int:  # type: ignore[override]
        if self.failure is not None:
            raise self.failure
        return super().send(data, flags)


async def test_a_write_that_fails_later_ends_the_exchange() -> None:
    """The rest of a large request fails, and the peer stays silent: the exchange must not wait for a response."""
    async with open_rig() as rig:
        sock = FailingSocket(fileno=rig.connection.sock.detach())  # type: ignore[union-attr]
        sock.setblocking(False)
        rig.connection.sock = sock
        exchange = rig.start(body=b"x" * (4 * SEND_BYTES))
        assert exchange.error is None
        sock.failure = OSError(errno.ENOBUFS, "No buffer space available")
        rig.server.setblocking(False)
        try:
            while True:
                rig.server.recv(1_000_000)
        except BlockingIOError:
            pass
        await rig.settle()
        assert exchange.error is not None
        assert "sending failed: No buffer space available" in str(exchange.error)
        assert rig.owner.closed == 1


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def received(server: socket.socket) -> bytes:
    try:
        return server.recv(1_000_000)
    except BlockingIOError:
        return b""


@pytest.mark.parametrize(
    ("size", "header", "body"),
    [(None, b"Transfer-Encoding: chunked", b"3\r\none\r\n2\r\ntw\r\n0\r\n\r\n"), (5, b"Content-Length: 5", b"onetw")],
)
async def test_a_body_in_pieces_is_framed_and_the_connection_reused(
    size: int | None, header: bytes, body: bytes
) -> None:
    async with open_rig() as rig:
        exchange = RecordedExchange()
        upload = rig.connection.send_streamed(HEAD, size, exchange)  # type: ignore[arg-type]
        for piece in (b"one", b"", b"tw"):
            upload.send(piece)
        assert upload.open
        assert rig.connection.sent_at is None
        upload.end()
        assert not upload.open
        assert rig.connection.sent_at is not None
        head, _, rest = received(rig.server).partition(b"\r\n\r\n")
        assert header in head
        assert rest == body
        rig.send(OK)
        await rig.settle()
        assert exchange.body == b"ok"
        assert rig.owner.idle == 1
        upload.send(b"late")
        assert received(rig.server) == b""


async def test_an_answer_before_the_body_s_end_closes_the_connection() -> None:
    """What is sent after it would be read as the next request."""
    async with open_rig() as rig:
        exchange = RecordedExchange()
        upload = rig.connection.send_streamed(HEAD, None, exchange)  # type: ignore[arg-type]
        upload.send(b"one")
        rig.send(OK)
        await rig.settle()
        assert exchange.ended
        assert not upload.open
        assert (rig.owner.idle, rig.owner.closed) == (0, 1)


async def test_a_held_body_reports_when_it_is_sent() -> None:
    async with open_rig() as rig:
        reports: list[bool] = []
        rig.start(body=b"x" * (4 * SEND_BYTES))
        assert rig.connection.notify_sent(lambda: reports.append(True))
        while not reports:
            received(rig.server)
            await rig.settle()
        assert rig.connection.sent_at is not None
        assert not rig.connection.notify_sent(lambda: reports.append(True))
