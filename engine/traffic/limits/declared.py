"""A limit that the user declared, and the line of limiters that wait for it.

Several limiters may share one declared limit, such as `rates={"*": …}`. If the next call of a limiter fits its own
limits and waits only for the shared one, the limiter enters the limit's line. Only the first limiter in the line may
take from the limit. Without the line, a limiter with small calls could block a limiter with large calls forever.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from ..queue.fair_queue import Cost
from .bucket import ReportedBucket, declared_buckets
from .leases import LeasedRateLimit, RateLease
from .rate_limit import RateLimit


class DeclaredLimit:
    """One entry of `rates`, for one API key.

    name: the entry's key in `rates`.
    buckets: the limits over time. All covered quotas share these buckets.
    concurrent: the largest number of running calls; None: no limit.
    lease: what this engine may use of the limit; None: all of it.
    running: the number of running calls.
    line: the limiters that wait for it, the first one first.
    """

    __slots__ = ("_slots", "buckets", "concurrent", "lease", "line", "name", "running")

    def __init__(self, name: str, limit: RateLimit, now: float) -> None:
        self.name: str = name
        self.lease: RateLease | None = limit.lease if isinstance(limit, LeasedRateLimit) else None
        self.buckets: tuple[ReportedBucket, ...] = (
            declared_buckets(limit, now, of=name) if self.lease is None else self.lease.buckets
        )
        self.concurrent: int | None = limit.concurrent
        self.running: int = 0
        self._slots = self.lease.slots if self.lease is not None else None
        if self._slots is not None:
            self._slots.count_running = self._count_running
        self.line: dict[Hashable, None] = {}

    def ready_at(self, cost: Cost, state: Hashable, now: float) -> float:
        """Return the time at which a call of `limiter` may be sent.

        Returns `math.inf` if a running call must end first, if another limiter is first in the line, or if the lease
        has ended.
        """
        return math.inf if self.line and self.next_in_line() is not state else self.room_at(cost, now)

    def room_at(self, cost: Cost, now: float) -> float:
        """The same whatever the line is: the time at which there is room for a call."""
        if self.is_full or (self.lease is not None and now >= self.lease.open_until):
            return math.inf
        return max((reported.bucket.ready_at(cost[reported.unit], now) for reported in self.buckets), default=now)

    def is_open(self, now: float) -> bool:
        """Return whether nothing but the buckets can hold a call back: no ended lease, no line and no running call."""
        if self.lease is None and self.concurrent is None:
            return not self.line
        return not self.line and not self.is_full and (self.lease is None or now < self.lease.open_until)

    @property
    def is_full(self) -> bool:
        """True if the largest number of calls is running."""
        if self._slots is not None:
            return self.running >= self._slots.rate
        return self.concurrent is not None and self.running >= self.concurrent

    def _count_running(self) -> int:
        return self.running

    def stand_in_line(self, state: Hashable) -> None:
        """Put a limiter at the end of the line, if it is not in it, because its next call waits only for this limit."""
        begins = not self.line
        self.line.setdefault(state)
        if begins and self.lease is not None and self.lease.on_want is not None:
            self.lease.on_want()

    def leave_line(self, state: Hashable) -> None:
        """Remove a limiter from the line, because its call was sent or no longer waits for this limit."""
        self.line.pop(state, None)

    def next_in_line(self) -> Hashable | None:
        """Return the first limiter in the line; None if the line is empty."""
        return next(iter(self.line), None)
