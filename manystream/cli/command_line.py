"""The command line of `manystream`: its list of commands, and its exit status.

Each command is a module of this package with `DESCRIPTION`, `add_arguments` and `run`. It is imported when the command
is given: the list of commands and the version need none. An error of a command is one line on standard error and an
exit status: 1 failed, 2 wrong command line, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Protocol, cast

from .output.errors import CommandError
from .output.standard_streams import drop_output, is_output_error, prepare_streams

DESCRIPTION = """\
Thousands of live language-model streams on one core.

  manystream demo                                  run a thousand streams over five dialects, and check every byte
  manystream run "Why is the sky blue?"            send a prompt to a provider, and stream the answer
  manystream batch prompts.jsonl -o answers.jsonl  send every line of a file, and write a file of answers; resumable
  manystream doctor                                check that every configured provider can be reached
  manystream top                                   show a running engine, live, from another terminal
  manystream bench http://127.0.0.1:8000/v1        measure an endpoint, a proxy, or this machine
  manystream whatif monday.jsonl --as-recorded     what would have happened to recorded calls under other limits
  manystream serve --provider anthropic            a local endpoint with quotas, routes and traces, for any client
  manystream simulate                              serve the five dialects on this machine, to test clients
  manystream completion bash                       print a script that completes this command in a shell
"""

EPILOG = """\
Keys are read from environment variables (ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY or GOOGLE_API_KEY, and those
of the other providers that `manystream run --help` lists) or from ~/.config/manystream/credentials.json.
No key is needed for `demo`, `simulate`, `bench` without a URL, `batch --simulate`, or a server on this machine
(`manystream run --base-url http://127.0.0.1:8000/v1 …`).

`manystream COMMAND --help` describes a command, with examples.

exit status:
  0    success
  1    failed
  2    the command line is wrong
  130  interrupted by Ctrl-C; the results so far are shown"""


class Command(Protocol):
    """The members of a command's module."""

    @property
    def DESCRIPTION(self) -> str:
        """What the command does, with examples, for its own help."""
        ...

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options to the parser."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Run the command and return the exit status. Raises `CommandError` for an error that one line describes."""
        ...


COMMANDS: dict[str, str] = {
    "demo": "run a thousand live streams over five dialects from the built-in simulator, and check them all",
    "run": "send one prompt to a provider or a base URL, and stream the answer",
    "batch": "send every line of a file of prompts, and write a file of answers; resumable",
    "doctor": "check key, proxy, DNS, TLS and server of each configured provider",
    "top": "show a running engine, live, from another terminal",
    "bench": "measure an endpoint, a proxy, or this machine, and whether the figures can be trusted",
    "whatif": "show what would have happened to recorded calls under other limits, routes, keys and prices",
    "serve": "serve your providers on this machine, with quotas, routes, budgets and traces",
    "simulate": "run the simulator of the five dialects in the foreground",
    "completion": "print a completion script for bash, zsh or fish",
}
"""Name of a command → what it does, in one line. The module of a command has its name."""

SEVERAL = {"bench": "url", "simulate": "knobs"}
"""Command → its argument of several words. argparse refuses those after an option if there were some before it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit status.

    argv: the arguments; None for those of the process.
    """
    prepare_streams()
    words = sys.argv[1:] if argv is None else argv
    name = next((word for word in words if not word.startswith("-")), "")
    try:
        parser = command_parser(COMMANDS if name == "completion" else {name} & COMMANDS.keys())
        try:
            # `completion` reads the parser.
            arguments, rest = parser.parse_known_args(words, argparse.Namespace(parser=parser))
            several = SEVERAL.get(arguments.command)
            if several is not None and not any(word.startswith("-") for word in rest):
                setattr(arguments, several, [*getattr(arguments, several), *rest])
            elif rest:
                parser.error(f"unrecognized arguments: {' '.join(rest)}")
        except SystemExit as end:  # argparse has written the help or an error
            return end.code if isinstance(end.code, int) else 2
        if not arguments.command:
            parser.print_help()
            return 0
        status = _module(name).run(arguments)
        sys.stdout.flush()  # at exit, Python would report an error in words of its own
        return status
    except CommandError as error:
        print(f"manystream {name}: {error}", file=sys.stderr)
        return error.status
    except (KeyboardInterrupt, OSError, RuntimeError, BaseExceptionGroup) as error:
        failed = _status_of(error, name)
        if failed is None:
            raise
        return failed


def _status_of(error: BaseException, name: str) -> int | None:
    """Return the exit status for Ctrl-C, for an engine without a monitor, and for output that cannot be written; None
    for other errors, which may be in a nursery's exception group.

    130: Ctrl-C. 141: the process that read the output has ended. 1: another reason, which is reported.
    """
    if isinstance(error, RuntimeError):
        from ..engine.monitor import MonitorError

        if isinstance(error, MonitorError):
            print(f"manystream {name}: {error}", file=sys.stderr)
        return 1 if isinstance(error, MonitorError) else None
    ends = _leaves(error)
    if all(isinstance(end, KeyboardInterrupt) for end in ends):
        return 130
    if all(isinstance(end, KeyboardInterrupt | BrokenPipeError) for end in ends):
        drop_output()  # its reader has ended (`manystream run … | head`)
        return 141
    problems = [end for end in ends if isinstance(end, OSError) and is_output_error(end)]
    if len(problems) < sum(not isinstance(end, KeyboardInterrupt) for end in ends):
        return None
    with suppress(OSError):
        print(f"manystream {name}: cannot write the output: {problems[0].strerror}", file=sys.stderr)
    drop_output()
    return 1


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions of a group and of the groups in it; for another exception, a list with it alone."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    parts = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [leaf for part in parts for leaf in _leaves(part)]


def _module(name: str) -> Command:
    return cast("Command", import_module(".top.command" if name == "top" else f".{name}", __package__))


def command_parser(detailed: Collection[str] = COMMANDS.keys()) -> argparse.ArgumentParser:
    """Return the parser of a command line.

    detailed: the commands whose options it knows. Of the others it knows the names and the lines of help.
    """
    parser = argparse.ArgumentParser(
        prog="manystream",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"manystream {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, help_line in COMMANDS.items():
        subparser = commands.add_parser(
            name, help=help_line, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
        )
        if name in detailed:
            command = _module(name)
            subparser.description = command.DESCRIPTION
            command.add_arguments(subparser)
    return parser


def _version() -> str:
    from .. import __version__

    return __version__
