"""Where a response's body ends, and whether its connection may serve again. Pure functions over a response head.

Knows RFC 9112, section 6.3 (message body length) and section 9.3 (persistence). Must not know sockets.
h11 has validated the head by then: one Content-Length or several alike, no Transfer-Encoding but `chunked`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class BodyEnd(enum.Enum):
    """What ends the body."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


@dataclass(slots=True)
class Framing:
    """end: what ends the body. length: its bytes, for LENGTH. keep_alive: the connection outlives the response."""

    end: BodyEnd
    length: int
    keep_alive: bool


BODILESS = frozenset({204, 205, 304})
"""Statuses whose responses end with their head (RFC 9110, 15.3.6 for 205: no content may be made for it)."""


def framing(method: bytes, status: int, http_version: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Framing:
    """Read the framing off a final response's head. Header names are in lower case."""
    length: int | None = None
    chunked = False
    connection: set[bytes] = set()
    for name, value in headers:
        if name == b"content-length":
            length = int(value)
        elif name == b"transfer-encoding":
            chunked = True
        elif name == b"connection":
            connection.update(token.strip().lower() for token in value.split(b","))
    keep_alive = b"close" not in connection and http_version >= b"1.1"
    if method == b"HEAD":
        return Framing(BodyEnd.LENGTH, 0, keep_alive)
    if status in BODILESS:
        # A server that announces a body here may send it, too, and its bytes would answer the next request.
        return Framing(BodyEnd.LENGTH, 0, keep_alive and not length and not chunked)
    if chunked:
        # Both headers at once smell of request smuggling: chunked wins, and the connection is not used again
        # (RFC 9112, section 6.1).
        return Framing(BodyEnd.CHUNKED, 0, keep_alive and length is None)
    if length is not None:
        return Framing(BodyEnd.LENGTH, length, keep_alive)
    return Framing(BodyEnd.CLOSE, 0, False)
