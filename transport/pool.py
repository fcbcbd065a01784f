"""The keep-alive pool: who gets which connection, per origin and in total.

Knows origins, caps and queues. Must not know what is sent on a connection, nor how one is dialled (it is handed a
function for that). Every acquire and every release is O(1): idle connections are taken last in, first out (the
youngest is the likeliest to be alive), waiters first in, first out.

A dead or dirty connection is never handed out: an idle one is still watched by the loop, which closes it at its end
or at any byte; and it is looked at once more when it is taken, because the loop may not have had its turn.
"""

from __future__ import annotations

import itertools
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
from .waiting import Host, Ticket, Waiter, WaiterState, refuse

logger: logging.Logger = logging.getLogger("manystream.transport.pool")

Dial: TypeAlias = "Callable[[Origin, Callable[[Phase], None]], Awaitable[socket.socket | TLSSocket]]"
"""Opens a connected non-blocking socket, telling the phases it goes through. Raises `TransportError`."""


@dataclass(slots=True, frozen=True)
class PoolLimits:
    """Caps on connections.

    max_connections: open at once, in total; calls beyond wait their turn.
    max_per_origin: open at once to one origin; calls beyond wait their turn.
    max_idle: kept open for reuse, in total.
    idle_expiry: seconds after which an idle connection is closed; below the 20 to 60 seconds after which common load
        balancers close theirs silently.
    drain_seconds: how long a connection may take to end a body whose answer is whole, before it is closed.
    max_age: seconds after which a connection is not used again. Without it a busy program would stay with the replicas
        that a load balancer had when the program started. An exchange that runs is never cut.
    """

    max_connections: int = 20_000
    max_per_origin: int = 20_000
    max_idle: int = 1_000
    idle_expiry: float = 15.0
    drain_seconds: float = 2.0
    max_age: float = 300.0


class ConnectionWatch(Protocol):
    """Who is told of connections; must neither wait nor raise."""

    def connection_opened(self, origin: str) -> None: ...
    def connection_closed(self, origin: str, served: int) -> None: ...


EVICTED = 8
"""Idle connections that make way where the process has no descriptor left for a dial."""
EVICTIONS = 8
"""Times that one dial may ask for that."""

DEFECT_DELAY = 1.0
"""Seconds until a look at idle or draining connections that raised is repeated."""

ABANDONED_KEPT = 64
"""Abandoned places in a queue that are not worth a clean-up."""

