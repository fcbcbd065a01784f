"""A circuit breaker: while most calls to a target fail, it lets one call at a time through.

Failures are counted in the order in which the calls were sent. In the order of their outcomes, failures that come at
once would look like a series, because good answers take longer. So a call under way is no failure, as long as a call
that was sent later has an outcome. The calls after the latest one with an outcome are not looked at: to a target that
hangs, they are all that were sent within the first-byte timeout.
"""

from __future__ import annotations

import enum
import math

LATEST = 20
"""The number of calls whose outcomes count: the last ones that were sent up to the latest one with an outcome."""

FAILURES = 5
"""A target's breaker opens when at least this many of the latest calls have failed, and more than half of them."""

OPEN_FOR = 2.0
"""The length of the pause in seconds. It is constant, so that a recovered target is used within this time."""


class BreakerState(enum.StrEnum):
    """The calls that a breaker lets through."""

    CLOSED = "closed"
    """Every call."""
    OPEN = "open"
    """No call."""
    PROBING = "probing"
    """One call, whose outcome decides."""


class Breaker:
    """The breaker of one target, or of one address. A call is known by its number, counted from 1 in the order of
    sending.

    latest: how many of the latest calls count.
    failures: how many of them must have failed, at least, to open it.
    open_for: seconds of a pause.
    probe: the number of the probing call; 0: there is none.

    A call that was sent before it opened does not close it, and one that was sent before the probing call does not
    lengthen the pause.
    """

    __slots__ = (
        "_broke",
        "_failed",
        "_failures",
        "_last",
        "_latest",
        "_open_for",
        "_opened_after",
        "_opened_at",
        "_sent",
        "_since",
        "probe",
    )

    def __init__(self, latest: int = LATEST, failures: int = FAILURES, open_for: float = OPEN_FOR) -> None:
        self._latest = latest
        self._failures = failures
        self._open_for = open_for
        self._sent = 0  # the number of the latest call
        self._last = 0  # that of the latest call with an outcome
        self._since = 0  # the outcomes of calls after this one count
        self._failed: list[int] = []  # the latest calls that failed
        self._broke = False  # one of the failures that opened it came after the first event
        self._opened_at = math.inf  # while it is closed
        self._opened_after = 0  # the latest call when it opened
        self.probe: int = 0

    def state(self, now: float) -> BreakerState:
        """Return the breaker's state at the time `now`."""
        if not self.is_tripped:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.probe or now < self._opened_at + self._open_for else BreakerState.PROBING

    @property
    def is_tripped(self) -> bool:
        """Whether so many calls have failed that it is not closed."""
        return self._opened_at < math.inf

    @property
    def counts(self) -> tuple[int, int]:
        """The number of failures among the latest calls, and the number of these calls."""
        return len(self._failed), min(self._last - self._since, self._latest)

    def next_time(self, now: float) -> float:
        """Return the time of the next probing call; `now` if calls may be sent; `math.inf` while a probe runs."""
        if self.state(now) is not BreakerState.OPEN:
            return now
        return math.inf if self.probe else self._opened_at + self._open_for

    def begin(self, now: float) -> int:
        """Record that a call is sent, and return its number. The first call after the pause is the probing call."""
        self._sent += 1
        if self._opened_at < math.inf and not self.probe and now >= self._opened_at + self._open_for:
            self.probe = self._sent
        return self._sent

    def succeed(self, number: int) -> None:
        """Record the first event of a call, and close the breaker, unless streams that broke later have opened it."""
        self._note(number)
        if not self._broke:
            self.complete(number)

    def complete(self, number: int) -> None:
        """Record a complete answer, and close the breaker."""
        if self.is_tripped and number > self._opened_after:
            self._opened_at = math.inf
            self._since, self._failed, self._broke, self.probe = number - 1, [], False, 0
            self._note(number)

    def reset(self) -> None:
        """Close the breaker, and count only the calls that are sent from now on."""
        self._opened_at, self.probe, self._broke = math.inf, 0, False
        self._since, self._failed = self._sent, []

    def fail(self, number: int, now: float, *, broke: bool = False) -> None:
        """Record that a call failed by the target's fault.

        broke: its first event had come.
        """
        if self.is_tripped:
            if number >= self.probe > 0:
                self._open(now)
            return
        if number > max(self._since, self._last - self._latest):
            self._failed.append(number)
        self._note(number)
        failures, calls = self.counts
        if failures >= self._failures and failures > calls / 2:
            self._broke = broke
            self._open(now)

    def _note(self, number: int) -> None:
        """Note that a call has an outcome, and forget the failures of calls that are too old."""
        if number > self._last:
            self._last = number
            self._failed = [failed for failed in self._failed if failed > number - self._latest]

    def _open(self, now: float) -> None:
        self._opened_at, self._opened_after, self.probe = now, self._sent, 0

    def end(self, number: int) -> None:
        """Record the end of a call. If it was the probing call and had no outcome, the next call is the probing one."""
        if number == self.probe:
            self.probe = 0
