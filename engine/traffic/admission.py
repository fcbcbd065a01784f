"""The interface between one call and traffic control."""

from __future__ import annotations

from collections.abc import Mapping

from ...providers.errors import ProviderError
from ...providers.limits.quota_report import Refusal
from ...providers.model.response import Response
from ..call.attempt import Attempt
from ..call.completion import AttemptRecord, Completion
from ..call.timeouts import LEAST_WAIT
from .budgets.budget_state import Holding
from .budgets.budgets import Need
from .budgets.spending import NOTHING_SPENT, Spending, Spent, credible, spent_by
from .limits.host import PAUSE, Host
from .limits.limiter import Lane, Sender
from .queue.permit import UNDER_WAY, Ticket
from .routing.failover import is_lost

MOST_RECORDS = 100
"""The number of attempts that are recorded of one call. Of more, the first half and the last half are kept: a server
that refuses for hours would fill the memory."""

OK = "ok"
"""The outcome of an attempt with a complete answer."""

PAUSES = (Refusal.RATE, Refusal.OVERLOAD)
"""Refusals after which the same request can succeed later."""


class Admission:
    """One call in traffic control, from its start to its end.

    journey: the attempts that have ended.
    need: what the next attempt may use; None in an engine without budgets and prices.
    spending: what the call reserves and spends; None in such an engine.
    uncounted: the attempts that are no tries: a limit refused them, they found the server away, or they ran beside
        another one.
    """

    __slots__ = (
        "_began",
        "_entered",
        "_lane",
        "_model",
        "_provider",
        "_quota_seconds",
        "_sender",
        "_sent",
        "_slot_mark",
        "_slot_seconds",
        "_ticket",
        "journey",
        "need",
        "spending",
        "uncounted",
    )

    def __init__(
        self,
        lane: Lane,
        ticket: Ticket,
        provider: str,
        model: str,
        spending: Spending | None = None,
        need: Need | None = None,
    ) -> None:
        self._lane = lane
        self._ticket = ticket
        self._provider = provider
        self._model = model
        self.journey: tuple[AttemptRecord, ...] = ()
        self.uncounted: int = 0
        self.spending: Spending | None = spending
        self.need: Need | None = need
        self._sender: Sender | None = None  # of a call with spending, from its start to its end
        self._began = -1.0  # the time at which the call was started
        self._sent: float | None = None  # the time at which the running attempt began; None: none
        self._entered: float | None = None  # the time at which the current wait began; None: none
        self._slot_mark = 0.0
        self._quota_seconds = 0.0  # seconds of all waits until it was last sent
        self._slot_seconds = 0.0

    @property
    def target(self) -> str:
        """Where the call goes, as `provider/model`; empty if that is not chosen yet."""
        return f"{self._provider}/{self._model}"

    @property
    def is_beside(self) -> bool:
        """Whether the attempt under way runs, or ran, beside another one."""
        return False

    @property
    def waiting_for(self) -> str:
        """The reason why the call waits, as text; empty if it does not wait."""
        if self.spending is not None and self.spending.waiting_for:
            return self.spending.waiting_for
        return self._lane.scope.waiting_for(self._ticket, self._lane.now)

    def waited(self, seconds: float) -> dict[str, float]:
        """Return reason → seconds that the call has waited. `seconds`: the total."""
        budget = 0.0 if self.spending is None else self.spending.seconds
        by_reason = {
            "quota": self._quota_seconds,
            "slot": self._slot_seconds,
            "budget": budget,
            "connection": seconds - self._quota_seconds - self._slot_seconds - budget,
        }
        return {reason: waited for reason, waited in by_reason.items() if waited > LEAST_WAIT}

    # --- before an attempt ---

    def enter(self, sender: Sender, deadline: float, now: float, *, again: bool) -> None:
        """Let the call wait until it may be sent. The call may be notified before this method returns.

        deadline: the time at which the call's own timer ends the wait.
        now: the engine's clock.
        again: the call was sent before.
        """
        ticket = self._ticket
        ticket.owner = sender
        self._begin_to_wait(now)
        if self.spending is not None:
            self._sender, ticket.owner = sender, self
            refused = self._refusal(now)
            if self._is_over:
                return
            if refused is not None:
                sender.rejected(refused)
                return
        self._lane.enter(ticket, now, again=again, deadline=deadline)

    def begin(self, now: float) -> None:
        """An attempt begins. The call waits no longer."""
        self.left(now)
        self._sent = now

    def left(self, now: float) -> None:
        """End the call's wait. May be called again."""
        if self._entered is None:
            return
        slot = self._lane.scope.slot_seconds(now) - self._slot_mark
        self._slot_seconds += slot
        self._quota_seconds += max(0.0, now - self._entered - slot)
        self._entered = None

    # --- as the lane sees a call with spending ---

    def admitted(self) -> None:
        """Send the call if its spending can be reserved."""
        if self._pay(self._lane.now):
            self._caller.admitted()

    def rejected(self, error: ProviderError) -> None:
        """Fail the call: its lane never sends it."""
        self._caller.rejected(error)

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library."""
        self._caller.on_defect(error)

    # --- as the budgets see it ---

    def funded(self, holding: Holding) -> None:
        """Go on: the spending is reserved."""
        now = self._end_claim()
        assert self.spending is not None
        assert self.need is not None
        self.spending.fund(self.need, holding)
        self._begin_to_wait(now)
        self._go_on_paid(now)

    def unfunded(self, error: ProviderError) -> None:
        """Go elsewhere or fail: no budget pays for the attempt."""
        now = self._end_claim()
        self._begin_to_wait(now)
        self._unpaid(error, now)

    def _refusal(self, now: float) -> ProviderError | None:
        """Return why no budget ever pays for the next attempt; None if one may."""
        if self.spending is None or self.need is None:
            return None
        return self.spending.refusal(self.need, now)

    def _pay(self, now: float) -> bool:
        """Reserve what the attempt may use that the lane sends. Returns False if the call is not sent now."""
        spending, need = self.spending, self.need
        if spending is None or need is None:
            return True
        found = spending.reserve(need, now)
        if self._is_over:
            spending.release(now)
            return False
        if found is None:
            return True
        self._lane.scope.cancel(self._ticket, now)
        self._lane.changed()
        if isinstance(found, ProviderError):
            self._unpaid(found, now)
        else:
            self.left(now)
            spending.wait(need, found, self, self._ticket.priority, now)
        return False

    def _go_on_paid(self, now: float) -> None:
        """Send the call when its limits allow."""
        self._lane.enter(self._ticket, now, again=True)

    def _unpaid(self, error: ProviderError, now: float) -> None:
        """Fail the call: no budget pays for it."""
        self._caller.rejected(error)

    def _end_claim(self) -> float:
        now = self._lane.now
        if self.spending is not None:
            self.spending.leave(now)
        return now

    @property
    def _is_over(self) -> bool:
        """Whether a call with spending has ended. A function of a budget may end the call that it is asked for."""
        return self._sender is None

    @property
    def _caller(self) -> Sender:
        assert self._sender is not None
        return self._sender

    # --- during an attempt ---

    def confirm(self, headers: Mapping[str, str], *, whole: bool) -> None:
        """Report the head of a successful response. `whole`: it is no stream."""
        lane = self._lane
        if self._ticket.state in UNDER_WAY:
            lane.scope.confirm(self._ticket, lane.report(headers), lane.now, whole=whole)
            lane.write_news()
            lane.changed()

    def connected(self) -> None:
        """Report that an attempt has a connection."""
        self._lane.scope.connected(self._ticket, self._lane.now)

    def first_token(self) -> None:
        """Report the first content of a stream."""
        self._lane.scope.answered(self._ticket, self._lane.now)

    # --- a second attempt beside the first one: only a route that hedges makes one ---

    def rival_connected(self) -> None:
        """Report that the second attempt has a connection."""

    def rival_confirmed(self, headers: Mapping[str, str], *, whole: bool) -> None:
        """Report the head of a successful response to the second attempt."""

    def rival_answers(self) -> None:
        """Report that the second attempt has content, and takes the place of the first one."""

    def rival_resent(self) -> None:
        """Report that the second attempt is sent again, because its connection was stale."""

    def rival_failed(self, attempt: Attempt, error: ProviderError) -> None:
        """Report that the second attempt failed."""

    # --- after an attempt ---

    def resent(self, error: ProviderError) -> None:
        """Report that an attempt failed because its connection was stale, and that the next one begins at once."""
        now = self._lane.now
        self._record(error, NOTHING_SPENT, now)
        self._sent = now

    def failed(
        self, error: ProviderError, headers: Mapping[str, str], *, sent: bool, may_wait: bool
    ) -> ProviderError | None:
        """Report that an attempt failed before the caller received anything.

        Returns None if the call waits again, because a limit refused it or the server takes no connection; else the
        error. If no wait can help, this makes the error not retryable.

        sent: the request may have reached the server.
        may_wait: the call may wait for a server that is away.
        """
        self._account(error, None, self._lane.now, sent=sent)
        if self._ticket.state not in UNDER_WAY:
            return error
        refusal = give_back(self._lane, self._ticket, error, headers, sent=sent, again=True)
        if refusal in PAUSES:
            self.uncounted += 1
            self._begin_to_wait(self._lane.now)
            return None
        if refusal is not Refusal.NONE:
            error.retryable = False
        lane = self._lane
        if not self._waits_for_host(error, lane.scope.host, sent=sent, may_wait=may_wait):
            return error
        # Another call asks next, where this one has done so: its own request may be what breaks the connection.
        lane.scope.add(self._ticket, lane.now, at_head=not sent)
        lane.changed()
        self._begin_to_wait(lane.now)
        return None

    def _waits_for_host(self, error: ProviderError, host: Host, *, sent: bool, may_wait: bool) -> bool:
        """Return whether the call waits for a server that is away. An attempt that only showed this is no try."""
        in_vain = may_wait and is_lost(error) and (host.is_away or not sent)
        self.uncounted += in_vain
        return in_vain and host.is_away

    def pause_after(self, error: ProviderError, delay: float) -> float | None:
        """Return the seconds until the call may make another attempt after a failure, where traffic control bounds
        its attempts: one call at a time asks a server that is away. None: the engine's own bound on retries applies.

        delay: what the call's own options say.
        """
        return min(delay, PAUSE) if is_lost(error) else None

    def end(self, outcome: Completion | None, *, sent: bool) -> None:
        """Report the end of the call. May be called again.

        outcome: how the call ended.
        sent: the request may have reached the server.
        """
        lane, ticket = self._lane, self._ticket
        scope, now = lane.scope, lane.now
        response = None if outcome is None else outcome.response
        error = None if outcome is None else outcome.error
        if error is not None and is_lost(error) and ticket.state in UNDER_WAY:
            scope.host.lost(ticket.place, now, error)
        self._account(None if outcome is None else outcome.error, response, now, sent=sent)
        self.left(now)
        if self.spending is not None:
            self.spending.leave(now)
            self.spending.release(now)
        if ticket.state in UNDER_WAY and sent:
            self._settle(response, now)
        else:
            scope.cancel(ticket, now)
        ticket.owner = self._sender = None
        lane.changed()

    def _settle(self, response: Response | None, now: float) -> None:
        scope, ticket = self._lane.scope, self._ticket
        usage = None if response is None else credible(response.usage)
        if usage is None or usage.input_tokens is None:
            scope.settle(ticket, None, now)
            return
        output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
        charge = scope.quota.charger.settled(usage.input_tokens, usage.cached_tokens or 0, output)
        scope.settle(ticket, charge, now, tokens=usage.input_tokens + output, output=output)

    def complete(self, completion: Completion) -> None:
        """Add to the call's record where it went and what it cost."""
        completion.journey = self.journey
        if self.spending is not None:
            completion.cost, completion.cost_unknown = self.spending.cost, self.spending.cost_unknown

    def _account(self, error: ProviderError | None, response: Response | None, now: float, *, sent: bool) -> None:
        """Record the attempt that has ended, if there is one, and settle what it reserved."""
        if self._sent is None:
            return
        spending = self.spending
        kept = None if spending is None else spending.reservation
        if spending is None or kept is None:
            self._record(error, NOTHING_SPENT if response is None else Spent(response.usage), now)
        elif sent:
            spent = spent_by(kept.need.input_tokens, response, error)
            self._record(error, spent, now)
            spending.settle(spent.usage, now)
        else:
            self._record(error, NOTHING_SPENT, now)
            spending.release(now)

    def _record(self, error: ProviderError | None, spent: Spent, now: float) -> None:
        """Add the attempt that has ended, if there is one, to the journey."""
        if self._sent is None:
            return
        started, self._sent = self._sent, None
        record = AttemptRecord(
            target=self.target,
            started=started - self._began,
            ended=now - self._began,
            outcome=OK if error is None else error.category.value,
            error=error,
            hedged=self.is_beside,
            usage=spent.usage,
            estimated=spent.estimated,
        )
        self._keep(record)

    def _keep(self, record: AttemptRecord) -> None:
        """Add a record to the journey."""
        kept, half = self.journey, MOST_RECORDS // 2
        if len(kept) == MOST_RECORDS:
            kept = kept[:half] + kept[half + 1 :]
        self.journey = (*kept, record)

    def _begin_to_wait(self, now: float) -> None:
        if self._began < 0:
            self._began = now
        self._entered = now
        self._slot_mark = self._lane.scope.slot_seconds(now)


def give_back(
    lane: Lane, ticket: Ticket, error: ProviderError, headers: Mapping[str, str], *, sent: bool, again: bool
) -> Refusal:
    """Give back what a failed attempt had reserved of its limits. Returns which kind of limit refused it.

    sent: the request may have reached the server.
    again: the call waits in the lane again after a refusal.
    """
    scope, now = lane.scope, lane.now
    if is_lost(error):
        scope.lose(ticket, error, now, sent=sent)
        lane.changed()
        return Refusal.NONE
    if not sent:
        scope.cancel(ticket, now)
        lane.changed()
        return Refusal.NONE
    report = lane.report(headers, error)
    refusal = report.refusal
    if refusal is Refusal.OVERLOAD and scope.concurrency is None:
        # The server is overloaded, independent of this key's limits: the call's own retries apply.
        refusal = Refusal.NONE
    if refusal is Refusal.NONE:
        scope.fail(ticket, report, now, answered=error.http_status > 0)
    else:
        scope.refuse(ticket, report, now, again=again)
    lane.write_news()
    lane.changed()
    return refusal
