"""One call: its attempts, its clocks, its retries, its events, and its one completion.

Knows when to stop trying and whom to tell. Must not know bytes or dialects (its attempts do), nor how requests are
turned into wire form (the engine has done that).
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from ..providers.errors import ProviderError
from ..providers.events import Error, Event
from ..providers.options import Retry
from ..providers.response import Response
from ..transport.errors import Phase
from ..transport.loop import Loop
from ..transport.pool import Pool
from ..transport.timers import Timer, Timers
from .attempt import Attempt
from .clocks import LENGTH, CallState, Clock, Clocks, next_deadline, timeout_error
from .completion import Completion
from .delivery import Delivery, OnEvent, Tally
from .ending import Ending, OnCompletion, Step
from .errors import callback_failed, cancelled, hide_words, internal, redacted
from .listener import Progress, Recorder
from .observe import Watch
from .prepared import Prepared
from .retry import RetryBudget, retry_delay
from .statistics import CallFigures
from .steps import Action

logger: logging.Logger = logging.getLogger("manystream.engine")

ERROR_BODY_SECONDS: float = 5.0
"""How long the body of an error answer may take, from the answer's head on. A server that reports an overload may send
the explanation slowly; the status has said enough by then."""


class Surroundings(Protocol):
    """What a call needs of its engine."""

    @property
    def pool(self) -> Pool: ...
    @property
    def loop(self) -> Loop: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def budget(self) -> RetryBudget: ...
    def random(self) -> float: ...
    def soon(self, call: Call) -> None:
        """Call `conclude` at the loop's next iteration."""
        ...

    @property
    def watch(self) -> Watch | None:
        """Who is notified of how calls go, where somebody is."""
        ...

    @property
    def recorder(self) -> Recorder | None:
        """Who writes down what goes over the wire, where somebody does."""
        ...

    def count_retry(self) -> None: ...
    def count_resent(self) -> None: ...
    def call_ended(self, call: Call, completion: Completion) -> None: ...
    def callback_raised(self, error: BaseException) -> None:
        """A callback raised something that is no `Exception`: it may end the engine."""
        ...


