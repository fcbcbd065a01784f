"""Change the package's code at random and see whether a test notices: `python -m tests.mutants --count 100`.

`make mutants` runs this. A mutant is one small change of one file: a comparison, an operator, a constant, a condition
or a removed statement. With `--tables`, every entry of every table is changed in turn. Mutants are made in a copy of
the tree below `build/mutants`, never in the checkout. There the tests that reach the changed line are run until one
fails. A recording of one whole run says which tests those are. It is made when the sources have changed, and takes some
ten minutes.

A mutant is noticed (a test fails, or runs for ever), survives, or is a known equivalent (`equivalents.py`). The exit
status is 1 where less than `--least` percent of the others are noticed, and where an entry of a table is not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import site
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.equivalents import reason_for
from tests.mutants.reaching import Reach
from tests.mutants.sites import PACKAGES, Mutant, all_mutants
from tests.mutants.tables import table_mutants

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "build" / "mutants"
PYTHON = FOLDER / "environment" / "bin" / "python"
RECORDING = FOLDER / "recording.json"
LEFT_OUT = ("tests/test_packaging.py", "tests/soak", "tests/interop", "tests/mutants")
"""Tests that are not run: they run no line of the package in their own process, or take too long."""

COMMAND = """#!{python}
import sys

from manystream.__main__ import main

sys.exit(main())
"""

NOTICED = frozenset({"failed", "died", "hung"})


def prepare_environment() -> None:
    """An interpreter that sees the project's packages but not the project, and coverage.py."""
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
    """Make the target like the checkout: what git tracks, and new files. Times are kept, so that caches stay valid."""
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
    return {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}


