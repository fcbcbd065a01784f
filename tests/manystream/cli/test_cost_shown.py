"""Cost in the output of `run --cost` and of a batch: progress, summary and answers; none without a price list."""

import json
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import ClauseContains, ModelInfo, ModelPrice, Provider

from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=4") as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")


@pytest.fixture
def listed() -> Iterator[None]:
    """Install a price list with the simulator's address: each answer costs two cents."""
    model = ModelInfo("sim-text", ClauseContains("sim"), prices=ModelPrice(requests_kcount=Decimal(20)))
    mill = Provider(id="mill", name="The mill", api_pattern=r"http://127\.0\.0\.1", models=[model])
    set_custom_snapshot(DataSnapshot([mill], from_auto_update=False))
    yield
    set_custom_snapshot(None)


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)


def ask(simulator: Simulator, *arguments: str) -> int:
    address = simulator.base_urls["openai-chat"]
    return main(["run", "--base-url", address, "--model", "sim-text", "--cost", *arguments, "hello"])


@pytest.mark.parametrize("how", [[], ["--no-stream"]])
def test_run_shows_costs(
    simulator: Simulator, listed: None, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(simulator, *how) == 0
    shown = capsys.readouterr().err
    assert " · $0.02 ($0.00 in, $0.00 out) · " in shown


def prices(folder: Path, **models: object) -> Path:
    file = folder / "prices.json"
    file.write_text(json.dumps(models or {"sim-*": {"input": 1e6, "output": 2e6}}), "utf-8")
    return file


@pytest.mark.parametrize("how", [[], ["--no-stream"]])
def test_run_has_prices_of_ones_own(
    simulator: Simulator, how: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = simulator.base_urls["openai-chat"]
    table = prices(tmp_path, **{"sim-*": {"input": 0, "output": 1e6}})
    assert main(["run", "--base-url", address, "--model", "sim-text", "--prices", str(table), *how, "hello"]) == 0
    shown = capsys.readouterr().err
    tokens = int(shown.partition(" out")[0].rpartition(" ")[2])
    assert f"${tokens}.00 ($0.00 in, ${tokens}.00 out)" in shown


@pytest.mark.parametrize("command", ["run", "batch"])
def test_a_wrong_price_table_is_refused(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": 1, "messages": [{"role": "user", "content": "hello"}]}\n', "utf-8")
    rest = ["hello"] if command == "run" else [str(tmp_path / "p.jsonl"), "-o", str(tmp_path / "a.jsonl")]
    whom = ["--base-url", "http://127.0.0.1:9/v1", "--model", "m"]
    for file, words in (
        (tmp_path / "none.json", "none.json: No such file or directory"),
        (prices(tmp_path, m={"input": 1}), "prices.json: 'm' has no price 'output'"),
    ):
        assert main([command, *rest, *whom, "--prices", str(file)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == f"manystream {command}: --prices: {tmp_path}/{words}\n"


def test_run_shows_that_a_price_is_unknown(simulator: Simulator, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(simulator) == 0
    assert "cost unknown: genai-prices has no price of model" in capsys.readouterr().err


def test_run_without_the_extra_is_refused_before_the_call(
    simulator: Simulator, without_extra: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(simulator) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (
        "",
        "manystream run: --cost: prices need the extra `cost`: pip install '.[cost]' in manystream's checkout\n",
    )


def batch(simulator: Simulator, folder: Path, count: int = 3, more: Sequence[str] = ()) -> list[dict[str, object]]:
    message = {"role": "user", "content": "hello"}
    lines = [{"id": str(n), "messages": [message], "max_output_tokens": 50} for n in range(count)]
    (folder / "p.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    answers = folder / "a.jsonl"
    whom = ["--base-url", simulator.base_urls["openai-chat"], "--model", "sim-text"]
    assert main(["batch", str(folder / "p.jsonl"), "-o", str(answers), *whom, *more]) == 0
    return [json.loads(line) for line in answers.read_bytes().splitlines()]


def test_a_batch_shows_the_cost_of_each_answer_and_the_sum(
    simulator: Simulator, listed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = batch(simulator, tmp_path)
    assert [answer["cost"] for answer in answers] == [{"currency": "USD", "total": 0.02}] * 3
    assert "$0.06 by list prices" in capsys.readouterr().out


def test_what_was_paid_is_not_called_a_list_price(
    simulator: Simulator, listed: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch(simulator, tmp_path, more=["--via", "batch"])
    shown = capsys.readouterr().out
    assert "$0.03 paid\n" in shown
    assert "by list prices" not in shown
    assert "$0.06 at list price, $0.03 paid, $0.03 saved" in shown


def test_a_batch_has_your_own_prices(simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--prices", str(prices(tmp_path, **{"sim-*": {"input": 0, "output": 1}})), "--budget", "1"]
    answers = batch(simulator, tmp_path, more=more)
    costs = [answer["cost"]["total"] * 1e6 for answer in answers]  # type: ignore[index]
    assert costs == [pytest.approx(answer["usage"]["output_tokens"]) for answer in answers]  # type: ignore[index]
    assert [answer["spent_usd"] for answer in answers] == [pytest.approx(cost / 1e6) for cost in costs]
    shown = capsys.readouterr().out
    assert "by list prices" in shown
    assert "of $1.00 of the budget" in shown


def test_a_budget_needs_a_price(simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": 1, "messages": [{"role": "user", "content": "hello"}]}\n', "utf-8")
    whom = ["--base-url", simulator.base_urls["openai-chat"], "--model", "sim-text", "--budget", "1"]
    assert main(["batch", str(tmp_path / "p.jsonl"), "-o", str(tmp_path / "a.jsonl"), *whom]) == 2
    assert capsys.readouterr().err.endswith("a price table of your own can (--prices)\n")


def test_a_batch_shows_no_price(simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = batch(simulator, tmp_path)
    assert [answer["cost"] for answer in answers] == [None] * 3
    shown = capsys.readouterr().out
    assert "3 without a price: genai-prices has no price of model" in shown
    assert "$" not in shown


def test_a_batch_without_the_extra_shows_no_cost(
    simulator: Simulator, without_extra: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = batch(simulator, tmp_path)
    assert not any("cost" in answer for answer in answers)
    shown = capsys.readouterr().out
    assert "price" not in shown
    assert "$" not in shown


def test_a_batch_with_the_simulator_shows_no_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": 1, "messages": [{"role": "user", "content": "hello"}]}\n', "utf-8")
    assert main(["batch", "--simulate", str(tmp_path / "p.jsonl"), "-o", str(tmp_path / "a.jsonl")]) == 0
    assert "price" not in capsys.readouterr().out
    assert "cost" not in json.loads((tmp_path / "a.jsonl").read_bytes())


def test_no_command_names_an_argument_of_the_library(
    simulator: Simulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whom = ["--base-url", simulator.base_urls["openai-chat"], "--model", "sim-text"]
    batch(simulator, tmp_path, 1)
    assert main(["batch", str(tmp_path / "p.jsonl"), "-o", str(tmp_path / "b.jsonl"), *whom, "--budget", "1"]) == 2
    assert main(["run", "hello", "--cost", *whom]) == 0
    shown = "".join(capsys.readouterr())
    assert shown.count("a newer version of it may have one, and a price table of your own can") == 3
    assert "prices_as" not in shown
