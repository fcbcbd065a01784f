"""A result as one HTML file that needs no network: a table of the figures, and plots by matplotlib (extra: plots)."""

# The types of matplotlib's functions are not complete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import html
import importlib.util
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..providers.json.json_values import JSON, JSONObject, mapping, objects
from .figures import NAMES, WORDS
from .histogram import Counts, decoded, merged, percentile, seconds_of
from .report import FIGURE_MEMBERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0 } th, td { padding: .2rem .8rem; text-align: right }
th:first-child, td:first-child { text-align: left } tr + tr { border-top: 1px solid #ddd }
.stamp { font-weight: bold; padding: .1rem .6rem; border-radius: .3rem; color: #fff; background: #777 }
.true { background: #2a7d2a } .false { background: #b02020 } .invalid td { text-decoration: line-through }
svg { max-width: 100%; height: auto } pre { background: #f4f4f4; padding: 1rem; overflow: auto }
"""
STAMPS: dict[bool | None, str] = {True: "VALID", False: "INVALID", None: "NOT JUDGED"}


class PlotsError(RuntimeError):
    """matplotlib is not installed."""


def check_plots() -> None:
    """Raise `PlotsError` if plots cannot be drawn."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PlotsError("plots need the library matplotlib: pip install 'manystream[plots]'")


def run_page(page: JSONObject) -> str:
    """Return the page of one run. page: its report."""
    histograms = {name: _histograms(page, name) for name in NAMES}
    drawn = {name: found for name, found in histograms.items() if any(found)}
    parts = [_heading(page), _stamp(page), _figures(page), _plot(drawn, _draw_shares), _plot(drawn, _draw_windows)]
    return _document([part for part in parts if part])


def search_page(page: JSONObject) -> str:
    """Return the page of a search: the curve of latency over the rate or over the streams, and each step."""
    steps = objects(page, "steps")
    parts = [_heading(page)]
    if "highest_rate" in page:
        parts.append(
            f"<p>Highest rate that kept the objective: <b>{_text(page['highest_rate'])}</b> calls a second.</p>"
        )
    if "most_streams" in page:
        parts.append(f"<p>Most streams within the bound: <b>{_text(page['most_streams'])}</b>.</p>")
    parts.append(_plot(steps, _draw_curve))
    for step in steps:
        what = f"{_text(step['offered_rate'])} calls a second" if "offered_rate" in step else (
            f"{_text(mapping(step, 'load').get('concurrency'))} streams"
        )  # fmt: skip
        parts += [f"<h2>{what}</h2>", _stamp(step), _figures(step)]
    return _document(parts)


def _document(parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>manystream bench</title>\n'
        f"<style>{STYLE}</style>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _heading(page: JSONObject) -> str:
    names = ", ".join(_text(page.get(name)) for name in ("url", "dialect", "model"))
    return f"<h1>manystream bench</h1>\n<p>{names}</p>"


def _stamp(page: JSONObject) -> str:
    validity = mapping(page, "validity")
    valid = validity.get("valid")
    word = STAMPS.get(valid if isinstance(valid, bool) else None, "")
    reasons = validity.get("reasons")
    why = "; ".join(_text(reason) for reason in reasons) if isinstance(reasons, list) else ""
    return f'<p><span class="stamp {str(valid).lower()}">{word}</span> {why}</p>'


def _figures(page: JSONObject) -> str:
    invalid = mapping(page, "validity").get("valid") is False
    rows = ["<tr><th>ms</th>" + "".join(f"<th>{column}</th>" for column in FIGURE_MEMBERS) + "</tr>"]
    for name in NAMES:
        figure = mapping(page, name)
        if figure.get("count"):
            cells = "".join(f"<td>{_cell(column, figure.get(column))}</td>" for column in FIGURE_MEMBERS)
            rows.append(f"<tr><td>{WORDS[name]}</td>{cells}</tr>")
    calls = mapping(page, "calls")
    counts = ", ".join(f"{name} {_text(calls[name])}" for name in calls)
    rates = ", ".join(
        f"{name.replace('_', ' ')} {_text(page[name])}"
        for name in ("calls_per_second", "goodput", "output_tokens_per_second")
        if page.get(name) is not None
    )
    notes = page.get("warnings")
    listed = "".join(f"<p>{_text(note)}</p>" for note in notes) if isinstance(notes, list) else ""
    marked = ' class="invalid"' if invalid else ""
    return f"<p>Calls: {counts}. {rates}</p>\n<table{marked}>{''.join(rows)}</table>{listed}"


def _cell(column: str, value: JSON) -> str:
    if not isinstance(value, (int, float)):
        return "–"
    return f"{value:,}" if column == "count" else f"{value * 1000:,.3f}"


def _text(value: JSON) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return html.escape("–" if value is None else str(value))


def _histograms(page: JSONObject, name: str) -> list[Counts]:
    texts = mapping(page, name).get("histograms")
    return [decoded(text) for text in texts if isinstance(text, str)] if isinstance(texts, list) else []


# --- plots ---


def _plot(data: object, draw: object) -> str:
    """Return a drawing as SVG, or an empty text if there is nothing to draw."""
    if not data:
        return ""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    draw(figure, data)  # type: ignore[operator]
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue().partition("<svg")[1] + written.getvalue().partition("<svg")[2]


def _draw_shares(figure: Figure, histograms: dict[str, list[Counts]]) -> None:
    """Draw the share of the spans up to each time."""
    axes: Axes = figure.subplots()
    for name, windows in histograms.items():
        whole = merged(windows)
        total, seen = sum(whole.values()), 0
        times, shares = list[float](), list[float]()
        for bucket in sorted(whole):
            seen += whole[bucket]
            times.append(max(seconds_of(bucket), 1e-6) * 1000)
            shares.append(seen / total)
        axes.step(times, shares, where="post", label=WORDS[name])
    axes.set(xscale="log", xlabel="milliseconds", ylabel="share of the spans", title="Distribution")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()


def _draw_windows(figure: Figure, histograms: dict[str, list[Counts]]) -> None:
    """Draw two percentiles of each window of the run."""
    axes: Axes = figure.subplots()
    for name in ("ttft", "itl"):
        windows = histograms.get(name, [])
        for share, style in ((0.5, "-"), (0.99, "--")):
            found = [(number, percentile(window, share)) for number, window in enumerate(windows, 1) if window]
            times = [value * 1000 for _, value in found if value is not None]
            axes.plot([number for number, _ in found], times, style, label=f"{name.upper()} p{share * 100:g}")
    axes.set(xlabel="window of the run", ylabel="milliseconds", yscale="log", title="Over the run")
    axes.grid(visible=True, alpha=0.3)
    axes.legend()


def _draw_curve(figure: Figure, steps: list[JSONObject]) -> None:
    """Draw the latency over the throughput that each step reached."""
    left, right = figure.subplots(1, 2)
    for axes, name in ((left, "ttft"), (right, "tpot")):
        for column in ("p50", "p99"):
            points = sorted(
                (float(rate), float(value) * 1000)
                for step in steps
                for rate, value in [(step.get("output_tokens_per_second"), mapping(step, name).get(column))]
                if isinstance(rate, (int, float)) and isinstance(value, (int, float))
            )
            axes.plot([x for x, _ in points], [y for _, y in points], "o-", label=f"{name.upper()} {column}")
        axes.set(xlabel="output tokens per second", ylabel="milliseconds", title=name.upper())
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
