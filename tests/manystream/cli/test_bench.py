"""The command `manystream bench` against the simulator: its figures, its output and its exit status."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from manystream.bench import validity
from manystream.cli import bench as bench_command
from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.commands import remove_keys

Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"

DIALECTS = ("openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions")


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=8") as simulator:
        yield simulator


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Return a function that runs the command in this process without a key, and returns status, output and errors."""
    remove_keys(monkeypatch)
    monkeypatch.setattr(validity, "SHORTEST", 3600.0)  # else a busy machine would make results invalid
    monkeypatch.setattr(bench_command, "CALIBRATION_SECONDS", 0.0)

    def bench(*arguments: str) -> tuple[int, str, str]:
        status = main(["bench", *arguments])
        return status, *capsys.readouterr()

    return bench


def result_of(out: str) -> dict[str, Any]:
    """Parse the output, which must be one line of JSON."""
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


@pytest.mark.parametrize("dialect", DIALECTS)
def test_streams_of_every_dialect_are_counted_without_a_key(bench: Bench, simulator: Simulator, dialect: str) -> None:
    url = simulator.base_urls[dialect]
    status, out, _ = bench(url, "--dialect", dialect, "-n", "6", "-c", "2", "--ramp", "0", "--json")
    result = result_of(out)
    assert status == 0
    assert (result["url"], result["dialect"], result["load"]["concurrency"], result["stream"]) == (
        url,
        dialect,
        2,
        True,
    )
    assert result["calls"] == {"due": 6, "started": 6, "ok": 6, "failed": 0, "unfinished": 0}
    assert result["events"] == 6 * 10, "the events are Start, eight pieces of text, and Done"
    assert result["output_tokens"] == 6 * 8
    for name in ("ttfb", "ttft", "e2el"):
        spans = result[name]
        assert 0 < spans["p50"] <= spans["p90"] <= spans["p99"] <= spans["longest"]
    assert result["ttfb"]["p50"] <= result["ttft"]["p50"] <= result["e2el"]["p50"]
    assert (result["itl"]["count"], result["tpot"]["count"], result["tokens_reported"]) == (6 * 7, 6, 6)
    assert result["validity"]["valid"] is None, "it was too short to judge"
    assert result["client"]["cpu_share"] > 0
    assert result["connections"]["opened"] + result["connections"]["reused"] == 6
    assert result["interrupted"] is False


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_unstreamed_calls_are_counted_without_gaps(bench: Bench, simulator: Simulator, dialect: str) -> None:
    url = simulator.base_urls[dialect]
    status, out, _ = bench(url, "--dialect", dialect, "-n", "5", "--ramp", "0.1", "--no-stream", "--json")
    result = result_of(out)
    assert status == 0
    assert result["calls"]["ok"] == 5
    assert result["events"] == 5, "each call counts as one event, even if all calls end within the ramp"
    assert [result[name]["count"] for name in ("itl", "ttft", "tpot", "ttfb", "e2el")] == [0, 0, 0, 5, 5]
    assert 0 < result["ttfb"]["p50"] <= result["e2el"]["p50"]


def test_without_json_the_result_is_lines_of_text(bench: Bench, simulator: Simulator) -> None:
    status, out, _ = bench(simulator.base_urls["openai-chat"], "-n", "3", "--model", "m", "--ramp", "0")
    assert status == 0
    heading, empty, *rows = out.splitlines()
    assert "openai-chat, model m: streams, 10 at a time" in heading
    assert not empty
    lines = {row[:13].strip(): row[15:] for row in rows}
    assert lines["calls"].startswith("3 ok (")
    assert "0 failed" in lines["calls"]
    assert "per event" in lines["this client"]
    assert {"TTFB", "TTFT", "TPOT", "ITL", "E2EL", "events", "connections"} <= set(lines)
    assert rows[-1].startswith("NOT JUDGED: ")
    assert re.fullmatch(r"[1-9][0-9,]*/s", lines["output tokens"].strip())


def test_a_server_that_does_not_stream_has_no_time_per_token(bench: Bench, simulator: Simulator) -> None:
    knobs = "x-simulate=events=1"
    _, out, _ = bench(simulator.base_urls["openai-chat"], "-n", "4", "-c", "2", "--header", knobs, "--json")
    result = result_of(out)
    assert (result["calls"]["ok"], result["tpot"]["count"], result["tpot"]["p50"]) == (4, 0, None)


