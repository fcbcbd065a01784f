"""Known equivalents of `manystream/ray`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "manystream/ray/worker.py",
        "Worker.__init__",
        "self._needs_more = False",
        "False",
        "True",
        "no call starts before the first reply is confirmed, so the first exchange waits for no answer that could come",
    ),
)
