"""The report as one HTML file: its tables, and plots of waiting and use over the day (extra: plots)."""

# The types of matplotlib's functions are not complete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import html
from functools import partial
from typing import TYPE_CHECKING

from ..bench.pages import document, finish, plot, table_of
from .report import Report, tables, verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "manystream whatif"


def page_of(report: Report) -> str:
    """Return the page of a report, with the recording before and the run after."""
    first = f'<span class="stamp {str(report.valid).lower()}">{html.escape(verdict(report))}</span>'
    parts = [f"<h1>{TITLE}</h1>", f"<p>{first}</p>", *(table_of(rows) for rows in tables(report, compare=True))]
    parts += [plot(points, partial(_draw, title)) for title, points in report.use.items()]
    return document(TITLE, [*parts, *(f"<p>{html.escape(note)}</p>" for note in report.notes)])


def _draw(title: str, figure: Figure, points: tuple[tuple[float, ...], ...]) -> None:
    axes = figure.subplots()
    hours = [point[0] / 3600 for point in points]
    for place, name in ((1, "before"), (2, "after")):
        axes.step(hours, [point[place] for point in points], where="post", label=name)
    finish(axes, title, xlabel="hours since the recording began")
