"""The data that the tool stores between two runs, recordings and verdicts, and when it becomes invalid."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, Lane, drawn, selection
from tests.mutants.reaching import Reach
from tests.mutants.recorded import Row, add_empty_rows, append, digest, digest_of_folders, valid_rows
from tests.mutants.sites import Mutant, all_mutants
from tests.mutants.tables import table_mutants
from tests.mutants.verdicts import Verdict, Verdicts

SOURCE = """def low(a):
    return a < 3


def high(a):
    return a > 3
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "engine").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "engine" / "part.py").write_text(SOURCE, "utf-8")
    for name in ("test_a", "test_b", "test_c", "test_d"):
        (tmp_path / "tests" / f"{name}.py").write_text(f"# {name}\n", "utf-8")
    return tmp_path


def row(root: Path, name: str, **lines: list[int]) -> Row:
    """Two tests, `::slow` (number 0) and `::quick` (number 1), which reach the given lines of the source."""
    file = f"tests/{name}.py"
    seconds = {f"{file}::slow": 2.0, f"{file}::quick": 0.1}
    reached = {line.removeprefix("line"): numbers for line, numbers in lines.items()}
    return Row(file, digest(root / file), seconds, [], {"engine/part.py": reached})


def test_a_recording_is_read_again(root: Path) -> None:
    recording = root / "recording.jsonl"
    rows = [row(root, "test_a", line2=[0, 1]), row(root, "test_b", line6=[1])]
    for each in rows:
        append(recording, each)
    assert valid_rows(root, recording) == {"tests/test_a.py": rows[0], "tests/test_b.py": rows[1]}


def test_a_changed_or_removed_test_file_is_recorded_again(root: Path) -> None:
    recording = root / "recording.jsonl"
    for name in ("test_a", "test_b", "test_c"):
        append(recording, row(root, name))
    (root / "tests" / "test_a.py").write_text("# changed\n", "utf-8")
    (root / "tests" / "test_b.py").unlink()
    assert list(valid_rows(root, recording)) == ["tests/test_c.py"]


def test_a_row_that_was_cut_short_is_recorded_again(root: Path) -> None:
    recording = root / "recording.jsonl"
    append(recording, row(root, "test_a"))
    append(recording, row(root, "test_b"))
    recording.write_bytes(recording.read_bytes()[:-20])
    assert list(valid_rows(root, recording)) == ["tests/test_a.py"]


def test_a_file_changed_during_recording_is_recorded_again(root: Path) -> None:
    recording, copy = root / "recording.jsonl", root / "copy"
    shutil.copytree(root / "tests", copy / "tests")
    append(recording, row(root, "test_a", line2=[0]))
    (root / "tests" / "test_a.py").write_text("# changed\n", "utf-8")
    add_empty_rows(copy, recording, ["tests/test_a.py", "tests/test_b.py"])
    assert list(valid_rows(root, recording)) == ["tests/test_b.py"]
    assert valid_rows(copy, recording)["tests/test_a.py"].lines == {"engine/part.py": {"2": [0]}}


def test_a_moved_or_changed_source_gives_another_hash(root: Path) -> None:
    path = root / "engine" / "part.py"
    first = digest_of_folders(root, ["engine"])
    path.rename(root / "engine" / "moved.py")
    moved = digest_of_folders(root, ["engine"])
    (root / "engine" / "moved.py").write_text(SOURCE + "\n", "utf-8")
    assert len({first, moved, digest_of_folders(root, ["engine"])}) == 3


def mutant_of(root: Path, scope: str) -> Mutant:
    return next(mutant for mutant in all_mutants(root) if mutant.scope == scope)


def test_tests_that_reach_a_change_run_quick_ones_first(root: Path) -> None:
    rows = [row(root, name, line2=[0, 1]) for name in ("test_a", "test_b", "test_c")]
    rows.append(row(root, "test_d", line6=[0]))
    reach = Reach(root, rows)
    assert reach.tests(mutant_of(root, "low")) == [
        ["tests/test_a.py::quick", "tests/test_b.py::quick", "tests/test_c.py::quick"],
        ["tests/test_a.py::slow"],
        ["tests/test_b.py::slow", "tests/test_c.py::slow"],
    ]
    assert reach.tests(mutant_of(root, "high")) == [["tests/test_d.py::slow"]]


