"""The waits of one call on a route: in the queues of lanes, and for a target that is left alone.

Knows the route, the call's itinerary and the queues. Must not know which target a call chooses (`journey.py`).
"""

from __future__ import annotations

from typing import Protocol, cast

from ..call.runtime import Runtime
from ..call.timeouts import LEAST_WAIT
from .admission import Admission
from .itinerary import PRIORITIES, Itinerary
from .limits.limiter import Sender
from .parking import Parking
from .queue.permit import TicketState
from .routing.router import LiveRoute
from .stop import Stop
from .wait import Wait


class Passenger(Sender, Protocol):
    """A call, as its journey sees it."""

    @property
    def has_attempts_left(self) -> bool:
        """Whether the call has made fewer attempts than `Retry.max_attempts`."""
        ...

    def redirect(self, stop: Stop) -> None:
        """Take the request for the target that was chosen. `admitted` is called next."""
        ...


class Waiter(Admission):
    """The waits of one call. `Journey`, a subclass, decides where it waits."""

    __slots__ = ("_itinerary", "_parking", "_route", "_runtime", "_waits", "_was_sent")

    def _set_up(self, route: LiveRoute, itinerary: Itinerary, runtime: Runtime) -> None:
        """Set the attributes of this class, before `__init__`: the first wait must be known there."""
        self._route = route
        self._itinerary = itinerary
        self._runtime = runtime
        self._waits: tuple[Wait, ...] = ()  # where it waits now; a dict would be larger
        self._parking: Parking | None = None  # until it waits for a target for the first time
        self._was_sent = False

    @property
    def _call(self) -> Passenger | None:
        """The call, until it has ended."""
        return cast("Passenger | None", self._sender)

    # --- as the call sees it ---

    @property
    def waiting_for(self) -> str:
        if self._waits:
            return super().waiting_for
        if self._parking is not None and self._parking.waiting_for:
            return self._parking.waiting_for
        return "" if self.spending is None else self.spending.waiting_for

    def waited(self, seconds: float) -> dict[str, float]:
        parked = 0.0 if self._parking is None else self._parking.seconds
        by_reason = super().waited(seconds - parked)
        if parked > LEAST_WAIT:
            by_reason["target"] = parked
        return by_reason

    # --- as the route sees it ---

    def look_again(self) -> None:
        """Choose a target again."""
        raise NotImplementedError

    # --- in the queues of lanes ---

    def _wait(self, waits: list[Wait], now: float) -> None:
        """Wait in the queues of lanes, until the first one sends the call."""
        self._waits = self._itinerary.shared((*self._waits, *waits))
        self._route.wait_for_room(self)
        for wait in waits:
            wait.slot_mark = wait.lane.scope.slot_seconds(now)
            wait.owner = wait
            wait.deadline = min(self._deadline, now + self._itinerary.longest_wait(wait.site.place))
        self._lane, self._ticket, self._slot_mark = waits[0].lane, waits[0], waits[0].slot_mark
        for wait in waits:
            # A lane may send the call at once. The call may even have ended and wait again by now.
            if wait in self._waits and wait.state is not TicketState.QUEUED:
                wait.lane.enter(wait, now, again=self._was_sent, alone=len(waits) == 1)

    def _forget(self, wait: Wait) -> None:
        """The call waits no longer in this queue."""
        self._waits = tuple(other for other in self._waits if other is not wait)
        wait.owner = None  # else it refers to itself
        if not self._waits:
            self._route.leave(self)

    def _leave_queues(self, now: float, but: Wait | None = None) -> None:
        """Leave all queues. May be called again. but: the one that sends the call."""
        for wait in self._waits:
            self._forget(wait)
            if wait is not but:
                wait.give_up(now)

    # --- for a target that is left alone ---

    def _park(self, excluded: frozenset[int], until: float, now: float) -> None:
        """Wait until a target is used again. excluded: those that the call cannot use."""
        if self.spending is not None:
            self.spending.release(now)
        priority = PRIORITIES[self._itinerary.request.priority]
        if self._parking is None:
            self._parking = Parking(self._route, self._runtime)
        self._parking.begin(self, priority, excluded, until, now, deadline=self._deadline, overdue=self._overdue)

    def _unpark(self, now: float) -> None:
        """Wait no longer for a target. May be called again."""
        if self._parking is not None:
            seconds = self._parking.end(self, now)
            if self._entered is not None:
                self._entered += seconds

    def _overdue(self) -> None:
        assert self._call is not None
        assert self._parking is not None
        reason = self._parking.waiting_for
        self._unpark(self._lane.now)
        self._call.overdue(reason)
