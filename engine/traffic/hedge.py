"""When a call that has heard nothing is sent a second time, elsewhere.

Knows times to the first event and the time that it is given. Must not know calls nor targets.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

from ...providers.errors import InvalidRequestError

REMEMBERED = 200
"""First events that the percentile is taken of."""

LEAST_KNOWN = 20
"""Before so many are known there is no percentile, and no second attempt."""

MINUTE = 60


@dataclass(slots=True, frozen=True)
class Hedge:
    """A second attempt for a call that is slow to begin.

    after: seconds without anything, or `"p95"`: what 95 % of the last 200 calls took to their first event.
    at_most: the part of the last minute's calls that may be sent twice.
    """

    after: float | Literal["p95"] = "p95"
    at_most: float = 0.05

    def __post_init__(self) -> None:
        if self.after != "p95" and not _is_between(self.after, math.inf):
            raise InvalidRequestError(
                "hedge.after", f'must be "p95" or a number of seconds above 0, not {self.after!r}'
            )
        if not _is_between(self.at_most, 1 + 1e-9):
            raise InvalidRequestError("hedge.at_most", f"must be a part above 0 and up to 1, not {self.at_most!r}")


def _is_between(value: object, end: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < end


class HedgeState:
    """One route's first events and second attempts."""

    def __init__(self, hedge: Hedge) -> None:
        self.hedge = hedge
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        # Calls and second attempts of each of the last 60 seconds, by the second's remainder.
        self._calls = [0] * MINUTE
        self._hedges = [0] * MINUTE
        self._second = 0

    def begin(self, now: float) -> float:
        """A call is sent. Returns when it is time for a second attempt; `math.inf` where that is not known."""
        self._turn(now)
        self._calls[self._second % MINUTE] += 1
        if not isinstance(self.hedge.after, str):
            return now + self.hedge.after
        if len(self._sorted) < LEAST_KNOWN:
            return math.inf
        return now + self._sorted[min(len(self._sorted) - 1, int(0.95 * len(self._sorted)))]

    def first_event(self, seconds: float) -> None:
        """A call's first event came after so many seconds. A call that was sent twice counts from its first attempt."""
        self._recent.append(seconds)
        bisect.insort(self._sorted, seconds)
        if len(self._recent) > REMEMBERED:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft())]

    def take(self, now: float) -> bool:
        """Whether a second attempt may be made now; it is then counted."""
        self._turn(now)
        if sum(self._hedges) + 1 > self.hedge.at_most * sum(self._calls):
            return False
        self._hedges[self._second % MINUTE] += 1
        return True

    def _turn(self, now: float) -> None:
        """Clear the counts of the seconds that have begun since."""
        second = int(now)
        for passed in range(max(self._second + 1, second - MINUTE + 1), second + 1):
            self._calls[passed % MINUTE] = self._hedges[passed % MINUTE] = 0
        self._second = max(self._second, second)
