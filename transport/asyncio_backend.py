"""The transport on an asyncio event loop: asyncio's own, or uvloop.

The multi-request loop is a callback for its epoll descriptor (`add_reader`), and an alarm is a timer of the event loop.
So no task outlives a request, and a program that never closes its transport is not warned of a pending task.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Literal

from .backend import AddressInfo, Alarm, Cancellable, Event, Parameters, Result, Signal, TaskGroup
from .fork import socket_pair
from .kernel_timer import KernelTimer, make_kernel_timer

logger: logging.Logger = logging.getLogger("manystream.transport.asyncio_backend")


class UnsupportedEventLoopError(RuntimeError):
    """The asyncio event loop cannot wait for a file descriptor."""


class _CountedLock(asyncio.Lock):
    """A lock that knows whether a task waits for it. asyncio's is free for a moment between two of its holders.

    waiting: the tasks in `acquire`.
    """

    waiting: int = 0

    async def acquire(self) -> Literal[True]:
        self.waiting += 1
        try:
            return await super().acquire()
        finally:
            self.waiting -= 1


@dataclass(slots=True, eq=False, repr=False)
class AsyncioBackend:
    """Tasks and waits of a running asyncio event loop."""

    _loop: asyncio.AbstractEventLoop
    # called with an exception that ended a task, the service of a descriptor, an alarm or a function that was to run
    # soon
    _on_failure: Callable[[BaseException], None] | None = None
    _: KW_ONLY
    # the exceptions with which `on_failure` is called. Others, such as `KeyboardInterrupt`, end the event loop.
    caught: type[BaseException] = Exception
    # the context (`contextvars`) in which all of these run; None: each runs in that of the code that starts it
    context: Context | None = None
    _lock: _CountedLock = field(default_factory=_CountedLock, init=False)
    _tasks: set[_Task] = field(default_factory=lambda: set(), init=False)  # the event loop has weak references only
    groups: dict[asyncio.Task[None], _Group] = field(default_factory=lambda: {}, init=False)

    @property
    def clock(self) -> Callable[[], float]:
        return self._loop.time

    def start(self, function: Callable[[*Parameters], Awaitable[None]], *arguments: *Parameters) -> Cancellable:
        async def run() -> None:
            await function(*arguments)

        task = _Task(self, run)
        self._tasks.add(task)
        task.task = start_task(task.run, self._loop, self.new_context())
        return task

    def new_context(self) -> Context | None:
        """Return a context for one task or function; None for that of the code that starts it."""
        return None if self.context is None else self.context.copy()

    def task_ended(self, task: _Task, error: BaseException | None) -> None:
        """Forget a task; report what it raised."""
        self._tasks.discard(task)
        if error is not None:
            self.failed(error)

    def cancel_tasks(self) -> list[asyncio.Task[None]]:
        """Cancel all tasks, and return those that have not ended yet."""
        for task in list(self._tasks):
            task.cancel()
        return [task.task for task in self._tasks]

    def guard(self, function: Callable[[], object]) -> None:
        """Call a function, and report what it raises."""
        try:
            function()
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Report an exception that ended a task or a function; raise it again if it is not one of those reported."""
        if not isinstance(error, self.caught):
            raise error
        if self.caught is Exception:  # else the owner raises it
            logger.error("a task of the transport raised: a defect in manystream", exc_info=error)
        if self._on_failure is not None:
            self._on_failure(error)

    def serve(self, descriptor: int, turn: Callable[[], float]) -> Cancellable:
        """Call `turn` when the descriptor is readable, and after each pause that it asks for.

        Raises `UnsupportedEventLoopError` for an event loop without `add_reader`.
        """
        service = _Service(self, self._loop, descriptor, turn)
        try:
            service.begin()
        except NotImplementedError:
            raise UnsupportedEventLoopError(
                f"{type(self._loop).__name__} cannot wait for a file descriptor (it has no add_reader): run the program"
                " on asyncio.SelectorEventLoop or on trio, or keep the client's own transport"
            ) from None
        return service

    def wakers(self) -> tuple[int, int]:
        """Return the sockets of the event loop, for which asyncio has no public name."""
        return socket_pair(self._loop, "_ssock", "_csock")

    def alarm(self, fire: Callable[[], None]) -> Alarm:
        return _Alarm(self, self._loop, fire)

    def event(self) -> Event:
        return asyncio.Event()

    def signal(self) -> Signal:
        return _Signal(self._loop)

    @property
    def handshaking(self) -> bool:
        """Whether this backend's lock is held, or is about to be."""
        return self._lock.locked() or self._lock.waiting > 0

    def handshake_lock(self) -> AbstractAsyncContextManager[object]:
        return self._lock

    def open_group(self) -> AbstractAsyncContextManager[TaskGroup]:
        """Return a group of tasks. `TaskGroup.cancel` cancels its tasks, not the block."""
        return _Group(self)

    def lock(self) -> AbstractAsyncContextManager[object]:
        return asyncio.Lock()

    def scope(self, deadline: float) -> AbstractAsyncContextManager[Cancellable, bool]:
        return _Scope(self._loop, deadline)

    def soon(self, function: Callable[[], object]) -> None:
        self._loop.call_soon(self.guard, function, context=self.new_context())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run_in_thread(self, function: Callable[[], Result], *, abandon: bool = False) -> Result:
        """Call a function in a thread of the event loop's executor."""
        future = self._loop.run_in_executor(None, function)
        task, is_cancelled = asyncio.current_task(self._loop), False
        while not abandon and not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError:
                is_cancelled = True
        if is_cancelled and task is not None:
            task.uncancel()
            task.cancel()  # the cancellation arrives where the task waits next
            return future.result()
        return await future

    async def checkpoint(self) -> None:
        await asyncio.sleep(0)

    async def checkpoint_without_wait(self) -> None:
        """Go on at once."""

    async def checkpoint_if_cancelled(self) -> None:
        task = asyncio.current_task(self._loop)
        if task is not None and task.cancelling():
            raise asyncio.CancelledError

    async def wait_readable(self, descriptor: int) -> None:
        future = self._loop.create_future()
        self._loop.add_reader(descriptor, _wake, future)
        try:
            await future
        finally:
            self._loop.remove_reader(descriptor)  # before the caller closes the descriptor

    async def wait_writable(self, descriptor: int) -> None:
        future = self._loop.create_future()
        self._loop.add_writer(descriptor, _wake, future)
        try:
            await future
        finally:
            self._loop.remove_writer(descriptor)

    async def wait_at_most(self, event: Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

    async def getaddrinfo(self, host: str, port: int) -> Sequence[AddressInfo]:
        return await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def start_task(
    function: Callable[[], Coroutine[object, None, None]],
    loop: asyncio.AbstractEventLoop,
    context: Context | None = None,
) -> asyncio.Task[None]:
    """Start a task that begins even if it is cancelled before its first step, and gets the cancellation where it waits.

    Not by the program's task factory, which may run the first step at once.
    """
    return asyncio.Task(_Beginning(function()), loop=loop, context=context)


class _Beginning(Coroutine[object, None, None]):
    """A coroutine that begins also where it is cancelled before. asyncio would drop it, and what it does at its end,
    for which others wait, would never be done: `asyncio.run` cancels all tasks when its main one has ended."""

    __slots__ = ("_coroutine", "_has_begun")

    def __init__(self, coroutine: Coroutine[object, None, None]) -> None:
        self._coroutine = coroutine
        self._has_begun = False

    def __await__(self) -> Generator[object, None, None]:
        return self._coroutine.__await__()

    def send(self, value: None, /) -> object:
        self._has_begun = True
        return self._coroutine.send(value)

    def throw(
        self, kind: type[BaseException] | BaseException, value: object = None, trace: TracebackType | None = None, /
    ) -> object:
        if not self._has_begun:
            self.send(None)
        return self._coroutine.throw(kind)

    def close(self) -> None:
        self._coroutine.close()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Signal:
    """A future. Its waiting task adds two objects; that of an asyncio event adds four, a coroutine among them."""

    __slots__ = ("_future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._future: asyncio.Future[None] = loop.create_future()

    def set(self) -> None:
        _wake(self._future)

    def wait(self) -> Awaitable[None]:
        return self._future


class _Task:
    """A background task, which reports its end."""

    __slots__ = ("_backend", "_cancelled", "_run", "task")

    task: asyncio.Task[None]

    def __init__(self, backend: AsyncioBackend, run: Callable[[], Awaitable[None]]) -> None:
        self._backend = backend
        self._run = run
        self._cancelled = False

    async def run(self) -> None:
        failure: BaseException | None = None
        try:
            await self._run()
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            failure = error
        finally:
            self._backend.task_ended(self, failure)

    def cancel(self) -> None:
        if self._cancelled:
            return
        self._cancelled = True
        # The group's tasks, too: in the next iteration they have closed their sockets.
        group = self._backend.groups.get(self.task)
        if group is not None:
            group.cancel()
        self.task.cancel()


class _Group:
    """A small `asyncio.TaskGroup` that can be cancelled from outside, as a nursery can."""

    __slots__ = ("_backend", "_owner", "_tasks")

    def __init__(self, backend: AsyncioBackend) -> None:
        self._backend = backend
        self._owner: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _Group:
        self._owner = asyncio.current_task()
        if self._owner is not None:
            self._backend.groups[self._owner] = self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cancellation: asyncio.CancelledError | None = None
        if error is not None:
            self.cancel()
        try:
            while pending := [task for task in self._tasks if not task.done()]:
                try:
                    await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
                except asyncio.CancelledError as again:
                    cancellation = again
                    self.cancel()
                if self._failure() is not None:
                    self.cancel()
        finally:
            if self._owner is not None:
                self._backend.groups.pop(self._owner, None)
        failure = self._failure()
        if error is None and (cancellation or failure) is not None:
            raise cancellation or failure or AssertionError

    def _failure(self) -> BaseException | None:
        ended = (task.exception() for task in self._tasks if task.done() and not task.cancelled())
        return next((error for error in ended if error is not None), None)

    def start(self, function: Callable[[*Parameters], Awaitable[None]], *arguments: *Parameters) -> None:
        async def run() -> None:
            await function(*arguments)

        task = start_task(run, asyncio.get_running_loop())
        task.set_name(f"{function.__module__}.{getattr(function, '__qualname__', '')}")
        self._tasks.append(task)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()


class _Scope:
    """`asyncio.timeout`, which ends its block without an exception, and can be cancelled."""

    __slots__ = ("_is_open", "_loop", "_timeout")

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self._loop = loop
        self._timeout = asyncio.timeout_at(None if deadline == math.inf else deadline)
        self._is_open = False

    async def __aenter__(self) -> _Scope:
        await self._timeout.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._is_open = False
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            return True
        return False

    def cancel(self) -> None:
        if self._is_open and not self._timeout.expired():
            self._timeout.reschedule(self._loop.time())


class _Service:
    """Calls a function when a descriptor is readable, and after the pauses that the function asks for.

    The event loop watches either the descriptor or, during a pause, a kernel timer. The timer stays registered: while
    it is stopped, it is not readable. Where there is none, the event loop's own timer measures the pause, which takes
    whole milliseconds on epoll.

    An epoll object is never writable, so a writer for it keeps it registered during a pause. To register it again after
    each pause, Linux would visit all connections in it, to find loops of epoll objects.
    """

    __slots__ = ("_backend", "_cancelled", "_descriptor", "_handle", "_listening", "_loop", "_timer", "_turn")

    def __init__(
        self, backend: AsyncioBackend, loop: asyncio.AbstractEventLoop, descriptor: int, turn: Callable[[], float]
    ) -> None:
        self._backend = backend
        self._loop = loop
        self._descriptor = descriptor
        self._turn = turn
        self._listening = self._cancelled = False
        self._timer: KernelTimer | None = None
        self._handle: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch the descriptor from now on."""
        self.listen()
        if sys.platform == "linux":
            self._loop.add_writer(self._descriptor, self._never)

    def _never(self) -> None:
        """Keep a descriptor that is writable after all in the usual way."""
        self._loop.remove_writer(self._descriptor)

    def listen(self) -> None:
        """Watch the descriptor."""
        if self._timer is not None:
            self._timer.stop()
        self._loop.add_reader(self._descriptor, self._serve)
        self._listening = True

    def _serve(self) -> None:
        try:
            pause = self._turn()
        except BaseException as error:
            self.cancel()
            self._backend.failed(error)
            return
        if self._cancelled:
            return  # `turn` has closed what it served
        if pause > 0:
            self._pause(pause)
        elif not self._listening:
            self.listen()

    def _pause(self, seconds: float) -> None:
        if self._listening:
            self._loop.remove_reader(self._descriptor)
            self._listening = False
            if self._timer is None:
                self._timer = make_kernel_timer()
                if self._timer is not None:
                    self._loop.add_reader(self._timer.fileno(), self._serve)
        if self._timer is not None:
            self._timer.start(seconds)
        else:
            self._handle = self._loop.call_later(seconds, self._serve)

    def cancel(self) -> None:
        if self._cancelled:
            return
        self._cancelled = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
            self._loop.remove_writer(self._descriptor)
            if self._timer is not None:
                self._loop.remove_reader(self._timer.fileno())
            if self._handle is not None:
                self._handle.cancel()
        if self._timer is not None:
            self._timer.close()


class _Alarm:
    """A timer of the event loop. A later deadline keeps the timer, which then starts again."""

    __slots__ = ("_backend", "_due", "_fire", "_handle", "_loop", "_when")

    def __init__(self, backend: AsyncioBackend, loop: asyncio.AbstractEventLoop, fire: Callable[[], None]) -> None:
        self._backend = backend
        self._loop = loop
        self._fire = fire
        self._when = math.inf
        self._due = math.inf  # of the handle: uvloop's has no `when` if it was made after its time
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        self._when = when
        handle = self._handle
        if handle is not None:
            if self._due <= when:
                return
            handle.cancel()
        if when == math.inf:
            self._handle = None
        else:
            self._due = when
            self._handle = self._loop.call_at(when, self._ring, context=self._backend.new_context())

    def _ring(self) -> None:
        self._handle = None
        if self._when <= self._loop.time():
            self._backend.guard(self._fire)
        else:
            self.set(self._when)

    def cancel(self) -> None:
        self._when = math.inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
