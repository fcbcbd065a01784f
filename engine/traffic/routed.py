"""The way of one call on a route: it chooses a target, waits for one, and goes on to another after a failure.

A call on a route takes its target when it can be sent, not when it starts. Where no target has room, the call waits in
the queue of each one that it may use; the first that has room gets it. A provider with several keys is a route with one
target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...providers.errors import ErrorCategory, InvalidRequestError, ProviderError
from ...providers.limits.quota_report import Refusal
from ...providers.model.request import Request
from ...providers.rules.field_rules import REQUEST
from ..call.completion import Completion
from ..call.runtime import Runtime
from ..call.timeouts import Clock, timeout_error
from ..request.token_estimate import estimate_input_tokens
from .admission import PAUSES, give_back
from .budgets.budgets import Need
from .budgets.spending import Spending
from .itinerary import NO_TARGETS, Itinerary, Lanes
from .limits.limiter import Sender
from .routing.failover import is_keys_fault, is_targets_fault, moves_on
from .routing.route_state import Balance, Choice
from .routing.router import LiveRoute
from .stop import MakeStop, Stop
from .wait import Rooms, Site, Wait, site_at
from .waiter import Waiter


class Journey(Waiter):
    """One call on a route, from its start to its end."""

    __slots__ = (
        "_answered",
        "_attempted",
        "_avoided",
        "_error",
        "_finished",
        "_is_ended",
        "_number",
        "_planned",
        "_site",
        "_started_at",
        "_tried",
    )

    def __init__(
        self,
        route: LiveRoute,
        request: Request,
        make_stop: MakeStop,
        lanes: Lanes,
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
        self._set_up(route, Itinerary(route.places, request, model, make_stop, lanes), runtime)
        self._site: Site | None = None  # where an attempt is under way
        self._number = 0  # that of the attempt at its target
        self._started_at = 0.0  # when that began
        self._answered = False  # whether its first event came
        self._avoided: Site | None = None  # where a limit has just refused the call
        self._tried: frozenset[int] = NO_TARGETS  # targets that failed since the last pause
        self._finished: frozenset[int] = NO_TARGETS  # targets that would fail again
        self._attempted: frozenset[int] = NO_TARGETS  # targets that have had an attempt
        self._error: ProviderError | None = None  # that decides about a retry, since the last pause
        self._is_ended = False
        site, stop = self._plan(runtime.loop.clock())
        self._planned: Site | None = site
        self._itinerary.make_tickets(estimate_input_tokens(request, stop.prepared.body))
        wait = self._itinerary.wait_at(self, site)
        super().__init__(wait.lane, wait, "", "", spending, stop.need)

    def __repr__(self) -> str:
        return f"<Journey on {self._route!r}, {len(self._waits)} queues>"

    # --- as the call sees it ---

    @property
    def stop(self) -> Stop:
        """The request, ready for the target that the call would go to first."""
        return self._itinerary.first_stop

    @property
    def target(self) -> str:
        return super().target if self._provider else ""

    def enter(self, sender: Sender, deadline: float, now: float, *, again: bool) -> None:
        self._sender = sender
        self._begin_to_wait(now)
        if again:
            self._was_sent = True
            self._tried, self._error = NO_TARGETS, None
        planned, self._planned = self._planned, None
        refused = None if planned is None else self._refusal(now)
        if self._is_ended:
            return  # a function of a budget has ended the call
        if planned is not None and refused is not None:
            self._finish(planned.place, refused)
        elif planned is not None:
            wait = self._itinerary.wait_at(self, planned)
            if wait.has_room(now) and self._route.state.is_healthy(planned.place, now):
                self._wait([wait], now, deadline)
                return
        self._seek(now, deadline)

    def confirm(self, headers: Mapping[str, str], *, whole: bool) -> None:
        super().confirm(headers, whole=whole)
        site = self._site
        if site is not None:
            self._itinerary.ring(site.place).restore(site.key)

    def first_token(self) -> None:
        super().first_token()
        self._answer(self._lane.now)

    def failed(
        self, error: ProviderError, headers: Mapping[str, str], *, sent: bool, may_wait: bool
    ) -> ProviderError | None:
        """An attempt failed before the caller received anything. Returns None where the call goes on, else the error
        that decides about a retry."""
        site, now = self._site, self._lane.now
        self._account(error, None, now, sent=sent)
        if site is None or self._is_ended:
            return error
        refusal = give_back(self._lane, self._ticket, error, headers, sent=sent, again=False)
        if refusal in PAUSES:
            self.uncounted += 1
            self._ticket.refusals += 1
            self._arrive(None, now)
            self._avoided = site
            self._go_on(now)
            return None
        if refusal is not Refusal.NONE:
            error.retryable = False
        host = self._route.places[site.place].host
        waits_for_it = self._waits_for_host(error, host, sent=sent, may_wait=may_wait)
        if is_keys_fault(error, refusal):
            self._itinerary.failed |= {site}
            if refusal is Refusal.NONE:
                self._itinerary.ring(site.place).put_aside(site.key, now)
            if self.waits_at(site.place):
                self._note_error(error)
                self._arrive(None, now)
                self._go_on(now)
                return None
        self._arrive(error if refusal is Refusal.NONE else None, now)
        if not moves_on(error, refusal, self._route.failover_on):
            return error
        self._note_error(error)
        if not error.retryable:
            self._finished |= {site.place}
        elif not waits_for_it:
            self._tried |= {site.place}
        if self._call is not None and not self._call.has_attempts_left:
            self._tried |= self._attempted  # what is left are targets without an attempt
        choice = self._choose(now)
        if choice.target is None and not choice.among and not waits_for_it:
            return self._verdict()
        self._go_on(now)
        return None

    def end(self, outcome: Completion | None, *, sent: bool) -> None:
        if self._is_ended:
            return
        now = self._lane.now
        self._unpark(now)
        self._leave_queues(now)
        super().end(outcome, sent=sent)
        if self._site is not None:
            if outcome is not None and outcome.success:
                self._answer(now)
                self._route.complete(self._site.place, self._number)
            self._arrive(None if outcome is None else outcome.error, now)
        self._is_ended = True
        self._sender = None  # the call refers to its journey
        self._itinerary.forget_waits(self._ticket)

    # --- as the route and the runtime see it ---

    def look_again(self) -> None:
        if self._is_ended:
            return
        now, state = self._lane.now, self._route.state
        self._unpark(now)
        if self._call is not None and self._call.has_attempts_left:
            # What it has tried in vain may be asked again, or has answered others since.
            again = {place for place in self._tried & self._attempted if state.may_be_asked(place, now)}
            self._tried -= again
        choice = self._choose(now)
        kept = () if choice.target is not None else choice.among
        for wait in self._waits:
            if wait.site.place not in kept:
                self._forget(wait)
                wait.give_up(now)
        if {wait.site.place for wait in self._waits} != set(kept) or not kept:
            self._seek(now)

    def go_on(self) -> None:
        """Go on after a failure."""
        if not self._is_ended and self._site is None:
            self._seek(self._lane.now)

    def on_defect(self, error: Exception) -> None:
        assert self._call is not None
        self._call.on_defect(error)

    # --- as the budgets see it ---

    def _go_on_paid(self, now: float) -> None:
        self._seek(now)

    def _unpaid(self, error: ProviderError, now: float) -> None:
        assert isinstance(self._ticket, Wait)
        self._finish(self._ticket.site.place, error)
        self._seek(now)

    # --- as the lanes see it ---

    def admitted_at(self, wait: Wait) -> None:
        """A lane sends the call."""
        site, now = wait.site, self._lane.now
        if wait not in self._waits:
            wait.give_up(now)  # the call has gone elsewhere
            return
        if not self._itinerary.is_usable(site, now):
            self._forget(wait)
            wait.give_up(now)  # the server refused the key meanwhile; the call keeps its places in other queues
            if not self._waits:
                self._seek(now)
            return
        self._leave_queues(now, but=wait)
        self._lane, self._ticket, self._slot_mark = wait.lane, wait, wait.slot_mark
        if not self._route.state.is_healthy(site.place, now):
            wait.give_up(now)
            self._seek(now)
            return
        try:
            stop = self._itinerary.stop_at(site)
        except InvalidRequestError as error:
            if not self._is_ended:
                wait.give_up(now)
                self._cannot_take(site.place, error)
                self._seek(now)
            return
        if self._is_ended:
            return  # a function of the program, which the request was prepared with, has ended the call
        self.need: Need | None = stop.need
        if not self._pay(now):
            return
        assert self._call is not None
        self._provider, self._model = stop.prepared.provider.name, stop.prepared.model
        self._site, self._started_at, self._answered = site, now, False
        self._attempted |= {site.place}
        self._number = self._route.begin(site.place, now, self._itinerary.request.session)
        self._itinerary.ring(site.place).begin(site.key, self._itinerary.request.session, now)
        self._call.redirect(stop)
        self._call.admitted()

    def rejected_at(self, wait: Wait, error: ProviderError) -> None:
        """A lane never sends the call, or not in time."""
        if wait not in self._waits:
            return
        self._forget(wait)
        self._note_error(error)
        if error.category is ErrorCategory.TIMEOUT:
            self._tried |= {wait.site.place}  # it would be too late there
        if not self._waits:
            self._seek(self._lane.now)

    def _tire_of(self, place: int, now: float) -> None:
        waits = [wait for wait in self._waits if wait.site.place == place]
        if not waits:
            return  # it has gone elsewhere
        reason = waits[0].lane.scope.waiting_for(waits[0], now)
        longest = self._itinerary.longest_wait(place)
        self._note_error(timeout_error(Clock.QUEUE, longest, f"waiting for {reason}"))
        self._tried |= {place}
        for wait in waits:
            self._forget(wait)
            wait.give_up(now)
        if not self._waits:
            self._seek(now)

    # --- the choice ---

    def waits_at(self, place: int) -> list[Wait]:
        """Return a wait for each key that can be used at a target."""
        return self._itinerary.waits_at(self, place, self._runtime.loop.clock())

    def _plan(self, now: float) -> tuple[Site, Stop]:
        """Choose the first target that can take the request. Raises `InvalidRequestError` where none can."""
        first: InvalidRequestError | None = None
        while True:
            choice = self._choose(now)
            left = [place for place in range(len(self._route.places)) if place not in self._finished]
            if not left:
                assert first is not None
                raise first
            place = choice.target if choice.target is not None else next(iter(choice.among), left[0])
            waits = self.waits_at(place)
            roomy = [wait for wait in waits if wait.has_room(now)]
            site = self._best(roomy, now).site if roomy else waits[0].site if waits else site_at(place, 0)
            try:
                return site, self._itinerary.stop_at(site)
            except InvalidRequestError as error:
                self._cannot_take(place, error)
                first = first or error

    def _seek(self, now: float, deadline: float = math.inf) -> None:
        """Go to a target that has room, wait for one, or fail. deadline: as for `_wait`."""
        avoided, self._avoided = self._avoided, None
        if avoided is not None and self._go_elsewhere(avoided, now):
            return
        choice = self._choose(now)
        if choice.target is not None:
            self._wait([self._best(self._with_room(choice.target, now), now)], now, deadline)
        elif choice.among:
            waits = [wait for place in choice.among for wait in self.waits_at(place)]
            self._wait([wait for wait in waits if wait not in self._waits], now, deadline)
        elif choice.wait_until > -math.inf:
            self._park(self._tried | self._finished, now)
        else:
            assert self._call is not None
            self._call.rejected(self._verdict())

    def _choose(self, now: float, without: tuple[int, ...] = ()) -> Choice:
        """Ask the route for a target. Targets whose limits the request can never fit are passed over."""
        rooms = Rooms(self, now)
        while True:
            excluded = self._tried | self._finished | frozenset(without)
            choice = self._route.state.choose(now, rooms, tried=excluded, session=self._itinerary.request.session)
            useless = [] if choice.target is not None else [each for each in choice.among if not self.waits_at(each)]
            if not useless:
                return choice
            for place in useless:
                self._tried |= {place}
                for error in self._itinerary.why_never(self, place, now):
                    self._note_error(error)

    def _go_elsewhere(self, avoided: Site, now: float) -> bool:
        """Go to another key or target that has room, after a limit has refused the call. Returns whether there is
        one. A session waits for its target."""
        state, place = self._route.state, avoided.place
        others = [wait for wait in self._with_room(place, now) if wait.site != avoided]
        if not others and state.balance is not Balance.STICKY:
            choice = self._choose(now, (place,))
            others = [] if choice.target is None else self._with_room(choice.target, now)
        if not others or not state.is_healthy(others[0].site.place, now):
            return False
        self._wait([self._best(others, now)], now)
        return True

    def _with_room(self, place: int, now: float) -> list[Wait]:
        return [wait for wait in self.waits_at(place) if wait.has_room(now)]

    def _best(self, waits: list[Wait], now: float) -> Wait:
        """Return the wait for the best key of a target. waits: those that have room."""
        if len(waits) == 1:
            return waits[0]
        by_key = {wait.site.key: wait for wait in waits}
        room = {key: wait.lane.scope.room(wait, now) for key, wait in by_key.items()}
        ring = self._itinerary.ring(waits[0].site.place)
        return by_key[ring.best(list(room), room, self._itinerary.request.session, now)]

    def _note_error(self, error: ProviderError) -> None:
        """Note why the call cannot go to a target. The last error after which another attempt may succeed decides."""
        if self._error is None or error.retryable or not self._error.retryable:
            self._error = error

    def _verdict(self) -> ProviderError:
        """Return the error that decides about a retry."""
        assert self._error is not None, "no target is left"
        return self._error

    # --- an attempt ---

    def _go_on(self, now: float) -> None:
        """Choose again at the next tick."""
        self._was_sent = True
        self._begin_to_wait(now)
        self._runtime.soon(self.go_on, self.on_defect)

    def _answer(self, now: float) -> None:
        """The first event of the answer came."""
        if self._site is not None and not self._answered:
            self._answered = True
            self._route.succeed(self._site.place, self._number, now - self._started_at, now)

    def _arrive(self, error: ProviderError | None, now: float) -> None:
        """The attempt is over. error: why it failed, where that may be the target's fault."""
        site, self._site = self._site, None
        if site is None:
            return
        if error is not None and is_targets_fault(error):
            session = self._itinerary.request.session
            self._route.fail(site.place, self._number, now, session, error, broke=self._answered)
        self._route.end(site.place, self._number)

    def _cannot_take(self, place: int, error: InvalidRequestError) -> None:
        """A target cannot carry the request: the call never goes there."""
        self._finish(place, ProviderError(str(error), category=ErrorCategory.INVALID_ARG))
        self._route.cannot_take(place, error)

    def _finish(self, place: int, error: ProviderError) -> None:
        """Never go to a target. error: why."""
        self._finished |= {place}
        self._note_error(error)
