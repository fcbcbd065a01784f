"""Find the response head in a server's bytes, check its size, and parse it with h11.

Knows where a head ends and how large a head and its parts may be. Must not know sockets or bodies.

h11 receives a head only if it is complete and within the bounds. h11's pattern for a header line backtracks over the
white space at the beginning of a value: without a bound, 120 KB of white space took two minutes, during which no stream
was read.
"""

from __future__ import annotations

import re
from typing import Final

import h11

MAX_HEAD_BYTES: Final = 256 * 1024
MAX_HEAD_LINES: Final = 4096
"""The limits of `MAX_HEAD_BYTES` and `MAX_HEAD_LINES` apply to all heads of one response together, informational ones
included. h11 needs microseconds and hundreds of bytes for each line, however short it is."""
MAX_HEADER_LINE_BYTES: Final = 96 * 1024
"""The longest line of a head, including its LF. Servers and proxies allow 8 to 64 KiB."""
MAX_PADDING: Final = 64
"""Characters of white space, folded lines included, that a header's value may begin with. One space is usual."""
MAX_INFORMATIONAL: Final = 1000
"""Informational (1xx) responses before the final one."""

HEAD_TOO_LARGE: Final = f"the response head is larger than {MAX_HEAD_BYTES} bytes"
TOO_MANY_LINES: Final = f"the response head has more than {MAX_HEAD_LINES} lines"
LINE_TOO_LONG: Final = f"a response header line is longer than {MAX_HEADER_LINE_BYTES} bytes"
TOO_MUCH_PADDING: Final = f"a response header's value begins with more than {MAX_PADDING} characters of white space"

_ANY_REQUEST = h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")])
"""Puts an h11 parser into the state in which it expects a response head. This request is never sent."""

_PROTOCOL = b"HTTP/1."
_HEAD_END = re.compile(rb"\n\r?\n")
_PADDED = re.compile(rb":[ \t\r\n]{%d}" % (MAX_PADDING + 1))
_SHOWN_BYTES = 60
_SHOWN_CHARACTERS = 200


class HeadError(ValueError):
    """The bytes are not a response head, or the head is too large.

    quotes: the message quotes bytes that the server sent.
    """

    def __init__(self, message: str, *, quotes: bool = False) -> None:
        super().__init__(message)
        self.quotes: bool = quotes


class HeadReader:
    """An incremental reader of a server's bytes up to the end of the final head. It skips informational heads.

    rest: the bytes after the final head; empty before that head is complete.
    """

    __slots__ = ("_data", "_informational", "_line_start", "_lines", "_parser", "_searched", "_size", "rest")

    def __init__(self) -> None:
        self.rest: bytes = b""
        self._data = bytearray()
        self._searched = 0  # offset before which no head ends
        self._line_start = 0  # offset at which the last line begins
        self._informational = 0
        self._size = self._lines = 0  # bytes and lines of the heads parsed so far
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._parser.send(_ANY_REQUEST)

    def feed(self, data: bytes) -> h11.Response | None:
        """Read the next bytes, cut anywhere. Returns the final head once it is complete.

        Raises `HeadError`. After that, or after the final head, do not call `feed` again.
        """
        held = self._data
        newline = data.rfind(b"\n")
        if newline >= 0:
            self._line_start = len(held) + newline + 1
        held += data
        if not self._informational and len(held) - len(data) < len(_PROTOCOL):
            _check_protocol(held)
        while (end := self._head_end()) > 0:
            event = self._parse(bytes(held[:end]))
            del held[:end]
            self._searched = 0
            self._line_start -= end  # negative if no line follows the head
            if isinstance(event, h11.Response):
                if not event.http_version.startswith(b"1."):  # after an informational response; h11 takes any version
                    version = event.http_version.decode("ascii")
                    raise HeadError(f"the response is not HTTP/1.1: HTTP/{version}", quotes=True)
                self.rest = bytes(held)
                held.clear()
                return event
            self._informational += 1
            if self._informational > MAX_INFORMATIONAL:
                raise HeadError(f"malformed response: more than {MAX_INFORMATIONAL} informational responses")
        if len(held) - max(0, self._line_start) > MAX_HEADER_LINE_BYTES:
            raise HeadError(LINE_TOO_LONG)
        if len(held) > MAX_HEAD_BYTES:
            raise HeadError(HEAD_TOO_LARGE)
        return None

    def _head_end(self) -> int:
        """Return the offset after the first head and its blank line; 0 if the head is not complete."""
        held = self._data
        if held.startswith((b"\n", b"\r\n")):
            return held.index(b"\n") + 1
        match = _HEAD_END.search(held, self._searched)
        if match is None:
            self._searched = max(0, len(held) - 2)
            return 0
        return match.end()

    def _parse(self, head: bytes) -> object:
        self._size += len(head)
        self._lines += head.count(b"\n")
        if self._size > MAX_HEAD_BYTES:
            raise HeadError(HEAD_TOO_LARGE)
        if len(head) > MAX_HEADER_LINE_BYTES and max(map(len, head.split(b"\n"))) >= MAX_HEADER_LINE_BYTES:
            raise HeadError(LINE_TOO_LONG)
        if _PADDED.search(head):
            raise HeadError(TOO_MUCH_PADDING)
        if self._lines > MAX_HEAD_LINES:
            raise HeadError(TOO_MANY_LINES)
        self._parser.receive_data(head)
        try:
            return self._parser.next_event()
        except h11.RemoteProtocolError as error:
            # h11's message quotes at most one line of the response, and nothing of the request.
            reason = str(error)[:_SHOWN_CHARACTERS]
        raise HeadError(f"malformed response: {reason}", quotes=True)


def _check_protocol(data: bytearray) -> None:
    """Raise `HeadError` at once for bytes that are not HTTP/1: h11 would wait for a complete head that never comes."""
    if data.startswith(_PROTOCOL[: len(data)]):
        return
    hint = " (TLS on this port? use https://)" if data.startswith((b"\x15", b"\x16")) else ""
    raise HeadError(f"the response is not HTTP/1.1{hint}: {bytes(data[:_SHOWN_BYTES])!r}", quotes=True)
