"""A limiter: what shares one quota. Its state, and what sends its calls: the pump and the log lines.

`LimiterState` combines the queue, the quota and the limit for running calls; the time is passed to it. `Limiter` sends
a call at the loop's next tick, or at once if the queue is empty. Nothing here is a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Literal

from ....providers.limits.charging import Charging
from ....providers.limits.limit_reports import ReadReport
from ....providers.limits.quota_report import QuotaReport, Refusal, Unit
from ....providers.limits.server_load import ServerLoad, read_waiting
from ....providers.model.provider_error import ErrorCategory, ProviderError
from ....providers.model.response import Response
from ....providers.wire.quirks import LoadReport
from ...call.runtime import Runtime
from ...call.timeouts import Clock
from ...request.noting import NoteLogger
from ...request.prepared import Prepared
from ..queue.fair_queue import CONFIRMED, QUEUED, UNDER_WAY, Cost, FairQueue, Permit, credible
from ..queue.pump import Notification, Pump
from .bucket import Bucket, ReportedBucket, declared_buckets
from .concurrency import LONGEST_HOLD, Concurrency
from .host import GATEWAY_STATUSES, LONGEST_PAUSE, Host, is_lost
from .leases import EntryLease, LeasedRateLimit
from .load_watch import LoadWatch
from .quota import Quota
from .rate_limit import BucketStatistics, LimiterStatistics, LimitSource, RateLimit

HOPELESS = 1.5
"""A call fails early if the calls ahead of it take more than this many times the time until its deadline."""

HEADERS_EVERY = 0.25
"""Seconds until the head of an answer is read again for the server's queue."""

MUCH_ROOM = 1e12
"""The room of a limiter without a known limit."""

REFUSAL_CODES: dict[Refusal, str] = {Refusal.TOO_LARGE: "request_too_large", Refusal.SPENT: "quota_spent"}
"""Maps the reason why a call can never be sent to the error's `provider_code`."""


class DeclaredLimit:
    """One entry of `rates` that the user declared, for one API key, and the line of limiters that wait for it.

    Several limiters may share one declared limit, such as `rates={"*": …}`. If the next call of a limiter fits its own
    limits and waits only for the shared one, the limiter enters the limit's line. Only the first limiter in the line
    may take from the limit. Without the line, a limiter with small calls could block a limiter with large calls
    forever.

    name: the entry's key in `rates`.
    buckets: the limits over time. All covered quotas share these buckets.
    concurrent: the largest number of running calls; None: no limit.
    lease: what this engine may use of the limit; None: all of it.
    line: the limiters that wait for it, the first one first.
    """

    __slots__ = ("_slots", "buckets", "concurrent", "lease", "line", "name", "running")

    def __init__(self, name: str, limit: RateLimit, now: float) -> None:
        self.name: str = name
        self.lease: EntryLease | None = limit.lease if isinstance(limit, LeasedRateLimit) else None
        self.buckets: tuple[ReportedBucket, ...] = (
            declared_buckets(limit, now, of=name) if self.lease is None else self.lease.buckets
        )
        self.concurrent: int | None = limit.concurrent
        self.running: int = 0
        self._slots = self.lease.slots if self.lease is not None else None
        if self._slots is not None:
            self._slots.count_running = lambda: self.running
        self.line: dict[Hashable, None] = {}

    def ready_at(self, cost: Cost, state: Hashable, now: float) -> float:
        """Return the time at which a call of `limiter` may be sent.

        Returns `math.inf` if a running call must end first, if another limiter is first in the line, or if the lease
        has ended.
        """
        return math.inf if self.line and self.next_in_line() is not state else self.room_at(cost, now)

    def room_at(self, cost: Cost, now: float) -> float:
        """The same whatever the line is: the time at which there is room for a call."""
        if self.is_full or (self.lease is not None and now >= self.lease.open_until):
            return math.inf
        return max((reported.bucket.ready_at(cost[reported.unit], now) for reported in self.buckets), default=now)

    def is_open(self, now: float) -> bool:
        """Return whether nothing but the buckets can hold a call back: no ended lease, no line and no running call."""
        if self.lease is None and self.concurrent is None:
            return not self.line
        return not self.line and not self.is_full and (self.lease is None or now < self.lease.open_until)

    @property
    def is_full(self) -> bool:
        """True if the largest number of calls is running."""
        if self._slots is not None:
            return self.running >= self._slots.rate
        return self.concurrent is not None and self.running >= self.concurrent

    def enter_line(self, state: Hashable) -> None:
        """Put a limiter at the end of the line, if it is not in it, because its next call waits only for this limit."""
        begins = not self.line
        self.line.setdefault(state)
        if begins and self.lease is not None and self.lease.on_want is not None:
            self.lease.on_want()

    def leave_line(self, state: Hashable) -> None:
        """Remove a limiter from the line, because its call was sent or no longer waits for this limit."""
        self.line.pop(state, None)

    def next_in_line(self) -> Hashable | None:
        return next(iter(self.line), None)


