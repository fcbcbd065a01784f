"""TLS over a connected non-blocking socket, with the socket's own interface (`recv`, `send`, `fileno`, `close`).

Why not `ssl.SSLSocket`: it makes two system calls for each record (the record's length first), and returns one record
per call. Streaming servers write one record per event. `TLSSocket` makes one system call for all bytes that have
arrived, and returns all complete records. With one record per read, this costs 0.85 of what `ssl.SSLSocket` costs; with
two records, 0.8, and the reader of the events is called once for both (`benchmarks/live_streams.py`: chat over TLS).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from types import TracebackType

MAX_RECORD = 16 * 1024
"""The maximum size of one record's plaintext, in bytes (RFC 8446, 5.1)."""


class TLSSocket:
    """The client side of a TLS connection over a socket. It owns the socket and closes it.

    buffered: `recv` has found the end of the stream or an error after the bytes that it returned. The next `recv`
        reports it. The kernel does not report the socket as readable for it.
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
        """Create the TLS state; `do_handshake` performs the handshake.

        server_hostname: the name that is sent as SNI and that the certificate must contain. Raises `ValueError` if it
            is not a host name.
        """
        self.buffered: bool = False
        self._sock = sock
        self._receive: Callable[[int], bytes] = sock.recv
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self._failure: OSError | None = None
        self._unsent = b""  # encrypted records that the kernel has not accepted
        self._accepted = 0  # number of the caller's bytes in `_unsent`

    def __enter__(self) -> TLSSocket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def do_handshake(self) -> None:
        """Perform the next step of the handshake; return when the handshake is complete.

        Raises `ssl.SSLWantReadError` or `ssl.SSLWantWriteError` if another step is needed: call again once the socket
        is readable or writable. Raises `OSError` (usually an `ssl.SSLError`) if the handshake failed.
        """
        with contextlib.suppress(BlockingIOError):
            self._receive_records(MAX_RECORD)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            if self._flush():
                raise
        except OSError:
            self._send_tls_records()  # the alert with the reason
            raise
        else:
            if self._flush():
                return
        raise ssl.SSLWantWriteError

    def recv(self, size: int) -> bytes:
        """Receive up to `size` encrypted bytes and return the plaintext of all complete records; empty at the end.

        Raises `BlockingIOError` or `ssl.SSLWantReadError` if no record is complete yet, and `OSError` if the connection
        is broken. An end of the stream without a TLS close_notify alert counts as an end, as with `ssl.SSLSocket`:
        HTTP's framing shows whether the message was complete.
        """
        if self.buffered:
            if self._failure is not None:
                raise self._failure
            return b""
        self._receive_records(size)
        try:
            data = self._object.read(MAX_RECORD)
            if self._incoming.pending and data:
                data = self._with_more_records(data)
        except ssl.SSLEOFError:
            return b""
        finally:
            if self._outgoing.pending:
                self._send_tls_records()
        return data

    def _receive_records(self, size: int) -> None:
        """Read up to `size` bytes from the socket and pass them to OpenSSL."""
        data = self._receive(size)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _with_more_records(self, first: bytes) -> bytes:
        """Return `first` and the plaintext of the complete records that follow it."""
        pieces = [first]
        try:
            while self._incoming.pending and pieces[-1]:
                pieces.append(self._object.read(MAX_RECORD))
        except ssl.SSLWantReadError:
            pass  # the last record is incomplete
        except OSError as error:
            self.buffered, self._failure = True, error
        else:
            self.buffered = not pieces[-1]
        return b"".join(pieces)

    def _send_tls_records(self) -> None:
        """Send the records that OpenSSL itself has written, such as alerts.

        Errors are ignored: a connection on which sending fails may still have delivered data.
        """
        with contextlib.suppress(OSError):
            self._flush()

    def send(self, data: bytes | memoryview) -> int:
        """Send the beginning of `data`, at most one record. Returns the number of bytes that were sent.

        Raises `BlockingIOError` if the kernel's buffer is full: call again with the same data. Raises `OSError` if the
        connection is broken.
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
        """Return the socket's file descriptor; -1 after `close`."""
        return self._sock.fileno()

    def close(self) -> None:
        """Close the socket without a close_notify alert, which no code would read. Idempotent."""
        self._sock.close()

    @property
    def plain(self) -> socket.socket:
        """The socket below TLS, for its addresses."""
        return self._sock

    @property
    def ssl_object(self) -> ssl.SSLObject:
        """OpenSSL's state, for what it tells about the peer."""
        return self._object

    def version(self) -> str | None:
        """Return the protocol version, such as `TLSv1.3`; None before the handshake."""
        return self._object.version()

    def selected_alpn_protocol(self) -> str | None:
        """Return the protocol that the server chose by ALPN (RFC 7301); None if it chose none."""
        return self._object.selected_alpn_protocol()

    def expires(self) -> str | None:
        """Return the end of the server certificate's validity, in the form that `ssl.cert_time_to_seconds` parses."""
        certificate = self._object.getpeercert() or {}
        until = certificate.get("notAfter")
        return until if isinstance(until, str) else None

    def _flush(self) -> bool:
        """Send the records that OpenSSL has written. Returns whether the kernel accepted all of them."""
        if self._outgoing.pending:
            self._unsent += self._outgoing.read()
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            return False
        return True
