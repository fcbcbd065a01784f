"""Change the package's code at random and check whether a test fails: `python -m tests.mutants --count 100`.

`make mutants` runs this. A mutant is one small change of one file: a comparison, an operator, a constant, a condition
or a removed statement. With `--tables`, every entry of every table is changed in turn. Mutants are made in a copy of
the tree below `build/mutants`, never in the checkout. There the tests that reach the changed line are run until one
fails, quick ones first. A recording of one whole run says which tests those are. It is made when the sources have
changed, and takes some ten minutes.

Recordings and verdicts are stored below `build/mutants` as soon as they are known. A run that was interrupted, or that
`--minutes` has ended, continues where it stopped when it is started again. `--only ID` judges the mutants with these
ids, as printed for survivors.

A mutant is noticed (a test fails or hangs, twice), survives, or is a known equivalent (`equivalents`). The exit
status is 1 if less than `--least` percent of the others are noticed, or if an entry of a table is not noticed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import shutil
import site
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.equivalents import reason_for
from tests.mutants.reaching import Reach, function_of
from tests.mutants.recorded import Row, add_empty_rows, digest_of_folders, valid_rows
from tests.mutants.sites import PACKAGES, Mutant, all_mutants
from tests.mutants.tables import table_mutants
from tests.mutants.verdicts import NOTICED, Verdict, Verdicts

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "mutants"
PYTHON = FOLDER / "environment" / "bin" / "python"
LEFT_OUT = ("tests/test_packaging.py", "tests/soak", "tests/interop", "tests/mutants")
"""Tests that are not run: they run no line of the package in their own process, or take too long."""

RECORDED_FIRST = ("tests/providers", "tests/transport")
"""Folders with many quick tests. They are recorded first, so that an interrupted recording has most of the tests."""

ATTEMPTS = 5
"""How often a mutant is judged again when a second run does not confirm the result."""

COMMAND = """#!{python}
import sys

from manystream.__main__ import main

sys.exit(main())
"""


def prepare_environment() -> None:
    """Create an environment with the project's dependencies and coverage.py, but without the project itself."""
    if not PYTHON.exists():
        venv.create(FOLDER / "environment", with_pip=True, symlinks=True)
        for packages in FOLDER.glob("environment/lib/python*/site-packages"):
            (packages / "project.pth").write_text("\n".join(site.getsitepackages()) + "\n", "utf-8")
        command = PYTHON.parent / "manystream"  # which pages and examples call by its name
        command.write_text(COMMAND.format(python=PYTHON), "utf-8")
        command.chmod(0o755)
    if subprocess.run([PYTHON, "-c", "import coverage"], capture_output=True, check=False).returncode:
        install = [PYTHON, "-m", "pip", "-q", "--disable-pip-version-check", "install"]
        subprocess.run([*install, "--constraint", ROOT / "constraints.txt", "coverage"], check=True)


