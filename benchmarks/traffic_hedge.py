"""Hedging and budgets over sockets: how late is the slowest call, and how much of a budget is used?

    python -m benchmarks.traffic_hedge [SCENARIO…]

Each scenario runs the simulator in a process of its own, and prints what it reached beside what it must reach.

hedge: two replicas, of whose answers 2 % take twenty times as long; 50 calls a second for 60 s, with and without
    `Hedge("p95", at_most=0.05)`.
budget: 1,000 calls in one tick under a budget that pays for half of them.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

import manystream as ms
from manystream.simulator import open_simulator

from .traffic_routes import MODEL, Row, paced, print_scenarios, providers_of, request

SECONDS = 60.0
ANSWER = "events=5,rate=1000,delay=0.1"
SLOW = "slow=0.02"

CALLS = 1_000
OUTPUT = 20
MOST_OUTPUT = 50
DOLLARS_PER_TOKEN = 1e-5


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def run(hedge: ms.Hedge | None) -> tuple[list[float], float, int]:
    """Returns the seconds of each call, the sent requests per call, and the number of calls that failed."""
    with open_simulator(ANSWER, journal=0, replicas=[f"{SLOW} seed=1", f"{SLOW} seed=2"]) as simulator:
        providers = providers_of(simulator)
        names = [f"{each.name}/{MODEL}" for each in providers]
        ended = trio.run(paced, providers, ms.Route("fast", names, balance="weighted", hedge=hedge), SECONDS)
    completions = [each.completion for each in ended]
    sent = sum(each.attempts for each in completions) / len(completions)
    failed = sum(not each.success for each in completions)
    return [each.timings.finished or 0.0 for each in completions], sent, failed


def hedging() -> list[Row]:
    """2 % of the calls are twenty times slower."""
    alone, _, failed_alone = run(None)
    hedged, sent, failed = run(ms.Hedge("p95", at_most=0.05))
    before, after = percentile(alone, 0.99), percentile(hedged, 0.99)
    return [
        Row("median, without and with", percentile(alone, 0.5) / percentile(hedged, 0.5), 0.5),
        Row("p99 without", before, 99, "s"),
        Row("p99 with", after, before / 5, "s"),
        Row("better by a factor of 5", min(1.0, before / after / 5), 1.0),
        Row("requests beyond one per call, in %", 100 * (sent - 1), 5, "% more"),
        Row("failed", failed + failed_alone, 0, "calls"),
    ]


def price(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
    return DOLLARS_PER_TOKEN * ((usage.input_tokens or 0) + (usage.output_tokens or 0))


async def spend(provider: ms.Provider, limit: float) -> tuple[list[ms.Completion], float]:
    """Start all calls in one tick under a budget. Returns their completions, and the reserved dollars afterwards."""
    traffic = ms.Traffic(budgets=[ms.Budget(usd=limit)], price=price)
    async with ms.open_engine([provider], traffic=traffic) as engine:
        question = request(f"{provider.name}/{MODEL}")
        started = [engine.start_stream(question) for _ in range(CALLS)]
        completions = [await call.wait() for call in started]
        return completions, engine.statistics().traffic.budgets[0].reserved.usd


def budget() -> list[Row]:
    """A thousand calls in one tick."""
    with open_simulator(f"events={OUTPUT},rate=200", journal=0) as simulator:
        url = simulator.base_urls["openai-chat"]
        limit = CALLS / 2 * DOLLARS_PER_TOKEN * (OUTPUT + 10)
        completions, reserved = trio.run(spend, ms.OpenAIChat("key", url, name="one", profile="openai-chat"), limit)
    paid = sum(
        DOLLARS_PER_TOKEN * ((each.response.usage.input_tokens or 0) + (each.response.usage.output_tokens or 0))
        for each in completions
        if each.response is not None
    )
    refused = sum(each.error_category is ms.ErrorCategory.BUDGET for each in completions)
    others = sum(not each.success for each in completions) - refused
    return [
        Row("used of the budget", paid / limit, 0.97),
        Row("overspent", max(0.0, paid - limit), 0, "USD"),
        Row("reserved afterwards", reserved, 0, "USD"),
        Row("refused", refused, CALLS, "calls"),
        Row("failed otherwise", others, 0, "calls"),
    ]


SCENARIOS: dict[str, Callable[[], list[Row]]] = {"hedge": hedging, "budget": budget}


if __name__ == "__main__":
    print_scenarios("traffic_hedge", "Hedging and budgets.", SCENARIOS)
