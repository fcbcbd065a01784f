"""The calls of one engine: starts them, keeps and counts the running ones, and ends them.

Knows how the loop, the pool, traffic control and the observer are connected. Must not know what happens inside a call
(call.py, attempt.py), any dialect, nor the public interfaces that programs use (core.py, portal.py).
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio

from ..providers.errors import ErrorCategory, InvalidRequestError
from ..providers.options import Retry, Timeouts
from ..providers.provider import Provider, keys_of
from ..providers.request import Request
from ..providers.response import Response
from ..providers.structured import add_parsed, schema_of
from ..transport.backend import Backend
from ..transport.dial import Connect, dial, dial_options
from ..transport.errors import Phase
from ..transport.loop import Loop
from ..transport.pool import Pool
from ..transport.proxy import ProxyConfig
from ..transport.resolve import Resolver
from ..transport.timers import Timers
from ..transport.tls import TLSConfig
from ..transport.tls_socket import TLSSocket
from ..transport.url import Origin
from .call import CallHooks, RunningCall
from .callbacks import check_callback
from .clocks import CallState, Clocks, effective
from .completion import Completion
from .delivery import Counters, OnEvent
from .ending import OnCompletion
from .errors import EngineClosedError, TooManyCallsError, ends_engine
from .handle import Call
from .limits import Limits
from .prepare import Preparer
from .runtime import Runtime
from .services import Services

if TYPE_CHECKING:
    from .admission import Admission
    from .dispatcher import Dispatcher
    from .observe import GuardedObserver, Observer
    from .record import Recording
    from .statistics import Statistics
    from .stop import Stop
    from .traffic.options import Traffic

logger: logging.Logger = logging.getLogger("manystream.engine")


def make_id() -> str:
    """Return a random identifier: 22 characters of `A-Z a-z 0-9 - _`, from a cryptographic source."""
    return secrets.token_urlsafe(16)


class Calls:
    """The concurrent calls of one engine. All methods are for the engine's own thread.

    failure: the exception that ended the engine, such as `KeyboardInterrupt` from a callback; None while it runs.
    """

    def __init__(
        self,
        services: Services,
        backend: Backend,
        scope: trio.CancelScope,
        loop: Loop,
        providers: Sequence[Provider],
        *,
        timeouts: Timeouts | None,
        retry: Retry,
        limits: Limits,
        tls: TLSConfig,
        proxy: ProxyConfig | None,
        connect: Connect | None,
        environment: Mapping[str, str],
        observer: Observer | None,
        traffic: Traffic | None = None,
    ) -> None:
        timers = Timers()
        watch = None if observer is None else self._guard(observer)
        pool = Pool(backend, loop, timers, self._dial, limits.pool, watch)
        self._runtime = Runtime(loop, timers, pool, self._callback_raised)
        self._runtime.watch = watch
        self._watch = watch
        self._hooks = CallHooks(self._call_ended) if watch is None else watch.hooks(self._call_ended)
        self._scope = scope
        self._preparer = Preparer(providers, environment, limits, make_id, time.time, proxy)
        if traffic is None:
            _check_keys(providers)
        self._dispatcher = None if traffic is None else self._direct(traffic, providers)
        self._timeouts = timeouts
        self._clocks = {stream: effective(None, timeouts, stream=stream) for stream in (False, True)}
        self._make_stops = {stream: partial(self._make_stop, stream) for stream in (False, True)}
        self._retry = retry
        self._limits = limits
        self._tls = tls
        self._proxy = proxy
        self._connect = connect
        self._environment = environment
        self._resolver = Resolver()
        self._token = trio.lowlevel.current_trio_token()
        self._process = os.getpid()
        self._calls: dict[RunningCall, None] = {}
        self._counters = {provider.name: Counters() for provider in providers}
        self._closed = self._draining = False
        self._started = 0
        self.failure: BaseException | None = None
        services.on_failure = self._end_engine
        loop.start(backend)
        timers.start(backend)

    def __repr__(self) -> str:
        return f"{len(self._calls)} calls, {self._runtime.pool!r}{', closed' if self._closed else ''}"

    def _guard(self, observer: Observer) -> GuardedObserver:
        from .observe import GuardedObserver

        return GuardedObserver(observer, self._callback_raised)

    def _direct(self, traffic: Traffic, providers: Sequence[Provider]) -> Dispatcher:
        from .dispatcher import Dispatcher

        return Dispatcher(traffic, providers, self._runtime, time.time, self._preparer)

    def start(
        self, request: Request, on_event: OnEvent | None, on_completion: OnCompletion | None, *, stream: bool
    ) -> Call:
        """Start a call. Raises `InvalidRequestError`, `EngineClosedError` and `TooManyCallsError`."""
        self.check_here()
        if len(self._calls) >= self._limits.max_calls:
            raise TooManyCallsError(
                f"{self._limits.max_calls} calls are running already (limits.max_calls): start this one when another"
                " has ended, or open the engine with a higher limit"
            )
        if on_event is not None:
            check_callback("on_event", on_event)
        if on_completion is not None:
            check_callback("on_completion", on_completion)
        dispatcher = self._dispatcher
        admission: Admission | None = None
        stop: Stop | None = None
        if dispatcher is not None and dispatcher.has_routes:
            journey = dispatcher.journey(request, self._make_stops[stream])
            if journey is not None:
                admission, stop = journey, journey.stop
        if stop is not None:
            prepared, counters, finish_response = stop.prepared, stop.counters, stop.finish_response
        else:
            prepared, wire = self._preparer.prepare(request, stream=stream)
            counters = self._counters[prepared.provider.name]
            finish_response = _response_finisher(wire.warnings, request)
            if dispatcher is not None:
                admission = dispatcher.admission(request, prepared, wire)
        self._runtime.budget.call_started()
        running = RunningCall(
            self._runtime,
            self._hooks,
            prepared,
            counters,
            number=self._started + 1,
            clocks=self._clocks_of(request, stream=stream),
            retry=request.retry or self._retry,
            on_event=on_event,
            on_completion=on_completion,
            finish_response=finish_response,
            admission=admission,
        )
        call = Call(running)
        watch = self._watch
        if watch is None:
            running.start(self._call_started)
        else:
            start = watch.start_of(request, prepared)

            def announce(running: RunningCall) -> None:
                self._call_started(running)
                watch.call_started(running, call, start)

            running.start(announce)
        return call

    def _make_stop(self, stream: bool, request: Request, preparer: Preparer) -> Stop:
        """Prepare a request for a target of a route. Raises `InvalidRequestError`."""
        assert self._dispatcher is not None, "an engine with routes has a dispatcher"
        prepared, wire = preparer.prepare(request, stream=stream)
        return self._dispatcher.stop(
            request,
            wire,
            prepared,
            self._counters[prepared.provider.name],
            self._clocks_of(request, stream=stream),
            _response_finisher(wire.warnings, request),
        )

    def _clocks_of(self, request: Request, *, stream: bool) -> Clocks:
        """Return the timeouts of a call. Calls without timeouts of their own share one object."""
        if request.timeouts is None:
            return self._clocks[stream]
        return effective(request.timeouts, self._timeouts, stream=stream)

    def end_session(self, session: str) -> None:
        """Forget which target and key a session has."""
        if self._dispatcher is not None:
            self._dispatcher.end_session(session)

    def check_here(self) -> None:
        """Check that a call can be started here.

        Raises `EngineClosedError` in a forked process, after `drain`, after the `open_engine` block was left, and on
        another thread.
        """
        self.check_process()
        if self._closed:
            raise EngineClosedError("this engine is closed: its open_engine block was left. Start calls inside it")
        if self._draining:
            raise EngineClosedError("this engine takes no more calls: engine.drain() was called. Open another engine")
        try:
            token = trio.lowlevel.current_trio_token()
        except RuntimeError:
            token = None
        if token is not self._token:
            raise EngineClosedError("this engine belongs to another trio.run or thread: use engine.from_thread there")

    def check_process(self) -> None:
        """Raise `EngineClosedError` in a forked process, because the engine's loop does not run there."""
        if os.getpid() != self._process:
            raise EngineClosedError("this engine was opened in another process: open one after the fork")

    def _callback_raised(self, error: BaseException) -> None:
        """End the engine if the exception of a callback is meant for the whole program, such as `KeyboardInterrupt`."""
        if ends_engine(error):
            self._end_engine(error)

    def _end_engine(self, error: BaseException) -> None:
        """End the engine now: every call completes, every socket closes, and the `open_engine` block raises `error`."""
        if self.failure is None:
            self.failure = error
        self.close(forced=True)
        self._scope.cancel()

    def _call_started(self, call: RunningCall) -> None:
        call.counters.started += 1
        self._started += 1
        self._calls[call] = None

    def _call_ended(self, call: RunningCall, completion: Completion) -> None:
        if call not in self._calls:
            return
        del self._calls[call]
        call.counters.completed += 1
        if completion.error is not None:
            call.counters.failures[completion.error.category] += 1
        if self._watch is not None:
            self._watch.call_ended(call, completion)

    async def _dial(self, origin: Origin, on_phase: Callable[[Phase], None]) -> socket.socket | TLSSocket:
        context, proxy = dial_options(origin, self._tls, self._proxy, self._environment)
        return await dial(
            origin,
            tls_context=context,
            proxy=proxy,
            resolver=self._resolver,
            on_phase=on_phase,
            connect=self._connect,
        )

    # --- the engine as a whole ---

    def statistics(self) -> Statistics:
        """Return the engine's current statistics."""
        states = Counter(call.state for call in self._calls)
        return self.totals({state.value: count for state, count in states.items() if state is not CallState.ENDED})

    def totals(self, calls: Mapping[str, int]) -> Statistics:
        """Return the engine's statistics with `calls`, which the caller has counted: running calls by state."""
        from .statistics import OriginStatistics, ProviderStatistics, Statistics
        from .traffic.statistics import TrafficStatistics

        all_counters = self._counters.values()
        return Statistics(
            calls=calls,
            started=self._started,
            completed=sum(counters.completed for counters in all_counters),
            failed=sum(counters.failures.total() for counters in all_counters),
            cancelled=sum(counters.failures[ErrorCategory.CANCELLED] for counters in all_counters),
            retried=self._runtime.retried,
            resent=self._runtime.resent,
            providers={
                name: ProviderStatistics(
                    counters.started - counters.completed,
                    counters.completed,
                    counters.events,
                    {str(category): count for category, count in counters.failures.items()},
                )
                for name, counters in self._counters.items()
            },
            connections={origin: OriginStatistics(*counts) for origin, counts in self._runtime.pool.counts().items()},
            opened=self._runtime.pool.opened,
            reused=self._runtime.pool.reused,
            discarded=self._runtime.pool.discarded,
            events=sum(counters.events for counters in all_counters),
            bytes_received=self._runtime.loop.bytes_received,
            bytes_sent=self._runtime.loop.bytes_sent,
            loop_lag=self._runtime.loop.lag,
            loop_culprit=self._runtime.loop.culprit,
            loop_ticks=self._runtime.loop.ticks,
            traffic=TrafficStatistics() if self._dispatcher is None else self._dispatcher.statistics(),
        )

    def running(self) -> list[RunningCall]:
        """Return the running calls, oldest first."""
        return list(self._calls)

    def record(self, path: str | os.PathLike[str], *, replace: bool = False) -> Recording:
        """Record the bytes sent and received, with their times, until the block is left: `with engine.record(path):`.

        The recording holds each attempt that begins inside the block. It holds prompts and answers, but no header
        that carries a key. `manystream simulate --replay PATH` replays it.

        The file is a new one that only its owner can read. Raises `FileExistsError` if `path` exists, unless `replace`
        is true: then the new file replaces it. Raises `OSError` if the file cannot be written, `RuntimeError` if
        another recording is running, and `EngineClosedError`.
        """
        from .record import Recording, RecordingFile

        self.check_here()
        if self._runtime.recorder is not None:
            raise RuntimeError(f"{self._runtime.recording!r} is running: leave its block first")
        file = self._runtime.recording = RecordingFile(path, replace=replace)
        return Recording(file)

    def drain(self, timeout: float) -> Coroutine[object, object, bool]:
        """Refuse new calls from now on, and return a coroutine that waits until the running calls have ended.

        The coroutine waits at most `timeout` seconds. It returns True if all calls have ended. Raises `ValueError` for
        a negative timeout.
        """
        if not isinstance(timeout, (int, float)) or not timeout >= 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"drain: timeout must be seconds, 0 or more (math.inf: no limit), not {timeout!r}")
        self.check_process()
        self._draining = True
        return self._all_ended(timeout)

    async def _all_ended(self, timeout: float) -> bool:
        with trio.move_on_after(timeout):
            while self._calls:
                await next(iter(self._calls)).wait()
        return not self._calls

    def close(self, *, forced: bool = False) -> None:
        """Cancel and complete the running calls, and close every socket. Leaving the `open_engine` block does this.

        forced: complete also the calls whose last callbacks were interrupted.
        """
        if os.getpid() != self._process:
            return  # the epoll set is shared after a fork: closing it here would break the parent
        if self._closed and not forced:
            return
        self._closed = True
        for call in list(self._calls):
            call.end_now("the engine was closed", forced=forced)
        self._runtime.forget_due()
        if self._runtime.recording is not None:
            self._runtime.recording.close()
        self._runtime.pool.close()


def _check_keys(providers: Sequence[Provider]) -> None:
    """Raises `InvalidRequestError` for a provider with several keys, in an engine without traffic control."""
    for position, provider in enumerate(providers):
        if keys_of(provider):
            raise InvalidRequestError(
                f"providers[{position}].api_key", "several keys need an engine with traffic: open_engine(traffic=…)"
            )


def _response_finisher(warnings: Sequence[str], request: Request) -> Callable[[Response], None]:
    """Return a function that completes a response before it is delivered.

    The function adds the request's warnings and, if the request has a schema, the parsed object. It raises
    `ProviderError` if the response does not match the schema.
    """
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
