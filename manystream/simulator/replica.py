"""A replica of a server: its own speed, failures and outages. It is given the time; it reads no clock."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from .knobs import KnobError, read_options, readers_of
from .program import Ending, Program, no_response
from .prompt import APIError

OUTAGES = ("503", "hang", "close")
"""What a replica does during an outage: respond with 503, accept and never respond, or close the connection."""

SLOWNESS = 20.0
"""How many times longer a slow answer takes."""

_OUTAGE = re.compile(r"\A(\d++(?:\.\d++)?+)-(\d++(?:\.\d++)?+)(?::(\w++))?+")


@dataclass(slots=True, frozen=True)
class Outage:
    """A time without service, in seconds since the start. kind: one of `OUTAGES`."""

    start: float
    end: float
    kind: str = "503"


@dataclass(slots=True, frozen=True, kw_only=True)
class Replica:
    """How one replica differs.

    port: where it listens; 0 takes a free port.
    speed: factor for its rates and delays; 0.1 is ten times slower.
    delay: seconds that it adds before the first byte.
    fail: the part of the calls that fail at once, from 0 to 1.
    status: the HTTP status of these failures.
    slow: the part of the answers that take twenty times as long, from 0 to 1.
    outages: times without service, each written as `outage=START-END:KIND`, in seconds since the start. KIND is `503`
        (default), `hang` or `close`.
    seed: varies which calls fail or are slow.
    """

    port: int = 0
    speed: float = 1.0
    delay: float = 0.0
    fail: float = 0.0
    status: int = 500
    slow: float = 0.0
    outages: tuple[Outage, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        speed, delay = 0 < self.speed < math.inf, 0 <= self.delay < math.inf
        if not speed or not delay or not 0 <= self.fail <= 1 or not 0 <= self.slow <= 1:
            raise KnobError("replica: speed is a number above 0, delay one from 0, and fail and slow are from 0 to 1")


def read_replica(text: str) -> Replica:
    """A replica from text: `port=8081 speed=0.1 fail=0.3 outage=10-20:hang`; `outage` may be repeated. Raises
    `KnobError`."""
    options = read_options("replica", text, READERS)
    outages = tuple(value for _, value in options if isinstance(value, Outage))
    found = {name: value for name, value in options if name != "outage"}
    return Replica(outages=outages, **found)  # type: ignore[arg-type]


def _outage(text: str) -> Outage:
    found = _OUTAGE.fullmatch(text)
    kind = (found[3] or "503") if found else ""
    if found is None or kind not in OUTAGES:
        raise KnobError(f"replica: outage={text!r}: outage is START-END:KIND in seconds; KIND is {', '.join(OUTAGES)}")
    outage = Outage(float(found[1]), float(found[2]), kind)
    if not outage.start < outage.end:
        raise KnobError(f"replica: outage={text!r}: END must be later than START")
    return outage


READERS: dict[str, Callable[[str], object]] = {
    "outage" if name == "outages" else name: read for name, read in readers_of(Replica, outages=_outage).items()
}
"""Option → the function that reads its value."""


class ReplicaState:
    """A replica at work."""

    def __init__(self, replica: Replica, started: float) -> None:
        self.replica = replica
        self._started = started
        self._source = random.Random(replica.seed)

    def interrupt(self, now: float) -> Program | None:
        """The program of a request that gets no answer; None if it gets one. Raises `APIError` for a failure."""
        since = now - self._started
        for outage in self.replica.outages:
            if not outage.start <= since < outage.end:
                continue
            if outage.kind == "hang":
                return Program([b""], ending=Ending.STALL, counted=False)
            if outage.kind == "close":
                return no_response(0.0)
            raise APIError(503, "")
        if self.replica.fail and self._source.random() < self.replica.fail:
            raise APIError(self.replica.status, "")
        return None

    def paced(self, program: Program) -> Program:
        """The program at the replica's speed."""
        replica, speed = self.replica, self.replica.speed
        if replica.slow and self._source.random() < replica.slow:
            speed /= SLOWNESS
        if speed == 1.0 and not replica.delay:
            return program
        return replace(program, interval=program.interval / speed, delay=program.delay / speed + replica.delay)
