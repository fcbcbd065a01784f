"""The command `manystream top`: it shows a running engine from another terminal, through the engine's monitor."""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from ...engine.monitor import FORMAT, has_own_peer, is_own_folder, runtime_folder, sockets
from ...providers.json.exact_numbers import UnwritableNumberError
from ...providers.json.json_values import JSONObject, MalformedJSONError, dumps_printable, integer, loads_object
from ..output.errors import CommandError
from ..output.terminal import Display, can_redraw
from .view import SORTS, View, rates_between, summary_line

DESCRIPTION = """\
Show a running engine: calls by state, events per second and failures of each provider, connections of each origin, the
loop's lag, and the calls that have received nothing, or have run, for the longest time. The engine must be opened with
a monitor, which costs nothing until `manystream top` connects to it:

  ms.open_engine(providers=[…], monitor=True)     or monitor="/run/agents.sock"; `manystream batch --monitor`

  manystream top                                  the only engine of this user that has a monitor
  manystream top 4711                             the engine of a process
  manystream top /run/agents.sock                 the engine whose monitor has this socket
  manystream top --once --json | jq .rates        one snapshot, for scripts

The monitor shows no prompt, answer or key, and only to the user of the engine's process.
"""
EPILOG = """\
Without a terminal or rich, one line is printed per interval. Ctrl-C ends the command.

exit status:
  0    the engine has ended, or --once has printed its snapshot
  1    no engine was found, or it cannot be reached
  2    the command line is wrong
  130  interrupted
"""

ANSWER_SECONDS = 10.0
"""The longest time to wait for a whole snapshot, in seconds."""
ANSWER_BYTES = 16 << 20
"""The longest snapshot that is read, in bytes. An engine's snapshot lists few calls, and has at most about 1 MiB."""
LEAST_INTERVAL = 0.1
"""The shortest interval between two snapshots, in seconds."""


class EngineEndedError(Exception):
    """The monitor closed the connection, because its engine has ended."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("engine", nargs="?", metavar="PATH|PID", help="a monitor's socket, or a process id (default: the only monitor)")
    add("--once", action="store_true", help="print one snapshot, with rates over one interval, and end")
    add("--json", action="store_true", help="print each snapshot as a line of JSON")
    add("--interval", type=float, default=1.0, metavar="S", help="seconds between two snapshots (default: 1)")
    add(
        "--sort",
        choices=list(SORTS),
        default="quiet",
        help="list first the calls that have been silent (quiet) or have run (age) for longest (default: quiet)",
    )
    add("--calls", type=int, default=10, metavar="N", help="the most calls to list (default: 10)")
    add("--plain", action="store_true", help="print plain lines, also on a terminal")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Show the engine until it ends, and return the exit status."""
    if not LEAST_INTERVAL <= arguments.interval < math.inf:
        reason = f"--interval must be at least {LEAST_INTERVAL:g} s, not {arguments.interval:g}"
        raise CommandError(reason, status=2)
    if arguments.calls < 0:
        raise CommandError(f"--calls must not be below 0: {arguments.calls}", status=2)
    if not hasattr(socket, "AF_UNIX"):
        raise CommandError("this system has no Unix sockets, which the monitor needs")
    path = find_socket(arguments.engine)
    is_plain = arguments.plain or arguments.once or arguments.json or not can_redraw(sys.stdout)
    display = None if is_plain else Display(sys.stdout, screen=True)
    with _connect(path) as snapshots:
        try:
            _watch(snapshots, arguments, path, display)
        except EngineEndedError:
            if arguments.once:
                raise CommandError(f"the engine at {path} ended before the second snapshot") from None
        finally:
            if display is not None:
                display.close()
    if not arguments.once:
        print("The engine has ended.", file=sys.stderr)
    return 0


def _watch(snapshots: Iterator[JSONObject], given: argparse.Namespace, path: Path, display: Display | None) -> None:
    before = next(snapshots)
    while True:
        time.sleep(given.interval)
        snapshot = next(snapshots)
        snapshot["rates"] = rates_between(before, snapshot)
        before = snapshot
        view = View(snapshot, sort=given.sort, calls=given.calls)
        if given.json:
            print(_as_json(snapshot, path), flush=True)
        elif given.once:
            print("\n".join(view.lines()))
        elif display is None:
            print(summary_line(snapshot), flush=True)
        else:
            display.draw(view.parts())
        if given.once:
            return


