"""The public engine: `open_engine`, and the `Engine` on which programs start calls."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar, Unpack, overload

from ...providers.catalog.provider import Provider
from ...providers.model.options import PauseMode
from ...providers.model.request import Request
from ...providers.model.response import Response
from ..call.callbacks import OnCompletion, OnEvent
from ..call.completion import CacheUse
from ..call.handle import Call
from ..gate import CONCURRENCY, Calls
from .opening import EngineBlock, open_calls

if TYPE_CHECKING:
    from ..observe.recording import Recording
    from ..observe.statistics import Statistics
    from ..options import EngineOptions
    from .map import CallMap, KeyedRequests, Requests
    from .portal import Portal
    from .stream import EventStream

Key = TypeVar("Key")


class EngineMethods:
    """What a program does with an engine: `Engine` and `LazyEngine` have these methods."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def _calls(self) -> Calls:
            """The calls of the engine."""
            ...

    @property
    def from_thread(self) -> Portal:
        """The engine's interface for other threads. Its methods block the calling thread until there is a result."""
        from .engine_thread import EngineThread
        from .portal import Portal

        calls = self._calls
        return Portal(calls, EngineThread(calls.home))

    def start_stream(
        self,
        request: Request,
        on_event: OnEvent | None = None,
        on_completion: OnCompletion | None = None,
    ) -> Call:
        """Start a streamed call and return at once.

        The engine calls `on_event(event)` for each event in wire order, then `on_completion(completion)` exactly once.
        Both are plain functions that run on this thread. An exception from `on_event` ends this call alone (category
        CALLBACK), and `on_event` is not called again.

        Raises `InvalidRequestError` before anything is sent if the request cannot be sent. Raises `EngineClosedError`
        and `TooManyCallsError`. Errors of the network and the server are reported in the completion.

        Raises `OSError` if this is the process's first call, its engine has not waited since it was opened, and no file
        descriptor is left for importing what calls need.
        """
        return self._calls.start(request, on_event, on_completion, stream=True)

    def attach(
        self,
        token: str,
        on_event: OnEvent | None = None,
        on_completion: OnCompletion | None = None,
        after: int | None = None,
    ) -> Call:
        """Read the answer of a durable call again, also in another process than the one that started it.

        The events come from the answer's beginning, as from `start_stream`; an unstreamed answer has its events once it
        is complete. Nothing is created: the server is only asked for the answer. Cancelling this call cancels the
        answer.

        token: `Call.resume_token` of the call that created the answer. The engine needs a provider of the same name,
            with the same key.
        after: the number of the answer's events that the program has: they are left out. `Start` is the first.

        Raises `InvalidRequestError` for a token that does not fit, and as `start_stream` does. An answer that the
        server has forgotten, or that another key made, is an error in the completion.
        """
        return self._calls.attach(token, on_event, on_completion, after)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> Call:
        """Start an unstreamed call and return at once.

        The engine calls `on_completion(completion)` exactly once, on this thread. Raises `InvalidRequestError`,
        `EngineClosedError` and `TooManyCallsError`, and `OSError` as `start_stream` does. Errors of the network and the
        server are reported in the completion.
        """
        return self._calls.start(request, None, on_completion, stream=False)

    async def request(self, request: Request) -> Response:
        """Make an unstreamed call and wait for its response.

        Raises `ProviderError` if the call fails. Cancelling this coroutine cancels the call.
        """
        call = self.start_request(request)
        try:
            return (await call.wait()).response_or_raise()
        finally:
            call.cancel()
            del call  # the traceback of an error refers to this frame, and the call to the error: no cycle

    async def warm(self, request: Request) -> CacheUse:
        """Write the prompt of a request to the server's cache, without an answer, so that later calls read it.

        Raises `InvalidRequestError` where the server has no such request, and `ProviderError` if the call fails.
        """
        from ...providers.model.cached_requests import warming

        call = self.start_request(warming(request))
        try:
            completion = await call.wait()
            usage = completion.response_or_raise().usage
            return completion.cache or CacheUse(usage.cached_tokens, usage.cache_write_tokens)
        finally:
            call.cancel()
            del call  # as in `request`

    def stream(self, request: Request | str, *, after: int | None = None) -> EventStream:
        """Return a streamed call as an async iterator with backpressure: `async with engine.stream(request) as events`.

        The iteration raises `ProviderError` if the stream fails. Leaving the block cancels the call.

        request: a request; or the token of a durable call, whose answer is read again, as by `attach`.
        after: the number of events to leave out, for a token.
        """
        from .stream import EventStream, starter

        calls = self._calls
        return EventStream(calls.home, calls.backend, starter(calls, request, after))

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

        Example: `async with engine.map(requests) as results: async for request, completion in results: …`.

        requests: an iterable or async iterable of requests, read only as calls can start. If its items are pairs of a
            key and a request, the iteration yields (key, completion). Leaving the block closes an async generator.
        concurrency: the largest number of calls started and not ended. Calls that wait for a connection count.
        ordered: yield the completions in the order of the requests. A slow call then delays all later completions.

        If a request cannot be sent, its completion has an error of category INVALID_ARG that names the field. An
        exception from `requests` is raised after the completions of the started calls. At most twice `concurrency`
        requests are held. Leaving the block cancels the running calls. Raises `InvalidRequestError` for the arguments.
        """
        from .map import CallMap

        calls = self._calls
        return CallMap(calls.home, calls.backend, self.start_request, requests, concurrency, ordered=ordered)

    def end_session(self, session: str) -> None:
        """Forget which target and which key the calls of a session go to. Without this, they are forgotten an hour
        after the session's last call. Calls under way go on."""
        self._calls.end_session(session)

    async def pause(self, provider: str, mode: PauseMode = "abort") -> None:
        """Pause the server of a provider, for new weights: an `ms.VLLMGenerate` or `ms.SGLangGenerate`.

        mode: what becomes of its answers: `abort` ends them with what has come (`continue_aborted` goes on with them),
            `wait` lets the server end them first, `keep` lets them go on after `resume`.

        Until `resume`, the idle and first-byte timeouts of all calls to this address stand still. Raises
        `InvalidRequestError` for another kind of provider, and `ProviderError` if the server refuses.
        """
        await self._calls.control_server(provider, mode)

    async def resume(self, provider: str) -> None:
        """Let a paused server go on. Raises as `pause` does."""
        await self._calls.control_server(provider, None)

    def statistics(self) -> Statistics:
        """Return the engine's current statistics."""
        return self._calls.statistics()

    def record(self, path: str | os.PathLike[str], *, replace: bool = False, content: bool = True) -> Recording:
        """Record the bytes sent and received, with their times, until the block is left: `with engine.record(path):`.

        The recording holds each attempt that begins inside the block. It holds prompts and answers, but no header
        that carries a key. `manystream simulate --replay PATH` replays it. With `content=False` it holds sizes, times,
        and the names of models and tenants: no prompt, no answer, no tag.

        The file is a new one that only its owner can read. Raises `FileExistsError` if `path` exists, unless `replace`
        is true: then the new file replaces it. Raises `OSError` if the file cannot be written, `RuntimeError` if
        another recording is running, `InvalidRequestError` for the arguments, and `EngineClosedError`.
        """
        return self._calls.record(path, replace=replace, content=content)

    def drain(self, timeout: float) -> Coroutine[object, object, bool]:
        """Refuse new calls, and wait until the running and waiting calls have ended: `await engine.drain(30)`.

        `start_*` raises `EngineClosedError` as soon as this is called, before it is awaited. The coroutine returns True
        if all calls have ended. Calls that have not ended continue; leaving the `open_engine` block cancels them.
        Raises `ValueError` for a negative timeout.

        timeout: the longest wait in seconds; `math.inf`: no limit.
        """
        return self._calls.drain(timeout)


