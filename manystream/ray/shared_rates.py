"""Rate limits that engines in several processes share. A keeper in another process leases each engine a part.

Each engine asks the keeper once a second. An engine that cannot reach it sends nothing after the end of its lease.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, Unpack

import trio

from .. import Engine, EngineOptions, InvalidRequestError, Provider, RateLimit, Traffic
from ..engine.embedding import LeasedRateLimit, limits_of
from ..portal import EngineThread, open_thread
from .rate_leases import RENEW_SECONDS, Keeper, Lease, LeasedEntry, LeaseRequest

logger: logging.Logger = logging.getLogger("manystream.ray")


class EngineRates:
    """The part of the shared limits that an engine may use, and the time until which it may start calls.

    `ask` may be called in any thread. The other methods are for the engine's thread.

    limits: the limits of all engines together, by their keys in `Traffic.rates`.
    now: a time by the engine's clock, not later than the current one.
    """

    def __init__(self, limits: Mapping[str, RateLimit], now: float) -> None:
        name = uuid.uuid4().hex
        self._entries = [(key, LeasedEntry(key, limit, name, now)) for key, limit in limits.items()]

    @property
    def declared(self) -> Mapping[str, LeasedRateLimit]:
        """The limits for the engine's traffic control."""
        return {key: entry.limit for key, entry in self._entries}

    def ask(self, now: float) -> tuple[LeaseRequest, ...]:
        """Return a request for each limit over time. `now`: the time by the clock of `ask`."""
        return tuple(request for _, entry in self._entries for request in entry.ask(now))

    def receive(self, leases: Sequence[Lease], open_until: float, now: float, engine_now: float) -> None:
        """Use new leases, and let the engine start calls until `open_until`.

        leases: one for each limit; empty if there is nothing new.
        open_until: the time by the clock of `ask`.
        now: the time by the clock of `ask`.
        engine_now: the time by the engine's clock, read before `now`. So a process that is stopped between the two does
            not use a lease for longer.
        """
        following = iter(leases)
        for _, entry in self._entries:
            some = tuple(lease for _, lease in zip(entry.holders, following, strict=False))
            entry.receive(some, open_until, now, engine_now)


class RateKeeper:
    """The keeper of shared limits. It is not safe for threads.

    An earlier keeper that ended a moment ago may have left engines that still hold leases. So nothing is granted for
    one lease.

    limits: the limits of all engines together, by their keys in `Traffic.rates`.
    now: the current time in seconds.
    epoch: a number that is higher than that of each earlier keeper of these limits.
    """

    def __init__(self, limits: Mapping[str, RateLimit], now: float, epoch: int = 1) -> None:
        self._keepers = [  # of the limits over time of the first entry, then of the next
            Keeper((row.limit or 0.0) / row.window, now, epoch=epoch, recovers=True)
            for limit in limits.values()
            for row in limits_of(limit)
        ]

    def renew(self, requests: Sequence[LeaseRequest], now: float) -> tuple[Lease, ...]:
        """Return a lease for each request of one engine."""
        return tuple(keeper.grant(request, now) for keeper, request in zip(self._keepers, requests, strict=True))


class RateLink(Protocol):
    """The way to a keeper."""

    def renew(self, requests: Sequence[LeaseRequest]) -> tuple[Lease, ...] | None:
        """Send requests to the keeper and return its leases; None if it did not answer within a second."""
        ...


@dataclass(slots=True, frozen=True)
class SharedRates:
    """Limits that several engines share: `share_rates` returns them. They can be sent to other processes.

    limits: the limits of all engines together, by their keys in `Traffic.rates`.
    link: the way to the keeper.
    """

    limits: Mapping[str, RateLimit]
    link: RateLink


@dataclass(slots=True, eq=False, repr=False)
class Renewal:
    """Renews the leases of one engine."""

    _rates: EngineRates  # the leases
    _link: RateLink  # the way to the keeper
    _in_engine: Callable[[Callable[[], None]], None]  # calls a function in the engine's thread soon
    _clock: Callable[[], float] = time.monotonic  # returns the time in seconds
    _engine_clock: Callable[[], float] = trio.current_time  # returns the time by the engine's clock
    _ended: threading.Event = field(default_factory=threading.Event, init=False)

    def renew(self) -> None:
        """Ask for new leases, and use them if the keeper has answered."""
        leases = self._link.renew(self._rates.ask(self._clock()))
        if leases is not None:
            self._in_engine(lambda: self._receive(leases))

    def run(self) -> None:
        """Renew the leases each second until `end` is called."""
        while True:
            began = self._clock()
            try:
                self.renew()
            except Exception:  # without renewals, the calls of the engine would wait without an end
                logger.exception("the leases on rate limits could not be renewed; the next attempt follows in a second")
            if self._ended.wait(max(0.0, began + RENEW_SECONDS - self._clock())):
                return

    def end(self) -> None:
        """Let `run` return."""
        self._ended.set()

    def _receive(self, leases: tuple[Lease, ...]) -> None:
        engine_now = self._engine_clock()  # before the other clock: see `EngineRates.receive`
        self._rates.receive(leases, float("inf"), self._clock(), engine_now)


@contextmanager
def open_sharing_thread(
    providers: Sequence[Provider], shared: SharedRates | None, **options: Unpack[EngineOptions]
) -> Generator[tuple[Engine, EngineThread], None, None]:
    """Open an engine in a thread of its own until the block is left, as `open_thread` does.

    shared: limits that the engine shares with others; None for none. They apply in addition to those of `traffic`.

    Raises `InvalidRequestError`.
    """
    if shared is None:
        with open_thread(providers, **options) as opened:
            yield opened
        return
    rates = EngineRates(shared.limits, 0.0)
    traffic = options.get("traffic") or Traffic()
    twice = sorted(traffic.rates.keys() & shared.limits.keys())
    if twice:
        raise InvalidRequestError(f"traffic.rates[{twice[0]!r}]", "is also a shared limit: leave out one of the two")
    options["traffic"] = replace(traffic, rates={**traffic.rates, **rates.declared})
    with open_thread(providers, **options) as (engine, thread):
        renewal = Renewal(rates, shared.link, thread.soon)
        renewing = threading.Thread(target=renewal.run, name="manystream leases", daemon=True)
        renewing.start()
        try:
            yield engine, thread
        finally:
            renewal.end()
            renewing.join()
