"""The command `manystream demo`: how it starts its streams, all that it prints, and its exit status."""

import argparse
import contextlib
import signal
import sys
from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from manystream.bench.histogram import bucket_of
from manystream.cli import demo, demo_display, main
from manystream.cli.demo_display import Display
from manystream.cli.demo_streams import DemoStream, plan_streams
from manystream.engine import Completion, Engine
from manystream.providers.model.events import Done, FinishReason, TextDelta
from manystream.providers.model.response import Response
from manystream.providers.model.tokens import Usage
from manystream.simulator import Simulator, SimulatorError
from tests.support.commands import Pipe, Terminal

MILLISECOND = bucket_of(1000)
"""The bucket of 1.0 ms."""


# The whole output, with streams that a test plays.


NAMES = ("streams", "seconds", "rate", "monitor", "plain")


class Played:
    """Stands in for the simulator, the engine and the run of the streams; keeps what they were given.

    interrupted: whether Ctrl-C ends the run.
    plays: whether the streams receive anything.
    ends: whether each stream ends as it must.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self.plays = True
        self.ends = True
        self.now = 100.0
        self.cpu = 7.0
        self.engine: dict[str, Any] = {}
        self.options: dict[str, object] = {}
        self.seconds = 0.0

    @contextlib.contextmanager
    def open_simulator(self) -> Generator[Simulator, None, None]:
        yield Simulator("127.0.0.1", 8001, 77)

    @contextlib.asynccontextmanager
    async def open_engine(self, **options: Any) -> Any:
        self.engine = options
        yield "engine"

    async def run_streams(
        self, engine: object, streams: Sequence[DemoStream], display: Display, options: argparse.Namespace
    ) -> bool:
        assert engine == "engine"
        self.options = {name: getattr(options, name) for name in NAMES}
        for stream in streams:
            stream.counters.started += 1
        self.now += 2.0
        display.look()
        for stream in streams if self.plays else ():
            self.play(stream)
        self.cpu += 0.5
        self.now += 2.0
        return self.interrupted

    def play(self, stream: DemoStream) -> None:
        scenario = stream.expected()
        stream.counters.events += 25
        stream.counters.window[MILLISECOND] += 5
        pieces = [f"{number:020d} " for number, _ in enumerate(scenario.text_pieces)]
        stream.text += pieces if stream.recipe.stamped else scenario.text_pieces
        stream.thinking.append(scenario.thinking)
        stream.ended = Done(FinishReason.STOP, "stop", Usage())
        response = Response(finish_reason=FinishReason.STOP)
        response.content += stream_content(stream)
        if self.ends:
            stream.on_completion(Completion(success=True, response=response))


def stream_content(stream: DemoStream) -> list[Any]:
    from manystream.providers.model.messages import Text, Thinking

    thinking = [Thinking("".join(stream.thinking))] if stream.thinking[0] else []
    return [*thinking, Text("".join(stream.text))]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(demo, "open_simulator", played.open_simulator)
    monkeypatch.setattr(demo, "open_engine", played.open_engine)
    monkeypatch.setattr(demo, "_run_streams", played.run_streams)
    monkeypatch.setattr(demo, "time", SimpleNamespace(process_time=lambda: played.cpu))
    monkeypatch.setattr(demo_display, "time", SimpleNamespace(monotonic=lambda: played.now))
    return played


TABLE = """\
10 streams over 5 dialects, 20 events per second each, for 1.5 s

   2.0 s  open 10  events/s 0  p50 –  p99 –  errors 0
dialect              streams  done  errors  events  events/s     p50     p99
openai-chat                2     2       0      50        12  1.0 ms  1.0 ms
openai-responses           2     2       0      50        12  1.0 ms  1.0 ms
anthropic                  2     2       0      50        12  1.0 ms  1.0 ms
gemini                     2     2       0      50        12  1.0 ms  1.0 ms
gemini-interactions        2     2       0      50        12  1.0 ms  1.0 ms
all                       10    10       0     250        62  1.0 ms  1.0 ms

