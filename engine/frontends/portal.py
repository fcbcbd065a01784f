"""The portal: an engine's calls for other threads. Any number of threads may use one portal at the same time.

A method blocks the calling thread until the result is available, or passes the work to the engine's thread and returns.
`engine.from_thread` is a portal; `manystream.portal.open_portal` opens one with an engine in a thread of its own.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable
from typing import Self, TypeVar, overload

from ...providers.model.events import Event
from ...providers.model.options import PauseMode
from ...providers.model.request import Request, Tags
from ...providers.model.response import Response
from ..call.callbacks import OnCompletion, OnEvent, check_callback
from ..call.completion import CacheUse, Completion
from ..call.handle import Call
from ..call.timeouts import CallState, seconds_of
from ..gate import CONCURRENCY, Calls
from ..observe.recording import Recording
from ..observe.statistics import Statistics
from .engine_thread import EngineThread
from .portal_map import PortalMap
from .stream import BufferedEvents, starter

Key = TypeVar("Key")


class PortalCall:
    """A running (or ended) call, for any thread."""

    __slots__ = ("_call", "_ended", "_on_completion", "_thread", "completion")

    def __init__(
        self, thread: EngineThread, start: Callable[[OnCompletion], Call], on_completion: OnCompletion | None
    ) -> None:
        """Start a call. `start`: the function that starts it, on the engine's thread.

        Ctrl-C may interrupt the wait for that thread. Then the call is cancelled, because nobody has it.
        """
        check_callback("on_completion", on_completion)
        self._thread = thread
        self._on_completion = on_completion
        self._ended = threading.Event()
        self.completion: Completion | None = None
        try:
            thread.run(lambda: self._begin(start))
        except BaseException:
            thread.soon(self._abandon)  # the thread runs it after `_begin`
            raise

    def __repr__(self) -> str:
        return repr(self._call)

    @property
    def number(self) -> int:
        """The position of the call among the engine's calls, counted from 1. Log records of the engine name it."""
        return self._call.number

    @property
    def request(self) -> Request:
        """The request that the call was started with."""
        return self._call.request

    @property
    def tags(self) -> Tags:
        """The tags of the request; empty if it has none."""
        return self._call.tags

    @property
    def state(self) -> CallState:
        """The state of the call."""
        return self._call.state

    @property
    def target(self) -> str:
        """The call's provider and model: `provider/model`. On a route, empty until the target is chosen."""
        return self._call.target

    @property
    def waiting_for(self) -> str:
        """What the call waits for, in words; "" if it does not wait. This blocks until the engine's thread answers."""
        return "" if self.completion is not None else self._thread.run(lambda: self._call.waiting_for)

    @property
    def resume_token(self) -> str | None:
        """A text with which any engine reads the answer of a durable call. As `Call.resume_token`."""
        return self._call.resume_token

    def cancel(self) -> None:
        """End the call. Its completion (category CANCELLED, with the partial response) follows.

        Idempotent. This does nothing after the call has ended or the portal was closed.
        """
        self._thread.soon(self._call.cancel)

    def __enter__(self) -> Self:
        """`with call:` ties the call to the block: leaving the block, also by an exception, cancels the call."""
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.leave(self._call.cancel)

    def wait(self, timeout: float | None = None) -> Completion:
        """Block until the call has ended, and return its completion.

        Raises `TimeoutError` after `timeout` seconds. The call then continues, as it does after Ctrl-C; `with call:`
        cancels it in both cases. Raises `RuntimeError` in a callback, because the call could not end during the wait,
        and `ValueError` for a timeout that is no number.

        timeout: the longest wait in seconds; None or `math.inf`: no limit.
        """
        self._thread.check_may_block()
        seconds = math.inf if timeout is None else max(0.0, seconds_of(timeout, "wait", least=-math.inf))
        if not self._ended.wait(seconds if seconds <= threading.TIMEOUT_MAX else None):
            raise TimeoutError(f"the call has not ended within {seconds:g} s")
        assert self.completion is not None
        return self.completion

    def pause(self) -> None:
        """Stop reading until `resume`."""
        self._thread.soon(self._call.pause)

    def resume(self) -> None:
        """Continue reading after `pause`."""
        self._thread.soon(self._call.resume)

    def _begin(self, start: Callable[[OnCompletion], Call]) -> None:
        self._call: Call = start(self._end)

    def _abandon(self) -> None:
        if hasattr(self, "_call"):
            self._call.cancel()

    def _end(self, completion: Completion) -> None:
        self.completion = completion
        try:
            if self._on_completion is not None:
                self._on_completion(completion)
        finally:
            self._ended.set()


