"""One call: its attempts, its clocks, its retries, its events, and its one completion.

Knows when to stop trying and whom to tell. Must not know bytes or dialects (its attempts do), nor how requests are
turned into wire form (the engine has done that).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import trio

from ..providers.errors import ErrorCategory, ProviderError
from ..providers.events import Error, Event
from ..providers.options import Retry
from ..providers.response import Response
from ..transport.errors import Phase
from ..transport.loop import Loop
from ..transport.pool import Pool
from ..transport.timers import Timer, Timers
from .attempt import Attempt, Prepared, Progress, Recorder
from .clocks import LENGTH, CallState, Clock, Clocks, next_deadline, timeout_error
from .completion import Completion, Timings
from .delivery import Delivery, OnEvent, Tally
from .errors import callback_failed, cancelled, redact_headers
from .observe import Watch
from .retry import RetryBudget, retry_delay
from .statistics import CallFigures

logger: logging.Logger = logging.getLogger("manystream.engine")

OnCompletion: TypeAlias = "Callable[[Completion], object]"


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
    def soon(self, callback: Callable[[], None]) -> None:
        """Call back at the loop's next turn."""
        ...

    @property
    def watch(self) -> Watch | None:
        """Who is told how calls go, where somebody wants to know."""
        ...

    @property
    def recorder(self) -> Recorder | None:
        """Who writes down what goes over the wire, where somebody does."""
        ...

    def count_retry(self) -> None: ...
    def call_ended(self, call: Call, completion: Completion) -> None: ...


