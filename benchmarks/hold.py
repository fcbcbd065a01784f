"""Does the engine hold 10,000 streams?

For five minutes, each sends one event every two seconds. None may be lost.
"""

from __future__ import annotations

from .answers import Answer
from .clients import OURS
from .runs import Run, measure

STREAMS = 10_000
RATE = 0.5
SECONDS = 300
QUICK_SECONDS = 10


def answer(run: Run) -> Answer:
    """Measure the complete streams and their latency."""
    seconds = QUICK_SECONDS if run.quick else SECONDS
    result = Answer(f"{STREAMS:,} streams held for {seconds} seconds")
    events = round(seconds * RATE)
    found = measure(run, OURS, streams=STREAMS, events=events, rate=RATE, spread=0).result
    whole = found["streams_completed"] == STREAMS and found["events"] == STREAMS * events
    result.add("complete streams", found["streams_completed"], "streams", target="all of them", met=whole)
    result.add("p99 delivery", found["p99_ms"], "ms")
    return result
