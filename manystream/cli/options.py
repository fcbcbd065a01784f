"""Options that several commands declare, and values that are checked when argparse reads them.

An error of a value is one line that names the option.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
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


@contextmanager
def listening(given: argparse.Namespace) -> Generator[None, None, None]:
    """Raise `CommandError` for an address or a port at which the code in the block cannot listen."""
    try:
        yield
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CommandError(f"cannot listen on {given.host} port {given.port}: {reason}") from None
