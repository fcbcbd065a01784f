"""Output for a terminal: styles, tables, redrawn displays, and texts of amounts and time spans.

rich draws the tables and the displays. Where it is not installed, and without a terminal, commands print plain lines.
"""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias, cast

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

RESET = "reset"
CODES = {
    RESET: "\x1b[0m",
    "dim": "\x1b[2m",
    "bold": "\x1b[1m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "strike": "\x1b[9m",
}
"""Style → the codes that begin it."""

CURRENCY_SIGNS = {"USD": "$"}

BIDIRECTIONAL = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""The characters with the property Bidi_Control: they can show a text in another order than it has."""

UNSAFE = re.compile(rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff{BIDIRECTIONAL}]|\r(?!\n)")
"""The characters that are replaced in foreign text.

They are control characters, which could control the terminal, those of bidirectional text, which could hide what a
line says, and surrogates, which cannot be written. The name of a file holds a surrogate for each byte that is not valid
text. A carriage return before a line feed is a part of a line end; alone, it would overwrite the line.
"""


def is_terminal(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that supports escape sequences."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def harmless(text: str) -> str:
    """Return text with U+FFFD for each control character (except line ends and tabs), those of bidirectional text, and
    each lone surrogate."""
    return UNSAFE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return foreign text in one line: after a line end, it could look like a message of the command."""
    return harmless(" ".join(text.split()))


class HarmlessWriter:
    """A text stream without control characters (`harmless`), whether it leads to a terminal, a file or a pipe.

    The command writes to standard output and standard error through one. So text of others cannot control a terminal,
    nor the terminal of the program that reads the command's output, wherever a message contains it. The styles of
    `Paint` pass: they have a mark that nobody else knows. What moves the cursor is written to `stream` itself.

    stream: the stream that receives the text.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream: TextIO = stream
        self._held = ""  # a carriage return whose line feed may follow
        self._mark = f"\x1b{secrets.token_hex(8)}"
        self._style = re.compile(f"{self._mark}({'|'.join(CODES)});")

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)

    def styled(self, text: str, style: str) -> str:
        """Return the text with marks, which `write` replaces by the style's codes."""
        return f"{self._mark}{style};{text}{self._mark}{RESET};"

    def write(self, text: str) -> int:
        """Write text, and return its length. A carriage return at its end is kept until more text follows."""
        whole = self._held + text
        self._held = "\r" if whole.endswith("\r") else ""
        parts = self._style.split(whole.removesuffix("\r"))
        for place, part in enumerate(parts):
            parts[place] = CODES[part] if place % 2 else harmless(part)
        self.stream.write("".join(parts))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)


def harmless_writer(stream: TextIO) -> TextIO:
    """Return a stream that writes to this one through a `HarmlessWriter`."""
    return stream if isinstance(stream, HarmlessWriter) else cast("TextIO", HarmlessWriter(stream))


def bare(stream: TextIO) -> TextIO:
    """Return the stream below a `HarmlessWriter`, for sequences that move the cursor; any other stream as it is."""
    return stream.stream if isinstance(stream, HarmlessWriter) else stream


class Paint:
    """The styles of one output stream. Without a terminal, or if `NO_COLOR` is set (no-color.org), text has no style.

    styled: whether text has styles.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.styled: bool = is_terminal(stream) and not os.environ.get("NO_COLOR")

    def __call__(self, text: str, style: str) -> str:
        if not (self.styled and text):
            return text
        if isinstance(self._stream, HarmlessWriter):
            return self._stream.styled(text, style)
        return f"{CODES[style]}{text}{CODES[RESET]}"


@dataclass(slots=True, frozen=True)
class Column:
    """A column of a table."""

    heading: str
    align: Literal["left", "right"] = "right"


def columns(headings: str) -> tuple[Column, ...]:
    """Return columns with headings such as `<name  events/s`: two spaces separate them, and `<` aligns to the left."""
    return tuple(
        Column(heading.removeprefix("<"), "left" if heading.startswith("<") else "right")
        for heading in headings.split("  ")
    )


@dataclass(slots=True, frozen=True)
class Table:
    """A table.

    title: the line above the table; empty for none.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    title: str = ""
    total: bool = False

    def lines(self) -> list[str]:
        """Return heading and rows as aligned lines of text, without the title."""
        table = [[column.heading for column in self.columns], *self.rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(self.columns))]
        return [
            "  ".join(
                cell.ljust(width) if column.align == "left" else cell.rjust(width)
                for cell, width, column in zip(row, widths, self.columns, strict=True)
            ).rstrip()
            for row in table
        ]


