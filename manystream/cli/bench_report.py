"""The progress display of `manystream bench`, and its results as text. A text is made of a result's JSON object."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ..bench.figures import WORDS
from ..bench.load import Look
from ..bench.report import PERCENTILES, STAMPS, is_valid, number, numbers, texts
from ..providers.json.json_values import JSON, JSONObject, mapping, objects, string
from .output.terminal import Column, Display, Paint, Table, can_redraw, columns, counted, duration, one_line

PLAIN_SECONDS = 2.0
"""The interval of plain lines, in seconds."""

Style: TypeAlias = Callable[[str, str], str]
"""A function of a text and a style that returns the text with the style, as `Paint` does."""
Cell: TypeAlias = tuple[str, str, Callable[..., str], bool]
"""A column of a table: heading, path of its number, how the number is written, whether it is struck out if invalid."""

STEP_CELLS: tuple[Cell, ...] = (
    ("streams", "load.concurrency", "{:,}".format, False),
    ("events/s", "events_per_second", "{:,.0f}".format, True),
    ("TTFT p50", "ttft.p50", duration, True),
    ("ITL p50", "itl.p50", duration, True),
    ("ITL p99", "itl.p99", duration, True),
    ("longest", "itl.longest", duration, True),
    ("client CPU", "client.cpu_share", "{:.0%}".format, False),
    ("loop lag", "client.loop_lag", duration, False),
    ("failed", "calls.failed", "{:,}".format, False),
)
RATE_CELLS: tuple[Cell, ...] = (
    ("rate", "offered_rate", "{:,.2f}".format, False),
    ("calls/s", "calls_per_second", "{:,.2f}".format, True),
    ("TTFT p50", "ttft.p50", duration, True),
    ("TTFT p99", "ttft.p99", duration, True),
    ("TPOT p50", "tpot.p50", duration, True),
    ("E2EL p99", "e2el.p99", duration, True),
    ("kept", "attained", "{:.1%}".format, True),
    ("at least", "attained_at_least", "{:.1%}".format, True),
)
DIFFERENCE_COLUMNS = columns("<figure  before  after  change  95 % interval  <real")


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


# --- one run ---


def unstyled(text: str, _: str) -> str:
    return text


def plain(text: str, style: str) -> str:
    """Return a text without styles: what is struck out stands between two tildes."""
    return f"~~{text}~~" if style == "strike" else text


def run_lines(page: JSONObject, paint: Paint) -> list[str]:
    rows = run_rows(page, paint if paint.styled else plain)
    width = max(len(name) for name, _ in rows)
    lines = [f"{paint(name.ljust(width), 'dim')}  {text}" for name, text in rows]
    return [*lines, verdict_line(page, paint), *(paint(f"note: {note}", "yellow") for note in texts(page, "warnings"))]


def verdict_line(page: JSONObject, style: Style = plain) -> str:
    """Return the stamp of a run, its reasons, and the largest load that would be valid."""
    valid, validity = is_valid(page), mapping(page, "validity")
    parts = texts(validity, "reasons")
    largest = number(validity, "largest_valid_load")
    if largest is not None:
        unit = (string(validity, "load_unit") or "").replace("per", "a")
        much = f"{largest:,.0f}" if largest >= 10 else f"{largest:.1f}"
        parts.append(f"the largest valid load of this client is about {much} {unit}")
    word = style(STAMPS[valid], {True: "green", False: "red", None: "yellow"}[valid])
    return f"{word}: {'; '.join(parts)}" if parts else word


def run_rows(page: JSONObject, style: Style = unstyled) -> list[tuple[str, str]]:
    """Return the result of one run as rows of a name and a text."""

    def mark(text: str) -> str:
        return style(text, "strike") if is_valid(page) is False else text

    def amount(path: str) -> float:
        return number(page, path) or 0

    calls, failures = f"{amount('calls.ok'):,} ok", mapping(page, "failures")
    if amount("calls.ok"):
        calls += " (" + mark(f"{amount('calls_per_second'):,.1f}/s") + ")"
    kinds = ", ".join(f"{category} {failures[category]:,}" for category in sorted(failures))
    calls += ", " + (style(f"{amount('calls.failed'):,} failed", "red") + f" ({kinds})" if failures else "0 failed")
    if amount("calls.unfinished"):
        calls += f", {amount('calls.unfinished'):,} cut at the end"
    rows = [("calls", calls)]
    if page["first_failure"]:
        rows.append(("first failure", one_line(str(page["first_failure"]))))
    figures = [(word, mark(_figure_text(page, name))) for name, word in WORDS.items() if amount(f"{name}.count")]
    if not (figures or amount("calls.ok") or amount("events")):
        return rows
    rows += figures
    if page["slo"]:
        objective = ", ".join(f"{name} {duration(number(page, f'slo.{name}'))}" for name in mapping(page, "slo"))
        kept = f"{amount('good_calls'):,} of {amount('calls.due'):,} calls kept {objective}"
        rows.append(("goodput", mark(f"{amount('goodput'):,.1f}/s") + f", {kept}"))
    if page["stream"]:
        rate = mark(f"{amount('events_per_second'):,.0f}/s")
        rows.append(("events", f"{rate}, {amount('events'):,} in {amount('seconds'):.1f} s"))
    if amount("calls.ok"):
        tokens = amount("output_tokens_per_second")
        rows.append(("output tokens", mark(f"{tokens:,.0f}/s") if tokens else "the server reported none"))
    return [*rows, *_client_rows(page, amount)]


def _figure_text(page: JSONObject, name: str) -> str:
    text = ", ".join(f"{word} {duration(number(page, f'{name}.{word}'))}" for word in PERCENTILES)
    interval = numbers(mapping(mapping(page, name), "intervals"), "p99")
    if interval:
        text += " ({} to {})".format(*map(duration, interval))
    return f"{text}, longest {duration(number(page, f'{name}.longest'))}"


def _client_rows(page: JSONObject, amount: Callable[[str], float]) -> list[tuple[str, str]]:
    share, events, processes = amount("client.cpu_share"), amount("events"), amount("client.processes")
    parts: list[str] = []
    if events:
        cost = duration(share * amount("seconds") / events)
        parts.append(f"{cost} of processor time per {'event' if page['stream'] else 'call'}")
    parts.append(f"{share:.0%} of {'one core' if processes == 1 else f'{processes} cores'}")
    parts.append(f"loop lag {duration(amount('client.loop_lag'))}")
    reads, simulator = number(page, "client.read_delay.p99"), number(page, "simulator.cpu_share")
    if reads is not None:
        parts.append(f"bytes read after {duration(reads)} (p99)")
    rows = [("this client", ", ".join(parts))]
    added = [duration(number(page, f"validity.calibration.{name}")) for name in ("p50", "p99")]
    if mapping(page, "validity")["calibration"]:
        rows.append(("calibration", "this client adds {} (p50), {} (p99)".format(*added)))
    if simulator is not None:
        rows.append(("simulator", f"{simulator:.0%} of one core"))
    reuses = counted(round(amount("connections.reused")), "reuse", "reuses")
    return [*rows, ("connections", f"{amount('connections.opened'):,} opened, {reuses}")]


# --- several runs ---


def _table(cells: Sequence[Cell], steps: Sequence[JSONObject], verdicts: Sequence[str]) -> str:
    """Return a table with a row for each step."""
    rows: list[list[str]] = []
    for step, verdict in zip(steps, verdicts, strict=True):
        valid = is_valid(step)
        row = [
            plain(form(number(step, path)), "strike" if struck and valid is False else "")
            for _, path, form, struck in cells
        ]
        rows.append([*row, STAMPS[valid], verdict])
    return "\n".join(Table([*(Column(cell[0]) for cell in cells), *columns("<stamp  <verdict")], rows).lines())


def why_not(step: JSONObject, bound: float | None) -> str:
    """Return why a step of `--streams` does not keep the bound, or an empty text. bound: in seconds."""
    gap, silent = number(step, "itl.p99"), number(step, "silent")
    if step["interrupted"]:
        return "interrupted"
    if step["failures"]:
        return "calls failed"
    if silent:
        return f"{silent:,} without content"
    if gap is None:
        return "no gaps to measure"
    return f"p99 above {duration(bound)}" if bound is not None and gap > bound else ""


def streams_lines(page: JSONObject, paint: Paint) -> list[str]:
    """Return the result of `--streams` as lines of text."""
    steps, bound = objects(page, "steps"), number(page, "max_gap")
    count = paint(f"{page['most_streams']:,}", "bold")
    return [
        _table(STEP_CELLS, steps, [why_not(step, bound) or "holds" for step in steps]),
        f"\nmost streams whose p99 of the gaps stayed within {duration(bound)}: {count}",
        *_first_failure(steps),
    ]


def search_lines(page: JSONObject, paint: Paint) -> list[str]:
    """Return a search as lines of text: the curve of latency over the rate, and the result."""
    steps, best = objects(page, "steps"), number(page, "highest_rate")
    words: dict[JSON, str] = {True: "keeps", False: "fails", None: "unsure"}
    lines = [_table(RATE_CELLS, steps, [words[step["keeps"]] for step in steps]), ""]
    share = f"{number(page, 'attain'):.0%} of the calls"
    if best is None:
        lines.append(f"no rate kept the objective for {share}")
        lines += [paint(f"note: {note}", "yellow") for note in texts(steps[0], "warnings")] if steps else []
    else:
        sure = "with a confidence of 95 %" if page["certain"] else "by its share alone: more --seconds would decide it"
        rate = paint(f"{best:,.2f}", "bold")
        lines.append(f"highest rate that kept the objective for {share}: {rate} a second, {sure}")
    if page["limited_by_client"]:
        lines.append("above it, this client was the limit and not the server: use --workers")
    return [*lines, *_first_failure(steps)]


def _first_failure(steps: Sequence[JSONObject]) -> list[str]:
    failures = [str(step["first_failure"]) for step in steps if step["first_failure"]]
    return [f"first failure: {one_line(failures[0])}"] if failures else []


def comparison_lines(found: JSONObject, files: Sequence[str], pages: Sequence[JSONObject], paint: Paint) -> list[str]:
    """Return the comparison of the results in two files as lines of text."""
    words: dict[JSON, str] = {True: "yes", False: "no", None: "unknown: too few windows"}
    rows = [
        [
            f"{WORDS[str(one['figure'])]} {one['percentile']}",
            duration(number(one, "before")),
            duration(number(one, "after")),
            f"{number(one, 'change') or 0:+.1%}",
            "{:+.1%} to {:+.1%}".format(*numbers(one, "interval")) if one["interval"] else "–",
            words[one["real"]],
        ]
        for one in objects(found, "differences")
    ]
    lines = Table(DIFFERENCE_COLUMNS, rows).lines() if rows else ["the results have no figure in common"]
    lines += [paint(f"note: the results have another {setting}", "yellow") for setting in texts(found, "settings")]
    wrong = [one_line(file) for file, page in zip(files, pages, strict=True) if is_valid(page) is False]
    return [*lines, *(paint(f"INVALID: {file}: its client was the limit", "red") for file in wrong)]
