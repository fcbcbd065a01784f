"""How soon does an event reach the program?

Measured: the time from the source's send to the user's callback, and CPU per event, at several numbers of live
streams of 50 events/s. Then the same for single calls beside live streams: a stream's first event of text, and an
unstreamed answer. The clients take turns for several rounds, and the median counts.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field

from .answers import Answer, Series
from .clients import FLOOR, OURS, Client
from .probes import KINDS, SECONDS_PER_CALL
from .runs import Run, measure, run_program

ROUNDS = 3
LIMITS = {10: 2.0, 50: 2.0, 100: 2.0, 400: 6.0, 1000: None, 2000: None}
"""Live streams → the largest ratio of our median to the floor's; None: no target."""
LABELS = {"first-token": "first token", "answer": "unstreamed answer"}
PROBED = (10, 50)
CALLS = 300
EXTRA_MS = 0.3
"""How much later than the floor a single call's bytes may reach the callback, in the median."""


@dataclass(slots=True)
class Found:
    """The figures of one client at one load, a list entry per round.

    steady: the 99th percentile without the first events and the ends of the streams.
    """

    p50: list[float] = field(default_factory=list[float])
    p99: list[float] = field(default_factory=list[float])
    steady: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])


def answer(run: Run) -> Answer:
    """Measure the floor and manystream by turns."""
    result = Answer("Delay from the send to the callback")
    rounds = 1 if run.quick else ROUNDS
    lines: dict[Client, list[tuple[float, float]]] = {FLOOR: [], OURS: []}
    for streams, limit in LIMITS.items():
        report_streams(result, streams, limit, measured(run, streams, rounds), lines)
    for client, points in lines.items():
        result.series.append(Series("median delay over live streams", client.label, points))
    for streams in PROBED:
        for kind in KINDS:
            report_calls(result, kind, streams, run, rounds)
    return result


def measured(run: Run, streams: int, rounds: int) -> dict[Client, Found]:
    """Run both clients by turns."""
    found = {FLOOR: Found(), OURS: Found()}
    for _ in range(rounds):
        for client, figures in found.items():
            each = measure(run, client, streams=streams, events=75 if run.quick else 200).result
            figures.p50.append(each["p50_ms"])
            figures.p99.append(each["p99_ms"])
            figures.steady.append(each["steady_p99_ms"])
            figures.cpu.append(each["cpu_us_per_event"])
    return found


def report_streams(
    result: Answer,
    streams: int,
    limit: float | None,
    found: dict[Client, Found],
    lines: dict[Client, list[tuple[float, float]]],
) -> None:
    """Report median, 99th percentiles and CPU per event at one number of streams. Adds a point to each line."""
    floor = found[FLOOR]
    for client, figures in found.items():
        where = f"{client.label}, {streams:,} streams"
        p50 = statistics.median(figures.p50)
        ratio = p50 / statistics.median(floor.p50)
        target = f"≤ {limit:g} × floor" if limit is not None and client is OURS else ""
        met = limit is not None and ratio <= limit if target else None
        result.add(f"{where}, p50", p50, "ms", ratio=ratio, against="floor", target=target, met=met)
        for name, values, against, unit in (
            ("p99", figures.p99, floor.p99, "ms"),
            ("p99 without starts and ends", figures.steady, floor.steady, "ms"),
            ("CPU", figures.cpu, floor.cpu, "µs"),
        ):
            value = statistics.median(values)
            result.add(f"{where}, {name}", value, unit, ratio=value / statistics.median(against), against="floor")
        lines[client].append((float(streams), p50))


def report_calls(result: Answer, kind: str, streams: int, run: Run, rounds: int) -> None:
    """Report the median delay of single calls' bytes beside live streams."""
    found: dict[Client, list[float]] = {FLOOR: [], OURS: []}
    calls = 50 if run.quick else CALLS
    for _ in range(rounds):
        for client, values in found.items():
            arguments = (run.source.origin(), kind, str(streams), str(calls))
            module = f"benchmarks.peers.{client.module}_probes"
            output = run_program(run, module, *arguments, seconds=20 + calls * SECONDS_PER_CALL * 4)
            values.append(json.loads(output)["p50_ms"])
    floor = statistics.median(found[FLOOR])
    for client, values in found.items():
        value = statistics.median(values)
        ours = client is OURS
        result.add(
            f"{client.label}, {LABELS[kind]} beside {streams} streams, p50",
            value,
            "ms",
            ratio=value / floor,
            against="floor",
            target=f"≤ floor + {EXTRA_MS:g} ms" if ours else "",
            met=value <= floor + EXTRA_MS if ours else None,
        )
