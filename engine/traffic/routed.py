"""One call on a route: it chooses a target, waits for one, and goes on to another after a failure.

A call on a route takes its target when it can be sent, not when it starts. Where no target has room, the call waits in
the queue of each one that it may use; the first that has room gets it. A provider with several keys is a route with one
target.

One file because one function, `_next_step`, decides from all of this state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from operator import is_
from typing import TYPE_CHECKING, cast

from ...providers.errors import InvalidRequestError
from ...providers.limits.quota_report import Refusal
from ...providers.model.options import Priority, Timeouts
from ...providers.model.provider_error import ABORTED_CODE, ErrorCategory, ProviderError
from ...providers.model.request import Request, prefix_cache_of, with_prefix_cache
from ...providers.model.request_rules import REQUEST
from ...transport.timers import Timer
from ..call.attempt import Attempt
from ..call.call import RunningCall, TargetRequest
from ..call.completion import Completion
from ..call.next_step import Limits, Outlook
from ..call.runtime import Runtime
from ..call.timeouts import LEAST_WAIT, Clock, timeout_error
from ..request.token_estimate import estimate_input_tokens
from .admission import PAUSES, Admission, Candidate, MakeRequest, outlook, was_in_vain
from .budgets.budgets import NOTHING_SPENT, Spending, spent_by
from .limits.limiter import Limiter
from .queue.fair_queue import NEVER, Permit, PermitState
from .routing.options import Balance, Target
from .routing.router import Choice, Group, HedgeState, KeyRing, Router, RouteTarget

if TYPE_CHECKING:
    from .control import Dispatcher

PRIORITIES: dict[str, Priority] = {priority.value: priority for priority in Priority}

NO_TARGETS: frozenset[int] = frozenset()

ONLY_KEY = (0,)
"""The keys of a provider that has one."""

AWAY = (PermitState.NEW, PermitState.ENDED)
"""The states of a permit that is in no queue, and of which nothing is reserved."""

NO_OPTIONS: Mapping[str, object] = {}

MERGED = ("metadata", "extra_body", "extra_headers")
"""Options whose members are added to those of the request. Any other option replaces the request's."""

TARGET_FAILURES = frozenset(
    {
        ErrorCategory.SERVER,
        ErrorCategory.TIMEOUT,
        ErrorCategory.NETWORK,
        ErrorCategory.AUTH,
        ErrorCategory.NOT_FOUND,
    }
)
"""Categories of failures that are the target's. RATE_LIMIT moves a call on as well, and says nothing about health."""

CALL_CLOCKS = frozenset({"total", "queue"})
"""The timeouts of a whole call. After one of them, no time is left for another target."""

KEY_STATUSES = frozenset({401, 403})
"""HTTP statuses with which a server refuses a key."""

REQUESTS_FAULT = frozenset({ErrorCategory.CONTENT_FILTER, ErrorCategory.INVALID_ARG})
"""Categories of errors that every key gets, whatever the status is."""

OTHERS_MAY_TAKE = frozenset({Refusal.TOO_LARGE, Refusal.SPENT})
"""Refusals after which another target may still take the request."""


