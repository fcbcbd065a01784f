"""`manystream top`: a running engine, seen from another terminal through its monitor.

Knows the command line, how a monitor is found and asked. Must not know how figures look (`top_view`), nor what the
engine does to tell them (`engine/monitor.py`).
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..engine.monitor import FORMAT, runtime_folder, sockets
from ..providers.json_values import JSONObject, MalformedJSONError, dumps_text, integer, loads_object
from .errors import CommandError
from .terminal import is_terminal
from .top_screen import open_screen
from .top_view import SORTS, Screen, View, rates_between, summary_line

HELP = "a live view of a running engine, from another terminal"
DESCRIPTION = """\
Show what a running engine does: calls by phase, events a second and failures of each provider, connections of each
origin, the loop's lag, and the calls that have been silent, or running, for longest. The engine must have been opened
to be watched, which costs it nothing while nobody looks:

  ms.open_engine(providers=[…], monitor=True)     or monitor="/run/agents.sock"; `manystream batch --monitor`

  manystream top                                  the only engine of this user that can be watched
  manystream top 4711                             that of a process
  manystream top /run/agents.sock                 one with a place of its own
  manystream top --once --json | jq .rates        for scripts

No prompt, no answer and no key can be seen, and only the engine's own user can look.
"""
EPILOG = """\
Without a terminal it prints a line for each look. Ctrl-C ends it.

Exit status: 0 looked once, or the engine has ended; 1 nothing to look at; 2 called wrongly; 130 interrupted.
"""

ANSWER_SECONDS = 10.0
"""How long an engine may take to answer before it counts as held up."""
LEAST_INTERVAL = 0.1


@dataclass(slots=True, frozen=True)
class TopOptions:
    """The command line, checked. interval: seconds between two looks. calls: how many are listed."""

    path: Path
    interval: float
    once: bool
    json: bool
    plain: bool
    sort: str
    calls: int


class EngineEndedError(Exception):
    """The monitor closed the connection: its engine has ended."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "engine", nargs="?", metavar="PATH|PID", help="a monitor's socket, or a process (default: the only one)"
    )
    parser.add_argument("--once", action="store_true", help="look twice, an interval apart, print that, and end")
    parser.add_argument("--json", action="store_true", help="print each look as a line of JSON")
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds between two looks (default: 1)"
    )
    parser.add_argument(
        "--sort", choices=list(SORTS), default="quiet", help="list calls by silence or by age (default: quiet)"
    )
    parser.add_argument("--calls", type=int, default=10, metavar="N", help="calls that are listed (default: 10)")
    parser.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Look until the engine ends; the exit status."""
    options = _read_options(arguments)
    with open_screen(plain=options.plain or options.once or options.json) as screen, _connect(options.path) as looks:
        try:
            _watch(looks, options, screen)
        except EngineEndedError:
            if options.once:
                raise CommandError(f"the engine at {options.path} ended while it was looked at") from None
    if not options.once:
        print("The engine has ended.", file=sys.stderr)
    return 0


def _watch(looks: Iterator[JSONObject], options: TopOptions, screen: Screen) -> None:
    before = next(looks)
    while True:
        time.sleep(options.interval)
        look = next(looks)
        look["rates"] = rates_between(before, look)
        before = look
        view = View(look, sort=options.sort, calls=options.calls)
        if options.json:
            print(dumps_text(look), flush=True)
        elif options.once:
            print("\n".join(view.lines()))
        elif screen.plain:
            print(summary_line(look), flush=True)
        else:
            screen.show(view)
        if options.once:
            return


def _read_options(arguments: argparse.Namespace) -> TopOptions:
    interval: float = arguments.interval
    if not (math.isfinite(interval) and interval >= LEAST_INTERVAL):
        raise CommandError(f"--interval must be at least {LEAST_INTERVAL:g} s, not {interval:g}", status=2)
    if arguments.calls < 0:
        raise CommandError(f"--calls must not be below 0: {arguments.calls}", status=2)
    if not hasattr(socket, "AF_UNIX"):
        raise CommandError("this system has no Unix sockets, which the monitor needs")
    return TopOptions(
        path=find_socket(arguments.engine),
        interval=interval,
        once=arguments.once,
        json=arguments.json,
        plain=arguments.plain or not is_terminal(sys.stdout),
        sort=arguments.sort,
        calls=arguments.calls,
    )


def find_socket(engine: str | None) -> Path:
    """Where to look: a path as it is; a process by its number; without either, the only one. Raises `CommandError`."""
    if engine is not None and not engine.isdecimal():
        return Path(engine)
    folder = runtime_folder()
    found = sockets(folder)
    if engine is not None:
        found = [path for path in found if path.stem.partition("-")[0] == engine]
        if not found:
            raise CommandError(
                f"process {engine} has no engine that can be watched (looked in {folder}): open it with monitor=True,"
                " as the user who looks"
            )
        return found[0]
    if not found:
        raise CommandError(f"no engine can be watched (looked in {folder}): open one with monitor=True, or name a path")
    if len(found) > 1:
        paths = "".join(f"\n  manystream top {path}" for path in found)
        raise CommandError(f"{len(found)} engines can be watched; name one of them:{paths}", status=2)
    return found[0]


@contextmanager
def _connect(path: Path) -> Generator[Iterator[JSONObject], None, None]:
    """A connection to a monitor; each item of the iterator is a look. Raises `CommandError`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(os.fspath(path))
        except ConnectionRefusedError:
            if not path.is_socket():
                raise CommandError(f"{path} is no socket: name the path that monitor= was given") from None
            raise CommandError(f"nothing listens at {path}: its engine has ended, or was killed") from None
        except FileNotFoundError:
            raise CommandError(f"there is nothing at {path}: open the engine with monitor={str(path)!r}") from None
        except PermissionError:
            raise CommandError(f"{path} belongs to another user: only who runs the engine can look") from None
        except OSError as error:
            raise CommandError(f"cannot reach {path}: {error.strerror or error}") from None
        yield _looks(connection, path)


def _looks(connection: socket.socket, path: Path) -> Iterator[JSONObject]:
    pieces: list[bytes] = []
    while True:
        pieces.clear()
        try:
            connection.sendall(b"look\n")
            while not pieces or not pieces[-1].endswith(b"\n"):
                data = connection.recv(1 << 16)
                if not data:
                    raise EngineEndedError
                pieces.append(data)
        except TimeoutError:
            raise CommandError(
                f"the engine at {path} has not answered for {ANSWER_SECONDS:g} s: its thread is held up, by a callback"
                " that does not return for instance"
            ) from None
        except ConnectionError:
            raise EngineEndedError from None
        yield _read_look(b"".join(pieces), path)


def _read_look(answer: bytes, path: Path) -> JSONObject:
    try:
        look = loads_object(answer)
    except MalformedJSONError:
        raise CommandError(f"what listens at {path} is no engine's monitor") from None
    told = integer(look, "format")
    if told != FORMAT:
        raise CommandError(f"the engine at {path} tells format {told}, and this command reads {FORMAT}: use its own")
    return look
