"""Find the response head in a server's bytes, check its size, split it into lines, and let h11 check their content.

h11's `Connection` would do the splitting, too. It keeps the state of both sides of a connection and copies the head
into a buffer of its own, which takes as many instructions as all checks.
"""

from __future__ import annotations

import re
from typing import Final

import h11

MAX_HEAD_BYTES: Final = 256 * 1024
MAX_HEAD_LINES: Final = 4096
"""The limits of `MAX_HEAD_BYTES` and `MAX_HEAD_LINES` apply to all heads of one response together, informational ones
included. A line needs microseconds and hundreds of bytes, however short it is."""
MAX_HEADER_LINE_BYTES: Final = 96 * 1024
"""The longest line of a head, including its LF. Servers and proxies allow 8 to 64 KiB."""
MAX_INFORMATIONAL: Final = 1000
"""Informational (1xx) responses before the final one."""

HEAD_TOO_LARGE: Final = f"the response head is larger than {MAX_HEAD_BYTES} bytes"
TOO_MANY_LINES: Final = f"the response head has more than {MAX_HEAD_LINES} lines"
LINE_TOO_LONG: Final = f"a response header line is longer than {MAX_HEADER_LINE_BYTES} bytes"

_PROTOCOL = b"HTTP/1."
_HEAD_END = re.compile(rb"\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/([0-9]\.[0-9]) ([0-9]{3})(?: ([^\x00\n\r\f\v]*))?")  # RFC 9112, 4
_FOLDS = (b"\n ", b"\n\t")
"""What a head with a folded line contains (RFC 9112, 5.2)."""
SWITCHING_PROTOCOLS = 101
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

    __slots__ = ("_data", "_informational", "_line_start", "_lines", "_searched", "_size", "_upgrades", "rest")

    def __init__(self, *, upgrades: bool = False) -> None:
        """Create it. upgrades: the request asks for another protocol, so that 101 is a final response."""
        self.rest: bytes = b""
        self._upgrades = upgrades
        self._data = bytearray()
        self._searched = 0  # offset before which no head ends
        self._line_start = 0  # offset at which the last line begins
        self._informational = 0
        self._size = self._lines = 0  # bytes and lines of the heads parsed so far

    def feed(self, data: bytes) -> h11.Response | h11.InformationalResponse | None:
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
            if isinstance(event, h11.Response) or event.status_code == SWITCHING_PROTOCOLS:
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

    def _parse(self, head: bytes) -> h11.InformationalResponse | h11.Response:
        self._size += len(head)
        self._lines += head.count(b"\n")
        if self._size > MAX_HEAD_BYTES:
            raise HeadError(HEAD_TOO_LARGE)
        if len(head) > MAX_HEADER_LINE_BYTES and max(map(len, head.split(b"\n"))) >= MAX_HEADER_LINE_BYTES:
            raise HeadError(LINE_TOO_LONG)
        if self._lines > MAX_HEAD_LINES:
            raise HeadError(TOO_MANY_LINES)
        try:
            return parse_head(head, upgrades=self._upgrades)
        except (h11.LocalProtocolError, ValueError) as error:  # "local", because the event is made here
            reason = str(error)
        # The message quotes at most one line of the response, and nothing of the request.
        raise HeadError(f"malformed response: {reason[:_SHOWN_CHARACTERS]}", quotes=True)


def parse_head(head: bytes, *, upgrades: bool = False) -> h11.InformationalResponse | h11.Response:
    """Return a complete head, with its blank line, as h11's event. `upgrades`: 101 was asked for.

    Raises `ValueError` for lines that are no head, and `h11.LocalProtocolError` for a name, a value or a length that
    HTTP forbids.
    """
    lines = [line.removesuffix(b"\r") for line in head.split(b"\n")[:-2]]
    status_line = lines.pop(0) if lines else b""
    if not status_line:
        raise ValueError("no response line received")
    matched = _STATUS_LINE.fullmatch(status_line)
    if matched is None:
        raise ValueError(f"illegal status line: {status_line!r}")
    if any(fold in head for fold in _FOLDS):
        lines = _unfolded(lines)
    headers: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError(f"illegal header line: {line!r}")
        headers.append((name, value.strip(b" \t")))
    version, status, reason = matched.groups(b"")
    code = int(status)
    if code == SWITCHING_PROTOCOLS and not upgrades:
        raise ValueError("the server switches to another protocol, which was not asked for")
    kind = h11.InformationalResponse if code < 200 else h11.Response
    return kind(status_code=code, headers=headers, http_version=version, reason=reason)


def _unfolded(lines: list[bytes]) -> list[bytes]:
    """Return the header lines with each folded line in one: a line break and its white space are one space."""
    whole: list[list[bytes]] = []
    for line in lines:
        if not line.startswith((b" ", b"\t")):
            whole.append([line])
        elif whole:
            whole[-1].append(line.lstrip(b" \t"))
        else:
            raise ValueError("continuation line at start of headers")
    return [b" ".join(parts) for parts in whole]


def _check_protocol(data: bytearray) -> None:
    """Raise `HeadError` at once for bytes that are not HTTP/1: h11 would wait for a complete head that never comes."""
    if data.startswith(_PROTOCOL[: len(data)]):
        return
    hint = " (TLS on this port? use https://)" if data.startswith((b"\x15", b"\x16")) else ""
    raise HeadError(f"the response is not HTTP/1.1{hint}: {bytes(data[:_SHOWN_BYTES])!r}", quotes=True)
