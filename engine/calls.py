"""What makes the calls of one engine: prepares requests, and has the pool, traffic control and the observer.

An engine makes it, and imports its modules, when it is first used (gate.py).
"""

from __future__ import annotations

import logging
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..providers.catalog.dialect import WireRequest
from ..providers.catalog.provider import Provider
from ..providers.errors import InvalidRequestError
from ..providers.model.options import Retry
from ..providers.model.provider_error import ErrorCategory
from ..providers.model.request import Request
from ..providers.model.response import Response
from ..providers.model.rules import optional, whole
from ..providers.model.structured import reader_of
from ..providers.wire.answer_tokens import check_tokens
from ..transport.dial import dial, dial_options
from ..transport.errors import Phase
from ..transport.loop import Loop
from ..transport.pool import Pool
from ..transport.resolve import Resolver
from ..transport.timers import Timers
from ..transport.tls import TLSConfig
from ..transport.tls_socket import TLSSocket
from ..transport.url import Origin
from .call.admission_control import AdmissionControl
from .call.call import CallHooks, Counters, RunningCall, TargetRequest, nobody
from .call.callbacks import OnCompletion, OnEvent, check_callback, context_of_the_caller, without_first
from .call.completion import Completion
from .call.handle import Call
from .call.next_step import EARNED
from .call.runtime import Runtime
from .call.timeouts import CallState, Clocks, effective
from .request.durable import read_token
from .request.errors import TooManyCallsError
from .request.limits import EngineLimits
from .request.preparer import Preparer

if TYPE_CHECKING:
    from .observe.observer import GuardedObserver, Observer
    from .observe.statistics import Statistics
    from .option_rules import Configuration
    from .services import EngineTasks
    from .traffic.control import Dispatcher
    from .traffic.options import Traffic
    from .traffic.shared_limits import EngineShare


logger: logging.Logger = logging.getLogger("manystream.engine")


def make_id() -> str:
    """Return a random identifier: 22 characters of `A-Z a-z 0-9 - _`, from a cryptographic source."""
    return secrets.token_urlsafe(16)


