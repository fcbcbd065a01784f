"""A fair queue of the calls that wait for one limiter or budget, and the permits of these calls.

A call has one permit from the queue to its end. Priority classes are served in strict order, except that a class that
was passed over for 30 s is served once. Within a class, the tenant with the least service is next. The calls of a
tenant are sent in the order of its line. Every operation is O(log n) or better in the number of tenants.

A call is charged to its tenant when it is sent: its estimated input, and what the ended calls of this tenant used more
than that on average. What it reserves plays no part, because it may be hundreds of times more than it uses. At the end
of the call, the difference from what it used is charged, too.

Nothing is known of the first calls, and later ones may differ from them, so the charges of many calls under way can be
wrong together. Tenants that arrive meanwhile start at a service that contains this error. Therefore a correction takes
a tenant at most `MOST_CALLS` of its calls below or above the others. More would let one tenant starve for an error that
harmed nobody.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ....providers.model.options import Priority
from ....providers.model.tokens import Usage

if TYPE_CHECKING:
    from .pump import WaitingCall


_SMOOTHING = 0.05
"""Weight of one call's output in the learned mean. The first calls form an arithmetic mean."""


class Mean:
    """The mean of a series of numbers. The later numbers count more, from the twentieth on.

    value: the mean; before the first number, the value that was given.
    count: how many numbers there were.
    """

    __slots__ = ("count", "value")

    def __init__(self, value: float = 0.0) -> None:
        self.value: float = value
        self.count: int = 0

    def include(self, number: float) -> None:
        """Add the next number of the series."""
        self.count += 1
        self.value += (number - self.value) * max(_SMOOTHING, 1.0 / self.count)


class Cost(NamedTuple):
    """The amounts that a call takes from each limit, in the order of `Unit`.

    requests: number of requests.
    input_tokens: tokens of the prompt.
    output_tokens: tokens of the response.
    tokens: tokens for limits that count input and output together.
    """

    requests: float
    input_tokens: float
    output_tokens: float
    tokens: float


cost_of: Callable[[type[Cost], Iterable[float]], Cost] = tuple[float, ...].__new__
"""Makes a `Cost` of its four numbers, without the call of a Python function that `Cost(…)` costs each time."""

FREE = Cost(0.0, 0.0, 0.0, 0.0)


def credible(usage: Usage) -> Usage:
    """Return the usage, or an empty one if a count is below zero, as some gateways report it. Such a count would give a
    budget or a limit more than it has.
    """
    counts = (usage.input_tokens, usage.output_tokens, usage.thinking_tokens, usage.cached_tokens)
    return Usage() if any(count is not None and count < 0 for count in counts) else usage


NEVER = -math.inf
"""The time of what has not happened. All permits share it."""


class PermitState(enum.IntEnum):
    """The state of a permit."""

    NEW = 0
    """The call is not queued yet."""
    QUEUED = 1
    """The call waits in a queue."""
    SENT = 2
    """The call was sent and may still be refused. It counts in the window."""
    CONFIRMED = 3
    """The server accepted the call."""
    ENDED = 4
    """The call ended, was refused or was cancelled."""


NEW, QUEUED, SENT = PermitState.NEW, PermitState.QUEUED, PermitState.SENT
CONFIRMED, ENDED = PermitState.CONFIRMED, PermitState.ENDED
"""The states, for the path of every call."""

UNDER_WAY = (SENT, CONFIRMED)
"""The states of a call that was sent and has not ended."""


@dataclass(slots=True, eq=False, repr=False)
class Permit:
    """What one call has in a queue and, after the call was sent, its reserved cost.

    input_tokens: the estimated tokens of the prompt.
    max_output: the request's limit for output tokens; None if it has none.
    cost: the charge as it was estimated when the call was last sent.
    priority: the priority class.
    tenant: the tenant; None if the request names none.
    owner: the call that waits for it; None while it does not wait.
    refusals: the number of times that a limit refused the call.
    sent_at: the time at which the call was last sent.
    sent_before: the total cost that the quota had sent when this call was sent, including this call.
    number: while it waits, it orders the calls in a tenant's line; the first call has the lowest number. While the call
        is under way: its number among the calls to its server, in the order of sending.
    line: the line of its tenant, while it waits or is under way; else None.
    before: the previous call in the line.
    after: the next call in the line.
    """

    input_tokens: float
    max_output: float | None
    priority: Priority = Priority.NORMAL
    tenant: str | None = None
    owner: WaitingCall | None = None
    cost: Cost = field(default=FREE, init=False)
    refusals: int = field(default=0, init=False)
    state: PermitState = field(default=NEW, init=False)
    sent_at: float = field(default=NEVER, init=False)
    sent_before: Cost = field(default=FREE, init=False)
    number: int = field(default=0, init=False)
    line: TenantLine | None = field(default=None, init=False)
    before: Permit | None = field(default=None, init=False)
    after: Permit | None = field(default=None, init=False)

    @property
    def size(self) -> float:
        """Tokens of the prompt and of the reserved output, by which the queue counts what waits ahead of a call."""
        return max(1.0, self.input_tokens + (self.max_output or 0.0))

    @property
    def charged(self) -> Cost:
        """The cost that was taken from the quota's buckets and not returned."""
        return self.cost if self.state in UNDER_WAY else FREE

    @property
    def is_first_of_tenant(self) -> bool:
        """True if the call is the first in its tenant's line. Only such a call can be the next of the queue."""
        return self.line is not None and self.line.first is self


