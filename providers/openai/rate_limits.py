"""Reads limits from headers and error bodies of OpenAI and compatible servers, as a `QuotaReport`.

Sources: the providers' pages on rate limits.
"""

from __future__ import annotations

import re

from ..catalog.dialect import Headers
from ..json.json_values import JSONObject, string
from ..limits.quota_report import DAY, MINUTE, MONTH, SECOND, QuotaReport, Refusal, ReportedLimit, Unit, refusal_of
from ..limits.rate_headers import HeaderRow, amount, read_rows
from ..model.provider_error import ProviderError
from ..wire.error_bodies import SPENT_QUOTA, error_object, is_too_large, passed_on_headers

LONGEST_PAUSE = 60.0
"""Seconds. A used-up limit per day is RATE if the server's hint is not longer than this, else SPENT."""


def _row(
    name: str, unit: Unit, *, prefix: str = "", window: float = MINUTE, daily: bool = False, called: str = ""
) -> HeaderRow:
    """Return the row of the limit with this name. `called`: its name in reports, if it differs."""
    limit, remaining, reset = (f"{prefix}x-ratelimit-{part}-{name}" for part in ("limit", "remaining", "reset"))
    return HeaderRow(called or name, unit, limit, remaining, reset, window, may_be_daily=daily)


def _openai(prefix: str = "") -> tuple[HeaderRow, ...]:
    """Return the rows of OpenAI's headers, with a prefix before each header's name."""
    return (
        _row("requests", Unit.REQUESTS, prefix=prefix, daily=True),
        _row("tokens", Unit.TOKENS, prefix=prefix, daily=True),
        _row("project-tokens", Unit.TOKENS, prefix=prefix, daily=True),
    )


OPENAI_HEADERS = _openai()
"""The headers of OpenAI, and of every server without a row in `SERVER_HEADERS`."""

_UPSTREAM = _openai("llm_provider-")
"""The headers with which LiteLLM passes on the limits of the server behind it."""

_AZURE = (_row("requests", Unit.REQUESTS), _row("tokens", Unit.TOKENS))
_OPENROUTER = (
    HeaderRow(
        "requests",
        Unit.REQUESTS,
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        may_be_daily=True,
    ),
)

SERVER_HEADERS: dict[str, tuple[HeaderRow, ...]] = {
    "azure": _AZURE,
    "azure-deployment": _AZURE,
    "azure-models": _AZURE,
    "azure-responses": _AZURE,
    "groq": (_row("requests", Unit.REQUESTS, window=DAY), _row("tokens", Unit.TOKENS)),
    "groq-responses": (_row("requests", Unit.REQUESTS, window=DAY), _row("tokens", Unit.TOKENS)),
    "cerebras": (
        _row("requests-day", Unit.REQUESTS, window=DAY),
        _row("tokens-minute", Unit.TOKENS),
    ),
    "mistral": (
        _row("req-second", Unit.REQUESTS, window=SECOND),
        _row("req-minute", Unit.REQUESTS),
        _row("tokens-minute", Unit.TOKENS),
        _row("tokens-month", Unit.TOKENS, window=MONTH),
    ),
    "openrouter": _OPENROUTER,
    "openrouter-responses": _OPENROUTER,
    "together": (
        HeaderRow("requests", Unit.REQUESTS, "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", SECOND),
        HeaderRow("tokens", Unit.TOKENS, "x-tokenlimit-limit", "x-tokenlimit-remaining", "", SECOND),
    ),
    "fireworks": (
        _row("requests", Unit.REQUESTS),
        _row("tokens-prompt", Unit.INPUT_TOKENS),
        _row("tokens-generated", Unit.OUTPUT_TOKENS),
    ),
}
"""Name of the provider's profile → its headers. A provider without a row has OpenAI's headers."""

CODE_REFUSAL: dict[str, Refusal] = {
    **dict.fromkeys(SPENT_QUOTA, Refusal.SPENT),
    "in_flight_budget_exhausted": Refusal.RATE,
    "slow_down": Refusal.RATE,
    "resource_unavailable": Refusal.OVERLOAD,
    "capacity_exceeded": Refusal.OVERLOAD,
    "overloaded_error": Refusal.OVERLOAD,
    "engine_overloaded_error": Refusal.OVERLOAD,
}
"""Code or type of an error → its refusal. It takes precedence over the status."""

STATUS_REFUSAL: dict[int, Refusal] = {
    402: Refusal.SPENT,
    429: Refusal.RATE,
    498: Refusal.OVERLOAD,
    503: Refusal.OVERLOAD,
    529: Refusal.OVERLOAD,
}
"""HTTP status → its refusal. 498 means that Groq's flex tier is full."""

