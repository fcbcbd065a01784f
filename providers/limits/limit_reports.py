"""Selects the function that reads a response's limits: one per dialect, and one for a program's own dialects."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from ..catalog.dialect import Headers
from ..catalog.registry import ROWS
from ..model.provider_error import ErrorCategory, ProviderError
from .quota_report import QuotaReport, Refusal


class ReadReport(Protocol):
    """Returns what one response reports about limits. Never raises.

    provider: the name of the provider's profile.
    headers: names in lower case.
    now: the wall clock in Unix seconds.
    error: the error of a failed response or of an error event, or None.
    body: the body or event that the error was read from.
    """

    def __call__(
        self, provider: str, headers: Headers, now: float, error: ProviderError | None, body: bytes, /
    ) -> QuotaReport: ...


OVERLOADED = frozenset({503, 529})
"""HTTP statuses that mean that a server is full."""


def reader_of(dialect: str) -> ReadReport:
    """Return the function that reads limits from responses of a dialect."""
    row = ROWS.get(dialect)
    if row is None or not row.limits:
        return read_plain_report
    return cast("ReadReport", import_module(row.limits, __package__).read_report)


def read_plain_report(
    provider: str, headers: Headers, now: float, error: ProviderError | None, body: bytes, /
) -> QuotaReport:
    """Return what the error alone reports about limits, for a server with unknown headers and bodies."""
    if error is None:
        return QuotaReport()
    hint = error.retry_after_ms / 1000 if error.retry_after_ms >= 0 else None
    if error.category is ErrorCategory.RATE_LIMIT:
        return QuotaReport((), Refusal.RATE if error.retryable else Refusal.SPENT, None, hint)
    return QuotaReport((), Refusal.OVERLOAD if error.http_status in OVERLOADED else Refusal.NONE, None, hint)
