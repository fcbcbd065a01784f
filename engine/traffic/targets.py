"""The targets of one call: with which keys it may go to which of them, and how each one stands."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, cast

from ...providers.catalog.dialect import WireRequest
from ...providers.errors import InvalidRequestError
from ...providers.limits.quota_report import Refusal
from ...providers.model.options import Priority, Timeouts
from ...providers.model.provider_error import ABORTED_CODE, ErrorCategory, ProviderError
from ...providers.model.request import Request, prefix_cache_of, with_prefix_cache
from ...providers.model.request_rules import REQUEST
from ...transport.timers import Timer
from ..call.call import TargetRequest
from ..request.preparer import Preparer
from ..request.token_estimate import estimate_input_tokens
from .admission import Candidate
from .limits.limiter import Limiter
from .queue.fair_queue import PermitState
from .queue.pump import WaitingCall
from .routing.options import Balance, Target
from .routing.router import Choice, Group, ModelKeys, Router, RouteTarget

if TYPE_CHECKING:
    from .control import Dispatcher

MakeRequest: TypeAlias = Callable[[Request, Preparer], tuple[TargetRequest, WireRequest]]
"""Prepares a request for a target. Raises `InvalidRequestError`."""

PRIORITIES: dict[str, Priority] = {priority.value: priority for priority in Priority}

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

REQUESTS_FAULT = frozenset({ErrorCategory.CONTENT_FILTER, ErrorCategory.INVALID_ARG})
"""Categories of errors that every key gets, whatever the status is."""

OTHERS_MAY_TAKE = frozenset({Refusal.TOO_LARGE, Refusal.SPENT})
"""Refusals after which another target may still take the request."""


class Standing(enum.IntEnum):
    """How a target stands that a call neither waits for nor has an attempt at."""

    UNTRIED = 0
    """The call may go there."""
    FAILED = 1
    """It has failed since the call's last pause. It may be asked again after the next one."""
    FINISHED = 2
    """It would fail again."""


UNTRIED, FAILED, FINISHED = Standing


