"""Does time grow linearly with extreme input: one giant event, thousands of events at once, one byte per chunk?

Each is measured at a quarter and at its full size. Four times the input must take about four times as long; quadratic
code takes sixteen times. Memory must not exceed the input by much. One event consists of its bytes and of the text that
is read from them, so 10 MB need at least 20, and a megabyte holds what is read at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from .answers import Answer
from .clients import OURS
from .runs import Measured, Run, RunError, measure

GROWTH = 6.0
"""The largest accepted factor for four times the input. 4 is linear, 16 quadratic; short runs vary."""
SPARE = 11 * 2**20
ROUNDS = 3
"""Runs of each size. The quickest counts, because other work only adds time; and the largest memory."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """One mode of the source.

    amount: bytes of text, or events.
    """

    what: str
    mode: str
    amount: int
    bytes_each: int


EXTREMES = (
    Extreme("one event of 10 MB", "giant", 10 * 2**20, 1),
    Extreme("20,000 events in one segment", "flood", 20_000, 360),
    Extreme("1,000 events, one byte per chunk", "bytes", 1000, 360),
)


def take(run: Run, extreme: Extreme, amount: int) -> Measured:
    """Make one run. Raises `RunError` if the stream does not end complete."""
    giant = extreme.mode == "giant"
    measured = measure(
        run, OURS, streams=1, events=1 if giant else amount, mode=extreme.mode, size=amount if giant else 0
    )
    if not measured.complete:
        raise RunError(f"{extreme.what}: {measured.result['failures']}")
    return measured


def answer(run: Run) -> Answer:
    """Measure time at a quarter and in full, and memory in full."""
    result = Answer("Extremes")
    for extreme in EXTREMES:
        # Subtract the engine's own memory, measured with almost no input.
        little = 100 if extreme.mode == "giant" else 1
        runs = {
            amount: [take(run, extreme, amount).result for _ in range(ROUNDS)]
            for amount in (little, extreme.amount // 4, extreme.amount)
        }
        seconds = {amount: min(result["cpu_seconds"] for result in found) for amount, found in runs.items()}
        peak = {amount: max(result["peak_rss"] for result in found) for amount, found in runs.items()}
        growth = seconds[extreme.amount] / seconds[extreme.amount // 4]
        result.add(
            f"{extreme.what}, time",
            seconds[extreme.amount] * 1000,
            "ms CPU",
            ratio=growth,
            against="a quarter of it",
            target=f"≤ {GROWTH:g} × (linear: 4)",
            met=growth <= GROWTH,
        )
        above = peak[extreme.amount] - peak[little] - extreme.amount * extreme.bytes_each
        result.add(
            f"{extreme.what}, memory above the input",
            above / 2**20,
            "MiB",
            target=f"≤ {SPARE // 2**20} MiB (least: 10)" if extreme.mode == "giant" else f"≤ {SPARE // 2**20} MiB",
            met=above <= SPARE,
        )
    return result
