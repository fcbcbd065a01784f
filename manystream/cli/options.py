"""Options that several commands declare, and values that are checked when argparse reads them.

An error of a value is one line that names the option.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .output.errors import CommandError


def add_number(
    parser: argparse.ArgumentParser, *names: str, kind: type[int] | type[float] = float, zero: bool = False, **more: Any
) -> None:
    """Add an option whose value is a finite number above 0, or 0 as well with `zero`."""

    def read(text: str) -> float:
        value = kind(text)
        if not (0 < value < math.inf or (zero and not value)):
            raise CommandError(f"{names[0]} must be {'0 or more' if zero else 'above 0'}, not {value:g}", status=2)
        return value

    read.__name__ = kind.__name__  # argparse reports text that is no number by this name
    parser.add_argument(*names, type=read, **more)


def add_value(
    parser: argparse.ArgumentParser, name: str, read: Callable[[str], object], takes: str, **more: Any
) -> None:
    """Add an option whose value is parsed.

    read: the parser, which raises `ValueError` or `KeyError`.
    takes: what the option takes, for the error.
    """

    def parse(text: str) -> object:
        try:
            return read(text)
        except (ValueError, KeyError):
            raise CommandError(f"{name} takes {takes}, not {text!r}", status=2) from None

    parser.add_argument(name, type=parse, **more)


def add_address(parser: argparse.ArgumentParser) -> None:
    """Add the options with the address and the port at which a server listens."""
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="the address (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port; 0 selects a free one (default: 0)")


def check_new(option: str, file: str) -> None:
    """Raise `CommandError` if a file cannot be written at the end: it exists, has no folder, or needs a library."""
    path = Path(file)
    if os.path.lexists(path):
        raise CommandError(f"{option} {path} exists: name a new file, since a result is not made twice", status=2)
    if not path.name or not path.absolute().parent.is_dir():
        raise CommandError(f"{option} {file!r}: there is no such folder", status=2)
    if option == "--html" and importlib.util.find_spec("matplotlib") is None:
        text = "--html: plots need the library matplotlib: pip install '.[plots]' in manystream's checkout"
        raise CommandError(text, status=2)


def write_new(file: str, text: str) -> None:
    """Write a file that does not exist. Raises `CommandError`."""
    from ..engine.observe import private_file  # most commands write no file

    try:
        with open(private_file.open_new(file, "choose another name"), "w", encoding="utf-8") as new:
            new.write(text)
    except OSError as error:
        raise CommandError(f"cannot write {file}: {error.strerror}") from None


@contextmanager
def listening(given: argparse.Namespace) -> Generator[None, None, None]:
    """Raise `CommandError` for an address or a port at which the code in the block cannot listen."""
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandError(f"cannot listen on {given.host} port {given.port}: {reason}") from None
