"""The keep-alive pool: who gets which connection, per origin and in total.

Knows origins, caps and queues. Must not know what is sent on a connection, nor how one is dialled (it is handed a
function for that). Every acquire and every release is O(1): idle connections are taken last in, first out (the
youngest is the likeliest to be alive), waiters first in, first out.

A dead or dirty connection is never handed out: an idle one is still watched by the loop, which closes it at its end
or at any byte; and it is looked at once more when it is taken, because the loop may not have had its turn.
"""

from __future__ import annotations

import enum
import logging
import socket
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import trio

from .errors import Phase, TransportError
from .http1 import Connection, State
from .loop import Loop
from .timers import Timer, Timers
from .tls_socket import TLSSocket
from .url import Origin

logger: logging.Logger = logging.getLogger("manystream.transport.pool")

Dial: TypeAlias = "Callable[[Origin, Callable[[Phase], None]], Awaitable[socket.socket | TLSSocket]]"
"""Opens a connected non-blocking socket, telling the phases it goes through. Raises `TransportError`."""


@dataclass(slots=True, frozen=True)
class PoolLimits:
    """max_connections, max_per_origin: open at once, in total and to one origin; calls beyond wait their turn.

    max_idle: kept open for reuse, in total. idle_expiry: seconds after which an idle one is closed; below the
    20 to 60 seconds after which common load balancers close theirs silently. drain_seconds: how long a connection may
    take to end a body whose answer is whole, before it is closed rather than kept.
    """

    max_connections: int = 20_000
    max_per_origin: int = 20_000
    max_idle: int = 1_000
    idle_expiry: float = 15.0
    drain_seconds: float = 2.0


class Waiter(Protocol):
    """Who wants a connection. Exactly one of the two outcomes is told, unless `Pool.abandon` came before."""

    def on_phase(self, phase: Phase) -> None: ...
    def on_connection(self, connection: Connection, reused: bool) -> None: ...
    def on_connect_failure(self, error: TransportError) -> None: ...


class ConnectionWatch(Protocol):
    """Who is told of connections; must neither wait nor raise."""

    def connection_opened(self, origin: str) -> None: ...
    def connection_closed(self, origin: str, served: int) -> None: ...


DIALS_PER_TURN = 16
"""Dials begun before others get a turn: each takes some 0.1 ms until it waits for the first time."""


class Place(enum.Enum):
    """Where a waiter stands."""

    QUEUED = "queued"
    DIALLING = "dialling"


class _Ticket:
    """One waiter's place: in the queue, or at a dial of its own."""

    __slots__ = ("fresh", "host", "place", "scope", "waiter")

    def __init__(self, waiter: Waiter, host: _Host, fresh: bool) -> None:
        self.waiter: Waiter | None = waiter
        self.host = host
        self.fresh = fresh  # a connection that has served will not do
        self.place = Place.QUEUED
        self.scope: trio.CancelScope | None = None  # of its dial, once that has begun


class _Host:
    """What the pool has for one origin."""

    __slots__ = ("dialling", "idle", "live", "origin", "queue", "starved", "waiting")

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self.idle: list[Connection] = []
        self.live = 0  # open connections and running dials
        self.dialling = 0
        self.queue: deque[_Ticket] = deque()
        self.waiting = 0  # tickets in the queue that were not abandoned
        self.starved = False  # waits in `Pool._starved` for a place under the total cap


