"""Find the tests that reach a mutant, by a recording of the lines that each test ran.

Knows the recording and the sources. A line that runs at import, such as a table's, is reached by the tests that run a
line which uses one of its names, directly or through another statement at module level, and by the test files that
name one of them. Tests may also start the package as a program, which is not recorded. Therefore every line of
`cli/batch.py` counts as reached by the tests of `cli/test_batch.py`, too, and a line that no test runs in its own
process counts as reached by all tests of that folder, or of the nearest one above it.
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

FIRST_SECONDS = 1.0
"""The duration of the first part, in seconds. Each later part takes up to three times as long as the one before."""

FILE_SECONDS = 0.2
"""The duration of importing and collecting one test file, roughly, in seconds."""

LAST_FUNCTIONS = 3
"""The number of test functions that are kept for a scope. They noticed its last mutants and are run first."""


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
        self._number = {name: number for number, name in enumerate(self._tests)}
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
        self._texts = {file: _text_with_imports(root, file) for file in files if (root / file).exists()}
        self._words = {file: set(re.findall(r"\w+", (root / file).read_text("utf-8"))) for file in self._texts}
        self._by_function: dict[str, list[str]] = defaultdict(list)
        for name in self._usable:
            self._by_function[function_of(name)].append(name)
        self._noticed: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._noticed_before: dict[str, str] = {}
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

    def note(self, mutant: Mutant, test: str) -> None:
        """Remember the test that noticed a mutant. It runs first for this one and early for others of its scope."""
        self._noticed_before[mutant.id] = test
        functions = self._noticed[mutant.path, mutant.scope]
        functions[:] = list(dict.fromkeys([function_of(test), *functions]))[:LAST_FUNCTIONS]

    def tests(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests to run, in growing parts: first the quick ones of the likeliest functions and files.

        A test whose parameters name the changed table comes first: it compares the whole table.
        """
        by_file: dict[str, list[str]] = defaultdict(list)
        for function in self._noticed.get((mutant.path, mutant.scope), ()):
            for name in self._by_function.get(function, ()):
                by_file[name.partition("::")[0]].append(name)
        first = {name for names in by_file.values() for name in names}
        for number in self._numbers(mutant):
            if self._tests[number] not in first:
                by_file[self._tests[number].partition("::")[0]].append(self._tests[number])
        word = mutant.before.rpartition(".")[2].strip("'\"b") or mutant.before
        by_table = {name for names in by_file.values() for name in names if any(map(name.__contains__, mutant.names))}
        order = [
            (
                file,
                sorted(
                    names,
                    key=lambda name: (name not in by_table, name not in first, word not in name, self.seconds[name]),
                ),
            )
            for file, names in by_file.items()
        ]
        order.sort(key=lambda row: (row[1][0] not in by_table, row[1][0] not in first, *self._rank(*row, mutant, word)))
        parts = self._parts([(file, [name for name in names if name not in self._left_out]) for file, names in order])
        before = self._noticed_before.get(mutant.id, "")
        return [[before], *parts] if before in self._number and before not in self._left_out else parts

    def _parts(self, order: list[tuple[str, list[str]]]) -> list[list[str]]:
        """Split the tests of these files into parts. A test that is too slow for a part waits for a later one."""
        parts: list[list[str]] = []
        limit = FIRST_SECONDS
        while order:
            part: list[str] = []
            later: list[tuple[str, list[str]]] = []
            spent = 0.0
            for file, names in order:
                spent += FILE_SECONDS
                rest: list[str] = []
                for name in names:
                    if spent + self.seconds[name] <= limit:
                        part.append(name)
                        spent += self.seconds[name]
                    else:
                        rest.append(name)
                if rest:
                    later.append((file, rest))
            if part:
                parts.append(part)
            order, limit = later, 3 * limit
        return parts

    def _rank(self, file: str, names: list[str], mutant: Mutant, word: str) -> tuple[int, float]:
        """Return a key that sorts first the files that are likeliest to notice a mutant, and then by their cost.

        Likely are the tests of the changed module, and files that contain the changed word or a name of its scope.
        """
        folder, _, module = mutant.path.rpartition("/")
        own = file.startswith(f"tests/{folder}/test_{module.removesuffix('.py')}")
        spoken = len(word) > 1 and word in self._texts.get(file, "")
        scopes = {*mutant.names, mutant.scope.rpartition(".")[2], mutant.scope.partition(".")[0]}
        mentioned = not scopes.isdisjoint(self._words.get(file, set()))
        numbers = [self._number[name] for name in names]
        cost = sum(self.seconds[name] for name in names)
        breadth = sum(self._breadth[number] for number in numbers) / len(numbers)
        return -(2 * own + 2 * spoken + mentioned), breadth + 200 * cost

    def _numbers(self, mutant: Mutant) -> set[int]:
        by_name = self._reached_by_name(mutant.names) if mutant.names else set[int]()
        found = by_name or self._reached(mutant.path, mutant.line)
        if not found:  # perhaps a function that makes tables at import
            found = self._reached_by_name((mutant.scope.partition(".")[0],))
        folder, _, file = mutant.path.rpartition("/")
        beside = self._tests_beside(f"tests/{folder}")
        own = f"tests/{folder}/test_{file.removesuffix('.py')}"
        # These tests may run the line in a process of their own, which is not recorded.
        return found | {number for number in beside if self._tests[number].startswith(own)} or beside

    def _tests_beside(self, folder: str) -> set[int]:
        """Return the tests of a folder, or of the nearest folder above it that has tests."""
        while folder:
            if found := self._by_folder.get(folder):  # not added: another thread may be iterating
                return set(found)
            folder = folder.rpartition("/")[0]
        return set()

    def _reached(self, path: str, line: int) -> set[int]:
        """Return the tests that ran the statement of this line."""
        starts = self._starts[path]
        first = starts[max(0, bisect(starts, line) - 1)]
        lines = self._lines.get(path, {})
        return set[int]().union(*(lines.get(number, ()) for number in range(first, line + 1)))

    def _reached_by_name(self, names: tuple[str, ...]) -> set[int]:
        wanted, found = list(names), set(names)
        while wanted:
            fresh = self._users.get(wanted.pop(), set[str]()) - found
            found |= fresh
            wanted += fresh
        numbers: set[int] = set()
        for name in found:
            for path, line in self._uses.get(name, ()):
                numbers |= self._reached(path, line)
        mentioning = {file for file, words in self._words.items() if not words.isdisjoint(found)}
        return numbers | {
            number
            for folder in self._by_folder.values()
            for number in folder
            if self._tests[number].partition("::")[0] in mentioning
        }


def _text_with_imports(root: Path, file: str) -> str:
    """Return the text of a test file and of the tests' modules that it imports: they may have its expected values."""
    text = (root / file).read_text("utf-8")
    modules = dict.fromkeys(re.findall(r"^from (tests\.[\w.]+) import", text, re.MULTILINE))
    paths = [root / f"{module.replace('.', '/')}.py" for module in modules]
    return "\n".join([text, *(path.read_text("utf-8") for path in paths if path.exists())])


def function_of(test: str) -> str:
    """Return a test's id without its parameters."""
    return test.partition("[")[0]


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
