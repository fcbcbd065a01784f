"""The command `manystream bench` with known figures: what it runs and prints, its exit status, and its complaints."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from manystream.bench.load import Look, Plan
from manystream.bench.report import SCHEMA, run_object, search_object
from manystream.bench.runs import Run, Server
from manystream.bench.search import Search, Step
from manystream.bench.validity import Calibration
from manystream.bench.work import WorkPlan, read_length
from manystream.cli import bench as bench_command
from manystream.cli import main
from manystream.cli.bench_report import Progress, run_lines, search_lines
from manystream.cli.output.terminal import Paint
from tests.support.bench_results import client, figures, result, run, whole_run
from tests.support.commands import Terminal, remove_keys

URL = "http://127.0.0.1:1/v1"
Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


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


def test_a_page_needs_matplotlib(bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    status, _, err = bench(URL, "--html", str(tmp_path / "a.html"))
    assert (status, err) == (
        2,
        "manystream bench: --html: plots need the library matplotlib:"
        " pip install '.[plots]' in manystream's checkout\n",
    )  # fmt: skip


@pytest.mark.parametrize("option", ["--save", "--html"])
def test_a_file_that_exists_is_never_replaced(bench: Bench, runs: Runs, tmp_path: Path, option: str) -> None:
    path = tmp_path / "old"
    path.write_text("kept")
    status, _, err = bench(URL, option, str(path))
    assert (status, runs.plans, path.read_text()) == (2, [], "kept")
    assert err.startswith(f"manystream bench: {option} {path} exists: name a new file")
    status, _, err = bench(URL, option, str(tmp_path / "missing" / "new"))
    assert (status, "there is no such folder" in err) == (2, True)


# Comparison.


def test_two_results_are_compared(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    slower = figures({"ttft": [0.2] * 10 + [0.3] * 10, "itl": [0.02] * 98 + [0.05] * 2}, ok=5, windows=10)
    for file, found in zip(files, (whole_run(), run(result(slower))), strict=True):
        runs.found = [found]
        bench(URL, "--save", file)
    status, out, _ = bench("compare", *files)
    assert status == 0
    heading, *lines = out.splitlines()
    assert heading == "figure      before     after   change       95 % interval  real"
    assert lines[0] == "TTFT p50  100.0 ms  200.0 ms  +100.0%  +100.0% to +100.0%  yes"
    assert lines[3].split() == ["ITL", "p50", "20.0", "ms", "20.0", "ms", "+0.0%", "+0.0%", "to", "+0.0%", "no"]
    rows = json.loads(bench("compare", *files, "--json")[1])
    found = {(row["figure"], row["percentile"]): row["real"] for row in rows["differences"]}
    names = ("p50", "p90", "p99")
    assert found == {("ttft", name): True for name in names} | {("itl", name): False for name in names}
    assert rows["valid"] is True
    assert rows["settings"] == ['slo: {"ttft":0.2}, null']
    assert lines[-1] == 'note: the results have another slo: {"ttft":0.2}, null'


def test_what_was_asked_otherwise_is_noted(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, work in zip(files, (WorkPlan("m"), WorkPlan("m", input=read_length("normal:512,128"))), strict=True):
        runs.found = [run(result(figures({"ttft": [0.1]}, ok=5), work=work))]
        bench(URL, "--save", file)
    assert bench("compare", *files)[1].endswith('note: the results have another input: null, "normal:512,128"\n')


def test_an_invalid_result_is_compared_with_a_warning(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("a.json", "b.json")]
    for file, found in zip(files, (INVALID, whole_run()), strict=True):
        runs.found = [found]
        bench(URL, "--save", file)
    status, out, _ = bench("compare", *files)
    assert status == 3
    assert out.endswith(f"INVALID: {files[0]}: its client was the limit\n")
    assert "unknown: too few windows" in out


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "No such file or directory"),
        ("nonsense", ""),
        ("{}", "is no result of `manystream bench` of the schema manystream.bench/1"),
        ('{"schema": "manystream.bench/1", "ttft": {"histograms": ["x"]}}', "ttft: a histogram is no histogram"),
    ],
)
def test_other_files_cannot_be_compared(bench: Bench, tmp_path: Path, text: str | None, complaint: str) -> None:
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)
    status, out, err = bench("compare", str(path), str(path))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert str(path) in err


def test_a_comparison_takes_two_files(bench: Bench) -> None:
    for files in ([], ["a"], ["a", "b", "c"]):
        status, _, err = bench("compare", *files)
        assert (status, "compare takes two results" in err) == (2, True)


# The search for a rate.


def at(rate: float, good: float, *, cpu: float = 1.0, calls: int = 1000, **more: Any) -> Run:
    """Return a run at a rate in which a share of the calls kept the objective."""
    found = figures({"ttft": [0.1]}, ok=calls, good=round(good * calls), slo={"ttft": 0.2})
    return run(result(found, cpu=cpu, slo={"ttft": 0.2}, **more))


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


def test_a_search_as_json_and_as_a_page(bench: Bench, runs: Runs, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs.found = [at(1.0, 1.0), at(1.5, 1.0)]
    page = tmp_path / "a.html"
    words = ("--find", "--slo", "ttft=200ms", "--rate", "1..1.5", "--attain", "0.9", "--json", "--html", str(page))
    status, out, _ = bench(URL, *words)
    found = json.loads(out)
    assert (status, found["highest_rate"], found["certain"], found["attain"]) == (0, 1.5, True, 0.9)
    assert [(step["offered_rate"], step["keeps"]) for step in found["steps"]] == [(1.0, True), (1.5, True)]
    text = page.read_text("utf-8")
    assert (text.count("<svg"), text.count("missed the objective")) == (1, 0)
    runs.found = [at(1.0, 1.0), *(at(1.5, 0.0) for _ in range(20))]
    _, out, _ = bench(URL, *words[:-1], str(tmp_path / "b.html"))
    missed = [step for step in json.loads(out)["steps"] if not step["keeps"]]
    assert (tmp_path / "b.html").read_text("utf-8").count("missed the objective</span>") == len(missed) > 0


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


# The search for the most streams.


def step(gap: float | None, *, streams: int = 1, **more: Any) -> Run:
    failures = more.pop("failures", {})
    found = figures({"ttft": [0.1], "itl": [] if gap is None else [gap]}, ok=5, failures=failures)
    found.events = 1_000_000
    return run(result(found, concurrency=streams, loop_lag=0.0125, cpu=5.0, **more))


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


def test_the_steps_as_json(bench: Bench, runs: Runs) -> None:
    runs.found = [step(0.5), step(None, streams=2)]
    status, out, _ = bench(URL, "--streams", "1,2", "--max-gap", "501", "--model", "m", "--json")
    found = json.loads(out)
    assert (status, found["most_streams"], found["max_gap"]) == (0, 1, 0.501)
    assert [(one["load"]["concurrency"], one["holds"]) for one in found["steps"]] == [(1, True), (2, False)]


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
