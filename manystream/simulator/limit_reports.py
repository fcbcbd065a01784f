"""The headers in which each server reports its limits and says when to retry, as rows of data."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .bucket import Bucket
from .wire import seconds_text

Headers = list[tuple[str, str]]
DAY = 86_400.0


def _go_duration(seconds: float, wall: float) -> str:
    """`120ms`, `7.66s`, `6m0s`, `23h18m29.144s`: a duration as the language Go prints it."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(int(minutes), 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _whole_seconds(seconds: float, wall: float) -> str:
    return str(math.ceil(seconds))


@dataclass(slots=True, frozen=True)
class HeaderRow:
    """The headers of one limit. An empty name leaves the header out.

    dimensions: the limits that it may report: of several, the one with the smallest part left.
    window: only limits over so many seconds; 0: any limit.
    """

    dimensions: tuple[str, ...]
    limit: str
    remaining: str
    reset: str = ""
    window: float = 0.0


@dataclass(slots=True, frozen=True, kw_only=True)
class ReportForm:
    """The headers of one server.

    reset: how it writes the time until a limit is full.
    token_step: numbers of tokens are rounded to multiples of this.
    per_second: limits are reported per second.
    on: `all` responses, `refused` ones, or `unstreamed` ones.
    retry: the headers that say when to retry, and how each is written.
    over_limit: the header that marks a response beyond the limit.
    repeated: a prefix under which all headers are sent once more.
    """

    rows: tuple[HeaderRow, ...] = ()
    reset: Callable[[float, float], str] = _go_duration
    token_step: int = 1
    per_second: bool = False
    on: str = "all"
    retry: tuple[tuple[str, Callable[[float, float], str]], ...] = (("retry-after", _whole_seconds),)
    over_limit: str = ""
    repeated: str = ""


def _row(dimension: str, name: str, *, window: float = 0.0, reset: bool = True) -> HeaderRow:
    prefix = "x-ratelimit"
    return HeaderRow(
        (dimension,),
        f"{prefix}-limit-{name}",
        f"{prefix}-remaining-{name}",
        f"{prefix}-reset-{name}" if reset else "",
        window,
    )


def _anthropic_row(name: str, *dimensions: str) -> HeaderRow:
    prefix = f"anthropic-ratelimit-{name}"
    return HeaderRow(dimensions, f"{prefix}-limit", f"{prefix}-remaining", f"{prefix}-reset")


_MILLISECONDS_TOO: tuple[tuple[str, Callable[[float, float], str]], ...] = (
    ("retry-after-ms", lambda seconds, wall: str(math.ceil(seconds * 1000))),
    ("retry-after", _whole_seconds),
)
_OPENAI_ROWS = (_row("requests", "requests"), _row("tokens", "tokens"))
FORMS: dict[str, ReportForm] = {
    "none": ReportForm(retry=()),
    "openai": ReportForm(rows=_OPENAI_ROWS, retry=_MILLISECONDS_TOO),
    "anthropic": ReportForm(
        rows=(
            _anthropic_row("requests", "requests"),
            _anthropic_row("tokens", "input_tokens", "output_tokens"),
            _anthropic_row("input-tokens", "input_tokens"),
            _anthropic_row("output-tokens", "output_tokens"),
        ),
        reset=lambda seconds, wall: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(math.ceil(wall + seconds))),
        token_step=1000,
    ),
    "azure": ReportForm(
        rows=(_row("requests", "requests", reset=False), _row("tokens", "tokens")),
        reset=_whole_seconds,
        retry=_MILLISECONDS_TOO,
    ),
    "groq": ReportForm(rows=(_row("requests", "requests", window=DAY), _row("tokens", "tokens", window=60.0))),
    "cerebras": ReportForm(
        rows=(
            _row("requests", "requests-day", window=DAY),
            _row("tokens", "tokens-minute", window=60.0),
        ),
        reset=lambda seconds, wall: seconds_text(seconds),
    ),
    "mistral": ReportForm(
        rows=(
            _row("requests", "req-second", window=1.0, reset=False),
            _row("requests", "req-minute", window=60.0, reset=False),
            _row("tokens", "tokens-minute", window=60.0, reset=False),
        ),
        retry=(),
    ),
    "openrouter": ReportForm(
        rows=(HeaderRow(("requests",), "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"),),
        reset=lambda seconds, wall: str(round((wall + seconds) * 1000)),
        on="refused",
        retry=(),
    ),
    "together": ReportForm(
        rows=(
            HeaderRow(("requests",), "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"),
            HeaderRow(("tokens",), "x-tokenlimit-limit", "x-tokenlimit-remaining"),
        ),
        reset=_whole_seconds,
        per_second=True,
    ),
    "fireworks": ReportForm(
        rows=(
            _row("requests", "requests", reset=False),
            _row("input_tokens", "tokens-prompt", reset=False),
            _row("output_tokens", "tokens-generated", reset=False),
        ),
        retry=(),
        over_limit="x-ratelimit-over-limit",
    ),
    "litellm": ReportForm(rows=_OPENAI_ROWS, on="unstreamed", repeated="llm_provider-"),
}
"""Name of `ServerRules.report` → its form."""


def limit_headers(
    form: ReportForm, buckets: Iterable[Bucket], now: float, wall: float, *, refused: bool, streamed: bool
) -> Headers:
    """The headers that report the limits. now: the clock of the buckets. wall: Unix time."""
    if (form.on == "refused" and not refused) or (form.on == "unstreamed" and streamed):
        return []
    known = list(buckets)
    headers: Headers = []
    for row in form.rows:
        fitting = [
            bucket for bucket in known if bucket.dimension in row.dimensions and row.window in (0, bucket.window)
        ]
        if not fitting:
            continue
        bucket = min(fitting, key=lambda candidate: candidate.level / candidate.capacity)
        step = form.token_step if bucket.dimension != "requests" else 1
        limit = bucket.limit / bucket.window if form.per_second else bucket.limit
        remaining = max(0.0, bucket.level) / bucket.capacity * limit
        if step > 1 and limit >= step:
            remaining = round(remaining / step) * step
        headers += [(row.limit, str(round(limit))), (row.remaining, str(int(remaining)))]
        if row.reset:
            headers.append((row.reset, form.reset(bucket.full_after(now), wall)))
    if form.over_limit:
        over = any(bucket.level < 0 for bucket in known)
        headers.append((form.over_limit, "yes" if over else "no"))
    if form.repeated:
        headers += [(form.repeated + name, value) for name, value in headers]
    return headers


def retry_headers(form: ReportForm, wait: float, wall: float) -> Headers:
    """The headers that say when to retry."""
    return [(name, write(wait, wall)) for name, write in form.retry]
