"""A day in simulated time: an engine's calls against the simulator, in memory, recorded and counted."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.engine.options import EngineOptions
from manystream.http_server import HTTPRequest
from manystream.simulator.limit import read_limit
from manystream.simulator.program import Program
from manystream.simulator.replica import Replica, read_replica
from manystream.simulator.service import Service, ServiceSettings
from manystream.whatif.simulate import MemoryServers, same_order

HOST = "openai.test"


@dataclass(slots=True, frozen=True)
class Work:
    """One call of a day. delay: seconds to its first event. rate: events a second."""

    at: float
    characters: int
    events: int
    delay: float
    rate: float
    tenant: str | None = None
    session: str | None = None
    gap: float = 0.0
    stream: bool = True
    priority: str = "normal"


def works(calls: int, rate: float, seed: int = 1, **more: object) -> list[Work]:
    """Return calls at random times."""
    lots, at, made = random.Random(seed), 0.0, list[Work]()
    for _ in range(calls):
        at += lots.expovariate(rate)
        size = lots.randint(200, 8000)
        delay = 0.2 + size * 0.0001 + lots.uniform(0.0, 0.2)
        made.append(Work(at, size, lots.randint(3, 10), delay, lots.uniform(1, 3), **more))  # type: ignore[arg-type]
    return made


@dataclass(slots=True)
class Truth:
    """What the calls of a day had."""

    latencies: list[float] = field(default_factory=list[float])
    failed: Counter[str] = field(default_factory=Counter[str])
    cost: float = 0.0
    refused: int = 0
    waited: float = 0.0

    def percentile(self, share: float) -> float:
        found = sorted(self.latencies)
        return found[min(len(found) - 1, int(len(found) * share))]


class CountingService(Service):
    """The simulator's service. It counts its refusals."""

    def __init__(self, settings: ServiceSettings, truth: Truth) -> None:
        super().__init__(settings, trio.current_time, lambda: 1.7e9 + trio.current_time())
        self._truth = truth

    def answer(self, request: HTTPRequest) -> Program:
        program = super().answer(request)
        self._truth.refused += program.frames[0].startswith(b"HTTP/1.1 429")
        return program


