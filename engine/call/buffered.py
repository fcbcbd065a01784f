"""Bound the memory of all answers of one engine together, and choose the call that fails beyond the limit.

A cap on one answer does not bound a thousand of them. Each reader reports the bytes that it has received, once per
`STEP_BYTES`, so that it costs nothing per event. Most bytes of a stream are not kept (the JSON around each delta). The
bytes that are kept are counted only if the sum of the received bytes would exceed the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...providers.model.provider_error import ProviderError, malformed

if TYPE_CHECKING:
    from .body import Body

STEP_BYTES = 64 * 1024
"""The number of bytes that an answer receives between two reports. A smaller answer is not counted."""

WORTH_COUNTING = 1.25
"""An answer is counted again once its size may have grown by this factor since the last count. So counting takes linear
time in the received bytes, however often the limit is reached."""


class Buffered:
    """The sizes of all answers of one engine.

    limit: the maximum number of bytes that they may keep together.
    most: an upper bound of the number of bytes that each keeps. Few answers are so long that they are here.
    total: the sum of these bounds.
    """

    __slots__ = ("_counted", "limit", "most", "total")

    def __init__(self, limit: int) -> None:
        self.limit: int = limit
        self.total: int = 0
        self.most: dict[Body, int] = {}
        self._counted: dict[Body, int] = {}  # bytes that each kept at its last count

    def grown(self, reader: Body, size: int) -> None:
        """Record that the reader of an answer has received `size` more bytes."""
        self.most[reader] = self.most.get(reader, 0) + size
        self.total += size
        if self.total > self.limit:
            self._make_room()

    def forget(self, reader: Body | None) -> None:
        """Remove a reader that keeps nothing any more. Idempotent."""
        if reader is not None and reader in self.most:
            self.total -= self.most.pop(reader)
            self._counted.pop(reader, None)

    def too_much(self) -> ProviderError:
        """Return the error of the call that fails to make room."""
        what = f"the answers under way keep more than {self.limit} bytes, this one the most"
        return malformed(f"{what} (limits.max_buffered_bytes)")

    def _make_room(self) -> None:
        """Count the answers that may keep less than they received; if that is not enough, fail the largest one."""
        for reader in sorted(self.most, key=self.most.__getitem__, reverse=True):
            most, counted = self.most[reader], self._counted.get(reader, 0)
            if most <= counted * WORTH_COUNTING:
                continue
            kept = min(reader.kept_bytes(), most)
            self.most[reader] = self._counted[reader] = kept
            self.total -= most - kept
            if self.total <= self.limit // 2:
                return
        if self.total > self.limit:
            largest = max(self.most, key=self.most.__getitem__)
            self.forget(largest)
            largest.give_way()
