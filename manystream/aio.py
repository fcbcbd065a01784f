"""The engine for asyncio programs: `async with aio.open_engine([…]) as engine`.

trio runs as a guest of the running asyncio loop, on the same thread (`trio.lowlevel.start_guest_run`). Only its wait
for sockets takes place in another thread. So callbacks run on the loop's thread, and may use asyncio like any other.

`aio_guest.py` starts and ends this run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack, overload

import trio

from .aio_guest import EventLoopError as EventLoopError
from .aio_guest import guest_calls
from .aio_map import AsyncioHome, CallMap
from .engine.call.callbacks import OnCompletion, OnEvent, check_callback
from .engine.call.completion import Completion
from .engine.call.handle import Call as NativeCall
from .engine.call.home import EngineBlock, Home
from .engine.call.timeouts import CallState
from .engine.engine import open_calls
from .engine.frontends.map import KeyedRequests, Requests
from .engine.frontends.stream import BufferedEvents
from .engine.gate import CONCURRENCY, Calls
from .engine.observe.recording import Recording
from .engine.observe.statistics import Statistics
from .engine.options import EngineOptions
from .engine.request.errors import refuse_await
from .providers.catalog.provider import Provider
from .providers.model.events import Event
from .providers.model.request import Request, Tags
from .providers.model.response import Response

Key = TypeVar("Key")


class Call:
    """A call, running or ended. `start_request` and `start_stream` return it."""

    __slots__ = ("_home", "_native", "_on_completion", "_waiters")

    if not TYPE_CHECKING:
        __await__ = refuse_await("a call is not awaited; wait for its completion with: await call.wait()")

    def __init__(
        self, home: AsyncioHome, start: Callable[[OnCompletion], NativeCall], on_completion: OnCompletion | None
    ) -> None:
        check_callback("on_completion", on_completion)
        self._home = home
        self._on_completion = on_completion
        self._waiters: list[asyncio.Future[Completion]] = []
        self._native = start(self._end)

    def __repr__(self) -> str:
        return repr(self._native)

    @property
    def number(self) -> int:
        """The position of the call among the engine's calls, counted from 1. Log records of the engine name it."""
        return self._native.number

    @property
    def request(self) -> Request:
        """The request that the call was started with."""
        return self._native.request

    @property
    def tags(self) -> Tags:
        """The tags of the request; empty if it has none."""
        return self._native.tags

    @property
    def state(self) -> CallState:
        """The call's current state."""
        return self._native.state

    @property
    def target(self) -> str:
        """Where the call goes: `provider/model`. On a route, empty until the target is chosen."""
        return self._native.target

    @property
    def waiting_for(self) -> str:
        """Why the call waits, in words; empty if it does not. As the native engine's call."""
        return self._native.waiting_for

    @property
    def completion(self) -> Completion | None:
        """The call's completion, or None while the call runs."""
        return self._native.completion

    def cancel(self) -> None:
        """Cancel the call. Call this on the loop's thread only.

        The socket is closed at once. The completion follows soon after: its state is CANCELLED, and it holds the part
        of the answer that had arrived. Further calls of `cancel`, and a call after the end, do nothing.
        """
        self._native.cancel()

    async def __aenter__(self) -> Self:
        """Enter `async with call:`, a block that cancels the call when it is left in any way."""
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    async def wait(self) -> Completion:
        """Wait until the call has ended, and return its completion.

        `on_completion`, if there is one, was called before this returns. Closing the engine ends the call, too.
        Cancelling the waiting task does not cancel the call; use `async with call:` for that. Raises
        `EngineClosedError` on another event loop, which the engine could not wake.
        """
        if self._native.completion is not None:
            return self._native.completion
        self._home.check()
        waiter: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        finally:
            self._waiters.remove(waiter)

    def pause(self) -> None:
        """Stop reading from the call's socket. TCP then slows the server down. The idle timeout does not run."""
        self._native.pause()

    def resume(self) -> None:
        """Continue reading after `pause`."""
        self._native.resume()

    def _end(self, completion: Completion) -> None:
        try:
            if self._on_completion is not None:
                self._on_completion(completion)
        finally:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(completion)


