"""The states of a call and its timeouts: which one applies in which state.

An `Attempt` judges the timeouts while it is under way; its call judges them while it waits for traffic control, or for
the time of a retry.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from ...providers.model.options import Timeouts
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.rules import LARGEST, described


class CallState(enum.StrEnum):
    """The state of a call."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    SENDING = "sending"
    WAITING = "waiting"
    READING = "reading"
    BACKOFF = "backoff"
    ENDED = "ended"


QUEUED, CONNECTING, SENDING, WAITING, READING, BACKOFF, ENDED = CallState
"""The members, for the states of every call."""


@dataclass(slots=True, frozen=True)
class Clocks:
    """The duration of each timeout of a call, in seconds; `math.inf`: no timeout."""

    connect: float
    first_byte: float
    idle: float
    total: float
    queue: float


LEAST_WAIT = 1e-6
"""The smallest number of seconds that counts as a wait."""

DEFAULTS = Timeouts(connect=10.0, first_byte=600.0, idle=120.0, total=math.inf, queue=math.inf)
STREAM_DEFAULTS = Timeouts(connect=10.0, first_byte=120.0, idle=120.0, total=math.inf, queue=math.inf)


class Clock(enum.StrEnum):
    """The timeout that ended a call; its value is the option's name."""

    CONNECT = "connect"
    FIRST_BYTE = "first_byte"
    IDLE = "idle"
    TOTAL = "total"
    QUEUE = "queue"


STATE_CLOCK: dict[CallState, Clock | None] = {
    QUEUED: Clock.QUEUE,  # counted as if the call had waited only once, without a break
    CONNECTING: Clock.CONNECT,
    SENDING: Clock.IDLE,
    WAITING: Clock.FIRST_BYTE,
    READING: Clock.IDLE,
    BACKOFF: None,
    ENDED: None,
}
"""State → the timeout that applies in it, besides the total one, which always applies."""

LENGTH: dict[Clock, Callable[[Clocks], float]] = {clock: attrgetter(clock.value) for clock in Clock}
"""Timeout → a function that returns its duration from a call's `Clocks`."""

ERROR_BODY_SECONDS: float = 5.0
"""Seconds that the body of an error response may take after its head. An overloaded server may send the body slowly,
and the status is known by then."""

UNTIMED = BACKOFF
"""The state in which only the total timeout applies. Also used for an attempt that is paused, or delivers in steps."""

WHAT_WAS_AWAITED: dict[Clock, str] = {
    Clock.CONNECT: "no connection within",
    Clock.FIRST_BYTE: "no response byte within",
    Clock.IDLE: "no byte for",
    Clock.TOTAL: "the call did not end within",
    Clock.QUEUE: "the call was not sent within",
}


def effective(request: Timeouts | None, engine: Timeouts | None, *, stream: bool) -> Clocks:
    """Return the timeouts of one call: its own, else the engine's, else the defaults."""
    timeouts = STREAM_DEFAULTS if stream else DEFAULTS
    for given in (engine, request):
        if given is not None:
            timeouts = given.over(timeouts)
    lengths = (timeouts.connect, timeouts.first_byte, timeouts.idle, timeouts.total, timeouts.queue)
    return Clocks(*(math.inf if length is None else length for length in lengths))


def timeout_error(clock: Clock, limit: float, where: str) -> ProviderError:
    """Return the error of a timeout. `where` describes what the call was doing."""
    return ProviderError(
        f"{clock.value} timeout: {WHAT_WAS_AWAITED[clock]} {limit:g} s ({where})",
        category=ErrorCategory.TIMEOUT,
        provider_code=clock.value,
        # Another attempt would have no time left.
        retryable=clock not in (Clock.TOTAL, Clock.QUEUE),
    )


def seconds_of(timeout: float, method: str, *, least: float = 0.0) -> float:
    """Return a program's timeout in seconds; `math.inf` for more than a float can hold.

    Raises `ValueError` for anything but a number of at least `least`.

    method: the name of the method that has the timeout, for the error.
    """
    if not isinstance(timeout, (int, float)) or not timeout >= least:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{method}: timeout must be seconds, 0 or more (math.inf: no limit), not {described(timeout)}")
    return timeout if timeout <= LARGEST else math.inf
