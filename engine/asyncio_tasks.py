"""The tasks of one engine on an asyncio loop: asyncio's own, or uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import copy_context
from types import TracebackType
from typing import Self

from ..transport.asyncio_backend import AsyncioBackend, start_task
from ..transport.loop import Loop, PollerLoop, make_poller
from .call.home import Home
from .request.errors import EventLoopError


def is_running() -> bool:
    """Return whether this thread runs an asyncio loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def make_loop(event_loop: object, clock: Callable[[], float]) -> Loop:
    """Return a multi-request loop. Raises `EventLoopError` where the event loop could not wait for it.

    event_loop: an asyncio loop, or the token of a trio run.
    """
    poller = make_poller()
    try:
        if poller is None:
            raise NotImplementedError
        if isinstance(event_loop, asyncio.AbstractEventLoop):
            event_loop.add_reader(poller.fileno(), _nothing)
            event_loop.remove_reader(poller.fileno())
    except NotImplementedError:
        if poller is not None:
            poller.close()
        raise EventLoopError(
            f"{type(event_loop).__name__} on this platform cannot wait for an epoll or kqueue object: run the program"
            " on asyncio.SelectorEventLoop or uvloop, or use manystream.portal"
        ) from None
    return PollerLoop(poller, clock)


class AsyncioTasks:
    """The tasks of one engine on an asyncio loop. The block `async with tasks:` must not raise."""

    def __init__(self) -> None:
        """Take the running loop, and the task that enters the block."""
        self._loop = loop = asyncio.get_running_loop()
        self._host = asyncio.current_task(loop)
        self._interrupted = False
        self._cancelled: asyncio.CancelledError | None = None  # came while the block was being left
        self.home: Home = Home(asyncio.get_running_loop)
        self.on_failure: Callable[[BaseException], None] | None = None
        # `SystemExit` and Ctrl-C in a task of the engine are raised where the block is left, and not by the loop.
        self.backend: AsyncioBackend = AsyncioBackend(loop, self._failed, caught=BaseException, context=copy_context())

    def _failed(self, error: BaseException) -> None:
        if self.on_failure is not None and not self.home.is_forked:
            self.on_failure(error)

    async def __aenter__(self) -> Self:
        await asyncio.sleep(0)  # as on trio, opening an engine lets other tasks run
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel all tasks, and wait for their end."""
        await self._settled([])  # a cancellation that was asked for meanwhile arrives here
        while pending := self.backend.cancel_tasks():
            await self._settled(pending)

    def make_loop(self) -> Loop:
        """Return a multi-request loop. Raises `EventLoopError` where the event loop could not wait for it."""
        return make_loop(self._loop, self.backend.clock)

    def interrupt(self, error: BaseException) -> None:
        """Cancel the task that entered the block."""
        if not self._interrupted and self._host is not None:
            self._interrupted = True
            self._host.cancel()

    async def undisturbed(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run an async function in a task of its own."""

        async def run() -> None:
            await function()

        task = start_task(run, self._loop)
        await self._settled([task])
        if not task.cancelled():  # else the event loop ends
            task.result()

    async def _settled(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Let other tasks run until these have ended. A cancellation does not interrupt this; it is raised later."""
        while True:
            try:
                await asyncio.sleep(0)
                for task in tasks:
                    ended = self._loop.create_future()  # in a forked process, `asyncio.wait` finds no running loop
                    task.add_done_callback(ended.set_result)
                    try:
                        await ended
                    finally:
                        task.remove_done_callback(ended.set_result)
                return
            except asyncio.CancelledError as error:
                self._cancelled = error

    def outcome(self, engine: BaseException | None, body: BaseException | None) -> BaseException | None:
        """As `EngineTasks.outcome`. A cancellation from outside comes before the engine's own exception."""
        if isinstance(body, asyncio.CancelledError):
            self._cancelled, body = self._cancelled or body, None
        outside = self._cancelled is not None
        task = asyncio.current_task(self._loop)
        if self._interrupted and task is not None and task is self._host:
            outside = task.uncancel() > 0
        if engine is not None and not outside:
            return engine
        return body or self._cancelled


def _nothing() -> None:
    pass
