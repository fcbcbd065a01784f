"""The interface between a connection and its user: the request head to send, and the receiver of the response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .errors import TransportError

RawHeaders = Sequence[tuple[bytes, bytes]]


METHODS_WITH_BODY = frozenset({b"POST", b"PUT", b"PATCH"})
"""Methods whose requests carry Content-Length even if the body is empty (RFC 9110, 8.6)."""


class WireHead:
    """A request head without Content-Length, so that requests that differ only in their bodies share one head.

    The caller has validated all parts: no header value contains a line break. `Host` must be the first header, where
    h11 writes it, too.

    method: such as `b"POST"`.
    target: the request target in origin-form.
    headers: the validated headers, in the order in which they are sent.
    added: the last of them, which `with_header` added for one request.
    """

    __slots__ = ("_lines", "added", "headers", "method", "target")

    def __init__(self, method: bytes, target: bytes, headers: RawHeaders) -> None:
        self.method: bytes = method
        self.target: bytes = target
        self.headers: RawHeaders = headers
        self.added: RawHeaders = ()
        self._lines = b"".join(
            [b"%b %b HTTP/1.1\r\n" % (method, target), *[b"%b: %b\r\n" % header for header in headers]]
        )

    def with_header(self, name: bytes, value: bytes) -> WireHead:
        """Return a copy of this head with one more header, which the caller has validated."""
        head = WireHead.__new__(WireHead)
        head.method, head.target, head.headers = self.method, self.target, (*self.headers, (name, value))
        head.added = (*self.added, (name, value))
        head._lines = self._lines + b"%b: %b\r\n" % (name, value)
        return head

    def encode_streamed(self, body_size: int | None) -> bytes:
        """Return the head's bytes for a body that follows in pieces. `body_size`: None if it is sent in chunks."""
        if body_size is None:
            return self._lines + b"Transfer-Encoding: chunked\r\n\r\n"
        return b"%bContent-Length: %d\r\n\r\n" % (self._lines, body_size)

    def encode(self, body_size: int) -> bytes:
        """Return the head's bytes for a body of `body_size` bytes: the bytes that h11 would write (a test compares).

        h11 would validate every header again for each request, which is most of the cost of starting a call. Here
        `validate_headers` and `url.target` have validated them once.
        """
        if body_size or self.method in METHODS_WITH_BODY:
            return b"%bContent-Length: %d\r\n\r\n" % (self._lines, body_size)
        return self._lines + b"\r\n"


class Reader(Protocol):
    """Reads the bytes that it recognises, in place of the usual readers."""

    def read(self, data: bytes) -> int:
        """Read from the front of the received `data`. Returns the number of bytes read."""
        ...


class FastReader(Reader, Protocol):
    """Reads the events of a body that it recognises. `read` reads whole chunks: one event in each, or in each two.

    one_event: whether the latest body bytes were one whole event.
    cut: set by the connection: `read` gets events that are each cut across two chunks.
    """

    one_event: bool
    cut: bool

    def read_events(self, data: bytes) -> int:
        """Read whole events from the front of body bytes. Returns the number of bytes read."""
        ...


class EventReader:
    """Reads a body without chunks with a `FastReader`."""

    __slots__ = ("_reader",)

    def __init__(self, reader: FastReader) -> None:
        self._reader = reader

    def read(self, data: bytes) -> int:
        """Read whole events from the front of the received `data`. Returns the number of bytes read."""
        return self._reader.read_events(data)


class Exchange(Protocol):
    """The receiver of one response. After `on_end`, `on_failure` or `on_defect`, nothing more is delivered.

    The connection catches an exception that one of these methods raises, and passes it to `on_defect` of the same
    object: a defect ends the exchange in which it happened, and no other.
    """

    def on_head(self, status: int, headers: RawHeaders) -> None:
        """Receive the final response's head. Header names are in lower case."""
        ...

    def on_body(self, data: bytes) -> FastReader | None:
        """Receive the next body bytes; never empty. Returns a reader for the bytes that follow, or None.

        A reader is returned only if the next byte begins an event. The connection uses it only until the next `on_body`
        or the end of the exchange: for chunks where the next byte begins a chunk as well, and if `data` was one event
        in one or two chunks; for events in a body that ends with the connection.
        """
        ...

    def on_end(self) -> None:
        """Receive the end of the body. By HTTP's rules the body is complete."""
        ...

    def on_failure(self, error: TransportError) -> None:
        """Receive the error that ended the exchange."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End the exchange after a defect in this library: another method, or the connection's own code, raised.

        The connection is closed, or it has been released and may carry another exchange: it must not be closed here.
        Must not call the code that raised, and must not raise. May be called more than once.
        """
        ...
