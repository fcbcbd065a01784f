"""Simulated time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Events:
    """A clock that jumps to the next scheduled function."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time: float, function: Callable[..., None], *arguments: Any) -> None:
        """Schedule a function at a time."""
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, function, arguments))

    def run(self, until: float) -> None:
        """Run every function that is due before a time."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, function, arguments = heapq.heappop(self._heap)
            function(*arguments)
        self.now = until
