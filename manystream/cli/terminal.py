"""Writing to a person: styles where there is a terminal, plain text where there is none, and tables in both.

Knows terminals. Must not know models or commands. rich draws tables where it is installed; nothing needs it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, TextIO

RESET = "\x1b[0m"
STYLES = {"dim": "\x1b[2m", "bold": "\x1b[1m", "red": "\x1b[31m", "green": "\x1b[32m", "yellow": "\x1b[33m"}
ERASE_LINE = "\x1b[2K"
CURRENCY_SIGNS = {"USD": "$"}

UNSAFE = {
    code: "\ufffd"
    for code in (*range(0x20), 0x7F, *range(0x80, 0xA0), *range(0xD800, 0xE000))
    if chr(code) not in "\n\t"
}
"""Control characters: text from outside must not be able to steer a person's terminal. And surrogates, which a file's
name holds for bytes that are no text: they cannot be written."""


def is_terminal(stream: TextIO) -> bool:
    """Whether a person sees what is written, and escape sequences work."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def harmless(text: str) -> str:
    """Text from outside without control characters other than line ends and tabs, and without lone surrogates."""
    return text.translate(UNSAFE)


class Paint:
    """Styles for one stream; without a terminal, or with `NO_COLOR` set (no-color.org), text stays as it is."""

    __slots__ = ("styled",)

    def __init__(self, stream: TextIO) -> None:
        self.styled: bool = is_terminal(stream) and not os.environ.get("NO_COLOR")

    def __call__(self, text: str, style: str) -> str:
        return f"{STYLES[style]}{text}{RESET}" if self.styled and text else text


class Redrawn:
    """Lines on a terminal that replace those of the last time."""

    __slots__ = ("_lines", "_stream")

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines in the place of the last ones."""
        up = f"\x1b[{self._lines}A" if self._lines else ""
        more = [""] * (self._lines - len(lines))
        self._stream.write(up + "".join(f"{ERASE_LINE}{line}\n" for line in (*lines, *more)))
        self._stream.flush()
        self._lines = len(lines) + len(more)

    def clear(self) -> None:
        """Take the lines away."""
        if self._lines:
            lines, self._lines = self._lines, 0
            self._stream.write(f"\x1b[{lines}A" + f"{ERASE_LINE}\n" * lines + f"\x1b[{lines}A")


@dataclass(slots=True, frozen=True)
class Column:
    """A table's column: its heading, and to which side its cells are set."""

    heading: str
    align: Literal["left", "right"] = "right"


def text_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The table as aligned lines, heading first."""
    table = [[column.heading for column in columns], *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(columns))]
    return [
        "  ".join(
            cell.ljust(width) if column.align == "left" else cell.rjust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ).rstrip()
        for row in table
    ]


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], stream: TextIO, *, plain: bool = False
) -> None:
    """Print the table; the last row is the sum of the others."""
    if plain or not is_terminal(stream) or not _print_rich_table(columns, rows, stream):
        print("\n".join(text_table(columns, rows)), file=stream)


def _print_rich_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], stream: TextIO) -> bool:
    """Whether rich is there, and the table fits."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    console = Console(file=stream)
    table = Table(box=box.SIMPLE_HEAD, show_footer=True)
    for place, column in enumerate(columns):
        table.add_column(column.heading, footer=rows[-1][place], justify=column.align, no_wrap=True)
    for row in rows[:-1]:
        table.add_row(*row)
    if console.measure(table, options=console.options.update(max_width=1000)).maximum > console.width:
        return False  # it would cut the cells; plain lines only wrap
    console.print(table)
    return True


def money(amount: Decimal, currency: str) -> str:
    """An amount to the cent; below a cent, two figures: `$12.34`, `$0.00042`."""
    places = 2 if amount >= Decimal("0.01") or not amount else 1 - amount.adjusted()
    sign = CURRENCY_SIGNS.get(currency)
    return f"{sign}{amount:,.{places}f}" if sign else f"{amount:,.{places}f} {currency}"


def duration(seconds: float | None) -> str:
    """A time span with the unit that fits it; a dash for none."""
    if seconds is None:
        return "–"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.0001 else f"{seconds * 1e6:.0f} µs"