class PortalStream(BufferedEvents[PortalCall]):
    """The events of one call as an iterator with backpressure, for one thread at a time.

    While the buffer is full, the socket is not read. The iteration raises `ProviderError` if the stream fails. Leaving
    the block cancels the call.

    completion: the call's final record; None until the call has ended.
    """

    _FORM = "    with portal.stream(request) as events:\n        for event in events: ..."

    def __init__(self, thread: EngineThread, start: Callable[[OnEvent, OnCompletion], PortalCall]) -> None:
        super().__init__()
        self._thread = thread
        self._start = start
        self._changed = threading.Condition()
        self._is_read = False  # by a thread that waits for the next event

    def __enter__(self) -> PortalStream:
        self._check_not_entered()
        self._call = self._start(self._on_event, self._on_completion)
        return self

    def __exit__(self, *_: object) -> None:
        self.call.__exit__()

    def __iter__(self) -> PortalStream:
        return self

    def __next__(self) -> Event:
        self._thread.check_may_block()
        with self._changed:
            if self._is_read:
                raise RuntimeError("another thread is already waiting for this stream's next event")
            while not self._waiting:
                if self._over():
                    raise StopIteration
                self._is_read = True
                try:
                    self._changed.wait()
                finally:
                    self._is_read = False
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

    def __exit__(self, *_: object) -> None:
        if self._thread.is_running:
            self.close()

    @property
    def closed(self) -> bool:
        """True if the recording was closed."""
        return self._recording.closed

    @property
    def exchanges(self) -> int:
        """The number of exchanges that were written."""
        return self._recording.exchanges

    def close(self) -> None:
        """Write the known parts of running exchanges, and close the file.

        Idempotent. Closing the portal closes the recording, too.
        """
        if not self._recording.closed:
            self._thread.run(self._recording.close)


