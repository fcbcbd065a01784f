"""The bytes of a request that the kernel has not accepted yet."""

from __future__ import annotations

import socket
from collections.abc import Callable

from .early_end import EarlyEnd, broken
from .loop import Loop
from .socket_errors import PEER_GONE, error_text
from .tls_socket import TLSSocket

SEND_BYTES = 1024 * 1024
"""The maximum number of bytes sent at once: a server that reads at full speed would block every other stream."""

JOINED_BYTES = 65536
"""The largest body that is copied, so that it is sent in the head's segment."""


class Outgoing:
    """The unsent bytes of one request.

    started: the kernel has accepted a byte, so the server may read it.
    open: more bytes of the body will follow.
    broken: a write failed, or the rest of the request was dropped. The connection cannot carry another request.
    on_sent: called once, when no byte is held any more.
    error: the system's message, if the write failed although the peer has not ended the connection; else empty.
    reset: set if a write found the connection reset. The kernel reports a reset once: reading then finds an orderly
        end.
    """

    __slots__ = ("_pieces", "broken", "error", "on_sent", "open", "reset", "started")

    def __init__(self, head: bytes, body: bytes, *, more: bool = False) -> None:
        """Hold the bytes of a request. `flush` sends them. `more`: more bytes will follow (`append`)."""
        # A small body is sent in the head's segment; a large one is not copied. None: nothing is held.
        self._pieces: list[bytes | memoryview] | None = [head + body] if len(body) <= JOINED_BYTES else [head, body]
        self.started: bool = False
        self.open: bool = more
        self.on_sent: Callable[[], None] | None = None
        self.broken: bool = False
        self.error: str = ""
        self.reset: EarlyEnd | None = None

    def __bool__(self) -> bool:
        """Whether bytes wait for the kernel."""
        return bool(self._pieces)

    @property
    def unfinished(self) -> bool:
        """Whether the request is not sent completely."""
        return self.open or bool(self._pieces)

    @property
    def complete(self) -> bool:
        """Whether the whole request was sent, so that another one may follow it."""
        return not self.unfinished and not self.broken

    def append(self, data: bytes) -> None:
        """Hold the next bytes of the body. They are dropped if the body has ended, or if no more can be sent."""
        if self.open:
            if self._pieces is None:
                self._pieces = []
            self._pieces.append(data)

    def flush(self, sock: socket.socket | TLSSocket, loop: Loop) -> bool:
        """Send what the kernel accepts, at most `SEND_BYTES`. `loop` counts the bytes.

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
                count = sock.send(first if len(first) <= share else memoryview(first)[:share])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self.stop()
                if isinstance(error, PEER_GONE):
                    self.reset = broken(error) if isinstance(error, ConnectionResetError) else None
                    return True
                self.error = error_text(error)
                return False
            self.started = True
            loop.bytes_sent += count
            share -= count
            if count == len(first):
                del pieces[0]
            else:
                pieces[0] = memoryview(first)[count:]
        self._pieces = None
        return True

    def stop(self) -> None:
        """Drop the rest of the request."""
        self.clear()
        self.broken = True

    def clear(self) -> None:
        """Drop the rest of the request: the connection is closed."""
        self._pieces = None
        self.open = False

    def report_sent(self) -> None:
        on_sent, self.on_sent = self.on_sent, None
        if on_sent is not None:
            on_sent()


ALL_SENT = Outgoing(b"", b"")
"""What a connection has whose request was sent completely, and an idle one: nothing. One object for all."""
ALL_SENT.clear()
ALL_SENT.started = True


class Upload:
    """A request's body that is sent in pieces.

    What the kernel does not accept is held. Wait for `Connection.notify_sent` before the next piece.
    """

    __slots__ = ("_chunked", "_flush", "_outgoing")

    def __init__(self, outgoing: Outgoing, flush: Callable[[], None], *, chunked: bool) -> None:
        self._outgoing = outgoing
        self._flush = flush
        self._chunked = chunked

    @property
    def open(self) -> bool:
        """Whether more can be sent: the body has not ended, no write has failed, and the connection is open."""
        return self._outgoing.open

    @property
    def holds(self) -> bool:
        """Whether bytes wait for the kernel."""
        return bool(self._outgoing)

    def send(self, data: bytes) -> None:
        """Send the next bytes; without effect if the upload is not open."""
        if data and self.open:
            self._outgoing.append(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
            self._flush()

    def end(self) -> None:
        """End the body; without effect if the upload is not open."""
        if self.open:
            if self._chunked:
                self._outgoing.append(b"0\r\n\r\n")
            self._outgoing.open = False
            self._flush()
