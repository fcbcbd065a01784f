"""Rate limits that engines in several processes share. A keeper in another process leases each engine a part.

Each engine asks the keeper once a second. An engine that cannot reach it sends nothing after the end of its lease.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, Unpack

import trio

from .. import Engine, EngineClosedError, EngineOptions, InvalidRequestError, Provider, RateLimit, Traffic
from ..portal import EngineThread, open_thread
from .rate_leases import RENEW_SECONDS, EngineRates, Lease, LeaseRequest

logger: logging.Logger = logging.getLogger("manystream.ray")


class RateLink(Protocol):
    """The way to a keeper."""

    def renew(self, request: LeaseRequest) -> Lease | None:
        """Send a request to the keeper and return its lease; None if it did not answer within a second."""
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
    _thread: EngineThread  # the engine's thread
    _clock: Callable[[], float] = time.monotonic  # returns the time in seconds
    _engine_clock: Callable[[], float] = trio.current_time  # returns the time by the engine's clock
    _ended: threading.Event = field(default_factory=threading.Event, init=False)

    def renew(self) -> None:
        """Ask for a new lease, and use it if the keeper has answered. The engine has it when this returns."""
        lease = self._link.renew(self._thread.run(self._ask))
        if lease is not None:
            self._thread.run(partial(self._receive, lease))

    def run(self) -> None:
        """Renew the lease each second until `end` is called."""
        while True:
            began = self._clock()
            try:
                self.renew()
            except EngineClosedError:
                return
            except Exception:  # without renewals, the calls of the engine would wait without an end
                logger.exception("the leases on rate limits could not be renewed; the next attempt follows in a second")
            if self._ended.wait(max(0.0, began + RENEW_SECONDS - self._clock())):
                return

    def end(self) -> None:
        """Let `run` return."""
        self._ended.set()

    def _ask(self) -> LeaseRequest:
        engine_now = self._engine_clock()  # before the other clock: see `EngineRates`
        return self._rates.ask(self._clock(), engine_now)

    def _receive(self, lease: Lease) -> None:
        engine_now = self._engine_clock()
        self._rates.receive(lease, math.inf, self._clock(), engine_now)


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
        renewal = Renewal(rates, shared.link, thread)
        renewing = threading.Thread(target=renewal.run, name="manystream leases", daemon=True)
        renewing.start()
        try:
            yield engine, thread
        finally:
            renewal.end()
            renewing.join()
