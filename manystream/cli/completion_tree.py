"""The commands, options and arguments of an argparse parser, as a tree. The completion scripts are made from this tree.

argparse has no public interface that lists them, so this module reads its private attributes. No other module does.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]
Words: TypeAlias = Callable[[], Sequence[str]]

FILE_METAVARS = frozenset({"FILE", "PATH", "PATH|PID", "PROMPTS"})
"""Metavars of values that are names of files."""


@dataclass(slots=True, frozen=True)
class Value:
    """The value of an option or an argument.

    name: its metavar.
    words: its possible values; empty for any value.
    files: whether it is the name of a file.
    unfinished: whether each of `words` is only the beginning of a value.
    """

    name: str
    words: tuple[str, ...] = ()
    files: bool = False
    unfinished: bool = False


@dataclass(slots=True, frozen=True)
class Option:
    """An option.

    flags: its names, such as `-o` and `--output`.
    help: its help text.
    value: its value, or None if it has none.
    repeated: whether it may be given several times.
    """

    flags: tuple[str, ...]
    help: str
    value: Value | None
    repeated: bool


@dataclass(slots=True)
class Branch:
    """A command.

    name: its name.
    help: its help text.
    options: its options.
    places: its positional arguments, in order.
    rest: whether the last positional argument may be given several times.
    branches: its own commands.
    """

    name: str
    help: str = ""
    options: list[Option] = field(default_factory=list[Option])
    places: list[Value] = field(default_factory=list[Value])
    rest: bool = False
    branches: list[Branch] = field(default_factory=list["Branch"])


def read_parser(parser: argparse.ArgumentParser, words: Mapping[str, Words], name: str, help: str = "") -> Branch:
    """Return the tree of a parser.

    parser: the parser.
    words: metavar → function that returns the possible values, for values without argparse's `choices`.
    name: the command's name.
    help: the command's help text.
    """
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
    """Return a help text in one line. argparse doubles percent signs; this undoes it."""
    return " ".join((help or "").replace("%%", "%").split())
