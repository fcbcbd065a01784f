"""One request of a client on the transport layer: from waiting for a connection to the end of the response's body.

The connection calls a transfer's `on_…` methods. They store what happened and wake the task that waits in one of the
async methods. So a chunk of the body wakes one task, and no timer is set for it.
"""

from __future__ import annotations

import math
import socket
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, TypeAlias

from ..transport.backend import Backend, Signal
from ..transport.errors import Phase, TransportError
from ..transport.exchange import RawHeaders, WireHead
from ..transport.http1 import Connection
from ..transport.loop import PollerLoop
from ..transport.pool import Pool
from ..transport.running import EventLoop
from ..transport.timers import Deadline, Timers
from ..transport.tls_socket import TLSSocket
from ..transport.url import Origin
from .faults import ClientTransportError, Fault, translated

Trace: TypeAlias = Callable[[str, Mapping[str, object]], Awaitable[None]]
"""The client's `trace` extension: receives the name of an event and what belongs to it."""

BUFFERED_BYTES: Final = 256 * 1024
"""The body bytes that wait for their reader from which the socket is not read. TCP then slows the server down."""


DIAL_EVENTS: Final = {
    Phase.DNS: "connection.connect_tcp",
    Phase.CONNECT: "connection.connect_tcp",
    Phase.PROXY: "connection.connect_proxy",
    Phase.TLS: "connection.start_tls",
}
"""Phase of a dial → the trace event that it belongs to."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The client's timeouts in seconds; `math.inf` for none.

    pool: for a place in the pool, until the dial begins.
    connect: for each step of the dial: DNS with TCP, the tunnel, TLS.
    write: without a byte accepted by the kernel.
    read: without a byte received.
    """

    pool: float
    connect: float
    read: float
    write: float


@dataclass(slots=True)
class Running:
    """What one event loop carries.

    transfers: those that have not ended, in the order of their beginning.
    at_end: what calls `close` at the end of the event loop.
    """

    event_loop: EventLoop
    backend: Backend
    loop: PollerLoop
    timers: Timers
    pool: Pool
    transfers: dict[Transfer, None] = field(default_factory=dict["Transfer", None])
    at_end: object = None

    def close(self) -> None:
        """End all transfers and close all sockets, on the event loop itself."""
        for transfer in list(self.transfers):
            transfer.fail(ClientTransportError(Fault.READ, "the transport was closed during the request"))
        self.pool.close()
        self.timers.close()
        self.loop.close()

    def drop(self) -> None:
        """Close all sockets of an event loop that has ended."""
        self.pool.drop()
        self.timers.close()
        self.loop.close()


