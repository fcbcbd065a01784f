"""The multi-request loop: one place that reads every connection.

Knows which descriptors are ready. Must not know HTTP, nor what a connection does with its bytes.

The loop owns an epoll (or kqueue) object. Its descriptor can itself be waited on, so *one* trio task sleeps on it,
and each tick serves up to `TICK_EVENTS` ready connections before the task yields: no task switch, no cancel scope and
no await per chunk. With a task per stream each chunk costs about twice as much (`benchmarks/RESULTS.md`).
Where there is no such object, each connection gets a plain task instead (`TaskLoop`); nothing else changes.
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

import trio

CurrentTime: TypeAlias = "Callable[[], float]"
"""A clock: seconds since some moment."""

logger: logging.Logger = logging.getLogger("manystream.transport.loop")

TICK_EVENTS = 256
"""Connections served in one tick, before other trio tasks run."""

COALESCE_SECONDS: float = 0.004
"""The rest between two ticks while there is traffic, in seconds. One tick then serves many connections.

To sleep and to wake costs trio and the kernel 30 to 150 µs of the core (the most on virtual machines), however much is
ready. At 20,000 events a second a rest of 2 ms would still cost 3 µs per event, a fifth of its whole cost. Half of the
rest is added to the mean latency. The first byte after a quiet moment is not delayed."""

COALESCE_FROM = 4
"""Fewer than this at once are no traffic worth coalescing: a lone call's bytes do not wait."""

LAG_WINDOW: float = 1.0
"""Seconds for which `Loop.lag` remembers a slow tick."""

MAX_FAILED_TICKS = 10
"""Ticks in a row that may raise outside any connection. After them the loop raises, which ends the engine."""

HELD_UP_SECONDS: float = 0.005
"""A connection that takes longer in one tick is named in `Loop.culprit`."""


class Descriptor(Protocol):
    """What has a descriptor: a socket."""

    def fileno(self) -> int: ...


class Pollable(Protocol):
    """What the loop drives."""

    @property
    def sock(self) -> Descriptor: ...
    @property
    def label(self) -> str:
        """Whose exchange is on it, for reports."""
        ...

    def on_readable(self) -> None:
        """Bytes, the end, or an error can be read."""
        ...

    def on_writable(self) -> None:
        """There is room to send."""
        ...

    def on_defect(self, error: Exception) -> None:
        """One of the two raised: a defect in this library. Close this connection and end its exchange; the others go
        on."""
        ...


class Loop(abc.ABC):
    """Reads the connections that are ready, and counts.

    current_time: trio's clock, called directly: `trio.current_time` reaches it through four calls.
    now: the clock's time at the beginning of the tick, for time stamps that cost nothing.
    ticks: how many there were.
    lag: seconds that the slowest tick of the last second or two took.
    culprit: the label of the connection that took most of that tick; empty where none took 5 ms.
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

    def clock(self) -> float:
        """Read trio's clock, for what happens outside a tick."""
        self.now = self._current_time()
        return self.now

    @property
    def lag(self) -> float:
        return max(self._slowest, self._slowest_before)

    @property
    def culprit(self) -> str:
        return self._culprit if self._slowest >= self._slowest_before else self._culprit_before

    @abc.abstractmethod
    def add(self, connection: Pollable) -> None:
        """Start to watch for readability."""

    @abc.abstractmethod
    def remove(self, connection: Pollable) -> None:
        """Stop watching; called before the socket is closed."""

    @abc.abstractmethod
    def watch(self, connection: Pollable, *, read: bool, write: bool) -> None:
        """Change what is watched for."""

    @abc.abstractmethod
    async def run(self) -> None:
        """Serve until cancelled."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give up the descriptor."""

    def failed(self, connection: Pollable, error: Exception) -> None:
        """Something raised while this connection was served: end it, and nothing else."""
        logger.error("serving %r raised: a defect in manystream", connection, exc_info=error)
        try:
            connection.on_defect(error)
        except Exception:
            logger.exception("ending %r raised, too", connection)
            self.remove(connection)

    def measure(self, started: float, culprit: str = "") -> None:
        """Record how long a tick took."""
        ended = time.perf_counter()
        elapsed = ended - started
        if ended - self._window_start > LAG_WINDOW:
            self._slowest_before, self._slowest = self._slowest, 0.0
            self._culprit_before, self._culprit = self._culprit, ""
            self._window_start = ended
        if elapsed > self._slowest:
            self._slowest, self._culprit = elapsed, culprit


class Poller(Protocol):
    """A set of descriptors that is itself a descriptor."""

    def fileno(self) -> int: ...
    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> Sequence[tuple[int, int]]: ...
    def close(self) -> None: ...


READ, WRITE = 1, 4
"""The masks of `Poller`: those of EPOLLIN and EPOLLOUT, so that an epoll object is a `Poller` as it is."""


