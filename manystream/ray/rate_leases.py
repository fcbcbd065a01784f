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

import math
from collections import deque
from collections.abc import KeysView, Sequence
from dataclasses import dataclass, field

from .. import RateLimit
from ..engine.embedding import Bucket, EntryLease, limits_of

LEASE_SECONDS = 4.0
RENEW_SECONDS = 1.0

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

    asked_at: the time by the holder's clock.
    held: the number of the last lease that the holder received, even if it has ended.
    rate: the rate of that lease; 0 if it has ended.
    wanted: the rate that the holder could use.
    """

    holder: str
    asked_at: float
    held: LeaseNumber
    rate: float
    wanted: float


@dataclass(slots=True, frozen=True)
class Lease:
    """What the keeper returns.

    asked_at: the time of the request, by the holder's clock.
    rate: the rate that the holder may use, in units per second.
    renews: the number of the lease that a new keeper renews; None for a lease that does not depend on another.
    """

    number: LeaseNumber
    asked_at: float
    rate: float
    renews: LeaseNumber | None = None


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
    """

    wanted: int = 0
    last: int = 0
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
    """

    def __init__(self, limit: float, now: float, *, epoch: int = 1, recovers: bool = False) -> None:
        self._limit = math.floor(limit * PARTS)
        self._epoch = epoch
        self._grants_from = now + LEASE_SECONDS if recovers else now
        self._count = 0
        self._accounts: dict[str, _Account] = {}
        self._granted = 0
        self._wanted = 0
        self._ends: deque[tuple[float, str, int]] = deque()
        """When each lease ends, its holder and its number, in the order of the grants."""

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
            self._granted -= before - account.parts
        wanted = math.ceil(max(0.0, min(request.wanted, self._limit / PARTS)) * PARTS)
        self._wanted += wanted - account.wanted
        account.wanted = wanted
        if now < self._grants_from:
            return self._lease(request, account, math.floor(request.rate * PARTS + 0.5), now, request.held)
        parts = min(self._share(account), self._limit - (self._granted - account.parts))
        return self._lease(request, account, max(0, parts), now, None)

    def release(self, holder: str) -> None:
        """Take back everything from a holder that has ended, and accepts no more leases."""
        account = self._accounts.pop(holder, None)
        if account is not None:
            self._granted -= account.parts
            self._wanted -= account.wanted

    def _share(self, account: _Account) -> int:
        """Return a holder's share of the limit.

        If the holders want less than the limit, each gets what it wants and an equal part of the rest. Otherwise each
        gets the part of the limit that it wants of the whole.
        """
        if self._wanted <= self._limit:
            return account.wanted + (self._limit - self._wanted) // len(self._accounts)
        return self._limit * account.wanted // self._wanted

    def _lease(
        self, request: LeaseRequest, account: _Account, parts: int, now: float, renews: LeaseNumber | None
    ) -> Lease:
        self._count += 1
        before = account.parts
        while account.open and account.open[-1].parts <= parts:
            account.open.pop()
        account.open.append(_Granted(self._count, parts, now + LEASE_SECONDS))
        account.last = self._count
        self._granted += account.parts - before
        self._ends.append((now + LEASE_SECONDS, request.holder, self._count))
        return Lease(LeaseNumber(self._epoch, self._count), request.asked_at, parts / PARTS, renews)

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
            self._granted -= before - account.parts
            if account.last == count:
                self.release(holder)


@dataclass(slots=True, eq=False, repr=False)
class Holder:
    """A holder of leases on one limit.

    One thread calls `receive` and uses what is leased. Another one may call `ask`: it reports a lease only after it is
    in use.
    """

    name: str  # the holder's name. It must be new for each process, because a keeper knows the leases of a name.
    gauge: LeasedBucket  # what uses the leases: a bucket that fills at their rate
    _lease: Lease = field(default_factory=lambda: Lease(NO_LEASE, -math.inf, 0.0), init=False)

    def ask(self, wanted: float, now: float) -> LeaseRequest:
        """Return a request for the next lease. Send it each `RENEW_SECONDS`.

        wanted: the rate that the holder could use, in units per second; `math.inf` for as much as possible.
        """
        lease = self._lease
        rate = lease.rate if now < lease.asked_at + LEASE_SECONDS else 0.0
        return LeaseRequest(self.name, now, lease.number, rate, wanted)

    def rate(self, now: float) -> float:
        """Return the units per second that may be used now."""
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
        self.gauge.lease(lease.rate, used_now + left, used_now)
        self._lease = lease
        return True


BURST = 0.05
"""An engine may save up its rate for this part of the limit's window. So all engines together exceed the limit of any
window by at most 5 %."""


class LeasedBucket(Bucket):
    """A bucket that fills at the rate of a lease, until the lease ends.

    The level may rise to `BURST` of the window, or to the cost that was asked for last. A call is sent when its whole
    cost is there: if calls could be sent on credit, many engines with a small rate each could send at the same time.

    window: the limit's window in seconds.

    taken: the units that were taken so far, without those that were given back.
    """

    __slots__ = ("_burst", "_cost", "ends_at", "taken")

    def __init__(self, window: float, now: float) -> None:
        super().__init__(0.0, 0.0, 0.0, now)
        self.ends_at: float = -math.inf
        self.taken: float = 0.0
        self._burst = BURST * window
        self._cost = 0.0

    def lease(self, rate: float, ends_at: float, now: float) -> None:
        """Use this rate from now on, until `ends_at`.

        The level stays, up to the new capacity: a change neither gives units nor cancels debts. So a bucket whose rate
        was 0 begins empty.
        """
        self.fill(now)
        self.ends_at = ends_at
        self._change(rate)

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
        at = super().ready_at(cost, now)
        return at if at < self.ends_at else math.inf

    def take(self, cost: float, now: float) -> None:
        """Take `cost` out of the bucket. The level may become negative."""
        super().take(cost, now)
        self.taken += cost
        self._cost = 0.0
        self._change(self.rate)

    def give_back(self, cost: float, now: float) -> None:
        """Return `cost` to the bucket, up to the capacity. A negative cost is taken out."""
        super().give_back(cost, now)
        self.taken -= cost

    def _room(self, rate: float) -> float:
        return max(rate * self._burst, self._cost)

    def _change(self, rate: float) -> None:
        self.rate = rate
        self.capacity: float = self._room(rate) if rate > 0 else 0.0
        self.level: float = min(self.level, self.capacity)


RESERVE = 1.25
"""An engine whose calls do not wait for a limit wants this multiple of the rate that it uses."""


class LeasedEntry(EntryLease):
    """The leases of one engine on the limits over time of one entry of `Traffic.rates`.

    whole: its limits, for all engines together.
    name: the engine's name.
    now: the time by the engine's clock.

    holders: a holder for each limit over time.
    """

    def __init__(self, key: str, whole: RateLimit, name: str, now: float) -> None:
        buckets = [LeasedBucket(row.window, now) for row in limits_of(whole)]
        super().__init__(key, whole, buckets)
        self.holders: tuple[Holder, ...] = tuple(Holder(name, bucket) for bucket in buckets)
        self._wanted = (math.inf,) * len(self.holders)
        self._taken = (0.0,) * len(self.holders)
        self._measured_at = now

    def ask(self, now: float) -> list[LeaseRequest]:
        """Return a request for each holder. `now`: the time by the clock of `ask`."""
        return [holder.ask(wanted, now) for holder, wanted in zip(self.holders, self._wanted, strict=True)]

    def receive(self, leases: Sequence[Lease], open_until: float, now: float, engine_now: float) -> None:
        """Use new leases, and let the engine start calls until `open_until`.

        leases: one for each holder, in their order; fewer if there is nothing new.
        open_until: the time by the clock of `ask`.
        now: the time by the clock of `ask`.
        engine_now: the time by the engine's clock, read before `now`.
        """
        for holder, lease in zip(self.holders, leases, strict=False):
            holder.receive(lease, now, engine_now)
        self.measure(engine_now)
        self.open_until: float = engine_now + open_until - now
        self.changed()

    def measure(self, now: float) -> None:
        """Note what the engine could use: as much as possible if calls wait for the limit."""
        if self.is_wanted():
            self._wanted = (math.inf,) * len(self.holders)
            return
        seconds = now - self._measured_at
        if seconds < RENEW_SECONDS:
            return
        taken = tuple(holder.gauge.taken for holder in self.holders)
        used = [max(0.0, after - before) / seconds for after, before in zip(taken, self._taken, strict=True)]
        self._wanted = tuple(RESERVE * rate for rate in used)
        self._taken, self._measured_at = taken, now
