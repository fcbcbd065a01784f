"""`manystream batch --ray --budget`: what is spent, how a run ends and goes on, and workers that are lost under way.

The workers are threads of this process, in place of Ray's. An answer costs 2 cents.
"""

import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from manystream.cli import batch_ray, main
from manystream.ray.cluster import Died, Replied, Unreachable
from manystream.ray.worker import WorkerOptions
from manystream.simulator import Simulator, open_simulator_thread
from tests.manystream.cli.test_batch_budget import CENTS, fail_and_go_on, folder, prompts, records
from tests.manystream.ray.thread_cluster import ThreadCluster, connect
from tests.support.batches import unrecorded

__all__ = ["folder"]

FILES = ("p.jsonl", "-o", "a.jsonl", "--plain", "--ray", "local", "--actors", "3")
ANSWERS = Path("a.jsonl")


Events = list[Replied | Unreachable | Died]


class FaultyCluster(ThreadCluster):
    """A cluster on which something happens after three replies with answers."""

    replies = 0

    def collect(self, seconds: float) -> Events:
        events = super().collect(seconds)
        before = self.replies
        self.replies += sum(isinstance(event, Replied) and bool(event.reply.reply.answers) for event in events)
        return [*self.happen(), *events] if before < 3 <= self.replies else events

    def happen(self) -> Events:
        raise NotImplementedError


class LossyCluster(FaultyCluster):
    """A cluster that loses a worker. The worker's calls go on, and nobody learns how they end."""

    lost: int | None = None

    def collect(self, seconds: float) -> Events:
        events = super().collect(seconds)
        return [event for event in events if isinstance(event, Died) or event.worker != self.lost]

    def happen(self) -> Events:
        self.lost = min(self.workers)
        return [Died(self.lost, "its machine has died")]


class InterruptedCluster(FaultyCluster):
    """A cluster whose user presses Ctrl-C."""

    def happen(self) -> Events:
        os.kill(os.getpid(), signal.SIGINT)
        return []


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=4", limits=["requests-per-minute=1000000000"]) as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def clusters(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ThreadCluster]]:
    """Put threads in the place of Ray."""
    made: list[ThreadCluster] = []
    put_in_place(monkeypatch, made, ThreadCluster)
    yield made
    for cluster in made:
        cluster.close()


def put_in_place(monkeypatch: pytest.MonkeyPatch, made: list[ThreadCluster], kind: type[ThreadCluster]) -> None:
    def make(options: WorkerOptions) -> ThreadCluster:
        made.append(kind(pickle.loads(pickle.dumps(options))))
        return made[-1]

    monkeypatch.setattr(batch_ray, "connect", connect)
    monkeypatch.setattr(batch_ray, "RayCluster", make)


def batch(simulator: Simulator, *arguments: str, model: str = "sim-text") -> int:
    return main(["batch", *FILES, "--base-url", simulator.base_urls["openai-chat"], "--model", model, *arguments])


def paid(simulator: Simulator) -> int:
    """Return the number of requests that the server has answered."""
    return simulator.limit_counts()[0].accepted


