"""Do handshakes delay running streams?

1,000 calls start at once, each on a new TLS connection, while 200 streams are live. Measured: the delay of the events
of those streams.
"""

from __future__ import annotations

import json
from typing import TypedDict

from .answers import Answer
from .runs import Run, run_program

LIMIT_MS = 50.0
STREAMS, CALLS = 200, 1000
ROUNDS = 3


class Found(TypedDict):
    """The output of `peers/ours_handshakes.py`."""

    completed: int
    max_ms: float
    p99_ms: float
    events: int
    failures: list[str]


def answer(run: Run) -> Answer:
    """Measure the largest latency of the running streams."""
    result = Answer(f"{CALLS:,} calls at once on cold TLS connections, {STREAMS} streams running")
    rounds = [measured(run) for _ in range(1 if run.quick else ROUNDS)]
    if len(rounds) > 1:
        result.notes.append(f"the middle one of {ROUNDS} runs")
    for found in rounds:
        if found["completed"] != CALLS:
            result.notes.append(f"only {found['completed']} of {CALLS} calls completed: {found['failures']}")
    middle = sorted(rounds, key=lambda found: found["max_ms"])[len(rounds) // 2]
    result.add("manystream, p99 of the running streams", middle["p99_ms"], "ms")
    result.add(
        "manystream, worst of the running streams",
        middle["max_ms"],
        "ms",
        target=f"≤ {LIMIT_MS:g} ms",
        met=middle["max_ms"] <= LIMIT_MS and all(found["completed"] == CALLS for found in rounds),
    )
    return result


def measured(run: Run) -> Found:
    """Make one run."""
    source = run.source
    output = run_program(
        run,
        "benchmarks.peers.ours_handshakes",
        source.origin(),
        source.origin(tls=True),
        str(source.certificate),
        str(STREAMS),
        str(CALLS),
        seconds=60,
    )
    found: Found = json.loads(output)
    return found
