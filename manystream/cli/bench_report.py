"""The progress display and the results of `manystream bench` as text."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ..bench.compare import Difference
from ..bench.figures import WORDS, Summary
from ..bench.histogram import percentile
from ..bench.load import Look
from ..bench.report import simulator_share, warnings_of
from ..bench.runs import Run
from ..bench.search import Search
from ..bench.validity import combined
from .output.terminal import Column, Display, Paint, Table, can_redraw, counted, duration, one_line

PLAIN_SECONDS = 2.0
"""The interval of plain lines, in seconds."""

STEP_HEADINGS = "streams  events/s  TTFT p50  ITL p50  ITL p99  longest  client CPU  loop lag  failed  stamp  verdict"
RATE_HEADINGS = "rate  calls/s  TTFT p50  TTFT p99  TPOT p50  E2EL p99  kept  at least  stamp  verdict"
DIFFERENCE_HEADINGS = "figure  before  after  change  95 % interval  real"
LEFT = frozenset({"figure", "real", "stamp", "verdict"})
"""The headings of columns of words, which are aligned to the left."""


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


def _marker(run: Run, paint: Paint | None = None) -> Callable[[str], str]:
    """Return a function that strikes figures out if a result is invalid: by a style, else between two tildes."""
    if run.verdict.valid is not False:
        return str
    if paint is not None and paint.styled:
        return lambda text: paint(text, "strike")
    return "~~{}~~".format


def _table(headings: str, rows: Sequence[Sequence[str]]) -> str:
    columns = [Column(heading, "left" if heading in LEFT else "right") for heading in headings.split("  ")]
    return "\n".join(Table(columns, rows).lines())


def run_lines(run: Run, paint: Paint) -> list[str]:
    """Return the result of one run as lines of text."""
    figures, mark = run.result.figures, _marker(run, paint)
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


def _calls_text(run: Run, paint: Paint, mark: Callable[[str], str]) -> str:
    result, figures = run.result, run.result.figures
    kinds = ", ".join(f"{category} {count:,}" for category, count in sorted(figures.failures.items()))
    total = figures.failures_total
    failed = paint(f"{total:,} failed", "red") + f" ({kinds})" if total else "0 failed"
    rate = f" ({mark(f'{result.calls_per_second:,.1f}/s')})" if figures.ok else ""
    cut = f", {result.unfinished:,} cut at the end" if result.unfinished else ""
    return f"{figures.ok:,} ok{rate}, {failed}{cut}"


def _measured_rows(run: Run, mark: Callable[[str], str]) -> list[tuple[str, str]]:
    result, figures = run.result, run.result.figures
    rows: list[tuple[str, str]] = []
    for name, word in WORDS.items():
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


def step_row(run: Run, verdict: str) -> list[str]:
    """Return the table row of one step of `--streams`."""
    result = run.result
    first, gaps = (result.figures.summary(name, with_intervals=False) for name in ("ttft", "itl"))
    client = combined(result.clients)
    times = (first.p50, gaps.p50, gaps.p99, gaps.longest)
    return [
        f"{result.plan.concurrency:,}",
        *map(_marker(run), (f"{result.events_per_second:,.0f}", *map(duration, times))),
        f"{client.share:.0%}",
        duration(client.loop_lag),
        f"{result.figures.failures_total:,}",
        run.verdict.word,
        verdict,
    ]


def step_table(rows: Sequence[Sequence[str]]) -> str:
    """Return the table of all steps of `--streams`."""
    return _table(STEP_HEADINGS, rows)


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
        times = map(duration, (first.p50, first.p99, output.p50, whole.p99))
        figures = (f"{step.run.result.calls_per_second:,.2f}", *times, f"{step.share:.1%}", f"{step.bounds[0]:.1%}")
        rows.append([
            f"{step.rate:,.2f}",
            *map(_marker(step.run), figures),
            step.run.verdict.word,
            {True: "keeps", False: "fails", None: "unsure"}[keeps],
        ])  # fmt: skip
    lines = [_table(RATE_HEADINGS, rows), ""]
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
    rows = [
        [
            f"{WORDS[one.figure]} {one.percentile}",
            duration(one.before),
            duration(one.after),
            f"{one.change:+.1%}",
            "–" if one.interval is None else f"{one.interval.low:+.1%} to {one.interval.high:+.1%}",
            {True: "yes", False: "no", None: "unknown: too few windows"}[one.real],
        ]
        for one in found
    ]
    lines = [_table(DIFFERENCE_HEADINGS, rows)] if rows else ["the results have no figure in common"]
    lines += [paint(f"note: the results have another {setting}", "yellow") for setting in settings]
    wrong = [one_line(file) for file, is_valid in zip(files, valid, strict=True) if is_valid is False]
    return [*lines, *(paint(f"INVALID: {file}: its client was the limit", "red") for file in wrong)]
