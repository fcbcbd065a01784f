"""A trio run as a guest of an asyncio loop, for the engines of `manystream.aio`.

A thread can hold one trio run. Engines that are open on one loop at the same time share this run: the first engine
starts it, and it ends when the last engine is closed.

The loop that reads the engine's sockets is not a task of this run: the asyncio loop calls it. trio waits for its
descriptors in a second thread, and each wake-up from there costs three times one of asyncio's own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Protocol, TypeAlias

import trio

from .engine.gate import Calls
from .engine.request.errors import EngineClosedError
from .providers.errors import ManystreamError
from .transport.asyncio_backend import UnsupportedEventLoopError, serve, wakers
from .transport.backend import WAIT, Cancellable
from .transport.trio_backend import TrioBackend

MakeBackend: TypeAlias = Callable[[trio.Nursery], TrioBackend]
OpenNative: TypeAlias = Callable[[MakeBackend], AbstractAsyncContextManager[Calls]]


class EventLoopError(ManystreamError, RuntimeError):
    """No asyncio loop is running, or its thread already holds another trio run."""


@asynccontextmanager
async def guest_calls(open_native: OpenNative) -> AsyncGenerator[Calls, None]:
    """Open one engine in this loop's trio run until the block is left, and yield its calls.

    Raises `EventLoopError`, and what `open_native` raises. The failure that ended the engine comes before an exception
    of the block, which may be only its consequence.
    """
    process = os.getpid()
    guest = await _join_guest(_running_loop())
    host = asyncio.current_task()
    assert host is not None, "an async with block runs in a task"
    opened = _Opened(guest.loop, open_native)
    leaving = interrupted = False

    def on_closed(_: object) -> None:
        nonlocal interrupted
        if not leaving:  # the engine broke down, so the block must not continue
            interrupted = True
            host.cancel()

    trio.lowlevel.spawn_system_task(opened.run)
    cancelled: asyncio.CancelledError | None = None
    failure: BaseException | None = None
    try:
        calls = await opened.ready
        opened.closed.add_done_callback(on_closed)
        yield calls
    except asyncio.CancelledError as error:
        cancelled = error
    except BaseException as error:
        failure = error
    finally:
        leaving = True
        if os.getpid() == process:  # a forked process lacks the thread in which the trio run waits
            opened.close()
            cancelled = await _settled(opened.closed) or cancelled
            guest.leave()
            if guest.ending:
                cancelled = await _settled(guest.finished) or cancelled
    if guest.finished.done():
        guest.finished.result()
    # The engine's failure gives way to a cancellation from outside. `on_closed` may have cancelled the task as well.
    outside = host.uncancel() > 0 if interrupted else cancelled is not None
    if opened.closed.done() and not outside:
        opened.closed.result()
    if failure := failure or cancelled:
        raise failure


class GuestBackend(TrioBackend):
    """The trio run as a guest, with the multi-request loop on the asyncio loop itself.

    host: the asyncio loop.
    nursery: holds the tasks, and receives what they raise.
    """

    __slots__ = ("_host",)

    def __init__(self, host: asyncio.AbstractEventLoop, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._host = host

    def wakers(self) -> tuple[int, int]:
        """Return those of the asyncio loop. In a forked process, trio's second thread does not run."""
        return wakers(self._host)

    def serve(self, descriptor: int, turn: Callable[[], float]) -> Cancellable:
        """Call `turn` on the asyncio loop. A trio task waits for its end, and raises what `turn` raises."""
        ended = trio.Event()
        failure: BaseException | None = None

        def guarded_turn() -> float:
            nonlocal failure
            try:
                return turn()
            except BaseException as error:  # includes `SystemExit` from a callback, which would end the asyncio loop
                failure = error
                service.cancel()
                ended.set()
                return WAIT

        async def wait_for_the_end() -> None:
            try:
                await ended.wait()
            finally:
                service.cancel()
            if failure is not None:
                raise failure

        try:
            service = serve(self._host, descriptor, guarded_turn, _unexpected)
        except UnsupportedEventLoopError:
            return super().serve(descriptor, turn)
        return self.start(wait_for_the_end)


