"""Output for a terminal: styles, replaced control characters, amounts, time spans and tables."""

import io
import json
import sys
from decimal import Decimal

import pytest

from manystream.cli.output.terminal import (
    Column,
    Display,
    Paint,
    Table,
    bar,
    can_redraw,
    duration,
    harmless,
    harmless_writer,
    is_terminal,
    money,
    print_table,
)
from manystream.providers.json.json_values import dumps_printable
from tests.support.commands import Terminal


def test_styles_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Paint(io.StringIO())("x", "dim") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint(Terminal())("x", "dim") == "x"


@pytest.mark.parametrize(("style", "code"), [("dim", 2), ("bold", 1), ("red", 31), ("green", 32), ("yellow", 33)])
def test_a_style_is_its_ansi_code_alone(style: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Paint(Terminal())("x", style) == f"\x1b[{code}mx\x1b[0m"


@pytest.mark.parametrize("code", [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x61C, 0x200E, 0x200F])
def test_bidirectional_controls_are_replaced(code: int) -> None:
    assert harmless(f"a{chr(code)}b") == "a\ufffdb"
    printed = dumps_printable({"a": chr(code)})
    assert (printed.decode(), json.loads(printed)) == (f'{{"a":"\\u{code:04x}"}}', {"a": chr(code)})


def test_ordinary_text_is_unchanged() -> None:
    text = "naïve 東京 👩\u200d🚀\tone\ntwo, “quoted” — שלום مرحبا"
    assert harmless(text) == text


HOSTILE = "a\x1b[2J\x07\x9b1mb\x1b[31mred\x1b[0m\r\n\x1b]0;title\x07\r end\r"
SHOWN = "a\ufffd[2J\ufffd\ufffd1mb\ufffd[31mred\ufffd[0m\r\n\ufffd]0;title\ufffd\ufffd end"


@pytest.mark.parametrize("kind", [io.StringIO, Terminal])
def test_a_writer_replaces_controls_at_every_split(kind: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for split in range(len(HOSTILE)):
        stream = kind()
        writer = harmless_writer(stream)
        writer.writelines([HOSTILE[:split], HOSTILE[split:]])
        assert stream.getvalue() == SHOWN
        writer.write("\n")
        assert stream.getvalue() == SHOWN + "\r\n", "the last one began a line end"


def test_the_styles_of_a_writer_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream, other = Terminal(), harmless_writer(Terminal())
    writer = harmless_writer(stream)
    assert harmless_writer(writer) is writer
    print(Paint(writer)("x\x1b[1m", "dim"), Paint(other)("y", "red"), file=writer)
    assert stream.getvalue().startswith("\x1b[2mx\ufffd[1m\x1b[0m \ufffd")
    assert stream.getvalue().count("\x1b") == 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"), (0.0, "0 µs"), (0.0000123, "12 µs"), (0.0000999, "100 µs"), (0.0001, "0.1 ms"),
        (0.00042, "0.4 ms"), (0.0123, "12.3 ms"), (0.99999, "1000.0 ms"), (1.0, "1.00 s"), (2.345, "2.35 s"),
        (1234.5, "1234.50 s"),
    ],
)  # fmt: skip
def test_a_duration_has_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_table_is_aligned() -> None:
    columns = (Column("name", "left"), Column("count"))
    assert Table(columns, [["a", "1"], ["long name", "1,000"]]).lines() == [
        "name       count",
        "a              1",
        "long name  1,000",
    ]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    pytest.importorskip("rich")
    for name, value in (("TERM", "xterm"), ("COLUMNS", "40"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    return Terminal()


@pytest.mark.parametrize("screen", [False, True])
def test_a_display_replaces_control_characters(terminal: Terminal, screen: bool) -> None:
    display = Display(harmless_writer(terminal), screen=screen)
    hostile = "a\x1b[31mb\x07"
    display.draw([hostile, [(hostile, "bold")], Table((Column("c"),), [[hostile]], hostile)])
    display.close()
    assert terminal.getvalue().count("a\ufffd[31mb\ufffd") >= 4
    assert "\x1b[31m" not in terminal.getvalue()
    assert "\x07" not in terminal.getvalue()


def test_a_display_is_redrawn_in_place_and_removed(terminal: Terminal) -> None:
    display = Display(terminal)
    display.close()
    assert terminal.getvalue() == "", "nothing was drawn"
    display.draw(["one", "two"])
    assert "one" in terminal.getvalue(), "it is shown at once"
    before = len(terminal.getvalue())
    display.draw(["three"])
    assert "\x1b[1A" in terminal.getvalue()[before:], "the cursor moves up over the first display"
    before = len(terminal.getvalue())
    display.close()
    assert terminal.getvalue()[before:].endswith("\x1b[2K")
    display.close()


@pytest.mark.parametrize(("tty", "rich", "redrawn"), [(True, True, True), (False, True, False), (True, False, False)])
def test_displays_need_terminal_and_rich(monkeypatch: pytest.MonkeyPatch, tty: bool, rich: bool, redrawn: bool) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    if not rich:
        monkeypatch.setitem(sys.modules, "rich", None)
    assert can_redraw(Terminal() if tty else io.StringIO()) is redrawn


def test_a_bar_is_filled_by_its_part() -> None:
    for done, filled in ((0.0, 0), (0.5, 2), (1.0, 4), (1.5, 4)):
        assert [text for text, _ in bar(done, 4)] == ["━" * filled, "─" * (4 - filled)]


@pytest.mark.parametrize("width", ["30", "60"])
def test_a_table_never_cuts_its_cells(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", width)
    stream = Terminal()
    columns = (Column("name", "left"), Column("first count"), Column("second count"))
    print_table(Table(columns, [["a", "1,000", "2"], ["all", "1,000", "2"]], total=True), stream)
    assert "first count" in stream.getvalue()
    assert "…" not in stream.getvalue()


@pytest.mark.parametrize(
    ("term", "tty", "terminal"),
    [("xterm", True, True), ("xterm", False, False), ("dumb", True, False), ("", True, True), (None, True, True)],
)
def test_a_stream_is_a_terminal_unless_it_is_dumb(
    monkeypatch: pytest.MonkeyPatch, term: str | None, tty: bool, terminal: bool
) -> None:
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    assert is_terminal(Terminal() if tty else io.StringIO()) is terminal


def test_empty_text_has_no_style(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paint = Paint(Terminal())
    assert (paint.styled, paint("", "red")) == (True, "")


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (0x00, False), (0x07, False), (0x08, False), (0x09, True), (0x0A, True), (0x0B, False), (0x0D, False),
        (0x1B, False), (0x1F, False), (0x20, True),
        (0x7E, True), (0x7F, False), (0x80, False), (0x9F, False), (0xA0, True), (0xD7FF, True), (0xD800, False),
        (0xDFFF, False), (0xE000, True), (0xFFFD, True), (0x10FFFF, True),
    ],
)  # fmt: skip
def test_characters_that_are_shown_unchanged(code: int, shown: bool) -> None:
    assert harmless(f"a{chr(code)}b") == f"a{chr(code) if shown else chr(0xFFFD)}b"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0.00"), ("1234.5678", "$1,234.57"), ("0.01", "$0.01"), ("0.00999", "$0.0100"), ("0.0099", "$0.0099"),
        ("0.001", "$0.0010"), ("0.0042251", "$0.0042"), ("0.00000123", "$0.0000012"),
    ],
)  # fmt: skip
def test_amounts_have_two_decimals_or_two_significant_digits(amount: str, text: str) -> None:
    assert money(Decimal(amount), "USD") == text