@dataclass(slots=True, eq=False, repr=False)
class Targets:
    """The targets of a call on a route, or the keys of a provider with several, which is a route with one target.

    route: what chooses among them.
    request: as the program made it.
    candidates: where the call may wait: at most one for each key of each target.
    timer: ends its wait at a target that has a time of its own for that.
    group: of the calls that wait for the same targets to be used again; None: it does not wait for that.
    held_seconds: for which it has waited for that.

    Raises `InvalidRequestError`.
    """

    route: Router
    request: Request
    _make_request: MakeRequest
    _control: Dispatcher
    _model: str = ""  # the request's, for a provider with several keys
    candidates: tuple[Candidate, ...] = field(default=(), init=False)
    timer: Timer | None = field(default=None, init=False)
    group: Group | None = field(default=None, init=False)
    held_seconds: float = field(default=0.0, init=False)
    _held_at: float = field(default=0.0, init=False)
    _input_tokens: float = field(default=-1.0, init=False)  # unknown until the request was checked
    _standings: bytes = field(init=False)  # one `Standing` each: smaller than a list
    _error: ProviderError | None = field(default=None, init=False)  # decides about a retry, since the last pause

    def __post_init__(self) -> None:
        # The session is a key of a dict before the request is checked.
        REQUEST.rules["session"].check(self.request.session, "session")
        if self.route.state.balance is Balance.STICKY and self.request.session is None:
            raise InvalidRequestError("session", f"the route {self.route.name!r} is sticky: give the request a session")
        self._standings = bytes(len(self.route.targets))

    # --- how each one stands ---

    def fail(self, index: int, error: ProviderError | None = None) -> None:
        """The call goes no more to a target before its next pause. error: why."""
        self._put(index, FAILED, error)

    def finish(self, index: int, error: ProviderError) -> None:
        """The call never goes to a target. error: why."""
        self._put(index, FINISHED, error)

    def _put(self, index: int, standing: Standing, error: ProviderError | None = None) -> None:
        if standing > self._standings[index]:
            self._standings = self._standings[:index] + bytes((standing,)) + self._standings[index + 1 :]
        if error is not None:
            self.note_error(error)

    def note_error(self, error: ProviderError) -> None:
        """Note why the call cannot go to a target. The last error after which another attempt may succeed decides."""
        if self._error is None or error.retryable or not self._error.retryable:
            self._error = error

    def excluded(self) -> frozenset[int]:
        """Return the targets to which the call cannot go now."""
        return frozenset(index for index, standing in enumerate(self._standings) if standing)

    def has_room(self, candidate: Candidate, now: float) -> bool:
        """Return whether the call could be sent to a target now."""
        return candidate.limiter.state.fits(candidate, now) is True and self.route.state.is_healthy(
            candidate.target_index, now
        )

    def hold(self, call: WaitingCall, now: float) -> None:
        """Let the call wait until a target is used again."""
        self._held_at = now
        self.group = self.route.hold(call, PRIORITIES[self.request.priority], self.excluded())

    def end_hold(self, call: WaitingCall, now: float) -> float:
        """Wait no longer for a target to be used again. Returns the seconds of that wait. May be called again."""
        if self.group is None:
            return 0.0
        self.route.end_hold(call, self.group)
        self.group, seconds = None, now - self._held_at
        self.held_seconds += seconds
        return seconds

    def leave(self, call: WaitingCall) -> None:
        """The call waits in no queue."""
        self.route.leave(call)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def may_leave(self, error: ProviderError) -> bool:
        """Return whether the call may go to another target after a failure that was no refusal by a limit."""
        return moves_on(error, Refusal.NONE, self.route.failover_on)

    def verdict(self) -> ProviderError:
        """Return the error that decides about a retry."""
        assert self._error is not None, "no target is left"
        return self._error

    def ask_again(self) -> None:
        """After a pause, the call may go to each target that has failed."""
        self._error, self._standings = None, bytes(each if each == FINISHED else UNTRIED for each in self._standings)

    def ask_returned(self, now: float) -> None:
        """The call may go to those that have answered others since they failed, or that may be asked again."""
        for index in self._attempted():
            if self._standings[index] == FAILED and self.route.state.may_be_asked(index, now):
                self._standings = self._standings[:index] + bytes(1) + self._standings[index + 1 :]

    def _attempted(self) -> set[int]:
        return {each.target_index for each in self.candidates if each.attempt_number}

    def judge(
        self, candidate: Candidate, error: ProviderError, refusal: Refusal, now: float, *, waits: bool, is_last: bool
    ) -> ProviderError | None:
        """Note how a target stands after a failed attempt. Returns None if the call may go to a target, else the error
        that decides about a retry.

        waits: the target's server is away, and the call waits for it.
        is_last: the call has no attempt left but the first one at a target.
        """
        index = candidate.target_index
        if is_keys_fault(error, refusal) and self.usable_candidates(index, now):
            self.note_error(error)
            return None
        if not moves_on(error, refusal, self.route.failover_on):
            return error
        standing = FINISHED if not error.retryable else UNTRIED if waits else FAILED
        self._put(index, standing, error)
        for other in self._attempted() if is_last else ():
            self._put(other, FAILED)
        choice, _ = self.choose(now)
        return None if choice.target is not None or choice.among or waits else self.verdict()

    def cannot_take(self, index: int, error: InvalidRequestError) -> None:
        """A target cannot carry the request: the call never goes there."""
        self.finish(index, ProviderError(str(error), category=ErrorCategory.INVALID_ARG))
        self.route.cannot_take(index, error)

    def left(
        self, candidate: Candidate, error: ProviderError | None, refusal: Refusal | None, now: float, *,
        broke: bool, session: str | None,
    ) -> None:  # fmt: skip
        """An attempt at a target is over.

        error: why it failed; None if that was no failure.
        refusal: which limit refused it; None: it was no refusal, because the server had accepted the request.
        broke: its first content had come.
        session: forgets its target if that has failed.
        """
        index, number, key = candidate.target_index, candidate.attempt_number, candidate.key
        if error is not None and refusal is not None and is_keys_fault(error, refusal):
            self.candidate_at(index, key).is_refused = True
            if refusal is Refusal.NONE:
                self.keys(index).put_aside(key, now)
            if self.usable_candidates(index, now):
                error = None
        if error is not None and refusal in (None, Refusal.NONE) and is_targets_fault(error):
            self.route.fail(index, number, now, session, error, broke=broke)
        self.route.end(index, number)

    # --- the choice ---

    def choose(self, now: float, without: int | None = None) -> tuple[Choice, list[Candidate]]:
        """Ask the route for a target. Targets whose limits the request can never fit are passed over.

        Returns also the candidates at the target that have room; if no target has room, those to wait for.

        without: a target that is not asked.
        """

        @cache
        def usable(at: int) -> dict[Candidate, bool]:
            return self.usable_candidates(at, now)

        @cache
        def roomy(at: int) -> list[Candidate]:
            return _roomy(usable(at))

        while True:
            excluded = self.excluded() if without is None else self.excluded() | {without}
            choice = self.route.state.choose(now, roomy, tried=excluded, session=self.request.session)
            if choice.target is not None:
                return choice, roomy(choice.target)
            found = {index: usable(index) for index in choice.among}
            if all(found.values()):
                return choice, [candidate for candidates in found.values() for candidate in candidates]
            for index in (index for index, candidates in found.items() if not candidates):
                self._put(index, FAILED)
                for key in range(len(self.route.targets[index].accesses)):
                    each = self.candidate_at(index, key)
                    error = each.limiter.state.why_never(each, now)
                    if error is not None:
                        self.note_error(error)

    def elsewhere(self, avoided: Candidate, now: float) -> Candidate | None:
        """Return another key or target that has room, after a limit has refused the call; None if there is none. A
        session waits for its target."""
        state, index = self.route.state, avoided.target_index
        others = [candidate for candidate in _roomy(self.usable_candidates(index, now)) if candidate is not avoided]
        if not others and state.balance is not Balance.STICKY:
            choice, others = self.choose(now, index)
            if choice.target is None:
                return None
        if not others or not state.is_healthy(others[0].target_index, now):
            return None
        return self.best(others, now)

    def beside(self, candidate: Candidate, now: float) -> Candidate | None:
        """Return a candidate for a second attempt that has room now: at another target that is no fallback, else at the
        only one."""
        index, state = candidate.target_index, self.route.state

        @cache
        def roomy(at: int) -> list[Candidate]:
            return _roomy(self.usable_candidates(at, now, beside=True))

        if all(target.fallback for other, target in enumerate(state.targets) if other != index):
            return self.best(roomy(index), now) if roomy(index) else None
        excluded = self.excluded() | {index}
        while True:
            choice = state.choose(now, roomy, tried=excluded)
            if choice.target is not None:
                return None if state.targets[choice.target].fallback else self.best(roomy(choice.target), now)
            if not choice.among:
                return None
            excluded |= set(choice.among)

    def plan(self, now: float) -> Candidate:
        """Choose the first target that can take the request, and prepare the request for it. Raises
        `InvalidRequestError` where none can."""
        first: InvalidRequestError | None = None
        while True:
            choice, found = self.choose(now)
            left = [index for index, standing in enumerate(self._standings) if standing != FINISHED]
            if not left:
                assert first is not None
                raise first
            index = choice.target if choice.target is not None else next(iter(choice.among), left[0])
            candidates = found or list(self.usable_candidates(index, now))
            key = candidates[0].key if candidates else 0
            if choice.target is not None:
                key = self.best(found, now).key
            trial = self.candidate_at(index, key)
            try:
                request = self.request_at(trial)
            except InvalidRequestError as error:
                self.cannot_take(index, error)
                first = first or error
                continue
            self._input_tokens = estimate_input_tokens(self.request, request.prepared.body)
            self.candidates = ()  # those of a request that was not checked know nothing of it
            planned = self.candidate_at(index, key)
            planned.request, planned.need = request, trial.need
            return planned

    def best(self, candidates: list[Candidate], now: float) -> Candidate:
        """Return the best key of a target. candidates: those that have room."""
        if len(candidates) == 1:
            return candidates[0]
        by_key = {candidate.key: candidate for candidate in candidates}
        room = {key: candidate.limiter.state.room(candidate, now) for key, candidate in by_key.items()}
        keys = self.keys(candidates[0].target_index)
        return by_key[keys.best(list(room), room, self.request.session, now)]

    # --- the candidates ---

    def usable_candidates(self, index: int, now: float, *, beside: bool = False) -> dict[Candidate, bool]:
        """Return a candidate for each key that can be used at a target, and whether the call could be sent with it now.

        Keys whose quota is used up, or too small for the request, are left out. beside: new candidates, for a second
        attempt.
        """
        make = self._make_candidate if beside else self.candidate_at
        found = {
            each: each.limiter.state.fits(each, now) for each in [make(index, key) for key in self.usable(index, now)]
        }
        return {candidate: fits for candidate, fits in found.items() if fits is not None}

    def candidate_at(self, index: int, key: int) -> Candidate:
        """Return the candidate for one key of a target: the same one each time."""
        for candidate in self.candidates:
            if candidate.target_index == index and candidate.key == key:
                if candidate.limiter.is_forgotten and candidate.state in AWAY:
                    candidate.limiter = self._limiter_at(index, key)
                return candidate
        candidate = self._make_candidate(index, key)
        self.candidates = (*self.candidates, candidate)
        return candidate

    def _make_candidate(self, index: int, key: int) -> Candidate:
        request, target = self.request, self.route.targets[index].declared
        options = NO_OPTIONS if target is None else target.options
        if self._input_tokens < 0:
            candidate = Candidate(0.0, None, target_index=index, key=key)
        else:
            candidate = Candidate(
                self._input_tokens,
                cast("int | None", options.get("max_output_tokens", request.max_output_tokens)),
                PRIORITIES[cast("str", options.get("priority", request.priority))],
                cast("str | None", options.get("tenant", request.tenant)),
                target_index=index,
                key=key,
            )
        candidate.limiter = self._limiter_at(index, key)
        return candidate

    def request_at(self, candidate: Candidate) -> TargetRequest:
        """Return the request for a target, which is prepared once. Raises `InvalidRequestError`."""
        if not isinstance(candidate.request, TargetRequest):
            target = self.route.targets[candidate.target_index]
            access, request = target.accesses[candidate.key], self.request
            model = f"{access.provider.name}/{self._model_at(target)}"
            request = (
                with_model(request, model) if target.declared is None else lay_over(target.declared, request, model)
            )
            ready, wire = self._make_request(request, access.preparer)
            budgets = self._control.budgets
            candidate.need = None if budgets is None else budgets.need(request, ready.prepared, wire)
            candidate.request = ready
        return candidate.request

    def _limiter_at(self, index: int, key: int) -> Limiter:
        target = self.route.targets[index]
        return self._control.limiter(target.accesses[key], self._model_at(target))

    def usable(self, index: int, now: float) -> Sequence[int]:
        failed = {each.key for each in self.candidates if each.is_refused and each.target_index == index}
        if self.has_keys(index):
            return self.keys(index).usable(now, failed)
        return () if failed else ONLY_KEY

    def has_keys(self, index: int) -> bool:
        return len(self.route.targets[index].accesses) > 1

    def keys(self, index: int) -> ModelKeys:
        target = self.route.targets[index]
        return target.keys_of(self._model_at(target))

    def longest_wait(self, index: int) -> float:
        """Return for how many seconds the call may wait at a target, by the target's own options."""
        target = self.route.targets[index].declared
        timeouts = None if target is None else target.options.get("timeouts")
        return timeouts.queue if isinstance(timeouts, Timeouts) and timeouts.queue is not None else math.inf

    def _model_at(self, target: RouteTarget) -> str:
        return target.model or self._model


def _roomy(candidates: Mapping[Candidate, bool]) -> list[Candidate]:
    """Return the candidates with which the call could be sent now."""
    return [candidate for candidate, fits in candidates.items() if fits]


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
    return _changed(request, {"model": model})


def _changed(request: Request, changes: Mapping[str, object]) -> Request:
    """Return a copy that also has the cache of its conversation."""
    changed = dataclasses.replace(request, **changes)  # type: ignore[arg-type]
    cache = prefix_cache_of(request)
    return changed if cache is None else with_prefix_cache(changed, cache)
