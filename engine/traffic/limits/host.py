"""Circuit breakers: of one target, and of an address at which providers are.

A breaker lets one call at a time through, while most calls to a target fail. Failures are counted in the order in which
the calls were sent. In the order of their outcomes, failures that come at once would look like a series, because good
answers take longer. So a call under way is no failure, as long as a call that was sent later has an outcome. The calls
after the latest one with an outcome are not looked at: to a target that hangs, they are all that were sent within the
first-byte timeout.

All limits at one address share it. While it refuses or drops every connection, one call at a time asks whether it is
back, and all others wait. What a server answers, whatever it is, shows that it is there.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable

from ....providers.model.provider_error import ErrorCategory, ProviderError
from ...request.noting import NoteLogger

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
    is_tripped: so many calls have failed that it is not closed.

    A call that was sent before it opened does not close it, and one that was sent before the probing call does not
    lengthen the pause.
    """

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
        self.is_tripped: bool = False

    def state(self, now: float) -> BreakerState:
        """Return the breaker's state at the time `now`."""
        if not self.is_tripped:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.probe or now < self._opened_at + self._open_for else BreakerState.PROBING

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
        if self.is_tripped and not self.probe and now >= self._opened_at + self._open_for:
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
            self.is_tripped, self._opened_at = False, math.inf
            self._since, self._failed, self._broke, self.probe = number - 1, [], False, 0
            self._note(number)

    def reset(self) -> None:
        """Close the breaker, and count only the calls that are sent from now on."""
        self.is_tripped, self._opened_at, self.probe, self._broke = False, math.inf, 0, False
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
        self.is_tripped, self._opened_at, self._opened_after, self.probe = True, now, self._sent, 0

    def end(self, number: int) -> None:
        """Record the end of a call. If it was the probing call and had no outcome, the next call is the probing one."""
        if number == self.probe:
            self.probe = 0


logger = NoteLogger("manystream.traffic")

LOST = 3
"""An address is away when this many calls in a row, in the order of sending, have lost their connection or got none."""

PAUSE = 1.0
"""Seconds between a call that asked in vain and the next one that asks."""

SETTLED_AFTER = 0.5
"""Seconds after which a call that asks has found the server back, if its connection was not dropped. An answer may take
minutes."""

AWAY = "server_away"
"""The `provider_code` of a call that has waited for a server in vain."""


def is_lost(error: ProviderError) -> bool:
    """Return whether a call got no connection, or lost it: the server may be away."""
    if error.http_status or not error.retryable:
        return False
    if error.category is ErrorCategory.TIMEOUT:
        return error.provider_code == "connect"
    return error.category is ErrorCategory.NETWORK


class Host:
    """One address.

    begin: called with the time when a call is sent; returns the call's number here.
    name: the address, such as `http://127.0.0.1:8000`.
    is_away: it refuses or drops every connection, as far as is known.
    patience: seconds after which calls that wait for it fail.
    """

    def __init__(self, name: str, patience: float = math.inf) -> None:
        self.name: str = name
        self.patience: float = patience
        self.is_away: bool = False
        self._breaker = Breaker(LOST, LOST, PAUSE)
        self.begin: Callable[[float], int] = self._breaker.begin
        self._settled_at = math.inf  # when the call that asks has found it back
        self._away_since = math.inf
        self._error: ProviderError | None = None  # the latest
        self._listeners: dict[Callable[[], None], None] = {}

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when calls may be sent again, or no more, or another one may ask."""
        self._listeners[on_change] = None

    def forget(self, on_change: Callable[[], None]) -> None:
        """Call a function no longer."""
        self._listeners.pop(on_change, None)

    def seconds_away(self, now: float) -> float:
        """Return for how long it has been away; 0 if it is not."""
        return max(0.0, now - self._away_since) if self.is_away else 0.0

    def ready_at(self, now: float) -> float:
        """Return when the next call may be sent; `now` if one may be sent now; `math.inf` while one asks."""
        if not self.is_away:
            return now
        if now >= self._settled_at:
            self.answered(self._breaker.probe, now)
            return now
        return min(self._breaker.next_time(now), self._settled_at)

    def given_up(self, now: float) -> ProviderError | None:
        """Return the error of calls that have waited for it in vain; None if they may wait, or one may ask now."""
        if self._error is None or now < self._away_since + self.patience or self.ready_at(now) <= now:
            return None
        return ProviderError(
            f"not sent: {self.name} has taken no connection for {self.patience:g} s; the latest error:"
            f" {self._error.message}",
            category=ErrorCategory.NETWORK,
            provider_code=AWAY,
        )

    def gives_up_at(self, now: float) -> float:
        """Return when calls will not wait for it any longer; `math.inf` if it is not away, or that time has passed."""
        at = self._away_since + self.patience
        return at if at > now else math.inf

    # --- calls ---

    def connected(self, number: int, now: float) -> None:
        """A call has a connection."""
        if number == self._breaker.probe:
            self._settled_at = now + SETTLED_AFTER
            self._notify()

    def answered(self, number: int, now: float) -> None:
        """The server has answered a call in any way."""
        self._breaker.succeed(number)
        if self.is_away and not self._breaker.is_tripped:
            logger.info("%s takes connections again, after %.0f s", self.name, now - self._away_since)
            self.is_away, self._away_since, self._settled_at = False, math.inf, math.inf
            self._notify()

    def lost(self, number: int, now: float, error: ProviderError) -> None:
        """A call got no connection, or lost it. Call `end` afterwards."""
        self._error = error
        asked = number == self._breaker.probe
        self._breaker.fail(number, now)
        if self._breaker.is_tripped and not self.is_away:
            logger.warning(
                "%s takes no connection: calls wait, and one at a time asks; the latest: %s", self.name, error.message
            )
            self.is_away, self._away_since = True, now
            self._notify()
        elif asked:
            self._stop_asking()

    def end(self, number: int) -> None:
        """A call is no longer under way."""
        if number == self._breaker.probe:
            self._breaker.end(number)
            self._stop_asking()

    def _stop_asking(self) -> None:
        self._settled_at = math.inf
        self._notify()

    def _notify(self) -> None:
        for on_change in list(self._listeners):
            on_change()
