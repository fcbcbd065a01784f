"""The command `manystream bench`: its figures for known servers, its output and its exit status."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import pytest
import trio
from trio.testing import MockClock

from manystream.bench import load
from manystream.bench.figures import Figures, Result, StreamWatch, percentiles, warnings_of
from manystream.bench.load import Load, Plan
from manystream.cli import bench as bench_command
from manystream.cli import main
from manystream.cli.bench_report import Progress, result_lines
from manystream.cli.output.terminal import Paint
from manystream.engine import Completion, Engine, Timings
from manystream.engine.request.credentials import is_loopback
from manystream.providers.model.events import Error, Start, TextDelta
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.model.request import Request
from manystream.providers.model.response import Response
from manystream.providers.model.usage import Usage
from manystream.simulator import Simulator, open_simulator_thread

Bench: TypeAlias = "Callable[..., tuple[int, str, str]]"

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MANYSTREAM_CREDENTIALS")
DIALECTS = ("openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions")


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=8") as simulator:
        yield simulator


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """Return a function that runs the command in this process without a key, and returns status, output and errors."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")

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
    assert (result["url"], result["dialect"], result["concurrency"], result["stream"]) == (url, dialect, 2, True)
    assert result["calls"] == {"ok": 6, "failed": 0, "unfinished": 0}
    assert result["events"] == 6 * 10, "the events are Start, eight pieces of text, and Done"
    assert result["output_tokens"] == 6 * 8
    for spans in (result["first_content"], result["call"]):
        assert 0 < spans["p50"] <= spans["p90"] <= spans["p99"]
    assert 0 < result["gap"]["p50"] <= result["gap"]["p99"]
    assert result["client"]["cpu_per_event"] > 0
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
    assert result["gap"] == {"p50": None, "p99": None, "longest": None}
    assert result["first_content"]["p50"] is None
    assert result["call"]["p50"] > 0


def test_without_json_the_result_is_lines_of_text(bench: Bench, simulator: Simulator) -> None:
    status, out, _ = bench(simulator.base_urls["openai-chat"], "-n", "3", "--model", "m", "--ramp", "0")
    assert status == 0
    heading, empty, *rows = out.splitlines()
    assert "openai-chat, model m: streams, 10 at a time" in heading
    assert not empty
    lines = {row[:18].strip(): row[18:] for row in rows}
    assert lines["calls"].startswith("3 ok (")
    assert "0 failed" in lines["calls"]
    assert "per event" in lines["this client"]
    assert {"first content", "gaps in a stream", "events", "whole call", "connections"} <= set(lines)
    assert re.fullmatch(r"[1-9][0-9,]*/s", lines["output tokens"].strip())


def test_failures_are_counted_by_category_and_are_status_1(bench: Bench, simulator: Simulator) -> None:
    knobs = "x-simulate=fail=429,times=2,events=4,key=bench"
    status, out, _ = bench(simulator.base_urls["openai-chat"], "-n", "6", "-c", "3", "--header", knobs, "--json")
    result = result_of(out)
    assert status == 1
    assert result["failures"] == {"rate_limit": 2}
    assert result["calls"] == {"ok": 4, "failed": 2, "unfinished": 0}
    assert result["first_failure"]


@pytest.mark.parametrize(
    ("knobs", "category"), [("fail=401", "auth"), ("fail=404", "not_found"), ("drop=1", "network")]
)
def test_a_hopeless_run_ends_soon_with_a_reason(bench: Bench, simulator: Simulator, knobs: str, category: str) -> None:
    url = simulator.base_urls["openai-chat"]
    status, out, _ = bench(url, "-c", "2", "--seconds", "60", "--header", f"x-simulate={knobs}")
    assert status == 1
    assert f"({category} " in out
    assert "first failure" in out
    assert "gaps" not in out, "without events there are no gaps to show"


