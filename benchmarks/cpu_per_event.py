"""What does one delivered event cost?

Measured: CPU of the client's process per event, at 400 streams of 50 events/s. Every client keeps up with that, except
the SDKs, which are measured at 40. The clients take turns for several rounds, because the speed of the machine changes.
The median counts.
"""

from __future__ import annotations

import statistics

from .answers import Answer
from .clients import AIOHTTP, CURL, FLOOR, OPENAI, OURS, Client
from .command import run_alone
from .runs import Run, measure

STREAMS: dict[Client, int] = {FLOOR: 400, OURS: 400, CURL: 400, AIOHTTP: 400, OPENAI: 40}
LIMIT = 1.5


def answer(run: Run) -> Answer:
    """Measure all clients, the floor first."""
    result = Answer("CPU per delivered event at 400 unsaturated streams")
    costs: dict[Client, list[float]] = {client: [] for client in STREAMS}
    for _ in range(1 if run.quick else 5):
        for client, streams in STREAMS.items():
            measured = measure(run, client, streams=streams, events=75 if run.quick else 250)
            costs[client].append(measured.result["cpu_us_per_event"])
    floor = statistics.median(costs[FLOOR])
    for client, found in costs.items():
        cost = statistics.median(found)
        ours = client is OURS
        result.add(
            f"{client.label}, {STREAMS[client]} streams",
            cost,
            "µs/event",
            ratio=cost / floor,
            against="floor",
            target=f"≤ {LIMIT:g} × floor" if ours else "",
            met=cost <= LIMIT * floor if ours else None,
        )
    return result


if __name__ == "__main__":
    run_alone(answer)
