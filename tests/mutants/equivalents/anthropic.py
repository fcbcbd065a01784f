"""Known equivalents of `providers/anthropic`: see `row.py`."""

from __future__ import annotations

from tests.mutants.equivalents.row import Equivalent

ROWS: tuple[Equivalent, ...] = (
    Equivalent(
        "providers/anthropic/stream.py",
        "MessagesStream.take_event",
        'path = REPEATED.get(string(mapping(payload, "delta"), "type") or "")',
        '""',
        "'x'",
        "neither is the type of a delta",
    ),
    Equivalent(
        "providers/anthropic/rate_limits.py",
        "HEADERS",
        'reset_form="moment",',
        '"moment"',
        "'momentx'",
        "the forms are three, and the last one is a moment without a look at its word",
    ),
)
