"""The prompt caches of a server: what each request reads from them, what it writes, and what both cost.

`CacheModel` is the configuration, `SERVERS` has the rules of each server as data. A prompt is split into blocks: tools,
texts of the system prompt, parts of messages. Its beginnings are found by a hash of their blocks without the marks. It
is given the time; it reads no clock and no socket.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from ..http_server import HTTPRequest
from .json_text import JSONObject, dumps, mapping, objects, string
from .knobs import KnobError, read_options, readers_of
from .prompt import APIError, Prompt
from .scenario import Tokens
from .wire import body_object

BYTES_PER_TOKEN = 4
READ_PRICE = 0.1
"""Price of a token that is read, relative to one of uncached input."""

REQUESTS_PER_KEY = 15
"""A machine takes so many requests a minute with one `prompt_cache_key`; further ones go to the next machine."""

MANY = 10**6
"""A machine with so many beginnings, and a server with so many keys, forgets all of them."""

PROMPT = ("tools", "system", "instructions", "systemInstruction", "system_instruction", "messages", "input", "contents")
"""The members of a request that are its prompt, in the order in which servers put them together."""

_GPT = re.compile(r"gpt-(\d{1,3})(?:\.(\d{1,3}))?")


@dataclass(slots=True, frozen=True, kw_only=True)
class CacheRules:
    """How one server caches.

    mark: the member of a block that marks the end of a beginning.
    implicit: the end of each message is marked, too, unless the request says otherwise.
    most: a request has at most so many marks; more are an error.
    writes, reads: marks of a request at which beginnings are written, and looked up: the last ones.
    lookback: for each of the latter, so many blocks are looked up, the marked one and those before it.
    block: beginnings of a multiple of so many tokens are cached, without marks.
    reports_writes: the usage has the tokens that were written.
    lifetimes: lifetime → seconds since the last use, and the price of a written token. The empty one is the default.
    """

    mark: str = ""
    implicit: bool = False
    most: int = MANY
    writes: int = MANY
    reads: int = MANY
    lookback: int = 1
    block: int = 0
    reports_writes: bool = False
    lifetimes: dict[str, tuple[float, float]] = field(default_factory=lambda: {"": (300.0, 1.0)})


SERVERS: dict[str, CacheRules] = {
    "anthropic": CacheRules(
        mark="cache_control", most=4, lookback=20, reports_writes=True,
        lifetimes={"": (300, 1.25), "5m": (300, 1.25), "1h": (3600, 2)},
    ),
    "openai": CacheRules(
        mark="prompt_cache_breakpoint", implicit=True, writes=4, reads=80, reports_writes=True,
        lifetimes={"": (1800, 1.25), "30m": (1800, 1.25), "12h": (43_200, 1.25)},
    ),
    "openai-before-5.6": CacheRules(block=128, lifetimes={"": (600, 1)}),
    "gemini": CacheRules(block=256),
    "vllm": CacheRules(block=16, lifetimes={"": (math.inf, 1)}),
    "none": CacheRules(reports_writes=True),
}  # fmt: skip
"""Server → its rules. `none` has no cache, and reports zeros."""

LONG = ("1h", "12h")
"""The longer lifetime of each server that has two."""


@dataclass(slots=True, frozen=True, kw_only=True)
class CacheModel:
    """The caches of a server.

    server: whose rules hold, one of `SERVERS`; empty: the dialect and the model decide.
    machines: each has a cache of its own. A request goes to one at random, or to that of its `prompt_cache_key`.
    lag: seconds from the first event of the response that wrote a beginning until it can be read.
    least: the smallest beginning that is cached, in tokens.
    cold, warm: seconds before the first event of a response that has read nothing, and of one that has read.
    spread: these seconds vary by this part, to both sides.
    seed: varies machines and seconds.
    """

    server: str = ""
    machines: int = 1
    lag: float = 0.0
    least: int = 1024
    cold: float = 0.0
    warm: float = 0.0
    spread: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.server not in ("", *SERVERS):
            raise KnobError(f"caches: server={self.server!r}: server is one of {', '.join(SERVERS)}")
        for name, lowest in (("machines", 1), ("lag", 0), ("least", 0), ("cold", 0), ("warm", 0), ("spread", 0)):
            if not lowest <= getattr(self, name) < math.inf:
                raise KnobError(f"caches: {name}={getattr(self, name)}: {name} is a number from {lowest}")


def read_caches(text: str) -> CacheModel:
    """Caches from text: `machines=4 lag=0.5 cold=3 warm=0.6`. Raises `KnobError`."""
    return CacheModel(**dict(read_options("caches", text, readers_of(CacheModel))))  # type: ignore[arg-type]


@dataclass(slots=True)
class CacheCounts:
    """What the requests for one model have used, in tokens.

    requests: accepted requests. reads: those that have read.
    input: all input. read, written: parts of it. written_long: the part of `written` with the longer lifetime.
    cost: the price of the input, in tokens of uncached input.
    """

    requests: int = 0
    reads: int = 0
    input: int = 0
    read: int = 0
    written: int = 0
    written_long: int = 0
    cost: float = 0.0


class _Entry(NamedTuple):
    """A beginning in a cache: from when on it can be read, until when, and its lifetime in seconds."""

    ready: float
    ends: float
    seconds: float


class _Content(NamedTuple):
    """Google's `cachedContents`: a beginning that a request names."""

    account: str
    tokens: int
    ends: float
    shown: JSONObject