_UNIT_WORDS: tuple[tuple[str, Unit], ...] = (
    ("input tokens", Unit.INPUT_TOKENS),
    ("output tokens", Unit.OUTPUT_TOKENS),
    ("tokens", Unit.TOKENS),
    ("requests", Unit.REQUESTS),
)
_LIMIT_OF = re.compile(
    r"on ((?:input |output )?tokens|requests) per (second|min(?:ute)?|day)\b[^:]{0,20}:\s*limit:? ([\d,]*\d)"
    r"(?:, used:? ([\d,]*\d))?",
    re.IGNORECASE,
)
"""The form in which OpenAI and Groq name a limit: `on tokens per min (TPM): Limit 10000, Used 9500, Requested 1000`."""

_WINDOWS = {"second": SECOND, "min": MINUTE, "minute": MINUTE, "day": DAY}
_PER_DAY = re.compile(r"per[- ]day", re.IGNORECASE)


def read_report(provider: str, headers: Headers, now: float, error: ProviderError | None, body: bytes) -> QuotaReport:
    """Return what a response reports about limits, as `ReadReport` says."""
    value = error_object(body) if error is not None else {}
    headers = {**headers, **passed_on_headers(value)} if provider.startswith("openrouter") else headers
    ignored: list[str] = []
    limits = read_rows(SERVER_HEADERS.get(provider, OPENAI_HEADERS), headers, now, ignored)
    if not limits and provider not in SERVER_HEADERS:
        limits = read_rows(_UPSTREAM, headers, now, ignored)
    if error is None:
        return QuotaReport(limits, ignored=tuple(ignored))
    hint = error.retry_after_ms / 1000 if error.retry_after_ms >= 0 else None
    named = _named_limit(error.message)
    refusal = _refusal(provider, headers, error, value, named, limits, hint)
    if refusal is Refusal.NONE:
        return QuotaReport(limits, hint=hint, ignored=tuple(ignored))
    if named is not None and all(limit.name != named.name for limit in limits):
        limits = (*limits, named)
    return QuotaReport(limits, refusal, _unit(value, named), hint, tuple(ignored))


def _refusal(
    provider: str,
    headers: Headers,
    error: ProviderError,
    value: JSONObject,
    named: ReportedLimit | None,
    limits: tuple[ReportedLimit, ...],
    hint: float | None,
) -> Refusal:
    """Return whether a limit refused the request, and which kind of limit."""
    status = error.http_status
    words = [word.lower() for key in ("code", "type") if (word := string(value, key))]
    found = next((CODE_REFUSAL[word] for word in words if word in CODE_REFUSAL), None)
    if found is not None:
        return found
    if _has_no_quota(error.message):
        return Refusal.SPENT
    limit_words = "rate_limit_exceeded" in words or "tokens" in words
    if is_too_large(error.message) and (status == 429 or limit_words or provider.startswith("groq")):
        return Refusal.TOO_LARGE
    refusal = refusal_of(error, STATUS_REFUSAL)
    if refusal is not Refusal.RATE:
        return refusal
    if provider == "mistral" and any(headers.get(row.limit) == "0" for row in SERVER_HEADERS["mistral"]):
        return Refusal.SPENT
    daily = named is not None and named.window >= DAY
    daily = daily or _PER_DAY.search(error.message) is not None
    daily = daily or any(limit.window >= DAY and limit.remaining == 0 for limit in limits)
    if daily and (hint is None or hint > LONGEST_PAUSE):
        return Refusal.SPENT
    return Refusal.RATE


def _has_no_quota(message: str) -> bool:
    """Return whether an error's message names a limit of 0, which no wait lifts."""
    match = _LIMIT_OF.search(message)
    return match is not None and amount(match[3].replace(",", "")) == 0


def _named_limit(message: str) -> ReportedLimit | None:
    """Return the limit that an error's message names with its number, or None."""
    match = _LIMIT_OF.search(message)
    if match is None:
        return None
    unit = next(unit for word, unit in _UNIT_WORDS if word == match[1].lower())
    limit = amount(match[3].replace(",", ""))
    used = amount((match[4] or "").replace(",", ""))
    if not limit:
        return None
    window = _WINDOWS[match[2].lower()]
    name = match[1].lower() + (" per day" if window == DAY else "")
    return ReportedLimit(name, unit, window, limit, None if used is None else max(0.0, limit - used))


def _unit(value: JSONObject, named: ReportedLimit | None) -> Unit | None:
    """Return the unit of the limit that refused the request: that of the named limit, or by the error's type."""
    if named is not None:
        return named.unit
    kind = string(value, "type")
    return {"requests": Unit.REQUESTS, "tokens": Unit.TOKENS}.get(kind or "")
