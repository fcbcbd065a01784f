"""How many instructions does an event take, and the start of a call? This check does not depend on the clock.

valgrind (cachegrind) counts instructions in user space, for three paths: decoding (each dialect), the path from socket
to callback (the loop, in lockstep with the load source), and the start of a call (no network). Chat is counted in each
wire form, and so is the floor: a bare loop that receives and parses. Counting two lengths removes the start-up. The
recorded figures belong to one build of CPython. For another build, the figures are shown only.

    python -m benchmarks.instructions [--record] [PATTERN]
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
from dataclasses import dataclass
from pathlib import Path

from .answers import Answer
from .environment import ROOT, clients_variables
from .runs import Run, RunError
from .source.load import EVENTS_PER_SEND, FORMS, TOKEN_FORMS
from .source.process import Source, running_source
from .wire import DIALECTS
from .wire import FORMS as CHAT_FORMS

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


@dataclass(frozen=True, slots=True)
class Measured:
    """One path, measured at two lengths.

    what: its name.
    few, many: module and arguments of the two runs.
    between: the events, or the started calls, that the second run has more than the first.
    """

    what: str
    few: tuple[str, ...]
    many: tuple[str, ...]
    between: int

    def per_event(self, few: int, many: int) -> float:
        """Return instructions per event, from those of the two runs."""
        return (many - few) / self.between


def decode_paths() -> list[Measured]:
    """Return the paths without a network: decoding in each dialect and form of chat, and the start of a call."""
    module = "benchmarks.peers.decode_ours"
    forms = [(dialect,) for dialect in DIALECTS] + [("chat", form) for form in CHAT_FORMS if form not in TOKEN_FORMS]
    decode = [
        Measured(
            f"decode {' '.join(form)}",
            (module, form[0], str(FEW), "1", *form[1:]),
            (module, form[0], str(MANY), "1", *form[1:]),
            MANY - FEW,
        )
        for form in forms
    ]
    module = "benchmarks.peers.start_ours"
    between = MANY_STARTS - FEW_STARTS
    starts = [
        Measured(what, (module, str(FEW_STARTS), *how), (module, str(MANY_STARTS), *how), between)
        for what, how in {"start of a call": (), "start of a call under a declared limit": ("declared",)}.items()
    ]
    return [*decode, *starts]


def loop_paths(origin: str) -> list[Measured]:
    """Return the paths from socket to callback: ours and the floor's, in each wire form of chat."""
    found: list[Measured] = []
    for name, module in (("loop", "ours_steps"), ("floor", "floor_steps")):
        for form in (form for form in FORMS if form not in TOKEN_FORMS):
            if (name, form) == ("floor", "cut"):
                continue  # it reads lines, and cannot read events that are cut across chunks
            few, many = (
                (f"benchmarks.peers.{module}", origin, str(LOOP_STREAMS), str(steps), form)
                for steps in (LOOP_FEW, LOOP_MANY)
            )
            events = (LOOP_MANY - LOOP_FEW) * LOOP_STREAMS * EVENTS_PER_SEND.get(form, 1)
            found.append(Measured(f"{name} chat {form}".removesuffix(" plain"), few, many, events))
    return found


def count_all(python: str, source: Source, chosen: str = "") -> dict[str, float]:
    """Measured path → instructions per event, or per started call. `chosen`: a pattern of the paths to measure."""
    alone = [path for path in decode_paths() if re.search(chosen, path.what)]
    loops = [path for path in loop_paths(source.origin()) if re.search(chosen, path.what)]
    # Run each once without counting: the first run compiles the modules, which is most of its instructions.
    for module, *arguments in (path.few for path in (*alone, *loops)):
        warm_up = [python, "-m", module, *arguments]
        subprocess.run(warm_up, env=clients_variables(), cwd=ROOT, capture_output=True, check=True, timeout=120)

    def measure(path: Measured) -> float:
        return path.per_event(count(python, *path.few), count(python, *path.many))

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        counted = list(pool.map(measure, alone))
    # One run after the other: a step of the source applies to all streams, those of another run included.
    counted += map(measure, loops)
    return {path.what: value for path, value in zip((*alone, *loops), counted, strict=True)}


def answer(run: Run, chosen: str = "") -> Answer:
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
    for what, counted in count_all(run.python, run.source, chosen).items():
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
    parser.add_argument(
        "chosen", nargs="?", default="", help="count only paths that match this pattern, such as `loop`"
    )
    arguments = parser.parse_args()
    missing = [tool for tool in ("valgrind", "cc") if not shutil.which(tool)]
    if missing:
        print(f"instructions were not counted: no {' and no '.join(missing)} here")
        return
    python = sys.executable  # this question needs no peers
    with running_source(python) as source:
        found = answer(Run(source, python, quick=False), arguments.chosen)
    for note in found.notes:
        print(f"  note: {note}")
    if arguments.record:
        known: dict[str, dict[str, float]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        known.setdefault(build_of(python), {}).update({row.what: row.value for row in found.rows})
        RECORD.write_text(json.dumps(known, indent=2) + "\n")
    elif any(row.met is False for row in found.rows):
        raise SystemExit("more instructions than recorded; find out why, or record the new figures")


if __name__ == "__main__":
    main()
