"""Read a recording of `engine.record` into columns: about 300 bytes a call, whatever the prompts were.

A line of the first form does not say which call its exchange belongs to: each exchange is then a call of its own.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ..providers.catalog.profiles import PROFILES
from ..providers.catalog.provider import DIALECT_CLASSES, Provider
from ..providers.catalog.registry import DIALECTS
from ..providers.errors import InvalidRequestError, ManystreamError
from ..providers.json.json_values import JSON, JSONObject, MalformedJSONError, items, loads, mapping, string
from ..providers.limits.limit_reports import reader_of
from ..providers.limits.quota_report import Unit

BYTES_PER_TOKEN = 4
"""The length of a token in a prompt whose usage is not known."""

LARGEST = 1e9
"""A larger number is no size, no number of tokens, and no time in seconds but a date."""

LONGEST = 1e6
"""No exchange takes more seconds."""

MOST_KEYS = 1000
REFUSED = 429
FIRST_FORM = (
    "the recording has the first form, which does not say when calls were started, nor sessions, tenants and usage:"
    " each exchange counts as a call that did not wait, tokens are estimated, and the cost is unknown"
)
PROVIDERS: dict[str, type[Provider]] = {dialect: DIALECT_CLASSES[dialect] for dialect in DIALECTS}
"""Dialect with a simulated server → the class of its providers."""

WHOLE, BROKEN, LEFT = 0, 1, 2
ENDS: dict[str, int] = {"whole": WHOLE, "broken": BROKEN, "left": LEFT}

USAGE: dict[str, str] = {
    "input": "input_tokens",
    "cached": "cached_tokens",
    "written": "cache_write_tokens",
    "output": "output_tokens",
    "thinking": "thinking_tokens",
}
"""Column → member of a usage."""


CALL_COLUMNS: tuple[str, ...] = (
    "asked",
    "size",
    "caps",
    "stream",
    "priority",
    "tenant",
    "session",
    "requested",
    "server",
    "exchange",
)
EXCHANGE_COLUMNS: tuple[str, ...] = (
    *("call", "server", "key", "started", "first", "ended", "status", "how", "next"),
    *("load", "offset", "ratio"),
)


class RecordingError(ManystreamError, ValueError):
    """A recording that cannot be used. The message names the file and the line."""


class Table:
    """Columns of numbers. -1 stands for what is not known."""

    def __init__(self, *names: str) -> None:
        self.columns: dict[str, array[float]] = {name: array("d") for name in names}

    def __getitem__(self, name: str) -> array[float]:
        return self.columns[name]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def add(self, **values: float) -> int:
        """Add a row, and return its number. Columns without a value get -1."""
        for name, column in self.columns.items():
            column.append(values.get(name, -1.0))
        return len(self) - 1


class Names:
    """Texts that many rows have in common, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.texts)
            self.texts.append(name)
        return self._numbers[name]


@dataclass(slots=True)
class Reported:
    """A limit that headers report. bucket: seconds of its rate that it holds, by the report in which the largest part,
    `used`, was used."""

    limit: float = 0.0
    bucket: float = 60.0
    used: float = 0.05


@dataclass(slots=True)
class Endpoint:
    """A provider. number: its place among the providers. keys: how many it has."""

    number: int
    dialect: str
    origin: str
    profile: str
    keys: int = 1