class Pool:
    """Connections to all origins of one engine. watch: told of each, where there is one."""

    def __init__(
        self,
        nursery: trio.Nursery,
        loop: Loop,
        timers: Timers,
        dial: Dial,
        limits: PoolLimits,
        watch: ConnectionWatch | None = None,
    ) -> None:
        self._watch = watch
        self._nursery = nursery
        self._loop = loop
        self._timers = timers
        self._dial_socket = dial
        self._limits = limits
        self._hosts: dict[Origin, _Host] = {}
        self._host_of: dict[Connection, _Host] = {}
        self._tickets: dict[Waiter, _Ticket] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # oldest first, over all origins
        self._starved: deque[_Host] = deque()
        self._to_dial: deque[_Ticket] = deque()
        self._dialling = False  # `_begin_dials` is running
        self._live = 0
        self._expiry: Timer | None = None
        # Bound once: the garbage collector would have three objects more to look at per connection.
        self._callbacks = (self._on_idle, self._on_closed, self._on_draining)
        # Connections that are being drained, with their deadlines and the count that tells one exchange from the
        # next; all wait equally long, so the first in is the first out.
        self._draining: deque[tuple[float, Connection, int]] = deque()
        self._drain_timer: Timer | None = None
        self._closed = False
        self.opened: int = 0
        self.reused: int = 0
        self.discarded: int = 0

    def __repr__(self) -> str:
        waiting = sum(host.waiting for host in self._hosts.values())
        return f"<Pool {self._live} open, {len(self._idle)} idle, {waiting} waiting>"

    # --- taking ---

    def acquire(self, origin: Origin, waiter: Waiter, *, fresh: bool = False) -> None:
        """Give `waiter` a connection to `origin`: an idle one before this returns, else when there is one.

        fresh: only one that has never served will do, as for the one retry after a stale one.
        """
        host = self._hosts.get(origin)
        if host is None:
            host = self._hosts[origin] = _Host(origin)
        while fresh and host.idle:  # as old as the stale one was; a fresh one is opened in their place
            host.idle[-1].close()
        connection = self._take_idle(host)
        if connection is not None:
            self.reused += 1
            waiter.on_connection(connection, True)
            return
        if not host.live:
            self._hosts[origin] = host  # with its last connection closed just now it was forgotten
        ticket = self._tickets[waiter] = _Ticket(waiter, host, fresh)
        if host.live < self._limits.max_per_origin and self._make_room():
            self._start_dial(ticket)
            return
        host.queue.append(ticket)
        host.waiting += 1
        if host.live < self._limits.max_per_origin:
            self._starve(host)

    def abandon(self, waiter: Waiter) -> None:
        """The waiter wants no connection any more. Its dial, if it has one, is closed within one turn."""
        ticket = self._tickets.pop(waiter, None)
        if ticket is None:
            return
        ticket.waiter = None
        if ticket.place is Place.QUEUED:
            ticket.host.waiting -= 1
        elif ticket.scope is not None:
            ticket.scope.cancel()

    def _take_idle(self, host: _Host) -> Connection | None:
        while host.idle:
            connection = host.idle.pop()
            self._idle.pop(connection, None)
            if connection.looks_alive():
                return connection
            self.discarded += 1
            connection.close()
        return None

    def _make_room(self) -> bool:
        """Whether one more connection may be opened; the oldest idle one of any origin makes way."""
        if self._live < self._limits.max_connections:
            return True
        if self._idle:
            next(iter(self._idle)).close()
            return True
        return False

    def _starve(self, host: _Host) -> None:
        if not host.starved:
            host.starved = True
            self._starved.append(host)

    # --- opening ---

    def _start_dial(self, ticket: _Ticket) -> None:
        ticket.place = Place.DIALLING
        ticket.host.live += 1
        ticket.host.dialling += 1
        self._live += 1
        self._to_dial.append(ticket)
        if not self._dialling:
            self._dialling = True
            self._nursery.start_soon(self._begin_dials)

    async def _begin_dials(self) -> None:
        """Begin what is to be dialled, a few at each turn of trio: a thousand at once would hold up every stream."""
        try:
            while self._to_dial:
                for _ in range(min(DIALS_PER_TURN, len(self._to_dial))):
                    ticket = self._to_dial.popleft()
                    if ticket.waiter is None:  # abandoned meanwhile
                        ticket.host.dialling -= 1
                        self._gone(ticket.host)
                        continue
                    ticket.scope = trio.CancelScope()
                    self._nursery.start_soon(self._dial, ticket, ticket.scope)
                await trio.lowlevel.checkpoint()
        finally:
            self._dialling = False

    async def _dial(self, ticket: _Ticket, scope: trio.CancelScope) -> None:
        host = ticket.host
        sock: socket.socket | TLSSocket | None = None
        failure: TransportError | None = None
        with scope:
            try:
                sock = await self._dial_socket(host.origin, lambda phase: self._tell_phase(ticket, phase))
            except TransportError as error:
                failure = error
            except Exception as error:  # a defect must cost one call, not the engine
                logger.exception("dialling %s raised", host.origin)
                failure = TransportError(
                    f"internal error: {type(error).__name__}", phase=Phase.CONNECT, origin=str(host.origin)
                )
        host.dialling -= 1
        waiter, ticket.waiter = ticket.waiter, None
        if waiter is not None:
            self._tickets.pop(waiter, None)
        if sock is None or self._closed:
            if sock is not None:
                sock.close()
            self._gone(host)
            if waiter is not None:
                waiter.on_connect_failure(
                    failure or TransportError("the engine was closed", phase=Phase.CONNECT, origin=str(host.origin))
                )
            return
        try:
            connection = Connection(sock, str(host.origin), self._loop, *self._callbacks)
        except OSError as error:  # the system watches no more descriptors for us
            sock.close()
            self._gone(host)
            if waiter is not None:
                text = f"cannot watch the connection: {error.strerror or error}"
                waiter.on_connect_failure(TransportError(text, phase=Phase.CONNECT, origin=str(host.origin)))
            return
        self.opened += 1
        self._host_of[connection] = host
        if self._watch is not None:
            self._watch.connection_opened(str(host.origin))
        if waiter is not None:
            waiter.on_connection(connection, False)
        else:
            self._on_idle(connection)

    def _tell_phase(self, ticket: _Ticket, phase: Phase) -> None:
        if ticket.waiter is not None:
            ticket.waiter.on_phase(phase)

    # --- giving back ---

    def _on_idle(self, connection: Connection) -> None:
        """A connection can serve again: the first waiter gets it, else it is kept."""
        host = self._host_of[connection]
        if host.waiting and not connection.looks_alive():
            # Its end, or bytes nobody asked for, may have come behind the response, unseen so far.
            self.discarded += 1
            connection.close()
            return
        ticket = self._next_queued(host)
        if ticket is not None and ticket.fresh and connection.served:
            host.queue.appendleft(ticket)
            host.waiting += 1
            connection.close()  # a fresh one is opened in its place
            return
        if ticket is not None and ticket.waiter is not None:
            waiter = ticket.waiter
            self._tickets.pop(waiter, None)
            self.reused += 1
            waiter.on_connection(connection, True)
            return
        if self._closed or len(self._idle) >= self._limits.max_idle:
            connection.close()
            return
        host.idle.append(connection)
        self._idle[connection] = None
        if self._starved and self._live >= self._limits.max_connections:
            connection.close()  # another origin waits for a place under the total cap
        elif self._expiry is None:
            self._expiry = self._timers.at(connection.idle_since + self._limits.idle_expiry, self._expire)

    def _on_draining(self, connection: Connection) -> None:
        """The rest of a body is read only for the connection's sake, and not for long."""
        deadline = self._loop.now + self._limits.drain_seconds
        self._draining.append((deadline, connection, connection.served))
        if self._drain_timer is None:
            self._drain_timer = self._timers.at(deadline, self._end_draining)

    def _end_draining(self) -> None:
        self._drain_timer = None
        now = self._loop.clock()
        while self._draining:
            deadline, connection, served = self._draining[0]
            if deadline > now:
                self._drain_timer = self._timers.at(deadline, self._end_draining)
                return
            self._draining.popleft()
            if connection.served == served:
                connection.close()

    def _on_closed(self, connection: Connection) -> None:
        host = self._host_of.pop(connection)
        if self._watch is not None:
            self._watch.connection_closed(connection.origin, connection.served)
        if connection in self._idle:
            del self._idle[connection]
            # Mostly the oldest (expiry) or the youngest (just looked at): both are found at once.
            host.idle.remove(connection)
        self._gone(host)

    def _gone(self, host: _Host) -> None:
        """One connection less: whoever waited for a place may open one."""
        host.live -= 1
        self._live -= 1
        if self._closed:
            return
        if host.waiting and not self._starved:
            self._open_for(host)
        elif host.waiting:
            self._starve(host)
        while self._starved and self._live < self._limits.max_connections:
            starved = self._starved.popleft()
            starved.starved = False
            self._open_for(starved)
        if not host.live and not host.queue:
            self._hosts.pop(host.origin, None)

    def _open_for(self, host: _Host) -> None:
        ticket = self._next_queued(host)
        if ticket is not None:
            self._start_dial(ticket)
            if host.waiting and host.live < self._limits.max_per_origin:
                self._starve(host)

    def _next_queued(self, host: _Host) -> _Ticket | None:
        while host.queue:
            ticket = host.queue.popleft()
            if ticket.waiter is not None:
                host.waiting -= 1
                return ticket
        return None

    def _expire(self) -> None:
        self._expiry = None
        limit = self._loop.clock() - self._limits.idle_expiry
        while self._idle:
            oldest = next(iter(self._idle))
            if oldest.idle_since > limit:
                self._expiry = self._timers.at(oldest.idle_since + self._limits.idle_expiry, self._expire)
                return
            oldest.close()

    # --- the end ---

    def close(self) -> None:
        """Close every connection and give up every dial. Waiters are told nothing: their calls have ended."""
        self._closed = True
        for ticket in list(self._tickets.values()):
            if ticket.waiter is not None:
                self.abandon(ticket.waiter)
        for connection in list(self._host_of):
            connection.close()
        for timer in (self._expiry, self._drain_timer):
            if timer is not None:
                timer.cancel()

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        """Per origin: connecting, active, idle, waiting."""
        active: dict[Origin, int] = {}
        for connection, host in self._host_of.items():
            if connection.state is not State.IDLE:
                active[host.origin] = active.get(host.origin, 0) + 1
        return {
            str(origin): (host.dialling, active.get(origin, 0), len(host.idle), host.waiting)
            for origin, host in self._hosts.items()
        }
