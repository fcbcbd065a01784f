"""Leases: one rate limit, divided among holders on several machines by a keeper.

A holder may use a rate only while it has a lease on it. It asks for a new lease each second, and a lease lasts 4
seconds. The holder counts them from the moment of asking and the keeper from the grant, which is later. So a lease ends
at the holder before it ends at the keeper, however long the messages take, and their clocks need not agree.

The keeper counts for each holder the highest rate that the holder may still be using: of the lease that the holder
last reported, and of the later ones that have not ended. A lower rate frees the difference only when the holder has
reported it, or when the older lease has ended. The sum over all holders never exceeds the limit.

A new keeper does not know the leases of the one before. For the length of one lease it renews what holders report, and
grants nothing else.

Knows rates and the time that the caller passes. Must not know what is limited, or how messages travel: they may be
lost, repeated and late. Amounts that can be used once only are in `amounts.py`.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from ..engine.traffic.leased import LeasedBucket

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

    holder: the holder's name.
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

    number: the lease's number.
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

    def __repr__(self) -> str:
        return f"<Keeper {self.granted:g} of {self._limit / PARTS:g} granted to {len(self._accounts)} holders>"

    @property
    def granted(self) -> float:
        """The sum of the rates that holders may be using, at the time of the last request."""
        return self._granted / PARTS

    def change_limit(self, limit: float) -> None:
        """Change the limit. A lower one is kept when the holders have reported lower rates, or after one lease."""
        self._limit = math.floor(limit * PARTS)

    def grant(self, request: LeaseRequest, now: float) -> Lease:
        """Return a new lease for a holder. Its rate is 0 while others use the whole limit."""
        self._end_leases(now)
        account = self._accounts.setdefault(request.holder, _Account())
        before = account.parts
        if request.held.epoch == self._epoch:
            while account.open and account.open[0].count < request.held.count:
                account.open.popleft()
        self._granted += account.parts - before
        wanted = math.ceil(max(0.0, min(request.wanted, self._limit / PARTS)) * PARTS)
        self._wanted += wanted - account.wanted
        account.wanted = wanted
        renewed = now < self._grants_from
        parts = math.floor(request.rate * PARTS + 0.5) if renewed else self._share(account)
        return self._lease(request, account, parts, now, request.held if renewed else None)

    def release(self, holder: str) -> None:
        """Take back everything from a holder that has ended, and accepts no more leases."""
        account = self._accounts.pop(holder, None)
        if account is not None:
            self._granted -= account.parts
            self._wanted -= account.wanted

    def _share(self, account: _Account) -> int:
        """Return the rate for a holder: its share of the limit, as far as others have freed it.

        If the holders want less than the limit, each gets what it wants and an equal part of the rest. Otherwise each
        gets the part of the limit that it wants of the whole.
        """
        if self._wanted <= self._limit:
            share = account.wanted + (self._limit - self._wanted) // len(self._accounts)
        else:
            share = self._limit * account.wanted // self._wanted
        free = self._limit - (self._granted - account.parts)
        return max(0, min(share, free))

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
            self._granted += account.parts - before
            if account.last == count:
                self.release(holder)


class Holder:
    """A holder of leases on one limit, with a bucket that fills at the rate of the current lease.

    One thread calls `receive` and uses the bucket. Another one may call `ask`: it reports a lease only after the bucket
    has its rate.

    name: the holder's name. It must be new for each process, because a keeper knows the leases of a name.
    bucket: what may be used at once.
    """

    def __init__(self, name: str, now: float, window: float = 1.0) -> None:
        self.name = name
        self.bucket: LeasedBucket = LeasedBucket(window, now)
        self._lease = Lease(NO_LEASE, -math.inf, 0.0)

    def __repr__(self) -> str:
        return f"<Holder {self.name} {self._lease.rate:g}/s until {self._lease.asked_at + LEASE_SECONDS:.3f}>"

    def ask(self, wanted: float, now: float) -> LeaseRequest:
        """Return a request for the next lease. Send it each `RENEW_SECONDS`.

        wanted: the rate that the holder could use, in units per second; `math.inf` for as much as possible.
        """
        lease = self._lease
        rate = lease.rate if now < lease.asked_at + LEASE_SECONDS else 0.0
        return LeaseRequest(self.name, now, lease.number, rate, wanted)

    def rate(self, now: float) -> float:
        """Return the rate that may be used now, in units per second."""
        self.bucket.fill(now)
        return self.bucket.rate

    def receive(self, lease: Lease, now: float, bucket_now: float | None = None) -> None:
        """Use this lease from now on, unless it has ended or a later one was received.

        bucket_now: the time by the clock of those who use the bucket, read before `now`; None if it is the same clock.
        """
        left = lease.asked_at + LEASE_SECONDS - now
        if left <= 0 or lease.number <= self._lease.number:
            return
        if lease.renews is not None and lease.renews != self._lease.number:
            return  # what it renews was replaced after the request was sent
        used_now = now if bucket_now is None else bucket_now
        self.bucket.lease(lease.rate, used_now + left, used_now)
        self._lease = lease
