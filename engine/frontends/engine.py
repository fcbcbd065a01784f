"""The public engine: `open_engine`, and the `Engine` on which programs start calls."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, Unpack, overload

import trio

from ...providers.catalog.provider import Provider
from ...providers.errors import InvalidRequestError
from ...providers.model.options import PauseMode
from ...providers.model.request import Request
from ...providers.model.response import Response
from ...transport.errors import URLError
from ...transport.timers import Timers
from ..call.callbacks import OnCompletion, OnEvent
from ..call.handle import Call
from ..call.home import EngineBlock
from ..gate import CONCURRENCY, Calls
from ..loading import load_for_calls
from ..option_rules import check_options
from ..request.addresses import addressed, check_single_keys
from ..services import EngineTasks, trio_tasks
from .engine_thread import EngineThread

if TYPE_CHECKING:
    from ...transport.proxy import ProxyConfig
    from ..calls import CallStarter
    from ..observe.recording import Recording
    from ..observe.statistics import Statistics
    from ..options import EngineOptions
    from ..sharing import Sharing
    from ..traffic.options import Traffic
    from .map import CallMap, KeyedRequests, Requests
    from .portal import Portal
    from .stream import EventStream

Key = TypeVar("Key")


class Engine:
    """An engine that runs many concurrent calls. `open_engine` makes it. All methods are for the engine's own thread,
    except those of `from_thread`."""

    __slots__ = ("_calls", "_portal", "_thread")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._thread = EngineThread()
        self._portal: Portal | None = None

    def __repr__(self) -> str:
        return f"<Engine {self._calls!r}>"

    @property
    def from_thread(self) -> Portal:
        """The engine's interface for other threads. Its methods block the calling thread until there is a result."""
        if self._portal is None:
            from .portal import Portal

            self._portal = Portal(self._calls, self._thread)
        return self._portal

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

    def stream(self, request: Request | str, *, after: int | None = None) -> EventStream:
        """Return a streamed call as an async iterator with backpressure: `async with engine.stream(request) as events`.

        The iteration raises `ProviderError` if the stream fails. Leaving the block cancels the call.

        request: a request; or the token of a durable call, whose answer is read again, as by `attach`.
        after: the number of events to leave out, for a token.
        """
        from .stream import EventStream, starter

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

        return CallMap(self._calls.home, self.start_request, requests, concurrency, ordered=ordered)

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

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> Recording:
        """Record the bytes sent and received, with their times, until the block is left: `with engine.record(path):`.

        The recording holds each attempt that begins inside the block. It holds prompts and answers, but no header
        that carries a key. `manystream simulate --replay PATH` replays it.

        The file is a new one that only its owner can read. Raises `FileExistsError` if `path` exists, unless `replace`
        is true: then the new file replaces it. Raises `OSError` if the file cannot be written, `RuntimeError` if
        another recording is running, `InvalidRequestError` for the arguments, and `EngineClosedError`.
        """
        return self._calls.record(path, replace=replace)

    def drain(self, timeout: float) -> Coroutine[object, object, bool]:
        """Refuse new calls, and wait until the running and waiting calls have ended: `await engine.drain(30)`.

        `start_*` raises `EngineClosedError` as soon as this is called, before it is awaited. The coroutine returns True
        if all calls have ended. Calls that have not ended continue; leaving the `open_engine` block cancels them.
        Raises `ValueError` for a negative timeout.

        timeout: the longest wait in seconds; `math.inf`: no limit.
        """
        return self._calls.drain(timeout)

    def close(self) -> None:
        """Cancel and complete the running calls, and close every socket. Leaving the `open_engine` block does this.

        Does nothing in a forked process. Raises `EngineClosedError` on another event loop and on another thread.
        """
        self._calls.close("engine.close() was called. Open another engine")


def _start_monitor(calls: Calls, path: str | os.PathLike[str] | bool) -> None:
    if path is False:
        return
    from ..monitor import Monitor

    calls.backend.start(Monitor(calls, None if path is True else path).run)


def _open_sharing(calls: Calls, traffic: Traffic | None) -> Sharing | None:
    if traffic is None or calls.starter.share is None:
        return None
    from ..sharing import Sharing

    return Sharing(calls.starter.share, traffic, calls.backend, calls.home)


