"""The tasks of one engine (the loop, timers, dials, the monitor), and the block that holds them.

The engine knows them as `EngineTasks`. On trio they are `TrioTasks`, on asyncio `AsyncioTasks`.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, cast

import trio

from ..transport.backend import Backend
from ..transport.loop import Loop
from ..transport.task_loop import make_loop
from ..transport.trio_backend import TrioBackend
from .call.home import Home
from .request.errors import EventLoopError


class EngineTasks(Protocol):
    """The tasks of one engine. They run until it is closed, also while the task that opened it is cancelled.

    home: where the engine lives.
    on_failure: called with an exception that ended a task.
    """

    home: Home
    on_failure: Callable[[BaseException], None] | None

    @property
    def backend(self) -> Backend: ...

    def make_loop(self) -> Loop:
        """Return a multi-request loop for the backend."""
        ...

    def interrupt(self, error: BaseException) -> None:
        """Raise `error`, which has ended the engine, where the program waits for the engine's end."""
        ...


class HeldTasks(EngineTasks, Protocol):
    """Tasks that a block holds. `interrupt` cancels the body of the block, which is left with the error."""

    async def undisturbed(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run an async function to its end, also while the task of the block is cancelled."""
        ...

    def outcome(self, engine: BaseException | None, body: BaseException | None) -> BaseException | None:
        """Return the exception with which the block is left: that which ended the engine, that of the body, or none.

        The engine's own one comes first: it has cancelled the body, whose exception may be only the consequence.
        """
        ...


class TrioTasks:
    """Tasks in a nursery of their own, which end the engine when one of them fails.

    What ends a task, such as Ctrl-C in the middle of an iteration of the loop, is reported at once, and not when the
    body of `open_engine` comes to its next checkpoint.
    """

    _services: trio.Nursery
    backend: TrioBackend

    def __init__(self, block: trio.Nursery) -> None:
        """Create them without their nursery, which `run` opens. `block`: the nursery that holds the body."""
        self._block = block
        self._scope = trio.CancelScope(shield=True)
        self.home: Home = Home(trio.lowlevel.current_trio_token)
        self.on_failure: Callable[[BaseException], None] | None = None

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the nursery until `end` is called: `await nursery.start(tasks.run)`."""
        try:
            with self._scope:
                async with trio.open_nursery() as self._services:
                    self.backend = TrioBackend(self._services)
                    task_status.started()
                    await trio.sleep_forever()
        except BaseExceptionGroup as group:
            failure = _first_failure(group)
            if failure is None or self.on_failure is None:
                raise
            self.on_failure(failure)

    def make_loop(self) -> Loop:
        """Return the fastest loop of this platform."""
        return make_loop(self._services)

    def interrupt(self, error: BaseException) -> None:
        """Cancel the nursery that holds the body."""
        self._block.cancel_scope.cancel()

    async def undisturbed(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run an async function in a shielded scope."""
        with trio.CancelScope(shield=True):
            await function()

    def outcome(self, engine: BaseException | None, body: BaseException | None) -> BaseException | None:
        """Return the engine's exception; without one, the body's."""
        return engine or body

    def end(self) -> None:
        """Cancel all tasks, and the body if it runs."""
        self._scope.cancel()
        self._block.cancel_scope.cancel()


@asynccontextmanager
async def trio_tasks() -> AsyncGenerator[TrioTasks, None]:
    """Hold the tasks of an engine in a nursery until the block is left, which must not raise."""
    async with trio.open_nursery() as nursery:
        tasks = TrioTasks(nursery)
        with trio.CancelScope(
            shield=True
        ):  # cancelled meanwhile, the tasks would stay in this call, which waits for them
            await nursery.start(tasks.run)
        yield tasks
        tasks.end()


def _first_failure(error: BaseException) -> BaseException | None:
    """The first exception in a group that is no cancellation."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next(filter(None, map(_first_failure, group.exceptions)), None)
    return None if isinstance(error, trio.Cancelled) else error


def hold_tasks() -> AbstractAsyncContextManager[HeldTasks]:
    """Return the block that holds the tasks of an engine on the event loop of the calling task.

    Raises `EventLoopError` where neither trio nor asyncio runs one.
    """
    if trio.lowlevel.in_trio_task():
        return trio_tasks()
    if "asyncio" in sys.modules:
        from .asyncio_tasks import AsyncioTasks, is_running

        if is_running():
            return AsyncioTasks()
    raise EventLoopError(
        "open_engine needs a task of trio or asyncio, and none runs here: start one with trio.run(main) or"
        " asyncio.run(main()); ms.LazyEngine is made anywhere, and manystream.portal needs no event loop"
    )
