"""Limits that the user declares. Values and their checks only."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from ...providers.errors import InvalidRequestError
from ...providers.quota_report import DAY, MINUTE, SECOND, ReportedLimit, Unit

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
        for limit in fields(self):
            value: object = getattr(self, limit.name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InvalidRequestError(f"rates.{limit.name}", f"must be a number above 0, not {value!r}")
        if self.concurrent is not None and (type(self.concurrent) is not int or self.concurrent < 1):
            raise InvalidRequestError("rates.concurrent", f"must be a whole number above 0, not {self.concurrent!r}")

    def limits(self) -> tuple[ReportedLimit, ...]:
        """The declared limits in the form in which servers report theirs, full."""
        found: list[ReportedLimit] = []
        for name, unit, window in _LIMITS:
            value: float | None = getattr(self, name)
            if value is not None:
                found.append(ReportedLimit(f"declared {name}", unit, window, limit=value, remaining=value))
        return tuple(found)
