"""After which failures a call goes to another target, and which of them count against the target."""

from __future__ import annotations

from collections.abc import Collection

from ....providers.limits.quota_report import Refusal
from ....providers.model.provider_error import ABORTED_CODE, ErrorCategory, ProviderError

TARGET_FAILURES = frozenset(
    {
        ErrorCategory.SERVER,
        ErrorCategory.TIMEOUT,
        ErrorCategory.NETWORK,
        ErrorCategory.AUTH,
        ErrorCategory.NOT_FOUND,
    }
)
"""Categories of failures that are the target's. RATE_LIMIT moves a call on as well, and says nothing about health."""

CALL_CLOCKS = frozenset({"total", "queue"})
"""The timeouts of a whole call. After one of them, no time is left for another target."""

KEY_STATUSES = frozenset({401, 403})
"""HTTP statuses with which a server refuses a key."""

OTHERS_MAY_TAKE = frozenset({Refusal.TOO_LARGE, Refusal.SPENT})
"""Refusals after which another target may still take the request."""


def is_targets_fault(error: ProviderError) -> bool:
    """Return whether a failure counts against the target. A refusal by a limit does not: full is no failure."""
    if error.context_overflow or error.provider_code == ABORTED_CODE or _is_call_clock(error):
        return False
    return error.category in TARGET_FAILURES


def moves_on(error: ProviderError, refusal: Refusal, failover_on: Collection[str]) -> bool:
    """Return whether the call may go to another target after a failure.

    refusal: the kind of limit that refused the call.
    failover_on: the route's own additions.
    """
    if error.context_overflow:
        return "context_overflow" in failover_on
    if error.category is ErrorCategory.CONTENT_FILTER:
        return "content_filter" in failover_on
    if error.category is ErrorCategory.RATE_LIMIT or refusal in OTHERS_MAY_TAKE:
        return True
    return is_targets_fault(error)


def is_keys_fault(error: ProviderError, refusal: Refusal) -> bool:
    """Return whether another key of the same provider may succeed."""
    if refusal is Refusal.SPENT:
        return True
    return error.category is ErrorCategory.AUTH or error.http_status in KEY_STATUSES


def _is_call_clock(error: ProviderError) -> bool:
    return error.category is ErrorCategory.TIMEOUT and not error.http_status and error.provider_code in CALL_CLOCKS
