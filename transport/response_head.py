"""The head of one response: h11 reads it, piece by piece as it arrives.

Knows how large a head may be, and that informational responses may come before the final one. Must not know sockets,
nor how the body behind the head is framed.
"""

from __future__ import annotations

import h11

MAX_HEAD_BYTES = 256 * 1024
HEAD_TOO_LARGE = f"the response head is larger than {MAX_HEAD_BYTES} bytes"
MAX_INFORMATIONAL = 1000

VERSION_PREFIX = b"HTTP/1."
"""How every response of this protocol begins. Anything else is refused before h11 collects a whole line of it."""

_ANY_REQUEST = h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")])
"""Brings a parser into the state in which it reads a response's head; nothing of it is sent."""


class HeadError(Exception):
    """The bytes are no response head. The message quotes at most a line of the response, and nothing of the request."""


class HeadReader:
    """Reads one head. Made when its first byte arrives: making h11's parser costs a sixth of what starting a call
    costs, and the server's time is not ours."""

    __slots__ = ("_informational", "_parser", "_size")

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._parser.send(_ANY_REQUEST)
        self._size = 0
        self._informational = 0

    @property
    def rest(self) -> bytes:
        """The bytes behind the head."""
        return self._parser.trailing_data[0]

    def feed(self, data: bytes) -> h11.Response | None:
        """Take more bytes. Returns the final response once its head is whole. Raises `HeadError`."""
        parser = self._parser
        seen, self._size = self._size, self._size + len(data)
        parser.receive_data(data)
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
        if self._size > MAX_HEAD_BYTES * (1 + self._informational):
            raise HeadError(HEAD_TOO_LARGE)
        return None


def _not_http(data: bytes) -> str:
    hint = " (TLS on this port? use https://)" if data[:1] in (b"\x15", b"\x16") else ""
    return f"the answer is no HTTP/1.1{hint}: {data[:60]!r}"