10 streams were open at once. The latency from the simulator's send to the callback was measured
for each text event of every second stream (50 events): p50 1.0 ms, p99 1.0 ms, worst 1.0 ms.
This process used 0.5 s of processor time in 4.0 s: 2000.0 µs per event, checks and display included.
"""
EQUAL = "All content equals what was sent: 10 streams, each complete, in order, and with exactly one completion.\n"
ARGUMENTS = ("demo", "--streams", "10", "--seconds", "1.5", "--rate", "20")


def test_the_whole_output_of_a_demo(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ARGUMENTS) == 0
    assert capsys.readouterr() == (TABLE + EQUAL, "")
    assert played.options == dict(zip(NAMES, (10, 1.5, 20.0, False, True), strict=True))
    assert (played.engine["proxy"], played.engine["monitor"]) == ("", False)
    assert [(type(each).__name__, each.name, each.api_key) for each in played.engine["providers"]] == [
        ("OpenAIChat", "openai-chat", "simulated"), ("OpenAIResponses", "openai-responses", "simulated"),
        ("Anthropic", "anthropic", "simulated"), ("Gemini", "gemini", "simulated"),
        ("GeminiInteractions", "gemini-interactions", "simulated"),
    ]  # fmt: skip


def test_a_demo_that_was_interrupted_has_no_verdict(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.interrupted = True
    assert main(ARGUMENTS) == 130
    assert capsys.readouterr() == (TABLE, "")


def test_streams_that_differ_are_listed(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.ends = False
    assert main((*ARGUMENTS, "--monitor")) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-11:] == [
        "10 of 10 streams differ from what was sent:",
        "  openai-chat stream 0: 0 completions instead of one",
        "  openai-responses stream 0: 0 completions instead of one",
        "  anthropic stream 0: 0 completions instead of one",
        "  gemini stream 0: 0 completions instead of one",
        "  gemini-interactions stream 0: 0 completions instead of one",
        "  openai-chat stream 1: 0 completions instead of one",
        "  openai-responses stream 1: 0 completions instead of one",
        "  anthropic stream 1: 0 completions instead of one",
        "  gemini stream 1: 0 completions instead of one",
        "  gemini-interactions stream 1: 0 completions instead of one",
    ]
    assert played.engine["monitor"] is True


def test_a_demo_has_these_defaults(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    played.interrupted, played.plays = True, False
    assert main(["demo"]) == 130
    assert ": 500000.0 µs per event" in capsys.readouterr().out, "without events, the figure is that of one"
    assert played.options == dict(zip(NAMES, (1000, 10.0, 50.0, False, True), strict=True))


def test_the_heading_reaches_a_pipe_before_the_streams_start(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = Pipe()
    received: list[str] = []

    async def run_streams(*_: object) -> bool:
        received.append(pipe.received)
        return True

    monkeypatch.setattr(demo, "_run_streams", run_streams)
    monkeypatch.setattr("sys.stdout", pipe)
    assert main(ARGUMENTS) == 130
    assert received == [TABLE.partition("\n")[0] + "\n\n"]


@pytest.mark.parametrize(("option", "plain"), [((), False), (("--plain",), True)])
def test_a_terminal_gets_a_redrawn_table(
    played: Played, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...], plain: bool
) -> None:
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main([*ARGUMENTS, *option]) == 0
    assert played.options["plain"] is plain
    shown = terminal.getvalue()
    assert ("\x1b[2K" in shown) is not plain
    assert ("─" in shown) is not plain
    assert ("\x1b[1A\x1b[2K" * 6 in shown) is not plain, "the live lines are removed at the end"
    assert "\x1b[32mAll content equals what was sent:\x1b[0m" in shown


@pytest.mark.parametrize(("count", "more"), [(10, []), (11, ["  … and 1 more"]), (1010, ["  … and 1,000 more"])])
def test_ten_differences_are_shown(count: int, more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    failures = [(f"stream {number // 2}", f"wrong {number}") for number in range(count)]
    assert demo._verdict(5000, failures) == 1  # pyright: ignore[reportPrivateUsage]
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading == f"{(count + 1) // 2} of 5,000 streams differ from what was sent:"
    assert lines == [f"  stream {number // 2}: wrong {number}" for number in range(10)] + more


def test_a_verdict_of_a_failure_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stdout", Terminal())
    demo._verdict(1, [("a", "b")])  # pyright: ignore[reportPrivateUsage]
    shown = cast("Terminal", sys.stdout).getvalue()
    assert shown.startswith("\x1b[31m1 of 1 streams differ from what was sent:\x1b[0m\n")


# The command line.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--streams", "0"), "--streams must be above 0, not 0"),
        (("--seconds", "0"), "--seconds must be above 0, not 0"),
        (("--seconds", "inf"), "--seconds must be above 0, not inf"),
        (("--rate", "0"), "--rate must be above 0, not 0"),
        (("--rate", "nan"), "--rate must be above 0, not nan"),
    ],
)
def test_a_wrong_number_is_refused(
    played: Played, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert main(["demo", *arguments]) == 2
    assert capsys.readouterr() == ("", f"manystream demo: {words}\n")


def test_the_least_numbers_are_accepted(played: Played, capsys: pytest.CaptureFixture[str]) -> None:
    main(["demo", "--streams", "1", "--seconds", "0.5", "--rate", "0.5"])
    assert played.options == dict(zip(NAMES, (1, 0.5, 0.5, False, True), strict=True))


def test_a_simulator_s_failure_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise SimulatorError("it did not start")

    monkeypatch.setattr(demo, "open_simulator", fail)
    assert main(["demo", "--streams", "1"]) == 1
    assert capsys.readouterr() == ("", "manystream demo: it did not start\n")


class EngineLimits:
    """Stands in for the module `resource`: the limit of open files of this process."""

    RLIMIT_NOFILE = 7
    RLIM_INFINITY = -1

    def __init__(self, soft: int, hard: int) -> None:
        self.limit = (soft, hard)

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == 7
        return self.limit

    def setrlimit(self, which: int, limit: tuple[int, int]) -> None:
        assert which == 7
        self.limit = limit


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((74, 74), (74, 74)),
        ((73, 74), (74, 74)),
        ((10, 5000), (74, 5000)),
        ((500, 5000), (500, 5000)),
        ((-1, -1), (-1, -1)),
        ((10, -1), (74, -1)),
    ],
)
def test_the_limit_of_open_files_is_raised_if_necessary(
    played: Played, monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits = EngineLimits(*before)
    monkeypatch.setitem(sys.modules, "resource", cast("Any", limits))
    played.interrupted = True
    assert main(["demo", "--streams", "10", "--seconds", "0.5", "--rate", "2"]) == 130
    assert limits.limit == after


def test_too_many_streams_for_the_system_are_refused(
    played: Played, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "resource", cast("Any", EngineLimits(10, 73)))
    assert main(["demo", "--streams", "10"]) == 1
    words = "this needs 74 open files and the system allows 73: use fewer --streams"
    assert capsys.readouterr() == ("", f"manystream demo: {words}\n")


def test_a_system_without_such_a_limit_runs_the_demo(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert main(ARGUMENTS) == 0


# The run of the streams.


class TimedEngine:
    """An engine whose streams get one event and end after `seconds`, or when they are cancelled."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.starts: list[float] = []
        self.ended = 0

    def start_stream(self, request: object, on_event: Any, on_completion: Any) -> Any:
        self.starts.append(round(trio.current_time(), 6))
        scope = trio.CancelScope()
        ended = trio.Event()

        async def run() -> None:
            on_event(TextDelta(0, f"{0:020d} "))
            with scope:
                await trio.sleep(self.seconds)
            self.ended += 1
            on_completion(Completion(success=not scope.cancelled_caught))
            ended.set()

        trio.lowlevel.spawn_system_task(run)
        return SimpleNamespace(cancel=scope.cancel, wait=ended.wait)