class LimiterState:
    """The calls that share a server's limits: those with one key of one host and one group of models.

    name: the limiter's name, such as `openai/gpt-5`.
    limits: the declared limits that its calls must fit. Other limiters may share them.
    host: its server, which may be away. Other limiters may share it.
    queue: the calls that wait to be sent.
    quota: the limits over time.
    concurrency: the learned limit for running calls; None if none is learned for this server.
    left: the limits whose lines it has left: the next limiter there must be looked at.
    """

    def __init__(
        self,
        name: str,
        charging: Charging,
        *,
        limits: Sequence[DeclaredLimit] = (),
        adaptive: bool = True,
        host: Host | None = None,
    ) -> None:
        self.name = name
        self.host: Host = Host(name) if host is None else host
        self.limits: tuple[DeclaredLimit, ...] = tuple(limits)
        buckets = tuple(bucket for limit in limits for bucket in limit.buckets)
        self.queue: FairQueue = FairQueue()
        self.quota: Quota = Quota(charging, declared=buckets, adaptive=adaptive)
        self.concurrency: Concurrency | None = None
        if adaptive and charging.limited_by != "quota":
            at_most = min((limit.concurrent for limit in limits if limit.concurrent is not None), default=None)
            self.concurrency = Concurrency(at_most=at_most)
        self._line: DeclaredLimit | None = None  # in which it stands
        self.left: dict[DeclaredLimit, None] = {}
        self._slot_seconds = 0.0
        self._no_slot_since = math.inf

    # --- before a call is sent ---

    def admit_at_once(self, permit: Permit, now: float) -> bool:
        """Reserve the cost of a call that no other call waits before, if every limit lets it go now.

        The effect is that of `queue.add` and `admit`, for a part of their cost. Returns False and changes nothing if
        another call waits, or if it takes those two, and `never`, to decide.
        """
        if self.queue.length or (self.host.is_away and self.host.ready_at(now) > now):
            return False
        cost = self.quota.estimate(permit)
        if not self.quota.fits_at_once(cost, now):
            return False
        for limit in self.limits:
            if not limit.is_open(now):
                return False
        if self.concurrency is not None and self.concurrency.ready_at(now) > now:
            return False
        if self._no_slot_since < math.inf:
            self._note_slot(False, now)
        self.queue.pass_through(permit)
        self._reserve(permit, cost, now)
        return True

    def admit(self, now: float) -> Permit | float:
        """Take the next call out of the queue and reserve its cost. If it can never be sent, it has ended.

        If no call may be sent now, return the time at which to call this again, unless a call ends earlier; `math.inf`:
        at no set time.
        """
        permit = self.queue.first(now)
        if permit is None:
            return math.inf
        host = self.host
        if (host.is_away and host.given_up(now) is not None) or self.quota.never(permit, now) is not None:
            self.cancel(permit, now)
            return permit
        cost = self.quota.estimate(permit)
        ready = self.quota.own_ready_at(cost, now)
        if host.is_away:
            ready = max(ready, host.ready_at(now))
        slot = now if self.concurrency is None else self.concurrency.ready_at(now)
        ready, is_short = max(ready, slot), slot > now
        if self.limits:
            is_short = is_short or any(limit.is_full for limit in self.limits)
            # If its own limits hold the call back, it is in no line, and nobody wakes it: it looks again at their time.
            turn = self._take_turns(cost, ready > now, now)
            ready = ready if ready > now else turn
        if is_short or self._no_slot_since < math.inf:
            self._note_slot(is_short, now)
        if ready > now:
            return min(ready, host.gives_up_at(now)) if host.is_away else ready
        self.queue.take(now)
        self.leave_lines()
        self._reserve(permit, cost, now)
        return permit

    def why_never(self, permit: Permit, now: float) -> ProviderError | None:
        """Return why a call can never be sent, or has waited for the server in vain; None if it can wait."""
        given_up = self.host.given_up(now) if self.host.is_away else None
        if given_up is not None:
            return given_up
        why = self.quota.never(permit, now)
        if why is None:
            return None
        return ProviderError(
            f"not sent to {self.name}: {why.why}",
            category=ErrorCategory.RATE_LIMIT,
            provider_code=REFUSAL_CODES[why.refusal],
            retry_after_ms=round(why.retry_after * 1000) if why.retry_after >= 0 else -1,
            retryable=False,
        )

    def fits(self, permit: Permit, now: float) -> bool | None:
        """Return whether a call that is not in the queue could be sent now; None: never. Changes nothing."""
        if self.why_never(permit, now) is not None:
            return None
        if self.queue.length or (self.host.is_away and self.host.ready_at(now) > now):
            return False
        cost = self.quota.estimate(permit)
        if self.quota.own_ready_at(cost, now) > now:
            return False
        if self.concurrency is not None and self.concurrency.ready_at(now) > now:
            return False
        return all(limit.ready_at(cost, self, now) <= now for limit in self.limits)

    def room(self, permit: Permit, now: float) -> float:
        """Return about how many calls like this one could be sent now, less those that run where no limit is known."""
        cost = self.quota.estimate(permit)
        levels = (self.quota.level(unit, now) / cost[unit] for unit in Unit if cost[unit] > 0)
        room = min(levels, default=math.inf)
        return room if room < math.inf else MUCH_ROOM - self.quota.running

    def is_hopeless(self, permit: Permit, deadline: float, now: float) -> bool:
        """Return True if a waiting call will miss its deadline by a wide margin. False if no rate is known."""
        return deadline < math.inf and self.seconds_ahead(permit, now) > HOPELESS * (deadline - now)

    def seconds_ahead(self, permit: Permit, now: float) -> float:
        """Estimate the seconds until all calls ahead of a waiting call are sent; 0 if no rate is known."""
        calls, tokens = self.queue.ahead_of(permit)
        if calls < 1:
            return 0.0
        seconds, own = 0.0, self.quota.estimate(permit)
        for unit in Unit:
            rate, level = self.quota.believed_rate(unit), self.quota.level(unit, now)
            cost = calls if unit is Unit.REQUESTS else tokens * own[unit] / permit.size
            if 0 < rate < math.inf:
                seconds = max(seconds, (cost - max(0.0, level)) / rate)
        return seconds

    def waiting_for(self, permit: Permit, now: float) -> str:
        """Return what a call waits for, such as `requests of openai/gpt-5, 12 ahead, about 3 s`; "" if for nothing."""
        if permit.state is not QUEUED:
            return ""
        first = self.queue.first(now)
        assert first is not None
        what = self.reason(first, now)
        ahead = int(self.queue.ahead_of(permit)[0])
        cost = self.quota.estimate(first)
        ready = max(self.quota.own_ready_at(cost, now), self.host.ready_at(now))
        ready = max([ready, *(limit.ready_at(cost, self, now) for limit in self.limits)])
        if self.concurrency is not None:
            ready = max(ready, self.concurrency.ready_at(now))
        seconds = max(self.seconds_ahead(permit, now), ready - now)
        about = f", about {seconds:.0f} s" if 1 <= seconds < math.inf else ""
        return f"{what}, {ahead} ahead{about}"

    def slot_seconds(self, now: float) -> float:
        """Return the total seconds for which the next call waited for a running call to end."""
        if self._no_slot_since >= now:
            return self._slot_seconds  # the same object for all calls that wait
        return self._slot_seconds + now - self._no_slot_since

    # --- after a call was sent ---

    def confirm(self, permit: Permit, report: QuotaReport, now: float) -> None:
        """Record the head of a response that is not a refusal."""
        self.host.answered(permit.number, now)
        self.quota.confirm(permit, report, now)

    def refuse(
        self, permit: Permit, report: QuotaReport, now: float, *, again: bool = True, away: ProviderError | None = None
    ) -> Refusal:
        """Record that a limit refused a call, and return the kind of refusal.

        After `RATE` and `OVERLOAD` the call is queued again, before the other calls of its tenant, unless `again` is
        False because the call is sent to another target.

        away: the error, if it shows that the server may be away.
        """
        if away is not None and self.concurrency is not None:
            accepted = self.quota.running - len(self.quota.window) - (permit.state is CONFIRMED)
            away = away if accepted <= 0 else None  # a server that runs calls is full
        self._hear(permit, away, now)
        self._release(permit)
        if self.concurrency is not None:
            by_slots = report.refusal is Refusal.RATE and self.quota.charging.limited_by == "slots"
            if self.host.is_away:
                self.concurrency.leave(permit)
            elif by_slots or report.refusal is Refusal.OVERLOAD:
                self.concurrency.refuse(permit, report.hint, now)
                report = QuotaReport(report.limits, Refusal.OVERLOAD, None, report.hint)
            else:
                self.concurrency.leave(permit)
        refusal = self.quota.refuse(permit, report, now)
        if refusal in (Refusal.RATE, Refusal.OVERLOAD) and again:
            self.queue.put_back(permit)
        else:
            self.queue.correct(permit, 0.0)
        return refusal

    def settle(
        self,
        permit: Permit,
        usage: Cost | None,
        now: float,
        *,
        tokens: float | None = None,
        output: float = 0.0,
        answered: bool = True,
    ) -> None:
        """Record that a call ended.

        usage: what it used (`Quota.settled`); None keeps the estimate.
        tokens: its input and output tokens; None keeps the estimate.
        output: the output tokens of an unstreamed response; 0 if unknown or streamed.
        answered: it ended with its answer.
        """
        self._release(permit)
        if self.concurrency is not None:
            self.concurrency.end(permit, now, output)
        self.quota.settle(permit, usage, now, answered=answered)
        if tokens is not None:
            self.queue.correct(permit, tokens)

    def fail(
        self, permit: Permit, report: QuotaReport, now: float, *, answered: bool, away: ProviderError | None = None
    ) -> None:
        """Record that a call failed for a reason other than a limit.

        answered: True if the server reported the failure; False: the server may have processed the request.
        away: the error, if it shows that the server may be away.
        """
        usage = None
        if answered or away is not None:
            self._hear(permit, away, now)
        if answered:
            self.quota.confirm(permit, report, now, accepted=False)
            usage = self.quota.used_by_failed(permit.cost)
        self.settle(permit, usage, now, tokens=0.0, answered=False)

    def _hear(self, permit: Permit, away: ProviderError | None, now: float) -> None:
        """Record an answer of the server. away: the error, if it shows that the server may be away."""
        if away is None:
            self.host.answered(permit.number, now)
        else:
            longest = LONGEST_PAUSE if self.concurrency is None else LONGEST_HOLD
            self.host.refused(permit, now, away, self.quota.running, longest)

    def lose(self, permit: Permit, error: ProviderError, now: float, *, sent: bool) -> None:
        """Record that a call got no connection, or lost it. sent: the server may have processed the request."""
        self.host.lost(permit.number, now, error)
        if not sent:
            self.cancel(permit, now)
            return
        if self.concurrency is not None:
            self.concurrency.leave(permit)
        self.settle(permit, None, now, tokens=0.0, answered=False)

    def cancel(self, permit: Permit, now: float) -> None:
        """Remove a call that is given up before its request was sent, and release all that it reserved."""
        if permit.state is QUEUED:
            self.queue.remove(permit)
            if not self.queue.length:
                self.leave_lines()
        elif permit.state in UNDER_WAY:
            self._release(permit)
            if self.concurrency is not None:
                self.concurrency.leave(permit)
            self.quota.release(permit, now)
            self.queue.correct(permit, 0.0)

    def report(self, load: ServerLoad | None, now: float, seconds: float = 0.0) -> None:
        """Record what the server says of its queue; None if it does not say. seconds: how long it took to say so.

        A queue inside refuses nothing, so that the window has no use while the server reports it.
        """
        concurrency = self.concurrency
        if concurrency is None or (load is None and concurrency.load is not None and concurrency.load.is_by_header):
            return
        self.quota.window.limits = load is None
        if load is None:
            concurrency.no_report()
        else:
            concurrency.report(load, now, seconds)

    def report_waiting(self, waiting: float | None, now: float) -> None:
        """Record what the head of an answer says of the server's queue, unless the server says more when it is asked.

        waiting: the calls that wait there; None: it does not say. The other calls of this limiter are taken to run.
        """
        concurrency = self.concurrency
        if (
            waiting is None
            or concurrency is None
            or not self.queue.length
            or now < concurrency.loaded_at + HEADERS_EVERY
        ):
            return
        if concurrency.load is None or concurrency.load.is_by_header:
            self.report(ServerLoad(max(0.0, concurrency.running - waiting), waiting, is_by_header=True), now)

    def is_short_of_slots(self, now: float) -> bool:
        """Return whether the next call waits only for a running call to end, by the learned limit."""
        return self.concurrency is not None and self.concurrency.ready_at(now) == math.inf

    def answered(self, permit: Permit, now: float) -> None:
        """Record the first token of a streamed response."""
        if self.concurrency is not None:
            self.concurrency.first_token(permit, now)

    # --- figures ---

    @property
    def running(self) -> int:
        """The number of calls that were sent and have not ended."""
        return self.quota.running

    def statistics(self, now: float) -> LimiterStatistics:
        quota, window = self.quota, self.quota.window
        most = min((limit.concurrent for limit in self.limits if limit.concurrent is not None), default=None)
        by: LimitSource | Literal[""] = "" if most is None else "declared"
        concurrency, hold_until = self.concurrency, quota.hold_until
        if concurrency is not None:
            if most is None or int(concurrency.limit) < most:
                most, by = int(concurrency.limit), concurrency.source
            hold_until = max(hold_until, concurrency.hold_until)
        return LimiterStatistics(
            waiting=self.queue.length,
            running=quota.running,
            sent=quota.sent,
            refused=quota.refused,
            reported={name: _figures(reported.bucket, now) for name, reported in quota.reported.items()},
            learned={unit.words: _figures(learned, now) for unit, learned in quota.learned.items()},
            window=window.size if quota.adaptive else 0,
            unconfirmed=len(window),
            held=max(0.0, hold_until - now),
            spent=max(0.0, quota.spent_until - now),
            concurrent=most,
            away=self.host.seconds_away(now),
            concurrent_by=by,
            server_load=None if concurrency is None else concurrency.load,
        )

    # --- shared by the methods above ---

    def _take_turns(self, cost: Cost, held_back: bool, now: float) -> float:
        """Return the time at which the declared limits allow a call of this cost, and update the limits' lines.

        The limiter stands in one line only, so that it does not block other limiters at a limit that it cannot use
        yet. It passes the limits in their order, which all limiters share: it stands in the line of the first one that
        does not let the call go, and is not held back by the lines that it has passed. With another rule, two limiters
        could wake each other for ever, each because the other one is first where it was.

        held_back: True if the limiter's own limits do not allow the call now.
        """
        if held_back:
            self.leave_lines()
            return math.inf
        has_passed = self._line is not None
        for limit in self.limits:
            has_passed = has_passed and limit is not self._line
            ready = limit.room_at(cost, now) if has_passed else limit.ready_at(cost, self, now)
            if ready > now:
                if limit is not self._line:
                    self.leave_lines()
                    limit.enter_line(self)
                    self._line = limit
                return limit.ready_at(cost, self, now)
        return now

    def reason(self, permit: Permit, now: float) -> str:
        """Return what the next call, `permit`, waits for, in words."""
        if self.host.is_away:
            return self.host.returns
        cost = self.quota.estimate(permit)
        full = next((limit for limit in self.limits if limit.is_full), None)
        if full is not None:
            return f"one of {full.concurrent} calls of {full.name} to end"
        if self.concurrency is not None and self.concurrency.ready_at(now) > self.quota.ready_at(cost, now):
            return f"one of {self.concurrency.running} calls of {self.name} to end"
        what = self.quota.waits_for(cost, now)
        return what if what.startswith("declared ") else f"{what or 'its turn'} of {self.name}"

    def _reserve(self, permit: Permit, cost: Cost, now: float) -> None:
        """Take the cost of a call that is sent out of every limit."""
        permit.cost, permit.number = cost, self.host.begin(now)
        self.quota.reserve(permit, now)
        for limit in self.limits:
            limit.running += 1
        if self.concurrency is not None:
            self.concurrency.start(permit, now)

    def _release(self, permit: Permit) -> None:
        """Stop counting a sent call as running in the declared limits."""
        if permit.state in UNDER_WAY:
            self.host.end(permit.number)
            for limit in self.limits:
                limit.running -= 1

    def leave_lines(self) -> None:
        """Leave the lines of all declared limits, because no call of this limiter waits."""
        if self._line is not None:
            self._line.leave_line(self)
            self.left[self._line] = None
            self._line = None

    def _note_slot(self, missing: bool, now: float) -> None:
        """Add up the time during which a slot for a running call is missing."""
        if missing:
            self._no_slot_since = min(self._no_slot_since, now)
        elif self._no_slot_since < math.inf:
            self._slot_seconds += now - self._no_slot_since
            self._no_slot_since = math.inf


