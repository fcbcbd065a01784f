"""Who reads what a response says about limits: one function per dialect, and one for dialects of a program's own.

Knows the dialects' names. Must not know any header or body: each dialect's `rate_limits.py` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from .dialect import Headers
from .errors import ErrorCategory, ProviderError
from .quota_report import QuotaReport, Refusal


class ReadReport(Protocol):
    """What one response says about limits. Never raises.

    provider: the provider's row name. headers: names in lower case. now: the wall clock in Unix seconds.
    error: of a failed response or an error event, as the dialect has read it. body: what it was read from.
    """

    def __call__(
        self, provider: str, headers: Headers, now: float, error: ProviderError | None, body: bytes, /
    ) -> QuotaReport: ...


READERS: dict[str, str] = {
    "openai-chat": ".openai.rate_limits",
    "openai-responses": ".openai.rate_limits",
    "anthropic": ".anthropic.rate_limits",
    "gemini": ".gemini.rate_limits",
}
"""Dialect name → the module that reads its reports."""

OVERLOADED = frozenset({503, 529})
"""Statuses by which a server of any kind says that it is full."""


def reader_of(dialect: str) -> ReadReport:
    """The function that reads the reports of a dialect's servers."""
    module = READERS.get(dialect)
    if module is None:
        return read_plain_report
    return cast("ReadReport", import_module(module, __package__).read_report)


def read_plain_report(
    provider: str, headers: Headers, now: float, error: ProviderError | None, body: bytes, /
) -> QuotaReport:
    """The report of a server of which nothing is known but the error, as its dialect has read it."""
    if error is None:
        return QuotaReport()
    hint = error.retry_after_ms / 1000 if error.retry_after_ms >= 0 else None
    if error.category is ErrorCategory.RATE_LIMIT:
        return QuotaReport((), Refusal.RATE if error.retryable else Refusal.SPENT, None, hint)
    return QuotaReport((), Refusal.OVERLOAD if error.http_status in OVERLOADED else Refusal.NONE, None, hint)