def price(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
    dear = 3.0 if model.endswith("dear") else 1.0
    return dear * ((usage.input_tokens or 0) * 1.25e-6 + (usage.output_tokens or 0) * 10e-6)


@dataclass(slots=True)
class Day:
    """What is the same in each run: the calls, and the servers.

    limits: of each host, as the simulator's texts. replicas: host → how it differs.
    """

    works: Sequence[Work]
    limits: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    replicas: dict[str, str] = field(default_factory=dict[str, str])
    model: str = "openai/gpt-5"
    keys: int = 1
    hosts: Sequence[str] = ("openai",)

    def run(
        self, traffic: ms.Traffic | None, path: Path | None = None, *, content: bool = False, **options: object
    ) -> Truth:
        """Make the calls, and record them if a path is given."""
        truth = Truth()
        with same_order(1):
            trio.run(
                partial(self._main, traffic, path, content, truth, options),
                clock=trio.testing.MockClock(autojump_threshold=0),
            )
        return truth

    async def _main(
        self, traffic: ms.Traffic | None, path: Path | None, content: bool, truth: Truth, options: EngineOptions
    ) -> None:
        services = {
            (f"{host}.test", 80): CountingService(
                ServiceSettings(
                    limits=tuple(map(read_limit, self.limits.get(host, ()))),
                    replica=read_replica(self.replicas[host]) if host in self.replicas else Replica(),
                ),
                truth,
            )
            for host in self.hosts
        }
        servers = MemoryServers(services)
        providers = [
            ms.OpenAIChat(
                [f"k{key}" for key in range(self.keys)] if self.keys > 1 else "k", f"http://{host}.test/v1", name=host
            )
            for host in self.hosts
        ]
        given: EngineOptions = {"traffic": traffic, "dial": servers.dial, "environment": {}, "proxy": "", **options}
        async with ms.open_engine(providers, **given) as engine:
            servers.serve(engine, 1, 1.7e9)
            if path is None:
                await self._calls(engine, truth)
            else:
                with engine.record(path, content=content, replace=True):
                    await self._calls(engine, truth)
        servers.close()

    async def _calls(self, engine: ms.Engine, truth: Truth) -> None:
        sessions: dict[str, list[tuple[int, Work]]] = {}
        for number, work in enumerate(self.works):
            sessions.setdefault(work.session or f"-{number}", []).append((number, work))
        async with trio.open_nursery() as nursery:
            for name, turns in sessions.items():
                nursery.start_soon(self._session, engine, truth, name, turns)

    async def _session(self, engine: ms.Engine, truth: Truth, name: str, turns: list[tuple[int, Work]]) -> None:
        await trio.sleep_until(turns[0][1].at)
        for number, work in turns:
            await trio.sleep(work.gap)
            knobs = f"events={work.events},delay={work.delay:.4f},rate={work.rate:.3f}"
            if not work.stream:
                knobs = f"events={work.events},delay={work.delay + work.events / work.rate:.4f}"
            request = ms.Request(
                self.model, f"{number} " + "x" * work.characters, max_output_tokens=200, tenant=work.tenant,
                session=work.session, extra_headers={"x-simulate": knobs}, priority=work.priority,  # type: ignore[arg-type]
            )  # fmt: skip
            started = trio.current_time()
            call = engine.start_stream(request) if work.stream else engine.start_request(request)
            completion = await call.wait()
            if completion.success:
                truth.latencies.append(trio.current_time() - started)
            else:
                truth.failed[str(completion.error_category)] += 1
            truth.cost += completion.cost or 0.0
            truth.waited += sum(completion.timings.waited.values())


CALLS = 120


def traffic(**more: Any) -> ms.Traffic:
    return ms.Traffic(price=price, **more)


def limited(requests: float | None = None, **more: Any) -> ms.Traffic:
    return traffic(rates={"openai": ms.RateLimit(requests_per_minute=requests, **more)})


def route(balance: Any, **more: Any) -> ms.Traffic:
    return traffic(routes=[ms.Route("chat", ["openai/gpt-5", "openai-1/gpt-5"], balance=balance)], **more)


def every(count: int, made: list[Work], **change: Any) -> list[Work]:
    """Return the works, with every so many one changed."""
    return [replace(work, **change) if place % count == 0 else work for place, work in enumerate(made)]


RATE = {"openai": ["requests-per-minute=200 bucket=1"]}


PLAIN = works(CALLS, 5.0)


TWO = Day(
    PLAIN, {"openai": ["requests-per-minute=150 bucket=1"], "openai-1": ["requests-per-minute=90 bucket=2"]},
    model="chat", hosts=("openai", "openai-1"),
)  # fmt: skip


SESSIONS = [
    replace(work, session=f"s{place % 20}", gap=0.5 if place >= 20 else 0.0)
    for place, work in enumerate(works(CALLS, 20.0))
]


SCENARIOS: dict[str, tuple[Day, ms.Traffic, ms.Traffic]] = {
    "a limit is declared": (Day(PLAIN, RATE), traffic(), limited(150)),
    "a limit is learned": (Day(PLAIN, RATE), limited(120), traffic()),
    "tokens are limited": (
        Day(PLAIN, {"openai": ["tokens-per-minute=150000 bucket=5"]}), limited(tokens_per_minute=80_000), traffic()
    ),
    "tenants share": (Day(every(3, works(CALLS, 5.0, tenant="a"), tenant="b"), RATE), traffic(), limited(130)),
    "priorities": (
        Day(every(3, works(CALLS, 5.0, priority="batch"), priority="interactive"), RATE), traffic(), limited(130)
    ),
    "a route in order": (TWO, route("weighted"), route("order")),
    "a route to the fastest": (TWO, route("weighted"), route("fastest")),
    "calls at a time": (Day(PLAIN), traffic(), limited(concurrent=8)),
    "a server with places": (Day(PLAIN, {"openai": ["concurrent=10"]}), traffic(), limited(concurrent=6)),
    "a budget": (Day(PLAIN), traffic(), traffic(budgets=[ms.Budget(usd=0.1)])),
    "sessions": (Day(SESSIONS, RATE), traffic(), limited(120)),
    "unstreamed": (Day([replace(work, stream=False) for work in PLAIN], RATE), traffic(), limited(150)),
    "nothing is learned": (Day(PLAIN, RATE), traffic(), traffic(adaptive=False)),
    "two keys": (Day(PLAIN, {"openai": ["requests-per-minute=60 bucket=1"]}, keys=2), limited(45), traffic()),
}  # fmt: skip
"""Scenario → its calls and servers, and the options with which it is recorded and predicted."""


@pytest.fixture(scope="module")
def day_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whatif") / "day.jsonl"
    tenants = every(2, works(60, 5.0, tenant="a"), tenant="b")
    Day(tenants, RATE).run(traffic(), path)
    return path


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def written(path: Path, changed: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in changed), "utf-8")
    return path
