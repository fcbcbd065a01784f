"""When a call may be sent without exceeding what its server allows: reported limits, learned limits, window, hold.

One quota per scope: one key of one host and what shares a limit there. For each unit there are up to two kinds of
bucket. A reported bucket has the limit that a response or the user gave; after its first level it is our own count, as
`remaining` describes a moment that nobody names. A learned bucket is made by the first refusal and kept apart, so that
no later header lifts it.

Knows costs, reports and the time that it is given. Must not know queues, headers, timers or calls.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...providers.charging import Charging
from ...providers.quota_report import MINUTE, QuotaReport, Refusal, ReportedLimit, Unit
from .bucket import Bucket
from .charge import FREE, Charger, Cost
from .learned import FIRST_BACKOFF, LONGEST_BACKOFF, LearnedBucket, first_rate
from .rate_limit import RateLimit, limits_of
from .ticket import Ticket, TicketState
from .window import Window

HOLD = 0.125
"""Seconds of hold after a refusal without a hint."""

LONGEST_HOLD = 5.0
"""A longer hint is often the time until the whole bucket is full; after this the learned bucket decides."""

LONG_WINDOW = 3600.0
"""A limit per hour or more is one bucket of the whole limit: it is not spread over its day."""

NOTED_CHANGE = 0.1
"""A reported limit that changes by less than this part is not written to the log: some servers report another one with
each response."""

LEAST_OF_ESTIMATE = 0.5
"""How much of the estimated input a request has at least."""

SPENT_FOR = 60.0
"""Seconds for which a spent quota fails calls without asking the server, where it does not say how long."""


@dataclass(slots=True)
class ReportedBucket:
    """A bucket whose rate a response or the user gave.

    window: the seconds that the limit's number is for.
    declared: the user gave it.
    noted: the rate that was last written to the log.
    """

    name: str
    unit: Unit
    window: float
    bucket: Bucket
    declared: bool = False
    noted: float = 0.0

    @property
    def limit(self) -> float:
        """What a window allows."""
        return self.bucket.rate * self.window


def reported_bucket(limit: ReportedLimit, now: float, *, declared: bool = False) -> ReportedBucket:
    """A full bucket for a limit, whose number must be known: a minute of it, or all of it where it is for longer; a
    second where the user declared requests per second."""
    number = limit.limit or 0.0
    rate = number / limit.window
    span = limit.window if declared or limit.window >= LONG_WINDOW else MINUTE
    return ReportedBucket(limit.name, limit.unit, limit.window, Bucket(rate, rate * span, rate * span, now), declared)


def declared_buckets(limit: RateLimit, now: float = 0.0, of: str = "") -> tuple[ReportedBucket, ...]:
    """The buckets of a declaration. The same buckets may be given to several quotas, which then share them.

    of: the entry of `rates` that declares them, for their names.
    """
    return tuple(reported_bucket(row, now, declared=True) for row in limits_of(limit, of))


@dataclass(slots=True, frozen=True)
class Impossible:
    """Why a call can never be sent. retry_after: seconds until that may change, -1 where it will not."""

    why: str
    refusal: Refusal
    retry_after: float = -1.0


class Quota:
    """The limits of one scope.

    charger: turns tokens into costs. adaptive: False learns nothing; declared limits hold and hints are obeyed.
    window: the calls that may still be refused.
    hold_until: nothing is sent before that.
    refused, sent: how many calls; a call that is sent again counts again. running: how many have not ended.
    news: what was learned or changed since this list was last emptied, in words.
    """

    def __init__(
        self, charging: Charging, *, declared: tuple[ReportedBucket, ...] = (), adaptive: bool = True, tier: str = ""
    ) -> None:
        self.charger: Charger = Charger(charging)
        self.adaptive = adaptive
        self.tier = tier
        self.window: Window = Window()
        self.hold_until: float = -math.inf
        self.spent_until: float = -math.inf
        self.spent_why: str = ""
        self.sent: int = 0
        self.running: int = 0
        self.refused: int = 0
        self.reported: dict[str, ReportedBucket] = {bucket.name: bucket for bucket in declared}
        self.learned: dict[Unit, LearnedBucket] = {}
        self.outstanding: Cost = FREE
        self.news: list[str] = []
        self._totals = FREE
        self._first_sent_at = math.inf
        self._backoff = FIRST_BACKOFF  # where nothing is learned

    # Before a call is sent.

    def ready_at(self, cost: Cost, now: float) -> float:
        """The earliest time at which a call of this cost may go; `now` where it may go now. An answer, a refusal or an
        end may move that time."""
        at = self.own_ready_at(cost, now)
        for reported in self.reported.values():
            if reported.declared:
                at = max(at, reported.bucket.ready_at(cost[reported.unit], now))
        return at

    def own_ready_at(self, cost: Cost, now: float) -> float:
        """The same without the declared limits, which other quotas may share."""
        self._confirm_overdue(now)
        at = max(now, self.hold_until)
        for reported in self.reported.values():
            if not reported.declared:
                at = max(at, reported.bucket.ready_at(cost[reported.unit], now))
        if self.adaptive:
            for unit, learned in self.learned.items():
                at = max(at, learned.bucket.ready_at(cost[unit], now))
            at = max(at, self.window.ready_at(now))
        return at

    def waits_for(self, cost: Cost, now: float) -> str:
        """What holds a call of this cost back, in words; empty where nothing does."""
        at = self.ready_at(cost, now)
        if at <= now:
            return ""
        if self.hold_until >= at:
            return "the end of a pause that the server asked for"
        for reported in self.reported.values():
            if reported.bucket.ready_at(cost[reported.unit], now) >= at:
                return reported.name
        for unit, learned in self.learned.items():
            if learned.bucket.ready_at(cost[unit], now) >= at:
                return unit.words
        return "the first answers"

    def is_unlimited(self, now: float) -> bool:
        """Whether no limit is known that a call could be too large for."""
        return not self.reported and now >= self.spent_until

    def never(self, ticket: Ticket, now: float) -> Impossible | None:
        """Why a call can never be sent; None where it can.

        What is only believed of its output does not count; and against a limit that the server reports, only a part of
        its input does, since the server counts in another way.
        """
        tokens, output = ticket.input_tokens, ticket.max_output
        sure = self.charger.least(tokens * LEAST_OF_ESTIMATE, output)
        return self.impossible(ticket.cost, now, self.charger.least(tokens, output), sure)

    def impossible(
        self, cost: Cost, now: float, least: Cost | None = None, sure: Cost | None = None
    ) -> Impossible | None:
        """Why a call of this cost can never be sent; None where it can.

        least, sure: what is held against declared limits, and against those that the server reports; default: its cost.
        """
        if now < self.spent_until:
            return Impossible(self.spent_why, Refusal.SPENT, self.spent_until - now)
        for reported in self.reported.values():
            lowest = (least if reported.declared else sure) or cost
            if lowest[reported.unit] > reported.limit * (1 + 1e-9):
                limit = f"{reported.name} ({reported.limit:.6g})"
                return Impossible(f"the request is larger than the whole limit: {limit}", Refusal.TOO_LARGE)
            if reported.window >= LONG_WINDOW:
                wait = reported.bucket.ready_at(cost[reported.unit], now) - now
                if wait > SPENT_FOR:
                    return Impossible(f"used up: {reported.name}", Refusal.SPENT, wait)
        return None

    def reserve(self, ticket: Ticket, now: float) -> None:
        """A call is sent: its cost leaves every bucket. It is sent even where there is no room."""
        cost = ticket.cost
        for reported in self.reported.values():
            reported.bucket.take(cost[reported.unit], now)
        for unit, learned in self.learned.items():
            learned.bucket.take(cost[unit], now)
        self._totals = self._totals.plus(cost)
        self.outstanding = self.outstanding.plus(cost)
        self.window.add(ticket, now)
        self.sent += 1
        self.running += 1
        self._first_sent_at = min(self._first_sent_at, now)
        ticket.charged = cost
        ticket.sent_at = now
        ticket.sent_before = self._totals
        ticket.state = TicketState.SENT

    # After it was sent.

    def confirm(self, ticket: Ticket, report: QuotaReport, now: float) -> None:
        """The head of a response came that is no refusal."""
        self._read(report, ticket, now)
        self._accept(ticket, now)

    def refuse(self, ticket: Ticket, report: QuotaReport, now: float) -> Refusal:
        """A limit refused a call. What it had reserved is given back, and the ticket can be queued again. Returns what
        kind of refusal it was: only after `RATE` the call may wait and go again."""
        self.refused += 1
        self.window.remove(ticket)
        cost = ticket.cost
        refund = cost._replace(requests=0.0) if self.charger.charging.refused_requests else cost
        self._change(ticket, refund, now)
        self._close(ticket)
        self._read(report, ticket, now)
        if report.refusal is Refusal.RATE:
            self._learn(ticket, report, now)
        elif report.refusal is Refusal.SPENT:
            self.spent_until = now + (SPENT_FOR if report.hint is None else max(report.hint, SPENT_FOR))
            self.spent_why = "the provider's quota is used up"
            self.news.append(f"{self.spent_why}, next try in {self.spent_until - now:.0f} s")
        return report.refusal

    def settle(self, ticket: Ticket, usage: Cost | None, now: float) -> None:
        """A call ended. usage: what it was charged in the end (`Charger.settled`); None keeps the estimate."""
        if ticket.state is TicketState.SENT:
            self._accept(ticket, now)
        if usage is not None:
            self._change(ticket, ticket.charged.less(usage), now)
        self._close(ticket)

    def release(self, ticket: Ticket, now: float) -> None:
        """A call was given up before its request left: everything is given back."""
        self.window.remove(ticket)
        self._change(ticket, ticket.charged, now)
        self._totals = self._totals.less(ticket.charged)
        self._close(ticket)

    def believed_rate(self, unit: Unit) -> float:
        """What may be sent per second, as far as is known; `math.inf` where nothing is known."""
        learned = self.learned.get(unit)
        return min(self._reported_rate(unit), math.inf if learned is None else learned.rate)

    def level(self, unit: Unit, now: float) -> float:
        """How much may be sent now, as far as is known; `math.inf` where nothing is known."""
        levels = [reported.bucket.fill(now) for reported in self.reported.values() if reported.unit is unit]
        if unit in self.learned:
            levels.append(self.learned[unit].bucket.fill(now))
        return min(levels, default=math.inf)

    # What the above have in common.

    def _confirm_overdue(self, now: float) -> None:
        while (ticket := self.window.overdue(now)) is not None:
            self._accept(ticket, now)

    def _accept(self, ticket: Ticket, now: float) -> None:
        if not self.window.confirm(ticket):
            return
        ticket.state = TicketState.CONFIRMED
        self._backoff = FIRST_BACKOFF
        for unit, learned in self.learned.items():
            learned.accept(ticket.cost[unit], self._reported_rate(unit), now)

    def _change(self, ticket: Ticket, refund: Cost, now: float) -> None:
        """Give back to every bucket that the call was charged to. A reported bucket made later counts: the rest that it
        was made from had the call's charge taken off."""
        for reported in self.reported.values():
            reported.bucket.give_back(refund[reported.unit], now)
        for unit, learned in self.learned.items():
            if ticket.sent_at > learned.made_at:
                learned.give_back(refund[unit], now)

    def _close(self, ticket: Ticket) -> None:
        if ticket.state in (TicketState.SENT, TicketState.CONFIRMED):
            self.running -= 1
        if ticket.charged is not FREE:
            self.outstanding = self.outstanding.less(ticket.cost)
        ticket.charged = FREE
        ticket.state = TicketState.ENDED

    def _read(self, report: QuotaReport, ticket: Ticket, now: float) -> None:
        """Learn the limits that a response reports."""
        if not self.adaptive:
            return
        for limit in report.limits:
            # 0 of 0 is how servers spell "unknown", and a rest without a limit has no rate.
            if limit.limit and limit.tier == self.tier:
                self._read_limit(limit, limit.limit / limit.window, ticket, now)

    def _read_limit(self, limit: ReportedLimit, rate: float, ticket: Ticket, now: float) -> None:
        reported = self.reported.get(limit.name)
        since = self._totals[limit.unit] - ticket.sent_before[limit.unit]
        if reported is None:
            reported = self.reported[limit.name] = reported_bucket(limit, now)
            bucket = reported.bucket
            if limit.remaining is None:
                bucket.level = bucket.capacity - self._totals[limit.unit]
            else:
                bucket.level = min(bucket.capacity, limit.remaining - since)
            self._note(reported, "reported")
            return
        bucket = reported.bucket
        if abs(rate - bucket.rate) > 1e-9 * rate:
            bucket.scale(rate, now)
            if abs(rate - reported.noted) > NOTED_CHANGE * reported.noted:
                self._note(reported, "changed")
        if self.charger.charging.settlement == "unknown" and limit.remaining is not None:
            bucket.level = max(bucket.fill(now), min(bucket.capacity, limit.remaining - since))

    def _note(self, reported: ReportedBucket, what: str) -> None:
        reported.noted = reported.bucket.rate
        self.news.append(f"limit {what}: {reported.name}, {reported.limit:.6g} in {reported.window:g} s")

    def _reported_rate(self, unit: Unit) -> float:
        rates = (reported.bucket.rate for reported in self.reported.values() if reported.unit is unit)
        return min(rates, default=math.inf)

    def _learn(self, ticket: Ticket, report: QuotaReport, now: float) -> None:
        if not self.adaptive:
            # No learned rate takes over when the hold ends: the hint is obeyed in full.
            hold = self._backoff if report.hint is None else report.hint
            self._backoff = min(LONGEST_BACKOFF, 2.0 * self._backoff)
            self.hold_until = max(self.hold_until, now + hold)
            return
        hold = HOLD if report.hint is None else min(report.hint, LONGEST_HOLD)
        unit = self._refused_by(ticket.cost, report, now)
        cost = ticket.cost[unit]
        learned = self.learned.get(unit)
        if learned is None:
            rate = first_rate(self._reported_rate(unit), self._totals[unit], now - self._first_sent_at)
            learned = self.learned[unit] = LearnedBucket(rate, cost, now)
            self.news.append(f"limit learned from a refusal: {unit.words}, {rate:.3g} a second")
        elif ticket.sent_at > learned.cut_at:
            before = learned.rate
            hold = max(hold, learned.refuse(cost, now))
            if learned.rate < before:
                self.news.append(f"learned limit cut after a refusal: {unit.words}, {learned.rate:.3g} a second")
        self.hold_until = max(self.hold_until, now + hold)
        learned.hold(cost, self.hold_until, now)

    def _refused_by(self, cost: Cost, report: QuotaReport, now: float) -> Unit:
        """Whose limit a refusal is: the one that it names, else the one with the least left per cost."""
        if report.refused_by is not None:
            return report.refused_by
        least, found = math.inf, Unit.REQUESTS
        for reported in self.reported.values():
            if cost[reported.unit] > 0:
                left = reported.bucket.fill(now) / cost[reported.unit]
                if left < least:
                    least, found = left, reported.unit
        return found