def _figures(bucket: Bucket, now: float) -> BucketStatistics:
    return BucketStatistics(bucket.rate, bucket.capacity, bucket.fill(now))


logger: NoteLogger = NoteLogger("manystream.traffic")


class Limiter(Pump):
    """What shares one quota: a state, a pump and a log.

    state: the queue and the limits of its calls.
    is_forgotten: it had no calls, and another limiter has taken over its models.
    next_in_line: called when a shared limit has changed, so that another limiter may send.
    watch: receives the limiter's name and figures after a change; None: there is no observer.
    load_ways: how the server reports its queue. prepare: returns the request that asks for it.
    """

    def __init__(
        self,
        state: LimiterState,
        runtime: Runtime,
        row: str,
        read_report: ReadReport,
        next_in_line: Callable[[DeclaredLimit, LimiterState], None],
        watch: Callable[[str, LimiterStatistics], None] | None = None,
        load_ways: tuple[LoadReport, ...] = (),
        prepare: Callable[[LoadReport], Prepared] | None = None,
    ) -> None:
        super().__init__(runtime)
        self.state: LimiterState = state
        self.is_forgotten: bool = False
        self.next_in_line: Callable[[DeclaredLimit, LimiterState], None] = next_in_line
        self._row = row
        self._read_report = read_report
        self._watch = watch
        self._ignored: set[str] = set()
        self._load_watch: LoadWatch | None = None
        self._waiting_header = next((way for way in load_ways if way.header), None)
        if load_ways and prepare is not None and state.concurrency is not None:
            self._load_watch = LoadWatch(state.name, load_ways, runtime, prepare, self._loaded)

    # --- sending ---

    def enter(self, permit: Permit, now: float, *, again: bool, deadline: float = math.inf) -> None:
        """Queue a call, and send it at once if its limits allow.

        again: it waited before and goes to the head.
        deadline: the time at which its wait ends. The call fails now if that is much too early. A call that also waits
            elsewhere is never too late: others of this queue may go elsewhere, too.
        """
        state, call = self.state, permit.owner
        assert call is not None, "the call waits"
        if not self.is_running and state.admit_at_once(permit, now):
            call.admitted(permit, now)
            if self._watch is not None:
                self.note()
            return
        why = state.why_never(permit, now) if state.queue.length else None
        if why is not None:
            call.rejected(permit, why)
            return
        state.queue.add(permit, at_head=again)
        if state.queue.length == 1:
            self.run()
        elif state.is_hopeless(permit, deadline, now):
            seconds, reason = state.seconds_ahead(permit, now), state.reason(permit, now)
            state.cancel(permit, now)
            call.rejected(permit, _hopeless(deadline - now, seconds, reason))
        elif permit.is_first_of_tenant:
            self.schedule()

    def sends_now(self, permit: Permit, now: float) -> bool:
        """Send a call now if its limits allow; else return False, and the call does not wait here."""
        state = self.state
        if state.admit_at_once(permit, now):
            if self._watch is not None:
                self.note()
            return True
        if state.queue.length:
            return False
        state.queue.add(permit)
        if state.admit(now) is permit and permit.state in UNDER_WAY:
            if self._watch is not None:
                self.note()
            return True
        self.cancel(permit, now)
        return False

    def take(self, now: float) -> Notification | float:
        """Take the next call that may be sent, or never can be, out of the queue."""
        state = self.state
        found = state.admit(now) if state.queue.length else math.inf
        if isinstance(found, Permit):
            call, why = found.owner, None if found.state in UNDER_WAY else state.why_never(found, now)
            assert call is not None, "the call waits"
            return call, partial(call.admitted, found, now) if why is None else partial(call.rejected, found, why)
        if state.queue.length and self._load_watch is not None and state.is_short_of_slots(now):
            found = min(found, self._load_watch.ask(state.quota.window.answer_seconds, now))
        left, state.left = state.left, {}
        for limit in left:
            # None whose line it has not left: two limiters, each the first in a line, would wake each other for ever.
            self.next_in_line(limit, state)
        if self._watch is not None:
            self.note()
        return found

    def _loaded(self, load: ServerLoad | None, seconds: float) -> None:
        self.state.report(load, self.runtime.loop.clock(), seconds)
        self.changed()

    def host_changed(self) -> None:
        """Process a change of the server: it is away or back, or another call may ask."""
        if self.state.host.is_away and self.state.concurrency is not None:
            self.state.concurrency.forget_refusals()
        if self.state.queue.length:
            self.schedule()
        if self._watch is not None:
            self.note()

    def changed(self) -> None:
        """Process a change after which other calls may be sent: a call ended, or a response arrived."""
        state = self.state
        for limit in state.limits:
            if limit.line:
                self.next_in_line(limit, state)
        if state.queue.length:
            self.schedule()
        if self._watch is not None:
            self.note()

    def report_figures(self, now: float) -> bool:
        if self._watch is not None:
            self._watch(self.state.name, self.state.statistics(now))
        return False

    # --- the end of a call ---

    def confirm(self, permit: Permit, headers: Mapping[str, str]) -> None:
        """The head of a successful response came."""
        if permit.state in UNDER_WAY:
            now = self.runtime.loop.clock()
            self.state.confirm(permit, self._report_in(headers), now)
            self._write_news()
            if self._waiting_header is not None and self._waiting_header.header in headers:
                self.state.report_waiting(read_waiting(self._waiting_header, headers[self._waiting_header.header]), now)
            self.changed()

    def settle(self, permit: Permit, response: Response | None, now: float) -> None:
        """The request was sent, and the attempt is over. response: what it received."""
        if permit.state not in UNDER_WAY:
            self.cancel(permit, now)
            return
        usage = None if response is None else credible(response.usage)
        if usage is None or usage.input_tokens is None:
            self.state.settle(permit, None, now, answered=response is not None)
        else:
            output = (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
            charge = self.state.quota.settled(usage.input_tokens, usage.cached_tokens or 0, output)
            self.state.settle(permit, charge, now, tokens=usage.input_tokens + output, output=output)
        self.changed()

    def cancel(self, permit: Permit, now: float) -> None:
        """No request was sent: the call leaves the queue, or returns what it reserved. May be called again."""
        self.state.cancel(permit, now)
        self.changed()

    def fail(
        self, permit: Permit, error: ProviderError, headers: Mapping[str, str], now: float, *, sent: bool, again: bool
    ) -> Refusal:
        """A call that was under way has failed. Return which kind of limit refused it.

        sent: the request may have reached the server.
        again: the call waits here again after a refusal.
        """
        state, refusal = self.state, Refusal.NONE
        if is_lost(error):
            state.lose(permit, error, now, sent=sent)
        elif not sent:
            state.cancel(permit, now)
        else:
            report = self._report_in(headers, error)
            if report.refusal is not Refusal.OVERLOAD or state.concurrency is not None:
                refusal = report.refusal  # else the server is overloaded, independent of this key's limits
            overloaded = report.refusal is Refusal.OVERLOAD or error.http_status in GATEWAY_STATUSES
            away = error if error.retryable and overloaded else None  # it may be away, behind its gateway too
            if refusal is Refusal.NONE:
                state.fail(permit, report, now, answered=error.http_status > 0, away=away)
            else:
                state.refuse(permit, report, now, again=again, away=away)
            self._write_news()
        self.changed()
        return refusal

    # --- limits in responses ---

    def _report_in(self, headers: Mapping[str, str], error: ProviderError | None = None) -> QuotaReport:
        """Parse the limits that a response reports. The first response without any is logged once."""
        body = b"" if error is None else error.body
        report = self._read_report(self._row, headers, self.runtime.wall_clock(), error, body)
        for name in report.ignored:
            if name not in self._ignored:
                self._ignored.add(name)
                logger.warning("%s: the header %s says nothing (%.60r), ignored", self.state.name, name, headers[name])
        return report

    def _write_news(self) -> None:
        """Log what was learned about the limits."""
        news = self.state.quota.news
        for line in news:
            logger.info("%s: %s", self.state.name, line)
        news.clear()


def _hopeless(left: float, seconds: float, reason: str) -> ProviderError:
    """Return the error of a call that could not be sent in time."""
    return ProviderError(
        f"queue timeout: what waits before the call takes about {seconds:.0f} s, and it may wait {left:.6g} s"
        f" (waiting for {reason})",
        category=ErrorCategory.TIMEOUT,
        provider_code=Clock.QUEUE.value,
        retryable=False,
    )
