"""A rate limit learned from refusals: its bucket, its cuts and its growth.

It stands for a limit that no server reports exactly: one that is enforced per second, one with a smaller bucket than
the reported number suggests, or the rest that other programs with the same key leave.
"""

from __future__ import annotations

import math

from .bucket import Bucket

CUT = 0.7
"""The factor by which a refusal multiplies the rate."""

COSTS_BEFORE_CUT = 10
"""A refusal cuts the rate only if costs of this many calls like the refused one were accepted since the last cut.
After fewer, the rate has not been tested, and only the hold becomes longer."""

LEAST_CALLS = 0.1
"""The least rate, in calls per second like the first refused one."""

GROWTH = 0.02
"""The part of the rate that one accepted call adds to it."""

GROWTH_PER_SECOND = 0.05
"""The largest part of the rate that the accepted calls of one second add to it."""

RECOVERY = 1.0
"""Both, while the rate is not known: from the end of an outage, or from the least rate, until the next refusal."""

FIRST_BACKOFF = 0.25
"""Seconds of hold after the first refusal. Each further refusal without an accepted call doubles the hold."""

LONGEST_BACKOFF = 16.0
"""The longest hold in seconds after repeated refusals."""

TRIED_ENOUGH = 1.0
"""A hold of at least this many seconds also cuts the rate, if any call was accepted since the last cut: a server that
runs one call at a time never accepts ten. If none was, the refusals say nothing more about the rate."""

OUTAGE = LONGEST_BACKOFF
"""If no call was accepted since the last cut before a hold of this many seconds, the server was out of order, and the
rate is not known."""


class LearnedBucket:
    """The learned limit of one unit. Its capacity is one second of its rate, at least the first refused call's cost.

    bucket: the token bucket with the learned rate.
    made_at: the time at which the bucket was made. Calls that were sent earlier took nothing from it.
    cut_at: the time of the refusal that began the current series of refusals. A refusal of a call that was sent
        earlier belongs to this series and cuts nothing.
    """

    __slots__ = (
        "_accepted",
        "_allowance",
        "_allowance_at",
        "_backoff",
        "_growth",
        "_growth_per_second",
        "_least_capacity",
        "_reported",
        "bucket",
        "cut_at",
        "made_at",
    )

    def __init__(self, rate: float, cost: float, now: float, reported: float = math.inf) -> None:
        """Make an empty bucket.

        rate: the rate to begin with, in units per second; at least `LEAST_CALLS` calls a second.
        cost: the cost of the refused call.
        now: the current time.
        reported: the limit that the server reports, in units per second; `math.inf` if it reports none.
        """
        least = LEAST_CALLS * cost
        self.bucket: Bucket = Bucket(max(rate, least), max(rate, cost), 0.0, now)
        self.cut_at: float = now
        self.made_at: float = now
        self._least_capacity = cost
        self._accepted = 0.0
        self._backoff = FIRST_BACKOFF
        self._allowance = 0.0
        self._allowance_at = now
        self._reported = reported
        self._growth, self._growth_per_second = GROWTH, GROWTH_PER_SECOND
        if rate <= least:
            self._recover()

    @property
    def rate(self) -> float:
        """The learned rate, in units per second."""
        return self.bucket.rate

    @property
    def is_in_vain(self) -> bool:
        """True if the last refusal came soon after the one before, although the rate was kept."""
        return self._backoff > FIRST_BACKOFF

    def accept(self, cost: float, ceiling: float, now: float) -> None:
        """Record an accepted call, and raise the rate, at most to `ceiling`.

        ceiling: the limit that the server reports now, in units per second; `math.inf` if it reports none. If it has
            changed since the last call, the rate changes with it.
        """
        self._accepted += cost
        self._follow(ceiling, now)
        self._allowance += (now - self._allowance_at) * self._growth_per_second
        self._allowance = min(self._allowance, self._growth_per_second)
        self._allowance_at = now
        growth = min(self._growth, self._allowance)
        self._allowance -= growth
        if growth > 0 and self.rate < ceiling:
            self._set_rate(min(ceiling, self.rate * (1.0 + growth)), now)

    def give_back(self, cost: float, now: float) -> None:
        """Return the excess charge of an ended call to the bucket, also above the capacity.

        The capacity is that of one second, but calls that end together may return charges of a whole minute.
        """
        self.bucket.level = self.bucket.fill(now) + cost

    def refuse(self, cost: float, ceiling: float, now: float) -> float:
        """Record the refusal of a call that was sent after `cut_at`. Return the seconds of hold that follow from it.

        ceiling: the limit that the server reports now. If it has fallen by more than a cut, it is the reason.
        """
        self.cut_at = now
        if self._accepted > 0:
            self._growth, self._growth_per_second = GROWTH, GROWTH_PER_SECOND
        explained = ceiling < CUT * self._reported < math.inf
        self._follow(ceiling, now)
        if explained or self._accepted >= COSTS_BEFORE_CUT * cost:
            self._accepted = 0.0
            if not explained:
                self._set_rate(self.rate * CUT, now)
            self._backoff = FIRST_BACKOFF
            return 0.0
        hold = self._backoff
        self._backoff = min(LONGEST_BACKOFF, 2.0 * hold)
        if hold >= TRIED_ENOUGH:
            if self._accepted > 0:
                self._cut(now)
            elif hold >= OUTAGE:
                self._recover()
        return hold

    def hold(self, cost: float, until: float, now: float) -> None:
        """Lower the level so that one call of this cost fits at the time `until`, and not earlier.

        Further calls fit as the bucket refills. A lower level is not raised, because its units were already taken.
        """
        level = min(cost, self.bucket.capacity) - self.rate * (until - now)
        self.bucket.level = min(self.bucket.fill(now), level)

    def _follow(self, ceiling: float, now: float) -> None:
        """Change the rate as the limit changes that the server reports, if it has reported one before."""
        if ceiling != self._reported and ceiling < math.inf and self._reported < math.inf:
            risen = self.rate * ceiling / self._reported if self._reported > 0 else ceiling
            self._set_rate(min(ceiling, risen) if risen > self.rate else risen, now)
        self._reported = ceiling

    def _recover(self) -> None:
        self._growth = self._growth_per_second = RECOVERY

    def _cut(self, now: float) -> None:
        self._accepted = 0.0
        self._set_rate(self.rate * CUT, now)

    def _set_rate(self, rate: float, now: float) -> None:
        self.bucket.fill(now)
        self.bucket.rate = rate = max(rate, LEAST_CALLS * self._least_capacity)
        self.bucket.capacity = max(rate, self._least_capacity)
        self.bucket.level = min(self.bucket.level, self.bucket.capacity)


def first_rate(reported: float, sent: float, seconds: float) -> float:
    """Return the rate to begin with: the reported rate, or half of the rate of sending so far.

    reported: the reported rate; `math.inf` if there is none.
    sent: the units sent so far.
    seconds: the time since the first was sent.
    """
    return reported if math.isfinite(reported) else 0.5 * sent / max(1.0, seconds)