def test_failures_are_counted_by_category_and_are_status_1(bench: Bench, simulator: Simulator) -> None:
    knobs = "x-simulate=fail=429,times=2,events=4,key=bench"
    status, out, _ = bench(simulator.base_urls["openai-chat"], "-n", "6", "-c", "3", "--header", knobs, "--json")
    result = result_of(out)
    assert status == 1
    assert result["failures"] == {"rate_limit": 2}
    assert result["calls"] == {"due": 6, "started": 6, "ok": 4, "failed": 2, "unfinished": 0}
    assert result["first_failure"]


@pytest.mark.parametrize(
    ("knobs", "category"), [("fail=401", "auth"), ("fail=404", "not_found"), ("drop=1", "network")]
)
def test_a_hopeless_run_ends_soon_with_a_reason(bench: Bench, simulator: Simulator, knobs: str, category: str) -> None:
    url = simulator.base_urls["openai-chat"]
    status, out, _ = bench(url, "-c", "2", "--seconds", "60", "--calibrate", "0", "--header", f"x-simulate={knobs}")
    assert status == 1
    assert f"({category} " in out
    assert "first failure" in out
    assert "ITL" not in out, "without events there are no gaps to show"


def test_calls_cancelled_at_the_end_are_not_failures(bench: Bench, simulator: Simulator) -> None:
    arguments = ("-c", "2", "--seconds", "0.3", "--calibrate", "0", "--json")
    arguments += ("--header", "x-simulate=rate=100,events=5000")
    status, out, _ = bench(simulator.base_urls["gemini"], "--dialect", "gemini", *arguments)
    result = result_of(out)
    assert status == 0
    assert result["calls"] == {"due": 2, "started": 2, "ok": 0, "failed": 0, "unfinished": 2}
    assert result["seconds"] > 0.05  # longer on a busy machine, where events also arrive together


def test_without_a_url_the_simulator_answers_with_a_note(bench: Bench) -> None:
    status, out, err = bench("--simulate", "events=4", "-n", "3", "--dialect", "anthropic", "--json")
    assert status == 0
    result = result_of(out)
    assert (result["model"], result["simulated"]) == ("simulated", True)
    assert not err
    status, out, err = bench("--simulate", "events=4", "-n", "3")
    assert out.splitlines()[0].endswith(", openai-chat, model simulated: streams, 10 at a time, 10 s")
    assert "built-in simulator answers (events=4)" in err


def test_a_search_ends_with_the_most_streams_in_the_bound(bench: Bench, simulator: Simulator) -> None:
    knobs = ("--header", "x-simulate=rate=50,events=5000", "--seconds", "0.4", "--ramp", "0")
    url = simulator.base_urls["openai-chat"]
    status, out, _ = bench(url, "--streams", "4,1,2", "--max-gap", "5000", "--json", *knobs)
    result = result_of(out)
    assert status == 0
    assert result["most_streams"] == 4
    assert result["max_gap"] == 5.0
    assert [(step["load"]["concurrency"], step["holds"]) for step in result["steps"]] == [
        (1, True),
        (2, True),
        (4, True),
    ]
    status, out, _ = bench(url, "--streams", "1,2", "--max-gap", "0.000001", *knobs)
    assert status == 1
    assert "most streams whose p99 of the gaps stayed within 0 µs: 0" in out
    assert "p99 above" in out


def test_a_key_that_is_missing_is_one_line(bench: Bench) -> None:
    status, _, err = bench("https://api.anthropic.com", "--dialect", "anthropic", "--calibrate", "0")
    assert status == 1
    assert "ANTHROPIC_API_KEY" in err
    assert err.count("\n") == 1
    status, _, err = bench("--model", "gpt-5-mini", "--calibrate", "0")
    assert status == 1
    assert "OPENAI_API_KEY" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--dialect", "soap"),
        ("--simulate", "nonsense=1"),
        ("--header", "novalue"),
    ],
)
def test_a_wrong_command_line_is_status_2(bench: Bench, arguments: tuple[str, ...]) -> None:
    status, out, err = bench(*arguments)
    assert status == 2
    assert err
    assert not out


# Open loops, processes and the calibration.


