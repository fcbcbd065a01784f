"""Limits that the user declares. Values and their checks only."""

from __future__ import annotations

from dataclasses import dataclass

from ...providers.quota_report import DAY, MINUTE, SECOND, ReportedLimit, Unit
from ...providers.rate_headers import LARGEST
from ...providers.rules import Checker, number, optional, whole

_LIMITS: tuple[tuple[str, Unit, float], ...] = (
    ("requests_per_second", Unit.REQUESTS, SECOND),
    ("requests_per_minute", Unit.REQUESTS, MINUTE),
    ("requests_per_day", Unit.REQUESTS, DAY),
    ("tokens_per_minute", Unit.TOKENS, MINUTE),
    ("input_tokens_per_minute", Unit.INPUT_TOKENS, MINUTE),
    ("output_tokens_per_minute", Unit.OUTPUT_TOKENS, MINUTE),
)
"""Option, the unit that it limits, and the seconds that its number is for."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RateLimit:
    """What a key, a model or the whole engine may use. None: not limited here.

    concurrent: calls that run at a time.
    The others: requests or tokens per second, minute or day, as the names say.
    """

    requests_per_second: float | None = None
    requests_per_minute: float | None = None
    requests_per_day: float | None = None
    tokens_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    concurrent: int | None = None

    def __post_init__(self) -> None:
        RATE_LIMIT.check(self, "rates")


def limits_of(declared: RateLimit, of: str = "") -> tuple[ReportedLimit, ...]:
    """The declared limits in the form in which servers report theirs, full.

    of: the entry of `rates` that declares them, for their names.
    """
    suffix = f" of {of}" if of else ""
    found: list[ReportedLimit] = []
    for name, unit, window in _LIMITS:
        value: float | None = getattr(declared, name)
        if value is not None:
            found.append(ReportedLimit(f"declared {name}{suffix}", unit, window, limit=value, remaining=value))
    return tuple(found)


_ABOVE_0 = optional(number(0, LARGEST, must="a number above 0", above=True))
RATE_LIMIT = Checker(RateLimit, {**{name: _ABOVE_0 for name, _, _ in _LIMITS}, "concurrent": optional(whole(1))})
"""A limit checks itself when it is made."""
