"""Known equivalents of `manystream`, but not of its programs: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "manystream/store.py",
        "ConversationStore._run",
        "if not _is_busy(error) or time.monotonic() > deadline:",
        ">",
        ">=",
        "the clock does not stop at the deadline; one attempt more or less at that very moment",
    ),
)
