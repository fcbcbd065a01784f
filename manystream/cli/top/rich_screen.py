"""The screen of `manystream top` with rich: it draws views on the terminal's alternate screen, cut to its height."""

from __future__ import annotations

import sys

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..output.terminal import bare
from .view import Screen, Section, View


class RichScreen(Screen):
    """A screen with rich. It switches to the terminal's alternate screen with the first view."""

    def __init__(self) -> None:
        self._console = Console(file=bare(sys.stdout))
        self._live: Live | None = None

    def show(self, view: View) -> None:
        if self._live is None:
            self._live = Live(console=self._console, screen=True, auto_refresh=False)
            self._live.start()
        self._live.update(_drawn(view), refresh=True)

    def close(self) -> None:
        """Return to the terminal's normal screen, and print the last view there."""
        if self._live is not None:
            self._live.stop()
            self._console.print(self._live.get_renderable())


def _drawn(view: View) -> Group:
    first, *others = view.heading
    parts: list[Text | Table] = [Text(first, style="bold"), *(Text(line) for line in others)]
    return Group(*parts, *(_table(section) for section in view.sections))


def _table(section: Section) -> Table:
    table = Table(
        title=section.title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        header_style="dim",
        pad_edge=False,
    )
    for column in section.columns:
        table.add_column(column.heading, justify=column.align, no_wrap=True)
    for row in section.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
