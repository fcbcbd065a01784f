"""The timeouts of a call: its state, the one timer that ends it, and the time that it waits to be sent."""

from __future__ import annotations

import math

from ...providers.errors import ProviderError
from ...transport.errors import Phase
from ...transport.timers import Deadline
from ..request.prepared import Prepared
from .attempt import Attempt
from .call_state import BACKOFF, CONNECTING, QUEUED, READING, SENDING, WAITING, CallState
from .ending import OPEN, Ending
from .timeouts import ERROR_BODY_SECONDS, LENGTH, UNTIMED, Clock, Clocks, next_deadline, timeout_error

QUEUE, TOTAL = Clock.QUEUE, Clock.TOTAL
"""The timeouts of a call that waits. CPython 3.11 needs a thousand instructions to find a member in its enum."""


class Timed(Ending):
    """The part of a call that has one state at a time and ends at a timeout."""

    __slots__ = (
        "_attempt",
        "_clocks",
        "_prepared",
        "_queued_before",
        "_queued_since",
        "_state",
        "_timer",
    )

    # Set by `RunningCall`: an `__init__` of this class would cost a hundredth of a start.
    _attempt: Attempt | None
    _clocks: Clocks
    _prepared: Prepared
    _queued_before: float
    """Seconds for which the call had waited when it was last sent."""
    _queued_since: float
    """The time at which the current wait began; `math.inf` if the call does not wait."""
    _state: CallState
    _timer: Deadline | None
    """The deadline of which the timers notify the call. (A `Timer` would be one more object of each live stream.)"""

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library."""
        raise NotImplementedError

    def _timed_out(self, error: ProviderError) -> None:
        """Process a timeout while no attempt is running."""
        raise NotImplementedError

    def _set_out_again(self) -> None:
        """Make another attempt after the delay."""
        raise NotImplementedError

    # --- states ---

    def _enter_queue(self) -> None:
        """Enter the state in which the call waits to be sent."""
        if self._state is not QUEUED:
            self._enter(QUEUED)
            self._queued_since = self._runtime.loop.clock()

    def _leave_queue(self, state: CallState, now: float) -> None:
        """Leave the queue for `state` at the time `now`."""
        if self._queued_since < math.inf:
            self._queued_before += now - self._queued_since
            self._queued_since = math.inf
        self._enter(state)

    def _seconds_queued(self) -> float:
        """Return the seconds for which an ended call waited to be sent."""
        if self._queued_since == math.inf:
            return self._queued_before
        ended = self._started + (self._timings.finished or 0.0)
        return self._queued_before + max(0.0, ended - self._queued_since)

    def _enter(self, state: CallState) -> None:
        assert state in self._state.followers, f"{self._state} is not followed by {state}"
        self._state = state

    def _state_now(self) -> CallState:
        """Return the state, with the progress of the connection: request sent, and first bytes received."""
        state = self._state
        if state is SENDING and self._attempt is not None:
            connection = self._attempt.connection
            if connection is not None and connection.sent_at is not None:
                return READING if connection.received else WAITING
        return state

    def _deadline(self) -> tuple[float, Clock]:
        """Return the next deadline and its timeout, from the connection's latest activity."""
        attempt, started = self._attempt, self._started
        connection = attempt.connection if attempt is not None else None
        state, since = self._state, started
        if state is QUEUED:
            # The usual case of a start, without a lookup in the tables.
            deadline = started + self._clocks.total
            own = self._queued_since - self._queued_before + self._clocks.queue
            return (own, QUEUE) if own < deadline else (deadline, TOTAL)
        if state is SENDING:
            state = self._state_now()
        if attempt is not None and attempt.steps is not None:
            return next_deadline(self._clocks, UNTIMED, started=started, state_since=since)
        if state is CONNECTING:
            since = started if attempt is None else attempt.dial_since
        elif connection is not None:
            if connection.paused:
                state = UNTIMED
            elif attempt is not None and attempt.reads_error and self._timings.first_byte is not None:
                # The status is known: the body, which only explains it, gets a short timeout.
                body = (started + self._timings.first_byte + ERROR_BODY_SECONDS, Clock.IDLE)
                since = connection.last_activity
                return min(body, next_deadline(self._clocks, state, started=started, state_since=since))
            since = connection.last_activity
            if state is WAITING and connection.sent_at is not None:
                since = connection.sent_at
        return next_deadline(self._clocks, state, started=started, state_since=since)

    def _arm(self) -> None:
        """Set the timer to the next deadline, unless it fires earlier.

        A timer that fires before the deadline is set again, so that received bytes need not change the timer.
        """
        if self._step is not OPEN:
            return  # an observer has ended the call
        deadline, _ = self._deadline()
        if self._state is SENDING and self._state_now() is SENDING:
            # When the request is sent, the first-byte timeout begins without a notification; it may be shorter.
            deadline = min(deadline, self._runtime.loop.now + self._clocks.first_byte)
        if deadline == math.inf:
            return  # the timer is set; when it fires, it computes this deadline
        timers, timer = self._runtime.timers, self._timer
        if timer is not None:
            if timer[0] <= deadline and timers.pending(timer):
                return
            timers.cancel(timer)
        self._timer = timers.notify(deadline, self)

    def on_timer(self) -> None:
        """End the call if a timeout has expired. Else make the next attempt, or set the timer to the next deadline."""
        if self._step is not OPEN:
            return
        deadline, clock = self._deadline()
        if deadline <= self._runtime.loop.clock():
            self._expired(clock)
        elif self._state is BACKOFF:
            self._set_out_again()
        else:
            self._timer = None
            self._arm()

    def _expired(self, clock: Clock) -> None:
        attempt = self._attempt
        error = timeout_error(clock, LENGTH[clock](self._clocks), self._where())
        if attempt is None or attempt.over:
            self._timed_out(error)
            return
        if attempt.connection is None:
            self._runtime.pool.abandon(attempt)
        attempt.expire(error)

    def _where(self) -> str:
        """Return what the call was doing, for the message of a timeout."""
        origin = self._prepared.origin
        attempt = self._attempt
        if self._state is CONNECTING and attempt is not None:
            step = {Phase.DNS: "looking up", Phase.TLS: "TLS handshake with", Phase.PROXY: "proxy tunnel to"}
            return f"{step.get(attempt.phase, 'connecting to')} {origin}"
        return f"{self._state_now().value}, {origin}"

    def _disarm(self) -> None:
        if self._timer is not None:
            self._runtime.timers.cancel(self._timer)
            self._timer = None
