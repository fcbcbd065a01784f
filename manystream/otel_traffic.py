"""The metrics of traffic control for OpenTelemetry: limiters, routes and budgets.

The conventions for generative AI have no such metrics, so the names are our own. The SDK reads them on a thread of its
own, from the frozen records that the engine's thread has put here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from . import Amounts
from .statistics import BucketStatistics, BudgetStatistics, LimiterStatistics, RouteStatistics, TargetStatistics

MOST_RECORDS = 1_000
"""The limiters, routes and budgets whose figures are kept, of each kind. Above this number, the one that was seen first
is dropped."""

Labels: TypeAlias = dict[str, str | float]
"""The attributes of one observation."""

Record = TypeVar("Record")
Part = TypeVar("Part")


@dataclass(slots=True, frozen=True)
class Metric(Generic[Part]):
    """One metric.

    read: returns its value; None if there is none.
    grows: whether the value is a total, which only grows.
    """

    name: str
    unit: str
    description: str
    read: Callable[[Part], float | None]
    grows: bool = False


@dataclass(slots=True, frozen=True)
class AmountFigures:
    """One amount of a budget, in its unit. limit: None for no limit."""

    spent: float
    reserved: float
    limit: float | None


LIMITER_METRICS: tuple[Metric[LimiterStatistics], ...] = (
    Metric("manystream.traffic.waiting", "{call}", "Calls that wait.", lambda limiter: limiter.waiting),
    Metric("manystream.traffic.running", "{call}", "Calls sent and not ended.", lambda limiter: limiter.running),
    Metric("manystream.traffic.window", "{call}", "Most unconfirmed calls.", lambda limiter: limiter.window),
    Metric("manystream.traffic.concurrent", "{call}", "Most running calls.", lambda limiter: limiter.concurrent),
    Metric("manystream.traffic.held", "s", "Time until the pause ends.", lambda limiter: limiter.held),
    Metric("manystream.traffic.sent", "{request}", "Requests sent.", lambda limiter: limiter.sent, grows=True),
    Metric("manystream.traffic.refused", "{request}", "Refused.", lambda limiter: limiter.refused, grows=True),
)
"""The metrics of a limiter, with the attribute `manystream.limiter`."""

LIMIT_METRICS: tuple[Metric[BucketStatistics], ...] = (
    Metric("manystream.traffic.limit.rate", "", "What may be sent per second.", lambda limit: limit.rate),
    Metric("manystream.traffic.limit.level", "", "What may be sent now.", lambda limit: limit.level),
)
"""The metrics of a limiter's limit: also with the attributes `manystream.limit` and `manystream.limit.source`."""

ROUTE_METRICS: tuple[Metric[RouteStatistics], ...] = (
    Metric("manystream.route.waiting", "{call}", "Calls that wait for a target.", lambda route: route.waiting),
    Metric("manystream.route.hedged", "{call}", "Calls sent twice.", lambda route: route.hedged, grows=True),
)
"""The metrics of a route, with the attribute `manystream.route`."""

TARGET_METRICS: tuple[Metric[TargetStatistics], ...] = (
    Metric("manystream.route.outstanding", "{call}", "Calls under way.", lambda target: target.outstanding),
    Metric("manystream.route.sessions", "{session}", "Sessions bound to it.", lambda target: target.sessions),
    Metric("manystream.route.open", "1", "1: it gets no call.", lambda target: float(target.breaker == "open")),
    Metric("manystream.route.score", "s", "Time that a call is expected to take.", lambda target: target.score),
    Metric("manystream.route.first_event", "s", "Smoothed time to the first event.", lambda target: target.seconds),
    Metric("manystream.route.failures", "1", "Smoothed share of failures.", lambda target: target.failures),
)
"""The metrics of a route's target, with the attributes `manystream.route` and `manystream.target`."""

BUDGET_METRICS: tuple[Metric[BudgetStatistics], ...] = (
    Metric("manystream.budget.waiting", "{call}", "Calls that wait for it.", lambda budget: budget.waiting),
)
"""The metrics of a budget, with the attributes `manystream.budget.per`, `every` and `tenant`."""

AMOUNT_METRICS: tuple[Metric[AmountFigures], ...] = (
    Metric("manystream.budget.spent", "", "Used by ended calls, in this window.", lambda amount: amount.spent),
    Metric("manystream.budget.reserved", "", "Reserved by calls under way.", lambda amount: amount.reserved),
    Metric("manystream.budget.limit", "", "Allowed in a window.", lambda amount: amount.limit),
)
"""The metrics of an amount of a budget, with the attributes of the budget and `manystream.budget.amount`."""


