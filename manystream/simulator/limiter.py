"""The decision whether a request is accepted, and the account of what it used. It is given the time.

`limit` is the configuration, `server_rules` has the rules of each server as data, `bucket` the accounting,
`limit_reports` the headers, and `refusals` the errors. None of them reads a clock or a socket.

A limit has one set of buckets per key (per model, where the server's rules say so). A request must have room in all
buckets of all limits that cover it, and is charged to all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .bucket import Bucket, Production
from .limit import DAY, WINDOWS, Limit
from .limit_reports import FORMS, Headers, limit_headers, retry_headers
from .prompt import APIError
from .refusals import REFUSALS, Excess
from .server_rules import DIALECT_SERVERS, SERVERS, ServerRules

PACIFIC_MIDNIGHT = 8 * 3600.0
"""Seconds from midnight UTC to midnight in Pacific standard time."""

SCOPES_LIMIT = 10_000
"""Scopes of one limit. At so many, those that are not used are dropped."""

_DIMENSIONS = ("requests", "input_tokens", "output_tokens", "tokens")


@dataclass(slots=True, frozen=True, kw_only=True)
class Usage:
    """What a request asks for, and what its answer uses.

    input_tokens: all input. cached_tokens: the part of it that was read from a cache.
    output_tokens: output and thinking of the whole answer.
    max_tokens: the request's output limit; 0 where it has none.
    delay: seconds before the first event.
    seconds: seconds from the first to the last event.
    """

    model: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    max_tokens: int
    delay: float = 0.0
    seconds: float = 0.0
    streamed: bool = False


@dataclass(slots=True)
class LimitCounts:
    """What one limit has accepted and refused.

    refused_by: dimension → refused requests.
    charged: dimension → what accepted requests used so far, or have reserved.
    """

    accepted: int = 0
    refused: int = 0
    refused_by: dict[str, int] = field(default_factory=dict[str, int])
    charged: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_DIMENSIONS, 0.0))


@dataclass(slots=True, eq=False, repr=False)
class _Scope:
    """The buckets of one limit for one key, and the calls that run."""

    buckets: list[Bucket]
    hidden: list[Bucket]
    running: int = field(default=0, init=False)

    @property
    def all(self) -> list[Bucket]:
        return [*self.buckets, *self.hidden]

    def is_used(self, now: float) -> bool:
        """Whether a call runs or a bucket is not full. Else a new scope would be the same."""
        for bucket in self.all:
            bucket.update(now)
        return self.running > 0 or any(bucket.level < bucket.capacity for bucket in self.all)


class _State:
    """One limit with its scopes and counts."""

    def __init__(self, limit: Limit, server: str) -> None:
        self.limit = limit
        self.server = server
        self.rules: ServerRules = SERVERS[server]
        self.scopes: dict[str, _Scope] = {}
        self.counts = LimitCounts()


@dataclass(slots=True)
class _Share:
    """What an accepted request takes from one limit."""

    state: _State
    scope: _Scope
    costs: dict[str, float]
    productions: list[tuple[Bucket, Production]] = field(default_factory=list[tuple[Bucket, Production]])


@dataclass(slots=True)
class Ticket:
    """An accepted request. The server ends it when its response has ended or its client has left.

    headers: the report of the limits for the response.
    """

    usage: Usage
    shares: list[_Share]
    headers: Headers


class Limiter:
    """All limits of a simulator. `limits` may change while requests are under way."""

    def __init__(self, limits: Sequence[Limit] = ()) -> None:
        self._limits: list[Limit] = list(dict.fromkeys(limits))
        self._states: dict[tuple[Limit, str], _State] = {}

    @property
    def limits(self) -> list[Limit]:
        return list(self._limits)

    def change(self, limits: Sequence[Limit], now: float, wall: float) -> None:
        """Replace the limits. A limit for the same key, model and server keeps its counts, and its levels in
        proportion; its running calls go on. now: a monotonic clock. wall: Unix time."""
        before: dict[tuple[str, str, str], list[Limit]] = {}
        for limit in self._limits:
            before.setdefault((limit.key, limit.model, limit.server), []).append(limit)
        for limit in limits:
            same = before.get((limit.key, limit.model, limit.server))
            old = same.pop(0) if same else limit
            for server in {name for known, name in self._states if known == old}:
                state = self._states.pop((old, server))
                state.limit = limit
                for scope in state.scopes.values():
                    _adopt(scope, *_buckets(limit, state.rules, now, wall), now)
                self._states[limit, server] = state
        self._limits = list(dict.fromkeys(limits))

    def counts(self) -> list[tuple[Limit, LimitCounts]]:
        found: list[tuple[Limit, LimitCounts]] = []
        for limit in self._limits:
            states = [state for (known, _), state in self._states.items() if known == limit]
            found.append((limit, _total(state.counts for state in states)))
        return found

    def accept(self, dialect: str, key: str, usage: Usage, now: float, wall: float) -> Ticket | None:
        """Charge a request to all limits that cover it. None: no limit does. Raises `APIError` if one has no room.

        now: a monotonic clock. wall: Unix time.
        """
        shares = [
            self._share(limit, dialect, key, usage, now, wall)
            for limit in self._limits
            if limit.covers(key, usage.model)
        ]
        if not shares:
            return None
        for share in shares:
            excess = _excess(share, usage, now)
            if excess is not None:
                raise self._refused(share, shares, excess, usage, now, wall)
        for share in shares:
            _charge(share, usage, now)
        return Ticket(usage, shares, _headers(shares, now, wall, refused=False, streamed=usage.streamed))

    def fail(self, dialect: str, key: str, usage: Usage, now: float, wall: float) -> None:
        """Count a request that failed for another reason."""
        for limit in self._limits:
            if limit.covers(key, usage.model):
                _take_request(self._share(limit, dialect, key, usage, now, wall).scope, now)

    def end(self, ticket: Ticket, now: float, *, whole: bool) -> None:
        """End an accepted request. whole: the response was sent to its end."""
        for share in ticket.shares:
            share.scope.running -= 1
            for bucket, production in share.productions:
                bucket.stop(production, now)
            if share.state.rules.settled and whole:
                _settle(share, ticket.usage, now)

    def _share(self, limit: Limit, dialect: str, key: str, usage: Usage, now: float, wall: float) -> _Share:
        server = limit.server or DIALECT_SERVERS[dialect]
        state = self._states.get((limit, server))
        if state is None:
            state = self._states[limit, server] = _State(limit, server)
        name = key if state.rules.per_key else usage.model
        scope = state.scopes.get(name)
        if scope is None:
            if len(state.scopes) >= SCOPES_LIMIT:
                state.scopes = {known: other for known, other in state.scopes.items() if other.is_used(now)}
            scope = state.scopes[name] = _Scope(*_buckets(limit, state.rules, now, wall))
        for bucket in scope.all:
            bucket.update(now)
        return _Share(state, scope, _costs(state.rules, usage))

    def _refused(
        self, share: _Share, shares: list[_Share], excess: Excess, usage: Usage, now: float, wall: float
    ) -> APIError:
        counts = share.state.counts
        name = "concurrent" if excess.bucket is None else excess.bucket.dimension
        counts.refused += 1
        counts.refused_by[name] = counts.refused_by.get(name, 0) + 1
        for other in shares:
            if other.state.rules.refused_counts:
                _take_request(other.scope, now)
        rules = share.state.rules
        failure = REFUSALS[rules.error](excess, rules)
        failure.headers = _headers(shares, now, wall, refused=True, streamed=usage.streamed)
        if not excess.too_large:
            failure.headers += retry_headers(FORMS[rules.report], excess.wait, wall)
        return failure


def _buckets(limit: Limit, rules: ServerRules, now: float, wall: float) -> tuple[list[Bucket], list[Bucket]]:
    """The buckets that a server reports, and those that it only enforces."""
    reported: list[Bucket] = []
    hidden: list[Bucket] = []
    for option, (dimension, window) in WINDOWS.items():
        value: float | None = getattr(limit, option)
        if value is None:
            continue
        if window == DAY:
            ends = now + DAY - (wall - PACIFIC_MIDNIGHT) % DAY if rules.daily_reset else None
            reported.append(Bucket(dimension, value, window, value, now, ends=ends))
            continue
        seconds = min(limit.bucket, window) if window == 1.0 else limit.bucket
        if dimension == "requests" and rules.request_slice:
            seconds = min(seconds, rules.request_slice)
        reported.append(Bucket(dimension, value, window, max(1.0, value / window * seconds), now))
        if limit.by_second and window > 1.0:
            hidden.append(Bucket(dimension, value, window, max(1.0, value / window), now))
    return reported, hidden


def _adopt(scope: _Scope, buckets: list[Bucket], hidden: list[Bucket], now: float) -> None:
    """Replace the buckets of a scope after a change: those that were there already keep their productions."""
    for new, old in ((buckets, scope.buckets), (hidden, scope.hidden)):
        known = {(bucket.dimension, bucket.window): bucket for bucket in old}
        for position, bucket in enumerate(new):
            kept = known.get((bucket.dimension, bucket.window))
            if kept is not None:
                kept.update(now)
                kept.change(bucket.limit)
                new[position] = kept
    scope.buckets, scope.hidden = buckets, hidden


def _costs(rules: ServerRules, usage: Usage) -> dict[str, float]:
    """What a request is charged when it is accepted."""
    output = float(usage.max_tokens) if rules.output == "reserved" else 0.0
    tokens = usage.input_tokens
    combined = max(tokens, output) if rules.combined == "larger" else tokens + output
    return {"requests": 1.0, "input_tokens": float(tokens), "output_tokens": output, "tokens": float(combined)}


def _excess(share: _Share, usage: Usage, now: float) -> Excess | None:
    """Why a limit has no room for a request; None if it has."""
    limit, scope, rules = share.state.limit, share.scope, share.state.rules
    if limit.concurrent is not None and scope.running >= limit.concurrent:
        return Excess(bucket=None, limit=limit.concurrent, cost=1, wait=1.0, too_large=False, model=usage.model)
    worst: Excess | None = None
    for bucket in scope.all:
        cost = share.costs[bucket.dimension]
        if bucket.dimension == "output_tokens" and rules.output == "produced":
            cost = 1.0
        room = cost - rules.over_limit * bucket.capacity
        if bucket.has_room(room):
            continue
        too_large = cost > bucket.capacity and bucket.dimension != "requests" and bucket in scope.buckets
        if cost > bucket.capacity and not too_large and bucket.has_room(bucket.capacity):
            continue
        wait = bucket.wait(min(room, bucket.capacity), now)
        if worst is None or too_large or wait > worst.wait:
            worst = Excess(
                bucket=bucket, limit=bucket.limit, cost=cost, wait=wait, too_large=too_large, model=usage.model
            )
    return worst


def _charge(share: _Share, usage: Usage, now: float) -> None:
    """Take a request's charge from all buckets of a limit."""
    counts = share.state.counts
    counts.accepted += 1
    share.scope.running += 1
    produced = share.state.rules.output == "produced"
    for bucket in share.scope.all:
        if produced and bucket.dimension == "output_tokens":
            production = bucket.produce(usage.output_tokens, usage.delay + usage.seconds, now)
            if production is not None:
                share.productions.append((bucket, production))
        else:
            bucket.level -= share.costs[bucket.dimension]
    for dimension, cost in share.costs.items():
        output = produced and dimension == "output_tokens"
        counts.charged[dimension] += usage.output_tokens if output else cost


