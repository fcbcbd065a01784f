"""What does OpenAI's library cost over our transport, over its own ones, and over two without a socket?

One of these two answers at once. The other one answers after the same latency: what it takes more is the library's own
objects, which the garbage collector visits while calls are in flight.

Measured: CPU of the client's process per unstreamed call, with thousands of calls in flight and two seconds of latency.
The transports take turns for five rounds, and the median counts. With few calls in flight, each worker makes ten calls.
`sdk_streams.py` has the streams.
"""

from __future__ import annotations

import statistics

from .answers import Answer
from .clients import OPENAI, Client
from .command import run_alone
from .runs import Measured, Run, RunError, measure

ROUNDS = 5
IN_FLIGHT = (4096, 2000, 256)
WAVES = {256: 10}
"""Number of calls in flight → calls of each worker, if it is not one."""
DELAY_MS = 2000

OURS = Client("openai-ours", "openai_ours", "over manystream", OPENAI.guess)
AIOHTTP = Client("openai-aiohttp", "openai_aiohttp", "over aiohttp", OPENAI.guess)
AT_ONCE = Client("openai-at-once", "openai_at_once", "answered at once", OPENAI.guess)
LATER = Client("openai-later", "openai_later", "answered without a socket", OPENAI.guess)
DEFAULT = Client(OPENAI.name, OPENAI.module, "its default", OPENAI.guess)

DEFAULT_SHARE = 0.4
AIOHTTP_SHARE = 0.7
SPREAD_2000 = 1.15
SPREAD_256 = 1.25

Found = dict[Client, list[Measured]]


def answer(run: Run) -> Answer:
    """Measure the calls, most first."""
    result = Answer("Calls of OpenAI's library over five transports")
    rounds = 1 if run.quick else ROUNDS
    if rounds > 1:
        result.notes.append(f"medians of {rounds} rounds, in which the transports take turns")
    costs = {count: calls(run, count, rounds) for count in ((64,) if run.quick else IN_FLIGHT)}
    for count, cost in costs.items():
        add_calls(result, count, cost)
    if not run.quick:
        add_spread(result, {count: cost[OURS] for count, cost in costs.items()})
    return result


def take_turns(run: Run, clients: tuple[Client, ...], rounds: int, **load: float | str) -> Found:
    """Run each client once per round. Raises `RunError` for a run that lost a call or a stream."""
    found: Found = {client: [] for client in clients}
    for _ in range(rounds):
        for client in clients:
            measured = measure(run, client, **load)  # type: ignore[arg-type]
            if measured.result["failures"]:
                raise RunError(f"{client.label}: {measured.result['failures']}")
            found[client].append(measured)
    return found


def calls(run: Run, count: int, rounds: int) -> dict[Client, float]:
    """Return the median microseconds of CPU per call, with `count` calls in flight."""
    clients = (OURS, AT_ONCE) if count in WAVES else (DEFAULT, AIOHTTP, OURS, AT_ONCE, LATER)
    total = count * WAVES.get(count, 1)
    found = take_turns(run, clients, rounds, streams=count, events=total, mode="answer", delay=DELAY_MS)
    return {client: statistics.median(one.result["cpu_us_per_event"] for one in runs) for client, runs in found.items()}


def add_calls(result: Answer, count: int, cost: dict[Client, float]) -> None:
    """Add the rows of one number of calls in flight."""
    for client, microseconds in cost.items():
        judged = client is OURS and DEFAULT in cost
        ratio = microseconds / cost[DEFAULT] if DEFAULT in cost else None
        result.add(
            f"{count:,} calls in flight, {client.label}",
            microseconds,
            "µs/call",
            ratio=ratio,
            against=DEFAULT.label if DEFAULT in cost else "",
            target=f"≤ {DEFAULT_SHARE:g} × default, < aiohttp" if judged else "",
            met=ratio is not None and ratio <= DEFAULT_SHARE and microseconds < cost[AIOHTTP] if judged else None,
        )
    if AIOHTTP in cost:
        added, others = cost[OURS] - cost[AT_ONCE], cost[AIOHTTP] - cost[AT_ONCE]
        result.add(
            f"{count:,} calls in flight, what our transport adds",
            added,
            "µs/call",
            ratio=added / others,
            against="what aiohttp adds",
            target=f"≤ {AIOHTTP_SHARE:g} × aiohttp",
            met=added <= AIOHTTP_SHARE * others,
        )


def add_spread(result: Answer, ours: dict[int, float]) -> None:
    """Compare our cost at fewer calls in flight with that at the most."""
    most = IN_FLIGHT[0]
    for count, limit in ((2000, SPREAD_2000), (256, SPREAD_256)):
        ratio = ours[count] / ours[most]
        result.add(
            f"{count:,} calls in flight beside {most:,}, over manystream",
            ours[count],
            "µs/call",
            ratio=ratio,
            against=f"{most:,} in flight",
            target=f"≤ {limit:g} × {most:,} in flight",
            met=ratio <= limit,
        )


if __name__ == "__main__":
    run_alone(answer)
