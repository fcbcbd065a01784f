"""What one HTTP exchange is to its two sides: the request head that is written, and who is told of the response.

Knows the head's bytes. Must not know sockets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .errors import TransportError

RawHeaders = Sequence[tuple[bytes, bytes]]


@dataclass(slots=True)
class WireHead:
    """A request head, validated: no header value can break out of its line."""

    method: bytes
    target: bytes
    headers: RawHeaders


def encode_head(head: WireHead) -> bytes:
    """The head's bytes, as h11 would write them (a test holds it to that; `Host` must come first, as there).

    h11 checks every header anew with each request, which is most of what starting a call costs; here `validate_headers`
    and `target` have done so, once.
    """
    lines = [b"%b %b HTTP/1.1" % (head.method, head.target)]
    lines.extend([b"%b: %b" % header for header in head.headers])
    return b"\r\n".join(lines) + b"\r\n\r\n"


class Exchange(Protocol):
    """What is told of one exchange. After `on_end` or `on_failure`, nothing more."""

    def on_head(self, status: int, headers: RawHeaders) -> None:
        """The final response's head; header names in lower case."""
        ...

    def on_body(self, data: bytes) -> None:
        """The next body bytes; never empty."""
        ...

    def on_end(self) -> None:
        """The body is whole, as far as HTTP can tell."""
        ...

    def on_failure(self, error: TransportError) -> None:
        """The exchange broke."""
        ...