class Looks:
    """A display that keeps the times of its updates, and calls a function at each."""

    def __init__(self, on_look: Any = None) -> None:
        self.times: list[float] = []
        self.on_look = on_look

    @property
    def elapsed(self) -> float:
        return trio.current_time()

    def look(self) -> None:
        self.times.append(round(trio.current_time(), 6))
        if self.on_look is not None:
            self.on_look()


async def run_streams(
    engine: TimedEngine, count: int, looks: Looks, *, plain: bool
) -> tuple[bool, Sequence[DemoStream]]:
    _, streams = plan_streams(count, ["a", "b"], seconds=1, rate=10)
    options = argparse.Namespace(streams=count, seconds=1, rate=10, monitor=False, plain=plain)
    run = demo._run_streams  # pyright: ignore[reportPrivateUsage]
    return await run(cast("Engine", engine), streams, cast("Display", looks), options), streams


@pytest.mark.parametrize(("plain", "looks"), [(True, [1.0, 2.0]), (False, [0.5, 1.0, 1.5, 2.0])])
async def test_the_streams_start_within_a_second(autojump_clock: MockClock, plain: bool, looks: list[float]) -> None:
    engine, display = TimedEngine(1.25), Looks()
    interrupted, streams = await run_streams(engine, 9, display, plain=plain)
    assert not interrupted
    assert engine.starts == [0.0, 0.11, 0.22, 0.33, 0.44, 0.55, 0.66, 0.77, 0.88]
    assert engine.ended == 9
    assert display.times == looks
    first, second = streams[0].counters, streams[1].counters
    assert (first.started, second.started, first.events, second.events, first.completed) == (5, 4, 5, 4, 5)
    measured = [sum(stream.counters.window.values()) for stream in streams[:2]]
    assert measured == [3, 2], "every second stream of a dialect is measured"


async def test_ctrl_c_cancels_the_streams_and_starts_no_more(autojump_clock: MockClock) -> None:
    engine = TimedEngine(1000.0)
    display = Looks(lambda: signal.raise_signal(signal.SIGINT))
    interrupted, _ = await run_streams(engine, 9, display, plain=False)
    assert interrupted
    assert engine.starts == [0.0, 0.11, 0.22, 0.33, 0.44]
    assert engine.ended == 5
