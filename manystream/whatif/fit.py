"""Fit the servers of a recording: how fast they answer, and what limits refuse.

The time to the first event is a line over the uncached input, with the calls under way where they explain a fifth of
what is left; an answer has a pace in seconds a token. What a line does not explain stays with its exchange: a call that
goes to its own server again meets it again, and any other call draws it with a seed.
"""

from __future__ import annotations

import heapq
import operator
import zlib
from array import array
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from ..providers.errors import InvalidRequestError
from ..providers.limits.quota_report import DAY, MINUTE, SECOND, Unit
from ..simulator.limit import Limit
from ..simulator.limiter import Limiter, Ticket, Usage
from ..simulator.prompt import APIError
from ..simulator.server_rules import DIALECT_SERVERS, SERVERS
from .recorded import REFUSED, Recorded

EXPLAINED = 0.2
"""The calls under way count where they explain at least this part of what a line does not."""

ROUNDS = 100
"""Of improving the slopes of a line."""

LEAST_FIRST = 0.0005
"""Seconds: no server answers sooner."""

LEAST_REFUSALS = 3
"""Fewer refusals without a reported limit are failures at their place."""

BUCKETS: tuple[float, ...] = (60.0, 30.0, 10.0, 5.0, 2.0, 1.0)
"""Seconds of its rate that a limit may hold: the one is taken whose refusals come closest to the recorded ones."""

SAMPLE = 1000
"""The exchanges before and after the first refusal by which limits are compared."""

SILENT = "deepseek"
"""The simulated server that reports no limit and gives no hint: for a server of which no header is known."""

HINTING = "openai"
FIELDS: dict[tuple[Unit, float], str] = {
    (Unit.REQUESTS, SECOND): "requests_per_second",
    (Unit.REQUESTS, MINUTE): "requests_per_minute",
    (Unit.REQUESTS, DAY): "requests_per_day",
    (Unit.TOKENS, MINUTE): "tokens_per_minute",
    (Unit.TOKENS, DAY): "tokens_per_day",
    (Unit.INPUT_TOKENS, MINUTE): "input_tokens_per_minute",
    (Unit.OUTPUT_TOKENS, MINUTE): "output_tokens_per_minute",
}
"""A reported limit → the simulator's option."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Server:
    """What a program says of a server: in place of what its recording shows, or for one that it has not seen.

    requests_per_minute, requests_per_day, tokens_per_minute, input_tokens_per_minute, output_tokens_per_minute: limits
        of each key. With one of them, the recorded limits do not apply.
    concurrent: calls at a time of each key.
    bucket: the seconds of a rate that may be used at once.
    first_event: seconds to the first event. per_input_token: seconds that an uncached input token adds.
    tokens_per_second: the pace of an answer.
    output_tokens: the tokens of an answer; None: those that the call had on its recorded server.
    """

    requests_per_minute: float | None = None
    requests_per_day: float | None = None
    tokens_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    concurrent: int | None = None
    bucket: float = 60.0
    first_event: float | None = None
    per_input_token: float = 0.0
    tokens_per_second: float | None = None
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None or (name == "per_input_token" and value == 0):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
                raise InvalidRequestError(f"servers: {name}", f"must be a number above 0, not {value!r:.50}")

    @property
    def limits(self) -> Mapping[str, float]:
        """The limits that it names, as the simulator's options."""
        named = {name: getattr(self, name) for name in (*FIELDS.values(), "concurrent") if hasattr(self, name)}
        return {name: value for name, value in named.items() if value is not None}


@dataclass(slots=True)
class Speed:
    """How fast a server answers. An unstreamed answer comes as a whole with its first byte.

    first: seconds to the first event: base, and what an uncached input token, an output token and a call under way add.
    rest: seconds from there to the end of a stream: base, what an output token adds, and what it adds for each call
        under way.
    rows: the exchanges of which it was made.
    left: what the lines do not explain of them, in order: seconds to the first event, and factors of the rest.
    """

    first: list[float]
    rest: list[float]
    rows: array[int]
    left: tuple[array[float], ...] = ()