def test_calls_cancelled_at_the_end_are_not_failures(bench: Bench, simulator: Simulator) -> None:
    arguments = ("-c", "2", "--seconds", "0.3", "--header", "x-simulate=rate=100,events=5000", "--json")
    status, out, _ = bench(simulator.base_urls["gemini"], "--dialect", "gemini", *arguments)
    result = result_of(out)
    assert status == 0
    assert result["calls"] == {"ok": 0, "failed": 0, "unfinished": 2}
    # Longer on a busy machine: only the lower bounds are certain.
    assert result["seconds"] > 0.05
    assert result["gap"]["p50"] > 0.002


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
    assert [(step["concurrency"], step["holds"]) for step in result["steps"]] == [(1, True), (2, True), (4, True)]
    status, out, _ = bench(url, "--streams", "1,2", "--max-gap", "0.001", *knobs)
    assert status == 1
    assert "most streams whose p99 of the gaps stayed within 1 µs: 0" in out
    assert "p99 above" in out


def measured(gap: float | None) -> Result:
    """Return the result of a step whose 99th percentile of gaps is `gap` seconds."""
    spans = percentiles([0.1])
    return Result(
        concurrency=1, seconds=1.0, stream=True, ok=1, calls_per_second=1.0, unfinished=0, failures={},
        first_failure="", first_content=spans, call=spans, events=10, tokens=None, gap_p50=gap, gap_p99=gap,
        gap_longest=gap, client_seconds=0.1, simulator_seconds=None, loop_lag=0.0, connections_opened=1,
        connections_reused=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gaps", "most", "bound"),
    [
        ((0.01, 0.059, 0.061), 2, 0.06),
        ((0.02, 0.06, 0.069, 0.071), 3, 0.07),
        ((0.01, 0.03, 0.05), 3, 0.06),
        ((None,), 0, None),
    ],
)
def test_a_search_without_a_bound_allows_50_ms_above_the_first_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gaps: tuple[float | None, ...], most: int, bound: float | None
) -> None:
    left = iter(gaps)

    class Steps:
        """A load whose steps have these gaps."""

        def __init__(self, *_: object) -> None:
            pass

        async def run(self) -> Result:
            return measured(next(left))

    monkeypatch.setattr(bench_command, "Load", Steps)
    streams = ",".join(str(number) for number in range(1, len(gaps) + 1))
    status, out, _ = bench("http://127.0.0.1:1/v1", "--streams", streams, "--json")
    result = result_of(out)
    assert (status, result["most_streams"]) == (0 if most else 1, most)
    assert result["max_gap"] == pytest.approx(bound) if bound is not None else result["max_gap"] is None


def test_a_key_that_is_missing_is_one_line(bench: Bench) -> None:
    status, _, err = bench("https://api.anthropic.com", "--dialect", "anthropic")
    assert status == 1
    assert "ANTHROPIC_API_KEY" in err
    assert err.count("\n") == 1
    status, _, err = bench("--model", "gpt-5-mini")
    assert status == 1
    assert "OPENAI_API_KEY" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", "0"),
        ("--seconds", "nan"),
        ("--requests", "-1"),
        ("--ramp", "-1"),
        ("--max-gap", "0"),
        ("--streams", "1,x"),
        ("--streams", "0,1"),
        ("--streams", "1", "--no-stream"),
        ("--streams", "1", "-n", "5"),
        ("--dialect", "soap"),
        ("--simulate", "nonsense=1"),
        ("http://127.0.0.1:1/v1", "--simulate", "rate=5"),
        ("--header", "novalue"),
    ],
)
def test_a_wrong_command_line_is_status_2(bench: Bench, arguments: tuple[str, ...]) -> None:
    status, out, err = bench(*arguments)
    assert status == 2
    assert err
    assert not out


def test_a_password_in_a_url_is_not_shown(bench: Bench) -> None:
    _, out, err = bench("http://user:canary-5ecret@127.0.0.1:1/v1", "-n", "1")
    assert "canary" not in out + err


# What is counted.


