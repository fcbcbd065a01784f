"""The multi-request loop: one task or callback that reads all connections.

The loop owns an epoll (or kqueue) object. trio and asyncio can wait for that object's descriptor, so *one* task or
callback waits for all connections. Each tick serves up to `TICK_EVENTS` ready connections before the task yields: no
task switch, no cancel scope and no await per chunk. With a task per stream, each chunk costs about twice as much
(`benchmarks/RESULTS.md`). On a platform without such an object, each connection has a task of its own (`task_loop`).
"""

from __future__ import annotations

import abc
import logging
import select
import selectors
import sys
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from .backend import WAIT, Backend, Cancellable
from .coalescing import Coalescing
from .fork import detach, ignore_forks, watch_forks

CurrentTime: TypeAlias = Callable[[], float]
"""A clock: returns seconds since an arbitrary start."""

logger: logging.Logger = logging.getLogger("manystream.transport.loop")

TICK_EVENTS = 256
"""The maximum number of connections served in one tick, before other tasks run."""

LAG_WINDOW: float = 1.0
"""Seconds for which `Loop.lag` remembers a slow tick."""

MAX_FAILED_TICKS = 10
"""Consecutive ticks that may raise outside a connection. After that many the loop raises, which ends the engine."""

HELD_UP_SECONDS: float = 0.005
"""`Loop.culprit` names a connection that takes longer than this in one tick."""


class Descriptor(Protocol):
    """An object with a file descriptor, such as a socket."""

    def fileno(self) -> int: ...


class Pollable(Protocol):
    """A connection that the loop serves."""

    @property
    def sock(self) -> Descriptor:
        """The object whose descriptor the loop watches."""
        ...

    @property
    def label(self) -> str:
        """The name of the call whose exchange is on the connection, for reports."""
        ...

    def on_readable(self) -> None:
        """Read the socket: bytes, the end of the stream or an error are available."""
        ...

    def on_writable(self) -> None:
        """Write to the socket: its buffer has space."""
        ...

    def on_defect(self, error: Exception) -> None:
        """Close this connection and end its exchange after a defect in this library: another method raised."""
        ...


class Loop(abc.ABC):
    """Serves the connections that are ready, and measures its own load.

    current_time: the backend's clock.
    now: the clock's time at the beginning of the tick, for time stamps at no cost.
    ticks: the number of ticks that served a connection.
    bytes_received: the number of bytes that all connections have received.
    bytes_sent: the number of bytes that all connections have sent.
    forked: this process is a fork of the loop's, and the loop serves nothing here.
    """

    def __init__(self, current_time: CurrentTime) -> None:
        self._current_time = current_time
        self.now: float = 0.0
        self.ticks = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self._slowest = 0.0
        self._slowest_before = 0.0
        self._window_start = 0.0
        self._culprit = self._culprit_before = ""
        self.forked: bool = False
        watch_forks(self)

    def on_fork(self) -> None:
        """Let go of the connections, which belong to the parent process."""
        self.forked = True

    def clock(self) -> float:
        """Read the clock, set `now` and return it. Use it for time stamps outside a tick."""
        self.now = self._current_time()
        return self.now

    @property
    def lag(self) -> float:
        """The duration of the slowest tick of the last one to two seconds, in seconds."""
        return max(self._slowest, self._slowest_before)

    @property
    def culprit(self) -> str:
        """The label of the connection that took most of the slowest tick; empty if none took `HELD_UP_SECONDS`."""
        return self._culprit if self._slowest >= self._slowest_before else self._culprit_before

    @abc.abstractmethod
    def add(self, connection: Pollable) -> None:
        """Start to watch the connection for readability."""

    @abc.abstractmethod
    def remove(self, connection: Pollable) -> None:
        """Stop watching the connection. Call it before the socket is closed."""

    @abc.abstractmethod
    def watch(self, connection: Pollable, *, read: bool, write: bool) -> None:
        """Watch the connection for readability, for writability, for both or for neither."""

    @abc.abstractmethod
    def start(self, backend: Backend) -> None:
        """Serve the connections from now on, until `close` or until the backend's tasks are cancelled."""

    @abc.abstractmethod
    def close(self) -> None:
        """Release the loop's own descriptor and tasks."""

    def limit_pauses(self, seconds: float) -> None:
        """Pause at most so long between two ticks. Here there are no pauses."""
        return

    def catch_up(self) -> bool:
        """Serve connections that are ready, before something is judged by what has arrived. Returns whether more may be
        ready. Here it serves none, because their own tasks do."""
        return False

    def failed(self, connection: Pollable, error: Exception) -> None:
        """Log a defect that was raised while this connection was served, and end this connection only."""
        logger.error("serving %r raised: a defect in manystream", connection, exc_info=error)
        try:
            connection.on_defect(error)
        except Exception:
            logger.exception("ending %r raised, too", connection)
            self.remove(connection)

    def measure(self, started: float, culprit: str = "") -> None:
        """Record the duration of a tick that began at `started` (`time.perf_counter`).

        culprit: the label of the connection that took longest; empty if none took `HELD_UP_SECONDS`.
        """
        ended = time.perf_counter()
        elapsed = ended - started
        if ended - self._window_start > LAG_WINDOW:
            self._slowest_before, self._slowest = self._slowest, 0.0
            self._culprit_before, self._culprit = self._culprit, ""
            self._window_start = ended
        if elapsed > self._slowest:
            self._slowest, self._culprit = elapsed, culprit