class Engine(EngineMethods):
    """An engine that runs many concurrent calls. `open_engine` makes it. All methods are for the engine's own thread,
    except those of `from_thread`."""

    __slots__ = ("_calls",)

    def __init__(self, calls: Calls) -> None:
        self._calls: Calls = calls  # pyright: ignore[reportIncompatibleMethodOverride] - a slot is cheaper to read

    def __repr__(self) -> str:
        return f"<Engine {self._calls!r}>"

    @property
    def closed(self) -> bool:
        """Whether the engine is closed, so that it starts no call."""
        return bool(self._calls.closed)

    def close(self) -> None:
        """Cancel and complete the running calls, and close every socket. Leaving the `open_engine` block does this.

        Does nothing in a forked process. Raises `EngineClosedError` on another event loop and on another thread.
        """
        self._calls.close("engine.close() was called. Open another engine")


def open_engine(providers: Sequence[Provider], **options: Unpack[EngineOptions]) -> AbstractAsyncContextManager[Engine]:
    """Open an engine on the calling task's event loop, of trio or asyncio: `async with ms.open_engine([provider])`.

    Leaving the block cancels the running calls, closes every socket and ends every task of the engine. Where the task
    is cancelled, this is raised afterwards. Raises `InvalidRequestError` for an option that cannot work,
    `MonitorError`, and `EventLoopError` outside a task and on a loop that cannot wait for file descriptors. Raises
    `EngineClosedError` if the block is left on another event loop than the one on which it was entered.

    providers: the providers that requests can name.
    options: the fields of `EngineOptions`.
    """
    return EngineBlock(open_calls(providers, options), Engine)
