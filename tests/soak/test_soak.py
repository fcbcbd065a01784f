"""Soak: 500 concurrent streams through a proxy that cuts, resets, stalls, dribbles and corrupts their responses.

Meanwhile callers cancel and callbacks raise. At the end the records of both processes must agree, and memory,
descriptors and tasks must not have grown. `make soak MINUTES=30 TEST=tests/soak/test_soak.py` runs it for the minutes
in `MANYSTREAM_SOAK_MINUTES`; one short round is part of the suite.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.statistics import OriginStatistics
from tests.soak.books import Ledger, OtherSide, Sample, drift, report, sample
from tests.soak.plan import DIALECTS, MARK, Fault, plan
from tests.support.peers import NO_RETRY, open_descriptors, until

ROOT = Path(__file__).resolve().parent.parent.parent
MINUTES = float(os.environ.get("MANYSTREAM_SOAK_MINUTES") or 5)
AT_ONCE = 500
MODELS = {name: f"{name}/m" for name in DIALECTS}
CLOCKS = ms.Timeouts(connect=60, first_byte=60, idle=15)
"""Seconds of a timeout that is long enough for a busy machine: it must end only stalled streams."""
MOST_GROWTH = 2.0
"""The maximum growth of memory in MB per minute, in a run of some minutes. The allocator's noise is below it."""
MOST_GROWTH_IN_THE_END = 0.25
"""The maximum growth of memory in MB per minute, in a run of at least ten minutes. A leak of thirty bytes per stream is
above it."""
MOST_DRIFT = 6.0
"""The maximum growth of descriptors or tasks per minute, in a run of at least ten minutes with five hundred streams."""


class World:
    """The other process.

    proxy: the port of the proxy.
    fickle: the port of the server that closes its connections at random.
    books: its records, after it has ended.
    """

    def __init__(self) -> None:
        self.proxy = self.fickle = 0
        self.books = OtherSide()


