"""`manystream batch --budget`: what is counted, how a run ends when it is spent, how it goes on, and bad input."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import ClauseContains, ClauseEquals, ModelInfo, ModelPrice, Provider

from manystream.batch import Journal
from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread
from tests.manystream.cli.test_batch import ENVIRONMENT, reached
from tests.support.batches import line, unrecorded, write
from tests.support.waiting import until

FILES = ("p.jsonl", "-o", "a.jsonl", "--plain")
CENTS = 0.02
"""The price of an answer of `sim-text`."""

PRICE_LIST = """\
from decimal import Decimal
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import ClauseEquals, ModelInfo, ModelPrice, Provider
model = ModelInfo("sim-text", ClauseEquals("sim-text"), prices=ModelPrice(requests_kcount=Decimal(20)))
mill = Provider(id="mill", name="The mill", api_pattern=r"http://127\\.0\\.0\\.1", models=[model])
set_custom_snapshot(DataSnapshot([mill], from_auto_update=False))
"""
"""The module `sitecustomize` of a process: a price list with the simulator's address."""


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=4") as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, with 12 prompts. Prices: 2 cents for `sim-text`, and 1 dollar per 1,000 tokens of output
    for `sim-text@…`."""
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.chdir(tmp_path)
    prompts(tmp_path)
    flat = ModelInfo("flat", ClauseEquals("sim-text"), prices=ModelPrice(requests_kcount=Decimal(20)))
    by_token = ModelInfo("by token", ClauseContains("@"), prices=ModelPrice(output_mtok=Decimal(1000)))
    mill = Provider(id="mill", name="The mill", api_pattern=r"http://127\.0\.0\.1", models=[flat, by_token])
    set_custom_snapshot(DataSnapshot([mill], from_auto_update=False))
    yield tmp_path
    set_custom_snapshot(None)


def prompts(folder: Path, count: int = 12, text: str = "hello", **members: object) -> None:
    write(folder / "p.jsonl", [line(str(n), text, **({"max_output_tokens": 50} | members)) for n in range(count)])


def batch(simulator: Simulator, *arguments: str, model: str = "sim-text") -> int:
    address = simulator.base_urls["openai-chat"]
    return main(["batch", *FILES, "--base-url", address, *(("--model", model) if model else ()), *arguments])


def records(name: str = "a.jsonl") -> list[dict[str, Any]]:
    path = Path(name)
    return [json.loads(text) for text in path.read_bytes().splitlines()] if path.exists() else []


def test_a_larger_budget_runs_on(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    assert batch(simulator, "--budget", "0.1") == 1
    assert len(records()) == 5
    assert not Path("a.errors.jsonl").exists()
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == (
        "The budget is spent: 7 lines are not sent, since the largest cost of a line did not fit into the rest"
        " ($0.10 of $0.10 spent). The same command with a larger --budget goes on."
    )
    assert "$0.10 of $0.10 of the budget" in captured.out
    assert batch(simulator, "--budget", "0.2") == 1
    assert "Budget: $0.10 of $0.20 are spent (a.jsonl)" in capsys.readouterr().err
    assert len(records()) == 10
    assert batch(simulator, "--budget", "0.2") == 1, "the same budget sends nothing more"
    assert len(records()) == 10
    assert batch(simulator, "--budget", "1") == 0
    assert sorted(int(record["id"]) for record in records()) == list(range(12))
    assert "$0.24 of $1.00 of the budget" in capsys.readouterr().out
    assert batch(simulator, "--budget", "0.01") == 0, "every line has its answer"


def test_calls_that_run_at_the_same_time_cannot_overspend(simulator: Simulator, folder: Path) -> None:
    prompts(folder, 200)
    assert batch(simulator, "--budget", "1", "--concurrency", "200") == 1
    assert len(records()) == 50


def test_a_killed_batch_is_counted_when_it_goes_on(simulator: Simulator, folder: Path) -> None:
    prompts(folder, 60, "simulate: delay=0.02")
    (folder / "sitecustomize.py").write_text(PRICE_LIST, "utf-8")
    command = [sys.executable, "-m", "manystream", "batch", *FILES, "--model", "sim-text", "--budget", "0.8"]
    command += ["--base-url", simulator.base_urls["openai-chat"], "--concurrency", "1"]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    quiet = subprocess.DEVNULL
    for goal in (5, 15):
        process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, text=True)
        try:
            until(partial(reached, process, folder / "a.jsonl", goal))
        finally:
            process.kill()
            process.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60.0, check=False)
    assert done.returncode == 1
    assert "The budget is spent: 20 lines are not sent" in done.stderr
    assert "Traceback" not in done.stderr
    assert sum(record["spent_usd"] for record in records()) == pytest.approx(0.8)


def test_calls_cut_by_ctrl_c_count_later(
    simulator: Simulator, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["hello", *["simulate: delay=60"] * 3]
    write(folder / "p.jsonl", [line(n, text, max_output_tokens=50) for n, text in enumerate(texts)])

    def press() -> None:
        until(lambda: len(records()) == 1 and live(simulator) == 3)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    assert batch(simulator, "--budget", "0.08") == 130
    thread.join()
    assert "$0.08 of $0.08 of the budget" in capsys.readouterr().out
    assert unrecorded(folder / "a.jsonl") == pytest.approx(0.06)
    for _ in range(2):
        assert batch(simulator, "--budget", "0.08") == 1
        assert len(records()) == 1
        notice = "Budget: $0.08 of $0.08 are spent, and $0.06 of that is for calls whose end is not known"
        assert notice in capsys.readouterr().err
    assert unrecorded(folder / "a.jsonl") == pytest.approx(0.06)


def live(simulator: Simulator) -> int:
    """Return the number of answers that the simulator is sending now."""
    with urllib.request.urlopen(f"{simulator.origin}/sim/statistics") as answer:
        return json.load(answer)["live"]


def test_an_unwritten_answer_counts_later(simulator: Simulator, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "record_answer", fail)
        assert batch(simulator, "--budget", "0.1", "--concurrency", "1") == 1
    assert unrecorded(folder / "a.jsonl") == pytest.approx(0.02)
    assert batch(simulator, "--budget", "0.1") == 1
    assert len(records()) == 4


def test_each_shard_has_its_part_of_the_budget(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    assert batch(simulator, "--budget", "0.12", "--shard", "0/2") == 1
    assert len(records("a.0-of-2.jsonl")) == 3
    err = capsys.readouterr().err
    assert "--budget 0.06 of 0.12" in err
    assert "The budget is spent: 3 lines are not sent" in err
    assert "($0.06 of $0.06 spent)" in err


def test_recorded_answers_without_prices_are_counted(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "genai_prices", None)
        assert batch(simulator) == 0
    assert not any("cost" in record or "spent_usd" in record for record in records())
    write(Path("p.jsonl"), [line(str(n), max_output_tokens=50) for n in range(20)])
    assert batch(simulator, "--budget", "0.3") == 1
    assert "Budget: $0.24 of $0.30 are spent (a.jsonl)" in capsys.readouterr().err
    assert len(records()) == 15


def test_answers_recorded_without_a_budget_are_counted(simulator: Simulator) -> None:
    assert batch(simulator) == 0
    assert records()[0]["cost"] == {"currency": "USD", "total": CENTS}
    write(Path("p.jsonl"), [line(str(n), max_output_tokens=50) for n in range(20)])
    assert batch(simulator, "--budget", "0.3") == 1
    assert len(records()) == 15


@pytest.mark.parametrize(
    "member", [{}, {"cost": None}, {"spent_usd": "0.5"}, {"spent_usd": -1}, {"cost": {"currency": "USD", "total": []}}]
)
def test_an_answer_whose_cost_is_unknown_is_reported(
    simulator: Simulator, member: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    write(Path("a.jsonl"), [{"id": "0", "provider": "another", "model": "m", "text": "", **member}])
    assert batch(simulator, "--budget", "1") == 0
    assert "Budget: 1 answer without a known cost is not counted (a.jsonl)" in capsys.readouterr().err


def test_a_failure_that_cost_something_is_counted(simulator: Simulator) -> None:
    fail_and_go_on(partial(batch, simulator), "budget")


def fail_and_go_on(batch: Callable[..., int], key: str) -> None:
    """Check that a line which fails after it has cost something counts with this cost in later runs.

    batch: runs the command with further words.
    key: a name that the simulator has not seen.
    """
    prompts(Path.cwd(), 2, f"simulate: events=40,cut=20,times=1,key={key}")
    assert batch("--budget", "1", "--stream", "--attempts", "1", "--concurrency", "1") == 1
    (failure,) = records("a.errors.jsonl")
    assert failure["spent_usd"] == CENTS
    assert batch("--budget", "0.05", "--retry-failed") == 1, "four cents are spent"
    assert batch("--budget", "0.06", "--retry-failed") == 0
    assert [record["spent_usd"] for record in records()] == [CENTS, 2 * CENTS]


def test_a_line_that_does_not_fit_leaves_the_budget_to_others(
    simulator: Simulator, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [line(str(n), max_output_tokens=2_000 if n == 2 else 30) for n in range(12)]
    write(folder / "p.jsonl", lines)
    assert batch(simulator, "--budget", "1.5", model="sim-text@events=4") == 1
    assert sorted(int(record["id"]) for record in records()) == [n for n in range(12) if n != 2]
    assert "The budget is spent: 1 line is not sent" in capsys.readouterr().err
    assert not Path("a.errors.jsonl").exists()


def test_a_line_whose_largest_output_is_unknown_is_invalid(simulator: Simulator, folder: Path) -> None:
    write(folder / "p.jsonl", [line("a"), line("b", max_output_tokens=50)])
    assert batch(simulator, "--budget", "1") == 1
    (failure,) = records("a.errors.jsonl")
    assert failure["error"]["message"].startswith("p.jsonl line 1: max_output_tokens: is needed: a budget limits the")
    assert [record["id"] for record in records()] == ["b"]


def test_no_line_exceeds_the_budget(simulator: Simulator, folder: Path) -> None:
    members: dict[str, dict[str, object]] = {
        "usual": {},
        "float": {"extra_body": {"max_completion_tokens": 100000.0}},
        "text": {"extra_body": {"max_completion_tokens": "100000"}},
        "choices": {"extra_body": {"n": "1000"}},
        "junk": {"extra_body": {"max_completion_tokens": "many"}},
        "earlier": {"extra_body": {"previous_response_id": "r1"}},
        "search": {"extra_body": {"tools": [{"type": "web_search"}]}},
    }
    lines = [line(name, "hello", **({"max_output_tokens": 10} | more)) for name, more in members.items()]
    write(folder / "p.jsonl", lines)
    assert batch(simulator, "--budget", "0.05", model="sim-text@events=4") == 1
    assert [record["id"] for record in records()] == ["usual"]
    failures = {record["id"]: record["error"]["message"] for record in records("a.errors.jsonl")}
    assert failures.keys() == {"junk", "earlier", "search"}
    assert "extra_body.max_completion_tokens: a budget limits" in failures["junk"]
    assert "extra_body.previous_response_id: a budget limits" in failures["earlier"]
    assert "extra_body.tools[0]: a budget limits" in failures["search"]


def test_a_line_s_own_model_without_a_price_is_invalid(simulator: Simulator, folder: Path) -> None:
    lines = [line("a", model="sim-tools", max_output_tokens=50), line("b", model="sim-text", max_output_tokens=50)]
    write(folder / "p.jsonl", lines)
    assert batch(simulator, "--budget", "1", model="") == 1
    (failure,) = records("a.errors.jsonl")
    assert "knows no price of openai-compatible/sim-tools, and a budget limits usd" in failure["error"]["message"]
    assert [record["id"] for record in records()] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--budget", "0"], "--budget must be above 0, not 0"),
        (["--budget", "-1"], "--budget must be above 0, not -1"),
        (["--budget", "nan"], "--budget must be above 0, not nan"),
        (["--budget", "inf"], "--budget must be above 0, not inf"),
        (["--budget", "much"], "argument --budget: invalid float value: 'much'"),
        (["--budget", "1", "--model", "other"], "--budget: genai-prices has no price of model 'other' at '127.0.0.1'"),
        (["--budget", "1", "--route", "sim-text,other"], "--budget: genai-prices has no price of model 'other'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    simulator: Simulator, arguments: list[str], complaint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert batch(simulator, *arguments, model="") == 2
    assert complaint in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["p.jsonl"]


def test_a_budget_without_the_extra_is_refused(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert batch(simulator, "--budget", "1") == 2
    assert capsys.readouterr().err == (
        "manystream batch: --budget: prices need the extra `cost`: pip install '.[cost]' in manystream's checkout\n"
    )
    assert not Path("a.jsonl").exists()
