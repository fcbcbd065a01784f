"""One priority class of a queue: its tenants, the tenant that is next, and the tokens that wait ahead of a call.

The tenant with the least service is next. The calls of a tenant are sent in the order of its line. Every operation is
O(log n) or better in the number of tenants.

A call is charged to its tenant when it is sent: its estimated input, and what the ended calls of this tenant used more
than that on average. What it reserves plays no part, because it may be hundreds of times more than it uses. At the end
of the call, the difference from what it used is charged, too.

Nothing is known of the first calls, and later ones may differ from them, so the charges of many calls under way can be
wrong together. Tenants that arrive meanwhile start at a service that contains this error. Therefore a correction takes
a tenant at most `MOST_CALLS` of its calls below or above the others. More would let one tenant starve for an error that
harmed nobody.
"""

from __future__ import annotations

import heapq

from .cost import Mean
from .permit import Permit, TenantLine

MOST_CALLS = 2.0
"""The most calls of a tenant by which a correction takes its service below or above the least service of the others."""

MOST_AWAY = 10_000
"""The number of tenants without waiting calls that are remembered. Of more, those with the least service, who were away
for the longest time, are forgotten."""

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
        self._away_heap: list[tuple[float, int, str | None]] = []
        self._heap: list[tuple[float, int, int, TenantLine]] = []
        self._entries = 0
        # The service of the tenant whose call was sent last. While no call waits, a tenant starts no lower.
        self._floor = 0.0
        # That of the calls of all tenants. It is expected of a tenant of which no call has ended.
        self._excess = Mean()
        # The number of tenants and their tokens, by the power of two of their backlog, for `place`.
        self._octave_lines = [0] * _OCTAVES
        self._octave_tokens = [0.0] * _OCTAVES

    def add(self, permit: Permit, *, at_head: bool = False) -> None:
        """Add a call at the end of its tenant's line. `at_head`: at the beginning."""
        line = self.present.get(permit.tenant)
        if line is None:
            line = self._arrive(permit.tenant)
        before = line.backlog
        if at_head:
            line.prepend(permit)
        else:
            line.append(permit)
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
        self._floor = line.service = max(self._floor, line.service)
        self._charge(permit, line)
        self._rest(line)

    def correct(self, permit: Permit, tokens: float) -> None:
        """Replace what is expected of a call that is no longer under way by what it used.

        tokens: the tokens that it used; 0 if it was refused, failed or cancelled, and then nothing is learned.
        """
        line, permit.line = permit.line, None
        assert line is not None
        change = tokens - line.expected(permit)
        if tokens:
            line.excess.add(tokens - permit.input_tokens)
            self._excess.add(tokens - permit.input_tokens)
        most = MOST_CALLS * max(tokens, line.expected(permit))
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
        least = self._least()
        others = self._floor if least is None else least
        if change < 0:
            line.service = max(line.service + change, min(line.service, others - most))
        else:
            line.service = min(line.service + change, max(line.service, others + most))

    def place(self, permit: Permit) -> tuple[float, float]:
        """Estimate the number of calls, and of tokens, that are served before a call at any place of its tenant's line.

        Of another tenant, as many tokens are counted as of the call's own, at most its backlog. A backlog in the same
        power of two as the own tokens counts as that power's smallest number. Calls of the tenant that were cancelled
        after this call was added are counted, too.
        """
        line = permit.line
        assert line is not None
        assert line.first is not None
        calls = min(line.length - 1, permit.place - line.first.place)
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
        self._entries += 1
        heapq.heappush(self._away_heap, (line.service, self._entries, line.name))
        while len(self._away) > MOST_AWAY:
            service, _, name = heapq.heappop(self._away_heap)
            if name in self._away and self._away[name].service == service:
                del self._away[name]
        if len(self._away_heap) > 2 * len(self._away) + _SPARE:
            # A place instead of an entry's number: names cannot be compared, because None is among them.
            self._away_heap = [(away.service, place, name) for place, (name, away) in enumerate(self._away.items())]
            heapq.heapify(self._away_heap)

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


def _octave(tokens: float) -> int:
    """Return the exponent of the power of two above `tokens`: 0 for 0, 1 for 1, 2 for 2 and 3, 3 for 4 to 7."""
    return min(_OCTAVES - 1, int(tokens).bit_length())
