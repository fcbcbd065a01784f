"""The engine for asyncio programs: `async with aio.open_engine([…]) as engine`.

trio runs as a guest of the running asyncio loop, on the same thread (`trio.lowlevel.start_guest_run`): its ticks are
callbacks of that loop, and only its wait for sockets happens in a thread beside it. So `on_event` and `on_completion`
are called on the loop's own thread, with nothing between the socket and them, and may use asyncio as any callback may.

Knows asyncio, and how to carry a call's end over to it. Must not know how a call works. This is the one file that
imports asyncio.

A thread can hold one trio run. Engines that are open at the same time on one loop share it: the first one starts the
run, the last one to close ends it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeAlias, Unpack

import trio

from .engine import core
from .engine.call import Call as NativeCall
from .engine.callbacks import check_callback
from .engine.clocks import CallState
from .engine.completion import Completion, answer_of
from .engine.delivery import OnEvent
from .engine.ending import OnCompletion
from .engine.errors import EngineClosedError
from .engine.options import EngineOptions
from .engine.record import Recording
from .engine.statistics import Statistics
from .engine.stream import BufferedEvents
from .providers.errors import ManystreamError
from .providers.events import Event
from .providers.provider import Provider
from .providers.request import Request
from .providers.response import Response

NativeBlock: TypeAlias = "AbstractAsyncContextManager[core.Engine]"


class EventLoopError(ManystreamError, RuntimeError):
    """There is no asyncio loop to run on, or its thread already holds a trio run that is not ours."""


class Call:
    """A running (or ended) call, as `start_request` and `start_stream` return it."""

    __slots__ = ("_native", "_on_completion", "_waiters")

    def __init__(self, start: Callable[[OnCompletion], NativeCall], on_completion: OnCompletion | None) -> None:
        check_callback("on_completion", on_completion)
        self._on_completion = on_completion
        self._waiters: list[asyncio.Future[Completion]] = []
        self._native = start(self._end)

    def __repr__(self) -> str:
        return repr(self._native)

    @property
    def state(self) -> CallState:
        """Where it stands."""
        return self._native.state

    @property
    def completion(self) -> Completion | None:
        """The final record, once the call has ended."""
        return self._native.completion

    def cancel(self) -> None:
        """End the call. Its socket is closed at once; its completion (CANCELLED, with what had arrived) follows soon
        after. Idempotent; after the end it does nothing. Only on the loop's thread."""
        self._native.cancel()

    async def __aenter__(self) -> Self:
        """`async with call:` ties the call to the block: leaving the block, also by cancellation, cancels the call."""
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    async def wait(self) -> Completion:
        """Wait for the completion, which the callback (if any) has been given by then; closing the engine is an end
        like any other. Cancelling the task that waits leaves the call running; `async with call:` cancels both."""
        if self._native.completion is not None:
            return self._native.completion
        waiter: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            return await waiter
        finally:
            self._waiters.remove(waiter)

    def pause(self) -> None:
        """Read no more for now: the server is held back through TCP, and the idle clock stands still."""
        self._native.pause()

    def resume(self) -> None:
        """Read on."""
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
    """The events of one call, in order. Ends after `Done`; a failed stream raises its `ProviderError`.

    completion: the call's final record, once it has ended.
    """

    def __init__(self, start: Callable[[OnEvent, OnCompletion], Call]) -> None:
        super().__init__()
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
    """Many concurrent calls on an asyncio loop. Made by `open_engine`; all methods are for the loop's thread."""

    def __init__(self, native: core.Engine) -> None:
        self._native = native
        self._thread = threading.get_ident()

    def __repr__(self) -> str:
        return f"<asyncio {self._native!r}>"

    def start_stream(
        self, request: Request, on_event: OnEvent | None = None, on_completion: OnCompletion | None = None
    ) -> Call:
        """Start a streamed call; returns at once.

        `on_event(event)` is called for each event in wire order, then `on_completion(completion)` exactly once;
        both are plain functions, called on the loop's thread. An exception from `on_event` ends this call alone.
        Raises `InvalidRequestError` for a request that cannot be sent at all, `EngineClosedError`, or
        `TooManyCallsError`; whatever the network does arrives in the completion.
        """
        self._check_thread()
        return Call(lambda end: self._native.start_stream(request, on_event, end), on_completion)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> Call:
        """Start an unstreamed call; returns at once. As `start_stream`, without events."""
        self._check_thread()
        return Call(lambda end: self._native.start_request(request, end), on_completion)

    async def request(self, request: Request) -> Response:
        """Make an unstreamed call and wait for its answer. Raises `ProviderError` if it fails; cancelling the task
        that waits cancels the call."""
        call = self.start_request(request)
        try:
            completion = await call.wait()
        finally:
            call.cancel()
        return answer_of(completion)

    def stream(self, request: Request) -> EventStream:
        """A streamed call as an async iterator with backpressure: `async with engine.stream(request) as events`.
        Raises `ProviderError` from the iteration if the stream fails; leaving the block, also by the task's
        cancellation, cancels the call."""
        return EventStream(lambda on_event, on_completion: self.start_stream(request, on_event, on_completion))

    async def drain(self, timeout: float) -> bool:
        """Finish, then close: no call is started from now on; wait until those that run or wait have ended, at most
        `timeout` seconds (`math.inf`: as long as it takes). Returns whether all have.

        From the moment this is called `start_*` raises `EngineClosedError`. Calls that still run afterwards go on until
        the `open_engine` block is left, which cancels them. Raises `ValueError` for a negative timeout.
        """
        self._check_thread()
        ended = self._native.drain(timeout)
        drained: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        scope = trio.CancelScope()
        trio.lowlevel.spawn_system_task(_drain, ended, scope, drained)
        try:
            return await drained
        finally:
            scope.cancel()

    def statistics(self) -> Statistics:
        """The engine in figures, as of now."""
        return self._native.statistics()

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> Recording:
        """Write down what goes over the wire until the block is left: `with engine.record(path):`. As the native
        engine's; recording and its end are for the loop's thread."""
        self._check_thread()
        return self._native.record(path, replace=replace)

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise EngineClosedError(
                "this engine belongs to its loop's thread: from another one use loop.call_soon_threadsafe(…)"
            )