def test_a_query_adds_nothing_that_another_thread_iterates_over(root: Path) -> None:
    (root / "engine" / "table.py").write_text('WORDS = ("ready", "steady")\n', "utf-8")
    reach = Reach(root, [row(root, "test_a", line2=[0, 1])])
    before = {name: len(value) for name, value in vars(reach).items()}
    for mutant in all_mutants(root):
        reach.tests(mutant)
    assert {name: len(value) for name, value in vars(reach).items()} == before


def test_the_function_that_noticed_the_last_mutant_runs_first(root: Path) -> None:
    rows = [row(root, name, line2=[0, 1]) for name in ("test_a", "test_b", "test_c")]
    reach = Reach(root, rows)
    low, other = [mutant for mutant in all_mutants(root) if mutant.scope == "low"][:2]
    reach.note(low, "tests/test_c.py::quick")
    assert reach.tests(low)[0] == ["tests/test_c.py::quick"]
    assert reach.tests(other)[0] == ["tests/test_c.py::quick", "tests/test_a.py::quick", "tests/test_b.py::quick"]


def test_a_file_that_contains_the_changed_word_runs_first(root: Path) -> None:
    (root / "engine" / "part.py").write_text('WORDS = ("ready", "steady")\n', "utf-8")
    (root / "tests" / "wire.py").write_text('EXPECTED = "steady"\n', "utf-8")
    (root / "tests" / "test_a.py").write_text("WORDS\n", "utf-8")
    (root / "tests" / "test_b.py").write_text("ready, WORDS\n", "utf-8")
    (root / "tests" / "test_c.py").write_text("from tests.wire import EXPECTED, WORDS\n", "utf-8")
    reach = Reach(root, [row(root, name) for name in ("test_a", "test_b", "test_c")])
    first = {mutant.before: reach.tests(mutant)[0][0] for mutant in table_mutants(root)}
    assert first == {'"ready"': "tests/test_b.py::quick", '"steady"': "tests/test_c.py::quick"}


def test_tests_of_the_module_s_own_file_are_run(root: Path) -> None:
    own = root / "tests" / "engine" / "test_part_started.py"
    own.parent.mkdir()
    own.write_text("# starts it as a program\n", "utf-8")
    rows = [row(root, "test_a", line2=[1]), row(root, "engine/test_part_started")]
    low = Reach(root, rows).tests(mutant_of(root, "low"))
    assert sorted(name for part in low for name in part) == [
        "tests/engine/test_part_started.py::quick",
        "tests/engine/test_part_started.py::slow",
        "tests/test_a.py::quick",
    ]


def test_a_function_that_runs_at_import_is_reached_by_its_tables(root: Path) -> None:
    made = "def made(a):\n    return {a: 3}\n\n\nTABLE = made(1)\n\n\ndef look(a):\n    return TABLE[a]\n"
    (root / "engine" / "part.py").write_text(made, "utf-8")
    reach = Reach(root, [row(root, "test_a", line9=[1]), row(root, "test_b")])
    assert reach.tests(mutant_of(root, "made")) == [["tests/test_a.py::quick"]]


def test_a_line_that_no_test_runs_has_those_of_a_near_folder(root: Path) -> None:
    (root / "tests" / "engine").mkdir()
    (root / "tests" / "engine" / "test_e.py").write_text("# e\n", "utf-8")
    (root / "engine" / "deep").mkdir()
    (root / "engine" / "deep" / "low.py").write_text(SOURCE, "utf-8")
    reach = Reach(root, [row(root, "test_a", line2=[1]), row(root, "engine/test_e")])
    deep = next(mutant for mutant in all_mutants(root) if mutant.path == "engine/deep/low.py")
    assert reach.tests(deep) == [["tests/engine/test_e.py::quick"], ["tests/engine/test_e.py::slow"]]


