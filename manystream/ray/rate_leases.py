"""Leases on rates: limits that engines in several processes share, divided among them by a keeper.

An engine may use a part of each limit only while it has a lease. It asks for a new one each second, and a lease lasts 4
seconds. The engine counts them from the moment of asking and the keeper from the grant, which is later. So a lease ends
at the engine before it ends at the keeper, however long the messages take, and their clocks need not agree.

An engine has one request open at a time. A reply that it does not wait for any more is dropped, and each request states
the rates that it may be using. So the keeper counts the larger of these and of what it grants. The sum over all engines
never exceeds a limit.

A new keeper does not know the leases of the one before. For the length of one lease it renews what engines report, and
grants nothing else.

From top to bottom: the messages, the keeper, the bucket that a lease fills, and the leases of one engine. The callers
pass the time and carry the messages, which may be lost and late.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from .. import RateLimit
from ..engine.embedding import Bucket, EntryLease, LeasedRateLimit, limits_of

LEASE_SECONDS = 4.0
RENEW_SECONDS = 1.0

PARTS = 1_000_000
"""The keeper counts in millionths, as whole numbers: sums of fractions would drift."""


@dataclass(slots=True, frozen=True)
class LeaseRequest:
    """What an engine sends to the keeper. Rates are in units per second, one for each limit over time.

    engine: its name, which is new for each process.
    asked_at: the time by the engine's clock.
    held: the rates that it may be using until it receives another lease.
    wanted: the rates that it could use; `math.inf` for as much as possible.
    """

    engine: str
    asked_at: float
    held: tuple[float, ...]
    wanted: tuple[float, ...]


@dataclass(slots=True, frozen=True)
class Lease:
    """What the keeper returns.

    asked_at: the time of the request, by the engine's clock.
    rates: what the engine may use from now on.
    """

    asked_at: float
    rates: tuple[float, ...]


@dataclass(slots=True)
class _Whole:
    """A limit in units per second, and what all engines may be using and could use of it. All are in parts."""

    limit: int
    held: int = 0
    wanted: int = 0

    def share(self, wanted: int, engines: int) -> int:
        """Return what one further engine may use, if there are so many with it.

        If the engines want less than the limit, each gets what it wants and an equal part of the rest. Otherwise each
        gets the part of the limit that it wants of the whole. It is less while others use more.
        """
        every = self.wanted + wanted
        share = wanted + (self.limit - every) // engines if every <= self.limit else self.limit * wanted // every
        return max(0, min(share, self.limit - self.held))


class RateKeeper:
    """The keeper of shared limits. It is not safe for threads.

    An earlier keeper that ended a moment ago may have left engines that still hold leases. So nothing new is granted
    for the length of one lease. A request costs the same for any number of engines.

    limits: the limits of all engines together, by their keys in `Traffic.rates`.
    now: the current time in seconds.
    """

    def __init__(self, limits: Mapping[str, RateLimit], now: float) -> None:
        rows = [row for limit in limits.values() for row in limits_of(limit)]
        self._limits = [_Whole(math.floor((row.limit or 0.0) / row.window * PARTS)) for row in rows]
        self._grants_from = now + LEASE_SECONDS
        self._engines: dict[str, tuple[float, list[tuple[int, int]]]] = {}
        """name → when it was seen last, and what it may be using and could use; the last one was seen last"""

    def renew(self, request: LeaseRequest, now: float) -> Lease:
        """Return a new lease for an engine. A rate is 0 while others use the whole limit."""
        self._remove(request.engine)
        while self._engines and self._engines[oldest := next(iter(self._engines))][0] <= now - LEASE_SECONDS:
            self._remove(oldest)
        rates: list[float] = []
        parts: list[tuple[int, int]] = []
        for whole, held_rate, wanted_rate in zip(self._limits, request.held, request.wanted, strict=True):
            held = round(held_rate * PARTS)
            wanted = math.ceil(max(0.0, min(wanted_rate * PARTS, whole.limit)))
            granted = whole.share(wanted, len(self._engines) + 1) if now >= self._grants_from else held
            rates.append(granted / PARTS)
            parts.append((max(held, granted), wanted))
            whole.held += max(held, granted)
            whole.wanted += wanted
        self._engines[request.engine] = now, parts
        return Lease(request.asked_at, tuple(rates))

    def _remove(self, engine: str) -> None:
        _, parts = self._engines.pop(engine, (0.0, ()))
        for whole, (held, wanted) in zip(self._limits, parts, strict=False):
            whole.held -= held
            whole.wanted -= wanted


BURST = 0.05
"""An engine may save up its rate for this part of the limit's window. So all engines together exceed the limit of any
window by at most 5 %."""

RESERVE = 1.25
"""An engine whose calls do not wait for a limit wants this multiple of the rate that it uses."""


class LeasedBucket(Bucket):
    """A bucket that fills at the rate of a lease, until the lease ends.

    The level may rise to `BURST` of the window, or to the cost that was asked for last. A call is sent when its whole
    cost is there: if calls could be sent on credit, many engines with a small rate each could send at the same time.

    window: the limit's window in seconds.

    taken: the units that were taken since `measure`, without those that were given back.
    wanted: the units per second that the engine could use, as far as its calls do not wait.
    """

    __slots__ = ("_burst", "_cost", "ends_at", "taken", "wanted")

    def __init__(self, window: float, now: float) -> None:
        super().__init__(0.0, 0.0, 0.0, now)
        self.ends_at: float = -math.inf
        self.taken: float = 0.0
        self.wanted: float = math.inf
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

    def measure(self, seconds: float) -> None:
        """Set what the engine could use from what it has taken in so many seconds."""
        self.wanted, self.taken = RESERVE * max(0.0, self.taken) / seconds, 0.0

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


class EngineRates:
    """The part of the shared limits that an engine may use, and the time until which it may start calls.

    All methods are for the engine's thread. Two clocks are read: first the engine's, then that of the requests. So a
    process that is stopped between the two does not use a lease for longer.

    limits: the limits of all engines together, by their keys in `Traffic.rates`.
    now: a time by the engine's clock, not later than the current one.

    declared: the limits for the engine's traffic control.
    """

    def __init__(self, limits: Mapping[str, RateLimit], now: float) -> None:
        self._name = uuid.uuid4().hex
        self._buckets: list[tuple[LeasedBucket, EntryLease]] = []
        self.declared: dict[str, LeasedRateLimit] = {}
        for key, limit in limits.items():
            buckets = [LeasedBucket(row.window, now) for row in limits_of(limit)]
            entry = EntryLease(key, limit, buckets)
            self._buckets += [(bucket, entry) for bucket in buckets]
            self.declared[key] = entry.limit
        self._measured_at = now

    def ask(self, now: float, engine_now: float) -> LeaseRequest:
        """Return the request for the next lease. Send it each `RENEW_SECONDS`."""
        seconds = engine_now - self._measured_at
        for bucket, _ in self._buckets if seconds >= RENEW_SECONDS else ():
            bucket.measure(seconds)
            self._measured_at = engine_now
        for bucket, _ in self._buckets:
            bucket.fill(engine_now)  # the lease may have ended
        return LeaseRequest(
            self._name,
            now,
            tuple(bucket.rate for bucket, _ in self._buckets),
            tuple(math.inf if entry.is_wanted() else bucket.wanted for bucket, entry in self._buckets),
        )

    def receive(self, lease: Lease | None, open_until: float, now: float, engine_now: float) -> None:
        """Use a new lease, unless it has ended, and let the engine start calls until `open_until`.

        lease: None if there is nothing new.
        open_until: the time by the clock of `now`.
        """
        left = lease.asked_at + LEASE_SECONDS - now if lease is not None else 0.0
        if lease is not None and left > 0:
            for (bucket, _), rate in zip(self._buckets, lease.rates, strict=True):
                bucket.lease(rate, engine_now + left, engine_now)
        for limit in self.declared.values():
            limit.lease.open_until = engine_now + open_until - now
            limit.lease.changed()
