"""Timeouts, retries and priority of a call: values and the rules of their fields."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from .rules import Checker, Rule, instance, number, optional, text, whole


class Priority(enum.StrEnum):
    """The order in which calls that wait for a limit are sent: that of the members."""

    INTERACTIVE = "interactive"
    NORMAL = "normal"
    BATCH = "batch"


PriorityName: TypeAlias = Literal["interactive", "normal", "batch"]

PauseMode: TypeAlias = Literal["abort", "wait", "keep"]
"""What becomes of a paused server's answers: they end, aborted; the server ends them first; they go on afterwards."""


@dataclass(slots=True, frozen=True)
class Timeouts:
    """Five timeouts, in seconds. None inherits (request ← engine ← default); `math.inf` disables a timeout.

    connect: DNS, TCP, proxy and TLS together. Default 10.
    first_byte: from the last byte of the request to the first byte of the response. Default 120 for streams, 600
        unstreamed.
    idle: between any two bytes sent or received, comments and pings included. Default 120.
    total: from the start of the call to its end, including waits and retries. Default: none.
    queue: all waiting before a connection: for a limit of the provider and for a free connection. The wait after a
        refusal by a limit is added; the pause between two attempts is not. Default: none.

    Raises `InvalidRequestError` for a value that is no number above 0.
    """

    connect: float | None = None
    first_byte: float | None = None
    idle: float | None = None
    total: float | None = None
    queue: float | None = None

    def __post_init__(self) -> None:
        TIMEOUTS.check(self, "timeouts")

    def over(self, other: Timeouts) -> Timeouts:
        """Return these timeouts, with the values of `other` where these are None."""
        return Timeouts(
            *(
                getattr(other, clock.name) if getattr(self, clock.name) is None else getattr(self, clock.name)
                for clock in fields(self)
            )
        )


@dataclass(slots=True, frozen=True)
class Retry:
    """How often a call is attempted, and the delays between attempts, in seconds.

    A server's own hint replaces the computed delay. Raises `InvalidRequestError` for a value that is out of range.

    max_attempts: attempts in total; 1 means no retry.
    base: the delay before the second attempt. It doubles for each further one.
    cap: the longest computed delay.
    jitter: the most that is added to a delay at random.
    max_hint: the longest hint that is followed. With a longer one the call is not retried.
    """

    max_attempts: int = 4
    base: float = 1.0
    cap: float = 30.0
    jitter: float = 1.0
    max_hint: float = 120.0

    def __post_init__(self) -> None:
        RETRY.check(self, "retry")


@dataclass(slots=True, frozen=True)
class Durable:
    """How an answer is made that survives the loss of its connection and of the program's process.

    The server makes it in the background and keeps it, so that it can be read again.

    window: the time within which the server completes the answer, in its own words, such as `"2h"`: a longer one costs
        less. None: the server begins at once.

    Raises `InvalidRequestError` for a window that is no text.
    """

    window: str | None = None

    def __post_init__(self) -> None:
        DURABLE.check(self, "durable")


_CLOCK = optional(number(0, must="a number of seconds above 0", above=True, infinite=True))
TIMEOUTS = Checker(Timeouts, dict.fromkeys(("connect", "first_byte", "idle", "total", "queue"), _CLOCK))

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
"""The rules for `Retry`. `Timeouts` and `Retry` check themselves when they are made, and are immutable after that."""

DURABLE = Checker(Durable, {"window": optional(text("a window in the server's words, such as '2h'", empty=False))})

DURABLE_GIVEN = Rule("True, False or a Durable", (bool, Durable), forms={str: "use Durable(window={})"})

TIMEOUTS_GIVEN = optional(instance(Timeouts, forms={int: "use Timeouts(total={})", float: "use Timeouts(total={})"}))
RETRY_GIVEN = optional(
    instance(Retry, forms={int: "use Retry(max_attempts={})", bool: "use Retry(max_attempts=1) for no retry"})
)
"""The rules for these options of a request and of an engine. Their fields were checked when they were made."""
