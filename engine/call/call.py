"""One call inside the engine. After each attempt it decides: complete, retry or fail. Its end is decided once, and each
step that follows is performed once.

One file because each report of an attempt is judged by all of this state, and so is the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...providers.catalog.dialect import DeltaTarget
from ...providers.model.events import Done, ErrorEvent, Event, Start
from ...providers.model.options import Retry
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.response import Response
from ...providers.wire.delta_template import Match
from ...transport.backend import Event as Flag
from ...transport.timers import Deadline
from ..request.answers import Answer, Progress, Verdict
from ..request.durable import DurableAnswer
from ..request.errors import callback_failed, cancelled, internal
from ..request.noting import NoteLogger
from ..request.prepared import Prepared
from ..request.redaction import hide_words, redacted
from .admission_control import AdmissionControl, AttemptPermit
from .attempt import NOBODY, Attempt
from .body import Receiver
from .callbacks import OnCompletion, OnEvent
from .cancelling import Cancelling
from .completion import Completion
from .next_step import (
    UNANSWERED,
    Complete,
    Fail,
    Failure,
    Limits,
    NextStep,
    Outlook,
    Pause,
    ReadOn,
    Send,
    Wait,
    next_step,
)
from .runtime import AnswerStore, Runtime
from .timeouts import BACKOFF, ENDED, LEAST_WAIT, LENGTH, QUEUED, CallState, Clock, Clocks, timeout_error

logger: NoteLogger = NoteLogger("manystream.engine")

COST_OF_ANOTHER = "another call has created the answer"
"""Why the cost of a call is not known that has only read a durable answer."""

NO_ID_YET = "; the server had not named the answer, and may go on with it"

SENT_AGAIN, SENT_AT_ONCE, LOST = Progress(Verdict.AGAIN), Progress(Verdict.AGAIN, at_once=True), Progress(Verdict.LOST)
"""How an answer stands of which nothing is kept."""

NEEDS_PERMIT = (Verdict.AGAIN, Verdict.REST)
"""The verdicts after which traffic control is asked."""

QUEUE, TOTAL = Clock.QUEUE, Clock.TOTAL
"""The timeouts of a call that waits."""


class Step(enum.IntEnum):
    """The steps of a call's end, in order. Each is performed once."""

    OPEN = 0
    """Attempts are made; the outcome is open."""
    SETTLED = 1
    """The outcome is decided. The steps below follow at once, or at the next iteration of the loop."""
    STOPPED = 2
    """Nothing of the call runs, waits or is open."""
    NOTIFYING = 3
    """The terminal event is being given to `on_event`."""
    NOTIFIED = 4
    """`on_event` has returned, and is not called again."""
    RECORDED = 5
    """The completion is public, and the engine has counted it."""
    COMPLETED = 6
    """`on_completion` was called."""
    WOKEN = 7
    """The tasks that wait for the call were woken."""


OPEN, SETTLED, STOPPED, NOTIFYING, NOTIFIED, RECORDED, COMPLETED, WOKEN = Step
"""The members, for the steps of every call."""


class Counters:
    """The counters of one provider's calls. `events` counts delivered events, with or without a callback."""

    __slots__ = ("completed", "events", "failures", "started")

    def __init__(self) -> None:
        self.events: int = 0
        self.started: int = 0
        self.completed: int = 0
        self.failures: Counter[ErrorCategory] = Counter()


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


@dataclass(slots=True)
class TargetRequest:
    """A request that is ready for one target.

    prepared: the request as it is sent.
    counters: of the provider's calls.
    clocks: the timeouts of the request with the target's options.
    finish_response: completes the response before it is delivered; None: nothing is missing.
    """

    prepared: Prepared
    counters: Counters
    clocks: Clocks
    finish_response: Callable[[Response], None] | None


