"""Token buckets: of limits with a known number, which a server reports or the user declares, and of learned limits.

The caller passes the time to every method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ....providers.limits.quota_report import MINUTE, ReportedLimit, Unit
from .rate_limit import RateLimit, limits_of

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
                level = self.level + (now - self.at) * self.rate
                self.level = level if level < self.capacity else self.capacity  # `min` costs each start of a call more
            self.at = now
        return self.level

    def ready_at(self, cost: float, now: float) -> float:
        """Return the time at which `cost` fits: `now` or later, `math.inf` if it does not fit and the rate is 0."""
        level = self.fill(now) if now > self.at else self.level
        missing = (cost if cost < self.capacity else self.capacity) - level
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
        level = self.fill(now) + cost
        self.level = level if level < self.capacity else self.capacity

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


LEAST_RISE = 2.0
"""Seconds by which the reset must rise between two reports. A reset in whole seconds may rise by one from rounding."""

LEAST_FALL = 2.0
"""Seconds by which the reset falls, although more is used, in a server that counts in fixed windows."""


class BucketSize:
    """The smallest bucket that fits the resets reported so far for one limit.

    A server reports the part of its limit that is left, and the seconds until all of it is left. In a bucket that holds
    ten seconds of the rate, a tenth more used means one second more until it is full. Two reports thus show the
    bucket's size, even if the numbers of both are those of a whole minute.

    seconds: the seconds of the rate that the bucket holds at most; `math.inf` if that is not known.
    """

    __slots__ = ("_has_windows", "_reset", "_used", "seconds")

    def __init__(self) -> None:
        self.seconds: float = math.inf
        self._has_windows = False
        self._used = math.inf
        self._reset = 0.0

    def read(self, limit: ReportedLimit, age: float = 0.0) -> bool:
        """Read one report. Return True if it shows that the bucket is smaller than known before.

        age: the seconds since the moment that the report describes.
        """
        if self._has_windows or not limit.limit or limit.remaining is None or limit.reset is None:
            return False
        used = 1.0 - limit.remaining / limit.limit
        reset = limit.reset + age if limit.reset_is_moment else limit.reset
        rise = reset - self._reset
        if used < self._used:
            self._used, self._reset = used, reset
            return False
        if rise <= -LEAST_FALL:
            self._has_windows = True
            self.seconds = math.inf
        if rise < LEAST_RISE or used == self._used:
            return False
        seconds = (rise + limit.reset_step) / (used - self._used)
        if seconds >= 0.99 * self.seconds:
            return False
        self.seconds = seconds
        return True


LONG_WINDOW = 3600.0
"""A limit whose window has at least this many seconds is one bucket of the whole limit, which can be used at once."""


@dataclass(slots=True)
class ReportedBucket:
    """A bucket whose rate comes from a response or from the user.

    unit: what the limit counts.
    window: the seconds for which the limit's number applies.
    declared: True if the limit comes from the user.
    whole: the units of a window, if the bucket's rate is only a leased part of them; else 0.
    noted: the rate that was last logged.
    as_of: the time of sending of the call whose response has reported the rate. Responses of earlier calls may come
        later, and do not change it.
    begun: since when the number holds: the first call, the latest refusal before it, or the change to this number.
    answered: the units that the server has answered of calls that were sent since then.
    size: the size of the server's bucket, as far as its reports show it.
    """

    name: str
    unit: Unit
    window: float
    bucket: Bucket
    declared: bool
    whole: float = 0.0
    noted: float = 0.0
    as_of: float = -math.inf
    begun: float = 0.0
    answered: float = 0.0
    size: BucketSize = field(default_factory=BucketSize)

    @property
    def limit(self) -> float:
        """The units that a window allows."""
        return self.whole or self.bucket.rate * self.window

    @property
    def rate(self) -> float:
        """The units that the limit allows per second."""
        return self.whole / self.window if self.whole else self.bucket.rate


def reported_bucket(limit: ReportedLimit, now: float, *, declared: bool = False) -> ReportedBucket:
    """Make a full bucket for a limit whose number is known.

    The capacity of a declared limit is that of its window. The capacity of a reported limit is that of a minute, or of
    its window if that is an hour or more.
    """
    number = limit.limit or 0.0
    rate = number / limit.window
    span = limit.window if declared or limit.window >= LONG_WINDOW else MINUTE
    return ReportedBucket(limit.name, limit.unit, limit.window, Bucket(rate, rate * span, rate * span, now), declared)


def declared_buckets(limit: RateLimit, now: float = 0.0, of: str = "") -> tuple[ReportedBucket, ...]:
    """Make the buckets of a declared limit. Quotas that get the same buckets share the limit.

    of: the entry of `rates` that declares the limit, for the buckets' names.
    """
    return tuple(reported_bucket(row, now, declared=True) for row in limits_of(limit, of))


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


class LearnedBucket(Bucket):
    """The learned limit of one unit. Its capacity is one second of its rate, at least the first refused call's cost.

    It stands for a limit that no server reports exactly: one that is enforced per second, one with a smaller bucket
    than the reported number suggests, or the rest that other programs with the same key leave.

    made_at: the time at which the bucket was made. Calls that were sent earlier took nothing from it.
    backoff: seconds of the next hold. Above `FIRST_BACKOFF` the last refusal came soon after the one before, although
        the rate was kept.
    cut_at: the time of the refusal that began the current series of refusals. A refusal of a call that was sent
        earlier belongs to this series and cuts nothing.
    """

    def __init__(self, rate: float, cost: float, now: float, reported: float = math.inf) -> None:
        """Make an empty bucket.

        rate: the rate to begin with, in units per second; at least `LEAST_CALLS` calls a second.
        now: the current time.
        reported: the limit that the server reports, in units per second; `math.inf` if it reports none.
        """
        least = LEAST_CALLS * cost
        super().__init__(max(rate, least), max(rate, cost), 0.0, now)
        self.cut_at: float = now
        self.made_at: float = now
        self._least_capacity = cost
        self._accepted = 0.0
        self.backoff: float = FIRST_BACKOFF
        self._allowance = 0.0
        self._allowance_at = now
        self._reported = reported
        self._growth, self._growth_per_second = GROWTH, GROWTH_PER_SECOND
        if rate <= least:
            self._recover()

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
        self.level = self.fill(now) + cost

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
            self.backoff = FIRST_BACKOFF
            return 0.0
        hold = self.backoff
        self.backoff = min(LONGEST_BACKOFF, 2.0 * hold)
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
        level = min(cost, self.capacity) - self.rate * (until - now)
        self.level = min(self.fill(now), level)

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
        self.fill(now)
        self.rate: float = max(rate, LEAST_CALLS * self._least_capacity)
        self.capacity: float = max(self.rate, self._least_capacity)
        self.level: float = min(self.level, self.capacity)


def first_rate(reported: float, sent: float, seconds: float) -> float:
    """Return the rate to begin with: the reported rate, or half of the rate of sending so far.

    reported: the reported rate; `math.inf` if there is none.
    sent: the units sent so far.
    seconds: the time since the first was sent.
    """
    return reported if math.isfinite(reported) else 0.5 * sent / max(1.0, seconds)
