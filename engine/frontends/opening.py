"""Open an engine and close it: on the event loop of a task, in the block of `open_engine` or until the loop ends."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ...providers.catalog.provider import Provider
from ...transport.timers import Timers
from ..gate import Calls
from ..loading import load_for_calls
from ..option_rules import Configuration
from ..request.errors import refuse_await
from ..services import EngineTasks, HeldTasks, hold_tasks

if TYPE_CHECKING:
    from ...transport.backend import Cancellable
    from ..calls import CallStarter
    from ..options import EngineOptions
    from ..sharing import Sharing

Opened = TypeVar("Opened")

DROPPED: Final = (
    "the object that open_engine returned was dropped, which left its block: use `async with`, or keep that object; an"
    " ms.LazyEngine needs no block"
)


class OpenEngine:
    """What one engine consists of while it is open: its calls, and what runs for them on its event loop.

    sharing: what joins traffic control with other processes; None without `Traffic(shared=…)`.
    at_end: what calls `end` at the end of the event loop; None where a block does.
    """

    def __init__(self, tasks: EngineTasks, configuration: Configuration) -> None:
        """Raises `EventLoopError` on an event loop that cannot wait for file descriptors."""
        self._configuration = configuration
        self._loop = loop = tasks.make_loop()
        self._timers = timers = Timers(loop.catch_up)
        self._sharing: Sharing | None = None
        self._monitor: Cancellable | None = None
        self.at_end: object = None

        def make_starter(on_callback_raised: Callable[[BaseException], None]) -> CallStarter:
            from ..calls import CallStarter

            return CallStarter(tasks, loop, timers, configuration, on_callback_raised)

        self.calls: Calls = Calls(make_starter, tasks)
        tasks.on_failure = self.calls.end_engine

    def begin(self) -> None:
        """Start what runs for the calls, and share its limits. Raises as `open_engine` does."""
        calls, options = self.calls, self._configuration.options
        self._loop.start(calls.backend)
        self._timers.start(calls.backend)
        if options.get("traffic") is None and options.get("observer") is None:
            calls.backend.start(load_for_calls, calls.backend, self._configuration.providers)
        else:
            _ = calls.starter  # it checks the options of traffic control and the observer's methods
        self._monitor = _start_monitor(calls, options.get("monitor", False))
        traffic = options.get("traffic")
        if traffic is not None and calls.starter.share is not None:
            from ..sharing import Sharing

            self._sharing = Sharing(calls.starter.share, traffic, calls.backend, calls.home)

    def leave(self, *, has_ended: bool = False) -> None:
        """Give back what it has of shared limits. has_ended: the event loop has ended."""
        if self._sharing is not None:
            self._sharing.leave(has_ended=has_ended)

    def end_timers(self) -> None:
        self._timers.close()

    def end_loop(self) -> None:
        """Close the multi-request loop. No task may wait for its descriptor."""
        self._loop.close()

    def end(self, reason: str) -> None:
        """Close an engine that has no block. Idempotent. `reason`: for the error of later calls."""
        if not self.calls.home.is_forked:
            self.calls.close(reason)
            if self._monitor is not None:
                self._monitor.cancel()
            self.leave()
            self.end_timers()
            self.end_loop()

    def end_soon(self) -> None:
        """As `end`, when the running calls have ended: nobody can start others."""

        async def end() -> None:
            await self.calls.drain(math.inf)
            self.end("nobody holds the ms.LazyEngine any more")

        self.calls.backend.start(end)

    def drop(self, reason: str) -> None:
        """Close the sockets of an engine whose event loop has ended without `end`: its calls get no completion."""
        self.calls.drop(reason)
        self.leave(has_ended=True)
        self.end_timers()
        self.end_loop()


def _start_monitor(calls: Calls, path: str | os.PathLike[str] | bool) -> Cancellable | None:
    if path is False:
        return None
    from ..monitor import Monitor

    return calls.backend.start(Monitor(calls, None if path is True else path).run)


@asynccontextmanager
async def open_calls(providers: Sequence[Provider], options: EngineOptions) -> AsyncGenerator[Calls, None]:
    """Open an engine on the event loop of the calling task, and yield its calls. As `open_engine`.

    asyncio closes an async generator that is suspended when its loop ends, and so an engine whose block was not left.
    This is the only one in the block: asyncio closes all at the same time, which fails for one inside another.
    """
    configuration = Configuration(providers, options)
    opened: OpenEngine | None = None
    failure: BaseException | None = None
    async with hold_tasks() as tasks:
        opened = OpenEngine(tasks, configuration)
        try:
            opened.begin()
        except BaseException as error:
            failure = error
        else:
            try:
                yield opened.calls
            except BaseException as error:
                # Raised again outside the block of the tasks, so that a nursery does not wrap it in a group.
                failure = error
            finally:
                await _close(opened.calls, tasks, abandoned=isinstance(failure, GeneratorExit))
        opened.leave()
        opened.end_timers()
    opened.end_loop()  # after the tasks, because one may wait on the descriptor
    failure = tasks.outcome(opened.calls.failure, failure)
    if failure is not None:
        raise failure


async def _close(calls: Calls, tasks: HeldTasks, *, abandoned: bool) -> None:
    """Close the calls. abandoned: the block was not left, so nothing can be awaited."""
    try:
        if calls.cancelling and not abandoned:
            await tasks.undisturbed(calls.servers_reached)  # for two seconds at most
    finally:
        calls.close()


class EngineBlock(AbstractAsyncContextManager[Opened], Generic[Opened]):
    """The block of `open_engine`. It must be left where it was entered, and kept until then."""

    if not TYPE_CHECKING:
        __await__ = refuse_await("open_engine is not awaited; write: async with open_engine(…) as engine:")

    def __init__(self, block: AbstractAsyncContextManager[Calls], make_engine: Callable[[Calls], Opened]) -> None:
        self._block = block
        self._make_engine = make_engine
        self._calls: Calls | None = None

    async def __aenter__(self) -> Opened:
        self._calls = calls = await self._block.__aenter__()
        calls.block = self._block  # in trio, a nursery that is open must not be collected
        return self._make_engine(calls)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        calls = self._calls
        if calls is not None and not calls.home.is_forked:
            calls.home.check("leave the block of open_engine on the event loop on which it was entered")
            calls.block = None
        self._calls = None
        return await self._block.__aexit__(kind, error, trace)

    def __del__(self) -> None:
        calls = self._calls
        if calls is not None and not calls.closed and not calls.home.is_forked:
            from ...transport.running import EventLoop, EventLoopEndedError

            with contextlib.suppress(EventLoopEndedError):
                EventLoop.of(calls.home.loop).soon(partial(calls.close, DROPPED))
            warnings.warn(DROPPED, ResourceWarning, stacklevel=2, source=self)
