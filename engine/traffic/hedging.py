"""The way of one call on a route that hedges: where its first event is late, a second attempt runs beside the first.

The first event decides. The attempt that has none is ended at once, and accounted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ...providers.errors import ErrorCategory, InvalidRequestError, ProviderError
from ...providers.limits.quota_report import Refusal
from ...providers.model.request import Request
from ...transport.timers import Timer
from ..call.attempt import Attempt
from ..call.completion import AttemptRecord, Completion
from ..call.runtime import Runtime
from .admission import give_back
from .budgets.budgets import Need
from .budgets.spending import NOTHING_SPENT, Reservation, Spending, Spent, spent_by
from .itinerary import Lanes
from .queue.permit import NEVER, UNDER_WAY
from .routed import Journey
from .routing.failover import is_keys_fault, is_targets_fault, moves_on
from .routing.hedge import HedgeState
from .routing.router import LiveRoute
from .stop import MakeStop, Stop
from .wait import Rooms, Wait, Waiting


@dataclass(slots=True, frozen=True)
class Rival:
    """A second attempt under way.

    wait: its place in the limits of its target.
    stop: its request.
    number: its number among the attempts at its target.
    reservation: what it may use; None in an engine without budgets and prices.
    began: the time at which it was made.
    """

    wait: Wait
    stop: Stop
    number: int
    reservation: Reservation | None
    began: float

    @property
    def input_tokens(self) -> int:
        return math.ceil(self.wait.input_tokens)


class HedgedJourney(Journey):
    """One call on a route that hedges."""

    __slots__ = ("_first_at", "_hedge_timer", "_is_admitted", "_pause", "_rival", "_rivals_made", "_was_beside")

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
        """Choose the first target, as `Journey` does."""
        self._first_at = NEVER  # the time of its first attempt
        self._hedge_timer: Timer | None = None
        self._pause = 0.0  # seconds until it looks again whether a second attempt can be made
        self._is_admitted = False  # the second attempt, by its lane
        self._rival: Rival | None = None
        self._rivals_made = 0
        self._was_beside = False
        super().__init__(route, request, make_stop, lanes, runtime, spending, model=model)

    # --- as the call sees it ---

    @property
    def is_beside(self) -> bool:
        return self._was_beside

    def begin(self, now: float) -> None:
        super().begin(now)
        self._was_beside = False
        again = self._first_at > NEVER
        if not again:
            self._first_at = now
        due = self._state.begin(now, again=again)
        if due < math.inf and not self._rivals_made:
            self._pause = due - now
            self._hedge_timer = self._runtime.timers.at(due, self._is_late, self.on_defect, is_timeout=True)

    def failed(
        self, error: ProviderError, headers: Mapping[str, str], *, sent: bool, may_wait: bool
    ) -> ProviderError | None:
        self._disarm()
        judged = super().failed(error, headers, sent=sent, may_wait=may_wait)
        if judged is None or self._rival is None:
            return judged
        if judged.retryable or moves_on(error, Refusal.NONE, self._route.failover_on):
            self._go_on(self._lane.now)  # with the second attempt
            return None
        return judged

    def end(self, outcome: Completion | None, *, sent: bool) -> None:
        self._disarm()
        self._end_rival()
        super().end(outcome, sent=sent)

    def go_on(self) -> None:
        rival = self._rival
        if self._is_ended or self._site is not None or rival is None or self._call is None:
            super().go_on()
            return
        # The first attempt has failed: the second one is the only one now.
        self._take(rival)
        self._call.take_rival(rival.stop)

    def _answer(self, now: float) -> None:
        if self._site is not None and not self._answered:
            self._disarm()
            self._state.first_event(now - self._first_at)
            self._end_rival()
        super()._answer(now)

    # --- the second attempt ---

    @property
    def _state(self) -> HedgeState:
        state = self._route.hedging
        assert state is not None, "the route hedges"
        return state

    def _disarm(self) -> None:
        if self._hedge_timer is not None:
            self._hedge_timer.cancel()
            self._hedge_timer = None

    def _is_late(self) -> None:
        """Make a second attempt, or look again after a pause. Pauses double, so that many late calls cost little."""
        self._hedge_timer = None
        if self._is_ended or self._site is None or self._answered:
            return
        now = self._lane.now
        if self._call is None or self._call.is_paused or not self._state.allows(now) or not self._make_second(now):
            self._hedge_timer = self._runtime.timers.at(
                now + self._pause, self._is_late, self.on_defect, is_timeout=True
            )
            self._pause *= 2

    def _make_second(self, now: float) -> bool:
        """Make a second attempt. Returns False if no target has room for it now, or the budgets do not pay for it."""
        wait = self._rival_wait(now)
        if wait is None:
            return False
        try:
            stop = self._itinerary.second_stop_at(wait.site)
        except InvalidRequestError as error:
            if not self._is_ended:
                self._cannot_take(wait.site.place, error)
            return self._is_ended
        reservation: Reservation | None = None
        if self.spending is not None and stop.need is not None:
            reservation = self.spending.reserve_beside(stop.need, now)
        if self._is_ended:  # a function of the program has ended the call
            self._settle_one(reservation, None, now, sent=False)
            return True
        if self.spending is not None and stop.need is not None and reservation is None:
            return False
        if not self._admit(wait, now):
            self._settle_one(reservation, None, now, sent=False)
            return False
        self._state.take(now)
        number = self._route.begin(wait.site.place, now)
        self._itinerary.ring(wait.site.place).begin(wait.site.key, None, now)
        self._rivals_made += 1
        self.uncounted += 1
        self._was_beside = True
        self._rival = Rival(wait, stop, number, reservation, now)
        assert self._call is not None
        self._call.begin_rival(stop.prepared, stop.clocks)
        return True

    def _rival_wait(self, now: float) -> Wait | None:
        """Return a place that has room now: at another target that is no fallback, else at the only one."""
        assert self._site is not None
        place, targets = self._site.place, self._route.state.targets
        excluded = self._tried | self._finished | {place}
        beside = Beside(self)
        rooms = Rooms(beside, now)
        while True:
            choice = self._route.state.choose(now, rooms, tried=excluded)
            if choice.target is not None and not targets[choice.target].fallback:
                found = choice.target
                break
            if choice.target is not None or not choice.among:
                if any(not target.fallback for other, target in enumerate(targets) if other != place):
                    return None
                found = place
                break
            excluded |= set(choice.among)
        waits = [wait for wait in beside.waits_at(found) if wait.has_room(now)]
        return self._best(waits, now) if waits else None

    def rival_waits_at(self, call: Waiting, place: int) -> list[Wait]:
        """Return a wait for each key that a second attempt can use at a target."""
        return self._itinerary.second_waits_at(call, place, self._lane.now, self._ticket.input_tokens)

    def _admit(self, wait: Wait, now: float) -> bool:
        """Reserve the second attempt's limits. Returns False if they have no room."""
        self._is_admitted = False
        wait.owner = wait
        wait.lane.enter(wait, now, again=False)
        wait.owner = None  # else it refers to itself
        if not self._is_admitted:
            wait.give_up(now)
        return self._is_admitted

    def rival_admitted(self) -> None:
        """The lane sends the second attempt."""
        self._is_admitted = True

    def rival_resent(self) -> None:
        """The second attempt was sent again: a kept-alive connection had been closed."""
        self._rivals_made += 1
        self.uncounted += 1

    def rival_connected(self) -> None:
        """The second attempt has a connection."""
        if self._rival is not None:
            self._rival.wait.lane.scope.connected(self._rival.wait, self._lane.now)

    def rival_confirmed(self, headers: Mapping[str, str], *, whole: bool) -> None:
        """The head of a successful response came to the second attempt."""
        rival = self._rival
        if rival is None:
            return
        lane, site = rival.wait.lane, rival.wait.site
        if rival.wait.state in UNDER_WAY:
            lane.scope.confirm(rival.wait, lane.report(headers), lane.now, whole=whole)
            lane.write_news()
            lane.changed()
        self._itinerary.ring(site.place).restore(site.key)

    def rival_answers(self) -> None:
        """The second attempt has content: it takes the place of the first one."""
        rival = self._rival
        if rival is None:
            return
        self._disarm()
        if self._site is not None:
            self._end_first()
        if self._is_ended:
            return  # the price function has ended the call
        assert self._call is not None
        self._take(rival)
        self._call.take_rival(rival.stop)

    def rival_failed(self, attempt: Attempt, error: ProviderError) -> None:
        """The second attempt failed: the first one goes on alone."""
        rival, self._rival = self._rival, None
        if rival is None:
            return
        site, now, sent = rival.wait.site, self._lane.now, attempt.sent
        spent = spent_by(rival.input_tokens, None, error) if sent else NOTHING_SPENT
        self._record_rival(rival, error, spent)
        self._settle_one(rival.reservation, spent, now, sent=sent)  # the price function may end the call
        refusal = give_back(rival.wait.lane, rival.wait, error, attempt.headers, sent=sent, again=False)
        if is_keys_fault(error, refusal):
            self._itinerary.failed |= {site}
            if refusal is Refusal.NONE:
                self._itinerary.ring(site.place).put_aside(site.key, now)
        elif refusal is Refusal.NONE and is_targets_fault(error):
            self._route.fail(site.place, rival.number, now, None, error)
        self._route.end(site.place, rival.number)
        if self._site is None or self._site.place != site.place:
            self._tried |= {site.place}
            self._note_error(error)

    def _take(self, rival: Rival) -> None:
        """Let the second attempt be the one that the call has."""
        now, wait = self._lane.now, rival.wait
        self.left(now)
        self._rival = None
        self._lane, self._ticket = wait.lane, wait
        prepared = rival.stop.prepared
        self._provider, self._model = prepared.provider.name, prepared.model
        self._site, self._number, self._answered = wait.site, rival.number, False
        self._started_at = self._sent = rival.began
        self.need: Need | None = rival.stop.need
        if self.spending is not None:
            self.spending.reservation = rival.reservation

    def _end_first(self) -> None:
        """End the first attempt, because the second one has the first event."""
        assert self._call is not None
        attempt = self._call.abort_attempt()
        sent, partial = attempt.sent, attempt.partial_response()
        now, scope = self._lane.now, self._lane.scope
        lost = _lost()
        kept = None if self.spending is None else self.spending.reservation
        spent = spent_by(math.ceil(self._ticket.input_tokens), partial, lost) if sent else NOTHING_SPENT
        self._record(lost, spent, now)
        if self.spending is not None:
            self.spending.reservation = None
        self._settle_one(kept, spent, now, sent=sent)
        if self._ticket.state in UNDER_WAY and sent:
            scope.settle(self._ticket, None, now)
        else:
            scope.cancel(self._ticket, now)
        self._lane.changed()
        self._arrive(None, now)

    def _end_rival(self) -> None:
        """End the second attempt, because the first one has content or the call ends. May be called again."""
        rival, self._rival = self._rival, None
        if rival is None or self._call is None:
            return
        attempt = self._call.abort_rival()
        now, lane, ticket = self._lane.now, rival.wait.lane, rival.wait
        lost = _lost()
        sent = attempt is not None and attempt.sent
        partial = None if attempt is None else attempt.partial_response()
        spent = spent_by(rival.input_tokens, partial, lost) if sent else NOTHING_SPENT
        self._record_rival(rival, lost, spent)
        self._settle_one(rival.reservation, spent, now, sent=sent)
        if ticket.state in UNDER_WAY and sent:
            lane.scope.settle(ticket, None, now)
        else:
            lane.scope.cancel(ticket, now)
        lane.changed()
        self._route.end(rival.wait.site.place, rival.number)

    def _settle_one(self, kept: Reservation | None, spent: Spent | None, now: float, *, sent: bool) -> None:
        """Settle what one of two attempts reserved."""
        if self.spending is None or kept is None:
            return
        if sent and spent is not None:
            self.spending.settle_one(kept, spent.usage, now)
        else:
            self.spending.release_one(kept, now)

    def _record_rival(self, rival: Rival, error: ProviderError, spent: Spent) -> None:
        """Add the second attempt to the journey."""
        prepared = rival.stop.prepared
        record = AttemptRecord(
            target=f"{prepared.provider.name}/{prepared.model}",
            started=rival.began - self._began,
            ended=self._lane.now - self._began,
            outcome=error.category.value,
            error=error,
            hedged=True,
            usage=spent.usage,
            estimated=spent.estimated,
        )
        self._keep(record)


class Beside:
    """A call that looks for a place for its second attempt (`Waiting`). journey: the call's."""

    __slots__ = ("_journey",)

    def __init__(self, journey: HedgedJourney) -> None:
        self._journey = journey

    def waits_at(self, place: int) -> list[Wait]:
        return self._journey.rival_waits_at(self, place)

    def admitted_at(self, wait: Wait) -> None:
        self._journey.rival_admitted()

    def rejected_at(self, wait: Wait, error: ProviderError) -> None:
        """The lane never sends the second attempt: there is none."""

    def on_defect(self, error: Exception) -> None:
        self._journey.on_defect(error)


def _lost() -> ProviderError:
    text = "ended because the other attempt had the first event, or because the call ended"
    return ProviderError(text, category=ErrorCategory.CANCELLED, retryable=False)
