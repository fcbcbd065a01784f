"""Everything at once: the chaos program, 2,000 streams, shared limits, WebSocket turns and prompt caches.

`make soak MINUTES=60` runs it. The streams, turns and fan-outs are of one engine and meet no fault. Four processes
share a limit, and are killed again and again. At the end each call has one completion, no budget and no limit was
exceeded, and the process has no descriptor, task, thread or megabyte more.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.simulator import Simulator, open_simulator
from tests.soak.books import Sample, drift, sample
from tests.soak.test_chaos import MINUTES, ROOT, SEED, Chaos, children
from tests.soak.test_soak import MOST_GROWTH_IN_THE_END
from tests.support.peers import open_descriptors

STREAMS = 2_000
ANSWER = "events=60,rate=3"
"""The answer of a stream: it lasts 20 s."""

PROCESSES, SHARED, BUDGET = 4, 40.0, 1_000.0
"""The processes of the shared limit, its requests per second, and the calls of their common budget of a minute."""

CONVERSATIONS, TURNS = 20, 12
FAN_OUT = 40
RULES = "A house rule. " * 1_000
TOOL = ms.Tool("read_file", "Read a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
LOOP = "simulate: kind=tools,calls=1,steps=1000,events=8"


class Everything:
    """The parts that meet no fault. `wrong` and `counts` are those of the chaos program."""

    def __init__(self, chaos: Chaos, engine: ms.Engine) -> None:
        self.chaos, self.engine = chaos, engine
        self.completions: Counter[int] = Counter()
        self.numbers = itertools.count()
        self.is_stopping = False
        self.samples: list[Sample] = []

    def ended(self, what: str, completion: ms.Completion) -> None:
        self.chaos.counts[f"{what}: {'success' if completion.success else str(completion.error_category)}"] += 1
        self.chaos.expect(completion.success, f"{what}: {completion.error!r}")

    # --- streams ---

    def stream(self) -> None:
        """Start one stream; its end starts the next one."""
        number, events = next(self.numbers), 0

        def on_event(event: ms.Event) -> None:
            nonlocal events
            events += event.type is ms.EventType.TEXT_DELTA

        def on_completion(completion: ms.Completion) -> None:
            self.completions[number] += 1
            self.ended("streams", completion)
            self.chaos.expect(events == 60, f"stream {number}: {events} events")
            self.chaos.expect(self.completions.pop(number) == 1, f"stream {number}: completed again")
            if not self.is_stopping:
                self.stream()

        self.engine.start_stream(ms.Request("chat/sim-text", f"Stream {number}"), on_event, on_completion)

    async def streams(self, until: float) -> None:
        for _ in range(STREAMS):
            self.stream()
            await trio.sleep(20 / STREAMS)
        while trio.current_time() < until or not self.samples:
            await trio.sleep(5)
            gc.collect()
            elapsed = trio.current_time() - until + MINUTES * 60
            self.samples.append(sample(elapsed, trio.lowlevel.current_statistics().tasks_living))
        self.is_stopping = True

    # --- turns of conversations, each on its WebSocket ---

    async def conversation(self, until: float) -> None:
        while trio.current_time() < until:
            talk = ms.Conversation([ms.Message.user(LOOP)])
            for turn in range(TURNS):
                completion = await self.engine.start_stream(talk.request("socket/gpt-5", tools=[TOOL])).wait()
                self.ended("turns", completion)
                self.chaos.expect(completion.transport == "websocket", f"a turn went by {completion.transport}")
                self.chaos.expect(completion.continued == (turn > 0), f"turn {turn}: continued {completion.continued}")
                response = completion.response_or_raise()
                talk.add_response(response)
                for call in response.tool_calls:
                    talk.add(ms.Message.tool_result(call.id, "x" * 2_000))
                await trio.sleep(1)
            talk.clear()

    # --- fan-outs with one prefix ---

    async def prefixes(self, until: float) -> None:
        for number in itertools.count():
            if trio.current_time() > until:
                break
            system = [ms.Text(f"Fan-out {number}. {RULES}", cache_control=ms.CacheControl())]
            requests = [
                ms.Request("cached/claude-sonnet-4-5", f"Task {each}", system=system) for each in range(FAN_OUT)
            ]
            done = [await call.wait() for call in [self.engine.start_stream(request) for request in requests]]
            for completion in done:
                self.ended("prefixes", completion)
            reads = sum(bool(completion.response_or_raise().usage.cached_tokens) for completion in done)
            self.chaos.counts["prefixes: read"] += reads
            self.chaos.expect(reads >= FAN_OUT * 0.8, f"fan-out {number}: {reads} of {FAN_OUT} read")
            await trio.sleep(10)

    # --- processes that share a limit and a budget ---

    async def worker(self, number: int, url: str, until: float) -> None:
        """Run one process after the other, and kill it at a random time."""
        chance, path = random.Random(f"{SEED} {number}"), self.chaos.folder / "limits.db"
        while trio.current_time() < until:
            command = [sys.executable, "-m", "tests.soak.test_everything", url, str(path)]
            with open(self.chaos.folder / f"worker{number}.err", "ab") as err:
                process = await trio.lowlevel.open_process(
                    command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=err
                )
            assert process.stdin is not None
            with trio.move_on_after(min(chance.uniform(10, 120), max(0.0, until - trio.current_time()))):
                await process.wait()
            ended = process.poll() is not None
            self.chaos.expect(not ended, f"worker {number} ended by itself: {process.returncode}")
            process.kill()
            await process.wait()
            await process.stdin.aclose()
            self.chaos.counts["shared limits: kills"] += 1

    def check_limit(self, simulator: Simulator) -> None:
        """Check that the server refused no call, and that the limit was used."""
        [counts] = simulator.limit_counts()
        self.chaos.counts["shared limits: calls"] = counts.accepted
        self.chaos.expect(counts.refused == 0, f"the shared limit was exceeded: {counts}")
        most = BUDGET * (MINUTES + 1)
        self.chaos.expect(counts.accepted <= most, f"the shared budget was exceeded: {counts}")
        least = 0.5 * min(SHARED, BUDGET / 60) * MINUTES * 60
        self.chaos.expect(
            MINUTES < 10 or counts.accepted > least, f"of the shared limit {counts.accepted} calls were used"
        )


async def work(url: str, path: str) -> None:
    """Be one of the processes that share a limit: keep calls waiting for it."""
    rate = ms.RateLimit(requests_per_second=SHARED)
    budget = ms.Budget(calls=BUDGET, every=60.0)
    traffic = ms.Traffic(rates={"shared": rate}, budgets=[budget], shared=path)

    async def calls(engine: ms.Engine) -> None:
        while True:
            completion = await engine.start_request(ms.Request("shared/sim-text", "Hello")).wait()
            if not completion.success and completion.error_category is not ms.ErrorCategory.BUDGET:
                sys.exit(f"{completion.error!r}")
            await trio.sleep(0 if completion.success else 1)

    provider = ms.OpenAIChat("k", url, name="shared")
    async with ms.open_engine([provider], traffic=traffic) as engine, trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(calls, engine)
        await trio.to_thread.run_sync(sys.stdin.read)  # until the parent has ended
        nursery.cancel_scope.cancel()


@pytest.mark.soak
async def test_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)  # otherwise the log records of planned faults would look like a leak
    began, threads = time.monotonic(), threading.active_count()
    limit = f"requests-per-minute={SHARED * 60:g} bucket={1 / SHARED + 1:g}"
    with (
        open_simulator("events=20", batch_time="median=1.5") as faulty,
        open_simulator(ANSWER, journal=0) as plain,
        open_simulator("events=5", journal=0, caches="cold=0.3 warm=0.1 lag=0.1") as cached,
        open_simulator("events=2", journal=0, limits=[limit]) as limited,
    ):
        processes, tasks = children(), trio.lowlevel.current_statistics().tasks_living
        command = [sys.executable, "-m", "tests.soak.hostile", str(faulty.port), SEED]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hostile:
            assert hostile.stdout is not None
            chaos = Chaos(tmp_path, faulty, int(hostile.stdout.readline()))
            descriptors = open_descriptors()
            providers: list[ms.Provider] = [
                ms.OpenAIChat("k", plain.base_urls["openai-chat"], name="chat"),
                ms.OpenAIResponses("k", plain.base_urls["openai-responses"], name="socket", websocket=True),
                ms.Anthropic("k", cached.base_urls["anthropic"], name="cached"),
            ]
            with capsys.disabled():
                try:
                    async with ms.open_engine(providers, traffic=ms.Traffic(), proxy="") as engine:
                        parts, until = Everything(chaos, engine), trio.current_time() + MINUTES * 60
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(chaos.run, MINUTES * 60)
                            nursery.start_soon(parts.streams, until)
                            nursery.start_soon(parts.prefixes, until)
                            for _ in range(CONVERSATIONS):
                                nursery.start_soon(parts.conversation, until)
                            for number in range(PROCESSES):
                                nursery.start_soon(parts.worker, number, limited.base_urls["openai-chat"], until)
                        await chaos.eventually("the last streams end", lambda: not engine.statistics().calls)
                    statistics = engine.statistics()
                    chaos.expect(statistics.started == statistics.completed, f"{statistics.started} calls started")
                finally:
                    said = json.loads(hostile.communicate()[0])
        parts.check_limit(limited)
        await chaos.balance(said["asked"])
        await chaos.eventually("descriptors close", lambda: open_descriptors() <= descriptors)
        await chaos.eventually("child processes end", lambda: children() == processes)
        await chaos.eventually("tasks end", lambda: trio.lowlevel.current_statistics().tasks_living == tasks)
        await chaos.eventually("threads end", lambda: threading.active_count() <= threads)
    added = drift(parts.samples)
    if MINUTES >= 10:
        chaos.expect(added.megabytes < MOST_GROWTH_IN_THE_END, f"memory grows by {added.megabytes:.3f} MB a minute")
    with capsys.disabled():
        chaos.report(time.monotonic() - began, said["counts"])
        print(f"{engine.statistics().events} events of {engine.statistics().completed} calls without faults")
        first, last = parts.samples[len(parts.samples) // 3], parts.samples[-1]
        print(f"memory {first.rss / 1e6:.1f} → {last.rss / 1e6:.1f} MB, {added.megabytes:+.3f} MB a minute;"
            f" descriptors {first.descriptors} → {last.descriptors}, tasks {first.tasks} → {last.tasks}")  # fmt: skip
    assert chaos.wrong == []


if __name__ == "__main__":
    trio.run(work, sys.argv[1], sys.argv[2])
