"""What an inference server says of its queue: how many calls run there, and how many wait."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

from ..wire.quirks import LoadReport


@dataclass(slots=True, frozen=True)
class ServerLoad:
    """The calls of all clients at one server, as it said last.

    running: the calls that run there; None if it does not say.
    waiting: the calls that wait there; None if it does not say.
    slots: the calls that it can run at a time; None if it does not say.
    is_by_header: the head of an answer said what waits, and what runs is this engine's own.
    """

    running: float | None = None
    waiting: float | None = None
    slots: float | None = None
    is_by_header: bool = False


def read_load(row: LoadReport, text: bytes) -> ServerLoad | None:
    """Read the figures out of the answer to a `LoadReport.path`; None if it has not what the row needs."""
    running, waiting, slots = (_figure(name, text) for name in (row.running, row.waiting, row.slots))
    return None if slots is None and (running is None or waiting is None) else ServerLoad(running, waiting, slots)


def read_waiting(row: LoadReport, header: str) -> float | None:
    """Read the calls that wait out of `LoadReport.header`; None if it does not say."""
    return _figure(row.waiting.rpartition(":")[2], header.encode(errors="replace"))


def _figure(name: str, text: bytes) -> float | None:
    """Return the sum of all figures of this name, of which there is one for each model or rank."""
    if not name:
        return None
    found = _pattern(name).findall(text)
    total = math.fsum(map(float, found)) if found else math.inf
    return total if total < math.inf else None


@cache
def _pattern(name: str) -> re.Pattern[bytes]:
    """Return what matches a figure at the start of a line, as in Prometheus' text, or as a member of JSON."""
    label, number = rb"(?:\{[^\n]*\})?[ \t]+", rb"([0-9]{1,15}(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)(?![0-9A-Za-z.])"
    return re.compile(
        rb'(?m)(?:^%b%b|"%b"\s*:\s*)%b' % (re.escape(name.encode()), label, re.escape(name.encode()), number)
    )
