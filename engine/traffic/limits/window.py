"""A window that limits the calls that were sent and are not yet known to be accepted.

Nothing but the window protects a server whose limits are unknown: when its bucket is empty, it refuses what is sent
until the first refusal comes back. So the window grows only with calls that were accepted, as TCP does in slow start,
and what it allows is spread over the time in which a call is confirmed instead of being sent at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from itertools import takewhile

from ..queue.cost import Mean
from ..queue.fair_queue import Permit
from .bucket import Bucket

START = 10
"""The size of the window at the start, in calls."""

GROWTH = 16.0
"""Calls by which the window grows with each call that was answered in full, or that was not refused for so long that it
counts as accepted. A refusal would have come much earlier, so few calls are sent between it and the call that caused
it."""

PER_ROUND_TRIP = 32.0
"""Calls by which the window grows at most in each round trip if responses are streams. Their heads take as long as a
refusal, so all calls of a window are sent before the first refusal comes."""

AHEAD = 3.0
"""The window grows up to this many times the calls that a known limit allows while one call is unconfirmed.

Calls beyond the limit's rate come out of the server's bucket, whose size is not known. When that is empty, the server
refuses the whole window.
"""

BATCH = 1 / 32
"""The part of the window that is sent in one go, so that a fast start does not take a timer for each call."""

LEAST = 1e-3
"""The least time in seconds in which a call is confirmed, for the pace."""

CONFIRMED_AFTER = 0.5
"""Seconds without a refusal after which a call counts as accepted. The headers of an unstreamed response arrive only
when the whole response is ready."""


class Window:
    """The calls that were sent and may still be refused.

    The window grows with each confirmed call, while at least half of it is in use. It stays near a known limit.
    """

    __slots__ = ("_pace", "_seconds", "_size", "_unconfirmed", "_used_at")

    def __init__(self) -> None:
        self._size = float(START)
        self._seconds = Mean(CONFIRMED_AFTER)  # until a call is confirmed
        self._pace = Bucket(START / CONFIRMED_AFTER, START, START, -math.inf)
        self._unconfirmed: OrderedDict[Permit, float] = OrderedDict()
        self._used_at = -math.inf  # when at least half of the window was in use

    def __len__(self) -> int:
        return len(self._unconfirmed)

    def __iter__(self) -> Iterator[Permit]:
        return iter(self._unconfirmed)

    @property
    def size(self) -> int:
        """The largest number of unconfirmed calls."""
        return int(self._size)

    def add(self, permit: Permit, now: float) -> None:
        """Add a call that is sent."""
        self._unconfirmed[permit] = now + CONFIRMED_AFTER
        self._pace.take(1.0, now)
        if 2 * len(self._unconfirmed) >= self.size:
            self._used_at = now

    def confirm(self, permit: Permit, calls_per_second: float, now: float, *, whole: bool = False) -> bool:
        """Remove a call that the server accepted. Return False if it was not in the window.

        calls_per_second: the calls that the known limits allow; `math.inf` if none is known.
        whole: the response is no stream.
        """
        until = self._unconfirmed.pop(permit, None)
        if until is None:
            return False
        sent_at = until - CONFIRMED_AFTER
        self._seconds.add(now - sent_at)
        if self._used_at >= sent_at:
            self._grow(calls_per_second, is_sure=whole or until <= now)
        pace = self._pace
        pace.give_back(1.0, now)
        pace.rate, pace.capacity = self._size / max(LEAST, self._seconds.value), max(START, BATCH * self._size)
        return True

    def _grow(self, calls_per_second: float, *, is_sure: bool) -> None:
        growth = min(1.0, PER_ROUND_TRIP / self._size)
        if calls_per_second < math.inf:
            most = max(START, AHEAD * calls_per_second * self._seconds.value)
            growth = min(growth, max(0.0, most - self._size))
        elif is_sure:
            growth = GROWTH
        self._size += growth

    def remove(self, permit: Permit, *, was_sent: bool = True) -> None:
        """Remove a call that was refused or cancelled. The window does not grow."""
        if self._unconfirmed.pop(permit, None) is not None and not was_sent:
            self._pace.level += 1.0

    def before(self, permit: Permit) -> Iterator[Permit]:
        """Yield the unconfirmed calls that were sent before this one. The server may receive them later."""
        older = self._unconfirmed if permit in self._unconfirmed else ()  # else all were sent later
        return takewhile(lambda call: call is not permit, older)

    def overdue(self, now: float) -> Permit | None:
        """Return the oldest call if it counts as accepted, because no refusal came for `CONFIRMED_AFTER` seconds."""
        for permit, until in self._unconfirmed.items():
            return permit if until <= now else None
        return None

    def ready_at(self, now: float) -> float:
        """Return the latest time at which the window has room; `now` if it has one."""
        if len(self._unconfirmed) >= self.size:
            return next(iter(self._unconfirmed.values()), math.inf)
        if self._pace.fill(now) >= 1.0:
            return now
        return self._pace.ready_at(max(1.0, BATCH * self._size), now)
