"""The progress and the summary of `manystream batch`: whole lines for figures that were computed by hand."""

import io
import math
import re
import threading
from contextlib import redirect_stderr
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest

from manystream.batch import Counters
from manystream.cli import batch_progress
from manystream.cli.batch_budget import budget_notice, budget_report, dollars, spent_text
from manystream.cli.batch_progress import Progress, summary
from manystream.cli.output.terminal import Paint, clock, compact
from tests.support.commands import Clock, Pipe, Terminal


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Clock:
    time = Clock()
    monkeypatch.setattr(batch_progress, "time", time)
    return time


def busy() -> Counters:
    return Counters(
        answered=1200, failed=1000, invalid=100, answered_before=50, failed_before=5, running=3500, waiting=1500,
        retries=4000, input_tokens=12_000, output_tokens=500, cost={"EUR": Decimal("1.5"), "USD": Decimal(3)},
    )  # fmt: skip


# Progress.


def test_a_line_has_every_figure(time: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(busy(), 5000, "shard 1/4", plain=True)
    time.now += 5.0
    progress.look()
    assert capsys.readouterr().err == (
        "   0:05  shard 1/4: 2,355/5,000 lines, 44.0/s, 12.5k tokens (15.0k/min), 1.50 EUR + $3.00, 2,000 running,"
        " 1,500 waiting, 1,100 failed, 4,000 retried, 0:06 left\n"
    )
    assert progress.elapsed == 5.0


def test_a_line_of_a_run_that_has_done_nothing(time: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(Counters(), None, plain=True)
    time.now += 3725.0
    progress.look()
    assert capsys.readouterr().err == "1:02:05  0 lines, 0.0/s, 0 tokens (0/min), 0 running, 0 failed\n"


def test_a_line_is_printed_every_five_seconds(time: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(Counters(), None, plain=True)
    shown: list[float] = []
    for quarter in range(1, 4 * 17):
        time.now = 100.0 + quarter / 4
        progress.look()
        if capsys.readouterr().err:
            shown.append(quarter / 4)
    progress.close()
    assert shown == [5.0, 10.0, 15.0]


def test_the_rate_is_a_moving_average(time: Clock) -> None:
    counters = Counters()
    progress = Progress(counters, None, plain=True)
    rates: list[str] = []
    for answered in (10, 20, 20, 30):
        time.now += 0.25
        counters.answered = answered
        counters.output_tokens = answered * 100
        progress.look()
        rates.append(", ".join(progress.figures().split(", ")[:2]))
    assert rates == [
        "40.0/s, 1.00k tokens (240k/min)", "40.0/s, 2.00k tokens (240k/min)", "26.7/s, 2.00k tokens (160k/min)",
        "30.0/s, 3.00k tokens (180k/min)",
    ]  # fmt: skip
    for _ in range(40):
        time.now += 0.25
        progress.look()
    time.now += 0.25
    counters.failed += 10
    progress.look()
    assert progress.figures().startswith("4.3/s, "), "a tenth of the newest update, and what is left of the others"


def test_two_updates_at_once_do_not_divide_by_zero(time: Clock) -> None:
    counters = Counters()
    progress = Progress(counters, None, plain=True)
    counters.answered = 1
    progress.look()
    assert progress.figures().startswith("1,000.0/s")


def test_the_time_left_needs_a_total_and_a_line_that_ended(time: Clock) -> None:
    for total, answered, left in ((None, 5, ""), (10, 0, ""), (10, 5, "0:10"), (5, 5, "0:00")):
        counters = Counters()
        progress = Progress(counters, total, plain=True)
        time.now += 10.0
        counters.answered = answered
        progress.look()
        assert progress.remaining == left


def test_the_time_left_is_computed_from_the_last_minute(time: Clock) -> None:
    counters = Counters()
    progress = Progress(counters, 100, plain=True)
    for seconds, answered in ((10.0, 10), (60.0, 20), (70.0, 30)):
        time.now = 100.0 + seconds
        counters.answered = answered
        progress.look()
    assert progress.remaining == "3:30", "70 lines at 20 in the 60 seconds since the first update"
    time.now += 0.5
    progress.look()
    assert progress.remaining == "1:14", "70 lines at 10 in the 10.5 seconds since the second update"


def test_the_time_left_is_plausible_while_lines_are_retried(time: Clock) -> None:
    counters = Counters(running=3)
    progress = Progress(counters, 100, plain=True)
    left: dict[float, str] = {}
    for quarter in range(1, 4 * 120):
        time.now = 100.0 + quarter / 4
        counters.answered = min(97, round(97 * quarter / 80))
        progress.look()
        left[quarter / 4] = progress.remaining
    assert left[20.0] == "0:01", "3 lines at 97 in 20 seconds"
    assert left[60.0] == "0:02", "97 in a minute"
    assert left[110.0] == "", "unknown: no line has ended for more than a minute"


def test_only_known_figures_are_shown(time: Clock) -> None:
    counters = Counters(running=2, waiting=2)
    progress = Progress(counters, 10, plain=True)
    assert progress.figures() == "0.0/s, 0 tokens (0/min), 0 running, 2 waiting, 0 failed"
    counters.unpriced, counters.cost = 1, {"USD": Decimal(1)}
    assert progress.figures() == "0.0/s, 0 tokens (0/min), at least $1.00, 0 running, 2 waiting, 0 failed"
    counters.budget, counters.spent = 20.0, 1.5
    assert progress.figures() == "0.0/s, 0 tokens (0/min), $1.50 of $20.00, 0 running, 2 waiting, 0 failed"


@pytest.mark.parametrize(
    ("away", "outage", "words"),
    [
        (12.3, 1800.0, "server away for 0:12, waiting up to 30:00"),
        (1900.0, 1800.0, "server away for 31:40"),
        (12.3, 0.0, "server away for 0:12"),
        (4000.0, math.inf, "server away for 1:06:40, waiting for it"),
    ],
)
def test_a_server_that_is_away_comes_first(time: Clock, away: float, outage: float, words: str) -> None:
    progress = Progress(Counters(running=2, waiting=2, away=away), 10, outage=outage, plain=True)
    assert progress.figures() == f"{words}, 0.0/s, 0 tokens (0/min), 0 running, 2 waiting, 0 failed"


def test_a_line_reaches_a_pipe_at_once(time: Clock) -> None:
    pipe = Pipe()
    progress = Progress(Counters(), 10, plain=True)
    time.now += 5.0
    with redirect_stderr(pipe):
        progress.look()
    assert pipe.received.startswith("   0:05  0/10 lines, ")


def shown_bar(monkeypatch: pytest.MonkeyPatch, time: Clock, total: int | None, label: str = "") -> str:
    """Return the last update of the bar on a terminal, without escape sequences."""
    pytest.importorskip("rich")
    for name, value in (("TERM", "xterm"), ("COLUMNS", "180"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    terminal = Terminal()
    with redirect_stderr(terminal):
        before = threading.active_count()
        progress = Progress(busy(), total, label, plain=False)
        time.now += 5.0
        progress.look()
        assert threading.active_count() == before, "the bar is drawn without a thread"
        shown = terminal.getvalue()
        progress.close()
    assert "\x1b[?25l" in shown, "the cursor is hidden"
    assert terminal.getvalue()[len(shown) :].endswith("\x1b[1A\x1b[2K"), "the bar is removed at the end"
    return re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", shown).strip()


FIGURES = (
    "44.0/s, 12.5k tokens (15.0k/min), 1.50 EUR + $3.00, 2,000 running, 1,500 waiting, 1,100 failed, 4,000 retried"
)


def test_a_bar_has_the_same_figures(monkeypatch: pytest.MonkeyPatch, time: Clock) -> None:
    assert shown_bar(monkeypatch, time, 5000) == "━" * 11 + "─" * 13 + f" 2,355/5,000 {FIGURES} 0:06 left"


def test_a_bar_names_its_shard_first(monkeypatch: pytest.MonkeyPatch, time: Clock) -> None:
    assert shown_bar(monkeypatch, time, 5000, "shard 1/4").startswith("shard 1/4: ━")


def test_a_bar_without_a_total_has_no_time_left(monkeypatch: pytest.MonkeyPatch, time: Clock) -> None:
    assert shown_bar(monkeypatch, time, None) == f"2,355 {FIGURES}"


def test_a_bar_shows_figures_dim_and_the_time_left_cyan(monkeypatch: pytest.MonkeyPatch, time: Clock) -> None:
    pytest.importorskip("rich")
    for name, value in (("TERM", "xterm"), ("COLUMNS", "180"), ("COLORTERM", "")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    with redirect_stderr(terminal):
        progress = Progress(busy(), 5000, plain=False)
        time.now += 5.0
        progress.look()
        progress.close()
    assert f"\x1b[2m{FIGURES}\x1b[0m\x1b[36m 0:06 left\x1b[0m" in terminal.getvalue()


# The summary.


def summed(counters: Counters, elapsed: float = 2.0, *, paint: Paint | None = None) -> list[str]:
    paint = paint or Paint(io.StringIO())
    return summary(counters, elapsed, Path("a\x1b.jsonl"), Path("e\x1b.jsonl"), paint).split("\n")


def test_the_summary_of_a_run_without_answers() -> None:
    nothing = "0 answered in 0.0 s (0.0/s), 0 tokens in, 0 out → a\ufffd.jsonl"
    assert summed(Counters(), 0.0) == [nothing]
    assert summed(Counters(answered=1), 0.5)[0].startswith("1 answered in 0.5 s (2.0/s), ")


def test_the_summary_has_a_line_for_everything() -> None:
    counters = Counters(
        answered=2000, answered_before=3000, failed=1100, failed_before=4000, invalid=5000, input_tokens=6000,
        output_tokens=7000, failures={"server": 1000, "auth": 100}, cost={"USD": Decimal("1.5"), "EUR": Decimal(2)},
        unpriced=1000, unpriced_reason="no\x1b price", budget=10.0, spent=2.5, lost=2000, asked_again=3000, late=4000,
        lost_usd=0.25,
    )  # fmt: skip
    assert summed(counters) == [
        "2,000 answered in 2.0 s (1,000.0/s), 6,000 tokens in, 7,000 out → a\ufffd.jsonl",
        "at least 2.00 EUR + $1.50 by list prices",
        "$2.50 of $10.00 of the budget",
        "1,000 without a price: no\ufffd price",
        "3,000 were answered before",
        "2,000 workers were lost: 3,000 lines were given to others; 4,000 late answers were dropped",
        "$0.25 that lost workers may have spent count as spent",
        "1,100 failed (100 auth, 1,000 server) → e\ufffd.jsonl",
        "4,000 failed before and were skipped: --retry-failed sends them again",
        "5,000 lines are not valid requests → e\ufffd.jsonl",
    ]


def test_the_summary_of_one_of_each() -> None:
    counters = Counters(answered=1, lost=1, asked_again=1, invalid=1, budget=1.0)
    assert summed(counters) == [
        "1 answered in 2.0 s (0.5/s), 0 tokens in, 0 out → a\ufffd.jsonl", "$0.00 of $1.00 of the budget",
        "1 worker was lost: 1 line was given to others", "1 line is not a valid request → e\ufffd.jsonl",
    ]  # fmt: skip


def test_the_summary_on_a_terminal_has_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    counters = Counters(answered=1, failed=2, invalid=3, failures={"server": 2})  # type: ignore[arg-type]
    assert summed(counters, paint=Paint(Terminal())) == [
        "\x1b[32m1 answered\x1b[0m in 2.0 s (0.5/s), 0 tokens in, 0 out → a\ufffd.jsonl",
        "\x1b[31m2 failed\x1b[0m (2 server) → e\ufffd.jsonl",
        "\x1b[31m3 lines are not valid requests\x1b[0m → e\ufffd.jsonl",
    ]


# Amounts and spans.


def test_spans_are_rounded_to_seconds() -> None:
    shown = {-5: "0:00", 0: "0:00", 9.4: "0:09", 59.6: "1:00", 3599: "59:59", 3600: "1:00:00", 36305: "10:05:05"}
    assert {seconds: clock(seconds) for seconds in shown} == shown


def test_counts_have_about_three_digits() -> None:
    shown = {
        0: "0", 999: "999", 1000: "1.00k", 9990: "9.99k", 10_000: "10.0k", 99_900: "99.9k", 100_000: "100k",
        999_000: "999k", 1_000_000: "1.00M", 10_000_000: "10.0M", 100_000_000: "100M", 999_000_000: "999M",
        1_000_000_000: "1.00G", 12_345_000_000: "12.35G",
    }  # fmt: skip
    assert {number: compact(number) for number in shown} == shown


# The budget.


def notice(**members: object) -> str:
    budget = SimpleNamespace(**{"usd": 10.0, "spent_before": 0.0, "unrecorded": 0.0, "uncounted": 0} | members)
    return budget_notice(budget, Path("folder/a\x1b.jsonl"))  # type: ignore[arg-type]


def test_the_notice_has_a_part_for_everything() -> None:
    assert notice() == ""
    assert notice(spent_before=2.5) == "Budget: $2.50 of $10.00 are spent (folder/a\ufffd.jsonl)"
    assert notice(uncounted=1) == "Budget: 1 answer without a known cost is not counted (folder/a\ufffd.jsonl)"
    assert notice(spent_before=2.5, unrecorded=0.5, uncounted=2000) == (
        "Budget: $2.50 of $10.00 are spent, and $0.50 of that is for calls whose end is not known,"
        " and 2,000 answers without a known cost are not counted (folder/a\ufffd.jsonl)"
    )


@pytest.mark.parametrize(
    ("total", "left"),
    [(None, "the other lines are"), (21, "1 line is"), (20, "0 lines are"), (2020, "2,000 lines are")],
)
def test_the_report_of_a_spent_budget(total: int | None, left: str) -> None:
    counters = Counters(answered=15, failed=5, budget=1.0, spent=0.995)
    assert budget_report(counters, total) == (
        f"The budget is spent: {left} not sent, since the largest cost of a line did not fit into the rest"
        " ($0.99 of $1.00 spent). The same command with a larger --budget goes on."
    )


def test_amounts_of_a_budget() -> None:
    assert spent_text(Counters(spent=1.0)) == ""
    assert spent_text(Counters(budget=0.0)) == "$0.00 of $0.00"
    assert [dollars(amount) for amount in (1234.5, 0.004)] == ["$1,234.50", "$0.0040"]