def _as_json(snapshot: JSONObject, path: Path) -> str:
    try:
        return dumps_printable(snapshot).decode()
    except UnwritableNumberError as error:
        raise CommandError(f"the server at {path} is not an engine's monitor: {error}") from None


def find_socket(engine: str | None) -> Path:
    """Return the path of a monitor's socket. Raises `CommandError`.

    engine: the path itself, or a process id, or None for the only monitor of this user.
    """
    if engine is not None and not engine.isdecimal():
        return Path(engine)
    folder = runtime_folder()
    if os.path.lexists(folder) and not is_own_folder(folder):
        raise CommandError(
            f"{folder} is not this user's alone, so its sockets are not used: delete it, or name a socket"
        )
    found = sockets(folder)
    if engine is not None:
        found = [path for path in found if path.stem.partition("-")[0] == engine]
        if not found:
            raise CommandError(
                f"process {engine} has no engine with a monitor (searched {folder}): open the engine with monitor=True,"
                " and run this command as the same user"
            )
        return found[0]
    if not found:
        raise CommandError(
            f"no engine with a monitor was found (searched {folder}): open one with monitor=True, or name a socket"
        )
    if len(found) > 1:
        paths = "".join(f"\n  manystream top {path}" for path in found)
        raise CommandError(f"{len(found)} engines have a monitor; name one of them:{paths}", status=2)
    return found[0]


@contextmanager
def _connect(path: Path) -> Generator[Iterator[JSONObject], None, None]:
    """Connect to a monitor. Each item of the iterator is a new snapshot. Raises `CommandError`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(os.fspath(path))
            if not has_own_peer(connection) or path.stat().st_uid != os.getuid():
                raise PermissionError
        except ConnectionRefusedError:
            if not path.is_socket():
                raise CommandError(f"{path} is not a socket: name the path that monitor= was given") from None
            raise CommandError(f"nothing listens at {path}: its engine has ended, or was killed") from None
        except FileNotFoundError:
            raise CommandError(f"{path} does not exist: open the engine with monitor={str(path)!r}") from None
        except PermissionError:
            raise CommandError(f"{path} belongs to another user: run this command as the engine's user") from None
        except OSError as error:
            raise CommandError(f"cannot reach {path}: {error.strerror or error}") from None
        yield _snapshots(connection, path)


def _snapshots(connection: socket.socket, path: Path) -> Iterator[JSONObject]:
    while True:
        try:
            answer = _ask(connection, path)
        except TimeoutError:
            raise CommandError(
                f"the engine at {path} has not answered for {ANSWER_SECONDS:g} s: its thread is blocked, for example by"
                " a callback that does not return"
            ) from None
        except ConnectionError:
            raise EngineEndedError from None
        yield _read_snapshot(answer, path)


def _ask(connection: socket.socket, path: Path) -> bytes:
    """Return the next snapshot. Raises `TimeoutError` if the whole of it takes too long."""
    pieces: list[bytes] = []
    size, until = 0, monotonic() + ANSWER_SECONDS
    connection.sendall(b"look\n")
    while not pieces or not pieces[-1].endswith(b"\n"):
        left = until - monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(1 << 16)
        if not data:
            raise EngineEndedError
        pieces.append(data)
        size += len(data)
        if size > ANSWER_BYTES:
            raise CommandError(f"the server at {path} is not an engine's monitor: its answer has no end")
    return b"".join(pieces)


def _read_snapshot(answer: bytes, path: Path) -> JSONObject:
    try:
        snapshot = loads_object(answer)
    except MalformedJSONError:
        raise CommandError(f"the server at {path} is not an engine's monitor") from None
    format = integer(snapshot, "format")
    if format != FORMAT:
        raise CommandError(
            f"the engine at {path} sends format {format}, and this command reads format {FORMAT}: use the command of"
            " the engine's version"
        )
    return snapshot
