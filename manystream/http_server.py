"""An HTTP/1.1 server (RFC 9112): what the simulator and the gateway have in common.

It reads heads, bodies with `content-length` and chunked bodies, and knows nothing of their meaning. Bytes that break
the grammar raise `BadRequest`. After that the connection cannot be read any further.

It imports nothing of the library: the simulator, which tests the library, shares no other code with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

Headers: TypeAlias = Sequence[tuple[str, str]]

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 64 * 1024 * 1024
_LENGTH_DIGITS = 18
"""A content length with more digits is above every limit."""
_BLANK_LINE = b"\r\n\r\n"
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*+(?:;.*+)?+", re.DOTALL)

LAST_CHUNK = b"0\r\n\r\n"

REASONS = {
    200: "OK", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
    405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 413: "Content Too Large",
    422: "Unprocessable Content", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout", 529: "Site Overloaded",
}  # fmt: skip


class BadRequest(Exception):
    """Bytes that are not an acceptable request. `status` is the HTTP status to respond with before closing."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(slots=True)
class HTTPRequest:
    """One request.

    headers: names in lower case. Of several headers of one name the last is kept.
    target: the request target as sent.
    path: the decoded path of the target.
    query: the decoded query of the target.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""
    keep_alive: bool = True

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2]))


class RequestReader:
    """An incremental reader: `feed` takes bytes, `next_request` returns one complete request at a time.

    expects_continue: the client of the request that is being read waits for `100 Continue`. The caller resets it.
    """

    __slots__ = ("_buffer", "_chunks", "_length", "_request", "_searched", "expects_continue")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._request: HTTPRequest | None = None
        self._length = 0
        self._chunks: bytearray | None = None
        self.expects_continue: bool = False

    @property
    def buffered(self) -> int:
        """Number of bytes received that belong to no request yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self._buffer += data

    def next_request(self) -> HTTPRequest | None:
        """The next request, or None while it is incomplete. Raises `BadRequest`."""
        request = self._request or self._read_head()
        if request is None:
            return None
        if self._chunks is not None:
            body = self._read_chunks(self._chunks)
            if body is None:
                return None
            request.body = body
        else:
            if len(self._buffer) < self._length:
                return None
            request.body = bytes(self._buffer[: self._length])
            del self._buffer[: self._length]
        self._request, self._chunks, self._length = None, None, 0
        self.expects_continue = False
        return request

    def _read_head(self) -> HTTPRequest | None:
        while self._buffer.startswith(b"\r\n"):  # RFC 9112 section 2.2: blank lines before a request are ignored
            del self._buffer[:2]
        end = self._buffer.find(_BLANK_LINE, max(0, self._searched - 3))
        if end > HEAD_LIMIT or (end < 0 and len(self._buffer) > HEAD_LIMIT):
            raise BadRequest(431, f"the request's head is longer than {HEAD_LIMIT} bytes")
        if end < 0:
            self._searched = len(self._buffer)
            return None
        self._searched = 0
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        request = _parsed_head(lines)
        self._expect_body(request.headers)
        self._request = request
        return request

    def _expect_body(self, headers: dict[str, str]) -> None:
        coding = headers.get("transfer-encoding", "").lower()
        if coding:
            if coding != "chunked":
                raise BadRequest(501, f"transfer-encoding {coding[:40]!r} is not supported")
            self._chunks = bytearray()
        else:
            length = headers.get("content-length", "0")
            if not (length.isascii() and length.isdigit()):
                raise BadRequest(400, f"content-length {length[:40]!r} is not a number")
            digits = length.lstrip("0")
            if len(digits) > _LENGTH_DIGITS or int(digits or "0") > BODY_LIMIT:  # `int` refuses thousands of digits
                raise BadRequest(413, f"the request's body is longer than {BODY_LIMIT} bytes")
            self._length = int(digits or "0")
        self.expects_continue = headers.get("expect", "").lower() == "100-continue"

    def _read_chunks(self, chunks: bytearray) -> bytes | None:
        """The body, or None while it is incomplete. `chunks`: what has been read of it."""
        buffer = self._buffer
        while True:
            line_end = buffer.find(b"\r\n", 0, HEAD_LIMIT)
            if line_end < 0:
                if len(buffer) >= HEAD_LIMIT:
                    raise BadRequest(400, f"a line with a chunk size is longer than {HEAD_LIMIT} bytes")
                return None
            line = _CHUNK_SIZE.fullmatch(buffer[:line_end])
            if line is None:
                raise BadRequest(400, "a chunk size is not a hexadecimal number")
            size = int(line[1], 16)
            if size == 0:
                return self._read_trailers(chunks, line_end)
            if len(chunks) + size > BODY_LIMIT:
                raise BadRequest(413, f"the request's body is longer than {BODY_LIMIT} bytes")
            start, end = line_end + 2, line_end + 2 + size
            if len(buffer) < end + 2:
                return None
            if not buffer.startswith(b"\r\n", end):
                raise BadRequest(400, "a chunk is longer than its size")
            chunks += buffer[start:end]
            del buffer[: end + 2]

    def _read_trailers(self, chunks: bytearray, line_end: int) -> bytes | None:
        """The body, once its trailers end with a blank line. Without trailers it follows the last chunk directly."""
        end = self._buffer.find(_BLANK_LINE, line_end, line_end + HEAD_LIMIT)
        if end < 0:
            if len(self._buffer) >= line_end + HEAD_LIMIT:
                raise BadRequest(431, f"the request's trailers are longer than {HEAD_LIMIT} bytes")
            return None
        del self._buffer[: end + 4]
        return bytes(chunks)


def _parsed_head(lines: list[str]) -> HTTPRequest:
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest(400, "the first line is not an HTTP/1.1 request line")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(400, "a header line has no name")
        name, value = name.lower(), value.strip()
        if name == "content-length" and headers.get(name, value) != value:
            raise BadRequest(400, "there are two content-length headers with different values")
        headers[name] = value
    connection = headers.get("connection", "").lower()
    keep_alive = "keep-alive" in connection if parts[2] == "HTTP/1.0" else "close" not in connection
    return HTTPRequest(parts[0], parts[1], headers, keep_alive=keep_alive)


def http_head(status: int, headers: Headers) -> bytes:
    """The status line and the headers of a response."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def chunk(data: bytes) -> bytes:
    """The data as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)
