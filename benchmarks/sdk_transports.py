"""What do the SDKs cost over our transport, over their own ones, and over two without a socket?

One of these two answers at once. The other one answers after the same latency: what it takes more is the library's own
objects, which the garbage collector visits while calls are in flight.

Measured of OpenAI's library: CPU of the client's process per unstreamed call, with thousands of calls in flight and two
seconds of latency. With few calls in flight, each worker makes ten calls. Then streams: events per CPU second with
1,000 streams, which is more than the library can read, and the delay of delivery with 200. Of the other libraries:
events per CPU second. The transports take turns, and the median counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from .answers import Answer
from .clients import ANTHROPIC, GOOGLE, OPENAI, Client
from .runs import Run, RunError, by_turns, measure

ROUNDS = 3
IN_FLIGHT = (4096, 2000, 256)
WAVES = {256: 10}
"""Number of calls in flight → calls of each worker, if it is not one."""
DELAY_MS = 2000

DEFAULT = replace(OPENAI, label="its default")
OURS = replace(OPENAI, label="over manystream", over="manystream")
AIOHTTP = replace(OPENAI, label="over aiohttp", over="aiohttp")
AT_ONCE = replace(OPENAI, label="answered at once", over="at-once")
LATER = replace(OPENAI, label="answered without a socket", over="later")

DEFAULT_SHARE = 0.4
AIOHTTP_SHARE = 0.7
SPREAD = {2000: 1.15, 256: 1.25}
"""Calls in flight → the most that one may cost, beside one of the most calls in flight."""

RATE = 20.0
EVENTS_FACTOR = 1.4
DELAY_MORE_MS = 5.0
BEHIND_SECONDS = 120.0
"""How long a client may need in addition, because it reads more slowly than the source sends."""
OTHERS = {"anthropic": ANTHROPIC, "gemini": GOOGLE}
"""Dialect → library."""

Figure = Literal["cpu_us_per_event", "later_p99_ms"]


def medians(
    run: Run, clients: Sequence[Client], figure: Figure = "cpu_us_per_event", **load: float | str
) -> dict[Client, float]:
    """Return a figure of each client. Raises `RunError` for a run that lost a call or a stream."""

    def one(client: Client) -> float:
        result = measure(run, client, **load).result  # type: ignore[arg-type]
        if result["failures"]:
            raise RunError(f"{client.label}: {result['failures']}")
        return result[figure]

    return by_turns(run, {client: partial(one, client) for client in clients}, ROUNDS)


def calls(run: Run) -> Answer:
    """Measure the calls, most first."""
    result = Answer("Calls of OpenAI's library over five transports")
    ours: dict[int, float] = {}
    for count in (64,) if run.quick else IN_FLIGHT:
        clients = (OURS, AT_ONCE) if count in WAVES else (DEFAULT, AIOHTTP, OURS, AT_ONCE, LATER)
        load: dict[str, float | str] = {"streams": count, "events": count * WAVES.get(count, 1)}
        cost = medians(run, clients, **load, mode="answer", delay=DELAY_MS)
        ours[count] = cost[OURS]
        for client, microseconds in cost.items():
            limit = DEFAULT_SHARE if client is OURS else None
            beside = ("its default", cost[DEFAULT]) if DEFAULT in cost else None
            what = f"{count:,} calls in flight, {client.label}"
            result.add(what, microseconds, "µs/call", beside=beside, within=limit)
        if AIOHTTP in cost:
            beside = ("what aiohttp adds", cost[AIOHTTP] - cost[AT_ONCE])
            what, added = f"{count:,} calls in flight, what our transport adds", cost[OURS] - cost[AT_ONCE]
            result.add(what, added, "µs/call", beside=beside, within=AIOHTTP_SHARE)
    for count, limit in () if run.quick else SPREAD.items():
        beside = (f"{IN_FLIGHT[0]:,} in flight", ours[IN_FLIGHT[0]])
        what = f"{count:,} calls in flight beside {IN_FLIGHT[0]:,}, over manystream"
        result.add(what, ours[count], "µs/call", beside=beside, within=limit)
    return result


def streams(run: Run) -> Answer:
    """Measure the streams of each library, and the delay of OpenAI's."""
    result = Answer("Streams of the SDKs over their transports and ours")
    many, few = (100, 20) if run.quick else (1000, 200)
    load: dict[str, float | str] = {"events": 40 if run.quick else 60, "rate": RATE, "behind": BEHIND_SECONDS}
    add_speeds(result, medians(run, (DEFAULT, AIOHTTP, OURS), streams=many, **load), f"{many:,} streams of openai")
    for dialect, library in () if run.quick else OTHERS.items():
        pair = (replace(library, label="its default"), replace(library, label="over manystream", over="manystream"))
        found = medians(run, pair, streams=few, dialect=dialect, **load)
        add_speeds(result, found, f"{few:,} streams of {library.name}")
    delays = medians(run, (AIOHTTP, OURS), "later_p99_ms", streams=few, **load)
    for client, delay in delays.items():
        ours = client is OURS
        result.add(
            f"{few:,} streams, p99 of delivery after the first second, {client.label}",
            delay,
            "ms",
            target=f"≤ aiohttp + {DELAY_MORE_MS:g} ms" if ours else "",
            met=delay <= delays[AIOHTTP] + DELAY_MORE_MS if ours else None,
        )
    return result


def add_speeds(result: Answer, cost: dict[Client, float], what: str) -> None:
    """Add the events per CPU second. cost: microseconds per event; the default comes first."""
    default = next(iter(cost.values()))
    for client, microseconds in cost.items():
        ratio, ours = default / microseconds, client.over == "manystream"
        result.add(
            f"{what}, {client.label}",
            1e6 / microseconds,
            "events/s of CPU",
            ratio=ratio,
            against="its default",
            target=f"≥ {EVENTS_FACTOR:g} × default" if ours and AIOHTTP in cost else "",
            met=ratio >= EVENTS_FACTOR if ours and AIOHTTP in cost else None,
            shown=ours,
        )
