"""A second attempt of a call, which runs beside the first one until either has an event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from ...providers.errors import ProviderError
from ...providers.model.events import Event, Start
from ...providers.model.response import Response
from ...transport.timers import Timer
from ..call.attempt import Attempt
from ..call.call_state import CallState
from ..call.listener import CONNECTED, DIAL_STEP, DIALLING, Listener, Progress
from ..call.runtime import Runtime
from ..call.slices import Action
from ..call.timeouts import ERROR_BODY_SECONDS, LENGTH, Clock, timeout_error
from .budgets.spending import Reservation
from .stop import Stop
from .wait import Wait


class First(Listener, Protocol):
    """The call, as its second attempt sees it."""

    @property
    def is_paused(self) -> bool:
        """Whether the call reads no more until it is resumed."""
        ...

    @property
    def started_at(self) -> float:
        """The time at which the call was started."""
        ...

    def make_beside(self, stop: Stop, listener: Listener) -> Attempt:
        """Return a second attempt."""
        ...

    def begin_beside(self, attempt: Attempt, *, fresh: bool = False) -> None:
        """Begin a second attempt."""
        ...

    def abort(self, attempt: Attempt) -> None:
        """End an attempt without a report."""
        ...

    def abort_first(self) -> tuple[bool, Response | None]:
        """End the call's own attempt."""
        ...

    def deliver(self, events: Sequence[Event]) -> None:
        """Deliver events up to the first content."""
        ...

    def take_over(
        self,
        attempt: Attempt,
        stop: Stop,
        state: CallState,
        *,
        queued: float | None,
        connected: float | None,
        first_byte: float | None,
    ) -> None:
        """Go on with a second attempt as the call's only one."""
        ...


class Outcomes(Protocol):
    """What decides about both attempts."""

    def second_answers(self, second: Second) -> None:
        """The second attempt has the first event: it becomes the call's only one."""
        ...

    def second_failed(self, second: Second, error: ProviderError) -> None:
        """The second attempt failed."""
        ...

    def second_connected(self, second: Second) -> None:
        """The head of a successful response came."""
        ...

    def second_resent(self) -> None:
        """The second attempt is sent again, because a kept-alive connection had been closed."""
        ...


