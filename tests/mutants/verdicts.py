"""Verdicts on mutants, in a file: one line of JSON each, appended as it comes, and used again while it is valid.

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
    """What became of one mutant.

    id, title, text: the mutant's. status: what the last run of tests came to, a word of `lane.py`, or `equivalent`.
    detail: the test that failed, or why the mutant is an equivalent. seconds: how long it took.
    sources: hash of the package. tests: hash of what the verdict depends on besides.
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
        for line in file.read_text("utf-8").splitlines() if file.exists() else ():
            try:
                verdict = Verdict(**json.loads(line))
            except (ValueError, TypeError):
                continue  # a line that was cut short, or one of an older version
            if verdict.sources == sources and verdict.tests == self._depends_on(verdict.status, verdict.detail):
                self._known[verdict.title] = verdict

    def of(
        self, mutant: Mutant, judge: Callable[[], dict[str, str]], clock: Callable[[], float], until: float
    ) -> Verdict | None:
        """The verdict that is known, or else the one that `judge` finds, which is then written to the file.

        None where nothing is known and the clock is past `until`.
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
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(verdict)) + "\n")
        return verdict

    def _depends_on(self, status: str, detail: str) -> str:
        if status not in NOTICED:
            return self._tests
        path = self._root / detail.partition("::")[0]
        return digest(path) if path.is_file() else ""
