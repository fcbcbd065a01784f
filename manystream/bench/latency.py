"""How long deliveries took, in bounded memory: counts per bucket of equal width, and what is read from them.

Knows nanoseconds. Must not know where they come from. Adding one costs a subtraction, a shift and a dictionary entry,
because it happens for each event on the core that is being measured: the caller does `window[bucket(…)] += 1` inline.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

SHIFT = 14
"""A bucket is 2**14 ns wide: 16 µs, far below what a person or a pacing server could notice."""

LAST = 1 << 18
"""The highest bucket, of all that took longer than about 4.3 s. It bounds the memory of a run gone wrong."""

Counts: TypeAlias = "defaultdict[int, int]"


def new_counts() -> Counts:
    """No deliveries yet."""
    return defaultdict(int)


def merge(total: Counts, window: Mapping[int, int]) -> None:
    """Add a window's counts to the total."""
    for bucket, count in window.items():
        total[bucket] += count


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Seconds within which that share (0 to 1) of the deliveries was made; None where there were none.

    The middle of the bucket that holds the sample of that rank (nearest rank), so off by 8 µs at most.
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
