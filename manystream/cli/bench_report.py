"""The progress display and the result tables of `manystream bench`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..bench.figures import Percentiles, Result
from ..bench.load import Load
from .output.terminal import Column, Display, Paint, Table, can_redraw, counted, duration, one_line

PLAIN_SECONDS = 2.0
"""The interval of plain lines, in seconds."""

STEP_COLUMNS = (
    Column("streams"),
    Column("events/s"),
    Column("first p50"),
    Column("gap p50"),
    Column("gap p99"),
    Column("longest"),
    Column("client CPU"),
    Column("loop lag"),
    Column("failed"),
    Column("verdict", "left"),
)


class Progress:
    """The progress display of a run, on standard error."""

    def __init__(self) -> None:
        self._display = Display(sys.stderr) if can_redraw(sys.stderr) else None
        self._next = PLAIN_SECONDS
        self._events = 0
        self._elapsed = 0.0

    def look(self, load: Load) -> None:
        """Show the figures of a running load test. Without a display, show them at most every `PLAIN_SECONDS`."""
        elapsed, figures = load.elapsed, load.figures
        if elapsed < self._elapsed:
            self._events, self._elapsed, self._next = 0, 0.0, PLAIN_SECONDS  # the next run counts from 0
        if self._display is None and elapsed < self._next:
            return
        self._next += PLAIN_SECONDS
        rate = max(0, figures.events - self._events) / max(elapsed - self._elapsed, 1e-6)
        self._events, self._elapsed = figures.events, elapsed
        line = (
            f"{elapsed:6.1f} s  {len(load.running):,} running  {figures.ok:,} ok  {figures.failed:,} failed"
            f"  {rate:,.0f} events/s"
        )
        if self._display is not None:
            self._display.draw([line])
        else:
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the progress line from the terminal."""
        if self._display is not None:
            self._display.close()


def result_lines(result: Result, paint: Paint) -> list[str]:
    """Return the result of one run as lines of text."""
    rows = [("calls", _calls_text(result, paint))]
    if result.first_failure:
        rows.append(("first failure", one_line(result.first_failure)))
    if result.ok or result.events:
        rows += _measured_rows(result)
    width = max(len(name) for name, _ in rows)
    lines = [f"{paint(name.ljust(width), 'dim')}  {text}" for name, text in rows]
    return lines + [paint(f"note: {warning}", "yellow") for warning in result.warnings]


def _calls_text(result: Result, paint: Paint) -> str:
    kinds = ", ".join(f"{category} {count:,}" for category, count in sorted(result.failures.items()))
    failed = paint(f"{result.failed:,} failed", "red") + f" ({kinds})" if result.failed else "0 failed"
    rate = f" ({result.calls_per_second:,.1f}/s)" if result.ok else ""
    cut = f", {result.unfinished:,} cancelled at the end" if result.unfinished else ""
    return f"{result.ok:,} ok{rate}, {failed}{cut}"


def _measured_rows(result: Result) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    if result.stream:
        p50, p99, longest = map(duration, (result.gap_p50, result.gap_p99, result.gap_longest))
        rows += [
            ("first content", _percentiles_text(result.first_content)),
            ("gaps in a stream", f"p50 {p50}, p99 {p99}, longest {longest}"),
            ("events", f"{result.events_per_second:,.0f}/s, {result.events:,} in {result.seconds:.1f} s"),
        ]
    if result.ok:
        tokens = result.tokens_per_second
        rows += [
            ("whole call", _percentiles_text(result.call)),
            ("output tokens", f"{tokens:,.0f}/s" if tokens is not None else "the server reported none"),
        ]
    unit = "event" if result.stream else "call"
    cost = f"{duration(result.client_per_event)} of processor time per {unit}, {result.client_share:.0%} of one core"
    reuses = counted(result.connections_reused, "reuse", "reuses")
    rows += [
        ("this client", f"{cost}, loop lag {duration(result.loop_lag)}"),
        ("connections", f"{result.connections_opened:,} opened, {reuses}"),
    ]
    return rows


def step_row(result: Result, verdict: str) -> list[str]:
    """Return the table row of one step of a search."""
    return [
        f"{result.concurrency:,}",
        f"{result.events_per_second:,.0f}",
        duration(result.first_content.p50),
        duration(result.gap_p50),
        duration(result.gap_p99),
        duration(result.gap_longest),
        f"{result.client_share:.0%}",
        duration(result.loop_lag),
        f"{result.failed:,}",
        verdict,
    ]


def step_table(rows: Sequence[Sequence[str]]) -> str:
    """Return the table of all steps of a search."""
    return "\n".join(Table(STEP_COLUMNS, rows).lines())


def _percentiles_text(spans: Percentiles) -> str:
    return f"p50 {duration(spans.p50)}, p90 {duration(spans.p90)}, p99 {duration(spans.p99)}"
