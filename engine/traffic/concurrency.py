"""How many calls may run at a time on a server that says nothing and queues inside, or refuses what is too much.

The law watches the time to the first token against the least that was seen for a prompt of that size: what waits inside
the server is the part of the calls that this time is too long by (Little's law).

Knows tickets and the time that it is given. Must not know quotas, queues or timers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, median

from .ticket import Ticket

START = 8
SLOW = 3.0
"""A first token that takes this many times the least has waited inside."""

IN_USE = 0.8
"""The limit grows only while at least this part of it is in use."""

LEAST_ROUND = 4
GROWTH = 0.05
"""What a good round adds to the limit, at least one call."""

LEAST_KEPT = 600.0
"""Seconds after which a least time is replaced by the next one measured."""

HOLD = 0.5
"""Seconds of hold after a refusal without a hint."""

_SIZES = 64
_SHORTEST = 1e-6


class LeastTimes:
    """The least time seen, by half octave of input size. What a longer prompt took is enough for a shorter one."""

    __slots__ = ("_least", "_seen_at")

    def __init__(self) -> None:
        self._least = [math.inf] * _SIZES
        self._seen_at = [-math.inf] * _SIZES

    def measure(self, size: float, time: float, now: float) -> float:
        """Note a time; returns the least for this size, which may be this one."""
        place = min(_SIZES - 1, int(2.0 * math.log2(max(1.0, size))))
        if time <= self._least[place] or now - self._seen_at[place] > LEAST_KEPT:
            self._least[place] = max(time, _SHORTEST)
            self._seen_at[place] = now
        since = now - LEAST_KEPT
        known = zip(self._least[place:], self._seen_at[place:], strict=True)
        return min(least for least, seen_at in known if seen_at >= since)


@dataclass(slots=True)
class _Running:
    sent_at: float
    ratio: float = 0.0
    excess: float = 0.0


@dataclass(slots=True)
class _Ended:
    ratio: float
    excess: float
    total: float


class Concurrency:
    """One scope's calls at a time.

    at_most: the declared limit. adaptive: False holds only that. limit: calls that may run now. running: calls that do.
    """

    def __init__(self, *, at_most: int | None = None, adaptive: bool = True) -> None:
        self.at_most: float = math.inf if at_most is None else float(at_most)
        self.adaptive = adaptive
        self.limit: float = min(float(START), self.at_most) if adaptive else self.at_most
        self.hold_until: float = -math.inf
        self._calls: dict[Ticket, _Running] = {}
        self._least_to_token = LeastTimes()
        self._least_per_token = LeastTimes()
        self._round: list[_Ended] = []
        self._cut_at = -math.inf

    @property
    def running(self) -> int:
        """Calls under way."""
        return len(self._calls)

    def ready_at(self, now: float) -> float:
        """When one more call may be sent; `math.inf` where one must end first."""
        if self.running >= int(self.limit):
            return math.inf
        return max(now, self.hold_until)

    def start(self, ticket: Ticket, now: float) -> None:
        """A call is sent."""
        self._calls[ticket] = _Running(now)

    def first_token(self, ticket: Ticket, now: float) -> None:
        """The first token of a streamed answer came; a comment or an empty delta is none."""
        call = self._calls.get(ticket)
        if call is None or call.ratio > 0 or not self.adaptive:
            return
        time = now - call.sent_at
        least = self._least_to_token.measure(ticket.cost.input_tokens, time, now)
        self._judge(call, time, least)
        if self._cut_at == -math.inf and call.ratio <= SLOW and self._is_in_use():
            self._grow(1.0)

    def end(self, ticket: Ticket, now: float, output_tokens: float = 0.0) -> None:
        """A call ended. output_tokens: of an answer that was not streamed, 0 where unknown."""
        in_use = self._is_in_use()
        call = self._calls.pop(ticket, None)
        if call is None or not self.adaptive or call.sent_at <= self._cut_at:
            return
        total = now - call.sent_at
        if call.ratio == 0 and output_tokens > 0:
            least = self._least_per_token.measure(1.0, total / output_tokens, now)
            self._judge(call, total, least * output_tokens)
        self._round.append(_Ended(call.ratio, call.excess, total))
        if len(self._round) >= max(LEAST_ROUND, int(self.limit)):
            self._end_round(in_use, now)

    def refuse(self, ticket: Ticket, hint: float | None, now: float) -> None:
        """The server refused a call because too many run."""
        call = self._calls.pop(ticket, None)
        self.hold_until = max(self.hold_until, now + (HOLD if hint is None else hint))
        if call is not None and self.adaptive and call.sent_at > self._cut_at:
            self._cut(float(self.running), now)

    def leave(self, ticket: Ticket) -> None:
        """A call is gone for a reason that says nothing about the server: cancelled, or refused by a quota."""
        self._calls.pop(ticket, None)

    def _judge(self, call: _Running, time: float, least: float) -> None:
        call.ratio = max(_SHORTEST, time / max(_SHORTEST, least))
        call.excess = max(0.0, time - least)

    def _end_round(self, in_use: bool, now: float) -> None:
        ended, self._round = self._round, []
        measured = [call for call in ended if call.ratio > 0]
        if measured and median(call.ratio for call in measured) > SLOW:
            inside = (
                self.limit * median(call.excess for call in measured) / max(_SHORTEST, fmean(c.total for c in ended))
            )
            self._cut(self.limit - max(1.0, inside), now)
        elif in_use and (self._cut_at > -math.inf or not measured):
            self._grow(max(1.0, GROWTH * self.limit))

    def _grow(self, calls: float) -> None:
        self.limit = min(self.at_most, self.limit + calls)

    def _cut(self, limit: float, now: float) -> None:
        self.limit = max(1.0, min(limit, self.at_most))
        self._cut_at = now
        self._round.clear()

    def _is_in_use(self) -> bool:
        return self.running >= IN_USE * int(self.limit)
