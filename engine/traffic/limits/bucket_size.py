"""The size of a server's bucket, computed from the resets that it reports.

A server reports the part of its limit that is left, and the seconds until all of it is left. In a bucket that holds ten
seconds of the rate, a tenth more used means one second more until it is full. Two reports thus show the bucket's size,
even if the numbers of both are those of a whole minute.
"""

from __future__ import annotations

import math

from ....providers.limits.quota_report import ReportedLimit

LEAST_RISE = 2.0
"""Seconds by which the reset must rise between two reports. A reset in whole seconds may rise by one from rounding."""

LEAST_FALL = 2.0
"""Seconds by which the reset falls, although more is used, in a server that counts in fixed windows."""


class BucketSize:
    """The smallest bucket that fits the resets reported so far for one limit.

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
