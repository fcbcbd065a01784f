"""How many instructions does an event take, and the start of a call? This check does not depend on the clock.

valgrind (cachegrind) counts instructions in user space, for three paths: decoding (each dialect), the path from
socket to
callback (the loop, in lockstep with the load source), and the start of a call (no network). Counting two lengths
removes
the start-up. The recorded figures belong to one build of CPython. For another build, the figures are shown only.

    python -m benchmarks.instructions [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .answers import Answer
from .environment import ROOT, clients_variables
from .runs import Run, RunError
from .source.process import Source, running_source
from .wire import DIALECTS

RECORD = Path(__file__).parent / "instructions.json"
MARGIN = 1.1
FEW, MANY = 200, 2200
LOOP_STREAMS, LOOP_FEW, LOOP_MANY = 40, 5, 45
FEW_STARTS, MANY_STARTS = 100, 1100
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


def build_of(python: str) -> str:
    """Return the name of this CPython: a count belongs to its version and compiler."""
    program = "import platform; print(platform.python_version(), platform.machine(), platform.python_compiler())"
    return subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def count(python: str, module: str, *arguments: str) -> int:
    """Return the instructions of one run. Raises `RunError`."""
    command = [
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
        python,
        "-m",
        module,
    ]
    variables = {**clients_variables(), "PYTHONHASHSEED": "0"}
    result = subprocess.run(
        [*command, *arguments], env=variables, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )
    found = COUNTED.search(result.stderr)
    if result.returncode or not found:
        raise RunError(f"{module} under valgrind failed:\n{result.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def count_all(python: str, source: Source) -> dict[str, float]:
    """Measured path → instructions per event, or per started call."""
    decode, start = "benchmarks.peers.decode_ours", "benchmarks.peers.start_ours"
    loop = ("benchmarks.peers.ours_steps", source.origin(), str(LOOP_STREAMS))
    runs = [(decode, dialect, str(events), "1") for dialect in DIALECTS for events in (FEW, MANY)]
    runs += [(start, str(starts)) for starts in (FEW_STARTS, MANY_STARTS)]
    # Run each once without counting: the first run compiles the modules, which is most of its instructions.
    for module, *arguments in (*runs[::2], (*loop, "1")):
        warm_up = [python, "-m", module, *arguments]
        subprocess.run(warm_up, env=clients_variables(), cwd=ROOT, capture_output=True, check=True, timeout=120)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counted = list(pool.map(lambda arguments: count(python, *arguments), runs))
    # One run after the other: a step of the source applies to all streams, those of another run included.
    few, many = (count(python, *loop, str(steps)) for steps in (LOOP_FEW, LOOP_MANY))
    found = {
        f"decode {dialect}": (counted[2 * i + 1] - counted[2 * i]) / (MANY - FEW) for i, dialect in enumerate(DIALECTS)
    }
    found["start of a call"] = (counted[-1] - counted[-2]) / (MANY_STARTS - FEW_STARTS)
    return {**found, "loop chat": (many - few) / (LOOP_MANY - LOOP_FEW) / LOOP_STREAMS}


def answer(run: Run) -> Answer:
    """Compare each count with the recorded one."""
    result = Answer("Instructions per event, and per call started")
    if not shutil.which("valgrind"):
        result.notes.append("no valgrind: instructions were not counted")
        return result
    record: dict[str, dict[str, float]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    build = build_of(run.python)
    recorded = record.get(build, {})
    if not recorded:
        result.notes.append(f"no instructions recorded for {build}; `--record` does so")
    for what, counted in count_all(run.python, run.source).items():
        before = recorded.get(what)
        result.add(
            what,
            round(counted),
            "instructions",
            ratio=counted / before if before else None,
            against="recorded",
            target=f"≤ {MARGIN:g} × recorded" if before else "",
            met=counted <= before * MARGIN if before else None,
        )
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true", help="write what is counted down as the new figures")
    record = parser.parse_args().record
    missing = [tool for tool in ("valgrind", "cc") if not shutil.which(tool)]
    if missing:
        print(f"instructions were not counted: no {' and no '.join(missing)} here")
        return
    python = sys.executable  # this question needs no peers
    with running_source(python) as source:
        found = answer(Run(source, python, quick=False))
    for note in found.notes:
        print(f"  note: {note}")
    if record:
        known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        known[build_of(python)] = {row.what: row.value for row in found.rows}
        RECORD.write_text(json.dumps(known, indent=2) + "\n")
    elif any(row.met is False for row in found.rows):
        raise SystemExit("more instructions than recorded; find out why, or record the new figures")


if __name__ == "__main__":
    main()