def test_a_column_is_aligned_to_the_right() -> None:
    assert Column("name").align == "right"
    assert Table((Column("a", "left"), Column("b", "left"), Column("c")), [["x", "", ""]]).lines() == ["a  b  c", "x"]
    assert Table((Column("head", "left"),), []).lines() == ["head"]


COLUMNS = (Column("name", "left"), Column("count"))
ROWS = [["a", "1"], ["long name", "20"], ["all", "21"]]
TEXT = "name       count\na              1\nlong name     20\nall           21\n"


@pytest.mark.parametrize(("tty", "plain"), [(False, False), (True, True)])
def test_a_table_is_plain_text_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, tty: bool, plain: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if tty else io.StringIO()
    print_table(Table(COLUMNS, ROWS, total=True), stream, plain=plain)
    assert stream.getvalue() == TEXT


def test_a_table_on_a_terminal_without_rich_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich", None)
    stream = Terminal()
    print_table(Table(COLUMNS, ROWS, total=True), stream)
    assert stream.getvalue() == TEXT


def rich_table(monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    """Return the lines of a table on a terminal with rich, without styles."""
    pytest.importorskip("rich")
    for name, value in (("TERM", "xterm"), ("COLUMNS", str(width)), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    stream = Terminal()
    print_table(Table(COLUMNS, ROWS, total=True), stream)
    shown = stream.getvalue().replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    return [line.rstrip() for line in shown.splitlines()]


def test_a_table_on_a_terminal_ends_with_the_total_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [
        "", " name        count", " ─────────────────", " a               1", " long name      20", "",
        " all            21", "",
    ]  # fmt: skip
    assert rich_table(monkeypatch, 80) == expected
    assert rich_table(monkeypatch, 19) == expected
    assert rich_table(monkeypatch, 18) == TEXT.splitlines()


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="argument"):
        Table(COLUMNS, [["a", "1", "x"]]).lines()