def test_a_larger_budget_runs_on(simulator: Simulator, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts(folder, 60)
    assert batch(simulator, "--budget", "0.5") == 1
    assert len(records()) == paid(simulator) == 25, "the whole budget is used"
    assert not Path("a.errors.jsonl").exists()
    assert unrecorded(ANSWERS) is None
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == (
        "The budget is spent: 35 lines are not sent, since the largest cost of a line did not fit into the rest"
        " ($0.50 of $0.50 spent). The same command with a larger --budget goes on."
    )
    assert "$0.50 of $0.50 of the budget" in captured.out
    assert batch(simulator, "--budget", "0.5") == 1, "the same budget sends nothing more"
    assert "Budget: $0.50 of $0.50 are spent (a.jsonl)" in capsys.readouterr().err
    assert paid(simulator) == 25
    assert batch(simulator, "--budget", "2") == 0
    assert sorted(int(record["id"]) for record in records()) == list(range(60))
    assert all(record["spent_usd"] == CENTS for record in records())
    assert "$1.20 of $2.00 of the budget" in capsys.readouterr().out


def test_workers_that_reserve_more_than_they_use_share_the_rest(simulator: Simulator, folder: Path) -> None:
    prompts(folder, 400, max_output_tokens=20)  # 2 cents at most, and less than half a cent in the end
    assert batch(simulator, "--budget", "0.6", "--concurrency", "60", model="sim-text@events=4") == 1
    spent = sum(record["spent_usd"] for record in records())
    assert 0.97 * 0.6 <= spent <= 0.6
    assert unrecorded(ANSWERS) is None


def test_what_a_lost_worker_had_counts_as_spent(
    simulator: Simulator,
    folder: Path,
    clusters: list[ThreadCluster],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompts(folder, 200, "simulate: delay=0.05")
    put_in_place(monkeypatch, clusters, LossyCluster)
    assert batch(simulator, "--budget", "2", "--concurrency", "30") == 1
    assert paid(simulator) * CENTS <= 2.0 + 1e-9
    out = capsys.readouterr().out
    assert "1 worker was lost" in out
    assert "that lost workers may have spent count as spent" in out
    lost = unrecorded(ANSWERS)
    assert lost is not None
    recorded = sum(record["spent_usd"] for record in records())
    assert lost > 0
    assert recorded + lost == pytest.approx(2.0, abs=CENTS)
    put_in_place(monkeypatch, clusters, ThreadCluster)
    assert batch(simulator, "--budget", "3", "--concurrency", "30") == 1
    assert paid(simulator) * CENTS <= 3.0 + 1e-9
    assert "is for calls whose end is not known" in capsys.readouterr().err
    assert batch(simulator, "--budget", "9", "--concurrency", "30") == 0
    assert sorted(int(record["id"]) for record in records()) == list(range(200))
    assert unrecorded(ANSWERS) == pytest.approx(lost)


def test_calls_that_were_interrupted_count_as_spent(
    simulator: Simulator, folder: Path, clusters: list[ThreadCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts(folder, 200, "simulate: delay=0.05")
    put_in_place(monkeypatch, clusters, InterruptedCluster)
    assert batch(simulator, "--budget", "3", "--concurrency", "30") == 130
    lost = unrecorded(ANSWERS) or 0.0
    answered = len(records())
    assert lost <= 30 * CENTS + 1e-6, "the workers have returned what no call had reserved"
    assert paid(simulator) * CENTS <= answered * CENTS + lost + 1e-6
    put_in_place(monkeypatch, clusters, ThreadCluster)
    assert batch(simulator, "--budget", "3", "--concurrency", "30") == 1
    assert paid(simulator) * CENTS <= 3 + 1e-9
    assert len(records()) * CENTS + lost == pytest.approx(3, abs=CENTS)


def test_a_batch_counts_lost_calls(simulator: Simulator, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"id": None, "error": {"category": "unrecorded"}, "unrecorded_usd": 0.1}
    Path("a.errors.jsonl").write_text(json.dumps(line, separators=(",", ":")) + "\n", "utf-8")
    address = simulator.base_urls["openai-chat"]
    command = ["batch", *FILES[:4], "--base-url", address, "--model", "sim-text", "--budget", "0.2"]
    assert main(command) == 1
    assert len(records()) == 5
    assert "Budget: $0.10 of $0.20 are spent, and $0.10 of that is for calls" in capsys.readouterr().err


def test_a_failure_that_cost_something_is_counted_with_its_line(simulator: Simulator) -> None:
    fail_and_go_on(partial(batch, simulator), "ray-budget")
    assert unrecorded(ANSWERS) is None


def test_a_worker_without_prices_ends_the_run_with_its_reason(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def make(options: WorkerOptions) -> ThreadCluster:
        monkeypatch.setitem(sys.modules, "genai_prices", None)  # the driver has asked its prices before
        return ThreadCluster(options)

    monkeypatch.setattr(batch_ray, "RayCluster", make)
    assert batch(simulator, "--budget", "1") == 1
    assert "--budget, on a worker's machine: prices need the extra `cost`" in capsys.readouterr().err
    assert paid(simulator) == 0