def test_gaps_are_measured_between_content_events() -> None:
    figures = Figures()
    times = iter([0, 40_000_000, 50_000_000, 70_000_000, 6_070_000_000])
    watch = StreamWatch(figures, lambda: next(times))
    watch.on_event(Start("m", "id"))
    for _ in range(4):
        watch.on_event(TextDelta(0, "a"))
    watch.on_event(Error(ProviderError("cut", category=ErrorCategory.NETWORK)))
    assert figures.events == 5, "an error event is not counted"
    assert figures.first_contents == [0.04]
    assert figures.gap(0.3) == pytest.approx(0.01, abs=2e-5)
    assert figures.gap(0.6) == pytest.approx(0.02, abs=2e-5)
    assert figures.gap(0.99) == 6.0, "a gap beyond the last bucket is exact"
    assert figures.longest_gap == 6_000_000_000


def test_the_window_excludes_events_of_the_ramp() -> None:
    figures = Figures()
    usage = Usage(output_tokens=3, thinking_tokens=2)
    answer = Completion(success=True, response=Response(usage=usage), timings=Timings(finished=1.5))
    figures.on_completion(answer)
    figures.events = 7
    figures.open_window()
    figures.on_completion(answer)
    assert (figures.ok, figures.ok_before_window, figures.tokens, figures.events) == (2, 1, 0, 0)
    assert figures.call_seconds == [1.5, 1.5]


def test_tokens_are_those_of_the_events_in_the_window() -> None:
    """The window holds 40 + 50 + 30 events of three streams that send 2 tokens per event.

    One stream begins before the window, and one still runs at its end.
    """
    figures = Figures()
    watches = [StreamWatch(figures, lambda: 1) for _ in range(3)]

    def receive(stream: int, count: int) -> None:
        for _ in range(count):
            watches[stream].on_event(TextDelta(0, "ab"))

    def end(stream: int) -> None:
        response = Response(usage=Usage(output_tokens=2 * watches[stream].events))
        completion = Completion(success=True, response=response, timings=Timings(finished=1.0))
        figures.on_completion(completion, watches[stream].events)

    receive(0, 60)
    figures.open_window()
    receive(0, 40)
    end(0)
    receive(1, 50)
    end(1)
    receive(2, 30)
    assert figures.tokens == 2 * (40 + 50 + 30)


def test_no_tokens_are_shown_if_the_server_reports_none() -> None:
    figures = Figures()
    figures.events = 10
    assert figures.tokens is None
    figures.on_completion(Completion(success=True, response=Response(), timings=Timings(finished=1.0)), 10)
    assert figures.tokens is None
    (line,) = [line for line in result_lines(measured(0.01), Paint(sys.stdout)) if line.startswith("output tokens")]
    assert line.endswith("  the server reported none")


def test_percentiles_are_by_nearest_rank() -> None:
    spans = percentiles([float(number) for number in range(1, 101)])
    assert (spans.p50, spans.p90, spans.p99) == (50, 90, 99)
    assert percentiles([]).p50 is None
    assert Figures().gap(0.5) is None


@pytest.mark.parametrize(
    ("client", "simulator", "lag", "words"),
    [
        (0.97, None, 0.2, ["the client was the bottleneck"]),
        (0.5, 0.95, 0.01, ["the simulator, one Python process"]),
        (0.3, 0.3, 0.3, ["was delayed for 300 ms"]),
        (0.3, None, 0.01, []),
    ],
)
def test_it_warns_if_the_server_was_not_the_bottleneck(
    client: float, simulator: float | None, lag: float, words: list[str]
) -> None:
    found = warnings_of(seconds=5.0, client_share=client, simulator_share=simulator, loop_lag=lag)
    assert len(found) == len(words)
    assert all(word in warning for word, warning in zip(words, found, strict=True))
    assert not warnings_of(seconds=0.01, client_share=client, simulator_share=simulator, loop_lag=lag)


def test_loopback_addresses_are_recognised() -> None:
    for url in ("http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:1/v1", "http://127.9.9.9"):
        assert is_loopback(url)
    for url in ("https://api.openai.com/v1", "http://10.0.0.1", "http://127.0.0.1.example", "nonsense", "http://[::"):
        assert not is_loopback(url)


