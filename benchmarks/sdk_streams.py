"""How many events per CPU second does OpenAI's library read over our transport, and how soon are they delivered?

Measured: events per CPU second with 1,000 streams, which is more than the library can read; the delay of delivery with
200 streams. The transports take turns for five rounds, and the median counts. `sdk_transports.py` has the calls.
"""

from __future__ import annotations

import statistics

from .answers import Answer
from .command import run_alone
from .runs import Run
from .sdk_transports import AIOHTTP, DEFAULT, OURS, ROUNDS, take_turns

RATE = 20.0
EVENTS_FACTOR = 1.4
DELAY_MORE_MS = 5.0
BEHIND_SECONDS = 120.0
"""How long a client may need in addition, because it reads more slowly than the source sends."""


def answer(run: Run) -> Answer:
    """Measure 1,000 streams by CPU, and 200 by their delay."""
    result = Answer("Streams of OpenAI's library over three transports")
    rounds = 1 if run.quick else ROUNDS
    if rounds > 1:
        result.notes.append(f"medians of {rounds} rounds, in which the transports take turns")
    many, few = (100, 20) if run.quick else (1000, 200)
    events = 40 if run.quick else 100
    load = {"events": events, "rate": RATE, "behind": BEHIND_SECONDS}
    add_speeds(result, run, rounds, many, load)
    add_delays(result, run, rounds, few, load)
    return result


def add_speeds(result: Answer, run: Run, rounds: int, streams: int, load: dict[str, float]) -> None:
    """Add the events per CPU second."""
    found = take_turns(run, (DEFAULT, AIOHTTP, OURS), rounds, streams=streams, **load)
    speeds = {
        client: statistics.median(1e6 / one.result["cpu_us_per_event"] for one in runs)
        for client, runs in found.items()
    }
    for client, speed in speeds.items():
        ratio, ours = speed / speeds[DEFAULT], client is OURS
        result.add(
            f"{streams:,} streams at {RATE:g} events/s, {client.label}",
            speed,
            "events/s of CPU",
            ratio=ratio,
            against=DEFAULT.label,
            target=f"≥ {EVENTS_FACTOR:g} × default, ≥ aiohttp" if ours else "",
            met=ratio >= EVENTS_FACTOR and speed >= speeds[AIOHTTP] if ours else None,
        )


def add_delays(result: Answer, run: Run, rounds: int, streams: int, load: dict[str, float]) -> None:
    """Add the delay of delivery."""
    found = take_turns(run, (AIOHTTP, OURS), rounds, streams=streams, **load)
    delays = {client: statistics.median(one.result["later_p99_ms"] for one in runs) for client, runs in found.items()}
    for client, delay in delays.items():
        ours = client is OURS
        result.add(
            f"{streams:,} streams, p99 of delivery after the first second, {client.label}",
            delay,
            "ms",
            target=f"≤ aiohttp + {DELAY_MORE_MS:g} ms" if ours else "",
            met=delay <= delays[AIOHTTP] + DELAY_MORE_MS if ours else None,
        )


if __name__ == "__main__":
    run_alone(answer)
