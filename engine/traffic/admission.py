"""One call in traffic control, from its start to its end: where it waits, and when it may begin an attempt.

A call with one target waits in one queue. A call on a route takes its target when it can be sent, not when it starts:
where no target has room, it waits in the queue of each one that it may use, and the first that has room gets it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

from ...providers.errors import InvalidRequestError
from ...providers.limits.quota_report import Refusal
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.response import Response
from ..call.attempt import Attempt
from ..call.call import RunningCall, TargetRequest
from ..call.completion import AttemptRecord, Completion
from ..call.next_step import Limits, Outlook
from ..call.timeouts import LEAST_WAIT, Clock, timeout_error
from ..request.noting import NoteLogger
from ..request.prepared import Prepared
from .budgets.budgets import NOTHING_SPENT, Need, Reservation, Spending, Spent, spent_by
from .hedging import Hedging
from .limits.host import PAUSE, is_lost
from .limits.limiter import Limiter
from .queue.fair_queue import NEVER, UNDER_WAY, Permit, PermitState
from .queue.pump import WaitingCall

if TYPE_CHECKING:
    from .targets import Targets

logger: NoteLogger = NoteLogger("manystream.traffic")

MOST_RECORDS = 100
"""The number of attempts that are recorded of one call. Of more, the first half and the last half are kept: a server
that refuses for hours would fill the memory."""

OK = "ok"
"""The outcome of an attempt with a complete answer."""

PAUSES = (Refusal.RATE, Refusal.OVERLOAD)
"""Refusals after which the same request can succeed later."""


@dataclass(slots=True, eq=False, repr=False)
class Candidate(Permit):
    """A call's permit at one target. It is the permit, and not an object beside it: thousands of calls wait, each at
    several targets.

    An attempt holds it while it is under way. `Admission` ends it, exactly once, in one place.

    limiter: what shares the quota of the target, and sends the call.
    target_index: the position of the target in the call's route.
    key: the position of the key among those of the target's provider.
    request: the request as it is sent there, with what else a call on a route needs to go there; None until it is
        prepared.
    need: what an attempt may use of budgets; None in an engine without budgets and prices.
    reservation: what the attempt under way has reserved of budgets.
    began: the time at which the attempt under way began; `-math.inf`: there is none.
    attempt_number: the number of the latest attempt among those at the target; 0: there was none.
    is_refused: the server has refused the key for this call.
    slot_mark: `slot_seconds` of the limiter when the wait began.
    until: the time at which the call waits here no longer, by the target's own options; `math.inf` if it has none.
    """

    request: Prepared | TargetRequest | None = None
    need: Need | None = None
    target_index: int = 0
    key: int = 0
    limiter: Limiter = field(init=False)
    reservation: Reservation | None = field(default=None, init=False)
    began: float = field(default=NEVER, init=False)
    attempt_number: int = field(default=0, init=False)
    is_refused: bool = field(default=False, init=False)
    slot_mark: float = field(default=0.0, init=False)
    until: float = field(default=math.inf, init=False)

    @property
    def target(self) -> str:
        """Where it goes, as `provider/model`; empty until the request is prepared."""
        request = self.request
        if request is None:
            return ""
        prepared = request.prepared if isinstance(request, TargetRequest) else request
        return f"{prepared.provider.name}/{prepared.model}"

    def connected(self) -> None:
        """Receive the report that its attempt has a connection."""
        host = self.limiter.state.host
        if host.is_away:
            host.connected(self.number, self.limiter.runtime.loop.clock())


@dataclass(slots=True, eq=False, repr=False)
class Admission(WaitingCall):
    """Admission control of one call, to one target or on a route. Thousands wait, so it has no dict.

    targets: those of a call on a route; None for a call to one target with one key.
    attempt_records: the attempts that have ended.
    spending: what the call reserves and spends; None in an engine without budgets and prices.
    """

    _candidate: Candidate  # of the latest attempt; before it, the one that is planned or was admitted
    spending: Spending | None = None
    targets: Targets | None = None
    attempt_records: tuple[AttemptRecord, ...] = field(default=(), init=False)
    _call: RunningCall | None = field(default=None, init=False)  # from its start to its end
    _started: float = field(default=NEVER, init=False)  # the time at which the call was started
    _entered: float = field(default=NEVER, init=False)  # when the current wait began; NEVER: it does not wait
    _quota_seconds: float = field(default=0.0, init=False)  # of all waits until it was last sent
    _slot_seconds: float = field(default=0.0, init=False)
    _hedging: Hedging | None = field(default=None, init=False)  # from the first attempt on

    @property
    def _now(self) -> float:
        return self._candidate.limiter.runtime.loop.clock()

    @property
    def _running(self) -> RunningCall:
        assert self._call is not None, "the call has not ended"
        return self._call

    @property
    def _waiting(self) -> Sequence[Candidate]:
        all_of_them = (self._candidate,) if self.targets is None else self.targets.candidates
        return [candidate for candidate in all_of_them if candidate.owner is self]

    @property
    def _queued(self) -> Candidate:
        """A candidate that waits in a queue, if one does: the latest attempt's, if that does."""
        waiting = self._waiting
        return self._candidate if self._candidate in waiting or not waiting else waiting[0]

    @property
    def target(self) -> str:
        candidate = self._candidate
        return candidate.target if self.targets is None or candidate.attempt_number else ""

    @property
    def waiting_for(self) -> str:
        if self.spending is not None and self.spending.waiting_for:
            return self.spending.waiting_for
        if self.targets is not None and self.targets.group is not None:
            return f"a target of {self.targets.route.name} to be used again"
        candidate = self._queued
        return candidate.limiter.state.waiting_for(candidate, self._now)

    def waited(self, seconds: float) -> dict[str, float]:
        budget = 0.0 if self.spending is None else self.spending.seconds
        held = 0.0 if self.targets is None else self.targets.held_seconds
        by_reason = {
            "quota": self._quota_seconds,
            "slot": self._slot_seconds,
            "budget": budget,
            "connection": seconds - self._quota_seconds - self._slot_seconds - budget - held,
            "target": held,
        }
        return {reason: waited for reason, waited in by_reason.items() if waited > LEAST_WAIT}

    # --- before an attempt ---

    def enter(self, call: RunningCall, deadline: float, now: float, *, again: bool) -> None:
        candidate, targets = self._candidate, self.targets
        self._call = call
        self._begin_to_wait(now)
        if targets is not None and again:
            targets.ask_again()
            self._go_on(now, deadline)
            return
        if self.spending is not None and candidate.need is not None:
            refused = self.spending.refusal(candidate.need, now)
            if self._entered == NEVER:
                return  # a function of a budget has ended the call
            if refused is not None:
                self._unpaid(refused, now, deadline)
                return
        if targets is None:
            candidate.owner = self
            candidate.limiter.enter(candidate, now, again=again, deadline=deadline)
        elif targets.has_room(candidate, now):
            self._wait([candidate], now, deadline)
        else:
            self._go_on(now, deadline)

    def _go_on(self, now: float, deadline: float = math.inf, avoided: Candidate | None = None) -> None:
        """Wait in the queues of the targets to which the call may go, until one of them sends it; or fail.

        deadline: when the call's own timer ends its wait, if a limiter should compare that with its queue.
        avoided: where a limit has just refused the call.
        """
        targets = self.targets
        if self._call is None or self._candidate.began > NEVER:
            return
        if targets is None:
            self._candidate.limiter.enter(self._candidate, now, again=True)
            return
        elsewhere = None if avoided is None else targets.elsewhere(avoided, now)
        if elsewhere is not None:
            self._wait([elsewhere], now)
            return
        choice, found = targets.choose(now)
        if choice.target is not None:
            self._wait([targets.best(found, now)], now, deadline)
        elif found:
            self._wait([candidate for candidate in found if candidate.owner is not self], now, deadline)
        elif choice.wait_until > -math.inf:
            if self.spending is not None:
                self.spending.release(now)
            targets.hold(self, now)
        else:
            self._call.rejected(targets.verdict())

    def _wait(self, candidates: list[Candidate], now: float, deadline: float = math.inf) -> None:
        """Wait in the queues of limiters, until the first one sends the call. deadline: as for `_go_on`."""
        targets = self.targets
        assert targets is not None, "the call is on a route"
        targets.route.wait_for_room(self)
        for candidate in candidates:
            candidate.slot_mark = candidate.limiter.state.slot_seconds(now)
            candidate.owner = self
            longest = targets.longest_wait(candidate.target_index)
            candidate.until = now + longest if longest < math.inf else longest  # the same object for all that wait
        for candidate in candidates:
            # A limiter may send the call at once. The call may even have ended and wait again by now.
            if candidate.owner is self and candidate.state is not PermitState.QUEUED:
                until = min(deadline, candidate.until) if len(candidates) == 1 else math.inf
                candidate.limiter.enter(candidate, now, again=bool(self.attempt_records), deadline=until)
        self._set_timer(targets)

    def _set_timer(self, targets: Targets) -> None:
        """Set the timer to the time at which the call waits no longer at a target."""
        when = min((candidate.until for candidate in self._waiting), default=math.inf)
        if when < math.inf and targets.timer is None:
            leave = partial(self._leave_in_time, targets)
            targets.timer = self._candidate.limiter.runtime.timers.at(when, leave, self.on_defect)

    def _leave_in_time(self, targets: Targets) -> None:
        """Leave the queues of targets at which the call waits no longer."""
        targets.timer, now = None, self._now
        for candidate in self._waiting:
            if candidate.until <= now and candidate.owner is self:
                index, reason = candidate.target_index, candidate.limiter.state.waiting_for(candidate, now)
                late = timeout_error(Clock.QUEUE, targets.longest_wait(index), f"waiting for {reason}")
                targets.fail(index, late)
                self._leave(now, [each for each in self._waiting if each.target_index == index])
                if not self._waiting:
                    self._go_on(now)
        self._set_timer(targets)

    def _forget(self, candidate: Candidate) -> None:
        """The call waits no longer in this queue."""
        candidate.owner = None
        if self.targets is not None and not self._waiting:
            self.targets.leave(self)

    def _leave(self, now: float, candidates: Iterable[Candidate]) -> None:
        """Leave the queues in which these candidates wait."""
        for candidate in candidates:
            self._forget(candidate)
            candidate.limiter.cancel(candidate, now)

    def _end_hold(self, targets: Targets, now: float) -> None:
        """Wait no longer for a target to be used again. May be called again."""
        held = targets.end_hold(self, now)
        if self._entered > NEVER:
            self._entered += held

    def _begin_to_wait(self, now: float) -> None:
        if self._started == NEVER:
            self._started = now
        self._entered = now
        candidate = self._candidate
        candidate.slot_mark = candidate.limiter.state.slot_seconds(now)

    def _left(self, candidate: Candidate, now: float) -> None:
        """End the call's wait. May be called again. candidate: where it waited."""
        if self._entered == NEVER:
            return
        slot = candidate.limiter.state.slot_seconds(now) - candidate.slot_mark
        self._slot_seconds += slot
        self._quota_seconds += max(0.0, now - self._entered - slot)
        self._entered = NEVER

    # --- as limiters and the route see it ---

    def admitted(self, permit: Permit, now: float) -> None:
        candidate, targets = cast("Candidate", permit), self.targets
        if targets is not None and not self._goes_to(candidate, targets, now):
            return
        if self.spending is None or self._pay(candidate, now):
            self._begin(candidate, now)
            call = self._call
            assert call is not None, "the call has not ended"
            if targets is not None:
                self._begin_on_route(candidate, targets, call, now)
            call.begin(candidate)

    def _begin(self, candidate: Candidate, now: float) -> None:
        """An attempt begins: the call waits no longer."""
        if now > self._entered:
            self._left(candidate, now)
        self._entered = NEVER
        candidate.began = now
        if self.spending is not None:
            candidate.reservation = self.spending.take()

    def _goes_to(self, candidate: Candidate, targets: Targets, now: float) -> bool:
        """Leave the other queues, and prepare the request. Returns False if the call does not go there."""
        if candidate.owner is not self:
            candidate.limiter.cancel(candidate, now)  # the call has gone elsewhere
            return False
        if candidate.key not in targets.usable(candidate.target_index, now):
            self._leave(now, [candidate])  # the server refused the key meanwhile; the call waits on in other queues
            if not self._waiting:
                self._go_on(now)
            return False
        self._leave(now, [other for other in self._waiting if other is not candidate])
        self._forget(candidate)
        is_able = targets.route.state.is_healthy(candidate.target_index, now)
        if is_able:
            self._candidate = candidate
            try:
                targets.request_at(candidate)
            except InvalidRequestError as error:
                if self._call is not None:
                    targets.cannot_take(candidate.target_index, error)
                is_able = False
        if self._call is None:
            return False  # a function of the program, which the request was prepared with, has ended the call
        if not is_able:
            candidate.limiter.cancel(candidate, now)
            self._go_on(now)
        return is_able

    def _begin_on_route(self, candidate: Candidate, targets: Targets, call: RunningCall, now: float) -> None:
        session, route = targets.request.session, targets.route
        candidate.attempt_number = route.begin(candidate.target_index, now, session)
        if targets.has_keys(candidate.target_index):
            targets.keys(candidate.target_index).keep(candidate.key, session, now)
        if route.hedging is not None and not targets.request.durable:  # each attempt would create an answer
            if self._hedging is None:
                self._hedging = Hedging(route.hedging, candidate.limiter.runtime, self._send_beside, self.on_defect)
            self._hedging.begin(now)
        call.redirect(targets.request_at(candidate))

    def rejected(self, permit: Permit, error: ProviderError) -> None:
        candidate, targets = cast("Candidate", permit), self.targets
        if targets is None:
            self._running.rejected(error)
        elif candidate.owner is self:
            self._forget(candidate)
            targets.note_error(error)
            if error.category is ErrorCategory.TIMEOUT:
                targets.fail(candidate.target_index)  # it would be too late there
            if not self._waiting:
                self._go_on(self._now)

    def look_again(self) -> None:
        targets = self.targets
        if self._call is None or targets is None:
            return
        now = self._now
        self._end_hold(targets, now)
        if self._call.has_attempts_left:
            targets.ask_returned(now)
        choice, _ = targets.choose(now)
        kept = () if choice.target is not None else choice.among
        self._leave(now, [candidate for candidate in self._waiting if candidate.target_index not in kept])
        if {candidate.target_index for candidate in self._waiting} != set(kept) or not kept:
            self._go_on(now)

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
        self._go_on(now)

    def unfunded(self, error: ProviderError) -> None:
        now = self._now
        if self.spending is not None:
            self.spending.leave(now)
        self._begin_to_wait(now)
        self._unpaid(error, now)

    def _pay(self, candidate: Candidate, now: float) -> bool:
        """Reserve what the attempt may use that the limiter sends. Returns False if the call is not sent now."""
        spending, need = self.spending, candidate.need
        if spending is None or need is None:
            return True
        found = spending.reserve(need, now)
        if self._call is None:
            spending.release(now)
            return False
        if found is None:
            return True
        candidate.limiter.cancel(candidate, now)
        if isinstance(found, ProviderError):
            self._unpaid(found, now)
        else:
            self._left(candidate, now)
            spending.wait(need, found, self, candidate.priority, now)
        return False

    def _unpaid(self, error: ProviderError, now: float, deadline: float = math.inf) -> None:
        """No budget pays for an attempt at a target: go to another one, or fail."""
        if self.targets is None:
            self._running.rejected(error)
        else:
            self.targets.finish(self._candidate.target_index, error)
            self._go_on(now, deadline)

    # --- during an attempt ---

    def confirm(self, attempt: Attempt) -> None:
        candidate, targets = _of(attempt), self.targets
        candidate.limiter.confirm(candidate, attempt.headers)
        if targets is not None and targets.has_keys(candidate.target_index):
            targets.keys(candidate.target_index).restore(candidate.key)

    def first_content(self) -> None:
        candidate, now = self._candidate, self._now
        candidate.limiter.state.answered(candidate, now)
        if self.targets is not None:
            self._answered(candidate, self.targets, now)

    def _answered(self, candidate: Candidate, targets: Targets, now: float) -> None:
        """The first content of the answer came, or the whole answer."""
        if self._hedging is not None:
            self._hedging.first_content(now)
        targets.route.succeed(candidate.target_index, candidate.attempt_number, now - candidate.sent_at, now)

    # --- after an attempt ---

    def resent(self, attempt: Attempt, error: ProviderError) -> None:
        candidate, now = _of(attempt), self._now
        self._record(candidate, error, NOTHING_SPENT, now)
        candidate.began = now

    def failed(self, attempt: Attempt, error: ProviderError, *, left: int, may_wait: bool) -> Outlook:
        candidate, sent, now, targets = _of(attempt), attempt.sent, self._now, self.targets
        state = candidate.limiter.state
        # An attempt that asked in vain whether a server that is known to be away is back is no try.
        may_wait = may_wait or state.host.asks(candidate.number)
        if self._hedging is not None:
            self._hedging.disarm()
        refusal = self._give_back(candidate, attempt, error, None, now, sent=sent, has_failed=True)
        if refusal is None:
            return _outlook(error)  # the price function has ended the call
        is_paused = refusal in PAUSES
        if refusal is not Refusal.NONE and not is_paused:
            error.retryable = False
        in_vain = not is_paused and may_wait and error is state.host.error and (state.host.is_away or not sent)
        waits = in_vain and state.host.is_away
        is_counted = not (is_paused or in_vain)
        if targets is None:
            if not (waits or is_paused):
                return _outlook(error, is_counted=is_counted)
            if waits:
                # Another call asks next, where this one has done so: its own request may be what breaks the connection.
                state.queue.add(candidate, at_head=not sent)
                candidate.limiter.changed()
        else:
            judged = None
            if not is_paused:
                is_last = left + in_vain <= 0
                judged = targets.judge(candidate, error, refusal, now, waits=waits, is_last=is_last)
            beside = self._call is not None and self._call.rival is not None
            if judged is not None and not (beside and (judged.retryable or targets.may_leave(error))):
                return _outlook(judged, is_counted=is_counted)
            if not beside:
                avoided = candidate if is_paused else None
                self._candidate.limiter.runtime.soon(lambda: self._go_on(self._now, avoided=avoided), self.on_defect)
        self._begin_to_wait(now)
        return Outlook(Limits.WAIT, error, is_counted)

    def end(self, outcome: Completion | None, attempt: Attempt | None) -> None:
        candidate, targets, now = self._candidate, self.targets, self._now
        if self._call is None:
            return
        if self._hedging is not None:
            self._hedging.disarm()
        if targets is not None:
            self._end_hold(targets, now)
        if self._entered > NEVER:
            self._left(self._queued, now)
        if targets is not None:
            self._leave(now, self._waiting)
        error = None if outcome is None else outcome.error
        if error is not None and is_lost(error) and candidate.state in UNDER_WAY:
            candidate.limiter.state.host.lost(candidate.number, now, error)
        if (
            targets is not None
            and attempt is not None
            and self._candidate.began > NEVER
            and outcome is not None
            and outcome.success
        ):
            if attempt.content_at == math.inf:
                self._answered(candidate, targets, now)
            targets.route.complete(candidate.target_index, candidate.attempt_number)
        sent = attempt is not None and attempt.sent
        self._give_back(candidate, attempt, error, None if outcome is None else outcome.response, now, sent=sent)
        if self.spending is not None:
            self.spending.leave(now)
            self.spending.release(now)
        candidate.owner = self._call = self._hedging = None  # it refers to this object
        if targets is not None:
            targets.candidates = ()

    def complete(self, completion: Completion) -> None:
        completion.attempt_records = self.attempt_records
        if self.spending is not None:
            completion.cost, completion.cost_unknown = self.spending.cost, self.spending.cost_unknown

    def _give_back(
        self, candidate: Candidate, attempt: Attempt | None, error: ProviderError | None, response: Response | None,
        now: float, *, sent: bool, has_failed: bool = False,
    ) -> Refusal | None:  # fmt: skip
        """Record an attempt that is over, and end its reservation and its permit. Nothing else does. May be called
        again.

        sent: its request may have reached the server.
        has_failed: it brought nothing. Returns then which limit refused it; else None, and if the price function has
            ended the call.
        """
        need, targets = candidate.need, self.targets
        was_begun, refusal = candidate.began > NEVER, None
        if was_begun:
            is_beside = self._hedging is not None and self._hedging.is_beside
            spent = NOTHING_SPENT if need is not None or response is None else Spent(response.usage)
            if sent and need is not None:
                spent = spent_by(need.input_tokens, response, error, need.unseen_output)
            elif sent and is_beside and error is not None:
                spent = spent_by(math.ceil(candidate.input_tokens), response, error)
            self._record(candidate, error, spent, now)
            kept, candidate.reservation = candidate.reservation, None
            if self.spending is not None and need is not None and kept is not None:
                self.spending.settle(need, kept, spent.usage if sent else None, now, sent=sent)
        limiter = candidate.limiter
        if has_failed and error is not None and attempt is not None and candidate.state in UNDER_WAY:
            refusal = limiter.fail(candidate, error, attempt.headers, now, sent=sent, again=targets is None)
        elif sent:
            # The usage of an answer that was given up is that of its beginning: the estimate is closer.
            given_up = error is not None and error.category is ErrorCategory.CANCELLED
            limiter.settle(candidate, None if given_up else response, now)
        else:
            limiter.cancel(candidate, now)
        if was_begun and targets is not None:
            is_own, broke = candidate is self._candidate, attempt is not None and attempt.content_at < math.inf
            session = targets.request.session if is_own else None
            targets.left(candidate, error, refusal, now, broke=broke, session=session)
        return refusal if self._call is not None else None

    def _record(self, candidate: Candidate, error: ProviderError | None, spent: Spent, now: float) -> None:
        """Add an attempt that has ended to the records."""
        started, ended = candidate.began - self._started, now - self._started
        outcome = OK if error is None else str(error.category)
        is_beside = self._hedging is not None and self._hedging.is_beside
        # By position: each attempt would pay for the names.
        record = AttemptRecord(
            candidate.target, started, ended, outcome, error, is_beside, spent.usage, spent.estimated
        )
        candidate.began = NEVER
        kept, half = self.attempt_records, MOST_RECORDS // 2
        if len(kept) == MOST_RECORDS:
            kept = kept[:half] + kept[half + 1 :]
        self.attempt_records = (*kept, record)

    # --- a second attempt beside the first one ---

    def _send_beside(self, now: float) -> bool:
        """Make a second attempt. Returns False if no target has room for it now, or the budgets do not pay for it."""
        targets, spending, call, hedging = self.targets, self.spending, self._call, self._hedging
        if targets is None or call is None or hedging is None or call.is_paused:
            return False
        rival = targets.beside(self._candidate, now)
        if rival is None:
            return False
        index, key = rival.target_index, rival.key
        try:
            # A key for idempotency must be its own: with the same one, the server could answer both attempts when the
            # first one is ready.
            has_own = targets.route.targets[index].accesses[key].provider.idempotency_header is not None
            known = rival if has_own else targets.candidate_at(index, key)
            request = targets.request_at(known)
        except InvalidRequestError as error:
            if self._call is not None:
                targets.cannot_take(index, error)
            return self._call is None
        rival.request, rival.need = request, known.need
        if spending is not None and rival.need is not None:
            rival.reservation = spending.reserve_beside(rival.need, now)
        is_paid = spending is None or rival.need is None or rival.reservation is not None
        if self._call is None or not is_paid or not rival.limiter.sends_now(rival, now):
            if spending is not None and rival.need is not None and rival.reservation is not None:
                spending.settle(rival.need, rival.reservation, None, now, sent=False)
            return self._call is None  # a function of the program has ended the call, or there is no room
        hedging.sends(now)
        rival.began = now
        rival.attempt_number = targets.route.begin(index, now)
        call.begin_rival(request.prepared, request.clocks, rival)
        return True

    def rival_failed(self, attempt: Attempt, error: ProviderError) -> None:
        rival, targets = _of(attempt), self.targets
        self._give_back(rival, attempt, error, None, self._now, sent=attempt.sent, has_failed=True)
        if targets is not None and self._candidate.target_index != rival.target_index:
            targets.fail(rival.target_index, error)

    def chosen(self, attempt: Attempt) -> TargetRequest:
        if self._hedging is not None:
            self._hedging.disarm()
        self._left(self._queued, self._now)
        self._candidate = _of(attempt)
        return cast("TargetRequest", self._candidate.request)

    def lost(self, attempt: Attempt) -> None:
        if not attempt.over:
            attempt.abort()
            why = "ended because the other attempt had the first event, or because the call ended"
            lost = ProviderError(why, category=ErrorCategory.CANCELLED, retryable=False)
            self._give_back(_of(attempt), attempt, lost, attempt.partial_response(), self._now, sent=attempt.sent)
        attempt.release()


def _of(attempt: Attempt) -> Candidate:
    """Return the permit of an attempt."""
    return cast("Candidate", attempt.permit)


def _outlook(error: ProviderError, *, is_counted: bool = True) -> Outlook:
    """Return that the call's own options decide. One call at a time asks a server that may be away."""
    if is_lost(error):
        return Outlook(Limits.ASK_SLOWLY, error, is_counted, PAUSE)
    return Outlook(Limits.NONE, error, is_counted)
