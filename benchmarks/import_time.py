"""How long do `import manystream` and opening an engine take, beside `import trio` and the peers' imports?"""

from __future__ import annotations

from statistics import median

from .answers import Answer
from .runs import Run, run_program

MODULES = ("trio", "manystream", "openai", "anthropic", "google.genai", "aiohttp")
QUICK = ("trio", "manystream")
LIMIT_MS = 60.0
OPENED_LIMIT_MS = 30.0


def milliseconds(run: Run, module: str) -> float:
    """Return the quickest of several imports, each in its own interpreter. The first one compiles the modules."""
    times = [
        float(run_program(run, "benchmarks.peers.imports", module, seconds=60)) for _ in range(3 if run.quick else 10)
    ]
    return min(times)


def opened(run: Run) -> float:
    """Return the median of the CPU time of `import manystream` and opening an engine after `import trio`."""
    module = "benchmarks.peers.ours_opened"
    return median(float(run_program(run, module, seconds=60)) for _ in range(3 if run.quick else 15))


def answer(run: Run) -> Answer:
    """Measure all imports, and compare ours with that of trio."""
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
    time = opened(run)
    result.add(
        "import manystream and open an engine, after import trio, CPU",
        time,
        "ms",
        target=f"≤ {OPENED_LIMIT_MS:g} ms",
        met=time <= OPENED_LIMIT_MS,
    )
    return result