def open_engine(providers: Sequence[Provider], **options: Unpack[EngineOptions]) -> AbstractAsyncContextManager[Engine]:
    """Open an engine: `async with ms.open_engine([provider]) as engine`.

    Leaving the block cancels the running calls, closes every socket and ends every task of the engine. Raises
    `InvalidRequestError` for an option that cannot work, `MonitorError`, and `RuntimeError` outside trio. Raises
    `EngineClosedError` if the block is left in another trio run than the one in which it was entered.

    providers: the providers that requests can name.
    options: the fields of `EngineOptions`.
    """
    return EngineBlock(open_calls(trio_tasks, providers, options), Engine, trio.lowlevel.current_trio_token)


@asynccontextmanager
async def open_calls(
    hold_tasks: Callable[[], AbstractAsyncContextManager[EngineTasks]],
    providers: Sequence[Provider],
    options: EngineOptions,
) -> AsyncGenerator[Calls, None]:
    """Open an engine in the block that `hold_tasks` returns, and yield its calls. As `open_engine`.

    asyncio closes an async generator that is suspended when its loop ends, and so an engine whose block was not left.
    This is the only one in the block: asyncio closes all at the same time, which fails for one inside another.
    """
    check_options(providers, options)
    variables, proxy = _choose_environment(options.get("environment"), options.get("proxy"))
    checked = addressed(providers, variables)
    if options.get("traffic") is None:
        check_single_keys(providers)
    calls: Calls | None = None
    sharing: Sharing | None = None
    failure: BaseException | None = None
    async with hold_tasks() as tasks:
        loop = tasks.make_loop()
        backend, timers = tasks.backend, Timers(loop.catch_up)
        try:

            def make_starter(on_callback_raised: Callable[[BaseException], None]) -> CallStarter:
                from ..calls import CallStarter

                home, failed = tasks.home, on_callback_raised
                return CallStarter(backend, loop, timers, checked, options, variables, proxy, home, failed)

            calls = Calls(make_starter, tasks)
            tasks.on_failure = calls.end_engine
            loop.start(backend)
            timers.start(backend)
            if options.get("traffic") is None and options.get("observer") is None:
                backend.start(load_for_calls, backend, providers)
            else:
                _ = calls.starter  # it checks the options of traffic control and the observer's methods
            _start_monitor(calls, options.get("monitor", False))
            sharing = _open_sharing(calls, options.get("traffic"))
            if sharing is not None:
                await sharing.join()
        except BaseException as error:
            failure = error
        else:
            try:
                yield calls
            except BaseException as error:
                # Raised again outside the block of the tasks, so that a nursery does not wrap it in a group.
                failure = error
            finally:
                await _close(calls, tasks, abandoned=isinstance(failure, GeneratorExit))
        if sharing is not None:
            await tasks.undisturbed(sharing.leave)
        timers.close()
    loop.close()  # after the tasks, because one may wait on the descriptor
    failure = tasks.outcome(calls.failure if calls is not None else None, failure)
    if failure is not None:
        raise failure


async def _close(calls: Calls, tasks: EngineTasks, *, abandoned: bool) -> None:
    """Close the calls. abandoned: the block was not left, so nothing can be awaited."""
    try:
        if calls.cancelling and not abandoned:
            await tasks.undisturbed(calls.servers_reached)  # for two seconds at most
    finally:
        calls.close()


def _choose_environment(
    environment: Mapping[str, str] | None, proxy: str | None
) -> tuple[Mapping[str, str], ProxyConfig | None]:
    """Return the variables in which keys and proxies are looked up, and the proxy that the program gave.

    Raises `InvalidRequestError` for a proxy URL that cannot be parsed.

    environment: the program's variables; None: `os.environ`.
    proxy: a URL; "": no proxy, whatever the variables say; None: look it up in the variables.
    """
    variables: Mapping[str, str] = os.environ if environment is None else environment
    if proxy == "":
        variables = {name: value for name, value in variables.items() if not name.lower().endswith("_proxy")}
    if not proxy:
        return variables, None
    from ...transport.proxy import parse_proxy_url

    try:
        return variables, parse_proxy_url(proxy)
    except URLError as error:
        raise InvalidRequestError("proxy", str(error)) from None
