"""What would our transport cost a synchronous client, on an event loop in a thread of its own?

Measured: CPU and wall time of httpx2's synchronous client per unstreamed call and per event of streams, over its own
transport and over a prototype that passes each request to our transport in another thread. One thread and 32 threads.
The two take turns for three rounds, and the median counts. `Transport` has no synchronous form, because streams are
slower over the prototype.
"""

from __future__ import annotations

import statistics

from .answers import Answer
from .clients import Client
from .command import run_alone
from .runs import Measured, Run, RunError, measure

ROUNDS = 3
THREADS = (1, 32)
CALLS = 3200
STREAM_EVENTS = {1: 2000, 32: 200}
"""Number of threads → events of each stream."""
RATE = {1: 1000.0, 32: 50.0}

DEFAULT = Client("httpx2-sync", "httpx2_sync", "its default", 32)
PORTAL = Client("httpx2-sync-portal", "httpx2_sync_portal", "over another thread", 32)
CLIENTS = (DEFAULT, PORTAL)


def answer(run: Run) -> Answer:
    """Measure calls, then streams."""
    result = Answer("httpx2's synchronous client over two transports")
    for threads in THREADS:
        calls = CALLS // 10 if run.quick else CALLS
        add(result, f"call, threads: {threads}", "calls", run, streams=threads, events=calls, mode="answer")
        add(
            result, f"event, threads: {threads}", "events", run,
            streams=threads, events=STREAM_EVENTS[threads], rate=RATE[threads],
        )  # fmt: skip
    return result


def add(result: Answer, what: str, of: str, run: Run, **load: int | float | str) -> None:
    """Add rows of both transports for one load: CPU, and wall time of unstreamed calls."""
    found: dict[Client, list[Measured]] = {client: [] for client in CLIENTS}
    for _ in range(1 if run.quick else ROUNDS):
        for client in CLIENTS:
            measured = measure(run, client, **load)  # type: ignore[arg-type]
            if measured.result["failures"]:
                raise RunError(f"{client.label} failed: {measured.result['failures']}")
            found[client].append(measured)
    cpu = {client: statistics.median(one.result["cpu_us_per_event"] for one in runs) for client, runs in found.items()}
    wall = {
        client: statistics.median(one.result["wall"] / one.result["events"] * 1e6 for one in runs)
        for client, runs in found.items()
    }
    for name, costs in (("CPU", cpu), ("wall time", wall)) if of == "calls" else (("CPU", cpu),):
        for client, cost in costs.items():
            ratio = cost / costs[DEFAULT] if client is PORTAL else None
            against = DEFAULT.label if client is PORTAL else ""
            result.add(f"{name} per {what}, {client.label}", cost, "µs", ratio=ratio, against=against)


if __name__ == "__main__":
    run_alone(answer)
