"""One scope's traffic: the queue, the quota and the number of calls at a time, driven as one.

The engine adds tickets, asks `admit` for the next one to send until it gets None, and sets a timer for `next_time`.

Knows queue, quota, concurrency and declared limits. Must not know timers, routes or calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...providers.charging import Charging
from ...providers.quota_report import QuotaReport, Refusal, Unit
from .bucket import Bucket
from .charge import Cost
from .concurrency import Concurrency
from .declared import DeclaredLimit
from .queue import HOPELESS, FairQueue
from .quota import Impossible, Quota
from .statistics import LimitStatistics, ScopeStatistics
from .ticket import Ticket, TicketState


class Scope:
    """One key of one host, and what shares a limit there.

    name: `openai/gpt-5`, with several keys `openai[1]/gpt-5`.
    concurrency: None where nothing is learned about how many calls run at a time.
    limits: declared limits that its calls must fit, which other scopes may share.
    """

    def __init__(
        self,
        name: str,
        charging: Charging,
        *,
        limits: Sequence[DeclaredLimit] = (),
        adaptive: bool = True,
    ) -> None:
        self.name = name
        self.limits: tuple[DeclaredLimit, ...] = tuple(limits)
        buckets = tuple(bucket for limit in limits for bucket in limit.buckets)
        self.queue: FairQueue = FairQueue()
        self.quota: Quota = Quota(charging, declared=buckets, adaptive=adaptive)
        self.concurrency: Concurrency | None = None
        if adaptive and charging.limited_by != "quota":
            at_most = min((limit.concurrent for limit in limits if limit.concurrent is not None), default=None)
            self.concurrency = Concurrency(at_most=at_most)
        self._slot_seconds = 0.0
        self._no_slot_since = math.inf

    # --- before a call is sent ---

    def add(self, ticket: Ticket, now: float, *, at_head: bool = False) -> None:
        """A call begins to wait. at_head: it waited before, and goes before the others of its tenant."""
        ticket.cost = self.quota.charger.estimate(ticket.input_tokens, ticket.max_output)
        ticket.service = max(1.0, ticket.cost.input_tokens + ticket.cost.output_tokens)
        self.queue.add(ticket, at_head=at_head)

    def admit(self, now: float) -> Ticket | None:
        """Take the next call out of the queue and reserve its cost, where it may be sent now."""
        ticket = self.queue.first(now)
        if ticket is None or self._ready_at(ticket, now) > now:
            return None
        self.queue.take(now)
        self.quota.reserve(ticket, now)
        for limit in self.limits:
            limit.running += 1
            limit.leave_line(self)
        if self.concurrency is not None:
            self.concurrency.start(ticket, now)
        return ticket

    def never(self, ticket: Ticket, now: float) -> Impossible | None:
        """Why a call can never be sent; None where it can."""
        if self.quota.is_unlimited(now):
            return None
        ticket.cost = self.quota.charger.estimate(ticket.input_tokens, ticket.max_output)
        return self.quota.never(ticket, now)

    def next_time(self, now: float) -> float:
        """When to call `admit` or `expired` again unless something ends before; `math.inf` for never."""
        ticket = self.queue.first(now)
        if ticket is None:
            return math.inf
        return min(self._ready_at(ticket, now), self.queue.next_deadline())

    def is_hopeless(self, ticket: Ticket, now: float) -> bool:
        """Whether a waiting call cannot go before its deadline, by a wide margin. False where no rate is known."""
        if ticket.deadline == math.inf:
            return False
        return self.seconds_ahead(ticket, now) > HOPELESS * (ticket.deadline - now)

    def seconds_ahead(self, ticket: Ticket, now: float) -> float:
        """About how long it takes to send what is ahead of a waiting call; 0 where no rate is known."""
        calls, tokens = self.queue.place(ticket)
        if calls < 1:
            return 0.0
        seconds = 0.0
        for unit in Unit:
            rate, level = self.quota.believed_rate(unit), self.quota.level(unit, now)
            cost = calls if unit is Unit.REQUESTS else tokens * ticket.cost[unit] / ticket.service
            if 0 < rate < math.inf:
                seconds = max(seconds, (cost - max(0.0, level)) / rate)
        return seconds

    def waiting_for(self, ticket: Ticket, now: float) -> str:
        """Why a call waits, in words, such as `requests of openai/gpt-5, 12 ahead, about 3 s`; empty where it does
        not wait."""
        if ticket.state is not TicketState.QUEUED:
            return ""
        first = self.queue.first(now)
        assert first is not None
        what = self.reason(first, now)
        ahead = int(self.queue.place(ticket)[0])
        seconds = max(self.seconds_ahead(ticket, now), self._ready_at(first, now) - now)
        about = f", about {seconds:.0f} s" if 1 <= seconds < math.inf else ""
        return f"{what}, {ahead} ahead{about}"

    def slot_seconds(self, now: float) -> float:
        """For how many seconds so far the next call has waited for another one to end."""
        return self._slot_seconds + max(0.0, now - self._no_slot_since)

    # --- after it was sent ---

    def confirm(self, ticket: Ticket, report: QuotaReport, now: float) -> None:
        """The head of a response came that is no refusal."""
        self.quota.confirm(ticket, report, now)

    def refuse(self, ticket: Ticket, report: QuotaReport, now: float, *, again: bool = True) -> Refusal:
        """A call was refused by a limit. After `RATE` and `OVERLOAD` it stands at the head of its line again, unless
        `again` is False because it goes to another target."""
        self._release(ticket)
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

    def settle(
        self, ticket: Ticket, usage: Cost | None, now: float, *, tokens: float | None = None, output: float = 0.0
    ) -> None:
        """A call ended.

        usage: its charge in the end (`Charger.settled`); None keeps the estimate.
        tokens: its input and output; None keeps the estimate.
        output: output tokens, of an answer that was not streamed; 0 where unknown.
        """
        self._release(ticket)
        if self.concurrency is not None:
            self.concurrency.end(ticket, now, output)
        self.quota.settle(ticket, usage, now)
        if tokens is not None:
            self.queue.correct(ticket, tokens)

    def fail(self, ticket: Ticket, report: QuotaReport, now: float, *, answered: bool) -> None:
        """A call failed for a reason that is no limit. answered: the server said so; else it may have done the work."""
        usage = None
        if answered:
            self.quota.confirm(ticket, report, now)
            usage = self.quota.charger.failed(ticket.cost)
        self.settle(ticket, usage, now, tokens=0.0)

    def cancel(self, ticket: Ticket, now: float) -> None:
        """A call is given up before its request left: it waits no longer, and holds nothing."""
        if ticket.state is TicketState.QUEUED:
            self.queue.remove(ticket)
            if not self.queue.length:
                self.leave_lines()
        elif ticket.state in (TicketState.SENT, TicketState.CONFIRMED):
            self._release(ticket)
            if self.concurrency is not None:
                self.concurrency.leave(ticket)
            self.quota.release(ticket, now)
            self.queue.correct(ticket, 0.0)

    def answered(self, ticket: Ticket, now: float) -> None:
        """The first token of a streamed answer came."""
        if self.concurrency is not None:
            self.concurrency.first_token(ticket, now)

    # --- seen from outside ---

    @property
    def running(self) -> int:
        """Calls that were sent and have not ended."""
        return self.quota.running

    def statistics(self, now: float) -> ScopeStatistics:
        """The scope in figures."""
        quota, window = self.quota, self.quota.window
        most = [limit.concurrent for limit in self.limits if limit.concurrent is not None]
        if self.concurrency is not None:
            most.append(int(self.concurrency.limit))
        return ScopeStatistics(
            waiting=self.queue.length,
            running=quota.running,
            sent=quota.sent,
            refused=quota.refused,
            reported={name: _figures(reported.bucket, now) for name, reported in quota.reported.items()},
            learned={unit.words: _figures(learned.bucket, now) for unit, learned in quota.learned.items()},
            window=window.size if quota.adaptive else 0,
            unconfirmed=len(window),
            held=max(0.0, quota.hold_until - now),
            spent=max(0.0, quota.spent_until - now),
            concurrent=min(most, default=None),
        )

    # --- what the above have in common ---

    def _ready_at(self, ticket: Ticket, now: float) -> float:
        """When the next call may be sent."""
        ticket.cost = cost = self.quota.charger.estimate(ticket.input_tokens, ticket.max_output)
        at = self.quota.own_ready_at(cost, now)
        slot = now if self.concurrency is None else self.concurrency.ready_at(now)
        own = max(at, slot)
        if self.limits:
            self._note_slot(slot > now or any(limit.is_full for limit in self.limits), now)
            return max(own, self._take_turns(cost, own > now, now))
        self._note_slot(slot > now, now)
        return own

    def _take_turns(self, cost: Cost, held_back: bool, now: float) -> float:
        """When the declared limits let a call go. The scope stands in the line of the one that lets it go last, and in
        no other: it must not keep others waiting for room that it cannot use. held_back: its own limits hold it back.
        """
        last, binding = now, None
        for limit in self.limits:
            ready = limit.ready_at(cost, self, now)
            if ready > last:
                last, binding = ready, limit
        for limit in self.limits:
            if limit is binding and not held_back:
                limit.stand_in_line(self)
            else:
                limit.leave_line(self)
        return last

    def reason(self, ticket: Ticket, now: float) -> str:
        """What holds a call back, in words, where it is the next one."""
        cost = ticket.cost
        full = next((limit for limit in self.limits if limit.is_full), None)
        if full is not None:
            return f"one of {full.concurrent} calls of {full.name} to end"
        if self.concurrency is not None and self.concurrency.ready_at(now) > self.quota.ready_at(cost, now):
            return f"one of {self.concurrency.running} calls of {self.name} to end"
        what = self.quota.waits_for(cost, now)
        return what if what.startswith("declared ") else f"{what or 'its turn'} of {self.name}"

    def _release(self, ticket: Ticket) -> None:
        """It no longer counts as a call that runs."""
        if ticket.state in (TicketState.SENT, TicketState.CONFIRMED):
            for limit in self.limits:
                limit.running -= 1

    def leave_lines(self) -> None:
        """No call waits: others need not wait for this scope's turn."""
        for limit in self.limits:
            limit.leave_line(self)

    def _note_slot(self, missing: bool, now: float) -> None:
        """Count the time for which a slot was missing."""
        if missing:
            self._no_slot_since = min(self._no_slot_since, now)
        elif self._no_slot_since < math.inf:
            self._slot_seconds += now - self._no_slot_since
            self._no_slot_since = math.inf


def _figures(bucket: Bucket, now: float) -> LimitStatistics:
    return LimitStatistics(bucket.rate, bucket.capacity, bucket.fill(now))