def _unexpected(error: Exception) -> None:
    raise AssertionError("a guarded turn does not raise") from error


class _Outcome(Protocol):
    """The result of the trio run, as trio passes it to `done_callback`."""

    def unwrap(self) -> object: ...


class _Guest:
    """The trio run on one loop. All engines that are open on the loop share it.

    loop: the asyncio loop.
    finished: done when the run has ended and the thread can hold another.
    ending: whether the run is ending, so that no further engine may use it.
    engines: the number of open engines.
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
            # asyncio sets the wake-up descriptor for signals, and a process can have only one.
            host_uses_signal_set_wakeup_fd=True,
        )

    def leave(self) -> None:
        """Count one engine less. The run ends after the last one."""
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
            self.finished.exception()  # marks it as retrieved: the open blocks raise it, if there are any
        else:
            self.finished.set_result(None)


class _ThisThread(threading.local):
    """The trio run of this thread, or None. A thread holds at most one."""

    guest: _Guest | None = None


_this_thread = _ThisThread()


class _Opened:
    """One engine in the guest run.

    ready: its result is the engine, or the exception that prevented its start.
    closed: done when the engine is closed; its exception is the one that broke the engine down.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, open_native: OpenNative) -> None:
        self.ready: asyncio.Future[Calls] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._open = partial(open_native, partial(GuestBackend, loop))
        self._close = trio.Event()

    async def run(self) -> None:
        """Keep the engine open until `close` is called. This is a trio task."""
        failure: BaseException | None = None
        try:
            async with self._open() as calls:
                if not self.ready.done():
                    self.ready.set_result(calls)
                await self._close.wait()
        except trio.Cancelled:
            failure = EngineClosedError("the trio run under this engine was ended")
            raise
        except BaseException as error:  # includes `SystemExit` from a callback; the block raises it in its own task
            failure = error
        finally:
            self._settle(failure)

    def close(self) -> None:
        """Begin to close the engine. `closed` is done when this has finished."""
        self._close.set()

    def _settle(self, failure: BaseException | None) -> None:
        if not self.ready.done():
            self.ready.set_exception(failure or EngineClosedError("the engine was closed before it was open"))
            failure = None
        if failure is None:
            self.closed.set_result(None)
        else:
            self.closed.set_exception(failure)
            self.closed.exception()  # marks it as retrieved: the block raises it


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        pass
    raise EventLoopError(
        "manystream.aio needs a running asyncio loop, and this thread has none: use manystream.open_engine in a trio"
        " program, and manystream.portal without an event loop"
    )


async def _join_guest(loop: asyncio.AbstractEventLoop) -> _Guest:
    """Return this loop's guest run, and count one engine more in it. Start the run if there is none.

    Raises `EventLoopError` if the thread holds another trio run.
    """
    while (guest := _this_thread.guest) is not None and guest.loop is loop and guest.ending:
        await asyncio.wait([guest.finished])  # a new run can start only after this one has ended
    if guest is None:
        if trio.lowlevel.in_trio_run():
            raise EventLoopError(
                "this thread already holds a trio run besides the asyncio loop: use manystream.open_engine in that"
                " trio run"
            )
        guest = _this_thread.guest = _Guest(loop)
    elif guest.loop is not loop:
        raise EventLoopError(
            "an engine of an earlier asyncio loop was not closed in this thread: leave its `async with` block before"
            " that loop ends"
        )
    guest.engines += 1
    return guest


async def _settled(future: asyncio.Future[None]) -> asyncio.CancelledError | None:
    """Wait until the future is done, even if the task is cancelled meanwhile.

    Return the cancellation, which the caller must raise later, or None.
    """
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
