"""The views of `manystream top`: a monitor's snapshot as parts of a display, as text, or as one line.

Control characters in foreign text are replaced before it is shown.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from ...providers.json.json_values import JSON, JSONObject, integer, mapping, objects, string
from ..output.terminal import Part, Table, clock, columns, compact, duration, harmless

SORTS = {"quiet": "quietest", "age": "oldest"}
"""The order of the listed calls → the member of a snapshot that lists them in this order."""

PLACES = ("active", "idle", "connecting", "waiting")
"""The members of an origin: its connections by state, and the calls that wait for a connection."""

STATES = ("queued", "connecting", "sending", "waiting", "reading", "backoff")
"""The states of a running call, in the order in which a call goes through them."""

PROVIDER_COLUMNS = columns("<provider  running  events/s  ended/s  ended  failed  <by category")
ORIGIN_COLUMNS = columns("<origin  active  idle  connecting  calls waiting")
SCOPE_COLUMNS = columns("<limiter  waiting  running  at most  window  sent  refused  held for")
LIMIT_COLUMNS = columns("<limiter  <limit  <from  a second  level  capacity")
ROUTE_COLUMNS = columns(
    "<route  <target  under way  sessions  <breaker  score  first event  failures  waiting  sent twice"
)
BUDGET_COLUMNS = columns("<budget  <amount  spent  reserved  limit  calls waiting  begins anew in")
CALL_COLUMNS = columns("call  <provider  <model  <phase  age  silent for  attempt  <request id")
DECLARED = "declared "
"""With this, the name of a limit begins that the program declared."""

LARGEST = 1e15
"""No engine reports a larger figure. So a sum and a time of day can be computed from each."""

MODEL_WIDTH = 32
ID_WIDTH = 24


class View:
    """A snapshot as lines and tables.

    snapshot: the snapshot, with the member `rates` (`rates_between`).
    sort: a key of `SORTS`.
    calls: the most calls that are listed; 0 for no list of calls.
    """

    def __init__(self, snapshot: JSONObject, *, sort: str, calls: int) -> None:
        self._snapshot = snapshot
        self._rates = mapping(snapshot, "rates")
        self._statistics = mapping(snapshot, "statistics")
        self.heading: list[str] = self._heading()
        self.sections: list[Table] = [self._providers(), self._origins()]
        traffic = mapping(self._statistics, "traffic")
        limiters, routes, budgets = (
            mapping(traffic, "limiters"),
            mapping(traffic, "routes"),
            objects(traffic, "budgets"),
        )
        if limiters:
            self.sections += [_limiters(limiters), _limits(limiters)]
        if routes:
            self.sections.append(_routes(routes))
        if budgets:
            self.sections.append(_budgets(budgets))
        if calls:
            self.sections.append(self._calls(sort, calls))

    def lines(self) -> list[str]:
        shown = list(self.heading)
        for section in self.sections:
            shown += ["", section.title, *section.lines()]
        return shown

    def parts(self) -> list[Part]:
        first, *others = self.heading
        return [[(first, "bold")], *others, *self.sections]

    def _heading(self) -> list[str]:
        snapshot, rates, statistics = self._snapshot, self._rates, self._statistics
        running = mapping(statistics, "calls")
        states = [*STATES, *(state for state in running if state not in STATES)]
        counts = [(state, integer(running, state)) for state in states]
        phases = [f"{harmless(state)} {count:,}" for state, count in counts if count is not None]
        version = harmless(string(snapshot, "manystream") or "?")
        return [
            f"manystream {version}, process {_process(snapshot)}, up {clock(_number(snapshot, 'uptime'))}",
            f"calls    {_total(running):,} running, {_count(snapshot, 'streams')} of them streams"
            + (f": {', '.join(phases)}" if phases else ""),
            f"rates    {_number(rates, 'events'):,.0f} events/s, {_number(rates, 'completed'):,.1f} calls ended/s,"
            f" {compact(_number(rates, 'bytes_received'))}B/s in, {compact(_number(rates, 'bytes_sent'))}B/s out",
            f"total    {_count(statistics, 'started')} calls started, {_count(statistics, 'completed')}"
            f" ended, {_count(statistics, 'failed')} failed, {_count(statistics, 'retried')} retries;"
            f" {_count(statistics, 'events')} events; connections {_count(statistics, 'opened')} opened,"
            f" {_count(statistics, 'reused')} reused",
            f"loop lag {lag_text(statistics)}",
        ]

    def _providers(self) -> Table:
        rows: list[list[str]] = []
        rates = mapping(self._rates, "providers")
        providers = mapping(self._statistics, "providers")
        for name in providers:
            provider, rate = mapping(providers, name), mapping(rates, name)
            failures = mapping(provider, "failures")
            by_count = sorted(failures.items(), key=lambda pair: -_as_number(pair[1]))
            rows.append(
                [
                    harmless(name),
                    _count(provider, "running"),
                    f"{_number(rate, 'events'):,.0f}",
                    f"{_number(rate, 'completed'):,.1f}",
                    _count(provider, "completed"),
                    f"{_total(failures):,}",
                    ", ".join(f"{harmless(category)} {_as_number(count):,.0f}" for category, count in by_count),
                ]
            )
        return Table(PROVIDER_COLUMNS, rows, "providers")

    def _origins(self) -> Table:
        origins = mapping(self._statistics, "connections")
        rows = [[harmless(name)] + [_count(mapping(origins, name), place) for place in PLACES] for name in origins]
        return Table(ORIGIN_COLUMNS, rows, "connections")

    def _calls(self, sort: str, count: int) -> Table:
        listed = objects(self._snapshot, SORTS[sort])
        rows = [
            [
                f"{integer(call, 'number') or 0}",
                harmless(string(call, "provider") or ""),
                _short(string(call, "model") or "", MODEL_WIDTH),
                harmless(string(call, "state") or "") + ("" if call.get("stream") else ", unstreamed"),
                duration(_number(call, "age")),
                duration(_number(call, "quiet")),
                f"{integer(call, 'attempts') or 0}",
                _short(string(call, "request_id") or "–", ID_WIDTH),
            ]
            for call in listed[:count]
        ]
        words = {"quiet": "silent for longest", "age": "oldest"}[sort]
        return Table(CALL_COLUMNS, rows, f"calls, {words} first")


def _limiters(limiters: JSONObject) -> Table:
    """Return the table of the limiters of traffic control: what waits, and why."""
    rows: list[list[str]] = []
    for name in limiters:
        limiter = mapping(limiters, name)
        held = max(_number(limiter, "held"), _number(limiter, "spent"))
        most, window = integer(limiter, "concurrent"), integer(limiter, "window")
        rows.append(
            [
                _short(name, MODEL_WIDTH),
                _count(limiter, "waiting"),
                _count(limiter, "running"),
                "–" if most is None else f"{most:,}",
                f"{_count(limiter, 'unconfirmed')} of {window:,}" if window else "–",
                _count(limiter, "sent"),
                _count(limiter, "refused"),
                duration(held) if held else "–",
            ]
        )
    return Table(SCOPE_COLUMNS, rows, "traffic")


def _server_load(load: JSONObject) -> str:
    """Return what a server said last of its queue, in brackets; nothing if it did not say."""
    if not load:
        return ""
    if load.get("slots") is not None:
        return f" (the server has {_number(load, 'slots'):,.0f} places)"
    return f" (the server: {_number(load, 'running'):,.0f}, and {_number(load, 'waiting'):,.0f} wait)"


def _limits(limiters: JSONObject) -> Table:
    """Return the table of all known limits over time, and of the calls that may run."""
    rows: list[list[str]] = []
    for limiter in limiters:
        running = mapping(limiters, limiter)
        by, most = string(running, "concurrent_by"), integer(running, "concurrent") or 0
        if by:
            what = f"running calls{_server_load(mapping(running, 'server_load'))}"
            free = most - (integer(running, "running") or 0)
            rows.append([_short(limiter, MODEL_WIDTH), what, harmless(by), "–", f"{free:,}", f"{most:,}"])
        for source in ("reported", "learned"):
            limits = mapping(mapping(limiters, limiter), source)
            for name in limits:
                limit, declared = mapping(limits, name), name.startswith(DECLARED)
                rows.append(
                    [
                        _short(limiter, MODEL_WIDTH),
                        harmless(name.removeprefix(DECLARED)),
                        DECLARED.strip() if declared else source,
                        *(f"{_number(limit, member):,.6g}" for member in ("rate", "level", "capacity")),
                    ]
                )
    return Table(LIMIT_COLUMNS, rows, "limits")


def _routes(routes: JSONObject) -> Table:
    """Return the table of the routes' targets. The first row of each route also has the figures of the route."""
    rows: list[list[str]] = []
    for name in routes:
        route = mapping(routes, name)
        of_route = [_short(name, MODEL_WIDTH), _count(route, "waiting"), _count(route, "hedged")]
        for target in objects(route, "targets"):
            rows.append(
                [
                    of_route[0],
                    _short(string(target, "target") or "", MODEL_WIDTH),
                    _count(target, "outstanding"),
                    _count(target, "sessions"),
                    harmless(string(target, "breaker") or ""),
                    _seconds(target, "score"),
                    _seconds(target, "seconds"),
                    f"{_number(target, 'failures'):.0%}",
                    *of_route[1:],
                ]
            )
            of_route = ["", "", ""]
    return Table(ROUTE_COLUMNS, rows, "routes")


