"""The transport on trio."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import Final

import trio

from .backend import AddressInfo, Alarm, Backend, Cancellable, Event, Parameters, Result, Signal, TaskGroup
from .fork import socket_pair
from .kernel_timer import make_kernel_timer

logger: logging.Logger = logging.getLogger("manystream.transport.trio_backend")

_HANDSHAKE_LOCK: trio.lowlevel.RunVar[trio.Lock] = trio.lowlevel.RunVar("handshake lock")


class TrioBackend:
    """Tasks and waits of a trio run.

    nursery: holds the tasks, and receives what they raise. The tasks then run in the context (`contextvars`) in which
        this object is made. Without a nursery, the tasks are trio's system tasks, which end with the run;
        `on_failure` is then called with an exception that ends one of them.
    """

    def __init__(
        self, nursery: trio.Nursery | None = None, on_failure: Callable[[BaseException], None] | None = None
    ) -> None:
        self._nursery = nursery
        self._on_failure = on_failure
        self._context = None if nursery is None else copy_context()
        self._token = None if nursery is None else trio.lowlevel.current_trio_token()

    @property
    def clock(self) -> Callable[[], float]:
        """The clock's own function, because `trio.current_time` adds four calls."""
        return trio.lowlevel.current_clock().current_time

    def start(self, function: Callable[[*Parameters], Awaitable[None]], *arguments: *Parameters) -> Cancellable:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await function(*arguments)

        if self._nursery is not None and self._context is not None:
            # Not in the context of the code that happens to need the task, such as a dial.
            self._context.copy().run(partial(self._nursery.start_soon, run, name=function))
        else:
            trio.lowlevel.spawn_system_task(self._guard, run, name=function)
        return scope

    async def _guard(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run a system task. An exception of such a task would end the whole run."""
        try:
            await run()
        except Exception as error:
            logger.exception("a task of the transport raised: a defect in manystream")
            if self._on_failure is not None:
                self._on_failure(error)

    def serve(self, descriptor: int, turn: Callable[[], float]) -> Cancellable:
        """Call `turn` in a task of its own."""
        service = _Service(descriptor, turn)
        service.task = self.start(service.run)
        return service

    def wakers(self) -> tuple[int, int]:
        """Return the sockets of the entry queue, for which trio has no public name."""
        queue = getattr(trio.lowlevel.current_trio_token(), "_reentry_queue", None)
        return socket_pair(getattr(queue, "wakeup", None), "wakeup_sock", "write_sock")

    def alarm(self, fire: Callable[[], None]) -> Alarm:
        """Return an alarm: a task that sleeps."""
        alarm = _Alarm(fire)
        alarm.task = self.start(alarm.run)
        return alarm

    def event(self) -> Event:
        return trio.Event()

    def signal(self) -> Signal:
        return trio.Event()

    @property
    def handshaking(self) -> bool:
        """Whether the lock of this trio run is held."""
        try:
            return _HANDSHAKE_LOCK.get().locked()
        except LookupError:
            return False

    def handshake_lock(self) -> AbstractAsyncContextManager[object]:
        """Return the one lock of this trio run."""
        try:
            return _HANDSHAKE_LOCK.get()
        except LookupError:
            lock = trio.Lock()
            _HANDSHAKE_LOCK.set(lock)
            return lock

    @contextlib.asynccontextmanager
    async def open_group(self) -> AsyncGenerator[TaskGroup]:
        """Open a nursery. `TaskGroup.cancel` cancels the block, too."""
        async with trio.open_nursery() as nursery:
            yield _Group(nursery)

    def lock(self) -> AbstractAsyncContextManager[object]:
        return trio.Lock()

    def scope(self, deadline: float) -> AbstractAsyncContextManager[Cancellable, bool]:
        return _Scope(trio.CancelScope(deadline=deadline))

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function in the next iteration, also from plain code between two steps of a guest run."""
        token = self._token or trio.lowlevel.current_trio_token()
        if self._context is None:
            token.run_sync_soon(function)
        else:
            token.run_sync_soon(self._context.copy().run, function)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def run_in_thread(self, function: Callable[[], Result], *, abandon: bool = False) -> Result:
        return await trio.to_thread.run_sync(function, abandon_on_cancel=abandon)

    async def checkpoint(self) -> None:
        await trio.lowlevel.checkpoint()

    async def checkpoint_without_wait(self) -> None:
        await trio.lowlevel.checkpoint()

    async def checkpoint_if_cancelled(self) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()

    async def wait_readable(self, descriptor: int) -> None:
        await trio.lowlevel.wait_readable(descriptor)

    async def wait_writable(self, descriptor: int) -> None:
        await trio.lowlevel.wait_writable(descriptor)

    async def wait_at_most(self, event: Event, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await event.wait()

    async def getaddrinfo(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Look up the addresses with trio's resolver, which a program can replace."""
        return await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class _Group:
    __slots__ = ("_nursery",)

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def start(self, function: Callable[[*Parameters], Awaitable[None]], *arguments: *Parameters) -> None:
        self._nursery.start_soon(function, *arguments)

    def cancel(self) -> None:
        self._nursery.cancel_scope.cancel()


class _Scope:
    __slots__ = ("_scope",)

    def __init__(self, scope: trio.CancelScope) -> None:
        self._scope = scope

    async def __aenter__(self) -> Cancellable:
        return self._scope.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._scope.__exit__(kind, error, trace)


class _Alarm:
    """A task that sleeps in a cancel scope. An earlier deadline moves the scope's; no task is woken for it."""

    __slots__ = ("_fire", "_scope", "_when", "task")

    def __init__(self, fire: Callable[[], None]) -> None:
        self._fire = fire
        self._when = math.inf
        self._scope: trio.CancelScope | None = None
        self.task: Cancellable | None = None

    def set(self, when: float) -> None:
        self._when = when
        if self._scope is not None:
            self._scope.deadline = when

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        while True:
            with trio.CancelScope(deadline=self._when) as self._scope:
                await trio.sleep_forever()
            self._scope = None
            self._fire()
            # Let other tasks run even if the next deadline has passed.
            await trio.lowlevel.checkpoint()


class _Service:
    """A task that calls a function when a descriptor is readable, and after the pauses that the function asks for.

    `_cancelled`: trio cancels a task where it waits next. A task that is about to run, or that cancels itself, must not
    use the descriptor again, because its owner has closed it.
    """

    __slots__ = ("_cancelled", "_descriptor", "_turn", "task")

    def __init__(self, descriptor: int, turn: Callable[[], float]) -> None:
        self._descriptor = descriptor
        self._turn = turn
        self._cancelled = False
        self.task: Cancellable | None = None

    def cancel(self) -> None:
        self._cancelled = True
        if self.task is not None:
            self.task.cancel()

    async def run(self) -> None:
        # trio's sleep takes whole milliseconds on epoll. A test's clock cannot move the kernel's timer.
        timer = make_kernel_timer() if _in_real_time() else None
        try:
            while not self._cancelled:
                await trio.lowlevel.wait_readable(self._descriptor)
                while not self._cancelled and (pause := self._turn()) >= 0:
                    if not pause:
                        await trio.lowlevel.checkpoint()
                    elif timer is None:
                        await trio.sleep(pause)
                    else:
                        timer.start(pause)
                        await trio.lowlevel.wait_readable(timer.fileno())
        finally:
            if timer is not None:
                timer.close()


def _in_real_time() -> bool:
    """Whether a second of trio's clock takes a second. A test's clock stands still or jumps."""
    clock = trio.lowlevel.current_clock()
    return abs(clock.deadline_to_sleep_time(clock.current_time() + 1.0) - 1.0) < 0.5


TRIO: Final[Backend] = TrioBackend()
"""The running trio run; its tasks are system tasks."""