class Second(Listener):
    """A second attempt.

    wait: its place in the limits of its target.
    stop: its request.
    number: its number among the attempts at its target.
    reservation: what it may use; None in an engine without budgets and prices.
    began: the time at which it was made.
    attempt: the attempt.
    state: how far it is.
    """

    __slots__ = (
        "_call",
        "_held",
        "_outcomes",
        "_runtime",
        "_since",
        "_timer",
        "attempt",
        "began",
        "connected",
        "first_byte",
        "number",
        "queued",
        "reservation",
        "state",
        "stop",
        "taken",
        "wait",
    )

    def __init__(
        self,
        call: First,
        outcomes: Outcomes,
        runtime: Runtime,
        wait: Wait,
        stop: Stop,
        number: int,
        reservation: Reservation | None,
    ) -> None:
        self._call = call
        self._outcomes = outcomes
        self._runtime = runtime
        self.wait: Wait = wait
        self.stop: Stop = stop
        self.number: int = number
        self.reservation: Reservation | None = reservation
        self.began: float = runtime.loop.clock()
        self.state: CallState = CallState.QUEUED
        self.queued: float | None = None
        self.connected: float | None = None
        self.first_byte: float | None = None
        self.taken: bool = False  # it is the call's only attempt
        self._held: Start | None = None
        self._since = self.began
        self._timer: Timer | None = None
        self.attempt: Attempt = call.make_beside(stop, self)

    def begin(self) -> None:
        """Send it."""
        self._call.begin_beside(self.attempt)

    def take_over(self) -> None:
        """Become the call's only attempt: further reports go to the call."""
        self.taken = True
        self._disarm()
        call, times = self._call, (self.queued, self.connected, self.first_byte)
        call.take_over(self.attempt, self.stop, self.state, queued=times[0], connected=times[1], first_byte=times[2])
        held, self._held = self._held, None
        if held is not None:
            call.deliver([held])

    def abort(self) -> tuple[bool, Response | None]:
        """End it without a report. Returns whether its request may have reached the server, and what it received."""
        self._disarm()
        sent = self.attempt.sent
        self._call.abort(self.attempt)
        return sent, self.attempt.partial_response()

    def pause(self) -> None:
        """Read no more until `resume`."""
        self.attempt.pause()

    def resume(self) -> None:
        """Read again."""
        self.attempt.resume()
        self._arm()

    # --- as the attempt's listener ---

    @property
    def label(self) -> str:
        return self._call.label

    def deliver(self, events: Sequence[Event]) -> None:
        if self.taken:
            self.attempt.receiver.deliver(events)  # from the same read as the first
            return
        if self._held is None and events and isinstance(events[0], Start):
            self._held = events[0]
            events = events[1:]
        if events:
            self._outcomes.second_answers(self)
            if self.taken:
                self._call.deliver(events)

    def on_progress(self, progress: Progress) -> None:
        now = self._runtime.loop.clock()
        elapsed = now - self._call.started_at
        if progress is DIAL_STEP and self._since + self.stop.clocks.connect > now:
            return  # else as for the first attempt: the loop was blocked, and the dial went on
        self._since = self.attempt.dial_since = now
        if progress is DIAL_STEP:
            pass
        elif progress is DIALLING:
            self.state, self.queued = CallState.CONNECTING, elapsed
        elif progress is CONNECTED:
            self.state, self.connected = CallState.SENDING, elapsed
            self.wait.lane.scope.connected(self.wait, now)
            self.queued = elapsed if self.queued is None else self.queued
            if self._call.is_paused:
                self.pause()
        else:
            self.state, self.first_byte = CallState.READING, elapsed
            if 200 <= self.attempt.status < 300:
                self._outcomes.second_connected(self)
        self._arm()

    def on_reading(self) -> None:
        self._arm()

    def soon(self, callback: Action) -> None:
        self._call.soon(callback)

    def on_answer(self, response: Response, terminal: Event | None) -> None:
        self._outcomes.second_answers(self)
        if self.taken:
            self._call.on_answer(response, terminal)

    def on_attempt_failure(self, error: ProviderError, *, unread: bool) -> None:
        if unread:
            # As for the first attempt: the server had closed the kept-alive connection. It will be a fresh one now.
            self._outcomes.second_resent()
            self.state, self._held = CallState.QUEUED, None
            self.attempt = self._call.make_beside(self.stop, self)
            self._call.begin_beside(self.attempt, fresh=True)
            return
        self._disarm()
        prepared = self.attempt.prepared
        error.provider, error.model = prepared.provider.name, prepared.model
        error.host = prepared.head.headers[0][1].decode()  # the first header is Host
        self._outcomes.second_failed(self, error)

    def on_defect(self, error: Exception) -> None:
        self._call.on_defect(error)

    # --- timeouts ---

    def _deadline(self) -> tuple[float, Clock]:
        """Return the next deadline and its timeout. While it waits for a connection, only the call's own apply."""
        clocks, connection = self.stop.clocks, self.attempt.connection
        if self.state is CallState.CONNECTING:
            return self._since + clocks.connect, Clock.CONNECT
        if connection is None or connection.paused or self.attempt.steps is not None:
            return math.inf, Clock.TOTAL
        if self.state is CallState.SENDING and connection.sent_at is not None and not connection.received:
            return connection.sent_at + clocks.first_byte, Clock.FIRST_BYTE
        deadline = connection.last_activity + clocks.idle
        if self.attempt.reads_error:
            deadline = min(deadline, self._since + ERROR_BODY_SECONDS)
        return deadline, Clock.IDLE

    def _arm(self) -> None:
        if self.taken or self.attempt.over:
            return
        deadline, _ = self._deadline()
        connection = self.attempt.connection
        if self.state is CallState.SENDING and connection is not None and connection.sent_at is None:
            # When the request is sent, the first-byte timeout begins without a notification; it may be shorter.
            deadline = min(deadline, self._runtime.loop.clock() + self.stop.clocks.first_byte)
        self._disarm()
        if deadline < math.inf:
            self._timer = self._runtime.timers.at(deadline, self._look_at_clocks, self.on_defect, is_timeout=True)

    def _look_at_clocks(self) -> None:
        self._timer = None
        if self.taken or self.attempt.over:
            return
        deadline, clock = self._deadline()
        if deadline > self._runtime.loop.clock():
            self._arm()
            return
        prepared = self.attempt.prepared
        error = timeout_error(clock, LENGTH[clock](self.stop.clocks), f"{self.state.value}, {prepared.origin}")
        if self.attempt.connection is None:
            self._runtime.pool.abandon(self.attempt)
        self.attempt.expire(error)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
