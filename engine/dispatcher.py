"""Which scope a call belongs to: one lane for each key of a host and what shares a limit there.

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
"""A key at an address: calls of two accounts never share a limit that a server has."""

PRIORITIES: dict[str, Priority] = {priority.value: priority for priority in Priority}

MOST_LANES = 1_000
"""Models that are remembered; beyond it those without calls are forgotten."""


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
        """The way of a new call."""
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
        """Every scope in figures, as of now."""
        now = self._runtime.loop.clock()
        return TrafficStatistics({lane.scope.name: lane.scope.statistics(now) for lane in self._lanes.values()})

    def _find_lane(self, provider: Provider, model: str) -> Lane:
        """The lane of a model: a new one, unless another model or provider has the same limits."""
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
        """A name that no other lane has."""
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
        """The scope whose turn it is at a declared limit looks whether it may send, where it is another one."""
        first = limit.next_in_line()
        if first is not None and first is not scope:
            self._lane_of_scope[first].schedule()

    def _forget_idle(self) -> None:
        """Forget the lanes without calls, so that names of models that come from elsewhere do not fill the memory."""
        for key, lane in list(self._lanes.items()):
            if not lane.scope.queue.length and not lane.scope.running:
                del self._lanes[key]
                del self._lane_of_scope[lane.scope]
        kept = set(map(id, self._lanes.values()))
        self._lane_of_model = {key: lane for key, lane in self._lane_of_model.items() if id(lane) in kept}
