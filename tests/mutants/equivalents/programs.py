"""Known equivalents of `manystream/cli` and `manystream/bench`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "manystream/cli/connectivity.py",
        "_Answer.on_body",
        "if len(self.body) > MOST_BODY_BYTES:",
        ">",
        ">=",
        "a body of exactly this length is kept whole, and nothing else is read from the answer",
    ),
    Equivalent(
        "manystream/cli/batch.py",
        "Run",
        "interrupted: bool = False",
        "False",
        "True",
        "a run that ends without an error has set it before it is read",
    ),
)
