"""One call in traffic control, from its start to its end: when it may begin an attempt, and what its attempts used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from ...providers.catalog.dialect import WireRequest
from ...providers.limits.quota_report import Refusal
from ...providers.model.options import Priority
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.request import Request
from ...providers.model.response import Response
from ..call.admission_control import AdmissionControl
from ..call.attempt import Attempt
from ..call.call import RunningCall, TargetRequest
from ..call.completion import AttemptRecord, Completion
from ..call.next_step import Limits, Outlook
from ..call.timeouts import LEAST_WAIT
from ..request.noting import NoteLogger
from ..request.prepared import Prepared
from ..request.preparer import Preparer
from .budgets.budgets import NOTHING_SPENT, Need, Reservation, Spending, Spent, spent_by
from .limits.host import PAUSE, Host, is_lost
from .limits.limiter import Limiter
from .queue.fair_queue import NEVER, UNDER_WAY, Permit
from .queue.pump import WaitingCall

MakeRequest: TypeAlias = Callable[[Request, Preparer], tuple[TargetRequest, WireRequest]]
"""Prepares a request for a target. Raises `InvalidRequestError`."""


class Candidate(Permit):
    """A call's permit at one target. It is the permit, and not an object beside it: thousands of calls wait, each at
    several targets.

    An attempt holds it while it is under way, and ends it exactly once: its limiter is asked to `settle`, `cancel` or
    `fail` it.

    limiter: what shares the quota of the target, and sends the call.
    target_index: the position of the target in the call's route.
    key: the position of the key among those of the target's provider.
    request: the request as it is sent there, with what else a call on a route needs to go there; None until it is
        prepared.
    need: what an attempt may use of budgets; None in an engine without budgets and prices.
    reservation: what the attempt under way has reserved of budgets.
    began: the time at which the attempt under way began; `-math.inf`: there is none.
    attempt_number: the number of the attempt among those at the target.
    is_refused: the server has refused the key for this call.
    slot_mark: `slot_seconds` of the limiter when the wait began.
    until: the time at which the call waits here no longer, by the target's own options; `math.inf` if it has none.
    """

    __slots__ = (
        "attempt_number",
        "began",
        "is_refused",
        "key",
        "limiter",
        "need",
        "request",
        "reservation",
        "slot_mark",
        "target_index",
        "until",
    )

    def __init__(
        self,
        limiter: Limiter,
        input_tokens: float = 0.0,
        max_output: float | None = None,
        priority: Priority = Priority.NORMAL,
        tenant: str | None = None,
        request: Prepared | TargetRequest | None = None,
        need: Need | None = None,
        target_index: int = 0,
        key: int = 0,
    ) -> None:
        Permit.__init__(self, input_tokens, max_output, priority, tenant)  # `super` would cost each start
        self.limiter: Limiter = limiter
        self.target_index: int = target_index
        self.key: int = key
        self.request: Prepared | TargetRequest | None = request
        self.need: Need | None = need
        self.reservation: Reservation | None = None
        self.began: float = NEVER
        self.attempt_number: int = 0
        self.is_refused: bool = False
        self.slot_mark: float = 0.0
        self.until: float = math.inf

    @property
    def target(self) -> str:
        """Where it goes, as `provider/model`; empty until the request is prepared."""
        request = self.request
        if request is None:
            return ""
        prepared = request.prepared if isinstance(request, TargetRequest) else request
        return f"{prepared.provider.name}/{prepared.model}"


logger: NoteLogger = NoteLogger("manystream.traffic")

MOST_RECORDS = 100
"""The number of attempts that are recorded of one call. Of more, the first half and the last half are kept: a server
that refuses for hours would fill the memory."""

OK = "ok"
"""The outcome of an attempt with a complete answer."""

PAUSES = (Refusal.RATE, Refusal.OVERLOAD)
"""Refusals after which the same request can succeed later."""


def was_in_vain(error: ProviderError, host: Host, *, sent: bool) -> bool:
    """Return whether an attempt has only shown that its server is away, or got no connection: it is no try."""
    return error is host.error and (host.is_away or not sent)


def outlook(error: ProviderError, *, is_counted: bool = True) -> Outlook:
    """Return that the call's own options decide. One call at a time asks a server that may be away."""
    if is_lost(error):
        return Outlook(Limits.ASK_SLOWLY, error, is_counted, PAUSE)
    return Outlook(Limits.NONE, error, is_counted)


