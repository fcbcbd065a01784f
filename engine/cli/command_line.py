"""The command `manystream`: which commands there are, and what the shell is told.

Each command is a module here with `add_arguments` and `run`. What goes wrong in one is a line on standard error and an
exit status: 1 it failed, 2 it was called wrongly, 130 it was interrupted. Must not know what a command does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from . import batch, demo, doctor, run, simulate
from .errors import CommandError

DESCRIPTION = """\
Thousands of live language-model streams on one core.

  manystream demo                                 a thousand streams over four dialects, checked to the last byte
  manystream run "Why is the sky blue?"           ask a provider; the answer is streamed to the terminal
  manystream batch prompts.jsonl -o answers.jsonl a file of prompts in, a file of answers out, resumable
  manystream doctor                               can every configured provider be reached? No prompt is sent
  manystream simulate                             the simulator of the four dialects, to try clients against
"""

EPILOG = """\
Keys come from the environment: ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or GOOGLE_API_KEY. No key is needed
for `demo`, `simulate`, and `batch` without a model, nor for a server of your own (`manystream run --base-url
http://127.0.0.1:8000/v1 …`).
`manystream COMMAND --help` explains a command's options. Exit status: 0 well, 1 failed, 2 called wrongly,
130 interrupted."""


class Command(Protocol):
    """What a command's module offers."""

    @property
    def HELP(self) -> str:
        """What it does, in a line."""
        ...

    @property
    def DESCRIPTION(self) -> str:
        """What it does, for its own help."""
        ...

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; the exit status. Raises `CommandError` for what one line can say."""
        ...


COMMANDS: dict[str, Command] = {"demo": demo, "doctor": doctor, "run": run, "batch": batch, "simulate": simulate}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's own). Gives the exit status and never raises."""
    parser = command_parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as end:  # argparse has written the help, or what is wrong
        return end.code if isinstance(end.code, int) else 2
    name: str | None = arguments.command
    if name is None:
        parser.print_help()
        return 0
    try:
        return COMMANDS[name].run(arguments)
    except CommandError as error:
        print(f"manystream {name}: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Who read our output has gone (`manystream run … | head`). Python would complain once more when it flushes
        # at exit, so the output leads nowhere from here on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def command_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="manystream",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"manystream {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, command in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=command.HELP,
            description=command.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
    return parser


def _version() -> str:
    from ... import __version__

    return __version__
