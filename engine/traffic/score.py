"""How good a target is for the next call: how fast it answered, how often it failed, how much it has to do.

Knows outcomes and the time that it is given. Must not know routes.
"""

from __future__ import annotations

import math

TIME_SMOOTHING = 0.2
FAILURE_SMOOTHING = 0.1
MOST_FAILURES = 0.98
FAILURE_COST = 2.0
"""Seconds that one failure for each success adds to the score."""

STALE = 5.0
"""Seconds without an outcome after which an idle target is tried with one call."""


class Score:
    """One target's record.

    outstanding: calls under way.
    time: smoothed seconds to the first event of good answers; `math.inf` before the first.
    failures: smoothed share of failures.
    heard_at: when the last outcome came.
    """

    __slots__ = ("failures", "heard_at", "outstanding", "time")

    def __init__(self) -> None:
        self.outstanding: int = 0
        self.time: float = math.inf
        self.failures: float = 0.0
        self.heard_at: float = -math.inf

    @property
    def is_known(self) -> bool:
        """Whether it has answered."""
        return self.time < math.inf

    def is_due(self, now: float) -> bool:
        """Whether it should be tried with one call, because nothing is known of it, or nothing of late."""
        return self.outstanding == 0 and (not self.is_known or now - self.heard_at >= STALE)

    def value(self) -> float:
        """Seconds that a call is expected to take, its failures included; the least is the best."""
        share = min(self.failures, MOST_FAILURES)
        return (self.outstanding + 1) * self.time + FAILURE_COST * share / (1.0 - share)

    def succeed(self, seconds: float, now: float) -> None:
        """A call was answered: its first event came after so many seconds."""
        self.time = seconds if not self.is_known else self.time + TIME_SMOOTHING * (seconds - self.time)
        self.failures -= FAILURE_SMOOTHING * self.failures
        self.heard_at = now

    def fail(self, now: float) -> None:
        """A call failed by the target's fault."""
        self.failures += FAILURE_SMOOTHING * (1.0 - self.failures)
        self.heard_at = now
