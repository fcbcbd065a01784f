"""The queues in which one call on a route waits: one for each target and key that it may use."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...providers.errors import ProviderError
from ...providers.model.options import Priority
from .limits.limiter import Lane
from .queue.permit import Ticket


class Site(NamedTuple):
    """A target of the route, and a key of its provider. Both are positions."""

    place: int
    key: int


@functools.cache
def site_at(place: int, key: int) -> Site:
    """Return the site of a target and a key. All calls share it: each of them remembers several sites."""
    return Site(place, key)


class Waiting(Protocol):
    """A call that waits in several queues."""

    def waits_at(self, place: int) -> Sequence[Wait]:
        """Return a wait for each key that can be used at a target."""
        ...

    def admitted_at(self, wait: Wait) -> None:
        """A lane sends the call."""
        ...

    def rejected_at(self, wait: Wait, error: ProviderError) -> None:
        """A lane never sends the call, or not in time."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library."""
        ...


class Wait(Ticket):
    """A call's ticket in the queue of one lane. It receives what the lane has for the call.

    It is the ticket, and not an object beside it: thousands of calls wait, each in several queues.

    call: the call; None after it has ended.
    site: the target and the key of the lane.
    lane: the lane.
    slot_mark: the lane's `Scope.slot_seconds` when the wait began.
    until: the time at which the call waits here no longer, by the target's own options; `math.inf` if it has none.
    """

    __slots__ = ("call", "lane", "site", "slot_mark", "until")

    def __init__(
        self,
        call: Waiting,
        site: Site,
        lane: Lane,
        input_tokens: float = 0.0,
        max_output: float | None = None,
        *,
        priority: Priority = Priority.NORMAL,
        tenant: str | None = None,
    ) -> None:
        super().__init__(input_tokens, max_output, priority=priority, tenant=tenant)
        self.call: Waiting | None = call
        self.site: Site = site
        self.lane: Lane = lane
        self.slot_mark: float = lane.scope.slot_seconds(lane.now)
        self.until: float = math.inf

    def why_never(self, now: float) -> ProviderError | None:
        """Return why the call can never be sent; None where it can."""
        return self.lane.why_never(self, now)

    def has_room(self, now: float) -> bool:
        """Return whether the call could be sent now."""
        return self.lane.scope.has_room(self, now)

    def give_up(self, now: float) -> None:
        """Leave the queue, or return what was reserved."""
        self.lane.scope.cancel(self, now)
        self.lane.changed()

    def admitted(self) -> None:
        if self.call is not None:
            self.call.admitted_at(self)

    def rejected(self, error: ProviderError) -> None:
        if self.call is not None:
            self.call.rejected_at(self, error)

    def on_defect(self, error: Exception) -> None:
        if self.call is not None:
            self.call.on_defect(error)


class Rooms:
    """The targets that could send the call now. A target is looked at when it is asked for."""

    __slots__ = ("_call", "_known", "_now")

    def __init__(self, call: Waiting, now: float) -> None:
        self._call = call
        self._now = now
        self._known: dict[int, bool] = {}

    def __contains__(self, place: object) -> bool:
        assert isinstance(place, int)
        known = self._known.get(place)
        if known is None:
            waits = self._call.waits_at(place)
            known = self._known[place] = any(wait.has_room(self._now) for wait in waits)
        return known
