"""An HTTP/1.1 server (RFC 9112) with WebSockets: what the simulator and the gateway have in common.

`RequestReader` reads requests incrementally. `HTTPConnection` is one client's socket: it reads one request after the
other, and sends what the socket takes. After `open_websocket` it reads messages instead. A subclass answers them: the
simulator's with frames that are written beforehand, an `AnsweringConnection` with responses. `HTTPServer` accepts
connections. Both are served by a `Loop`: the simulator's or the engine's.

Of the library, this module imports the frames of a WebSocket: the simulator, which tests the library, shares no other
code with it.

One file because a connection, its reader and its server hold each other's state.
"""

from __future__ import annotations

import abc
import contextlib
import errno
import logging
import re
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Protocol, TypeAlias
from urllib.parse import parse_qsl, unquote

from .transport.websocket import (
    CLOSE,
    PING,
    POLICY,
    PONG,
    FrameError,
    FrameReader,
    HandshakeError,
    accept_upgrade,
    decode_close,
    encode_close,
    encode_frame,
)

Headers: TypeAlias = Sequence[tuple[str, str]]

logger: logging.Logger = logging.getLogger("manystream.http_server")

BACKLOG = 4096
ACCEPTS_PER_ITERATION = 256
RECEIVE_SIZE = 65536
UNREAD_LIMIT = 1 << 20
"""A connection is closed when it sends more than this during its response."""

REQUEST_SECONDS = 60.0
"""Seconds in which a request must come, or `LEAST_BYTES` more of it. An idle connection is closed after as many."""

READ_SECONDS = 30.0
"""Seconds in which a client must read what is sent to it, or `LEAST_BYTES` of it."""

LEAST_BYTES = 64 * 1024
ACCEPT_PAUSE = 0.1
"""Seconds until connections are accepted again after no file descriptor was left."""

WEBSOCKET_SECONDS = 3600.0
"""Seconds that a WebSocket lives, as at OpenAI. An idle one is pinged at each `REQUEST_SECONDS`."""

STREAM_LIMIT = 32
"""The number of names of streams of a WebSocket, as at OpenAI."""

SPARE_DESCRIPTORS = 16
"""The number of waiting connections that are closed when no file descriptor is left: their answers need some, too."""

HEAD_LIMIT = 64 * 1024
BODY_LIMIT = 64 * 1024 * 1024
_LENGTH_DIGITS = 18
"""A content length with more digits is above every limit."""
_BLANK_LINE = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_WOULD_BLOCK = (BlockingIOError, InterruptedError)
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_STREAM = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*+(?:;[\t -~\x80-\xff]*+)?+")

_TOKEN = re.compile(r"[!#-'*+.0-9A-Z^_`a-z|~-]++")
_TARGET = re.compile(r"[!-~]++")
_HTTP_1 = re.compile(r"HTTP/1\.[0-9]")
_CONTROLS = re.compile(r"[\0-\x08\n-\x1f\x7f]")
_SINGLE = ("content-length", "host", "transfer-encoding")
_ALONE = ("host", "transfer-encoding")

CONNECTION_HEADERS = frozenset({
    "connection", "content-length", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade",
})  # fmt: skip
"""Headers that are for one connection: a proxy does not pass them on (RFC 9110, 7.6.1), but writes its own."""

LAST_CHUNK = b"0\r\n\r\n"
_VERSION = b"HTTP/1.1 "

