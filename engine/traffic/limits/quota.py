"""Decides when a call may be sent within its server's limits: reported limits, learned limits, window, hold.

There is one quota per limiter, that is, per key of one host and group of models that share a limit there. Each unit has
up to two kinds of buckets. A reported bucket has a limit from a response or from the user. Only its first level comes
from `remaining`; later levels are counted here, because a server does not report the time at which `remaining` was
true. The first refusal makes a learned bucket. It is separate, so that no later header raises its rate.

Nothing but the window protects a server whose limits are unknown: when its bucket is empty, it refuses what is sent
until the first refusal comes back. So the window grows only with calls that were accepted, as TCP does in slow start,
as far as little is sent in the time of a refusal. What it allows is spread over the time in which a call is confirmed
instead of being sent at once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import add, sub

from ....providers.limits.charging import Charging
from ....providers.limits.quota_report import MINUTE, SECOND, QuotaReport, Refusal, ReportedLimit, Unit
from ...call.next_step import hinted_pause
from ..queue.fair_queue import CONFIRMED, ENDED, FREE, SENT, UNDER_WAY, Cost, Mean, Permit, cost_of
from .bucket import (
    FIRST_BACKOFF,
    LONG_WINDOW,
    LONGEST_BACKOFF,
    Bucket,
    LearnedBucket,
    ReportedBucket,
    first_rate,
    reported_bucket,
)

START = 10
"""The size of the window at the start, in calls."""

UNTRIED = 50.0
UNTRIED_PART = 0.1
"""While no limit is known, so many calls are sent in the time of a refusal, or this part of all calls so far if that is
more. A server whose bucket is empty refuses all of them, so about this part of what was sent."""

REFUSED_FASTER = 10.0
"""A refusal comes in this part of the time of an answer, or in that of the head of a response if that is less. So a
server without limits is used in full after about three times that of an answer."""

AHEAD = 3.0
"""The window grows up to this many times the calls that a known limit allows while one call is unconfirmed.

