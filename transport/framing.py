"""Decide from a response head where the body ends and whether the connection can be reused. A pure function.

The head was validated by h11: Content-Length occurs once, or several times with equal values; Transfer-Encoding can
only be `chunked`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


class BodyEnd(enum.Enum):
    """The rule that ends a response body."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


LENGTH, CHUNKED, CLOSE = BodyEnd
"""The members, for the head of every response."""


@dataclass(slots=True)
class Framing:
    """The framing of one response body.

    end: the rule that ends the body.
    length: the body's size in bytes, if `end` is LENGTH; else 0.
    keep_alive: the connection can carry another exchange after this response.
    """

    end: BodyEnd
    length: int
    keep_alive: bool


BODILESS = frozenset({204, 205, 304})
"""Statuses whose responses have no body (RFC 9110, 15.3.5, 15.3.6 and 15.4.5)."""


UPGRADE = b"UPGRADE"
"""In place of the method of a request that asks for another protocol."""


def framing(method: bytes, status: int, http_version: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Framing:
    """Return the framing that a final response's head announces. Header names must be in lower case."""
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
    if method == UPGRADE and status < 200:
        return Framing(CLOSE, 0, False)
    if method == b"HEAD":
        return Framing(LENGTH, 0, keep_alive)
    if status in BODILESS:
        # A server that announces a body here may also send it. Its bytes would be read as the next response.
        return Framing(LENGTH, 0, keep_alive and not length and not chunked)
    if chunked:
        # Both headers at once may be an attempt at request smuggling: chunked takes precedence, and the connection is
        # not reused (RFC 9112, section 6.1).
        return Framing(CHUNKED, 0, keep_alive and length is None)
    if length is not None:
        return Framing(LENGTH, length, keep_alive)
    return Framing(CLOSE, 0, False)
