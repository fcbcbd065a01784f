"""Chooses the limiter of a call: one for each key of a host and each group of models that share a limit."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...providers.catalog.dialect import WireRequest
from ...providers.catalog.provider import Provider
from ...providers.catalog.selection import configured, named, select
from ...providers.errors import InvalidRequestError
from ...providers.limits.charging import charging_of, family_of
from ...providers.limits.limit_reports import reader_of
from ...providers.model.request import Request
from ...providers.wire.quirks import LoadReport
from ...providers.wire.wire_head import path_with_query
from ...transport.url import Origin
from ..call.call import TargetRequest
from ..call.runtime import Runtime
from ..request.durable import ResumeToken
from ..request.prepared import Prepared
from ..request.preparer import Preparer
from ..request.token_estimate import estimate_input_tokens
from .admission import Admission, Candidate
from .budgets.amounts import Budget, BudgetStatistics
from .budgets.budgets import Budgets, Spending
from .limits.host import Host
from .limits.leases import LeasedRateLimit
from .limits.limiter import DeclaredLimit, Limiter, LimiterState
from .limits.rate_limit import EVERY_CALL, Entry, LimiterStatistics, find_entries
from .options import Traffic, TrafficStatistics, Warm
from .prompt_caches import PromptCaches
from .routing.options import Route, RouteStatistics
from .routing.router import Access, Router, RouteTarget, accesses_of
from .targets import PRIORITIES, MakeRequest, Targets

if TYPE_CHECKING:
    from .shared_limits import EngineShare

KeyAtAddress: TypeAlias = Hashable
"""Identifies a key at an address. Calls of two accounts never share a limit of a server."""

MOST_LIMITERS = 1_000
"""At this number of limiters, the limiters without calls are removed before a new one is made."""


def _load_request(access: Access, way: LoadReport) -> Prepared:
    """Return the request that asks a server for its queue. Raises `InvalidRequestError`."""
    quirks = access.provider.profile.quirks
    headers = [("accept", "*/*"), *quirks.headers]
    wire = WireRequest(path_with_query(way.path, quirks), headers, b"", method="GET", unversioned=True)
    return access.preparer.prepare_wire(access.provider, wire)


class TrafficWatch(Protocol):
    """An observer, as traffic control sees it. `Observer` describes the methods."""

    def limiter_changed(self, limiter: str, statistics: LimiterStatistics) -> None: ...

    def route_changed(self, route: str, statistics: RouteStatistics) -> None: ...

    def budget_changed(self, statistics: BudgetStatistics) -> None: ...


class Dispatcher:
    """The limiters and routes of one engine.

    has_routes: whether a call may be on a route, or have a provider with several keys.
    budgets: the budgets; None in an engine without budgets and prices.
    share: what this engine has of the limits that it shares with others; None: its limits are its own.
    caches: lets calls with one beginning of their prompts wait for the one that writes it; None: they do not wait.

    Raises `InvalidRequestError` for an entry of `traffic.rates` that covers no provider, and for a route whose target
    names none.
    """

    def __init__(
        self,
        traffic: Traffic,
        providers: Sequence[Provider],
        runtime: Runtime,
        preparer: Preparer,
        make_streamed: MakeRequest,
        watch: TrafficWatch | None = None,
    ) -> None:
        self._traffic = traffic
        self._watch = watch
        changed = None if watch is None else watch.route_changed
        self._entries = find_entries(traffic.rates, providers)
        self._runtime = runtime
        self._providers = tuple(providers)
        accesses = {provider.name: accesses_of(provider, preparer) for provider in providers}
        self._hosts: dict[tuple[Origin, str], Host] = {}  # by the family of models, too
        self._access_of: dict[str, Access] = {name: several[0] for name, several in accesses.items()}
        self._keyed: dict[str, Router] = {
            name: Router(None, (RouteTarget(several, self._host(several[0], "")),), runtime)
            for name, several in accesses.items()
            if len(several) > 1
        }
        self._routes: dict[str, Router] = {
            route.name: Router(route, self._targets(route, accesses), runtime, changed) for route in traffic.routes
        }
        self.has_routes: bool = bool(self._routes or self._keyed)
        self.share: EngineShare | None = None
        if traffic.shared is not False:
            from .shared_limits import EngineShare

            self.share = EngineShare(traffic, runtime.loop.clock)
        lease_of = None if self.share is None else self.share.amounts
        # The calls of an engine without budgets and prices have no spending.
        has_spending = traffic.budgets or traffic.price is not None
        self._on_spent = None if watch is None else watch.budget_changed
        self.budgets: Budgets | None = (
            Budgets(tuple(traffic.budgets), traffic.price, runtime, lease_of, self._on_spent) if has_spending else None
        )
        warm = Warm() if traffic.warm is True else traffic.warm
        self.caches: PromptCaches | None = None
        if warm:
            self.caches = PromptCaches(warm, runtime, traffic.price, make_streamed)
        self._declared: dict[tuple[str, KeyAtAddress | None], DeclaredLimit] = {}
        self._limiter_of_model: dict[tuple[str, str], Limiter] = {}
        self._limiters: dict[Hashable, Limiter] = {}
        self._limiter_of_state: dict[Hashable, Limiter] = {}

    def admission(self, request: Request, prepared: Prepared, wire: WireRequest) -> Admission:
        """The way of a new call to one model with one key. Raises `InvalidRequestError` if a budget cannot be applied
        to the call."""
        name, model = prepared.provider.name, prepared.model
        limiter = self._limiter_of_model.get((name, model))
        if limiter is None:
            limiter = self._find_limiter(self._access_of[name], model)
        budgets = self.budgets
        need = None if budgets is None else budgets.need(request, prepared, wire)
        # By position: each start would pay for a dict of the names.
        candidate = Candidate(
            estimate_input_tokens(request, prepared.body), request.max_output_tokens, PRIORITIES[request.priority],
            request.tenant, None, prepared, need,
        )  # fmt: skip
        candidate.limiter = limiter
        spending = None if budgets is None else Spending(budgets)
        caches, found = self.caches, None
        if caches is not None:
            if request.session is not None:
                caches.set_key(request, prepared)
            found = caches.prefixes(prepared)
        if caches is None or found is None:
            return Admission(candidate, spending)
        return caches.admission(candidate, spending, request, prepared, self._access_of[name], found)

    def add_budget(self, tenant: str, budget: Budget) -> None:
        """Add a budget for the calls of one tenant, until `remove_budget`. Raises `InvalidRequestError`."""
        if self.budgets is None:
            self.budgets = Budgets((), None, self._runtime, None, self._on_spent)
        self.budgets.add(tenant, budget)

    def remove_budget(self, tenant: str) -> None:
        """Remove the budget that was added for a tenant."""
        if self.budgets is not None:
            self.budgets.remove(tenant)

    @property
    def routes(self) -> tuple[str, ...]:
        return tuple(self._routes)

    def on_a_route(self, request: Request, make_request: MakeRequest) -> tuple[Admission, TargetRequest] | None:
        """The way of a new call on a route, or to a provider with several keys, and its request for the first target;
        None for any other call. Raises `InvalidRequestError`."""
        if not isinstance(request, Request):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        model = ""
        route = self._routes.get(request.model) if isinstance(request.model, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        if route is None and self._keyed:
            provider, model = select(request.model, self._providers)
            route = self._keyed.get(provider.name)
        if route is None:
            return None
        targets = Targets(route, request, make_request, self, model)
        planned = targets.plan(self._runtime.loop.clock())
        spending = None if self.budgets is None else Spending(self.budgets)
        first = targets.request_at(planned)
        if self.caches is None:
            return Admission(planned, spending, targets), first
        return self.caches.on_a_route(planned, spending, request, first, targets)

    def preparer(self, token: ResumeToken, own: Preparer) -> Preparer:
        """What prepares requests with the key that made an answer. own: the engine's, for providers with one key.

        Raises `InvalidRequestError` for a key that the provider has not.
        """
        router = self._keyed.get(token.provider)
        if router is None:
            return own
        accesses = router.targets[0].accesses
        if token.key is None or not 0 <= token.key < len(accesses):
            made = "the provider's only key" if token.key is None else f"key {token.key}"
            keys = f"{token.provider!r} has the keys 0 to {len(accesses) - 1}"
            raise InvalidRequestError("token", f"its answer was made with {made}, and {keys}")
        return accesses[token.key].preparer

    def first_target(self, model: str, own: Preparer) -> tuple[Preparer, str]:
        """What prepares requests for the first target and key of a model, and its name there. own: the engine's."""
        route = self._routes.get(model) or self._keyed.get(model.partition("/")[0])
        if route is None:
            return own, model
        target = route.targets[0]
        return target.accesses[0].preparer, f"{target.provider}/{target.model}" if target.model else model

    def end_session(self, session: str) -> None:
        """Forget which targets and keys a session has."""
        for route in (*self._routes.values(), *self._keyed.values()):
            route.end_session(session)

    def limiter(self, access: Access, model: str) -> Limiter:
        """The limiter of a model at a provider, for one key."""
        return self._limiter_of_model.get((access.name, model)) or self._find_limiter(access, model)

    def _targets(self, route: Route, accesses: Mapping[str, tuple[Access, ...]]) -> tuple[RouteTarget, ...]:
        """The targets of a route. Raises `InvalidRequestError`."""
        targets: list[RouteTarget] = []
        for target in route.targets:
            name, _, model = target.model.partition("/")
            provider = named(name, self._providers)
            if provider is None:
                raise InvalidRequestError(
                    f"traffic.routes[{route.name!r}]",
                    f"no provider is known for the target {target.model!r}; {configured(self._providers)}",
                )
            several = accesses[provider.name]
            targets.append(RouteTarget(several, self._host(several[0], model), model, target))
        return tuple(targets)

    def statistics(self) -> TrafficStatistics:
        now = self._runtime.loop.clock()
        return TrafficStatistics(
            {limiter.state.name: limiter.state.statistics(now) for limiter in self._limiters.values()},
            {name: route.statistics(now) for name, route in self._routes.items()},
            () if self.budgets is None else self.budgets.statistics(now),
            {} if self.caches is None else self.caches.statistics(),
        )

    def _find_limiter(self, access: Access, model: str) -> Limiter:
        """The limiter of a model: a new one, unless another model or provider has the same limits."""
        if len(self._limiters) >= MOST_LIMITERS:
            self._forget_idle()
        provider = access.provider
        account, row = access.preparer.account(provider), provider.profile.name
        family = family_of(row, model)
        entries = tuple(
            entry
            for entry in self._entries
            if entry.covers(provider.name, model) or entry.covers(provider.name, family)
        )
        key = (account, family, entries)
        limiter = self._limiters.get(key)
        if limiter is None:
            state = LimiterState(
                self._name(access, family),
                charging_of(row, provider.profile.dialect_name),
                limits=[self._declared_limit(entry, account) for entry in entries],
                adaptive=self._traffic.adaptive,
                host=self._host(access, model),
            )
            read_report = reader_of(provider.profile.dialect_name)
            watch = None if self._watch is None else self._watch.limiter_changed
            limiter = Limiter(
                state,
                self._runtime,
                row,
                read_report,
                self._next_in_line,
                watch,
                provider.profile.quirks.load,
                partial(_load_request, access),
            )
            self._limiters[key] = self._limiter_of_state[state] = limiter
            state.host.listen(limiter.host_changed)
        self._limiter_of_model[access.name, model] = limiter
        return limiter

    def _host(self, access: Access, model: str) -> Host:
        """The server of a model, which all providers at its address share."""
        origin = access.preparer.origin(access.provider)
        key = (origin, family_of(access.provider.profile.name, model))
        host = self._hosts.get(key)
        if host is None:
            host = self._hosts[key] = Host(str(origin), self._traffic.outage)
        return host

    def server_paused(self, origin: Origin) -> None:
        """Learn nothing from the calls that run at an address: the program pauses its server, or lets it go on."""
        hosts = [host for (at, _), host in self._hosts.items() if at == origin]
        for limiter in self._limiters.values():
            if limiter.state.host in hosts and limiter.state.concurrency is not None:
                limiter.state.concurrency.interrupt()

    def _name(self, access: Access, family: str) -> str:
        """A name that no other limiter has."""
        name = f"{access.name}/{family}"
        taken = {limiter.state.name for limiter in self._limiters.values()}
        number = 2
        while name in taken:
            name, number = f"{access.name}/{family} ({number})", number + 1
        return name

    def _declared_limit(self, entry: Entry, account: KeyAtAddress) -> DeclaredLimit:
        declared = self._traffic.rates[entry.key]
        is_one = entry.key == EVERY_CALL or isinstance(declared, LeasedRateLimit)
        key = (entry.key, None if is_one else account)
        limit = self._declared.get(key)
        if limit is None:
            if self.share is not None:
                declared = self.share.rate(entry.key, "" if is_one else account)
            limit = self._declared[key] = DeclaredLimit(entry.key, declared, self._runtime.loop.clock())
            if limit.lease is not None:
                limit.lease.is_wanted = partial(bool, limit.line)
                limit.lease.listen(partial(self._next_in_line, limit, None))
        return limit

    def _next_in_line(self, limit: DeclaredLimit, state: LimiterState | None) -> None:
        """Schedule the limiter of the first limiter in a declared limit's line, unless that is `limiter` itself."""
        first = limit.next_in_line()
        if first is not None and first is not state:
            self._limiter_of_state[first].schedule()

    def _forget_idle(self) -> None:
        """Remove the limiters without calls, so that model names from untrusted input do not fill the memory."""
        for key, limiter in list(self._limiters.items()):
            if not limiter.state.queue.length and not limiter.state.running:
                del self._limiters[key]
                del self._limiter_of_state[limiter.state]
                limiter.state.host.forget(limiter.host_changed)
                limiter.is_forgotten = True
        self._hosts = {key: host for key, host in self._hosts.items() if host.is_watched}
        kept = set(map(id, self._limiters.values()))
        self._limiter_of_model = {
            key: limiter for key, limiter in self._limiter_of_model.items() if id(limiter) in kept
        }
