"""TLS on a connected non-blocking socket, read and written the way the socket itself would be.

Knows OpenSSL's memory BIOs (BIO_s_mem(3)) and the socket below them. Must not know certificates, when a handshake may
take its steps, nor what is said.

Why not `ssl.SSLSocket`: it asks the kernel twice for each record, its length first, and gives back one record a call.
Servers that stream write a record per event. Here the kernel is asked once for all that has come, and every record
that is whole is given back: with one record a time that is 0.85 of the cost, with two 0.8 of it, and what reads an
event is called once for both (`benchmarks/live_streams.py`: chat over TLS).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from types import TracebackType

MAX_RECORD = 16 * 1024
"""Bytes that one record brings at most (RFC 8446, 5.1)."""


class TLSSocket:
    """The client's side of a TLS connection over a socket. It owns the socket and closes it.

    buffered: `recv` has found an end or an error behind the bytes that it returned. The next `recv` reports it; the
        kernel does not report the socket as readable for it.
    """

    __slots__ = (
        "_accepted",
        "_failure",
        "_incoming",
        "_object",
        "_outgoing",
        "_receive",
        "_sock",
        "_unsent",
        "buffered",
    )

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str) -> None:
        """server_hostname: sent as SNI, and looked for in the certificate. Raises `ValueError` where it is no name."""
        self.buffered: bool = False
        self._sock = sock
        self._receive: Callable[[int], bytes] = sock.recv
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._failure: OSError | None = None
        self._unsent = b""  # records that the kernel has not taken
        self._accepted = 0  # bytes of the caller's that are in them

    def __enter__(self) -> TLSSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def do_handshake(self) -> None:
        """Take the next step. Raises `ssl.SSLWantReadError` or `ssl.SSLWantWriteError` for as long as there is another
        one to take, once the socket is ready for it; and `OSError` (most are `ssl.SSLError`), when it has failed."""
        with contextlib.suppress(BlockingIOError):
            self._take(MAX_RECORD)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            if self._flush():
                raise
        except OSError:
            self._answer()  # the alert that tells the server why
            raise
        else:
            if self._flush():
                return
        raise ssl.SSLWantWriteError

    def recv(self, size: int) -> bytes:
        """What has come: all whole records of `size` bytes off the wire. Empty at the end.

        Raises `BlockingIOError` or `ssl.SSLWantReadError` where nothing can be given back now, and `OSError`. An end
        without TLS's own word for it is an end, as for `ssl.SSLSocket`: HTTP says whether its message was whole.
        """
        if self.buffered:
            if self._failure is not None:
                raise self._failure
            return b""
        self._take(size)
        try:
            data = self._object.read(MAX_RECORD)
            if self._incoming.pending and data:
                data = self._and_more(data)
        except ssl.SSLEOFError:
            return b""
        finally:
            if self._outgoing.pending:
                self._answer()
        return data

    def _take(self, size: int) -> None:
        """Ask the kernel, and give OpenSSL what it has."""
        data = self._receive(size)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _and_more(self, first: bytes) -> bytes:
        """The records behind the first one."""
        pieces = [first]
        try:
            while self._incoming.pending and pieces[-1]:
                pieces.append(self._object.read(MAX_RECORD))
        except ssl.SSLWantReadError:
            pass  # the rest of the last one is under way
        except OSError as error:
            self.buffered, self._failure = True, error
        else:
            self.buffered = not pieces[-1]
        return b"".join(pieces)

    def _answer(self) -> None:
        """Send what TLS itself says to what was read, such as alerts. A line that is broken that way may still have
        brought data."""
        with contextlib.suppress(OSError):
            self._flush()

    def send(self, data: bytes | memoryview) -> int:
        """Send the beginning of `data`, of which at most a record. Returns how much of it the kernel has.

        Raises `BlockingIOError` where the kernel takes no more now, then come again with the same data; and `OSError`.
        """
        if not self._flush():
            raise BlockingIOError
        if not self._accepted:
            self._accepted = self._object.write(data)
            if not self._flush():
                raise BlockingIOError
        accepted, self._accepted = self._accepted, 0
        return accepted

    def fileno(self) -> int:
        """The socket's descriptor; -1 once it is closed."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the socket, without a farewell (nobody would read it); idempotent."""
        self._sock.close()

    def version(self) -> str | None:
        """The protocol's, as `TLSv1.3`; None before the handshake."""
        return self._object.version()

    def selected_alpn_protocol(self) -> str | None:
        """What the server chose of the protocols that were offered (RFC 7301); None where it did not."""
        return self._object.selected_alpn_protocol()

    def expires(self) -> str | None:
        """When the server's certificate ends, as `ssl.cert_time_to_seconds` reads it."""
        certificate = self._object.getpeercert() or {}
        until = certificate.get("notAfter")
        return until if isinstance(until, str) else None

    def _flush(self) -> bool:
        """Send what OpenSSL has written; whether the kernel took it all."""
        if self._outgoing.pending:
            self._unsent += self._outgoing.read()
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True
