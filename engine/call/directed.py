"""The part of a call that traffic control directs: when an attempt begins, and at which target."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...providers.errors import ProviderError
from ...providers.model.events import Event
from ...providers.model.options import Retry
from ...providers.model.response import Response
from .attempt import Attempt
from .call_state import QUEUED, CallState
from .delivery import Counters
from .ending import OPEN
from .listener import Listener, Progress
from .slices import Action
from .timed import Timed

if TYPE_CHECKING:
    from ..traffic.admission import Admission
    from ..traffic.stop import Stop


class Directed(Timed):
    """The part of a call that waits for traffic control and takes the target that it is given.

    counters: the counters of the call's provider, which all calls to this provider update.
    """

    __slots__ = ("_admission", "_attempts", "_finish_response", "_paused", "_retry", "counters")

    # Set by `RunningCall`, as for `Timed`.
    _admission: Admission | None
    _attempts: int
    _finish_response: Callable[[Response], None]
    _paused: bool
    _retry: Retry
    counters: Counters

    def begin(self, *, fresh: bool = False) -> None:
        """Start the first attempt, or another one. `fresh`: on a connection that no request has used."""
        raise NotImplementedError

    def announce_attempt(self) -> None:
        """Notify the observer of the attempt that begins."""
        raise NotImplementedError

    def deliver(self, events: Sequence[Event]) -> None:
        """Deliver events up to the first content, and record the time of the first content."""
        raise NotImplementedError

    # --- for programs: documented in `Call` (handle.py) ---

    @property
    def target(self) -> str:
        if self._admission is not None:
            return self._admission.target
        return f"{self._prepared.provider.name}/{self._prepared.model}"

    @property
    def waiting_for(self) -> str:
        return "" if self._admission is None else self._admission.waiting_for

    # --- for traffic control ---

    def _set_out(self, *, again: bool = False) -> None:
        """Begin an attempt: at once, or when traffic control admits the call. `again`: the call was sent before."""
        admission = self._admission
        if admission is None:
            self.begin()
        elif self._step is OPEN:
            if again:
                self._enter_queue()
                self._disarm()
            now = self._runtime.loop.clock() if again else self._started
            admission.enter(self, self._deadline()[0], now, again=again)
            if self._state is QUEUED and (self._attempt is None or self._attempt.over):
                self._arm()  # it waits; an attempt sets the timer itself

    def admitted(self) -> None:
        if self._step is not OPEN:
            return
        assert self._admission is not None
        self._admission.begin(self._runtime.loop.clock())
        self.begin()

    def redirect(self, stop: Stop) -> None:
        """Take the request for another target. The next attempt is sent there."""
        self._prepared, self._finish_response = stop.prepared, stop.finish_response
        # The time to wait is the call's own; the other timeouts may be the target's.
        self._clocks = dataclasses.replace(stop.clocks, queue=self._clocks.queue)
        if stop.counters is not self.counters:
            self.counters.started -= 1
            stop.counters.started += 1
            self.counters = stop.counters
            self._delivery.count_in(stop.counters)

    def rejected(self, error: ProviderError) -> None:
        self._timed_out(error)

    @property
    def _counted(self) -> int:
        """The attempts that count against `Retry.max_attempts`. Those that a limit refused do not, nor those that ran
        beside another one, nor those that found the server away, unless a single attempt is wanted."""
        return self._attempts - (0 if self._admission is None else self._admission.uncounted)

    @property
    def has_attempts_left(self) -> bool:
        return self._counted < self._retry.max_attempts

    def _ask_traffic(self, error: ProviderError) -> ProviderError | None:
        """Return None where the call waits again, because a limit refused it or another target may take it. Else return
        the error that decides about a retry: with several targets it may be an earlier one. What the attempt had
        reserved is given back in any case."""
        attempt, admission = self._attempt, self._admission
        if admission is None or attempt is None:
            return error
        self._sign(error)
        return admission.failed(error, attempt.headers, sent=attempt.sent, may_wait=self._retry.max_attempts > 1)

    def _where(self) -> str:
        waiting_for = self.waiting_for
        return f"waiting for {waiting_for}" if waiting_for else super()._where()

    def _set_out_again(self) -> None:
        self._set_out(again=True)

    def _sign(self, error: ProviderError) -> None:
        """Write into an error where the call was sent."""
        prepared = self._prepared
        error.provider, error.model = prepared.provider.name, prepared.model
        error.host = prepared.head.headers[0][1].decode()  # the first header is Host

    # --- for a second attempt beside the first one ---

    @property
    def is_paused(self) -> bool:
        return self._paused

    @property
    def started_at(self) -> float:
        return self._started

    def make_beside(self, stop: Stop, listener: Listener) -> Attempt:
        """Return a second attempt, which counts as one. `begin_beside` begins it."""
        self._attempts += 1
        return Attempt(stop.prepared, listener, self._runtime.recorder)

    def begin_beside(self, attempt: Attempt, *, fresh: bool = False) -> None:
        """Begin a second attempt. `fresh`: on a connection that no request has used."""
        self.announce_attempt()  # the observer may end the call
        if attempt.prepared.fresh_key is not None and not attempt.over:
            attempt.take_fresh_key()
        if not attempt.over:
            self._acquire(attempt, fresh=fresh)

    def _acquire(self, attempt: Attempt, *, fresh: bool) -> None:
        """Let an attempt wait for a connection. It may have one when this returns."""
        pool = self._runtime.pool
        pool.acquire(attempt.prepared.origin, attempt, fresh=fresh)
        if attempt.over:
            pool.abandon(attempt)  # the observer has ended the call when the pool closed another connection

    def abort(self, attempt: Attempt) -> None:
        """End an attempt without a report, in whatever state it is. May be called again."""
        if not attempt.over or attempt.connection is not None:
            if attempt.connection is None:
                self._runtime.pool.abandon(attempt)
            attempt.abort()

    def abort_first(self) -> tuple[bool, Response | None]:
        """End the call's attempt. Returns whether its request may have reached the server, and what it received."""
        attempt = self._attempt
        assert attempt is not None
        sent = attempt.sent
        self.abort(attempt)
        return sent, attempt.partial_response()

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
        """Go on with a second attempt as the call's only one.

        state: how far it is. The other times are in seconds since the call's start; None if they are not reached.
        """
        self.redirect(stop)
        self._prepared, self._attempt = attempt.prepared, attempt
        self._delivery.reset()
        now = self._runtime.loop.clock()
        if state is QUEUED:
            self._queued_since = min(self._queued_since, now)
        elif self._queued_since < math.inf:
            self._queued_before += now - self._queued_since
            self._queued_since = math.inf
        self._state = state
        timings = self._timings
        timings.queued, timings.connected, timings.first_byte = queued, connected, first_byte
        attempt.hand_over(self)
        self._arm()

    # --- as the listener of attempts: `RunningCall` implements it ---

    @property
    def label(self) -> str:
        raise NotImplementedError

    def on_progress(self, progress: Progress) -> None:
        raise NotImplementedError

    def on_reading(self) -> None:
        raise NotImplementedError

    def soon(self, callback: Action) -> None:
        raise NotImplementedError

    def on_answer(self, response: Response, terminal: Event | None) -> None:
        raise NotImplementedError

    def on_attempt_failure(self, error: ProviderError, *, unread: bool) -> None:
        raise NotImplementedError