async def _drain(
    ended: Coroutine[object, object, bool], scope: trio.CancelScope, drained: asyncio.Future[bool]
) -> None:
    """Wait in trio, and hand the answer to asyncio."""
    with scope:
        everything = await ended
        if not drained.done():
            drained.set_result(everything)


@asynccontextmanager
async def open_engine(
    providers: Sequence[Provider],
    **options: Unpack[EngineOptions],
) -> AsyncGenerator[Engine, None]:
    """Open an engine on the running asyncio loop: `async with aio.open_engine(providers=[…]) as engine`.

    The options are those of `manystream.open_engine`. Leaving the block cancels what still runs and leaves no socket
    and no task behind; it is left whole even where the task is cancelled meanwhile.
    Raises `EventLoopError` without a running loop, or where the loop's thread holds another trio run already, and
    `InvalidRequestError` for a provider that cannot work.
    """
    open_native = partial(core.open_engine, providers, **options)
    async with _guest_engine(open_native) as engine:
        yield engine


@asynccontextmanager
async def _guest_engine(open_native: Callable[[], NativeBlock]) -> AsyncGenerator[Engine, None]:
    """One engine in this loop's trio run, for the length of the block."""
    guest = await _join_guest(_running_loop())
    host = asyncio.current_task()
    assert host is not None, "an async with block runs in a task"
    opened = _Opened(guest.loop, open_native)
    leaving = interrupted = False

    def on_closed(_: object) -> None:
        nonlocal interrupted
        if not leaving:  # the engine broke down under the block, which must not go on as if it had one
            interrupted = True
            host.cancel()

    trio.lowlevel.spawn_system_task(opened.run)
    cancelled: asyncio.CancelledError | None = None
    try:
        engine = Engine(await opened.ready)
        opened.closed.add_done_callback(on_closed)
        yield engine
    except asyncio.CancelledError as error:
        cancelled = error
    finally:
        leaving = True
        opened.close()
        cancelled = await _settled(opened.closed) or cancelled
        guest.leave()
        if guest.ending:
            cancelled = await _settled(guest.finished) or cancelled
    if interrupted:
        _raise_breakdown(host, guest, opened)
    if cancelled is not None:
        raise cancelled