class TenantLine:
    """The waiting calls of one tenant in one class, as a linked list, so that a call leaves the middle in O(1).

    name: the tenant's name; None for calls without a tenant.
    service: the tokens served. When the line's first call arrives, it is raised to the least of the other tenants.
    excess: the tokens that the tenant's ended calls used beyond the estimate of their input.
    backlog: the tokens of the waiting calls.
    length: the number of waiting calls.
    version: the number of the tenant's valid entry in the heap of its class; 0: none.
    octave: the exponent of the power of two above the backlog.
    """

    __slots__ = ("backlog", "excess", "first", "last", "length", "name", "octave", "service", "version")

    def __init__(self, name: str | None) -> None:
        self.name: str | None = name
        self.service: float = 0.0
        self.excess: Mean = Mean()
        self.backlog: float = 0.0
        self.length: int = 0
        self.version: int = 0
        self.octave: int = 0
        self.first: Permit | None = None
        self.last: Permit | None = None

    def expected(self, permit: Permit) -> float:
        """Return the tokens that a call of this tenant is expected to use."""
        tokens = permit.input_tokens + self.excess.value
        return tokens if tokens > 1.0 else 1.0

    def add(self, permit: Permit, *, at_head: bool) -> None:
        """Add a call at the end of the line. `at_head`: at the beginning."""
        before, after = (None, self.first) if at_head else (self.last, None)
        if before is None:
            self.first = permit
        else:
            before.after = permit
        if after is None:
            self.last = permit
        else:
            after.before = permit
        permit.number = before.number + 1 if before is not None else after.number - 1 if after is not None else 0
        permit.line, permit.before, permit.after = self, before, after
        self._count(1, permit)

    def unlink(self, permit: Permit) -> None:
        """Remove a call from the line, wherever it is."""
        before, after = permit.before, permit.after
        if before is None:
            self.first = after
        else:
            before.after = after
        if after is None:
            self.last = before
        else:
            after.before = before
        permit.before = permit.after = permit.line = None
        self._count(-1, permit)

    def _count(self, sign: int, permit: Permit) -> None:
        self.length += sign
        self.backlog = self.backlog + sign * permit.size if self.length else 0.0


MOST_CALLS = 2.0
"""The most calls of a tenant by which a correction takes its service below or above the least service of the others."""

MOST_AWAY = 10_000
"""The number of tenants without waiting calls that are remembered. Of more, the half with the least service, who were
away for the longest time, is forgotten."""

_OCTAVES = 64
_SPARE = 32


