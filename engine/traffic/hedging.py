"""When a call on a route that hedges is late, and its second attempt beside the first one.

The first attempt with content decides. The other one is ended at once, and accounted (`Routed`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...transport.timers import Timer
from ..call.runtime import Runtime
from .admission import Candidate
from .queue.fair_queue import NEVER
from .routing.hedge import HedgeState

if TYPE_CHECKING:
    from .routed import Routed


class Hedging:
    """The timer of a call that may be late.

    state: decides for the route when a call is late, and how many calls may be sent twice.
    rival: the permit of the second attempt under way; None: there is none.
    is_beside: a second attempt runs, or ran, beside the latest attempt.
    """

    __slots__ = (
        "_call",
        "_first_at",
        "_is_done",
        "_pause",
        "_runtime",
        "_timer",
        "is_beside",
        "rival",
        "state",
    )

    def __init__(self, call: Routed, state: HedgeState, runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self._first_at = NEVER  # the time of the first attempt
        self._timer: Timer | None = None
        self._pause = 0.0  # seconds until it looks again whether a second attempt can be made
        self._is_done = False  # a second attempt was made
        self.state: HedgeState = state
        self.rival: Candidate | None = None
        self.is_beside: bool = False

    def begin(self, now: float) -> None:
        """An attempt begins. It is late at some time, if it is known when."""
        self.is_beside = False
        again = self._first_at > NEVER
        if not again:
            self._first_at = now
        when = self.state.begin(now, again=again)
        if when < math.inf and not self._is_done:
            self._pause = when - now
            self._set_timer(when)

    def first_content(self, now: float) -> None:
        """The first content of the call came."""
        self.disarm()
        self.state.first_event(now - self._first_at)

    def disarm(self) -> None:
        """Make no second attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, when: float) -> None:
        self._timer = self._runtime.timers.at(when, self._is_late, self._call.on_defect, is_timeout=True)

    def _is_late(self) -> None:
        """Make a second attempt, or look again after a pause. Pauses double, so that many late calls cost little."""
        self._timer = None
        call = self._call
        if not call.lacks_content:
            return
        now = self._runtime.loop.clock()
        if not call.is_paused and self.state.allows(now) and call.hedge(self, now):
            self._is_done = True
        else:
            self._set_timer(now + self._pause)
            self._pause *= 2