class StillEngine:
    """An engine whose calls run until they are cancelled, and whose loop was delayed in the ramp and once after it."""

    def __init__(self) -> None:
        self.began = trio.current_time()

    def statistics(self) -> Any:
        since = trio.current_time() - self.began
        lag = 0.5 if since < 2.0 else 0.3 if since < 3.0 else 0.1
        return SimpleNamespace(loop_lag=lag, opened=0, reused=0)

    def start_stream(self, request: Request, on_event: object, on_completion: Callable[[Completion], None]) -> Any:
        cancelled = ProviderError("cancelled", category=ErrorCategory.CANCELLED)
        ended = Completion(success=False, response=Response(), error=cancelled, timings=Timings())
        return SimpleNamespace(cancel=lambda: on_completion(ended))


async def test_a_lag_of_the_ramp_is_not_reported(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(
        perf_counter=trio.current_time, perf_counter_ns=lambda: int(trio.current_time() * 1e9), process_time=lambda: 0.0
    )
    monkeypatch.setattr(load, "time", clock)
    plan = Plan(Request("m", "Hi"), stream=True, concurrency=1, seconds=5.0, requests=None, ramp=0.0)
    result = await Load(cast("Engine", StillEngine()), plan, lambda _: None).run()
    assert result.loop_lag == 0.3


class RampEngine(StillEngine):
    """An engine whose calls get a first event at once, and an event per second after it."""

    def start_stream(self, request: Request, on_event: Callable[[Any], None], on_completion: Any) -> Any:
        on_event(Start())
        on_event(TextDelta(0, "a"))
        trio.lowlevel.spawn_system_task(self.run, on_event)
        return super().start_stream(request, on_event, on_completion)

    async def run(self, on_event: Callable[[Any], None]) -> None:
        for _ in range(6):
            await trio.sleep(1.0)
            on_event(TextDelta(0, "a"))


async def test_events_of_the_ramp_are_not_in_the_result(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(
        perf_counter=trio.current_time, perf_counter_ns=lambda: int(trio.current_time() * 1e9), process_time=lambda: 0.0
    )
    monkeypatch.setattr(load, "time", clock)
    plan = Plan(Request("m", "Hi"), stream=True, concurrency=2, seconds=2.5, requests=None, ramp=1.6)
    result = await Load(cast("Engine", RampEngine()), plan, lambda _: None).run()
    assert (result.seconds, result.gap_longest) == (pytest.approx(2.5), pytest.approx(1.0))
    assert result.events == 5


@pytest.mark.parametrize(("category", "calls"), [(ErrorCategory.AUTH, 1), (ErrorCategory.SERVER, load.PATIENCE)])
async def test_a_run_without_a_success_ends_before_its_time(
    autojump_clock: MockClock, category: ErrorCategory, calls: int
) -> None:
    class FailingEngine(StillEngine):
        def start_stream(self, request: Request, on_event: object, on_completion: Callable[[Completion], None]) -> Any:
            ended = Completion(
                success=False, response=Response(), error=ProviderError("no", category=category), timings=Timings()
            )
            trio.lowlevel.current_trio_token().run_sync_soon(on_completion, ended)
            return SimpleNamespace(cancel=lambda: None)

    plan = Plan(Request("m", "Hi"), stream=True, concurrency=1, seconds=3600.0, requests=None, ramp=0.0)
    run = Load(cast("Engine", FailingEngine()), plan, lambda _: None)
    result = await run.run()
    assert not run.interrupted
    assert result.failures == {category.value: calls}


def test_each_run_shows_its_rate_from_0(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    for elapsed, events in ((2.0, 10), (4.0, 1210), (2.0, 6), (4.0, 406)):
        figures = SimpleNamespace(events=events, ok=1, failed=0)
        progress.look(cast("Load", SimpleNamespace(elapsed=elapsed, figures=figures, running={})))
    assert [line.rpartition("failed")[2].strip() for line in capsys.readouterr().err.splitlines()] == [
        "5 events/s", "600 events/s", "3 events/s", "200 events/s",
    ]  # fmt: skip
