"""An HTTP/1.1 connection, which carries one exchange at a time.

`exchange.WireHead` encodes the request head, `outgoing` sends the request, `response_head` parses the response head,
and `early_end` describes a response that is cut off. This file finds the end of the body: by length, by
`chunked.ChunkDecoder`, or by the connection's end.

The multi-request loop calls `on_readable` and `on_writable`. The connection calls the methods of an `Exchange`, in wire
order and never from within `send`. After each exchange the connection calls exactly one function of its owner:
`on_idle` if it can be reused, `on_closed` if it cannot.
"""

from __future__ import annotations

import enum
import logging
import select
import socket
import ssl
from collections.abc import Callable

import h11

from .chunked import ChunkDecoder, ChunkError
from .early_end import CUT_OFF, NO_RESPONSE, EarlyEnd, broken, cut_off, malformed
from .errors import Phase
from .exchange import EventReader, Exchange, FastReader, Reader, WireHead
from .framing import CHUNKED, CLOSE, LENGTH, UPGRADE, framing
from .loop import Loop
from .outgoing import ALL_SENT, Outgoing, Upload
from .response_head import HeadError, HeadReader
from .tls_socket import TLSSocket


class State(enum.Enum):
    """The part of the exchange to which the next byte belongs."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    CLOSED = "closed"


IDLE, HEAD, BODY, CLOSED = State
"""The members."""


logger: logging.Logger = logging.getLogger("manystream.transport.http1")

RECEIVE_BYTES = 16 * 1024
"""The size of one read. `recv` allocates this much each time, so a larger read is used only while reads are full."""
RECEIVE_BYTES_FULL = 128 * 1024
"""The size of a read after a read that was full."""

MAX_BODY_BYTES = 2**60 - 1
"""The maximum Content-Length. No real body is larger; the connection would wait forever for the rest of one."""
DRAIN_BYTES = 64 * 1024
"""The maximum number of bytes after a stream's terminal marker for which a connection is drained instead of closed."""


class _HotSlots:
    """The attributes that each read uses, adjacent in memory (a base class's slots come first).

    With thousands of connections, none of them is in the CPU's cache. When they were spread over a connection's 300
    bytes, an event took 3 to 5 % longer.
    """

    __slots__ = (
        "_loop",
        "_receive_bytes",
        "_tls",
        "fast_path",
        "label",
        "last_activity",
        "paused",
        "sock",
        "state",
    )


