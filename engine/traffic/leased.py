"""A declared limit that is shared with engines in other processes. This engine uses a part of it, while a lease lasts.

Knows rates, ends of leases and the time that the caller passes. Must not know who divides the limit, nor how leases
arrive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .bucket import Bucket
from .rate_limit import RateLimit, limits_of
from .reported import ReportedBucket

BURST = 0.05
"""An engine may save up its rate for this part of the limit's window. So all engines together exceed the limit of any
window by at most 5 %."""


class LeasedBucket(Bucket):
    """A bucket that fills at the rate of a lease, until the lease ends.

    The level may rise to `BURST` of the window, or to the cost that was asked for last. A call is sent when its whole
    cost is there: if calls could be sent on credit, many engines with a small rate each could send at the same time.

    ends_at: the time at which the lease ends.
    taken: the units that were taken so far, without those that were given back.
    """

    __slots__ = ("_burst", "_cost", "ends_at", "taken")

    def __init__(self, window: float, now: float) -> None:
        super().__init__(0.0, 0.0, 0.0, now)
        self.ends_at: float = -math.inf
        self.taken: float = 0.0
        self._burst = BURST * window
        self._cost = 0.0

    def lease(self, rate: float, ends_at: float, now: float) -> None:
        """Use this rate from now on, until `ends_at`.

        The level stays, up to the new capacity: a change neither gives units nor cancels debts. So a bucket whose rate
        was 0 begins empty.
        """
        self.fill(now)
        self.ends_at = ends_at
        self._change(rate)

    def fill(self, now: float) -> float:
        """Update the level to the time `now`, or to the end of the lease, and return it."""
        if self.rate > 0 and now >= self.ends_at:
            super().fill(self.ends_at)
            self._change(0.0)
        return super().fill(now)

    def ready_at(self, cost: float, now: float) -> float:
        """Return the time at which `cost` fits; `math.inf` if the lease ends before."""
        self.fill(now)
        if self.rate <= 0:
            return math.inf
        self._cost = cost
        self.capacity = max(self.rate * self._burst, cost)
        at = super().ready_at(cost, now)
        return at if at < self.ends_at else math.inf

    def take(self, cost: float, now: float) -> None:
        """Take `cost` out of the bucket. The level may become negative."""
        super().take(cost, now)
        self.taken += cost
        self._cost = 0.0
        self._change(self.rate)

    def give_back(self, cost: float, now: float) -> None:
        """Return `cost` to the bucket, up to the capacity. A negative cost is taken out."""
        super().give_back(cost, now)
        self.taken -= cost

    def _change(self, rate: float) -> None:
        self.rate = rate
        self.capacity: float = max(rate * self._burst, self._cost) if rate > 0 else 0.0
        self.level: float = min(self.level, self.capacity)


class RateLease:
    """What an engine may use of a declared limit. All methods are for the engine's own thread.

    buckets: the leased part of each limit over time, in the order of `limits_of`. Their owner changes them, and then
        calls `extend`.
    open_until: no call is sent from this time on, by the engine's clock.
    is_wanted: returns whether a call waits for this limit only. The engine sets it.
    """

    __slots__ = ("_on_change", "buckets", "is_wanted", "open_until")

    def __init__(self, limit: RateLimit, buckets: Sequence[LeasedBucket], of: str = "") -> None:
        self.buckets: tuple[ReportedBucket, ...] = tuple(
            ReportedBucket(row.name, row.unit, row.window, bucket, declared=True, whole=row.limit or 0.0)
            for row, bucket in zip(limits_of(limit, of), buckets, strict=True)
        )
        self.open_until: float = -math.inf
        self.is_wanted: Callable[[], bool] = _never
        self._on_change: Callable[[], None] | None = None

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change."""
        self._on_change = on_change

    def extend(self, open_until: float) -> None:
        """Send calls until this time, at the rates that the buckets have now."""
        self.open_until = open_until
        if self._on_change is not None:
            self._on_change()


def _never() -> bool:
    return False


@dataclass(slots=True, frozen=True, kw_only=True)
class LeasedRateLimit(RateLimit):
    """A limit of which an engine may use what it has leased. It is one limit for all API keys that its entry covers.

    lease: what the engine may use.
    """

    lease: RateLease
