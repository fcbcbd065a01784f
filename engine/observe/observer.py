"""Observers: an object of the program that an engine notifies of calls and connections.

    class Log(Observer):
        def call_ended(self, call, completion):
            print(call, completion.timings)

    async with ms.open_engine(providers=[…], observer=Log()) as engine: …

Without an observer, nothing here runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...providers.catalog.provider import Provider
from ...providers.model.events import Event
from ...providers.model.request import Request
from ...providers.model.rules import Rule, instance
from ..call.body import Receiver
from ..call.call import CallHooks, RunningCall
from ..call.callbacks import CallContext, check_callback
from ..call.completion import Completion
from ..call.handle import Call
from ..request.noting import NoteLogger, Notes
from ..request.prepared import Prepared
from ..traffic.budgets.amounts import BudgetStatistics
from ..traffic.limits.rate_limit import LimiterStatistics
from ..traffic.routing.options import RouteStatistics

logger: NoteLogger = NoteLogger("manystream.observe")


@dataclass(slots=True, frozen=True)
class CallStart:
    """The start of a call.

    request: the request as the program gave it.
    provider: the provider of the call.
    model: the name that the provider uses for the model.
    host: the host of the provider's address.
    port: the port of the provider's address.
    stream: True if the request asks for a streamed response.
    """

    request: Request
    provider: Provider
    model: str
    host: str
    port: int
    stream: bool


class Observer:
    """The base class of observers. Override the methods that you need.

    The engine calls the methods on its thread, inside its loop, so they must not wait. Those of a call run in the
    context (`contextvars`) of the code that started the call. An exception from a method changes no call. The first one
    of each method is logged under `manystream.observe`; `Statistics.observer_failures` counts all.

    every_event: True: call `events_received`. Set it in a subclass, or on an object before an engine is opened with it.
        Every stream is then read without the fast path, which costs about 30 % more instructions per event, in
        addition to those of your method.
    """

    every_event: bool = False

    def call_started(self, call: Call, start: CallStart) -> None:
        """A call begins. This is not called for a request that is refused with `InvalidRequestError`."""

    def attempt_started(self, call: Call, number: int) -> None:
        """Attempt `number` of a call begins; the first is 1."""

    def first_token(self, call: Call) -> None:
        """The call's first content was delivered to `on_event`. Only for streams, at most once per call."""

    def events_received(self, call: Call, events: Sequence[Event]) -> None:
        """The events of one server-sent event arrived, after the stream's first content. They are delivered next.

        This is called only if `every_event` is True.
        """

    def call_ended(self, call: Call, completion: Completion) -> None:
        """The call has ended. Called exactly once per call; `on_completion` is called next."""

    def connection_opened(self, origin: str) -> None:
        """A connection is ready for requests, after the proxy and the TLS handshake."""

    def connection_closed(self, origin: str, served: int) -> None:
        """A connection was closed after `served` exchanges."""

    def limiter_changed(self, limiter: str, statistics: LimiterStatistics) -> None:
        """The figures of a limiter of traffic control have changed.

        Called at most once per second for each limiter; the last call has the latest figures. Never called in an engine
        without `traffic`.

        limiter: the limiter's name, such as `openai/gpt-5`.
        """

    def route_changed(self, route: str, statistics: RouteStatistics) -> None:
        """The figures of a route have changed: a call was sent, ended, or waits for a target.

        Called at most once per second for each route; the last call has the latest figures.

        route: the route's name.
        """

    def budget_changed(self, statistics: BudgetStatistics) -> None:
        """The figures of a budget have changed: a call has reserved an amount, waits for one, or has ended.

        Called at most once per second for each budget and tenant; the last call has the latest figures.
        """


OBSERVER_OPTION: Rule = instance(Observer, forms={type: "use an instance of it"})

