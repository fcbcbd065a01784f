"""An engine's calls for other threads: a method blocks the calling thread until the answer is there, or hands the work
over and returns. Any number of threads may use one portal at the same time.

`engine.from_thread` is one; `manystream.portal.open_portal` opens one with an engine in a thread of its own.
Knows the engine's thread. Must not know how a call works, nor who runs trio.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar, overload

from ..providers.events import Event
from ..providers.request import Request
from ..providers.response import Response
from .callbacks import check_callback
from .calls import Calls
from .clocks import CallState
from .completion import Completion
from .delivery import OnEvent
from .ending import OnCompletion
from .engine_thread import EngineThread
from .handle import Call
from .mapped import CONCURRENCY
from .portal_map import PortalMap
from .record import Recording
from .statistics import Statistics
from .stream import BufferedEvents

Key = TypeVar("Key")


class PortalCall:
    """A running (or ended) call, for any thread."""

    __slots__ = ("_call", "_ended", "_on_completion", "_thread", "completion")

    def __init__(
        self, thread: EngineThread, start: Callable[[OnCompletion], Call], on_completion: OnCompletion | None
    ) -> None:
        """start: starts the call, on the engine's thread."""
        check_callback("on_completion", on_completion)
        self._thread = thread
        self._on_completion = on_completion
        self._ended = threading.Event()
        self.completion: Completion | None = None
        self._call = thread.run(lambda: start(self._end))

    def __repr__(self) -> str:
        return repr(self._call)

    @property
    def state(self) -> CallState:
        """The state of the call."""
        return self._call.state

    @property
    def target(self) -> str:
        """The call's provider and model: `provider/model`."""
        return self._call.target

    @property
    def waiting_for(self) -> str:
        """Why the call waits, in words; empty if it does not. As the engine's call. Asks the engine's thread."""
        return "" if self.completion is not None else self._thread.run(lambda: self._call.waiting_for)

    def cancel(self) -> None:
        """End the call; its completion (CANCELLED, with what had arrived) follows. Idempotent; after the end, or once
        the portal is closed, it does nothing."""
        self._thread.soon(self._call.cancel)

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
        self._thread.check_may_block()
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the call has not ended within {timeout:g} s")
        assert self.completion is not None
        return self.completion

    def pause(self) -> None:
        """Stop reading until `resume`."""
        self._thread.soon(self._call.pause)

    def resume(self) -> None:
        """Continue reading after `pause`."""
        self._thread.soon(self._call.resume)

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

    def __init__(self, thread: EngineThread, start: Callable[[OnEvent, OnCompletion], PortalCall]) -> None:
        super().__init__()
        self._thread = thread
        self._start = start
        self._changed = threading.Condition()

    def __enter__(self) -> PortalStream:
        self._check_not_entered()
        self._call = self._start(self._on_event, self._on_completion)
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
        self._thread.check_may_block()
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

    def __init__(self, thread: EngineThread, recording: Recording) -> None:
        self._thread = thread
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
        """Whether the recording was closed."""
        return self._recording.closed

    @property
    def exchanges(self) -> int:
        """The number of exchanges that were written."""
        return self._recording.exchanges

    def close(self) -> None:
        """Write what is known of exchanges that are still running, and close the file. Idempotent; closing the portal
        closes it, too."""
        if not self._recording.closed:
            self._thread.run(self._recording.close)


class Portal:
    """Many concurrent calls, from threads: `engine.from_thread`, or what `open_portal` opens. All methods are for any
    thread; callbacks run on the engine's."""

    __slots__ = ("_calls", "_thread")

    def __init__(self, calls: Calls, thread: EngineThread) -> None:
        self._calls = calls
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Portal to {self._calls!r}>"

    def request(self, request: Request) -> Response:
        """Make an unstreamed call and block until its answer is there. Raises `ProviderError` if it fails; where the
        wait is interrupted (Ctrl-C), the call is cancelled."""
        self._thread.check_may_block()
        call = self.start_request(request)
        try:
            completion = call.wait()
        finally:
            call.cancel()
        return completion.response_or_raise()

    def stream(self, request: Request) -> PortalStream:
        """A streamed call as an iterator with backpressure: `with portal.stream(request) as events: for event in …`."""
        return PortalStream(
            self._thread,
            lambda on_event, on_completion: self.start_stream(request, on_event, on_completion),
        )

    @overload
    def map(
        self, requests: Iterable[Request], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> PortalMap[Request]: ...

    @overload
    def map(
        self, requests: Iterable[tuple[Key, Request]], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> PortalMap[Key]: ...

    def map(
        self,
        requests: Iterable[Request] | Iterable[tuple[Key, Request]],
        *,
        concurrency: int = CONCURRENCY,
        ordered: bool = False,
    ) -> PortalMap[Request] | PortalMap[Key]:
        """Make an unstreamed call for each request, and iterate over (request, completion) as the calls end:
        `with portal.map(requests) as results: for request, completion in results: …`. As `Engine.map`; the requests are
        read on the thread that iterates."""
        return PortalMap(self._thread, self._start, requests, concurrency, ordered=ordered)

    def _start(self, request: Request, on_completion: OnCompletion) -> Call:
        return self._calls.start(request, None, on_completion, stream=False)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> PortalCall:
        """Start an unstreamed call; returns once it is started. `on_completion(completion)` is called exactly once, on
        the engine's thread. Raises `InvalidRequestError` and `EngineClosedError`."""
        return PortalCall(self._thread, lambda end: self._calls.start(request, None, end, stream=False), on_completion)

    def start_stream(
        self, request: Request, on_event: OnEvent | None = None, on_completion: OnCompletion | None = None
    ) -> PortalCall:
        """Start a streamed call; returns once it is started. Callbacks as in `Engine.start_stream`, on the engine's
        thread: they must not block it, for every other call waits with it."""
        return PortalCall(
            self._thread, lambda end: self._calls.start(request, on_event, end, stream=True), on_completion
        )

    def drain(self, timeout: float) -> bool:
        """Finish, then close: no call is started from now on, by any thread; block until those that run or wait have
        ended, at most `timeout` seconds. Returns whether all have. As `Engine.drain`."""
        return self._thread.run_async(lambda: self._calls.drain(timeout))

    def statistics(self) -> Statistics:
        """The engine in figures, as of now."""
        return self._thread.run(self._calls.statistics)

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> PortalRecording:
        """Write down what goes over the wire until the block is left: `with portal.record(path):`. As the engine's."""
        recording = self._thread.run(lambda: self._calls.record(path, replace=replace))
        return PortalRecording(self._thread, recording)
