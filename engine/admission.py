"""The interface between one call and traffic control.

Knows the call's ticket and the lane in which it waits. Must not know sockets, retries or other calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..providers.errors import ProviderError
from ..providers.quota_report import Refusal
from ..providers.response import Response
from .completion import AttemptRecord, Completion
from .lane import Lane, Sender
from .traffic.ticket import Ticket, TicketState

LEAST_WAIT = 1e-6
"""The smallest number of seconds that counts as a wait."""

OK = "ok"
"""The outcome of an attempt with a complete answer."""

PAUSES = (Refusal.RATE, Refusal.OVERLOAD)
"""Refusals after which the same request can succeed later."""

UNDER_WAY = (TicketState.SENT, TicketState.CONFIRMED)


class Admission:
    """One call in traffic control, from its start to its end.

    journey: the attempts that have ended.
    """

    __slots__ = (
        "_began",
        "_entered",
        "_lane",
        "_model",
        "_provider",
        "_quota_seconds",
        "_sent",
        "_slot_mark",
        "_slot_seconds",
        "_ticket",
        "journey",
    )

    def __init__(self, lane: Lane, ticket: Ticket, provider: str, model: str) -> None:
        self._lane = lane
        self._ticket = ticket
        self._provider = provider
        self._model = model
        self.journey: tuple[AttemptRecord, ...] = ()
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

    def resent(self, error: ProviderError) -> None:
        """Report that an attempt failed because its connection was stale, and that the next one begins at once."""
        self._record(error, None)
        self._sent = self._lane.now

    def failed(
        self, error: ProviderError, headers: Mapping[str, str], deadline: float, *, sent: bool
    ) -> ProviderError | None:
        """Report that an attempt failed before the caller received anything.

        Returns None if the call waits again, because a limit refused it; else the error. If no wait can help, this
        makes the error not retryable.

        deadline: the time at which a new wait must end.
        sent: the request may have reached the server.
        """
        self._record(error, None)
        if self._ticket.state not in UNDER_WAY:
            return error
        refusal = self._give_back(error, headers, deadline, sent=sent, again=True)
        if refusal in PAUSES:
            self._begin_to_wait(self._lane.now)
            return None
        if refusal is not Refusal.NONE:
            error.retryable = False
        return error

    def _give_back(
        self, error: ProviderError, headers: Mapping[str, str], deadline: float, *, sent: bool, again: bool
    ) -> Refusal:
        """Give back what a failed attempt had reserved. Returns which kind of limit refused it.

        again: the call waits here again after a refusal.
        """
        lane, ticket = self._lane, self._ticket
        scope, now = lane.scope, lane.now
        if not sent:
            scope.cancel(ticket, now)
            lane.changed()
            return Refusal.NONE
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
            scope.refuse(ticket, report, now, again=again)
        lane.write_news()
        lane.changed()
        return refusal

    def end(self, outcome: Completion | None, *, sent: bool) -> None:
        """Report the end of the call. May be called again.

        outcome: how the call ended.
        sent: the request may have reached the server.
        """
        response = None if outcome is None else outcome.response
        self._record(None if outcome is None else outcome.error, response)
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

    def _record(self, error: ProviderError | None, response: Response | None) -> None:
        """Add the attempt that has ended, if there is one, to the journey."""
        if self._sent is None:
            return
        started, self._sent = self._sent, None
        record = AttemptRecord(
            target=self.target,
            started=started - self._began,
            ended=self._lane.now - self._began,
            outcome=OK if error is None else error.category.value,
            error=error,
            usage=None if response is None else response.usage,
        )
        self.journey = (*self.journey, record)

    def _begin_to_wait(self, now: float) -> None:
        if self._began < 0:
            self._began = now
        self._entered = now
        self._slot_mark = self._lane.scope.slot_seconds(now)
