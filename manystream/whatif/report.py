"""The report of a what-if: whether its figures can be vouched for, and the figures before and after, as values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from .. import InvalidRequestError, Provider, Retry, Timeouts, Traffic, Usage
from ..engine.embedding import ask_price
from ..providers.json.json_values import JSONObject
from .fit import Server, changed, fit_servers
from .outcomes import Figures, Outcomes, Price, all_figures, latencies, outcomes_of, percentile, replayed
from .recorded import FIRST_FORM, Recorded, read_recording
from .simulate import Simulation, providers_of

SCHEMA = "manystream.whatif/1"
TOLERANCE = 0.05
"""How far a replay may be from the recording: a part of the figure."""

LEAST_SECONDS = 0.005
LEAST_REFUSALS = 2
"""A smaller difference is none."""

CACHES = "input that was read from a cache is as recorded: the order of calls changes no cache here"


@dataclass(slots=True, frozen=True, kw_only=True)
class Report(Figures):
    """What would have happened: the figures after a change. Without one, those of the recorded requests, sent at their
    recorded times and answered by the fitted servers.

    valid: the fitted servers give the recording's p50, p95, cost and refusals within 5 %, and nothing is `unknown`.
    reasons: why it is not valid.
    notes: what the recording does not say, and how it was filled in.
    unknown: what the recording has not seen → the requests that it would have got.
    seed: that of the run.
    """

    valid: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    unknown: dict[str, int]
    before: Figures
    seed: int

    def to_json(self) -> JSONObject:
        """Return the report as JSON: its members, and those of its figures."""
        return {"schema": SCHEMA, **cast("JSONObject", dataclasses.asdict(self))}


def run(
    path: str | Path,
    *,
    traffic: Traffic | None = None,
    servers: Mapping[str, Server] | None = None,
    keys: Mapping[str, int] | None = None,
    models: Mapping[str, str] | None = None,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    as_recorded: bool = False,
    seed: int = 0,
) -> Report:
    """Return what would have happened to the calls of a recording under other options.

    It runs an event loop of its own, in simulated time. The same arguments give the same report.

    path: a file of `engine.record`; one with `content=False` is enough.
    traffic: the options of traffic control. None: only check that the fitted servers explain the recording.
    servers: pattern of `provider/model` → what is known of these servers beside the recording.
    keys: provider → its number of API keys. models: model of a request → the model or route to ask in its place.
    timeouts, retry: as for `open_engine`.
    as_recorded: `traffic` was in force when the recording was made: the run must give the recorded figures.
    seed: of all that is drawn.

    Raises `RecordingError`, and `InvalidRequestError` for options that do not fit the recording.
    """
    recorded = read_recording(path)
    own = changed(fit_servers(recorded), {}, {})
    _name_servers(recorded, traffic, models or {}, keys or {})
    fit = changed(own, servers or {}, keys or {})
    for name, count in (keys or {}).items():
        recorded.endpoints[name].keys = count
    price, private = None, None
    if traffic is not None:
        real = {provider.name: provider for provider in providers_of(recorded)}  # their addresses say what they cost
        price = None if traffic.price is None else partial(_price_of, traffic.price, real)
        private = replace(traffic, shared=False, price=price)
    simulation = Simulation(fit, seed, models or {}, private, timeouts, retry)
    before = outcomes_of(recorded, price, providers_of(recorded))
    replay = replayed(own, before, seed)
    after = replay if traffic is None else simulation.run()
    is_run = as_recorded and traffic is not None
    unknown = dict(sorted(simulation.unknown.items()))
    reasons = _differences(before, after if is_run else replay, by_chance=not is_run)
    reasons += [f"unknown: {count} requests to {name}" for name, count in unknown.items()]
    notes = [FIRST_FORM] * (recorded.form == 1) + [CACHES] * any(count > 0 for count in recorded.calls["cached"])
    notes += ["the cost is unknown: give Traffic(price=…)"] * (traffic is None or traffic.price is None)
    found = all_figures(recorded, after)
    return Report(
        **{member.name: getattr(found, member.name) for member in dataclasses.fields(found)},
        valid=not reasons,
        reasons=tuple(reasons),
        notes=(*notes, *fit.notes, *simulation.notes),
        unknown=unknown,
        before=all_figures(recorded, before),
        seed=seed,
    )


def _price_of(price: Price, real: Mapping[str, Provider], provider: Provider, model: str, usage: Usage) -> float | None:
    return ask_price(price, real[provider.name], model, usage)


def _name_servers(
    recorded: Recorded, traffic: Traffic | None, models: Mapping[str, str], keys: Mapping[str, int]
) -> None:
    """Add the servers and providers that the options name. Raises `InvalidRequestError`."""
    routes, rates = ((), ()) if traffic is None else (traffic.routes, traffic.rates)
    try:
        for name in (*(target.model for route in routes for target in route.targets), *models.values()):
            if "/" in name:
                recorded.server(name)
        for name in (*(rate.partition("/")[0] for rate in rates if rate != "*"), *keys):
            recorded.provider(name)
    except ValueError as error:
        raise InvalidRequestError("traffic", str(error)) from None


def _differences(before: Outcomes, found: Outcomes, *, by_chance: bool) -> list[str]:
    """Return in which figures what should give the recording differs from it.

    by_chance: times were drawn. Then a percentile of few calls may be off by what chance makes of it: two standard
    deviations of its share.
    """
    times, others, reasons = latencies(before), latencies(found), list[str]()
    compared: list[tuple[str, float, float, float]] = []
    for name, share in (("p50", 0.5), ("p95", 0.95)):
        apart = 2 * math.sqrt(share * (1 - share) / max(1, len(others))) if by_chance else 0.0
        was, low, high = (
            percentile(*each) for each in ((times, share), (others, share - apart), (others, share + apart))
        )
        compared.append((name, was, min(max(was, low), high), LEAST_SECONDS))
    for name, column, least in (("cost", "cost", 0.0), ("refusals", "refused", LEAST_REFUSALS)):
        was, got = (sum(value for value in each.calls[column] if value > 0) for each in (before, found))
        compared.append((name, was, got, least))
    for name, was, got, least in compared:
        if abs(got - was) > max(least, TOLERANCE * was):
            reasons.append(f"{name}: {got:,.6g} as recorded, and {was:,.6g} in the recording")
    return reasons


# --- as text ---

ROWS: tuple[str, ...] = ("calls", "failed", "refused", "cost", "p50", "p95", "waited", "wait p95")


def cells(figures: Figures) -> tuple[str, ...]:
    cost = "-" if figures.cost is None else f"${figures.cost:,.4f}"
    times = (figures.latency.p50, figures.latency.p95, figures.waited, figures.wait.p95)
    counts = (f"{count:,}" for count in (figures.calls, figures.failed, figures.refused))
    return (*counts, cost, *(f"{seconds:,.2f} s" for seconds in times))


def tables(report: Report, *, compare: bool) -> Iterator[list[tuple[str, ...]]]:
    """Yield tables with their headings: of all calls, and by target, tenant and hour. compare: with the recording."""
    for title, member in (("all", ""), ("target", "by_target"), ("tenant", "by_tenant"), ("hour (UTC)", "by_hour")):
        sides = [("before", report.before), ("after", report)] if compare else [("", report)]
        groups = [(word, getattr(side, member) if member else {"all": side}) for word, side in sides]
        yield [(title, *ROWS)] + [
            (f"{name} {word}".strip(), *cells(group[name]))
            for name in sorted({name for _, group in groups for name in group})
            for word, group in groups
            if name in group
        ]


def verdict(report: Report) -> str:
    """Return the first line: whether the figures can be vouched for."""
    return "VALID" if report.valid else f"INVALID: {'; '.join(report.reasons)}"
