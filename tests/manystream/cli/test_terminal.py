"""Output for a terminal: styles, replaced control characters, amounts, time spans and tables."""

from __future__ import annotations

import io

import pytest

from manystream.cli.terminal import (
    Column,
    Paint,
    Redrawn,
    duration,
    harmless,
    is_terminal,
    print_table,
    text_table,
)


class Terminal(io.StringIO):
    """An output stream whose `isatty` returns True."""

    def isatty(self) -> bool:
        return True


def test_styles_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Paint(Terminal())("x", "dim") == "\x1b[2mx\x1b[0m"
    assert Paint(io.StringIO())("x", "dim") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint(Terminal())("x", "dim") == "x"
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(Terminal())


@pytest.mark.parametrize(("style", "code"), [("dim", 2), ("bold", 1), ("red", 31), ("green", 32), ("yellow", 33)])
def test_a_style_is_its_ansi_code_alone(style: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Paint(Terminal())("x", style) == f"\x1b[{code}mx\x1b[0m"


@pytest.mark.parametrize("text", ["\x1b[2J", "\x07", "\x9b31m", "\r", "\x00", "\x7f"])
def test_foreign_text_cannot_control_the_terminal(text: str) -> None:
    shown = harmless(f"a{text}b")
    assert "\ufffd" in shown
    assert not any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in shown)


def test_ordinary_text_is_unchanged() -> None:
    text = "naïve 東京 👩\u200d🚀\tone\ntwo"
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0.0000123, "12 µs"), (0.00042, "0.4 ms"), (0.0123, "12.3 ms"), (2.345, "2.35 s")],
)
def test_a_duration_has_the_unit_that_fits(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_a_table_is_aligned() -> None:
    columns = (Column("name", "left"), Column("count"))
    assert text_table(columns, [["a", "1"], ["long name", "1,000"]]) == [
        "name       count",
        "a              1",
        "long name  1,000",
    ]


def test_redrawing_moves_up_by_the_drawn_lines() -> None:
    stream = Terminal()
    redrawn = Redrawn(stream)
    redrawn.draw(["one", "two"])
    assert stream.getvalue() == "\x1b[2Kone\n\x1b[2Ktwo\n"
    stream.truncate(stream.seek(0))
    redrawn.draw(["three"])
    assert stream.getvalue() == "\x1b[2A\x1b[2Kthree\n\x1b[2K\n"
    stream.truncate(stream.seek(0))
    redrawn.clear()
    assert stream.getvalue() == "\x1b[2A\x1b[2K\n\x1b[2K\n\x1b[2A"


@pytest.mark.parametrize("width", ["30", "60"])
def test_a_table_never_cuts_its_cells(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", width)
    stream = Terminal()
    columns = (Column("name", "left"), Column("first count"), Column("second count"))
    print_table(columns, [["a", "1,000", "2"], ["all", "1,000", "2"]], stream)
    assert "first count" in stream.getvalue()
    assert "…" not in stream.getvalue()
