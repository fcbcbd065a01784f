"""A token bucket. The caller passes the time to every method."""

from __future__ import annotations

import math

_SLACK = 1e-6
"""The part of the capacity that may be missing from rounding, so that a cost fits at the time `ready_at` returned."""


class Bucket:
    """A bucket that fills at a constant rate.

    A cost above the capacity may be taken when the bucket is full. The level is then negative, and the following calls
    wait until it has refilled. Thus the mean rate is never exceeded.

    rate: units that flow in per second.
    capacity: the largest level that the flow reaches.
    level: the units in the bucket at the time `at`.
    at: the time at which `level` was last updated.
    """

    __slots__ = ("at", "capacity", "level", "rate")

    def __init__(self, rate: float, capacity: float, level: float, at: float) -> None:
        self.rate: float = rate
        self.capacity: float = capacity
        self.level: float = min(level, capacity)
        self.at: float = at

    def fill(self, now: float) -> float:
        """Update the level to the time `now`, and return it. A level above the capacity stays as it is."""
        if now > self.at:
            if self.level < self.capacity:
                self.level = min(self.capacity, self.level + (now - self.at) * self.rate)
            self.at = now
        return self.level

    def ready_at(self, cost: float, now: float) -> float:
        """Return the time at which `cost` fits: `now` or later, `math.inf` if it does not fit and the rate is 0."""
        level = self.fill(now)
        missing = min(cost, self.capacity) - level
        if missing <= _SLACK * self.capacity:
            return now
        return self.at + missing / self.rate if self.rate > 0 else math.inf

    def take(self, cost: float, now: float) -> None:
        """Take `cost` out of the bucket. The level may become negative."""
        if now > self.at:
            self.fill(now)
        self.level -= cost

    def give_back(self, cost: float, now: float) -> None:
        """Return `cost` to the bucket, up to the capacity. A negative cost is taken out."""
        self.level = min(self.capacity, self.fill(now) + cost)

    def scale(self, rate: float, now: float) -> None:
        """Change the rate. The level and the capacity change in proportion.

        A negative level stays: it is what was taken in excess, whatever the rate.
        """
        factor = rate / self.rate if self.rate > 0 else 1.0
        self.level = self.fill(now)
        if self.level > 0:
            self.level *= factor
        self.capacity *= factor
        self.rate = rate
