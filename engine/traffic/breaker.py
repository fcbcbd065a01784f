"""Whether a target that failed again and again is left alone for a while.

Knows outcomes and the time that it is given. Must not know targets.
"""

from __future__ import annotations

import enum
import math

FAILURES = 5
"""So many failures in a row open a breaker."""

OPEN_FOR = 2.0
"""Seconds. Always the same: a target that is back is used within this time."""


class BreakerState(enum.StrEnum):
    """What a breaker lets through."""

    CLOSED = "closed"
    """Every call."""
    OPEN = "open"
    """No call."""
    PROBING = "probing"
    """One call, whose outcome decides."""


class Breaker:
    """One target's breaker. Failures of calls that were sent before it opened do not prolong the pause."""

    __slots__ = ("_failures", "_opened_at", "_probe_at")

    def __init__(self) -> None:
        self._failures = 0
        self._opened_at = -math.inf
        # When the call that is being tried was sent; `math.inf` while none is.
        self._probe_at = math.inf

    def state(self, now: float) -> BreakerState:
        """Where it stands."""
        if self._failures < FAILURES:
            return BreakerState.CLOSED
        if self._probe_at < math.inf or now < self._opened_at + OPEN_FOR:
            return BreakerState.OPEN
        return BreakerState.PROBING

    def next_time(self, now: float) -> float:
        """When one call may be tried; `now` where calls may go; `math.inf` while one is being tried."""
        if self.state(now) is not BreakerState.OPEN:
            return now
        return math.inf if self._probe_at < math.inf else self._opened_at + OPEN_FOR

    def begin(self, now: float) -> None:
        """A call is sent. After the pause it is the one that is tried."""
        if self.state(now) is BreakerState.PROBING:
            self._probe_at = now

    def succeed(self) -> None:
        """A call was answered: the breaker is closed."""
        self._failures = 0
        self._probe_at = math.inf

    def fail(self, sent_at: float, now: float) -> None:
        """A call that was sent then failed by the target's fault."""
        if self._failures == FAILURES and sent_at < self._probe_at:
            return
        self._failures = min(FAILURES, self._failures + 1)
        self._probe_at = math.inf
        if self._failures == FAILURES:
            self._opened_at = now

    def end(self, sent_at: float) -> None:
        """A call that was sent then is over; where it was the one that was tried and had no outcome, another may be."""
        if sent_at >= self._probe_at:
            self._probe_at = math.inf
