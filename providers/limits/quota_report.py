"""What one response reports about the provider's limits, as one value for all dialects.

Each dialect's `rate_limits.py` looks first for codes and words that name a limit, and calls `refusal_of` for all other
errors.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.provider_error import ErrorCategory, ProviderError

SECOND = 1.0
MINUTE = 60.0
DAY = 86_400.0
MONTH = 30 * DAY


class Unit(enum.IntEnum):
    """What a limit counts. The value is the position in a request's cost."""

    REQUESTS = 0
    INPUT_TOKENS = 1
    OUTPUT_TOKENS = 2
    TOKENS = 3
    """Input and output together."""

    @property
    def words(self) -> str:
        """As messages name it."""
        return self.name.lower().replace("_", " ")


class Refusal(enum.StrEnum):
    """Which kind of limit refused a request."""

    NONE = "none"
    """No limit refused the request."""
    RATE = "rate"
    """Too much in a period of time: the same request can succeed later."""
    OVERLOAD = "overload"
    """Too much at once: the server is full, whatever the caller's own limits are."""
    TOO_LARGE = "too_large"
    """The request is larger than a whole limit: it can never succeed."""
    SPENT = "spent"
    """A daily, monthly or monetary quota is used up: no pause within a call's lifetime helps."""


@dataclass(slots=True, frozen=True)
class ReportedLimit:
    """One limit as a response reports it.

    name: the provider's own name for it. Two limits may have one unit (`tokens` and `project-tokens`).
    unit: what it counts.
    window: the period that the limit applies to, in seconds (60: per minute).
    limit: the amount allowed per window; None if not reported.
    remaining: the amount left; None if not reported.
    reset: seconds until the limit is full again; None if not reported.
    tier: the service tier that the limit belongs to; empty for the ordinary one.
    reset_step: seconds to which the server rounds the reset. Not compared.
    reset_is_moment: True: the server reported a moment, and `reset` is the time from the arrival of the report to it,
        below 0 if the moment has passed. False: `reset` is a time from the moment that `remaining` describes. Not
        compared.
    """

    name: str
    unit: Unit
    window: float = MINUTE
    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None
    tier: str = ""
    reset_step: float = field(default=1.0, compare=False)
    reset_is_moment: bool = field(default=False, compare=False)


@dataclass(slots=True, frozen=True)
class QuotaReport:
    """What one response reports about limits.

    limits: each limit that it reports.
    refusal: whether a limit refused the request, and which kind of limit.
    refused_by: the unit of the limit that refused the request; None if not reported.
    hint: seconds to wait that the server asks for; None if not reported.
    ignored: names of rate-limit headers whose value says nothing, such as `-1` or `NaN`. Not compared.
    """

    limits: tuple[ReportedLimit, ...] = ()
    refusal: Refusal = Refusal.NONE
    refused_by: Unit | None = None
    hint: float | None = None
    ignored: tuple[str, ...] = field(default=(), compare=False)


NOTHING = QuotaReport()
"""The report of a response without information about limits."""


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
