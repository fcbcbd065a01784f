"""Validate the headers of requests and look up the headers of responses.

Headers are validated before a connection is opened. The most common fault is an API key that was read from a file
together with its line break. h11's error message would quote the value, and so the key; the messages of this file name
the header and never its value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable
from typing import Final

CONNECTION_HEADERS: Final = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that only the connection may set. A caller's value would break framing or reuse, or leak to the proxy."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_FORBIDDEN = re.compile(r"[^\t\x20-\x7e]")  # control characters except the tab, and non-ASCII characters
_SHOWN_NAME = 60


class HeaderError(ValueError):
    """A header that cannot be sent. The message names the header and never contains its value."""


def validate_headers(pairs: Iterable[tuple[str, str]], *, forbidden: Collection[str] = ()) -> list[tuple[bytes, bytes]]:
    """Validate and encode headers; keep their order and the case of their names. Raises `HeaderError`.

    A value must be ASCII (as RFC 9110, 5.5 recommends), contain no control character except the tab, and neither begin
    nor end with white space.

    forbidden: names in lower case that the caller may not set, such as CONNECTION_HEADERS.
    """
    encoded: list[tuple[bytes, bytes]] = []
    for name, value in pairs:
        if not _TOKEN.fullmatch(name):
            raise HeaderError(f"header name {_shown(name)}: only letters, digits and !#$%&'*+-.^_`|~ are allowed")
        if name.lower() in forbidden:
            raise HeaderError(f"header {name!r}: the connection sets it itself; leave it out")
        problem = _FORBIDDEN.search(value)
        if problem is not None:
            raise HeaderError(f"header {name!r}: the value {_fault(problem[0])} at position {problem.start()}")
        if value != value.strip(" \t"):
            raise HeaderError(f"header {name!r}: the value begins or ends with white space; remove it")
        encoded.append((name.encode("ascii"), value.encode("ascii")))
    return encoded


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return the value of the first header of that name, or None.

    headers: names may be in any case.
    name: in lower case.
    """
    for key, value in headers:
        if len(key) == len(name) and key.lower() == name:
            return value
    return None


def headers_to_mapping(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as a dictionary: name in lower case → value, decoded as Latin-1.

    The values of a repeated name are joined with ", " (RFC 9110, 5.3). The names are interned, because thousands of
    responses that are held at the same time have the same names.
    """
    values: dict[str, list[str]] = {}
    for key, value in headers:
        values.setdefault(sys.intern(key.decode("latin-1").lower()), []).append(value.decode("latin-1"))
    return {name: ", ".join(texts) for name, texts in values.items()}


def _shown(name: str) -> str:
    # Show only the leading token: after a line break the name may contain a whole header, and so an API key.
    token = _TOKEN.match(name)
    return repr(token[0][:_SHOWN_NAME] if token else "") + ("…" if name else "")


def _fault(character: str) -> str:
    if character in "\r\n":
        return "contains a line break (was it read from a file that ends with one?)"
    if character == "\0":
        return "contains a NUL character"
    return "contains a control character" if character.isascii() else "contains a character that is not ASCII"
