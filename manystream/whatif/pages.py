"""The report as one HTML file: its tables, and plots of waiting and use over the day (extra: plots)."""

# The types of matplotlib's functions are not complete.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import html
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
    parts += [plot(report, _draw), *(f"<p>{html.escape(note)}</p>" for note in report.notes)]
    return document(TITLE, parts)


def _draw(figure: Figure, report: Report) -> None:
    """Draw waiting and use over the day."""
    waiting, use = figure.subplots(1, 2)
    for name, figures in (("before", report.before), ("after", report)):
        hours = [hour[-5:] for hour in figures.by_hour]
        waiting.step(hours, [each.wait.mean for each in figures.by_hour.values()], "o-", where="mid", label=name)
        use.step(hours, [each.succeeded for each in figures.by_hour.values()], "o-", where="mid", label=name)
    finish(waiting, "Waiting", xlabel="hour (UTC)", ylabel="mean wait, seconds")
    finish(use, "Use", xlabel="hour (UTC)", ylabel="answers")