Part: TypeAlias = str | Sequence[tuple[str, str]] | Table
"""A part of a display: a line, a line of texts that each have a style, or a table."""


def can_redraw(stream: TextIO) -> bool:
    """Return whether a `Display` can draw on the stream: it is a terminal, and rich is installed."""
    return is_terminal(stream) and importlib.util.find_spec("rich") is not None


def bar(done: float, width: int) -> list[tuple[str, str]]:
    """Return a bar as texts with styles. done: the part that is filled, from 0 to 1; more fills it, too."""
    filled = round(width * min(1.0, done))
    return [("━" * filled, ""), ("─" * (width - filled), "dim")]


class Display:
    """Lines and tables on a terminal that are redrawn in the same place, by rich and without a thread.

    stream: a stream for which `can_redraw` is true.
    screen: whether to use the terminal's alternate screen, cut to its height. The last display is then printed on the
        normal screen at the end; otherwise it is removed.
    """

    def __init__(self, stream: TextIO, *, screen: bool = False) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=bare(stream))
        self._live = Live(console=self._console, screen=screen, auto_refresh=False, transient=True)
        self._screen = screen
        self._console.render_lines(_drawn(""))  # imports what the first `draw` needs: tens of milliseconds

    def draw(self, parts: Sequence[Part]) -> None:
        """Show the parts instead of those of the previous `draw`."""
        from rich.console import Group

        if not self._live.is_started:
            self._live.start()
        self._live.update(Group(*map(_drawn, parts)), refresh=True)

    def close(self) -> None:
        if self._live.is_started:
            self._live.stop()
            if self._screen:
                self._console.print(self._live.get_renderable())


def print_table(table: Table, stream: TextIO, *, plain: bool = False) -> None:
    """Print a table: with rich if the stream is a terminal, rich is installed and no cell would be cut.

    plain: whether to print plain text in any case.
    """
    if not plain and can_redraw(stream):
        from rich.console import Console

        console, drawn = Console(file=bare(stream)), _drawn(table)
        if console.measure(drawn, options=console.options.update(max_width=1000)).maximum <= console.width:
            console.print(drawn)
            return
    print("\n".join(table.lines()), file=stream)


def _drawn(part: Part) -> RichText | RichTable:
    """Return a part as rich's value. Control characters in it are replaced: rich writes to the bare stream."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text as RichText

    if isinstance(part, str):
        return RichText(harmless(part))
    if not isinstance(part, Table):
        return RichText.assemble(*((harmless(text), style) for text, style in part))
    table = RichTable(
        title=RichText(harmless(part.title), style="bold") if part.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        header_style="dim",
        pad_edge=False,
        show_footer=part.total,
    )
    rows, total = (part.rows[:-1], part.rows[-1]) if part.total else (part.rows, [""] * len(part.columns))
    for column, cell in zip(part.columns, total, strict=True):
        table.add_column(harmless(column.heading), footer=RichText(harmless(cell)), justify=column.align, no_wrap=True)
    for row in rows:
        table.add_row(*(RichText(harmless(cell)) for cell in row))
    return table


def money(amount: Decimal, currency: str) -> str:
    """Return an amount with two decimals; below a cent, with two significant digits: `$12.34`, `$0.00042`."""
    places = 2 if amount >= Decimal("0.01") or not amount else 1 - amount.adjusted()
    sign = CURRENCY_SIGNS.get(currency)
    return f"{sign}{amount:,.{places}f}" if sign else f"{amount:,.{places}f} {currency}"


def counted(number: int, one: str, many: str) -> str:
    """Return a number and its noun, such as `1 line` or `2,000 lines`."""
    return f"{number:,} {one if number == 1 else many}"


def duration(seconds: float | None) -> str:
    """Return a time span in s, ms or µs, such as `1.25 s`, or a dash for None."""
    if seconds is None:
        return "–"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.1f} ms" if seconds >= 0.0001 else f"{seconds * 1e6:.0f} µs"


def clock(seconds: float) -> str:
    """Return a time span as text, such as `0:59` or `1:02:03`."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def compact(number: float) -> str:
    """Return a number with about three digits, such as `950`, `12.3k` or `4.56M`."""
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if number < limit:
            value = number / divisor
            return f"{value:.0f}" if not unit else f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{unit}"
    return f"{number / 1e9:.2f}G"
