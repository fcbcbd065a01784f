"""The report of a what-if: whether its figures can be vouched for, and the figures before and after, as values."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from .. import InvalidRequestError, Retry, Timeouts, Traffic
from ..providers.json.json_values import JSONObject
from .fit import Server, changed, fit_servers
from .outcomes import Figures, Outcomes, Side, Spread, latencies, outcomes_of, percentile, replayed, side
from .recorded import FIRST_FORM, Recorded, read_recording
from .simulate import Simulation

SCHEMA = "manystream.whatif/1"
TOLERANCE = 0.05
"""How far a replay may be from the recording: a part of the figure."""

LEAST_SECONDS = 0.005
LEAST_REFUSALS = 2
"""A smaller difference is none."""

PLOTS = {"mean wait, seconds": "wait", "answers a minute": "answers"}
"""Title of a plot → the column that it shows."""

CACHES = "input that was read from a cache is as recorded: the order of calls changes no cache here"
WINDOWS = 96
"""The points of a plot, at most."""


@dataclass(slots=True, frozen=True)
class Report:
    """What would have happened.

    valid: the fitted servers give the recording's p50, p95, cost and refusals within 5 %, and nothing is `unknown`.
    reasons: why it is not valid.
    notes: what the recording does not say, and how it was filled in.
    unknown: what the recording has not seen → the requests that it would have got. They are in no figure of time.
    before: the recording.
    after: what would have happened. Without `traffic`: the recorded requests at their recorded times, answered by the
        fitted servers.
    use: plots: name → pairs of seconds since the start, and of values before and after.
    """

    valid: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    unknown: Mapping[str, int]
    before: Side
    after: Side
    seed: int
    use: Mapping[str, tuple[tuple[float, ...], ...]] = field(repr=False)

    @property
    def cost(self) -> float | None:
        """US dollars of all calls; None where no price is known."""
        return self.after.all.cost

    @property
    def latency(self) -> Spread:
        """From the start of a call to its whole answer."""
        return self.after.all.latency

    @property
    def waited(self) -> float:
        """The seconds in which calls were at no server, all together."""
        return self.after.all.waited

    @property
    def wait(self) -> Spread:
        """How the waiting spreads over the calls."""
        return self.after.all.wait

    @property
    def refused(self) -> int:
        """The requests that a limit refused."""
        return self.after.all.refused

    @property
    def failed(self) -> int:
        """The calls that failed."""
        return self.after.all.failed

    @property
    def by_tenant(self) -> Mapping[str, Figures]:
        """The figures of each tenant; `-` stands for none."""
        return self.after.by_tenant

    @property
    def by_target(self) -> Mapping[str, Figures]:
        """The figures of each `provider/model`."""
        return self.after.by_target

    @property
    def by_hour(self) -> Mapping[str, Figures]:
        """The figures of the calls that were started in each hour (UTC)."""
        return self.after.by_hour

    def to_json(self) -> JSONObject:
        """Return the report as JSON. docs/guide/what-if.md has the schema."""
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
    private = None if traffic is None else replace(traffic, shared=False)
    simulation = Simulation(fit, seed, models or {}, private, timeouts, retry)
    before = outcomes_of(recorded, None if traffic is None else traffic.price, simulation.providers())
    replay = replayed(own, before, seed)
    after = replay if traffic is None else simulation.run()
    sides = side(recorded, before), side(recorded, after)
    unknown = dict(sorted(simulation.unknown.items()))
    is_run = as_recorded and traffic is not None
    reasons = _differences(before, after if is_run else replay, by_chance=not is_run)
    reasons += [f"unknown: {count} requests to {name}" for name, count in unknown.items()]
    notes = [FIRST_FORM] * (recorded.form == 1) + [CACHES] * any(count > 0 for count in recorded.calls["cached"])
    if traffic is None or traffic.price is None:
        notes.append("the cost is unknown: give Traffic(price=…)")
    return Report(
        valid=not reasons,
        reasons=tuple(reasons),
        notes=(*notes, *fit.notes, *simulation.notes),
        unknown=unknown,
        before=sides[0],
        after=sides[1],
        seed=seed,
        use={name: _windows(before, after, column) for name, column in PLOTS.items()},
    )


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


def _windows(before: Outcomes, after: Outcomes, column: str) -> tuple[tuple[float, ...], ...]:
    """Return for each window of the day its start, and of both sides the mean of a column, or the answers a minute."""
    last = max(*before.calls["asked"], *after.calls["asked"])
    width = max(1.0, last / WINDOWS)
    sums = [[0.0, 0.0] for _ in range(int(last / width) + 1)]
    counts = [[0, 0] for _ in sums]
    for place, each in enumerate((before, after)):
        for row, asked in enumerate(each.calls["asked"]):
            window = int(max(0.0, asked) / width)
            if column == "answers" and each.calls["latency"][row] >= 0:
                window = min(len(sums) - 1, int((asked + each.calls["latency"][row]) / width))
            sums[window][place] += each.calls[column][row] if column != "answers" else each.calls["latency"][row] >= 0
            counts[window][place] += 1
    return tuple(
        (round(number * width, 3), *(
            round(value * 60 / width if column == "answers" else value / max(1, count), 4)
            for value, count in zip(sums[number], counts[number], strict=True)
        ))
        for number in range(len(sums))
    )  # fmt: skip


# --- as text ---

ROWS = ("calls", "failed", "refused", "cost", "p50", "p95", "waited", "wait p95")


def cells(figures: Figures) -> tuple[str, ...]:
    """Return the cells of `ROWS`."""
    cost = "-" if figures.cost is None else f"${figures.cost:,.4f}"
    times = (figures.latency.p50, figures.latency.p95, figures.waited, figures.wait.p95)
    counts = (f"{count:,}" for count in (figures.calls, figures.failed, figures.refused))
    return (*counts, cost, *(f"{seconds:,.2f} s" for seconds in times))


def tables(report: Report, *, compare: bool) -> Iterator[list[tuple[str, ...]]]:
    """Yield tables with their headings: of all calls, and by target, tenant and hour. compare: with the recording."""
    groups = (("all", "all"), ("target", "by_target"), ("tenant", "by_tenant"), ("hour (UTC)", "by_hour"))
    for title, member in groups:
        before: dict[str, Figures] = {"all": report.before.all} if member == "all" else getattr(report.before, member)
        after: dict[str, Figures] = {"all": report.after.all} if member == "all" else getattr(report.after, member)
        rows: list[tuple[str, ...]] = [(title, *ROWS)]
        for name in sorted({*before, *after}):
            found = [("before", before.get(name)), ("after", after.get(name))] if compare else [("", after.get(name))]
            rows += [(f"{name} {word}".strip(), *cells(each)) for word, each in found if each is not None]
        if len(rows) > 2 or member != "by_tenant":
            yield rows


def verdict(report: Report) -> str:
    """Return the first line: whether the figures can be vouched for."""
    return "VALID" if report.valid else f"INVALID: {'; '.join(report.reasons)}"
