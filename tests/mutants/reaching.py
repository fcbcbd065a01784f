"""Find the tests that reach a mutant, by a recording of the lines that each test ran.

Knows the recording and the sources. A line that runs at import, such as a table's, is reached by the tests that run a
line which uses one of its names, directly or through another statement at module level, and by the test files that
name one of them. Tests may also start the package as a program, which is not recorded. Therefore every line of
`cli/batch.py` counts as reached by the tests of `cli/test_batch.py`, too, and a line that no test runs in its own
process counts as reached by all tests of that folder.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.recorded import Row
from tests.mutants.sites import Mutant, bound_names, sources

FIRST_FILES = 2
"""The number of files whose tests are run first; they notice most mutants."""

FIRST_SECONDS = 3
"""A third of the duration of the second part, in seconds. Each later part takes up to three times as long as the one
before."""


class Reach:
    """A recording that can be queried by mutant."""

    def __init__(self, root: Path, rows: Iterable[Row]) -> None:
        self.seconds: dict[str, float] = {}
        self._lines: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        unusable: set[str] = set()
        for row in rows:
            first = len(self.seconds)
            self.seconds.update(row.seconds)
            unusable.update(row.unusable)
            wrong = {number for number, name in enumerate(row.seconds) if name in unusable}
            for path, lines in row.lines.items():
                for line, numbers in lines.items():
                    self._lines[path][int(line)].update(first + number for number in numbers if number not in wrong)
        self._tests = list(self.seconds)
        self._left_out: set[str] = set()
        usable = {number for number, name in enumerate(self._tests) if name not in unusable}
        self._usable = [self._tests[number] for number in sorted(usable)]
        self._breadth: dict[int, int] = defaultdict(int)
        for lines in self._lines.values():
            for numbers in lines.values():
                for number in numbers:
                    self._breadth[number] += 1
        self._by_folder: dict[str, set[int]] = defaultdict(set)
        for number in usable:
            self._by_folder[self._tests[number].partition("::")[0].rpartition("/")[0]].add(number)
        files = {name.partition("::")[0] for name in self._tests}
        self._words = {
            file: set(re.findall(r"\w+", (root / file).read_text("utf-8"))) for file in files if (root / file).exists()
        }
        self._uses, self._users = _index(root)
        self._starts = {
            source.path: sorted({node.lineno for node in ast.walk(source.tree) if isinstance(node, ast.stmt)}) or [1]
            for source in sources(root)
        }

    def leave_out(self, test: str) -> None:
        """Exclude this test from all further results."""
        self._left_out.add(test)

    def quick_tests(self) -> list[str]:
        """Return a sample of the tests, to check that an unchanged copy passes."""
        return sorted(self._usable, key=lambda name: self.seconds[name])[::100]

    def tests(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests to run, in parts: first those of the likeliest files, then the others in growing parts."""
        numbers = self._numbers(mutant)
        likely = {*mutant.names, mutant.scope.rpartition(".")[2], mutant.scope.partition(".")[0]}
        by_file: dict[str, list[int]] = defaultdict(list)
        for number in numbers:
            if self._tests[number] not in self._left_out:
                by_file[self._tests[number].partition("::")[0]].append(number)
        order = sorted(by_file, key=lambda file: self._rank(file, by_file[file], likely))
        parts: list[list[str]] = []
        part: list[str] = []
        spent = 0.0
        for place, file in enumerate(order, 1):
            names = [self._tests[number] for number in by_file[file]]
            part += sorted(names, key=lambda name: self.seconds[name])
            spent += sum(self.seconds[name] for name in names)
            if place == FIRST_FILES or (place > FIRST_FILES and spent > FIRST_SECONDS * 3 ** len(parts)):
                parts.append(part)
                part, spent = [], 0.0
        return [*parts, part] if part else parts

    def _rank(self, file: str, numbers: list[int], likely: set[str]) -> tuple[bool, float]:
        mentioned = not likely.isdisjoint(self._words.get(file, set()))
        cost = sum(self.seconds[self._tests[number]] for number in numbers)
        breadth = sum(self._breadth[number] for number in numbers) / len(numbers)
        return not mentioned, breadth + 200 * cost

    def _numbers(self, mutant: Mutant) -> set[int]:
        by_name = self._reached_by_name(mutant.names) if mutant.names else set[int]()
        found = by_name or self._reached(mutant.path, mutant.line)
        folder, _, file = mutant.path.rpartition("/")
        beside = self._by_folder[f"tests/{folder}"]
        own = f"tests/{folder}/test_{file.removesuffix('.py')}"
        # These tests may run the line in a process of their own, which is not recorded.
        return found | {number for number in beside if self._tests[number].startswith(own)} or set(beside)

    def _reached(self, path: str, line: int) -> set[int]:
        """Return the tests that ran the statement of this line."""
        starts = self._starts[path]
        first = starts[max(0, bisect(starts, line) - 1)]
        lines = self._lines.get(path, {})
        return set[int]().union(*(lines.get(number, ()) for number in range(first, line + 1)))

    def _reached_by_name(self, names: tuple[str, ...]) -> set[int]:
        wanted, found = list(names), set(names)
        while wanted:
            fresh = self._users[wanted.pop()] - found
            found |= fresh
            wanted += fresh
        numbers: set[int] = set()
        for name in found:
            for path, line in self._uses[name]:
                numbers |= self._reached(path, line)
        mentioning = {file for file, words in self._words.items() if not words.isdisjoint(found)}
        return numbers | {
            number
            for folder in self._by_folder.values()
            for number in folder
            if self._tests[number].partition("::")[0] in mentioning
        }


def _index(root: Path) -> tuple[dict[str, set[tuple[str, int]]], dict[str, set[str]]]:
    """Return two tables: name → the lines in functions that use it; name → the module-level names that depend on it."""
    uses: dict[str, set[tuple[str, int]]] = defaultdict(set)
    users: dict[str, set[str]] = defaultdict(set)
    for source in sources(root):
        for statement in source.tree.body:
            inside = set[ast.AST]()
            for function in ast.walk(statement):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                    body = function.body if isinstance(function.body, list) else [function.body]
                    inside.update(node for part in body for node in ast.walk(part))
            for node in ast.walk(statement):
                name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
                if name and node in inside:
                    uses[name].add((source.path, node.lineno))  # type: ignore[attr-defined]
                elif name and not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                    users[name].update(bound_names(statement))
    return uses, users
