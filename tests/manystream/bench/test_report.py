"""A run and a search as JSON: one line of the schema, with invalid figures marked."""

import json
from collections.abc import Callable
from typing import TypeAlias

import pytest

from manystream.bench.report import SCHEMA
from tests.support.bench_results import figures, result, run
from tests.support.bench_runs import Runs, step

URL = "http://127.0.0.1:1/v1"


Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


INVALID = run(result(figures({"ttft": [0.1]}, ok=5), cpu=9.9, stream=True))


FIGURE_KEYS = {"count", "mean", "p50", "p90", "p99", "longest", "intervals", "valid", "histograms"}


def test_the_json_of_a_run_is_one_line_of_the_schema(bench: Bench, runs: Runs) -> None:
    status, out, err = bench(URL, "--json")
    assert (status, err, out.count("\n")) == (1, "", 1)
    page = json.loads(out)
    about = {"url": URL, "dialect": "openai-chat", "model": "gpt-5-mini", "simulated": False, "schema": SCHEMA}
    assert about.items() <= page.items()
    assert page["validity"] == {
        "valid": True, "reasons": [], "largest_valid_load": 15000.0, "load": 2000.0, "load_unit": "calls at a time",
        "calibration": {"p50": 0.00003, "p99": 0.0002, "busy": 0.4, "simulator_share": 0.3},
    }  # fmt: skip
    assert page["calls"] == {"due": 13348, "started": 13348, "ok": 12345, "failed": 1003, "unfinished": 2000}
    assert (page["failures"], page["first_failure"]) == ({"server": 1000, "network": 3}, "the server\x1b failed")
    assert (page["slo"], page["goodput"], page["good_calls"]) == ({"ttft": 0.2}, pytest.approx(1200.0), 12000)
    for name in ("ttfb", "ttft", "tpot", "itl", "e2el"):
        assert page[name].keys() == FIGURE_KEYS
        assert (len(page[name]["histograms"]), page[name]["valid"]) == (10, True)
    assert page["itl"]["p99"] == pytest.approx(0.05, rel=0.001)
    assert page["itl"]["intervals"]["p99"] == pytest.approx([0.02, 0.05], rel=0.001)
    assert (page["ttfo"]["count"], page["ttfo"]["p50"], page["ttfo"]["histograms"]) == (0, None, [])
    assert (page["output_tokens"], page["tokens_reported"]) == (2_000_000, 12345)
    assert (page["client"]["cpu_share"], page["client"]["read_delay"]["p99"]) == (0.1, pytest.approx(0.0001, rel=0.01))


def test_an_invalid_figure_is_marked_in_json(bench: Bench, runs: Runs) -> None:
    runs.found = [INVALID]
    status, out, _ = bench(URL, "--json")
    page = json.loads(out)
    assert (status, page["validity"]["valid"], page["ttft"]["valid"]) == (3, False, False)


def test_the_steps_as_json(bench: Bench, runs: Runs) -> None:
    runs.found = [step(0.5), step(None, streams=2)]
    status, out, _ = bench(URL, "--streams", "1,2", "--max-gap", "501", "--model", "m", "--json")
    found = json.loads(out)
    assert (status, found["most_streams"], found["max_gap"]) == (0, 1, 0.501)
    assert [(one["load"]["concurrency"], one["holds"]) for one in found["steps"]] == [(1, True), (2, False)]
