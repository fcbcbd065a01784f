"""Scores a target for the next call by its speed, its failures and its running calls."""

from __future__ import annotations

import math

TIME_SMOOTHING = 0.2
"""Weight of the latest time to the first event in the smoothed time."""

FAILURE_SMOOTHING = 0.1
"""Weight of the latest outcome in the smoothed share of failures."""

MOST_FAILURES = 0.98
"""The share of failures above which the score grows no further."""

FAILURE_COST = 2.0
"""Seconds that are added to the score for one failure per success."""

STALE = 5.0
"""Seconds without an outcome after which an idle target is tried with one call."""


class Score:
    """The times and failures of one target.

    outstanding: the number of running calls.
    time: the smoothed seconds to the first event of successful calls; `math.inf` before the first one.
    failures: the smoothed share of failed calls, from 0 to 1.
    heard_at: the time of the last outcome.
    is_failing: whether that was a failure.
    """

    __slots__ = ("failures", "heard_at", "is_failing", "outstanding", "time")

    def __init__(self) -> None:
        self.outstanding: int = 0
        self.time: float = math.inf
        self.failures: float = 0.0
        self.heard_at: float = -math.inf
        self.is_failing: bool = False

    @property
    def is_known(self) -> bool:
        """True if the target has answered a call."""
        return self.time < math.inf

    def is_due(self, now: float) -> bool:
        """Return True if an idle target should get one call, because it has no outcome or none for `STALE` seconds."""
        return self.outstanding == 0 and (not self.is_known or now - self.heard_at >= STALE)

    def value(self) -> float:
        """Return the expected seconds of a call, with an allowance for failures. The lowest score is the best."""
        share = min(self.failures, MOST_FAILURES)
        return (self.outstanding + 1) * self.time + FAILURE_COST * share / (1.0 - share)

    def succeed(self, seconds: float, now: float) -> None:
        """Record that a call's first event came after `seconds`."""
        self.time = seconds if not self.is_known else self.time + TIME_SMOOTHING * (seconds - self.time)
        self.failures -= FAILURE_SMOOTHING * self.failures
        self.heard_at, self.is_failing = now, False

    def fail(self, now: float) -> None:
        """Record that a call failed by the target's fault."""
        self.failures += FAILURE_SMOOTHING * (1.0 - self.failures)
        self.heard_at, self.is_failing = now, True
