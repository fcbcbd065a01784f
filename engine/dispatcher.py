"""Chooses the traffic lane of a call: one lane for each key of a host and each group of models that share a limit.

Knows providers, models, declared limits and lanes. Must not know sockets, nor what happens inside a call.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeAlias

from ..providers.charging import charging_of
from ..providers.limit_reports import reader_of
from ..providers.model_families import family_of
from ..providers.options import Priority
from ..providers.provider import Provider
from ..providers.request import Request
from .admission import Admission
from .lane import Lane
from .prepared import Prepared, WallClock
from .runtime import Runtime
from .token_estimate import estimate_input_tokens
from .traffic.coverage import EVERY_CALL, Entry, find_entries
from .traffic.declared import DeclaredLimit
from .traffic.options import Traffic
from .traffic.scope import Scope
from .traffic.statistics import TrafficStatistics
from .traffic.ticket import Ticket

Account: TypeAlias = Hashable
"""Identifies a key at an address. Calls of two accounts never share a limit of a server."""

PRIORITIES: dict[str, Priority] = {priority.value: priority for priority in Priority}

MOST_LANES = 1_000
"""At this number of lanes, the lanes without calls are removed before a new one is made."""


class Dispatcher:
    """The lanes of one engine.

    Raises `InvalidRequestError` for an entry of `traffic.rates` that covers no provider.
    """

    def __init__(
        self,
        traffic: Traffic,
        providers: Sequence[Provider],
        runtime: Runtime,
        wall_clock: WallClock,
        account_of: Callable[[Provider], Account],
    ) -> None:
        self._traffic = traffic
        self._entries = find_entries(traffic.rates, providers)
        self._runtime = runtime
        self._wall_clock = wall_clock
        self._account_of = account_of
        self._declared: dict[tuple[str, Account], DeclaredLimit] = {}
        self._lane_of_model: dict[tuple[str, str], Lane] = {}
        self._lanes: dict[Hashable, Lane] = {}
        self._lane_of_scope: dict[Hashable, Lane] = {}

    def admission(self, request: Request, prepared: Prepared) -> Admission:
        """Return the admission of a new call: its ticket in the lane of its model."""
        provider, model = prepared.provider, prepared.model
        lane = self._lane_of_model.get((provider.name, model))
        if lane is None:
            lane = self._find_lane(provider, model)
        ticket = Ticket(
            estimate_input_tokens(request, prepared.body),
            request.max_output_tokens,
            priority=PRIORITIES[request.priority],
            tenant=request.tenant,
        )
        return Admission(lane, ticket)

    def statistics(self) -> TrafficStatistics:
        """Return the current figures of every scope, by the scope's name."""
        now = self._runtime.loop.clock()
        return TrafficStatistics({lane.scope.name: lane.scope.statistics(now) for lane in self._lanes.values()})

    def _find_lane(self, provider: Provider, model: str) -> Lane:
        """Return the lane of a model: a new one, unless the lane of another model or provider has the same limits."""
        if len(self._lanes) >= MOST_LANES:
            self._forget_idle()
        account, row = self._account_of(provider), provider.profile.name
        family = family_of(row, model)
        entries = tuple(
            entry
            for entry in self._entries
            if entry.covers(provider.name, model) or entry.covers(provider.name, family)
        )
        key = (account, family, entries)
        lane = self._lanes.get(key)
        if lane is None:
            scope = Scope(
                self._name(provider, family),
                charging_of(row),
                limits=[self._declared_limit(entry, account) for entry in entries],
                adaptive=self._traffic.adaptive,
            )
            read_report = reader_of(provider.profile.dialect_name)
            lane = Lane(scope, self._runtime, row, read_report, self._wall_clock, self._next_in_line)
            self._lanes[key] = self._lane_of_scope[scope] = lane
        self._lane_of_model[provider.name, model] = lane
        return lane

    def _name(self, provider: Provider, family: str) -> str:
        """Return a name for a lane that no other lane has, such as `openai/gpt-5` or `openai/gpt-5 (2)`."""
        name = f"{provider.name}/{family}"
        taken = {lane.scope.name for lane in self._lanes.values()}
        number = 2
        while name in taken:
            name, number = f"{provider.name}/{family} ({number})", number + 1
        return name

    def _declared_limit(self, entry: Entry, account: Account) -> DeclaredLimit:
        key = (entry.key, None if entry.key == EVERY_CALL else account)
        limit = self._declared.get(key)
        if limit is None:
            now = self._runtime.loop.clock()
            limit = self._declared[key] = DeclaredLimit(entry.key, self._traffic.rates[entry.key], now)
        return limit

    def _next_in_line(self, limit: DeclaredLimit, scope: Scope) -> None:
        """Schedule the lane of the first scope in a declared limit's line, unless that is `scope` itself."""
        first = limit.next_in_line()
        if first is not None and first is not scope:
            self._lane_of_scope[first].schedule()

    def _forget_idle(self) -> None:
        """Remove the lanes without calls, so that model names from untrusted input do not fill the memory."""
        for key, lane in list(self._lanes.items()):
            if not lane.scope.queue.length and not lane.scope.running:
                del self._lanes[key]
                del self._lane_of_scope[lane.scope]
        kept = set(map(id, self._lanes.values()))
        self._lane_of_model = {key: lane for key, lane in self._lane_of_model.items() if id(lane) in kept}
