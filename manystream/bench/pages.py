"""A result as one HTML file that needs no network: a table of the figures, and plots by matplotlib (extra: plots)."""

# The types of matplotlib's functions are not complete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import html
import io
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from ..providers.json.json_values import JSON, JSONObject, mapping, objects
from .figures import NAMES, WORDS
from .histogram import Counts, merged, percentile, seconds_of
from .report import FIGURE_MEMBERS, STAMPS, histograms, is_valid, number, texts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawn = TypeVar("Drawn")
Rows: TypeAlias = Sequence[tuple[str, str]]
"""Rows of a name and a text."""
TITLE = "manystream bench"
RESULTS = {
    "highest_rate": "Highest rate that kept the objective, in calls a second",
    "most_streams": "Most streams within the bound",
}
"""Member of a search's report → what it is."""
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .8rem; text-align: right }
td:first-child, tr > :nth-child(2):last-child { text-align: left } tr + tr { border-top: 1px solid #ddd }
.stamp { font-weight: bold; padding: .1rem .6rem; border-radius: .3rem; color: #fff; background: #777 }
.true { background: #2a7d2a } .false { background: #b02020 } .invalid td { text-decoration: line-through }
.missed { color: #b02020 } svg { max-width: 100%; height: auto }
@media print { body { margin: 0; max-width: none } .stamp { print-color-adjust: exact } }
@media print { table, svg { break-inside: avoid } h2 { break-after: avoid } }
"""


def page_of(page: JSONObject, rows: Callable[[JSONObject], Rows]) -> str:
    """Return the HTML page of a result: of one run, or of a search with its curve and each of its steps.

    rows: returns what is shown of a run beside the figures.
    """
    about = ", ".join(_text(page[name]) for name in ("url", "dialect", "model"))
    parts = [f"<h1>{TITLE}</h1>\n<p>{about}</p>", _pairs(mapping(page, "made"))]
    if "steps" not in page:
        drawn = {name: found for name in NAMES if (found := histograms(page, name))}
        return document(TITLE, [*parts, *_run(page, rows(page)), plot(drawn, _draw_shares), plot(drawn, _draw_windows)])
    steps = objects(page, "steps")
    parts += [f"<p>{words}: <b>{_text(page[name])}</b></p>" for name, words in RESULTS.items() if name in page]
    parts.append(plot(steps, _draw_curve))
    for step in steps:
        rate = step.get("offered_rate")
        what = f"{_text(rate)} calls a second" if rate else f"{_text(mapping(step, 'load')['concurrency'])} streams"
        kept = step.get("keeps", step.get("holds"))
        mark = ' <span class="missed">missed the objective</span>' if kept is False else ""
        parts += [f"<h2>{what}{mark}</h2>", *_run(step, rows(step))]
    return document(TITLE, parts)


def document(title: str, parts: Sequence[str]) -> str:
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _run(page: JSONObject, rows: Rows) -> Iterator[str]:
    """Yield the stamp of a run, its figures, the rows and the notes."""
    valid = is_valid(page)
    stamp = f'<span class="stamp {str(valid).lower()}">{STAMPS[valid]}</span>'
    yield f"<p>{stamp} {'; '.join(map(_text, texts(mapping(page, 'validity'), 'reasons')))}</p>"
    marked = ' class="invalid"' if valid is False else ""
    figures: list[Sequence[str]] = [("ms", *FIGURE_MEMBERS)]
    figures += [
        (WORDS[name], *(_cell(column, number(page, f"{name}.{column}")) for column in FIGURE_MEMBERS))
        for name in NAMES
        if number(page, f"{name}.count")
    ]
    for table in (figures, [row for row in rows if row[0] not in WORDS.values()]):
        yield table_of(table, marked)
    yield from (f"<p>{_text(note)}</p>" for note in texts(page, "warnings"))
    load: JSONObject = {**mapping(page, "load"), "form": "streamed" if page.get("stream") else "unstreamed"}
    load |= {"seconds": page.get("seconds"), "objective": mapping(page, "slo")}
    yield _pairs(load)


def table_of(rows: Sequence[Sequence[str]], marked: str = "") -> str:
    """Return a table. marked: its attributes."""
    cells = ("".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows)
    return f"<table{marked}><tr>{'</tr><tr>'.join(cells)}</tr></table>"


def _pairs(members: JSONObject) -> str:
    """Return a table of names and values, without those that are not set."""
    rows = (f"<td>{_text(name)}</td><td>{_text(_plain(value))}</td>" for name, value in members.items() if value)
    return f"<table><tr>{'</tr><tr>'.join(rows)}</tr></table>" if members else ""


def _plain(value: JSON) -> JSON:
    """Return a list or an object as text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} ≤ {bound:g} s" for name, bound in value.items() if isinstance(bound, (int, float)))
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _cell(column: str, value: float | None) -> str:
    return "–" if value is None else f"{value:,}" if column == "count" else f"{value * 1000:,.3f}"


def _text(value: JSON) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else html.escape("–" if value is None else str(value))


# --- plots ---


def plot(data: Drawn, draw: Callable[[Figure, Drawn], None]) -> str:
    """Return a drawing as SVG, or an empty text if there is nothing to draw."""
    if not data:
        return ""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    draw(figure, data)
    written = io.StringIO()
    rcParams["svg.hashsalt"] = TITLE  # else the ids within differ from run to run
    figure.savefig(written, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    return written.getvalue()[written.getvalue().index("<svg") :]


def finish(axes: Axes, title: str, **more: str) -> None:
    """Give axes their title, labels, grid and legend."""
    from matplotlib.ticker import LogFormatter

    axes.set(title=title, **more)
    axes.grid(visible=True, alpha=0.3)
    for axis, scale in ((axes.xaxis, more.get("xscale")), (axes.yaxis, more.get("yscale"))):
        if scale == "log":  # numbers in place of powers of ten, also within one decade
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1.5, 0.5)))
    axes.legend()


def _draw_shares(figure: Figure, windows: dict[str, list[Counts]]) -> None:
    axes = figure.subplots()
    for name, found in windows.items():
        whole = sorted(merged(found).items())
        times = [max(seconds_of(bucket), 1e-6) * 1000 for bucket, _ in whole]
        counts = list(accumulate(count for _, count in whole))
        axes.step(times, [count / counts[-1] for count in counts], where="post", label=WORDS[name])
    finish(axes, "Distribution", xscale="log", xlabel="milliseconds", ylabel="share of the spans")


def _draw_windows(figure: Figure, windows: dict[str, list[Counts]]) -> None:
    axes = figure.subplots()
    for name in ("ttft", "itl"):
        for share, style in ((0.5, "-"), (0.99, "--")):
            found = [(place, percentile(one, share)) for place, one in enumerate(windows.get(name, []), 1)]
            points = [(place, value * 1000) for place, value in found if value is not None]
            axes.plot(*_columns(points), style, label=f"{name.upper()} p{share * 100:g}")
    finish(axes, "Over the run", xlabel="window of the run", ylabel="milliseconds", yscale="log")


def _draw_curve(figure: Figure, steps: list[JSONObject]) -> None:
    for axes, name in zip(figure.subplots(1, 2), ("ttft", "tpot"), strict=True):
        for column in ("p50", "p99"):
            found = [(number(step, "output_tokens_per_second"), number(step, f"{name}.{column}")) for step in steps]
            points = sorted((rate, value * 1000) for rate, value in found if rate is not None and value is not None)
            axes.plot(*_columns(points), "o-", label=f"{name.upper()} {column}")
        finish(axes, name.upper(), xlabel="output tokens per second", ylabel="milliseconds")


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]
