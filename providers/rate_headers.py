"""Rate-limit headers read by rows of data: which header holds which number of which limit.

Knows how numbers, durations and moments are spelled. Must not know any provider's headers: each dialect's
`rate_limits.py` has the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from .dialect import Headers
from .quota_report import DAY, MINUTE, ReportedLimit, Unit
from .retry_hints import duration_ms

ResetForm: TypeAlias = Literal["span", "moment", "milliseconds"]

LONGEST_MINUTE = 10 * MINUTE
"""What a minute allows is full again within a minute, even where the server counts generously. A limit whose reset is
further away than this is a day's."""

LARGEST = 1e15
"""A limit or a rest above this number of requests or tokens is a mistake."""


@dataclass(slots=True, frozen=True)
class HeaderRow:
    """The headers of one limit, names in lower case; empty where the server has none.

    reset_form: `span`: seconds, or a duration such as `6m0s`. `moment`: RFC 3339. `milliseconds`: Unix time in ms.
    may_be_daily: the server also sends a day's limit under this name, which its reset shows.
    """

    name: str
    unit: Unit
    limit: str
    remaining: str
    reset: str = ""
    window: float = MINUTE
    reset_form: ResetForm = "span"
    may_be_daily: bool = False
    tier: str = ""


def read_rows(rows: Iterable[HeaderRow], headers: Headers, now: float) -> tuple[ReportedLimit, ...]:
    """The limits that a response's headers describe. Never raises; junk is as if it were not there.

    headers: names in lower case. now: the wall clock in Unix seconds.
    """
    found: list[ReportedLimit] = []
    for row in rows:
        if not (row.limit in headers or row.remaining in headers):
            continue
        limit, remaining = amount(headers.get(row.limit)), amount(headers.get(row.remaining))
        if not limit:
            # -1 of -1 and 0 of 0 are how servers spell "unknown"; a rest without a limit says nothing about a rate.
            continue
        reset = seconds_until(headers.get(row.reset), row.reset_form, now)
        daily = row.may_be_daily and reset is not None and reset > LONGEST_MINUTE
        name = f"{row.name} per day" if daily else row.name
        window = DAY if daily else row.window
        found.append(ReportedLimit(name, row.unit, window, limit, remaining, reset, row.tier))
    return tuple(found)


def amount(text: str | None) -> float | None:
    """A limit or a rest, else None: no number, negative, infinite or absurdly large."""
    if not text or "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 <= number <= LARGEST else None


def seconds_until(text: str | None, form: ResetForm, now: float) -> float | None:
    """Seconds until a reset, else None: it cannot be read, has passed, or is beyond a month."""
    if not text:
        return None
    if form == "span":
        wait = duration_ms(text)
        seconds = None if wait is None else wait / 1000
    elif form == "milliseconds":
        moment = amount(text)
        seconds = None if moment is None else moment / 1000 - now
    else:
        seconds = _until_moment(text, now)
    return seconds if seconds is not None and 0 <= seconds <= 31 * DAY else None


def _until_moment(text: str, now: float) -> float | None:
    try:
        moment = datetime.fromisoformat(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now
    except (ValueError, OverflowError):
        return None