def digests(*folders: str) -> dict[str, str]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path.is_file()]
    return {path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def record(tree: Path, tests: list[str]) -> dict[str, object]:
    """Run tests under coverage.py; returns the recording."""
    target = FOLDER / "part.json"
    target.unlink(missing_ok=True)
    command = [PYTHON, "-m", "pytest", "-q", "-p", "tests.mutants.recording", "-m", "not soak and not servers"]
    command += [f"--ignore={name}" for name in LEFT_OUT]
    variables = {**environment(tree), "MANYSTREAM_RECORDING": str(target)}
    with (FOLDER / "recording.log").open("wb") as log:
        subprocess.run([*command, *tests], cwd=tree, env=variables, stdout=log, stderr=log, check=False)
    found: dict[str, object] = json.loads(target.read_text("utf-8"))
    return found


def up_to_date_recording(tree: Path) -> None:
    """Record what is new: everything where the package has changed, else the changed test files alone."""
    sources, tests = digests(*PACKAGES[:3]), digests("tests")
    stamp = FOLDER / "recording.stamp"
    old = json.loads(stamp.read_text("utf-8")) if stamp.exists() and RECORDING.exists() else {}
    if old.get("sources") != sources:
        print("recording which tests reach which lines; this runs the whole suite once …", flush=True)
        RECORDING.write_text(json.dumps(record(tree, [])), "utf-8")
    else:
        changed = [name for name, digest in tests.items() if old["tests"].get(name) != digest]
        changed = [name for name in changed if Path(name).name.startswith("test_") and not name.startswith(LEFT_OUT)]
        if changed:
            print(f"recording {len(changed)} changed test files …", flush=True)
            fresh = merged(json.loads(RECORDING.read_text("utf-8")), record(tree, changed))
            RECORDING.write_text(json.dumps(fresh), "utf-8")
    stamp.write_text(json.dumps({"sources": sources, "tests": tests}), "utf-8")


def merged(old: dict[str, object], fresh: dict[str, object]) -> dict[str, object]:
    """The old recording, with the tests of the files in the fresh one replaced."""
    files = {name.partition("::")[0] for name in fresh["seconds"]}  # type: ignore[attr-defined]
    result: dict[str, object] = {"seconds": {}, "unusable": [], "lines": {}}
    for part in (old, fresh):
        names = list(part["seconds"])  # type: ignore[call-overload]
        keep = {
            number: name
            for number, name in enumerate(names)
            if part is fresh or (name.partition("::")[0] not in files and (ROOT / name.partition("::")[0]).exists())
        }
        start = len(result["seconds"])  # type: ignore[arg-type]
        place = {number: start + order for order, number in enumerate(keep)}
        result["seconds"].update({name: part["seconds"][name] for name in keep.values()})  # type: ignore
        result["unusable"] += [name for name in part["unusable"] if name in keep.values()]  # type: ignore
        for path, lines in part["lines"].items():  # type: ignore[attr-defined]
            known = result["lines"].setdefault(path, {})  # type: ignore[attr-defined]
            for line, numbers in lines.items():
                known.setdefault(line, []).extend(place[number] for number in numbers if number in place)
    return result


class Lane:
    """A copy of the tree and the process that runs tests in it."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
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
        """Without any change the tests must pass, or nothing that is found here means anything."""
        answer = self.run(tests, 300)
        if answer["status"] != "passed":
            log = (self.tree / "lane.log").read_text("utf-8", "replace")[-2000:]
            raise SystemExit(f"the unchanged copy {self.tree} fails: {answer}\n{log}")

    def judge(self, mutant: Mutant, parts: list[list[str]], seconds: dict[str, float]) -> dict[str, str]:
        """Change the copy, run the tests until one fails, and change it back."""
        path = self.tree / mutant.path
        original, times = path.read_bytes(), path.stat()
        path.write_bytes(mutant.apply(original))
        try:
            answer = {"status": "unreached", "failed": ""}
            for tests in parts:
                limit = 60 + 6 * sum(seconds[name] for name in tests)
                answer = self.run(tests, limit)
                if answer["status"] in NOTICED:
                    break
            return answer
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def judged(mutants: list[Mutant], reach: Reach, lanes: int) -> Iterator[tuple[Mutant, dict[str, str]]]:
    free: SimpleQueue[Lane] = SimpleQueue()
    opened = [Lane(FOLDER / f"tree{number}") for number in range(lanes)]
    for lane in opened:
        lane.check(reach.quick_tests())
        free.put(lane)

    def judge(mutant: Mutant) -> tuple[Mutant, dict[str, str]]:
        reason = reason_for(mutant)
        if reason:
            return mutant, {"status": "equivalent", "failed": reason}
        lane = free.get()
        try:
            return mutant, lane.judge(mutant, reach.tests(mutant), reach.seconds)
        finally:
            free.put(lane)

    try:
        with ThreadPoolExecutor(lanes) as pool:
            yield from pool.map(judge, mutants)
    finally:
        for lane in opened:
            lane.close()


def drawn(options: argparse.Namespace) -> list[Mutant]:
    mutants = table_mutants(ROOT) if options.tables else all_mutants(ROOT)
    mutants = [mutant for mutant in mutants if mutant.path.startswith(tuple(options.within))]
    if options.tables and options.count is None:
        return mutants
    return random.Random(options.seed).sample(mutants, min(options.count or 100, len(mutants)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, help="how many to draw; default: 100, with --tables all")
    parser.add_argument("--seed", type=int, default=1, help="which draw")
    parser.add_argument("--tables", action="store_true", help="every entry of every table instead of a draw")
    parser.add_argument("--lanes", type=int, default=1, help="how many mutants are run at a time")
    parser.add_argument("--least", type=float, default=97.0, help="percent that must be noticed")
    parser.add_argument("within", nargs="*", default=[""], help="beginnings of paths to change")
    options = parser.parse_args()
    options.within = options.within or [""]
    FOLDER.mkdir(parents=True, exist_ok=True)
    prepare_environment()
    for number in range(options.lanes):
        copy_tree(FOLDER / f"tree{number}")
    up_to_date_recording(FOLDER / "tree0")
    reach = Reach(ROOT, RECORDING)
    mutants = drawn(options)
    counts = dict.fromkeys(("noticed", "survived", "equivalent"), 0)
    began = time.monotonic()
    with (FOLDER / "results.jsonl").open("w", encoding="utf-8") as results:
        for mutant, answer in judged(mutants, reach, options.lanes):
            word = "noticed" if answer["status"] in NOTICED else answer["status"]
            word = word if word in counts else "survived"
            counts[word] += 1
            if word == "survived":
                print(f"survived ({answer['status']}): {mutant.title}\n    {mutant.text}", flush=True)
            results.write(json.dumps({"title": mutant.title, "outcome": word, **answer}) + "\n")
            results.flush()
    known = counts["noticed"] + counts["survived"]
    share = 100 * counts["noticed"] / known if known else 100.0
    print(f"{len(mutants)} mutants, seed {options.seed}: {counts}, {share:.1f} % noticed, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return 1 if share < (100.0 if options.tables else options.least) else 0


if __name__ == "__main__":
    sys.exit(main())
