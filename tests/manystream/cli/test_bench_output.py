"""The command `manystream bench` with known figures: what it runs and prints, its exit status, and its complaints."""

import io
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from manystream.bench.figures import Result
from manystream.bench.load import Plan
from manystream.cli import bench as bench_command
from manystream.cli import main
from manystream.providers.catalog.provider import Provider
from manystream.providers.model.messages import Message
from manystream.providers.model.options import Retry
from tests.support.bench_results import REPORT, RESULT, RESULT_OBJECT, UNSTREAMED

URL = "http://127.0.0.1:1/v1"


class Terminal(io.StringIO):
    """An output stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


# The command, with a load test that returns given results.

Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"


class Loads:
    """Stands in for `Load` and for `open_engine`, and keeps what they were given.

    results: what the runs return, in order; a `KeyboardInterrupt` is raised instead.
    """

    def __init__(self) -> None:
        self.results: list[Result | KeyboardInterrupt] = [RESULT]
        self.plans: list[Plan] = []
        self.simulators: list[int | None] = []
        self.engines: list[tuple[Sequence[Provider], dict[str, Any]]] = []

    def __call__(self, engine: object, plan: Plan, on_look: object, simulator: int | None) -> Any:
        assert engine == "engine"
        assert callable(on_look)
        self.plans.append(plan)
        self.simulators.append(simulator)

        async def run() -> Result:
            result = self.results.pop(0)
            if isinstance(result, KeyboardInterrupt):
                raise result
            return result

        return SimpleNamespace(run=run)

    @asynccontextmanager
    async def open_engine(self, providers: Sequence[Provider], **options: Any) -> AsyncIterator[str]:
        self.engines.append((providers, options))
        yield "engine"


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Loads:
    loads = Loads()
    monkeypatch.setattr(bench_command, "Load", loads)
    monkeypatch.setattr(bench_command, "open_engine", loads.open_engine)
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MANYSTREAM_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    return loads


@pytest.fixture
def bench(loads: Loads, capsys: pytest.CaptureFixture[str]) -> Bench:
    def bench(*arguments: str) -> tuple[int, str, str]:
        status = main(["bench", *arguments])
        return status, *capsys.readouterr()

    return bench


def test_a_run_has_these_defaults(bench: Bench, loads: Loads) -> None:
    bench(URL)
    (plan,) = loads.plans
    request = plan.request
    assert (plan.stream, plan.concurrency, plan.seconds, plan.requests, plan.ramp) == (True, 10, 10.0, None, 0.02)
    assert (request.model, request.max_output_tokens) == ("openai-compatible/gpt-5-mini", None)
    assert request.extra_headers is None
    assert request.messages == [Message.user("Describe the rivers of Europe in about 300 words.")]
    assert request.retry == Retry(max_attempts=1)
    assert loads.simulators == [None]
    ((provider,), options) = loads.engines[0]
    assert (provider.base_url, provider.api_key) == (URL, "any")
    assert options == {"proxy": "", "monitor": False}


def test_every_option_reaches_the_run(bench: Bench, loads: Loads) -> None:
    status, out, err = bench(
        "https://api.example/base", "--dialect", "anthropic", "--model", "m", "--concurrency", "7", "--seconds", "0.5",
        "--requests", "9", "--ramp", "0.25", "--no-stream", "--prompt", "Hello", "--max-tokens", "11",
        "--header", "a=1", "--header", "b=2", "--monitor",
    )  # fmt: skip
    assert (status, err) == (1, "")
    assert out.splitlines()[0] == ("https://api.example/base, anthropic, model m: unstreamed calls, 7 at a time, 0.5 s")
    (plan,) = loads.plans
    request = plan.request
    assert (plan.stream, plan.concurrency, plan.seconds, plan.requests, plan.ramp) == (False, 7, 0.5, 9, 0.25)
    assert (request.model, request.max_output_tokens) == ("anthropic-compatible/m", 11)
    assert (request.messages, request.extra_headers) == ([Message.user("Hello")], {"a": "1", "b": "2"})
    assert loads.engines[0][1] == {"proxy": None, "monitor": True}


def test_the_report_of_a_run_follows_its_heading(bench: Bench, loads: Loads) -> None:
    status, out, err = bench("http://127.0.0.1:1/v1?x=1", "-c", "2000", "--model", "m\x1b")
    assert (status, err) == (1, "")
    heading = "http://127.0.0.1:1/v1, openai-chat, model m\ufffd: streams, 2,000 at a time, 10 s"
    assert out == f"{heading}\n\n{REPORT}\n"


def test_the_json_of_a_run_is_one_line(bench: Bench, loads: Loads) -> None:
    status, out, err = bench(URL, "--json")
    assert (status, err) == (1, "")
    about = {"url": URL, "dialect": "openai-chat", "model": "gpt-5-mini", "simulated": False}
    assert out.count("\n") == 1
    assert json.loads(out) == about | RESULT_OBJECT


@pytest.mark.parametrize(
    ("result", "status"),
    [
        (UNSTREAMED, 0),
        (replace(UNSTREAMED, events=0), 0),
        (replace(UNSTREAMED, ok=0), 0),
        (replace(UNSTREAMED, ok=0, events=0), 1),
        (replace(UNSTREAMED, failures={"server": 1}), 1),
        (replace(UNSTREAMED, failures={"server": 1}, interrupted=True), 130),
    ],
)
def test_the_exit_status_of_a_run(bench: Bench, loads: Loads, result: Result, status: int) -> None:
    loads.results = [result]
    assert bench(URL)[0] == status


def step(gap: float | None, **changes: Any) -> Result:
    healthy = replace(RESULT, concurrency=1, failures={}, first_failure="", warnings=[], gap_p99=gap)
    return replace(healthy, **changes)


HEADINGS = "streams  events/s  first p50  gap p50  gap p99  longest  client CPU  loop lag  failed  verdict"


def test_the_whole_table_of_a_search(bench: Bench, loads: Loads) -> None:
    loads.results = [
        step(0.01),
        step(0.06, concurrency=1000, client_seconds=10.0, gap_p50=None),
        step(0.0601, concurrency=2000, warnings=["one", "two"]),
    ]
    status, out, err = bench(URL, "--streams", "1,1000,2000,3000", "--model", "m")
    assert (status, err) == (0, "")
    assert out == (
        f"{URL}, openai-chat, model m: streams, 4 steps, 5 s\n\n"
        f"{HEADINGS}\n"
        "      1   100,000   100.0 ms  20.0 ms  10.0 ms   1.25 s         50%   12.5 ms       0  holds\n"
        "  1,000   100,000   100.0 ms        –  60.0 ms   1.25 s        100%   12.5 ms       0  holds\n"
        "  2,000   100,000   100.0 ms  20.0 ms  60.1 ms   1.25 s         50%   12.5 ms       0  p99 above 60.0 ms\n"
        "\nmost streams whose p99 of the gaps stayed within 60.0 ms: 1,000\nnote: one\nnote: two\n"
    )
    assert [(plan.concurrency, plan.seconds, plan.ramp) for plan in loads.plans] == [
        (1, 5.0, 0.002),
        (1000, 5.0, 2.0),
        (2000, 5.0, 4.0),
    ]


def test_a_search_in_which_calls_fail_ends_with_the_reason(bench: Bench, loads: Loads) -> None:
    loads.results = [step(0.01, failures={"server": 1234}, first_failure="no\x1b", concurrency=5)]
    status, out, _ = bench(URL, "--streams", "5,6", "--max-gap", "2500")
    assert status == 1
    assert out.splitlines()[2:] == [
        HEADINGS,
        "      5   100,000   100.0 ms  20.0 ms  10.0 ms   1.25 s         50%   12.5 ms   1,234  calls failed", "",
        "most streams whose p99 of the gaps stayed within 2.50 s: 0", "first failure: no\ufffd",
    ]  # fmt: skip


def test_a_search_as_json_has_every_step(bench: Bench, loads: Loads) -> None:
    loads.results = [step(0.5, concurrency=1), step(None, concurrency=2)]
    status, out, _ = bench(URL, "--streams", "1,2", "--max-gap", "500", "--model", "m", "--json")
    assert status == 0
    result = json.loads(out)
    steps = result.pop("steps")
    assert result == {
        "url": URL, "dialect": "openai-chat", "model": "m", "simulated": False, "most_streams": 1, "max_gap": 0.5,
    }  # fmt: skip
    assert [(one["concurrency"], one["holds"], one["gap"]["p99"]) for one in steps] == [
        (1, True, 0.5),
        (2, False, None),
    ]
    assert steps[0].keys() == RESULT_OBJECT.keys() | {"holds"}


def test_a_step_whose_streams_wait_is_not_held(bench: Bench, loads: Loads) -> None:
    loads.results = [step(0.01, silent=1234)]
    status, out, _ = bench(URL, "--streams", "5")
    assert status == 1
    assert out.splitlines()[3].endswith("  1,234 without content")


def test_a_step_without_gaps_is_not_held(bench: Bench, loads: Loads) -> None:
    loads.results = [step(None)]
    status, out, _ = bench(URL, "--streams", "1")
    assert status == 1
    assert out.splitlines()[3].endswith("  no gaps to measure")
    assert out.endswith("\nmost streams whose p99 of the gaps stayed within –: 0\n")


@pytest.mark.parametrize("ended", [step(0.01, interrupted=True), KeyboardInterrupt()], ids=["in a step", "between"])
def test_an_interrupted_search_shows_its_steps(bench: Bench, loads: Loads, ended: Result | KeyboardInterrupt) -> None:
    loads.results = [step(0.02), ended, step(0.02)]
    status, out, _ = bench(URL, "--streams", "1,2,3")
    assert status == 130
    rows = [line.split()[-1] for line in out.splitlines()[3:-2]]
    assert rows == (["holds"] if isinstance(ended, KeyboardInterrupt) else ["holds", "interrupted"])
    assert "most streams whose p99 of the gaps stayed within 70.0 ms: 1" in out


def test_an_interrupted_first_step_gives_no_bound(bench: Bench, loads: Loads) -> None:
    loads.results = [step(0.02, interrupted=True)]
    status, out, _ = bench(URL, "--streams", "1", "--json")
    result = json.loads(out)
    assert (status, result["max_gap"], result["most_streams"]) == (130, None, 0)
    assert result["steps"][0]["holds"] is False


def test_a_search_on_a_terminal_has_styles(loads: Loads, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    loads.results = [step(0.01, warnings=["one"])]
    monkeypatch.setattr("sys.stdout", terminal)
    main(["bench", URL, "--streams", "1"])
    *_, most, note = terminal.getvalue().splitlines()
    assert most == "most streams whose p99 of the gaps stayed within 60.0 ms: \x1b[1m1\x1b[0m"
    assert note == "\x1b[33mnote: one\x1b[0m"


# The command line.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--concurrency", "0"), "--concurrency must be above 0, not 0"),
        (("--seconds", "0"), "--seconds must be above 0, not 0"),
        (("--seconds", "inf"), "--seconds must be above 0, not inf"),
        (("--requests", "0"), "--requests must be above 0, not 0"),
        (("--max-gap", "-2000"), "--max-gap must be above 0, not -2"),
        (("--max-tokens", "0"), "--max-tokens must be above 0, not 0"),
        (("--ramp", "-0.5"), "--ramp must not be below 0: -0.5"),
        (("--ramp", "nan"), "--ramp must not be below 0: nan"),
        (("--streams", "1,x"), "--streams takes numbers above 0, such as 1,10,100, not '1,x'"),
        (("--streams", "1,0"), "--streams takes numbers above 0, such as 1,10,100, not '1,0'"),
        (("--streams", ""), "--streams takes numbers above 0, such as 1,10,100, not ''"),
        (("--streams", "1", "--no-stream"), "--streams measures the gaps of streams: leave --no-stream out"),
        (("--streams", "1", "-n", "1"), "--streams measures each step for --seconds: leave --requests out"),
        (("--simulate", "", URL), "--simulate is for the built-in simulator: leave URL, --model and --provider out"),
        (("--simulate", "x", "--model", "m"),
            "--simulate is for the built-in simulator: leave URL, --model and --provider out"),
        (("--simulate", "x", "--provider", "p"),
            "--simulate is for the built-in simulator: leave URL, --model and --provider out"),
    ],
)  # fmt: skip
def test_each_wrong_option_has_its_reason(bench: Bench, arguments: tuple[str, ...], words: str) -> None:
    assert bench(*arguments) == (2, "", f"manystream bench: {words}\n")


def test_the_least_values_of_the_options(bench: Bench, loads: Loads) -> None:
    status, _, _ = bench(
        URL, "--concurrency", "1", "--seconds", "0.5", "--requests", "1", "--max-tokens", "1", "--ramp", "0"
    )
    assert status == 1
    (plan,) = loads.plans
    assert (plan.concurrency, plan.seconds, plan.requests, plan.ramp) == (1, 0.5, 1, 0.0)
    assert plan.request.max_output_tokens == 1
    loads.results = [step(0.0005)]
    assert bench(URL, "--streams", "1,1", "--max-gap", "0.5")[0] == 0
