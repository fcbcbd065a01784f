"""The engine as a program sees it: what it opens, starts calls on, and leaves.

Knows the doors of one engine and how it is opened. Must not know what happens inside a call (call.py), nor how calls
are kept (calls.py).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, Unpack, overload

import trio

from ..providers.errors import InvalidRequestError
from ..providers.options import Retry
from ..providers.provider import Provider
from ..providers.request import Request
from ..providers.response import Response
from ..transport.errors import URLError
from ..transport.loop import make_loop
from ..transport.proxy import ProxyConfig, parse_proxy_url
from ..transport.tls import TLSConfig
from .calls import Calls
from .delivery import OnEvent
from .ending import OnCompletion
from .engine_thread import EngineThread
from .handle import Call
from .limits import Limits
from .mapped import CONCURRENCY, CallMap, KeyedRequests, Requests
from .option_rules import check_options
from .options import EngineOptions
from .portal import Portal
from .record import Recording
from .services import Services
from .statistics import Statistics
from .stream import EventStream

Key = TypeVar("Key")


class Engine:
    """Many concurrent calls. Made by `open_engine`; all methods are for its own thread.

    from_thread: the engine for other threads. Its methods block the calling thread until the answer is there.
    """

    __slots__ = ("_calls", "from_thread")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self.from_thread: Portal = Portal(calls, EngineThread())

    def __repr__(self) -> str:
        return f"<Engine {self._calls!r}>"

    def start_stream(
        self,
        request: Request,
        on_event: OnEvent | None = None,
        on_completion: OnCompletion | None = None,
    ) -> Call:
        """Start a streamed call; returns at once.

        `on_event(event)` is called for each event in wire order, then `on_completion(completion)` exactly once;
        both are plain functions, called on this thread. An exception from `on_event` ends this call alone
        (category CALLBACK), and `on_event` is not called again.
        Raises `InvalidRequestError` for a request that cannot be sent at all, before anything is sent, and
        `EngineClosedError` or `TooManyCallsError`; whatever the network does arrives in the completion.
        """
        return self._calls.start(request, on_event, on_completion, stream=True)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> Call:
        """Start an unstreamed call; returns at once. Callbacks and errors are as in `start_stream`, without events."""
        return self._calls.start(request, None, on_completion, stream=False)

    async def request(self, request: Request) -> Response:
        """Make an unstreamed call and wait for its answer. Raises `ProviderError` if it fails; cancelling this
        cancels the call."""
        call = self.start_request(request)
        try:
            completion = await call.wait()
        finally:
            call.cancel()
        return completion.response_or_raise()

    def stream(self, request: Request) -> EventStream:
        """A streamed call as an async iterator with backpressure: `async with engine.stream(request) as events`.
        Raises `ProviderError` from the iteration if the stream fails; leaving the block cancels the call."""
        return EventStream(lambda on_event, on_completion: self.start_stream(request, on_event, on_completion))

    @overload
    def map(self, requests: Requests, *, concurrency: int = CONCURRENCY, ordered: bool = False) -> CallMap[Request]: ...

    @overload
    def map(
        self, requests: KeyedRequests[Key], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> CallMap[Key]: ...

    def map(
        self, requests: Requests | KeyedRequests[Key], *, concurrency: int = CONCURRENCY, ordered: bool = False
    ) -> CallMap[Request] | CallMap[Key]:
        """Make an unstreamed call for each request, and iterate over (request, completion) as the calls end:
        `async with engine.map(requests) as results: async for request, completion in results: …`.

        requests: any iterable or async iterable. It is read only as far as there is room. Its items may be pairs of a
            key and a request: the iteration gives (key, completion) then. An async generator is closed with the block.
        concurrency: the most calls that have started and not ended, those that wait for a connection included.
        ordered: completions come in the order of the requests. A slow first call holds back the others then.

        A request that cannot be sent comes back with a completion whose error is INVALID_ARG and names the field. An
        exception from `requests` is raised after the completions of what was started. At most twice `concurrency`
        requests are held. Leaving the block cancels what runs. Raises `InvalidRequestError` for the arguments.
        """
        return CallMap(self.start_request, requests, concurrency, ordered=ordered)

    def statistics(self) -> Statistics:
        """The engine in figures, as of now."""
        return self._calls.statistics()

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> Recording:
        """Write down what goes over the wire, with its timing, until the block is left: `with engine.record(path):`.

        Headers that carry keys are never written; prompts and answers are. Calls that begin an attempt inside the
        block are recorded. `manystream simulate --replay PATH` plays it.

        The file is new and its owner's alone to read. Raises `FileExistsError` where there is a file already; with
        `replace` the new one takes its name. Raises `OSError` where the file cannot be written, `RuntimeError` where a
        recording is running already, and `EngineClosedError`.
        """
        return self._calls.record(path, replace=replace)

    def drain(self, timeout: float) -> Coroutine[object, object, bool]:
        """Finish, then close: `await engine.drain(30)`. Start no call from now on, and wait until those that run or
        wait have ended, at most `timeout` seconds (`math.inf`: as long as it takes). Gives whether all have.

        From the moment this is called, before it is awaited, `start_*` raises `EngineClosedError`. Calls that still run
        afterwards go on until the `open_engine` block is left, which cancels them. Raises `ValueError` for a negative
        timeout.
        """
        return self._calls.drain(timeout)

    def close(self) -> None:
        """Cancel what still runs, complete it, close every socket. Leaving the block does this."""
        self._calls.close()


def _start_monitor(nursery: trio.Nursery, calls: Calls, place: str | os.PathLike[str] | bool) -> None:
    if place is False:
        return
    from .monitor import Monitor  # here, since who is not watched need not load it

    nursery.start_soon(Monitor(calls, None if place is True else place).run)


@asynccontextmanager
async def open_engine(
    providers: Sequence[Provider],
    **options: Unpack[EngineOptions],
) -> AsyncGenerator[Engine, None]:
    """Open an engine: `async with ms.open_engine([provider]) as engine`. The options are those of `EngineOptions`.

    Leaving the block cancels what still runs and leaves no socket and no task behind.
    Raises `InvalidRequestError` for an option that cannot work, `MonitorError`, and `RuntimeError` outside trio.
    """
    check_options(providers, options)
    variables, proxy = _choose_environment(options.get("environment"), options.get("proxy"))
    calls: Calls | None = None
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        services = Services()
        await nursery.start(services.run)
        loop = make_loop(services.nursery)
        try:
            calls = Calls(
                services,
                nursery.cancel_scope,
                loop,
                providers,
                timeouts=options.get("timeouts"),
                retry=options.get("retry") or Retry(),
                limits=options.get("limits") or Limits(),
                tls=options.get("tls") or TLSConfig(),
                proxy=proxy,
                connect=options.get("dial"),
                environment=variables,
                observer=options.get("observer"),
                traffic=options.get("traffic"),
            )
            _start_monitor(services.nursery, calls, options.get("monitor", False))
        except BaseException as error:
            failure = error
        else:
            try:
                yield Engine(calls)
            except BaseException as error:
                # Raised again outside the nursery, so that the caller's own exception is not wrapped in a group.
                failure = error
            finally:
                calls.close()
        nursery.cancel_scope.cancel()
    loop.close()  # only now: its task was waiting on the descriptor
    failure = (calls.failure if calls is not None else None) or failure  # the body is cancelled for the engine's own
    if failure is not None:
        raise failure


def _choose_environment(
    environment: Mapping[str, str] | None, proxy: str | None
) -> tuple[Mapping[str, str], ProxyConfig | None]:
    """Where keys and proxies are looked up, and the proxy that was given. Raises `InvalidRequestError`."""
    variables: Mapping[str, str] = os.environ if environment is None else environment
    if proxy == "":
        variables = {name: value for name, value in variables.items() if not name.lower().endswith("_proxy")}
    try:
        return variables, parse_proxy_url(proxy) if proxy else None
    except URLError as error:
        raise InvalidRequestError("proxy", str(error)) from None
