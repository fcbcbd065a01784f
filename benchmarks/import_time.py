"""How long does `import manystream` take, beside `import trio` and the peers' imports?"""

from __future__ import annotations

from .answers import Answer
from .command import run_alone
from .runs import Run, run_program

MODULES = ("trio", "manystream", "openai", "anthropic", "google.genai", "aiohttp")
QUICK = ("trio", "manystream")
LIMIT_MS = 60.0


def milliseconds(run: Run, module: str) -> float:
    """The quickest of some imports, each in an interpreter of its own; the first compiles what was not compiled."""
    times = [
        float(run_program(run, "benchmarks.peers.imports", module, seconds=60)) for _ in range(3 if run.quick else 10)
    ]
    return min(times)


def answer(run: Run) -> Answer:
    """All of them; ours against trio's."""
    result = Answer("Import time")
    found = {module: milliseconds(run, module) for module in (QUICK if run.quick else MODULES)}
    for module, time in found.items():
        ours = module == "manystream"
        result.add(
            f"import {module}",
            time,
            "ms",
            target=f"≤ import trio + {LIMIT_MS:g} ms" if ours else "",
            met=time <= found["trio"] + LIMIT_MS if ours else None,
        )
    return result


if __name__ == "__main__":
    run_alone(answer)
