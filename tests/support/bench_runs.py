"""Shared by the tests of this folder."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from manystream.bench.load import Look, Plan
from manystream.bench.runs import Run, Server
from manystream.bench.validity import Calibration
from manystream.cli import bench as bench_command
from manystream.cli import main
from tests.support.bench_results import figures, result, run, whole_run
from tests.support.commands import remove_keys

URL = "http://127.0.0.1:1/v1"


Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


class Runs:
    """Stands in for the runs and the calibration, and keeps what they were given.

    found: what the runs return, in order; a `KeyboardInterrupt` is raised instead.
    added: what the first calibrations return.
    """

    def __init__(self) -> None:
        self.found: list[Run | KeyboardInterrupt] = [whole_run()]
        self.plans: list[Plan] = []
        self.servers: list[Server] = []
        self.options: list[dict[str, Any]] = []
        self.calibrations: list[tuple[str, Plan, float]] = []
        self.added: list[Calibration] = []

    def run_plan(self, server: Server, plan: Plan, on_look: Callable[[Look], None], **options: Any) -> Run:
        self.servers.append(server)
        self.plans.append(plan)
        self.options.append(options)
        found = self.found.pop(0)
        if isinstance(found, KeyboardInterrupt):
            raise found
        return found

    def calibrate(self, _: object, dialect: str, plan: Plan, seconds: float) -> Calibration:
        self.calibrations.append((dialect, plan, seconds))
        return self.added.pop(0) if self.added else Calibration(0.00003, 0.0002, 0.4)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    runs = Runs()
    monkeypatch.setattr(bench_command, "run_plan", runs.run_plan)
    monkeypatch.setattr(bench_command, "calibrate", runs.calibrate)
    remove_keys(monkeypatch)
    return runs


@pytest.fixture
def bench(runs: Runs, capsys: pytest.CaptureFixture[str]) -> Bench:
    def bench(*arguments: str) -> tuple[int, str, str]:
        status = main(["bench", *arguments])
        return status, *capsys.readouterr()

    return bench


INVALID = run(result(figures({"ttft": [0.1]}, ok=5), cpu=9.9, stream=True))


# The search for a rate.


def at(rate: float, good: float, *, cpu: float = 1.0, calls: int = 1000, **more: Any) -> Run:
    """Return a run at a rate in which a share of the calls kept the objective."""
    found = figures({"ttft": [0.1]}, ok=calls, good=round(good * calls), slo={"ttft": 0.2})
    return run(result(found, cpu=cpu, slo={"ttft": 0.2}, **more))


# The search for the most streams.


def step(gap: float | None, *, streams: int = 1, **more: Any) -> Run:
    failures = more.pop("failures", {})
    found = figures({"ttft": [0.1], "itl": [] if gap is None else [gap]}, ok=5, failures=failures)
    found.events = 1_000_000
    return run(result(found, concurrency=streams, loop_lag=0.0125, cpu=5.0, **more))
