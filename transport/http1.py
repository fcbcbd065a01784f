"""One connection, and the one HTTP/1.1 exchange that may be on it.

Knows sockets and HTTP/1.1: the request head is written as h11 writes it, `response_head` reads the response's head, and
the body is cut here, by length, by `chunked.ChunkDecoder`, or by the connection's end. Must not know what the body
says, who asked for it, nor when to give up (the engine has the clocks).

It is driven by the multi-request loop (`on_readable`, `on_writable`) and drives an `Exchange`, whose methods are
called in wire order and never from within `send`. A connection goes back to its owner exactly once per exchange:
`on_idle` when it can serve again, `on_closed` when it cannot.
"""

from __future__ import annotations

import enum
import logging
import socket
import ssl
from collections.abc import Callable

import h11

from .chunked import ChunkDecoder, ChunkError
from .errors import Phase, TransportError
from .exchange import ChunkReader, Exchange, WireHead
from .framing import BodyEnd, framing
from .liveness import is_quiet
from .loop import Loop
from .response_head import HeadError, HeadReader
from .tls_socket import TLSSocket

logger: logging.Logger = logging.getLogger("manystream.transport.http1")

RECEIVE_BYTES = 16 * 1024
"""Asked of the kernel at once. `recv` allocates this much each time, so more is only asked for while it fills."""
RECEIVE_BYTES_FULL = 128 * 1024

SEND_BYTES = 1024 * 1024
"""Sent at once: a server that reads as fast as we write would hold up every other stream."""

PEER_RESET = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError)
"""What `recv` raises where the peer has ended the connection."""
STALE_SECONDS = 0.05
STALE_ROUND_TRIPS = 2
"""A kept-alive connection that ends so soon after a request was written (in seconds, or in times that connecting took)
had been closed before the request reached the server."""

PEER_GONE = (ConnectionError, TimeoutError)
"""What `send` raises where the peer has left: its answer may have come before."""

MAX_BODY_BYTES = 2**60 - 1
"""No server means more; who says more would be waited for in vain."""
DRAIN_BYTES = 64 * 1024
"""What may follow an answer's terminal marker before the connection is given up rather than drained."""


class State(enum.Enum):
    """What the next byte belongs to."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    CLOSED = "closed"


HEAD, BODY = State.HEAD, State.BODY
"""By these names, as an enumeration's members take 0.1 µs to look up (CPython 3.11), twice per chunk."""


class _Hot:
    """What each read looks at, side by side (a base class's slots come first). Where thousands are open, none of it is
    in a cache any more; spread over a connection's 300 bytes, an event took 3 to 5 % longer."""

    __slots__ = (
        "_loop",
        "_receive",
        "_receive_bytes",
        "_tls",
        "fast_path",
        "label",
        "last_activity",
        "paused",
        "state",
    )


