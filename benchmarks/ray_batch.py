"""What does `manystream batch --ray` cost beside a plain batch?

Measured: CPU time per row of two workers and of the driver, beside one plain batch in the same run; the memory and the
start of a Ray on this machine; the time of a lease; the driver's own part of a row, without Ray. The cost of a row is
the difference between a long run and a short one, so that starting does not count.

The driver pays for each exchange, whatever it carries: the fewer rows a second, the more a row costs.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

import manystream as ms
from manystream.batch import Counters, Journal, read_lines
from manystream.ray.cluster import Died, Replied, Unreachable
from manystream.ray.driver import ClusterBatch
from manystream.ray.exchange import ActorExchange, Answer, Offer, Reply, Row
from manystream.ray.rate_leases import RENEW_SECONDS, EngineRates, RateKeeper
from manystream.ray.worker import WorkerReply
from manystream.simulator import open_simulator

from . import answers, runs
from .environment import DEPENDENCIES, ROOT, clients_variables, made_environment

CONCURRENCY = 300
ACTORS = 2
TICKS = os.sysconf("SC_CLK_TCK")
ACTOR_NAME = b"WorkerActor"
RAY_NAMES = (b"raylet", b"gcs_server", b"ray::", b"/ray/")
HOLDERS = (6, 100, 1600)
RENEWALS = 20_000
PLAIN, WORKERS = "CPU of a row, one plain batch", "CPU of a row, two workers together"


@dataclass(slots=True)
class Spent:
    """What a run has used.

    command: CPU seconds of the command itself.
    actors: CPU seconds of the actors.
    seconds: the time of the run.
    ray_bytes: memory of Ray's processes without the actors, as PSS.
    actor_bytes: memory of each actor, as PSS.
    """

    command: float = 0.0
    actors: float = 0.0
    seconds: float = 0.0
    ray_bytes: int = 0
    actor_bytes: int = 0


class Processes:
    """Looks at the processes of this machine while a run lasts, because actors are killed at its end."""

    def __init__(self) -> None:
        self.cpu: dict[int, float] = {}
        self.actor_bytes = 0
        self.ray_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Processes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        looks = 0
        while not self._ended.wait(0.1):
            looks += 1
            actors, others = 0, 0
            for path in Path("/proc").glob("[0-9]*"):
                try:
                    name = (path / "cmdline").read_bytes()
                    if ACTOR_NAME in name:
                        fields = (path / "stat").read_text("utf-8").rpartition(")")[2].split()
                        self.cpu[int(path.name)] = (int(fields[11]) + int(fields[12])) / TICKS
                    if looks % 20 == 0 and any(part in name for part in RAY_NAMES):
                        found = pss(path)
                        actors, others = (actors + found, others) if ACTOR_NAME in name else (actors, others + found)
                except (OSError, IndexError):
                    continue
            self.actor_bytes, self.ray_bytes = max(self.actor_bytes, actors), max(self.ray_bytes, others)


def pss(process: Path) -> int:
    """Return the bytes of a process, where shared pages count in part."""
    lines = (process / "smaps_rollup").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def run(folder: Path, url: str, rows: int, *words: str) -> Spent:
    """Run a batch of so many rows and return what it has used."""
    prompts, answers = write_prompts(folder, rows), folder / "a.jsonl"
    answers.unlink(missing_ok=True)
    command = [sys.executable, "-m", "manystream", "batch", str(prompts), "-o", str(answers), "--plain"]
    command += ["--model", "sim-text", "--base-url", url, "--concurrency", str(CONCURRENCY), *words]
    began = time.monotonic()
    with Processes() as processes:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} has ended with {process.returncode}")
    return Spent(
        usage.ru_utime + usage.ru_stime,
        sum(processes.cpu.values()),
        time.monotonic() - began,
        processes.ray_bytes,
        processes.actor_bytes // ACTORS,
    )


@contextmanager
def cluster() -> Iterator[str]:
    """Yield the address of a cluster of one node."""
    from ray.cluster_utils import Cluster

    node = Cluster(initialize_head=True, head_node_args={"num_cpus": ACTORS, "include_dashboard": False})
    try:
        yield str(node.address)
    finally:
        node.shutdown()


def lease_us(holders: int) -> float:
    """Return the CPU microseconds of one lease: a request, the keeper's grant, and its receipt."""
    limits = {"*": ms.RateLimit(requests_per_second=1e6)}
    keeper, engines = RateKeeper(limits, 0.0), [EngineRates(limits, 0.0) for _ in range(holders)]
    rounds = max(4, RENEWALS // holders)
    began = time.process_time()
    for number in range(rounds):
        now = number * RENEW_SECONDS
        for engine in engines:
            engine.receive(keeper.renew(engine.ask(now, now), now), math.inf, now, now)
    return (time.process_time() - began) / rounds / holders * 1e6


class InstantCluster:
    """Workers that answer each row at once, in this thread: what remains is the driver's own cost."""

    def __init__(self) -> None:
        self.workers: dict[int, ActorExchange] = {}
        self.events: list[Replied | Unreachable | Died] = []
        self.record = b'{"id":%d,"provider":"sim","model":"m","text":"' + b"x" * 400 + b'","error":null}'

    def start(self, worker: int, concurrency: int, *, instead_of: int | None) -> None:
        self.workers[worker] = ActorExchange(0.0)

    def call(self, worker: int, offer: Offer) -> None:
        actor = self.workers[worker]
        for row in actor.receive(offer, 0.0):
            actor.add(Answer(row.id, self.record % row.id, failed=False))
        reply = actor.reply(offer.seq, 0.0)
        self.events.append(Replied(worker, WorkerReply(reply, Counters(), "", False)))

    def collect(self, seconds: float) -> list[Replied | Unreachable | Died]:
        events, self.events = self.events, []
        return events

    def kill(self, worker: int) -> None:
        self.workers.pop(worker)

    def resources(self) -> str:
        return ""


def travel_us(rows: int = CONCURRENCY // ACTORS) -> float:
    """Return the CPU microseconds of each row for pickling an exchange and its reply, and for reading both."""
    from ray import cloudpickle

    offer = Offer(1, tuple(Row(number, number + 1, b"x" * 80) for number in range(rows)), 0.0)
    answers = tuple(Answer(number, b"x" * 480, failed=False) for number in range(rows))
    reply = WorkerReply(Reply(1, answers, 0.0), Counters(), "", False)
    rounds = max(4, RENEWALS // rows)
    began = time.process_time()
    for _ in range(rounds):
        for message in (offer, reply):
            pickle.loads(cloudpickle.dumps(message))
    return (time.process_time() - began) / rounds / rows * 1e6


def driver_us(folder: Path, rows: int) -> float:
    """Return the CPU microseconds of the driver for each row: reading, handing out, and writing the answer."""
    prompts = write_prompts(folder, rows)

    async def drive() -> None:
        with Journal(folder / "driver.jsonl") as journal:
            await ClusterBatch(InstantCluster(), journal, concurrency=[CONCURRENCY] * ACTORS).run(read_lines(prompts))

    began = time.process_time()
    trio.run(drive)
    spent = time.process_time() - began
    (folder / "driver.jsonl").unlink()
    return spent / rows * 1e6


def write_prompts(folder: Path, rows: int) -> Path:
    """Write a file of so many rows and return its path."""
    path = folder / "p.jsonl"
    message = {"role": "user", "content": "Why is the sky blue?"}
    path.write_text("\n".join(json.dumps({"id": number, "messages": [message]}) for number in range(rows)), "utf-8")
    return path


def figures(long: int, rounds: int) -> Iterator[tuple[str, float, str]]:
    """Measure, and yield what, figure and unit. long: the rows of the long run; the short one has a tenth."""
    short = long // 10
    for holders in HOLDERS:
        yield f"a lease with {holders:,} holders", min(lease_us(holders) for _ in range(5)), "µs"
    yield "a row and its answer between processes", min(travel_us() for _ in range(5)), "µs"
    plain: list[float] = []
    actors: list[float] = []
    driver: list[float] = []
    with tempfile.TemporaryDirectory() as name, open_simulator("events=2", journal=0) as simulator:
        folder, url = Path(name), simulator.base_urls["openai-chat"]
        yield "the driver's own part of a row", min(driver_us(folder, long) for _ in range(rounds)), "µs"
        with cluster() as address:
            words = ("--ray", address, "--actors", str(ACTORS))
            for _ in range(rounds):
                few, many = run(folder, url, short), run(folder, url, long)
                plain.append((many.command - few.command) / (long - short) * 1e6)
                few, many = run(folder, url, short, *words), run(folder, url, long, *words)
                actors.append((many.actors - few.actors) / (long - short) * 1e6)
                driver.append((many.command - few.command) / (long - short) * 1e6)
        local = run(folder, url, 1000, "--ray", "local", "--actors", str(ACTORS))
    yield PLAIN, statistics.median(plain), "µs"
    yield WORKERS, statistics.median(actors), "µs"
    yield "CPU of a row, the driver", statistics.median(driver), "µs"
    yield "memory of a Ray without the workers", local.ray_bytes / 1e6, "MB"
    yield "memory of a worker", local.actor_bytes / 1e6, "MB"
    yield "a command with 1,000 rows, the start of a Ray included", local.seconds, "s"


def answer(run: runs.Run) -> answers.Answer:
    """Measure in the environment of Ray."""
    result = answers.Answer("A batch over a Ray cluster of one machine, beside a plain one")
    lines = (ROOT / "tests" / "ray" / "requirements.txt").read_text().splitlines()
    python = made_environment("ray", *(line for line in lines if "==" in line), *DEPENDENCIES)
    environment = {**clients_variables(), "RAY_USAGE_STATS_ENABLED": "0"}
    command = [python, "-m", "benchmarks.ray_batch", *(("2000", "1") if run.quick else ("20000", "3"))]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise runs.RunError(done.stderr.strip().splitlines()[-1])
    found: list[tuple[str, float, str]] = json.loads(done.stdout.splitlines()[-1])
    plain = next(value for what, value, _ in found if what == PLAIN)
    for what, value, unit in found:
        result.add(what, value, unit, beside=("a plain batch", plain) if what == WORKERS else None)
    return result


if __name__ == "__main__":
    print(json.dumps([*figures(int(sys.argv[1]), int(sys.argv[2]))]))
