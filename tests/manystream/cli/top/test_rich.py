"""The screen of `manystream top` with rich: what a terminal shows during the command and after it."""

import re
import sys
import threading
from contextlib import closing, redirect_stdout

import pytest

from manystream.cli.output.terminal import Display
from manystream.cli.top.view import View
from manystream.providers.json.json_values import JSONObject
from tests.support.commands import Terminal

pytest.importorskip("rich")

STYLE = re.compile(r"\x1b\[[0-9;]*m")
SNAPSHOT: JSONObject = {
    "manystream": "1.2.3",
    "pid": 4711,
    "uptime": 65.0,
    "quietest": [{"number": 12, "provider": "openai", "model": "[red]gpt", "state": "reading", "stream": True,
        "age": 90.0, "quiet": 1.5, "attempts": 1, "request_id": "r" * 25}],
    "statistics": {"calls": {"reading": 1}, "providers": {"openai": {"running": 1}}},
}  # fmt: skip
LAST = """\
manystream 1.2.3, process 4711, up 1:05
calls    1 running, 0 of them streams: reading 1
rates    0 events/s, 0.0 calls ended/s, 0B/s in, 0B/s out
total    0 calls started, 0 ended, 0 failed, 0 retries; 0 events; connections 0 opened, 0 reused
loop lag 0 µs (the slowest iteration of the last second)
providers

 provider   running   events/s   ended/s   ended   failed   by category
 ──────────────────────────────────────────────────────────────────────
 openai           1          0       0.0       0        0

connections

 origin   active   idle   connecting   calls waiting
 ───────────────────────────────────────────────────

calls, silent for longest first

 call   provider   model      phase         age   silent for   attempt   request id
 ────────────────────────────────────────────────────────────────────────────────────────────────
   12   openai     [red]gpt   reading   90.00 s       1.50 s         1   rrrrrrrrrrrrrrrrrrrrrrr…
"""


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in (("TERM", "xterm"), ("COLUMNS", "120"), ("LINES", "30")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def plain(shown: str) -> str:
    """Return what a terminal shows, without styles and without spaces at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in STYLE.sub("", shown).splitlines())


def test_the_last_view_stays_on_the_normal_screen(terminal: Terminal) -> None:
    with redirect_stdout(terminal), closing(Display(sys.stdout, screen=True)) as screen:
        screen.draw(View(SNAPSHOT | {"pid": 1}, sort="quiet", calls=5).parts())
        screen.draw(View(SNAPSHOT, sort="quiet", calls=5).parts())
        during = terminal.getvalue()
    assert during.startswith("\x1b[?1049h")
    assert during.count("\x1b[?1049h") == 1
    assert "process 1," in during
    assert "process 4711," in during
    assert "\x1b[?1049l" not in during
    _, _, after = terminal.getvalue().rpartition("\x1b[?1049l")
    assert plain(after).rstrip() == LAST.rstrip()


def test_headings_and_titles_are_bold_and_columns_dim(terminal: Terminal) -> None:
    with redirect_stdout(terminal), closing(Display(sys.stdout, screen=True)) as screen:
        screen.draw(View(SNAPSHOT, sort="quiet", calls=5).parts())
    _, _, after = terminal.getvalue().rpartition("\x1b[?1049l")
    bold = [plain(line).strip() for line in after.splitlines() if line.startswith("\x1b[1m")]
    assert bold == [
        "manystream 1.2.3, process 4711, up 1:05", "providers", "connections", "calls, silent for longest first",
    ]  # fmt: skip
    dim = [plain(line).split()[0] for line in after.splitlines() if "\x1b[2m" in line]
    assert dim == ["provider", "origin", "call"]


def test_a_narrow_terminal_shows_one_line_for_each_row(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with redirect_stdout(terminal), closing(Display(sys.stdout, screen=True)) as screen:
        screen.draw(View(SNAPSHOT, sort="quiet", calls=5).parts())
    _, _, after = terminal.getvalue().rpartition("\x1b[?1049l")
    table = plain(after).partition("calls, silent for longest first\n")[2].strip().splitlines()
    assert len(table) == 3, "the heading, a line, and one call"


def test_a_page_that_is_longer_than_the_terminal_is_cut(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "8")
    with redirect_stdout(terminal), closing(Display(sys.stdout, screen=True)) as screen:
        screen.draw(View(SNAPSHOT, sort="quiet", calls=5).parts())
        lines = plain(terminal.getvalue()).splitlines()
    assert len(lines) == 8
    assert lines[-1].split()[:3] == ["provider", "running", "events/s"]


def test_the_screen_draws_without_a_thread(terminal: Terminal) -> None:
    before = threading.active_count()
    with redirect_stdout(terminal), closing(Display(sys.stdout, screen=True)) as screen:
        screen.draw(View(SNAPSHOT, sort="quiet", calls=5).parts())
        assert threading.active_count() == before


def test_a_screen_without_a_view_writes_nothing(terminal: Terminal) -> None:
    with redirect_stdout(terminal), closing(Display(sys.stdout, screen=True)):
        pass
    assert terminal.getvalue() == ""
