"""The command `manystream whatif`: what would have happened to recorded calls under other options."""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import InvalidRequestError, Traffic
from ..providers.json.json_values import dumps_printable
from ..simulator.knobs import read_options, readers_of
from ..whatif.fit import Server
from ..whatif.recorded import MOST_KEYS, RecordingError
from ..whatif.report import Report, tables, verdict
from ..whatif.report import run as run_whatif
from .options import add_value, check_new, write_new
from .output.errors import CommandError
from .output.terminal import harmless

DESCRIPTION = """\
Show what would have happened to the calls of a recording (engine.record) under other limits, routes, keys and prices.
The engine itself runs, in simulated time, against servers that are fitted to the recording. Nothing is sent.

  manystream whatif monday.jsonl --as-recorded                        do the fitted servers explain Monday?
  manystream whatif monday.jsonl --traffic fleet.py:TRAFFIC --compare
  manystream whatif monday.jsonl --traffic fleet.py:TRAFFIC --server "openai/* requests-per-minute=5000"
"""

EPILOG = """\
exit status:
  0    the figures can be vouched for
  1    the recording cannot be read, or a file cannot be written
  2    the command line is wrong
  3    the figures are INVALID: the first line says why
  130  interrupted"""

INVALID = 3
READERS = readers_of(Server)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add = parser.add_argument
    add("file", metavar="FILE", help="a recording; one without content is enough")
    add(
        "--as-recorded",
        action="store_true",
        help="compare the run with the recording: with --traffic that was in force then; without, only the servers",
    )
    add("--traffic", metavar="FILE:NAME", help="a ms.Traffic in a Python file")
    pair, names = "NAME=VALUE", ", ".join(name.replace("_", "-") for name in READERS)
    add_value(
        parser, "--server", _read_server, f"PROVIDER/MODEL and {pair} pairs of {names}", action="append", default=[],
        metavar="SERVER", help="what is known of servers, such as 'openai/* concurrent=9', * standing for any text;"
        f" repeatable; names: {names}",
    )  # fmt: skip
    add_value(parser, "--keys", _read_keys, f"{pair}, a number from 1 to 1000", action="append", default=[],
              metavar="PROVIDER=N", help="a number of API keys; repeatable")  # fmt: skip
    add_value(parser, "--model", _read_pair, pair, action="append", default=[],
              metavar="OLD=NEW", help="ask for another model or route; repeatable")  # fmt: skip
    add("--compare", action="store_true", help="show the recording beside the run")
    add("--html", metavar="FILE", help="write the report to a new file, as a page with plots (extra: plots)")
    add("--json", action="store_true", help="print the report as JSON")
    add(
        "--seed", type=int, default=0, metavar="N", help="of what is drawn; the same report for the same N (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Make the report, print it, and return the exit status."""
    given = arguments
    if given.traffic is None and not given.as_recorded:
        raise CommandError("give --traffic FILE:NAME, or --as-recorded to check the recording", status=2)
    if given.html is not None:
        check_new("--html", given.html)
    traffic = None if given.traffic is None else _read_traffic(given.traffic)
    try:
        report = run_whatif(
            given.file,
            traffic=traffic,
            servers=dict(given.server),
            keys=dict(given.keys),
            models=dict(given.model),
            as_recorded=given.as_recorded,
            seed=given.seed,
        )
    except RecordingError as error:
        raise CommandError(str(error)) from None
    except InvalidRequestError as error:
        raise CommandError(str(error), status=2) from None
    if given.html is not None:
        from ..whatif.pages import page_of

        write_new(given.html, harmless(page_of(report)))
    print(dumps_printable(report.to_json()).decode() if given.json else "\n".join(_lines(report, given.compare)))
    return 0 if report.valid else INVALID


def _lines(report: Report, compare: bool) -> Sequence[str]:
    lines = [verdict(report), *(f"note: {note}" for note in report.notes)]
    for rows in tables(report, compare=compare):
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines.append("")
        for name, *cells in rows:
            padded = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
            lines.append("  ".join([name.ljust(widths[0]), *padded]))
    return lines


def _read_traffic(given: str) -> Traffic:
    """Return the value of a name in a Python file. Raises `CommandError`."""
    path, _, name = given.rpartition(":")
    if not path or not name:
        raise CommandError(f"--traffic {given}: write FILE.py:NAME", status=2)
    sys.path.insert(0, str(Path(path).absolute().parent))  # it may import its neighbours
    try:
        found: object = runpy.run_path(path)[name]
    except KeyError:
        raise CommandError(f"--traffic: {path} has no {name}", status=2) from None
    except Exception as error:  # the file is the user's own code
        raise CommandError(f"--traffic: cannot run {path}: {type(error).__name__}: {error}", status=2) from None
    finally:
        sys.path.pop(0)
    if not isinstance(found, Traffic):
        raise CommandError(f"--traffic: {name} is no ms.Traffic, but {type(found).__name__}", status=2)
    return found


def _read_server(text: str) -> tuple[str, Server]:
    pattern, _, options = text.strip().partition(" ")
    return pattern, Server(**dict(read_options("--server", options, READERS)))  # type: ignore[arg-type]


def _read_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise ValueError(text)
    return name, value


def _read_keys(text: str) -> tuple[str, int]:
    name, value = _read_pair(text)
    if not 1 <= int(value) <= MOST_KEYS:
        raise ValueError(value)
    return name, int(value)
