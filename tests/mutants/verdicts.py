"""The file of verdicts on mutants: one line of JSON each, appended as soon as it is known, and reused while valid.

A verdict depends on the sources of the package and on tests. A mutant that a test noticed stays noticed while the
sources and the file of that test are the same. One that survived is judged again when any test file has changed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.recorded import digest
from tests.mutants.sites import Mutant

NOTICED = frozenset({"failed", "died", "hung"})


@dataclass(frozen=True)
class Verdict:
    """The verdict on one mutant.

    id: the mutant's id.
    title: the mutant's title.
    text: the mutant's first line.
    status: the result of the last run of tests, a word of `lane.py`, or `equivalent`.
    detail: the test that failed, or the reason for the equivalence.
    seconds: the duration.
    sources: hash of the package.
    tests: hash of the other files on which the verdict depends.
    """

    id: str
    title: str
    text: str
    status: str
    detail: str
    seconds: float
    sources: str
    tests: str

    @property
    def outcome(self) -> str:
        return "noticed" if self.status in NOTICED else "equivalent" if self.status == "equivalent" else "survived"


class Verdicts:
    """The file of verdicts."""

    def __init__(self, root: Path, file: Path, sources: str, tests: str) -> None:
        self._root = root
        self._file = file
        self._sources = sources
        self._tests = tests
        self._known: dict[str, Verdict] = {}
        self._noticed_by: dict[str, str] = {}
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            try:
                verdict = Verdict(**json.loads(line))
            except (ValueError, TypeError):
                continue  # a truncated line, or a line of an older version
            if "::" in verdict.detail:
                self._noticed_by[verdict.id] = verdict.detail
            if verdict.sources == sources and verdict.tests == self._depends_on(verdict.status, verdict.detail):
                self._known[verdict.title] = verdict

    def noticed_by(self, mutant: Mutant) -> str:
        """Return the last test that noticed a mutant, perhaps in older sources; empty if none is known."""
        return self._noticed_by.get(mutant.id, "")

    def of(
        self, mutant: Mutant, judge: Callable[[], dict[str, str]], clock: Callable[[], float], until: float
    ) -> Verdict | None:
        """Return the stored verdict; if there is none, call `judge` and store its verdict.

        Returns None if no verdict is stored and the time is past `until`.
        """
        known = self._known.get(mutant.title)
        if known is not None:
            return known
        began = clock()
        if began > until:
            return None
        answer = judge()
        status, detail = answer["status"], answer["failed"]
        depends = self._depends_on(status, detail)
        seconds = round(clock() - began, 1)
        verdict = Verdict(mutant.id, mutant.title, mutant.text, status, detail, seconds, self._sources, depends)
        if status == "stopped":
            return verdict  # not all tests were run
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(verdict)) + "\n")
        return verdict

    def _depends_on(self, status: str, detail: str) -> str:
        if status not in NOTICED:
            return self._tests
        path = self._root / detail.partition("::")[0]
        return digest(path) if path.is_file() else ""
