"""One scope's traffic: the queue, the quota and the number of calls at a time, driven as one.

The engine adds tickets, asks `admit` for the next one to send until it gets None, and sets a timer for `next_time`.

Knows queue, quota and concurrency. Must not know timers, routes or calls.
"""

from __future__ import annotations

import math

from ...providers.charging import Charging
from ...providers.quota_report import QuotaReport, Refusal
from .charge import Cost
from .concurrency import Concurrency
from .queue import FairQueue
from .quota import Quota, ReportedBucket
from .ticket import Ticket, TicketState


class Scope:
    """One key of one host, and what shares a limit there.

    name: `openai/gpt-5`, with several keys `openai[1]/gpt-5`.
    concurrency: None where nothing limits how many calls run at a time.
    """

    def __init__(
        self,
        name: str,
        charging: Charging,
        *,
        declared: tuple[ReportedBucket, ...] = (),
        concurrent: int | None = None,
        adaptive: bool = True,
    ) -> None:
        self.name = name
        self.queue: FairQueue = FairQueue()
        self.quota: Quota = Quota(charging, declared=declared, adaptive=adaptive)
        learns = adaptive and charging.limited_by != "quota"
        self.concurrency: Concurrency | None = (
            Concurrency(at_most=concurrent, adaptive=learns) if learns or concurrent else None
        )

    def admit(self, now: float) -> Ticket | None:
        """Take the next call out of the queue and reserve its cost, where it may be sent now."""
        ticket = self.queue.first(now)
        if ticket is None or self._ready_at(ticket, now) > now:
            return None
        self.queue.take(now)
        self.quota.reserve(ticket, now)
        if self.concurrency is not None:
            self.concurrency.start(ticket, now)
        return ticket

    def next_time(self, now: float) -> float:
        """When to call `admit` or `expired` again unless something ends before; `math.inf` for never."""
        ticket = self.queue.first(now)
        if ticket is None:
            return math.inf
        return min(self._ready_at(ticket, now), self.queue.next_deadline())

    def confirm(self, ticket: Ticket, report: QuotaReport, now: float) -> None:
        """The head of a response came that is no refusal."""
        self.quota.confirm(ticket, report, now)

    def refuse(self, ticket: Ticket, report: QuotaReport, now: float, *, again: bool = True) -> Refusal:
        """A call was refused by a limit. After `RATE` and `OVERLOAD` it stands at the head of its line again, unless
        `again` is False because it goes to another target."""
        if self.concurrency is not None:
            by_slots = report.refusal is Refusal.RATE and self.quota.charger.charging.limited_by == "slots"
            if by_slots or report.refusal is Refusal.OVERLOAD:
                self.concurrency.refuse(ticket, report.hint, now)
                report = QuotaReport(report.limits, Refusal.OVERLOAD, None, report.hint)
            else:
                self.concurrency.leave(ticket)
        refusal = self.quota.refuse(ticket, report, now)
        if refusal in (Refusal.RATE, Refusal.OVERLOAD) and again:
            self.queue.put_back(ticket)
        else:
            self.queue.correct(ticket, 0.0)
        return refusal

    def settle(self, ticket: Ticket, usage: Cost | None, now: float, *, tokens: float | None = None) -> None:
        """A call ended.

        usage: its charge in the end (`Charger.settled`); None keeps the estimate.
        tokens: its input and output; None keeps the estimate.
        """
        if self.concurrency is not None:
            self.concurrency.end(ticket, now)
        self.quota.settle(ticket, usage, now)
        if tokens is not None:
            self.queue.correct(ticket, tokens)

    def cancel(self, ticket: Ticket, now: float) -> None:
        """A call is given up before its request left: it waits no longer, and holds nothing."""
        if ticket.state is TicketState.QUEUED:
            self.queue.remove(ticket)
        elif ticket.state is not TicketState.ENDED:
            if self.concurrency is not None:
                self.concurrency.leave(ticket)
            self.quota.release(ticket, now)
            self.queue.correct(ticket, 0.0)

    def answered(self, ticket: Ticket, now: float) -> None:
        """The first token of a streamed answer came."""
        if self.concurrency is not None:
            self.concurrency.first_token(ticket, now)

    def _ready_at(self, ticket: Ticket, now: float) -> float:
        ticket.cost = self.quota.charger.estimate(ticket.input_tokens, ticket.max_output)
        at = self.quota.ready_at(ticket.cost, now)
        return at if self.concurrency is None else max(at, self.concurrency.ready_at(now))