class TenantClass:
    """The tenants of one priority class.

    length: the number of waiting calls.
    backlog: the tokens of the waiting calls.
    present: the lines of the tenants that have waiting calls, by the tenant's name.
    """

    def __init__(self) -> None:
        self.length: int = 0
        self.backlog: float = 0.0
        self.present: dict[str | None, TenantLine] = {}
        self._away: dict[str | None, TenantLine] = {}
        self._heap: list[tuple[float, int, int, TenantLine]] = []
        self._entries = 0
        # The service of the tenant whose call was sent last. While no call waits, a tenant starts no lower.
        self._floor = 0.0
        # That of the calls of all tenants. It is expected of a tenant of which no call has ended.
        self._excess = Mean()
        # The number of tenants and their tokens, by the power of two of their backlog, for `ahead_of`.
        self._octave_lines = [0] * _OCTAVES
        self._octave_tokens = [0.0] * _OCTAVES

    def add(self, permit: Permit, *, at_head: bool = False) -> None:
        """Add a call at the end of its tenant's line. `at_head`: at the beginning."""
        line = self.present.get(permit.tenant)
        if line is None:
            line = self._arrive(permit.tenant)
        before = line.backlog
        line.add(permit, at_head=at_head)
        self._moved(line, before, 1)

    def remove(self, permit: Permit) -> None:
        """Remove a call from its tenant's line, because it is sent or cancelled."""
        line = permit.line
        assert line is not None
        before = line.backlog
        line.unlink(permit)
        self._moved(line, before, -1)
        if line.length == 0:
            self._leave(line)

    def first(self) -> Permit:
        """Return the next call without removing it. The class must not be empty."""
        while True:
            _, _, version, line = self._heap[0]
            if version == line.version and line.first is not None:
                return line.first
            heapq.heappop(self._heap)

    def take(self) -> Permit:
        """Remove and return the next call, because it is sent, and charge it to its tenant."""
        permit = self.first()
        line = permit.line
        assert line is not None
        self._floor = line.service
        self._charge(permit, line)
        self._enter(line)
        self.remove(permit)
        permit.line = line
        return permit

    def pass_through(self, permit: Permit) -> None:
        """Charge a call to its tenant that waits for nothing. No call of the class may be waiting.

        The effect is that of `add` and `take`.
        """
        line = permit.line = self._away.get(permit.tenant) or TenantLine(permit.tenant)
        if line.service < self._floor:
            line.service = self._floor
        else:
            self._floor = line.service
        self._charge(permit, line)
        self._rest(line)

    def correct(self, permit: Permit, tokens: float) -> None:
        """Replace what is expected of a call that is no longer under way by what it used.

        tokens: the tokens that it used; 0 if it was refused, failed or cancelled, and then nothing is learned.
        """
        line, permit.line = permit.line, None
        assert line is not None
        expected = line.expected(permit)
        change = tokens - expected
        if tokens:
            line.excess.include(tokens - permit.input_tokens)
            self._excess.include(tokens - permit.input_tokens)
            expected = line.expected(permit)
        most = MOST_CALLS * (tokens if tokens > expected else expected)
        if line.length:
            line.version = 0
            self._shift(line, change, most)
            self._enter(line)
        elif self._away.get(line.name) is line:
            self._shift(line, change, most)
            self._rest(line)

    def _charge(self, permit: Permit, line: TenantLine) -> None:
        """Add to a tenant's service what is expected of a call that is sent."""
        if not line.excess.count:
            line.excess.value = self._excess.value
        line.service += line.expected(permit)

    def _shift(self, line: TenantLine, change: float, most: float) -> None:
        """Change a tenant's service, but not to more than `most` below or above that of the others."""
        least = self._least() if self._heap else None
        others = self._floor if least is None else least
        service, line.service = line.service, line.service + change
        if change < 0:
            lowest = others - most
            if line.service < lowest:
                line.service = lowest if lowest < service else service
        elif line.service > others + most:
            line.service = max(service, others + most)

    def ahead_of(self, permit: Permit) -> tuple[float, float]:
        """Estimate the number of calls, and of tokens, that are served before a call anywhere in its tenant's line.

        Of another tenant, as many tokens are counted as of the call's own, at most its backlog. A backlog in the same
        power of two as the own tokens counts as that power's smallest number. Calls of the tenant that were cancelled
        after this call was added are counted, too.
        """
        line = permit.line
        assert line is not None
        assert line.first is not None
        calls = min(line.length - 1, permit.number - line.first.number)
        tokens = line.backlog * calls / line.length
        others = self._others(tokens + permit.size, line)
        return calls + others * self.length / self.backlog, tokens + others

    def _others(self, tokens: float, line: TenantLine) -> float:
        """Estimate the tokens of other tenants that are served before this many tokens of the tenant of `line`."""
        octave = _octave(tokens)
        least = 2.0 ** (octave - 1)
        own = line.backlog if line.octave < octave else tokens if line.octave > octave else least
        others = sum(self._octave_tokens[:octave]) + least * self._octave_lines[octave]
        others += tokens * sum(self._octave_lines[octave + 1 :])
        return max(0.0, others - own)

    def _arrive(self, name: str | None) -> TenantLine:
        line = self._away.pop(name, None) or TenantLine(name)
        least = self._least()
        line.service = max(line.service, self._floor if least is None else least)
        self.present[name] = line
        self._octave_lines[line.octave] += 1
        self._enter(line)
        return line

    def _leave(self, line: TenantLine) -> None:
        del self.present[line.name]
        self._octave_lines[line.octave] -= 1
        line.version = 0
        self._compact()
        self._rest(line)

    def _least(self) -> float | None:
        while self._heap:
            service, _, version, line = self._heap[0]
            if version == line.version:
                return service
            heapq.heappop(self._heap)
        return None

    def _enter(self, line: TenantLine) -> None:
        """Add a heap entry for a tenant with its current service. Its older entry is invalid from now on."""
        self._entries += 1
        line.version = self._entries
        heapq.heappush(self._heap, (line.service, self._entries, line.version, line))
        self._compact()

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self.present) + _SPARE:
            self._heap = [entry for entry in self._heap if entry[2] == entry[3].version]
            heapq.heapify(self._heap)

    def _rest(self, line: TenantLine) -> None:
        """Remember a tenant without waiting calls, if its calls have used anything."""
        if line.service <= self._floor and not line.excess.count:
            self._away.pop(line.name, None)
            return
        self._away[line.name] = line
        if len(self._away) > MOST_AWAY:
            by_service = sorted(self._away.values(), key=_service)
            self._away = {kept.name: kept for kept in by_service[MOST_AWAY // 2 :]}

    def _moved(self, line: TenantLine, backlog_before: float, calls: int) -> None:
        self.length += calls
        self.backlog = self.backlog + line.backlog - backlog_before if self.length else 0.0
        self._octave_tokens[line.octave] -= backlog_before
        octave = _octave(line.backlog)
        if octave != line.octave:
            self._octave_lines[line.octave] -= 1
            self._octave_lines[octave] += 1
            line.octave = octave
        self._octave_tokens[octave] += line.backlog


def _service(line: TenantLine) -> float:
    return line.service


def _octave(tokens: float) -> int:
    """Return the exponent of the power of two above `tokens`: 0 for 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7."""
    return min(_OCTAVES - 1, int(tokens).bit_length())


LONGEST_WAIT = 30.0
"""Seconds after which a class that was passed over is served once."""

STUBBORN = 5
"""After each series of this many refusals, a call goes behind the other calls of its tenant. It may be too large for
this server, and must not block them."""

CLASSES = tuple(Priority)
"""The priority classes, the highest first."""


class FairQueue:
    """The waiting calls of one limiter, by priority and tenant.

    length: the number of waiting calls, equal to `len()`.
    """

    def __init__(self) -> None:
        self._classes = {priority: TenantClass() for priority in CLASSES}
        self._passed_since: dict[Priority, float] = {}
        self.length: int = 0

    def __len__(self) -> int:
        return self.length

    def add(self, permit: Permit, *, at_head: bool = False) -> None:
        """Add a call behind the other calls of its tenant. `at_head`: before them, because it waited before."""
        self.length += 1
        permit.state = QUEUED
        self._classes[permit.priority].add(permit, at_head=at_head)

    def pass_through(self, permit: Permit) -> None:
        """Let a call pass that is sent at once: its tenant is charged as for `add` and `take`. The queue must be
        empty."""
        self._classes[permit.priority].pass_through(permit)
        if self._passed_since:
            self._passed_since.pop(permit.priority, None)

    def put_back(self, permit: Permit) -> None:
        """Add a refused call again, before the other calls of its tenant, and give the tenant its service back."""
        self._classes[permit.priority].correct(permit, 0.0)
        permit.refusals += 1
        self.add(permit, at_head=permit.refusals % STUBBORN > 0)

    def first(self, now: float) -> Permit | None:
        """Return the next call without removing it; None if the queue is empty."""
        if not self.length:
            return None
        return self._classes[self._next_class(now)].first()

    def take(self, now: float) -> Permit:
        """Remove and return the next call, because it is sent. The queue must not be empty."""
        priority = self._next_class(now)
        permit = self._classes[priority].take()
        self.length -= 1
        self._passed_since.pop(priority, None)
        for other, waiting in self._classes.items():
            if waiting.length and other is not priority:
                self._passed_since.setdefault(other, now)
        return permit

    def remove(self, permit: Permit) -> None:
        """Remove a waiting call that was cancelled. Its tenant is not charged."""
        self._classes[permit.priority].remove(permit)
        self.length -= 1
        permit.state = ENDED
        if not self._classes[permit.priority].length:
            self._passed_since.pop(permit.priority, None)

    def correct(self, permit: Permit, tokens: float) -> None:
        """Replace the expected tokens of an ended call by those that it used, in the service of its tenant."""
        self._classes[permit.priority].correct(permit, tokens)

    def ahead_of(self, permit: Permit) -> tuple[float, float]:
        """Estimate the number of calls, and of tokens, that are served before a waiting call."""
        calls, tokens = self._classes[permit.priority].ahead_of(permit)
        for priority in CLASSES[: CLASSES.index(permit.priority)]:
            calls += self._classes[priority].length
            tokens += self._classes[priority].backlog
        return calls, tokens

    def _next_class(self, now: float) -> Priority:
        highest = next(priority for priority in CLASSES if self._classes[priority].length)
        for priority, since in self._passed_since.items():
            if now - since >= LONGEST_WAIT and self._classes[priority].length:
                return priority
        return highest
