"""The command `manystream bench` with known figures: what it runs and prints, its exit status, and its complaints."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from manystream.bench.load import Look
from manystream.bench.report import SCHEMA, run_object
from manystream.bench.runs import Run
from manystream.bench.validity import Calibration
from manystream.cli.bench_report import Progress, run_lines
from manystream.cli.output.terminal import Paint
from tests.support.bench_results import client, figures, result, run, whole_run
from tests.support.bench_runs import Runs, at, step
from tests.support.commands import Terminal

URL = "http://127.0.0.1:1/v1"


Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


# What runs.


def test_a_run_has_these_defaults(bench: Bench, runs: Runs) -> None:
    bench(URL)
    (plan,), work = runs.plans, runs.plans[0].work
    assert (plan.stream, plan.concurrency, plan.seconds, plan.requests, plan.ramp) == (True, 10, 10.0, None, 0.02)
    assert (plan.arrivals, plan.slo, work.model, work.seed) == (None, {}, "openai-compatible/gpt-5-mini", 0)
    assert (work.prompt, work.headers) == ("Describe the rivers of Europe in about 300 words.", {})
    assert (work.input, work.output, work.prefix, work.turns, work.think) == (None, None, 0, 1, 0.0)
    assert runs.calibrations == [("openai-chat", plan, 2.0)]
    assert runs.options[0] == {"calibration": Calibration(0.00003, 0.0002, 0.4), "workers": 1, "monitor": False}
    assert (runs.servers[0].provider.base_url, runs.servers[0].provider.api_key) == (URL, "any")


def test_every_option_of_a_closed_loop_reaches_the_run(bench: Bench, runs: Runs) -> None:
    status, out, err = bench(
        "https://api.example/base", "--dialect", "anthropic", "--model", "m", "--concurrency", "7", "--seconds", "0.5",
        "--requests", "9", "--ramp", "0.25", "--no-stream", "--prompt", "Hello", "--max-tokens", "11", "--turns", "3",
        "--think", "500ms", "--seed", "5", "--header", "a=1", "--header", "b=2", "--monitor",
        "--slo", "E2EL=1.5s,ttfb=2",
    )  # fmt: skip
    assert (status, err) == (1, "")
    assert out.splitlines()[0] == "https://api.example/base, anthropic, model m: unstreamed calls, 7 at a time, 0.5 s"
    (plan,), work = runs.plans, runs.plans[0].work
    assert (plan.stream, plan.concurrency, plan.seconds, plan.requests, plan.ramp) == (False, 7, 0.5, 9, 0.25)
    assert (work.model, work.prompt, work.turns, work.think, work.seed) == (
        "anthropic-compatible/m",
        "Hello",
        3,
        0.5,
        5,
    )
    assert (work.output is not None and work.output.parameters, work.headers) == ((11.0,), {"a": "1", "b": "2"})
    assert (plan.slo, runs.options[0]["monitor"]) == ({"e2el": 1.5, "ttfb": 2.0}, True)
    assert len(runs.calibrations) == 1


@pytest.mark.parametrize(
    ("words", "expected", "heading"),
    [
        (["--rate", "20"], (20.0, 20.0, "constant", 1.0, None), "20 a second, constant"),
        (["--rate", "1..200", "-c", "50"], (1.0, 200.0, "constant", 1.0, 50), "1 to 200 a second, constant"),
        (["--rate", "5", "--arrivals", "poisson"], (5.0, 5.0, "poisson", 1.0, None), "5 a second, poisson"),
        (["--rate", "5", "--arrivals", "gamma", "--burstiness", "0.5"], (5.0, 5.0, "gamma", 0.5, None),
            "5 a second, gamma"),
    ],
)  # fmt: skip
def test_an_open_loop_has_arrivals(
    bench: Bench, runs: Runs, words: list[str], expected: tuple[Any, ...], heading: str
) -> None:
    _, out, _ = bench(URL, *words, "--calibrate", "0", "--workers", "2")
    plan = runs.plans[0]
    found = plan.arrivals
    assert (found.first, found.last, found.kind, found.burstiness, plan.concurrency) == expected
    assert out.splitlines()[0].endswith(f": streams, {heading}, 10 s")
    assert (runs.calibrations, runs.options[0]["workers"]) == ([], 2)


def test_prompts_lengths_and_traces_reach_the_run(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    (tmp_path / "prompts").write_text('{"prompt": "a"}\n')
    (tmp_path / "trace").write_text('{"timestamp": 5}\n{"timestamp": 1}\n')
    bench(URL, "--prompts", str(tmp_path / "prompts"), "--output", "uniform:5,9", "--prefix", "3")
    work = runs.plans[0].work
    assert ([one.request.model for one in work.prompts], work.prefix) == (["openai-compatible/gpt-5-mini"], 3)
    assert work.output.kind == "uniform"
    runs.found = [whole_run()]
    _, out, err = bench(URL, "--trace", str(tmp_path / "trace"), "--input", "normal:5,2")
    assert err.splitlines() == [
        "--trace: calls not in the order of the times: 1 of 2",
        "--trace: calls without a length of the prompt: 2 of 2",
        "--trace: calls without a length of the answer: 2 of 2",
    ]
    assert "a trace of 2 calls" in out


def test_each_process_is_calibrated_with_its_part(bench: Bench, runs: Runs) -> None:
    bench(URL, "-c", "7", "--workers", "2", "--calibrate", "3")
    ((_, plan, seconds),) = runs.calibrations
    assert (plan.concurrency, plan.share, seconds) == (4, (0, 2), 3.0)


# The report of a run.

REPORT = """\
calls          12,345 ok (1,234.5/s), 1,003 failed (network 3, server 1,000), 2,000 cut at the end
first failure  the server\ufffd failed
TTFB           p50 50.0 ms, p90 50.0 ms, p99 50.0 ms (50.0 ms to 50.0 ms), longest 50.0 ms
TTFT           p50 100.0 ms, p90 200.0 ms, p99 200.0 ms (200.0 ms to 200.0 ms), longest 200.0 ms
TPOT           p50 20.0 ms, p90 20.0 ms, p99 20.0 ms (20.0 ms to 20.0 ms), longest 20.0 ms
ITL            p50 20.0 ms, p90 20.0 ms, p99 50.0 ms (20.0 ms to 50.0 ms), longest 50.0 ms
E2EL           p50 1.50 s, p90 1.50 s, p99 1.50 s (1.50 s to 1.50 s), longest 1.50 s
goodput        1,200.0/s, 12,000 of 13,348 calls kept ttft 200.0 ms
events         100,000/s, 1,000,000 in 10.0 s
output tokens  200,000/s
this client    1 µs of processor time per event, 10% of one core, loop lag 12.5 ms, bytes read after 0.1 ms (p99)
calibration    this client adds 30 µs (p50), 0.2 ms (p99)
connections    2,001 opened, 10,344 reuses
VALID: the largest valid load of this client is about 15,000 calls at a time"""


def test_the_whole_report_of_a_run(bench: Bench, runs: Runs) -> None:
    status, out, err = bench("http://127.0.0.1:1/v1?x=1", "-c", "2000", "--model", "m\x1b")
    assert (status, err) == (1, "")
    heading = "http://127.0.0.1:1/v1, openai-chat, model m\ufffd: streams, 2,000 at a time, 10 s"
    assert out == f"{heading}\n\n{REPORT}\n"


INVALID = run(result(figures({"ttft": [0.1]}, ok=5), cpu=9.9, stream=True))


NOTHING = run(result(figures({}, failures={"auth": 1}), stream=True))


UNSTREAMED = run(result(figures({"e2el": [1.0, 1.0]}, ok=2), stream=False, concurrency=1, seconds=0.4))


def test_invalid_figures_are_struck_out(terminal: Terminal) -> None:
    lines = run_lines(run_object(INVALID), Paint(io.StringIO()))
    assert lines[:3] == [
        "calls          5 ok (~~0.0/s~~), 0 failed",
        "TTFT           ~~p50 100.0 ms, p90 100.0 ms, p99 100.0 ms, longest 100.0 ms~~",
        "events         ~~0/s~~, 0 in 10.0 s",
    ]
    assert lines[-1] == (
        "INVALID: the client used 99% of its core: it was the bottleneck; the largest valid load of this client is"
        " about 1,500 calls at a time"
    )
    styled = run_lines(run_object(INVALID), Paint(terminal))
    assert styled[1].endswith("\x1b[9mp50 100.0 ms, p90 100.0 ms, p99 100.0 ms, longest 100.0 ms\x1b[0m")
    assert styled[-1].startswith("\x1b[31mINVALID\x1b[0m: ")


def test_the_report_of_unstreamed_calls_and_of_nothing() -> None:
    assert run_lines(run_object(UNSTREAMED), Paint(io.StringIO())) == [
        "calls          2 ok (5.0/s), 0 failed",
        "E2EL           p50 1.00 s, p90 1.00 s, p99 1.00 s, longest 1.00 s",
        "output tokens  the server reported none",
        "this client    250% of one core, loop lag 0 µs, bytes read after 0.1 ms (p99)",
        "connections    0 opened, 0 reuses",
        "NOT JUDGED: the measured time was shorter than 0.5 s",
    ]
    assert run_lines(run_object(NOTHING), Paint(io.StringIO())) == [
        "calls  0 ok, 1 failed (auth 1)", "NOT JUDGED: no call succeeded",
    ]  # fmt: skip


def test_what_a_reader_must_know_is_noted() -> None:
    found = figures({"ttft": [0.1]}, ok=5)
    found.unreported, found.due = 3, 9
    many = [client(retransmits=2), client(retransmits=5)]
    done = result(found, clients=many, silent=1234, simulator_seconds=9.5, interrupted=True)
    lines = run_lines(run_object(run(done)), Paint(io.StringIO()))
    assert [line for line in lines if line.startswith("note: ")] == [
        "note: interrupted: these are the figures so far",
        "note: 1,234 of the streams received nothing in the measured time: the server has stalled, or lets them wait",
        "note: the simulator, one Python process, used 95% of a core: the figures show the simulator's limit",
        "note: 3 answers had no count of tokens: each of their events with content counts as one",
        "note: the network lost segments of this client: 7 were sent again",
        "note: 4 calls were due and never started: all places were taken, or this client was too slow",
    ]
    assert "simulator      95% of one core" in lines
    assert any("20% of 2 cores" in line for line in lines)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (run(result(figures({}, ok=1))), 0),
        (run(result(figures({"ttft": [0.1]}))), 1),
        (NOTHING, 1),
        (run(result(figures({}, ok=1, failures={"server": 1}))), 1),
        (run(result(figures({}, ok=1, failures={"server": 1}), cpu=10.0)), 3),
        (run(result(figures({}, ok=1), cpu=10.0, interrupted=True)), 130),
        (UNSTREAMED, 0),
    ],
)
def test_the_exit_status_of_a_run(bench: Bench, runs: Runs, found: Run, status: int) -> None:
    runs.found = [found]
    assert bench(URL)[0] == status


# Files of results.


def test_results_are_written_to_new_files(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    saved, page = tmp_path / "a.json", tmp_path / "a.html"
    bench(URL, "--save", str(saved), "--html", str(page))
    made = json.loads(saved.read_bytes())
    assert made["schema"] == SCHEMA
    assert list(made["made"]) == ["at", "version", "python", "machine", "kernel"]
    assert all(made["made"].values())
    text = page.read_text("utf-8")
    assert text.count("<svg") == 2
    assert all(
        word in text for word in (made["made"]["at"], made["made"]["kernel"], "arrivals", "streamed", "@media print")
    )
    assert '<span class="stamp true">VALID</span>' in text
    assert not re.search(r"(src|href)=.(https?:|//)", text.replace('xlink:href="#', "")), "it needs no network"
    runs.found = [INVALID]
    bench(URL, "--html", str(tmp_path / "b.html"), "--model", "m\u202e")
    text = (tmp_path / "b.html").read_text("utf-8")
    assert '<table class="invalid">' in text
    assert "m\ufffd" in text


@pytest.mark.parametrize("option", ["--save", "--html"])
def test_a_file_that_exists_is_never_replaced(bench: Bench, runs: Runs, tmp_path: Path, option: str) -> None:
    path = tmp_path / "old"
    path.write_text("kept")
    status, _, err = bench(URL, option, str(path))
    assert (status, runs.plans, path.read_text()) == (2, [], "kept")
    assert err.startswith(f"manystream bench: {option} {path} exists: name a new file")
    status, _, err = bench(URL, option, str(tmp_path / "missing" / "new"))
    assert (status, "there is no such folder" in err) == (2, True)


def test_a_search_is_printed_with_its_curve(bench: Bench, runs: Runs) -> None:
    runs.found = [at(2.0, 1.0), at(4.0, 0.2)] + [at(0, 0.2) for _ in range(5)]
    status, out, _ = bench(URL, "--find", "--slo", "ttft=200ms", "--rate", "2", "--arrivals", "poisson")
    assert status == 0
    headings = "rate calls/s TTFT p50 TTFT p99 TPOT p50 E2EL p99 kept at least stamp verdict"
    assert " ".join(out.splitlines()[2].split()) == headings
    assert out.splitlines()[-1] == (
        "highest rate that kept the objective for 95% of the calls: 2.00 a second, with a confidence of 95 %"
    )
    assert [plan.arrivals is not None and plan.arrivals.kind for plan in runs.plans[:2]] == ["poisson"] * 2
    assert [plan.arrivals and plan.arrivals.last for _, plan, _ in runs.calibrations] == [2.0, 4.0]


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ([at(1.0, 0.0, interrupted=True)], 130),
        ([KeyboardInterrupt()], 130),
        ([at(1.0, 0.0)] * 20, 1),
        ([at(1.0, 1.0, cpu=10.0)] * 20, 3),
    ],
)
def test_the_status_of_a_search(bench: Bench, runs: Runs, found: list[Run | KeyboardInterrupt], status: int) -> None:
    runs.found = found
    assert bench(URL, "--find", "--slo", "ttft=200ms")[0] == status


HEADINGS = "streams  events/s  TTFT p50  ITL p50  ITL p99  longest  client CPU  loop lag  failed  stamp  verdict"


def test_the_whole_table_of_the_streams(bench: Bench, runs: Runs) -> None:
    runs.found = [step(0.01), step(0.0599, streams=1000), step(0.0605, streams=2000)]
    status, out, err = bench(URL, "--streams", "1,1000,2000,3000", "--model", "m")
    assert (status, err) == (0, "")
    assert out == (
        f"{URL}, openai-chat, model m: streams, 4 steps, 5 s\n\n"
        f"{HEADINGS}\n"
        "      1   100,000  100.0 ms  10.0 ms  10.0 ms  10.0 ms         50%   12.5 ms       0  VALID  holds\n"
        "  1,000   100,000  100.0 ms  59.9 ms  59.9 ms  59.9 ms         50%   12.5 ms       0  VALID  holds\n"
        "  2,000   100,000  100.0 ms  60.5 ms  60.5 ms  60.5 ms         50%   12.5 ms       0  VALID  "
        "p99 above 60.0 ms\n"
        "\nmost streams whose p99 of the gaps stayed within 60.0 ms: 1,000\n"
    )
    assert [(plan.concurrency, plan.seconds, plan.ramp) for plan in runs.plans] == [
        (1, 5.0, 0.002), (1000, 5.0, 2.0), (2000, 5.0, 4.0),
    ]  # fmt: skip


@pytest.mark.parametrize("ended", [step(0.01, interrupted=True), KeyboardInterrupt()], ids=["in a step", "between"])
def test_interrupted_steps_are_shown(bench: Bench, runs: Runs, ended: Run | KeyboardInterrupt) -> None:
    runs.found = [step(0.02), ended, step(0.02)]
    status, out, _ = bench(URL, "--streams", "1,2,3")
    assert status == 130
    rows = [line.split()[-1] for line in out.splitlines()[3:-2]]
    assert rows == (["holds"] if isinstance(ended, KeyboardInterrupt) else ["holds", "interrupted"])
    assert "most streams whose p99 of the gaps stayed within 70.0 ms: 1" in out
    runs.found = [step(0.02, interrupted=True)]
    found = json.loads(bench(URL, "--streams", "1", "--json")[1])
    assert (found["max_gap"], found["most_streams"], found["steps"][0]["holds"]) == (None, 0, False)


# The progress.


def test_without_a_terminal_there_is_a_line_every_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    shown: list[float] = []
    for quarter in range(1, 27):
        progress.look(Look(quarter / 4, 1000, 1234, 5678, quarter * 1000))
        if capsys.readouterr().err:
            shown.append(quarter / 4)
    assert shown == [2.0, 4.0, 6.0]
    progress.look(Look(8.0, 1000, 1234, 5678, 32_000))
    progress.close()
    assert capsys.readouterr().err == "   8.0 s  1,000 running  1,234 ok  5,678 failed  4,000 events/s\n"


def test_measured_time_that_begins_has_no_negative_rate(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.look(Look(2.0, 1, 1, 0, 500))
    progress.look(Look(4.0, 1, 1, 0, 100))
    assert [line.split("failed")[1].strip() for line in capsys.readouterr().err.splitlines()] == [
        "250 events/s", "0 events/s",
    ]  # fmt: skip


def test_a_terminal_shows_every_update_in_place(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr", terminal)
    progress = Progress()
    progress.look(Look(0.25, 1000, 1234, 5678, 25))
    progress.look(Look(0.5, 1000, 1234, 5678, 75))
    progress.close()
    updates = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", terminal.getvalue()).split("\r")
    assert list(dict.fromkeys(update.strip() for update in updates if update.strip())) == [
        "0.2 s  1,000 running  1,234 ok  5,678 failed  100 events/s",
        "0.5 s  1,000 running  1,234 ok  5,678 failed  200 events/s",
    ]
    assert terminal.getvalue().endswith("\x1b[2K"), "the line is removed at the end"


# The command line.

SIMULATE = "--simulate is for the built-in simulator: leave URL, --model and --provider out"


TOKENS = "a number of tokens, such as 512, or one of fixed:…, normal:…, uniform:…"


BOUNDS = "bounds such as ttft=200ms, of ttfb, ttft, ttfo, tpot, itl, e2el"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--concurrency 0", "--concurrency must be above 0, not 0"),
        ("--seconds inf", "--seconds must be above 0, not inf"),
        ("--requests 0", "--requests must be above 0, not 0"),
        ("--max-gap -2000", "--max-gap must be above 0, not -2000"),
        ("--max-tokens 0", "--max-tokens must be above 0, not 0"),
        ("--turns 0", "--turns must be above 0, not 0"),
        ("--workers -1", "--workers must be above 0, not -1"),
        ("--ramp -0.5", "--ramp must be 0 or more, not -0.5"),
        ("--ramp nan", "--ramp must be 0 or more, not nan"),
        ("--calibrate -1", "--calibrate must be 0 or more, not -1"),
        ("--prefix -1", "--prefix must be 0 or more, not -1"),
        ("--seed -1", "--seed must be 0 or more, not -1"),
        ("--find --slo ttft=1 --attain 1.5", "--attain is a share of the calls, at most 1, not 1.5"),
        ("--streams 1,x", "--streams takes numbers above 0, such as 1,10,100, not '1,x'"),
        ("--streams 1,0", "--streams takes numbers above 0, such as 1,10,100, not '1,0'"),
        ("--rate x", "--rate takes calls per second up to 100,000, such as 50, or 1..200, not 'x'"),
        ("--rate 1e9", "--rate takes calls per second up to 100,000, such as 50, or 1..200, not '1e9'"),
        ("--rate 0", "--rate takes calls per second up to 100,000, such as 50, or 1..200, not '0'"),
        ("--slo ttft", f"--slo takes {BOUNDS}, not 'ttft'"),
        ("--slo speed=1s", f"--slo takes {BOUNDS}, not 'speed=1s'"),
        ("--slo ttft=0s", f"--slo takes {BOUNDS}, not 'ttft=0s'"),
        ("--slo ttft=1s,TTFT=2s", f"--slo takes {BOUNDS}, not 'ttft=1s,TTFT=2s'"),
        ("--slo ttft=1y", f"--slo takes {BOUNDS}, not 'ttft=1y'"),
        ("--input zipf:5", f"--input takes {TOKENS}, not 'zipf:5'"),
        ("--output -5", f"--output takes {TOKENS}, not '-5'"),
        ("--think soon", "--think takes a time, such as 2s or 500ms, not 'soon'"),
        ("a b", "takes one URL, not 2"),
        ("--streams 1 --no-stream", "--streams measures the gaps of streams: leave --no-stream out"),
        ("--streams 1 -n 1", "--streams measures each step for --seconds: leave --requests out"),
        ("--streams 1 --rate 5", "--streams keeps streams running: leave --rate, --trace, --find out"),
        ("--max-gap 5", "--max-gap is the bound of --streams: name the streams"),
        (f"--simulate x {URL}", SIMULATE),
        ("--simulate x --model m", SIMULATE),
        ("--simulate x --provider p", SIMULATE),
        ("--rate 5 --trace x", "--trace has its own times: leave --rate out"),
        ("--find", "--find needs an objective: --slo ttft=200ms"),
        ("--find --slo ttft=1 --trace x", "--find varies the rate: leave --trace out"),
        ("--attain 0.5", "--attain is the share that --find wants: use --find"),
        ("--arrivals poisson", "--arrivals needs a rate: --rate 20"),
        ("--rate 5 --burstiness 2", "--burstiness is for --arrivals gamma"),
        ("--rate 5 --ramp 1", "--ramp starts the calls of --concurrency: with --rate, write a ramp as --rate 1..200"),
        ("--no-stream --slo ttft=1,e2el=2", "--slo ttft is of streams: leave --no-stream out"),
        ("--output 5 --max-tokens 5", "--output and --max-tokens are the same"),
        ("--prompt x --input 5", "--prompt is one text for all calls: leave --prompts and --input out"),
        ("--prompts x --input 5", "--prompts has the prompts: leave --input out"),
        ("--monitor --workers 2", "--monitor shows one process: leave --workers out"),
        ("-c 1 --workers 2", "--workers: each process needs a call of --concurrency"),
        ("-n 1 --workers 2", "--workers: each process needs a call of --requests"),
        ("--trace /no-such-file", "--trace /no-such-file: No such file or directory"),
        (f"{URL} --prompts /no-such-file", "--prompts /no-such-file: No such file or directory"),
    ],
)
def test_each_wrong_option_has_its_reason(bench: Bench, arguments: str, words: str) -> None:
    assert bench(*arguments.split()) == (2, "", f"manystream bench: {words}\n")


def test_the_least_values_of_the_options(bench: Bench, runs: Runs) -> None:
    words = "-c 1 --seconds 0.5 -n 1 --max-tokens 1 --ramp 0 --turns 1 --seed 0 --calibrate 0"
    bench(URL, *words.split())
    (plan,) = runs.plans
    assert (plan.concurrency, plan.seconds, plan.requests, plan.ramp) == (1, 0.5, 1, 0.0)
    runs.found = [step(0.0005)]
    assert bench(URL, "--streams", "1,1", "--max-gap", "0.502")[0] == 0
