"""A rate that refusals have taught: the bucket, its cuts and its growth.

Knows one limit that nothing reports truly: one enforced by the second, a smaller bucket than the number suggests, the
part that other programs on the key leave over. Must not know reports nor tickets.
"""

from __future__ import annotations

import math

from .bucket import Bucket

CUT = 0.7
"""A refusal multiplies the rate by this."""

COSTS_BEFORE_CUT = 10
"""So many costs like the refused one must have been accepted since the last cut. With fewer, the rate has not been
tried, and only the hold becomes longer."""

GROWTH = 0.02
"""What one accepted call adds to the rate."""

GROWTH_PER_SECOND = 0.05
"""What all accepted calls of one second add to it at most."""

FIRST_BACKOFF = 0.25
LONGEST_BACKOFF = 16.0
"""Seconds of hold where refusals come without calls being accepted in between; doubled each time."""

TRIED_ENOUGH = 1.0
"""From this hold on the rate is cut as well: on a server that takes one call at a time, ten are never accepted."""


class LearnedBucket:
    """One unit's learned limit. Its capacity is one second of its rate, at least the call that taught it.

    made_at: when the bucket was made. Calls sent until then took nothing from it.
    cut_at: when the last episode of refusals began. A refusal of a call sent before that belongs to the same episode.
    """

    __slots__ = (
        "_accepted",
        "_allowance",
        "_allowance_at",
        "_backoff",
        "_least_capacity",
        "bucket",
        "cut_at",
        "made_at",
    )

    def __init__(self, rate: float, cost: float, now: float) -> None:
        self.bucket: Bucket = Bucket(rate, max(rate, cost), 0.0, now)
        self.cut_at: float = now
        self.made_at: float = now
        self._least_capacity = cost
        self._accepted = 0.0
        self._backoff = FIRST_BACKOFF
        self._allowance = 0.0
        self._allowance_at = now

    @property
    def rate(self) -> float:
        """Per second."""
        return self.bucket.rate

    def accept(self, cost: float, ceiling: float, now: float) -> None:
        """A call was accepted. The rate grows, up to the ceiling."""
        self._accepted += cost
        self._allowance += (now - self._allowance_at) * GROWTH_PER_SECOND
        self._allowance = min(self._allowance, GROWTH_PER_SECOND)
        self._allowance_at = now
        growth = min(GROWTH, self._allowance)
        self._allowance -= growth
        if growth > 0 and self.rate < ceiling:
            self._set_rate(min(ceiling, self.rate * (1.0 + growth)), now)

    def give_back(self, cost: float, now: float) -> None:
        """Give back what a call was charged too much. It stays even above the capacity, which is one second's: calls
        of a minute that end together give back what was taken over that minute."""
        self.bucket.level = self.bucket.fill(now) + cost

    def refuse(self, cost: float, now: float) -> float:
        """A call that was sent after the last cut was refused. Returns the seconds of hold that this asks for."""
        self.cut_at = now
        if self._accepted >= COSTS_BEFORE_CUT * cost:
            self._accepted = 0.0
            self._backoff = FIRST_BACKOFF
            self._set_rate(self.rate * CUT, now)
            return 0.0
        hold = self._backoff
        self._backoff = min(LONGEST_BACKOFF, 2.0 * hold)
        if hold >= TRIED_ENOUGH:
            self._set_rate(self.rate * CUT, now)
        return hold

    def hold(self, cost: float, until: float, now: float) -> None:
        """Lower the level so that there is room for one such call at `until` at most: the refill is the ramp. A lower
        level stays, as raising it would forgive what was taken."""
        level = min(cost, self.bucket.capacity) - self.rate * (until - now)
        self.bucket.level = min(self.bucket.fill(now), level)

    def _set_rate(self, rate: float, now: float) -> None:
        self.bucket.fill(now)
        self.bucket.rate = rate
        self.bucket.capacity = max(rate, self._least_capacity)
        self.bucket.level = min(self.bucket.level, self.bucket.capacity)


def first_rate(reported: float, sent: float, seconds: float) -> float:
    """The rate at the first refusal: the reported one, else half of what was sent per second so far."""
    return reported if math.isfinite(reported) else 0.5 * sent / max(1.0, seconds)
