"""Routes and several keys over sockets: how many calls are answered, and how soon?

    python -m benchmarks.traffic_routes [SCENARIO…]

Each scenario runs the simulator in a process of its own, and prints what it reached beside what it must reach.

replicas: three servers, one ten times slower, one that fails 30 % of the calls quickly; 50 calls a second for 20 s.
dead-503: 50 calls a second for 30 s. From the 10th to the 20th second the first target answers 503.
dead-hang: as `dead-503`, but the first target accepts the calls and never answers. Its first-byte timeout is 2 s.
keys: one provider with two keys of separate quotas; 2,400 calls at once, of which a client that
    knows its limits needs 30 s.
key-401: one provider with two keys, of which the server refuses one; 500 calls.

The share of a dead target counts all calls of the 30 s: the outage, and as long a time before and after it. With a
timeout of 2 s, each call of the outage's first 2 s needs longer than a second, whatever the client does. So no client
reaches 90 % over less than 20 s. The part within the outage alone is shown as well.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import trio

import manystream as ms
from manystream.http_server import allow_many_sockets
from manystream.simulator import Simulator, open_simulator

MODEL = "sim-text"
ANSWER = "events=10,rate=100"
ANSWER_SECONDS = 0.1

CALLS_PER_SECOND = 50.0
DEAD_FROM, DEAD_UNTIL, SECONDS = 10.0, 20.0, 30.0
FIRST_BYTE = 2.0
SOON = 1.0
"""Seconds within which an answer must be complete."""

BUCKET = 10.0
KEY_RATE = 30.0
KEY_CALLS = 2400
KEYS = ("sk-first", "sk-second")


@dataclass(slots=True, frozen=True)
class Row:
    """One line of the table. least: what `value` must reach."""

    what: str
    value: float
    least: float
    unit: str = "%"

    def __str__(self) -> str:
        shown = f"{self.value:.1%}" if self.unit == "%" else f"{self.value:.2f} {self.unit}"
        goal = f"≥ {self.least:.0%}" if self.unit == "%" else f"≤ {self.least:g}"
        met = self.value >= self.least if self.unit == "%" else self.value <= self.least
        return f"  {self.what:44} {shown:>10}   {goal:8} {'ok' if met else 'MISSED'}"


@dataclass(slots=True, frozen=True)
class Ended:
    """A call. at: when it was started, in seconds since the first one."""

    at: float
    completion: ms.Completion

    @property
    def is_soon(self) -> bool:
        return self.completion.success and (self.completion.timings.finished or 0.0) <= SOON


def request(model: str) -> ms.Request:
    return ms.Request(model, [ms.Message.user("Tell me of rivers.")], max_output_tokens=50)


def providers_of(simulator: Simulator) -> list[ms.Provider]:
    """One provider for each replica: `r0`, `r1`, …"""
    return [
        ms.OpenAIChat("key", replica.base_urls["openai-chat"], name=f"r{place}", profile="openai-chat")
        for place, replica in enumerate(simulator.replicas)
    ]


async def paced(providers: list[ms.Provider], route: ms.Route, seconds: float) -> list[Ended]:
    """Start calls at an even pace, and wait until all have ended."""
    async with ms.open_engine(providers, traffic=ms.Traffic(routes=[route])) as engine:
        begin = trio.current_time()
        started: list[tuple[float, ms.Call]] = []
        for number in range(round(seconds * CALLS_PER_SECOND)):
            await trio.sleep_until(begin + number / CALLS_PER_SECOND)
            started.append((trio.current_time() - begin, engine.start_stream(request(route.name))))
        return [Ended(at, await call.wait()) for at, call in started]


def shares(ended: list[Ended], least: float) -> list[Row]:
    soon = sum(each.is_soon for each in ended) / len(ended)
    failed = sum(not each.completion.success for each in ended)
    return [Row("answered within a second", soon, least), Row("failed", failed, 0, "calls")]


def replicas() -> list[Row]:
    """Three replicas, one slow, one that fails."""
    with open_simulator(ANSWER, journal=0, replicas=["speed=1", "speed=0.1", "fail=0.3"]) as simulator:
        providers = providers_of(simulator)
        route = ms.Route("fast", [f"{each.name}/{MODEL}" for each in providers], balance="fastest")
        return shares(trio.run(paced, providers, route, 20.0), 0.97)


def dead(kind: str, least: float) -> list[Row]:
    """A target that is dead for ten seconds, with a fallback."""
    outage = f"outage={DEAD_FROM:g}-{DEAD_UNTIL:g}:{kind}"
    with open_simulator(ANSWER, journal=0, replicas=[outage, "speed=1"]) as simulator:
        providers = providers_of(simulator)
        first = ms.Target(f"r0/{MODEL}", timeouts=ms.Timeouts(first_byte=FIRST_BYTE))
        route = ms.Route("fast", [first, ms.Target(f"r1/{MODEL}", fallback=True)])
        ended = trio.run(paced, providers, route, SECONDS)
    moved = [each for each in ended if each.completion.attempt_records[-1].target != f"r0/{MODEL}"]
    back = (moved[-1].at if moved else DEAD_UNTIL) - DEAD_UNTIL
    during = [each for each in ended if DEAD_FROM <= each.at < DEAD_UNTIL]
    rows = shares(ended, least)
    rows.append(Row("the same, of the outage's 10 s alone", sum(each.is_soon for each in during) / len(during), 0.0))
    rows.append(Row("last call elsewhere, after the outage's end", max(0.0, back), 3, "s"))
    return rows


async def at_once(provider: ms.Provider, calls: int) -> tuple[list[ms.Completion], float]:
    """Start calls at once, and wait for all. Returns the completions and the seconds that they took."""
    async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
        begin = time.monotonic()
        started = [engine.start_stream(request(f"{provider.name}/{MODEL}")) for _ in range(calls)]
        completions = [await call.wait() for call in started]
        return completions, time.monotonic() - begin


def keys() -> list[Row]:
    """Two keys with separate quotas."""
    limits = [f"key={key} requests-per-minute={KEY_RATE * 60:g} bucket={BUCKET:g}" for key in KEYS]
    with open_simulator(ANSWER, journal=0, limits=limits) as simulator:
        provider = ms.OpenAIChat(list(KEYS), simulator.base_urls["openai-chat"], name="one", profile="openai-chat")
        completions, seconds = trio.run(at_once, provider, KEY_CALLS)
        counts = simulator.limit_counts()
    allowed = KEY_RATE * (BUCKET + seconds - ANSWER_SECONDS)
    rows = [
        Row(f"used of {key}", min(1.0, each.accepted / allowed), 0.97) for key, each in zip(KEYS, counts, strict=True)
    ]
    refused = sum(each.refused for each in counts) / sum(each.refused + each.accepted for each in counts)
    failed = sum(not completion.success for completion in completions)
    return [*rows, Row("not refused", 1 - refused, 0.0), Row("failed", failed, 0, "calls")]


_BODY = b'{"error":{"message":"Incorrect API key provided","type":"invalid_request_error","code":"invalid_api_key"}}'
_REFUSED = b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_BODY),
    _BODY,
)
_CHUNKS = (
    b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
_GOOD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(_CHUNKS), _CHUNKS)


async def refuse_first_key(stream: trio.SocketStream) -> None:
    """Serve one connection: 401 for the first key, an answer for the second."""
    received = b""
    async for data in stream:
        received += data
        while b"\r\n\r\n" in received:
            head, _, rest = received.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(rest) < length:
                break
            received = rest[length:]
            await stream.send_all(_REFUSED if KEYS[0].encode() in head else _GOOD)


async def one_key_is_refused() -> list[ms.Completion]:
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(
            partial(trio.serve_tcp, refuse_first_key, 0, host="127.0.0.1")
        )
        url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        completions, _ = await at_once(ms.OpenAIChat(list(KEYS), url, name="one", profile="openai-chat"), 500)
        nursery.cancel_scope.cancel()
    return completions


def key_401() -> list[Row]:
    """Two keys, of which the server refuses one."""
    completions = trio.run(one_key_is_refused)
    refused = sum(each.outcome == "auth" for completion in completions for each in completion.attempt_records)
    failed = sum(not completion.success for completion in completions)
    return [Row("failed", failed, 0, "calls"), Row("refused attempts, first burst included", refused, 500, "attempts")]


SCENARIOS: dict[str, Callable[[], list[Row]]] = {
    "replicas": replicas,
    "dead-503": lambda: dead("503", 0.98),
    "dead-hang": lambda: dead("hang", 0.90),
    "keys": keys,
    "key-401": key_401,
}


def print_scenarios(module: str, description: str, scenarios: Mapping[str, Callable[[], list[Row]]]) -> None:
    """Run the scenarios that the command line names, or all, and print their rows."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{module}", description=description)
    parser.add_argument("scenarios", nargs="*", choices=[[], *scenarios], help="only these")
    allow_many_sockets()
    for name in parser.parse_args().scenarios or scenarios:
        print(name)
        for row in scenarios[name]():
            print(row, flush=True)


if __name__ == "__main__":
    print_scenarios("traffic_routes", "Routes and keys.", SCENARIOS)
