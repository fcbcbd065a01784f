"""The defaults of all commands: the value of each option that is left out, and what the help says about it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

import pytest

from manystream.cli.command_line import COMMANDS, command_parser

REQUIRED = {
    "run": ["Hello"],
    "batch": ["prompts.jsonl", "-o", "answers.jsonl"],
    "completion": ["bash"],
    "whatif": ["monday.jsonl"],
}
"""Command → the arguments that it needs."""

DEFAULTS: dict[str, dict[str, object]] = {
    "demo": {"streams": 1000, "seconds": 10.0, "rate": 50.0, "monitor": False, "plain": False},
    "run": {"provider": None, "model": None, "base_url": None, "system": None, "thinking": None, "max_tokens": None,
        "header": [], "attempts": 2, "no_stream": False, "cost": False, "prices": None},
    "batch": {
        "errors": None,
        "model": None,
        "provider": None,
        "base_url": [],
        "route": None,
        "no_adaptive": False,
        "concurrency": 100,
        "max_rps": None,
        "max_tpm": None,
        "budget": None,
        "prices": None,
        "simulate": False,
        "system": None,
        "max_tokens": None,
        "temperature": None,
        "schema": None,
        "attempts": 6,
        "outage": 1800.0,
        "stream": False,
        "retry_failed": False,
        "finish": False,
        "by": None,
        "via": None,
        "json": False,
        "status": None,
        "cache": None,
        "prompt_field": None,
        "escape_formulas": False,
        "shard": None,
        "ray": None,
        "actors": None,
        "monitor": False,
        "plain": False,
    },
    "doctor": {"provider": [], "base_url": None, "timeout": 10.0},
    "top": {"engine": None, "once": False, "json": False, "interval": 1.0, "sort": "quiet", "calls": 10,
        "plain": False},
    "bench": {"url": [], "dialect": "openai-chat", "model": None, "provider": None, "concurrency": None,
        "rate": None, "arrivals": None, "burstiness": None, "trace": None, "slo": None, "find": False, "attain": None,
        "input": None, "output": None, "prefix": 0, "turns": 1, "think": 0.0, "seed": 0, "workers": 1,
        "calibrate": None, "save": None, "html": None,
        "streams": None, "max_gap": None, "seconds": None, "requests": None, "ramp": None, "no_stream": False,
        "max_tokens": None, "header": [],
        "simulate": None, "monitor": False, "json": False},
    "whatif": {"file": "monday.jsonl", "as_recorded": False, "traffic": None, "server": [], "keys": [], "model": [],
        "compare": False, "html": None, "json": False, "seed": 0},
    "serve": {"provider": [], "base_url": None, "traffic": [], "route": [], "budget": [], "host": "127.0.0.1",
        "port": 0, "key": None, "attempts": 6, "keep_alive": 15.0, "queue": 60.0, "grace": 25.0, "trace": None,
        "record": None, "websocket": False, "monitor": False},
    "simulate": {"host": "127.0.0.1", "port": 0, "replay": "", "pace": 1.0, "limit": [], "batch": "", "batch_time": "",
        "caches": "", "replica": [], "knobs": []},
    "completion": {},
}  # fmt: skip
"""Command → the values of the options that are left out."""


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_is_left_out_has_its_default(name: str) -> None:
    given = REQUIRED.get(name, [])
    values = vars(command_parser().parse_args([name, *given]))
    of_command = {option: value for option, value in values.items() if option in DEFAULTS[name]}
    assert of_command == DEFAULTS[name]
    assert values.keys() - of_command.keys() <= {"command", "parser", "prompt", "prompts", "output", "shell"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_names_the_default_that_applies(name: str) -> None:
    """A default that the help writes as a number or one word is the default of the parser."""
    for action in _actions(name):
        written = re.search(r"\(default: ([\d.]+|[a-z-]+)\)", action.help or "")
        if written is not None and action.default is not None:
            assert str(action.default).removesuffix(".0") == written[1], action.dest


def _actions(name: str) -> Sequence[argparse.Action]:
    """Return the options of a command."""
    commands = command_parser()._subparsers  # pyright: ignore[reportPrivateUsage]
    assert commands is not None
    (choice,) = commands._group_actions  # pyright: ignore[reportPrivateUsage]
    assert isinstance(choice.choices, dict)
    parser = choice.choices[name]
    assert isinstance(parser, argparse.ArgumentParser)
    return parser._actions  # pyright: ignore[reportPrivateUsage]