@asynccontextmanager
async def open_world(pace: float = 1.0) -> AsyncGenerator[World, None]:
    """Start the other process, which sends at `pace` times the planned pace."""
    command = [sys.executable, "-m", "tests.soak.world", str(pace)]
    process = await trio.lowlevel.open_process(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    world = World()
    try:
        line = b""
        while b"\n" not in line:
            line += await process.stdout.receive_some() or b"0 0\n"
        world.proxy, world.fickle = map(int, line.split())
        yield world
        await process.stdin.aclose()
        with trio.move_on_after(10):
            world.books = OtherSide(**json.loads(b"".join([data async for data in process.stdout])))
            await process.wait()
    finally:
        process.kill()
        await process.stdin.aclose()
        await process.stdout.aclose()


def providers(port: int) -> list[ms.Provider]:
    url = f"http://127.0.0.1:{port}"
    return [
        ms.OpenAIChat(api_key="k", base_url=f"{url}/v1", name="chat"),
        ms.OpenAIResponses(api_key="k", base_url=f"{url}/v1", name="responses"),
        ms.Anthropic(api_key="k", base_url=url, name="anthropic"),
        ms.Gemini(api_key="k", base_url=url, name="gemini"),
        ms.GeminiInteractions(api_key="k", base_url=url, name="interactions"),
    ]


class Stream:
    """One stream of the soak, with the faults of its caller."""

    def __init__(self, soak: Soak, number: int) -> None:
        self.soak = soak
        self.plan = plan(number)
        self.pieces: list[str] = []
        self.terminals = 0
        self.completions = 0
        message = ms.Message.user(f"{MARK}{number}")
        request = ms.Request(MODELS[self.plan.dialect], [message], max_output_tokens=100)
        self.call = soak.engine.start_stream(request, self.on_event, self.on_completion)

    def on_event(self, event: ms.Event) -> None:
        if isinstance(event, ms.Done | ms.ErrorEvent):
            self.terminals += 1
        if not isinstance(event, ms.TextDelta):
            return
        if self.plan.fault is Fault.RAISE and len(self.pieces) == self.plan.until:
            raise LookupError("planned")
        self.pieces.append(event.text)
        if self.plan.fault is Fault.CANCEL and len(self.pieces) > self.plan.until:
            self.call.cancel()

    def on_completion(self, completion: ms.Completion) -> None:
        self.completions += 1
        self.soak.ended(self, completion)


class Soak:
    """A constant number of concurrent streams, until the test stops it."""

    def __init__(self, engine: ms.Engine) -> None:
        self.engine = engine
        self.ledger = Ledger()
        self.started = self.running = 0
        self.stopping = self.closing = False

    def start(self) -> None:
        self.started += 1
        self.running += 1
        Stream(self, self.started)

    def ended(self, stream: Stream, completion: ms.Completion) -> None:
        self.running -= 1
        if stream.completions != 1:
            self.ledger.wrong.append(f"{stream.plan.number}: completed {stream.completions} times")
        self.ledger.enter(stream.plan, "".join(stream.pieces), stream.terminals, completion, left=self.closing)
        if not self.stopping:
            self.start()


@dataclass
class Ran:
    """The result of a soak.

    world: the records of the other process.
    processor: the CPU time of this process, in seconds.
    """

    ledger: Ledger
    samples: list[Sample]
    statistics: ms.Statistics
    world: OtherSide
    processor: float


async def run(seconds: float, at_once: int, pace: float, patience: float) -> Ran:
    """Run a soak. Returns its result and the resources of the process; checks that nothing is leaked.

    patience: seconds in which the last streams may end by themselves; closing the engine ends the others.
    """
    async with open_world(pace) as world:
        gc.collect()
        descriptors = open_descriptors()
        tasks = trio.lowlevel.current_statistics().tasks_living
        processor = time.process_time()
        async with ms.open_engine(providers(world.proxy), timeouts=CLOCKS, retry=NO_RETRY, proxy="") as engine:
            soak = Soak(engine)
            samples: list[Sample] = []
            started = trio.current_time()
            for _ in range(at_once):
                soak.start()
                await trio.sleep(min(1.0, seconds / 10) / at_once)  # start them apart, so that they do not end together
            while (elapsed := trio.current_time() - started) < seconds:
                await trio.sleep(min(5.0, seconds / 20))
                gc.collect()
                samples.append(sample(elapsed, trio.lowlevel.current_statistics().tasks_living))
            processor = time.process_time() - processor
            soak.stopping = True
            with trio.move_on_after(patience):
                while soak.running:
                    await trio.sleep(0.05)
            soak.closing = True
        statistics = engine.statistics()
        assert statistics.started == statistics.completed == soak.started == sum(soak.ledger.outcomes.values())
        assert statistics.calls == {}
        assert all(origin == OriginStatistics() for origin in statistics.connections.values())
        await until(lambda: open_descriptors() == descriptors)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living == tasks)
    return Ran(soak.ledger, samples, statistics, world.books, processor)


def check(ran: Ran) -> None:
    """Check that the records of both processes agree."""
    assert ran.ledger.wrong == []
    again = set(ran.world.again)
    assert len(again) == len(ran.world.again), "a request came three times"
    # A reused connection that ends without a byte of a response looks like a stale one.
    assert all(plan(number).at == 0 and plan(number).fault in (Fault.CUT, Fault.RESET) for number in again)
    missing = ran.statistics.started - (ran.world.requests - len(again))
    assert 0 <= missing <= ran.ledger.left, "a request never came"
    assert ran.statistics.bytes_received <= ran.world.bytes


async def test_a_short_soak_balances() -> None:
    ran = await run(1.5, 100, pace=30.0, patience=0.5)
    check(ran)
    assert ran.statistics.completed > 100


@pytest.mark.soak
async def test_a_long_soak_balances_and_does_not_grow(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # otherwise the log records of planned exceptions would look like a leak
    ran = await run(MINUTES * 60, AT_ONCE, pace=1.0, patience=60)
    with capsys.disabled():
        print(f"\n{report(ran.ledger, ran.samples, ran.statistics, ran.world, ran.processor)}")
    check(ran)
    added = drift(ran.samples)
    if MINUTES >= 3:
        assert added.megabytes < MOST_GROWTH
    if MINUTES >= 10:
        assert added.megabytes < MOST_GROWTH_IN_THE_END
        assert abs(added.descriptors) < MOST_DRIFT
        assert abs(added.tasks) < MOST_DRIFT
