"""What all answers of one engine hold together, and who gives way when it is too much.

A cap on one answer does not bound a thousand of them. Each attempt reports what it has received, once for every
`STEP_BYTES`, so that it costs nothing per event. Most of what a stream receives is not kept (the JSON around each
delta); what really is kept is only counted where the sum of what was received would exceed the limit.

Knows sizes. Must not know what is in an answer, nor how an attempt ends.
"""

from __future__ import annotations

from typing import Protocol

from ..providers.errors import ProviderError, malformed

STEP_BYTES = 64 * 1024
"""Bytes that an answer receives between two reports. One smaller than this is not counted."""

WORTH_COUNTING = 1.25
"""An answer is counted anew once it may hold so many times what it held when it was counted last: so that counting
takes time in proportion to what is received, however often the limit is reached."""


class Holder(Protocol):
    """Whose answer is growing."""

    def kept_bytes(self) -> int:
        """Received bytes that it keeps. Takes time in proportion to them."""
        ...

    def give_way(self) -> None:
        """Fail at the next tick, for there is no room for its answer."""
        ...


class Buffered:
    """The answers of one engine. limit: bytes that they may keep together. total: bytes that they keep at the most."""

    __slots__ = ("_counted", "_most", "limit", "total")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.total: int = 0
        self._most: dict[Holder, int] = {}  # what each keeps at the most
        self._counted: dict[Holder, int] = {}  # what it kept when that was counted

    def grown(self, holder: Holder, size: int) -> None:
        """It has received so many bytes more."""
        self._most[holder] = self._most.get(holder, 0) + size
        self.total += size
        if self.total > self.limit:
            self._make_room()

    def forget(self, holder: Holder) -> None:
        """It holds nothing any more. Idempotent."""
        self.total -= self._most.pop(holder, 0)
        self._counted.pop(holder, None)

    def too_much(self) -> ProviderError:
        """What the call fails with that gives way."""
        what = f"the answers under way keep more than {self.limit} bytes, this one the most"
        return malformed(f"{what} (limits.max_buffered_bytes)")

    def _make_room(self) -> None:
        """Count those that may hold less than was received; if it is still too much, the one that holds most fails."""
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
