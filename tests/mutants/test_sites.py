"""The tool itself: what it changes, what it does not change, and that each mutant is one change."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest

from tests.mutants.equivalents import EQUIVALENTS, Equivalent
from tests.mutants.sites import Mutant, Source, all_mutants, mutants_in
from tests.mutants.tables import table_mutants, table_mutants_in

ROOT = Path(__file__).resolve().parent.parent.parent

SOURCE = '''"""A docstring."""

from typing import Final

LEVELS: Final = {"low": Level.LOW, "high": Level.HIGH}
WORDS = re.compile(r"(?:rate|limit)s", re.ASCII)
HELP = "a text for people"
LIMIT = 5


def f(a, b=True):
    """Another."""
    # a comment, 1 < 2
    if a < 3 and not (b or "x" in a):
        raise ValueError(f"{a} is {b}")
    parser.add_argument("--x", metavar="MS", help="one")
    return a + 1 if a is None else "yes"
'''


def written(folder: Path) -> Path:
    (folder / "engine").mkdir()
    (folder / "engine" / "part.py").write_text(SOURCE, "utf-8")
    return folder


def changes(mutants: list[Mutant]) -> set[tuple[str, str, str]]:
    return {(mutant.scope, mutant.before, mutant.after) for mutant in mutants}


def test_every_kind_of_change_is_drawn_from(tmp_path: Path) -> None:
    root = written(tmp_path)
    assert changes(all_mutants(root)) == {
        ("LEVELS", '"low"', "'lowx'"),
        ("LEVELS", '"high"', "'highx'"),
        ("WORDS", 'r"(?:rate|limit)s"', "'(?:rate|limit)sx'"),
        ("LIMIT", "5", "6"),
        ("f", "True", "False"),
        ("f", "<", "<="),
        ("f", "3", "4"),
        ("f", "and", "or"),
        ("f", "not", ""),
        ("f", "or", "and"),
        ("f", '"x"', "'xx'"),
        ("f", "in", "not in"),
        ("f", 'raise ValueError(f"{a} is {b}")', "pass"),
        ("f", 'parser.add_argument("--x", metavar="MS", help="one")', "pass"),
        ("f", '"--x"', "'--xx'"),
        ("f", "a is None", "True"),
        ("f", "is", "is not"),
        ("f", "+", "-"),
        ("f", "1", "2"),
        ("f", '"yes"', "'yesx'"),
    }


def test_an_id_names_one_change_and_stays_when_lines_move(tmp_path: Path) -> None:
    root = written(tmp_path)
    path = root / "engine" / "part.py"
    path.write_text("def f(a):\n    return a(1, 1) + a(2)\n", "utf-8")
    first = {mutant.title: mutant.id for mutant in all_mutants(root)}
    assert list(first) == [
        "engine/part.py:2:15 f: '+' → '-'",
        "engine/part.py:2:9 f: '1' → '2'",
        "engine/part.py:2:12 f: '1' → '2'",
        "engine/part.py:2:19 f: '2' → '3'",
    ]
    assert len(set(first.values())) == 4
    path.write_text('"""A docstring."""\n\n\ndef f(a):\n    return a(1, 1) + a(2)\n', "utf-8")
    assert [mutant.id for mutant in all_mutants(root)] == list(first.values())


def test_every_entry_of_a_table_is_changed(tmp_path: Path) -> None:
    root = written(tmp_path)
    assert changes(table_mutants(root)) == {
        ("LEVELS", '"low"', "'lowx'"),
        ("LEVELS", '"high"', "'highx'"),
        ("LEVELS", "Level.LOW", "Level.HIGH"),
        ("LEVELS", "Level.HIGH", "Level.LOW"),
        ("WORDS", "rate", "ratex"),
        ("WORDS", "limit", "limitx"),
    }


def test_types_of_casts_are_not_changed(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    text = 'Key = TypeVar("Key")\nWORDS = {cast("str", GIVEN): "low"}\nx = cast("JSON", f("a"))\n'
    (tmp_path / "engine" / "part.py").write_text(text, "utf-8")
    assert [mutant.before for mutant in all_mutants(tmp_path)] == ['"low"', '"a"']
    assert [mutant.before for mutant in table_mutants(tmp_path)] == ['"low"']


def test_methods_without_a_body_are_not_changed(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    text = 'class P(Protocol):\n    def f(self, a=True):\n        """Docs."""\n        ...\n'
    text += "\n    def g(self, a=False): ...\n\n    def h(self, a=3):\n        return a\n"
    (tmp_path / "engine" / "part.py").write_text(text, "utf-8")
    assert [mutant.before for mutant in all_mutants(tmp_path)] == ["3"]


def test_comments_between_the_strings_of_a_pattern_are_left(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    text = 'import re\n\n_WORDS = re.compile(\n    r"too long"  # Café, Große\n    r"|\\bnever ends"  # others\n)\n'
    (tmp_path / "engine" / "part.py").write_text(text, "utf-8")
    mutants = table_mutants(tmp_path)
    assert [(mutant.line, mutant.before) for mutant in mutants] == [(4, "too"), (4, "long"), (5, "ends")]
    assert all(b"x" in mutant.apply(text.encode()) for mutant in mutants)


@pytest.mark.parametrize("find", [all_mutants, table_mutants])
def test_every_mutant_compiles_and_keeps_the_lines(find: object) -> None:
    mutants: list[Mutant] = find(ROOT)  # type: ignore[operator]
    assert len(mutants) > 1000
    for path, drawn in itertools.groupby(mutants[::50], key=lambda mutant: mutant.path):
        source = together = (ROOT / path).read_bytes()
        end = len(source)
        for mutant in sorted(drawn, key=lambda mutant: mutant.start, reverse=True):
            changed = mutant.apply(source)
            assert changed != source
            assert changed.count(b"\n") == source.count(b"\n")
            if mutant.end <= end:  # changes at separate places are parsed together: parsing takes the time
                together, end = mutant.apply(together), mutant.start
            else:
                ast.parse(changed, mutant.title)
        ast.parse(together, path)


@pytest.mark.parametrize("row", EQUIVALENTS, ids=lambda row: f"{row.path}:{row.scope}")
def test_every_known_equivalent_is_a_mutant(row: Equivalent) -> None:
    source = Source(ROOT, ROOT / row.path)
    found = [*mutants_in(source), *table_mutants_in(source)]
    assert any(row.is_for(mutant) for mutant in found), "the code has changed: mend or remove the row"
    assert row.reason
