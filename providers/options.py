"""Options that a request may carry for the engine: its clocks and its retries. Values and their rows of rules only;
what they do is the engine's business."""

from __future__ import annotations

from dataclasses import dataclass, fields

from .rules import Checker, number, optional, whole


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
        TIMEOUTS.check(self, "timeouts")

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
        RETRY.check(self, "retry")


_CLOCK = optional(number(0, must="a number of seconds above 0", above=True, infinite=True))
TIMEOUTS = Checker(Timeouts, dict.fromkeys(("connect", "first_byte", "idle", "total"), _CLOCK))

_DELAY = number(0, must="a number of seconds of at least 0")
RETRY = Checker(
    Retry,
    {
        "max_attempts": whole(1),
        "base": _DELAY,
        "cap": number(0, must="a number of seconds of at least 0", infinite=True),
        "jitter": _DELAY,
        "max_hint": number(0, must="a number of seconds of at least 0", infinite=True),
    },
)
"""Both check themselves when they are made: what they hold cannot change after that."""
