"""How many calls may be sent before the first of them is known to be accepted.

Knows unconfirmed tickets and their times. Must not know buckets.
"""

from __future__ import annotations

import math
from collections import OrderedDict

from .ticket import Ticket

START = 10
"""Unconfirmed calls at the start."""

DOUBLING_UNTIL = 32
"""Up to this size the window doubles with each round trip; above, it grows by this number with each."""

CONFIRMED_AFTER = 0.5
"""Seconds without a refusal after which a call counts as accepted: an unstreamed answer's headers come at its end."""


class Window:
    """The calls that were sent and may still be refused.

    It grows with each confirmed call, while at least half of it is in use.
    """

    __slots__ = ("_size", "_unconfirmed")

    def __init__(self) -> None:
        self._size = float(START)
        self._unconfirmed: OrderedDict[Ticket, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._unconfirmed)

    @property
    def size(self) -> int:
        """How many there may be."""
        return int(self._size)

    def add(self, ticket: Ticket, now: float) -> None:
        """A call is sent."""
        self._unconfirmed[ticket] = now + CONFIRMED_AFTER

    def confirm(self, ticket: Ticket) -> bool:
        """A call is accepted; False where that was known before."""
        in_use = len(self._unconfirmed)
        if self._unconfirmed.pop(ticket, None) is None:
            return False
        if 2 * in_use >= self.size:
            self._size += min(1.0, DOUBLING_UNTIL / self._size)
        return True

    def remove(self, ticket: Ticket) -> None:
        """A call was refused or cancelled: its place is free, the window does not grow."""
        self._unconfirmed.pop(ticket, None)

    def overdue(self, now: float) -> Ticket | None:
        """The oldest call that counts as accepted because nothing was heard of it for long enough."""
        for ticket, until in self._unconfirmed.items():
            return ticket if until <= now else None
        return None

    def ready_at(self, now: float) -> float:
        """When there is a place at the latest."""
        if len(self._unconfirmed) < self.size:
            return now
        return next(iter(self._unconfirmed.values()), math.inf)
