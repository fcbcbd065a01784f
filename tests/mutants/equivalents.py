"""Mutants that no test can notice, because the changed program does the same: each with the reason.

Path, scope, the first changed line, and the change name a mutant; the line's number is left out, so that a row stays
true when lines move.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.sites import Mutant


@dataclass(frozen=True)
class Equivalent:
    """One known equivalent."""

    path: str
    scope: str
    text: str
    before: str
    after: str
    reason: str

    def is_for(self, mutant: Mutant) -> bool:
        return (self.path, self.scope, self.text, self.before, self.after) == (
            mutant.path, mutant.scope, mutant.text, mutant.before, mutant.after
        )  # fmt: skip


EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        "providers/retry_hints.py",
        "retry_after_ms",
        'hint = _bounded(_milliseconds(headers.get("retry-after-ms", "")))',
        '""',
        "'x'",
        "an absent header and an unreadable one both give no hint",
    ),
    Equivalent(
        "providers/json_values.py",
        "_largest_string",
        """largest, start = (0, 0), data.find(b'"') + 1""",
        "+",
        "-",
        "the first string of an object is a name, never the large one; a bare string is then read by the parser",
    ),
    Equivalent(
        "engine/batch/journal.py",
        "Journal.__init__",
        "self._answers = -1",
        "self._answers = -1",
        "pass",
        "entering the journal sets it before anything reads it",
    ),
)


def reason_for(mutant: Mutant) -> str:
    """Why the mutant cannot be noticed; empty where nothing is known."""
    return next((row.reason for row in EQUIVALENTS if row.is_for(mutant)), "")
