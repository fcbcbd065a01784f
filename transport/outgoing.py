"""The bytes of a request that the kernel has not accepted yet.

Knows how much is sent at once, and what a failed write means. Must not know HTTP, or when the socket is writable (its
owner asks the loop).
"""

from __future__ import annotations

import socket

from .loop import Loop
from .socket_errors import PEER_GONE, error_text
from .tls_socket import TLSSocket

SEND_BYTES = 1024 * 1024
"""The maximum number of bytes sent at once: a server that reads at full speed would block every other stream."""

JOINED_BYTES = 65536
"""The largest body that is copied, so that it is sent in the head's segment."""


class Outgoing:
    """The unsent bytes of one request.

    broken: a write failed, or the rest of the request was dropped. The connection cannot carry another request.
    error: the system's message, if the write failed although the peer has not ended the connection; else empty.
    """

    __slots__ = ("_loop", "_pieces", "_sock", "broken", "error")

    def __init__(self, sock: socket.socket | TLSSocket, loop: Loop) -> None:
        self._sock = sock
        self._loop = loop
        self._pieces: list[bytes | memoryview] = []
        self.broken: bool = False
        self.error: str = ""

    def __bool__(self) -> bool:
        """Whether bytes wait for the kernel."""
        return bool(self._pieces)

    def begin(self, head: bytes, body: bytes) -> None:
        """Hold the bytes of the next request. `flush` sends them."""
        # A small body is sent in the head's segment; a large one is not copied.
        self._pieces = [head + body] if len(body) <= JOINED_BYTES else [head, body]
        self.broken = False

    def flush(self) -> bool:
        """Send what the kernel accepts, at most `SEND_BYTES`.

        Returns False if bytes are left, or if `error` is set. The caller then waits until the socket is writable. A
        write that fails because the peer has ended the connection is no error yet: its response may have arrived.
        """
        share = SEND_BYTES
        pieces = self._pieces
        while pieces:
            if share <= 0:
                return False
            first = pieces[0]
            try:
                count = self._sock.send(first if len(first) <= share else memoryview(first)[:share])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self.stop()
                if isinstance(error, PEER_GONE):
                    return True
                self.error = error_text(error)
                return False
            self._loop.bytes_sent += count
            share -= count
            if count == len(first):
                del pieces[0]
            else:
                pieces[0] = memoryview(first)[count:]
        return True

    def stop(self) -> None:
        """Drop the rest of the request."""
        self._pieces.clear()
        self.broken = True

    def clear(self) -> None:
        """Drop the rest of the request: the connection is closed."""
        self._pieces.clear()
