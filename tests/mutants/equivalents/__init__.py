"""Mutants that no test can notice, because the changed program behaves identically: each with the reason.

One module for each part of the package holds the rows of that part.
"""

from __future__ import annotations

from tests.mutants.equivalents import (
    anthropic,
    engine,
    gemini,
    manystream,
    openai,
    programs,
    providers,
    ray,
    simulator,
    traffic,
    transport,
)
from tests.mutants.equivalents.row import Equivalent
from tests.mutants.sites import Mutant

__all__ = ["EQUIVALENTS", "Equivalent", "reason_for"]

EQUIVALENTS: tuple[Equivalent, ...] = (
    *anthropic.ROWS,
    *engine.ROWS,
    *gemini.ROWS,
    *manystream.ROWS,
    *openai.ROWS,
    *programs.ROWS,
    *providers.ROWS,
    *ray.ROWS,
    *simulator.ROWS,
    *traffic.ROWS,
    *transport.ROWS,
)


def reason_for(mutant: Mutant) -> str:
    """Return the reason why the mutant cannot be noticed; empty if none is known."""
    return next((row.reason for row in EQUIVALENTS if row.is_for(mutant)), "")