def _budgets(budgets: Sequence[JSONObject]) -> Table:
    """Return the table of the budgets: a row for each amount that one limits."""
    rows: list[list[str]] = []
    for budget in budgets:
        tenant, ends_in = string(budget, "tenant"), _number(budget, "ends_in")
        nobody = "no tenant" if budget.get("per") == "tenant" else "all calls"
        limits = mapping(budget, "limit")
        for amount in limits:
            spent, reserved = (_number(mapping(budget, name), amount) for name in ("spent", "reserved"))
            rows.append(
                [
                    nobody if tenant is None else _short(f"tenant {tenant}", MODEL_WIDTH),
                    harmless(amount.replace("_", " ")),
                    f"{spent:,.6g}",
                    f"{reserved:,.6g}",
                    "no limit" if limits[amount] is None else f"{_number(limits, amount):,.6g}",
                    _count(budget, "waiting"),
                    clock(ends_in) if budget.get("every") is not None else "–",
                ]
            )
    return Table(BUDGET_COLUMNS, rows, "budgets")


def lag_text(statistics: JSONObject) -> str:
    """Return the loop's lag as text, with the call that took most of it."""
    culprit = harmless(string(statistics, "loop_culprit") or "")
    cause = f", most of it {culprit}" if culprit else ""
    return f"{duration(_number(statistics, 'loop_lag'))} (the slowest iteration of the last second{cause})"


