"""Hooks: what an engine tells a program that watches it. Nothing here runs unless an observer was given.

    class Log(Observer):
        def call_ended(self, call, completion):
            print(call, completion.timings)

    async with ms.open_engine(providers=[…], observer=Log()) as engine: …

Knows calls by name only. Must not know what an observer does with what it is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..providers.events import Event
from ..providers.provider import Provider
from ..providers.request import Request

if TYPE_CHECKING:
    from .call import Call
    from .completion import Completion

logger: logging.Logger = logging.getLogger("manystream.observe")


@dataclass(slots=True, frozen=True)
class CallStart:
    """What a call sets out to do. model: as the provider knows it. origin: `scheme://host:port`."""

    request: Request
    provider: Provider
    model: str
    host: str
    port: int
    stream: bool


class Observer:
    """Override what you want to be told. Methods are called on the engine's thread, inside its loop, so they must not
    wait. What one raises is logged under `manystream.observe`, and no call notices.
    """

    def call_started(self, call: Call, start: CallStart) -> None:
        """A call begins; a request that is refused before it is sent (`InvalidRequestError`) never does."""

    def attempt_started(self, call: Call, number: int) -> None:
        """Its `number`th attempt begins, from 1."""

    def first_token(self, call: Call) -> None:
        """Its first content was handed to `on_event`. Streams only, and once per call at most."""

    def chunk_received(self, call: Call, events: Sequence[Event]) -> None:
        """More of a stream's content after the first, as one server-sent event brought it. The hot path: it is only
        called for an observer that overrides it."""

    def call_ended(self, call: Call, completion: Completion) -> None:
        """It has ended, exactly once; its `on_completion` is called next."""

    def connection_opened(self, origin: str) -> None:
        """A connection is ready, TLS and proxy included."""

    def connection_closed(self, origin: str, served: int) -> None:
        """A connection was closed, after so many exchanges."""


class Watch:
    """An observer as the engine calls it: whatever it raises goes to the log.

    chunks: whether it wants every chunk.
    """

    __slots__ = ("_observer", "chunks")

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.chunks: bool = type(observer).chunk_received is not Observer.chunk_received

    def call_started(self, call: Call, start: CallStart) -> None:
        try:
            self._observer.call_started(call, start)
        except Exception:
            _log("call_started")

    def attempt_started(self, call: Call, number: int) -> None:
        try:
            self._observer.attempt_started(call, number)
        except Exception:
            _log("attempt_started")

    def first_token(self, call: Call) -> None:
        try:
            self._observer.first_token(call)
        except Exception:
            _log("first_token")

    def call_ended(self, call: Call, completion: Completion) -> None:
        try:
            self._observer.call_ended(call, completion)
        except Exception:
            _log("call_ended")

    def connection_opened(self, origin: str) -> None:
        try:
            self._observer.connection_opened(origin)
        except Exception:
            _log("connection_opened")

    def connection_closed(self, origin: str, served: int) -> None:
        try:
            self._observer.connection_closed(origin, served)
        except Exception:
            _log("connection_closed")

    def watched(self, call: Call, deliver: Callable[[Sequence[Event]], None]) -> Callable[[Sequence[Event]], None]:
        """`deliver`, with the observer told of each chunk before."""
        observer = self._observer

        def deliver_watched(events: Sequence[Event]) -> None:
            try:
                observer.chunk_received(call, events)
            except Exception:
                _log("chunk_received")
            deliver(events)

        return deliver_watched


def _log(hook: str) -> None:
    logger.exception("the observer's %s raised", hook)
