"""What tests of the command line need: a terminal, a pipe, a clock, and an environment without keys."""

import io

import pytest

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "MANYSTREAM_CREDENTIALS")
"""The environment variables from which a command reads keys."""


class Terminal(io.StringIO):
    """An output stream that is a terminal."""

    def isatty(self) -> bool:
        return True


class Pipe(io.StringIO):
    """A standard output that is a pipe: its reader receives only what was flushed."""

    received = ""

    def flush(self) -> None:
        self.received = self.getvalue()


class Clock:
    """A clock whose time, in seconds, the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def remove_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command of this process find no key, neither in the environment nor in a file."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