REASONS = {
    101: "Switching Protocols", 102: "Processing", 200: "OK", 202: "Accepted", 400: "Bad Request",
    401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 413: "Content Too Large", 415: "Unsupported Media Type",
    422: "Unprocessable Content", 426: "Upgrade Required", 429: "Too Many Requests",
    431: "Request Header Fields Too Large", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway",
    503: "Service Unavailable", 504: "Gateway Timeout", 529: "Site Overloaded",
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
    chunked: the client understands a response in chunks: it speaks HTTP/1.1.
    """

    method: str
    target: str
    headers: dict[str, str]
    body: bytes = b""
    keep_alive: bool = True
    chunked: bool = True

    @property
    def path(self) -> str:
        return unquote(self.target.partition("?")[0])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(self.target.partition("?")[2]))

    @property
    def key(self) -> str:
        """The API key, wherever a dialect puts it; empty if there is none."""
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        bearer = token.strip() if scheme.lower() == "bearer" else ""
        named = (self.headers.get(name, "") for name in ("x-api-key", "api-key", "x-goog-api-key"))
        return bearer or next(filter(None, named), "") or self.query.get("key", "")


class RequestReader:
    """An incremental reader: `feed` takes bytes, `next_request` returns one complete request at a time.

    codings: the content codings that its user can read, beside `identity`.
    expects_continue: the client of the request that is being read waits for `100 Continue`. The caller resets it.
    """

    __slots__ = ("_buffer", "_chunks", "_head", "_length", "_request", "_searched", "codings", "expects_continue")

    def __init__(self, codings: Sequence[str] = ()) -> None:
        self.codings: Sequence[str] = codings
        self._buffer = bytearray()
        self._searched = 0
        self._request: HTTPRequest | None = None
        self._head: HTTPRequest | None = None  # the same, until it was taken
        self._length = 0
        self._chunks: bytearray | None = None
        self.expects_continue: bool = False

    def take_head(self) -> HTTPRequest | None:
        """Return the request whose body is incomplete, once: its head is looked at once. Then None."""
        head, self._head = self._head, None
        return head

    @property
    def buffered(self) -> int:
        """Number of bytes received that belong to no request yet."""
        return len(self._buffer)

    @property
    def pending(self) -> int:
        """Number of bytes of an incomplete request; 0 while there is none."""
        size = len(self._buffer) + len(self._chunks or ())
        return max(1, size) if self._request is not None else size

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def take_rest(self) -> bytes:
        """Return the bytes after the last request, and forget them."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

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
            _check_beginning(self._buffer)
            self._searched = len(self._buffer)
            return None
        self._searched = 0
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        request = _parsed_head(lines)
        if "transfer-encoding" in request.headers and "content-length" in request.headers:
            request.keep_alive = False  # RFC 9112, 6.3: others on the way may disagree about the body's end
        self._expect_body(request.headers)
        self._request = self._head = request
        return request

    def _expect_body(self, headers: dict[str, str]) -> None:
        compression = headers.get("content-encoding", "identity").lower()
        if compression not in ("identity", *self.codings):
            known = f"{', '.join(self.codings)}, or " if self.codings else ""
            text = f"content-encoding {compression[:40]!r} is not supported: send the body {known}uncompressed"
            raise BadRequest(415, text)
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
        """The body, or None while it is incomplete. No byte is searched twice. `chunks`: what has been read of it."""
        buffer = self._buffer
        while self._length >= 0:  # how much must have come before there is more to read; -1: of trailers
            if len(buffer) < self._length:
                return None
            line_end = buffer.find(b"\r\n", max(0, self._searched - 1), HEAD_LIMIT)
            if line_end < 0:
                if len(buffer) >= HEAD_LIMIT:
                    raise BadRequest(400, f"a line with a chunk size is longer than {HEAD_LIMIT} bytes")
                self._searched = len(buffer)
                return None
            self._searched = line_end
            line = _CHUNK_SIZE.fullmatch(buffer[:line_end])
            if line is None:
                raise BadRequest(400, "a chunk size is not a hexadecimal number")
            size = int(line[1], 16)
            if len(chunks) + size > BODY_LIMIT:
                raise BadRequest(413, f"the request's body is longer than {BODY_LIMIT} bytes")
            start, end = line_end + 2, line_end + 2 + size
            if size == 0:
                del buffer[:line_end]  # without trailers, its line end is the first of two
                self._length, self._searched = -1, 0
            elif len(buffer) < end + 2:
                self._length = end + 2
            elif not buffer.startswith(b"\r\n", end):
                raise BadRequest(400, "a chunk is longer than its size")
            else:
                chunks += buffer[start:end]
                del buffer[: end + 2]
                self._length = self._searched = 0
        return self._read_trailers(chunks)

    def _read_trailers(self, chunks: bytearray) -> bytes | None:
        """The body, once its trailers end with a blank line."""
        end = self._buffer.find(_BLANK_LINE, max(0, self._searched - 3), HEAD_LIMIT)
        if end < 0:
            if len(self._buffer) >= HEAD_LIMIT:
                raise BadRequest(431, f"the request's trailers are longer than {HEAD_LIMIT} bytes")
            self._searched = len(self._buffer)
            return None
        _parsed_fields(self._buffer[:end].decode("latin-1").split("\r\n")[1:])
        del self._buffer[: end + 4]
        self._searched = 0
        return bytes(chunks)


def _check_beginning(received: bytearray) -> None:
    """Raise `BadRequest` for the beginning of something else, such as TLS, whose client would wait for ever."""
    line_end = received.find(b"\n")
    if received and not (received[:1].isalpha() or received.startswith(b"\r")):
        raise BadRequest(400, "the first line is not an HTTP/1.1 request line")
    if line_end == 0 or (line_end > 0 and received[line_end - 1] != 13):
        raise BadRequest(400, "a line does not end with CR and LF")


def _parsed_head(lines: list[str]) -> HTTPRequest:
    parts = lines[0].split(" ")
    forms = (_TOKEN, _TARGET, _HTTP_1)
    if len(parts) != 3 or not all(form.fullmatch(part) for form, part in zip(forms, parts, strict=True)):
        raise BadRequest(400, "the first line is not an HTTP/1.1 request line")
    headers = _parsed_fields(lines[1:])
    target = parts[1]
    if target.startswith("http://"):  # the absolute form (RFC 9112, 3.2.2), whose host counts
        headers["host"], slash, path = target[7:].partition("/")
        target = slash + path or "/"
    if "host" not in headers and parts[2] != "HTTP/1.0":
        raise BadRequest(400, "there is no Host header, which HTTP/1.1 requires")
    connection = headers.get("connection", "").lower()
    keep_alive = "keep-alive" in connection if parts[2] == "HTTP/1.0" else "close" not in connection
    return HTTPRequest(parts[0], target, headers, keep_alive=keep_alive, chunked=parts[2] != "HTTP/1.0")


def _parsed_fields(lines: list[str]) -> dict[str, str]:
    """The headers, or trailers, of these lines."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or _TOKEN.fullmatch(name) is None:
            raise BadRequest(400, "a header line has no name")
        if _CONTROLS.search(value) is not None:
            raise BadRequest(400, f"the header {name[:40]!r} has a control character")
        name, value = name.lower(), value.strip(" \t")
        if name in _SINGLE and headers.get(name, value) != value:
            raise BadRequest(400, f"there are two {name} headers with different values")
        if name in _ALONE and name in headers:
            raise BadRequest(400, f"there are two {name} headers")
        headers[name] = value
    return headers


def http_head(status: int, headers: Headers) -> bytes:
    """The status line and the headers of a response."""
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def websocket_head(request: HTTPRequest) -> bytes:
    """The head of the response that opens a WebSocket. Raises `BadRequest` for a request that cannot open one."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    try:
        accepted = accept_upgrade(request.method.encode(), headers if request.chunked else ())
    except HandshakeError as error:
        raise BadRequest(error.status, str(error)) from None
    return http_head(101, [(name.decode(), value.decode()) for name, value in accepted])


def text_frame(message: bytes) -> bytes:
    """The frame of a text that a WebSocket's server sends."""
    return encode_frame(message, masked=False)


def close_frame(code: int, reason: str = "") -> bytes:
    """The frame with which it closes the WebSocket."""
    return encode_frame(encode_close(code, reason), CLOSE, masked=False)


PING_FRAME = encode_frame(b"", PING, masked=False)


def chunk(data: bytes) -> bytes:
    """The data as one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Watched(Protocol):
    """An object with a socket, which a loop serves."""

    @property
    def sock(self) -> socket.socket: ...
    @property
    def label(self) -> str: ...
    def on_readable(self) -> None: ...
    def on_writable(self) -> None: ...
    def on_defect(self, error: Exception) -> None: ...


class Loop(Protocol):
    """The event loop that serves the sockets: the simulator's or the engine's."""

    def clock(self) -> float:
        """Return the time in seconds, from an arbitrary start."""
        ...

    def add(self, connection: Watched, /) -> None:
        """Start to watch the socket for readability."""
        ...

    def remove(self, connection: Watched, /) -> None:
        """Stop watching the socket, before it is closed."""
        ...

    def watch(self, connection: Watched, /, *, read: bool, write: bool) -> None:
        """Watch the socket for readability, for writability, for both or for neither."""
        ...


class HTTPConnection(abc.ABC):
    """One client's connection. It reads one request after the other; a subclass answers them.

    sock: the socket, which does not block.
    send: the socket's own method.
    codings: the content codings of a request's body that the subclass reads.
    answering: a request is being answered. The next one is read after `next`.
    ended: the client sends nothing more.
    unsent: bytes that the socket has not taken yet.
    taken: the number of such bytes that it has taken later.
    websocket: reads what comes as messages; None while the connection speaks HTTP.
    """

    __slots__ = (
        "_discards", "_is_reading", "_server", "answering", "ended", "label", "reader", "send", "sock", "taken",
        "unsent", "websocket",
    )  # fmt: skip

    def __init__(self, server: HTTPServer, sock: socket.socket) -> None:
        self.sock: socket.socket = sock
        self.send: Callable[[bytes | memoryview], int] = sock.send
        self.reader: RequestReader = RequestReader(self.codings)
        self.answering: bool = False
        self.ended: bool = False
        self.unsent: bytes | memoryview = b""
        self.taken: int = 0
        self.label: str = ""
        self.websocket: WebSocket | None = None
        self._server = server
        self._is_reading = False
        self._discards = 0  # bytes that may still come of what was refused before its end

    # --- for the subclass to define ---

    codings: ClassVar[Sequence[str]] = ()

    @abc.abstractmethod
    def begin(self, request: HTTPRequest) -> None:
        """Answer a request. After its answer, `next` is to be called."""

    @abc.abstractmethod
    def refuse(self, error: BadRequest) -> None:
        """Answer bytes that are no request. The connection is to be dropped after it."""

    def check(self, request: HTTPRequest) -> None:
        """Look at a request whose body has not come as a whole. Raises `BadRequest` to refuse it."""
        return

    @abc.abstractmethod
    def drained(self) -> None:
        """The socket has taken all bytes that were unsent."""

    @abc.abstractmethod
    def client_left(self) -> None:
        """The client has closed the connection, perhaps during an answer. The connection is to be dropped."""

    def input_ended(self) -> None:
        """The client sends nothing more. It has left, unless a subclass knows better."""
        self.client_left()

    def too_late(self) -> None:
        """The next request did not come in time."""
        if self.websocket is not None and not self._discards:
            self.websocket.waited()
            return
        if not self.reader.pending:
            self.client_left()
            return
        self.answering = True
        self.refuse(BadRequest(408, f"the rest of the request did not come in {REQUEST_SECONDS:g} seconds"))

    # --- driven by the loop ---

    def on_readable(self) -> None:
        """Receive bytes of requests."""
        try:
            data = self.sock.recv(RECEIVE_SIZE)
        except _WOULD_BLOCK:
            return
        except OSError:
            self.client_left()
            return
        if self._discards:
            self._discards = max(0, self._discards - len(data)) if data else 0
            if not self._discards:
                self.client_left()
            return
        if self.websocket is not None:
            if data:
                self.websocket.receive(data)
            else:
                self.client_left()
            return
        if not data:
            self.input_ended()
            return
        if not self.answering and not self.reader.pending:
            self._server.wait_for(self)
        self.reader.feed(data)
        if not self.answering:
            self.next()
        elif self.reader.buffered > UNREAD_LIMIT:
            self.client_left()

    def on_writable(self) -> None:
        """Send bytes that the socket did not take before."""
        try:
            sent = self.send(self.unsent)
        except _WOULD_BLOCK:
            return
        except OSError:
            self.client_left()
            return
        self.taken += sent
        self.unsent = self.unsent[sent:]
        if not self.unsent:
            self._server.loop.watch(self, read=not self.ended, write=False)
            self.drained()

    def on_defect(self, error: Exception) -> None:
        """Drop the connection after a defect: a method that the loop has called raised."""
        self.client_left()

    # --- for the subclass to call ---

    @property
    def is_open(self) -> bool:
        """Whether the connection was not dropped."""
        return self in self._server.connections

    def next(self) -> None:
        """Read the next complete request, if there is one, and begin its answer."""
        self.answering = False
        if self.websocket is not None:
            self.websocket.next()
            return
        if self._is_reading:
            return  # the loop below reads it: an answer may end inside `begin`
        self._is_reading = True
        try:
            while not self.answering and self.is_open:
                request = self._read()
                if request is not None:
                    self.answering = True
                    self._server.waiting.pop(self, None)
                    self.begin(request)
                elif self.ended and not self.answering:
                    self.client_left()
                else:
                    break
            if not self.answering and self.is_open and self not in self._server.waiting:
                self._server.wait_for(self)
        finally:
            self._is_reading = False

    def _read(self) -> HTTPRequest | None:
        """Return the next request, or None if there is none to answer."""
        reader = self.reader
        try:
            request = reader.next_request()
            head = reader.take_head()
            if request is None and head is not None:
                self.check(head)
            if request is None and reader.expects_continue:
                reader.expects_continue = False
                self.write(_CONTINUE)
        except BadRequest as error:
            self.answering = True
            self._server.waiting.pop(self, None)
            self.refuse(error)
            return None
        return request

    def open_websocket(self, websocket: WebSocket) -> None:
        """Read messages from now on. The head of the response was sent."""
        self.websocket = websocket
        self.next()
        rest = self.reader.take_rest()
        if rest and self.is_open:
            websocket.receive(rest)

    def discard(self) -> None:
        """Read what still comes of what was refused. If its socket were closed now, TCP would reset the connection,
        and its client, which still sends, would not read the answer."""
        self._discards = BODY_LIMIT
        self.answering = False
        self.reader = RequestReader()
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
        self._server.wait_for(self)

    def write(self, data: bytes) -> None:
        """Send bytes, and keep what the socket does not take."""
        if self.unsent:
            self.unsent = b"".join((self.unsent, data))
            return
        try:
            sent = self.send(data)
        except _WOULD_BLOCK:
            sent = 0
        except OSError:
            self.client_left()
            return
        if sent != len(data):
            self.keep(memoryview(data)[sent:])

    def keep(self, rest: bytes | memoryview) -> None:
        """Keep bytes that the socket did not take, and send them when it takes more."""
        self.unsent = rest
        self._server.loop.watch(self, read=not self.ended, write=True)

    def close(self, *, reset: bool = False) -> None:
        """Close the socket; with `reset` the peer gets a TCP reset instead of a FIN. Called by `HTTPServer.drop`."""
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.sock.close()


class WebSocket(abc.ABC):
    """The messages of a connection that has become a WebSocket (RFC 6455). A subclass answers them.

    until: when it has lived its time, on the loop's clock. It then ends as soon as it answers nothing.
    streams: the names of its streams so far, which Responses calls `stream_id`.
    """

    __slots__ = ("_is_closed", "_is_pinged", "_reader", "connection", "server", "streams", "until")

    def __init__(self, connection: HTTPConnection, server: HTTPServer, until: float) -> None:
        self.connection: HTTPConnection = connection
        self.server: HTTPServer = server
        self.until: float = until
        self.streams: set[str] = set()
        self._reader = FrameReader(BODY_LIMIT, masked=True)
        self._is_pinged = self._is_closed = False

    # --- for the subclass to define ---

    @abc.abstractmethod
    def message(self, data: bytes) -> None:
        """Answer a message, or keep it."""

    @abc.abstractmethod
    def outlived(self) -> None:
        """The WebSocket has lived its time, and answers nothing. `close` is to be called."""

    def next(self) -> None:
        """Go on after an answer."""
        self.rest()

    def close(self, code: int, reason: str = "") -> None:
        """Send a close frame, and read nothing more. What is being answered gets no end."""
        connection = self.connection
        if self._is_closed:
            return
        self._is_closed = True
        connection.write(close_frame(code, reason))
        if connection.answering or connection.unsent:
            connection.client_left()
        elif connection.is_open:
            connection.discard()

    # --- for the subclass to call ---

    def begin(self) -> None:
        """Begin an answer. After it, the connection's `next` is to be called."""
        self.connection.answering = True
        self.server.waiting.pop(self.connection, None)

    def send(self, message: bytes) -> None:
        self.connection.write(text_frame(message))

    def why_not(self, stream: object) -> tuple[str, str] | None:
        """Return code and message of the error for the name of a stream; None for a name that may be used."""
        if stream is None or stream in self.streams:
            return None
        if not isinstance(stream, str) or _STREAM.fullmatch(stream) is None:
            return "invalid_stream_id", "stream_id must be 1 to 256 letters, digits and ._-"
        if len(self.streams) >= STREAM_LIMIT:
            return "websocket_stream_limit_reached", f"a connection has at most {STREAM_LIMIT} named streams"
        self.streams.add(stream)
        return None

    # --- driven by the connection ---

    @property
    def pending(self) -> int:
        """Number of bytes of an incomplete message."""
        return self._reader.pending

    def receive(self, data: bytes) -> None:
        connection, pong, failure = self.connection, None, None
        if not connection.answering and not self.pending and not self.rest():
            return
        self._is_pinged = False
        try:
            messages = self._reader.feed(data)
        except FrameError as error:
            messages, failure = error.messages, error
        for opcode, payload in messages:
            if self._is_closed or not connection.is_open:
                return
            if opcode == CLOSE:
                self._closed(payload)
                return
            if opcode == PING:
                pong = payload
            elif opcode != PONG:
                self.message(payload)
        if failure is not None:
            self.close(failure.code, str(failure))
        elif pong is not None and not connection.unsent:  # the latest one counts (RFC 6455, 5.5.3)
            connection.write(encode_frame(pong, PONG, masked=False))

    def _closed(self, payload: bytes) -> None:
        try:
            decode_close(payload)
        except FrameError as error:
            payload = encode_close(error.code)
        self.connection.write(encode_frame(payload, CLOSE, masked=False))
        self.connection.client_left()

    def rest(self) -> bool:
        """Wait for the next message from now on. Returns False if it has lived its time, or was closed."""
        if self.connection.is_open and self.server.loop.clock() >= self.until:
            self.outlived()
        elif self.connection.is_open:
            self.server.wait_for(self.connection)
            return True
        return False

    def waited(self) -> None:
        """Look at a client that has sent nothing, or too little, for `REQUEST_SECONDS`."""
        if self.pending:
            self.close(POLICY, f"the rest of a message did not come in {REQUEST_SECONDS:g} seconds")
        elif self._is_pinged:
            self.connection.client_left()
        else:
            self._is_pinged = True
            self.connection.write(PING_FRAME)
            self.rest()


class AnsweringConnection(HTTPConnection):
    """A connection that answers with whole responses, and with responses whose bodies come in pieces.

    After `finish`, it goes on with the next request, or closes.

    has_head: the head of a response in pieces was sent.
    """

    __slots__ = ("_bodiless", "_chunked", "_closes", "_early", "_is_refused", "_stalls", "_waits", "has_head")

    def __init__(self, server: HTTPServer, sock: socket.socket) -> None:
        HTTPConnection.__init__(self, server, sock)
        self._is_refused = False  # before the end of the request, which may still come
        self._early = 0  # bytes of the next head that were sent
        self.has_head: bool = False
        self._bodiless = False  # the response has a head only (HEAD)
        self._chunked = True  # the client understands chunks (HTTP/1.1)
        self._closes = False  # after the response
        self._waits = False  # the response has ended, and the client has not read all of it
        self._stalls = 0  # how often the client had not read; negative while no timer looks at it

    # --- for the subclass to define ---

    @abc.abstractmethod
    def answer(self, request: HTTPRequest) -> None:
        """Answer a request, with `respond` or with `head`, `piece` and `finish`."""

    @abc.abstractmethod
    def answer_wrong(self, error: BadRequest) -> None:
        """Answer bytes that are no request, with `respond`. The connection closes after it."""

    @abc.abstractmethod
    def answered(self) -> None:
        """The response to a request has ended."""

    @abc.abstractmethod
    def has_room(self) -> None:
        """The socket has taken all bytes of a response that goes on."""

    # --- for the subclass to call ---

    def respond(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response."""
        head = self._rest_of_head(status, [*headers, ("content-length", str(len(body))), *self._closing()])
        self.write(head if self._bodiless else head + body)
        self.finish()

    def head(self, status: int, headers: Headers) -> bytes:
        """Return the head of a response whose body follows in pieces."""
        self._closes |= not self._chunked
        self.has_head = True
        framing = [("transfer-encoding", "chunked")] if self._chunked else []
        return self._rest_of_head(status, [*headers, *framing, *self._closing()])

    def interim(self, status: int) -> bytes:
        """Return an interim response."""
        return self._rest_of_head(status, [])

    def piece(self, data: bytes, *, last: bool = False) -> bytes:
        """Return a piece of such a body in its framing."""
        if not self._chunked:
            return data
        return (chunk(data) if data else b"") + (LAST_CHUNK if last else b"")

    def finish(self, *, cut: bool = False) -> None:
        """End the response. `cut`: close the connection, so that the client sees that it is not whole."""
        self.answered()
        self._closes |= cut
        if self.unsent:
            self._waits = True
        elif self._closes and self._is_refused and self.is_open and not self.ended:
            self.discard()
        elif self._closes:
            self._server.drop(self)
        elif self.is_open:
            self.next()

    def _closing(self) -> Headers:
        self._closes |= self._server.is_draining
        return [("connection", "close")] if self._closes else []

    def _rest_of_head(self, status: int, headers: Headers) -> bytes:
        sent, self._early = self._early, 0
        return http_head(status, headers)[sent:]

    # --- as the connection ---

    def keep(self, rest: bytes | memoryview) -> None:
        super().keep(rest)
        is_timed, self._stalls = self._stalls > 0, abs(self._stalls) + 1
        if not is_timed:
            self._expect_to_read()

    def _expect_to_read(self) -> None:
        """Drop the client if it reads too little in time: it holds its call, and the call's place in a limit."""
        stalls, taken = self._stalls, self.taken

        def look() -> None:
            if not self.unsent or not self.is_open:
                self._stalls = -self._stalls
            elif self._stalls == stalls and self.taken < taken + LEAST_BYTES:
                self.client_left()
            else:
                self._expect_to_read()

        self._server.at(self._server.loop.clock() + READ_SECONDS, look)

    def begin(self, request: HTTPRequest) -> None:
        self._bodiless = request.method == "HEAD"
        self._chunked = request.chunked
        self._closes = not request.keep_alive
        self.has_head = False
        self.answer(request)

    def refuse(self, error: BadRequest) -> None:
        self._closes = self._is_refused = True
        self.answer_wrong(error)

    def drained(self) -> None:
        if self._waits:
            self._waits = False
            self.finish()
        else:
            self.has_room()

    def input_ended(self) -> None:
        """Find out whether the client has closed the connection, or only its own direction of it.

        TCP reports both alike. So send the beginning of what follows in any case, of a head or of a chunk's size: the
        system of a client that has left answers with a reset, on loopback at once.
        """
        if not self.answering or self.ended:
            self.client_left()
            return
        self.ended = True
        self._server.loop.watch(self, read=False, write=bool(self.unsent))
        if not self.unsent and not self.has_head:
            self._early = len(_VERSION)
            self.write(_VERSION)
        elif not self.unsent and self._chunked:
            self.write(b"0")
        if self.is_open and self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.client_left()


class HTTPServer:
    """A listening socket, and the connections that it accepted.

    loop: serves the sockets.
    waiting: those that are to send a request, oldest first: until when, and the bytes of it that had come before.
    is_draining: connections are closed after their answers.
    host, port: where it listens.

    Raises `OSError` if it cannot listen there.
    """

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        make_connection: Callable[[socket.socket], HTTPConnection],
        at: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """Listen.

        port: 0 takes a free port.
        at: calls a function at a time of the loop's clock.
        """
        self.loop: Loop = loop
        self.connections: set[HTTPConnection] = set()
        self.waiting: dict[HTTPConnection, tuple[float, int]] = {}
        self.is_draining: bool = False
        self._on_quiet: Callable[[], None] | None = None
        self._has_timer = False
        self._make_connection = make_connection
        self.at: Callable[[float, Callable[[], None]], object] = at
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.sock: socket.socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self.sock.setblocking(False)
        self.label: str = "http server"
        self.host: str = self.sock.getsockname()[0]
        self.port: int = self.sock.getsockname()[1]
        loop.add(self)

    @property
    def answering(self) -> int:
        """The number of requests that are being answered."""
        return len(self.connections) - len(self.waiting)

    def on_readable(self) -> None:
        for _ in range(ACCEPTS_PER_ITERATION):
            try:
                accepted, _address = self.sock.accept()
            except _WOULD_BLOCK:
                return
            except OSError as error:
                if error.errno in _EXHAUSTED and not self._make_room():
                    return
                continue
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._make_connection(accepted)
            self.connections.add(connection)
            self.loop.add(connection)
            self.wait_for(connection)

    def _make_room(self) -> bool:
        """Close the connections that have waited longest for a request, since no file descriptor is left. If there is
        none, accept no connections for a while: the listener stays readable. Returns whether there was one."""
        oldest = list(islice(self.waiting, SPARE_DESCRIPTORS))
        for connection in oldest:
            connection.client_left()
        if not oldest:
            self.loop.watch(self, read=False, write=False)
            self.at(self.loop.clock() + ACCEPT_PAUSE, self._accept_again)
        return bool(oldest)

    def _accept_again(self) -> None:
        if self.sock.fileno() >= 0:
            self.loop.watch(self, read=True, write=False)

    def wait_for(self, connection: HTTPConnection) -> None:
        """Wait for the next request of a connection from now on, at most `REQUEST_SECONDS`."""
        self.waiting.pop(connection, None)
        self.waiting[connection] = self.loop.clock() + REQUEST_SECONDS, 0
        if not self._has_timer:
            self._arm()
        self._report_quiet()

    def _arm(self) -> None:
        """Set the timer to the end of the longest wait."""
        until = next((until for until, _ in self.waiting.values()), None)
        self._has_timer = until is not None
        if until is not None:
            self.at(until, self._end_waits)

    def _end_waits(self) -> None:
        now = self.loop.clock()
        for connection, (until, had) in list(self.waiting.items()):
            if until > now:
                break
            del self.waiting[connection]
            received = (connection.websocket or connection.reader).pending
            if received < had + LEAST_BYTES:
                connection.too_late()
            else:
                self.waiting[connection] = now + REQUEST_SECONDS, received
        self._arm()

    def drain(self, on_quiet: Callable[[], None]) -> None:
        """Close each connection after its answer. on_quiet: called when no request is being answered."""
        self.is_draining, self._on_quiet = True, on_quiet
        self._report_quiet()

    def _report_quiet(self) -> None:
        if self._on_quiet is not None and not self.answering:
            self._on_quiet()

    def on_writable(self) -> None:
        """Do nothing: a listening socket is not watched for writability."""

    def on_defect(self, error: Exception) -> None:
        """Go on after a defect: the connection that was accepted is lost."""

    def drop(self, connection: HTTPConnection, *, reset: bool = False) -> bool:
        """Close a connection. Returns False if that was done before."""
        if connection not in self.connections:
            return False
        self.connections.discard(connection)
        self.waiting.pop(connection, None)
        self.loop.remove(connection)
        connection.close(reset=reset)
        self._report_quiet()
        return True

    def close(self) -> None:
        """Stop listening. The connections stay open."""
        if self.sock.fileno() >= 0:
            self.loop.remove(self)
            self.sock.close()


def allow_many_sockets() -> None:
    """Raise the limit of open files of this process as far as the system allows."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
