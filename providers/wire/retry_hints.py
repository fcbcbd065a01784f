"""How long a server asks its client to wait: read from the headers of a response, and from texts in its body.

The only reader of such hints, for retries and for limits, because gateways pass on each other's headers and words.

Order of precedence in headers: `retry-after-ms` (Azure, OpenAI) and `x-ms-retry-after-ms` (Azure), `retry-after` (RFC
9110, section 10.2.3; servers also send fractions), then the resets of rate-limit buckets. A bucket's reset is the time
when it will be *full* again, so it is a hint only if that bucket may have stopped the request.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

NO_HINT = -1
"""The value of a hint that is not there."""

LONGEST_HINT_MS = 31 * 24 * 3600 * 1000
"""Milliseconds. A hint beyond a month is an error of the server and is ignored: monthly quotas are the longest."""

UNIX_TIME_FROM = 1e9
"""A bare number this large (September 2001) is a time in Unix seconds, not a duration."""

UNIX_MS_FROM = 1e12
"""A bare number this large (September 2001 as well) is a time in Unix milliseconds."""

LARGEST_SKEW_MS = 24 * 3600 * 1000
"""Milliseconds by which the clocks of a server and of this machine may differ."""

_UNIT_MS: dict[str, float] = {
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000.0),
    **dict.fromkeys(("d", "day", "days"), 86_400_000.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3_600_000.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000.0),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1.0),
    **dict.fromkeys(("us", "µs", "μs", "microsecond", "microseconds"), 0.001),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 0.000001),
}
"""Name of a unit → its milliseconds."""

_NUMBER = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?", re.ASCII)
_AMOUNT = r"(\d{1,3}(?:,\d{3})+|\d+(?:\.\d+)?)"
_UNIT = re.compile(rf"({'|'.join(sorted(_UNIT_MS, key=len, reverse=True))})(?![^\W\d_])", re.ASCII | re.IGNORECASE)
_PART = re.compile(rf",?\s*(?:and\s+)?{_AMOUNT}\s?{_UNIT.pattern}", re.ASCII | re.IGNORECASE)
"""An amount with its unit, and what joins it to the one before."""

_CUE = re.compile(
    r"\b(?:(?P<again>(?:(?:try|request|send|call)\s+again|retry(?:ing)?(?:\s+(?:again|it|the|this|your|request))*)"
    r"[\s-]+(?:in|after))|wait(?:\s+for)?|(?:resets|will\s+reset)\s+(?:in|after)|(?:available|allowed)(?:\s+again)?\s+in"
    r"|(?:back\s?off|cool[\s-]?down)(?:\s+period)?(?:\s+(?:of|for))?):?\s+"
    r"(?:(?:about|approximately|roughly|around|another|at\s+least|less\s+than|up\s+to)\s+|~\s?)?"
    r"(?:(?P<half>half\s+an?)\s+|(?P<one>an?|one)\s+|[\d.]+\s?(?:-|to)\s?(?=\d))?",
    re.ASCII | re.IGNORECASE,
)
"""The words before a wait, with the smaller one of two numbers (`5-10 minutes`)."""

_MOMENT = re.compile(
    r"\b(?:again|resets|will\s+reset|retry|access|available)\s+(?:at|on|after):?\s+"
    r"(\d{4}-\d\d-\d\d)(?:T|\s+at\s+|\s+)(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)\s?(Z|UTC|GMT|[+-]\d\d:?\d\d)?",
    re.ASCII | re.IGNORECASE,
)
"""The time from which a message allows another attempt (`You will regain access on 2026-12-01 at 00:00 UTC`)."""

_CLOCK = re.compile(r"(\d{1,2}):(\d\d):(\d\d)(?![\d:])", re.ASCII)
"""A wait in hours, minutes and seconds."""

_NUMBERS: dict[str, int] = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "fifteen": 15,
    "twenty": 20, "thirty": 30, "forty-five": 45, "sixty": 60,
}  # fmt: skip
_NUMBER_WORD = re.compile(rf"\b({'|'.join(_NUMBERS)})(?=\s{_UNIT.pattern})", re.ASCII | re.IGNORECASE)

_SECONDS = re.compile(rf"{_AMOUNT}(?![\w:/-]|[.,]\d|\s+[^\W\d_])", re.ASCII)
"""A number of seconds without a unit. A number before any other word counts something else."""


def retry_after_ms(headers: Mapping[str, str], now: float, *, status: int = 0) -> int:
    """Return the server's hint in milliseconds, or -1 if it sent none. Never raises.

    headers: names in lower case.
    now: the wall clock in Unix seconds, for dates.
    status: the response's status. After a 429, the reset of a bucket that is not empty counts as well, because the
        request may have needed more than was left. Otherwise only buckets count that are empty or do not report what is
        left.
    """
    for prefix in PREFIXES:
        for name in _IN_MS:
            hint = _bounded(_milliseconds(unrepeated(headers.get(prefix + name, ""))))
            if hint != NO_HINT:
                return hint
        hint = _retry_after(headers.get(f"{prefix}retry-after", ""), now)
        if hint != NO_HINT:
            return hint
    for name, value in headers.items():
        match = _OTHER_NAME.fullmatch(name)
        if match is not None:
            text = unrepeated(value)
            hint = _bounded(_milliseconds(text)) if match[1] else _retry_after(text, now)
            if hint != NO_HINT:
                return hint
    return _bucket_reset(headers, now, status)


def poll_after_ms(headers: Mapping[str, str], now: float) -> int:
    """Return the milliseconds after which a server wants to be asked again for an answer that has not ended, or -1.

    headers: names in lower case.
    now: the wall clock in Unix seconds, for dates.
    """
    hint = _bounded(_milliseconds(unrepeated(headers.get("openai-poll-after-ms", ""))))
    if hint != NO_HINT:
        return hint
    given = {name: value for name, value in headers.items() if "retry-after" in name}
    return retry_after_ms(given, now) if given else NO_HINT


_IN_MS = ("retry-after-ms", "x-ms-retry-after-ms")
"""Headers with a hint in milliseconds, the most reliable one first."""

PREFIXES = ("", "llm_provider-")
"""What precedes a header's name. LiteLLM passes on the headers of the server behind it with its prefix."""


