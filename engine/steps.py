"""Many events of one wire event, delivered a few at a time.

One server-sent event may hold thousands of parts. They are delivered in steps, one step per tick, so that other streams
have their turn in between, and none while the consumer has paused its call: its high-water mark holds within one event,
too.

Knows events and the attempt that delivers them. Must not know sockets or dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from ..providers.events import Event

STEP_EVENTS = 64
"""Events of one step: as many as may wait for a consumer before its stream is paused."""

Action: TypeAlias = "Callable[[], None]"


class Stepping(Protocol):
    """What the steps need of their attempt."""

    @property
    def over(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    def deliver_step(self, events: Sequence[Event]) -> None:
        """Deliver a few events."""
        ...

    def stepped(self, then: Callable[[], object]) -> None:
        """Every event was delivered: go on with `then`."""
        ...


class Steps:
    """The events of one attempt that have not been delivered yet. then: what follows them. soon: calls back at the next
    tick."""

    __slots__ = ("_attempt", "_events", "_position", "_scheduled", "_soon", "_then")

    def __init__(
        self, attempt: Stepping, events: Sequence[Event], then: Callable[[], object], soon: Callable[[Action], None]
    ) -> None:
        self._attempt = attempt
        self._events = events
        self._then = then
        self._soon = soon
        self._position = 0
        self._scheduled = False

    def go_on(self) -> None:
        """Deliver the next few events, unless the call has ended or is paused; and again at the next tick."""
        self._scheduled = False
        attempt, start = self._attempt, self._position
        if attempt.over or attempt.paused:
            return
        if start >= len(self._events):
            attempt.stepped(self._then)
            return
        self._position = start + STEP_EVENTS
        attempt.deliver_step(self._events[start : self._position])
        self.schedule()

    def schedule(self) -> None:
        """Go on at the next tick."""
        if not self._scheduled:
            self._scheduled = True
            self._soon(self.go_on)