class Poller(Protocol):
    """A set of watched descriptors that has a descriptor of its own."""

    def fileno(self) -> int: ...
    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> Sequence[tuple[int, int]]: ...
    def close(self) -> None: ...


READ, WRITE = 1, 4
"""The event masks of `Poller`. They equal EPOLLIN and EPOLLOUT, so that an epoll object is a `Poller`."""


class SelectorPoller:
    """A `Poller` over a standard-library selector that has a descriptor of its own (kqueue)."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector

    def fileno(self) -> int:
        return self._selector.fileno()  # type: ignore[attr-defined, no-any-return]  # pyright: ignore

    def register(self, fd: int, eventmask: int) -> None:
        self._selector.register(fd, _selector_mask(eventmask))

    def modify(self, fd: int, eventmask: int) -> None:
        # For epoll an empty mask means "errors only". A selector refuses it, so remove the descriptor instead.
        registered = fd in self._selector.get_map()
        if not eventmask:
            if registered:
                self._selector.unregister(fd)
        elif registered:
            self._selector.modify(fd, _selector_mask(eventmask))
        else:
            self.register(fd, eventmask)

    def unregister(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def poll(self, timeout: float, maxevents: int) -> Sequence[tuple[int, int]]:
        return [
            (key.fd, (READ if mask & selectors.EVENT_READ else 0) | (WRITE if mask & selectors.EVENT_WRITE else 0))
            for key, mask in self._selector.select(timeout)
        ]

    def close(self) -> None:
        self._selector.close()


def _selector_mask(mask: int) -> int:
    return (selectors.EVENT_READ if mask & READ else 0) | (selectors.EVENT_WRITE if mask & WRITE else 0)


class PollerLoop(Loop):
    """The loop on a poller: epoll or kqueue."""

    def __init__(self, poller: Poller, current_time: CurrentTime) -> None:
        super().__init__(current_time)
        self._poller = poller
        # Indexed by descriptor: the system always allocates the lowest free one. With thousands of connections, a
        # dictionary would cost three cache misses per event (its index, its entry, the integer), a list costs one.
        self._connections: list[Pollable | None] = []
        self._failures = 0  # consecutive ticks that raised
        self._coalescing = Coalescing()
        self._service: Cancellable | None = None
        self._wakers = (-1, -1)  # the event loop's own sockets, for a fork

    def add(self, connection: Pollable) -> None:
        fd = connection.sock.fileno()
        self._poller.register(fd, READ)  # first: if it raises, nothing is stored
        self._connections.extend([None] * (fd + 1 - len(self._connections)))
        self._connections[fd] = connection

    def remove(self, connection: Pollable) -> None:
        fd = connection.sock.fileno()
        if 0 <= fd < len(self._connections) and self._connections[fd] is not None:
            self._connections[fd] = None
            self._poller.unregister(fd)

    def watch(self, connection: Pollable, *, read: bool, write: bool) -> None:
        self._poller.modify(connection.sock.fileno(), (READ if read else 0) | (WRITE if write else 0))

    def on_fork(self) -> None:
        super().on_fork()
        self._connections.clear()
        self._service = None  # it stands in the event loop of the parent
        if sys.platform == "linux":  # a child has no kqueue of its parent
            detach(self._poller.fileno(), self._wakers)

    def start(self, backend: Backend) -> None:
        self._wakers = backend.wakers()
        self._service = backend.serve(self._poller.fileno(), self._turn)

    def _turn(self) -> float:
        """Run one tick. Returns the seconds until the next one, or `WAIT`."""
        served = self._guarded_tick()
        if served >= TICK_EVENTS:
            return 0.0
        if served:
            return self._coalescing.pause or WAIT
        self._coalescing.gathered_nothing()  # the pause was one too many: wait
        return WAIT

    def limit_pauses(self, seconds: float) -> None:
        self._coalescing.longest = min(self._coalescing.longest, seconds)

    def catch_up(self) -> bool:
        return self._guarded_tick() >= TICK_EVENTS

    def _guarded_tick(self) -> int:
        """Run one tick; return the number of connections that were ready.

        An exception outside a connection is logged, and the next tick serves the connections that are still ready.
        After `MAX_FAILED_TICKS` consecutive failures the exception is raised.
        """
        try:
            served = self.tick()
        except Exception:
            self._failures += 1
            if self._failures >= MAX_FAILED_TICKS:
                raise
            logger.exception("a tick of the loop raised: a defect in manystream")
            return 0
        self._failures = 0
        return served

    def tick(self) -> int:
        """Serve each ready connection once. Returns the number of connections that were ready.

        Polling is level-triggered: bytes that a connection does not read now make it ready again in the next tick.
        """
        clock = time.perf_counter
        started = clock()
        ready = self._poller.poll(0, TICK_EVENTS)
        if not ready:
            return 0
        before = clock()
        self.clock()
        self.ticks += 1
        connections = self._connections
        longest, culprit = HELD_UP_SECONDS, ""
        for fd, mask in ready:
            # A callback of one connection may have closed another one that is ready in this tick.
            connection = connections[fd]
            if connection is None:
                continue
            label = connection.label  # read it before the call, in which the next exchange may begin
            try:
                if mask == READ:
                    connection.on_readable()
                else:
                    if mask & WRITE:
                        connection.on_writable()
                    # Errors and hang-ups are detected by reading, too.
                    if mask & ~WRITE and connections[fd] is connection:
                        connection.on_readable()
            except Exception as error:
                self.failed(connection, error)
            after = clock()
            if after - before > longest:
                longest, culprit = after - before, label
            before = after
        self.measure(started, culprit)
        self._coalescing.record(self.now, self._current_time(), len(ready))
        return len(ready)

    def close(self) -> None:
        if self._service is not None:
            self._service.cancel()
            self._service = None
        ignore_forks(self)
        self._poller.close()


def make_poller() -> Poller | None:
    """Return a poller with a descriptor of its own; None if this platform has none."""
    if sys.platform == "linux":
        return select.epoll()
    if hasattr(selectors, "KqueueSelector"):
        return SelectorPoller(selectors.KqueueSelector())
    return None
