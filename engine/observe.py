"""Hooks: what an engine notifies an observer of. Nothing here runs unless an observer was given.

    class Log(Observer):
        def call_ended(self, call, completion):
            print(call, completion.timings)

    async with ms.open_engine(providers=[…], observer=Log()) as engine: …

Knows what a call calls on its way. Must not know what an observer does with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..providers.events import Event
from ..providers.provider import Provider
from ..providers.request import Request
from .call import CallHooks, Deliver, RunningCall
from .callbacks import check_callback
from .completion import Completion
from .handle import Call

logger: logging.Logger = logging.getLogger("manystream.observe")


@dataclass(slots=True, frozen=True)
class CallStart:
    """The start of a call.

    model: the model's name at the provider.
    origin: `scheme://host:port`.
    """

    request: Request
    provider: Provider
    model: str
    host: str
    port: int
    stream: bool


class Observer:
    """Override the methods that you need. They are called on the engine's thread, inside its loop, so they must not
    wait. What one raises is logged under `manystream.observe` and changes no call.

    every_event: whether `events_received` is called. Set it to True in a subclass or on an object before it is given to
        an engine. Every event of every stream is then read without the fast path, which takes about 30 % more
        instructions per event, beside those of your method.
    """

    every_event: bool = False

    def call_started(self, call: Call, start: CallStart) -> None:
        """A call begins; a request that is refused before it is sent (`InvalidRequestError`) never does."""

    def attempt_started(self, call: Call, number: int) -> None:
        """Attempt `number` of a call begins; the first is 1."""

    def first_token(self, call: Call) -> None:
        """The call's first content was delivered to `on_event`. Only for streams, at most once per call."""

    def events_received(self, call: Call, events: Sequence[Event]) -> None:
        """More events of a stream arrived after its first content: those of one server-sent event. They are delivered
        next. Only called where `every_event` is True."""

    def call_ended(self, call: Call, completion: Completion) -> None:
        """The call has ended. Called exactly once per call; `on_completion` is called next."""

    def connection_opened(self, origin: str) -> None:
        """A connection is ready, TLS and proxy included."""

    def connection_closed(self, origin: str, served: int) -> None:
        """A connection was closed after `served` exchanges."""


HOOKS = tuple(name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_"))
"""The names of an observer's methods."""


class GuardedObserver:
    """An observer as the engine calls it: what it raises goes to the log. What is meant for the whole program, such as
    `KeyboardInterrupt`, also ends the engine. Raises `InvalidRequestError` where one of its methods is no plain
    function.

    every_event: whether it wants every event.
    """

    __slots__ = ("_calls", "_observer", "_on_raise", "every_event")

    def __init__(self, observer: Observer, on_raise: Callable[[BaseException], None]) -> None:
        for hook in HOOKS:
            check_callback(f"observer.{hook}", getattr(observer, hook))
        self._observer = observer
        self._on_raise = on_raise
        self._calls: dict[RunningCall, Call] = {}  # as programs have them, while they run
        self.every_event: bool = observer.every_event is True

    def hooks(self, ended: Callable[[RunningCall, Completion], None]) -> CallHooks:
        """What calls call on their way; `ended` is the engine's own."""
        observed = self.observed if self.every_event else None
        return CallHooks(ended, self.attempt_started, self.first_token, observed)

    def call_started(self, running: RunningCall, call: Call, start: CallStart) -> None:
        self._calls[running] = call
        self._notify("call_started", call, start)

    def attempt_started(self, running: RunningCall, number: int) -> None:
        self._notify("attempt_started", self._calls[running], number)

    def first_token(self, running: RunningCall) -> None:
        self._notify("first_token", self._calls[running])

    def call_ended(self, running: RunningCall, completion: Completion) -> None:
        self._notify("call_ended", self._calls.pop(running), completion)

    def connection_opened(self, origin: str) -> None:
        self._notify("connection_opened", origin)

    def connection_closed(self, origin: str, served: int) -> None:
        self._notify("connection_closed", origin, served)

    def observed(self, running: RunningCall, deliver: Deliver) -> Deliver:
        """`deliver`, with the observer notified of the events before each delivery."""
        call = self._calls[running]

        def deliver_observed(events: Sequence[Event]) -> None:
            self._notify("events_received", call, events)
            deliver(events)

        return deliver_observed

    def _notify(self, hook: str, *arguments: object) -> None:
        try:
            getattr(self._observer, hook)(*arguments)
        except BaseException as error:
            logger.exception("the observer's %s raised", hook)
            self._on_raise(error)
