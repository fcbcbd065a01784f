"""An engine's calls for other threads: a method blocks the calling thread until the answer is there, or hands the work
over and returns. Any number of threads may use one portal at the same time.

`engine.from_thread` is one; `manystream.portal.open_portal` opens one with an engine in a thread of its own.
Knows threads and trio's token. Must not know how a call works, nor who runs trio.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import trio

from ..providers.events import Event
from ..providers.request import Request
from ..providers.response import Response
from .call import Call
from .callbacks import check_callback
from .calls import Calls
from .clocks import CallState
from .completion import Completion, answer_of
from .delivery import OnEvent
from .ending import OnCompletion
from .errors import EngineClosedError
from .record import Recording
from .statistics import Statistics
from .stream import BufferedEvents

Result = TypeVar("Result")

CLOSED = "this portal is closed: the block of its engine was left"
FORKED = "this portal was opened in another process: open one after the fork"


class PortalCall:
    """A running (or ended) call, for any thread."""

    __slots__ = ("_call", "_ended", "_on_completion", "_portal", "completion")

    def __init__(self, portal: Portal, on_completion: OnCompletion | None) -> None:
        check_callback("on_completion", on_completion)
        self._portal = portal
        self._on_completion = on_completion
        self._ended = threading.Event()
        self._call: Call | None = None
        self.completion: Completion | None = None

    def __repr__(self) -> str:
        return repr(self._call)

    @property
    def state(self) -> CallState:
        """Where it stands."""
        return CallState.QUEUED if self._call is None else self._call.state

    def cancel(self) -> None:
        """End the call; its completion (CANCELLED, with what had arrived) follows. Idempotent; after the end, or once
        the portal is closed, it does nothing."""
        self._portal.soon(self._cancel)

    def __enter__(self) -> Self:
        """`with call:` ties the call to the block: leaving the block, also by an exception, cancels the call."""
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def wait(self, timeout: float | None = None) -> Completion:
        """Block until the call has ended, at most `timeout` seconds: then `TimeoutError`, and the call goes on, as it
        does after Ctrl-C; `with call:` cancels it in both cases. Raises `RuntimeError` in a callback, which would wait
        for itself."""
        self._portal.check_may_block()
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the call has not ended within {timeout:g} s")
        assert self.completion is not None
        return self.completion

    def begin(self, start: Callable[[OnCompletion], Call]) -> None:
        """Start it, on the engine's thread."""
        self._call = start(self._end)

    def pause(self) -> None:
        """Read no more for now."""
        self._portal.soon(self._pause)

    def resume(self) -> None:
        """Read on."""
        self._portal.soon(self._resume)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _pause(self) -> None:
        if self._call is not None:
            self._call.pause()

    def _resume(self) -> None:
        if self._call is not None:
            self._call.resume()

    def _end(self, completion: Completion) -> None:
        self.completion = completion
        try:
            if self._on_completion is not None:
                self._on_completion(completion)
        finally:
            self._ended.set()


class PortalStream(BufferedEvents[PortalCall]):
    """The events of one call as a plain iterator, for one thread at a time. While its buffer is full the socket is
    not read. A failed stream raises its `ProviderError`; leaving the block cancels the call.

    completion: the call's final record, once it has ended.
    """

    _FORM = "    with portal.stream(request) as events:\n        for event in events: ..."

    def __init__(self, portal: Portal, request: Request) -> None:
        super().__init__()
        self._portal = portal
        self._request = request
        self._changed = threading.Condition()

    def __enter__(self) -> PortalStream:
        self._check_not_entered()
        self._call = self._portal.start_stream(self._request, self._on_event, self._on_completion)
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.call.cancel()

    def __iter__(self) -> PortalStream:
        return self

    def __next__(self) -> Event:
        self._portal.check_may_block()
        with self._changed:
            while not self._waiting:
                if self._over():
                    raise StopIteration
                self._changed.wait()
            return self._take()

    def _on_event(self, event: Event) -> None:
        with self._changed:
            super()._on_event(event)

    def _on_completion(self, completion: Completion) -> None:
        with self._changed:
            super()._on_completion(completion)

    def _wake(self) -> None:
        self._changed.notify()


