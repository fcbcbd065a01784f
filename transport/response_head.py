"""The head of one response: h11 reads it, piece by piece as it arrives.

Knows how large a head may be, and that informational responses may come before the final one. Must not know sockets,
nor how the body behind the head is framed.
"""

from __future__ import annotations

import h11

MAX_HEAD_BYTES = 256 * 1024
HEAD_TOO_LARGE = f"the response head is larger than {MAX_HEAD_BYTES} bytes"
MAX_HEAD_LINES = 4096
TOO_MANY_LINES = f"the response head has more than {MAX_HEAD_LINES} lines"
MAX_INFORMATIONAL = 1000
"""The size and the lines are those of all heads of one response together, the informational ones included. h11 takes
microseconds and hundreds of bytes for each line, however short it is."""

VERSION_PREFIX = b"HTTP/1."
"""How every response of this protocol begins. Anything else is refused before h11 collects a whole line of it."""

_ANY_REQUEST = h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")])
"""Brings a parser into the state in which it reads a response's head; nothing of it is sent."""


class HeadError(Exception):
    """The bytes are no response head. The message quotes at most a line of the response, and nothing of the request."""


class HeadReader:
    """Reads one head. Made when its first byte arrives: making h11's parser costs a sixth of what starting a call
    costs, and the server's time is not ours."""

    __slots__ = ("_behind", "_informational", "_lines", "_parser", "_size")

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._parser.send(_ANY_REQUEST)
        self._size = self._lines = 0
        self._behind = b""  # what came with the last line that was allowed
        self._informational = 0

    @property
    def rest(self) -> bytes:
        """The bytes behind the head."""
        return self._parser.trailing_data[0] + self._behind

    def feed(self, data: bytes) -> h11.Response | None:
        """Take more bytes. Returns the final response once its head is whole. Raises `HeadError`."""
        parser = self._parser
        seen, self._size = self._size, self._size + len(data)
        head, self._behind = _first_lines(data, MAX_HEAD_LINES - self._lines)
        self._lines += head.count(b"\n")
        if head:
            parser.receive_data(head)
        if seen < len(VERSION_PREFIX) and not VERSION_PREFIX.startswith(self.rest[: len(VERSION_PREFIX)]):
            raise HeadError(_not_http(self.rest))
        try:
            event = parser.next_event()
            while isinstance(event, h11.InformationalResponse):
                self._informational += 1
                if self._informational > MAX_INFORMATIONAL:
                    raise h11.RemoteProtocolError(f"more than {MAX_INFORMATIONAL} informational responses")
                event = parser.next_event()
        except h11.RemoteProtocolError as error:
            text = f"malformed response: {str(error)[:200]}"
            raise HeadError(HEAD_TOO_LARGE if error.error_status_hint == 431 else text) from None
        if isinstance(event, h11.Response):
            return event
        if self._size > MAX_HEAD_BYTES:
            raise HeadError(HEAD_TOO_LARGE)
        if self._behind:
            raise HeadError(TOO_MANY_LINES)
        return None


def _first_lines(data: bytes, count: int) -> tuple[bytes, bytes]:
    """The first lines of the data, and what is behind them."""
    if data.count(b"\n") <= count:
        return data, b""
    *lines, behind = data.split(b"\n", count)
    return b"".join([line + b"\n" for line in lines]), behind


def _not_http(data: bytes) -> str:
    hint = " (TLS on this port? use https://)" if data[:1] in (b"\x15", b"\x16") else ""
    return f"the answer is no HTTP/1.1{hint}: {data[:60]!r}"
