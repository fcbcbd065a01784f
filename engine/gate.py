"""The calls of one engine, from its opening to its end: whether a call can start here and now, and what ends them all.

What starts calls (calls.py) is imported when it is first used, so that a program that opens an engine does not wait
for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING

from ..providers.model.rules import text
from .call.timeouts import seconds_of
from .request.errors import EngineClosedError, ends_engine

if TYPE_CHECKING:
    from ..providers.model.request import Request
    from ..transport.backend import Backend
    from .call.call import RunningCall
    from .call.callbacks import OnCompletion, OnEvent
    from .call.handle import Call
    from .call.home import Home
    from .calls import CallStarter
    from .observe.recording import Recording
    from .observe.statistics import Statistics
    from .services import EngineTasks

CONCURRENCY = 1_000
"""The default for the calls of one map that may run at the same time."""

LEFT = "its open_engine block was left. Start calls inside it"


class Calls:
    """The concurrent calls of one engine. All methods are for the engine's own thread.

    home: where the engine lives.
    closed: the reason why the engine is closed; empty while it is open.
    block: the block of `open_engine` while it is entered.
    failure: the exception that ended the engine, such as `KeyboardInterrupt` from a callback; None while it runs.
    """

    def __init__(
        self, make_starter: Callable[[Callable[[BaseException], None]], CallStarter], tasks: EngineTasks
    ) -> None:
        """Accept calls on this thread.

        make_starter: makes what starts calls, and raises `InvalidRequestError` for wrong options of traffic control.
            It is given the function that the exceptions of callbacks are reported to.
        tasks: the engine's tasks. The body of their block is interrupted when the engine ends early.
        """
        self._make_starter = make_starter
        self._tasks = tasks
        self._starter: CallStarter | None = None
        self.home: Home = tasks.home
        self.closed: str = ""
        self.block: object = None
        self._draining = False
        self.failure: BaseException | None = None

    def __repr__(self) -> str:
        starter = self._starter
        what = "no calls yet" if starter is None else f"{len(starter.running)} calls, {starter.runtime.pool!r}"
        return f"{what}{', closed' if self.closed else ''}"

    @property
    def backend(self) -> Backend:
        """The engine's event loop."""
        return self._tasks.backend

    @property
    def starter(self) -> CallStarter:
        """What starts the calls. The first access makes it, and imports what calls need unless that has been done.

        Raises `OSError` if the process has no file descriptor left for these imports. A later access may succeed.
        """
        if self._starter is None:
            self._starter = self._make_starter(self._callback_raised)
        return self._starter

    def start(
        self, request: Request, on_event: OnEvent | None, on_completion: OnCompletion | None, *, stream: bool
    ) -> Call:
        """Start a call. Raises `InvalidRequestError`, `EngineClosedError`, `TooManyCallsError`, and `OSError` as
        `starter` does."""
        self.check_here()
        return (self._starter or self.starter).start(request, on_event, on_completion, stream=stream)

    def attach(
        self,
        token: str,
        on_event: OnEvent | None,
        on_completion: OnCompletion | None,
        after: int | None,
        created_by: Request | None = None,
    ) -> Call:
        """Start a call that reads an answer which another call has created. Raises as `start` does."""
        self.check_here()
        return self.starter.attach(token, on_event, on_completion, after, created_by)

    def end_session(self, session: str) -> None:
        """Forget which target and key a session has."""
        self.home.check()
        text().check(session, "session")
        if self._starter is not None:
            self._starter.end_session(session)

    async def control_server(self, provider: str, mode: str | None) -> None:
        """Pause the server of a provider, or let it go on. Raises `InvalidRequestError` and `ProviderError`."""
        from .server_pause import control_server

        self.check_here()
        starter = self.starter
        await control_server(starter, starter.preparer.provider_named(provider), mode)

    def check_here(self) -> None:
        """Check that a call can be started here.

        Raises `EngineClosedError` in a forked process, after `drain`, after `close`, after the `open_engine` block was
        left, on another event loop and on another thread.
        """
        if self.closed:
            raise EngineClosedError(f"this engine is closed: {self.closed}")
        if self._draining:
            raise EngineClosedError("this engine takes no more calls: engine.drain() was called. Open another engine")
        self.home.check()

    def _callback_raised(self, error: BaseException) -> None:
        """End the engine if the exception of a callback is meant for the whole program, such as `KeyboardInterrupt`."""
        if ends_engine(error):
            self.end_engine(error)

    def end_engine(self, error: BaseException) -> None:
        """End the engine now: every call completes, every socket closes, and the `open_engine` block raises `error`."""
        if self.failure is None:
            self.failure = error
        self.close(f"{type(error).__name__} ended it, and is raised where its open_engine block ends", forced=True)
        self._tasks.interrupt(error)

    # --- the engine as a whole ---

    def statistics(self) -> Statistics:
        """Return the engine's current statistics."""
        return self.starter.totals(self.starter.states())

    def totals(self, calls: Mapping[str, int]) -> Statistics:
        """Return the engine's statistics with `calls`, which the caller has counted: running calls by state."""
        return self.starter.totals(calls)

    def running(self) -> list[RunningCall]:
        """Return the running calls, oldest first."""
        return [] if self._starter is None else list(self._starter.running)

    @property
    def cancelling(self) -> list[RunningCall]:
        """The cancelled calls whose servers are being asked to end their answers; none once the engine is closed."""
        if self.closed or self.home.is_forked:
            return []
        return [call for call in self.running() if call.cancelling is not None]

    async def servers_reached(self) -> None:
        """Wait for the end of the calls that are `cancelling` now."""
        for call in self.cancelling:
            await call.wait()

    def record(self, path: str | os.PathLike[str], *, replace: bool = False, content: bool = True) -> Recording:
        """Record the bytes sent and received to a new file. Raises as `Engine.record` does."""
        from .observe.recording import Recording, RecordingFile

        self.check_here()
        runtime = self.starter.runtime
        if runtime.recording is not None and not runtime.recording.closed:
            raise RuntimeError(f"{runtime.recording!r} is running: leave its block first")
        file = runtime.recording = RecordingFile(path, self.backend.clock, replace=replace, content=content)
        return Recording(file)

    def drain(self, timeout: float) -> Coroutine[object, object, bool]:
        """Refuse new calls from now on, and return a coroutine that waits until the running calls have ended.

        The coroutine waits at most `timeout` seconds. It returns True if all calls have ended. Raises `ValueError` for
        a negative timeout.
        """
        seconds = seconds_of(timeout, "drain")
        self.home.check()
        self._draining = True
        return self._all_ended(seconds)

    async def _all_ended(self, timeout: float) -> bool:
        running: Mapping[RunningCall, None] = {} if self._starter is None else self._starter.running
        async with self.backend.scope(self.backend.clock() + timeout):
            while running:
                await next(iter(running)).wait()
        return not running

    def close(self, reason: str = LEFT, *, forced: bool = False) -> None:
        """Cancel and complete the running calls, and close every socket. Leaving the `open_engine` block does this.

        Raises `EngineClosedError` on another event loop and on another thread.

        reason: why the engine is closed, for the error of later calls.
        forced: complete also the calls whose last callbacks were interrupted.
        """
        if self.home.is_forked:
            return  # the epoll set is shared after a fork: closing it here would break the parent
        if self.closed and not forced:
            return
        self.home.check()
        self.closed = self.closed or reason
        if self._starter is not None:
            self.home.context.copy().run(self._starter.close, forced=forced)

    def drop(self, reason: str) -> None:
        """Close every socket, where the event loop has ended, so that nothing can be delivered on it."""
        self.closed = self.closed or reason
        if self._starter is not None:
            self._starter.runtime.pool.drop()
