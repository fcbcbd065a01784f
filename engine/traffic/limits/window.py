"""A window that limits the calls that were sent and are not yet known to be accepted."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from ..queue.permit import Ticket

START = 10
"""The size of the window at the start, in calls."""

DOUBLING_UNTIL = 32
"""Up to this size, the window doubles with each round trip. A larger window grows by this number with each."""

UNTRIED = 0.05
"""While no limit is known, a window above `DOUBLING_UNTIL` is at most this part of the accepted calls.

A server whose bucket is empty refuses the whole window. So of the first calls, at most this part is refused, however
large the bucket is.
"""

AHEAD = 3.0
"""The window grows up to this many times the calls that a known limit allows while one call is unconfirmed.

Calls beyond the limit's rate come out of the server's bucket, whose size is not known. When that is empty, the server
refuses the whole window.
"""

CONFIRMED_AFTER = 0.5
"""Seconds without a refusal after which a call counts as accepted. The headers of an unstreamed response arrive only
when the whole response is ready."""

_SMOOTHING = 0.1
"""Weight of one call in the smoothed time until a call is confirmed."""


class Window:
    """The calls that were sent and may still be refused.

    The window grows with each confirmed call, while at least half of it is in use. It stays near a known limit, and
    small beside the accepted calls if none is known.
    """

    __slots__ = ("_accepted", "_seconds", "_size", "_unconfirmed")

    def __init__(self) -> None:
        self._size = float(START)
        self._accepted = 0  # calls that were confirmed
        self._seconds = CONFIRMED_AFTER  # until a call is confirmed, smoothed
        self._unconfirmed: OrderedDict[Ticket, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unconfirmed)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._unconfirmed)

    @property
    def size(self) -> int:
        """The largest number of unconfirmed calls."""
        return int(self._size)

    def add(self, ticket: Ticket, now: float) -> None:
        """Add a call that is sent."""
        self._unconfirmed[ticket] = now + CONFIRMED_AFTER

    def confirm(self, ticket: Ticket, calls_per_second: float, now: float) -> bool:
        """Remove a call that the server accepted. Return False if it was not in the window.

        calls_per_second: the calls that the known limits allow; `math.inf` if none is known.
        """
        in_use = len(self._unconfirmed)
        until = self._unconfirmed.pop(ticket, None)
        if until is None:
            return False
        took = now - until + CONFIRMED_AFTER
        self._seconds += _SMOOTHING * (took - self._seconds)
        self._accepted += 1
        if 2 * in_use >= self.size and self._size < self._largest(calls_per_second):
            self._size += min(1.0, DOUBLING_UNTIL / self._size)
        return True

    def _largest(self, calls_per_second: float) -> float:
        """Return the size up to which the window grows."""
        if calls_per_second < math.inf:
            return max(START, AHEAD * calls_per_second * self._seconds)
        return max(DOUBLING_UNTIL, UNTRIED * self._accepted)

    def remove(self, ticket: Ticket) -> None:
        """Remove a call that was refused or cancelled. The window does not grow."""
        self._unconfirmed.pop(ticket, None)

    def before(self, ticket: Ticket) -> Iterator[Ticket]:
        """Yield the unconfirmed calls that were sent before this one. The server may receive them later."""
        return takewhile(lambda call: call is not ticket, self._unconfirmed)

    def overdue(self, now: float) -> Ticket | None:
        """Return the oldest call if it counts as accepted, because no refusal came for `CONFIRMED_AFTER` seconds."""
        for ticket, until in self._unconfirmed.items():
            return ticket if until <= now else None
        return None

    def ready_at(self, now: float) -> float:
        """Return the latest time at which the window has a free place; `now` if it has one."""
        if len(self._unconfirmed) < self.size:
            return now
        return next(iter(self._unconfirmed.values()), math.inf)
