"""A histogram of latencies in bounded memory, with buckets of equal width.

To count a latency, the caller computes its bucket (`nanoseconds >> SHIFT`) and increments it inline. This is done for
each event on the core that is measured, so it must be cheap: a subtraction, a shift and a dictionary entry.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

SHIFT = 14
"""A bucket is 2**14 ns (16 µs) wide, far below what a person could notice."""

LAST = 1 << 18
"""The last bucket, for all latencies above about 4.3 s. It bounds the memory if latencies are very long."""

Counts: TypeAlias = defaultdict[int, int]
"""Bucket → number of latencies."""


def new_counts() -> Counts:
    """Return an empty histogram."""
    return defaultdict(int)


def merge(total: Counts, window: Mapping[int, int]) -> None:
    """Add the counts of a window to the total."""
    for bucket, count in window.items():
        total[bucket] += count


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Return a percentile of the latencies in seconds, or None if there are none.

    share: the percentile's share, 0 to 1.

    The result is the middle of the bucket of the nearest rank, so its error is at most 8 µs.
    """
    total = sum(counts.values())
    if not total:
        return None
    rank = max(1, math.ceil(share * total))
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return (bucket + 0.5) * (1 << SHIFT) / 1e9
    raise AssertionError("unreachable: ranks end with the total")
