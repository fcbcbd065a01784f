"""The figures of traffic control. Values only; `LimiterState.statistics` fills them in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .budgets.amounts import Amounts, Budget


@dataclass(slots=True, frozen=True)
class LimitStatistics:
    """The figures of one limit at one moment, in the unit that it counts (requests or tokens).

    rate: units that may be sent per second.
    capacity: units that may be sent at once after a pause.
    level: units that may be sent now; negative if more were sent than the limit had room for.
    """

    rate: float
    capacity: float
    level: float


@dataclass(slots=True, frozen=True)
class LimiterStatistics:
    """The figures of one limiter at one moment. A limiter is a key of a host, and the models that share a limit there.

    waiting: calls in the queue.
    running: calls that were sent and have not ended.
    sent: requests sent since the engine opened; a call that is sent again counts again.
    refused: requests refused by a limit since the engine opened.
    reported: limits that the server reports or the program declared, by name.
    learned: limits learned from refusals, by the unit that they count.
    window: the largest number of calls that may be sent and not yet be accepted.
    unconfirmed: calls that were sent and are not yet known to be accepted.
    held: seconds until the pause after a refusal ends; 0 if there is none.
    spent: seconds until calls are sent again after the server reported a used-up quota; 0 if none is used up.
    concurrent: the largest number of running calls; None if that is not limited.
    away: seconds for which the server has refused or dropped every connection; 0 if it takes them.
    """

    waiting: int = 0
    running: int = 0
    sent: int = 0
    refused: int = 0
    reported: Mapping[str, LimitStatistics] = field(default_factory=dict[str, LimitStatistics])
    learned: Mapping[str, LimitStatistics] = field(default_factory=dict[str, LimitStatistics])
    window: int = 0
    unconfirmed: int = 0
    held: float = 0.0
    spent: float = 0.0
    concurrent: int | None = None
    away: float = 0.0


@dataclass(slots=True, frozen=True)
class TargetStatistics:
    """One target of a route at one moment.

    target: `provider/model`.
    outstanding: calls under way.
    sessions: sessions that are bound to it, for `balance="sticky"`.
    breaker: `closed`, `open` (the target gets no call) or `probing` (it gets one call). Always `closed` for `fastest`
        and `sticky`, which use the score alone.
    score: seconds that a call is expected to take, failures included; None before the first answer.
    seconds: smoothed time to the first event; None before the first answer.
    failures: smoothed share of calls that failed.
    """

    target: str
    outstanding: int = 0
    sessions: int = 0
    breaker: str = "closed"
    score: float | None = None
    seconds: float | None = None
    failures: float = 0.0


@dataclass(slots=True, frozen=True)
class RouteStatistics:
    """One route at one moment.

    targets: in the order in which the route has them.
    waiting: calls that wait until a target is used again. Calls that wait for a limit are counted by their limiters.
    hedged: calls that were sent a second time because their first event was late, since the engine opened.
    """

    targets: tuple[TargetStatistics, ...] = ()
    waiting: int = 0
    hedged: int = 0


@dataclass(slots=True, frozen=True)
class BudgetStatistics:
    """One budget at one moment, for one tenant or for the whole engine.

    budget: the budget.
    tenant: the tenant; None for the whole engine and for calls without a tenant.
    limit: the largest amounts of a window; `math.inf` for an amount that is not limited.
    spent: the amounts that calls used in this window.
    reserved: the amounts that calls under way may use.
    waiting: calls that wait until others leave something over.
    ends_in: seconds until the next window; -1 if there is none.
    """

    budget: Budget
    tenant: str | None
    limit: Amounts
    spent: Amounts
    reserved: Amounts
    waiting: int = 0
    ends_in: float = -1.0


@dataclass(slots=True, frozen=True)
class TrafficStatistics:
    """The figures of traffic control at one moment.

    limiters: the figures of each limiter, by name, such as `openai/gpt-5`. Empty in an engine without `traffic`.
    routes: the figures of each route, by name.
    budgets: the figures of each budget, for each tenant that has made a call.
    """

    limiters: Mapping[str, LimiterStatistics] = field(default_factory=dict[str, LimiterStatistics])
    routes: Mapping[str, RouteStatistics] = field(default_factory=dict[str, RouteStatistics])
    budgets: tuple[BudgetStatistics, ...] = ()
