"""What a command line can hold, read from its argparse parser: the shells' scripts are made of this and nothing else.

Knows argparse. Must not know any shell, nor what a command does. argparse has no public way to list what was declared,
so its two underscored lists are read here, and nowhere else.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]
Words: TypeAlias = Callable[[], Sequence[str]]

FILE_METAVARS = frozenset({"FILE", "PATH", "PATH|PID", "PROMPTS"})
"""Values that are files: their names in the help say so."""


@dataclass(slots=True, frozen=True)
class Value:
    """What an option or a place takes. words: all it may be; empty: anything. files: a file's name.
    unfinished: each word is only the beginning of the value."""

    name: str
    words: tuple[str, ...] = ()
    files: bool = False
    unfinished: bool = False


@dataclass(slots=True, frozen=True)
class Option:
    """An option. value: None where it takes none."""

    flags: tuple[str, ...]
    help: str
    value: Value | None
    repeated: bool


@dataclass(slots=True)
class Branch:
    """A command, with its options, its places in order, and its own commands. rest: the last place may be filled again
    and again."""

    name: str
    help: str = ""
    options: list[Option] = field(default_factory=list[Option])
    places: list[Value] = field(default_factory=list[Value])
    rest: bool = False
    branches: list[Branch] = field(default_factory=list["Branch"])


def read_parser(parser: argparse.ArgumentParser, words: Mapping[str, Words], name: str, help: str = "") -> Branch:
    """The tree of a parser. words: a value's name in the help → what it may be, where argparse has no choices."""
    branch = Branch(name, help)
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if action.help == argparse.SUPPRESS:
            continue
        if isinstance(action, argparse._SubParsersAction):  # pyright: ignore[reportPrivateUsage]
            commands = cast("Commands", action)
            branch.branches += _read_commands(commands, words)
        elif action.option_strings:
            value = None if action.nargs == 0 else _read_value(action, words)
            repeated = isinstance(action, argparse._AppendAction)  # pyright: ignore[reportPrivateUsage]
            branch.options.append(Option(tuple(action.option_strings), _plain(action.help), value, repeated))
        else:
            branch.places.append(_read_value(action, words))
            branch.rest = action.nargs in ("*", "+")
    return branch


def _read_commands(action: Commands, words: Mapping[str, Words]) -> list[Branch]:
    listed = action._choices_actions  # pyright: ignore[reportPrivateUsage]
    helps = {choice.dest: _plain(choice.help) for choice in listed}
    return [read_parser(parser, words, name, helps.get(name, "")) for name, parser in action.choices.items()]


def _read_value(action: argparse.Action, words: Mapping[str, Words]) -> Value:
    name = action.metavar if isinstance(action.metavar, str) else action.dest
    if action.choices is not None:
        return Value(name, tuple(str(choice) for choice in action.choices))
    found = tuple(words[name]()) if name in words else ()
    return Value(name, found, name in FILE_METAVARS, bool(found) and all(word.endswith("=") for word in found))


def _plain(help: str | None) -> str:
    """A help text in one line; argparse writes a percent sign twice."""
    return " ".join((help or "").replace("%%", "%").split())