def _settle(share: _Share, usage: Usage, now: float) -> None:
    """Replace what was charged by what was used."""
    rules = share.state.rules
    used_input = usage.input_tokens - (0 if rules.cached_counts else usage.cached_tokens)
    output = 0 if rules.output == "free" else usage.output_tokens
    used = {"input_tokens": used_input, "tokens": used_input + output}
    if rules.output == "reserved":
        used["output_tokens"] = output
    for bucket in share.scope.all:
        if bucket.dimension in used:
            bucket.update(now)
            refund = share.costs[bucket.dimension] - used[bucket.dimension]
            bucket.level = min(bucket.capacity, bucket.level + refund)
    for dimension, value in used.items():
        share.state.counts.charged[dimension] += value - share.costs[dimension]


def _take_request(scope: _Scope, now: float) -> None:
    """Count one request, as far as there is any left."""
    for bucket in scope.all:
        if bucket.dimension == "requests":
            bucket.update(now)
            bucket.level = max(0.0, bucket.level - 1.0)


def _headers(shares: list[_Share], now: float, wall: float, *, refused: bool, streamed: bool) -> Headers:
    headers: Headers = []
    for share in shares:
        form = FORMS[share.state.rules.report]
        known = {name for name, _ in headers}
        more = limit_headers(form, share.scope.buckets, now, wall, refused=refused, streamed=streamed)
        headers += [(name, value) for name, value in more if name not in known]
    return headers


def _total(parts: Iterable[LimitCounts]) -> LimitCounts:
    total = LimitCounts()
    for part in parts:
        total.accepted += part.accepted
        total.refused += part.refused
        for name, count in part.refused_by.items():
            total.refused_by[name] = total.refused_by.get(name, 0) + count
        for name, value in part.charged.items():
            total.charged[name] += value
    return total