class PortalRecording:
    """A running recording, for any thread: `with portal.record(path): …`."""

    def __init__(self, portal: Portal, recording: Recording) -> None:
        self._portal = portal
        self._recording = recording

    def __repr__(self) -> str:
        return repr(self._recording)

    def __enter__(self) -> PortalRecording:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it takes no more."""
        return self._recording.closed

    @property
    def exchanges(self) -> int:
        """How many it has written."""
        return self._recording.exchanges

    def close(self) -> None:
        """Write what is known of exchanges that are still running, and close the file. Idempotent; closing the portal
        closes it, too."""
        if not self._recording.closed:
            self._portal.run(self._recording.close)


class Portal:
    """Many concurrent calls, from threads: `engine.from_thread`, or what `open_portal` opens. All methods are for any
    thread; callbacks run on the engine's."""

    def __init__(self, calls: Calls, token: trio.lowlevel.TrioToken) -> None:
        self._calls = calls
        self._token = token
        self._thread = threading.get_ident()
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<Portal to {self._calls!r}>"

    def request(self, request: Request) -> Response:
        """Make an unstreamed call and block until its answer is there. Raises `ProviderError` if it fails; where the
        wait is interrupted (Ctrl-C), the call is cancelled."""
        self.check_may_block()
        call = self.start_request(request)
        try:
            completion = call.wait()
        finally:
            call.cancel()
        return answer_of(completion)

    def stream(self, request: Request) -> PortalStream:
        """A streamed call as an iterator with backpressure: `with portal.stream(request) as events: for event in …`."""
        return PortalStream(self, request)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> PortalCall:
        """Start an unstreamed call; returns once it is started. `on_completion(completion)` is called exactly once, on
        the engine's thread. Raises `InvalidRequestError` and `EngineClosedError`."""
        call = PortalCall(self, on_completion)
        self.run(lambda: call.begin(lambda end: self._calls.start(request, None, end, stream=False)))
        return call

    def start_stream(
        self, request: Request, on_event: OnEvent | None = None, on_completion: OnCompletion | None = None
    ) -> PortalCall:
        """Start a streamed call; returns once it is started. Callbacks as in `Engine.start_stream`, on the engine's
        thread: they must not block it, for every other call waits with it."""
        call = PortalCall(self, on_completion)
        self.run(lambda: call.begin(lambda end: self._calls.start(request, on_event, end, stream=True)))
        return call

    def drain(self, timeout: float) -> bool:
        """Finish, then close: no call is started from now on, by any thread; block until those that run or wait have
        ended, at most `timeout` seconds. Returns whether all have. As `Engine.drain`."""
        self.check_may_block()
        try:
            return trio.from_thread.run(self._calls.drain, timeout, trio_token=self._token)
        except trio.RunFinishedError:
            raise EngineClosedError(CLOSED) from None

    def statistics(self) -> Statistics:
        """The engine in figures, as of now."""
        return self.run(self._calls.statistics)

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> PortalRecording:
        """Write down what goes over the wire until the block is left: `with portal.record(path):`. As the engine's."""
        return PortalRecording(self, self.run(lambda: self._calls.record(path, replace=replace)))

    # --- for calls ---

    def soon(self, function: Callable[[], None]) -> None:
        """Have the engine's thread call this; nothing once the portal is closed."""
        self._check_process()
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            pass

    def check_may_block(self) -> None:
        """Raises `RuntimeError` on the engine's own thread, and `EngineClosedError` where nobody would end the wait."""
        self._check_process()
        if threading.get_ident() == self._thread:
            raise RuntimeError("a callback must not wait for a call: it holds up the thread that would end it")

    def run(self, function: Callable[[], Result]) -> Result:
        """Call this on the engine's thread and wait for it. Raises `EngineClosedError`, and what it raises."""
        self._check_process()
        if threading.get_ident() == self._thread:
            return function()  # in a callback
        try:
            return trio.from_thread.run_sync(function, trio_token=self._token)
        except trio.RunFinishedError:
            raise EngineClosedError(CLOSED) from None

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # a fork copies no threads: the engine's is not here
            raise EngineClosedError(FORKED)
