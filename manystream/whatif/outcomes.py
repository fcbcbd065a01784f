"""What calls had: as recorded, as the fitted servers give it to the same requests, or as the engine's run gives it."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from ..providers.catalog.provider import Provider
from ..providers.model.provider_error import ErrorCategory
from ..providers.model.tokens import Usage
from .fit import Fit, refusals
from .recorded import BROKEN, LEFT, REFUSED, USAGE, Names, Recorded, Table

Price: TypeAlias = Callable[[Provider, str, Usage], float | None]
"""`Traffic.price`."""

FAILURES: dict[int, ErrorCategory] = {
    REFUSED: ErrorCategory.RATE_LIMIT,
    401: ErrorCategory.AUTH,
    403: ErrorCategory.AUTH,
}
"""Status → category of a recorded failure; else it is `SERVER` from 500, `INVALID_ARG` below."""


@dataclass(slots=True)
class Outcomes:
    """What the calls had, a row each. Times are in seconds.

    calls: `latency` and `cost` are -1 where there is none. `failed` is the number of a category in `categories`.
    """

    calls: Table = field(default_factory=lambda: Table(
        "asked", "latency", "wait", "cost", "server", "failed", "refused", "output"))  # fmt: skip
    categories: Names = field(default_factory=Names)


def outcomes_of(recorded: Recorded, price: Price | None, providers: Sequence[Provider]) -> Outcomes:
    """Return what the calls had when they were recorded."""
    found, exchanges, calls = Outcomes(), recorded.exchanges, recorded.calls
    named = {provider.name: provider for provider in providers}
    for call in range(len(calls)):
        rows = recorded.rows(call)
        asked, wait, free = calls["asked"][call], 0.0, calls["asked"][call]
        for row in rows:
            wait += max(0.0, exchanges["started"][row] - free)
            free = max(free, exchanges["started"][row] + exchanges["ended"][row])
        answered = [row for row in rows if recorded.is_answer(row)]
        server = int(exchanges["server"][(answered or rows)[-1]]) if rows else int(calls["server"][call])
        provider, _, model = recorded.servers.texts[server].partition("/")
        cost = None if not answered or price is None else price(named[provider], model, usage_of(recorded, call))
        found.calls.add(
            asked=asked,
            latency=recorded.ended(call) - asked if answered else -1,
            wait=wait,
            cost=-1 if cost is None or recorded.form == 1 else cost,
            server=server,
            failed=-1 if answered else found.categories.number(_failure(recorded, rows)),
            refused=sum(exchanges["status"][row] == REFUSED for row in rows),
            output=recorded.output(call) if answered else 0,
        )
    return found


def _failure(recorded: Recorded, rows: Sequence[int]) -> str:
    if not rows:
        return "unsent"
    status, how = int(recorded.exchanges["status"][rows[-1]]), recorded.exchanges["how"][rows[-1]]
    if how == LEFT:
        return ErrorCategory.CANCELLED.value
    if how == BROKEN or not status:
        return ErrorCategory.NETWORK.value
    return FAILURES.get(status, ErrorCategory.SERVER if status >= 500 else ErrorCategory.INVALID_ARG).value


def usage_of(recorded: Recorded, call: int) -> Usage:
    """Return the usage of a call's answer."""
    counts = {member: int(recorded.calls[name][call]) for name, member in USAGE.items()}
    return Usage(**{member: count for member, count in counts.items() if count >= 0})  # type: ignore[arg-type]


def replayed(fit: Fit, before: Outcomes, seed: int) -> Outcomes:
    """Return what the calls would have had if the fitted servers had got the same requests at the same times.

    What the lines do not explain is exchanged at random between the exchanges of a server: this checks the lines.
    """
    recorded, exchanges, found = fit.recorded, fit.recorded.exchanges, Outcomes(categories=before.categories)
    for name, column in before.calls.columns.items():
        found.calls.columns[name] = column[:]
    ordered = sorted(range(len(exchanges)), key=exchanges["started"].__getitem__)
    limited = array("q", (row for row in ordered if int(exchanges["server"][row]) in fit.refuses))
    del ordered
    limits = [limit for each in fit.limits.values() for limit in each]
    for row, refused in zip(limited, refusals(fit, limits, limited), strict=True):
        found.calls["refused"][int(exchanges["call"][row])] += refused - (exchanges["status"][row] == REFUSED)
    latency, asked, lots = found.calls["latency"], recorded.calls["asked"], random.Random(seed)
    for (server, _), speed in sorted(fit.speeds.items()):
        donors = [*speed.rows]
        lots.shuffle(donors)
        for row, donor in zip(speed.rows, donors, strict=True):
            call = int(exchanges["call"][row])
            drawn = fit.draw(call, server, int(exchanges["load"][row]), seed, donor)
            if drawn is not None:
                end = exchanges["started"][row] + drawn.first + drawn.seconds
                latency[call] = max(0.0, end - asked[call])
    return found


