"""Circuit breakers: of one target, and of a server.

A breaker lets one call at a time through, while most calls to a target fail. Failures are counted in the order in which
the calls were sent. In the order of their outcomes, failures that come at once would look like a series, because good
answers take longer. So a call under way is no failure, as long as a call that was sent later has an outcome. The calls
after the latest one with an outcome are not looked at: to a target that hangs, they are all that were sent within the
first-byte timeout.

A server is what answers for one group of models at one address. While it refuses or drops every connection, or it or a
gateway before it answers each call with 503, one call at a time asks whether it is back, and all others wait. Any other
answer shows that it is there.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable

from ....providers.model.provider_error import ErrorCategory, ProviderError
from ...call.next_step import hinted_pause
from ...request.noting import NoteLogger
from ..queue.fair_queue import Permit

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
    """The breaker of one target, or of one server. A call is known by its number, counted from 1 in the order of
    sending.

    latest: how many of the latest calls count.
    failures: how many of them must have failed, at least, to open it.
    open_for: seconds of a pause that begins now.
    probe: the number of the probing call; 0: there is none.
    is_tripped: so many calls have failed that it is not closed.

    A call that was sent before it opened does not close it, and one that was sent before the probing call does not
    lengthen the pause.
    """

    def __init__(self, latest: int = LATEST, failures: int = FAILURES, open_for: float = OPEN_FOR) -> None:
        self._latest = latest
        self._failures = failures
        self.open_for: float = open_for
        self._sent = 0  # the number of the latest call
        self._last = 0  # that of the latest call with an outcome
        self._since = 0  # the outcomes of calls after this one count
        self._failed: list[int] = []  # the latest calls that failed
        self._broke = False  # one of the failures that opened it came after the first event
        self._open_until = math.inf  # the end of the pause; infinity while it is closed
        self._opened_after = 0  # the latest call when it opened
        self.probe: int = 0
        self.is_tripped: bool = False

    def state(self, now: float) -> BreakerState:
        if not self.is_tripped:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.probe or now < self._open_until else BreakerState.PROBING

    @property
    def counts(self) -> tuple[int, int]:
        """The number of failures among the latest calls, and the number of these calls."""
        return len(self._failed), min(self._last - self._since, self._latest)

    def next_time(self, now: float) -> float:
        """Return the time of the next probing call; `now` if calls may be sent; `math.inf` while a probe runs."""
        if self.state(now) is not BreakerState.OPEN:
            return now
        return math.inf if self.probe else self._open_until

    def begin(self, now: float) -> int:
        """Record that a call is sent, and return its number. The first call after the pause is the probing call."""
        self._sent += 1
        if self.is_tripped and not self.probe and now >= self._open_until:
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
            self.is_tripped, self._open_until = False, math.inf
            self._since, self._failed, self._broke, self.probe = number - 1, [], False, 0
            self._note(number)

    def reset(self) -> None:
        """Close the breaker, and count only the calls that are sent from now on."""
        self.is_tripped, self._open_until, self.probe, self._broke = False, math.inf, 0, False
        self._since, self._failed = self._sent, []

    def fail(self, number: int, now: float, *, broke: bool = False, row: int = 0) -> None:
        """Record that a call failed by the target's fault.

        broke: its first event had come.
        row: open it after so many failures without another outcome between them; 0: as the options say.
        """
        if self.is_tripped:
            if number >= self.probe > 0:
                self._open(now)
            return
        if number > max(self._since, self._last - self._latest):
            self._failed.append(number)
        self._note(number)
        failures, calls = self.counts
        is_over = failures >= self._failures and failures > calls / 2
        if row:
            is_over = sum(failed > self._last - row for failed in self._failed) >= row
        if is_over:
            self._broke = broke
            self._open(now)

    def _note(self, number: int) -> None:
        """Note that a call has an outcome, and forget the failures of calls that are too old."""
        if number > self._last:
            self._last = number
            self._failed = [failed for failed in self._failed if failed > number - self._latest]

    def _open(self, now: float) -> None:
        self.is_tripped, self._open_until, self._opened_after, self.probe = True, now + self.open_for, self._sent, 0

    def end(self, number: int) -> None:
        """Record the end of a call. If it was the probing call and had no outcome, the next call is the probing one."""
        if number == self.probe:
            self.probe = 0


logger: NoteLogger = NoteLogger("manystream.traffic")

LOST = 3
"""A server is away when this many calls in a row, in the order of sending, have lost their connection or got none. So
many, or as many as are under way and up to 20, are needed if they were answered that it serves none: some servers
answer so to a part of their calls, for hours."""

PAUSE = 1.0
"""Seconds between a call that asked in vain and the next one that asks, unless the server names more."""

LONGEST_PAUSE = 60.0
"""The longest pause that a server with quotas may name, in seconds. One call at a time is little traffic."""

SETTLED_AFTER = 0.5
"""Seconds after which a call that asks has found the server back, if its connection was not dropped. An answer may take
minutes."""

LATEST_SETTLED = 10.0
"""The same, at most, where such calls were answered later. Twice the time of the latest answer is waited for."""

GATEWAY_STATUSES = frozenset({502, 521, 522, 523})
"""HTTP statuses with which a gateway says that the server behind it takes no connection, or has dropped it."""

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
    """One server.

    begin: called with the time when a call is sent; returns the call's number here.
    name: its address, such as `http://127.0.0.1:8000`.
    is_away: it refuses or drops every connection, or serves no call, as far as is known.
    longest_outage: seconds after which calls that wait for it fail.
    error: the latest error that shows that it may be away.
    """

    def __init__(self, name: str, longest_outage: float = math.inf) -> None:
        self.name: str = name
        self.longest_outage: float = longest_outage
        self.is_away: bool = False
        self._breaker = Breaker(open_for=PAUSE)
        self.begin: Callable[[float], int] = self._breaker.begin
        self._settled_at = math.inf  # when the call that asks has found it back
        self._settled_after = SETTLED_AFTER
        self._away_since = math.inf
        self._in_vain = 0  # how often it was asked
        self.error: ProviderError | None = None
        self._refused: dict[Permit, int] = {}  # up to three calls that it served not, and their numbers
        self._listeners: dict[Callable[[], None], None] = {}

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` when calls may be sent again, or no more, or another one may ask."""
        self._listeners[on_change] = None

    def forget(self, on_change: Callable[[], None]) -> None:
        """Call a function no longer."""
        self._listeners.pop(on_change, None)

    @property
    def is_watched(self) -> bool:
        """Whether a limit or a route is still to be told of it."""
        return bool(self._listeners)

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
        if self.error is None or now < self._away_since + self.longest_outage or self.ready_at(now) <= now:
            return None
        return ProviderError(
            f"not sent: {self.name} has {'served no call' if self.error.http_status else 'taken no connection'} for"
            f" {self.longest_outage:g} s; the latest error: {self.error.message}",
            category=ErrorCategory.SERVER if self.error.http_status else ErrorCategory.NETWORK,
            provider_code=AWAY,
        )

    def gives_up_at(self, now: float) -> float:
        """Return when calls will not wait for it any longer; `math.inf` if it is not away, or that time has passed."""
        at = self._away_since + self.longest_outage
        return at if at > now else math.inf

    @property
    def returns(self) -> str:
        """What calls wait for while it is away, in words."""
        by_answer = self.error is not None and self.error.http_status
        return f"{self.name} to {'serve calls' if by_answer else 'take connections'}"

    # --- calls ---

    def asks(self, number: int) -> bool:
        """Return whether a call is the one that asks whether the server is back."""
        return self.is_away and number == self._breaker.probe

    def connected(self, number: int, now: float) -> None:
        """A call has a connection."""
        if number == self._breaker.probe:
            self._settled_at = now + self._settled_after
            self._notify()

    def answered(self, number: int, now: float) -> None:
        """The server has answered a call in any way."""
        self._breaker.succeed(number)
        if self._refused:
            self._refused = {call: sent for call, sent in self._refused.items() if sent > number}
        if self.is_away and not self._breaker.is_tripped:
            logger.info("%s is back, after %.0f s", self.name, now - self._away_since)
            self.is_away, self._away_since, self._settled_at = False, math.inf, math.inf
            self._refused = {}
            self._notify()

    def refused(
        self, call: Permit, now: float, error: ProviderError, running: int = 0, at_most: float = LONGEST_PAUSE
    ) -> None:
        """The server has answered that it serves no call now. Call `end` afterwards.

        Answers to three calls show that it is away. One call may be the reason for all answers to it.

        running: the calls under way.
        at_most: the longest pause that is obeyed.
        """
        self.error = error
        numbers: Iterable[int] = (call.number,)
        if not self.is_away and len(self._refused) < LOST:
            self._refused[call] = call.number
            if len(self._refused) < LOST:
                return
            numbers = self._refused.values()
        hint = error.retry_after_ms / 1000
        self._breaker.open_for = PAUSE if hint < 0 else hinted_pause(hint, self._in_vain, at_most)
        self._settled_after = min(LATEST_SETTLED, max(SETTLED_AFTER, 2.0 * (now - call.sent_at)))
        for number in numbers:
            self._failed(number, now, error, min(LATEST, max(LOST, running)))

    def lost(self, number: int, now: float, error: ProviderError) -> None:
        """A call got no connection, or lost it. Call `end` afterwards."""
        self._breaker.open_for, self._settled_after = PAUSE, SETTLED_AFTER
        self._failed(number, now, error)

    def _failed(self, number: int, now: float, error: ProviderError, row: int = LOST) -> None:
        self.error = error
        asked = number == self._breaker.probe
        self._breaker.fail(number, now, row=row)
        if self._breaker.is_tripped and not self.is_away:
            logger.warning("%s is away: calls wait, and one at a time asks; the latest: %s", self.name, error.message)
            self.is_away, self._away_since, self._in_vain = True, now, 0
            self._notify()
        elif asked:
            self._in_vain += 1
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