class Call:
    """A running (or ended) call, as `start_request` and `start_stream` return it. number: counts the engine's calls."""

    __slots__ = (
        "_attempt",
        "_attempts",
        "_clocks",
        "_delivery",
        "_ended",
        "_ending",
        "_engine",
        "_finish_response",
        "_on_completion",
        "_prepared",
        "_retry",
        "_stale_retry",
        "_started",
        "_state",
        "_telling",
        "_timer",
        "_timings",
        "completion",
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
        self.number: int = number
        self.tally: Tally = tally
        self._engine = engine
        self._prepared = prepared
        self._clocks = clocks
        self._retry = retry
        self._delivery = Delivery(on_event, self._callback_failed, tally)
        self._on_completion = on_completion
        self._finish_response = finish_response
        self._state = CallState.QUEUED
        self._started = engine.loop.clock()
        self._attempts = 0
        self._attempt: Attempt | None = None
        self._stale_retry = False
        self._timer: Timer | None = None
        self._timings = Timings()
        self._ending = False  # the outcome is settled, its completion not yet told
        self._telling = False  # the last event is being told; the completion follows when its callback returns
        self._ended: trio.Event | None = None
        self.completion: Completion | None = None

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

    async def wait(self) -> Completion:
        """Wait for the completion, which the callback (if any) has been given by then."""
        await trio.lowlevel.checkpoint()
        if self.completion is None:
            if self._ended is None:
                self._ended = trio.Event()
            await self._ended.wait()
        assert self.completion is not None
        return self.completion

    def pause(self) -> None:
        """Read no more for now: the server is held back through TCP, and the idle clock stands still."""
        if self._attempt is not None and self._attempt.connection is not None:
            self._attempt.connection.pause()

    def resume(self) -> None:
        """Read on."""
        if self._attempt is not None and self._attempt.connection is not None:
            self._attempt.connection.resume()
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
        """Settle the outcome from outside: cancelled, or the engine is closing."""
        if self._ending:
            return
        self._ending = True
        self._delivery.muted = True
        response = self._partial()
        self._stop()
        self._engine.soon(lambda: self._complete_failed(error, response))

    def end_now(self, error: ProviderError) -> None:
        """As `end`, told before this returns: the engine will have no next turn."""
        if self.completion is None and not self._telling:
            response = self._partial()
            self._ending = True
            self._stop()
            self._complete_failed(error, response)

    # --- attempts ---

    def begin(self, *, fresh: bool = False) -> None:
        """Start the first attempt, or another: on a connection that has never served, if it must be `fresh`."""
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
        else:
            self._state = CallState.READING
            self._timings.first_byte = loop.clock() - self._started
            if self._attempt is not None:
                redact_headers(self._attempt.headers, self._prepared.key)
        self._arm()

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
                self._attempt.deliver_texts = delivery.deliver_texts

    def on_answer(self, response: Response, terminal: Event | None) -> None:
        attempt = self._attempt
        assert attempt is not None
        self._ending = self._telling = True
        try:
            self._finish_response(response)
        except ProviderError as error:
            self._stop()
            self._complete_failed(error, response, attempt)
            return
        if terminal is not None:
            failure = self._delivery.finish(terminal)
            if failure is not None:
                self._stop()
                self._complete_failed(callback_failed(failure), response, attempt)
                return
        self._stop()
        self._complete(
            Completion(
                success=True,
                http_status=attempt.status,
                response=response,
                attempts=self._attempts,
                timings=self._timings,
                request_id=attempt.request_id,
                headers=attempt.headers,
            )
        )

    def on_attempt_failure(self, error: ProviderError, *, stale: bool) -> None:
        if self._ending:
            return
        if not self._delivery.delivered:
            if stale and not self._stale_retry:
                # A kept-alive connection that the server closed as we wrote: the request was not looked at. Once,
                # on a fresh connection, and it does not count as an attempt (curl does the same, for POST too).
                self._stale_retry = True
                self._attempts -= 1
                self.begin(fresh=True)
                return
            delay = retry_delay(error, self._attempts, self._retry, self._engine.random)
            # A hint is the server's own word on when to come back. Without one, or with one that says "at once", an
            # outage must not be fed.
            hinted = error.retry_after_ms >= self._retry.base * 1000 and error.retry_after_ms > 0
            if delay is not None and (hinted or self._engine.budget.spend()):
                self._back_off(delay)
                return
        self._ending = True
        response = self._partial()
        attempt = self._attempt
        self._stop()
        self._complete_failed(error, response, attempt)

    def _back_off(self, delay: float) -> None:
        self._engine.count_retry()
        self._state = CallState.BACKOFF
        self._disarm()
        loop = self._engine.loop
        when = loop.clock() + delay
        deadline, clock = self._deadline()
        if deadline < when:
            self._timer = self._engine.timers.at(deadline, lambda: self._expired(clock))
        else:
            self._timer = self._engine.timers.at(when, self.begin)

    def _callback_failed(self, failure: Exception) -> None:
        response = self._partial()
        attempt = self._attempt
        self._ending = True
        self._stop()
        self._complete_failed(callback_failed(failure), response, attempt)

    # --- clocks ---

    def _deadline(self) -> tuple[float, Clock]:
        """When the next clock ends, from what the connection has seen so far."""
        state, since = self._state, self._started
        attempt = self._attempt
        connection = attempt.connection if attempt is not None else None
        if state is CallState.CONNECTING:
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
        self._timer = self._engine.timers.at(deadline, self._look_at_clocks)

    def _look_at_clocks(self) -> None:
        if self._ending:
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
            self.on_attempt_failure(error, stale=False)  # during a back-off
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

    def _stop(self) -> None:
        """Nothing of this call is left running, waiting or open."""
        self._state = CallState.ENDED
        self._disarm()
        attempt = self._attempt
        if attempt is not None and not attempt.over:
            if attempt.connection is None:
                self._engine.pool.abandon(attempt)
            attempt.abort()

    def _complete_failed(self, error: ProviderError, response: Response | None, attempt: Attempt | None = None) -> None:
        attempt = attempt or self._attempt
        if self.completion is not None:
            return
        if attempt is not None:
            redact_headers(attempt.headers, self._prepared.key)  # where its head was all that came
        if self._prepared.stream and error.category is not ErrorCategory.CALLBACK:
            self._telling = True
            self._delivery.abort(Error(error))
        self._complete(
            Completion(
                success=False,
                http_status=error.http_status or (attempt.status if attempt is not None else 0),
                response=response,
                error=error,
                attempts=self._attempts,
                timings=self._timings,
                request_id=error.request_id or (attempt.request_id if attempt is not None else None),
                headers=attempt.headers if attempt is not None else {},
            )
        )

    def _complete(self, completion: Completion) -> None:
        assert self.completion is None
        self._timings.finished = self._engine.loop.clock() - self._started
        self.completion = completion
        self._attempt = None
        self._delivery.release()
        self._engine.call_ended(self, completion)
        if self._on_completion is not None:
            try:
                self._on_completion(completion)
            except Exception:
                logger.exception("on_completion raised")
        if self._ended is not None:
            self._ended.set()
