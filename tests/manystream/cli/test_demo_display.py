"""The display of `manystream demo`: a line per update, and the final table, with figures computed by hand."""

import re
from collections.abc import Sequence

import pytest

from manystream.bench.histogram import bucket_of
from manystream.cli import demo, demo_display, main
from manystream.cli.demo_display import Display
from manystream.cli.demo_streams import Counters
from tests.support.commands import Clock, Pipe, Terminal

MILLISECOND = bucket_of(1000)
"""The bucket of 1 ms."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(demo_display, "time", clock)
    return clock


def all_counters() -> tuple[Counters, Counters]:
    first = Counters("anthropic", started=5, completed=2, errors=1, events=300)
    second = Counters("gemini", started=4, completed=4, events=100)
    first.window[MILLISECOND] += 300
    second.window[bucket_of(10_000)] += 100
    return first, second


def test_an_update_prints_the_figures_since_the_last_one(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = all_counters()
    display = Display((first, second), 10.0, plain=True)
    clock.now += 2
    display.look()
    assert capsys.readouterr().out == "   2.0 s  open 3  events/s 200  p50 1.0 ms  p99 10.0 ms  errors 1\n"
    assert (dict(first.window), dict(first.latencies)) == ({}, {MILLISECOND: 300})
    first.started, first.events = 7, 310
    first.window[2 * MILLISECOND] += 10
    clock.now += 1
    display.look()
    assert capsys.readouterr().out == "   3.0 s  open 5  events/s 10  p50 2.0 ms  p99 2.0 ms  errors 1\n"
    first.completed = 7
    clock.now += 1
    display.look()
    assert capsys.readouterr().out == "   4.0 s  open 0  events/s 0  p50 –  p99 –  errors 1\n"
    assert display.peak == 5
    assert display.elapsed == 4.0


def test_an_update_reaches_a_pipe_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    output = Pipe()
    monkeypatch.setattr("sys.stdout", output)
    display = Display(all_counters(), 10.0, plain=True)
    assert display.peak == 0
    clock.now += 0.5
    display.look()
    assert output.received == "   0.5 s  open 3  events/s 800  p50 1.0 ms  p99 10.0 ms  errors 1\n"


def test_a_run_that_took_no_time_has_no_rate(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    display = Display(all_counters(), 10.0, plain=True)
    for elapsed, rate in ((0.0, "–"), (0.5, "800")):
        display.print_summary(elapsed, plain=True)
        total = capsys.readouterr().out.splitlines()[-1].split()
        assert total[4:6] == ["400", rate]


def test_a_terminal_shows_a_bar_of_the_time_above_the_table(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    display = Display(all_counters(), 10.0, plain=False)

    def lines() -> list[str]:
        clock.now += 2.5
        begin = terminal.tell()
        display.look()
        shown = terminal.getvalue()[begin:]
        plain = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", shown).replace("\r", "")
        return [line for line in plain.splitlines() if line.strip(" ─")]

    first = lines()
    assert first[0] == "━" * 10 + "─" * 30 + "   2.5 s"
    assert [line.split()[:3] for line in first[1:]] == [
        ["dialect", "open", "events/s"], ["anthropic", "3", "120"], ["gemini", "0", "40"], ["all", "3", "160"],
    ]  # fmt: skip
    assert lines()[0] == "━" * 20 + "─" * 20 + "   5.0 s"
    assert [lines(), lines()][1][0] == "━" * 40 + "  10.0 s"
    assert lines()[0] == "━" * 40 + "  12.5 s", "the bar is full when a run takes longer"


def test_a_terminal_shows_heading_and_rest_of_the_bar_dim(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    display = Display(all_counters(), 10.0, plain=False)
    clock.now += 5
    display.look()
    shown = terminal.getvalue()
    assert "━" * 20 + "\x1b[2m" + "─" * 20 + "\x1b[0m   5.0 s" in shown
    assert re.search(r"\x1b\[2mdialect .*\x1b\[0m", shown)
    assert re.search(r"\x1b\[1mall .*\x1b\[0m", shown)
    display.close()
    assert terminal.getvalue()[len(shown) :].endswith("\x1b[1A\x1b[2K" * 4), "the display is removed"


def test_the_bar_is_full_when_the_last_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams begin within a second, and each takes the given time."""
    lengths: list[float] = []

    class Measured(Display):
        def __init__(self, all_counters: Sequence[Counters], seconds: float, *, plain: bool) -> None:
            lengths.append(seconds)
            super().__init__(all_counters, seconds, plain=plain)

    monkeypatch.setattr(demo, "Display", Measured)
    assert main(["demo", "--streams", "4", "--seconds", "0.5", "--rate", "10", "--plain"]) == 0
    assert lengths == [1.5]


def test_the_final_table_counts_every_event_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = all_counters()
    display = Display((first, second), 10.0, plain=True)
    clock.now += 2
    display.look()
    first.events = 310
    first.window[2 * MILLISECOND] += 10
    capsys.readouterr()
    everything = display.print_summary(4.0, plain=True)
    assert dict(everything) == {MILLISECOND: 300, 2 * MILLISECOND: 10, bucket_of(10_000): 100}
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[-2].startswith("gemini           4     4       0     100")
    rows = [line.split() for line in lines]
    assert rows[0] == ["dialect", "streams", "done", "errors", "events", "events/s", "p50", "p99"]
    assert rows[-3:] == [
        ["anthropic", "5", "2", "1", "310", "78", "1.0", "ms", "2.0", "ms"],
        ["gemini", "4", "4", "0", "100", "25", "10.0", "ms", "10.0", "ms"],
        ["all", "9", "6", "1", "410", "102", "1.0", "ms", "10.0", "ms"],
    ]
    assert not first.window
