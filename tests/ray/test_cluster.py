"""`manystream batch --ray` on a Ray cluster of three nodes on this machine: `make ray`.

Nodes are killed and frozen while a batch runs. The simulator counts the requests.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from manystream.simulator import Simulator, open_simulator

pytest.importorskip("ray", reason="needs Ray: make ray")
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROWS = 5000
CONCURRENCY = 450
WAIT = 300.0
LOOK = 0.1


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator("events=2", limits=["requests-per-minute=1000000000"]) as simulator:
        yield simulator


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Start a head without CPUs, where the driver is, and three nodes of two CPUs."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(3):
            cluster.add_node(num_cpus=2)
        yield cluster
    finally:
        cluster.shutdown()


class Run:
    """A command that runs, and its files. At the end of the block it is killed if it still runs."""

    def __init__(self, folder: Path, address: str, url: str, *more: str, rows: int = ROWS) -> None:
        prompts, self.answers = folder / "p.jsonl", folder / "a.jsonl"
        if not prompts.exists():
            message = {"role": "user", "content": "simulate: delay=0.5"}
            lines = (json.dumps({"id": f"q{number}", "messages": [message]}) for number in range(rows))
            prompts.write_text("\n".join(lines), "utf-8")
        self.output = ""
        self.rows = rows
        words = ["p.jsonl", "-o", "a.jsonl", "--ray", address, "--actors", "3", "--concurrency", str(CONCURRENCY)]
        words += ["--model", "sim-text", "--base-url", url, "--plain", *more]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "manystream", "batch", *words],
            cwd=folder,
            env=os.environ | {"OPENAI_API_KEY": "any"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        with self.process as process:  # closes its output, and waits
            process.kill()

    @property
    def count(self) -> int:
        """The number of answers so far."""
        return self.answers.read_bytes().count(b"\n") if self.answers.exists() else 0

    def reach(self, count: int) -> None:
        deadline = time.monotonic() + WAIT
        while self.count < count and self.process.poll() is None:
            assert time.monotonic() < deadline, f"{self.count} answers after {WAIT} seconds"
            time.sleep(LOOK)
        assert self.process.poll() is None, self.process.communicate()[0]

    def end(self) -> float:
        """Wait until the command has ended with status 0. Return its longest pause without an answer, in seconds.

        A time during which this process did not run either counts as no pause of the command.
        """
        pause, seen = 0.0, self.count
        last = looked = time.monotonic()
        deadline = last + WAIT
        while self.process.poll() is None and looked < deadline:
            time.sleep(LOOK)
            now = time.monotonic()
            last += max(0.0, now - looked - 2 * LOOK)
            looked = now
            if self.count > seen:
                pause, last, seen = max(pause, now - last), now, self.count
        assert self.process.poll() is not None, f"{self.count} answers after {WAIT} seconds"
        self.output = self.process.communicate(timeout=10)[0]
        assert self.process.returncode == 0, self.output
        return pause

    @property
    def lost(self) -> int:
        """The number of workers that the command has given up."""
        found = re.search(r"^([0-9]+) workers? (was|were) lost", self.output, re.MULTILINE)
        return int(found[1]) if found is not None else 0

    def check(self) -> None:
        """Check that every row has one answer."""
        ids = [json.loads(line)["id"] for line in self.answers.read_bytes().splitlines()]
        assert len(ids) == len(set(ids)) == self.rows


def processes_below(pid: int) -> list[int]:
    """Return a process and all processes that it has started, directly or not."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def raylet(node: Any) -> int:
    """Return the process of a node's raylet."""
    return int(node.all_processes["raylet"][0].process.pid)


def send(node: Any, number: signal.Signals) -> None:
    for pid in processes_below(raylet(node)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def busy_node(cluster: Any) -> Any:
    """Return a node on which a worker runs."""
    return next(node for node in cluster.worker_nodes if any(map(is_worker, processes_below(raylet(node)))))


def is_worker(pid: int) -> bool:
    """Return whether a process is an actor with a worker of the batch: Ray writes its class into its name."""
    try:
        return b"WorkerActor" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


FAULTS = {"killed": (signal.SIGKILL, 0.0), "frozen": (signal.SIGSTOP, 0.0), "frozen for 8 s": (signal.SIGSTOP, 8.0)}


class Fault:
    """A node that fails. At the end of the block it goes on, so that it can be ended."""

    def __init__(self, cluster: Any, kind: str) -> None:
        number, seconds = FAULTS[kind]
        self.node = busy_node(cluster)
        send(self.node, number)
        if seconds:
            time.sleep(seconds)
            send(self.node, signal.SIGCONT)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        send(self.node, signal.SIGCONT)


def accepted(simulator: Simulator) -> int:
    """Return the number of requests that the simulator has received."""
    return simulator.limit_counts()[0].accepted


@pytest.mark.parametrize("kind", FAULTS)
def test_a_node_that_fails_loses_and_doubles_nothing(
    kind: str, cluster: Any, simulator: Simulator, tmp_path: Path
) -> None:
    before = accepted(simulator)
    with Run(tmp_path, cluster.address, simulator.base_urls["openai-chat"]) as run:
        run.reach(ROWS // 3)
        with Fault(cluster, kind):
            pause = run.end()
    run.check()
    again = accepted(simulator) - before - ROWS
    print(f"{kind}: {again} asked again, {run.lost} workers lost, longest pause {pause:.1f} s")
    assert run.lost >= 1
    # On a slow machine, a worker without a fault may be silent for 5 seconds, too. It costs the same.
    assert again <= run.lost * CONCURRENCY / 3 + 0.005 * ROWS
    assert pause <= 10.0


@pytest.mark.parametrize("kind", FAULTS)
def test_a_driver_that_is_killed_after_a_node_can_be_repeated(
    kind: str, cluster: Any, simulator: Simulator, tmp_path: Path
) -> None:
    before, url = accepted(simulator), simulator.base_urls["openai-chat"]
    with ExitStack() as stack:
        with Run(tmp_path, cluster.address, url) as run:
            run.reach(ROWS // 3)
            stack.enter_context(Fault(cluster, kind))
            run.reach(int(0.7 * ROWS))
        with Run(tmp_path, cluster.address, url) as run:
            run.end()
    run.check()
    again = accepted(simulator) - before - ROWS
    print(f"{kind}, then the driver: {again} asked again, {run.lost} workers lost in the second run")
    assert again <= CONCURRENCY / 3 + CONCURRENCY + run.lost * CONCURRENCY / 3 + 0.02 * ROWS
