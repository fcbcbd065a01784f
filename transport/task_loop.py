"""The loop for platforms on which no poller has a descriptor of its own: one trio task per connection."""

from __future__ import annotations

import time

import trio

from .backend import Backend
from .loop import HELD_UP_SECONDS, CurrentTime, Loop, Pollable, PollerLoop, make_poller


class TaskLoop(Loop):
    """The loop for platforms on which no poller has a descriptor: one task per connection."""

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
            # The tasks end when they run next. The descriptor may be closed and reused before that.
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

    def start(self, backend: Backend) -> None:
        pass  # `add` starts the tasks

    def close(self) -> None:
        for connection in list(self._scopes):
            self.remove(connection)


def make_loop(nursery: trio.Nursery) -> Loop:
    """Return the fastest loop that this platform supports."""
    current_time = trio.lowlevel.current_clock().current_time
    poller = make_poller()
    return TaskLoop(nursery, current_time) if poller is None else PollerLoop(poller, current_time)
