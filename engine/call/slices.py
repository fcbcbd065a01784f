"""Deliver the many events of one wire event a few at a time.

One server-sent event may have thousands of parts. They are delivered in steps, one step per tick, so that other streams
are served in between. No step is delivered while the consumer has paused its call, so the high-water mark also holds
within one event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ...providers.model.events import Event
from .body.base import STEP_EVENTS

if TYPE_CHECKING:
    from .attempt import Attempt

Action: TypeAlias = Callable[[], None]


class Steps:
    """The undelivered events of one attempt.

    then: called after the last event.
    soon: schedules a call at the next tick.
    """

    __slots__ = ("_attempt", "_events", "_position", "_scheduled", "_soon", "_then")

    def __init__(
        self, attempt: Attempt, events: Sequence[Event], then: Callable[[], object], soon: Callable[[Action], None]
    ) -> None:
        self._attempt = attempt
        self._events = events
        self._then = then
        self._soon = soon
        self._position = 0
        self._scheduled = False

    def go_on(self) -> None:
        """Deliver the next few events, unless the call has ended or is paused; schedule the next step."""
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
        """Schedule the next step for the next tick."""
        if not self._scheduled:
            self._scheduled = True
            self._soon(self.go_on)