class CallStarter:
    """Starts the calls of one engine, and keeps and counts them while they run.

    runtime: what the calls share.
    providers: the providers, in the order in which the program gave them.
    preparer: prepares requests, also those that are no calls.
    running: the running calls, oldest first.
    """

    def __init__(
        self,
        tasks: EngineTasks,
        loop: Loop,
        timers: Timers,
        configuration: Configuration,
        on_callback_raised: Callable[[BaseException], None],
    ) -> None:
        """Create it without any call.

        tasks: of the engine. This object may be made elsewhere, for the figures of an engine without calls.
        on_callback_raised: called with the exception of a callback; it may end the engine.

        Raises `InvalidRequestError` for options of traffic control that do not fit the providers, and for an observer
        whose methods cannot be called.
        """
        options, backend, home = configuration.options, tasks.backend, tasks.home
        environment, proxy, addressed = configuration.variables, configuration.proxy, configuration.addressed
        providers = [provider for provider, _ in addressed]
        self._limits = limits = options.get("limits") or EngineLimits()
        self._retry = options.get("retry") or Retry()
        self._tls = options.get("tls") or TLSConfig()
        self._timeouts = timeouts = options.get("timeouts")
        self._connect = options.get("dial")
        self._configuration = configuration
        self.providers: Sequence[Provider] = providers
        observer, traffic = options.get("observer"), options.get("traffic")
        self._watch = watch = None if observer is None else _guard(observer, on_callback_raised)
        self._resolver = Resolver(backend)
        pool = Pool(backend, loop, timers, self._dial, limits.pool, watch)
        self.runtime: Runtime = Runtime(backend, loop, timers, pool, home, on_callback_raised, limits)
        self.runtime.answers = options.get("cache")
        self._hooks = CallHooks(self._call_ended) if watch is None else watch.hooks(self._call_ended)
        clock, sockets = self._wall_clock, self.runtime.sockets
        self.preparer: Preparer = Preparer(addressed, environment, limits, make_id, clock, proxy, backend, sockets)
        self._dispatcher = None if traffic is None else self._direct(traffic, providers)
        self._clocks = {stream: effective(None, timeouts, stream=stream) for stream in (False, True)}
        self._makers = {stream: partial(self._make_request, stream) for stream in (False, True)}
        self.running: dict[RunningCall, None] = {}
        self._counters = {provider.name: Counters() for provider in providers}
        self._started = 0

    def _direct(self, traffic: Traffic, providers: Sequence[Provider]) -> Dispatcher:
        from .traffic.control import Dispatcher

        streamed = partial(self._make_request, True)
        return Dispatcher(traffic, providers, self.runtime, self.preparer, streamed, self._watch)

    def _wall_clock(self) -> float:
        return self.runtime.wall_clock()

    @property
    def traffic(self) -> Dispatcher | None:
        """What finds the limiter, the route and the budgets of a call; None in an engine without `traffic`."""
        return self._dispatcher

    @property
    def share(self) -> EngineShare | None:
        """What the engine has of limits that it shares with others; None: it shares none."""
        return None if self._dispatcher is None else self._dispatcher.share

    def start(
        self,
        request: Request,
        on_event: OnEvent | None,
        on_completion: OnCompletion | None,
        *,
        stream: bool,
        attached: TargetRequest | None = None,
    ) -> Call:
        """Start a call. Raises `InvalidRequestError` and `TooManyCallsError`.

        attached: the request that reads an answer which another call has created; None: `request` creates one.
        """
        if len(self.running) >= self._limits.max_calls:
            raise _too_many(self._limits.max_calls)
        if on_event is not None:
            check_callback("on_event", on_event)
        if on_completion is not None:
            check_callback("on_completion", on_completion)
        dispatcher = self._dispatcher
        admission: AdmissionControl | None = None
        first = attached
        if dispatcher is not None and dispatcher.has_routes and attached is None:
            on_a_route = dispatcher.on_a_route(request, self._makers[stream])
            if on_a_route is not None:
                if request.continue_aborted:
                    raise InvalidRequestError("continue_aborted", "is for one server: name it in place of a route")
                admission, first = on_a_route
        if first is not None:
            prepared, counters, finish_response = first.prepared, first.counters, first.finish_response
        else:
            prepared, wire = self.preparer.prepare(request, stream=stream)
            counters = self._counters[prepared.provider.name]
            finish_response = response_finisher(wire.warnings, request, wire.asked)
            if dispatcher is not None:
                admission = dispatcher.admission(request, prepared, wire)
        context = context_of_the_caller(self.runtime.home.context)
        if context is not None:
            on_event, on_completion = context.bind(on_event), context.bind(on_completion)
        # By position: each start would pay for a dict of the names.
        number, retry = self._started + 1, request.retry or self._retry
        clocks = self._clocks[stream] if request.timeouts is None else self.clocks_of(request, stream)
        running = RunningCall(
            self.runtime, self._hooks, prepared, counters, number, self.runtime.loop.clock(), clocks, retry,
            nobody if on_event is None else on_event, on_completion, finish_response, admission,
        )  # fmt: skip
        call = Call(running, request)
        if self.runtime.recording is not None:
            self.runtime.recording.notes.take(self.runtime.recording.call_started, running, number, request, prepared)
        watch = self._watch
        if watch is None:
            running.start(self._call_started)
        else:

            def announce(running: RunningCall) -> None:
                self._call_started(running)
                watch.call_started(running, call, prepared, context)

            running.start(announce)
        return call

    def attach(
        self,
        token: str,
        on_event: OnEvent | None,
        on_completion: OnCompletion | None,
        after: int | None,
        created_by: Request | None = None,
    ) -> Call:
        """Start a call that reads an answer which another call has created. Raises as `start` does.

        It takes no place in a limit: the call that created the answer has taken it.

        created_by: the unstreamed request that created the answer, which is then completed as for that request; None:
            it is not known.
        """
        answer = read_token(token)
        optional(whole(0)).check(after, "after")
        if on_event is not None and after:
            check_callback("on_event", on_event)
            on_event = without_first(after, on_event)
        preparer = self.preparer if self._dispatcher is None else self._dispatcher.preparer(answer, self.preparer)
        prepared = preparer.attach(answer)
        finish: Callable[[Response], None] | None = None
        if created_by is not None:
            first, wire = preparer.prepare(created_by, stream=False)
            prepared.unasked, prepared.asked = first.unasked, first.asked
            finish = response_finisher(wire.warnings, created_by, wire.asked)
        attached = TargetRequest(prepared, self._counters[answer.provider], self._clocks[True], finish)
        request = Request(f"{answer.provider}/{answer.model}", (), durable=True)
        return self.start(request, on_event, on_completion, stream=True, attached=attached)

    def first_target(self, model: str) -> tuple[Preparer, str]:
        """Return what prepares a `PlainRequest` about a model, and the name that the model has for it.

        Of a route that is the first target, and of a provider with several keys the first key.
        """
        dispatcher = self._dispatcher
        return (self.preparer, model) if dispatcher is None else dispatcher.first_target(model, self.preparer)

    def _make_request(self, stream: bool, request: Request, preparer: Preparer) -> tuple[TargetRequest, WireRequest]:
        """Prepare a request for a target of a route. Raises `InvalidRequestError`."""
        prepared, wire = preparer.prepare(request, stream=stream)
        counters, clocks = self._counters[prepared.provider.name], self.clocks_of(request, stream)
        return TargetRequest(prepared, counters, clocks, response_finisher(wire.warnings, request, wire.asked)), wire

    def clocks_of(self, request: Request, stream: bool) -> Clocks:
        """Return the timeouts of a call. Calls without timeouts of their own share one object."""
        if request.timeouts is None:
            return self._clocks[stream]
        return effective(request.timeouts, self._timeouts, stream=stream)

    def _call_started(self, call: RunningCall) -> None:
        call.counters.started += 1
        self._started += 1
        runtime = self.runtime
        if runtime.retry_reserve < runtime.most_retries:
            runtime.retry_reserve = min(runtime.most_retries, runtime.retry_reserve + EARNED)
        self.running[call] = None

    def _call_ended(self, call: RunningCall, completion: Completion) -> None:
        if call not in self.running:
            return
        del self.running[call]
        call.counters.completed += 1
        if completion.error is not None:
            call.counters.failures[completion.error.category] += 1
        recording = self.runtime.recording
        if recording is not None:
            recording.notes.take(recording.call_ended, call, completion)
        if self._watch is not None:
            self._watch.call_ended(call, completion)

    async def _dial(self, origin: Origin, on_phase: Callable[[Phase], None]) -> socket.socket | TLSSocket:
        context, proxy = dial_options(origin, self._tls, self._configuration.proxy, self._configuration.variables)
        return await dial(
            origin,
            tls_context=context,
            proxy=proxy,
            resolver=self._resolver,
            on_phase=on_phase,
            connect=self._connect,
            backend=self.runtime.backend,
        )

    # --- all calls ---

    def end_session(self, session: str) -> None:
        """Forget which target and key a session has, and close its WebSockets."""
        self.runtime.sockets.end(session)
        if self._dispatcher is not None:
            self._dispatcher.end_session(session)

    def states(self) -> Mapping[str, int]:
        states = Counter(call.state for call in self.running)
        return {state.value: count for state, count in states.items() if state is not CallState.ENDED}

    def totals(self, calls: Mapping[str, int]) -> Statistics:
        """Return the engine's statistics with `calls`, which the caller has counted: running calls by state."""
        from .observe.statistics import OriginStatistics, ProviderStatistics, Statistics
        from .traffic.options import TrafficStatistics

        connections = {origin: OriginStatistics(*counts) for origin, counts in self.runtime.pool.counts().items()}
        for origin, active, idle, place in self.runtime.sockets.counts():
            sent = place.continued, dict(place.whole), dict(place.over_http)
            connections[origin] = OriginStatistics(0, active, idle, 0, *sent)
        all_counters = self._counters.values()
        cancelled = sum(counters.failures[ErrorCategory.CANCELLED] for counters in all_counters)
        return Statistics(
            calls=calls,
            started=self._started,
            completed=sum(counters.completed for counters in all_counters),
            failed=sum(counters.failures.total() for counters in all_counters) - cancelled,
            cancelled=cancelled,
            retried=self.runtime.retried,
            resent=self.runtime.resent,
            providers={
                name: ProviderStatistics(
                    counters.started - counters.completed,
                    counters.completed,
                    counters.events,
                    {str(category): count for category, count in counters.failures.items()},
                )
                for name, counters in self._counters.items()
            },
            connections=connections,
            opened=self.runtime.pool.opened,
            reused=self.runtime.pool.reused,
            discarded=self.runtime.pool.discarded,
            events=sum(counters.events for counters in all_counters),
            bytes_received=self.runtime.loop.bytes_received,
            bytes_sent=self.runtime.loop.bytes_sent,
            loop_lag=self.runtime.loop.lag,
            loop_culprit=self.runtime.loop.culprit,
            loop_ticks=self.runtime.loop.ticks,
            observer_failures=0 if self._watch is None else self._watch.failures,
            traffic=TrafficStatistics() if self._dispatcher is None else self._dispatcher.statistics(),
        )

    def close(self, *, forced: bool) -> None:
        """End and complete the running calls, and close every socket.

        forced: complete also the calls whose last callbacks were interrupted.
        """
        for call in list(self.running):
            call.end_now("the engine was closed", forced=forced)
        self.runtime.forget_next()
        if self.runtime.recording is not None:
            self.runtime.recording.close()
        self.runtime.sockets.close()
        self.runtime.pool.close()


def _too_many(calls: int) -> TooManyCallsError:
    return TooManyCallsError(
        f"{calls} calls are running already (limits.max_calls): start this one when another has ended, or open the"
        " engine with a higher limit"
    )


def _guard(observer: Observer, on_callback_raised: Callable[[BaseException], None]) -> GuardedObserver:
    from .observe.observer import GuardedObserver

    return GuardedObserver(observer, on_callback_raised)


def response_finisher(
    warnings: Sequence[str], request: Request, asked: frozenset[str]
) -> Callable[[Response], None] | None:
    """Return a function that completes a response before it is delivered; None: nothing is missing.

    The function adds the request's warnings and, if the request has a schema, the parsed object. It raises
    `ProviderError` if the response does not match the schema, or does not have the tokens that were asked for.
    """
    extra = request.extra_body  # may ask for tokens, too
    if not warnings and not asked and request.response_schema is None and not extra:
        return None
    read = None if request.response_schema is None else reader_of(request.response_schema)

    def finish(response: Response) -> None:
        response.warnings.extend(warnings)
        fault = check_tokens(response, asked) if asked or extra else ""
        if fault:
            logger.warning("%s: %s", request.model, fault)
        if read is not None:
            read(response)

    return finish