@dataclass(slots=True)
class Fit:
    """The servers of a recording.

    speeds: server, and whether the answer is a stream → its speed.
    own: server and key → the limit that the recording shows.
    limits: origin → the limits of its keys.
    refuses: the servers with limits: their recorded refusals follow from these.
    notes: what the fit could not say.
    """

    recorded: Recorded
    said: Mapping[str, Server]
    speeds: dict[tuple[int, bool], Speed] = field(default_factory=dict[tuple[int, bool], Speed])
    own: dict[tuple[int, int], Limit] = field(default_factory=dict[tuple[int, int], Limit])
    limits: dict[str, list[Limit]] = field(default_factory=dict[str, list[Limit]])
    refuses: set[int] = field(default_factory=set[int])
    notes: list[str] = field(default_factory=list[str])

    def said_of(self, server: int) -> Server:
        """Return what the program says of a server: the first pattern that fits."""
        name = self.recorded.servers.texts[server]
        return next((said for pattern, said in self.said.items() if fnmatchcase(name, pattern)), Server())

    def uncached(self, call: int) -> int:
        """Return the input tokens that a server had to read."""
        return max(0, self.recorded.input(call) - self.recorded.cached(call))

    def draw(self, call: int, server: int, load: int, seed: int, donor: int | None = None) -> Drawn | None:
        """Return the answer of a server to a call; None if nothing is known of the server's speed.

        What no line explains is that of the call's own answer, or of one that is drawn for a call without one. That of
        an answer of another server gives the rank.

        load: the calls under way. donor: the exchange to take what is not explained from.
        """
        recorded, said, exchanges = self.recorded, self.said_of(server), self.recorded.exchanges
        stream, output = recorded.calls["stream"][call] > 0, recorded.output(call)
        speed = self.speeds.get((server, stream)) or self.speeds.get((server, not stream))
        if donor is None:
            donor = next((row for row in recorded.rows(call) if recorded.is_answer(row)), None)
        if donor is None and speed is not None:
            donor = speed.rows[zlib.crc32(f"{seed}/{call}/{server}".encode()) % len(speed.rows)]
        if output < 0 and donor is not None:
            output = recorded.output(int(exchanges["call"][donor]))
        output = max(1, said.output_tokens or output)
        thinking = min(output, max(0, int(recorded.calls["thinking"][call])))
        if said.first_event is not None and said.tokens_per_second is not None:
            first = said.first_event + said.per_input_token * self.uncached(call)
            return Drawn(first, output / said.tokens_per_second, output, thinking)
        if speed is None or donor is None:
            return None
        left: tuple[float, ...] = exchanges["offset"][donor], exchanges["ratio"][donor]
        elsewhere = self.speeds.get((int(exchanges["server"][donor]), stream))
        if elsewhere is not None and exchanges["server"][donor] != server:  # the same rank among those of this server
            ranks = (bisect(values, value) / len(values) for values, value in zip(elsewhere.left, left, strict=True))
            found = zip(speed.left, ranks, strict=True)
            left = tuple(values[min(len(values) - 1, int(rank * len(values)))] for values, rank in found)
        first = _at(speed.first, [self.uncached(call), output, load]) + left[0]
        seconds = _at(speed.rest, [output, output * load]) * left[1]
        return Drawn(max(LEAST_FIRST, first), max(0.0, seconds), output, thinking)


@dataclass(slots=True)
class Drawn:
    """An answer. first: seconds to its first event. seconds: from there to its end. output: tokens, with thinking."""

    first: float
    seconds: float
    output: int
    thinking: int


def fit_servers(recorded: Recorded) -> Fit:
    fit, exchanges = Fit(recorded, {}), recorded.exchanges
    _find_loads(recorded)
    groups: dict[tuple[int, bool], array[int]] = {}
    rows: dict[tuple[int, int], array[int]] = {}
    for row in sorted(range(len(exchanges)), key=exchanges["started"].__getitem__):
        call, server = int(exchanges["call"][row]), int(exchanges["server"][row])
        rows.setdefault((server, int(exchanges["key"][row])), array("q")).append(row)
        if recorded.is_answer(row) and recorded.output(call) >= 0:
            groups.setdefault((server, recorded.calls["stream"][call] > 0), array("q")).append(row)
    for group, answered in sorted(groups.items()):
        fit.speeds[group] = _speed(fit, answered, stream=group[1])
    for (server, key), of_key in sorted(rows.items()):
        limit = _recorded_limit(fit, server, key, of_key)
        if limit is not None:
            fit.own[server, key] = limit
    return fit


