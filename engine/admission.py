"""The interface between one call and traffic control.

Knows the call's ticket and the lane in which it waits. Must not know sockets, retries or other calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..providers.errors import ProviderError
from ..providers.quota_report import Refusal
from ..providers.response import Response
from .lane import Lane, Sender
from .traffic.ticket import Ticket, TicketState

LEAST_WAIT = 1e-6
"""The smallest number of seconds that counts as a wait."""

UNDER_WAY = (TicketState.SENT, TicketState.CONFIRMED)


class Admission:
    """One call in traffic control, from its start to its end."""

    __slots__ = ("_entered", "_lane", "_quota_seconds", "_slot_mark", "_slot_seconds", "_ticket")

    def __init__(self, lane: Lane, ticket: Ticket) -> None:
        self._lane = lane
        self._ticket = ticket
        self._entered: float | None = None  # the time at which the current wait began; None: none
        self._slot_mark = 0.0
        self._quota_seconds = 0.0  # seconds of all waits until it was last sent
        self._slot_seconds = 0.0

    @property
    def refusals(self) -> int:
        """The number of times that a limit has refused the call."""
        return self._ticket.refusals

    @property
    def waiting_for(self) -> str:
        """The reason why the call waits, as text; empty if it does not wait."""
        return self._lane.scope.waiting_for(self._ticket, self._lane.now)

    def waited(self, seconds: float) -> dict[str, float]:
        """Return reason → seconds that the call has waited. `seconds`: the total."""
        by_reason = {
            "quota": self._quota_seconds,
            "slot": self._slot_seconds,
            "connection": seconds - self._quota_seconds - self._slot_seconds,
        }
        return {reason: waited for reason, waited in by_reason.items() if waited > LEAST_WAIT}

    # --- before an attempt ---

    def enter(self, sender: Sender, deadline: float, now: float, *, again: bool) -> None:
        """Let the call wait until it may be sent. The call may be notified before this method returns.

        deadline: the time at which the wait must end.
        now: the engine's clock.
        again: the call was sent before.
        """
        ticket = self._ticket
        ticket.owner = sender
        ticket.deadline = deadline
        self._begin_to_wait(now)
        self._lane.enter(ticket, now, again=again)

    def left(self, now: float) -> None:
        """End the call's wait. May be called again."""
        if self._entered is None:
            return
        slot = self._lane.scope.slot_seconds(now) - self._slot_mark
        self._slot_seconds += slot
        self._quota_seconds += max(0.0, now - self._entered - slot)
        self._entered = None

    # --- during an attempt ---

    def confirm(self, headers: Mapping[str, str]) -> None:
        """Report the head of a successful response."""
        lane = self._lane
        if self._ticket.state in UNDER_WAY:
            lane.scope.confirm(self._ticket, lane.report(headers), lane.now)
            lane.write_news()
            lane.changed()

    def first_token(self) -> None:
        """Report the first content of a stream."""
        self._lane.scope.answered(self._ticket, self._lane.now)

    # --- after an attempt ---

    def failed(self, error: ProviderError, headers: Mapping[str, str], deadline: float, *, sent: bool) -> bool:
        """Report that an attempt failed before the caller received anything.

        Returns True if the call waits again, because a limit refused it. If no wait can help, this makes `error` not
        retryable.

        deadline: the time at which a new wait must end.
        sent: the request may have reached the server.
        """
        lane, ticket = self._lane, self._ticket
        scope, now = lane.scope, lane.now
        if ticket.state not in UNDER_WAY:
            return False
        if not sent:
            scope.cancel(ticket, now)
            lane.changed()
            return False
        report = lane.report(headers, error)
        refusal = report.refusal
        if refusal is Refusal.OVERLOAD and scope.concurrency is None:
            refusal = (
                Refusal.NONE
            )  # the server is overloaded, independent of this key's limits: the call's own retries apply
        if refusal is Refusal.NONE:
            scope.fail(ticket, report, now, answered=error.http_status > 0)
        else:
            ticket.deadline = deadline
            scope.refuse(ticket, report, now)
        lane.write_news()
        lane.changed()
        if refusal in (Refusal.RATE, Refusal.OVERLOAD):
            self._begin_to_wait(now)
            return True
        if refusal is not Refusal.NONE:
            error.retryable = False
        return False

    def end(self, response: Response | None, *, sent: bool) -> None:
        """Report the end of the call. May be called again.

        response: the response with its usage, if there is one.
        sent: the request may have reached the server.
        """
        lane, ticket = self._lane, self._ticket
        scope, now = lane.scope, lane.now
        self.left(now)
        if ticket.state in UNDER_WAY and sent:
            self._settle(response, now)
        else:
            scope.cancel(ticket, now)
        ticket.owner = None
        lane.changed()

    def _settle(self, response: Response | None, now: float) -> None:
        scope, ticket = self._lane.scope, self._ticket
        usage = None if response is None else response.usage
        if usage is None or usage.input_tokens is None:
            scope.settle(ticket, None, now)
            return
        output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
        charge = scope.quota.charger.settled(ticket.cost, usage.input_tokens, usage.cached_tokens or 0, output)
        scope.settle(ticket, charge, now, tokens=usage.input_tokens + output, output=output)

    def _begin_to_wait(self, now: float) -> None:
        self._entered = now
        self._slot_mark = self._lane.scope.slot_seconds(now)
