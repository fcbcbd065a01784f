"""The engine: what a program opens, starts calls on, and leaves.

Knows how the parts fit together. Must not know what happens inside a call (call.py, attempt.py), nor any dialect.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import trio

from ..providers.errors import InvalidRequestError, ProviderError
from ..providers.options import Retry, Timeouts
from ..providers.provider import Provider
from ..providers.request import Request
from ..providers.response import Response
from ..providers.structured import add_parsed, schema_of
from ..transport.dial import dial
from ..transport.errors import Phase, TransportError, URLError
from ..transport.loop import Loop, make_loop
from ..transport.pool import Pool
from ..transport.proxy import ProxyConfig, choose_proxy, parse_proxy_url
from ..transport.resolve import Resolver, reason
from ..transport.timers import Timers
from ..transport.tls import TLSConfig, TLSConfigError, make_context
from ..transport.tls_socket import TLSSocket
from ..transport.url import Origin
from .call import Call
from .callbacks import check_callback
from .clocks import CallState, effective
from .completion import Completion
from .delivery import OnEvent, Tally
from .ending import OnCompletion
from .errors import cancelled, ends_engine
from .limits import Limits
from .listener import Recorder
from .observe import CallStart, Observer, Watch
from .option_rules import check_options
from .prepare import Preparer
from .prepared import Prepared
from .record import Recording
from .retry import RetryBudget
from .services import Services
from .statistics import OriginStatistics, ProviderStatistics, Statistics
from .stream import EventStream
from .threads import FromThread


def make_id() -> str:
    """22 characters of `A-Z a-z 0-9 - _`, from a cryptographic source."""
    return secrets.token_urlsafe(16)


def check_drain_timeout(timeout: float) -> None:
    """Raises `ValueError` for what is no number of seconds."""
    if not isinstance(timeout, (int, float)) or not timeout >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"drain: timeout must be seconds, 0 or more (math.inf: no limit), not {timeout!r}")


class EngineClosedError(RuntimeError):
    """The engine is used after its block was left, in another process, or on another thread."""


class TooManyCallsError(RuntimeError):
    """As many calls as `Limits.max_calls` allows are running: start this one when one of them has ended."""


class Engine:
    """Many concurrent calls. Made by `open_engine`; all methods are for its own thread (see `from_thread`)."""

    def __init__(
        self,
        services: Services,
        scope: trio.CancelScope,
        loop: Loop,
        providers: Sequence[Provider],
        *,
        timeouts: Timeouts | None,
        retry: Retry,
        limits: Limits,
        tls: TLSConfig,
        proxy: ProxyConfig | None,
        environment: Mapping[str, str],
        observer: Observer | None,
    ) -> None:
        self.loop = loop
        self._scope = scope
        self.timers: Timers = Timers()
        self.budget: RetryBudget = RetryBudget()
        self.watch: Watch | None = Watch(observer, self.callback_raised) if observer is not None else None
        self._recording: Recording | None = None
        self.random: Callable[[], float] = random.Random().random
        self.pool: Pool = Pool(services.nursery, loop, self.timers, self._dial, limits.pool, self.watch)
        self.from_thread: FromThread = FromThread(self, trio.lowlevel.current_trio_token())
        self._preparer = Preparer(providers, environment, limits, make_id, time.time, proxy)
        self._timeouts = timeouts
        self._clocks = {stream: effective(None, timeouts, stream=stream) for stream in (False, True)}
        self._retry = retry
        self._limits = limits
        self._tls = tls
        self._proxy = proxy
        self._environment = environment
        self._resolver = Resolver()
        self._token = trio.lowlevel.current_trio_token()
        self._process = os.getpid()
        self._calls: dict[Call, None] = {}
        self._tallies = {provider.name: Tally() for provider in providers}
        self._soon: list[Call] = []
        self._closed = self._draining = False
        self._started = self._retried = self._resent = 0
        self.failure: BaseException | None = None
        services.on_failure = self.fail
        services.nursery.start_soon(loop.run)
        services.nursery.start_soon(self.timers.run)

    def __repr__(self) -> str:
        return f"<Engine {len(self._calls)} calls, {self.pool!r}{', closed' if self._closed else ''}>"

    # --- calls ---

    def start_stream(
        self,
        request: Request,
        on_event: OnEvent | None = None,
        on_completion: OnCompletion | None = None,
    ) -> Call:
        """Start a streamed call; returns at once.

        `on_event(event)` is called for each event in wire order, then `on_completion(completion)` exactly once;
        both are plain functions, called on this thread. An exception from `on_event` ends this call alone
        (category CALLBACK) and is the last it is told.
        Raises `InvalidRequestError` for a request that cannot be sent at all, before anything is sent, and
        `EngineClosedError` or `TooManyCallsError`; whatever the network does arrives in the completion.
        """
        return self._start(request, on_event, on_completion, stream=True)

    def start_request(self, request: Request, on_completion: OnCompletion | None = None) -> Call:
        """Start an unstreamed call; returns at once. As `start_stream`, without events."""
        return self._start(request, None, on_completion, stream=False)

    async def request(self, request: Request) -> Response:
        """Make an unstreamed call and wait for its answer. Raises `ProviderError` if it fails; cancelling this
        cancels the call."""
        call = self.start_request(request)
        try:
            completion = await call.wait()
        finally:
            call.cancel()
        if completion.error is not None:
            raise completion.error
        assert completion.response is not None
        return completion.response

    def stream(self, request: Request) -> EventStream:
        """A streamed call as an async iterator with backpressure: `async with engine.stream(request) as events`.
        Raises `ProviderError` from the iteration if the stream fails; leaving the block cancels the call."""
        return EventStream(lambda on_event, on_completion: self.start_stream(request, on_event, on_completion))

    def _start(
        self, request: Request, on_event: OnEvent | None, on_completion: OnCompletion | None, *, stream: bool
    ) -> Call:
        self._check_usable()
        if on_event is not None:
            check_callback("on_event", on_event)
        if on_completion is not None:
            check_callback("on_completion", on_completion)
        prepared, wire = self._preparer.prepare(request, stream=stream)
        self.budget.call_started()
        tally = self._tallies[prepared.provider.name]
        call = Call(
            self,
            prepared,
            tally,
            number=self._started + 1,
            clocks=(
                self._clocks[stream]
                if request.timeouts is None
                else effective(request.timeouts, self._timeouts, stream=stream)
            ),
            retry=request.retry or self._retry,
            on_event=on_event,
            on_completion=on_completion,
            finish_response=_response_finisher(wire.warnings, request),
        )
        told = None if self.watch is None else _call_start(request, prepared)
        call.start(told)
        return call

    def _check_usable(self) -> None:
        self._check_here()
        if len(self._calls) >= self._limits.max_calls:
            raise TooManyCallsError(f"{self._limits.max_calls} calls are running already (limits.max_calls)")

    def _check_here(self) -> None:
        self.check_open()
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            token = None
        if token is not self._token:
            raise EngineClosedError("this engine belongs to another trio.run or thread: use engine.from_thread there")

    def check_process(self) -> None:
        """Raises `EngineClosedError` in a process that was forked: there is no loop there that would ever answer."""
        if os.getpid() != self._process:
            raise EngineClosedError("this engine was opened in another process: open one after the fork")

    def check_open(self) -> None:
        """Raises `EngineClosedError` there, once the block was left, and from `drain` on."""
        self.check_process()
        if self._draining and not self._closed:
            raise EngineClosedError("this engine takes no more calls: engine.drain() was called")
        if self._closed:
            raise EngineClosedError("this engine is closed: its open_engine block was left")

    # --- what calls need ---

    def soon(self, call: Call) -> None:
        """Conclude this call at the loop's next iteration, outside whatever is running now."""
        if not self._soon:
            self._token.run_sync_soon(self._run_soon)
        self._soon.append(call)

    def _run_soon(self) -> None:
        calls, self._soon = self._soon, []
        for call in calls:
            try:
                call.conclude()
            except Exception as error:
                call.on_defect(error)

    def count_retry(self) -> None:
        self._retried += 1

    def count_resent(self) -> None:
        self._resent += 1

    def callback_raised(self, error: BaseException) -> None:
        """A callback raised: end the engine where that was meant for the whole program."""
        if ends_engine(error):
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """End the engine now: every call completes, every socket closes, and the `open_engine` block raises `error`."""
        if self.failure is None:
            self.failure = error
        self.close(forced=True)
        self._scope.cancel()

    def call_started(self, call: Call) -> None:
        call.tally.started += 1
        self._started += 1
        self._calls[call] = None

    def call_ended(self, call: Call, completion: Completion) -> None:
        if call not in self._calls:
            return
        del self._calls[call]
        call.tally.completed += 1
        if completion.error_category is not None:
            call.tally.failures[completion.error_category.value] += 1
        if self.watch is not None:
            self.watch.call_ended(call, completion)

    async def _dial(self, origin: Origin, on_phase: Callable[[Phase], None]) -> socket.socket | TLSSocket:
        try:
            context = make_context(self._tls) if origin.scheme == "https" else None
            proxy = self._proxy or choose_proxy(origin, self._environment)
        except (URLError, TLSConfigError) as error:
            raise TransportError(str(error), phase=Phase.CONNECT, origin=str(origin), permanent=True) from None
        except OSError as error:
            text = f"cannot set up TLS for {origin}: {reason(error)}"
            raise TransportError(text, phase=Phase.TLS, origin=str(origin)) from error
        return await dial(origin, tls_context=context, proxy=proxy, resolver=self._resolver, on_phase=on_phase)

    # --- the whole ---

    def statistics(self) -> Statistics:
        """The engine in figures, as of now."""
        states = Counter(call.state for call in self._calls)
        return self.totals({state.value: count for state, count in states.items() if state is not CallState.ENDED})

    def totals(self, calls: Mapping[str, int]) -> Statistics:
        """The same at no cost per call: who asks has counted the running ones by state."""
        tallies = self._tallies.values()
        return Statistics(
            calls=calls,
            started=self._started,
            completed=sum(tally.completed for tally in tallies),
            failed=sum(tally.failures.total() for tally in tallies),
            cancelled=sum(tally.failures["cancelled"] for tally in tallies),
            retried=self._retried,
            resent=self._resent,
            providers={
                name: ProviderStatistics(
                    tally.started - tally.completed, tally.completed, tally.events, dict(tally.failures)
                )
                for name, tally in self._tallies.items()
            },
            connections={origin: OriginStatistics(*counts) for origin, counts in self.pool.counts().items()},
            opened=self.pool.opened,
            reused=self.pool.reused,
            discarded=self.pool.discarded,
            events=sum(tally.events for tally in tallies),
            bytes_received=self.loop.bytes_received,
            bytes_sent=self.loop.bytes_sent,
            loop_lag=self.loop.lag,
            loop_culprit=self.loop.culprit,
            loop_turns=self.loop.turns,
        )

    def running(self) -> list[Call]:
        """The running calls, oldest first."""
        return list(self._calls)

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> Recording:
        """Write down what goes over the wire, with its timing, until the block is left: `with engine.record(path):`.

        Headers that carry keys are never written; prompts and answers are. Calls that begin an attempt inside the
        block are recorded. `manystream simulate --replay PATH` plays it.

        The file is new and its owner's alone to read. Raises `FileExistsError` where there is a file already; with
        `replace` the new one takes its name. Raises `OSError` where the file cannot be written, `RuntimeError` where a
        recording is running already, and `EngineClosedError`.
        """
        self._check_here()
        if self.recorder is not None:
            raise RuntimeError(f"{self._recording!r} is running: leave its block first")
        self._recording = Recording(path, replace=replace)
        return self._recording

    @property
    def recorder(self) -> Recorder | None:
        """The recording that is running."""
        if self._recording is not None and self._recording.closed:
            self._recording = None
        return self._recording

    async def drain(self, timeout: float) -> bool:
        """Finish, then close: start no call from now on, and wait until those that run or wait have ended, at most
        `timeout` seconds (`math.inf`: as long as it takes). Returns whether all have.

        From the moment this is called `start_*` raises `EngineClosedError`. Calls that still run afterwards go on until
        the `open_engine` block is left, which cancels them. Raises `ValueError` for a negative timeout.
        """
        check_drain_timeout(timeout)
        self.stop_starting()
        with trio.move_on_after(timeout):
            while self._calls:
                await next(iter(self._calls)).wait()
        return not self._calls

    def stop_starting(self) -> None:
        """From now on `start_*` raises `EngineClosedError`."""
        self.check_process()
        self._draining = True

    def close(self, *, forced: bool = False) -> None:
        """Cancel what still runs, complete it, close every socket. Leaving the block does this.

        forced: also complete calls whose last callbacks were interrupted.
        """
        if os.getpid() != self._process:
            return  # the epoll set is shared after a fork: closing it here would break the parent
        if self._closed and not forced:
            return
        self._closed = True
        error: ProviderError = cancelled("the engine was closed")
        for call in list(self._calls):
            call.end_now(error, forced=forced)
        self._soon.clear()
        if self._recording is not None:
            self._recording.close()
        self.pool.close()