Calls beyond the limit's rate come out of the server's bucket, whose size is not known. When that is empty, the server
refuses the whole window.
"""

BATCH = 1 / 32
"""The part of the window that is sent in one go, so that a fast start does not take a timer for each call."""

LEAST = 1e-3
"""The least time in seconds in which a call is confirmed, for the pace."""

CONFIRMED_AFTER = 0.5
"""Seconds without a refusal after which a call counts as accepted. The headers of an unstreamed response arrive only
when the whole response is ready."""


class Window:
    """The calls that were sent and may still be refused.

    limits: whether its size limits the calls; else it only remembers them.

    The window grows with each confirmed call, while at least half of it is in use. It stays near a known limit. While
    none is known and no call was refused, it grows faster with each answer, as far as `UNTRIED` allows.
    """

    __slots__ = ("_answer", "_pace", "_seconds", "_sent", "_size", "_unconfirmed", "_used_at", "limits")

    def __init__(self, *, limits: bool = True) -> None:
        self.limits: bool = limits
        self._size = float(START)
        self._sent = 0
        self._seconds = Mean(CONFIRMED_AFTER)  # until a call is confirmed
        self._answer = Mean()  # seconds until a call is answered in full
        self._pace = Bucket(START / CONFIRMED_AFTER, START, START, -math.inf)
        self._unconfirmed: OrderedDict[Permit, float] = OrderedDict()
        self._used_at = -math.inf  # when at least half of the window was in use

    def __len__(self) -> int:
        return len(self._unconfirmed)

    def __iter__(self) -> Iterator[Permit]:
        return iter(self._unconfirmed)

    @property
    def answer_seconds(self) -> float:
        """The mean seconds until a call is answered in full; 0 before the first answer."""
        return self._answer.value

    @property
    def size(self) -> int:
        """The largest number of unconfirmed calls."""
        return int(self._size)

    def add(self, permit: Permit, now: float) -> None:
        """Add a call that is sent."""
        self._unconfirmed[permit] = now + CONFIRMED_AFTER
        self._sent += 1
        if not self.limits:
            return
        self._pace.take(1.0, now)
        if 2 * len(self._unconfirmed) >= int(self._size):
            self._used_at = now

    def confirm(self, permit: Permit, calls_per_second: float, now: float) -> bool:
        """Remove a call that the server accepted. Return False if it was not in the window.

        calls_per_second: the calls that the known limits allow; `math.inf` if none is known.
        """
        until = self._unconfirmed.pop(permit, None)
        if until is None:
            return False
        sent_at = until - CONFIRMED_AFTER
        self._seconds.include(now - sent_at)
        if self._used_at >= sent_at:
            self._grow(1.0, calls_per_second)
        self._pace.give_back(1.0, now)
        self._set_pace()
        return True

    def answered(self, sent_at: float, calls_per_second: float, now: float) -> None:
        """Grow with a call that was answered in full: a refusal would have come much earlier."""
        self._answer.include(now - sent_at)
        if calls_per_second == math.inf and self._used_at >= sent_at:
            self._grow(UNTRIED, calls_per_second)
            self._set_pace()

    def _grow(self, calls: float, calls_per_second: float) -> None:
        seconds = self._seconds.value
        if calls_per_second < math.inf:
            most = max(START, AHEAD * calls_per_second * seconds)
        else:
            times = REFUSED_FASTER * seconds / max(LEAST, self._answer.value) if self._answer.count else 1.0
            most = max(UNTRIED, UNTRIED_PART * self._sent) * max(1.0, times)
        self._size = max(self._size, min(most, self._size + calls))

    def _set_pace(self) -> None:
        self._pace.rate = self._size / max(LEAST, self._seconds.value)
        self._pace.capacity = max(START, BATCH * self._size)

    def remove(self, permit: Permit, *, was_sent: bool = True) -> None:
        """Remove a call that was refused or cancelled. The window does not grow."""
        if self._unconfirmed.pop(permit, None) is not None and not was_sent:
            self._pace.level += 1.0

    def before(self, permit: Permit) -> Iterator[Permit]:
        """Yield the unconfirmed calls that were sent before this one. The server may receive them later."""
        older = self._unconfirmed if permit in self._unconfirmed else ()  # else all were sent later
        return takewhile(lambda call: call is not permit, older)

    def overdue(self, now: float) -> Permit | None:
        """Return the oldest call if it counts as accepted, because no refusal came for `CONFIRMED_AFTER` seconds."""
        for permit, until in self._unconfirmed.items():
            return permit if until <= now else None
        return None

    def ready_at(self, now: float) -> float:
        """Return the latest time at which the window has room; `now` if it has one."""
        if not self.limits:
            return now
        if len(self._unconfirmed) >= self.size:
            return next(iter(self._unconfirmed.values()), math.inf)
        if self._pace.fill(now) >= 1.0:
            return now
        return self._pace.ready_at(max(1.0, BATCH * self._size), now)


DEFAULT_OUTPUT = 512.0
"""The estimated output tokens of a call before any call has ended. A smaller `max_tokens` takes its place."""

HOLD = 0.125
"""Seconds without new calls after a refusal that names no time to wait."""

LONGEST_HOLD = 5.0
"""The longest hold in seconds. A longer hint is often the time until the server's whole bucket is full. After the hold,
the learned bucket limits the rate."""

LONGEST_PAUSE = 120.0
"""The longest hold of a quota that is not adaptive, in seconds. There, nothing but the hold limits the rate."""

NOTED_CHANGE = 0.1
"""Changes of a reported limit by less than this part are not logged, as some servers report another limit with each
response."""

SPARE = 0.02
"""The part of a bucket of known size that is not used, because calls overtake each other on their way to the server."""

LEAST_OF_ESTIMATE = 0.5
"""The smallest part of the estimated input tokens that a request really has."""

REFUSALS_OF_CACHED = 5
"""Refusals of a call after which its input counts against whole limits of a server that counts no cached input."""

EXCEEDED = 2.0
"""A reported limit of which the server has answered so many times as much since its latest refusal is none; one of
requests a minute may be one of a second. Windows that begin at set times let through twice the limit."""

LEAST_REPORTED = 61.0
"""Seconds in which a reported limit allows at least one call like the one with whose response it came, or its window if
that is longer. Less is a mistake of the server, and would hold calls back for hours. In a minute it is less than one,
so that an accepted call refutes it."""

_REQUEST = FREE._replace(requests=1.0)

FLOORED = (Unit.REQUESTS, Unit.OUTPUT_TOKENS)
"""The units of which that is known. The input may be counted in another way: `_without_refuted` compares it."""

SPENT_FOR = 60.0
"""Seconds for which calls fail without a request after the server reported a used-up quota, whatever it hints. A
reported limit that fails all calls counts for as long. Then one call asks the server whether it has changed."""


@dataclass(slots=True, frozen=True)
class Impossible:
    """The reason why a call cannot be sent within its limits, however long it waits.

    why: the reason in words.
    retry_after: seconds until the limit may allow the call; -1 if that is not known or never.
    """

    why: str
    refusal: Refusal
    retry_after: float = -1.0


class Quota:
    """The limits of one limiter.

    charging: how the server counts requests and tokens.
    output: the output tokens of a call, learned from ended calls.
    adaptive: True: learn limits; False: only declared limits and the hints of refusals apply.
    window: the calls that were sent and may still be refused.
    hold_until: the time before which nothing is sent.
    spent_until: the time until which calls fail because the provider's quota is used up.
    spent_why: the reason for `spent_until`, in words.
    sent: the number of requests sent; a call that is sent again counts again.
    running: the number of calls that were sent and have not ended.
    refused: the number of refusals.
    reported: the reported and declared buckets, by name.
    learned: the learned buckets, by unit.
    news: messages for the log, about limits that were learned or changed since the list was last emptied.
    """

    def __init__(self, charging: Charging, *, declared: tuple[ReportedBucket, ...] = (), adaptive: bool = True) -> None:
        self.charging: Charging = charging
        self.output: Mean = Mean(DEFAULT_OUTPUT)
        self.adaptive = adaptive
        self.window: Window = Window(limits=adaptive)
        self.hold_until: float = -math.inf
        self.spent_until: float = -math.inf
        self.spent_why: str = ""
        self.sent: int = 0
        self.running: int = 0
        self.refused: int = 0
        self.reported: dict[str, ReportedBucket] = {bucket.name: bucket for bucket in declared}
        self.learned: dict[Unit, LearnedBucket] = {}
        self.news: list[str] = []
        self._per_second: set[str] = set()  # names of reported limits that are no limits of a minute
        self._refuted: dict[str, float] = {}  # reported limit → more than that was used by one call
        self._exceeded: dict[str, float] = {}  # the same → by the calls since the latest refusal
        self._totals = FREE
        self._refused_cost = FREE  # that the server did not count
        self._begun = math.inf  # when the first call was sent, or the latest refusal came
        self._answered = FREE  # what the server has answered of calls since then
        self._first_sent_at = math.inf
        self._last_sent_at = -math.inf
        self._refusals = 0  # in a row; those of calls that were sent together count as one
        self._refused_at = -math.inf

    # --- what calls cost ---

    def estimate(self, permit: Permit) -> Cost:
        """Return the estimated charge of a call before it is sent."""
        output, mean = permit.max_output, self.output.value
        if output is None or (self.charging.output == "produced" and output > mean):
            output = mean
        return self._cost(permit.input_tokens, output)

    def least(self, input_tokens: float, max_output: float | None) -> Cost:
        """Return the smallest charge of a call: its input, and its `max_tokens` if the server reserves output."""
        reserved = self.charging.output == "reserved" and max_output is not None
        return self._cost(input_tokens, (max_output or 0.0) if reserved else 0.0)

    def settled(self, input_tokens: float, cached: float, output: float) -> Cost:
        """Return what a call has used that ended with this usage, and update the mean output.

        input_tokens: all tokens of the prompt.
        cached: the tokens of the prompt that the server read from its cache.
        output: the tokens of the response.
        """
        self.output.include(output)
        counted = input_tokens if self.charging.cached_input else max(0.0, input_tokens - cached)
        return Cost(1.0, counted, output, counted + output)

    def used_by_failed(self, charge: Cost) -> Cost:
        """Return what a call has used that the server answered with an error. charge: what it was charged."""
        return FREE._replace(requests=charge.requests)

    def _cost(self, input_tokens: float, output: float) -> Cost:
        combined = input_tokens + output
        if self.charging.combined == "larger":
            combined = input_tokens if input_tokens > output else output
        return cost_of(Cost, (1.0, input_tokens, output, combined))

    # --- before a call is sent ---

    def ready_at(self, cost: Cost, now: float) -> float:
        """Return the earliest time at which a call of this cost may be sent; `now` if it may be sent now.

        A response, a refusal or the end of another call may change that time.
        """
        at = self.own_ready_at(cost, now)
        for reported in self.reported.values():
            if reported.declared:
                at = max(at, reported.bucket.ready_at(cost[reported.unit], now))
        return at

    def own_ready_at(self, cost: Cost, now: float) -> float:
        """Return the earliest time at which a call of this cost may be sent, without regard to declared limits."""
        self._confirm_overdue(now)
        at = max(now, self.hold_until)
        silent = self._is_silent(now)
        if self.adaptive:
            at = max(at, self.window.ready_at(now))
        for reported in self.reported.values():
            if not reported.declared and not (silent and reported.window >= LONG_WINDOW):
                at = max(at, reported.bucket.ready_at(cost[reported.unit], now))
        if self.adaptive:
            for unit, learned in self.learned.items():
                at = max(at, learned.ready_at(cost[unit], now))
        return at

    def fits_at_once(self, cost: Cost, now: float) -> bool:
        """Return True if a call of this cost may be sent now and is larger than no whole limit.

        It costs a part of what `never` and `ready_at` cost. False proves nothing: those two decide then.
        """
        if now < self.hold_until or now < self.spent_until:
            return False
        for reported in self.reported.values():
            amount = cost[reported.unit]
            if amount > reported.limit or reported.bucket.ready_at(amount, now) > now:
                return False
        if self.adaptive:
            for unit, learned in self.learned.items():
                if learned.ready_at(cost[unit], now) > now:
                    return False
            self._confirm_overdue(now)
            return self.window.ready_at(now) <= now
        return True

    def waits_for(self, cost: Cost, now: float) -> str:
        """Return what a call of this cost waits for, in words; "" if it may be sent now."""
        at = self.ready_at(cost, now)
        if at <= now:
            return ""
        if self.hold_until >= at:
            return "the end of a pause that the server asked for"
        for reported in self.reported.values():
            if reported.bucket.ready_at(cost[reported.unit], now) >= at:
                return reported.name
        for unit, learned in self.learned.items():
            if learned.ready_at(cost[unit], now) >= at:
                return unit.words
        return "the first responses"

    def never(self, permit: Permit, now: float) -> Impossible | None:
        """Return why a call can never be sent; None if it can be. Estimated output is not counted."""
        if now < self.spent_until:
            return Impossible(self.spent_why, Refusal.SPENT, self.spent_until - now)
        if not self.reported:
            return None
        cost, sure = self.estimate(permit), self._sure_cost(permit)
        least, silent = self.least(permit.input_tokens, permit.max_output), self._is_silent(now)
        for reported in self.reported.values():
            if silent and not reported.declared:
                continue
            lowest = least if reported.declared else sure
            # Every call is one request. A limit below 1 is a rate, or a mistake: it delays calls, and forbids none.
            is_rate = reported.unit is Unit.REQUESTS and reported.limit > 0
            if not is_rate and lowest[reported.unit] > reported.limit * (1 + 1e-9):
                limit = f"{reported.name} ({reported.limit:.6g})"
                return Impossible(f"the request is larger than the whole limit: {limit}", Refusal.TOO_LARGE)
            if reported.window >= LONG_WINDOW and not reported.whole:
                wait = reported.bucket.ready_at(cost[reported.unit], now) - now
                if wait > SPENT_FOR:
                    return Impossible(f"used up: {reported.name}", Refusal.SPENT, wait)
        return None

    def reserve(self, permit: Permit, now: float) -> None:
        """Record that a call is sent, and take its cost out of every bucket, even if the level becomes negative."""
        cost = permit.cost
        self.window.add(permit, now)
        for reported in self.reported.values():
            reported.bucket.take(cost[reported.unit], now)
        if self.adaptive:
            for unit, learned in self.learned.items():
                learned.take(cost[unit], now)
            self._totals = cost_of(Cost, map(add, self._totals, cost))
        self.sent += 1
        self.running += 1
        if now < self._first_sent_at:
            self._first_sent_at = self._begun = now
        self._last_sent_at = now
        permit.sent_at = now
        permit.sent_before = self._totals
        permit.state = SENT

    # --- after a call was sent ---

    def confirm(self, permit: Permit, report: QuotaReport, now: float, *, accepted: bool = True) -> None:
        """Record the head of a response that is not a refusal. `accepted`: it is no error either."""
        if accepted:
            report = self._without_refuted(report, permit)
            self._count(_REQUEST, permit, now)
        self._read(report, permit, now)
        self._accept(permit, now)

    def refuse(self, permit: Permit, report: QuotaReport, now: float) -> Refusal:
        """Record that a limit refused a call, return its cost to the buckets, and return the kind of refusal.

        Only after `RATE` may the call wait and be sent again.
        """
        self.refused += 1
        self.window.remove(permit)
        cost = permit.cost
        refund = cost._replace(requests=0.0) if self.charging.refused_requests else cost
        self._change(permit, refund, now)
        self._refused_cost = cost_of(Cost, map(add, self._refused_cost, refund))
        self._close(permit)
        if report.refusal is Refusal.RATE:
            self._begun, self._answered = now, FREE
            self._exceeded.clear()
        self._read(report, permit, now)
        if report.refusal is Refusal.RATE:
            self._learn(permit, report, now)
        elif report.refusal is Refusal.SPENT:
            self.spent_until = now + SPENT_FOR
            self.spent_why = "the provider's quota is used up"
            self.news.append(f"{self.spent_why}, next try in {SPENT_FOR:.0f} s")
        return report.refusal

    def settle(self, permit: Permit, usage: Cost | None, now: float, *, answered: bool = True) -> None:
        """Record that a call ended.

        usage: what it used (`settled`); None: its charge is kept. Declared limits count what was used. The
            server's own limits keep the charge if its settlement is unknown.
        answered: it ended with its answer.
        """
        if permit.state is SENT:
            self._accept(permit, now)
        if answered and not self.refused:
            self.window.answered(permit.sent_at, self._calls_per_second(permit.cost), now)
        if usage is not None:
            declared_only = self.charging.settlement == "unknown"
            refund = cost_of(Cost, map(sub, permit.charged, usage))
            self._change(permit, refund, now, declared_only=declared_only)
            if answered:
                self._refute(usage, now - permit.sent_at)
                self._count(usage._replace(requests=0.0), permit, now)
        self._close(permit)

    def release(self, permit: Permit, now: float) -> None:
        """Return the whole cost of a call that was given up before its request was sent."""
        self.sent -= 1
        self.window.remove(permit, was_sent=False)
        self._change(permit, permit.cost, now)
        if self.adaptive:
            self._totals = cost_of(Cost, map(sub, self._totals, permit.cost))
        self._close(permit)

    def believed_rate(self, unit: Unit) -> float:
        """Return the units that may be sent per second; `math.inf` if no limit is known."""
        learned = self.learned.get(unit)
        return min(self._reported_rate(unit), math.inf if learned is None else learned.rate)

    def level(self, unit: Unit, now: float) -> float:
        """Return the units that may be sent now; `math.inf` if no limit is known."""
        levels = [reported.bucket.fill(now) for reported in self.reported.values() if reported.unit is unit]
        if unit in self.learned:
            levels.append(self.learned[unit].fill(now))
        return min(levels, default=math.inf)

    # --- shared by the methods above ---

    def _is_silent(self, now: float) -> bool:
        """Return True if nothing was sent for so long that the server's limits may be other ones by now."""
        return now - self._last_sent_at >= SPENT_FOR

    def _confirm_overdue(self, now: float) -> None:
        while (permit := self.window.overdue(now)) is not None:
            self._accept(permit, now)

    def _accept(self, permit: Permit, now: float) -> None:
        if not self.window.confirm(permit, self._calls_per_second(permit.cost), now):
            return
        permit.state = CONFIRMED
        self._refusals = 0
        for unit, learned in self.learned.items():
            learned.accept(permit.cost[unit], self._reported_rate(unit), now)

    def _change(self, permit: Permit, refund: Cost, now: float, *, declared_only: bool = False) -> None:
        """Return `refund` to every bucket that the call was charged to, or to those of declared limits only.

        These include reported buckets that were made after the call was sent: the server had subtracted the call's
        charge from the `remaining` from which the bucket was made.
        """
        for reported in self.reported.values():
            if reported.declared or not declared_only:
                reported.bucket.give_back(refund[reported.unit], now)
        if declared_only or not self.learned:
            return
        for unit, learned in self.learned.items():
            if permit.sent_at > learned.made_at:
                learned.give_back(refund[unit], now)

    def _close(self, permit: Permit) -> None:
        if permit.state in UNDER_WAY:
            self.running -= 1
        permit.state = ENDED

    def _read(self, report: QuotaReport, permit: Permit, now: float) -> None:
        if not self.adaptive:
            return
        for limit in report.limits:
            # Servers report an unknown limit as 0 of 0. A `remaining` without a limit has no rate. The limits of other
            # service tiers than the usual one are left out.
            refuted = max(self._refuted.get(limit.name, 0.0), self._exceeded.get(limit.name, 0.0))
            if limit.limit and limit.limit > refuted and not limit.tier:
                least = permit.cost[limit.unit] / max(1.0, LEAST_REPORTED / limit.window)
                if limit.limit < least and limit.unit in FLOORED:
                    limit = replace(limit, limit=least, remaining=None)
                self._read_limit(limit, permit, now)

    def _read_limit(self, limit: ReportedLimit, permit: Permit, now: float) -> None:
        if limit.name in self._per_second:
            limit = replace(limit, window=SECOND)
        is_new, number, answered = limit.name not in self.reported, limit.limit or 0.0, self._answered[limit.unit]
        if is_new and self._drop_exceeded(limit, number, answered, self._begun, now):
            if limit.name not in self._exceeded:
                self._read_limit(limit, permit, now)
            return
        self._read_number(limit, permit, now)
        reported = self.reported[limit.name]
        if limit.reset and not reported.declared and reported.window < LONG_WINDOW:
            # All of the limit is left again by then, so one more call of this cost has room, whatever the window is. A
            # learned bucket that was not cut knows no better.
            cost = permit.cost[limit.unit]
            for bucket in (reported.bucket, self.learned.get(limit.unit)):
                if bucket is not None and bucket.rate >= reported.rate:
                    level = min(cost, bucket.capacity) - bucket.rate * max(limit.reset, 0.0)
                    bucket.level = max(bucket.fill(now), level)

    def _count(self, used: Cost, permit: Permit, now: float) -> None:
        """Count what the server has answered, and forget the reported limits that it exceeds, also with answers that
        report nothing."""
        if permit.sent_at >= self._begun:
            self._answered = cost_of(Cost, map(add, self._answered, used))
        for reported in [*self.reported.values()]:
            if not reported.declared and permit.sent_at >= reported.begun:
                reported.answered += used[reported.unit]
                self._drop_exceeded(reported, reported.limit, reported.answered, reported.begun, now)

    def _drop_exceeded(
        self, of: ReportedLimit | ReportedBucket, number: float, answered: float, since: float, now: float
    ) -> bool:
        """Forget a reported limit if more was answered since a time. Return whether it was."""
        if answered <= EXCEEDED * number * (1.0 + max(0.0, now - since) / of.window):
            return False
        self.reported.pop(of.name, None)
        if of.unit is Unit.REQUESTS and of.window == MINUTE:
            self._per_second.add(of.name)
        else:
            self._exceeded[of.name] = number
        return True

    def _read_number(self, limit: ReportedLimit, permit: Permit, now: float) -> None:
        reported, age, rate = self.reported.get(limit.name), now - permit.sent_at, (limit.limit or 0.0) / limit.window
        if reported is None:
            reported = self.reported[limit.name] = reported_bucket(limit, now)
            bucket = reported.bucket
            if limit.remaining is None:
                level = bucket.capacity - self._totals[limit.unit]
            else:
                left = self._left_now(reported, limit.remaining, permit, now)
                level = min(bucket.capacity, left + self._refused_cost[limit.unit])
            bucket.level = max(level, self._least_level(limit.unit, permit))
            reported.as_of = permit.sent_at
            reported.begun, reported.answered = self._begun, self._answered[limit.unit]
            reported.size.read(limit, age)
            self._note(reported, "reported")
            return
        bucket = reported.bucket
        if permit.sent_at >= reported.as_of:
            reported.as_of = permit.sent_at
            if abs(rate - bucket.rate) > 1e-9 * rate:
                bucket.scale(rate, now)
                reported.begun, reported.answered = now, 0.0
                if abs(rate - reported.noted) > NOTED_CHANGE * reported.noted:
                    self._note(reported, "changed")
        is_smaller = reported.size.read(limit, age)
        is_smaller = is_smaller and reported.size.seconds < reported.window < LONG_WINDOW
        # A day is one bucket, which may be full again at once, at the server's midnight.
        may_rise = reported.window >= LONG_WINDOW or self.charging.settlement == "unknown"
        if limit.remaining is not None and (is_smaller or may_rise):
            self._correct_level(reported, limit.remaining, permit, now, is_smaller=is_smaller)

    def _correct_level(
        self, reported: ReportedBucket, remaining: float, permit: Permit, now: float, *, is_smaller: bool
    ) -> None:
        """Set a bucket's level by the amount that a response reports: raise it, or lower it in a smaller bucket."""
        bucket, unit = reported.bucket, reported.unit
        # The server may receive calls that were sent earlier after this one.
        overtaken = sum(call.cost[unit] for call in self.window.before(permit))
        part = reported.size.seconds / reported.window
        if part >= 1.0 or reported.window >= LONG_WINDOW:
            bucket.level = max(bucket.fill(now), self._left_now(reported, remaining, permit, now) - overtaken)
            return
        bucket.capacity = min(bucket.capacity, reported.limit * part)
        left = self._left_now(reported, remaining * part, permit, now) - overtaken - SPARE * bucket.capacity
        left = max(left, self._least_level(unit, permit))
        bucket.level = (min if is_smaller else max)(bucket.fill(now), left)

    def _left_now(self, reported: ReportedBucket, remaining: float, permit: Permit, now: float) -> float:
        """Return the least that can be left now of what was left when the server received a call.

        The report of an unstreamed response is as old as the response took: much was sent, and flowed in, since then.
        """
        bucket = reported.bucket
        most = max(remaining, min(bucket.capacity, remaining + bucket.rate * (now - permit.sent_at)))
        return min(bucket.capacity, most - (self._totals[reported.unit] - permit.sent_before[reported.unit]))

    def _least_level(self, unit: Unit, permit: Permit) -> float:
        """Return the lowest level that the server's bucket can have, whose report came with the response to this call.

        Calls that the server accepted left it at 0 or more, however many they were. Only unconfirmed ones may follow.
        """
        return -sum(call.cost[unit] for call in self.window if call is not permit)

    def _sure_cost(self, permit: Permit) -> Cost:
        """Return the cost of a call that is compared with whole limits that the server reports.

        Of the input, `LEAST_OF_ESTIMATE` is counted, because the server counts tokens in another way. If it does not
        count input from its cache, no input is counted until the call was refused `REFUSALS_OF_CACHED` times.
        """
        may_be_cached = not self.charging.cached_input and permit.refusals < REFUSALS_OF_CACHED
        tokens = 0.0 if may_be_cached else permit.input_tokens * LEAST_OF_ESTIMATE
        return self.least(tokens, permit.max_output)

    def _without_refuted(self, report: QuotaReport, permit: Permit) -> QuotaReport:
        """Forget reported limits that are smaller than a call that the server has accepted. Return the other ones of
        its report."""
        cost = permit.cost
        known = [one for one in self.reported.values() if not one.declared and cost[one.unit] > one.limit]
        if not known and all(cost[limit.unit] <= (limit.limit or 0.0) for limit in report.limits):
            return report
        sure = self._sure_cost(permit)
        for one in known:
            if sure[one.unit] > one.limit * (1 + 1e-9):
                del self.reported[one.name]
                self.news.append(f"limit ignored, a larger call was accepted: {one.name}, {one.limit:.6g}")
        limits = (limit for limit in report.limits if sure[limit.unit] <= (limit.limit or 0.0))
        return replace(report, limits=tuple(limits))

    def _refute(self, usage: Cost, seconds: float) -> None:
        """Forget reported limits that are smaller than what one call has used that was answered, in `seconds`."""
        for one in [each for each in self.reported.values() if usage[each.unit] > each.limit and not each.declared]:
            used = usage[one.unit]
            if one.unit >= Unit.OUTPUT_TOKENS and seconds > one.window:  # not all of it was made in one window
                used -= usage.output_tokens * (1.0 - one.window / seconds)
            if used > one.limit * (1 + 1e-9):
                del self.reported[one.name]
                self._refuted[one.name] = used
                self.news.append(f"limit ignored, one call has used {used:.6g}: {one.name}, {one.limit:.6g}")

    def _note(self, reported: ReportedBucket, what: str) -> None:
        reported.noted = reported.bucket.rate
        self.news.append(f"limit {what}: {reported.name}, {reported.limit:.6g} in {reported.window:g} s")

    def _reported_rate(self, unit: Unit) -> float:
        rates = (reported.rate for reported in self.reported.values() if reported.unit is unit)
        return min(rates, default=math.inf)

    def _calls_per_second(self, cost: Cost) -> float:
        """Return the calls of this cost that the known limits allow per second; `math.inf` if none is known."""
        rates = (
            reported.bucket.rate / cost[reported.unit]
            for reported in self.reported.values()
            if cost[reported.unit] > 0 and reported.window < LONG_WINDOW
        )
        return min(rates, default=math.inf)

    def _learn(self, permit: Permit, report: QuotaReport, now: float) -> None:
        if not self.adaptive:
            # No learned rate limits the calls after the hold, so the hold lasts for the whole hint.
            if permit.sent_at > self._refused_at:
                self._refusals += 1
                self._refused_at = now
            if report.hint is None:
                hold = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(self._refusals - 1, 60))
            else:
                hold = hinted_pause(report.hint, self._refusals - 1, LONGEST_PAUSE)
            self.hold_until = max(self.hold_until, now + hold)
            return
        hold = HOLD if report.hint is None else hinted_pause(report.hint, 0, LONGEST_HOLD)
        unit = self._refused_by(permit.cost, report, now)
        cost = permit.cost[unit]
        learned = self.learned.get(unit)
        if learned is None:
            reported = self._reported_rate(unit)
            rate = first_rate(reported, self._totals[unit], now - self._first_sent_at)
            learned = self.learned[unit] = LearnedBucket(rate, cost, now, reported)
            self.news.append(f"limit learned from a refusal: {unit.words}, {learned.rate:.3g} a second")
        elif permit.sent_at > learned.cut_at:
            before = learned.rate
            hold = max(hold, learned.refuse(cost, self._reported_rate(unit), now))
            if learned.rate < before:
                self.news.append(f"learned limit cut after a refusal: {unit.words}, {learned.rate:.3g} a second")
        self.hold_until = max(self.hold_until, now + hold)
        learned.hold(cost, self.hold_until, now)

    def _refused_by(self, cost: Cost, report: QuotaReport, now: float) -> Unit:
        """Return the unit whose limit refused a call: the one that the report names, else the scarcest one.

        A unit whose learned rate was cut or held in vain is not the reason: then the next scarce one is.
        """
        if report.refused_by is not None:
            return report.refused_by
        left = {Unit.REQUESTS: math.inf}
        for reported in self.reported.values():
            if cost[reported.unit] > 0:
                calls = reported.bucket.fill(now) / cost[reported.unit]
                left[reported.unit] = min(calls, left.get(reported.unit, math.inf))
        units, learned = sorted(left, key=left.__getitem__), self.learned
        fresh = [unit for unit in units if unit not in learned or learned[unit].backoff <= FIRST_BACKOFF]
        return (fresh or units)[0]
