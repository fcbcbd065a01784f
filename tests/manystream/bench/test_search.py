"""The search for the highest rate: its steps, their verdicts, and its end."""

import io
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from manystream.bench.report import search_object
from manystream.bench.runs import Run
from manystream.bench.search import Search, Step
from manystream.bench.validity import Calibration
from manystream.cli.bench_report import search_lines
from manystream.cli.output.terminal import Paint
from tests.support.bench_results import client, figures, result, run
from tests.support.bench_runs import Runs, at, step

URL = "http://127.0.0.1:1/v1"


Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


def searched(keeps: Callable[[float], float], first: float = 1.0, last: float | None = None, **more: Any) -> Search:
    search = Search(0.95)
    search.run(lambda rate, _: at(rate, keeps(rate), **more), first, last)
    return search


def test_a_search_finds_the_highest_rate_in_few_runs() -> None:
    for limit in (1.4, 37.0, 500.0):
        search = searched(lambda rate, limit=limit: 1.0 if rate <= limit else 0.5)
        assert search.best is not None
        assert limit / 1.05 <= search.best <= limit
        assert (search.certain, search.limited_by_client) == (True, False)
        assert sum(len(step.runs) for step in search.steps) <= 16


def test_a_search_goes_down_and_gives_up() -> None:
    search = searched(lambda rate: 1.0 if rate <= 0.3 else 0.0, first=10.0)
    assert search.best is not None
    assert 0.28 <= search.best <= 0.3
    hopeless = searched(lambda _: 0.0)
    assert (hopeless.best, len(hopeless.steps)) == (None, 5)


def test_a_search_ends_at_the_last_rate() -> None:
    search = searched(lambda _: 1.0, first=10.0, last=35.0)
    assert ([step.rate for step in search.steps], search.best) == ([10.0, 20.0, 35.0], 35.0)


def test_a_rate_that_is_not_decided_is_measured_again() -> None:
    step = Step(1.0)
    assert step.keeps(0.95) is None
    search = Search(0.95)
    search.run(lambda rate, _: at(rate, 0.96 if rate < 2 else 0.0, calls=100), 1.0, None)
    assert [len(step.runs) for step in search.steps][:2] == [3, 1]
    assert search.certain is False
    assert search.best is not None


def test_a_search_stops_at_the_limit_of_the_client() -> None:
    search = Search(0.95)
    search.run(lambda rate, _: at(rate, 1.0, cpu=10.0 if rate > 8 else 1.0), 1.0, None)
    assert search.best is not None
    assert 7.6 <= search.best <= 8.4
    assert search.limited_by_client
    lines = search_lines(search_object(search, {}), Paint(io.StringIO()))
    assert lines[-1] == "above it, this client was the limit and not the server: use --workers"


def test_a_run_that_other_processes_disturb_is_repeated() -> None:
    disturbed = at(1.0, 0.0, clients=[client(merged=0.1, loops=[0.003])])
    left = [disturbed, at(1.0, 1.0), disturbed, disturbed, disturbed]
    search = Search(0.95)
    search.run(lambda *_: left.pop(0) if left else at(1.0, 0.0), 1.0, None)
    assert [(step.rate, len(step.runs), step.run.verdict.valid) for step in search.steps[:2]] == [
        (1.0, 2, True),
        (2.0, 3, False),
    ]
    assert (search.steps[0].share, search.best) == (1.0, 1.0)


def test_the_bounds_of_a_share_are_wilsons() -> None:
    assert Step(1.0, [], 95, 100).bounds == pytest.approx((0.9008, 0.9754), abs=0.0001)
    assert Step(1.0, [], 0, 0).bounds == (0.0, 1.0)


def test_each_step_is_calibrated_until_one_holds_for_it(bench: Bench, runs: Runs) -> None:
    runs.added = [Calibration(0.001, 0.01, 0.4), Calibration(0.001, 0.01, 0.4)]
    runs.found = [at(2.0, 1.0), at(4.0, 0.2)] + [at(0, 0.2) for _ in range(5)]
    bench(URL, "--find", "--slo", "ttft=200ms", "--rate", "2")
    rates = [plan.arrivals and plan.arrivals.last for _, plan, _ in runs.calibrations]
    assert rates == [2.0, 4.0, pytest.approx(2.83, abs=0.01)], "an imprecise one holds for no other rate"
    assert [options["calibration"].p50 for options in runs.options[:3]] == [0.001, 0.001, 0.00003]
    runs.calibrations.clear()
    runs.found = [step(0.01), step(0.01, streams=2)]
    bench("--streams", "1,2")
    assert [plan.concurrency for _, plan, _ in runs.calibrations] == [1, 2]


def test_a_search_whose_calls_do_not_end_says_so(bench: Bench, runs: Runs) -> None:
    """A call that the end cuts has not kept the objective: else a server that stalls would keep it."""
    runs.found = [run(result(figures({"ttft": [0.1]}), slo={"ttft": 0.2}, unfinished=5)) for _ in range(20)]
    status, out, _ = bench(URL, "--find", "--slo", "ttft=200ms")
    note = "note: no call ended in the measured time, so none kept the objective: use more --seconds"
    assert (status, out.splitlines()[-2:]) == (1, ["no rate kept the objective for 95% of the calls", note])


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (step(0.01, failures={"server": 1234}), "calls failed"),
        (step(0.01, silent=1234), "1,234 without content"),
        (step(None), "no gaps to measure"),
        (step(3.0), "p99 above 2.50 s"),
    ],
)
def test_a_step_that_does_not_hold_has_a_reason(bench: Bench, runs: Runs, found: Run, verdict: str) -> None:
    found.result.figures.first_failure = "no\x1b"
    runs.found = [found]
    status, out, _ = bench(URL, "--streams", "5,6", "--max-gap", "2500")
    assert status == 1
    lines = out.splitlines()
    assert lines[3].endswith(f"  {verdict}")
    assert lines[-2:] == ["most streams whose p99 of the gaps stayed within 2.50 s: 0", "first failure: no\ufffd"]