def copy_tree(target: Path) -> None:
    """Copy the tracked and new files of the checkout to `target`, with their times, so that caches stay valid."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = {name for name in listed if (ROOT / name).exists()}
    for name in wanted:
        source, copy = ROOT / name, target / name
        if source.is_symlink():
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not copy.is_symlink():
                copy.symlink_to(source.readlink())
        elif not copy.exists() or copy.stat().st_mtime_ns != source.stat().st_mtime_ns:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    for path in [path for path in target.rglob("*.py") if path.relative_to(target).as_posix() not in wanted]:
        if not any(part.is_symlink() for part in path.parents):
            path.unlink()


def environment(tree: Path) -> dict[str, str]:
    """Return the variables of a run in a copy. Bytecode is written: compiling takes longer than most tests."""
    variables = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def up_to_date_recording(trees: list[Path]) -> list[Row]:
    """Return the rows of all test files. Missing rows are recorded now, in all trees in parallel."""
    recording = FOLDER / f"recording-{digest_of_folders(ROOT, PACKAGES)[:16]}.jsonl"
    names = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    names = [name for name in names if not name.startswith(LEFT_OUT)]
    rows = valid_rows(ROOT, recording)
    missing = [name for name in names if name not in rows]
    missing.sort(key=lambda name: not name.startswith(RECORDED_FIRST))
    if missing:
        print(f"recording which lines the tests of {len(missing)} files reach; all files take some ten minutes …")
        sys.stdout.flush()
        parts = [missing[number :: len(trees)] for number in range(len(trees))]
        with ThreadPoolExecutor(len(trees)) as pool:
            for _ in pool.map(record, trees, [recording] * len(trees), parts):
                pass
        rows = valid_rows(ROOT, recording)
    return [rows[name] for name in names if name in rows]


def record(tree: Path, recording: Path, tests: list[str]) -> None:
    """Run test files with coverage.py; the plugin appends a row for each."""
    if not tests:
        return
    command = [PYTHON, "-m", "pytest", "-q", "-p", "tests.mutants.recording", "-m", "not soak and not servers"]
    variables = {**environment(tree), "MANYSTREAM_RECORDING": str(recording)}
    with (tree.parent / f"{tree.name}.recording.log").open("wb") as log:
        status = subprocess.run([*command, *tests], cwd=tree, env=variables, stdout=log, stderr=log, check=False)
    if status.returncode not in (0, 1, 5):
        raise SystemExit(f"pytest ended with {status.returncode}; see {log.name}")
    add_empty_rows(tree, recording, tests)


class Lane:
    """A copy of the tree and the process that runs tests in it.

    tree: the copy's folder.
    seconds: test → its recorded duration.
    """

    def __init__(self, tree: Path, seconds: dict[str, float]) -> None:
        self.tree = tree
        self.seconds = seconds
        self._confirmed: set[str] = set()
        self._process = subprocess.Popen(
            [PYTHON, "-m", "tests.mutants.lane"],
            cwd=tree, env=environment(tree), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, tests: list[str], seconds: float) -> dict[str, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"tests": tests, "seconds": seconds}), file=self._process.stdin, flush=True)
        answer: dict[str, str] = json.loads(self._process.stdout.readline())
        return answer

    def check(self, tests: list[str]) -> None:
        """Check that the tests pass without a change: otherwise the verdicts would be meaningless."""
        answer = self.run(tests, 300)
        if answer["status"] != "passed":
            log = (self.tree / "lane.log").read_text("utf-8", "replace")[-2000:]
            raise SystemExit(f"the unchanged copy {self.tree} fails: {answer}\n{log}")

    def judge(self, mutant: Mutant, reach: Reach, most: float) -> dict[str, str]:
        """Run the tests on the changed copy until one fails, and confirm that the change is the cause.

        A result that a second run does not confirm is not used: that test is left out, and the others are run.
        most: the recorded duration of the tests to run, in seconds; a mutant that passes them has the status `stopped`.
        """
        answer = {"status": "unclear", "failed": ""}
        for _ in range(ATTEMPTS):
            answer, tests = self._run_changed(mutant, reach.tests(mutant), most)
            failed = answer["failed"]
            if answer["status"] not in NOTICED:
                return answer
            if self._is_confirmed(mutant, [failed] if "::" in failed else tests):
                if "::" in failed:
                    reach.note(mutant, failed)
                return answer
            print(f"not confirmed by a second run: {answer['status']} {failed}", flush=True)
            if "::" in failed:
                reach.leave_out(failed)
        return {"status": "unclear", "failed": answer["failed"]}

    def _is_confirmed(self, mutant: Mutant, tests: list[str]) -> bool:
        """Return whether the tests fail again on the changed copy, and pass on the unchanged one.

        All tests passed when they were recorded. So one test of a parametrized function is run unchanged, not each.
        """
        again, _ = self._run_changed(mutant, [tests], math.inf)
        if again["status"] not in NOTICED:
            return False
        functions = {function_of(name) for name in tests}
        if not functions <= self._confirmed:
            if self.run(tests, 300)["status"] != "passed":
                return False
            self._confirmed |= functions
        return True

    def _run_changed(self, mutant: Mutant, parts: list[list[str]], most: float) -> tuple[dict[str, str], list[str]]:
        """Return the result of the first part that notices the change, or of the last one; and the part's tests."""
        path = self.tree / mutant.path
        original, times = path.read_bytes(), path.stat()
        path.write_bytes(mutant.apply(original))
        # Bytecode is valid for a time and a size. A random time keeps that of another change of this file invalid.
        seconds = random.getrandbits(31)
        os.utime(path, (seconds, seconds))
        try:
            answer, tests = {"status": "unreached", "failed": ""}, list[str]()
            for tests in parts:
                duration = sum(self.seconds.get(name, 0.0) for name in tests)
                if duration > most:
                    return {"status": "stopped", "failed": ""}, tests
                most -= duration
                answer = self.run(tests, 60 + 6 * duration)
                if answer["status"] in NOTICED:
                    break
            return answer, tests
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def judged(mutants: list[Mutant], reach: Reach, verdicts: Verdicts, options: argparse.Namespace) -> Iterator[Verdict]:
    """Yield the verdicts in the order in which they are known. After `--minutes`, no further mutant is begun."""
    free: SimpleQueue[Lane] = SimpleQueue()
    opened = [Lane(FOLDER / f"tree{number}", reach.seconds) for number in range(options.lanes)]
    for lane in opened:
        lane.check(reach.quick_tests())
        free.put(lane)
    until = time.monotonic() + 60 * options.minutes

    def judge(mutant: Mutant) -> Verdict | None:
        lane = free.get()
        try:
            return verdicts.of(mutant, lambda: lane.judge(mutant, reach, options.most), time.monotonic, until)
        finally:
            free.put(lane)

    try:
        with ThreadPoolExecutor(options.lanes) as pool:
            for future in as_completed([pool.submit(judge, mutant) for mutant in mutants]):
                verdict = future.result()
                if verdict is not None:
                    yield verdict
    finally:
        for lane in opened:
            lane.close()