class SelectorPoller:
    """A standard-library selector with a descriptor of its own (kqueue) as a `Poller`."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector

    def fileno(self) -> int:
        return self._selector.fileno()  # type: ignore[attr-defined, no-any-return]  # pyright: ignore

    def register(self, fd: int, eventmask: int) -> None:
        self._selector.register(fd, _selector_mask(eventmask))

    def modify(self, fd: int, eventmask: int) -> None:
        # A selector refuses an empty mask, where epoll takes it as "errors only": leave the descriptor out instead.
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
    """The loop on a poller."""

    def __init__(self, poller: Poller, current_time: CurrentTime) -> None:
        super().__init__(current_time)
        self._poller = poller
        # By descriptor; a system gives out the lowest that is free. Where thousands are open, a dictionary is three
        # cache misses an event (its index, its entry, the number in it), this is one.
        self._connections: list[Pollable | None] = []
        self._failures = 0  # iterations in a row that raised

    def add(self, connection: Pollable) -> None:
        fd = connection.sock.fileno()
        self._poller.register(fd, READ)  # first: where it raises, nothing is kept
        self._connections.extend([None] * (fd + 1 - len(self._connections)))
        self._connections[fd] = connection

    def remove(self, connection: Pollable) -> None:
        fd = connection.sock.fileno()
        if 0 <= fd < len(self._connections) and self._connections[fd] is not None:
            self._connections[fd] = None
            self._poller.unregister(fd)

    def watch(self, connection: Pollable, *, read: bool, write: bool) -> None:
        self._poller.modify(connection.sock.fileno(), (READ if read else 0) | (WRITE if write else 0))

    async def run(self) -> None:
        descriptor = self._poller.fileno()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            before = self.now
            served = self._guarded_tick()
            # Two ticks in quick succession, or a full one, are traffic: coalesce for as long as it pays.
            coalescing = served >= COALESCE_FROM or self.now - before < COALESCE_SECONDS
            while coalescing:
                if served < TICK_EVENTS:
                    await trio.sleep(COALESCE_SECONDS)
                else:
                    await trio.lowlevel.checkpoint()
                served = self._guarded_tick()
                coalescing = served >= COALESCE_FROM

    def _guarded_tick(self) -> int:
        """Run one tick. If it raises outside any connection, log that; what is still ready is ready in the next tick.

        Raises after `MAX_FAILED_TICKS` such failures in a row.
        """
        try:
            served = self.tick()
        except Exception:
            self._failures += 1
            if self._failures >= MAX_FAILED_TICKS:
                raise
            logger.exception("an iteration of the loop raised: a defect in manystream")
            return 0
        self._failures = 0
        return served

    def tick(self) -> int:
        """Serve each connection that is ready, once. Returns how many were ready.

        Polling is level-triggered: what a connection does not read now makes it ready again in the next tick.
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
            # One connection's callback may have closed another that is ready in this very tick.
            connection = connections[fd]
            if connection is None:
                continue
            label = connection.label  # now: its next exchange may begin before it returns
            try:
                if mask == READ:
                    connection.on_readable()
                else:
                    if mask & WRITE:
                        connection.on_writable()
                    # Errors and hang-ups, too, are found out by reading.
                    if mask & ~WRITE and connections[fd] is connection:
                        connection.on_readable()
            except Exception as error:
                self.failed(connection, error)
            after = clock()
            if after - before > longest:
                longest, culprit = after - before, label
            before = after
        self.measure(started, culprit)
        return len(ready)

    def close(self) -> None:
        self._poller.close()


class TaskLoop(Loop):
    """The loop where no poller has a descriptor: a task per connection."""

    def __init__(self, nursery: trio.Nursery, current_time: CurrentTime) -> None:
        super().__init__(current_time)
        self._nursery = nursery
        self._scopes: dict[Pollable, tuple[trio.CancelScope, trio.CancelScope]] = {}

    def add(self, connection: Pollable) -> None:
        self.clock()
        self._watch(connection, read=True, write=False)

    def remove(self, connection: Pollable) -> None:
        scopes = self._scopes.pop(connection, None)
        if scopes is not None:
            for scope in scopes:
                scope.cancel()
            # The tasks end when they run next; the descriptor may be closed, and given out again, before that.
            trio.lowlevel.notify_closing(connection.sock.fileno())

    def watch(self, connection: Pollable, *, read: bool, write: bool) -> None:
        self.remove(connection)
        self._watch(connection, read=read, write=write)

    def _watch(self, connection: Pollable, *, read: bool, write: bool) -> None:
        reading, writing = trio.CancelScope(), trio.CancelScope()
        self._scopes[connection] = (reading, writing)
        if read:
            self._nursery.start_soon(self._serve, connection, reading, connection.sock.fileno(), False)
        if write:
            self._nursery.start_soon(self._serve, connection, writing, connection.sock.fileno(), True)

    async def _serve(self, connection: Pollable, scope: trio.CancelScope, descriptor: int, write: bool) -> None:
        wait = trio.lowlevel.wait_writable if write else trio.lowlevel.wait_readable
        with scope:
            while True:
                try:
                    await wait(descriptor)
                except trio.ClosedResourceError:
                    return
                started = time.perf_counter()
                label = connection.label
                self.clock()
                self.ticks += 1
                try:
                    if write:
                        connection.on_writable()
                    else:
                        connection.on_readable()
                except Exception as error:
                    self.failed(connection, error)
                self.measure(started, label if time.perf_counter() - started > HELD_UP_SECONDS else "")

    async def run(self) -> None:
        await trio.sleep_forever()

    def close(self) -> None:
        for connection in list(self._scopes):
            self.remove(connection)


def make_loop(nursery: trio.Nursery) -> Loop:
    """The best loop this platform has."""
    current_time = trio.lowlevel.current_clock().current_time
    if sys.platform == "linux":
        return PollerLoop(select.epoll(), current_time)
    if hasattr(selectors, "KqueueSelector"):
        return PollerLoop(SelectorPoller(selectors.KqueueSelector()), current_time)
    return TaskLoop(nursery, current_time)
