"""Known equivalents of `engine/traffic`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "engine/traffic/queue.py",
        "FairQueue._drop",
        "if len(self._deadlines) > 2 * self._with_deadline + 32:",
        ">",
        ">=",
        "old entries leave the heap one call earlier; entries of calls that wait stay either way",
    ),
    Equivalent(
        "engine/traffic/quota.py",
        "Quota._read_limit",
        "if abs(rate - bucket.rate) > 1e-9 * rate:",
        ">",
        ">=",
        "a rate that differs by exactly the tolerance for rounding may be taken or left",
    ),
)
