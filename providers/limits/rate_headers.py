"""Parses rate-limit headers by rows of data that map each number of a limit to its header."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..catalog.dialect import Headers
from ..wire.retry_hints import LARGEST_SKEW_MS, LONGEST_HINT_MS, UNIX_MS_FROM, is_moment, unrepeated, until_ms
from .quota_report import DAY, MINUTE, SECOND, ReportedLimit, Unit

LONGEST_MINUTE = 10 * MINUTE
"""Seconds. A limit per minute is full again within a minute, or a few if the server counts generously. A limit whose
reset is later than this is a limit per day.
"""

LARGEST = 1e15
"""A limit or a remaining amount above this number of requests or tokens is an error of the server."""


MILLISECOND = 0.001


@dataclass(slots=True, frozen=True)
class HeaderRow:
    """The headers of one limit: names in lower case, empty if the server does not send that header.

    name: the limit's name in reports.
    unit: what the limit counts.
    limit: the header with the amount allowed per window.
    remaining: the header with the amount left.
    reset: the header with the time at which the limit is full again.
    window: the period that the limit applies to, in seconds.
    may_be_daily: the server sends a limit per day under the same names. Its reset shows which one it is.
    tier: the service tier that the limit belongs to; empty for the ordinary one.
    """

    name: str
    unit: Unit
    limit: str
    remaining: str
    reset: str = ""
    window: float = MINUTE
    may_be_daily: bool = False
    tier: str = ""


def read_rows(rows: Iterable[HeaderRow], headers: Headers, now: float, ignored: list[str]) -> tuple[ReportedLimit, ...]:
    """Return the limits that a response's headers describe. Never raises; values that cannot be parsed are ignored.

    headers: names in lower case.
    now: the wall clock in Unix seconds.
    ignored: the names of the headers that are ignored are appended to it.
    """
    found: list[ReportedLimit] = []
    for row in rows:
        if not (row.limit in headers or row.remaining in headers):
            continue
        allowed, left, ends = (unrepeated(headers.get(name, "")) for name in (row.limit, row.remaining, row.reset))
        limit, remaining = amount(allowed), amount(left)
        if not limit:
            # Servers write "unknown" as -1 of -1 or 0 of 0. A remaining amount without a limit gives no rate.
            ignored.append(row.limit if row.limit in headers else row.remaining)
            continue
        reset = seconds_until(ends, now)
        if remaining is None and row.remaining in headers:
            ignored.append(row.remaining)
        if reset is None and row.reset in headers:
            ignored.append(row.reset)
        daily = row.may_be_daily and reset is not None and reset > LONGEST_MINUTE
        name = f"{row.name} per day" if daily else row.name
        window = DAY if daily else row.window
        step = MILLISECOND if _is_fine(ends) else SECOND
        moment = reset is not None and is_moment(ends)
        found.append(ReportedLimit(name, row.unit, window, limit, remaining, reset, row.tier, step, moment))
    return tuple(found)


def amount(text: str | None) -> float | None:
    """Parse a limit or a remaining amount. Returns None for text that is no number, or one that is negative, infinite
    or absurdly large.
    """
    if not text or "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= LARGEST else None


def seconds_until(text: str | None, now: float) -> float | None:
    """Return the seconds until a reset; below 0 if it has passed: the limit is full, or the two clocks differ.

    Returns None if the text cannot be parsed, or the time is more than `LARGEST_SKEW_MS` ago or more than 31 days away.
    """
    wait = until_ms(text, now) if text else None
    if wait is None or not -LARGEST_SKEW_MS <= wait <= LONGEST_HINT_MS:
        return None
    return wait / 1000


def _is_fine(text: str) -> bool:
    """Return True if a reset is written with a precision of milliseconds."""
    number = amount(text)
    if number is not None and number >= UNIX_MS_FROM:
        return True
    return "ms" in text or ("." in text and ":" not in text)