class Routed(Admission):
    """A call on a route, from its start to its end. Thousands wait, so it has no dict."""

    __slots__ = (
        "_attempted",
        "_avoided",
        "_candidates",
        "_control",
        "_error",
        "_finished",
        "_group",
        "_has_content",
        "_hedging",
        "_input_tokens",
        "_is_ended",
        "_is_under_way",
        "_latest",
        "_make_request",
        "_model",
        "_parked_at",
        "_parked_seconds",
        "_patience",
        "_planned",
        "_request",
        "_route",
        "_runtime",
        "_tried",
        "_waiting",
        "_was_sent",
    )

    def __init__(
        self,
        route: Router,
        request: Request,
        make_request: MakeRequest,
        control: Dispatcher,
        runtime: Runtime,
        spending: Spending | None = None,
        *,
        model: str = "",
    ) -> None:
        """Choose the first target, and prepare the request for it.

        model: the request's model, for a provider with several keys.

        Raises `InvalidRequestError` where no target can take the request.
        """
        # The session is a key of a dict before the request is checked.
        REQUEST.rules["session"].check(request.session, "session")
        if route.state.balance is Balance.STICKY and request.session is None:
            raise InvalidRequestError("session", f"the route {route.name!r} is sticky: give the request a session")
        self._route = route
        self._request = request
        self._make_request = make_request
        self._control = control
        self._runtime = runtime
        self._model = model
        self._candidates: tuple[Candidate, ...] = ()  # at most one for each key of each target
        self._input_tokens = -1.0  # unknown until the request was checked
        self._waiting: tuple[Candidate, ...] = ()  # where it waits now; a dict would be larger
        self._patience: Timer | None = None  # ends its wait at a target that has a time of its own for that
        self._group: Group | None = None  # of the calls that wait for the same targets to be used again
        self._parked_at = 0.0
        self._parked_seconds = 0.0  # without the current wait
        self._was_sent = False
        self._is_under_way = False  # at `_candidate`
        self._has_content = False  # of the attempt under way
        self._latest: Candidate | None = None  # of the latest attempt
        self._avoided: Candidate | None = None  # where a limit has just refused the call
        self._tried: frozenset[int] = NO_TARGETS  # targets that failed since the last pause
        self._finished: frozenset[int] = NO_TARGETS  # targets that would fail again
        self._attempted: frozenset[int] = NO_TARGETS  # targets that have had an attempt
        self._error: ProviderError | None = None  # that decides about a retry, since the last pause
        self._is_ended = False
        self._hedging: Hedging | None = None  # from the first attempt on
        planned = self._plan(runtime.loop.clock())
        self._planned: Candidate | None = planned
        super().__init__(planned, spending)

    def __repr__(self) -> str:
        return f"<Routed on {self._route!r}, {len(self._waiting)} queues>"

    # --- as the call sees it ---

    @property
    def first_request(self) -> TargetRequest:
        """The request, ready for the target that the call would go to first."""
        return self._request_at(self._candidate)

    @property
    def _now(self) -> float:
        return self._runtime.loop.clock()

    @property
    def _is_beside(self) -> bool:
        return self._hedging is not None and self._hedging.is_beside

    @property
    def target(self) -> str:
        return "" if self._latest is None else self._latest.target

    @property
    def _queued(self) -> Candidate:
        waiting, latest = self._waiting, self._candidate
        return latest if latest in waiting or not waiting else waiting[0]

    @property
    def waiting_for(self) -> str:
        if self._waiting:
            return super().waiting_for
        if self._group is not None:
            return f"a target of {self._route.name} to be used again"
        return "" if self.spending is None else self.spending.waiting_for

    def waited(self, seconds: float) -> dict[str, float]:
        by_reason = super().waited(seconds - self._parked_seconds)
        if self._parked_seconds > LEAST_WAIT:
            by_reason["target"] = self._parked_seconds
        return by_reason

    def enter(self, call: RunningCall, deadline: float, now: float, *, again: bool) -> None:
        self._call = call
        self._begin_to_wait(now)
        if again:
            self._was_sent = True
            self._tried, self._error = NO_TARGETS, None
        planned, self._planned = self._planned, None
        if planned is not None:
            refused = self._refusal(planned, now)
            if self._is_ended:
                return  # a function of a budget has ended the call
            if refused is not None:
                self._finish(planned.target_index, refused)
            elif _has_room(planned, now) and self._route.state.is_healthy(planned.target_index, now):
                self._wait([planned], now, deadline)
                return
        self._next_step(now, deadline)

    def begin(self, now: float) -> None:
        super().begin(now)
        if self._route.hedging is not None and not self._request.durable:  # each attempt would create an answer
            if self._hedging is None:
                self._hedging = Hedging(self, self._route.hedging, self._runtime)
            self._hedging.begin(now)

    def confirm(self, attempt: Attempt) -> None:
        super().confirm(attempt)
        candidate = self._of(attempt)
        if self._has_keys(candidate.target_index):
            self.ring(candidate.target_index).restore(candidate.key)

    def first_content(self) -> None:
        super().first_content()
        self._answer(self._now)

    def resent(self, attempt: Attempt, error: ProviderError) -> None:
        if self._of(attempt) is self._candidate:
            super().resent(attempt, error)

    def failed(self, attempt: Attempt, error: ProviderError, *, may_wait: bool) -> Outlook:
        if self._hedging is not None:
            self._hedging.disarm()
        candidate, now = self._candidate, self._now
        self._end_attempt(candidate, error, None, now, sent=attempt.sent)
        if not self._is_under_way or self._is_ended:
            return outlook(error)
        judged = self._judge(candidate, attempt, error, now, may_wait=may_wait)
        if judged.limits is not Limits.WAIT:
            beside = self._hedging is not None and self._hedging.rival is not None
            if not beside or not (judged.error.retryable or moves_on(error, Refusal.NONE, self._route.failover_on)):
                return judged
        self._was_sent = True
        self._begin_to_wait(now)
        self._runtime.soon(self._go_on, self.on_defect)
        return judged._replace(limits=Limits.WAIT)

    def _judge(
        self, candidate: Candidate, attempt: Attempt, error: ProviderError, now: float, *, may_wait: bool
    ) -> Outlook:
        """Give back what a failed attempt had reserved, and look whether the call may go to a target."""
        index, sent = candidate.target_index, attempt.sent
        may_wait = may_wait or self._asked_only(candidate, sent=sent)
        refusal = candidate.limiter.fail(candidate, error, attempt.headers, now, sent=sent, again=False)
        if refusal in PAUSES:
            candidate.refusals += 1
            self._leave_target(None, now)
            self._avoided = candidate
            return Outlook(Limits.WAIT, error, is_counted=False)
        if refusal is not Refusal.NONE:
            error.retryable = False
        host = candidate.limiter.state.host
        in_vain = may_wait and was_in_vain(error, host, sent=sent)
        waits_for_it = in_vain and host.is_away
        if is_keys_fault(error, refusal):
            self._refuse_key(candidate, refusal, now)
            if self._candidates_at(index, now):
                self._note_error(error)
                self._leave_target(None, now)
                return Outlook(Limits.WAIT, error, not in_vain)
        self._leave_target(error if refusal is Refusal.NONE else None, now)
        if not moves_on(error, refusal, self._route.failover_on):
            return outlook(error, is_counted=not in_vain)
        self._note_error(error)
        if not error.retryable:
            self._finished |= {index}
        elif not waits_for_it:
            self._tried |= {index}
        if not in_vain and not self._running.has_attempts_left:
            self._tried |= self._attempted  # what is left are targets without an attempt
        choice, _ = self._choose(now)
        if choice.target is None and not choice.among and not waits_for_it:
            return outlook(self._verdict(), is_counted=not in_vain)
        return Outlook(Limits.WAIT, error, not in_vain)

    def end(self, outcome: Completion | None, attempt: Attempt | None) -> None:
        if self._is_ended:
            return
        now = self._now
        if self._hedging is not None:
            self._hedging.disarm()
            self._end_rival(now)
        self._unpark(now)
        self._leave(now, self._waiting)
        super().end(outcome, attempt)
        if self._is_under_way:
            if outcome is not None and outcome.success:
                self._answer(now)
                self._route.complete(self._candidate.target_index, self._candidate.attempt_number)
            self._leave_target(None if outcome is None else outcome.error, now)
        self._is_ended = True
        self._candidates = ()
        self._hedging = None  # it refers to this object

    # --- as the route and the runtime see it ---

    def look_again(self) -> None:
        if self._is_ended:
            return
        now, state = self._now, self._route.state
        self._unpark(now)
        if self._running.has_attempts_left:
            # What it has tried in vain may be asked again, or has answered others since.
            again = {index for index in self._tried & self._attempted if state.may_be_asked(index, now)}
            self._tried -= again
        choice, _ = self._choose(now)
        kept = () if choice.target is not None else choice.among
        self._leave(now, [candidate for candidate in self._waiting if candidate.target_index not in kept])
        if {candidate.target_index for candidate in self._waiting} != set(kept) or not kept:
            self._next_step(now)

    def _go_on(self) -> None:
        """Go on after a failure."""
        self._next_step(self._now)

    # --- as the budgets see it ---

    def _go_on_paid(self, now: float) -> None:
        self._next_step(now)

    def _unpaid(self, error: ProviderError, now: float) -> None:
        self._finish(self._candidate.target_index, error)
        self._next_step(now)

    # --- as the limiters see it ---

    def admitted(self, permit: Permit, now: float) -> None:
        candidate = cast("Candidate", permit)
        index = candidate.target_index
        if candidate not in self._waiting:
            candidate.limiter.cancel(candidate, now)  # the call has gone elsewhere
            return
        if self._has_keys(index) and candidate.key not in self._usable(index, now):
            self._forget(candidate)
            # The server refused the key meanwhile. The call waits on in other queues.
            candidate.limiter.cancel(candidate, now)
            if not self._waiting:
                self._next_step(now)
            return
        self._leave(now, [other for other in self._waiting if other is not candidate])
        self._forget(candidate)
        self._candidate = candidate
        if not self._route.state.is_healthy(index, now):
            candidate.limiter.cancel(candidate, now)
            self._next_step(now)
            return
        try:
            request = self._request_at(candidate)
        except InvalidRequestError as error:
            if not self._is_ended:
                candidate.limiter.cancel(candidate, now)
                self.cannot_take(index, error)
                self._next_step(now)
            return
        if self._is_ended:
            return  # a function of the program, which the request was prepared with, has ended the call
        if self._pay(candidate, now):
            session = self._request.session
            self._is_under_way, self._has_content, self._latest = True, False, candidate
            self._attempted |= {index}
            candidate.attempt_number = self._route.begin(index, now, session)
            if self._has_keys(index):
                self.ring(index).begin(candidate.key, session, now)
            call = self._running
            call.redirect(request)
            call.admitted(now)

    def rejected(self, permit: Permit, error: ProviderError) -> None:
        """A limiter never sends the call, or not in time."""
        candidate = cast("Candidate", permit)
        if candidate not in self._waiting:
            return
        self._forget(candidate)
        self._note_error(error)
        if error.category is ErrorCategory.TIMEOUT:
            self._tried |= {candidate.target_index}  # it would be too late there
        if not self._waiting:
            self._next_step(self._now)

    # --- the next step ---

    def _next_step(self, now: float, deadline: float = math.inf) -> None:
        """Take the second attempt, go to a target that has room, wait for one, or fail. Nothing else decides this.

        deadline: when the call's own timer ends its wait, if a limiter should compare that with its queue.
        """
        if self._is_ended or self._is_under_way:
            return
        if self._hedging is not None and self._hedging.rival is not None:
            self._take_rival(self._hedging.rival, now)  # the first attempt has failed
            return
        avoided, self._avoided = self._avoided, None
        if avoided is not None:
            elsewhere = self._elsewhere(avoided, now)
            if elsewhere is not None:
                self._wait([elsewhere], now)
                return
        choice, found = self._choose(now)
        if choice.target is not None:
            self._wait([self.best(found, now)], now, deadline)
        elif found:
            self._wait([candidate for candidate in found if candidate not in self._waiting], now, deadline)
        elif choice.wait_until > -math.inf:
            self._park(self._tried | self._finished, now)
        else:
            self._running.rejected(self._verdict())

    def _choose(self, now: float, without: tuple[int, ...] = ()) -> tuple[Choice, list[Candidate]]:
        """Ask the route for a target. Targets whose limits the request can never fit are passed over.

        Returns also the candidates at the target that have room; if no target has room, those to wait for.
        """

        @cache
        def roomy(at: int) -> list[Candidate]:
            return _roomy((self._candidate_at(at, key) for key in self._usable(at, now)), now)

        while True:
            excluded = self._tried | self._finished | frozenset(without)
            choice = self._route.state.choose(now, roomy, tried=excluded, session=self._request.session)
            if choice.target is not None:
                return choice, roomy(choice.target)
            found = {index: self._candidates_at(index, now) for index in choice.among}
            if all(found.values()):
                return choice, [candidate for candidates in found.values() for candidate in candidates]
            for index in (index for index, candidates in found.items() if not candidates):
                self._tried |= {index}
                for key in range(len(self._route.targets[index].accesses)):
                    each = self._candidate_at(index, key)
                    error = each.limiter.why_never(each, now)
                    if error is not None:
                        self._note_error(error)

    def _elsewhere(self, avoided: Candidate, now: float) -> Candidate | None:
        """Return another key or target that has room, after a limit has refused the call; None if there is none. A
        session waits for its target."""
        state, index = self._route.state, avoided.target_index
        same = self._candidates_at(index, now)
        others = [candidate for candidate in same if candidate is not avoided and _has_room(candidate, now)]
        if not others and state.balance is not Balance.STICKY:
            choice, others = self._choose(now, (index,))
            if choice.target is None:
                return None
        if not others or not state.is_healthy(others[0].target_index, now):
            return None
        return self.best(others, now)

    def _plan(self, now: float) -> Candidate:
        """Choose the first target that can take the request, and prepare the request for it. Raises
        `InvalidRequestError` where none can."""
        first: InvalidRequestError | None = None
        while True:
            choice, found = self._choose(now)
            left = [index for index in range(len(self._route.targets)) if index not in self._finished]
            if not left:
                assert first is not None
                raise first
            index = choice.target if choice.target is not None else next(iter(choice.among), left[0])
            candidates = found or self._candidates_at(index, now)
            key = candidates[0].key if candidates else 0
            if choice.target is not None:
                key = self.best(found, now).key
            trial = self._candidate_at(index, key)
            try:
                request = self._request_at(trial)
            except InvalidRequestError as error:
                self.cannot_take(index, error)
                first = first or error
                continue
            self._input_tokens = estimate_input_tokens(self._request, request.prepared.body)
            self._candidates = ()  # those of a request that was not checked know nothing of it
            planned = self._candidate_at(index, key)
            planned.request, planned.need = request, trial.need
            return planned

    def best(self, candidates: list[Candidate], now: float) -> Candidate:
        """Return the best key of a target. candidates: those that have room."""
        if len(candidates) == 1:
            return candidates[0]
        by_key = {candidate.key: candidate for candidate in candidates}
        room = {key: candidate.limiter.state.room(candidate, now) for key, candidate in by_key.items()}
        ring = self.ring(candidates[0].target_index)
        return by_key[ring.best(list(room), room, self._request.session, now)]

    def _note_error(self, error: ProviderError) -> None:
        """Note why the call cannot go to a target. The last error after which another attempt may succeed decides."""
        if self._error is None or error.retryable or not self._error.retryable:
            self._error = error

    def _verdict(self) -> ProviderError:
        """Return the error that decides about a retry."""
        assert self._error is not None, "no target is left"
        return self._error

    def cannot_take(self, index: int, error: InvalidRequestError) -> None:
        """A target cannot carry the request: the call never goes there."""
        self._finish(index, ProviderError(str(error), category=ErrorCategory.INVALID_ARG))
        self._route.cannot_take(index, error)

    def _finish(self, index: int, error: ProviderError) -> None:
        """Never go to a target. error: why."""
        self._finished |= {index}
        self._note_error(error)

    # --- the candidates ---

    def _candidates_at(self, index: int, now: float) -> list[Candidate]:
        """Return a candidate for each key that can be used at a target. Keys whose quota is used up, or too small for
        the request, are left out."""
        found = (self._candidate_at(index, key) for key in self._usable(index, now))
        return [candidate for candidate in found if candidate.limiter.why_never(candidate, now) is None]

    def _candidate_at(self, index: int, key: int) -> Candidate:
        """Return the candidate for one key of a target: the same one each time."""
        for candidate in self._candidates:
            if candidate.target_index == index and candidate.key == key:
                if candidate.limiter.is_forgotten and candidate.state in AWAY:
                    candidate.limiter = self._limiter_at(index, key)
                return candidate
        limiter = self._limiter_at(index, key)
        is_checked = self._input_tokens >= 0
        candidate = (
            self._make_candidate(limiter, index, key) if is_checked else Candidate(limiter, target_index=index, key=key)
        )
        self._candidates = (*self._candidates, candidate)
        return candidate

    def _make_candidate(self, limiter: Limiter, index: int, key: int) -> Candidate:
        request, target = self._request, self._route.targets[index].declared
        options = NO_OPTIONS if target is None else target.options
        return Candidate(
            limiter,
            self._input_tokens,
            cast("int | None", options.get("max_output_tokens", request.max_output_tokens)),
            target_index=index,
            key=key,
            priority=PRIORITIES[cast("str", options.get("priority", request.priority))],
            tenant=cast("str | None", options.get("tenant", request.tenant)),
        )

    def _request_at(self, candidate: Candidate) -> TargetRequest:
        """Return the request for a target, which is prepared once. Raises `InvalidRequestError`."""
        if not isinstance(candidate.request, TargetRequest):
            target = self._route.targets[candidate.target_index]
            access, request = target.accesses[candidate.key], self._request
            model = f"{access.provider.name}/{self._model_at(target)}"
            request = (
                with_model(request, model) if target.declared is None else lay_over(target.declared, request, model)
            )
            ready, wire = self._make_request(request, access.preparer)
            candidate.need = self._control.need(request, ready.prepared, wire)
            candidate.request = ready
        return candidate.request

    def _limiter_at(self, index: int, key: int) -> Limiter:
        target = self._route.targets[index]
        return self._control.limiter(target.accesses[key], self._model_at(target))

    def _usable(self, index: int, now: float) -> Sequence[int]:
        """Return the keys that can be used at a target."""
        failed = {each.key for each in self._candidates if each.is_refused and each.target_index == index}
        if self._has_keys(index):
            return self.ring(index).usable(now, failed)
        return () if failed else ONLY_KEY

    def _has_keys(self, index: int) -> bool:
        """Return whether a target's provider has several keys."""
        return len(self._route.targets[index].accesses) > 1

    def _refuse_key(self, candidate: Candidate, refusal: Refusal, now: float) -> None:
        """The server has refused the key of a candidate. The call uses it no more."""
        index, key = candidate.target_index, candidate.key
        self._candidate_at(index, key).is_refused = True
        if refusal is Refusal.NONE:
            self.ring(index).put_aside(key, now)

    def ring(self, index: int) -> KeyRing:
        """Return which keys of a target's provider are used."""
        target = self._route.targets[index]
        return target.ring(self._model_at(target))

    def _model_at(self, target: RouteTarget) -> str:
        return target.model or self._model

    # --- the wait in the queues of limiters ---

    def _wait(self, candidates: list[Candidate], now: float, deadline: float = math.inf) -> None:
        """Wait in the queues of limiters, until the first one sends the call. deadline: as for `_next_step`."""
        self._waiting = self._shared((*self._waiting, *candidates))
        self._route.wait_for_room(self)
        for candidate in candidates:
            candidate.slot_mark = candidate.limiter.state.slot_seconds(now)
            candidate.owner = self
            longest = self._longest_wait(candidate.target_index)
            candidate.until = now + longest if longest < math.inf else longest  # the same object for all that wait
        self._candidate = candidates[0]
        alone = len(candidates) == 1
        for candidate in candidates:
            # A limiter may send the call at once. The call may even have ended and wait again by now.
            if candidate in self._waiting and candidate.state is not PermitState.QUEUED:
                until = min(deadline, candidate.until) if alone else math.inf
                candidate.limiter.enter(candidate, now, again=self._was_sent, deadline=until)
        self._set_patience()

    def _shared(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return these candidates as a tuple: the one of all if they are the same, so that no second one is kept."""
        known = self._candidates
        same = len(candidates) == len(known) and all(map(is_, candidates, known))
        return known if same else tuple(candidates)

    def _longest_wait(self, index: int) -> float:
        """Return for how many seconds the call may wait at a target, by the target's own options."""
        target = self._route.targets[index].declared
        timeouts = None if target is None else target.options.get("timeouts")
        return timeouts.queue if isinstance(timeouts, Timeouts) and timeouts.queue is not None else math.inf

    def _set_patience(self) -> None:
        """Set the timer to the time at which the call waits no longer at a target."""
        when = min((candidate.until for candidate in self._waiting), default=math.inf)
        if when < math.inf and self._patience is None:
            self._patience = self._runtime.timers.at(when, self._end_patience, self.on_defect)

    def _end_patience(self) -> None:
        """Leave the queues of targets at which the call waits no longer."""
        self._patience, now = None, self._now
        for index in {candidate.target_index for candidate in self._waiting if candidate.until <= now}:
            self._tire_of(index, now)
        self._set_patience()

    def _tire_of(self, index: int, now: float) -> None:
        waiting = [candidate for candidate in self._waiting if candidate.target_index == index]
        if not waiting:
            return  # it has gone elsewhere
        reason = waiting[0].limiter.state.waiting_for(waiting[0], now)
        self._note_error(timeout_error(Clock.QUEUE, self._longest_wait(index), f"waiting for {reason}"))
        self._tried |= {index}
        self._leave(now, waiting)
        if not self._waiting:
            self._next_step(now)

    def _forget(self, candidate: Candidate) -> None:
        """The call waits no longer in this queue."""
        self._waiting = tuple(other for other in self._waiting if other is not candidate)
        candidate.owner = None
        if not self._waiting:
            self._route.leave(self)
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

    def _leave(self, now: float, candidates: Iterable[Candidate]) -> None:
        """Leave the queues in which these candidates wait."""
        for candidate in candidates:
            self._forget(candidate)
            candidate.limiter.cancel(candidate, now)

    # --- the wait for a target that is left alone ---

    def _park(self, excluded: frozenset[int], now: float) -> None:
        """Wait until a target is used again. excluded: those that the call cannot use."""
        if self.spending is not None:
            self.spending.release(now)
        self._parked_at = now
        self._group = self._route.park(self, PRIORITIES[self._request.priority], excluded)

    def _unpark(self, now: float) -> None:
        """Wait no longer for a target. May be called again."""
        if self._group is None:
            return
        self._route.unpark(self, self._group)
        self._group = None
        waited = now - self._parked_at
        self._parked_seconds += waited
        if self._entered > -math.inf:
            self._entered += waited

    # --- an attempt ---

    def _answer(self, now: float) -> None:
        """The first content of the answer came, or the whole answer."""
        candidate = self._candidate
        if not self._is_under_way or self._has_content:
            return
        if self._hedging is not None:
            self._hedging.first_content(now)
            self._end_rival(now)
        self._has_content = True
        self._route.succeed(candidate.target_index, candidate.attempt_number, now - candidate.sent_at, now)

    def _leave_target(self, error: ProviderError | None, now: float) -> None:
        """The attempt is over. error: why it failed, where that may be the target's fault."""
        if self._is_under_way:
            self._is_under_way = False
            self._leave_route(self._candidate, error, now, self._request.session)

    def _leave_route(self, candidate: Candidate, error: ProviderError | None, now: float, session: str | None) -> None:
        index, number = candidate.target_index, candidate.attempt_number
        if error is not None and is_targets_fault(error):
            self._route.fail(
                index, number, now, session, error, broke=self._has_content and candidate is self._candidate
            )
        self._route.end(index, number)

    # --- a second attempt beside the first one ---

    def _of(self, attempt: Attempt) -> Candidate:
        rival = None if self._hedging is None else self._hedging.rival
        return self._candidate if rival is None or attempt is not self._running.rival else rival

    @property
    def lacks_content(self) -> bool:
        """Whether an attempt is under way that has no content."""
        return not self._is_ended and self._is_under_way and not self._has_content

    @property
    def is_paused(self) -> bool:
        """Whether the call reads no more until it is resumed."""
        return self._running.is_paused

    def hedge(self, hedging: Hedging, now: float) -> bool:
        """Make a second attempt. Returns False if no target has room for it now, or the budgets do not pay for it."""
        rival = self._rival_with_room(now)
        if rival is None:
            return False
        index, key = rival.target_index, rival.key
        try:
            # A key for idempotency must be its own: with the same one, the server could answer both attempts when the
            # first one is ready.
            has_own = self._route.targets[index].accesses[key].provider.idempotency_header is not None
            known = rival if has_own else self._candidate_at(index, key)
            request = self._request_at(known)
        except InvalidRequestError as error:
            if not self._is_ended:
                self.cannot_take(index, error)
            return self._is_ended
        rival.request, rival.need = request, known.need
        paid = self.spending is None or rival.need is None
        if self.spending is not None and rival.need is not None:
            rival.reservation = self.spending.reserve_beside(rival.need, now)
            paid = rival.reservation is not None
        if self._is_ended or not paid or not rival.limiter.sends_now(rival, now):
            if self.spending is not None and rival.need is not None and rival.reservation is not None:
                self.spending.settle(rival.need, rival.reservation, None, now, sent=False)
            return self._is_ended  # a function of the program has ended the call, or there is no room
        hedging.state.take(now)
        rival.began = now
        rival.attempt_number = self._route.begin(index, now)
        hedging.rival, hedging.is_beside = rival, True
        self._running.begin_rival(request.prepared, request.clocks)
        return True

    def _rival_with_room(self, now: float) -> Candidate | None:
        """Return a candidate that has room now: at another target that is no fallback, else at the only one."""
        index, targets = self._candidate.target_index, self._route.state.targets
        excluded = self._tried | self._finished | {index}

        @cache
        def roomy(at: int) -> list[Candidate]:
            return _roomy(self._rivals_at(at, now), now)

        while True:
            choice = self._route.state.choose(now, roomy, tried=excluded)
            if choice.target is not None and not targets[choice.target].fallback:
                return self.best(roomy(choice.target), now)
            if choice.target is not None or not choice.among:
                if any(not target.fallback for other, target in enumerate(targets) if other != index):
                    return None
                return self.best(roomy(index), now) if roomy(index) else None
            excluded |= set(choice.among)

    def _rivals_at(self, index: int, now: float) -> list[Candidate]:
        """Return a candidate of a second attempt for each key that can be used at a target."""
        found = (self._make_candidate(self._limiter_at(index, key), index, key) for key in self._usable(index, now))
        return [candidate for candidate in found if candidate.limiter.why_never(candidate, now) is None]

    def rival_chosen(self) -> None:
        hedging = self._hedging
        if hedging is None or hedging.rival is None:
            return
        now = self._now
        hedging.disarm()
        if self._is_under_way:
            self._end_loser(self._candidate, self._running.abort_attempt(), now)
            self._leave_target(None, now)
        if not self._is_ended:  # the price function may have ended the call
            self._take_rival(hedging.rival, now)

    def rival_failed(self, attempt: Attempt, error: ProviderError) -> None:
        hedging = self._hedging
        if hedging is None or hedging.rival is None:
            return
        rival, hedging.rival = hedging.rival, None
        now, sent, index = self._now, attempt.sent, rival.target_index
        spent = spent_by(math.ceil(rival.input_tokens), None, error) if sent else NOTHING_SPENT
        self._close(rival, error, spent, now, sent=sent)
        refusal = rival.limiter.fail(rival, error, attempt.headers, now, sent=sent, again=False)
        keys_fault = is_keys_fault(error, refusal)
        if keys_fault and not self._is_ended:
            self._refuse_key(rival, refusal, now)
        self._leave_route(rival, None if keys_fault or refusal is not Refusal.NONE else error, now, None)
        if not self._is_under_way or self._candidate.target_index != index:
            self._tried |= {index}
            self._note_error(error)

    def _take_rival(self, rival: Candidate, now: float) -> None:
        """Let the second attempt be the one that the call has."""
        assert self._hedging is not None
        self._left(now)
        self._hedging.rival = None
        self._candidate = self._latest = rival
        self._is_under_way, self._has_content = True, False
        self._running.take_rival(self._request_at(rival))

    def _end_rival(self, now: float) -> None:
        """End the second attempt: the first one has content, or the call ends. May be called again."""
        hedging = self._hedging
        if hedging is None or hedging.rival is None or self._call is None:
            return
        rival, hedging.rival = hedging.rival, None
        attempt = self._call.abort_rival()
        self._end_loser(rival, attempt, now)
        if attempt is not None:
            attempt.release()
        self._leave_route(rival, None, now, None)

    def _end_loser(self, candidate: Candidate, attempt: Attempt | None, now: float) -> None:
        """Record and settle an attempt that was aborted because the other one has content, or because the call ends."""
        lost = ProviderError(
            "ended because the other attempt had the first event, or because the call ended",
            category=ErrorCategory.CANCELLED,
            retryable=False,
        )
        sent = attempt is not None and attempt.sent
        partial = None if attempt is None else attempt.partial_response()
        spent = spent_by(math.ceil(candidate.input_tokens), partial, lost) if sent else NOTHING_SPENT
        self._close(candidate, lost, spent, now, sent=sent)
        if sent:
            candidate.limiter.settle(candidate, None, now)
        else:
            candidate.limiter.cancel(candidate, now)


class Hedging:
    """The timer of a call that may be late, and its second attempt beside the first one.

    The first attempt with content decides. The other one is ended at once, and accounted.

    state: decides for the route when a call is late, and how many calls may be sent twice.
    rival: the permit of the second attempt under way; None: there is none.
    is_beside: a second attempt runs, or ran, beside the latest attempt.
    """

    __slots__ = (
        "_call",
        "_first_at",
        "_is_done",
        "_pause",
        "_runtime",
        "_timer",
        "is_beside",
        "rival",
        "state",
    )

    def __init__(self, call: Routed, state: HedgeState, runtime: Runtime) -> None:
        self._call = call
        self._runtime = runtime
        self._first_at = NEVER  # the time of the first attempt
        self._timer: Timer | None = None
        self._pause = 0.0  # seconds until it looks again whether a second attempt can be made
        self._is_done = False  # a second attempt was made
        self.state: HedgeState = state
        self.rival: Candidate | None = None
        self.is_beside: bool = False

    def begin(self, now: float) -> None:
        """An attempt begins. It is late at some time, if it is known when."""
        self.is_beside = False
        again = self._first_at > NEVER
        if not again:
            self._first_at = now
        when = self.state.begin(now, again=again)
        if when < math.inf and not self._is_done:
            self._pause = when - now
            self._set_timer(when)

    def first_content(self, now: float) -> None:
        """The first content of the call came."""
        self.disarm()
        self.state.first_event(now - self._first_at)

    def disarm(self) -> None:
        """Make no second attempt."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, when: float) -> None:
        self._timer = self._runtime.timers.at(when, self._is_late, self._call.on_defect, is_timeout=True)

    def _is_late(self) -> None:
        """Make a second attempt, or look again after a pause. Pauses double, so that many late calls cost little."""
        self._timer = None
        call = self._call
        if not call.lacks_content:
            return
        now = self._runtime.loop.clock()
        if not call.is_paused and self.state.allows(now) and call.hedge(self, now):
            self._is_done = True
        else:
            self._set_timer(now + self._pause)
            self._pause *= 2


def _has_room(candidate: Candidate, now: float) -> bool:
    """Return whether the call could be sent now."""
    return candidate.limiter.state.has_room(candidate, now)


def _roomy(candidates: Iterable[Candidate], now: float) -> list[Candidate]:
    """Return the candidates with which the call could be sent now."""
    return [candidate for candidate in candidates if _has_room(candidate, now)]


def is_targets_fault(error: ProviderError) -> bool:
    """Return whether a failure counts against the target. A refusal by a limit does not: full is no failure."""
    is_timeout = error.category is ErrorCategory.TIMEOUT and not error.http_status
    if error.context_overflow or error.provider_code == ABORTED_CODE:
        return False
    return error.category in TARGET_FAILURES and not (is_timeout and error.provider_code in CALL_CLOCKS)


def moves_on(error: ProviderError, refusal: Refusal, failover_on: Collection[str]) -> bool:
    """Return whether the call may go to another target after a failure.

    refusal: the kind of limit that refused the call.
    failover_on: the route's own additions.
    """
    if error.context_overflow:
        return "context_overflow" in failover_on
    if error.category is ErrorCategory.CONTENT_FILTER:
        return "content_filter" in failover_on
    if error.category is ErrorCategory.RATE_LIMIT or refusal in OTHERS_MAY_TAKE:
        return True
    return is_targets_fault(error)


def is_keys_fault(error: ProviderError, refusal: Refusal) -> bool:
    """Return whether another key of the same provider may succeed."""
    if refusal is Refusal.SPENT:
        return True
    refuses_key = error.category is ErrorCategory.AUTH or error.http_status in KEY_STATUSES
    return refuses_key and error.category not in REQUESTS_FAULT


def lay_over(target: Target, request: Request, model: str) -> Request:
    """Return the request for a target: the target's options in place of its own. model: the model to send it to."""
    changes: dict[str, object] = {**target.options, "model": model}
    for name in MERGED:
        below = getattr(request, name)
        if below and changes.get(name):
            changes[name] = {**below, **changes[name]}  # type: ignore[dict-item]
    timeouts = changes.get("timeouts")
    if isinstance(timeouts, Timeouts) and request.timeouts is not None:
        changes["timeouts"] = timeouts.over(request.timeouts)
    return _changed(request, changes)


def with_model(request: Request, model: str) -> Request:
    """Return the request with another model."""
    return _changed(request, {"model": model})


def _changed(request: Request, changes: Mapping[str, object]) -> Request:
    """Return a copy that also has the cache of its conversation."""
    changed = dataclasses.replace(request, **changes)  # type: ignore[arg-type]
    cache = prefix_cache_of(request)
    return changed if cache is None else with_prefix_cache(changed, cache)
