"""The row of a known equivalent: a mutant that no test can notice, because the changed program behaves identically.

A mutant is identified by its path, scope, first changed line and change. The line's number is not used, so that a row
stays valid when lines move.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mutants.sites import Mutant


@dataclass(frozen=True)
class Equivalent:
    """One known equivalent.

    column: offset of the change in its line, for a line with several equal changes; None if that does not matter.
    """

    path: str
    scope: str
    text: str
    before: str
    after: str
    reason: str
    column: int | None = None

    def is_for(self, mutant: Mutant) -> bool:
        return self.column in (None, mutant.column) and (
            (self.path, self.scope, self.text, self.before, self.after)
            == (mutant.path, mutant.scope, mutant.text, mutant.before, mutant.after)
        )
