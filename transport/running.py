"""Find the event loop that the calling code runs on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar, cast

import trio

from .asyncio_backend import AsyncioBackend
from .backend import Backend
from .trio_backend import TrioBackend

Result = TypeVar("Result")

LOOK_AGAIN = 1.0
"""Seconds after which a thread that waits for an asyncio loop looks whether the loop has ended: asyncio drops functions
that it was given and has not called."""


class EventLoopEndedError(RuntimeError):
    """The event loop has ended, so it calls nothing any more."""


class EventLoop:
    """An event loop: asyncio's, or a trio run."""

    def __init__(self, loop: asyncio.AbstractEventLoop | trio.lowlevel.TrioToken) -> None:
        self._loop = loop

    @classmethod
    def of(cls, loop: object) -> EventLoop:
        """Return the event loop of an asyncio loop, or of the token of a trio run."""
        return cls(cast("asyncio.AbstractEventLoop | trio.lowlevel.TrioToken", loop))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventLoop) and self._loop is other._loop

    def __hash__(self) -> int:
        return hash(self._loop)

    def __str__(self) -> str:
        on_asyncio = isinstance(self._loop, asyncio.AbstractEventLoop)
        rests = isinstance(self._loop, asyncio.AbstractEventLoop) and not self._loop.is_running()
        state = " (ended)" if self.ended else " (not running)" if rests else ""
        return f"{'asyncio loop' if on_asyncio else 'trio run'} {id(self._loop):#x}{state}"

    def token(self) -> object:
        """Return what the event loop is, if it runs the calling code. Raises `RuntimeError` elsewhere."""
        if isinstance(self._loop, asyncio.AbstractEventLoop):
            return asyncio.get_running_loop()
        return trio.lowlevel.current_trio_token()

    @property
    def ended(self) -> bool:
        """Whether nothing runs on it any more: it is closed."""
        if isinstance(self._loop, asyncio.AbstractEventLoop):
            return self._loop.is_closed()
        try:
            self._loop.run_sync_soon(_nothing)
        except trio.RunFinishedError:
            return True
        return False

    def soon(self, function: Callable[[], object]) -> None:
        """Call a function on the event loop soon, from any thread. Raises `EventLoopEndedError`."""
        try:
            if isinstance(self._loop, asyncio.AbstractEventLoop):
                self._loop.call_soon_threadsafe(function)
            else:
                self._loop.run_sync_soon(function)
        except RuntimeError as error:  # of asyncio, and `trio.RunFinishedError`
            raise EventLoopEndedError(str(error)) from None

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the event loop, from another thread, and return its result. Raises as `run` does."""
        if isinstance(self._loop, asyncio.AbstractEventLoop):

            async def call() -> Result:
                return function()

            return self.run(call)
        try:
            return trio.from_thread.run_sync(function, trio_token=self._loop)
        except trio.RunFinishedError as error:
            raise EventLoopEndedError(str(error)) from None

    def run(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Run an async function on the event loop, from another thread, and return its result.

        Raises `EventLoopEndedError`, and any exception of the function.
        """
        loop = self._loop
        if not isinstance(loop, asyncio.AbstractEventLoop):
            try:
                return trio.from_thread.run(function, trio_token=loop)
            except trio.RunFinishedError as error:
                raise EventLoopEndedError(str(error)) from None

        async def run() -> Result:
            return await function()

        coroutine = run()
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        except RuntimeError as error:
            coroutine.close()
            raise EventLoopEndedError(str(error)) from None
        try:
            while True:
                try:
                    return future.result(LOOK_AGAIN)
                except TimeoutError:
                    if future.done():
                        raise
                    if self.ended:
                        raise EventLoopEndedError("the event loop is closed") from None
        finally:
            future.cancel()

    def at_end(self, function: Callable[[], object]) -> object:
        """Call a function when the event loop ends: an asyncio loop of `asyncio.run` or a trio run. Call this on it.

        An asyncio loop that is closed without `shutdown_asyncgens` does not call it. Keep what this returns: the
        function is also called when nobody holds it any more.
        """
        if not isinstance(self._loop, asyncio.AbstractEventLoop):
            return trio.lowlevel.spawn_system_task(_hold, function)
        # asyncio closes each async generator that is suspended. There is no task, which the program would see.
        generator = _suspended(function)
        try:
            generator.__anext__().send(None)
        except StopIteration:
            pass
        return generator

    def backend(self, on_failure: Callable[[BaseException], None]) -> Backend:
        """Return a backend on this event loop, whose tasks are in the background.

        on_failure: called with an exception that ended a task.
        """
        if isinstance(self._loop, asyncio.AbstractEventLoop):
            return AsyncioBackend(self._loop, on_failure)
        return TrioBackend(on_failure=on_failure)


def running_event_loop() -> EventLoop | None:
    """Return the event loop that runs the calling task; None outside of any."""
    if trio.lowlevel.in_trio_task():
        return EventLoop(trio.lowlevel.current_trio_token())
    try:
        return EventLoop(asyncio.get_running_loop())
    except RuntimeError:
        return None


async def _hold(function: Callable[[], object]) -> None:
    try:
        await trio.sleep_forever()
    finally:
        function()


async def _suspended(function: Callable[[], object]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        function()


def _nothing() -> None:
    pass
