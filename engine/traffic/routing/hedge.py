"""Hedging: decides when a call without a first event is sent a second time, to another target."""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

from ....providers.errors import InvalidRequestError
from ....providers.model.rules import LARGEST, described

REMEMBERED = 200
"""The number of latest first events from which the percentile is computed."""

LEAST_KNOWN = 20
"""The number of first events below which there is no percentile, and no second attempt."""

_ROUNDING = 1e-9

MINUTE = 60
"""The number of seconds over which calls and second attempts are counted."""


@dataclass(slots=True, frozen=True)
class Hedge:
    """The options for a second attempt of a call whose first event is late.

    after: seconds without an event; or "p95": the 95th percentile of the time to the first event in the last 200 calls.
    at_most: the largest part of the last minute's calls that may be sent twice, above 0 and up to 1.
    """

    after: float | Literal["p95"] = "p95"
    at_most: float = 0.05

    def __post_init__(self) -> None:
        if self.after != "p95" and not _is_between(self.after, LARGEST):
            raise InvalidRequestError(
                "hedge.after", f'must be "p95" or a number of seconds above 0, not {described(self.after)}'
            )
        if not _is_between(self.at_most, 1 + 1e-9):
            raise InvalidRequestError(
                "hedge.at_most", f"must be a part above 0 and up to 1, not {described(self.at_most)}"
            )


def _is_between(value: object, end: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < end


class HedgeState:
    """The recent first events and second attempts of one route.

    hedge: the options.
    total: the number of second attempts so far.
    """

    def __init__(self, hedge: Hedge) -> None:
        self.hedge = hedge
        self.total: int = 0
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        # Calls and second attempts in each of the last 60 seconds. The index is the second modulo 60.
        self._calls = [0] * MINUTE
        self._hedges = [0] * MINUTE
        self._second = 0

    def begin(self, now: float, *, again: bool = False) -> float:
        """Record that a call is sent. Return the time of its second attempt; `math.inf` if that is not known.

        again: the call was sent before, and is counted.
        """
        self._turn(now)
        if not again:
            self._calls[self._second % MINUTE] += 1
        if not isinstance(self.hedge.after, str):
            return now + self.hedge.after
        if len(self._sorted) < LEAST_KNOWN:
            return math.inf
        return now + self._sorted[int(0.95 * len(self._sorted))]

    def first_event(self, seconds: float) -> None:
        """Record the seconds from a call's first attempt to its first event."""
        self._recent.append(seconds)
        bisect.insort(self._sorted, seconds)
        if len(self._recent) > REMEMBERED:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft())]

    def allows(self, now: float) -> bool:
        """Return whether one more second attempt may be made now."""
        self._turn(now)
        return sum(self._hedges) + 1 <= self.hedge.at_most * sum(self._calls) + _ROUNDING

    def take(self, now: float) -> bool:
        """Return True, and count a second attempt, if one may be made now."""
        if not self.allows(now):
            return False
        self._hedges[self._second % MINUTE] += 1
        self.total += 1
        return True

    def _turn(self, now: float) -> None:
        """Clear the counts of the seconds that have begun since the last call of this method."""
        second = int(now)
        for passed in range(max(self._second + 1, second - MINUTE + 1), second + 1):
            self._calls[passed % MINUTE] = self._hedges[passed % MINUTE] = 0
        self._second = max(self._second, second)
