"""How fast does a client turn bytes in memory into events?

Measured for every dialect: our decoding and that of the provider's library, in turns.
"""

from __future__ import annotations

from .answers import Answer
from .clients import SDK_OF
from .runs import Run, run_program
from .wire import DIALECTS

PER_SECOND = 250_000
FACTOR = 40.0
ROUNDS = 3
"""Rounds of each client. A shared machine may be slower by half, for one of the two only."""


def events_per_second(run: Run, module: str, dialect: str, events: int) -> float:
    """Return the figure of one run of the program, which takes the best of several passes."""
    return float(run_program(run, f"benchmarks.peers.{module}", dialect, str(events), seconds=120))


def answer(run: Run) -> Answer:
    """Measure events per second of CPU."""
    result = Answer("Decoding alone, bytes in memory → events")
    result.notes.append(f"each figure is the best of {ROUNDS} runs, by turns")
    for dialect in DIALECTS:
        theirs = ours = 0.0
        for _ in range(ROUNDS):
            theirs = max(theirs, events_per_second(run, "decode_sdk", dialect, 500 if run.quick else 5000))
            ours = max(ours, events_per_second(run, "decode_ours", dialect, 20_000 if run.quick else 100_000))
        result.add(f"{dialect}, {SDK_OF[dialect].label}", theirs, "events/s")
        ratio = ours / theirs
        result.add(
            f"{dialect}, manystream",
            ours,
            "events/s",
            ratio=ratio,
            against=SDK_OF[dialect].label,
            target=f"≥ {PER_SECOND:,} events/s, ≥ {FACTOR:g} ×",
            met=ours >= PER_SECOND and ratio >= FACTOR,
        )
    return result