class Connection(_Hot):
    """A connected socket (plain or TLS, non-blocking).

    last_activity: when a byte last went either way, on the loop's clock. sent_at: when the request's last byte was
    handed to the kernel; None before. paused: nothing is read. received: bytes of the current response so far, up to
    the end of its head. served: exchanges finished. label: of the latest exchange, as its owner calls it in reports.
    fast_path: reads the chunks that come next, instead of the chunk decoder; None where nothing may. `on_readable` sets
    it after each read of the body, `_release` drops it with the exchange.
    """

    __slots__ = (
        "_began",
        "_body_end",
        "_decoder",
        "_draining",
        "_end_under_way",
        "_exchange",
        "_head_reader",
        "_keep_alive",
        "_method",
        "_on_closed",
        "_on_draining",
        "_on_idle",
        "_out",
        "_remaining",
        "_removed",
        "_send_error",
        "_write_broken",
        "idle_since",
        "opened_at",
        "origin",
        "received",
        "sent_at",
        "served",
        "sock",
    )

    def __init__(
        self,
        sock: socket.socket | TLSSocket,
        origin: str,
        loop: Loop,
        on_idle: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
        on_draining: Callable[[Connection], None] | None = None,
        *,
        connect_seconds: float = 0.0,
    ) -> None:
        self.sock: socket.socket | TLSSocket = sock
        self.origin: str = origin
        self.state: State = State.IDLE
        self.last_activity: float = loop.clock()
        self.idle_since: float = self.last_activity
        self.opened_at: float = self.last_activity
        self.sent_at: float | None = None
        self.received: int = 0
        self.served: int = 0
        self.label: str = ""
        self.fast_path: ChunkReader | None = None
        self._loop = loop
        self._on_idle = on_idle
        self._on_closed = on_closed
        self._on_draining = on_draining
        self._tls = sock if isinstance(sock, TLSSocket) else None
        self._exchange: Exchange | None = None
        self._head_reader: HeadReader | None = None
        self._decoder: ChunkDecoder | None = None
        self._body_end = BodyEnd.LENGTH
        self._remaining = 0
        self._keep_alive = False
        self._draining = -1  # bytes that may still be drained; -1: not draining
        self._began = 0.0  # when the request's first byte was written
        self._end_under_way = max(STALE_SECONDS, STALE_ROUND_TRIPS * connect_seconds)
        self._removed = False  # every step of `close` is done
        self._method = b""
        self._out: list[bytes | memoryview] = []
        self._write_broken = False
        self._send_error = ""
        self.paused: bool = False
        self._receive: Callable[[int], bytes] = sock.recv
        self._receive_bytes = RECEIVE_BYTES
        loop.add(self)

    def __repr__(self) -> str:
        return f"<Connection {self.origin} {self.state.value}, {self.served} served>"

    # --- the request ---

    def send(self, head: WireHead, body: bytes, exchange: Exchange, label: str = "") -> None:
        """Begin an exchange on an idle connection. Calls nothing of `exchange` before it returns."""
        assert self.state is State.IDLE and self._exchange is None, self
        data = head.encode(len(body))
        self._exchange = exchange
        self.label = label
        self._method = head.method
        self.state = State.HEAD
        self.received = 0
        self.sent_at = None
        self._began = self._loop.now
        self._draining = -1
        # A small body rides in the head's segment; a large one is not copied.
        self._out = [data + body] if len(body) <= 65536 else [data, body]
        self._write_broken = False
        self._flush()

    def _flush(self) -> None:
        """Send what the kernel takes, up to one connection's share of a turn. A broken pipe is no failure yet: the
        server may have answered before."""
        share = SEND_BYTES
        while self._out:
            try:
                if share <= 0:
                    raise BlockingIOError
                first = self._out[0]
                count = self.sock.send(first if len(first) <= share else memoryview(first)[:share])
            except (BlockingIOError, InterruptedError):
                self._loop.watch(self, read=not self.paused, write=True)
                return
            except OSError as error:
                self._send_failed(error)
                return
            self._loop.bytes_sent += count
            share -= count
            if count == len(first):
                del self._out[0]
            else:
                self._out[0] = memoryview(first)[count:]
        self.sent_at = self.last_activity = self._loop.clock()

    def _send_failed(self, error: OSError) -> None:
        self._stop_sending()
        if not isinstance(error, PEER_GONE):
            # The line stands and our side cannot use it: nothing would ever come. The next turn tells.
            self._send_error = _reason(error)
            self._loop.watch(self, read=not self.paused, write=True)

    def _stop_sending(self) -> None:
        self._out.clear()
        self._write_broken = True
        self.sent_at = self._loop.clock()

    # --- driven by the loop ---

    def on_writable(self) -> None:
        """Go on sending."""
        if self._send_error:
            self._broken(f"sending failed: {self._send_error}")
            return
        if self._out:
            self.last_activity = self._loop.now
            self._flush()
        if not self._out and self.state is not State.CLOSED:
            self._loop.watch(self, read=not self.paused, write=False)

    def on_readable(self) -> None:
        """Read once, and hand on what came."""
        receive, limit = self._receive, self._receive_bytes
        try:
            data = receive(limit)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._broken(f"connection broken: {_reason(error)}", ended=isinstance(error, PEER_RESET))
            return
        size = len(data)
        if not size:
            self._eof()
            return
        if size == limit:
            self._receive_bytes = RECEIVE_BYTES_FULL
        elif limit != RECEIVE_BYTES and size < RECEIVE_BYTES:
            self._receive_bytes = RECEIVE_BYTES
        loop = self._loop
        loop.bytes_received += size
        self.last_activity = loop.now
        state = self.state
        if state is BODY:
            fast_path = self.fast_path
            if fast_path is None:
                self.fast_path = self._body(data)
            else:
                taken = fast_path.read(data)
                if taken < size and self.state is BODY:
                    self.fast_path = self._body(data[taken:])
        elif state is HEAD:
            self.received += size
            self._head(data)
        else:
            self.close()  # unasked-for bytes on an idle connection would answer the next request
            return
        if self._tls is not None and self._tls.buffered and not self.paused and not self.closed:
            self.on_readable()  # for the kernel there is nothing to read

    def on_defect(self, error: Exception) -> None:
        """Something raised in this connection's own code: close it, and end its exchange."""
        self._exchange_failed(self._exchange, error)

    def _exchange_failed(self, exchange: Exchange | None, error: Exception) -> None:
        """A method of `exchange` raised, or code that worked for it did. The connection's state is unknown."""
        try:
            self.close()
        finally:
            if exchange is not None:
                exchange.on_defect(error)

    # --- the response ---

    def _head(self, data: bytes) -> None:
        reader = self._head_reader
        if reader is None:
            reader = self._head_reader = HeadReader()
        try:
            response = reader.feed(data)
        except HeadError as error:
            self._broken(str(error), protocol=True)
            return
        if response is not None:
            self._head_reader = None
            self._begin_body(response, reader.rest)

    def _begin_body(self, response: h11.Response, rest: bytes) -> None:
        headers = list(response.headers)
        frame = framing(self._method, response.status_code, response.http_version, headers)
        if frame.length > MAX_BODY_BYTES:
            self._broken(f"malformed response: a body of {frame.length} bytes", protocol=True)
            return
        self._body_end, self._remaining, self._keep_alive = frame.end, frame.length, frame.keep_alive
        self._decoder = ChunkDecoder() if frame.end is BodyEnd.CHUNKED else None
        self.state = State.BODY
        if self._out and response.status_code >= 400:
            self._stop_sending()  # the server has made up its mind before it had read it all
        exchange = self._exchange
        if exchange is not None:
            try:
                exchange.on_head(response.status_code, headers)
            except Exception as error:
                self._exchange_failed(exchange, error)
        if self.state is not State.BODY or self._exchange is not exchange:
            return
        if frame.end is BodyEnd.LENGTH and frame.length == 0:
            self._message_end(rest)
        elif rest:
            self._body(rest)

    def _body(self, data: bytes) -> ChunkReader | None:
        """Read body bytes. Returns what may read the bytes that follow."""
        decoder = self._decoder
        if decoder is None:
            self._unchunked(data)
            return None
        try:
            data = decoder.feed(data)
        except ChunkError as error:
            if error.body:
                self._hand_on(error.body)  # what came before the fault, in the same bytes
            if self.state is BODY:
                self._broken(str(error), protocol=True)
            return None
        fast_path = self._hand_on(data) if data else None
        if decoder.done and self.state is BODY:
            self._message_end(decoder.rest)
        return fast_path if decoder.at_boundary and self._exchange is not None else None

    def _unchunked(self, data: bytes) -> None:
        """A body that its length ends, or the connection's end."""
        rest, ended = b"", False
        if self._body_end is BodyEnd.LENGTH:
            rest = data[self._remaining :]
            data = data[: self._remaining]
            self._remaining -= len(data)
            ended = not self._remaining
        self._hand_on(data)
        if ended and self.state is BODY:
            self._message_end(rest)

    def _hand_on(self, data: bytes) -> ChunkReader | None:
        """Give body bytes to the exchange, and return what it returns; without an exchange, drain them."""
        exchange = self._exchange
        if exchange is None:
            self._drained(len(data))
            return None
        try:
            return exchange.on_body(data)
        except Exception as error:
            self._exchange_failed(exchange, error)
            return None

    def _drained(self, size: int) -> None:
        """Body bytes that nobody waits for any more."""
        if self._draining >= 0:
            self._draining -= size
            if self._draining < 0:
                self.close()

    def _message_end(self, rest: bytes) -> None:
        """The body is whole. Decide on reuse first: what `on_end` starts may have this connection already."""
        exchange = self._exchange
        try:
            self._retire(reusable=self._keep_alive and not rest and not self._out and not self._write_broken)
        except Exception:
            logger.exception("retiring %r raised: a defect in manystream", self)
            self._exchange = None
            self.close()
        if exchange is not None:
            try:
                exchange.on_end()
            except Exception as error:  # the connection may serve another exchange by now: it stays open
                exchange.on_defect(error)

    def _retire(self, *, reusable: bool) -> None:
        """Forget the exchange whose body has ended, and go back to the owner or close."""
        self._release()
        self.served += 1
        if reusable:
            self._decoder = None
            self.state = State.IDLE
            self.idle_since = self._loop.now
            if self.paused:
                self.resume()  # which may find bytes that nobody asked for, and close
            if self.state is State.IDLE:
                self._on_idle(self)
        else:
            self.close()

    def _eof(self) -> None:
        if self.state is State.BODY and self._body_end is BodyEnd.CLOSE:
            self._message_end(b"")
        elif self.state is State.HEAD and not self.received:
            self._broken("server disconnected without sending a response", ended=True)
        elif self.state is State.BODY and self._body_end is BodyEnd.LENGTH:
            self._broken(f"connection closed {self._remaining} bytes before the body's end")
        else:
            self._broken("connection closed before the response's end")

    def _broken(self, message: str, *, protocol: bool = False, ended: bool = False) -> None:
        """End the exchange. `ended`: the peer has closed or reset the connection, as far as the kernel can tell."""
        exchange = self._exchange
        soon = self._loop.now - self._began <= self._end_under_way
        failure = TransportError(
            f"{message} [{self.origin}]",
            phase=Phase.BODY if self.state is State.BODY else Phase.SEND if self._send_error else Phase.HEAD,
            origin=self.origin,
            unread=ended and soon and self.served > 0 and self.state is State.HEAD and not self.received,
            protocol=protocol,
            sent=True,
        )
        self.close()
        if exchange is not None:
            try:
                exchange.on_failure(failure)
            except Exception as error:
                exchange.on_defect(error)

    def _release(self) -> None:
        """Forget the exchange, and with it what reads for it: nothing more is reported to it."""
        self._exchange = self.fast_path = None

    # --- driven by the exchange's owner ---

    def drain(self) -> None:
        """The answer is whole for its reader, though the body has not ended: read on for a little while, so that
        the connection can serve again. The owner closes it if that takes too long."""
        self._release()
        if self._body_end is BodyEnd.CLOSE or not self._keep_alive:
            self.close()  # it could not serve again anyway
            return
        self._draining = DRAIN_BYTES
        if self.paused:
            self.resume()
        if self._on_draining is not None:
            self._on_draining(self)

    def pause(self) -> None:
        """Read no more until `resume`: the kernel's buffer fills, and TCP tells the server."""
        if not self.paused and self.state is not State.CLOSED:
            self.paused = True
            self._loop.watch(self, read=False, write=bool(self._out))

    def resume(self) -> None:
        """Read again; the time in between does not count as silence."""
        if self.paused:
            self.paused = False
            if self.state is not State.CLOSED:
                self.last_activity = self._loop.clock()
                self._loop.watch(self, read=True, write=bool(self._out))
                if self._tls is not None and self._tls.buffered:
                    self.on_readable()

    @property
    def closed(self) -> bool:
        return self.state is State.CLOSED

    def looks_alive(self) -> bool:
        """Whether an idle connection may be used: nothing to read, no end, no error. One system call."""
        return self.state is State.IDLE and is_quiet(self.sock)

    def close(self) -> None:
        """Close the socket now; idempotent. The exchange is not notified: the caller knows why.

        Each step may be repeated, and the exchange is forgotten last, so that after a step that raised `on_defect` can
        call this again and still knows whose exchange it was."""
        if self._removed:
            return
        self.state = State.CLOSED
        self._head_reader = None
        self._out.clear()
        self._loop.remove(self)
        self.sock.close()
        self._on_closed(self)
        self._release()
        self._removed = True


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
