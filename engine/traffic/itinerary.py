"""What one call needs at each target of its route: the prepared request, a place in the queue, the key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Protocol, cast

from ...providers.errors import ProviderError
from ...providers.model.options import Priority, Timeouts
from ...providers.model.request import Request
from .access import Access
from .limits.limiter import Lane
from .queue.permit import Ticket, TicketState
from .routing.keys import KeyRing
from .routing.options import lay_over, with_model
from .routing.router import Place
from .stop import MakeStop, Stop
from .wait import Site, Wait, Waiting, site_at


class Lanes(Protocol):
    """The lanes of an engine."""

    def lane(self, access: Access, model: str) -> Lane:
        """Return the lane of a model at a provider, for one key."""
        ...


PRIORITIES: dict[str, Priority] = {priority.value: priority for priority in Priority}

NO_SITES: frozenset[Site] = frozenset()
NO_TARGETS: frozenset[int] = frozenset()

AWAY = (TicketState.NEW, TicketState.ENDED)
"""The states of a ticket that is in no queue, and of which nothing is reserved."""

NO_OPTIONS: Mapping[str, object] = {}
NO_STOPS: dict[Site, Stop] = {}


class Itinerary:
    """The targets of a route for one call. Thousands of calls wait, so it has no dict unless the call moves on.

    request: as the call was started with it.
    failed: keys that the call cannot use.
    """

    __slots__ = (
        "_first_site",
        "_first_stop",
        "_input_tokens",
        "_lanes",
        "_make_stop",
        "_model",
        "_other_stops",
        "_places",
        "_waits",
        "failed",
        "request",
    )

    def __init__(
        self, places: tuple[Place, ...], request: Request, model: str, make_stop: MakeStop, lanes: Lanes
    ) -> None:
        """model: the request's model, for a provider with several keys."""
        self._places = places
        self.request: Request = request
        self._model = model
        self._make_stop = make_stop
        self._lanes = lanes
        self._first_site: Site | None = None  # of the first prepared request
        self._first_stop: Stop | None = None
        self._other_stops = NO_STOPS
        self._waits: tuple[Wait, ...] = ()  # at most one for each site
        self._input_tokens = -1.0  # unknown until the request was checked
        self.failed: frozenset[Site] = NO_SITES

    @property
    def first_stop(self) -> Stop:
        """The request for the target that was prepared first."""
        assert self._first_stop is not None
        return self._first_stop

    def stop_at(self, site: Site) -> Stop:
        """Return the request for a target, which is prepared once. Raises `InvalidRequestError`."""
        stop = self._first_stop if site == self._first_site else self._other_stops.get(site)
        if stop is not None:
            return stop
        stop = self._prepare(site)
        if self._first_stop is None:
            self._first_site, self._first_stop = site, stop
        else:
            self._other_stops = {**self._other_stops, site: stop}
        return stop

    def second_stop_at(self, site: Site) -> Stop:
        """Return the request for a second attempt. Raises `InvalidRequestError`.

        It has an idempotency key of its own: with the same key, the server could answer both attempts when the first
        one is ready.
        """
        has_key = self._places[site.place].accesses[site.key].provider.idempotency_header is not None
        return self._prepare(site) if has_key else self.stop_at(site)

    def second_waits_at(self, call: Waiting, place: int, now: float, input_tokens: float) -> list[Wait]:
        """Return a wait for each key that can be used at a target, with tickets of their own."""
        sites = (Site(place, key) for key in self._usable(place, now))
        waits = [self._make_wait(call, site, input_tokens) for site in sites]
        return [wait for wait in waits if wait.why_never(now) is None]

    def _prepare(self, site: Site) -> Stop:
        place = self._places[site.place]
        access, request = place.accesses[site.key], self.request
        model = f"{access.provider.name}/{self._model_at(place)}"
        request = with_model(request, model) if place.target is None else lay_over(place.target, request, model)
        return self._make_stop(request, access.preparer)

    def make_tickets(self, input_tokens: float) -> None:
        """Let `wait_at` make tickets from now on: the request was checked. input_tokens: as estimated."""
        self._input_tokens = input_tokens

    def wait_at(self, call: Waiting, site: Site) -> Wait:
        """Return the wait of the call for one key of a target: the same one each time, for one call only."""
        lane = self._lane_at(site)
        if self._input_tokens < 0:
            return Wait(call, site, lane)
        wait = next((wait for wait in self._waits if wait.site == site), None)
        if wait is None:
            wait = self._make_wait(call, site, self._input_tokens)
            self._waits = (*self._waits, wait)
        elif wait.lane is not lane and wait.state in AWAY:
            wait.lane = lane  # the old one had no calls, and was forgotten
        return wait

    def shared(self, waits: Sequence[Wait]) -> tuple[Wait, ...]:
        """Return these waits as a tuple: the one of all waits if they are the same, so that no second one is kept."""
        return self._waits if len(waits) == len(self._waits) and all(map(is_, waits, self._waits)) else tuple(waits)

    def forget_waits(self, latest: Ticket) -> None:
        """The call has ended: it must not refer to itself any longer. latest: its ticket, that of either attempt."""
        for wait in (*self._waits, latest):
            if isinstance(wait, Wait):
                wait.call = None
        self._waits = ()

    def _lane_at(self, site: Site) -> Lane:
        place = self._places[site.place]
        return self._lanes.lane(place.accesses[site.key], self._model_at(place))

    def waits_at(self, call: Waiting, place: int, now: float) -> list[Wait]:
        """Return a wait for each key that can be used at a target. Keys whose quota is used up, or too small for the
        request, are left out."""
        waits = (self.wait_at(call, site_at(place, key)) for key in self._usable(place, now))
        return [wait for wait in waits if wait.why_never(now) is None]

    def is_usable(self, site: Site, now: float) -> bool:
        """Return whether a key can be used at a target. A server may have refused it while the call waited."""
        return len(self._places[site.place].accesses) == 1 or site.key in self._usable(site.place, now)

    def _usable(self, place: int, now: float) -> list[int]:
        failed = {site.key for site in self.failed if site.place == place}
        return self.ring(place).usable(now, failed)

    def why_never(self, call: Waiting, place: int, now: float) -> tuple[ProviderError, ...]:
        """Return why the request can never be sent to a target."""
        sites = (site_at(place, key) for key in range(len(self._places[place].accesses)))
        errors = (self.wait_at(call, site).why_never(now) for site in sites)
        return tuple(error for error in errors if error is not None)

    def longest_wait(self, place: int) -> float:
        """Return for how many seconds the call may wait at a target, by the target's own options."""
        target = self._places[place].target
        timeouts = None if target is None else target.options.get("timeouts")
        return timeouts.queue if isinstance(timeouts, Timeouts) and timeouts.queue is not None else math.inf

    def ring(self, place: int) -> KeyRing:
        """Return which keys of a target's provider are used."""
        target = self._places[place]
        return target.ring(self._model_at(target))

    def _model_at(self, place: Place) -> str:
        return place.model or self._model

    def _make_wait(self, call: Waiting, site: Site, input_tokens: float) -> Wait:
        request, target = self.request, self._places[site.place].target
        options = NO_OPTIONS if target is None else target.options
        return Wait(
            call,
            site,
            self._lane_at(site),
            input_tokens,
            cast("int | None", options.get("max_output_tokens", request.max_output_tokens)),
            priority=PRIORITIES[cast("str", options.get("priority", request.priority))],
            tenant=cast("str | None", options.get("tenant", request.tenant)),
        )
