"""The keep-alive pool: assigns connections to waiters, with caps per origin and in total.

Every acquire and every release is O(1). Idle connections are taken last in, first out (the latest is the most likely to
be alive); waiters are served first in, first out.

The pool never assigns a dead connection, or one with unread bytes. The loop watches idle connections and closes one
that ends or delivers a byte. The pool also checks a connection when it is taken, because the loop may not have run
since.
"""

from __future__ import annotations

import itertools
import logging
import socket
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Protocol

from .backend import Backend
from .dials import Dial, Dials
from .errors import Phase, TransportError
from .http1 import Connection
from .loop import Loop
from .timers import Timer, Timers
from .tls_socket import TLSSocket
from .url import Origin
from .waiting import DIALLING, QUEUED, Host, PoolRequest, Waiter, report_failure

logger: logging.Logger = logging.getLogger("manystream.transport.pool")


@dataclass(slots=True, frozen=True)
class PoolLimits:
    """Caps on connections.

    max_connections: the number of open connections, in total. Further calls wait in a queue.
    max_per_origin: the number of open connections to one origin. Further calls wait in a queue.
    max_idle: the number of idle connections that are kept open for reuse, in total. By default as many as may be open:
        thousands of agents that wait for their tools at the same time need not connect again.
    idle_expiry: seconds after which an idle connection is closed. The default is below the 20 to 60 seconds after which
        common load balancers drop idle connections silently.
    drain_seconds: seconds that a connection may take to end its body after the response is complete; then it is closed.
    max_age: seconds after which a connection is not reused. Without it, a busy program would stay connected to the
        replicas that a load balancer had when the program started. A running exchange is never interrupted.
    """

    max_connections: int = 20_000
    max_per_origin: int = 20_000
    max_idle: int = 20_000
    idle_expiry: float = 15.0
    drain_seconds: float = 2.0
    max_age: float = 300.0


class ConnectionWatch(Protocol):
    """The receiver of notifications about connections. Its methods must neither wait nor raise."""

    def connection_opened(self, origin: str) -> None:
        """Receive the notification that a connection was opened."""
        ...

    def connection_closed(self, origin: str, served: int) -> None:
        """Receive the notification that a connection was closed after `served` exchanges."""
        ...


EVICTED = 8
"""The number of idle connections that are closed when a dial fails because no file descriptor is left."""

DEFECT_DELAY = 1.0
"""Seconds after which the expiry of idle or draining connections is repeated if it raised."""

ABANDONED_KEPT = 64
"""The number of abandoned requests from which a queue is rebuilt without them."""