@dataclass(slots=True, eq=False, repr=False)
class RunningCall:
    """A call from its start to its completion. Programs use it through a `Call` (handle.py).

    An attempt judges its own timeouts. The call itself judges them while it waits for traffic control or for a retry.

    runtime: what it shares with the other calls of its engine.
    prepared: the request of the next attempt, or of the latest one.
    number: the position of the call among the engine's calls, counted from 1.
    counters: the counters of the call's provider, which all calls to this provider update.
    admission: admission control; None in an engine without `traffic`.
    completion: the final record, once the call has ended.
    started: the time at which it was started.
    attempt: the latest attempt.
    attempts: how many it has made.
    rival: a second attempt under way: the first of both with content stays.
    cancelling: it was cancelled, and waits until its server knows that.
    is_paused: the call reads no more until it is resumed.
    """

    runtime: Runtime
    _hooks: CallHooks
    prepared: Prepared
    counters: Counters
    number: int
    started: float
    _clocks: Clocks
    _retry: Retry
    _on_event: OnEvent
    _on_completion: OnCompletion | None
    _finish_response: Callable[[Response], None] | None
    admission: AdmissionControl | None = None
    completion: Completion | None = field(default=None, init=False)
    attempt: Attempt | None = field(default=None, init=False)
    attempts: int = field(default=0, init=False)
    rival: Attempt | None = field(default=None, init=False)
    cancelling: Cancelling | None = field(default=None, init=False)
    is_paused: bool = field(default=False, init=False)
    _state: CallState = field(default=QUEUED, init=False)  # of a call without an attempt under way
    _timer: Deadline | None = field(default=None, init=False)  # while no attempt is under way
    _queued_since: float = field(default=math.inf, init=False)  # when the wait to be sent began; `math.inf` for none
    _queued_before: float = field(default=0.0, init=False)  # seconds for which it had waited when it was last sent
    _counted: int = field(default=0, init=False)  # the attempts that count against `Retry.max_attempts`
    _resent: int = field(default=0, init=False)
    # the server may have read the latest attempt's request, and gave no whole answer
    _unanswered: bool = field(default=False, init=False)
    _delivered: bool = field(default=False, init=False)  # `on_event` has had an event: the call cannot be repeated
    # an unstreamed call that is sent as a stream, of which it delivers nothing
    _is_whole: bool = field(default=False, init=False)
    _step: Step = field(default=OPEN, init=False)
    _outcome: Completion | None = field(default=None, init=False)  # what `completion` will be
    _terminal: Sequence[Event] = field(default=(), init=False)  # the events that the stream ends with
    _raised: BaseException | None = field(default=None, init=False)  # by a callback; may end the engine
    _ended: Flag | None = field(default=None, init=False)
    _starting: bool = field(default=False, init=False)  # `start_*` has not returned yet: no callback may run

    def __repr__(self) -> str:
        kind = "stream" if self.prepared.stream else "request"
        return f"<Call {kind} to {self.prepared.provider.name} {self.state.value}, attempt {self.attempts}>"

    # --- for programs: documented in `Call` (handle.py) ---

    @property
    def state(self) -> CallState:
        attempt = self.attempt
        return self._state if self._state is not QUEUED or attempt is None or attempt.over else attempt.state

    def cancel(self) -> None:
        if self._step is not OPEN:
            return
        durable, attempt = self.prepared.durable, self.attempt
        if durable is None or self.runtime.loop.forked or durable.ended:
            self.end(cancelled())
        elif durable.answer_id is None:
            sent = self._unanswered or (attempt is not None and attempt.sent and not attempt.over)
            self.end(cancelled(f"the call was cancelled{NO_ID_YET if sent else ''}"))
        else:
            # Complete when the server knows that, or does not answer in time.
            self.cancelling = Cancelling(self, durable, self.prepared, self.runtime)
            self._fail(self.cancelling.error)
            self._disarm()
            self._state = ENDED
            if attempt is not None:
                attempt.abort()

    async def wait(self) -> Completion:
        """Wait for the completion, which the callback (if any) has been given by then. Cancelling the wait leaves the
        call running; `async with call:` cancels both. Raises `EngineClosedError` away from the engine's home."""
        if self.completion is None:
            self.runtime.home.check()
        await self.runtime.backend.checkpoint()
        if self.completion is None:
            if self._ended is None:
                self._ended = self.runtime.backend.event()
            await self._ended.wait()
        assert self.completion is not None
        return self.completion

    # --- for the engine ---

    def end(self, error: ProviderError) -> None:
        """Fail the call with `error`, for example for `cancel`. The completion is delivered on the next iteration.

        Does nothing in a forked process, where the call is the parent's.
        """
        if self._step is not OPEN or self.runtime.loop.forked:
            return
        self._fail(error)
        try:
            self._stop()
            self._step = max(self._step, STOPPED)  # a function of the program may have closed the engine
        finally:
            self.runtime.soon(self.finish, self.on_defect)

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
        self._finish_by_all_means()

    def on_defect(self, error: Exception) -> None:
        """End the call after code of this library raised `error`, which is a defect in the library. Never raises.

        The call ends in whatever state it is in, without running the code that raised.
        """
        with contextlib.suppress(Exception):
            hide_words(error, self.prepared.secrets)  # the error may quote what a server sent
        with contextlib.suppress(Exception):
            logger.error("%r failed because of a defect in manystream", self, exc_info=error)
        if self._step is OPEN:
            failure = internal(error)
            with contextlib.suppress(Exception):
                redacted(failure, self.prepared.secrets)  # in place, because its frames hold what was received
            try:
                self._fail(failure)
            except Exception:  # the partial response cannot be parsed, either
                with contextlib.suppress(Exception):
                    logger.exception("the partial response of %r is lost", self)
                outcome = Completion(success=False, error=failure, attempts=self.attempts)
                self._settle(outcome, (ErrorEvent(failure),) if self.prepared.stream else ())
        self._finish_by_all_means()

    # --- the wait to be sent ---

    def start(self, announce: Callable[[RunningCall], None]) -> None:
        """Begin the first attempt.

        The call completes after this has returned, unless the engine is closed meanwhile. If this raises, as for
        Ctrl-C, the program has no handle of the call: the call is cancelled, and no callback is called.

        announce: the function that adds the call to the engine's counts and notifies the observer.
        """
        self._starting, self._queued_since = True, self.started
        try:
            announce(self)
            self._begin_or_wait()
        except Exception as error:
            self.on_defect(error)
        except BaseException:
            self._on_completion = None
            self._on_event = nobody
            self.end(cancelled())
            raise
        finally:
            self._starting = False

    def _begin_or_wait(self, *, again: bool = False) -> None:
        """Begin an attempt: at once, or when traffic control admits the call. `again`: the call was sent before."""
        if self._step is not OPEN:
            return  # an observer has ended the call
        if again:
            self._enter_queue()
        elif self.runtime.answers is not None and self._takes_kept_answer(self.runtime.answers):
            return
        admission = self.admission
        if admission is None:
            self.begin()
            return
        now = self.runtime.loop.clock() if again else self.started
        admission.enter(self, self._deadline()[0], now, again=again)
        if self._state is QUEUED and (self.attempt is None or self.attempt.over):
            self._arm()  # it waits

    def _takes_kept_answer(self, answers: AnswerStore) -> bool:
        """Return whether there is a kept answer, which the call then receives in place of being sent."""
        prepared = self.prepared
        if prepared.forwarder is not None or prepared.reads:
            return False
        kept = answers.notes.take(answers.find, prepared)
        if kept is not None:
            self.admission = None
            attempt = self.attempt = Attempt(
                prepared, self, self.runtime, self._clocks, self.started, math.inf, self.is_paused
            )
            self.runtime.soon(partial(attempt.replay, kept), self.on_defect)
        return kept is not None

    def rejected(self, error: ProviderError) -> None:
        """Fail: traffic control never admits the call."""
        self._fail(error)
        self.finish()

    def redirect(self, request: TargetRequest) -> None:
        """Take the request for another target. The next attempt is sent there."""
        self.prepared, self._finish_response = request.prepared, request.finish_response
        # The time to wait is the call's own; the other timeouts may be the target's.
        self._clocks = dataclasses.replace(request.clocks, queue=self._clocks.queue)
        if request.counters is not self.counters:
            self.counters.started -= 1
            request.counters.started += 1
            self.counters = request.counters

    def send_streamed(self, request: TargetRequest) -> None:
        """Send an unstreamed request as a stream, so that the server reports usage at its first event.

        The call gets the whole answer all the same, and keeps its timeouts.
        """
        self.prepared, self._finish_response = request.prepared, request.finish_response
        self._is_whole = True

    def _enter_queue(self) -> None:
        """Wait to be sent, or go on waiting."""
        self._state = QUEUED
        if self._queued_since == math.inf:
            self._queued_since = self.runtime.loop.clock()

    def _leave_queue(self, now: float) -> None:
        """Wait no longer."""
        if self._queued_since < math.inf:
            self._queued_before += max(0.0, now - self._queued_since)
            self._queued_since = math.inf

    def _deadline(self) -> tuple[float, Clock]:
        """Return the next deadline and its timeout, while no attempt is under way."""
        deadline = self.started + self._clocks.total
        if self._state is QUEUED:
            own = self._queued_since - self._queued_before + self._clocks.queue
            if own < deadline:
                return own, QUEUE
        return deadline, TOTAL

    def _arm(self, when: float = math.inf) -> None:
        """Set the timer to the next deadline, or to an earlier time, while no attempt is under way."""
        self._disarm()
        when = min(when, self._deadline()[0])
        if self._step is OPEN and when < math.inf:
            self._timer = self.runtime.timers.notify(when, self)

    def _disarm(self) -> None:
        if self._timer is not None:
            self.runtime.timers.cancel(self._timer)
            self._timer = None

    def on_timer(self) -> None:
        """Fail if a timeout has expired; else make the next attempt."""
        self._timer = None
        if self._step is not OPEN:
            return
        deadline, clock = self._deadline()
        if deadline <= self.runtime.loop.clock():
            waiting_for = "" if self.admission is None else self.admission.waiting_for
            where = f"waiting for {waiting_for}" if waiting_for else f"{self._state}, {self.prepared.origin}"
            self._fail(timeout_error(clock, LENGTH[clock](self._clocks), where))
            self.finish()
        elif self._state is BACKOFF:
            durable = self.prepared.durable
            if durable is not None and durable.answer_id is not None:
                self._read_on(durable)
            else:
                self._begin_or_wait(again=True)
        else:
            self._arm()

    # --- attempts ---

    def begin(self, permit: AttemptPermit | None = None, *, fresh: bool = False) -> None:
        """Begin an attempt. permit: of traffic control, which admits the call. `fresh`: on a connection that no request
        has used."""
        if self._timer is not None:
            self._disarm()
        self._enter_queue()
        if self._unanswered:
            self._resent += 1
            self.runtime.resent += 1
            # A connection was lost: the others may be as old.
            fresh = fresh or (self.attempt is not None and not self.attempt.is_whole)
        self.attempts += 1
        self._counted += 1
        waited_since = self._queued_since - self._queued_before
        if self.attempt is not None:
            self.attempt.release()
        attempt = self.attempt = Attempt(
            self.prepared, self, self.runtime, self._clocks, self.started, waited_since, self.is_paused, permit
        )
        if self._hooks.attempt_started is not None:
            self._hooks.attempt_started(self, self.attempts)  # the observer may end the call
        if not attempt.over:
            attempt.begin(fresh)

    def begin_rival(
        self, prepared: Prepared, clocks: Clocks, permit: AttemptPermit | None, *, fresh: bool = False
    ) -> None:
        """Begin a second attempt, over HTTP. It has no queue timeout. The first of both with content stays; the other
        is aborted."""
        self.attempts += 1
        prepared.turn = None
        attempt = Attempt(prepared, self, self.runtime, clocks, self.started, math.inf, self.is_paused, permit)
        self.rival = attempt
        if self._hooks.attempt_started is not None:
            self._hooks.attempt_started(self, self.attempts)
        if not attempt.over:
            attempt.begin(fresh)

    def _go_on_with(self, attempt: Attempt) -> None:
        """Go on with one of two attempts alone: it has content, or the other one has failed. A price function may end
        the call."""
        admission, first, rival, self.rival = self.admission, self.attempt, self.rival, None
        assert admission is not None and first is not None and rival is not None, "there are two attempts"
        if attempt is rival:
            self._disarm()
            self.redirect(admission.chosen(rival))
            self.attempt, self.prepared, now = rival, rival.prepared, self.runtime.loop.clock()
            if rival.state is QUEUED:
                self._queued_since = min(self._queued_since, now)
                rival.queue_since = self._queued_since - self._queued_before
                rival.arm()
            else:
                self._leave_queue(now)
        admission.lost(first if attempt is rival else rival)

    # --- as the listener of attempts ---

    def on_key(self, attempt: Attempt) -> None:
        if attempt is self.attempt:
            self.prepared = attempt.prepared

    def on_dequeued(self, attempt: Attempt) -> None:
        if attempt is self.attempt:
            self._leave_queue(attempt.dequeued_at)

    def on_head(self, attempt: Attempt) -> None:
        if self.admission is not None and 200 <= attempt.status < 300 and attempt.permit is not None:
            self.admission.confirm(attempt)

    def on_events(self, attempt: Attempt, events: Sequence[Event]) -> None:
        """Deliver events up to the first content, and record the time of the first content."""
        if self._delivered:
            if attempt.receiver is attempt:  # it goes on with the answer
                events = [event for event in events if not isinstance(event, Start)]
                observed = self._hooks.observed
                attempt.receiver = self if observed is None else observed(self, self)
            attempt.receiver.deliver(events)  # else from the same read as the first
            return
        if self.rival is not None:
            self._go_on_with(attempt)
        if self._step is not OPEN:
            return
        attempt.content_at = self.runtime.loop.now
        if self._is_whole:
            attempt.receiver = NOBODY  # so that the call can be repeated
            return
        self._delivered = True
        self.deliver(events)
        if self.attempt is None:
            return  # the call has ended
        attempt.receiver = self
        attempt.prepared.body = b""  # no attempt follows; a conversation may be many times as large as its answer
        if self.admission is not None:
            self.admission.first_content()
            if self._step is not OPEN:
                return  # a function of the program has ended the call
        hooks = self._hooks
        if hooks.first_token is not None:
            hooks.first_token(self)  # the observer may end the call
        if hooks.observed is not None:
            attempt.receiver = hooks.observed(self, self)
        else:
            attempt.fast_receiver = self

    # --- as the receiver of events ---

    def deliver(self, events: Sequence[Event]) -> None:
        """Deliver events, none of them terminal. Stops once the callback has raised or ended its call."""
        if self._step is not OPEN:
            return
        on_event, delivered = self._on_event, 0
        try:
            for event in events:
                delivered += 1
                try:
                    on_event(event)
                except BaseException as error:
                    self._on_callback_failure(error)
                    break
                if self._step is not OPEN:
                    break
        finally:
            self.counters.events += delivered

    def deliver_matches(self, target: DeltaTarget, matches: Iterable[Match]) -> None:
        """Deliver deltas that matched, as `deliver` does. `target` makes the event of each.

        A loop of its own: an iterator that makes the events for `deliver` would cost each of them a hundredth more.
        """
        if self._step is not OPEN:
            return
        on_event, delivered = self._on_event, 0
        try:
            for match in matches:
                event = target.accept(match)
                if event is None:
                    continue
                delivered += 1
                try:
                    on_event(event)
                except BaseException as error:
                    self._on_callback_failure(error)
                    break
                if self._step is not OPEN:
                    break
        finally:
            self.counters.events += delivered

    def _on_callback_failure(self, failure: BaseException) -> None:
        """End the call because `on_event` raised `failure`. `on_event` is not called again."""
        self._raised = failure
        self._terminal, self._on_event = (), nobody
        try:
            if self._step is OPEN:
                self._fail(callback_failed(failure), is_told=False)
            self.finish()
        except Exception as defect:
            self.on_defect(defect)

    # --- a durable answer ---

    def _read_on(self, durable: DurableAnswer, *, fresh: bool = False) -> None:
        """Begin an attempt that reads on in the answer. It needs no permit: the one that created the answer is held."""
        before, self.prepared = self.attempt, durable.next_request(self.prepared)
        assert before is not None, "an attempt has created the answer, or began to read it"
        self._state = QUEUED
        clocks = dataclasses.replace(self._clocks, first_byte=min(self._clocks.first_byte, self._clocks.idle))
        self.attempt = Attempt(self.prepared, self, self.runtime, clocks, self.started, paused=self.is_paused)
        self.attempt.read_on_after(before)
        before.release()
        self.attempt.begin(fresh)

    def on_answer(self, attempt: Attempt, response: Response, terminal: Event | None) -> None:
        if self.rival is not None:
            self._go_on_with(attempt)
        if self._step is not OPEN:
            return
        continued = attempt.prepared.continued
        if continued is not None and continued.so_far is not None:
            response = continued.joined(attempt, response) or response
            if isinstance(terminal, Done):
                reason, raw = terminal.finish_reason, terminal.raw_finish_reason
                terminal = Done(reason, raw, response.usage, response.provider_data)
        try:
            if self._finish_response is not None:
                self._finish_response(response)
        except ProviderError as error:
            self._fail(error, response)
        else:
            outcome = Completion(
                success=True,
                http_status=attempt.status,
                response=response,
                attempts=self.attempts,
                timings=attempt.timings(),
                request_id=attempt.request_id,
                headers=attempt.headers,
                resent=self._resent,
            )
            attempt.accepted()
            if not self.attempts:
                outcome.cached, outcome.cost, outcome.cost_unknown = True, 0.0, ""
            last = () if terminal is None else attempt.with_start((terminal,))
            if continued is not None and self._delivered:
                last = last[-1:]  # the answer had its `Start`
            self._settle(outcome, last)
        self.finish()

    def on_attempt_failure(self, attempt: Attempt, error: ProviderError, *, unread: bool) -> None:
        if self._step is not OPEN:
            return
        if attempt is self.rival:
            if unread or attempt.asks_for_another_key(error):
                self.begin_rival(attempt.prepared, attempt.clocks, attempt.permit, fresh=unread)
            else:
                assert self.admission is not None, "it has sent the second attempt"
                self.rival = None
                sign(error, attempt.prepared)
                self.admission.rival_failed(attempt, error)
            attempt.release()
            return
        sign(error, attempt.prepared)
        runtime, now, delivered = self.runtime, self.runtime.loop.clock(), self._delivered
        answer = attempt.prepared.durable or attempt.prepared.continued
        at_once = unread or attempt.asks_for_another_key(error)
        progress = None
        if answer is not None:
            part, lasted = attempt.partial_response(), now - attempt.head_at if 200 <= attempt.status < 300 else 0.0
            progress = answer.take(attempt, part, error, now, lasted, at_once=at_once, delivered=delivered)
        if progress is None:
            progress = LOST if delivered else SENT_AT_ONCE if at_once else SENT_AGAIN
            self._unanswered = attempt.sent and error.category in UNANSWERED and error.http_status < 400
        else:
            self._unanswered = False
        outlook = Outlook(Limits.NONE, error)
        if self.admission is not None and progress.verdict in NEEDS_PERMIT:
            if progress is SENT_AT_ONCE and self.has_attempts_left:
                self.admission.resent(attempt, error)
            else:
                most = self._retry.max_attempts
                may_wait, left = most > 1 or progress.verdict is Verdict.REST, most - self._counted
                outlook = self.admission.failed(attempt, error, left=left, may_wait=may_wait)
                if self._step is not OPEN:
                    return  # a function of the program has ended the call
                if not outlook.is_counted:
                    self._counted -= 1
                    if attempt.prepared.continued is not None:
                        attempt.prepared.continued.uncounted()
        failure = Failure(
            outlook, progress, unread, self._counted, self._retry, self._clocks.idle, runtime.retry_reserve,
            runtime.most_retries, now, runtime.random,
        )  # fmt: skip
        self._perform(next_step(failure), attempt, answer if progress.verdict is Verdict.REST else None)

    def _perform(self, step: NextStep, attempt: Attempt, partial: Answer | None) -> None:
        """Do what was decided after a failed attempt. partial: the answer whose rest is asked for, if it is."""
        if partial is not None and not isinstance(step, Fail):
            self.prepared = partial.next_request(self.prepared)
        durable, continued, runtime = attempt.prepared.durable, attempt.prepared.continued, self.runtime
        match step:
            case Send(fresh):
                self.begin(attempt.permit, fresh=fresh)
            case Wait() if self.rival is not None:
                self._go_on_with(self.rival)
            case Wait():
                self._enter_queue()
                self._arm()
            case Pause(seconds, is_spent):
                runtime.retry_reserve -= is_spent
                runtime.retried += 1
                self._pause(seconds)
            case ReadOn():
                assert durable is not None, "the server keeps the answer"
                if step.after is None:
                    self._read_on(durable, fresh=step.fresh)
                    return
                until = runtime.loop.clock() + step.after if step.is_asked else -math.inf
                durable.reads_later(until, is_cut=step.is_cut)
                self._pause(step.after)
                on_named, durable.on_named, token = durable.on_named, None, durable.token(self.prepared)
                if on_named is not None and token is not None:
                    on_named(token)
            case Complete():
                assert continued is not None and continued.so_far is not None, "a part of the answer has arrived"
                whole = continued.so_far
                done = Done(whole.finish_reason, whole.raw_finish_reason, whole.usage, whole.provider_data)
                self.on_answer(attempt, whole, done if attempt.prepared.stream else None)
            case Fail(error, why):
                error.message += why
                if durable is not None:
                    durable.explain(error)
                self._fail(error)
                self.finish()

    def _pause(self, delay: float) -> None:
        """Wait without an attempt under way, before the next one."""
        now = self.runtime.loop.clock()
        self._leave_queue(now)
        self._state = BACKOFF
        self._arm(now + delay)

    @property
    def has_attempts_left(self) -> bool:
        """Whether the call has made fewer attempts than `Retry.max_attempts`. Those that a limit refused do not count,
        nor those that ran beside another one, nor those that found the server away. If a single attempt is wanted, one
        counts that found this out, and none that only asked whether the server is back.
        """
        return self._counted < self._retry.max_attempts

    # --- the end ---

    def _fail(self, error: ProviderError, response: Response | None = None, *, is_told: bool = True) -> None:
        """Settle the call's outcome as a failure with `error`, with the part of the response that has arrived.

        is_told: the stream ends with the error; else `on_event` raised.
        """
        attempt = self.attempt
        if not error.provider:
            sign(error, self.prepared)
        if attempt is None:
            outcome = Completion(False, error.http_status, response, error, self.attempts, request_id=error.request_id)
        else:
            if response is None:
                response = attempt.partial_response()
            if attempt.prepared.continued is not None:
                response = attempt.prepared.continued.joined(attempt, response)
            # By position: each cancelled call would pay for a dict of the names.
            outcome = Completion(
                False, error.http_status or attempt.status, response, error, self.attempts, attempt.timings(),
                error.request_id or attempt.request_id, attempt.headers, self._resent,
            )  # fmt: skip
        self._settle(outcome, (ErrorEvent(error),) if self.prepared.stream and is_told else ())

    def _settle(self, outcome: Completion, terminal: Sequence[Event]) -> None:
        """Decide the outcome of the call, unless a function of the program has ended it meanwhile.

        terminal: the last events of its stream; empty if `on_event` raised.
        """
        if self._step is not OPEN:
            return
        self._outcome = outcome
        self._terminal = terminal
        self._step = SETTLED

    def finish(self) -> None:
        """Perform the remaining steps of the end.

        Steps that may be repeated are marked as taken afterwards. Callbacks are marked before they are called, by the
        same function that calls them. So after a step that raised this can be called again: nothing is left out, and
        no callback is called twice.

        While the call is being started, only the first step is taken at once. The others follow at the loop's next
        tick, when the caller has the call in hand.
        """
        if self._step < STOPPED:
            self._stop()
            self._step = max(self._step, STOPPED)  # a function of the program may have closed the engine
        if self._starting:
            self.runtime.soon(self.finish, self.on_defect)
            return
        if self._step < NOTIFIED:
            self._step = NOTIFYING
            self._deliver_terminal()
            self._step = NOTIFIED
        if self._step < RECORDED:
            self._record()
            self._step = RECORDED
        if self._step < COMPLETED:
            self._step = COMPLETED
            on_completion, completion = self._on_completion, self.completion or self._outcome
            self._on_completion = None  # it may refer to the call
            if on_completion is not None and completion is not None:
                try:
                    on_completion(completion)
                except BaseException as error:
                    logger.exception("on_completion raised")
                    self._raised = error
        if self._step < WOKEN:
            self._step = WOKEN
            if self._ended is not None:
                self._ended.set()
        raised, self._raised = self._raised, None
        if raised is not None:
            self.runtime.on_callback_raised(raised)

    def _finish_by_all_means(self) -> None:
        """Perform the remaining steps; skip a step that raises."""
        for _ in Step:
            try:
                self.finish()
            except RecursionError:  # each step would raise at this end of the stack; the loop's has room
                self.runtime.soon(self._finish_by_all_means, self.on_defect)
                return
            except Exception:
                logger.exception("ending %r raised, too", self)
                self._step = Step(min(self._step + 1, WOKEN))
                continue
            return

    def _stop(self) -> None:
        """Stop everything of the call that runs, waits or is open. May be called again."""
        self._state = ENDED
        self._disarm()
        attempt, admission = self.attempt, self.admission
        if attempt is not None:
            attempt.abort()
        rival, self.rival = self.rival, None
        if rival is not None and admission is not None:
            admission.lost(rival)
        if self.cancelling is not None:
            self.cancelling.abort()
            self.cancelling = None
        if admission is not None:
            admission.end(self._outcome, attempt)

    def _deliver_terminal(self) -> None:
        """Deliver the last events: the terminal one, after a `Start` if none was delivered before."""
        terminal, self._terminal = self._terminal, ()  # before the callback: this may be called again
        self.counters.events += len(terminal)
        try:
            for event in terminal:
                self._on_event(event)
        except BaseException as failure:
            self._raised = failure
            if isinstance(terminal[-1], ErrorEvent):
                logger.error("on_event raised on its Error event", exc_info=failure)
            else:
                assert self._outcome is not None
                self._outcome = dataclasses.replace(self._outcome, success=False, error=callback_failed(failure))

    def _record(self) -> None:
        """Make the completion public, and let the engine count the call as ended. May be called again."""
        completion = self._outcome
        assert completion is not None
        completion.timings.finished = self.runtime.loop.clock() - self.started
        self.completion = completion
        self._on_event = nobody  # it may refer to the call
        if self.attempt is not None:
            self.attempt.release()
            self.attempt = None
        prepared = self.prepared
        if prepared.tags is not None:
            completion.tags = prepared.tags
        turn = prepared.turn
        if turn is not None:
            completion.transport, completion.continued = turn.transport, turn.continued
            completion.resent += turn.resent
        if prepared.durable is not None:
            completion.resumed = prepared.durable.resumed
            if prepared.durable.attached:
                completion.cost_unknown = COST_OF_ANOTHER
        self._leave_queue(self.started + completion.timings.finished)
        seconds, admission = self._queued_before, self.admission
        if admission is not None:
            admission.complete(completion)
        if seconds > LEAST_WAIT:
            completion.timings.waited = {"connection": seconds} if admission is None else admission.waited(seconds)
        self._hooks.ended(self, completion)


def sign(error: ProviderError, prepared: Prepared) -> None:
    """Write into an error where a request was sent."""
    error.provider, error.model = prepared.provider.name, prepared.model
    error.host = prepared.head.headers[0][1].decode()  # the first header is Host


def nobody(_: object) -> None:
    """Do nothing: the callback of a call that has none."""