DIALS_PER_TURN = 16
"""Dials begun before others get a turn: each takes some 0.1 ms until it waits for the first time."""


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
        self._hosts: dict[Origin, Host] = {}
        self._host_of: dict[Connection, Host] = {}
        self._tickets: dict[Waiter, Ticket] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # oldest first, over all origins
        self._starved: deque[Host] = deque()
        self._to_dial: deque[Ticket] = deque()
        self._freed: deque[Host] = deque()  # hosts that have lost a connection, until `_fill` has looked at them
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
            host = self._hosts[origin] = Host(origin)
        while fresh and host.idle:  # as old as the stale one was; a fresh one is opened in their place
            host.idle[-1].close()
        connection = self._take_idle(host)
        if connection is not None:
            self.reused += 1
            try:
                waiter.on_connection(connection, True)
            except Exception as error:
                connection.close()
                waiter.on_defect(error)
            return
        if not host.live:
            self._hosts[origin] = host  # with its last connection closed just now it was forgotten
        ticket = self._tickets[waiter] = Ticket(waiter, host, fresh, self._loop.clock)
        host.queue.append(ticket)
        host.waiting += 1
        if host.live < self._limits.max_per_origin:
            if self._make_room():
                self._start_dial(host)
                self._see_to_dials()
            else:
                self._starve(host)

    def abandon(self, waiter: Waiter) -> None:
        """The waiter wants no connection any more. Its dial, if it has one, is closed within one turn."""
        ticket = self._tickets.pop(waiter, None)
        if ticket is None:
            return
        ticket.waiter = None
        host = ticket.host
        if ticket.state is WaiterState.QUEUED:
            host.waiting -= 1
            if len(host.queue) > ABANDONED_KEPT and len(host.queue) > 2 * host.waiting:
                host.queue = deque(each for each in host.queue if each.waiter is not None)
        elif ticket.scope is not None:
            ticket.scope.cancel()
        elif not self._dialling:
            self._see_to_dials()  # gives the place back; nothing does where `acquire` raised before it came to this

    def _take_idle(self, host: Host) -> Connection | None:
        while host.idle:
            connection = host.idle[-1]
            if self._is_young(connection) and connection.looks_alive():
                host.idle.pop()
                self._idle.pop(connection, None)
                return connection
            self.discarded += 1
            connection.close()
        return None

    def _is_young(self, connection: Connection) -> bool:
        """Whether the connection may serve again, by its age. The loop's clock was read just now."""
        return self._loop.now - connection.opened_at < self._limits.max_age

    def _make_room(self) -> bool:
        """Whether one more connection may be opened; the oldest idle one of any origin makes way."""
        if self._live < self._limits.max_connections:
            return True
        if self._idle:
            next(iter(self._idle)).close()
            return True
        return False

    def _starve(self, host: Host) -> None:
        if not host.starved:
            host.starved = True
            self._starved.append(host)

    # --- opening ---

    def _start_dial(self, host: Host) -> None:
        """Take the first who waits off the queue, and note that a dial is to begin. No step of this can raise, so
        that neither the waiter nor the place is lost."""
        queue = host.queue
        while queue and queue[0].waiter is None:  # abandoned
            queue.popleft()
        if not queue:
            return
        ticket = queue.popleft()
        ticket.state = WaiterState.DIALLING
        host.waiting -= 1
        host.live += 1
        host.dialling += 1
        self._live += 1
        self._to_dial.append(ticket)

    def _see_to_dials(self) -> None:
        """Have a task begin the dials that wait, where none does."""
        if self._to_dial and not self._dialling:
            self._nursery.start_soon(self._begin_dials)
            self._dialling = True

    async def _begin_dials(self) -> None:
        """Begin what is to be dialled, a few at each turn of trio: a thousand at once would hold up every stream."""
        try:
            while self._to_dial:
                for _ in range(min(DIALS_PER_TURN, len(self._to_dial))):
                    ticket = self._to_dial[0]
                    if ticket.waiter is not None:
                        ticket.scope = trio.CancelScope()
                        self._nursery.start_soon(self._dial, ticket, ticket.scope)
                    self._to_dial.popleft()
                    if ticket.waiter is None:  # abandoned meanwhile
                        ticket.host.dialling -= 1
                        self._gone(ticket.host)
                await trio.lowlevel.checkpoint()
        except Exception:
            logger.exception("beginning a dial raised: a defect in manystream")
        finally:
            self._dialling = False

    async def _dial(self, ticket: Ticket, scope: trio.CancelScope) -> None:
        """One dial, from its beginning to its end."""
        waiter = ticket.waiter
        try:
            await self._run_dial(ticket, scope)
        except Exception as error:
            logger.exception("a dial to %s raised: a defect in manystream", ticket.host.origin)
            if waiter is not None:
                waiter.on_defect(error)

    async def _run_dial(self, ticket: Ticket, scope: trio.CancelScope) -> None:
        host = ticket.host
        sock: socket.socket | TLSSocket | None = None
        failure: Exception | None = None
        with scope:
            for _ in range(EVICTIONS):
                try:
                    sock = await self._dial_socket(host.origin, ticket.on_phase)
                except Exception as error:
                    failure = error
                if sock is not None or not isinstance(failure, TransportError) or not failure.exhausted:
                    break
                if not self._evict():
                    break
        host.dialling -= 1
        waiter, ticket.waiter = ticket.waiter, None
        if waiter is not None:
            self._tickets.pop(waiter, None)
        if sock is not None and not self._closed:
            self._open(ticket, sock, waiter)
            return
        if sock is not None:
            sock.close()
        self._gone(host)
        if waiter is not None:
            refuse(
                waiter,
                failure or TransportError("the engine was closed", phase=Phase.CONNECT, origin=str(host.origin)),
            )

    def _open(self, ticket: Ticket, sock: socket.socket | TLSSocket, waiter: Waiter | None) -> None:
        """Make a connection of the socket and give it to its waiter, if that still waits."""
        host, origin = ticket.host, str(ticket.host.origin)
        try:
            connection = Connection(
                sock, origin, self._loop, *self._callbacks, connect_seconds=ticket.connect_seconds()
            )
        except Exception as error:
            sock.close()
            self._gone(host)
            if waiter is not None:
                refused: Exception = error
                if isinstance(error, OSError):  # the system watches no more descriptors for us
                    text = f"cannot watch the connection: {error.strerror or error}"
                    refused = TransportError(text, phase=Phase.CONNECT, origin=origin)
                refuse(waiter, refused)
            return
        self.opened += 1
        self._host_of[connection] = host
        if self._watch is not None:
            self._watch.connection_opened(origin)
        if waiter is None:
            self._on_idle(connection)
            return
        try:
            waiter.on_connection(connection, False)
        except Exception as error:
            connection.close()
            waiter.on_defect(error)

    def _evict(self) -> bool:
        """Close the oldest idle connections: the process has no descriptor left. False where none is idle."""
        oldest = list(itertools.islice(self._idle, EVICTED))
        for connection in oldest:
            connection.close()
        return bool(oldest)

    # --- giving back ---

    def _on_idle(self, connection: Connection) -> None:
        """A connection can serve again: the first waiter gets it, else it is kept."""
        host = self._host_of[connection]
        if not self._is_young(connection) or (host.waiting and not connection.looks_alive()):
            # Too old; or its end, or bytes nobody asked for, may have come behind the response, unseen so far.
            self.discarded += 1
            connection.close()
            return
        queue = host.queue
        while queue and queue[0].waiter is None:  # abandoned
            queue.popleft()
        if queue and queue[0].fresh and connection.served:
            connection.close()  # a fresh one is opened in its place
            return
        if queue:
            waiter = queue.popleft().waiter
            host.waiting -= 1
            assert waiter is not None
            self._tickets.pop(waiter, None)
            self.reused += 1
            try:
                waiter.on_connection(connection, True)
            except Exception as error:
                connection.close()
                waiter.on_defect(error)
            return
        if self._closed or len(self._idle) >= self._limits.max_idle:
            connection.close()
            return
        host.idle.append(connection)
        self._idle[connection] = None
        if self._starved and self._live >= self._limits.max_connections:
            connection.close()  # another origin waits for a place under the total cap
        elif self._expiry is None:
            self._expiry = self._timers.at(
                connection.idle_since + self._limits.idle_expiry, self._expire, self._look_later
            )

    def _on_draining(self, connection: Connection) -> None:
        """The rest of a body is read only for the connection's sake, and not for long."""
        deadline = self._loop.now + self._limits.drain_seconds
        self._draining.append((deadline, connection, connection.served))
        if self._drain_timer is None:
            self._drain_timer = self._timers.at(deadline, self._end_draining, self._look_later)

    def _end_draining(self) -> None:
        now = self._loop.clock()
        while self._draining:
            deadline, connection, served = self._draining[0]
            if deadline > now:
                self._drain_timer = self._timers.at(deadline, self._end_draining, self._look_later)
                return
            if connection.served == served:
                connection.close()
            self._draining.popleft()
        self._drain_timer = None

    def _look_later(self, _: Exception) -> None:
        """A look at idle or draining connections raised: look again."""
        when = self._loop.now + DEFECT_DELAY
        if self._expiry is None or not self._expiry.pending:
            self._expiry = self._timers.at(when, self._expire, self._look_later)
        if self._drain_timer is None or not self._drain_timer.pending:
            self._drain_timer = self._timers.at(when, self._end_draining, self._look_later)

    def _on_closed(self, connection: Connection) -> None:
        host = self._host_of.get(connection)
        if host is not None:
            if connection in self._idle:
                # Mostly the oldest (expiry) or the youngest (just looked at): both are found at once.
                host.idle.remove(connection)
                del self._idle[connection]
            del self._host_of[connection]
            host.live -= 1
            self._live -= 1
            self._freed.append(host)
            if self._watch is not None:
                self._watch.connection_closed(connection.origin, connection.served)
        self._fill()

    def _gone(self, host: Host) -> None:
        """One dial less: whoever waited for a place may open one."""
        host.live -= 1
        self._live -= 1
        self._freed.append(host)
        self._fill()

    def _fill(self) -> None:
        """Give the places that have become free to those who wait. Where this raises half-way, the next call does
        the rest."""
        while self._freed:
            host = self._freed[0]
            if not self._closed:
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
            self._freed.popleft()
        self._see_to_dials()

    def _open_for(self, host: Host) -> None:
        if host.live >= self._limits.max_per_origin or self._live >= self._limits.max_connections:
            return
        self._start_dial(host)
        if host.waiting and host.live < self._limits.max_per_origin:
            self._starve(host)

    def _expire(self) -> None:
        now = self._loop.clock()
        while self._idle:
            oldest = next(iter(self._idle))
            # The same sum as below: another one could round to a moment before this timer's own, for ever.
            when = oldest.idle_since + self._limits.idle_expiry
            if when > now:
                self._expiry = self._timers.at(when, self._expire, self._look_later)
                return
            oldest.close()
        self._expiry = None

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