def test_an_excluded_or_failing_test_is_not_run(root: Path) -> None:
    failing = row(root, "test_a", line2=[0, 1])
    failing.unusable.append("tests/test_a.py::slow")
    reach = Reach(root, [failing, row(root, "test_b", line2=[0, 1])])
    reach.leave_out("tests/test_b.py::quick")
    assert reach.tests(mutant_of(root, "low")) == [["tests/test_a.py::quick"], ["tests/test_b.py::slow"]]


class Judge:
    """A judge that returns the given result and counts its calls."""

    def __init__(self, status: str, failed: str = "") -> None:
        self.answer = {"status": status, "failed": failed}
        self.asked = 0

    def __call__(self) -> dict[str, str]:
        self.asked += 1
        return self.answer


def verdict(root: Path, judge: Callable[[], dict[str, str]], *, now: float = 0.0, sources: str = "s") -> Verdict | None:
    tests = digest_of_folders(root, ["tests"])
    verdicts = Verdicts(root, root / "verdicts.jsonl", sources, tests)
    return verdicts.of(mutant_of(root, "low"), judge, lambda: now, until=60.0)


def test_a_noticed_mutant_is_judged_again_when_its_test_changes(root: Path) -> None:
    judge = Judge("failed", "tests/test_a.py::quick")
    first = verdict(root, judge)
    assert first is not None
    assert (first.outcome, first.detail, first.seconds) == ("noticed", "tests/test_a.py::quick", 0.0)
    (root / "tests" / "test_b.py").write_text("# changed\n", "utf-8")
    assert (verdict(root, judge), judge.asked) == (first, 1)
    (root / "tests" / "test_a.py").write_text("# changed\n", "utf-8")
    verdict(root, judge)
    assert judge.asked == 2
    verdict(root, judge, sources="other")
    assert judge.asked == 3


def test_a_survivor_is_judged_again_when_any_test_changes(root: Path) -> None:
    judge = Judge("passed")
    first = verdict(root, judge)
    assert first is not None
    assert first.outcome == "survived"
    assert (verdict(root, judge), judge.asked) == (first, 1)
    (root / "tests" / "test_d.py").write_text("# changed\n", "utf-8")
    assert verdict(root, Judge("failed", "tests/test_d.py::new")) != first


def test_a_mutant_whose_tests_were_not_all_run_is_judged_again(root: Path) -> None:
    judge = Judge("stopped")
    first = verdict(root, judge)
    assert first is not None
    assert first.outcome == "survived"
    verdict(root, judge)
    assert judge.asked == 2


def test_the_test_that_notices_a_mutant_is_known_from_its_verdict(root: Path) -> None:
    verdict(root, Judge("failed", "tests/test_a.py::quick"))
    tests = digest_of_folders(root, ["tests"])
    verdicts = Verdicts(root, root / "verdicts.jsonl", "s", tests)
    assert verdicts.noticed_by(mutant_of(root, "low")) == "tests/test_a.py::quick"
    assert not verdicts.noticed_by(mutant_of(root, "high"))
    older = Verdicts(root, root / "verdicts.jsonl", "other sources", tests)
    assert older.noticed_by(mutant_of(root, "low")) == "tests/test_a.py::quick"


def test_after_the_time_limit_only_known_verdicts_are_returned(root: Path) -> None:
    judge = Judge("hung")
    assert verdict(root, judge, now=61.0) is None
    assert judge.asked == 0
    known = verdict(root, judge, now=59.0)
    assert known is not None
    assert known.outcome == "noticed"
    assert verdict(root, judge, now=61.0) == known


def options(**values: object) -> argparse.Namespace:
    return argparse.Namespace(**{"tables": False, "only": [], "within": [""], "count": None, "seed": 1, **values})


def test_entries_of_tables_are_drawn_by_seed() -> None:
    everything = drawn(options(tables=True, within=["transport"]))
    assert sorted(everything, key=lambda mutant: mutant.title) == sorted(
        (mutant for mutant in table_mutants(ROOT, ["transport", "engine/r"]) if mutant.path.startswith("transport")),
        key=lambda mutant: mutant.title,
    )
    five = drawn(options(tables=True, within=["transport"], count=5))
    assert len(five) == 5
    assert set(five) < set(everything)
    assert drawn(options(tables=True, within=["transport"], count=5)) == five
    assert drawn(options(tables=True, within=["transport"], count=5, seed=2)) != five