def _call_start(request: Request, prepared: Prepared) -> CallStart:
    provider, origin = prepared.provider, prepared.origin
    return CallStart(request, provider, prepared.model, origin.host, origin.port, prepared.stream)


def _response_finisher(warnings: Sequence[str], request: Request) -> Callable[[Response], None]:
    """What is done to an answer before it is told: the request's warnings are put on it, and where it was to fit a
    schema, what it holds. That raises `ProviderError` where it does not fit."""
    if not warnings and request.response_schema is None:
        return _leave_as_it_is
    schema = None if request.response_schema is None else schema_of(request.response_schema)

    def finish(response: Response) -> None:
        response.warnings.extend(warnings)
        if schema is not None:
            add_parsed(response, schema)

    return finish


def _leave_as_it_is(response: Response) -> None:
    pass


def _start_monitor(nursery: trio.Nursery, engine: Engine, place: str | os.PathLike[str] | bool) -> None:
    if place is False:
        return
    from .monitor import Monitor  # here, since who is not watched need not load it

    nursery.start_soon(Monitor(engine, None if place is True else place).run)


@asynccontextmanager
async def open_engine(
    providers: Sequence[Provider],
    *,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    limits: Limits | None = None,
    tls: TLSConfig | None = None,
    proxy: str | None = None,
    environment: Mapping[str, str] | None = None,
    observer: Observer | None = None,
    monitor: str | os.PathLike[str] | bool = False,
) -> AsyncGenerator[Engine, None]:
    """Open an engine: `async with ms.open_engine(providers=[…]) as engine`.

    timeouts, retry, limits: defaults for every call. tls: a custom CA or a client certificate. proxy: the URL of an
    HTTP CONNECT proxy (default: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY from the environment; an empty
    string: none). environment: where keys and proxies are looked up (default: the process's). observer: told how calls
    and connections go. monitor: a Unix socket at which `manystream top` sees figures, never what is said; True: where
    `top` looks by itself.
    Leaving the block cancels what still runs and leaves no socket and no task behind.
    Raises `InvalidRequestError` for an option that cannot work, `MonitorError`, and `RuntimeError` outside trio.
    """
    check_options(providers, timeouts, retry, limits, tls, proxy, environment, observer, monitor)
    variables, proxy_config = _choose_environment(environment, proxy)
    engine: Engine | None = None
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:
        services = Services()
        await nursery.start(services.run)
        loop = make_loop(services.nursery)
        try:
            engine = Engine(
                services,
                nursery.cancel_scope,
                loop,
                providers,
                timeouts=timeouts,
                retry=retry or Retry(),
                limits=limits or Limits(),
                tls=tls or TLSConfig(),
                proxy=proxy_config,
                environment=variables,
                observer=observer,
            )
            _start_monitor(services.nursery, engine, monitor)
        except BaseException as error:
            failure = error
        else:
            try:
                yield engine
            except BaseException as error:
                # Raised again outside the nursery, so that the caller's own exception is not wrapped in a group.
                failure = error
            finally:
                engine.close()
        nursery.cancel_scope.cancel()
    loop.close()  # only now: its task was waiting on the descriptor
    failure = (engine.failure if engine is not None else None) or failure  # the body is cancelled for the engine's own
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