@dataclass(slots=True)
class Recorded:
    """A recording.

    form: of its lines. began: when it began, in Unix seconds; 0 if it does not say so.
    calls: `asked` is when the program started a call, in seconds since the recording began; `size` the bytes of its
        request, `caps` its largest output, `server` where it was sent first, `exchange` its first exchange.
    exchanges: `started` counts as `asked`; `first` and `ended` are seconds since `started`. `next` is the call's next
        one, `load` how many others were under way there, `offset` and `ratio` what a fit leaves unexplained.
    servers: `provider/model` of each server.
    limits: server and key → unit and window → the latest limit that its headers reported.
    hinted: servers whose refusals say when to come again.
    """

    form: int = 2
    began: float = 0.0
    calls: Table = field(default_factory=lambda: Table(*CALL_COLUMNS, *USAGE))
    exchanges: Table = field(default_factory=lambda: Table(*EXCHANGE_COLUMNS))
    endpoints: dict[str, Endpoint] = field(default_factory=dict[str, Endpoint])
    servers: Names = field(default_factory=Names)
    names: Names = field(default_factory=Names)
    limits: dict[tuple[int, int], dict[tuple[Unit, float], Reported]] = field(
        default_factory=dict[tuple[int, int], dict[tuple[Unit, float], Reported]]
    )
    hinted: set[int] = field(default_factory=set[int])

    def endpoint(self, server: int) -> Endpoint:
        """Return the provider of a server."""
        return self.endpoints[self.servers.texts[server].partition("/")[0]]

    def provider(self, name: str, dialect: str = "", origin: str = "") -> Endpoint:
        """Return a provider. Raises `ValueError` for a dialect that cannot be simulated.

        dialect, origin: of one that is not known yet; empty: as its profile has them.
        """
        if name not in self.endpoints:
            row = next((row for row in PROFILES if row.name == name), None)
            dialect = dialect or ("openai-chat" if row is None else row.dialect_name)
            if dialect not in PROVIDERS:
                raise ValueError(f"dialect: {dialect!r:.50} has no simulated server; {', '.join(PROVIDERS)} have one")
            origin = origin or f"http://provider-{len(self.endpoints)}.invalid"
            profile = PROVIDERS[dialect]("key", origin, name=name).profile.name
            self.endpoints[name] = Endpoint(len(self.endpoints), dialect, origin, profile)
        return self.endpoints[name]

    def server(self, name: str, dialect: str = "", origin: str = "") -> int:
        """Return the number of a server, `provider/model`. Raises as `provider` does."""
        self.provider(name.partition("/")[0], dialect, origin)
        return self.servers.number(name)

    def is_answer(self, row: int) -> bool:
        return self.exchanges["how"][row] == WHOLE and 200 <= self.exchanges["status"][row] < 300

    def rows(self, call: int) -> list[int]:
        """Return the exchanges of a call, in the order of their starts."""
        rows, row = list[int](), self.calls["exchange"][call]
        while row >= 0:
            rows.append(int(row))
            row = self.exchanges["next"][rows[-1]]
        return rows

    def ended(self, call: int) -> float:
        """Return when the last exchange of a call ended; when it was started, if there is none."""
        started, ended = self.exchanges["started"], self.exchanges["ended"]
        return max([self.calls["asked"][call], *(started[row] + ended[row] for row in self.rows(call))])

    def output(self, call: int) -> int:
        """Return the output tokens of a call, with thinking; -1 if it had no answer."""
        known = int(self.calls["output"][call])
        return known if known < 0 else known + max(0, int(self.calls["thinking"][call]))

    def input(self, call: int) -> int:
        """Return the input tokens of a call; an estimate if no server has counted them."""
        known = int(self.calls["input"][call])
        return known if known >= 0 else max(1, int(self.calls["size"][call]) // BYTES_PER_TOKEN)

    def cached(self, call: int) -> int:
        """Return the input tokens that the server has read from its cache."""
        return max(0, int(self.calls["cached"][call]))


def read_recording(path: str | Path) -> Recorded:
    """Read a recording. Raises `RecordingError`."""
    found, rows = Recorded(), dict[int, int]()
    try:
        if not Path(path).is_file() and Path(path).exists():
            raise RecordingError(f"{path} is no file: give a file of engine.record")
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    _add(found, rows, loads(line))
                except (MalformedJSONError, ValueError, InvalidRequestError) as error:
                    raise RecordingError(f"{path}, line {number} is no line of a recording: {error}") from None
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from None
    if not len(found.calls):
        raise RecordingError(f"{path} has no call: record some with engine.record(path, content=False)")
    starts, exchange = found.exchanges["started"], found.calls["exchange"]
    for row in sorted(range(len(starts)), key=starts.__getitem__, reverse=True):  # each becomes the first of its call
        call = int(found.exchanges["call"][row])
        found.exchanges["next"][row], exchange[call] = exchange[call], row
    return found


def _add(found: Recorded, rows: dict[int, int], line: JSON) -> None:
    """Add a line. rows: number of a call → its row. Raises `ValueError`."""
    version = line.get("version") if isinstance(line, dict) else None
    if not isinstance(line, dict) or version not in (1, 2):
        raise ValueError("it is no JSON object of version 1 or 2")
    request, number = mapping(line, "request"), line.get("call")
    found.form = min(found.form, int(version))
    if version == 2 and number is None and request.get("method") != "POST":
        return  # no call, such as a question for the load of a server
    members = line if version == 2 else {**line, **_first_form(line, request)}
    found.began = found.began or _number(members, "began", 0.0, most=1e11)
    provider, model, dialect, origin = (
        string(members, name) or "" for name in ("provider", "model", "dialect", "origin")
    )
    if not provider or not dialect or not origin:
        raise ValueError("provider, dialect or origin is missing")
    server = found.server(f"{provider}/{model}", dialect, origin)
    call = rows.get(number, -1) if isinstance(number, int) else -1
    if call < 0:
        call = _add_call(found, members, server)
        if isinstance(number, int):
            rows[number] = call
    for column, member in USAGE.items() if mapping(members, "usage") else ():
        found.calls[column][call] = _number(mapping(members, "usage"), member, -1)
    if line.get("end") != "unsent":
        _add_exchange(found, members, call, server)


def _add_call(found: Recorded, members: JSONObject, server: int) -> int:
    session, named = string(members, "session"), found.names.number
    return found.calls.add(
        asked=_number(members, "asked", _number(members, "started", 0.0)),
        size=_number(members, "bytes", 0),
        caps=_number(members, "caps", -1),
        stream=members.get("stream") is not False,
        priority=named(string(members, "priority") or "normal"),
        tenant=named(string(members, "tenant") or ""),
        session=-1 if session is None else named(session),
        requested=named(string(members, "requested") or found.servers.texts[server]),
        server=server,
    )


def _add_exchange(found: Recorded, members: JSONObject, call: int, server: int) -> None:
    response, chunks = mapping(members, "response"), items(members, "chunks")
    ended, status = _number(members, "ended", most=LONGEST), _number(response, "status", 0)
    how, key = ENDS.get(string(members, "end") or ""), int(_number(members, "key", 1))
    if how is None:
        raise ValueError(f"end: must be one of {', '.join(ENDS)}, unsent")
    first = chunks[0][0] if chunks and isinstance(chunks[0], list) and chunks[0] else None
    at = _number({"chunks": first}, "chunks", _number(response, "at", ended))
    started, endpoint = _number(members, "started"), found.endpoint(server)
    found.exchanges.add(
        call=call, server=server, key=key, started=started, first=min(at, ended), ended=ended, status=status, how=how
    )
    endpoint.keys = max(endpoint.keys, min(key, MOST_KEYS))
    pairs = [pair for pair in items(response, "headers") if isinstance(pair, list) and len(pair) == 2]
    headers = {str(name): str(value) for name, value in pairs}
    if status == REFUSED and ("retry-after" in headers or "retry-after-ms" in headers):
        found.hinted.add(server)
    report = reader_of(endpoint.dialect)(endpoint.profile, headers, found.began + started, None, b"")
    for limit in report.limits:
        if limit.limit and 0 < limit.limit < LARGEST:
            known = found.limits.setdefault((server, key), {}).setdefault((limit.unit, limit.window), Reported())
            known.limit, used = limit.limit, 1 - (limit.remaining or 0.0) / limit.limit
            if limit.remaining is not None and limit.reset and used > known.used:
                known.used, known.bucket = used, limit.reset / used


def _first_form(line: JSONObject, request: JSONObject) -> JSONObject:
    """Return the members of the second form that follow from a line of the first one. Raises `ValueError`."""
    body, target = request.get("body"), (string(request, "target") or "").partition("?")[0]
    paths = ((name, path) for name in PROVIDERS for methods, path in DIALECTS[name].served if "POST" in methods)
    found = next(((name, match) for name, path in paths if (match := re.search(rf"(?:{path})\Z", target))), None)
    if found is None or not isinstance(body, str):
        raise ValueError(f"it is no request of a dialect: target {target:.100}")
    dialect, parts = found[0], found[1].groupdict()
    given = loads(body)
    members: Mapping[str, JSON] = given if isinstance(given, dict) else {}
    named = parts.get("model") or members.get("model")
    texts = [part for chunk in items(line, "chunks") if isinstance(chunk, list) for part in chunk]
    answer = "".join(text for text in texts if isinstance(text, str))
    stream = bool(members.get("stream")) or str(parts.get("method")).startswith("stream")
    output = answer.count("data:") if stream else len(answer) // BYTES_PER_TOKEN
    return {
        "provider": urlsplit(string(line, "origin") or "").netloc.replace(":", "-"),
        "dialect": dialect,
        "model": named if isinstance(named, str) else "",
        "stream": stream,
        "bytes": len(body),
        "usage": {"input_tokens": len(body) // BYTES_PER_TOKEN, "output_tokens": max(1, output)},
    }


def _number(members: JSONObject, name: str, default: float = math.nan, *, most: float = LARGEST) -> float:
    """Return a number of a line; the default for one that is missing. Raises `ValueError`."""
    value = members.get(name)
    if value is None and not math.isnan(default):
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ValueError(f"{name}: must be a number from 0 to {most:g}, not {value!r:.50}")
    return float(value)
