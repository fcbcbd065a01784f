"""Bound the memory of all answers of one engine together, and choose the call that fails beyond the limit.

A cap on one answer does not bound a thousand of them. Each attempt reports the bytes that it has received, once per
`STEP_BYTES`, so that it costs nothing per event. Most bytes of a stream are not kept (the JSON around each delta). The
bytes that are kept are counted only if the sum of the received bytes would exceed the limit.
"""

from __future__ import annotations

from typing import Protocol

from ...providers.errors import ProviderError, malformed

STEP_BYTES = 64 * 1024
"""The number of bytes that an answer receives between two reports. A smaller answer is not counted."""

WORTH_COUNTING = 1.25
"""An answer is counted again once its size may have grown by this factor since the last count. So counting takes linear
time in the received bytes, however often the limit is reached."""


class Holder(Protocol):
    """An attempt whose answer is growing."""

    def kept_bytes(self) -> int:
        """Return the number of received bytes that the attempt keeps. Takes linear time in that number."""
        ...

    def give_way(self) -> None:
        """Fail at the next tick, because the answers of the engine are too large."""
        ...


class Buffered:
    """The sizes of all answers of one engine.

    limit: the maximum number of bytes that they may keep together.
    total: an upper bound of the number of bytes that they keep.
    """

    __slots__ = ("_counted", "_most", "limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.total: int = 0
        self._most: dict[Holder, int] = {}  # upper bound of the bytes that each keeps
        self._counted: dict[Holder, int] = {}  # bytes that each kept at its last count

    def grown(self, holder: Holder, size: int) -> None:
        """Record that the holder has received `size` more bytes."""
        self._most[holder] = self._most.get(holder, 0) + size
        self.total += size
        if self.total > self.limit:
            self._make_room()

    def forget(self, holder: Holder) -> None:
        """Remove a holder that keeps nothing any more. Idempotent."""
        if holder in self._most:  # few answers are long enough to be counted
            self.total -= self._most.pop(holder)
            self._counted.pop(holder, None)

    def too_much(self) -> ProviderError:
        """Return the error of the call that fails to make room."""
        what = f"the answers under way keep more than {self.limit} bytes, this one the most"
        return malformed(f"{what} (limits.max_buffered_bytes)")

    def _make_room(self) -> None:
        """Count the answers that may keep less than they received; if that is not enough, fail the largest one."""
        for holder in sorted(self._most, key=self._most.__getitem__, reverse=True):
            most, counted = self._most[holder], self._counted.get(holder, 0)
            if most <= counted * WORTH_COUNTING:
                continue
            kept = min(holder.kept_bytes(), most)
            self._most[holder] = self._counted[holder] = kept
            self.total -= most - kept
            if self.total <= self.limit // 2:
                return
        if self.total > self.limit:
            largest = max(self._most, key=self._most.__getitem__)
            self.forget(largest)
            largest.give_way()