class Connection(_HotSlots):
    """A connected non-blocking socket, plain or TLS. Times are seconds on the loop's clock.

    last_activity: the time at which a byte was last sent or received.
    sent_at: the time at which the kernel accepted the request's last byte; None before.
    paused: the connection reads nothing.
    received: the number of bytes received of the current response, up to the end of its head.
    served: the number of completed exchanges.
    version, reason: from the latest response's status line, such as `b"1.1"` and `b"OK"`.
    label: the name of the latest exchange's call, for reports.
    fast_path: reads the next bytes in place of the usual readers; None if there is no such reader. `on_readable` sets
        it after each read of the body; `_release` clears it.
    """

    __slots__ = (
        "_body_end",
        "_decoder",
        "_draining",
        "_exchange",
        "_head_reader",
        "_keep_alive",
        "_method",
        "_on_closed",
        "_on_draining",
        "_on_idle",
        "_outgoing",
        "_remaining",
        "_removed",
        "idle_since",
        "opened_at",
        "origin",
        "reason",
        "received",
        "sent_at",
        "served",
        "version",
    )

    def __init__(
        self,
        sock: socket.socket | TLSSocket,
        origin: str,
        loop: Loop,
        on_idle: Callable[[Connection], None],
        on_closed: Callable[[Connection], None],
        on_draining: Callable[[Connection], None] | None = None,
    ) -> None:
        self.sock: socket.socket | TLSSocket = sock
        self.origin: str = origin
        self.state: State = IDLE
        self.last_activity: float = loop.clock()
        self.idle_since: float = self.last_activity
        self.opened_at: float = self.last_activity
        self.sent_at: float | None = None
        self.received: int = 0
        self.served: int = 0
        self.version: bytes = b""
        self.reason: bytes = b""
        self.label: str = ""
        self.fast_path: Reader | None = None
        self._loop = loop
        self._on_idle = on_idle
        self._on_closed = on_closed
        self._on_draining = on_draining
        self._tls = sock if isinstance(sock, TLSSocket) else None
        self._exchange: Exchange | None = None
        self._head_reader: HeadReader | None = None
        self._decoder: ChunkDecoder | None = None
        self._body_end = LENGTH
        self._remaining = 0
        self._keep_alive = False
        self._draining = -1  # number of bytes that may still be drained; -1: not draining
        self._removed = False  # all steps of `close` are done
        self._method = b""
        self._outgoing = ALL_SENT
        self.paused: bool = False
        self._receive_bytes = RECEIVE_BYTES
        loop.add(self)

    def __repr__(self) -> str:
        return f"<Connection {self.origin} {self.state.value}, {self.served} served>"

    # --- the request ---

    def send(self, head: WireHead, body: bytes, exchange: Exchange, label: str = "") -> None:
        """Begin an exchange on an idle connection. Calls no method of `exchange` before it returns."""
        self._begin_exchange(head, exchange, label)
        self._outgoing = Outgoing(head.encode(len(body)), body)
        self._flush()

    def send_streamed(self, head: WireHead, size: int | None, exchange: Exchange, label: str = "") -> Upload:
        """Begin an exchange whose body follows in pieces. `size`: its length; None to send it in chunks."""
        self._begin_exchange(head, exchange, label)
        self._outgoing = Outgoing(head.encode_streamed(size), b"", more=True)
        self._flush()
        return Upload(self._outgoing, self._flush, chunked=size is None)

    def send_upgrade(self, head: WireHead, exchange: Exchange, label: str = "") -> Upload:
        """Ask for another protocol. If the server switches to it (101), the body is what it sends, until the end of the
        connection, and the upload sends in it. After any other response, the connection is not reused."""
        self._begin_exchange(head, exchange, label)
        self._method = UPGRADE
        self._outgoing = Outgoing(head.encode(0), b"", more=True)
        self._flush()
        return Upload(self._outgoing, self._flush, chunked=False)

    @property
    def upgraded(self) -> bool:
        """Whether the connection speaks another protocol."""
        return self._method is UPGRADE and self.state is BODY and self._body_end is CLOSE

    def notify_sent(self, on_sent: Callable[[], None]) -> bool:
        """Call `on_sent` once no byte of the request is held here. Returns False, and never calls it, if none is now.

        The end of the exchange drops `on_sent`.
        """
        self._outgoing.on_sent = on_sent if self._outgoing else None
        return bool(self._outgoing)

    def retire_after_response(self) -> None:
        """Close the connection after the response whose head has arrived, because the request announced that."""
        self._keep_alive = False

    def _begin_exchange(self, head: WireHead, exchange: Exchange, label: str) -> None:
        assert self.state is IDLE and self._exchange is None, self
        self._exchange = exchange
        self.label = label
        self._method = head.method
        self.state = HEAD
        self.received = 0
        self.sent_at = None
        self._draining = -1

    def _flush(self) -> None:
        outgoing = self._outgoing
        done = outgoing.flush(self.sock, self._loop)
        if done or outgoing.broken:
            now = self._loop.clock()
            if not outgoing.open:
                self.sent_at = now
            if not outgoing.broken:
                self.last_activity = now
                if not outgoing.open:
                    self._outgoing = ALL_SENT
        if not done:
            self._loop.watch(self, read=not self.paused, write=True)

    def _stop_sending(self) -> None:
        self._outgoing.stop()
        self.sent_at = self._loop.clock()

    # --- driven by the loop ---

    def on_writable(self) -> None:
        """Continue to send the request."""
        outgoing = self._outgoing
        if outgoing.error:
            # The connection is open but we cannot send, so no response will come.
            self._broken(EarlyEnd(f"sending failed: {outgoing.error}"))
            return
        if outgoing:
            self.last_activity = self._loop.now
            self._flush()
        if not outgoing and not outgoing.error and self.state is not CLOSED:
            self._loop.watch(self, read=not self.paused, write=False)
            outgoing.report_sent()

    def on_readable(self) -> None:
        """Read the socket once and process the bytes."""
        limit = self._receive_bytes
        try:
            data = self.sock.recv(limit)
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._broken(broken(error))
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
            self.close()  # bytes on an idle connection would be read as the response to the next request
            return
        if self._tls is not None and self._tls.buffered and not self.paused and not self.closed:
            self.on_readable()  # the kernel does not report what TLS has buffered

    def on_defect(self, error: Exception) -> None:
        """Close the connection and end its exchange after a defect: this connection's own code raised."""
        self._exchange_failed(self._exchange, error)

    def _exchange_failed(self, exchange: Exchange | None, error: Exception) -> None:
        """Close the connection, whose state is unknown after the defect `error`, and report it to `exchange`."""
        try:
            self.close()
        finally:
            if exchange is not None:
                exchange.on_defect(error)

    # --- the response ---

    def _head(self, data: bytes) -> None:
        reader = self._head_reader
        if reader is None:
            reader = self._head_reader = HeadReader(upgrades=self._method is UPGRADE)
        try:
            response = reader.feed(data)
        except HeadError as error:
            self._broken(malformed(str(error)))
            return
        if response is not None:
            self._head_reader = None
            self._begin_body(response, reader.rest)

    def _begin_body(self, response: h11.Response | h11.InformationalResponse, rest: bytes) -> None:
        headers = list(response.headers)
        self.version, self.reason = response.http_version, response.reason
        frame = framing(self._method, response.status_code, response.http_version, headers)
        if frame.length > MAX_BODY_BYTES:
            self._broken(malformed(f"malformed response: a body of {frame.length} bytes"))
            return
        self._body_end, self._remaining, self._keep_alive = frame.end, frame.length, frame.keep_alive
        self._decoder = ChunkDecoder() if frame.end is CHUNKED else None
        self.state = BODY
        if self._outgoing.unfinished and response.status_code >= 400:
            self._stop_sending()  # the server has responded before it has read the whole request
        exchange = self._exchange
        if exchange is not None:
            try:
                exchange.on_head(response.status_code, headers)
            except Exception as error:
                self._exchange_failed(exchange, error)
        if self.state is not BODY or self._exchange is not exchange:
            return
        if frame.end is LENGTH and frame.length == 0:
            self._message_end(rest)
        elif rest:
            self._body(rest)

    def _body(self, data: bytes) -> Reader | None:
        """Decode and deliver body bytes. Returns the exchange's reader for the bytes that follow, if any."""
        decoder = self._decoder
        if decoder is None:
            return self._unchunked(data)
        try:
            data = decoder.feed(data)
        except ChunkError as error:
            if error.body:
                self._deliver(error.body)  # the valid bytes before the error
            if self.state is BODY:
                self._broken(malformed(str(error)))
            return None
        reader = self._deliver(data) if data else None
        if decoder.done and self.state is BODY:
            self._message_end(decoder.rest)
        if reader is None or not reader.one_event or decoder.whole_chunks not in (1, 2) or self._exchange is None:
            return None
        reader.cut = decoder.whole_chunks == 2
        return reader

    def _unchunked(self, data: bytes) -> Reader | None:
        """Deliver bytes of a body that ends by its length or with the connection.

        Returns the exchange's reader for the bytes that follow, if the body ends with the connection.
        """
        rest, ended = b"", False
        if self._body_end is LENGTH:
            rest = data[self._remaining :]
            data = data[: self._remaining]
            self._remaining -= len(data)
            ended = not self._remaining
        reader = self._deliver(data)
        if ended and self.state is BODY:
            self._message_end(rest)
        if reader is None or self._body_end is not CLOSE or self._exchange is None:
            return None
        return EventReader(reader)

    def _deliver(self, data: bytes) -> FastReader | None:
        """Deliver body bytes to the exchange and return its reader; without an exchange, drain the bytes."""
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
        """Count drained body bytes; close the connection after more than `DRAIN_BYTES`."""
        if self._draining >= 0:
            self._draining -= size
            if self._draining < 0:
                self.close()

    def _message_end(self, rest: bytes) -> None:
        """Complete the exchange. Release the connection first: a call that `on_end` starts may use it at once."""
        exchange = self._exchange
        try:
            self._retire(reusable=self._keep_alive and not rest and self._outgoing.complete)
        except Exception:
            logger.exception("retiring %r raised: a defect in manystream", self)
            self._exchange = None
            self.close()
        if exchange is not None:
            try:
                exchange.on_end()
            except Exception as error:  # the connection may already carry another exchange, so it stays open
                exchange.on_defect(error)

    def _retire(self, *, reusable: bool) -> None:
        """Clear the completed exchange; return the connection to its owner if `reusable`, else close it."""
        self._release()
        self.served += 1
        if reusable:
            self._decoder = None
            self.state = IDLE
            self.idle_since = self._loop.now
            if self.paused:
                self.resume()  # may read unexpected bytes and close the connection
            if self.state is IDLE:
                self._on_idle(self)
        else:
            self.close()

    def _eof(self) -> None:
        if self.state is BODY and self._body_end is CLOSE:
            self._message_end(b"")
        elif self.state is HEAD and not self.received:
            self._broken(self._outgoing.reset or NO_RESPONSE)
        else:
            end = cut_off(self._body_end, self._remaining) if self.state is BODY else CUT_OFF
            self._broken(self._outgoing.reset or end)

    def _broken(self, end: EarlyEnd) -> None:
        exchange = self._exchange
        unread = self.state is HEAD and not self.received and not self._outgoing.started
        phase = Phase.BODY if self.state is BODY else Phase.SEND if self._outgoing.error else Phase.HEAD
        failure = end.error(self.origin, phase, unread=unread and self.served > 0)
        self.close()
        if exchange is not None:
            try:
                exchange.on_failure(failure)
            except Exception as error:
                exchange.on_defect(error)

    def _release(self) -> None:
        """Clear the exchange and its reader; nothing more is reported to it."""
        self._exchange = self.fast_path = self._outgoing.on_sent = None

    # --- driven by the exchange's owner ---

    def drain(self, *, deliver: bool = False) -> None:
        """Read the rest of a body that the call does not need, to reuse the connection. The owner limits the time.

        deliver: the exchange still gets the rest.
        """
        exchange = self._exchange
        self._release()
        if deliver:
            self._exchange = exchange
        elif self._body_end is CLOSE or not self._keep_alive:
            self.close()  # it could not be reused anyway
            return
        self._draining = DRAIN_BYTES
        if self.paused:
            self.resume()
        if self._on_draining is not None:
            self._on_draining(self)

    def pause(self) -> None:
        """Stop reading until `resume`. The kernel's buffer fills, and TCP's flow control stops the server."""
        if not self.paused and self.state is not CLOSED:
            self.paused = True
            self._loop.watch(self, read=False, write=bool(self._outgoing))

    def resume(self) -> None:
        """Read again. `last_activity` is set to now, so the pause does not count as idle time."""
        if self.paused:
            self.paused = False
            if self.state is not CLOSED:
                self.last_activity = self._loop.clock()
                self._loop.watch(self, read=True, write=bool(self._outgoing))
                if self._tls is not None and self._tls.buffered:
                    self.on_readable()

    @property
    def idle(self) -> bool:
        """Whether the connection is open and carries no exchange."""
        return self.state is IDLE

    @property
    def closed(self) -> bool:
        return self.state is CLOSED

    def looks_alive(self) -> bool:
        """Return whether the connection is idle, with no byte, end or error to read. One system call."""
        return self.state is IDLE and is_quiet(self.sock)

    def close(self) -> None:
        """Close the socket now. Idempotent. The exchange is not notified: the caller knows the reason.

        Each step can be repeated, and the exchange is cleared last. If a step raises, `on_defect` calls `close` again
        and still knows the exchange.
        """
        if self._removed:
            return
        self.state = CLOSED
        self._head_reader = None
        self._outgoing.clear()
        self._loop.remove(self)
        self.sock.close()
        self._on_closed(self)
        self._release()
        self._removed = True


POLL: Callable[[], select.poll] | None = getattr(select, "poll", None)
"""`select.poll`; None on Windows, which has none."""

PEEKED_BYTES = 16 * 1024
"""Bytes read from a TLS connection to see whether it delivers data."""


def is_quiet(sock: socket.socket | TLSSocket) -> bool:
    """Return whether an idle socket has nothing to read: no byte, no end of stream, no error. One system call.

    A byte on an idle connection belongs to no request; it would be read as the next response.
    """
    if isinstance(sock, socket.socket) and POLL is not None:
        # A `recv` that raises BlockingIOError takes three times as long when the caches are cold.
        poll = POLL()
        poll.register(sock, select.POLLIN)
        return not poll.poll(0)
    try:
        data = sock.recv(1, socket.MSG_PEEK) if isinstance(sock, socket.socket) else sock.recv(PEEKED_BYTES)
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
        return True  # nothing to read, or only records of TLS itself (session tickets)
    except OSError:
        return False
    del data  # bytes that belong to no request, or the end of the stream
    return False
