"""Which kind of limit refused a request, by the status or the category of its error.

Each dialect's `rate_limits.py` looks first for codes and words that name a limit, and calls this for all other errors.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..model.provider_error import ErrorCategory, ProviderError
from .quota_report import Refusal

PAUSES = frozenset({Refusal.RATE, Refusal.OVERLOAD})
"""Refusals after which the same request can succeed later."""

OF_NO_LIMIT = frozenset(
    {ErrorCategory.AUTH, ErrorCategory.NOT_FOUND, ErrorCategory.INVALID_ARG, ErrorCategory.CONTENT_FILTER}
)
"""Categories of errors for which no limit is the reason. Waiting does not help, whatever the status is: gateways send
429 with `model_not_found` as well.
"""


def refusal_of(error: ProviderError, by_status: Mapping[int, Refusal]) -> Refusal:
    """Return whether a limit refused the request, and which kind of limit.

    An error inside an answer with status 200 counts by its own status, which is its code, or by its category.

    by_status: HTTP status → its refusal.
    """
    found = by_status.get(_status_of(error), Refusal.NONE)
    if found is Refusal.NONE and error.http_status < 400 and error.category is ErrorCategory.RATE_LIMIT:
        found = Refusal.RATE
    if found in PAUSES and error.category in OF_NO_LIMIT:
        return Refusal.NONE
    if found is Refusal.RATE and not error.retryable:
        return Refusal.SPENT
    return found


def _status_of(error: ProviderError) -> int:
    """Return the HTTP status, or that of an error inside an answer; 0 if there is none."""
    code = error.provider_code or ""
    if error.http_status < 400 and len(code) == 3 and code.isascii() and code.isdigit():
        return int(code)
    return error.http_status
