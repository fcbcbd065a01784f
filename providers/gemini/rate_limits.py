"""Reads limits from Gemini's errors, as a `QuotaReport`. Gemini's responses have no headers about limits.

The `quotaId` takes precedence over the `retryDelay`: a used-up daily quota comes with a short delay as well. Source:
https://ai.google.dev/gemini-api/docs/rate-limits.
"""

from __future__ import annotations

import re

from ..catalog.dialect import Headers
from ..json.json_values import JSONObject, objects, string
from ..limits.quota_report import MINUTE, QuotaReport, Refusal, ReportedLimit, Unit, refusal_of
from ..limits.rate_headers import amount
from ..model.provider_error import ErrorCategory, ProviderError
from ..wire.error_bodies import error_object, is_spent

STATUS_REFUSAL: dict[int, Refusal] = {402: Refusal.SPENT, 429: Refusal.RATE, 503: Refusal.OVERLOAD}

QUOTA_UNITS: tuple[tuple[re.Pattern[str], Unit], ...] = (
    (re.compile(r"input_?token", re.IGNORECASE), Unit.INPUT_TOKENS),
    (re.compile(r"output_?token", re.IGNORECASE), Unit.OUTPUT_TOKENS),
    (re.compile(r"token", re.IGNORECASE), Unit.TOKENS),
    (re.compile(r"request", re.IGNORECASE), Unit.REQUESTS),
)
"""Pattern of a `quotaId` or `quotaMetric` → what the quota counts."""

_NO_QUOTA = re.compile(r"limit: 0(?![\d.])", re.ASCII)
_METRIC = re.compile(r"Quota exceeded for metric: (\S{1,200}?),? limit: (\d{1,15})", re.ASCII)


def read_report(provider: str, headers: Headers, now: float, error: ProviderError | None, body: bytes) -> QuotaReport:
    """Return what a response reports about limits, as `ReadReport` says."""
    if error is None:
        return QuotaReport()
    hint = error.retry_after_ms / 1000 if error.retry_after_ms >= 0 else None
    refusal = refusal_of(error, STATUS_REFUSAL)
    if refusal not in (Refusal.RATE, Refusal.SPENT) or error.category is not ErrorCategory.RATE_LIMIT:
        return QuotaReport((), refusal, None, hint)
    violations = _violations(body) or _violation_in_words(error.message)
    limits = tuple(limit for violation in violations if (limit := _limit(violation)) is not None)
    unit = next((unit for violation in violations if (unit := _unit(violation)) is not None), None)
    if (
        refusal is Refusal.SPENT
        or any(is_spent(violation) for violation in violations)
        or _NO_QUOTA.search(error.message)
    ):
        return QuotaReport((), Refusal.SPENT, unit, hint)
    return QuotaReport(limits, Refusal.RATE, unit, hint)


def _violations(body: bytes) -> list[JSONObject]:
    details = objects(error_object(body), "details")
    return [violation for detail in details for violation in objects(detail, "violations")]


def _violation_in_words(message: str) -> list[JSONObject]:
    """Return the violations that a message describes, for errors whose details a gateway removed."""
    return [{"quotaMetric": metric, "quotaValue": number} for metric, number in _METRIC.findall(message)]


def _unit(violation: JSONObject) -> Unit | None:
    words = f"{string(violation, 'quotaId') or ''} {string(violation, 'quotaMetric') or ''}"
    return next((unit for pattern, unit in QUOTA_UNITS if pattern.search(words)), None)


def _limit(violation: JSONObject) -> ReportedLimit | None:
    quota, unit = string(violation, "quotaId") or "", _unit(violation)
    number = violation.get("quotaValue")
    limit = amount(str(number)) if type(number) in (str, int) else None
    if unit is None or not limit or "PerMinute" not in quota:
        return None
    return ReportedLimit(unit.name.lower().replace("_", " "), unit, MINUTE, limit, 0.0)