def _raise_breakdown(host: asyncio.Task[object], guest: _Guest, opened: _Opened) -> None:
    """The engine broke down under its block, and the task was cancelled for that: raise why, unless the task was
    cancelled from outside as well."""
    ours_alone = host.uncancel() == 0
    if guest.finished.done():
        guest.finished.result()
    if ours_alone:
        opened.closed.result()


class _Outcome(Protocol):
    """How the trio run ended."""

    def unwrap(self) -> object: ...


class _Guest:
    """The trio run on one loop, shared by the engines that are open there.

    finished: the run has ended, and the thread is free for another. ending: no engine may join any more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.finished: asyncio.Future[None] = loop.create_future()
        self.ending = False
        self.engines = 0
        self._stop = trio.Event()
        trio.lowlevel.start_guest_run(
            self._stop.wait,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=loop.call_soon,
            done_callback=self._done,
            # asyncio wakes itself up for signals; there can be one wake-up descriptor in a process.
            host_uses_signal_set_wakeup_fd=True,
        )

    def leave(self) -> None:
        """One engine fewer; after the last one the run ends."""
        self.engines -= 1
        if not self.engines:
            self.ending = True
            self._stop.set()

    def _done(self, result: _Outcome) -> None:
        self.ending = True
        _this_thread.guest = None
        try:
            result.unwrap()
        except BaseException as error:
            self.finished.set_exception(error)
            self.finished.exception()  # is raised by the blocks that are open; where there is none, nobody need know
        else:
            self.finished.set_result(None)


class _ThisThread(threading.local):
    """A thread holds at most one trio run."""

    guest: _Guest | None = None


_this_thread = _ThisThread()


class _Opened:
    """One engine in the guest run.

    ready: the engine, or why there is none. closed: it is gone, with all it had.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, open_native: Callable[[], NativeBlock]) -> None:
        self.ready: asyncio.Future[core.Engine] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._open_native = open_native
        self._close = trio.Event()

    async def run(self) -> None:
        """Hold the engine until it is to be closed: a task in trio."""
        failure: BaseException | None = None
        try:
            async with self._open_native() as engine:
                if not self.ready.done():
                    self.ready.set_result(engine)
                await self._close.wait()
        except trio.Cancelled:
            failure = EngineClosedError("the trio run under this engine was ended")
            raise
        except BaseException as error:  # `SystemExit` of a callback among them: the block raises it, in its own task
            failure = error
        finally:
            self._settle(failure)

    def close(self) -> None:
        """Ask it to end; `closed` tells when it has."""
        self._close.set()

    def _settle(self, failure: BaseException | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(failure or EngineClosedError("the engine was closed before it was open"))
            failure = None
        if failure is None:
            self.closed.set_result(None)
        else:
            self.closed.set_exception(failure)
            self.closed.exception()  # the block raises it


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    raise EventLoopError(
        "manystream.aio needs a running asyncio loop, and there is none in this thread: in a trio program use"
        " manystream.open_engine, without any event loop use manystream.portal"
    )


async def _join_guest(loop: asyncio.AbstractEventLoop) -> _Guest:
    """This loop's guest run, with one engine more; a new one where there is none. Raises `EventLoopError`."""
    while (guest := _this_thread.guest) is not None and guest.loop is loop and guest.ending:
        await asyncio.wait([guest.finished])  # one run after the other
    if guest is None:
        if trio.lowlevel.in_trio_run():
            raise EventLoopError(
                "this thread holds a trio run already, under or beside the asyncio loop: use manystream.open_engine"
                " in that one"
            )
        guest = _this_thread.guest = _Guest(loop)
    elif guest.loop is not loop:
        raise EventLoopError(
            "an engine of an earlier asyncio loop was never closed in this thread: leave its `async with` block before"
            " that loop ends"
        )
    guest.engines += 1
    return guest


async def _settled(future: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait for the future's end, whatever it is, to the end. Gives the cancellation that came meanwhile: it is to be
    raised when all is done."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