class Call(Ending):
    """A running (or ended) call, as `start_request` and `start_stream` return it. number: counts the engine's calls."""

    __slots__ = (
        "_attempt",
        "_attempts",
        "_clocks",
        "_finish_response",
        "_paused",
        "_prepared",
        "_resent",
        "_retry",
        "_state",
        "_timer",
        "number",
        "tally",
    )

    def __init__(
        self,
        engine: Surroundings,
        prepared: Prepared,
        tally: Tally,
        *,
        number: int,
        clocks: Clocks,
        retry: Retry,
        on_event: OnEvent | None,
        on_completion: OnCompletion | None,
        finish_response: Callable[[Response], None],
    ) -> None:
        super().__init__(engine, Delivery(on_event, self, tally), on_completion)
        self.number: int = number
        self.tally: Tally = tally
        self._prepared = prepared
        self._clocks = clocks
        self._retry = retry
        self._finish_response = finish_response
        self._state = CallState.QUEUED
        self._attempts = 0
        self._attempt: Attempt | None = None
        self._resent = 0
        self._paused = False
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        kind = "stream" if self._prepared.stream else "request"
        return f"<Call {kind} to {self._prepared.provider.name} {self._state.value}, attempt {self._attempts}>"

    # --- for the caller ---

    @property
    def state(self) -> CallState:
        """Where it stands."""
        if self._state is CallState.SENDING:
            self._deadline()  # looks whether the request is out, which nobody is told of
        return self._state

    def cancel(self) -> None:
        """End the call. Its socket is closed at once; its completion (CANCELLED, with what had arrived) follows at
        the loop's next turn. Idempotent; after the end it does nothing. Only on the engine's thread."""
        self.end(cancelled())

    async def __aenter__(self) -> Self:
        """`async with call:` ties the call to the block: leaving the block, also by cancellation, cancels the call."""
        return self

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def pause(self) -> None:
        """Read no more for now: the server is held back through TCP, and the idle clock stands still. Holds for a
        connection that the call gets later, too."""
        self._paused = True
        if self._attempt is not None:
            self._attempt.pause()

    def resume(self) -> None:
        """Read on."""
        self._paused = False
        attempt = self._attempt
        if attempt is not None:
            attempt.resume()
            if attempt.connection is not None:
                self._arm()

    # --- for the engine ---

    def quiet(self, now: float) -> float:
        """Seconds since a byte last went either way; its age, where it has no connection."""
        connection = self._attempt.connection if self._attempt is not None else None
        return now - (connection.last_activity if connection is not None else self._started)

    @property
    def label(self) -> str:
        """Its number and model, as reports name it."""
        return f"call {self.number} ({self._prepared.provider.name}/{self._prepared.model})"

    @property
    def stream(self) -> bool:
        """Whether its answer was asked for as a stream."""
        return self._prepared.stream

    def figures(self, now: float) -> CallFigures:
        """What can be told of it while it runs, at this moment of the loop's clock; nothing that was said in it."""
        attempt = self._attempt
        return CallFigures(
            number=self.number,
            provider=self._prepared.provider.name,
            model=self._prepared.model,
            stream=self._prepared.stream,
            state=self.state.value,
            age=now - self._started,
            quiet=self.quiet(now),
            attempts=self._attempts,
            request_id=attempt.request_id if attempt is not None else None,
        )

    def end(self, error: ProviderError) -> None:
        """Settle the outcome from outside, such as for `cancel`. The completion follows at the next iteration."""
        if self._step is not Step.OPEN:
            return
        self._fail(error)
        try:
            self._stop()
        finally:
            self._engine.soon(self)

    def end_now(self, error: ProviderError, *, forced: bool = False) -> None:
        """As `end`, but complete before this returns: the engine will have no next iteration.

        A call whose last callbacks are running completes when they return. `forced`: they will not, because the
        iteration that called them was interrupted.
        """
        if self._step is Step.OPEN:
            self._fail(error)
        elif self._step > Step.STOPPED and not forced:
            return
        self._conclude_by_all_means()

    def on_defect(self, error: Exception) -> None:
        """Something raised while it worked for this call: a defect in this library. Ends the call, whatever state it
        is in, without the code that raised. Never raises."""
        with contextlib.suppress(Exception):
            hide_words(error, self._prepared.secrets)  # it may quote what a server sent
        logger.error("%r ends, as something raised: a defect in manystream", self, exc_info=error)
        if self._step is Step.OPEN:
            failure = internal(error)
            with contextlib.suppress(Exception):
                redacted(failure, self._prepared.secrets)  # in place: its frames hold what was received
            try:
                self._fail(failure)
            except Exception:  # what has arrived cannot be read, either
                logger.exception("the partial response of %r is lost", self)
                outcome = Completion(success=False, error=failure, attempts=self._attempts, timings=self._timings)
                self._settle(outcome, Error(failure) if self._prepared.stream else None)
        self._conclude_by_all_means()

    # --- attempts ---

    # --- attempts ---

    def begin(self, *, fresh: bool = False) -> None:
        """Start the first attempt, or another one. `fresh`: on a connection that has never served."""
        if self._attempt is not None:
            self._delivery.reset()
        self._attempts += 1
        self._state = CallState.QUEUED
        self._attempt = Attempt(self._prepared, self, self._deliver_first, self._engine.recorder)
        watch = self._engine.watch
        if watch is not None:
            watch.attempt_started(self, self._attempts)
        attempt = self._attempt
        self._engine.pool.acquire(self._prepared.origin, attempt, fresh=fresh)
        if self._attempt is attempt and self._state is CallState.QUEUED:
            self._arm()  # it waits; with a connection at once its progress has set the clock

    def on_progress(self, progress: Progress) -> None:
        loop = self._engine.loop
        if progress is Progress.DIALLING:
            self._state = CallState.CONNECTING
            self._timings.queued = loop.clock() - self._started
        elif progress is Progress.CONNECTED:
            self._state = CallState.SENDING
            elapsed = loop.now - self._started  # the clock was looked at when the request was sent
            if self._timings.queued is None:
                self._timings.queued = elapsed
            self._timings.connected = elapsed
            if self._paused:
                self.pause()
        else:
            self._state = CallState.READING
            self._timings.first_byte = loop.clock() - self._started
        self._arm()

    def on_reading(self) -> None:
        self._arm()

    def soon(self, callback: Action) -> None:
        engine = self._engine
        engine.timers.at(engine.loop.clock(), callback, self.on_defect)

    def _deliver_first(self, events: Sequence[Event]) -> None:
        """Events, until the first content was told: notes when that was."""
        delivery = self._delivery
        if delivery.delivered and self._attempt is not None:
            self._attempt.deliver(events)  # from the same read as the first
            return
        delivery.deliver_first(events)
        if delivery.delivered and self._attempt is not None:
            self._timings.first_token = self._engine.loop.now - self._started
            self._attempt.deliver = delivery.deliver
            watch = self._engine.watch
            if watch is not None:
                watch.first_token(self)
            if watch is not None and watch.chunks:
                self._attempt.deliver = watch.watched(self, delivery.deliver)
            else:
                self._attempt.deliver_each = delivery.deliver

    def on_answer(self, response: Response, terminal: Event | None) -> None:
        attempt = self._attempt
        assert attempt is not None
        try:
            self._finish_response(response)
        except ProviderError as error:
            self._fail(error, response)
        else:
            outcome = Completion(
                success=True,
                http_status=attempt.status,
                response=response,
                attempts=self._attempts,
                timings=self._timings,
                request_id=attempt.request_id,
                headers=attempt.headers,
                resent=self._resent,
            )
            self._settle(outcome, terminal)
        self.conclude()

    def on_attempt_failure(self, error: ProviderError, *, unread: bool) -> None:
        if self._step is not Step.OPEN:
            return
        if not self._delivery.delivered:
            if unread and not self._resent and self._attempts < self._retry.max_attempts:
                # The server had closed the kept-alive connection before the request reached it. No waiting: nothing
                # is wrong with the server. Once per call, on a fresh connection, and counted as an attempt.
                self._resent += 1
                self._engine.count_resent()
                self.begin(fresh=True)
                return
            delay = retry_delay(error, self._attempts, self._retry, self._engine.random)
            # A hint is the server's own word on when to come back. Without one, or with one that says "at once", do
            # not add retry traffic during an outage.
            hinted = error.retry_after_ms >= self._retry.base * 1000 and error.retry_after_ms > 0
            if delay is not None and (hinted or self._engine.budget.spend()):
                self._back_off(delay)
                return
        self._fail(error)
        self.conclude()

    def _back_off(self, delay: float) -> None:
        self._engine.count_retry()
        self._state = CallState.BACKOFF
        self._disarm()
        loop = self._engine.loop
        when = loop.clock() + delay
        deadline, clock = self._deadline()
        if deadline < when:
            self._timer = self._engine.timers.at(deadline, lambda: self._expired(clock), self.on_defect)
        else:
            self._timer = self._engine.timers.at(when, self.begin, self.on_defect)

    def on_callback_failure(self, failure: BaseException) -> None:
        """`on_event` raised, and is called no more."""
        self._raised = failure
        if self._step is Step.OPEN:
            self._settle(self._failure(callback_failed(failure)), None)
        self.conclude()

    # --- clocks ---

    def _deadline(self) -> tuple[float, Clock]:
        """When the next clock ends, from what the connection has seen so far."""
        state, since = self._state, self._started
        attempt = self._attempt
        connection = attempt.connection if attempt is not None else None
        if attempt is not None and attempt.steps is not None:
            state = CallState.BACKOFF  # no clock but the total one
        elif state is CallState.CONNECTING:
            since = self._started + (self._timings.queued or 0.0)
        elif connection is not None:
            if state is CallState.SENDING and connection.sent_at is not None:
                state = self._state = CallState.WAITING
            if state is CallState.WAITING and connection.received:
                state = CallState.READING  # bytes of the head have come
            since = connection.last_activity
            if state is CallState.WAITING and connection.sent_at is not None:
                since = connection.sent_at
            if connection.paused:
                state = CallState.BACKOFF  # no clock but the total one
            elif attempt is not None and attempt.reads_error and self._timings.first_byte is not None:
                # The status says enough: what of the body explains it may not take long.
                deadline = self._started + self._timings.first_byte + ERROR_BODY_SECONDS
                return min(
                    (deadline, Clock.IDLE), next_deadline(self._clocks, state, started=self._started, state_since=since)
                )
        return next_deadline(self._clocks, state, started=self._started, state_since=since)

    def _arm(self) -> None:
        """See that a timer is set no later than the next deadline. An earlier one looks again and moves on, so
        bytes need not touch the timer."""
        deadline, _ = self._deadline()
        if self._state is CallState.SENDING:
            # Once the request is out, the first-byte clock takes over unannounced; it may be the shorter one.
            deadline = min(deadline, self._engine.loop.now + self._clocks.first_byte)
        if deadline == math.inf:
            return  # a timer that is set will look, and find that
        if self._timer is not None:
            if self._timer.pending and self._timer.when <= deadline:
                return
            self._timer.cancel()
        self._timer = self._engine.timers.at(deadline, self._look_at_clocks, self.on_defect)

    def _look_at_clocks(self) -> None:
        if self._step is not Step.OPEN:
            return
        deadline, clock = self._deadline()
        if deadline <= self._engine.loop.clock():
            self._expired(clock)
        else:
            self._timer = None
            self._arm()

    def _expired(self, clock: Clock) -> None:
        attempt = self._attempt
        assert attempt is not None
        error = timeout_error(clock, LENGTH[clock](self._clocks), self._where())
        if attempt.over:
            self.on_attempt_failure(error, unread=False)  # during a back-off
            return
        if attempt.connection is None:
            self._engine.pool.abandon(attempt)
        attempt.expire(error)

    def _where(self) -> str:
        """What was going on, for a time-out's message."""
        origin = self._prepared.origin
        attempt = self._attempt
        if self._state is CallState.CONNECTING and attempt is not None:
            step = {Phase.DNS: "looking up", Phase.TLS: "TLS handshake with", Phase.PROXY: "proxy tunnel to"}
            return f"{step.get(attempt.phase, 'connecting to')} {origin}"
        return f"{self._state.value}, {origin}"

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- the end ---

    def _partial(self) -> Response | None:
        return self._attempt.partial_response() if self._attempt is not None else None

    def _failure(self, error: ProviderError, response: Response | None = None) -> Completion:
        """The completion of a call that fails now, with what had arrived."""
        attempt = self._attempt
        return Completion(
            success=False,
            http_status=error.http_status or (attempt.status if attempt is not None else 0),
            response=self._partial() if response is None else response,
            error=error,
            attempts=self._attempts,
            timings=self._timings,
            request_id=error.request_id or (attempt.request_id if attempt is not None else None),
            headers=attempt.headers if attempt is not None else {},
            resent=self._resent,
        )

    def _fail(self, error: ProviderError, response: Response | None = None) -> None:
        """Settle that the call fails."""
        self._settle(self._failure(error, response), Error(error) if self._prepared.stream else None)

    def _stop(self) -> None:
        self._state = CallState.ENDED
        self._disarm()
        attempt = self._attempt
        if attempt is not None and (not attempt.over or attempt.connection is not None):
            if attempt.connection is None:
                self._engine.pool.abandon(attempt)
            attempt.abort()

    def _book(self, completion: Completion) -> None:
        self._attempt = None
        self._engine.call_ended(self, completion)
