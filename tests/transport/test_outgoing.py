"""The unsent bytes of a request: what is sent at once, and what a failed write means."""

from __future__ import annotations

import errno
import socket

import pytest

from manystream.transport.outgoing import SEND_BYTES
from tests.support.exchanges import open_rig

pytestmark = pytest.mark.trio


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
        rig.connection._outgoing._sock = rig.connection.sock = sock  # type: ignore[attr-defined]
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
