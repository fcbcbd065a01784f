"""One call inside the engine: its attempts, timeouts, retries, events, and its one completion."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...providers.errors import ErrorCategory, ProviderError
from ...providers.model.events import Error, Event
from ...providers.model.options import Retry
from ...providers.model.response import Response
from ..request.errors import callback_failed, cancelled, hide_words, internal, redacted
from ..request.prepared import Prepared
from .attempt import Attempt
from .call_state import BACKOFF, CONNECTING, ENDED, QUEUED, READING, SENDING, CallState
from .callbacks import OnCompletion, OnEvent
from .completion import Completion
from .delivery import Counters, Delivery, Receiver
from .directed import Directed
from .ending import OPEN, STOPPED
from .listener import CONNECTED, DIAL_STEP, DIALLING, Progress
from .retry import retry_delay
from .runtime import Runtime
from .slices import Action
from .timeouts import LEAST_WAIT, Clocks

if TYPE_CHECKING:
    from ..observe.statistics import CallFigures
    from ..traffic.admission import Admission

logger: logging.Logger = logging.getLogger("manystream.engine")

UNANSWERED = (ErrorCategory.NETWORK, ErrorCategory.TIMEOUT)
"""The errors of an attempt to which the server gave no whole answer."""


@dataclass(slots=True)
class CallHooks:
    """The functions that a call runs as it progresses. All calls of an engine share one `CallHooks`.

    ended: called with the call and its completion, before `on_completion`; called again if it raised.
    attempt_started: called with the call and the attempt's number, counted from 1; None: not called.
    first_token: called with the call after the first content was delivered to `on_event`; None: not called.
    observed: takes the receiver of the events after the first content, and returns the one to use in its place; None:
        no observer sees these events.
    """

    ended: Callable[[RunningCall, Completion], None]
    attempt_started: Callable[[RunningCall, int], None] | None = None
    first_token: Callable[[RunningCall], None] | None = None
    observed: Callable[[RunningCall, Receiver], Receiver] | None = None


class RunningCall(Directed):
    """A call from its start to its completion. Programs use it through a `Call` (handle.py).

    number: the position of the call among the engine's calls, counted from 1.
    """

    __slots__ = (
        "_hooks",
        "_resent",
        "_unanswered",
        "number",
    )

    def __init__(
        self,
        runtime: Runtime,
        hooks: CallHooks,
        prepared: Prepared,
        counters: Counters,
        number: int,
        clocks: Clocks,
        retry: Retry,
        on_event: OnEvent | None,
        on_completion: OnCompletion | None,
        finish_response: Callable[[Response], None],
        admission: Admission | None = None,
    ) -> None:
        super().__init__(runtime, Delivery(on_event, self, counters), on_completion)
        self._prepared = prepared
        self._clocks = clocks
        self._state = QUEUED
        self._attempt = None
        self._timer = None
        self._queued_since = self._started
        self._queued_before = 0.0
        self._hooks = hooks
        self.number: int = number
        self.counters = counters
        self._retry = retry
        self._finish_response = finish_response
        self._admission = admission
        self._attempts = 0
        self._resent = 0
        self._unanswered = False  # the server may have read the latest attempt's request, and gave no whole answer
        self._paused = False

    def __repr__(self) -> str:
        kind = "stream" if self._prepared.stream else "request"
        return f"<Call {kind} to {self._prepared.provider.name} {self._state_now().value}, attempt {self._attempts}>"

    # --- for programs: documented in `Call` (handle.py) ---

    @property
    def state(self) -> CallState:
        return self._state_now()

    def cancel(self) -> None:
        self.end(cancelled())

    def pause(self) -> None:
        self._paused = True
        if self._attempt is not None:
            self._attempt.pause()
        if self._admission is not None:
            self._admission.pause()

    def resume(self) -> None:
        self._paused = False
        attempt = self._attempt
        if attempt is not None:
            self._runtime.home.context.copy().run(attempt.resume)  # it may read and deliver what TLS has buffered
            if attempt.connection is not None:
                self._arm()
        if self._admission is not None:
            self._admission.resume()

    # --- for the engine ---

    def quiet(self, now: float) -> float:
        """Return the seconds since a byte was last sent or received; the call's age while it has no connection."""
        connection = self._attempt.connection if self._attempt is not None else None
        return now - (connection.last_activity if connection is not None else self._started)

    @property
    def label(self) -> str:
        """The call's number, provider and model, for log records and reports."""
        return f"call {self.number} ({self._prepared.provider.name}/{self._prepared.model})"

    @property
    def stream(self) -> bool:
        """True if the request asks for a streamed response."""
        return self._prepared.stream

    def figures(self, now: float) -> CallFigures:
        """Return the figures of a running call, without any content. `now`: the time on the loop's clock."""
        from ..observe.statistics import CallFigures

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
        """Fail the call with `error`, for example for `cancel`. The completion is delivered on the next iteration.

        Does nothing in a forked process, where the call is the parent's.
        """
        if self._step is not OPEN or self._runtime.loop.forked:
            return
        self._fail(error)
        try:
            self._stop()
            self._step = STOPPED
        finally:
            self._runtime.soon(self)

    def end_now(self, reason: str, *, forced: bool = False) -> None:
        """Cancel the call and complete it before this returns. A closing engine has no next iteration.

        A call whose last callbacks are running completes when they return.

        reason: the reason in the message of the error.
        forced: complete also a call whose last callbacks were interrupted and will not return.
        """
        if self._step is OPEN:
            self._fail(cancelled(reason))
        elif self._step > STOPPED and not forced:
            return
        self._starting = False
        self._conclude_by_all_means()

    def on_defect(self, error: Exception) -> None:
        """End the call after code of this library raised `error`, which is a defect in the library. Never raises.

        The call ends in whatever state it is in, without running the code that raised.
        """
        with contextlib.suppress(Exception):
            hide_words(error, self._prepared.secrets)  # the error may quote what a server sent
        with contextlib.suppress(Exception):
            logger.error("%r failed because of a defect in manystream", self, exc_info=error)
        if self._step is OPEN:
            failure = internal(error)
            with contextlib.suppress(Exception):
                redacted(failure, self._prepared.secrets)  # in place, because its frames hold what was received
            try:
                self._fail(failure)
            except Exception:  # the partial response cannot be parsed, either
                with contextlib.suppress(Exception):
                    logger.exception("the partial response of %r is lost", self)
                outcome = Completion(success=False, error=failure, attempts=self._attempts, timings=self._timings)
                self._settle(outcome, Error(failure) if self._prepared.stream else None)
        self._conclude_by_all_means()

    # --- attempts ---

    def start(self, announce: Callable[[RunningCall], None]) -> None:
        """Begin the first attempt.

        The call completes after this has returned, unless the engine is closed meanwhile. If this raises, as for
        Ctrl-C, the program has no handle of the call: the call is cancelled, and no callback is called.

        announce: the function that adds the call to the engine's counts and notifies the observer.
        """
        self._starting = True
        try:
            announce(self)
            if self._admission is None:
                self.begin()
            else:
                self._set_out()
        except Exception as error:
            self.on_defect(error)
        except BaseException:
            self._on_completion = None
            self._delivery.release()
            self.end(cancelled())
            raise
        finally:
            self._starting = False

    def begin(self, *, fresh: bool = False) -> None:
        """Start the first attempt, or another one. `fresh`: on a connection that no request has used."""
        if self._step is not OPEN:
            return  # an observer has ended the call
        if self._attempt is not None:
            self._delivery.reset()
            if self._unanswered:
                self._resent += 1
                self._runtime.resent += 1
                fresh = True  # the others may be as old as the one that was lost
        self._attempts += 1
        if self._state is not QUEUED:
            self._enter_queue()
        self._attempt = Attempt(self._prepared, self, self._runtime.recorder)
        attempt_started = self._hooks.attempt_started
        if attempt_started is not None:
            attempt_started(self, self._attempts)
            if self._step is not OPEN:
                return
        attempt = self._attempt
        if self._prepared.fresh_key is not None:
            attempt.take_fresh_key()
            if attempt.over:
                return  # there is no key, and the call may wait for another target; or the key function has ended it
            self._prepared = attempt.prepared
        self._acquire(attempt, fresh=fresh)
        if self._attempt is attempt and self._state is QUEUED:
            self._arm()  # it waits for a connection; if it had got one at once, `on_progress` would have set the timer

    def announce_attempt(self) -> None:
        if self._hooks.attempt_started is not None:
            self._hooks.attempt_started(self, self._attempts)

    def on_progress(self, progress: Progress) -> None:
        loop, attempt = self._runtime.loop, self._attempt
        assert attempt is not None, "it reports"
        if progress is DIALLING:
            now = loop.clock()
            self._leave_queue(CONNECTING, now)
            self._timings.queued = now - self._started
            attempt.dial_since = now
        elif progress is DIAL_STEP:
            now = loop.clock()
            if attempt.dial_since + self._clocks.connect > now:
                return
            # The loop was blocked: the dial went on before its timeout was judged. The rest of it gets the whole time.
            attempt.dial_since = now
        elif progress is CONNECTED:
            self._leave_queue(SENDING, loop.now)
            elapsed = loop.now - self._started  # the loop read the clock when it sent the request
            if self._timings.queued is None:
                self._timings.queued = elapsed
            self._timings.connected = elapsed
            if self._admission is not None:
                self._admission.connected()
            if self._paused:
                self.pause()
        else:
            self._enter(READING)
            self._timings.first_byte = loop.clock() - self._started
            admission = self._admission
            if admission is not None and 200 <= attempt.status < 300:
                admission.confirm(attempt.headers, whole=not self.stream)
        self._arm()

    def on_reading(self) -> None:
        self._arm()

    def soon(self, callback: Action) -> None:
        runtime = self._runtime
        runtime.timers.at(runtime.loop.clock(), callback, self.on_defect)

    def deliver(self, events: Sequence[Event]) -> None:
        """Deliver events up to the first content, and record the time of the first content."""
        delivery = self._delivery
        if delivery.delivered and self._attempt is not None:
            self._attempt.receiver.deliver(events)  # from the same read as the first
            return
        delivery.deliver_first(events)
        attempt = self._attempt
        if delivery.delivered and attempt is not None:
            self._timings.first_token = self._runtime.loop.now - self._started
            attempt.receiver = delivery
            attempt.prepared.body = b""  # no attempt follows; a conversation may be many times as large as its answer
            if self._admission is not None:
                self._admission.first_token()
                if self._step is not OPEN:
                    return  # a function of the program has ended the call
            hooks = self._hooks
            if hooks.first_token is not None:
                hooks.first_token(self)  # the observer may end the call
            if hooks.observed is not None:
                attempt.receiver = hooks.observed(self, delivery)
            else:
                attempt.fast_receiver = delivery

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
        if self._step is not OPEN:
            return
        if not self._delivery.delivered:
            attempt = self._attempt
            self._unanswered = (
                attempt is not None and attempt.sent and error.category in UNANSWERED and error.http_status < 400
            )
            if unread and self._counted < self._retry.max_attempts:
                # The server had closed the kept-alive connection before a byte of the request was written. Send the
                # request at once, as the server has no fault: on a fresh connection, counted as an attempt.
                if self._admission is not None:
                    self._sign(error)
                    self._admission.resent(error)
                self.begin(fresh=True)
                return
            judged = self._ask_traffic(error)
            if self._step is not OPEN:
                return  # a function of the program has ended the call
            if judged is None:
                self._enter_queue()
                self._disarm()
                self._arm()
                return
            error = judged
            delay = retry_delay(error, self._counted, self._retry, self._runtime.random)
            pause = None if delay is None else self._pause_after(error, delay)
            if pause is not None:
                self._back_off(pause)
                return
        self._fail(error)
        self.conclude()

    def _pause_after(self, error: ProviderError, delay: float) -> float | None:
        """Return the seconds until the next attempt; None if the engine makes no further retries now."""
        pause = None if self._admission is None else self._admission.pause_after(error, delay)
        if pause is not None:
            return pause
        # If the server named a time to retry after, obey it. If it named none, or "at once", take a retry out of the
        # reserve, so that retries add little traffic during an outage.
        hinted = error.retry_after_ms >= self._retry.base * 1000 and error.retry_after_ms > 0
        if hinted or self._runtime.retries.spend():
            return delay
        error.message += f" ({self._runtime.retries.why_not})"
        return None

    def _back_off(self, delay: float) -> None:
        self._runtime.retried += 1
        self._enter(BACKOFF)
        self._disarm()
        when = self._runtime.loop.clock() + delay
        self._timer = self._runtime.timers.notify(min(when, self._deadline()[0]), self)

    def _timed_out(self, error: ProviderError) -> None:
        self._fail(error)
        self.conclude()

    def on_callback_failure(self, failure: BaseException) -> None:
        """End the call because `on_event` raised `failure`. `on_event` is not called again."""
        self._raised = failure
        if self._step is OPEN:
            self._settle(self._failure(callback_failed(failure)), None)
        self.conclude()

    # --- the end ---

    def _failure(self, error: ProviderError, response: Response | None = None) -> Completion:
        """Return the completion of a call that fails now, with the part of the response that has arrived."""
        attempt = self._attempt
        if not error.provider:
            self._sign(error)
        outcome = Completion(False, error.http_status, response, error, self._attempts, self._timings)
        outcome.request_id, outcome.resent = error.request_id, self._resent
        if attempt is not None:
            outcome.http_status = error.http_status or attempt.status
            outcome.request_id = error.request_id or attempt.request_id
            outcome.headers = attempt.headers
            if response is None:
                outcome.response = attempt.partial_response()
        return outcome

    def _fail(self, error: ProviderError, response: Response | None = None) -> None:
        """Settle the call's outcome as a failure with `error`."""
        self._settle(self._failure(error, response), Error(error) if self._prepared.stream else None)

    def _stop(self) -> None:
        self._enter(ENDED)
        self._disarm()
        attempt = self._attempt
        if attempt is not None:
            self.abort(attempt)
        if self._admission is not None:
            self._admission.end(self._outcome, sent=attempt is not None and attempt.sent)

    def _book(self, completion: Completion) -> None:
        self._attempt = None
        if self._prepared.tags is not None:
            completion.tags = self._prepared.tags
        seconds, admission = self._seconds_queued(), self._admission
        if admission is not None:
            admission.complete(completion)
        if seconds > LEAST_WAIT:
            self._timings.waited = {"connection": seconds} if admission is None else admission.waited(seconds)
        self._hooks.ended(self, completion)