_PREFIX = f"(?:{'|'.join(PREFIXES)})"
_OTHER_NAME = re.compile(
    rf"{_PREFIX}(?:x-)?(?:ms-|rate-?limit-)?retry-after(?:(-ms|-milliseconds)|-s|-sec|-seconds)?", re.ASCII
)
"""Other names of `retry-after` in gateways and clouds."""


def unrepeated(text: str) -> str:
    """Return the value of a header that was sent several times with the same value, as a proxy does that adds what the
    server has sent already. Such values arrive joined by commas. Any other text is returned as it is.
    """
    if "," not in text:
        return text
    values = {value.strip() for value in text.split(",")}
    return values.pop() if len(values) == 1 else text


def duration_ms(text: str) -> float | None:
    """Parse a duration in Go's form (`6m0s`, `20ms`, `1h2m3.5s`), in words (`3 days 4 hours`) or as a bare number of
    seconds, into milliseconds. Each unit must be smaller than the one before.

    Returns None for any other text.
    """
    text = text.strip()
    total, end = _span(text, 0)
    return total if total is not None and end == len(text) else _seconds(text)


def until_ms(text: str, now: float) -> float | None:
    """Parse the time at which to try again, in any form, into milliseconds from now: negative if it has passed.

    The forms are those of `duration_ms`, Unix seconds, Unix milliseconds, RFC 3339 and an HTTP date. Returns None for
    any other text.

    now: the wall clock in Unix seconds.
    """
    number = _milliseconds(text)
    if number is not None and number >= UNIX_TIME_FROM:
        left = number - now * 1000 if number >= UNIX_MS_FROM else (number - now) * 1000
        # A bare number for a time of long ago is an error of the server; as a duration, it is far too long.
        return left if left >= -LARGEST_SKEW_MS else number * 1000
    wait = duration_ms(text)
    if wait is not None:
        return wait
    try:
        moment = _moment(text.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000 - now * 1000
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def is_moment(text: str) -> bool:
    """Return True if a text that `until_ms` can parse is a moment, not a duration."""
    number = _milliseconds(text)
    return duration_ms(text) is None if number is None else number >= UNIX_TIME_FROM


def hint_ms(text: str, now: float = 0.0) -> int:
    """Parse a hint, in any form of `until_ms`, into milliseconds; 0 if the time has passed. Returns -1 if it is not a
    valid hint, or longer than a month.

    now: the wall clock in Unix seconds; 0 if it is unknown, and times are no hints then.
    """
    wait = until_ms(text, now)
    return NO_HINT if wait is None else _bounded(max(0.0, wait))


def hint_in_words(message: str, now: float = 0.0) -> int:
    """Return the wait that a message asks for (`Try again in 3 days 4 hours`) in milliseconds; -1 if there is none.

    now: the wall clock in Unix seconds; 0 if it is unknown, and times are no hints then.
    """
    message = _NUMBER_WORD.sub(lambda word: str(_NUMBERS[word[1].lower()]), message)
    for cue in _CUE.finditer(message):
        hint = _bounded(_wait_after(cue, message))
        if hint != NO_HINT:
            return hint
    moment = _MOMENT.search(message) if now else None
    if moment is None:
        return NO_HINT
    zone = moment[3] if moment[3] and moment[3][0] in "+-" else "+00:00"
    return hint_ms(f"{moment[1]}T{moment[2]}{zone}", now)


def _wait_after(cue: re.Match[str], message: str) -> float | None:
    if cue["one"] or cue["half"]:
        unit = _UNIT.match(message, cue.end())
        return None if unit is None else _UNIT_MS[unit[1].lower()] / (2 if cue["half"] else 1)
    total, _ = _span(message, cue.end())
    if total is not None or not cue["again"]:
        return total
    clock = _CLOCK.match(message, cue.end())
    if clock is not None:
        return (int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3])) * 1000.0
    seconds = _SECONDS.match(message, cue.end())
    return None if seconds is None else _number(seconds[1]) * 1000


