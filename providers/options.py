"""Options that a request may carry for the engine: its clocks and its retries. Values and their checks only;
what they do is the engine's business."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from .errors import InvalidRequestError


@dataclass(slots=True, frozen=True)
class Timeouts:
    """Four clocks, in seconds. None inherits (request ← engine ← default); `math.inf` switches a clock off.

    connect: DNS, TCP, proxy and TLS together. Default 10.
    first_byte: from the request's last byte to the response's first. Default 120 for streams, 600 unstreamed.
    idle: between any two bytes (comments and pings count), sent or received. Default 120.
    total: from the start of the call to its end, waiting and retries included. Default: none.
    """

    connect: float | None = None
    first_byte: float | None = None
    idle: float | None = None
    total: float | None = None

    def __post_init__(self) -> None:
        for clock in fields(self):
            value: object = getattr(self, clock.name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or value <= 0:
                raise InvalidRequestError(
                    f"timeouts.{clock.name}", f"must be a number of seconds above 0, not {value!r}"
                )

    def over(self, other: Timeouts) -> Timeouts:
        """These clocks, with `other`'s where these are None."""
        return Timeouts(
            *(
                getattr(other, clock.name) if getattr(self, clock.name) is None else getattr(self, clock.name)
                for clock in fields(self)
            )
        )


@dataclass(slots=True, frozen=True)
class Retry:
    """How often and how far apart. Delays in seconds: `base`, doubled each time up to `cap`, plus up to `jitter`.

    The server's own hint wins over the delay; a hint above `max_hint` means no retry at all.
    """

    max_attempts: int = 4
    base: float = 1.0
    cap: float = 30.0
    jitter: float = 1.0
    max_hint: float = 120.0

    def __post_init__(self) -> None:
        if isinstance(self.max_attempts, bool) or self.max_attempts < 1:
            raise InvalidRequestError("retry.max_attempts", f"must be at least 1, not {self.max_attempts!r}")
        for name in ("base", "cap", "jitter", "max_hint"):
            value: float = getattr(self, name)
            if isinstance(value, bool) or math.isnan(value) or value < 0:
                raise InvalidRequestError(f"retry.{name}", f"must be 0 or more seconds, not {value!r}")