def changed(fit: Fit, said: Mapping[str, Server], keys: Mapping[str, int]) -> Fit:
    """Return a fit with other limits. A key that was not recorded has those of its server's first one.

    said: pattern of `provider/model` → what the program says of it. keys: provider → its number of keys, if it has
    others than the recorded ones.
    """
    found = replace(fit, said=said, limits={}, refuses=set(), notes=[*fit.notes])
    for server, name in enumerate(fit.recorded.servers.texts):
        endpoint, options = fit.recorded.endpoint(server), found.said_of(server)
        form = endpoint.profile if endpoint.profile in SERVERS else ""
        for key in range(1, max(keys.get(name.partition("/")[0], 0), endpoint.keys) + 1):
            limit = fit.own.get((server, key if key <= endpoint.keys else 1))
            own = _limit_of(fit, server, key)
            if options.limits:
                limit = replace(own, server=form, bucket=options.bucket, **options.limits)  # type: ignore[arg-type]
            if limit is not None:
                found.limits.setdefault(endpoint.origin, []).append(replace(limit, key=own.key))
                found.refuses.add(server)
        if server not in found.refuses:
            found.notes.append(f"{name}: no limit is known: the recording shows none, and servers= names none")
    return found


# --- speed ---


def _find_loads(recorded: Recorded) -> None:
    """Find out for each exchange how many others were under way at its server when it began."""
    exchanges = recorded.exchanges
    running: dict[float, list[float]] = {}
    for row in sorted(range(len(exchanges)), key=exchanges["started"].__getitem__):
        ends, now = running.setdefault(exchanges["server"][row], []), exchanges["started"][row]
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        exchanges["load"][row] = len(ends)
        if exchanges["status"][row] != REFUSED:
            heapq.heappush(ends, now + exchanges["ended"][row])


def _speed(fit: Fit, rows: array[int], *, stream: bool) -> Speed:
    """Fit the lines of one server, and note what they do not explain."""
    exchanges, calls = fit.recorded.exchanges, [int(fit.recorded.exchanges["call"][row]) for row in rows]
    output = array("d", (max(1, fit.recorded.output(call)) for call in calls))
    load = array("d", (exchanges["load"][row] for row in rows))
    firsts = array("d", (exchanges["first" if stream else "ended"][row] for row in rows))
    rests = array("d", (exchanges["ended"][row] - first for row, first in zip(rows, firsts, strict=True)))
    nothing = array("d", bytes(8 * len(rows)))
    columns = [array("d", map(fit.uncached, calls)), nothing if stream else output, load]
    later = [output, array("d", map(operator.mul, output, load))]
    speed = Speed(_line(columns, firsts), _line(later, rests), rows)
    for place, row in enumerate(rows):
        exchanges["offset"][row] = firsts[place] - _at(speed.first, [column[place] for column in columns])
        usual = _at(speed.rest, [column[place] for column in later])
        exchanges["ratio"][row] = rests[place] / usual if usual > 0 else 1.0
    speed.left = tuple(array("d", sorted(exchanges[name][row] for row in rows)) for name in ("offset", "ratio"))
    return speed


