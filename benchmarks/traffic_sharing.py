"""Limits that change, and limits that are shared, over sockets.

    python -m benchmarks.traffic_sharing [SCENARIO…]

Each scenario runs the simulator in a process of its own, and prints what it reached beside what it must reach. Nothing
is declared: the clients know what the server reports.

changed: the limit is halved after 10 s and doubled after 20 s; 2,400 calls at once.
tenants: two tenants under a limit of tokens per minute, one with ten times the calls and four times the prompt.
reserved: a tenant starts a burst whose calls reserve many times the output that they use; then another one starts.
processes: two processes with one key, 1,200 calls each at once. The second one to end is alone for a time, which does
    not count.

used: the accepted calls, as a part of those that a client with full knowledge could have sent in the same time.
Jain's index: 1 for equal shares, 0.5 if one of two has everything.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import trio

import manystream as ms
from manystream.http_server import allow_many_sockets
from manystream.simulator import open_simulator

from .traffic_routes import ANSWER, ANSWER_SECONDS, BUCKET, MODEL, Row, print_scenarios, request

RATE = 60.0
"""Requests per second that the server allows."""

CALLS = 2_400
HALVED_AT, DOUBLED_AT = 10.0, 20.0

TOKENS = 12_000.0
"""Tokens per second that the server allows. Its bucket holds one second of them, so that the calls of the small tenant
are sent over several seconds."""
OUTPUT = 50
PROMPT = "Tell me of rivers. " * 40
TENANTS = {"large": (2_000, PROMPT * 4), "small": (200, PROMPT)}
"""Tenant → number of calls and prompt."""

RESERVED = (1, 20, 200)
"""How many times the output that a call uses is reserved by a call of the burst."""
USED = 20
BURST_RATE, BURST, WINDOW = 4.0, 600, 10.0

PROCESSES, CALLS_OF_EACH = 2, 1_200


def limit(rate: float) -> str:
    return f"requests-per-minute={rate * 60:g} bucket={BUCKET:g}"


def refused_attempts(completions: Sequence[ms.Completion]) -> int:
    return sum(each.outcome == "rate_limit" for completion in completions for each in completion.attempt_records)


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness (Jain, Chiu, Hawe 1984)."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def provider_at(url: str) -> ms.Provider:
    return ms.OpenAIChat("key", url, name="one", profile="openai-chat")


async def all_at_once(url: str, calls: int) -> tuple[list[ms.Completion], list[float]]:
    """Start calls at once, and wait for all. Returns the completions and their times by the monotonic clock."""
    ended: list[float] = []
    async with ms.open_engine([provider_at(url)], traffic=ms.Traffic()) as engine:
        question = request(f"one/{MODEL}")
        started = [
            engine.start_stream(question, on_completion=lambda _: ended.append(time.monotonic())) for _ in range(calls)
        ]
        return [await call.wait() for call in started], ended


def changed() -> list[Row]:
    """The limit changes twice under way."""

    async def main() -> tuple[list[ms.Completion], float]:
        async with trio.open_nursery() as nursery:
            begin = time.monotonic()
            nursery.start_soon(change)
            completions, ended = await all_at_once(simulator.base_urls["openai-chat"], CALLS)
            return completions, max(ended) - begin

    async def change() -> None:
        for seconds, rate in ((HALVED_AT, RATE / 2), (DOUBLED_AT - HALVED_AT, RATE)):
            await trio.sleep(seconds)
            await trio.to_thread.run_sync(simulator.change_limits, [limit(rate)])

    with open_simulator(ANSWER, journal=0, limits=[limit(RATE)]) as simulator:
        completions, seconds = trio.run(main)
    answered = sum(each.success for each in completions)
    refused = refused_attempts(completions)
    allowed = RATE * (BUCKET + seconds - ANSWER_SECONDS) - RATE / 2 * (DOUBLED_AT - HALVED_AT)
    return [
        Row("used", min(1.0, answered / allowed), 0.95),
        Row("not refused", 1 - refused / (refused + answered), 0.99),
        Row("failed", CALLS - answered, 0, "calls"),
    ]


def tenants() -> list[Row]:
    """Two tenants with different loads."""
    ended: list[tuple[str, int]] = []

    async def main(url: str) -> list[ms.Completion]:
        async with ms.open_engine([provider_at(url)], traffic=ms.Traffic()) as engine:
            started: dict[str, list[ms.Call]] = {}
            for tenant, (calls, prompt) in TENANTS.items():
                asked = ms.Request(f"one/{MODEL}", [ms.Message.user(prompt)], max_output_tokens=OUTPUT, tenant=tenant)

                def on_completion(
                    _: ms.Completion, each: tuple[str, int] = (tenant, len(prompt) // 4 + OUTPUT)
                ) -> None:
                    ended.append(each)

                started[tenant] = [engine.start_stream(asked, on_completion=on_completion) for _ in range(calls)]
            return [await call.wait() for call in started["small"]]

    tokens_per_minute = f"requests-per-minute=1e6 tokens-per-minute={TOKENS * 60:g} bucket=1"
    with open_simulator(ANSWER, journal=0, limits=[tokens_per_minute]) as simulator:
        completions = trio.run(main, simulator.base_urls["openai-chat"])
    last = max(place for place, (tenant, _) in enumerate(ended) if tenant == "small")
    shares = [float(sum(tokens for each, tokens in ended[: last + 1] if each == tenant)) for tenant in TENANTS]
    return [
        Row("Jain's index over tokens, while both have work", jain(shares), 0.98),
        Row("tokens of the small tenant, as a part of the large one's", shares[1] / shares[0], 0.0),
        Row("failed calls of the small tenant", sum(not each.success for each in completions), 0, "calls"),
    ]


def reserved() -> list[Row]:
    """A burst of one tenant, and another one that starts later, under a declared limit of requests."""
    ended: dict[tuple[str, str], list[float]] = {}
    began = 0.0

    async def main(url: str) -> None:
        nonlocal began
        providers = [ms.OpenAIChat(f"key-{ratio}", url, name=str(ratio)) for ratio in RESERVED]
        limit = ms.RateLimit(requests_per_minute=BURST_RATE * 60)
        traffic = ms.Traffic(rates={provider.name: limit for provider in providers})
        async with ms.open_engine(providers, traffic=traffic) as engine:

            def start(ratio: int, tenant: str, most: int, calls: int) -> None:
                times = ended[str(ratio), tenant] = []
                asked = ms.Request(
                    f"{ratio}/{MODEL}", [ms.Message.user("Hello")], max_output_tokens=most, tenant=tenant
                )
                for _ in range(calls):
                    engine.start_stream(asked, on_completion=lambda _: times.append(time.monotonic()))

            for ratio in RESERVED:
                start(ratio, "burst", ratio * USED, BURST)
            await trio.sleep(5)
            began = time.monotonic()
            for ratio in RESERVED:
                start(ratio, "later", USED, BURST)
            await trio.sleep(3 * WINDOW)
            engine.close()

    with open_simulator(f"events={USED},rate={USED / 0.5:g}", journal=0) as simulator:
        trio.run(main, simulator.base_urls["openai-chat"])

    def least_fair(ratio: int) -> float:
        windows: list[float] = []
        for step in range(int(2 * WINDOW)):
            since = began + step
            both = (ended[str(ratio), tenant] for tenant in ("burst", "later"))
            windows.append(jain([float(sum(since <= at < since + WINDOW for at in times)) for times in both]))
        return min(windows)

    return [
        Row(f"Jain's index in any ten seconds, {ratio} times reserved", least_fair(ratio), 0.97) for ratio in RESERVED
    ]


def processes() -> list[Row]:
    """Two processes that do not know each other."""
    with open_simulator(ANSWER, journal=0, limits=[limit(RATE)]) as simulator:
        command = [sys.executable, "-m", __spec__.name, simulator.base_urls["openai-chat"]]
        children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
        printed = [json.loads(child.communicate(timeout=300)[0]) for child in children]
        counts = simulator.limit_counts()[0]
    until = min(max(page["ended"]) for page in printed)
    shares = [float(sum(at <= until for at in page["ended"])) for page in printed]
    allowed = RATE * (BUCKET + until - min(page["began"] for page in printed) - ANSWER_SECONDS)
    return [
        Row("used, while both have work", min(1.0, sum(shares) / allowed), 0.95),
        Row("Jain's index over calls, while both have work", jain(shares), 0.90),
        Row("not refused", 1 - counts.refused / (counts.refused + counts.accepted), 0.90),
        Row("failed", sum(page["failed"] for page in printed), 0, "calls"),
    ]


def run_one_process(url: str) -> None:
    """Make the calls of one of the processes, and print when they ended."""
    allow_many_sockets()
    began = time.monotonic()
    completions, ended = trio.run(all_at_once, url, CALLS_OF_EACH)
    print(json.dumps({"began": began, "ended": ended, "failed": sum(not each.success for each in completions)}))


SCENARIOS: dict[str, Callable[[], list[Row]]] = {
    "changed": changed,
    "tenants": tenants,
    "reserved": reserved,
    "processes": processes,
}


if __name__ == "__main__":
    if sys.argv[-1].startswith("http:"):
        run_one_process(sys.argv[-1])
    else:
        print_scenarios("traffic_sharing", "Limits that change or are shared.", SCENARIOS)