def _span(text: str, at: int) -> tuple[float | None, int]:
    """Return the milliseconds of the amounts with units at a place in a text, None if there are none, and the place
    behind them.
    """
    total, smallest = 0.0, math.inf
    while (part := _PART.match(text, at)) and (size := _UNIT_MS[part[2].lower()]) < smallest:
        total += _number(part[1]) * size
        smallest, at = size, part.end()
    return (None if smallest == math.inf else total), at


def _number(text: str) -> float:
    return float(text.replace(",", ""))


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


def _retry_after(text: str, now: float) -> int:
    # A repeated header arrives joined by a comma, and a date contains a comma: so the whole text is tried first.
    hint = hint_ms(text, now)
    return hint_ms(text.partition(",")[0], now) if hint == NO_HINT else hint


def _moment(text: str) -> datetime:
    """Return the time of RFC 3339 or of an HTTP date. Raises `ValueError`, `TypeError` or `IndexError`."""
    if text[:4].isdigit():
        return datetime.fromisoformat(text)
    from email.utils import parsedate_to_datetime  # here, because it loads ten modules, and most hints are numbers

    return parsedate_to_datetime(text)


_RESET = re.compile(
    rf"({_PREFIX}(?:anthropic-|x-)?rate-?limit-.+)-reset|({_PREFIX}(?:x-)?rate-?limit)-reset(-.+)?", re.ASCII
)
"""The header of a bucket's reset. Without a bucket's name, it is the only one and counts requests."""

_NEXT_POLICY = re.compile(r",\s*(?=\")")
"""What separates the quoted policies of `RateLimit`."""

_FIELD = re.compile(r"\b(r|t|remaining|reset)=(\d+)", re.ASCII)
"""A parameter of `RateLimit`, in its present form (`"default";r=0;t=30`) or its older one (`remaining=0, reset=30`)."""


def _bucket_reset(headers: Mapping[str, str], now: float, status: int) -> int:
    empty: list[int] = []
    unknown: list[int] = []
    for name, value in headers.items():
        match = _RESET.fullmatch(name)
        wait = NO_HINT if match is None else hint_ms(unrepeated(value), now)
        if match is None or wait == NO_HINT:
            continue
        left = headers.get(f"{match[1] or match[2]}-remaining{match[3] or ''}", "")
        remaining = _milliseconds(unrepeated(left))
        if remaining == 0:
            empty.append(wait)
        elif remaining is None or (status == 429 and (match[1] or match[3])):
            unknown.append(wait)
    for policy in _NEXT_POLICY.split(headers.get("ratelimit", "")):
        fields = {name: float(value) for name, value in _FIELD.findall(policy)}
        wait = _bounded(fields.get("t", fields.get("reset", -1.0)) * 1000)
        if wait != NO_HINT and fields.get("r", fields.get("remaining")) == 0:
            empty.append(wait)
        elif wait != NO_HINT and status == 429:
            unknown.append(wait)
    # Every empty bucket must refill. If none is known to be empty, the nearest reset is the best guess.
    return max(empty) if empty else min(unknown, default=NO_HINT)
