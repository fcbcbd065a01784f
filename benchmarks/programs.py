"""What do programs of public frameworks cost with their own client, and with ours?

The programs are those of docs/guide/frameworks.md. Both forms run by turns, each in a process of its own, against a
simulator whose answers take half a second and have 50 events, and both must give the same answers. Measured: the CPU of
the program's process for calls that are started at once.
"""

from __future__ import annotations

import json
import tempfile
from functools import partial
from pathlib import Path

from manystream.simulator import Simulator, open_simulator
from tests.interop.frameworks import BLOCKS, MEASURE, PACKAGES, environment

from .answers import Answer
from .environment import DEPENDENCIES, made_environment
from .peers.common import raise_priority
from .runs import Run, RunError, by_turns, run_command

CALLS = {
    "verifiers": 1000,
    "inspect_ai": 1000,
    "mini-swe-agent": 200,
    "openai": 500,
    "pydantic-ai-slim": 500,
    "langchain-openai": 500,
}
"""Framework → calls. `openai` is TRL's reward function, against the SDK."""
ROUNDS = 3


def answer(run: Run) -> Answer:
    """Measure each framework that can be installed."""
    result = Answer("CPU of public programs with their own client and with ours")
    for library, requirements in PACKAGES.items():
        name = library.split()[0]
        if name not in CALLS:
            continue
        try:
            python = made_environment(name.replace("-", "_"), *requirements, *DEPENDENCIES, "httpx==0.28.1")
            with open_simulator("delay=0.5,events=50") as simulator, tempfile.TemporaryDirectory() as folder:
                raise_priority(simulator.pid)
                found = _measure(run, simulator, library, python, folder)
        except (OSError, ValueError, RunError) as error:
            result.notes.append(f"{library}: not measured: {error}")
            continue
        result.notes.append(f"{library}: {CALLS[name]:,} calls")
        result.add(f"{name}, its own client", found["own"], "s of CPU")
        result.add(f"{name}, ours", found["ours"], "s of CPU", beside=("its own client", found["own"]), shown=True)
    return result


def _measure(run: Run, simulator: Simulator, library: str, python: str, folder: str) -> dict[str, float]:
    """Return the seconds of CPU with each client. Raises `RunError` if their answers differ."""
    calls = 50 if run.quick else CALLS[library.split()[0]]
    Path(folder, "program.py").write_text(BLOCKS[library].code.replace("http://127.0.0.1:8080", simulator.origin))
    answers: list[object] = []

    def once(client: str) -> float:
        command = [python, "-c", MEASURE, str(calls), client]
        output = run_command(command, folder, environment(Path(folder)))
        if not output:
            raise RunError("the program failed")
        cpu, answered = json.loads(output.splitlines()[-1])
        answers.append(answered)
        if answered != answers[0]:
            raise RunError("its answers differ")
        return float(cpu)

    return by_turns(run, {client: partial(once, client) for client in ("own", "ours")}, ROUNDS)