class Portal:
    """Many concurrent calls for programs with threads: `engine.from_thread`, or the result of `open_portal`.

    Any thread may call the methods. Callbacks run on the engine's thread.
    """

    __slots__ = ("_calls", "_thread")

    def __init__(self, calls: Calls, thread: EngineThread) -> None:
        self._calls = calls
        self._thread = thread

    def __repr__(self) -> str:
        return f"<Portal to {self._calls!r}>"

    @property
    def closed(self) -> bool:
        """Whether the portal's engine is closed, so that it starts no call."""
        return bool(self._calls.closed) or not self._thread.is_running

    def request(self, request: Request) -> Response:
        """Make an unstreamed call, block until it has ended, and return its response.

        Raises `ProviderError` if the call fails. If the wait is interrupted (Ctrl-C), the call is cancelled.
        """
        self._thread.check_may_block()
        call = self.start_request(request)
        try:
            return call.wait().response_or_raise()
        finally:
            call.cancel()
            del call  # the traceback of an error refers to this frame, and the call to the error: no cycle

    def warm(self, request: Request) -> CacheUse:
        """Write the prompt of a request to the server's cache, without an answer, and block until that is done.

        Raises `InvalidRequestError` where the server has no such request, and `ProviderError` if the call fails.
        """
        from ...providers.model.cached_requests import warming

        self._thread.check_may_block()
        call = self.start_request(warming(request))
        try:
            completion = call.wait()
            usage = completion.response_or_raise().usage
            return completion.cache or CacheUse(usage.cached_tokens, usage.cache_write_tokens)
        finally:
            call.cancel()
            del call  # as in `request`

    def stream(self, request: Request | str, *, after: int | None = None) -> PortalStream:
        """Return a streamed call as an iterator with backpressure.

        Example: `with portal.stream(request) as events: for event in events: …`.

        request: a request; or the token of a durable call, whose answer is read again, as by `attach`.
        after: the number of events to leave out, for a token.
        """
        start = starter(self._calls, request, after)
        return PortalStream(
            self._thread,
            lambda on_event, on_completion: PortalCall(self._thread, lambda end: start(on_event, end), on_completion),
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
        """Make an unstreamed call for each request, and iterate over (request, completion) as the calls end.

        Example: `with portal.map(requests) as results: for request, completion in results: …`. The arguments and errors
        are those of `Engine.map`. The thread that iterates over the results also iterates over `requests`.
        """
        return PortalMap(self._thread, self._start, requests, concurrency, ordered=ordered)

    def _start(self, request: Request, on_completion: OnCompletion) -> Call:
        return self._calls.start(request, None, on_completion, stream=False)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> PortalCall:
        """Start an unstreamed call, and return when it is started.

        The engine calls `on_completion(completion)` exactly once, on the engine's thread. Raises `InvalidRequestError`
        and `EngineClosedError`.
        """
        return PortalCall(self._thread, lambda end: self._calls.start(request, None, end, stream=False), on_completion)

    def start_stream(
        self, request: Request, on_event: OnEvent | None = None, on_completion: OnCompletion | None = None
    ) -> PortalCall:
        """Start a streamed call, and return when it is started.

        The callbacks are those of `Engine.start_stream`. They run on the engine's thread and must not block it, because
        all other calls would wait.
        """
        return PortalCall(
            self._thread, lambda end: self._calls.start(request, on_event, end, stream=True), on_completion
        )

    def attach(
        self,
        token: str,
        on_event: OnEvent | None = None,
        on_completion: OnCompletion | None = None,
        after: int | None = None,
    ) -> PortalCall:
        """Read the answer of a durable call again, also in another process, and return when that has begun.

        As `Engine.attach`, with the callbacks of `start_stream`.
        """
        return PortalCall(self._thread, lambda end: self._calls.attach(token, on_event, end, after), on_completion)

    def drain(self, timeout: float) -> bool:
        """Refuse new calls from every thread, and block until the running and waiting calls have ended.

        Blocks at most `timeout` seconds. Returns True if all calls have ended. Calls that have not ended continue, as
        after `Engine.drain`.
        """
        return self._thread.run_async(lambda: self._calls.drain(timeout))

    def end_session(self, session: str) -> None:
        """Forget which target and which key the calls of a session go to. As `Engine.end_session`."""
        self._thread.run(lambda: self._calls.end_session(session))

    def pause(self, provider: str, mode: PauseMode = "abort") -> None:
        """Pause the server of a provider, for new weights. As `manystream.Engine.pause`."""
        self._thread.run_async(lambda: self._calls.control_server(provider, mode))

    def resume(self, provider: str) -> None:
        """Let a paused server go on. As `manystream.Engine.resume`."""
        self._thread.run_async(lambda: self._calls.control_server(provider, None))

    def statistics(self) -> Statistics:
        """Return the engine's current statistics."""
        return self._thread.run(self._calls.statistics)

    def record(self, path: str | os.PathLike[str], *, replace: bool = False, content: bool = True) -> PortalRecording:
        """Record the bytes sent and received until the block is left: `with portal.record(path):`.

        The arguments and errors are those of `Engine.record`.
        """
        recording = self._thread.run(lambda: self._calls.record(path, replace=replace, content=content))
        return PortalRecording(self._thread, recording)
