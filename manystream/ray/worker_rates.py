"""The rate limits of one worker: its leases, and what its engine may send within them.

Knows leases, declared limits and the time that the caller passes. Must not know rows, nor how leases travel.
"""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Mapping, Sequence

from ..engine.traffic.coverage import EVERY_CALL
from ..engine.traffic.leased import LeasedRateLimit, RateLease
from ..engine.traffic.rate_limit import RateLimit, limits_of
from .leases import RENEW_SECONDS, Holder, Keeper, Lease, LeaseRequest

RESERVE = 1.25
"""A worker whose calls do not wait for a limit wants this multiple of the rate that it uses."""


def keepers_of(limit: RateLimit | None, now: float) -> tuple[Keeper, ...]:
    """Return a keeper for each limit over time, in the order of `limits_of`.

    A driver that ended a moment ago may have left workers that still hold leases. So nothing is granted for one lease.
    """
    rows = limits_of(limit) if limit is not None else ()
    return tuple(Keeper((row.limit or 0.0) / row.window, now, recovers=True) for row in rows)


class WorkerRates:
    """The part of the batch's limits that a worker may use, and the time until which it may start calls.

    `ask` may be called in any thread. The other methods are for the engine's thread.

    limit: the limit of all workers together; None for none.
    concurrency: the calls at a time of this worker.
    now: the time by the engine's clock.

    lease: what the engine may use now.
    """

    def __init__(self, limit: RateLimit | None, concurrency: int, now: float) -> None:
        name = uuid.uuid4().hex
        whole = limit or RateLimit(concurrent=concurrency)
        self._holders = tuple(Holder(name, now, row.window) for row in limits_of(whole))
        self.lease: RateLease = RateLease(whole, [holder.bucket for holder in self._holders], EVERY_CALL)
        options = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
        self._limit = LeasedRateLimit(**options, lease=self.lease)
        self._wanted = (math.inf,) * len(self._holders)
        self._taken = (0.0,) * len(self._holders)
        self._measured_at = now

    @property
    def declared(self) -> Mapping[str, RateLimit]:
        """The limits for the engine's traffic control."""
        return {EVERY_CALL: self._limit}

    def ask(self, now: float) -> tuple[LeaseRequest, ...]:
        """Return a request for each limit. `now`: the time by the worker's clock."""
        return tuple(holder.ask(wanted, now) for holder, wanted in zip(self._holders, self._wanted, strict=True))

    def receive(self, leases: Sequence[Lease], open_until: float, now: float, engine_now: float) -> None:
        """Use new leases, and let the engine start calls until `open_until`.

        leases: one for each limit; empty if there is nothing new.
        open_until: the time by the worker's clock.
        now: the time by the worker's clock.
        engine_now: the time by the engine's clock, read before `now`. So a process that is stopped between the two does
            not use a lease for longer.
        """
        for holder, lease in zip(self._holders, leases, strict=False):
            holder.receive(lease, now, engine_now)
        self._measure(engine_now)
        self.lease.extend(engine_now + open_until - now)

    def _measure(self, now: float) -> None:
        """Note what the engine could use: as much as possible if calls wait for the limit."""
        if self.lease.is_wanted():
            self._wanted = (math.inf,) * len(self._holders)
            return
        seconds = now - self._measured_at
        if seconds < RENEW_SECONDS:
            return
        taken = tuple(holder.bucket.taken for holder in self._holders)
        used = (max(0.0, after - before) / seconds for after, before in zip(taken, self._taken, strict=True))
        self._wanted = tuple(RESERVE * rate for rate in used)
        self._taken, self._measured_at = taken, now