@dataclass(slots=True, eq=False, repr=False)
class Transfer:
    """One request and its response."""

    _running: Running  # what the transport runs on. The transfer is in its `transfers` until it has ended in any way.
    _timeouts: Timeouts
    _trace: Trace | None
    _: KW_ONLY
    last: bool  # the request announces that it is the last one of its connection (`Connection: close`)
    _traced: list[tuple[str, Mapping[str, object]]] = field(
        default_factory=list[tuple[str, Mapping[str, object]]], init=False
    )
    _step: str = field(default="", init=False)  # the trace event that has begun and not ended
    _connection: Connection | None = field(default=None, init=False)
    _acquiring: bool = field(default=False, init=False)
    _signal: Signal | None = field(default=None, init=False)
    _error: ClientTransportError | None = field(default=None, init=False)
    _unread: bool = field(default=False, init=False)  # the failed request cannot have been read by the server
    _iterating: bool = field(default=False, init=False)  # the iterator of the body was used
    _pieces: list[bytes] = field(default_factory=list[bytes], init=False)
    _held: int = field(default=0, init=False)
    _ended: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)
    _timer: Deadline | None = field(default=None, init=False)
    _deadline: float = field(default=math.inf, init=False)
    _seconds: float = field(default=math.inf, init=False)
    _fault: Fault = field(default=Fault.POOL_TIMEOUT, init=False)
    status: int = field(default=0, init=False)  # status, headers, version, reason: of the response's head
    headers: RawHeaders = field(default=(), init=False)
    version: bytes = field(default=b"", init=False)
    reason: bytes = field(default=b"", init=False)
    sock: socket.socket | TLSSocket | None = field(default=None, init=False)  # the socket that carries the response

    def __post_init__(self) -> None:
        self._running.transfers[self] = None

    # --- steps, in the order of the caller ---

    async def connect(self, origin: Origin, *, fresh: bool) -> None:
        """Wait for a connection."""
        self._acquiring = True
        self._wait_limit(self._timeouts.pool, Fault.POOL_TIMEOUT)
        self._running.pool.acquire(origin, self, fresh=fresh)
        while self._connection is None:
            await self._change()
        self._deadline = math.inf
        await self._trace_step("")

    async def exchange(
        self, head: WireHead, size: int | None, body: bytes | AsyncIterable[bytes], *, resend: bool
    ) -> bool:
        """Send the request and wait for the response's head.

        size: the length of a body that comes in pieces; None to send it in chunks.

        Returns False if the request must be sent again: `resend` allows it, a kept-alive connection was closed before
        the server read the request, and no piece of the body was taken from its iterator.
        """
        self._unread = self._iterating = False
        try:
            if isinstance(body, bytes):
                await self._send(head, body)
            else:
                await self._send_streamed(head, size, body)
            await self._trace_step("http11.receive_response_headers")
            self._wait_limit(self._timeouts.read, Fault.READ_TIMEOUT)
            while not self.status:
                await self._change()
            self._deadline = math.inf
            await self._trace_step("")
        except ClientTransportError:
            if not resend or not self._unread or self._iterating:
                raise
            self._error, self._connection, self._step = None, None, ""
            return False
        return True

    async def _send(self, head: WireHead, body: bytes) -> None:
        """Send a request whose body is known."""
        await self._trace_step("http11.send_request_headers")
        await self._trace_step("http11.send_request_body")
        connection = self._ready_connection()
        connection.send(head, body, self)
        await self._sent(connection)
        await self._trace_step("")

    async def _send_streamed(self, head: WireHead, size: int | None, body: AsyncIterable[bytes]) -> None:
        """Send a request whose body comes in pieces. Stops where the server has refused it or cannot be reached.

        A write that fails is no error yet: the response may have arrived.
        """
        await self._trace_step("http11.send_request_headers")
        connection = self._ready_connection()
        upload = connection.send_streamed(head, size, self)
        await self._trace_step("http11.send_request_body")
        self._iterating = True
        left = math.inf if size is None else size
        pieces = aiter(body)
        try:
            async for piece in pieces:
                left -= len(piece)
                if left < 0:
                    raise ClientTransportError(Fault.LOCAL, "the body is longer than its Content-Length")
                if not upload.open:
                    break
                upload.send(piece)
                await self._sent(connection)
        finally:
            if isinstance(pieces, AsyncGenerator):  # trio does not close it
                await pieces.aclose()
        if 0 < left < math.inf and upload.open:
            raise ClientTransportError(Fault.LOCAL, f"the body is {left} bytes shorter than its Content-Length")
        upload.end()
        await self._sent(connection)
        await self._trace_step("")

    async def read(self) -> bytes:
        """Return the next bytes of the body; empty at its end."""
        if self._trace is not None and self._step != "http11.receive_response_body":
            await self._trace_step("http11.receive_response_body")
        try:
            if not self._pieces and not self._ended:
                self._wait_limit(self._timeouts.read, Fault.READ_TIMEOUT)
                while not self._pieces and not self._ended:
                    await self._change()
                self._deadline = math.inf
        except BaseException as error:
            await self.close_after(error)
            raise
        if not self._pieces:
            await self.close()
            return b""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._held = 0
        connection = self._connection
        if connection is not None and connection.paused:
            connection.resume()
        return data

    async def close(self) -> None:
        """End the transfer. A connection whose response is not complete is closed. Idempotent."""
        if self._closed:
            return
        self._release()
        await self._trace_step("http11.response_closed")
        await self._trace_step("")

    async def close_after(self, error: BaseException) -> None:
        """End the transfer after an error or a cancellation."""
        self._release()
        if self._trace is not None and isinstance(error, Exception):
            if self._step:
                self._traced.append((f"{self._step}.failed", {"exception": error}))
                self._step = ""
            await self._trace_step("http11.response_closed")
            await self._trace_step("")

    # --- called by the pool and by the connection ---

    def on_phase(self, phase: Phase) -> None:
        """Restart the connect timeout with each step of the dial. DNS and TCP count as one step, unless the event loop
        was blocked: then the lookup had ended before its timeout was judged."""
        overdue = self._deadline <= self._running.loop.clock()
        if phase is not Phase.CONNECT or self._fault is Fault.POOL_TIMEOUT or overdue:
            self._wait_limit(self._timeouts.connect, Fault.CONNECT_TIMEOUT)
        if self._trace is not None:
            self._begin_step(DIAL_EVENTS[phase])
            self._wake()

    def on_connection(self, connection: Connection, reused: bool) -> None:
        self._acquiring = False
        self._connection = connection
        self._wake()

    def on_connect_failure(self, error: TransportError) -> None:
        """Receive the error that ended the dial."""
        self._acquiring = False
        self.fail(translated(error))

    def on_head(self, status: int, headers: RawHeaders) -> None:
        """Receive the response's head."""
        self.status, self.headers = status, headers
        connection = self._connection
        if connection is not None:
            self.version, self.reason, self.sock = connection.version, connection.reason, connection.sock
            if self.last:
                connection.retire_after_response()
        self._wake()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held += len(data)
        if self._held > BUFFERED_BYTES and self._connection is not None:
            self._connection.pause()
        self._wake()

    def on_end(self) -> None:
        """Receive the body's end. The connection belongs to the pool again."""
        self._ended, self._connection = True, None
        self._wake()

    def on_failure(self, error: TransportError) -> None:
        """Receive the error that ended the exchange."""
        self._unread = error.unread
        self.fail(translated(error))

    def on_defect(self, error: Exception) -> None:
        """Fail after a defect in this library. The connection is closed, or carries the exchange of another request."""
        self._connection = None
        self._defect(error)

    def _defect(self, error: Exception) -> None:
        self.fail(ClientTransportError(Fault.DEFECT, f"internal error: {type(error).__name__}: {error}"))

    def fail(self, error: ClientTransportError) -> None:
        """End with an error, which the waiting task raises after the bytes that have arrived."""
        connection, self._connection = self._connection, None
        self._error = self._error or error
        if connection is not None and not connection.closed:
            connection.close()
        self._wake()

    # --- waiting ---

    def _ready_connection(self) -> Connection:
        """Return the connection. The server may have closed it since the pool assigned it."""
        connection = self._connection
        if connection is None or connection.closed:
            self._unread = connection is not None and connection.served > 0
            raise self._error or ClientTransportError(Fault.REMOTE, "server disconnected before the request was sent")
        return connection

    async def _sent(self, connection: Connection) -> None:
        """Wait until the kernel has accepted the bytes so far, or the response makes the rest unnecessary."""
        if self._connection is not connection:
            return
        sent = False

        def on_sent() -> None:
            nonlocal sent
            sent = True
            self._wake()

        if not connection.notify_sent(on_sent):
            return
        self._wait_limit(self._timeouts.write, Fault.WRITE_TIMEOUT)
        while not sent and not self._ended and self.status < 400:
            await self._change()
        self._deadline = math.inf

    async def _change(self) -> None:
        """Wait until something may have happened. Raises the transfer's error, and that of an exceeded timeout.

        The caller looks again at what it waits for, because this method may return for another reason.
        """
        if self._traced:
            await self._emit()
        elif self._error is not None:
            raise self._error
        else:
            self._signal = self._running.backend.signal()
            await self._signal.wait()

    def _wake(self) -> None:
        if self._signal is not None:
            self._signal.set()

    def _wait_limit(self, seconds: float, fault: Fault) -> None:
        """Limit the next wait. The timer stays in the heap from wait to wait, and finds a later deadline itself."""
        running = self._running
        self._seconds, self._fault = seconds, fault
        self._deadline = deadline = running.loop.clock() + seconds  # sets `loop.now`, which the pool reads, too
        timer = self._timer
        if deadline != math.inf and (timer is None or timer[0] > deadline):
            if timer is not None:
                running.timers.cancel(timer)
            self._timer = running.timers.notify(deadline, self)

    def on_timer(self) -> None:
        """Fail if the time of the current wait is over, or look again later."""
        try:
            self._expire()
        except Exception as error:
            self._defect(error)  # closes the connection, which `on_defect` must not
            raise

    def _expire(self) -> None:
        self._timer = None
        due = self._deadline
        if due == math.inf:
            return  # nothing waits; the next wait sets a timer
        connection = self._connection
        if connection is not None:
            due = max(due, connection.last_activity + self._seconds)
        if due > self._running.loop.clock():
            self._timer = self._running.timers.notify(due, self)
        else:
            self._give_up_acquiring()
            self.fail(ClientTransportError(self._fault, f"{self._fault.words} after {self._seconds:g} s"))

    def _give_up_acquiring(self) -> None:
        if self._acquiring:
            self._acquiring = False
            self._running.pool.abandon(self)

    def _release(self) -> None:
        """Give back or close what the transfer holds."""
        if self._closed:
            return
        self._closed = True
        self._give_up_acquiring()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if self._timer is not None:
            self._running.timers.cancel(self._timer)
        if self._error is None and not self._ended:
            self._error = ClientTransportError(Fault.READ, "the response was closed")
            self._wake()  # another task may be reading the body
        self._running.transfers.pop(self, None)

    # --- trace events ---

    def _begin_step(self, name: str) -> None:
        """Note that a step begins; the one before it is complete. An empty name begins none."""
        if name != self._step:
            if self._step:
                self._traced.append((f"{self._step}.complete", {"return_value": None}))
            if name:
                self._traced.append((f"{name}.started", {}))
            self._step = name

    async def _trace_step(self, name: str) -> None:
        if self._trace is not None:
            self._begin_step(name)
            await self._emit()

    async def _emit(self) -> None:
        while self._traced and self._trace is not None:
            await self._trace(*self._traced.pop(0))


class NetworkStream:
    """The `network_stream` extension of a response: what the socket tells about the connection."""

    def __init__(self, sock: socket.socket | TLSSocket | None) -> None:
        self._sock = sock

    def get_extra_info(self, info: str) -> object:
        """Return `client_addr`, `server_addr`, `socket` or `ssl_object`; None for others, and after the end."""
        sock = self._sock
        if sock is None or sock.fileno() == -1:
            return None
        if info == "ssl_object":
            return sock.ssl_object if isinstance(sock, TLSSocket) else None
        plain = sock.plain if isinstance(sock, TLSSocket) else sock
        if info == "socket":
            return plain
        try:
            return {"client_addr": plain.getsockname, "server_addr": plain.getpeername}.get(info, lambda: None)()
        except OSError:
            return None
