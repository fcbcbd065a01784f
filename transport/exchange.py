"""What one HTTP exchange is to its two sides: the request head that is written, and who is told of the response.

Knows the head's bytes. Must not know sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .errors import TransportError

RawHeaders = Sequence[tuple[bytes, bytes]]


METHODS_WITH_BODY = frozenset({b"POST", b"PUT", b"PATCH"})
"""Their requests say how long the body is even where it is empty (RFC 9110, 8.6)."""


class WireHead:
    """A request head, validated: no header value can break out of its line. `Host` must come first, as for h11.

    Without the body's length, which is told when it is sent: so all requests that differ in their bodies only share
    one head.
    """

    __slots__ = ("_lines", "headers", "method", "target")

    def __init__(self, method: bytes, target: bytes, headers: RawHeaders) -> None:
        self.method: bytes = method
        self.target: bytes = target
        self.headers: RawHeaders = headers
        self._lines = b"".join(
            [b"%b %b HTTP/1.1\r\n" % (method, target), *[b"%b: %b\r\n" % header for header in headers]]
        )

    def with_header(self, name: bytes, value: bytes) -> WireHead:
        """The same head with one validated header more."""
        head = WireHead.__new__(WireHead)
        head.method, head.target, head.headers = self.method, self.target, (*self.headers, (name, value))
        head._lines = self._lines + b"%b: %b\r\n" % (name, value)
        return head

    def encode(self, body_size: int) -> bytes:
        """The bytes before a body of that size, as h11 would write them (a test holds it to that).

        h11 checks every header anew with each request, which is most of what starting a call costs; here
        `validate_headers` and `target` have done so, once.
        """
        if body_size or self.method in METHODS_WITH_BODY:
            return b"%bContent-Length: %d\r\n\r\n" % (self._lines, body_size)
        return self._lines + b"\r\n"


class ChunkReader(Protocol):
    """Reads the chunks that it recognises at the front of a chunked body, instead of the chunk decoder."""

    def read(self, data: bytes) -> int:
        """Take whole chunks off the front of `data`, which begins with one. Returns how many bytes those were."""
        ...


class Exchange(Protocol):
    """Who receives one exchange. After `on_end`, `on_failure` or `on_defect`, nothing more is delivered.

    Whoever calls one of these methods catches what it raises and calls `on_defect` of the same object: so a defect ends
    the exchange in which it happened, and no other.
    """

    def on_head(self, status: int, headers: RawHeaders) -> None:
        """The final response's head; header names in lower case."""
        ...

    def on_body(self, data: bytes) -> ChunkReader | None:
        """The next body bytes; never empty. Returns what may read the chunks that follow, if anything; it is used only
        where the next byte begins a chunk, and only until the next `on_body`, or the exchange's end."""
        ...

    def on_end(self) -> None:
        """The body is whole, as far as HTTP can tell."""
        ...

    def on_failure(self, error: TransportError) -> None:
        """The exchange broke."""
        ...

    def on_defect(self, error: Exception) -> None:
        """One of the other methods raised, or the connection's own code did: a defect in this library. The exchange
        must end without the code that raised, and must not raise again. May be called more than once."""
        ...