def _line(columns: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Return base and slopes over the columns; that of the last one, the load, where it explains enough of what the
    others do not."""
    without, left = fit_line(columns[:-1], values)
    line, less = fit_line(columns, values)
    return line if less < (1 - EXPLAINED) * left else [*without, 0.0]


def _at(line: Sequence[float], values: Sequence[float]) -> float:
    return line[0] + sum(slope * value for slope, value in zip(line[1:], values, strict=True))


def fit_line(columns: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[list[float], float]:
    """Return base and slopes of the least squares, and the sum of the squares that are left.

    More of anything takes no less time: no slope is below 0. One slope after the other is improved until none changes.
    """
    middle, slopes = sum(values) / len(values), [0.0] * len(columns)
    left = array("d", (value - middle for value in values))
    means = [sum(column) / len(values) for column in columns]
    sizes = [sum((x - mean) ** 2 for x in column) for column, mean in zip(columns, means, strict=True)]
    for _ in range(ROUNDS):
        before = [*slopes]
        for place, (column, mean, size) in enumerate(zip(columns, means, sizes, strict=True)):
            step = sum((x - mean) * y for x, y in zip(column, left, strict=True)) / size if size else 0.0
            step = max(-slopes[place], step)
            slopes[place] += step
            left = array("d", (y - step * (x - mean) for x, y in zip(column, left, strict=True))) if step else left
        if all(abs(new - old) <= 1e-9 * abs(new) for new, old in zip(slopes, before, strict=True)):
            break
    return [middle - sum(map(operator.mul, slopes, means)), *slopes], sum(y * y for y in left)


# --- limits ---


def key_text(provider: int, key: int) -> str:
    return f"key-{provider}-{key}"


def _limit_of(fit: Fit, server: int, key: int) -> Limit:
    """Return a limit without amounts for a key of a server."""
    model = fit.recorded.servers.texts[server].partition("/")[2].translate({ord(mark): "?" for mark in "[]*"})
    return Limit(key=key_text(fit.recorded.endpoint(server).number, key), model=model)


def _recorded_limit(fit: Fit, server: int, key: int, rows: array[int]) -> Limit | None:
    """Return the limit that headers report, else one that explains the refusals; None if there are too few of them."""
    endpoint, name = fit.recorded.endpoint(server), fit.recorded.servers.texts[server]
    own, status = _limit_of(fit, server, key), fit.recorded.exchanges["status"]
    times = [place for place, row in enumerate(rows) if status[row] == REFUSED]
    reported = fit.recorded.limits.get((server, key), {})
    options = {FIELDS[kind]: known.limit for kind, known in reported.items() if kind in FIELDS}
    if options:
        buckets = (max(reported.values(), key=lambda known: known.used).bucket, *BUCKETS)
        form = endpoint.profile if endpoint.profile in SERVERS else DIALECT_SERVERS[endpoint.dialect]
        candidates = [replace(own, server=form, bucket=each, **options) for each in buckets]  # type: ignore[arg-type]
        if not times:
            return candidates[0]
    elif len(times) >= LEAST_REFUSALS:
        form = HINTING if server in fit.recorded.hinted else SILENT
        candidates = [replace(own, server=form, **found) for found in _explaining(fit, rows)]  # type: ignore[arg-type]
        fit.notes.append(f"{name}, key {key}: no header reports a limit: it is inferred from {len(times)} refusals")
    else:
        return None
    sample = rows[max(0, times[0] - SAMPLE) : times[0] + SAMPLE]
    refused = sum(status[row] == REFUSED for row in sample)
    return min(candidates, key=lambda limit: abs(sum(refusals(fit, [limit], sample)) - refused))


def _explaining(fit: Fit, rows: array[int]) -> Iterator[dict[str, float]]:
    """Yield limits that may have refused: of calls at a time, and of requests a minute with several buckets."""
    exchanges = fit.recorded.exchanges
    accepted = [row for row in rows if exchanges["status"][row] != REFUSED]
    starts = sorted(exchanges["started"][row] for row in accepted)
    ends = sorted(exchanges["started"][row] + exchanges["ended"][row] for row in accepted)
    times = [exchanges["started"][row] for row in rows if exchanges["status"][row] == REFUSED]
    yield {"concurrent": max(1, min(bisect(starts, at) - bisect(ends, at) for at in times))}
    span, within = times[-1] - times[0], bisect(starts, times[-1]) - bisect(starts, times[0])
    for bucket in BUCKETS if span > 0 and within > 0 else ():
        yield {"requests_per_minute": within / span * MINUTE, "bucket": bucket}


def refusals(fit: Fit, limits: Sequence[Limit], rows: Sequence[int]) -> Iterator[bool]:
    """Yield for each exchange, in the order of their starts, whether the limits refuse it at its recorded time."""
    recorded, exchanges, limiter = fit.recorded, fit.recorded.exchanges, Limiter(limits)
    ends: list[tuple[float, int, Ticket]] = []
    for row in rows:
        now, call, server = exchanges["started"][row], int(exchanges["call"][row]), int(exchanges["server"][row])
        while ends and ends[0][0] <= now:
            at, _, ticket = heapq.heappop(ends)
            limiter.end(ticket, at, whole=True)
        endpoint, stream = recorded.endpoint(server), recorded.calls["stream"][call] > 0
        first, ended = exchanges["first"][row], exchanges["ended"][row]
        usage = Usage(
            model=recorded.servers.texts[server].partition("/")[2],
            input_tokens=recorded.input(call), cached_tokens=recorded.cached(call),
            output_tokens=max(1, recorded.output(call)), max_tokens=max(0, int(recorded.calls["caps"][call])),
            delay=first, seconds=ended - first, streamed=stream,
        )  # fmt: skip
        key = key_text(endpoint.number, int(exchanges["key"][row]))
        try:
            accepted = limiter.accept(endpoint.dialect, key, usage, now, recorded.began + now)
        except APIError:
            yield True
        else:
            if accepted is not None:
                heapq.heappush(ends, (now + ended, row, accepted))
            yield False