@dataclass(slots=True, frozen=True)
class CacheUse:
    """What one request reads and writes. It counts when the request is accepted: see `PromptCaches.keep`.

    delay: seconds before the first event.
    read: the beginnings that are used. written: those that are written → the lifetime of each, in seconds.
    """

    model: str
    machine: int
    delay: float
    counts: CacheCounts
    read: list[bytes]
    written: dict[bytes, float]
    reports_writes: bool

    def tokens(self, tokens: Tokens) -> Tokens:
        """The token counts of the answer, with those of the caches."""
        counts = self.counts
        written = counts.written if self.reports_writes else None
        return Tokens(counts.input, counts.read, tokens.output, tokens.thinking, written, counts.written_long)


class PromptCaches:
    """The caches of one server. counts: model → what was used so far."""

    def __init__(self, model: CacheModel) -> None:
        self.model = model
        self.counts: dict[str, CacheCounts] = {}
        self._machines: list[dict[bytes, _Entry]] = [{} for _ in range(model.machines)]
        self._keys: dict[str, deque[float]] = {}
        self._contents: dict[str, _Content] = {}
        self._source = random.Random(model.seed)

    def look(self, dialect: str, account: str, prompt: Prompt, now: float) -> CacheUse:
        """What a request would read and write. Raises `APIError` for a lifetime that the server does not have."""
        model, rules = self.model, SERVERS[self.model.server or _server_of(dialect, prompt.model)]
        places, total = _places(prompt, rules, account)
        if name := string(prompt.body, "cachedContent"):
            tokens = self._content(name, account, now).tokens
            counts = CacheCounts(1, 1, tokens + total, tokens, cost=tokens * READ_PRICE + total)
            return CacheUse(prompt.model, 0, model.warm, counts, [], {}, reports_writes=False)
        places = [place for place in places if place[1] >= model.least]
        machine = self._machine(account, string(prompt.body, "prompt_cache_key"), now)
        marked = [number for number, (_, _, lifetime) in enumerate(places) if lifetime is not None]
        found = -1
        for mark in marked[-rules.reads :]:
            for number in range(max(found + 1, mark - rules.lookback + 1), mark + 1):
                entry = self._machines[machine].get(places[number][0])
                if entry is not None and entry.ready <= now < entry.ends:
                    found = number
        before = places[found][1] if found >= 0 else 0
        counts = CacheCounts(requests=1, reads=int(found >= 0), input=total, read=before, cost=before * READ_PRICE)
        written: dict[bytes, float] = {}
        for number in marked[-rules.writes :]:
            digest, tokens, lifetime = places[number]
            if number > found and lifetime is not None:
                written[digest], price = rules.lifetimes[lifetime]
                counts.written += tokens - before
                counts.written_long += tokens - before if lifetime in LONG else 0
                counts.cost += (tokens - before) * price
                before = tokens
        counts.cost += total - before
        delay = (model.warm if counts.read else model.cold) * (1 + model.spread * self._source.uniform(-1, 1))
        read = [digest for digest, _, _ in places[: found + 1]]
        return CacheUse(prompt.model, machine, delay, counts, read, written, rules.reports_writes)

    def keep(self, use: CacheUse, now: float) -> None:
        """Do what a request does that was accepted."""
        entries, ready = self._machines[use.machine], now + use.delay + self.model.lag
        for digest in filter(entries.get, use.read):
            entries[digest] = entries[digest]._replace(ends=now + entries[digest].seconds)
        if len(entries) > MANY:
            entries.clear()
        for digest, seconds in use.written.items():
            kept = entries.get(digest)
            begins = ready if kept is None or kept.ends <= now else min(ready, kept.ready)
            entries[digest] = _Entry(begins, ready + seconds, seconds)
        total = self.counts.setdefault(use.model, CacheCounts())
        for name, value in asdict(use.counts).items():
            setattr(total, name, getattr(total, name) + value)

    def contents(self, request: HTTPRequest, account: str, now: float, wall: float) -> JSONObject:
        """The response to a request that creates, shows or deletes one of `cachedContents`. Raises `APIError`."""
        (_, _, name), method = request.path.split("/", 2), request.method
        if name != "cachedContents" or method != "POST":
            content = self._content(name, account, now)
            return self._contents.pop(name).shown if method == "DELETE" else content.shown
        body = body_object(request)
        tokens = _places(Prompt(model="", body=body), SERVERS["gemini"], account)[1]
        lifetime = re.fullmatch(r"(\d{1,9})(?:\.\d{1,9})?s", string(body, "ttl") or "3600s")
        if tokens < self.model.least or lifetime is None:
            small = f"total_token_count={tokens}, min_total_token_count={self.model.least}"
            raise APIError(400, f"Cached content is too small. {small}" if lifetime else "Invalid value at 'ttl'")
        name = f"cachedContents/{hashlib.blake2b(repr((wall, tokens, account)).encode(), digest_size=8).hexdigest()}"
        made, ends = (datetime.fromtimestamp(at, UTC).isoformat() for at in (wall, wall + int(lifetime[1])))
        shown: JSONObject = {"name": name, "model": string(body, "model"), "usageMetadata": {"totalTokenCount": tokens}}
        shown.update(createTime=made, updateTime=made, expireTime=ends)
        self._contents[name] = _Content(account, tokens, now + int(lifetime[1]), shown)
        return shown

    def _content(self, name: str, account: str, now: float) -> _Content:
        content = self._contents.get(name)
        if content is None or content.account != account or content.ends <= now:
            raise APIError(403, "CachedContent not found (or permission denied)")
        return content

    def _machine(self, account: str, key: str, now: float) -> int:
        if not key:
            return self._source.randrange(len(self._machines))
        if len(self._keys) > MANY:
            self._keys.clear()
        times = self._keys.setdefault(f"{account} {key}", deque())
        while times and times[0] <= now - 60:
            times.popleft()
        times.append(now)
        return (zlib.crc32(key.encode()) + (len(times) - 1) // REQUESTS_PER_KEY) % len(self._machines)


def _server_of(dialect: str, model: str) -> str:
    """The server whose rules hold for a dialect and a model."""
    if not dialect.startswith("openai"):
        return "anthropic" if dialect == "anthropic" else "gemini"
    found = _GPT.search(model)
    return "openai" if found and (int(found[1]), int(found[2] or 0)) >= (5, 6) else "openai-before-5.6"


def _places(prompt: Prompt, rules: CacheRules, account: str) -> tuple[list[tuple[bytes, int, str | None]], int]:
    """The places where a beginning may end, and the tokens of the prompt. A place is the hash of the beginning, its
    tokens, and its lifetime if it is marked."""
    hashed = hashlib.blake2b(f"{account} {prompt.model}".encode(), digest_size=16)
    places: list[tuple[bytes, int, str | None]] = []
    options = mapping(prompt.body, "prompt_cache_options")
    implicit = rules.implicit and string(options, "mode") != "explicit"
    blocks = list(_blocks(prompt.body, rules.mark))
    total = sum(len(block) for block, _, _ in blocks) // BYTES_PER_TOKEN + 1
    if rules.block:
        data, step = b"".join(block for block, _, _ in blocks), rules.block * BYTES_PER_TOKEN
        every: JSONObject = {"type": "every block"}
        blocks = [(data[start : start + step], every, True) for start in range(0, len(data) - step + 1, step)]
    size = 0
    for number, (block, mark, ends) in enumerate(blocks, 1):
        hashed.update(block)
        size += len(block)
        found = mark or (mapping(prompt.body, rules.mark) if number == len(blocks) else {})
        lifetime = string(found, "ttl") or string(options, "ttl") if found or (implicit and ends) else None
        if lifetime is not None and lifetime not in rules.lifetimes:
            known = ", ".join(filter(None, rules.lifetimes))
            raise APIError(400, f"{rules.mark}.ttl: Input should be one of {known}")
        places.append((hashed.digest(), size // BYTES_PER_TOKEN, lifetime))
    marks = sum(lifetime is not None for _, _, lifetime in places)
    if marks > rules.most:
        message = f"A maximum of {rules.most} blocks with {rules.mark} may be provided. Found {marks}."
        raise APIError(400, message)
    return places, total


def _blocks(body: JSONObject, mark: str) -> Iterator[tuple[bytes, JSONObject, bool]]:
    """Each block of a prompt without its mark, the mark, and whether it ends a tool or a message."""
    for name in PROMPT:
        value = body.get(name)
        for item in value if isinstance(value, list) else [value] if value else []:
            outer: JSONObject = item if isinstance(item, dict) else {"text": item}
            inner = next((name for name in ("content", "parts") if objects(outer, name)), "")
            parts = objects(outer, inner) or [{}]
            for number, part in enumerate(parts, 1):
                around = {key: member for key, member in outer.items() if key not in (inner, mark)}
                own = {key: member for key, member in part.items() if key != mark}
                ends = number == len(parts)
                yield (
                    dumps([name, around if number == 1 else None, own]),
                    mapping(part, mark) or mapping(outer if ends else {}, mark),
                    ends,
                )