class _Records(dict[Hashable, Record], Generic[Record]):
    """The latest records of one kind, a bounded number of them."""

    def put(self, key: Hashable, record: Record) -> None:
        if len(self) >= MOST_RECORDS and key not in self:
            del self[next(iter(self))]
        self[key] = record

    def all(self) -> list[Record]:
        """Return a copy, which is safe on another thread."""
        return list(self.values())


class TrafficMetrics:
    """The metrics of one observer. meter: makes them."""

    def __init__(self, meter: Meter) -> None:
        self._limiters: _Records[tuple[str, LimiterStatistics]] = _Records()
        self._routes: _Records[tuple[str, RouteStatistics]] = _Records()
        self._budgets: _Records[BudgetStatistics] = _Records()
        _observe(
            meter,
            LIMITER_METRICS,
            lambda: [({"manystream.limiter": name}, limiter) for name, limiter in self._limiters.all()],
        )
        _observe(meter, LIMIT_METRICS, self._limit_parts)
        _observe(
            meter, ROUTE_METRICS, lambda: [({"manystream.route": name}, route) for name, route in self._routes.all()]
        )
        _observe(meter, TARGET_METRICS, self._target_parts)
        _observe(meter, BUDGET_METRICS, lambda: [(_budget_labels(budget), budget) for budget in self._budgets.all()])
        _observe(meter, AMOUNT_METRICS, self._amount_parts)

    def put_limiter(self, limiter: str, statistics: LimiterStatistics) -> None:
        self._limiters.put(limiter, (limiter, statistics))

    def put_route(self, route: str, statistics: RouteStatistics) -> None:
        self._routes.put(route, (route, statistics))

    def put_budget(self, statistics: BudgetStatistics) -> None:
        # Budgets may be equal to each other, and may hold functions.
        self._budgets.put((id(statistics.budget), statistics.tenant), statistics)

    # --- the parts that a metric is read from, with their attributes ---

    def _limit_parts(self) -> Iterable[tuple[Labels, BucketStatistics]]:
        for limiter, statistics in self._limiters.all():
            for source, limits in (("reported", statistics.reported), ("learned", statistics.learned)):
                for name, limit in limits.items():
                    labels: Labels = {
                        "manystream.limiter": limiter,
                        "manystream.limit": name,
                        "manystream.limit.source": source,
                    }
                    yield labels, limit

    def _target_parts(self) -> Iterable[tuple[Labels, TargetStatistics]]:
        for name, route in self._routes.all():
            for target in route.targets:
                yield {"manystream.route": name, "manystream.target": target.target}, target

    def _amount_parts(self) -> Iterable[tuple[Labels, AmountFigures]]:
        for statistics in self._budgets.all():
            for member in filter(statistics.budget.limits, Amounts._fields):
                limit = _amount(statistics.limit, member)
                figures = AmountFigures(
                    _amount(statistics.spent, member),
                    _amount(statistics.reserved, member),
                    limit if limit < math.inf else None,
                )
                yield _budget_labels(statistics) | {"manystream.budget.amount": member}, figures


def _amount(amounts: Amounts, member: str) -> float:
    value: float = getattr(amounts, member)
    return value


def _budget_labels(statistics: BudgetStatistics) -> Labels:
    labels: Labels = {"manystream.budget.per": statistics.budget.per}
    if statistics.budget.every is not None:
        labels["manystream.budget.every"] = statistics.budget.every
    if statistics.tenant is not None:
        labels["manystream.budget.tenant"] = statistics.tenant
    return labels


def _observe(meter: Meter, table: Iterable[Metric[Part]], parts: Callable[[], Iterable[tuple[Labels, Part]]]) -> None:
    """Make the metrics of a table. parts: returns what they are read from."""
    for metric in table:
        create = meter.create_observable_counter if metric.grows else meter.create_observable_gauge
        create(metric.name, [_reader(metric, parts)], unit=metric.unit, description=metric.description)


def _reader(
    metric: Metric[Part], parts: Callable[[], Iterable[tuple[Labels, Part]]]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> list[Observation]:
        values = [(labels, metric.read(part)) for labels, part in parts()]
        return [Observation(value, labels) for labels, value in values if value is not None]

    return read
