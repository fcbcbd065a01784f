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
    Equivalent(
        "manystream/client_transport.py",
        "_check_values",
        'if lines.count(b"\\n") == len(headers) + 1 and not _BAD_VALUE.search(lines)'
        " and not any(map(lines.count, _OUTER)):",
        "1",
        "2",
        "the quick check of all values never succeeds, and the check of each value decides the same",
    ),
    Equivalent(
        "manystream/batch/source.py",
        "PIECE",
        "PIECE = 64 * 1024",
        "64",
        "65",
        "the size of a read: the lines are the same",
    ),
    Equivalent(
        "manystream/batch/source.py",
        "PIECE",
        "PIECE = 64 * 1024",
        "*",
        "+",
        "the size of a read: the lines are the same",
    ),
    Equivalent(
        "manystream/batch/source.py",
        "PIECE",
        "PIECE = 64 * 1024",
        "1024",
        "1025",
        "the size of a read: the lines are the same",
    ),
    Equivalent(
        "manystream/batch/source.py",
        "_some_lines",
        "line = file.readline(LONGEST_LINE + 1)",
        "1",
        "2",
        "one byte too many is enough to know that a line is too long; the rest is dropped",
        column=36,
    ),
)
