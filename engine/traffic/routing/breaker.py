"""A circuit breaker: after several failures in a row, it lets no call through to a target for a pause.

There are two kinds of failures. A call that fails before its first event is followed by a first event of another call,
if the target works. A stream that breaks after its first event is followed by a complete answer, if the target works.
"""

from __future__ import annotations

import enum
import math

FAILURES = 5
"""The number of failures of one kind in a row that opens a breaker."""

OPEN_FOR = 2.0
"""The length of the pause in seconds. It is constant, so that a recovered target is used within this time."""


class BreakerState(enum.StrEnum):
    """The calls that a breaker lets through."""

    CLOSED = "closed"
    """Every call."""
    OPEN = "open"
    """No call."""
    PROBING = "probing"
    """One call, whose outcome decides."""


class Breaker:
    """The breaker of one target. Failures of calls that were sent before it opened do not lengthen the pause."""

    __slots__ = ("_broken", "_failures", "_opened_at", "_probe_at")

    def __init__(self) -> None:
        self._failures = 0  # calls without a first event, since the last first event
        self._broken = 0  # streams that broke, since the last complete answer
        self._opened_at = -math.inf
        # The time at which the probing call was sent; `math.inf` while there is none. Only an open breaker reads it.
        self._probe_at = math.inf

    def state(self, now: float) -> BreakerState:
        """Return the breaker's state at the time `now`."""
        if not self.is_tripped:
            return BreakerState.CLOSED
        if self._probe_at < math.inf or now < self._opened_at + OPEN_FOR:
            return BreakerState.OPEN
        return BreakerState.PROBING

    @property
    def is_tripped(self) -> bool:
        """Whether so many calls have failed that it is not closed."""
        return self._failures >= FAILURES or self._broken >= FAILURES

    def next_time(self, now: float) -> float:
        """Return the time of the next probing call; `now` if calls may be sent; `math.inf` while a probe runs."""
        if self.state(now) is not BreakerState.OPEN:
            return now
        return math.inf if self._probe_at < math.inf else self._opened_at + OPEN_FOR

    def begin(self, now: float) -> None:
        """Record that a call is sent. The first call after the pause is the probing call."""
        if self.state(now) is BreakerState.PROBING:
            self._probe_at = now

    def succeed(self) -> None:
        """Record the first event of a call, and close the breaker, unless broken streams have opened it."""
        self._failures = 0

    def complete(self) -> None:
        """Record a complete answer, and close the breaker."""
        self._failures = self._broken = 0

    def fail(self, sent_at: float, now: float, *, broke: bool = False) -> None:
        """Record that a call failed by the target's fault.

        sent_at: the time at which the call was sent.
        broke: its first event had come.
        """
        if self.is_tripped and sent_at < self._probe_at:
            return
        if broke:
            self._broken = min(FAILURES, self._broken + 1)
        else:
            self._failures = min(FAILURES, self._failures + 1)
        self._probe_at = math.inf
        if self.is_tripped:
            self._opened_at = now

    def end(self, sent_at: float) -> None:
        """Record the end of a call. If it was the probing call and had no outcome, the next call is the probing call.

        sent_at: the time at which the call was sent.
        """
        if sent_at >= self._probe_at:
            self._probe_at = math.inf
