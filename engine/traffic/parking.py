"""The wait of one call until a target of its route is used again.

Knows the route and timers. Must not know how the call chooses a target.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...providers.model.options import Priority
from ...transport.timers import Timer
from ..call.runtime import Runtime
from .routing.router import Group, LiveRoute, Traveller


class Parking:
    """The waits of one call. seconds: how long they took together, without the current one."""

    __slots__ = ("_group", "_route", "_runtime", "_since", "_timer", "seconds")

    def __init__(self, route: LiveRoute, runtime: Runtime) -> None:
        self._route = route
        self._runtime = runtime
        self._group: Group | None = None  # of the calls that wait for the same targets
        self._since = 0.0
        self._timer: Timer | None = None
        self.seconds: float = 0.0

    @property
    def waiting_for(self) -> str:
        """What the call waits for, in words; empty if it does not wait."""
        return "" if self._group is None else f"a target of {self._route.name} to be used again"

    def begin(
        self,
        call: Traveller,
        priority: Priority,
        excluded: frozenset[int],
        until: float,
        now: float,
        *,
        deadline: float,
        overdue: Callable[[], None],
    ) -> None:
        """Begin to wait. The call is notified when a target may be used.

        excluded: targets that the call cannot use.
        until: when one may be used; `math.inf` where the outcome of a call under way decides.
        deadline: when the wait must end; `overdue` is called then.
        """
        self._since = now
        self._group = self._route.park(call, priority, excluded, until)
        if deadline < math.inf:
            self._timer = self._runtime.timers.at(deadline, overdue, call.on_defect, is_timeout=True)

    def end(self, call: Traveller, now: float) -> float:
        """Wait no longer. Returns the seconds of this wait. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._group is None:
            return 0.0
        self._route.unpark(call, self._group)
        self._group = None
        waited = now - self._since
        self.seconds += waited
        return waited
