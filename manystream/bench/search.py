"""The search for the highest rate at which a server keeps a service level objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from .runs import Run

Z = 1.645
"""The quantile of the normal distribution for a one-sided confidence of 95 %."""
TOLERANCE = 1.05
"""The search ends when the lowest rate that failed is at most so many times the highest one that kept the objective."""
MOST_REPEATS = 3
"""The most runs at one rate, if the calls of fewer do not decide it, or other processes disturb them."""
MOST_RATES = 16
LOWEST_RATE = 0.05
"""Calls per second below which the search gives up."""


@dataclass(slots=True)
class Step:
    """What was measured at one rate.

    rate: calls per second.
    good, due: calls that kept the objective, of those that were due, in all runs that are not invalid.
    """

    rate: float
    runs: list[Run] = field(default_factory=list[Run])
    good: int = 0
    due: int = 0

    @property
    def run(self) -> Run:
        """The last run that is not invalid; if all are, the last one."""
        return next((run for run in reversed(self.runs) if run.verdict.valid is not False), self.runs[-1])

    @property
    def share(self) -> float:
        """The share of the calls that kept the objective."""
        return self.good / self.due if self.due else 0.0

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the true share, each with a confidence of 95 % (Wilson's score interval)."""
        if not self.due:
            return 0.0, 1.0
        count, share = self.due, self.share
        centre = share + Z * Z / (2 * count)
        half = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
        whole = 1 + Z * Z / count
        return max(0.0, centre - half) / whole, (centre + half) / whole

    def keeps(self, attain: float) -> bool | None:
        """Whether the objective is kept for at least this share of calls; None if the calls do not decide it."""
        low, high = self.bounds
        return True if low >= attain else False if high < attain else None


@dataclass(slots=True)
class Search:
    """A search and its result.

    attain: the share of calls that must keep the objective.
    steps: the rates that were measured, in order.
    best: the highest rate that kept it; None if none did.
    certain: whether `best` kept it with a confidence of 95 %, and not by its share alone.
    limited_by_client: whether the search ended at a rate that this client could not make or measure.
    """

    attain: float
    steps: list[Step] = field(default_factory=list[Step])
    best: float | None = None
    certain: bool = False
    limited_by_client: bool = False
    interrupted: bool = False

    def run(self, measure: Callable[[float, int], Run], first: float, last: float | None) -> None:
        """Measure rates until the highest one is known to 5 %.

        measure: makes a run at a rate; the second argument varies its seed.
        last: the highest rate to try; None for no bound.
        """
        failed: float | None = None
        rate = first
        for _ in range(MOST_RATES):
            step = self._measure(measure, rate)
            if self.interrupted:
                return
            decided = step.keeps(self.attain)
            if step.run.verdict.valid is False:
                self.limited_by_client, failed = True, rate
            elif decided is True or (decided is None and step.share >= self.attain):
                self.best, self.certain = rate, decided is True
                if rate == last:
                    return
            else:
                failed, self.limited_by_client = rate, False
            if failed is None:
                rate = rate * 2 if last is None else min(rate * 2, last)
            elif self.best is None:
                rate = failed / 2
                if rate < LOWEST_RATE:
                    return
            elif failed <= self.best * TOLERANCE:
                return
            else:
                rate = math.sqrt(self.best * failed)

    def _measure(self, measure: Callable[[float, int], Run], rate: float) -> Step:
        step = Step(rate)
        self.steps.append(step)
        while len(step.runs) < MOST_REPEATS:
            run = measure(rate, len(step.runs))
            step.runs.append(run)
            self.interrupted = run.result.interrupted
            if run.verdict.valid is False:
                if self.interrupted or run.verdict.largest is not None:
                    break
                continue  # other processes were the cause, and not the load
            step.good += run.result.figures.good
            step.due += run.result.figures.due
            if self.interrupted or step.keeps(self.attain) is not None:
                break
        return step
