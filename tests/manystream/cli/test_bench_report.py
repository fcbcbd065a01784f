"""The report of `manystream bench` on known figures, as text and as JSON, and its progress."""

import io
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from manystream.bench.load import Load
from manystream.bench.report import result_object
from manystream.cli.bench_report import Progress, result_lines
from manystream.cli.output.terminal import Paint
from tests.support.bench_results import REPORT, RESULT, RESULT_OBJECT, UNSTREAMED

NOTHING = replace(UNSTREAMED, stream=True, ok=0, events=0, failures={"auth": 1}, first_failure="no", client_seconds=0.0)
UNSTREAMED_OBJECT = {
    "concurrency": 1,
    "stream": False,
    "seconds": 4.0,
    "calls": {"ok": 2, "failed": 0, "unfinished": 0},
    "calls_per_second": 0.5,
    "failures": {},
    "first_failure": None,
    "first_content": {"p50": None, "p90": None, "p99": None},
    "call": {"p50": 1.0, "p90": 1.0, "p99": 1.0},
    "events": 2,
    "events_per_second": 0.5,
    "output_tokens": None,
    "output_tokens_per_second": None,
    "gap": {"p50": None, "p99": None, "longest": None},
    "client": {"cpu_per_event": 0.1, "cpu_share": 0.05, "loop_lag": 0.0},
    "simulator": {"cpu_share": None},
    "connections": {"opened": 1, "reused": 1},
    "interrupted": False,
    "silent": 0,
    "warnings": [],
}


class Terminal(io.StringIO):
    """An output stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


# A result as text and as JSON.


def test_the_whole_report_of_a_run() -> None:
    assert "\n".join(result_lines(RESULT, Paint(io.StringIO()))) == REPORT


def test_the_whole_report_of_unstreamed_calls() -> None:
    assert result_lines(UNSTREAMED, Paint(io.StringIO())) == [
        "calls          2 ok (0.5/s), 0 failed",
        "whole call     p50 1.00 s, p90 1.00 s, p99 1.00 s",
        "output tokens  the server reported none",
        "this client    100.0 ms of processor time per call, 5% of one core, loop lag 0 µs",
        "connections    1 opened, 1 reuse",
    ]


def test_the_whole_report_of_a_run_without_a_success() -> None:
    assert result_lines(NOTHING, Paint(io.StringIO())) == [
        "calls          0 ok, 1 failed (auth 1)",
        "first failure  no",
    ]


def test_streams_that_did_not_end_have_no_duration() -> None:
    running = replace(RESULT, ok=0, failures={}, first_failure="", warnings=[], tokens=None)
    assert [line[:18].strip() for line in result_lines(running, Paint(io.StringIO()))] == [
        "calls", "first content", "gaps in a stream", "events", "this client", "connections",
    ]  # fmt: skip


def test_a_report_on_a_terminal_has_styles(terminal: Terminal) -> None:
    calls, failure, *others = result_lines(RESULT, Paint(terminal))
    assert calls == (
        "\x1b[2mcalls           \x1b[0m  12,345 ok (1,234.6/s), \x1b[31m1,003 failed\x1b[0m (network 3, server 1,000),"
        " 2,000 cancelled at the end"
    )
    assert failure == "\x1b[2mfirst failure   \x1b[0m  the server\ufffd failed"
    assert others[-2:] == ["\x1b[33mnote: one\x1b[0m", "\x1b[33mnote: two\x1b[0m"]


def test_a_result_as_json_has_every_figure() -> None:
    assert result_object(RESULT) == RESULT_OBJECT
    assert result_object(UNSTREAMED) == UNSTREAMED_OBJECT
    nothing = result_object(replace(NOTHING, interrupted=True))
    assert nothing["client"] == {"cpu_per_event": None, "cpu_share": 0.0, "loop_lag": 0.0}
    assert (nothing["first_failure"], nothing["interrupted"]) == ("no", True)


# The progress.


def looked(progress: Progress, elapsed: float, events: int = 0) -> None:
    figures = SimpleNamespace(events=events, ok=1234, failed=5678)
    load = SimpleNamespace(elapsed=elapsed, figures=figures, running=dict.fromkeys(range(1000)))
    progress.look(cast("Load", load))


def test_without_a_terminal_there_is_a_line_every_two_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    shown: list[float] = []
    for quarter in range(1, 27):
        looked(progress, quarter / 4, events=quarter * 1000)
        if capsys.readouterr().err:
            shown.append(quarter / 4)
    assert shown == [2.0, 4.0, 6.0]
    looked(progress, 8.0, events=32_000)
    progress.close()
    assert capsys.readouterr().err == "   8.0 s  1,000 running  1,234 ok  5,678 failed  4,000 events/s\n"


def test_the_first_line_counts_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    looked(Progress(), 2.0, events=500)
    assert capsys.readouterr().err.endswith("  250 events/s\n")


def test_a_window_that_begins_anew_has_no_negative_rate(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    looked(progress, 2.0, events=500)
    looked(progress, 4.0, events=100)
    assert capsys.readouterr().err.splitlines()[-1].endswith("  0 events/s")


def test_a_terminal_shows_every_update_in_place(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr", terminal)
    progress = Progress()
    looked(progress, 0.25, events=25)
    looked(progress, 0.5, events=75)
    progress.close()
    updates = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", terminal.getvalue()).split("\r")
    assert list(dict.fromkeys(update.strip() for update in updates if update.strip())) == [
        "0.2 s  1,000 running  1,234 ok  5,678 failed  100 events/s",
        "0.5 s  1,000 running  1,234 ok  5,678 failed  200 events/s",
    ]
    assert terminal.getvalue().endswith("\x1b[2K"), "the line is removed at the end"


def test_progress_reaches_a_pipe_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []

    class Pipe(io.StringIO):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    monkeypatch.setattr("sys.stderr", Pipe())
    looked(Progress(), 2.0)
    assert flushed[-1].startswith("   2.0 s  1,000 running")
