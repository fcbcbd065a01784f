"""Whether `manystream bench` vouches for the right results: `python -m benchmarks.bench_stamp [--quick]`.

First it finds how many streams one core can carry: the most for which a second's events are read in a second, and whose
figures are within the bounds of the truth, which the source knows. At twice as many each result must be INVALID, and
below half as many each must be VALID. No VALID result may be outside the bounds.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from .answers import Answer
from .environment import ROOT
from .load_clients import LOAD, RATE, bounds, read_ours
from .runs import Run, RunError, run_command

FIRST, MOST = 1000, 16_000
TRIES = 2
"""A load is not carried if so many runs fail: one may have been disturbed by other processes."""
CARRIED = 0.97
"""The share of the events that a client must read in time to carry a load."""
RUNS, QUICK_RUNS = 10, 3
HALVINGS, QUICK_HALVINGS = 3, 1


def answer(run: Run) -> Answer:
    """Find the load, and count the stamps beside it."""
    result = Answer("Whether the stamp of `manystream bench` is right")
    carried = _carried(run)
    result.add("streams that one core can carry", carried, "streams")
    runs = QUICK_RUNS if run.quick else RUNS
    wrong, stamps = 0, Counter[str]()
    for share, wanted in ((2.0, "INVALID"), (0.45, "VALID")):
        streams, right = round(carried * share), 0
        for _ in range(runs):
            page, held = _bench(run, streams)
            found = read_ours(page)
            right += found.stamp[0] == wanted
            wrong += found.stamp[0] == "VALID" and not held
            stamps[f"{streams:,} streams: {re.sub('[0-9.,]+', '…', '; '.join(found.stamp))}"] += 1
        result.add(f"{streams:,} streams: {wanted}", right, f"of {runs}", target=f"{runs} of {runs}", met=right == runs)
    result.add("VALID, and not within the bounds of the truth", wrong, f"of {2 * runs}", target="none", met=not wrong)
    result.notes += [f"{stamp} ({count} times)" for stamp, count in stamps.items()]
    return result


def _carried(run: Run) -> int:
    """Return the most streams whose events are all read, and whose figures are right."""
    good, bad, streams = 0, MOST, FIRST
    halvings = QUICK_HALVINGS if run.quick else HALVINGS
    while halvings and streams < MOST:
        tries = (_bench(run, streams, "--calibrate", "0") for _ in range(TRIES))
        if any(held and page["events_per_second"] >= CARRIED * streams * RATE for page, held in tries):
            good = streams
        else:
            bad = streams
        halvings -= bad < MOST
        streams = good * 2 if bad == MOST else (good + bad) // 2
    return max(good, 1)


def _bench(run: Run, streams: int, *words: str) -> tuple[dict[str, Any], bool]:
    """Return a result, and whether its figures are within the bounds of the truth."""
    url = f"{run.source.origin()}/{LOAD}/v1"
    command = [run.python, "-m", "manystream", "bench", url, "--model", "m", "--json", "--concurrency", str(streams)]
    command += ["--seconds", "3", "--ramp", "2", *words]
    run.source.reset()
    output = run_command(command, str(ROOT))
    if not output:
        raise RunError("manystream bench failed")
    page: dict[str, Any] = json.loads(output)
    figures = bounds(read_ours(page), run.source.reset()).values()
    return page, all(value is None or value <= bound for value, bound, _ in figures)