class Admission(AdmissionControl, WaitingCall):
    """A call to one target with one key. (`Routed`, a subclass, is a call with several.)

    attempt_records: the attempts that have ended.
    spending: what the call reserves and spends; None in an engine without budgets and prices.
    """

    __slots__ = (
        "_call",
        "_candidate",
        "_entered",
        "_quota_seconds",
        "_slot_seconds",
        "_started",
        "attempt_records",
        "spending",
    )

    def __init__(self, candidate: Candidate, spending: Spending | None = None) -> None:
        self._candidate = candidate  # where it waits, or where an attempt is under way
        self.attempt_records: tuple[AttemptRecord, ...] = ()
        self.spending: Spending | None = spending
        self._call: RunningCall | None = None  # from its start to its end
        self._started = NEVER  # the time at which the call was started
        self._entered = NEVER  # the time at which the current wait began; NEVER: it does not wait
        self._quota_seconds = 0.0  # seconds of all waits until it was last sent
        self._slot_seconds = 0.0

    @property
    def target(self) -> str:
        return self._candidate.target

    @property
    def _queued(self) -> Candidate:
        """The candidate that waits in a queue, if one does."""
        return self._candidate

    @property
    def waiting_for(self) -> str:
        if self.spending is not None and self.spending.waiting_for:
            return self.spending.waiting_for
        candidate = self._queued
        return candidate.limiter.state.waiting_for(candidate, self._now)

    def waited(self, seconds: float) -> dict[str, float]:
        budget = 0.0 if self.spending is None else self.spending.seconds
        by_reason = {
            "quota": self._quota_seconds,
            "slot": self._slot_seconds,
            "budget": budget,
            "connection": seconds - self._quota_seconds - self._slot_seconds - budget,
        }
        return {reason: waited for reason, waited in by_reason.items() if waited > LEAST_WAIT}

    # --- before an attempt ---

    def enter(self, call: RunningCall, deadline: float, now: float, *, again: bool) -> None:
        candidate = self._candidate
        self._call, candidate.owner = call, self
        self._begin_to_wait(now)
        if self.spending is not None:
            refused = self._refusal(candidate, now)
            if self._is_over:
                return  # a function of a budget has ended the call
            if refused is not None:
                call.rejected(refused)
                return
        candidate.limiter.enter(candidate, now, again=again, deadline=deadline)

    def begin(self, now: float) -> None:
        if now > self._entered:
            self._left(now)
        self._entered = NEVER
        candidate = self._candidate
        candidate.began = now
        if self.spending is not None:
            candidate.reservation = self.spending.take()

    def _begin_to_wait(self, now: float) -> None:
        if self._started == NEVER:
            self._started = now
        self._entered = now
        candidate = self._candidate
        candidate.slot_mark = candidate.limiter.state.slot_seconds(now)

    def _left(self, now: float) -> None:
        """End the call's wait. May be called again."""
        if self._entered == NEVER:
            return
        candidate = self._candidate
        slot = candidate.limiter.state.slot_seconds(now) - candidate.slot_mark
        self._slot_seconds += slot
        self._quota_seconds += max(0.0, now - self._entered - slot)
        self._entered = NEVER

    @property
    def _now(self) -> float:
        return self._candidate.limiter.runtime.loop.clock()

    @property
    def _is_over(self) -> bool:
        """Whether the call has ended. A function of the program may end the call that it is asked for."""
        return self._call is None

    @property
    def _is_beside(self) -> bool:
        """Whether another attempt of the call runs, or ran, beside the latest one."""
        return False

    @property
    def _running(self) -> RunningCall:
        assert self._call is not None, "the call has not ended"
        return self._call

    # --- as the limiter sees it ---

    def admitted(self, permit: Permit, now: float) -> None:
        call = self._call
        assert call is not None, "the call has not ended"
        if self.spending is None or self._pay(self._candidate, now):
            call.admitted(now)

    def rejected(self, permit: Permit, error: ProviderError) -> None:
        self._running.rejected(error)

    def look_again(self) -> None:
        """Do nothing: a call with one target has no choice."""

    def on_defect(self, error: Exception) -> None:
        if self._call is None:
            logger.error("%r has ended, and raised: a defect in manystream", self, exc_info=error)
        else:
            self._call.on_defect(error)

    # --- as the budgets see it ---

    def funded(self) -> None:
        now, need = self._now, self._candidate.need
        assert self.spending is not None
        assert need is not None
        self.spending.fund(need, now)
        self._begin_to_wait(now)
        self._go_on_paid(now)

    def unfunded(self, error: ProviderError) -> None:
        now = self._now
        if self.spending is not None:
            self.spending.leave(now)
        self._begin_to_wait(now)
        self._unpaid(error, now)

    def _refusal(self, candidate: Candidate, now: float) -> ProviderError | None:
        """Return why no budget ever pays for the next attempt; None if one may."""
        if self.spending is None or candidate.need is None:
            return None
        return self.spending.refusal(candidate.need, now)

    def _pay(self, candidate: Candidate, now: float) -> bool:
        """Reserve what the attempt may use that the limiter sends. Returns False if the call is not sent now."""
        spending, need = self.spending, candidate.need
        if spending is None or need is None:
            return True
        found = spending.reserve(need, now)
        if self._is_over:
            spending.release(now)
            return False
        if found is None:
            return True
        candidate.limiter.cancel(candidate, now)
        if isinstance(found, ProviderError):
            self._unpaid(found, now)
        else:
            self._left(now)
            spending.wait(need, found, self, candidate.priority, now)
        return False

    def _go_on_paid(self, now: float) -> None:
        """Send the call when its limits allow."""
        self._candidate.limiter.enter(self._candidate, now, again=True)

    def _unpaid(self, error: ProviderError, now: float) -> None:
        """Fail the call: no budget pays for it."""
        self._running.rejected(error)

    # --- during an attempt ---

    def _of(self, attempt: Attempt) -> Candidate:
        """Return the permit of an attempt that is under way."""
        return self._candidate

    def connected(self, attempt: Attempt) -> None:
        candidate = self._of(attempt)
        host = candidate.limiter.state.host
        if host.is_away:
            host.connected(candidate.number, self._now)

    def confirm(self, attempt: Attempt) -> None:
        candidate = self._of(attempt)
        candidate.limiter.confirm(candidate, attempt.headers)

    def first_content(self) -> None:
        candidate = self._candidate
        candidate.limiter.state.answered(candidate, self._now)

    def rival_chosen(self) -> None:
        raise AssertionError("a call to one target has no second attempt")

    def rival_failed(self, attempt: Attempt, error: ProviderError) -> None:
        raise AssertionError("a call to one target has no second attempt")

    # --- after an attempt ---

    def resent(self, attempt: Attempt, error: ProviderError) -> None:
        candidate, now = self._of(attempt), self._now
        self._record(candidate, error, NOTHING_SPENT, now)
        candidate.began = now

    def failed(self, attempt: Attempt, error: ProviderError, *, may_wait: bool) -> Outlook:
        candidate, sent, now = self._candidate, attempt.sent, self._now
        self._end_attempt(candidate, error, None, now, sent=sent)
        if candidate.state not in UNDER_WAY:
            return outlook(error)
        may_wait = may_wait or self._asked_only(candidate, sent=sent)
        refusal = candidate.limiter.fail(candidate, error, attempt.headers, now, sent=sent, again=True)
        if refusal in PAUSES:
            self._begin_to_wait(now)
            return Outlook(Limits.WAIT, error, is_counted=False)
        if refusal is not Refusal.NONE:
            error.retryable = False
        state = candidate.limiter.state
        in_vain = may_wait and was_in_vain(error, state.host, sent=sent)
        if not (in_vain and state.host.is_away):
            return outlook(error, is_counted=not in_vain)
        # Another call asks next, where this one has done so: its own request may be what breaks the connection.
        state.queue.add(candidate, at_head=not sent)
        candidate.limiter.changed()
        self._begin_to_wait(now)
        return Outlook(Limits.WAIT, error, is_counted=False)

    @staticmethod
    def _asked_only(candidate: Candidate, *, sent: bool) -> bool:
        """Return whether an attempt did no more than ask in vain for a connection to a server that is away."""
        return not sent and candidate.limiter.state.host.asks(candidate.number)

    def end(self, outcome: Completion | None, attempt: Attempt | None) -> None:
        candidate = self._candidate
        now = candidate.limiter.runtime.loop.clock()
        sent = attempt is not None and attempt.sent
        error = None if outcome is None else outcome.error
        response = None if outcome is None else outcome.response
        if error is not None and is_lost(error) and candidate.state in UNDER_WAY:
            candidate.limiter.state.host.lost(candidate.number, now, error)
        self._end_attempt(candidate, error, response, now, sent=sent)
        self._left(now)
        if self.spending is not None:
            self.spending.leave(now)
            self.spending.release(now)
        if sent:
            # The usage of an answer that was given up is that of its beginning: the estimate is closer.
            given_up = error is not None and error.category is ErrorCategory.CANCELLED
            candidate.limiter.settle(candidate, None if given_up else response, now)
        else:
            candidate.limiter.cancel(candidate, now)
        candidate.owner = self._call = None

    def complete(self, completion: Completion) -> None:
        completion.attempt_records = self.attempt_records
        if self.spending is not None:
            completion.cost, completion.cost_unknown = self.spending.cost, self.spending.cost_unknown

    def _end_attempt(
        self, candidate: Candidate, error: ProviderError | None, response: Response | None, now: float, *, sent: bool
    ) -> None:
        """Record the attempt that has ended, if there is one, and settle what it reserved of budgets."""
        if candidate.began == NEVER:
            return
        if candidate.need is None:
            self._record(candidate, error, NOTHING_SPENT if response is None else Spent(response.usage), now)
            return
        need = candidate.need
        spent = spent_by(need.input_tokens, response, error, need.unseen_output) if sent else NOTHING_SPENT
        self._close(candidate, error, spent, now, sent=sent)

    def _close(
        self, candidate: Candidate, error: ProviderError | None, spent: Spent, now: float, *, sent: bool
    ) -> None:
        """Record an attempt that has ended, and settle what it reserved. The price function may end the call."""
        self._record(candidate, error, spent, now)
        kept, candidate.reservation = candidate.reservation, None
        if self.spending is not None and candidate.need is not None and kept is not None:
            self.spending.settle(candidate.need, kept, spent.usage if sent else None, now, sent=sent)

    def _record(self, candidate: Candidate, error: ProviderError | None, spent: Spent, now: float) -> None:
        """Add an attempt that has ended to the records."""
        started, ended = candidate.began - self._started, now - self._started
        outcome = OK if error is None else str(error.category)
        # By position: each attempt would pay for the names.
        record = AttemptRecord(
            candidate.target, started, ended, outcome, error, self._is_beside, spent.usage, spent.estimated
        )
        candidate.began = NEVER
        kept, half = self.attempt_records, MOST_RECORDS // 2
        if len(kept) == MOST_RECORDS:
            kept = kept[:half] + kept[half + 1 :]
        self.attempt_records = (*kept, record)