def test_chosen_mutants_are_found_by_id_in_code_and_tables() -> None:
    within = ["transport", "engine/r"]  # a part of the package, because each draw reads all of it
    chosen = [drawn(options(count=1, seed=seed, within=within))[0] for seed in (3, 4)]
    chosen += drawn(options(tables=True, within=["transport"], count=1))
    found = drawn(options(only=[mutant.id for mutant in chosen], within=within))
    assert {mutant.title for mutant in chosen} <= {mutant.title for mutant in found}
    with pytest.raises(SystemExit, match="no mutant has the id 0000000x"):
        drawn(options(only=["0000000x"], within=within))


def test_a_draw_keeps_its_mutants_when_other_lines_change(root: Path) -> None:
    mutants = all_mutants(root)
    assert len(mutants) == 4
    drawn_three = selection(mutants, 5, 3)
    assert selection(mutants, 5, 2) == drawn_three[:2]
    assert len({mutant.title for mutant in selection(mutants, 5, 9)}) == 4
    other = "LEAST = 4\n\n\n" + SOURCE.replace("> 3", ">= 30")
    (root / "engine" / "part.py").write_text(other, "utf-8")
    kept = [mutant.id for mutant in selection(mutants, 5, 4) if "a < 3" in mutant.text]
    assert [mutant.id for mutant in selection(all_mutants(root), 5, 9) if "a < 3" in mutant.text] == kept
    assert len(kept) == 2


def test_equal_lines_of_a_function_are_drawn_separately(root: Path) -> None:
    (root / "engine" / "part.py").write_text("def low(a):\n    a += 3\n    a += 3\n", "utf-8")
    mutants = all_mutants(root)
    assert len({mutant.id for mutant in mutants}) == 2
    firsts = [selection(mutants, seed, 1)[0].line for seed in range(40)]
    assert set(firsts) == {2, 3}


class ScriptedLane(Lane):
    """A lane without a process: its results are given, first for runs on the changed copy, then for unchanged ones."""

    def __init__(self, root: Path, changed: list[dict[str, str]], unchanged: list[dict[str, str]]) -> None:
        self.tree = root
        self.seconds = {}
        self.runs: list[list[str]] = []
        self._confirmed = set()
        self._original = (root / "engine" / "part.py").read_bytes()
        self._results = {True: changed, False: unchanged}

    def run(self, tests: list[str], seconds: float) -> dict[str, str]:
        self.runs.append(tests)
        return self._results[(self.tree / "engine" / "part.py").read_bytes() != self._original].pop(0)


FAILED = {"status": "failed", "failed": "tests/test_a.py::quick"}
PASSED = {"status": "passed", "failed": ""}
DIED = {"status": "died", "failed": ""}


@pytest.mark.parametrize(
    ("changed", "unchanged", "status", "runs"),
    [
        ([FAILED, FAILED], [PASSED], "failed", 3),
        ([FAILED, PASSED, PASSED], [], "passed", 3),  # it failed by chance: the others are run
        ([FAILED, FAILED, PASSED], [FAILED], "passed", 4),  # it also fails without the change
        ([DIED, DIED], [PASSED], "died", 3),
        ([DIED, PASSED, PASSED, PASSED], [], "passed", 4),
        ([DIED, PASSED] * 5, [], "unclear", 10),
    ],
)
def test_a_result_counts_when_a_second_run_confirms_it(
    root: Path, changed: list[dict[str, str]], unchanged: list[dict[str, str]], status: str, runs: int
) -> None:
    reach = Reach(root, [row(root, "test_a", line2=[0, 1])])
    lane = ScriptedLane(root, changed, unchanged)
    mutant = next(mutant for mutant in all_mutants(root) if mutant.before == "<")
    assert lane.judge(mutant, reach, 100.0)["status"] == status
    assert len(lane.runs) == runs
    assert (root / "engine" / "part.py").read_text("utf-8") == SOURCE