HOOKS = tuple(name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_"))


class GuardedObserver:
    """Calls an observer's methods for the engine, and logs and counts the exceptions that they raise.

    An exception for the whole program, such as `KeyboardInterrupt`, also ends the engine. Raises `InvalidRequestError`
    if a method of the observer is not a plain function.

    every_event: True if the observer wants every event.
    """

    def __init__(self, observer: Observer, on_raise: Callable[[BaseException], None]) -> None:
        for hook in HOOKS:
            check_callback(f"observer.{hook}", getattr(observer, hook))
        self._observer = observer
        self._on_raise = on_raise
        self._calls: dict[RunningCall, _Observed] = {}
        self._notes = {hook: Notes(logger, f"the observer's {hook} raised") for hook in HOOKS}
        self.every_event: bool = observer.every_event is True

    @property
    def failures(self) -> int:
        """The number of exceptions."""
        return sum(notes.lost for notes in self._notes.values())

    def hooks(self, ended: Callable[[RunningCall, Completion], None]) -> CallHooks:
        """Return the hooks by which calls notify the observer. `ended`: the engine's own function for ended calls."""
        observed = self.observed if self.every_event else None
        return CallHooks(ended, self.attempt_started, self.first_token, observed)

    def call_started(self, running: RunningCall, call: Call, prepared: Prepared, context: CallContext | None) -> None:
        provider, origin = prepared.provider, prepared.origin
        start = CallStart(call.request, provider, prepared.model, origin.host, origin.port, prepared.stream)
        observed = self._calls[running] = _Observed(call, context)
        self._notify_of(observed, "call_started", start)

    def attempt_started(self, running: RunningCall, number: int) -> None:
        self._notify_of(self._calls[running], "attempt_started", number)

    def first_token(self, running: RunningCall) -> None:
        self._notify_of(self._calls[running], "first_token")

    def call_ended(self, running: RunningCall, completion: Completion) -> None:
        self._notify_of(self._calls.pop(running), "call_ended", completion)

    def connection_opened(self, origin: str) -> None:
        self._notify("connection_opened", origin)

    def connection_closed(self, origin: str, served: int) -> None:
        self._notify("connection_closed", origin, served)

    def limiter_changed(self, limiter: str, statistics: LimiterStatistics) -> None:
        self._notify("limiter_changed", limiter, statistics)

    def route_changed(self, route: str, statistics: RouteStatistics) -> None:
        self._notify("route_changed", route, statistics)

    def budget_changed(self, statistics: BudgetStatistics) -> None:
        self._notify("budget_changed", statistics)

    def observed(self, running: RunningCall, receiver: Receiver) -> Receiver:
        """Return a receiver that notifies the observer of events and then passes them to `receiver`."""
        return _ObservedReceiver(self, self._calls[running], receiver)

    def events_received(self, observed: _Observed, events: Sequence[Event]) -> None:
        self._notify_of(observed, "events_received", events)

    def _notify_of(self, observed: _Observed, hook: str, *arguments: object) -> None:
        """Call a method about a call, in the call's context."""
        if observed.context is None:
            self._notify(hook, observed.call, *arguments)
        else:
            observed.context.run(self._notify, hook, observed.call, *arguments)

    def _notify(self, hook: str, *arguments: object) -> None:
        try:
            getattr(self._observer, hook)(*arguments)
        except BaseException as error:
            self._notes[hook].lose(error)
            self._on_raise(error)


@dataclass(slots=True, frozen=True)
class _Observed:
    """A running call, as its observer sees it. context: None for the engine's own."""

    call: Call
    context: CallContext | None


class _ObservedReceiver:
    """Notifies the observer of a call's events before they are delivered."""

    __slots__ = ("_observed", "_observer", "_receiver")

    def __init__(self, observer: GuardedObserver, observed: _Observed, receiver: Receiver) -> None:
        self._observer = observer
        self._observed = observed
        self._receiver = receiver

    def deliver(self, events: Sequence[Event]) -> None:
        self._observer.events_received(self._observed, events)
        self._receiver.deliver(events)
