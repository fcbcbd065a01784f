"""What does the engine cost in an asyncio program, and in synchronous code?

Measured: CPU of the client's process per event, with callbacks and with iteration, against the same in a trio
program.
The programs take turns for several rounds, and the median counts. With few streams, the fixed cost of a bridge per
iteration is largest.
"""

from __future__ import annotations

import statistics

from .answers import Answer
from .clients import OURS, Client
from .command import run_alone
from .runs import Run, measure

STREAMS = (10, 100, 400, 1000)
AIO = Client("manystream-aio", "ours_aio", "asyncio, callbacks", OURS.guess)
PORTAL = Client("manystream-portal", "ours_portal", "portal, callbacks", OURS.guess)
ITERATED = Client("manystream-iterated", "ours_iterated", "trio, iterated", OURS.guess)
AIO_ITERATED = Client("manystream-aio-iterated", "ours_aio_iterated", "asyncio, iterated", OURS.guess)
NATIVE = {AIO: OURS, PORTAL: OURS, AIO_ITERATED: ITERATED}
"""Bridge → the native program that does the same."""

LABELS = {OURS: "trio, callbacks"}
LIMIT = 1.15


def answer(run: Run) -> Answer:
    """Run native programs and bridges at several numbers of streams."""
    result = Answer("Cost of the bridges to asyncio and to threads")
    for streams in STREAMS[2:3] if run.quick else STREAMS:
        costs: dict[Client, list[float]] = {client: [] for client in (OURS, AIO, PORTAL, ITERATED, AIO_ITERATED)}
        delays: dict[Client, list[float]] = {client: [] for client in costs}
        for _ in range(1 if run.quick else 3):
            for client in costs:
                measured = measure(run, client, streams=streams, events=75 if run.quick else 150)
                costs[client].append(measured.result["cpu_us_per_event"])
                delays[client].append(measured.result["p99_ms"])
        for client, found in costs.items():
            cost, native = statistics.median(found), NATIVE.get(client)
            ratio = cost / statistics.median(costs[native]) if native is not None else None
            judged = client in (AIO, AIO_ITERATED)
            result.add(
                f"{LABELS.get(client, client.label)}, {streams:,} streams",
                cost,
                "µs/event",
                ratio=ratio,
                against=LABELS.get(native, native.label) if native is not None else "",
                target=f"≤ {LIMIT:g} × native" if judged else "",
                met=ratio is not None and ratio <= LIMIT if judged else None,
            )
        slowest = ", ".join(f"{LABELS.get(c, c.label)} {statistics.median(d):.1f}" for c, d in delays.items())
        result.notes.append(f"{streams:,} streams, p99 of delivery in ms: {slowest}")
    return result


if __name__ == "__main__":
    run_alone(answer)