class EventStream(BufferedEvents[Call]):
    """The events of one call in order, as an async iterator.

    The iteration ends after `Done`. The iteration of a failed stream raises its `ProviderError`.

    completion: the call's completion, or None while the call runs.
    """

    def __init__(self, home: AsyncioHome, start: Callable[[OnEvent, OnCompletion], Call]) -> None:
        super().__init__()
        self._home = home
        self._start = start
        self._arrived: asyncio.Future[None] | None = None

    async def __aenter__(self) -> EventStream:
        self._check_not_entered()
        self._call = self._start(self._on_event, self._on_completion)
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
        self._home: AsyncioHome = Home(
            asyncio.get_running_loop, "open an engine there, or use loop.call_soon_threadsafe(…)"
        )

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
        return self._start(request, on_event, on_completion, stream=True)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> Call:
        """Start an unstreamed call and return at once. It has no events; otherwise it is like `start_stream`."""
        return self._start(request, None, on_completion, stream=False)

    def _start(
        self, request: Request, on_event: OnEvent | None, on_completion: OnCompletion | None, *, stream: bool
    ) -> Call:
        self._check_here()
        return Call(self._home, lambda end: self._calls.start(request, on_event, end, stream=stream), on_completion)

    def _check_here(self) -> None:
        """Raise `EngineClosedError` away from the engine's home. A closed engine raises its own error anywhere."""
        if not self._calls.closed:
            self._home.check()

    async def request(self, request: Request) -> Response:
        """Make an unstreamed call and return its response.

        Cancelling the waiting task cancels the call. Raises `ProviderError` if the call fails.
        """
        call = self.start_request(request)
        try:
            completion = await call.wait()
        finally:
            call.cancel()
        return completion.response_or_raise()

    def stream(self, request: Request) -> EventStream:
        """Return a streamed call as an async iterator with backpressure: `async with engine.stream(request) as events`.

        Leaving the block cancels the call, also where the task was cancelled. The iteration raises `ProviderError` if
        the stream fails.
        """
        home = self._home
        return EventStream(home, lambda on_event, on_completion: self.start_stream(request, on_event, on_completion))

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
        return CallMap(self._home, self.start_request, requests, concurrency, ordered=ordered)

    async def drain(self, timeout: float) -> bool:
        """Refuse new calls and wait until all running and waiting calls have ended. Return whether all have ended.

        timeout: the longest wait in seconds; `math.inf` for no limit.

        As soon as this is called, `start_*` raises `EngineClosedError`. Calls that still run after the timeout continue
        until the `open_engine` block is left, which cancels them. Raises `ValueError` for a negative timeout.
        """
        self._check_here()
        ended = self._calls.drain(timeout)
        drained: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(_drain, ended, scope, drained)
        try:
            return await drained
        finally:
            scope.cancel()

    def end_session(self, session: str) -> None:
        """Forget which target and which key the calls of a session go to. As `manystream.Engine.end_session`."""
        self._check_here()
        self._calls.end_session(session)

    def statistics(self) -> Statistics:
        """Return the engine's current figures."""
        return self._calls.statistics()

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> Recording:
        """Record what is sent and received until the block is left: `with engine.record(path):`.

        See `manystream.Engine.record`. Enter and leave the block on the loop's thread.
        """
        self._check_here()
        return self._calls.record(path, replace=replace)


async def _drain(
    ended: Coroutine[object, object, bool], scope: trio.CancelScope, drained: asyncio.Future[bool]
) -> None:
    """Wait for the drain in trio, and set its result on the asyncio future."""
    with scope:
        everything = await ended
        if not drained.done():
            drained.set_result(everything)


def open_engine(providers: Sequence[Provider], **options: Unpack[EngineOptions]) -> AbstractAsyncContextManager[Engine]:
    """Open an engine on the running asyncio loop: `async with aio.open_engine(providers=[…]) as engine`.

    providers: the providers that requests may name.
    options: those of `manystream.open_engine`.

    Leaving the block cancels the calls that still run, and closes every socket and task of the engine. A cancellation
    of the task does not interrupt this; it is raised afterwards.

    Raises `EventLoopError` if no loop is running or the loop's thread holds another trio run, and `InvalidRequestError`
    for a provider that cannot be used. Raises `EngineClosedError` if the block is left on another loop than the one on
    which it was entered.
    """
    return EngineBlock(_open_engine(providers, options), asyncio.get_running_loop)


@asynccontextmanager
async def _open_engine(providers: Sequence[Provider], options: EngineOptions) -> AsyncGenerator[Engine, None]:
    async with guest_calls(lambda make_backend: open_calls(make_backend, providers, options)) as calls:
        yield Engine(calls)
