"""Leases on rates: one limit, divided among holders in several processes by a keeper.

A holder may use a rate only while it has a lease on it. It asks for a new lease each second, and a lease lasts 4
seconds. The holder counts them from the moment of asking and the keeper from the grant, which is later. So a lease ends
at the holder before it ends at the keeper, however long the messages take, and their clocks need not agree.

The keeper counts for each holder the highest rate that the holder may still be using: of the lease that the holder
last reported, and of the later ones that have not ended. A lower rate frees the difference only when the holder has
reported it, or when the older lease has ended. The sum over all holders never exceeds the limit.

A new keeper does not know the leases of the one before. For the length of one lease it renews what holders report, and
grants nothing else.

From top to bottom: the messages, the keeper, a holder, the bucket that a holder fills, and the leases of one engine on
all limits that it shares. The callers pass the time and carry the messages, which may be lost, repeated and late.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, KeysView, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from ....providers.limits.quota_report import Unit
from .bucket import Bucket, ReportedBucket
from .rate_limit import RateLimit, limits_of

LEASE_SECONDS = 4.0
RENEW_SECONDS = 1.0

LONG_TURN = 60.0
"""Seconds for which a holder keeps the call that cannot be divided, where every holder has one at least. Where some
have none, a turn lasts for a lease, or for two windows."""

PARTS = 1_000_000
"""The keeper counts in millionths, as whole numbers: sums of fractions would drift."""


@dataclass(slots=True, frozen=True, order=True)
class LeaseNumber:
    """The number of a lease. A later lease has a higher number, also from another keeper.

    epoch: the keeper's number; a new keeper has a higher one.
    count: the lease's number at this keeper, from 1.
    """

    epoch: int = 0
    count: int = 0


NO_LEASE = LeaseNumber()


@dataclass(slots=True, frozen=True)
class LeaseRequest:
    """What a holder sends to the keeper.

    holder: the holder's name.
    asked_at: the time by the holder's clock.
    held: the number of the last lease that the holder received, even if it has ended.
    rate: the rate of that lease; 0 if it has ended.
    wanted: the rate that the holder could use.
    in_use: what cannot be given back now, such as calls that run; 0 for a rate.
    """

    holder: str
    asked_at: float
    held: LeaseNumber
    rate: float
    wanted: float
    in_use: float = 0.0


@dataclass(slots=True, frozen=True)
class Lease:
    """What the keeper returns.

    number: the lease's number.
    asked_at: the time of the request, by the holder's clock.
    rate: the rate that the holder may use, in units per second.
    renews: the number of the lease that a new keeper renews; None for a lease that does not depend on another.
    goal: what the holder takes up to from now on, where more than that is in use; `math.inf` for all of `rate`.
    is_first: whether no other lease on the limit was given, so that the holder need not begin with nothing saved up.
    lowered: the holders whose rates were lowered within the limit's last window, and whose calls of before may still
        count in it.
    """

    number: LeaseNumber
    asked_at: float
    rate: float
    renews: LeaseNumber | None = None
    goal: float = math.inf
    is_first: bool = False
    lowered: int = 0


@dataclass(slots=True)
class _Granted:
    count: int
    parts: int
    ends_at: float


@dataclass(slots=True)
class _Account:
    """What the keeper knows about a holder.

    wanted: the rate that the holder could use, in parts.
    last: the number of the holder's last lease.
    open: leases that the holder may be using, or may receive yet. Each has a lower rate than the one before it: a lease
        with a lower rate than a later one makes no difference, since the later one also ends later.
    turn_ends: the time until which the holder keeps the unit that it has beyond its share rounded down.
    """

    wanted: int = 0
    last: int = 0
    turn_ends: float = -math.inf
    open: deque[_Granted] = field(default_factory=deque[_Granted])

    @property
    def parts(self) -> int:
        """The highest rate that the holder may be using."""
        return self.open[0].parts if self.open else 0


class Keeper:
    """The keeper of one limit.

    A request costs the same for any number of holders: the sums over all holders are kept up to date.

    limit: units per second, for all holders together.
    now: the current time in seconds.
    epoch: a number that is higher than that of each earlier keeper of this limit.
    recovers: whether there may have been an earlier keeper, whose leases have not ended yet.
    step: a lease's rate is a multiple of this. So each holder has a whole number of calls in each second, or at a time,
        and all of them together never have more than the limit. Where there are fewer calls than holders, the holders
        take turns. 0: any rate.

    hungry: the holders whose last lease has less than their share, because others have not freed it yet.
    """

    def __init__(self, limit: float, now: float, *, epoch: int = 1, recovers: bool = False, step: float = 0.0) -> None:
        self._step = max(1, round(step * PARTS))
        self._window = 1 / step if step else 0.0
        self._turn = max(LEASE_SECONDS, 2 * self._window)
        self._line: dict[str, None] = {}
        """holders that wait for their turn, the first one first"""
        self.hungry: dict[str, None] = {}
        steps = limit * PARTS / self._step * (1 + 1e-6) if self._step > 1 else limit * PARTS
        self._limit = math.floor(steps) * self._step
        self._epoch = epoch
        self._is_fresh = not recovers
        self._grants_from = now + LEASE_SECONDS if recovers else now
        self._counts_lowered = 0 < self._window <= LEASE_SECONDS
        """In a longer window, a call less for each rise would cost more than a call too many does."""
        self._knows_from = self._grants_from + self._window if recovers and self._counts_lowered else now
        """From then on, no call counts that a holder sent which has asked only an earlier keeper."""
        self._lowered: dict[str, float] = {}
        """when the rate of each holder was last lowered, the earliest first"""
        self._count = 0
        self._accounts: dict[str, _Account] = {}
        self._granted = 0
        self._wanted = 0
        self._ends: deque[tuple[float, str, int]] = deque()
        """When each lease ends, its holder and its number, in the order of the grants."""

    def __repr__(self) -> str:
        return f"<Keeper {self.granted:g} of {self._limit / PARTS:g} granted to {len(self._accounts)} holders>"

    @property
    def holders(self) -> KeysView[str]:
        """The holders whose last lease has not ended."""
        return self._accounts.keys()

    @property
    def granted(self) -> float:
        """The sum of the rates that holders may be using, at the time of the last request."""
        return self._granted / PARTS

    def grant(self, request: LeaseRequest, now: float) -> Lease:
        """Return a new lease for a holder. Its rate is 0 while others use the whole limit."""
        self._end_leases(now)
        account = self._accounts.setdefault(request.holder, _Account())
        if request.held.epoch == self._epoch:
            before = account.parts
            while account.open and account.open[0].count < request.held.count:
                account.open.popleft()
            self._lower(request.holder, before - account.parts, now)
        wanted = math.ceil(max(0.0, min(request.wanted, self._limit / PARTS)) * PARTS)
        wanted = min(self._limit, -(-wanted // self._step) * self._step)
        self._wanted += wanted - account.wanted
        account.wanted = wanted
        if now < self._grants_from:
            parts = math.floor(max(request.rate, request.in_use) * PARTS + 0.5)
            return self._lease(request, account, parts, parts, now, request.held)
        share = self._share(request.holder, account, now)
        free = self._limit - (self._granted - account.parts)
        goal = max(0, min(share, free - free % self._step))
        if goal < share:
            self.hungry[request.holder] = None
        else:
            self.hungry.pop(request.holder, None)
        # What is in use was granted before, so it is among the parts of the account.
        parts = max(goal, min(math.ceil(request.in_use * PARTS), account.parts))
        return self._lease(request, account, parts, goal, now, None)

    def release(self, holder: str, now: float) -> None:
        """Take back everything from a holder that has ended, and accepts no more leases."""
        self._line.pop(holder, None)
        self.hungry.pop(holder, None)
        account = self._accounts.pop(holder, None)
        if account is not None:
            self._lower(holder, account.parts, now)
            self._wanted -= account.wanted

    def _share(self, holder: str, account: _Account, now: float) -> int:
        """Return a holder's share of the limit.

        If the holders want less than the limit, each gets what it wants and an equal part of the rest. Otherwise each
        gets the part of the limit that it wants of the whole.
        """
        if self._wanted <= self._limit:
            self._line.pop(holder, None)
            rest = (self._limit - self._wanted) // len(self._accounts)
            return account.wanted + rest - rest % self._step
        share = self._limit * account.wanted // self._wanted
        return share if self._step == 1 else self._rounded(holder, account, share, now)

    def _rounded(self, holder: str, account: _Account, share: int, now: float) -> int:
        """Return a share in whole steps: rounded down, or up for the holders whose turn it is.

        A turn ends when another holder waits for it, but not before it has lasted for some time. It begins when its
        step is free.
        """
        low = share - share % self._step
        high = low + self._step
        if low == share:
            self._line.pop(holder, None)
            return low
        if account.parts >= high:
            if not self._line or now < account.turn_ends:
                return high
            self._line.setdefault(holder)
            return low
        self._line.setdefault(holder)
        if next(iter(self._line)) == holder and self._limit - (self._granted - account.parts) >= high:
            del self._line[holder]
            account.turn_ends = now + (LONG_TURN if low else self._turn)
            return high
        return low

    def _lease(
        self, request: LeaseRequest, account: _Account, parts: int, goal: int, now: float, renews: LeaseNumber | None
    ) -> Lease:
        self._count += 1
        before = account.parts
        while account.open and account.open[-1].parts <= parts:
            account.open.pop()
        account.open.append(_Granted(self._count, parts, now + LEASE_SECONDS))
        account.last = self._count
        self._granted += account.parts - before
        self._ends.append((now + LEASE_SECONDS, request.holder, self._count))
        is_first, self._is_fresh = self._is_fresh and self._step > 1, False
        number, most = LeaseNumber(self._epoch, self._count), goal / PARTS if goal < parts else math.inf
        lowered = self._count_lowered(now)
        return Lease(number, request.asked_at, parts / PARTS, renews, most, is_first, lowered)

    def _end_leases(self, now: float) -> None:
        """Free what holders cannot use any more, and forget holders whose last lease has ended."""
        while self._ends and self._ends[0][0] <= now:
            _, holder, count = self._ends.popleft()
            account = self._accounts.get(holder)
            if account is None:
                continue
            before = account.parts
            while account.open and account.open[0].ends_at <= now:
                account.open.popleft()
            self._lower(holder, before - account.parts, now)
            if account.last == count:
                self.release(holder, now)

    def _lower(self, holder: str, parts: int, now: float) -> None:
        """Note that a holder can use so much less than before."""
        self._granted -= parts
        if parts > 0 and self._counts_lowered:
            self._lowered.pop(holder, None)
            self._lowered[holder] = now

    def _count_lowered(self, now: float) -> int:
        """Return how many holders may have sent calls within the last window at a higher rate than now."""
        while self._lowered and self._lowered[holder := next(iter(self._lowered))] <= now - self._window:
            del self._lowered[holder]
        return len(self._lowered) if now >= self._knows_from else self._limit // self._step


class Holder:
    """A holder of leases on one limit.

    One thread calls `receive` and uses what is leased. Another one may call `ask`: it reports a lease only after it is
    in use.

    name: the holder's name. It must be new for each process, because a keeper knows the leases of a name.
    gauge: what uses the leases: a bucket that fills at their rate, or calls that run at a time.
    """

    def __init__(self, name: str, gauge: LeasedBucket | LeasedSlots) -> None:
        self.name = name
        self.gauge: LeasedBucket | LeasedSlots = gauge
        self._lease = Lease(NO_LEASE, -math.inf, 0.0)

    def __repr__(self) -> str:
        return f"<Holder {self.name} {self._lease.rate:g}/s until {self._lease.asked_at + LEASE_SECONDS:.3f}>"

    def ask(self, wanted: float, now: float) -> LeaseRequest:
        """Return a request for the next lease. Send it each `RENEW_SECONDS`.

        wanted: the rate that the holder could use, in units per second; `math.inf` for as much as possible.
        """
        lease = self._lease
        rate = lease.rate if now < lease.asked_at + LEASE_SECONDS else 0.0
        return LeaseRequest(self.name, now, lease.number, rate, wanted, self.gauge.in_use)

    def rate(self, now: float) -> float:
        """Return what may be used now: units per second, or calls at a time."""
        self.gauge.fill(now)
        return self.gauge.rate

    def receive(self, lease: Lease, now: float, gauge_now: float | None = None) -> bool:
        """Use this lease from now on, unless it has ended or a later one was received. Returns whether it is in use.

        gauge_now: the time by the clock of those who use the gauge, read before `now`; None if it is the same clock.
        """
        left = lease.asked_at + LEASE_SECONDS - now
        if left <= 0 or lease.number <= self._lease.number:
            return False
        if lease.renews is not None and lease.renews != self._lease.number:
            return False  # what it renews was replaced after the request was sent
        used_now = now if gauge_now is None else gauge_now
        rate = min(lease.rate, lease.goal)
        self.gauge.lease(rate, used_now + left, used_now, full=lease.is_first, lowered=lease.lowered)
        if self.gauge.in_use > lease.rate:
            return False  # more calls have begun meanwhile. The lease before this one still covers them
        self._lease = lease
        return True


BURST = 0.05
"""An engine may save up its rate for this part of the limit's window. So all engines together exceed the limit of any
window by at most 5 %."""

EXACT_RATE = 0.97
EXACT_BURST = 0.02
"""Where a limit is never to be exceeded, a bucket fills at the first part of its lease, and the second part of a window
may be saved up beside one call. With a lease on n calls in a window it sends at most 0.99 n + 1 in any window, rounded
down: that is n. The last hundredth is for calls that overtake each other on their way to the server."""


class LeasedBucket(Bucket):
    """A bucket that fills at the rate of a lease, until the lease ends.

    The level may rise to `BURST` of the window, or to the cost that was asked for last. A call is sent when its whole
    cost is there: if calls could be sent on credit, many engines with a small rate each could send at the same time.

    window: the limit's window in seconds.
    exact: whether the limit is never exceeded: see `EXACT_RATE`.
    cost: the least cost that may be saved up.

    ends_at: the time at which the lease ends.
    taken: the units that were taken so far, without those that were given back.
    """

    __slots__ = ("_burst", "_cost", "_counts_calls", "_exact", "_is_full", "_window", "ends_at", "taken")

    in_use: ClassVar[float] = 0.0

    def __init__(self, window: float, now: float, *, exact: bool = False, cost: float = 0.0) -> None:
        super().__init__(0.0, 0.0, 0.0, now)
        self.ends_at: float = -math.inf
        self.taken: float = 0.0
        self._exact = exact
        self._window = window
        self._burst = (EXACT_BURST if exact else BURST) * window
        self._counts_calls = exact and cost > 0
        self._cost = cost
        self._is_full = False

    def lease(self, rate: float, ends_at: float, now: float, *, full: bool = False, lowered: int = 0) -> None:
        """Use this rate from now on, until `ends_at`.

        The level stays, up to the new capacity: a change neither gives units nor cancels debts. So a bucket whose rate
        was 0 begins empty.

        full: begin with a full bucket nevertheless, whatever the first cost is.
        lowered: the holders whose rates were lowered within the last window.
        """
        self.fill(now)
        self.ends_at = ends_at
        self._is_full = self._is_full or full
        if self._counts_calls and not full:
            self._pay(rate - self.rate / EXACT_RATE, rate, lowered)
        self._change(rate * EXACT_RATE if self._exact else rate)

    def _pay(self, rise: float, rate: float, lowered: int) -> None:
        """Lower the level where calls of a higher rate may follow calls that another holder sent at that rate.

        Each holder sends at most one call more in a window than flows in. For a rate that stays, that is less than one
        call above it. Where rates move to this holder, each holder that gave one may have had such a call, and so may
        this one if its rate was not 0. A call less for each of them is enough. So is a call less for each call of the
        rise, or no call for a window.
        """
        calls = min(round(rise * self._window), lowered) - (self.rate <= 0)
        if calls > 0:
            self.level = min(self.level, max(self.level - calls, 1.0 - EXACT_RATE * rate * self._window))

    def fill(self, now: float) -> float:
        """Update the level to the time `now`, or to the end of the lease, and return it."""
        if self.rate > 0 and now >= self.ends_at:
            super().fill(self.ends_at)
            self._change(0.0)
        return super().fill(now)

    def ready_at(self, cost: float, now: float) -> float:
        """Return the time at which `cost` fits; `math.inf` if the lease ends before."""
        self.fill(now)
        if self.rate <= 0:
            return math.inf
        self._cost = cost
        self.capacity = self._room(self.rate)
        if self._is_full:
            self._is_full, self.level = False, self.capacity
        at = super().ready_at(cost, now)
        return at if at < self.ends_at else math.inf

    def take(self, cost: float, now: float) -> None:
        """Take `cost` out of the bucket. The level may become negative."""
        super().take(cost, now)
        self.taken += cost
        if not self._exact:
            self._cost = 0.0
        self._change(self.rate)

    def give_back(self, cost: float, now: float) -> None:
        """Return `cost` to the bucket, up to the capacity. A negative cost is taken out."""
        super().give_back(cost, now)
        self.taken -= cost

    def _room(self, rate: float) -> float:
        return rate * self._burst + self._cost if self._exact else max(rate * self._burst, self._cost)

    def _change(self, rate: float) -> None:
        self.rate = rate
        self.capacity: float = self._room(rate) if rate > 0 else 0.0
        self.level: float = min(self.level, self.capacity)


class LeasedSlots:
    """The calls that may run at a time by a lease. Calls that run when a lease ends go on, and no other one begins.

    rate: so many calls may run.
    ends_at: the time at which the lease ends.
    count_running: returns how many calls run. The engine sets it.
    """

    __slots__ = ("count_running", "ends_at", "rate")

    def __init__(self) -> None:
        self.rate: float = 0.0
        self.ends_at: float = -math.inf
        self.count_running: Callable[[], int] = int  # 0

    @property
    def in_use(self) -> float:
        """The number of calls that run."""
        return float(self.count_running())

    def lease(self, rate: float, ends_at: float, now: float, *, full: bool = False, lowered: int = 0) -> None:
        """Let so many calls run at a time, until `ends_at`."""
        self.rate, self.ends_at = rate, ends_at

    def fill(self, now: float) -> float:
        """Return how many calls may run at the time `now`."""
        if now >= self.ends_at:
            self.rate = 0.0
        return self.rate


@dataclass(slots=True, frozen=True, kw_only=True)
class LeasedRateLimit(RateLimit):
    """A limit of which an engine may use what it has leased.

    lease: what the engine may use.
    """

    lease: EntryLease


RESERVE = 1.25
"""An engine whose calls do not wait for a limit wants this multiple of the rate that it uses."""

CONCURRENT = "concurrent"
"""The name of the share of a `RateLimit.concurrent`."""


class Share(NamedTuple):
    """One of the limits that a `RateLimit` holds, as a keeper divides it.

    name: its name.
    rate: units per second, or calls at a time.
    step: a lease's rate is a multiple of this; 0: any rate.
    window: the seconds in which so many steps as the limit has are never exceeded; 0: at any time.
    """

    name: str
    rate: float
    step: float
    window: float


def shares_of(limit: RateLimit) -> list[Share]:
    """Return the limits over time, in the order of `limits_of`, and the limit of calls at a time.

    A limit of 2.5 calls a second is divided as five in two seconds.
    """
    shares: list[Share] = []
    for row in limits_of(limit):
        number, window = row.limit or 0.0, row.window
        if row.unit is not Unit.REQUESTS:
            shares.append(Share(row.name, number / window, 0.0, window))
            continue
        times = next((times for times in range(1, MOST_TIMES + 1) if abs(number * times % 1.0 - 0.5) > 0.5 - 1e-9), 1)
        window *= times
        shares.append(Share(row.name, math.floor(number * times + 1e-9) / window, 1 / window, window))
    if limit.concurrent is not None:
        shares.append(Share(CONCURRENT, float(limit.concurrent), 1.0, 0.0))
    return shares


MOST_TIMES = 10
"""A window is lengthened up to so many times, so that it holds a whole number of calls."""


class EntryLease:
    """The leases of one engine on the limits of one entry of `Traffic.rates`.

    key: the entry's key.
    whole: its limits, for all engines together.
    name: the engine's name.
    now: the time by the engine's clock.
    exact: whether all limits are leased, also that of calls at a time, and are never exceeded.

    holders: a holder for each limit over time, and for that of calls at a time if it is leased.
    limit: the limit for the engine's traffic control, which has this object.
    buckets: the leased part of each limit over time, in the order of `limits_of`.
    slots: how many calls may run at a time by a lease; None: their number is not leased.
    open_until: no call is sent from this time on, by the engine's clock.
    is_wanted: returns whether a call waits for this limit only. The engine sets it.
    on_want: called when a call begins to wait for this limit only. The owner sets it.
    """

    def __init__(self, key: str, whole: RateLimit, name: str, now: float, *, exact: bool = False) -> None:
        rows = limits_of(whole)
        windows = [share.window for share in shares_of(whole)] if exact else [row.window for row in rows]
        self._buckets = [
            LeasedBucket(window, now, exact=exact, cost=float(exact and row.unit is Unit.REQUESTS))
            for row, window in zip(rows, windows, strict=False)
        ]
        self.buckets: tuple[ReportedBucket, ...] = tuple(
            ReportedBucket(row.name, row.unit, row.window, bucket, declared=True, whole=row.limit or 0.0)
            for row, bucket in zip(limits_of(whole, key), self._buckets, strict=True)
        )
        self.slots: LeasedSlots | None = LeasedSlots() if exact and whole.concurrent is not None else None
        gauges: list[LeasedBucket | LeasedSlots] = [*self._buckets]
        if self.slots is not None:
            gauges.append(self.slots)
        self.holders: tuple[Holder, ...] = tuple(Holder(name, gauge) for gauge in gauges)
        options = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
        self.limit: LeasedRateLimit = LeasedRateLimit(**options, lease=self)
        self.open_until: float = -math.inf
        self.is_wanted: Callable[[], bool] = bool  # False
        self.on_want: Callable[[], None] | None = None
        self._on_change: Callable[[], None] | None = None
        self._wanted = (math.inf,) * len(self.holders)
        self._taken = (0.0,) * len(self._buckets)
        self._measured_at = now

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` after each change."""
        self._on_change = on_change

    def ask(self, now: float) -> list[LeaseRequest]:
        """Return a request for each holder. `now`: the time by the clock of `ask`."""
        return [holder.ask(wanted, now) for holder, wanted in zip(self.holders, self._wanted, strict=True)]

    def receive(self, leases: Sequence[Lease], open_until: float, now: float, engine_now: float) -> bool:
        """Use new leases, and let the engine start calls until `open_until`. Return whether the holder of one has less
        than before.

        leases: one for each holder, in their order; fewer if there is nothing new.
        open_until: the time by the clock of `ask`.
        now: the time by the clock of `ask`.
        engine_now: the time by the engine's clock, read before `now`.

        Such a reduction is worth a request at once: it tells the keeper what is free.
        """
        before = [holder.rate(engine_now) for holder in self.holders]
        for holder, lease in zip(self.holders, leases, strict=False):
            holder.receive(lease, now, engine_now)
        self.measure(engine_now)
        until = engine_now + open_until - now
        self.open_until = until if self.slots is None else min(until, self.slots.ends_at)
        if self._on_change is not None:
            self._on_change()
        return any(holder.rate(engine_now) < rate for holder, rate in zip(self.holders, before, strict=True))

    def measure(self, now: float) -> None:
        """Note what the engine could use: as much as possible if calls wait for the limit."""
        if self.is_wanted():
            self._wanted = (math.inf,) * len(self.holders)
            return
        seconds = now - self._measured_at
        if seconds < RENEW_SECONDS:
            return
        taken = tuple(bucket.taken for bucket in self._buckets)
        used = [max(0.0, after - before) / seconds for after, before in zip(taken, self._taken, strict=True)]
        used += [holder.gauge.in_use for holder in self.holders[len(used) :]]
        self._wanted = tuple(RESERVE * rate for rate in used)
        self._taken, self._measured_at = taken, now
