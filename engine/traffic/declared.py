"""A limit that the user declared, and the scopes that share it.

Several scopes may take from one declaration, such as `rates={"*": …}`. Where the next call of a scope fits its own
limits and waits for this one, the scope stands in a line, and no other scope takes from the limit before its turn: else
a scope of small calls would keep one of large calls waiting for ever.

Knows buckets, a count of calls and who stands in line. Must not know queues, quotas or timers.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from .charge import Cost
from .quota import ReportedBucket, declared_buckets
from .rate_limit import RateLimit


class DeclaredLimit:
    """One entry of `rates`, for one key.

    buckets: its limits per time; every quota that it covers counts what it sends in them.
    concurrent: how many calls may run at a time; None for no limit. running: how many do.
    """

    __slots__ = ("_line", "buckets", "concurrent", "name", "running")

    def __init__(self, name: str, limit: RateLimit, now: float) -> None:
        self.name: str = name
        self.buckets: tuple[ReportedBucket, ...] = declared_buckets(limit, now, of=name)
        self.concurrent: int | None = limit.concurrent
        self.running: int = 0
        self._line: dict[Hashable, None] = {}

    def ready_at(self, cost: Cost, scope: Hashable, now: float) -> float:
        """When a call may go; `math.inf` where a call must end first, or another scope must have its turn."""
        if self._line and next(iter(self._line)) is not scope:
            return math.inf
        if self.is_full:
            return math.inf
        return max((reported.bucket.ready_at(cost[reported.unit], now) for reported in self.buckets), default=now)

    @property
    def is_full(self) -> bool:
        """Whether as many calls run as may."""
        return self.concurrent is not None and self.running >= self.concurrent

    def stand_in_line(self, scope: Hashable) -> None:
        """A scope waits for this limit alone."""
        self._line.setdefault(scope)

    def leave_line(self, scope: Hashable) -> None:
        """It has had its turn, or waits no longer."""
        self._line.pop(scope, None)

    def next_in_line(self) -> Hashable | None:
        """Whose turn it is; None where nobody waits."""
        return next(iter(self._line), None)