def test_an_open_loop_makes_every_call_that_is_due(bench: Bench, simulator: Simulator) -> None:
    words = ("--rate", "40", "--seconds", "1", "--calibrate", "0", "--slo", "ttft=100s", "--json")
    _, out, _ = bench(simulator.base_urls["openai-chat"], *words)
    result = result_of(out)
    assert result["calls"] == {"due": 40, "started": 40, "ok": 40, "failed": 0, "unfinished": 0}
    assert (result["late"]["count"], result["good_calls"], result["load"]["arrivals"]) == (40, 40, "constant")
    assert result["late"]["p50"] <= result["ttfb"]["p50"] <= result["ttft"]["p50"]


def test_processes_share_the_calls_and_their_figures_are_merged(bench: Bench, simulator: Simulator) -> None:
    url = simulator.base_urls["anthropic"]
    _, out, _ = bench(url, "--dialect", "anthropic", "--workers", "2", "-n", "9", "-c", "3", "--ramp", "0", "--json")
    result = result_of(out)
    assert result["calls"] == {"due": 9, "started": 9, "ok": 9, "failed": 0, "unfinished": 0}
    assert (result["load"]["workers"], result["client"]["processes"]) == (2, 2)
    assert (result["ttft"]["count"], result["itl"]["count"], result["events"]) == (9, 9 * 7, 9 * 10)


def test_a_key_that_is_missing_in_processes_is_one_line(bench: Bench) -> None:
    status, _, err = bench("--model", "gpt-5-mini", "--workers", "2", "--calibrate", "0")
    assert (status, err.count("\n")) == (1, 1)
    assert "OPENAI_API_KEY" in err


@pytest.mark.parametrize("words", [(), ("--no-stream",), ("--rate", "20")])
def test_the_client_is_calibrated_by_the_simulator(bench: Bench, simulator: Simulator, words: tuple[str, ...]) -> None:
    _, out, _ = bench(
        simulator.base_urls["openai-chat"], "-n", "5", "-c", "5", "--seconds", "1", "--calibrate", "0.6", "--json",
        *words,
    )  # fmt: skip
    found = result_of(out)["validity"]["calibration"]
    assert 0 < found["p50"] <= found["p99"]
    assert 0 < found["busy"] <= 1


def test_sessions_and_prompts_are_sent(bench: Bench, simulator: Simulator, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"messages": [{"role": "user", "content": "one"}]}\n{"prompt": "two"}\n')
    words = ("--prompts", str(tmp_path / "prompts.jsonl"), "--turns", "3", "--prefix", "5", "-n", "9", "--json")
    status, out, _ = bench(simulator.base_urls["gemini"], "--dialect", "gemini", *words, "--output", "64")
    result = result_of(out)
    assert (status, result["calls"]["ok"], result["load"]["turns"]) == (0, 9, 3)


def test_a_wrong_line_of_prompts_is_named(bench: Bench, simulator: Simulator, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one"}\n{"prompt": 2}\n')
    status, _, err = bench(simulator.base_urls["openai-chat"], "--prompts", str(path))
    assert (status, err.startswith(f"manystream bench: --prompts {path}:2: prompt")) == (2, True)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for one process")
@pytest.mark.parametrize("words", [("--rate", "5"), ("-c", "2", "--workers", "2")])
def test_ctrl_c_shows_the_figures_so_far(simulator: Simulator, words: tuple[str, ...]) -> None:
    url = simulator.base_urls["openai-chat"]
    command = [
        sys.executable, "-m", "manystream", "bench", url, "--seconds", "90", "--calibrate", "0", "--json", *words,
    ]  # fmt: skip
    command += ["--header", "x-simulate=rate=50,events=20"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()  # the first line of progress
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    result = result_of(out)
    assert (process.returncode, result["interrupted"], result["calls"]["ok"] > 0) == (130, True, True)
    assert "interrupted: these are the figures so far" in result["warnings"]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT for a group of processes")
@pytest.mark.parametrize("words", [("--workers", "2", "--calibrate", "0"), ("--calibrate", "60")])
def test_ctrl_c_before_the_run_is_quiet(simulator: Simulator, words: tuple[str, ...]) -> None:
    """A terminal sends it to all processes: also to those that are being started, and to the simulator."""
    url = simulator.base_urls["openai-chat"]
    command = [sys.executable, "-m", "manystream", "bench", url, "--seconds", "90", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert ": streams, 10 at a time, 90 s" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "ended without a result" not in err
