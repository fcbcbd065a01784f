"""The options of traffic control. Values and their checks only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...providers.errors import InvalidRequestError
from ...providers.model.rules import (
    Checker,
    Rule,
    checked,
    described,
    flag,
    instance,
    members,
    number,
    sequence,
    whole,
)
from .budgets.amounts import Budget, BudgetStatistics
from .budgets.price import Price
from .limits.rate_limit import LimiterStatistics, RateLimit
from .routing.options import Route, RouteStatistics

OUTAGE = 1800.0
"""Seconds for which calls wait for a server that is away, unless a program chooses another time."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Warm:
    """How calls with one beginning of their prompts share a server's prompt cache: one call writes it, the others read.

    unmarked: True: also prompts without a cache mark, for servers that cache by themselves, such as vLLM. Their prefix
        is tools and system prompt.
    wait: the most seconds that a call waits for a prefix to be written.
    least_tokens: prefixes with fewer tokens are not waited for.
    diagnose: True: ask servers that can say so why a prompt was not found in their cache (`CacheUse.miss`).
    """

    unmarked: bool = False
    wait: float = 10.0
    least_tokens: int = 1024
    diagnose: bool = False

    def __post_init__(self) -> None:
        WARM.check(self, "warm")


WARM = Checker(
    Warm,
    {
        "unmarked": flag(),
        "wait": number(0, must="a number of seconds of at least 0", infinite=True),
        "least_tokens": whole(0),
        "diagnose": flag(),
    },
)


@dataclass(slots=True, frozen=True, kw_only=True)
class Traffic:
    """The options by which an engine decides when to send a call. Engines share no limits, unless `shared` says so.

    rates: limits that the program declares, by the calls that they cover: `"openai"` covers a provider,
        `"openai/gpt-5"` a model, `"openai/gpt-5*"` every model with this beginning, and `"*"` every call. A call must
        fit every entry that covers it. `"*"` is one limit for all calls; any other entry is one for each API key.
    routes: model names of the program's own, for one or more models each. No two routes have the same name.
    budgets: amounts that calls may use in total. A call must fit every budget.
    price: a function that takes a provider, a model's name and a `Usage`, and returns US dollars, or None if it knows
        no price: `manystream.cost.price`, or one of the program's own. `Completion.cost` and budgets in `usd` need it.
        Its attribute `why`, if it has one, is a function with the same arguments that returns why there is no price.
    adaptive: True: learn limits from the reports and refusals of servers. False: only declared limits and the pauses
        that a server asks for apply.
    shared: True: the engines of all processes of this user that have `shared=True` share `rates` and `budgets`, which
        must be the same in all of them. A path: the engines that have this path share theirs. It is the path of a
        file on a local disk, which is made if it is missing. False: the limits are this engine's own.
    outage: seconds for which calls wait for a server that refuses or drops every connection; then they fail.
    warm: whether calls whose prompts begin alike, up to a cache mark, wait until one of them has written that prefix to
        the server's cache. A `Warm` has options of that.
    """

    rates: Mapping[str, RateLimit] = field(default_factory=lambda: {})
    routes: Sequence[Route] = ()
    budgets: Sequence[Budget] = ()
    price: Price | None = None
    adaptive: bool = True
    shared: bool | str | os.PathLike[str] = False
    outage: float = OUTAGE
    warm: bool | Warm = True

    def __post_init__(self) -> None:
        TRAFFIC.check(self, "traffic")
        for key in self.rates:
            provider, slash, model = key.partition("/")
            if not provider or (slash and not model) or "*" in model[:-1] or ("*" in provider and key != "*"):
                raise InvalidRequestError(
                    f"traffic.rates[{described(key)}]",
                    "must be 'provider', 'provider/model', 'provider/beginning*' or '*'",
                )
        if self.price is not None and not callable(self.price):  # pyright: ignore[reportUnnecessaryComparison]
            raise InvalidRequestError("traffic.price", f"must be a function or None, not {described(self.price)}")
        if self.price is None and any(budget.limits("usd") for budget in self.budgets):
            raise InvalidRequestError("traffic.price", "is needed for a budget in usd: use manystream.cost.price")
        names: set[str] = set()
        for position, route in enumerate(self.routes):
            if route.name in names:
                raise InvalidRequestError(f"traffic.routes[{position}]", f"two routes are named {route.name!r}")
            names.add(route.name)


@dataclass(slots=True, frozen=True)
class CacheStatistics:
    """The use of one model's prompt cache by calls with a cacheable prefix, since the engine opened.

    prefixes: the number of prefixes that are known now.
    read: tokens that were read from the cache.
    written: tokens that were written to the cache.
    usd_saved: US dollars that the reads saved, less what the writes cost more than plain input; None without a price.
    waited: seconds that calls have waited for a prefix, in total.
    """

    prefixes: int = 0
    read: int = 0
    written: int = 0
    usd_saved: float | None = None
    waited: float = 0.0


@dataclass(slots=True, frozen=True)
class TrafficStatistics:
    """The figures of traffic control at one moment.

    limiters: the figures of each limiter, by name, such as `openai/gpt-5`. Empty in an engine without `traffic`.
    routes: the figures of each route, by name.
    budgets: the figures of each budget, for each tenant that has made a call.
    caches: the use of each model's prompt cache, by provider and model, such as `anthropic/claude-sonnet-4-5`.
    """

    limiters: Mapping[str, LimiterStatistics] = field(default_factory=lambda: {})
    routes: Mapping[str, RouteStatistics] = field(default_factory=lambda: {})
    budgets: tuple[BudgetStatistics, ...] = ()
    caches: Mapping[str, CacheStatistics] = field(default_factory=lambda: {})


def _is_given(shared: object) -> bool:
    return shared != ""


TRAFFIC = Checker(
    Traffic,
    {
        "rates": members(
            instance(RateLimit, forms={int: "use RateLimit(requests_per_minute={})", dict: "use RateLimit(…)"}),
            "a dict of RateLimit",
        ),
        "routes": sequence(instance(Route), "a list of Route", forms={Route: "use [route]"}),
        "budgets": sequence(
            instance(Budget), "a list of Budget", forms={Budget: "use [budget]", dict: "use [Budget(…)]"}
        ),
        "adaptive": flag(),
        "shared": Rule("True, False or a path", (bool, str, os.PathLike), _is_given),
        "outage": number(0, must="a number of seconds of at least 0", infinite=True),
        "warm": Rule("True, False or a Warm", (bool, Warm), forms={dict: "use Warm(…)", type: "use Warm()"}),
    },
)
TRAFFIC_OPTION: Rule = checked(
    TRAFFIC, forms={bool: "use Traffic() or None", dict: "use Traffic(rates=…)", type: "use Traffic()"}
)
