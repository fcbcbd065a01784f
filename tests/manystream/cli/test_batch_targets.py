"""Where `manystream batch` sends lines: one model, several in order, replicas; and the limits that it declares."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.batches import line, write

FILES = ("p.jsonl", "-o", "a.jsonl", "--plain")


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=2") as simulator:
        yield simulator


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of prompts. Only OpenAI has a key."""
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MANYSTREAM_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "p.jsonl", [line(str(number), model="another") for number in range(12)])
    return tmp_path


def address(simulator: Simulator) -> str:
    return simulator.base_urls["openai-chat"]


def answers(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / "a.jsonl").read_bytes().splitlines()]


def test_a_line_goes_to_the_next_model_of_a_route(simulator: Simulator, folder: Path) -> None:
    route = "sim-text@fail=503,sim-text"
    assert main(["batch", *FILES, "--route", route, "--base-url", address(simulator)]) == 0
    found = answers(folder)
    assert len(found) == 12
    assert {(each["provider"], each["model"]) for each in found} == {("openai-compatible", "sim-text")}
    assert max(each["attempts"] for each in found) == 2


def test_each_replica_gets_lines_and_a_dead_one_loses_none(simulator: Simulator, folder: Path) -> None:
    write(folder / "p.jsonl", [line(str(number)) for number in range(60)])
    with open_simulator_thread("events=2") as second, open_simulator_thread("events=2,fail=503") as dead:
        servers = [address(each) for each in (simulator, second, dead)]
        options = [part for url in servers for part in ("--base-url", url)]
        assert main(["batch", *FILES, "--model", "sim-text", *options, "--attempts", "1"]) == 0
    found = answers(folder)
    assert len(found) == 60
    assert {each["provider"] for each in found} == {url.split("/")[2] for url in servers[:2]}


def test_a_refused_line_is_sent_again_and_uses_no_attempt(folder: Path) -> None:
    with open_simulator_thread("events=2", limits=["requests-per-minute=600 bucket=0.5"]) as limited:
        url = address(limited)
        assert main(["batch", *FILES, "--model", "sim-text", "--base-url", url, "--attempts", "1"]) == 0
        (counts,) = limited.limit_counts()
    assert (len(answers(folder)), counts.accepted) == (12, 12)


URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["--route", "gpt-5,openai/gpt-5"], 2, "--route names 'openai-chat/gpt-5' twice"),
        (["--model", "m", "--base-url", URL, "--base-url", "http://127.0.0.1:99999/v1"], 1, "base_url"),
    ],
)
def test_wrong_targets_are_one_line(
    arguments: list[str], status: int, complaint: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", *FILES, *arguments]) == status
    shown = capsys.readouterr().err
    assert complaint in shown
    assert shown.count("\n") == 1
    assert "sk-canary" not in shown
    assert not (folder / "a.jsonl").exists() or not answers(folder)


def test_the_help_fits_80_columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["batch", "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    options = ("--shard I/N", "--route", "--base-url", "--no-adaptive", "--max-tpm")
    for word in (*options, "custom_id", "params", "answers.errors.jsonl"):
        assert word in shown


def test_the_environment_has_the_address(simulator: Simulator, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", address(simulator))
    assert main(["batch", *FILES, "--model", "gpt-5-mini"]) == 0
    assert {answer["model"] for answer in answers(folder)} == {"gpt-5-mini"}
    (folder / "a.jsonl").unlink()
    assert main(["batch", *FILES]) == 0  # the lines name a model of no known provider
    assert {answer["model"] for answer in answers(folder)} == {"another"}
