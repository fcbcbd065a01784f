"""The keeper of shared rate limits as an actor of Ray, on the driver's node.

Ray starts it again if its process dies. The new keeper renews the leases that engines report, and grants nothing else
for the length of one lease. It ends with the program, or when the program and its actors have dropped the limits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from .. import InvalidRequestError, RateLimit
from .rate_leases import RENEW_SECONDS, Lease, LeaseRequest, RateKeeper
from .ray_answers import KEEPER_OPTIONS, START_SECONDS, first_line, start_here
from .ray_cluster import import_ray
from .rows import AskError
from .shared_rates import SharedRates

RATE_OPTIONS: dict[str, object] = {**KEEPER_OPTIONS, "max_task_retries": 0, "enable_task_events": False}
"""A renewal that was lost is not repeated: the next one follows in a second."""


class RateActor:
    """The actor: a keeper of rate limits."""

    def __init__(self, limits: Mapping[str, RateLimit]) -> None:
        self._keeper = RateKeeper(limits, time.monotonic())

    def ready(self) -> None:
        """Return when the actor has started."""

    def renew(self, request: LeaseRequest) -> Lease:
        return self._keeper.renew(request, time.monotonic())


class RayRateLink:
    """The way to the keeper's actor. It can be sent to other processes."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def renew(self, request: LeaseRequest) -> Lease | None:
        ray = import_ray()
        try:
            return cast("Lease", ray.get(self._actor.renew.remote(request), timeout=RENEW_SECONDS))
        except ray.exceptions.RayError:  # also for a timeout, and while Ray starts the actor again
            return None


def share_rates(rates: Mapping[str, RateLimit]) -> SharedRates:
    """Return rate limits that engines in several actors share: `EngineActor(…, shared=share_rates({"*": …}))`.

    It starts an actor on this node, so it connects to Ray if the program has not. The actor leases each engine a part
    of each limit, for 4 seconds at a time.

    rates: the limits of all engines together. The keys are those of `Traffic.rates`. Each entry is one limit for all
        calls that it covers, with whatever API key.

    Raises `InvalidRequestError` for a limit that cannot be shared, and `AskError` if Ray is not installed or the actor
    does not start.
    """
    for key, limit in rates.items():
        if not isinstance(limit, RateLimit):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidRequestError(f"rates[{key!r}]", "must be a RateLimit")
        if limit.concurrent is not None:
            raise InvalidRequestError(
                f"rates[{key!r}].concurrent", "cannot be shared: give each engine its part in its own `traffic`"
            )
    return start_rates(rates)


def start_rates(limits: Mapping[str, RateLimit]) -> SharedRates:
    """Start the keeper of these limits on this node. Raises `AskError` if it does not start.

    limits: as in `share_rates`, but `concurrent` is each engine's own.
    """
    actor = start_here(RateActor, RATE_OPTIONS, dict(limits))
    ray = import_ray()
    try:
        ray.get(actor.ready.remote(), timeout=START_SECONDS)
    except ray.exceptions.RayError as error:
        raise AskError(f"the keeper of the shared rate limits did not start: {first_line(error)}") from None
    return SharedRates(dict(limits), RayRateLink(actor))
