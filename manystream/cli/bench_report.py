"""The progress display and the results of `manystream bench` as text."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..bench.compare import Difference
from ..bench.figures import Summary
from ..bench.histogram import percentile
from ..bench.load import Look
from ..bench.report import simulator_share, warnings_of
from ..bench.runs import Run
from ..bench.search import Search
from ..bench.validity import combined
from .output.terminal import Column, Display, Paint, Table, can_redraw, counted, duration, one_line

PLAIN_SECONDS = 2.0
"""The interval of plain lines, in seconds."""

FIGURES = (
    ("ttfb", "TTFB"),
    ("ttft", "TTFT"),
    ("ttfo", "TTFO"),
    ("tpot", "TPOT"),
    ("itl", "ITL"),
    ("e2el", "E2EL"),
    ("late", "late"),
)
"""Name of a figure → its name in a report, in the order of the rows."""

STEP_COLUMNS = (
    Column("streams"),
    Column("events/s"),
    Column("TTFT p50"),
    Column("ITL p50"),
    Column("ITL p99"),
    Column("longest"),
    Column("client CPU"),
    Column("loop lag"),
    Column("failed"),
    Column("stamp", "left"),
    Column("verdict", "left"),
)
RATE_COLUMNS = (
    Column("rate"),
    Column("calls/s"),
    Column("TTFT p50"),
    Column("TTFT p99"),
    Column("TPOT p50"),
    Column("E2EL p99"),
    Column("kept"),
    Column("at least"),
    Column("stamp", "left"),
    Column("verdict", "left"),
)
DIFFERENCE_COLUMNS = (
    Column("figure", "left"),
    Column("before"),
    Column("after"),
    Column("change"),
    Column("95 % interval"),
    Column("real", "left"),
)


class Progress:
    """The progress display of a run, on standard error."""

    def __init__(self) -> None:
        self._display = Display(sys.stderr) if can_redraw(sys.stderr) else None
        self._next = PLAIN_SECONDS
        self._before = Look(0.0, 0, 0, 0, 0)

    def look(self, look: Look) -> None:
        """Show the figures of a running load test. Without a display, show them at most every `PLAIN_SECONDS`."""
        if self._display is None and look.elapsed < self._next:
            return
        self._next += PLAIN_SECONDS
        before, self._before = self._before, look
        rate = max(0, look.events - before.events) / max(look.elapsed - before.elapsed, 1e-6)
        line = (
            f"{look.elapsed:6.1f} s  {look.running:,} running  {look.ok:,} ok  {look.failed:,} failed"
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


class _Marker:
    """Strikes figures out if a result is invalid: on a terminal by its style, else between two tildes."""

    def __init__(self, run: Run, paint: Paint) -> None:
        self._paint = paint
        self._invalid = run.verdict.valid is False

    def __call__(self, text: str) -> str:
        if not self._invalid:
            return text
        return self._paint(text, "strike") if self._paint.styled else f"~~{text}~~"


def run_lines(run: Run, paint: Paint) -> list[str]:
    """Return the result of one run as lines of text."""
    figures, mark = run.result.figures, _Marker(run, paint)
    rows = [("calls", _calls_text(run, paint, mark))]
    if figures.first_failure:
        rows.append(("first failure", one_line(figures.first_failure)))
    if figures.ok or figures.events:
        rows += _measured_rows(run, mark)
    width = max(len(name) for name, _ in rows)
    lines = [f"{paint(name.ljust(width), 'dim')}  {text}" for name, text in rows]
    return [*lines, *_verdict_lines(run, paint), *(paint(f"note: {note}", "yellow") for note in warnings_of(run))]


def _verdict_lines(run: Run, paint: Paint) -> list[str]:
    verdict, plan = run.verdict, run.result.plan
    style = {True: "green", False: "red", None: "yellow"}[verdict.valid]
    line = (
        f"{paint(verdict.word, style)}: {'; '.join(verdict.reasons)}" if verdict.reasons else paint(verdict.word, style)
    )
    if verdict.largest is None:
        return [line]
    unit = "calls at a time" if plan.arrivals is None else "calls a second"
    much = f"{verdict.largest:,.0f}" if verdict.largest >= 10 else f"{verdict.largest:.1f}"
    return [f"{line}{'; ' if verdict.reasons else ': '}the largest valid load of this client is about {much} {unit}"]


def _calls_text(run: Run, paint: Paint, mark: _Marker) -> str:
    result, figures = run.result, run.result.figures
    kinds = ", ".join(f"{category} {count:,}" for category, count in sorted(figures.failures.items()))
    total = figures.failures_total
    failed = paint(f"{total:,} failed", "red") + f" ({kinds})" if total else "0 failed"
    rate = f" ({mark(f'{result.calls_per_second:,.1f}/s')})" if figures.ok else ""
    cut = f", {result.unfinished:,} cut at the end" if result.unfinished else ""
    return f"{figures.ok:,} ok{rate}, {failed}{cut}"


def _measured_rows(run: Run, mark: _Marker) -> list[tuple[str, str]]:
    result, figures = run.result, run.result.figures
    rows: list[tuple[str, str]] = []
    for name, word in FIGURES:
        summary = figures.summary(name)
        if summary.count:
            rows.append((word, mark(_summary_text(summary))))
    if result.goodput is not None:
        objective = ", ".join(f"{name} {duration(limit)}" for name, limit in result.plan.slo.items())
        kept = f"{figures.good:,} of {figures.due:,} calls kept {objective}"
        rows.append(("goodput", f"{mark(f'{result.goodput:,.1f}/s')}, {kept}"))
    if result.plan.stream:
        rows.append(("events", f"{mark(f'{result.events_per_second:,.0f}/s')}, {figures.measured_events:,} in"
                               f" {result.seconds:.1f} s"))  # fmt: skip
    if figures.ok:
        tokens = result.tokens_per_second
        rows.append(("output tokens", mark(f"{tokens:,.0f}/s") if tokens is not None else "the server reported none"))
    return [*rows, *_client_rows(run)]


def _summary_text(summary: Summary) -> str:
    text = f"p50 {duration(summary.p50)}, p90 {duration(summary.p90)}, p99 {duration(summary.p99)}"
    interval = summary.intervals[2]
    if interval is not None:
        text += f" ({duration(interval.low)} to {duration(interval.high)})"
    return f"{text}, longest {duration(summary.longest)}"


def _client_rows(run: Run) -> list[tuple[str, str]]:
    result = run.result
    client = combined(result.clients)
    unit = "event" if result.plan.stream else "call"
    events = result.figures.measured_events
    cost = f"{duration(client.cpu / events)} of processor time per {unit}, " if events else ""
    share = client.cpu / client.seconds
    cores = f"{share:.0%} of one core" if len(result.clients) == 1 else f"{share:.0%} of {len(result.clients)} cores"
    reads = percentile(client.reads, 0.99)
    read = f", bytes read after {duration(reads)} (p99)" if reads is not None else ""
    rows = [("this client", f"{cost}{cores}, loop lag {duration(client.loop_lag)}{read}")]
    if run.calibration is not None:
        added = run.calibration
        rows.append(("calibration", f"this client adds {duration(added.p50)} (p50), {duration(added.p99)} (p99)"))
    simulator = simulator_share(result)
    if simulator is not None:
        rows.append(("simulator", f"{simulator:.0%} of one core"))
    reuses = counted(result.connections_reused, "reuse", "reuses")
    return [*rows, ("connections", f"{result.connections_opened:,} opened, {reuses}")]


def _marked(run: Run, *cells: str) -> list[str]:
    """Return cells of a table, struck out if the result is invalid. A table has no styles."""
    return [f"~~{cell}~~" if run.verdict.valid is False else cell for cell in cells]


def step_row(run: Run, verdict: str) -> list[str]:
    """Return the table row of one step of `--streams`."""
    result = run.result
    first, gaps = (result.figures.summary(name, with_intervals=False) for name in ("ttft", "itl"))
    client = combined(result.clients)
    return [
        f"{result.plan.concurrency:,}",
        *_marked(
            run,
            f"{result.events_per_second:,.0f}",
            duration(first.p50),
            duration(gaps.p50),
            duration(gaps.p99),
            duration(gaps.longest),
        ),
        f"{client.share:.0%}",
        duration(client.loop_lag),
        f"{result.figures.failures_total:,}",
        run.verdict.word,
        verdict,
    ]


def step_table(rows: Sequence[Sequence[str]]) -> str:
    """Return the table of all steps of `--streams`."""
    return "\n".join(Table(STEP_COLUMNS, rows).lines())


def search_lines(search: Search, paint: Paint) -> list[str]:
    """Return a search as lines of text: the curve of latency over the rate, and the result."""
    rows: list[list[str]] = []
    for step in sorted(search.steps, key=lambda step: step.rate):
        if not step.runs:
            continue
        first, output, whole = (
            step.run.result.figures.summary(name, with_intervals=False) for name in ("ttft", "tpot", "e2el")
        )
        keeps = step.keeps(search.attain)
        rows.append([
            f"{step.rate:,.2f}",
            *_marked(
                step.run,
                f"{step.run.result.calls_per_second:,.2f}",
                duration(first.p50),
                duration(first.p99),
                duration(output.p50),
                duration(whole.p99),
                f"{step.share:.1%}",
                f"{step.bounds[0]:.1%}",
            ),
            step.run.verdict.word,
            {True: "keeps", False: "fails", None: "unsure"}[keeps],
        ])  # fmt: skip
    lines = ["\n".join(Table(RATE_COLUMNS, rows).lines()), ""]
    if search.best is None:
        lines.append(f"no rate kept the objective for {search.attain:.0%} of the calls")
    else:
        sure = "with a confidence of 95 %" if search.certain else "by its share alone: more --seconds would decide it"
        best = paint(f"{search.best:,.2f}", "bold")
        lines.append(
            f"highest rate that kept the objective for {search.attain:.0%} of the calls: {best} a second, {sure}"
        )
    if search.limited_by_client:
        lines.append("above it, this client was the limit and not the server: use --workers")
    failure = next((step.run.result.figures.first_failure for step in search.steps if step.runs), "")
    return [*lines, f"first failure: {one_line(failure)}"] if failure else lines


def comparison_lines(
    found: Sequence[Difference],
    files: Sequence[str],
    valid: Sequence[bool | None],
    settings: Sequence[str],
    paint: Paint,
) -> list[str]:
    """Return the comparison of two results as lines of text."""
    names = dict(FIGURES)
    rows = [
        [
            f"{names[one.figure]} {one.percentile}",
            duration(one.before),
            duration(one.after),
            f"{one.change:+.1%}",
            "–" if one.interval is None else f"{one.interval.low:+.1%} to {one.interval.high:+.1%}",
            {True: "yes", False: "no", None: "unknown: too few windows"}[one.real],
        ]
        for one in found
    ]
    lines = ["\n".join(Table(DIFFERENCE_COLUMNS, rows).lines())] if rows else ["the results have no figure in common"]
    lines += [paint(f"note: the results have another {setting}", "yellow") for setting in settings]
    wrong = [one_line(file) for file, is_valid in zip(files, valid, strict=True) if is_valid is False]
    return [*lines, *(paint(f"INVALID: {file}: its client was the limit", "red") for file in wrong)]
