"""The waits of one call on a route: in the queues of lanes, and for a target that is left alone."""

from __future__ import annotations

import math
from typing import cast

from ...transport.timers import Timer
from ..call.call import RunningCall
from ..call.runtime import Runtime
from ..call.timeouts import LEAST_WAIT
from .admission import Admission
from .itinerary import PRIORITIES, Itinerary
from .queue.permit import TicketState
from .routing.router import Group, LiveRoute
from .wait import Wait


class Waiter(Admission):
    """The waits of one call. `Journey`, a subclass, decides where it waits."""

    __slots__ = (
        "_group",
        "_itinerary",
        "_parked_at",
        "_parked_seconds",
        "_patience",
        "_route",
        "_runtime",
        "_waits",
        "_was_sent",
    )

    def _set_up(self, route: LiveRoute, itinerary: Itinerary, runtime: Runtime) -> None:
        """Set the attributes of this class, before `__init__`: the first wait must be known there."""
        self._route = route
        self._itinerary = itinerary
        self._runtime = runtime
        self._waits: tuple[Wait, ...] = ()  # where it waits now; a dict would be larger
        self._patience: Timer | None = None  # ends its wait at a target that has a time of its own for that
        self._group: Group | None = None  # of the calls that wait for the same targets to be used again
        self._parked_at = 0.0
        self._parked_seconds = 0.0  # without the current wait
        self._was_sent = False

    @property
    def _call(self) -> RunningCall | None:
        """The call, until it has ended."""
        return cast("RunningCall | None", self._sender)

    # --- as the call sees it ---

    @property
    def waiting_for(self) -> str:
        if self._waits:
            return super().waiting_for
        if self._group is not None:
            return f"a target of {self._route.name} to be used again"
        return "" if self.spending is None else self.spending.waiting_for

    def waited(self, seconds: float) -> dict[str, float]:
        by_reason = super().waited(seconds - self._parked_seconds)
        if self._parked_seconds > LEAST_WAIT:
            by_reason["target"] = self._parked_seconds
        return by_reason

    # --- as the route sees it ---

    def look_again(self) -> None:
        """Choose a target again."""
        raise NotImplementedError

    # --- in the queues of lanes ---

    def _wait(self, waits: list[Wait], now: float, deadline: float = math.inf) -> None:
        """Wait in the queues of lanes, until the first one sends the call. deadline: when the call's own timer ends it,
        if a lane should compare that with its queue."""
        self._waits = self._itinerary.shared((*self._waits, *waits))
        self._route.wait_for_room(self)
        for wait in waits:
            wait.slot_mark = wait.lane.scope.slot_seconds(now)
            wait.owner = wait
            longest = self._itinerary.longest_wait(wait.site.place)
            wait.until = now + longest if longest < math.inf else longest  # the same object for all calls that wait
        self._lane, self._ticket, self._slot_mark = waits[0].lane, waits[0], waits[0].slot_mark
        alone = len(waits) == 1
        for wait in waits:
            # A lane may send the call at once. The call may even have ended and wait again by now.
            if wait in self._waits and wait.state is not TicketState.QUEUED:
                until = min(deadline, wait.until) if alone else math.inf
                wait.lane.enter(wait, now, again=self._was_sent, deadline=until)
        self._set_patience()

    def _set_patience(self) -> None:
        """Set the timer to the time at which the call waits no longer at a target."""
        when = min((wait.until for wait in self._waits), default=math.inf)
        if when < math.inf and self._patience is None:
            self._patience = self._runtime.timers.at(when, self._end_patience, self.on_defect)

    def _end_patience(self) -> None:
        """Leave the queues of targets at which the call waits no longer."""
        self._patience, now = None, self._lane.now
        for place in {wait.site.place for wait in self._waits if wait.until <= now}:
            self._tire_of(place, now)
        self._set_patience()

    def _tire_of(self, place: int, now: float) -> None:
        """Wait no longer at a target."""
        raise NotImplementedError

    def _forget(self, wait: Wait) -> None:
        """The call waits no longer in this queue."""
        self._waits = tuple(other for other in self._waits if other is not wait)
        wait.owner = None  # else it refers to itself
        if not self._waits:
            self._route.leave(self)
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

    def _leave_queues(self, now: float, but: Wait | None = None) -> None:
        """Leave all queues. May be called again. but: the one that sends the call."""
        for wait in self._waits:
            self._forget(wait)
            if wait is not but:
                wait.give_up(now)

    # --- for a target that is left alone ---

    def _park(self, excluded: frozenset[int], now: float) -> None:
        """Wait until a target is used again. excluded: those that the call cannot use."""
        if self.spending is not None:
            self.spending.release(now)
        self._parked_at = now
        self._group = self._route.park(self, PRIORITIES[self._itinerary.request.priority], excluded)

    def _unpark(self, now: float) -> None:
        """Wait no longer for a target. May be called again."""
        if self._group is None:
            return
        self._route.unpark(self, self._group)
        self._group = None
        waited = now - self._parked_at
        self._parked_seconds += waited
        if self._entered is not None:
            self._entered += waited
