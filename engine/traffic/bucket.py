"""A token bucket that is given the time.

Knows a rate, a capacity and a level. Must not know what it limits.
"""

from __future__ import annotations

import math

_SLACK = 1e-6
"""The part of the capacity that rounding may eat: at the time that `ready_at` gave, there must be room."""


class Bucket:
    """A bucket that fills steadily.

    rate: what flows in per second.
    capacity: how much it holds.
    level: how much it held at `at`. A cost above the capacity may go when the bucket is full, and leaves the level
        negative: the following calls wait until that is paid, so nothing ever goes faster than the rate.
    """

    __slots__ = ("at", "capacity", "level", "rate")

    def __init__(self, rate: float, capacity: float, level: float, at: float) -> None:
        self.rate: float = rate
        self.capacity: float = capacity
        self.level: float = min(level, capacity)
        self.at: float = at

    def fill(self, now: float) -> float:
        """Bring the level up to date; returns it. What was given back above the capacity stays."""
        if now > self.at:
            if self.level < self.capacity:
                self.level = min(self.capacity, self.level + (now - self.at) * self.rate)
            self.at = now
        return self.level

    def ready_at(self, cost: float, now: float) -> float:
        """When there is room for a cost: `now`, later, or `math.inf` where the rate is 0."""
        level = self.fill(now)
        missing = min(cost, self.capacity) - level
        if missing <= _SLACK * self.capacity:
            return now
        return self.at + missing / self.rate if self.rate > 0 else math.inf

    def take(self, cost: float, now: float) -> None:
        """Take a cost out; the level may become negative."""
        self.level = self.fill(now) - cost

    def give_back(self, cost: float, now: float) -> None:
        """Put back what was taken too much (or take, where the cost is negative); never above the capacity."""
        self.level = min(self.capacity, self.fill(now) + cost)

    def scale(self, rate: float, now: float) -> None:
        """Change the rate; level and capacity change in proportion."""
        factor = rate / self.rate if self.rate > 0 else 1.0
        self.level = self.fill(now) * factor
        self.capacity *= factor
        self.rate = rate
