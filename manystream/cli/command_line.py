"""The command `manystream`: which commands there are, and what the shell is told.

Each command is a module here with `add_arguments` and `run`. What goes wrong in one is a line on standard error and an
exit status: 1 it failed, 2 it was called wrongly, 130 it was interrupted. Must not know what a command does.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from ..engine.monitor import MonitorError
from . import batch, bench, completion, demo, doctor, run, simulate, top
from .errors import CommandError

DESCRIPTION = """\
Thousands of live language-model streams on one core.

  manystream demo                                 a thousand streams over four dialects, checked to the last byte
  manystream run "Why is the sky blue?"           ask a provider; the answer is streamed to the terminal
  manystream batch prompts.jsonl -o answers.jsonl a file of prompts in, a file of answers out, resumable
  manystream doctor                               can every configured provider be reached? No prompt is sent
  manystream top                                  a live view of a running engine, from another terminal
  manystream bench http://127.0.0.1:8000/v1       latency, gaps, rates: of an endpoint, a proxy, this machine
  manystream simulate                             the simulator of the four dialects, to try clients against
  manystream completion bash                      what makes a shell complete all this
"""

EPILOG = """\
Keys come from the environment (ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or GOOGLE_API_KEY, and those of the
providers that `manystream run --help` lists) or from ~/.config/manystream/credentials.json. No key is needed for
`demo`, `simulate`, `bench` without a URL and `batch` without a model, nor for a server of your own (`manystream run
--base-url http://127.0.0.1:8000/v1 …`).
`manystream COMMAND --help` explains a command, with examples. Exit status: 0 well, 1 failed, 2 called wrongly,
130 interrupted (Ctrl-C; what there is by then is shown)."""


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


COMMANDS: dict[str, Command] = {
    "demo": demo,
    "run": run,
    "batch": batch,
    "doctor": doctor,
    "top": top,
    "bench": bench,
    "simulate": simulate,
    "completion": completion,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: the process's own). Gives the exit status and never raises."""
    parser = command_parser()
    try:
        arguments = parser.parse_args(argv, argparse.Namespace(parser=parser))  # `completion` reads it
    except SystemExit as end:  # argparse has written the help, or what is wrong
        return end.code if isinstance(end.code, int) else 2
    name: str | None = arguments.command
    if name is None:
        parser.print_help()
        return 0
    try:
        return COMMANDS[name].run(arguments)
    except (CommandError, MonitorError) as error:
        print(f"manystream {name}: {error}", file=sys.stderr)
        return error.status if isinstance(error, CommandError) else 1
    except (KeyboardInterrupt, BrokenPipeError, BaseExceptionGroup) as error:
        status = _status_of(error)
        if status is None:
            raise
        return status


def _status_of(error: BaseException) -> int | None:
    """The exit status of what ended a command from outside, alone or in the groups that nurseries make; None where it
    is anything else."""
    ends = _leaves(error)
    if all(isinstance(end, KeyboardInterrupt) for end in ends):
        return 130
    if all(isinstance(end, KeyboardInterrupt | BrokenPipeError) for end in ends):
        # Who read our output has gone (`manystream run … | head`). Python would complain once more when it flushes
        # at exit, so the output leads nowhere from here on.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return None


def _leaves(error: BaseException) -> list[BaseException]:
    """What a group holds, and the groups in it; an error that is none, itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [leaf for part in parts for leaf in _leaves(part)]


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
    from .. import __version__

    return __version__
