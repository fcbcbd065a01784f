"""Rate limits that the user declares. Values and their checks only."""

from __future__ import annotations

from dataclasses import dataclass

from ....providers.errors import InvalidRequestError
from ....providers.limits.quota_report import DAY, MINUTE, SECOND, ReportedLimit, Unit
from ....providers.limits.rate_headers import LARGEST
from ....providers.rules.rules import Checker, number, optional, whole

_LIMITS: tuple[tuple[str, Unit, float], ...] = (
    ("requests_per_second", Unit.REQUESTS, SECOND),
    ("requests_per_minute", Unit.REQUESTS, MINUTE),
    ("requests_per_day", Unit.REQUESTS, DAY),
    ("tokens_per_minute", Unit.TOKENS, MINUTE),
    ("input_tokens_per_minute", Unit.INPUT_TOKENS, MINUTE),
    ("output_tokens_per_minute", Unit.OUTPUT_TOKENS, MINUTE),
)
"""Per option: its name, the unit that it limits, and its window in seconds."""


@dataclass(slots=True, frozen=True, kw_only=True)
class RateLimit:
    """The limits of an API key, a model or the whole engine. None: no limit of this kind. At least one is needed.

    Half a request per second is one request in two seconds.

    requests_per_second: requests in a second.
    requests_per_minute: requests in a minute.
    requests_per_day: requests in 24 hours.
    tokens_per_minute: input and output tokens in a minute, counted together.
    input_tokens_per_minute: input tokens in a minute.
    output_tokens_per_minute: output tokens in a minute.
    concurrent: calls that run at a time.
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
        if all(getattr(self, name) is None for name in RATE_LIMIT.rules):
            raise InvalidRequestError(
                "rates", f"must have a limit: give RateLimit one of {', '.join(RATE_LIMIT.rules)}, or leave it out"
            )


def limits_of(declared: RateLimit, of: str = "") -> tuple[ReportedLimit, ...]:
    """Return the declared limits in the form of limits that a server reports, with nothing used.

    of: the entry of `rates` that declares the limits, for their names.
    """
    suffix = f" of {of}" if of else ""
    found: list[ReportedLimit] = []
    for name, unit, window in _LIMITS:
        value: float | None = getattr(declared, name)
        if value is not None:
            if unit is Unit.REQUESTS and value < 1:
                value, window = 1.0, window / value  # such as one request in two seconds
            found.append(ReportedLimit(f"declared {name}{suffix}", unit, window, limit=value, remaining=value))
    return tuple(found)


_ABOVE_0 = optional(number(0, LARGEST, must="a number above 0", above=True))
RATE_LIMIT = Checker(RateLimit, {**{name: _ABOVE_0 for name, _, _ in _LIMITS}, "concurrent": optional(whole(1))})
"""The rules for the fields of `RateLimit`, which are checked when one is made."""
