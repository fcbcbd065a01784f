"""Header fields: checked on the way out, looked up on the way in.

Knows RFC 9110's grammar for names and values. Must not know what any header means to a provider.

The check comes before a connection is made. A key that was read from a file with its line break is the common
fault, and the HTTP library's own text for it quotes the value: here a message names the header, never its value.
"""

from __future__ import annotations

import re
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
"""What the connection itself says; from a caller they would break framing, reuse or the proxy's secret."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_FORBIDDEN = re.compile(r"[^\t\x20-\x7e]")  # controls but the tab, and whatever is not ASCII
_SHOWN_NAME = 60


class HeaderError(ValueError):
    """A header that cannot be sent. The message names the header and never shows its value."""


def validate_headers(pairs: Iterable[tuple[str, str]], *, forbidden: Collection[str] = ()) -> list[tuple[bytes, bytes]]:
    """Encode headers for the wire, in order and with their names' case. Raises `HeaderError`.

    Values are ASCII (RFC 9110, 5.5 advises no more), without control characters but the tab, and do not begin or
    end with white space. `forbidden`: names in lower case that a caller may not set, such as CONNECTION_HEADERS.
    """
    encoded: list[tuple[bytes, bytes]] = []
    for name, value in pairs:
        if not _TOKEN.fullmatch(name):
            raise HeaderError(f"header name {_shown(name)}: a name is letters, digits and !#$%&'*+-.^_`|~ only")
        if name.lower() in forbidden:
            raise HeaderError(f"header {name!r}: is set by the connection itself; leave it out")
        problem = _FORBIDDEN.search(value)
        if problem is not None:
            raise HeaderError(f"header {name!r}: the value {_fault(problem[0])} at position {problem.start()}")
        if value != value.strip(" \t"):
            raise HeaderError(f"header {name!r}: the value begins or ends with white space; remove it")
        encoded.append((name.encode("ascii"), value.encode("ascii")))
    return encoded


def find(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """The value of the first header of that name, or None. `name` is in lower case; the headers' case is open."""
    for key, value in headers:
        if len(key) == len(name) and key.lower() == name:
            return value
    return None


def headers_to_mapping(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case → values, those of a repeated name joined with ", " (RFC 9110, 5.3), read as Latin-1."""
    values: dict[str, list[str]] = {}
    for key, value in headers:
        values.setdefault(key.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return {name: ", ".join(texts) for name, texts in values.items()}


def _shown(name: str) -> str:
    # Only the part that is a token: a name with a line break may have a whole header, and so a key, behind it.
    token = _TOKEN.match(name)
    return repr(token[0][:_SHOWN_NAME] if token else "") + ("…" if name else "")


def _fault(character: str) -> str:
    if character in "\r\n":
        return "holds a line break (was it read from a file with its last line's end?)"
    if character == "\0":
        return "holds a NUL character"
    return "holds a control character" if character.isascii() else "holds a character that is not ASCII"