def summary_line(snapshot: JSONObject) -> str:
    """Return a snapshot as one line, for a log."""
    statistics, rates = mapping(snapshot, "statistics"), mapping(snapshot, "rates")
    parts = [
        _time_of_day(_number(snapshot, "time")),
        f"{_total(mapping(statistics, 'calls')):,} calls ({_count(snapshot, 'streams')} streams)",
        f"{_number(rates, 'events'):,.0f} events/s",
        f"{_number(rates, 'completed'):,.1f} ended/s",
        f"{_count(statistics, 'failed')} failed",
        f"lag {duration(_number(statistics, 'loop_lag'))}",
    ]
    limiters = mapping(mapping(statistics, "traffic"), "limiters")
    if limiters:
        waiting, refused = (
            sum(integer(mapping(limiters, name), member) or 0 for name in limiters) for member in ("waiting", "refused")
        )
        parts.insert(-2, f"{waiting:,} waiting, {refused:,} refused")
    quietest = objects(snapshot, "quietest")
    if quietest:
        parts.append(f"longest silence {duration(_number(quietest[0], 'quiet'))}")
    return "  ".join(parts)


def rates_between(before: JSONObject, after: JSONObject) -> JSONObject:
    """Return the rates per second between two snapshots.

    They are `events`, `completed`, `failed`, `bytes_received` and `bytes_sent`, and under `providers` the `events` and
    `completed` of each provider.
    """
    span = max(_number(after, "uptime") - _number(before, "uptime"), 1e-6)
    old, new = mapping(before, "statistics"), mapping(after, "statistics")
    rates: JSONObject = {
        name: (_number(new, name) - _number(old, name)) / span
        for name in ("events", "completed", "failed", "bytes_received", "bytes_sent")
    }
    providers: JSONObject = {}
    for name in mapping(new, "providers"):
        first, last = (mapping(mapping(side, "providers"), name) for side in (old, new))
        providers[name] = {
            member: (_number(last, member) - _number(first, member)) / span for member in ("events", "completed")
        }
    rates["providers"] = providers
    return rates


def _as_number(value: JSON) -> float:
    """Return a number; 0 for anything else, and for a number that no engine reports."""
    return float(value) if isinstance(value, int | float) and -LARGEST <= value <= LARGEST else 0.0


def _number(value: JSONObject, key: str) -> float:
    return _as_number(value.get(key))


def _seconds(value: JSONObject, key: str) -> str:
    """Return a time span; a dash if it is not known."""
    return duration(_number(value, key) if value.get(key) is not None else None)


def _process(snapshot: JSONObject) -> str:
    process = integer(snapshot, "pid")
    return "?" if process is None else str(process)


def _count(value: JSONObject, key: str) -> str:
    return f"{integer(value, key) or 0:,}"


def _total(counts: JSONObject) -> int:
    return sum(integer(counts, name) or 0 for name in counts)


def _time_of_day(seconds: float) -> str:
    try:
        return time.strftime("%H:%M:%S", time.localtime(seconds))
    except (OverflowError, ValueError, OSError):  # a year that the system has not
        return "??:??:??"


def _short(text: str, width: int) -> str:
    text = harmless(text)
    return text if len(text) <= width else text[: width - 1] + "…"
