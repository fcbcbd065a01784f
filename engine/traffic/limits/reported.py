"""A limit with a known number, which a server reports or the user declares, as a token bucket."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ....providers.limits.quota_report import MINUTE, ReportedLimit, Unit
from .bucket import Bucket
from .bucket_size import BucketSize
from .rate_limit import RateLimit, limits_of

LONG_WINDOW = 3600.0
"""A limit whose window has at least this many seconds is one bucket of the whole limit, which can be used at once."""


@dataclass(slots=True)
class ReportedBucket:
    """A bucket whose rate comes from a response or from the user.

    name: the name of the limit.
    unit: what the limit counts.
    window: the seconds for which the limit's number applies.
    bucket: the token bucket.
    declared: True if the limit comes from the user.
    whole: the units of a window, if the bucket's rate is only a leased part of them; else 0.
    noted: the rate that was last logged.
    as_of: the time of sending of the call whose response has reported the rate. Responses of earlier calls may come
        later, and do not change it.
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
