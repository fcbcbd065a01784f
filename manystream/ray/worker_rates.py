"""The rate limits of one engine that shares them with others: its leases, and what the engine may send within them.

Knows leases, declared limits and the time that the caller passes. Must not know rows, nor how leases travel.
"""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Mapping, Sequence

from ..engine.traffic.leased import LeasedRateLimit, RateLease
from ..engine.traffic.rate_limit import RateLimit, limits_of
from .leases import RENEW_SECONDS, Holder, Keeper, Lease, LeaseRequest

RESERVE = 1.25
"""An engine whose calls do not wait for a limit wants this multiple of the rate that it uses."""


def keepers_of(limits: Mapping[str, RateLimit], now: float, epoch: int = 1) -> tuple[Keeper, ...]:
    """Return a keeper for each limit over time: those of the first entry, in the order of `limits_of`, then the next.

    An earlier keeper that ended a moment ago may have left engines that still hold leases. So nothing is granted for
    one lease.
    """
    return tuple(
        Keeper((row.limit or 0.0) / row.window, now, epoch=epoch, recovers=True)
        for limit in limits.values()
        for row in limits_of(limit)
    )


class WorkerRates:
    """The part of the shared limits that an engine may use, and the time until which it may start calls.

    `ask` may be called in any thread. The other methods are for the engine's thread.

    limits: the limits of all engines together, by their keys in `Traffic.rates`.
    now: a time by the engine's clock, not later than the current one.
    """

    def __init__(self, limits: Mapping[str, RateLimit], now: float) -> None:
        name = uuid.uuid4().hex
        self._entries = [_Entry(key, limit, name, now) for key, limit in limits.items()]

    @property
    def declared(self) -> Mapping[str, LeasedRateLimit]:
        """The limits for the engine's traffic control."""
        return {entry.key: entry.limit for entry in self._entries}

    def ask(self, now: float) -> tuple[LeaseRequest, ...]:
        """Return a request for each limit over time. `now`: the time by the worker's clock."""
        return tuple(request for entry in self._entries for request in entry.ask(now))

    def receive(self, leases: Sequence[Lease], open_until: float, now: float, engine_now: float) -> None:
        """Use new leases, and let the engine start calls until `open_until`.

        leases: one for each limit; empty if there is nothing new.
        open_until: the time by the worker's clock.
        now: the time by the worker's clock.
        engine_now: the time by the engine's clock, read before `now`. So a process that is stopped between the two does
            not use a lease for longer.
        """
        following = iter(leases)
        for entry in self._entries:
            for holder, lease in zip(entry.holders, following, strict=False):
                holder.receive(lease, now, engine_now)
            entry.measure(engine_now)
            entry.lease.extend(engine_now + open_until - now)


class _Entry:
    """One entry of `Traffic.rates`.

    key: the entry's key.
    holders: a holder for each limit over time.
    lease: what the engine may use now.
    limit: the limit for the engine's traffic control.
    """

    def __init__(self, key: str, whole: RateLimit, name: str, now: float) -> None:
        self.key: str = key
        self.holders: tuple[Holder, ...] = tuple(Holder(name, now, row.window) for row in limits_of(whole))
        self.lease: RateLease = RateLease(whole, [holder.bucket for holder in self.holders], key)
        options = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
        self.limit: LeasedRateLimit = LeasedRateLimit(**options, lease=self.lease)
        self._wanted = (math.inf,) * len(self.holders)
        self._taken = (0.0,) * len(self.holders)
        self._measured_at = now

    def ask(self, now: float) -> list[LeaseRequest]:
        """Return a request for each holder. `now`: the time by the worker's clock."""
        return [holder.ask(wanted, now) for holder, wanted in zip(self.holders, self._wanted, strict=True)]

    def measure(self, now: float) -> None:
        """Note what the engine could use: as much as possible if calls wait for the limit."""
        if self.lease.is_wanted():
            self._wanted = (math.inf,) * len(self.holders)
            return
        seconds = now - self._measured_at
        if seconds < RENEW_SECONDS:
            return
        taken = tuple(holder.bucket.taken for holder in self.holders)
        used = (max(0.0, after - before) / seconds for after, before in zip(taken, self._taken, strict=True))
        self._wanted = tuple(RESERVE * rate for rate in used)
        self._taken, self._measured_at = taken, now
