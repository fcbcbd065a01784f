"""Token buckets: how much of a limit is left. A bucket is given the time; it reads no clock."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

_TOLERANCE = 1e-6
"""Part of the capacity that rounding may cost."""


@dataclass(slots=True, eq=False, repr=False)
class Production:
    """Output tokens that are being produced at an even rate, from the first to the last event of a stream."""

    end: float
    rate: float


class Bucket:
    """One limit of one key and model.

    dimension: `requests`, `input_tokens`, `output_tokens` or `tokens`.
    limit: what the server allows per window.
    window: seconds that the limit counts over, as the server reports it.
    rate: refill per second. 0: the bucket is refilled only when its window ends.
    capacity: the largest level.
    level: what is left. Output that counts as it is produced may take it below 0.
    ends: when the window of a bucket without a rate ends.
    """

    def __init__(
        self, dimension: str, limit: float, window: float, capacity: float, now: float, *, ends: float | None = None
    ) -> None:
        self.dimension: str = dimension
        self.limit: float = limit
        self.window: float = window
        self.rate: float = limit / window if ends is None else 0.0
        self.capacity: float = capacity
        self.level: float = capacity
        self.ends: float = 0.0 if ends is None else ends
        self._at = now
        self._producing = 0.0
        self._productions: list[tuple[float, int, Production]] = []
        self._numbers = itertools.count()

    def update(self, now: float) -> None:
        """Refill up to `now`, less what was produced meanwhile."""
        while self._productions and self._productions[0][0] <= now:
            end, _, production = heapq.heappop(self._productions)
            if production.rate:
                self._advance(end)
                self._producing -= production.rate
        self._advance(now)

    def has_room(self, cost: float) -> bool:
        return self.level + _TOLERANCE * self.capacity >= cost

    def wait(self, cost: float, now: float) -> float:
        """Seconds until there is room for a cost, if nothing else is taken."""
        if self.has_room(cost):
            return 0.0
        if not self.rate:
            return max(0.0, self.ends - now)
        return (min(cost, self.capacity) - self.level) / self.rate

    def full_after(self, now: float) -> float:
        return self.wait(self.capacity, now)

    def produce(self, tokens: float, seconds: float, now: float) -> Production | None:
        """Take tokens at an even rate over some seconds; at once if there are no seconds."""
        if seconds <= 0:
            self.level -= tokens
            return None
        production = Production(now + seconds, tokens / seconds)
        self._producing += production.rate
        heapq.heappush(self._productions, (production.end, next(self._numbers), production))
        return production

    def stop(self, production: Production, now: float) -> None:
        """End a production: what was not produced by now is not taken."""
        self.update(now)
        if production.end > now:
            self._producing -= production.rate
            production.rate = 0.0

    def change(self, limit: float) -> None:
        """Change the limit: rate, capacity and level change in proportion."""
        factor = limit / self.limit
        self.limit = limit
        self.rate *= factor
        self.capacity *= factor
        self.level *= factor

    def _advance(self, now: float) -> None:
        seconds = max(0.0, now - self._at)
        self._at = max(self._at, now)
        self.level = min(self.capacity, self.level + (self.rate - self._producing) * seconds)
        if not self.rate and now >= self.ends:
            self.level = self.capacity
            self.ends += self.window * (1 + (now - self.ends) // self.window)
