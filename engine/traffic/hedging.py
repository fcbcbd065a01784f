"""When a call whose first event is late is sent a second time. The first attempt with content decides; the other one is
ended at once, and accounted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...transport.timers import Timer
from ..call.runtime import Runtime
from .queue.fair_queue import NEVER
from .routing.router import HedgeState


class Hedging:
    """The timer of a call that may be late.

    is_beside: a second attempt runs, or ran, beside the latest attempt.
    """

    __slots__ = ("_first_at", "_is_done", "_on_defect", "_pause", "_runtime", "_send", "_state", "_timer", "is_beside")

    def __init__(
        self, state: HedgeState, runtime: Runtime, send: Callable[[float], bool], on_defect: Callable[[Exception], None]
    ) -> None:
        """state: decides for the route. send: makes a second attempt; returns False if none can be made now."""
        self._state = state
        self._runtime = runtime
        self._send = send
        self._on_defect = on_defect
        self._first_at = NEVER  # the time of the first attempt
        self._timer: Timer | None = None
        self._pause = 0.0  # seconds until it looks again whether a second attempt can be made
        self._is_done = False  # a second attempt was made
        self.is_beside: bool = False

    def begin(self, now: float) -> None:
        """An attempt begins. It is late at some time, if it is known when."""
        self.is_beside = False
        again = self._first_at > NEVER
        if not again:
            self._first_at = now
        when = self._state.count(now, again=again)
        if when < math.inf and not self._is_done:
            self._pause = when - now
            self._set_timer(when)

    def sends(self, now: float) -> None:
        """A second attempt begins."""
        self._state.take(now)
        self.is_beside = True

    def first_content(self, now: float) -> None:
        self.disarm()
        self._state.first_event(now - self._first_at)

    def disarm(self) -> None:
        """Make no second attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, when: float) -> None:
        self._timer = self._runtime.timers.at(when, self._is_late, self._on_defect, is_timeout=True)

    def _is_late(self) -> None:
        """Make a second attempt, or look again after a pause. Pauses double, so that many late calls cost little."""
        self._timer = None
        now = self._runtime.loop.clock()
        if self._state.allows(now) and self._send(now):
            self._is_done = True
        else:
            self._set_timer(now + self._pause)
            self._pause *= 2