class Pool:
    """The connections to all origins of one engine.

    watch: notified of each connection that is opened or closed; None for no notifications.
    """

    def __init__(
        self,
        backend: Backend,
        loop: Loop,
        timers: Timers,
        dial: Dial,
        limits: PoolLimits,
        watch: ConnectionWatch | None = None,
    ) -> None:
        self._watch = watch
        self._loop = loop
        self._timers = timers
        self._dials = Dials(backend, dial, self)
        self._limits = limits
        self._hosts: dict[Origin, Host] = {}
        self._host_of: dict[Connection, Host] = {}
        self._requests: dict[Waiter, PoolRequest] = {}
        self._idle: OrderedDict[Connection, None] = OrderedDict()  # of all origins, oldest first
        self._starved: deque[Host] = deque()
        self._freed: deque[Host] = deque()  # hosts that have lost a connection, until `_fill` has processed them
        self._live = 0
        self._expiry: Timer | None = None
        # Bound methods, created once: otherwise the garbage collector would track three more objects per connection.
        self._callbacks = (self._on_idle, self._on_closed, self._on_draining)
        # Draining connections with their deadline and their number of exchanges, by which a later exchange is
        # recognised. All have the same timeout, so the deadlines are in order.
        self._draining: deque[tuple[float, Connection, int]] = deque()
        self._drain_timer: Timer | None = None
        self._closed = False
        self.opened: int = 0
        self.reused: int = 0
        self.discarded: int = 0

    def __repr__(self) -> str:
        waiting = sum(host.waiting for host in self._hosts.values())
        return f"<Pool {self._live} open, {len(self._idle)} idle, {waiting} waiting>"

    # --- acquiring ---

    def acquire(self, origin: Origin, waiter: Waiter, *, fresh: bool = False) -> None:
        """Assign a connection to `waiter`: an idle one before this method returns, else a later one.

        fresh: assign only a connection that has carried no exchange yet, as for the retry after a stale connection.
        """
        host = self._hosts.get(origin)
        if host is None:
            host = self._hosts[origin] = Host(origin)
        while fresh and host.idle:  # they are as old as the stale one: open a fresh connection instead
            host.idle.popitem()[0].close()
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
            self._hosts[origin] = host  # closing its last connection has removed it
        request = self._requests[waiter] = PoolRequest(waiter, host, fresh)
        host.queue.append(request)
        host.waiting += 1
        if host.live < self._limits.max_per_origin:
            if self._make_room():
                self._start_dial(host)
                self._dials.begin()
            else:
                self._starve(host)

    def abandon(self, waiter: Waiter) -> None:
        """Remove a waiter that needs no connection any more. Its dial ends in the event loop's next iteration."""
        request = self._requests.pop(waiter, None)
        if request is None:
            return
        request.waiter = None
        host = request.host
        if request.state is QUEUED:
            host.waiting -= 1
            if len(host.queue) > ABANDONED_KEPT and len(host.queue) > 2 * host.waiting:
                host.queue = deque(each for each in host.queue if each.waiter is not None)
        elif request.dial is not None:
            request.dial.cancel()
        elif not self._dials.running:
            self._dials.begin()  # frees the place even if `acquire` raised before it started the task

    def _take_idle(self, host: Host) -> Connection | None:
        while host.idle:
            connection, _ = host.idle.popitem()  # the latest
            usable = False
            try:
                usable = self._is_young(connection) and connection.looks_alive()
            finally:
                if not usable:  # or a defect was raised: no other call finds the connection any more
                    self.discarded += 1
                    connection.close()
            if usable:
                self._idle.pop(connection, None)
                return connection
        return None

    def _is_young(self, connection: Connection) -> bool:
        """Return whether the connection is below the maximum age. Uses the loop's latest reading of the clock."""
        return self._loop.now - connection.opened_at < self._limits.max_age

    def _make_room(self) -> bool:
        """Return whether one more connection may be opened. At the cap, close the oldest idle one of all origins."""
        if self._live >= self._limits.max_connections and self._idle:
            next(iter(self._idle)).close()
        return self._live < self._limits.max_connections

    def _starve(self, host: Host) -> None:
        if not host.starved:
            host.starved = True
            self._starved.append(host)

    # --- opening ---

    def _start_dial(self, host: Host) -> None:
        """Move the first waiter from the queue to the dials that have not begun.

        No step of this method can raise, so neither the waiter nor its place under the caps is lost.
        """
        queue = host.queue
        while queue and queue[0].waiter is None:  # abandoned
            queue.popleft()
        if not queue:
            return
        request = queue.popleft()
        request.state = DIALLING
        host.waiting -= 1
        host.live += 1
        host.dialling += 1
        self._live += 1
        self._dials.pending.append(request)

    def on_dial_ended(
        self, request: PoolRequest, sock: socket.socket | TLSSocket | None, failure: Exception | None
    ) -> None:
        """Assign the socket, or free the dial's place and report why there is none."""
        if self._loop.forked:
            return  # the parent's dial goes on
        host = request.host
        host.dialling -= 1
        request.dial = None
        if sock is not None and not self._closed:
            self._open(request, sock)
            return
        waiter, request.waiter = request.waiter, None
        if waiter is not None:
            self._requests.pop(waiter, None)
        if sock is not None:
            sock.close()
        self._free_place(host)
        if waiter is not None:
            report_failure(
                waiter,
                failure or TransportError("the engine was closed", phase=Phase.CONNECT, origin=str(host.origin)),
            )

    def on_not_dialled(self, request: PoolRequest) -> None:
        """Free the place of a request that was abandoned before its dial began."""
        request.host.dialling -= 1
        self._free_place(request.host)

    def _open(self, request: PoolRequest, sock: socket.socket | TLSSocket) -> None:
        """Create a connection on the socket. Assign it to the request's waiter; if there is none, keep it idle."""
        host, origin, waiter = request.host, request.host.name, request.waiter
        try:
            connection = Connection(sock, origin, self._loop, *self._callbacks)
        except Exception as error:
            sock.close()
            if waiter is not None:
                request.waiter = None
                self._requests.pop(waiter, None)
            self._free_place(host)
            if waiter is not None:
                failure: Exception = error
                if isinstance(error, OSError):  # the limit on descriptors that epoll may watch
                    text = f"cannot watch the connection: {error.strerror or error}"
                    failure = TransportError(text, phase=Phase.CONNECT, origin=origin)
                report_failure(waiter, failure)
            return
        self.opened += 1
        self._host_of[connection] = host
        if self._watch is not None:
            self._watch.connection_opened(origin)  # it may end the waiter, or close the pool
        waiter, request.waiter = request.waiter, None
        if waiter is None:
            if not connection.closed:
                self._on_idle(connection)
            return
        self._requests.pop(waiter, None)
        try:
            waiter.on_connection(connection, False)
        except Exception as error:
            connection.close()
            waiter.on_defect(error)

    def evict(self) -> bool:
        """Close the oldest idle connections, to free file descriptors. Returns False if no connection is idle."""
        oldest = list(itertools.islice(self._idle, EVICTED))
        for connection in oldest:
            connection.close()
        return bool(oldest)

    # --- releasing ---

    def _on_idle(self, connection: Connection) -> None:
        """Assign a connection that can be reused to the first waiter; without a waiter, keep it idle."""
        host = self._host_of[connection]
        if not self._is_young(connection) or (host.waiting and not connection.looks_alive()):
            # The connection is too old, or its end or unexpected bytes have arrived after the response.
            self.discarded += 1
            connection.close()
            return
        queue = host.queue
        while queue and queue[0].waiter is None:  # abandoned
            queue.popleft()
        if queue and queue[0].fresh and connection.served:
            connection.close()  # a fresh connection is opened instead
            return
        if queue:
            waiter = queue.popleft().waiter
            host.waiting -= 1
            assert waiter is not None
            self._requests.pop(waiter, None)
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
        host.idle[connection] = None
        self._idle[connection] = None
        if self._starved and self._live >= self._limits.max_connections:
            connection.close()  # another origin waits for a place under the total cap
        elif self._expiry is None:
            self._expiry = self._timers.at(
                connection.idle_since + self._limits.idle_expiry, self._expire, self._expire_later
            )

    def _on_draining(self, connection: Connection) -> None:
        """Set a deadline for a connection that reads the rest of a body only so that it can be reused."""
        deadline = self._loop.now + self._limits.drain_seconds
        self._draining.append((deadline, connection, connection.served))
        if self._drain_timer is None:
            self._end_draining_at(deadline)

    def _end_draining_at(self, when: float) -> None:
        self._drain_timer = self._timers.at(when, self._end_draining, self._expire_later, is_timeout=True)

    def _end_draining(self) -> None:
        now = self._loop.clock()
        while self._draining:
            deadline, connection, served = self._draining[0]
            if deadline > now:
                self._end_draining_at(deadline)
                return
            if connection.served == served:
                connection.close()
            self._draining.popleft()
        self._drain_timer = None

    def _expire_later(self, _: Exception) -> None:
        """Repeat the expiry of idle and draining connections, which raised, after `DEFECT_DELAY`."""
        when = self._loop.now + DEFECT_DELAY
        if self._expiry is None or not self._expiry.pending:
            self._expiry = self._timers.at(when, self._expire, self._expire_later)
        if self._drain_timer is None or not self._drain_timer.pending:
            self._end_draining_at(when)

    def _on_closed(self, connection: Connection) -> None:
        host = self._host_of.get(connection)
        if host is not None:
            if connection in self._idle:
                host.idle.pop(connection, None)
                del self._idle[connection]
            del self._host_of[connection]
            host.live -= 1
            self._live -= 1
            self._freed.append(host)
            if self._watch is not None:
                self._watch.connection_closed(connection.origin, connection.served)
        self._fill()

    def _free_place(self, host: Host) -> None:
        """Free the place of a dial that has ended without a connection; the next waiter may dial."""
        host.live -= 1
        self._live -= 1
        self._freed.append(host)
        self._fill()

    def _fill(self) -> None:
        """Start dials for the places that have become free. If a step raises, the next call does the rest."""
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
        self._dials.begin()

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
            # The same expression as in `_on_idle`: another one could be rounded differently, and the timer would then
            # fire too early again and again.
            when = oldest.idle_since + self._limits.idle_expiry
            if when > now:
                self._expiry = self._timers.at(when, self._expire, self._expire_later)
                return
            oldest.close()
        self._expiry = None

    # --- closing ---

    def close(self) -> None:
        """Close all connections and cancel all dials. Waiters are not notified: their calls have ended."""
        self._closed = True
        for request in list(self._requests.values()):
            if request.waiter is not None:
                self.abandon(request.waiter)
        for connection in list(self._host_of):
            connection.close()
        for timer in (self._expiry, self._drain_timer):
            if timer is not None:
                timer.cancel()

    def drop(self) -> None:
        """Close all connections of an event loop that has ended. No dial is cancelled: its task has ended, too."""
        self._closed = True
        self._dials.drop()
        self._requests.clear()
        for connection in list(self._host_of):
            connection.close()

    def counts(self) -> dict[str, tuple[int, int, int, int]]:
        """Return the counts per origin: (connecting, active, idle, waiting)."""
        active: dict[Origin, int] = {}
        for connection, host in self._host_of.items():
            if not connection.idle and not connection.upgraded:
                active[host.origin] = active.get(host.origin, 0) + 1
        return {
            str(origin): (host.dialling, active.get(origin, 0), len(host.idle), host.waiting)
            for origin, host in self._hosts.items()
        }