def drawn(options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants to judge: the ones that `--only` names, or a random selection."""
    mutants = [] if options.tables and not options.only else all_mutants(ROOT, options.within)
    mutants += table_mutants(ROOT, options.within) if options.tables or options.only else []
    if options.only:
        missing = set(options.only) - {mutant.id for mutant in mutants}
        if missing:
            raise SystemExit(
                f"no mutant has the id {', '.join(sorted(missing))}: the line has changed, or was misspelt"
            )
        return list({mutant.title: mutant for mutant in mutants if mutant.id in options.only}.values())
    count = options.count or (len(mutants) if options.tables else 100)
    return selection(mutants, options.seed, count)


def selection(mutants: list[Mutant], seed: int, count: int) -> list[Mutant]:
    """Return the `count` mutants whose hashes with the seed are the least.

    A mutant's hash does not depend on other lines. So a change of the code keeps the rest of a draw, and a greater
    count adds to it.
    """
    seen: dict[str, int] = {}
    order: list[tuple[bytes, int]] = []
    for place, mutant in enumerate(mutants):
        seen[mutant.id] = seen.get(mutant.id, 0) + 1
        order.append((hashlib.sha256(f"{seed} {mutant.id} {seen[mutant.id]}".encode()).digest(), place))
    return [mutants[place] for _, place in sorted(order)[:count]]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, help="how many to draw; default: 100, with --tables all")
    parser.add_argument("--seed", type=int, default=1, help="which draw")
    parser.add_argument("--tables", action="store_true", help="entries of tables instead of any code")
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="judge this mutant; repeatable")
    parser.add_argument("--lanes", type=int, default=1, help="how many mutants are run at a time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no mutant after this time")
    parser.add_argument("--most", type=float, default=math.inf, help="seconds of tests for a mutant; then go on")
    parser.add_argument("--least", type=float, default=97.0, help="percent that must be noticed")
    parser.add_argument("within", nargs="*", default=[""], help="beginnings of paths to change")
    options = parser.parse_args()
    options.within = options.within or [""]
    return options


def main() -> int:
    options = parsed()
    FOLDER.mkdir(parents=True, exist_ok=True)
    prepare_environment()
    trees = [FOLDER / f"tree{number}" for number in range(options.lanes)]
    for tree in trees:
        copy_tree(tree)
    reach = Reach(ROOT, up_to_date_recording(trees))
    sources, tests = digest_of_folders(ROOT, PACKAGES), digest_of_folders(ROOT, ["tests"])
    verdicts = Verdicts(ROOT, FOLDER / "verdicts.jsonl", sources, tests)
    mutants = drawn(options)
    for mutant in mutants:
        if test := verdicts.noticed_by(mutant):
            reach.note(mutant, test)
    equivalents = [(mutant, reason) for mutant in mutants if (reason := reason_for(mutant))]
    counts = {"noticed": 0, "survived": 0, "equivalent": len(equivalents)}
    if options.only:
        for mutant, reason in equivalents:
            print(f"{mutant.id} equivalent: {mutant.title}\n    {mutant.text}\n    {reason}")
    began = time.monotonic()
    for verdict in judged([mutant for mutant in mutants if not reason_for(mutant)], reach, verdicts, options):
        counts[verdict.outcome] += 1
        if verdict.outcome == "survived" or options.only:
            print(f"{verdict.id} {verdict.outcome} ({verdict.status} {verdict.detail}): {verdict.title}")
            print(f"    {verdict.text}", flush=True)
    known = counts["noticed"] + counts["survived"]
    share = 100 * counts["noticed"] / known if known else 100.0
    print(f"{len(mutants)} mutants, seed {options.seed}: {counts}, {len(mutants) - sum(counts.values())} not judged, "
          f"{share:.1f} % noticed, {time.monotonic() - began:.0f} s")  # fmt: skip
    return 1 if share < (100.0 if options.tables else options.least) else 0


if __name__ == "__main__":
    sys.exit(main())
