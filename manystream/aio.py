"""The engine for asyncio programs: `async with aio.open_engine([…]) as engine`.

The engine's tasks, timers and sockets are those of the running asyncio loop: asyncio's own, or uvloop. So callbacks run
on the loop's thread, and may use asyncio like any other. Each loop has its own engines; trio does not run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload

import trio

from .aio_map import CallMap
from .engine.call.callbacks import OnCompletion, OnEvent
from .engine.call.handle import Call as Call
from .engine.call.home import EngineBlock, Home
from .engine.frontends.engine import open_calls
from .engine.frontends.map import KeyedRequests, Requests
from .engine.frontends.stream import BufferedEvents, starter
from .engine.gate import CONCURRENCY, Calls
from .engine.observe.recording import Recording
from .engine.observe.statistics import Statistics
from .engine.options import EngineOptions
from .providers.catalog.provider import Provider
from .providers.errors import ManystreamError
from .providers.model.events import Event
from .providers.model.options import PauseMode
from .providers.model.request import Request
from .providers.model.response import Response
from .transport.asyncio_backend import AsyncioBackend, start_task
from .transport.loop import Loop, PollerLoop, make_poller

Key = TypeVar("Key")


class EventLoopError(ManystreamError, RuntimeError):
    """No asyncio loop is running, or it cannot wait for file descriptors."""


class EventStream(BufferedEvents[Call]):
    """The events of one call in order, as an async iterator.

    The iteration ends after `Done`. The iteration of a failed stream raises its `ProviderError`.

    completion: the call's completion, or None while the call runs.
    """

    def __init__(self, home: Home, start: Callable[[OnEvent, OnCompletion], Call]) -> None:
        super().__init__()
        self._home = home
        self._start = start
        self._arrived: asyncio.Future[None] | None = None

    async def __aenter__(self) -> EventStream:
        self._check_not_entered()
        self._call = self._start(self._on_event, self._on_completion)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._over():
                raise StopAsyncIteration
            self._home.check()
            if self._arrived is not None:
                raise RuntimeError("another task is already waiting for this stream's next event")
            self._arrived = asyncio.get_running_loop().create_future()
            try:
                await self._arrived
            finally:
                self._arrived = None
        return self._take()

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)


class Engine:
    """Many concurrent calls on an asyncio loop. `open_engine` makes it. Use its methods on the loop's thread only."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return f"<asyncio <Engine {self._calls!r}>>"

    def start_stream(
        self, request: Request, on_event: OnEvent | None = None, on_completion: OnCompletion | None = None
    ) -> Call:
        """Start a streamed call and return at once.

        on_event: called with each event, in wire order.
        on_completion: called with the completion, exactly once, after all events.

        Both are plain functions and are called on the loop's thread. An exception that `on_event` raises ends this call
        only. Failures of the network are reported in the completion.

        Raises `InvalidRequestError` for a request that cannot be sent, `EngineClosedError`, and `TooManyCallsError`.
        """
        return self._calls.start(request, on_event, on_completion, stream=True)

    def attach(
        self,
        token: str,
        on_event: OnEvent | None = None,
        on_completion: OnCompletion | None = None,
        after: int | None = None,
    ) -> Call:
        """Read the answer of a durable call again, also in another process. As `manystream.Engine.attach`."""
        return self._calls.attach(token, on_event, on_completion, after)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> Call:
        """Start an unstreamed call and return at once. It has no events; otherwise it is like `start_stream`."""
        return self._calls.start(request, None, on_completion, stream=False)

    async def request(self, request: Request) -> Response:
        """Make an unstreamed call and return its response.

        Cancelling the waiting task cancels the call. Raises `ProviderError` if the call fails.
        """
        call = self.start_request(request)
        try:
            return (await call.wait()).response_or_raise()
        finally:
            call.cancel()
            del call  # the traceback of an error refers to this frame, and the call to the error: no cycle

    def stream(self, request: Request | str, *, after: int | None = None) -> EventStream:
        """Return a streamed call as an async iterator with backpressure: `async with engine.stream(request) as events`.

        Leaving the block cancels the call, also where the task was cancelled. The iteration raises `ProviderError` if
        the stream fails.

        request: a request; or the token of a durable call, whose answer is read again, as by `attach`.
        after: the number of events to leave out, for a token.
        """
        return EventStream(self._calls.home, starter(self._calls, request, after))

    @overload
    def map(self, requests: Requests, *, concurrency: int = CONCURRENCY, ordered: bool = False) -> CallMap[Request]: ...

    @overload
    def map(
        self, requests: KeyedRequests[Key], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> CallMap[Key]: ...

    def map(
        self, requests: Requests | KeyedRequests[Key], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> CallMap[Request] | CallMap[Key]:
        """Make an unstreamed call for each request, and iterate over (request, completion) as the calls end.

        Example: `async with engine.map(requests) as results: async for request, completion in results: …`. The
        arguments and errors are those of `manystream.Engine.map`.
        """
        return CallMap(self._calls.home, self.start_request, requests, concurrency, ordered=ordered)

    async def drain(self, timeout: float) -> bool:
        """Refuse new calls and wait until all running and waiting calls have ended. Return whether all have ended.

        timeout: the longest wait in seconds; `math.inf` for no limit.

        As soon as this is called, `start_*` raises `EngineClosedError`. Calls that still run after the timeout continue
        until the `open_engine` block is left, which cancels them. Raises `ValueError` for a negative timeout.
        """
        return await self._calls.drain(timeout)

    def end_session(self, session: str) -> None:
        """Forget which target and which key the calls of a session go to. As `manystream.Engine.end_session`."""
        self._calls.end_session(session)

    async def pause(self, provider: str, mode: PauseMode = "abort") -> None:
        """Pause the server of a provider, for new weights. As `manystream.Engine.pause`."""
        await self._calls.control_server(provider, mode)

    async def resume(self, provider: str) -> None:
        """Let a paused server go on. As `manystream.Engine.resume`."""
        await self._calls.control_server(provider, None)

    def statistics(self) -> Statistics:
        """Return the engine's current figures."""
        return self._calls.statistics()

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> Recording:
        """Record what is sent and received until the block is left: `with engine.record(path):`.

        See `manystream.Engine.record`. Enter and leave the block on the loop's thread.
        """
        return self._calls.record(path, replace=replace)


class AsyncioTasks:
    """The tasks of one engine on an asyncio loop. The block `async with tasks:` must not raise."""

    def __init__(self) -> None:
        """Raises `EventLoopError` where no loop runs."""
        self._loop = loop = _running_loop()
        self._host = asyncio.current_task(loop)
        self._interrupted = False
        self._cancelled: asyncio.CancelledError | None = None  # came while the block was being left
        self.home: Home = Home(asyncio.get_running_loop, "open an engine there, or use loop.call_soon_threadsafe(…)")
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
        poller = make_poller()
        try:
            if poller is None:
                raise NotImplementedError
            self._loop.add_reader(poller.fileno(), _nothing)
            self._loop.remove_reader(poller.fileno())
        except NotImplementedError:
            if poller is not None:
                poller.close()
            raise EventLoopError(
                f"{type(self._loop).__name__} on this platform cannot wait for an epoll or kqueue object: run the"
                " program on asyncio.SelectorEventLoop or uvloop, or use manystream.portal"
            ) from None
        return PollerLoop(poller, self.backend.clock)

    def interrupt(self) -> None:
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


def _running_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop. Raises `EventLoopError` if there is none, or trio runs a task of its own above it."""
    if not trio.lowlevel.in_trio_task():
        try:
            return asyncio.get_running_loop()
        except RuntimeError:
            pass
    raise EventLoopError(
        "manystream.aio needs a running asyncio loop, and this thread has none: use manystream.open_engine in a trio"
        " program, and manystream.portal without an event loop"
    )


def open_engine(providers: Sequence[Provider], **options: Unpack[EngineOptions]) -> AbstractAsyncContextManager[Engine]:
    """Open an engine on the running asyncio loop: `async with aio.open_engine(providers=[…]) as engine`.

    providers: the providers that requests may name.
    options: those of `manystream.open_engine`.

    Leaving the block cancels the calls that still run, and closes every socket and task of the engine. A cancellation
    of the task does not interrupt this; it is raised afterwards.

    Raises `EventLoopError` if no loop is running, or the loop cannot wait for file descriptors, and
    `InvalidRequestError` for a provider that cannot be used. Raises `EngineClosedError` if the block is left on another
    loop than the one on which it was entered.
    """
    return EngineBlock(open_calls(AsyncioTasks, providers, options), Engine, asyncio.get_running_loop)


def _nothing() -> None:
    pass
