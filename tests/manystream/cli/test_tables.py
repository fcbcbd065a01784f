"""The words and numbers of the tables of the commands: what users read on the screen. A new word needs a line here."""

from __future__ import annotations

import pytest

from manystream.cli.command_line import COMMANDS
from tests.support.tables import table

TABLES: dict[str, object] = {
    "cli.top_view.SORTS": {"quiet": "quietest", "age": "oldest"},
    "cli.top_view.PLACES": ("active", "idle", "connecting", "waiting"),
    "cli.top_view.STATES": ("queued", "connecting", "sending", "waiting", "reading", "backoff"),
    "cli.top_view.PROVIDER_COLUMNS": (
        ("provider", "left"),
        ("running", "right"),
        ("events/s", "right"),
        ("ended/s", "right"),
        ("ended", "right"),
        ("failed", "right"),
        ("by category", "left"),
    ),
    "cli.top_view.ORIGIN_COLUMNS": (
        ("origin", "left"),
        ("active", "right"),
        ("idle", "right"),
        ("connecting", "right"),
        ("calls waiting", "right"),
    ),
    "cli.top_view.SCOPE_COLUMNS": (
        ("scope", "left"),
        ("waiting", "right"),
        ("running", "right"),
        ("at most", "right"),
        ("window", "right"),
        ("sent", "right"),
        ("refused", "right"),
        ("held for", "right"),
    ),
    "cli.top_view.LIMIT_COLUMNS": (
        ("scope", "left"),
        ("limit", "left"),
        ("from", "left"),
        ("a second", "right"),
        ("level", "right"),
        ("capacity", "right"),
    ),
    "cli.top_view.ROUTE_COLUMNS": (
        ("route", "left"),
        ("target", "left"),
        ("under way", "right"),
        ("sessions", "right"),
        ("breaker", "left"),
        ("score", "right"),
        ("first event", "right"),
        ("failures", "right"),
        ("waiting", "right"),
        ("sent twice", "right"),
    ),
    "cli.top_view.BUDGET_COLUMNS": (
        ("budget", "left"),
        ("amount", "left"),
        ("spent", "right"),
        ("reserved", "right"),
        ("limit", "right"),
        ("calls waiting", "right"),
        ("begins anew in", "right"),
    ),
    "cli.top_view.CALL_COLUMNS": (
        ("call", "right"),
        ("provider", "left"),
        ("model", "left"),
        ("phase", "left"),
        ("age", "right"),
        ("silent for", "right"),
        ("attempt", "right"),
        ("request id", "left"),
    ),
    "cli.run.CATEGORY_WORDS": {
        "ErrorCategory.AUTH": "the key was refused",
        "ErrorCategory.RATE_LIMIT": "rate limit",
        "ErrorCategory.INVALID_ARG": "the request was refused",
        "ErrorCategory.NOT_FOUND": "not found",
        "ErrorCategory.SERVER": "the server failed",
        "ErrorCategory.TIMEOUT": "timeout",
        "ErrorCategory.CONTENT_FILTER": "stopped by a content filter",
        "ErrorCategory.NETWORK": "network",
        "ErrorCategory.CANCELLED": "interrupted",
        "ErrorCategory.CALLBACK": "internal error",
        "ErrorCategory.UNKNOWN": "failed",
    },
    "cli.demo.PROVIDERS": {
        "openai-chat": "OpenAIChat",
        "openai-responses": "OpenAIResponses",
        "anthropic": "Anthropic",
        "gemini": "Gemini",
    },
    "cli.doctor.STYLES": {"Verdict.OK": "green", "Verdict.NOTE": "yellow", "Verdict.FAIL": "red"},
    "cli.simulate.OPTIONS": (("LIMIT", "Limit"), ("BATCH", "BatchModel"), ("REPLICA", "Replica")),
    "cli.addresses.DIALECT_CLASSES": {
        "openai-chat": "OpenAIChat",
        "openai-responses": "OpenAIResponses",
        "anthropic": "Anthropic",
        "gemini": "Gemini",
    },
    "cli.answer.USAGE_WORDS": (
        ("input_tokens", "in"),
        ("cached_tokens", "from cache"),
        ("cache_write_tokens", "to cache"),
        ("output_tokens", "out"),
        ("thinking_tokens", "thinking"),
    ),
    "cli.bench.DEFAULT_MODELS": {
        "openai-chat": "gpt-5-mini",
        "openai-responses": "gpt-5-mini",
        "anthropic": "claude-sonnet-4-5",
        "gemini": "gemini-2.5-flash",
    },
    "cli.bench.SECONDS": 10.0,
    "cli.bench.STEP_SECONDS": 5.0,
    "cli.bench.SIMULATED": {True: "rate=50,events=250", False: "events=32"},
    "cli.bench_report.STEP_COLUMNS": (
        ("streams", "right"),
        ("events/s", "right"),
        ("first p50", "right"),
        ("gap p50", "right"),
        ("gap p99", "right"),
        ("longest", "right"),
        ("client CPU", "right"),
        ("loop lag", "right"),
        ("failed", "right"),
        ("verdict", "left"),
    ),
    "cli.completion_scripts.SCRIPTS": {"bash": "bash_script", "zsh": "zsh_script", "fish": "fish_script"},
    "cli.completion_tree.FILE_METAVARS": {"FILE", "PATH", "PATH|PID", "PROMPTS"},
    "cli.connectivity.ANSWERS": {
        401: ("Verdict.FAIL", "the key was refused"),
        403: ("Verdict.FAIL", "the key lacks a permission, or this region is not served"),
        404: ("Verdict.NOTE", "the server answers, but lists no models here; is the base URL right?"),
        405: ("Verdict.NOTE", "the server answers, but lists no models, so the key was not tried"),
        407: ("Verdict.FAIL", "a proxy requires a password"),
        429: ("Verdict.NOTE", "the server answers, and reports that the rate limit is reached"),
    },
    "cli.demo_display.FINAL_COLUMNS": (
        ("dialect", "left"),
        ("streams", "right"),
        ("done", "right"),
        ("errors", "right"),
        ("events", "right"),
        ("events/s", "right"),
        ("p50", "right"),
        ("p99", "right"),
    ),
    "cli.demo_display.LIVE_COLUMNS": (
        ("dialect", "left"),
        ("open", "right"),
        ("events/s", "right"),
        ("p50", "right"),
        ("p99", "right"),
        ("errors", "right"),
    ),
    "cli.demo_streams.MIXTURE": (
        ("text", True, 0),
        ("thinking", False, 0),
        ("mixed", True, 2),
        ("text", False, 0),
        ("thinking", True, 0),
        ("mixed", False, 3),
    ),
    "cli.terminal.CURRENCY_SIGNS": {"USD": "$"},
    "cli.terminal.STYLES": {
        "dim": "\x1b[2m",
        "bold": "\x1b[1m",
        "red": "\x1b[31m",
        "green": "\x1b[32m",
        "yellow": "\x1b[33m",
    },
}
"""Module and name of a table → its whole content."""


@pytest.mark.parametrize("place", TABLES)
def test_a_table_has_these_words_and_no_others(place: str) -> None:
    assert table(place) == TABLES[place]


def test_these_are_the_commands() -> None:
    modules = {name: module.__name__ for name, module in COMMANDS.items()}
    names = ("demo", "run", "batch", "doctor", "top", "bench", "simulate", "completion")
    assert modules == {name: f"manystream.cli.{name}" for name in names}
