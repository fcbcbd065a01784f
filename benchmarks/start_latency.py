"""How soon does a request arrive?

Measured: the time from `start_stream` to the arrival of the request at the source, on a warm connection, while 1,000
other streams are live.
"""

from __future__ import annotations

from .answers import Answer
from .peers.common import percentile
from .runs import Run, RunError, run_program

LIMIT_US = 200.0
STREAMS = 1000
ROUNDS = 3


def answer(run: Run) -> Answer:
    """Measure median and 99th percentile."""
    result = Answer("start_stream → request bytes on a warm connection, 1,000 live streams")
    starts = 200 if run.quick else 1000
    rounds = [measured(run, starts) for _ in range(1 if run.quick else ROUNDS)]
    if len(rounds) > 1:
        result.notes.append(f"the middle one of {ROUNDS} runs")
    found, itself = sorted(rounds, key=lambda each: percentile(each[0], 0.5))[len(rounds) // 2]
    median = percentile(found, 0.5) / 1000
    result.add("manystream, p50", median, "µs", target=f"≤ {LIMIT_US:g} µs", met=median <= LIMIT_US)
    result.add("of which start_stream itself, p50", itself / 1000, "µs")
    result.add("manystream, p99", percentile(found, 0.99) / 1000, "µs")
    return result


def measured(run: Run, starts: int) -> tuple[list[int], float]:
    """Return the nanoseconds from each start to the arrival, sorted, and the median time that `start_stream` took."""
    run.source.reset()
    run.source.starts()
    itself = run_program(
        run, "benchmarks.peers.ours_starts", run.source.origin(), str(STREAMS), str(starts), seconds=60
    )
    found = sorted(run.source.starts())
    if len(found) < starts:
        raise RunError(f"only {len(found)} of {starts} requests arrived")
    return found, float(itself)
