"""How long a server asks its client to wait, parsed from the headers of an error response.

Knows the headers of every dialect, because gateways pass on each other's. Must not know what a retry policy does with
the hint, nor the clock: `now` is passed in. Each dialect reads the hints in its own bodies.

Order of precedence: `retry-after-ms` (Azure, OpenAI), `retry-after` (RFC 9110, section 10.2.3; servers also send
fractions), then the resets of rate-limit buckets (`anthropic-ratelimit-<bucket>-reset`, RFC 3339;
`x-ratelimit-reset-<bucket>`, durations such as `6m0s`). A bucket's reset is the time when it will be *full* again, so
it is a hint only if that bucket may have stopped the request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

NO_HINT = -1
"""The value of a hint that is not there."""

LONGEST_HINT_MS = 31 * 24 * 3600 * 1000
"""Milliseconds. A hint beyond a month is an error of the server and is ignored: monthly quotas are the longest."""

_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)", re.ASCII)
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+", re.ASCII)
_UNIT_MS: dict[str, float] = {
    "d": 86_400_000.0,
    "h": 3_600_000.0,
    "m": 60_000.0,
    "s": 1000.0,
    "ms": 1.0,
    "us": 0.001,
    "µs": 0.001,
    "ns": 0.000001,
}
_UNIX_TIME_FROM = 1_000_000_000.0
"""A bare number this large (September 2001) is a time in Unix seconds, not a duration."""


def retry_after_ms(headers: Mapping[str, str], now: float, *, status: int = 0) -> int:
    """Return the server's hint in milliseconds, or -1 if it sent none. Never raises.

    headers: names in lower case.
    now: the wall clock in Unix seconds, for dates.
    status: the response's status. After a 429, the reset of a bucket that is not empty counts as well, because the
        request may have needed more than was left. Otherwise only buckets count that are empty or do not report what is
        left.
    """
    hint = _bounded(_milliseconds(unrepeated(headers.get("retry-after-ms", ""))))
    if hint == NO_HINT:
        hint = _bounded(_retry_after(headers.get("retry-after", ""), now))
    return _bucket_reset(headers, now, status) if hint == NO_HINT else hint


def unrepeated(text: str) -> str:
    """Return the value of a header that was sent several times with the same value, as a proxy does that adds what the
    server has sent already. Such values arrive joined by commas. Any other text is returned as it is.
    """
    if "," not in text:
        return text
    values = {value.strip() for value in text.split(",")}
    return values.pop() if len(values) == 1 else text


def duration_ms(text: str) -> float | None:
    """Parse a duration in Go's form (`6m0s`, `1s`, `20ms`, `1h2m3.5s`) or a bare number of seconds, into milliseconds.

    Returns None for any other text.
    """
    text = text.strip()
    if _DURATION.fullmatch(text):
        return sum(float(amount) * _UNIT_MS[unit] for amount, unit in _DURATION_PART.findall(text))
    return _seconds(text)


def hint_ms(text: str) -> int:
    """Parse a hint in a body, a duration or a number of seconds, into milliseconds. Returns -1 if it is not a valid
    hint, or longer than a month.
    """
    return _bounded(duration_ms(text))


def _bounded(milliseconds: float | None) -> int:
    # The comparison also rejects NaN and infinity.
    if milliseconds is None or not 0 <= milliseconds <= LONGEST_HINT_MS:
        return NO_HINT
    return round(milliseconds)


def _milliseconds(text: str) -> float | None:
    text = text.strip()
    return float(text) if _NUMBER.fullmatch(text) else None


def _seconds(text: str) -> float | None:
    seconds = _milliseconds(text)
    return None if seconds is None else seconds * 1000


def _retry_after(text: str, now: float) -> float | None:
    # A repeated header arrives joined by a comma, and a date contains a comma: so the whole text is tried first.
    for candidate in (text, text.partition(",")[0]):
        wait = duration_ms(candidate)
        if wait is None:
            wait = _until(candidate, now, _http_date)
        if wait is not None:
            return wait
    return None


def _http_date(text: str) -> datetime:
    """Return the time of an HTTP date. Raises `ValueError`, `TypeError` or `IndexError`."""
    from email.utils import parsedate_to_datetime  # here, because it loads ten modules, and most hints are numbers

    return parsedate_to_datetime(text)


def _until(text: str, now: float, read: Callable[[str], datetime]) -> float | None:
    """Return the milliseconds from now to a time; 0 if it has passed, None if the text cannot be parsed."""
    try:
        moment = read(text.strip())
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment.timestamp() - now) * 1000)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def _reset_moment(text: str, now: float) -> float | None:
    seconds = _milliseconds(text)
    if seconds is not None:
        return max(0.0, (seconds - now) * 1000) if seconds >= _UNIX_TIME_FROM else seconds * 1000
    return _until(text, now, datetime.fromisoformat)


def _reset_duration(text: str, now: float) -> float | None:
    wait = duration_ms(text)
    return _reset_moment(text, now) if wait is None or wait >= _UNIX_TIME_FROM * 1000 else wait


_BUCKET_HEADERS: tuple[tuple[re.Pattern[str], str, Callable[[str, float], float | None]], ...] = (
    (re.compile(r"anthropic-ratelimit-(.+)-reset"), "anthropic-ratelimit-{}-remaining", _reset_moment),
    (re.compile(r"x-ratelimit-reset-(.+)"), "x-ratelimit-remaining-{}", _reset_duration),
)
"""The pattern of a bucket's reset header, the name of the header with what is left in it, and the reset's parser."""


def _bucket_reset(headers: Mapping[str, str], now: float, status: int) -> int:
    empty: list[int] = []
    unknown: list[int] = []
    for name, value in headers.items():
        for pattern, remaining_name, read in _BUCKET_HEADERS:
            match = pattern.fullmatch(name)
            if match is None:
                continue
            wait = _bounded(read(unrepeated(value), now))
            remaining = _milliseconds(unrepeated(headers.get(remaining_name.format(match[1]), "")))
            if wait == NO_HINT:
                continue
            if remaining == 0:
                empty.append(wait)
            elif remaining is None or status == 429:
                unknown.append(wait)
    # Every empty bucket must refill. If none is known to be empty, the nearest reset is the best guess.
    return max(empty) if empty else min(unknown, default=NO_HINT)
