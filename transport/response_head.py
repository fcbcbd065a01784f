"""Response heads: found at the front of what a server sends, bounded, and parsed by h11.

Knows where a head ends, and how large a head and its parts may be. Must not know sockets, nor bodies.

h11 gets a head only when it is whole and within the bounds. Its pattern for a header line backtracks over the white
space at the beginning of a value: without a bound, 120 KB of it took two minutes, during which no stream is read.
"""

from __future__ import annotations

import re
from typing import Final

import h11

MAX_HEAD_BYTES: Final = 256 * 1024
MAX_HEAD_LINES: Final = 4096
"""Size and lines are those of all heads of one response together, the informational ones included. h11 takes
microseconds and hundreds of bytes for each line, however short it is."""
MAX_HEADER_LINE_BYTES: Final = 96 * 1024
"""The longest line of a head, its LF included. Servers and proxies allow 8 to 64 KiB."""
MAX_PADDING: Final = 64
"""White space, folded lines included, that a header's value may begin with. One space is usual."""
MAX_INFORMATIONAL: Final = 1000

HEAD_TOO_LARGE: Final = f"the response head is larger than {MAX_HEAD_BYTES} bytes"
TOO_MANY_LINES: Final = f"the response head has more than {MAX_HEAD_LINES} lines"
LINE_TOO_LONG: Final = f"a response header line is longer than {MAX_HEADER_LINE_BYTES} bytes"
TOO_MUCH_PADDING: Final = f"a response header's value begins with more than {MAX_PADDING} characters of white space"

_ANY_REQUEST = h11.Request(method="POST", target="/", headers=[("Host", "any"), ("Content-Length", "0")])
"""Brings a parser into the state in which it reads a response's head; nothing of it is sent."""

_PROTOCOL = b"HTTP/1."
_HEAD_END = re.compile(rb"\n\r?\n")
_PADDED = re.compile(rb":[ \t\r\n]{%d}" % (MAX_PADDING + 1))
_SHOWN_BYTES = 60
_SHOWN_CHARACTERS = 200


class HeadError(ValueError):
    """The bytes are no response head, or one that is too large.

    quotes: the message quotes what the server sent.
    """

    def __init__(self, message: str, *, quotes: bool = False) -> None:
        super().__init__(message)
        self.quotes: bool = quotes


class HeadReader:
    """Takes what a server sends, cut anywhere, up to the end of the final head. Informational heads are skipped.

    rest: the bytes after the final head; empty before.
    """

    __slots__ = ("_data", "_informational", "_line_start", "_lines", "_parser", "_searched", "_size", "rest")

    def __init__(self) -> None:
        self.rest: bytes = b""
        self._data = bytearray()
        self._searched = 0  # no head ends before this place
        self._line_start = 0  # where the last line begins
        self._informational = 0
        self._size = self._lines = 0  # of the heads that were parsed
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._parser.send(_ANY_REQUEST)

    def feed(self, data: bytes) -> h11.Response | None:
        """Take the next bytes; returns the final head once it is whole. Raises `HeadError`; give no more input then."""
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
            self._line_start -= end  # negative where the head's last line was the last one
            if isinstance(event, h11.Response):
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
        """Where the first head ends, its blank line included; 0 where that has not come."""
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
            # h11 quotes at most a line of the response; nothing of the request is in it.
            reason = str(error)[:_SHOWN_CHARACTERS]
        raise HeadError(f"malformed response: {reason}", quotes=True)


def _check_protocol(data: bytearray) -> None:
    """Refuse at once what cannot become HTTP/1: h11 would wait for a whole head that never comes."""
    if data.startswith(_PROTOCOL[: len(data)]):
        return
    hint = " (TLS on this port? use https://)" if data.startswith((b"\x15", b"\x16")) else ""
    raise HeadError(f"the answer is no HTTP/1.1{hint}: {bytes(data[:_SHOWN_BYTES])!r}", quotes=True)
