"""Reads limits from headers and errors of Anthropic's responses, as a `QuotaReport`.

`anthropic-ratelimit-tokens-*` repeats the tightest of the other limits and is no limit of its own. Numbers of tokens
are rounded to thousands. Source: https://platform.claude.com/docs/en/api/rate-limits.
"""

from __future__ import annotations

import re

from ..catalog.dialect import Headers
from ..limits.quota_report import MINUTE, QuotaReport, Refusal, ReportedLimit, Unit, refusal_of
from ..limits.rate_headers import HeaderRow, amount, read_rows
from ..model.provider_error import ProviderError
from .errors import SPENT_CODES, SPENT_PHRASE

_UNITS: dict[str, Unit] = {
    "requests": Unit.REQUESTS,
    "input-tokens": Unit.INPUT_TOKENS,
    "output-tokens": Unit.OUTPUT_TOKENS,
}
_TIERS: dict[str, str] = {"anthropic-ratelimit": "", "anthropic-priority": "priority", "anthropic-fast": "fast"}

HEADERS: tuple[HeaderRow, ...] = tuple(
    HeaderRow(
        name,
        unit,
        f"{prefix}-{name}-limit",
        f"{prefix}-{name}-remaining",
        f"{prefix}-{name}-reset",
        tier=tier,
    )
    for prefix, tier in _TIERS.items()
    for name, unit in _UNITS.items()
)

STATUS_REFUSAL: dict[int, Refusal] = {
    402: Refusal.SPENT,
    429: Refusal.RATE,
    503: Refusal.OVERLOAD,
    529: Refusal.OVERLOAD,
}

CODE_REFUSAL: dict[str, Refusal] = {
    **dict.fromkeys(SPENT_CODES, Refusal.SPENT),
    "billing_error": Refusal.SPENT,
    "overloaded_error": Refusal.OVERLOAD,
    "rate_limit_error": Refusal.RATE,
}
"""Code or type of an error → its refusal. With it, an `error` event in a stream gives the same refusal as a status."""

_CONCURRENT_WORDS = "concurrent connections"
_LONG_CONTEXT_WORDS = "required for long context requests"
"""Part of the message of a 429 for a prompt that is longer than the account's plan allows."""

_LIMIT_OF = re.compile(r"rate limit of ([\d,]+) (requests|(?:input |output )?tokens) per minute", re.IGNORECASE)
_NUMBER_OF = re.compile(r"number of (requests|(?:input |output |request )?tokens)\b", re.IGNORECASE)
_WORD_UNIT: dict[str, Unit] = {
    "requests": Unit.REQUESTS,
    "input tokens": Unit.INPUT_TOKENS,
    "request tokens": Unit.INPUT_TOKENS,
    "output tokens": Unit.OUTPUT_TOKENS,
    "tokens": Unit.TOKENS,
}


def read_report(provider: str, headers: Headers, now: float, error: ProviderError | None, body: bytes) -> QuotaReport:
    """Return what a response reports about limits, as `ReadReport` says."""
    ignored: list[str] = []
    limits = read_rows(HEADERS, headers, now, ignored)
    if error is None:
        return QuotaReport(limits, ignored=tuple(ignored))
    hint = error.retry_after_ms / 1000 if error.retry_after_ms >= 0 else None
    refusal = _refusal(error)
    if refusal is Refusal.NONE:
        return QuotaReport(limits, hint=hint, ignored=tuple(ignored))
    named = _LIMIT_OF.search(error.message)
    words = named[2] if named else (match[1] if (match := _NUMBER_OF.search(error.message)) else "")
    unit = _WORD_UNIT.get(words.lower())
    number = amount(named[1].replace(",", "")) if named else None
    if unit is not None and number and all(limit.unit is not unit for limit in limits):
        limits = (*limits, ReportedLimit(words.lower().replace(" ", "-"), unit, MINUTE, number))
    return QuotaReport(limits, refusal, unit, hint, tuple(ignored))


def _refusal(error: ProviderError) -> Refusal:
    if SPENT_PHRASE.search(error.message):
        return Refusal.SPENT
    found = CODE_REFUSAL.get(error.provider_code or "") or refusal_of(error, STATUS_REFUSAL)
    if found is not Refusal.RATE:
        return found
    if _CONCURRENT_WORDS in error.message:
        return Refusal.OVERLOAD
    if _LONG_CONTEXT_WORDS in error.message:
        return Refusal.TOO_LARGE
    named = _LIMIT_OF.search(error.message)
    is_none = named is not None and amount(named[1].replace(",", "")) == 0
    return Refusal.SPENT if is_none or not error.retryable else Refusal.RATE