@dataclass(slots=True, frozen=True)
class Spread:
    """How long something took, in seconds."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


@dataclass(slots=True, frozen=True, kw_only=True)
class Figures:
    """The figures of some calls.

    calls, succeeded, failed: numbers of calls. failures: category → failed calls.
    refused: requests that a limit refused, of all attempts.
    cost: US dollars; None where no price is known.
    latency: from the start of a call to its whole answer.
    waited: the seconds in which calls were at no server, all together. wait: how they spread over the calls.
    by_target, by_tenant, by_hour: the same of the calls to each `provider/model`, of each tenant, and of those that
        were started in each hour (UTC). `-` stands for none.
    """

    calls: int
    succeeded: int
    failed: int
    failures: dict[str, int]
    refused: int
    cost: float | None
    latency: Spread
    waited: float
    wait: Spread
    by_target: dict[str, Figures] = field(default_factory=dict[str, "Figures"])
    by_tenant: dict[str, Figures] = field(default_factory=dict[str, "Figures"])
    by_hour: dict[str, Figures] = field(default_factory=dict[str, "Figures"])


def spread(values: list[float]) -> Spread:
    if not values:
        return Spread()
    values.sort()
    found = (sum(values) / len(values), *(percentile(values, share) for share in (0.5, 0.95, 0.99, 1.0)))
    return Spread(*(round(value, 6) for value in found))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which a share of the ordered values lies; 0 of none."""
    return ordered[max(0, min(len(ordered) - 1, int(len(ordered) * share)))] if ordered else 0.0


def latencies(outcomes: Outcomes) -> list[float]:
    """Return the latencies of the calls that succeeded, in order."""
    return sorted(seconds for seconds in outcomes.calls["latency"] if seconds >= 0)


def figures(outcomes: Outcomes, rows: Sequence[int], **groups: dict[str, Figures]) -> Figures:
    calls = outcomes.calls
    failures = Counter(outcomes.categories.texts[int(place)] for row in rows if (place := calls["failed"][row]) >= 0)
    cost = sum(calls["cost"][row] for row in rows if calls["cost"][row] >= 0)
    return Figures(
        calls=len(rows),
        succeeded=len(rows) - failures.total(),
        failed=failures.total(),
        failures=dict(sorted(failures.items())),
        refused=int(sum(calls["refused"][row] for row in rows)),
        cost=round(cost, 6) if any(calls["cost"][row] >= 0 for row in rows) else None,
        latency=spread([calls["latency"][row] for row in rows if calls["latency"][row] >= 0]),
        waited=round(sum(calls["wait"][row] for row in rows), 4),
        wait=spread([calls["wait"][row] for row in rows]),
        **groups,
    )


def all_figures(recorded: Recorded, outcomes: Outcomes) -> Figures:
    """Return the figures of all calls and of their groups."""
    calls = outcomes.calls

    def grouped(name_of: Callable[[int], str]) -> dict[str, Figures]:
        groups: dict[str, array[int]] = {}
        for row in range(len(calls)):
            groups.setdefault(name_of(row) or "-", array("q")).append(row)
        return {name: figures(outcomes, groups[name]) for name in sorted(groups)}

    def hour(row: int) -> str:
        moment = datetime.fromtimestamp(recorded.began + calls["asked"][row], UTC)
        return moment.strftime("%Y-%m-%d %H:00")

    return figures(
        outcomes,
        range(len(calls)),
        by_target=grouped(
            lambda row: "" if calls["server"][row] < 0 else recorded.servers.texts[int(calls["server"][row])]
        ),
        by_tenant=grouped(lambda row: recorded.names.texts[int(recorded.calls["tenant"][row])]),
        by_hour=grouped(hour),
    )
