"""What one response says about the provider's limits, as one value, whichever dialect it came in.

Knows the units in which providers limit and the values that a report may hold. Must not know header names or bodies
(each dialect's `rate_limits.py` does) nor what a client does with a report.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

SECOND = 1.0
MINUTE = 60.0
DAY = 86_400.0
MONTH = 30 * DAY


class Unit(enum.IntEnum):
    """What a limit counts. The value is the place in a cost."""

    REQUESTS = 0
    INPUT_TOKENS = 1
    OUTPUT_TOKENS = 2
    TOKENS = 3
    """Input and output together."""


class Refusal(enum.StrEnum):
    """Why a request was refused, as far as limits are concerned."""

    NONE = "none"
    """The response is no refusal by a limit."""
    RATE = "rate"
    """Too much per time: the same request may go later."""
    OVERLOAD = "overload"
    """Too much at a time: the server is full, whatever the caller's own limits are."""
    TOO_LARGE = "too_large"
    """The request is larger than a whole limit: it never fits."""
    SPENT = "spent"
    """A daily, monthly or monetary quota is used up: no pause within a call's life lifts that."""


@dataclass(slots=True, frozen=True)
class ReportedLimit:
    """One limit as a response describes it.

    name: the provider's own name for it; two limits may have one unit (`tokens` and `project-tokens`).
    unit: what it counts.
    window: the seconds that the limit's number is for (60: per minute).
    limit: how much a window allows; None where the response does not say.
    remaining: how much is left; None where the response does not say.
    reset: seconds until the limit is full again; None where the response does not say.
    tier: the service tier that the limit belongs to; empty for the ordinary one.
    """

    name: str
    unit: Unit
    window: float = MINUTE
    limit: float | None = None
    remaining: float | None = None
    reset: float | None = None
    tier: str = ""


@dataclass(slots=True, frozen=True)
class QuotaReport:
    """What one response says about limits.

    limits: each limit that it describes.
    refusal: whether a limit refused the request, and of which kind.
    refused_by: the unit of the limit that refused; None where the response does not name it.
    hint: seconds to wait that the server asks for; None where it gives no hint.
    """

    limits: tuple[ReportedLimit, ...] = ()
    refusal: Refusal = Refusal.NONE
    refused_by: Unit | None = None
    hint: float | None = None


NOTHING = QuotaReport()
"""The report of a response that says nothing about limits."""
