"""When the calls with one prompt prefix may go, so that few of them write it to the server's cache and the others read.

A write costs more than plain input, and a read a tenth of it. Calls that start together find nothing in the cache, and
each writes. So one call goes, the writer. But its first event does not prove that the prefix can be read: that may take
seconds more (the lag), and a provider has several machines, each with a cache of its own. Only the server's word
counts: the usage of each answer says whether its call has read or written. The calls that go before that is proven are
probes. A probe that misses costs one write. Each of them is a call that had to be made anyway.

1. At the writer's first event one probe goes, a few of very many calls: some servers have no lag. It is too small a
   number to cost much where it misses.
2. `SURE` seconds later a twelfth of the calls go, 2 to 18. Every public measurement found a prefix readable by then on
   the machine that wrote it.
3. A read lets `GROWTH` more go. If several reads, and nearly all of the latest probes, have read, all go. A probe
   that has not answered in the time of the slowest read counts as a miss: a miss takes as long as the prompt.
4. A miss has written the prefix on another machine. `SETTLED` seconds after its first event two to six more probes
   go, and each read lets only one or two follow, until the machines have it.
5. A server whose usage comes at the end of the answer proves nothing in time. There all calls go a lag after the
   writer's first content, and what the answers report at their ends changes the next prefix.

What was learned of a key and model makes the next prefix faster: `CacheFacts`. The numbers are the result of a search
in a model of servers with lags from 0 to 2 s and 1 to 16 machines, for 3 to 1,000 calls.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from typing import Generic, TypeVar

CallT = TypeVar("CallT")

SURE = 2.1
"""Seconds after the writer's first event at which a machine can read what it wrote."""

SETTLED = 0.6
"""Seconds after the first event of a call that missed, at which the next probes go."""

EARLY = (0.6, 1.2)
"""Seconds after the writer's first event at which one to three probes of `MANY` calls go, to learn a shorter lag."""

MANY = 200
GROWTH = 4
LATEST = 24
"""The number of the latest probes that are looked at."""

MOST_NEEDED = 12
"""The most reads that prove a prefix."""

PROVEN = 0.95
"""The share of the latest probes that have read, from which all calls go."""

MOST_MACHINES = 20

MISSES = 3
"""Misses in a row after which a prefix that was readable is proven again, or is left alone if none has ever read it."""


class Phase(enum.Enum):
    """The state of a prefix at a server."""

    COLD = "cold"
    WRITING = "being written"
    PROVING = "written, and not proven to be readable"
    OPEN = "readable, or left alone"


COLD, WRITING, PROVING, OPEN = Phase


class CacheFacts:
    """What was learned of the cache of one key and model.

    lag: the shortest time in seconds after a writer's first event at which a call has read; None: not known.
    missed: the longest such time, below `lag`, at which a call has missed.
    machines: about how many machines have a cache of their own.
    uncached: tokens of the largest prefix that the server did not cache; prefixes up to twice as long do not wait.
    """

    __slots__ = ("lag", "machines", "missed", "uncached")

    def __init__(self, lag: float | None = None) -> None:
        self.lag: float | None = lag
        self.missed: float = 0.0
        self.machines: float = 1.0
        self.uncached: float = 0.0


class Probe:
    """A call that went before the prefix was proven. at: when. has_read: what the server said; None: nothing yet."""

    __slots__ = ("at", "has_read")

    def __init__(self, at: float) -> None:
        self.at: float = at
        self.has_read: bool | None = None


class PrefixState(Generic[CallT]):
    """One prefix of prompts at one key and model. The time is passed in.

    facts: what was learned of the key and model, which all their prefixes share.
    tokens: its estimated size.
    lifetime: seconds that the server keeps it after it was last read or written.
    phase: its state.
    waiting: the calls that wait for it, with the times at which they began to; the oldest first.
    is_left_alone: the server does not cache it, or no call has read it.
    """

    __slots__ = (
        "_allowed", "_cold_seconds", "_expires", "_hits", "_is_late", "_latest", "_missed_after", "_misses",
        "_opens_at", "_out", "_plan", "_released", "_warm_seconds", "_written_at", "facts", "is_left_alone",
        "lifetime", "phase", "tokens", "waiting", "writer",
    )  # fmt: skip

    def __init__(self, facts: CacheFacts, tokens: float, lifetime: float) -> None:
        self.facts: CacheFacts = facts
        self.tokens: float = tokens
        self.lifetime: float = lifetime
        self.waiting: dict[CallT, float] = {}
        self.writer: CallT | None = None
        self._out: dict[CallT, Probe] = {}
        self._set_cold()

    def _set_cold(self) -> None:
        self.phase: Phase = COLD
        self.is_left_alone: bool = False
        self._misses = 0  # in a row
        self._begin_proof(0.0, 0.0)
        self._expires = math.inf

    def _begin_proof(self, now: float, cold_seconds: float) -> None:
        self._written_at, self._cold_seconds = now, cold_seconds
        self._allowed = self._released = self._hits = 0
        self._warm_seconds = self._missed_after = 0.0
        self._latest: deque[Probe] = deque(maxlen=8 * LATEST)
        self._opens_at = math.inf
        self._plan: list[tuple[float, int]] = []  # time → probes; -1: by the number of calls, as rule 2 says
        self._is_late = False

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for it or is under way."""
        return not self.waiting and not self._out

    @property
    def is_readable(self) -> bool:
        """Whether it is proven that calls can read the prefix."""
        return self.phase is OPEN and not self.is_left_alone and not self._misses

    def is_known(self, now: float) -> bool:
        """Whether the prefix is in the server's cache, or a call is writing it."""
        if self.phase is OPEN and now >= self._expires:
            self._set_cold()
        return self.phase is not COLD

    # --- calls ---

    def enter(self, call: CallT, now: float, *, may_wait: bool = True) -> bool:
        """Take a call. Returns True if it goes now; else it waits until `take` returns it."""
        if self.is_known(now) and self.phase is not OPEN and may_wait:
            self.waiting[call] = now
            return False
        self.sent(call, now)
        return True

    def sent(self, call: CallT, now: float) -> None:
        """Note that an attempt of a call begins, or that the call may begin one."""
        if self.phase is COLD:
            self.phase, self.writer = WRITING, call
        probe = self._out.get(call)
        if probe is not None:
            probe.at = now
            return
        probe = self._out[call] = Probe(now)
        if self.phase is PROVING:
            self._latest.append(probe)

    def take(self, now: float, wait: float) -> CallT | float:
        """Take the next call that need not wait any longer. If all wait on, returns when to look again.

        wait: the most seconds that a call waits.
        """
        if not self.waiting:
            return math.inf
        call, since = next(iter(self.waiting.items()))
        when = self._next_room(now)
        if when > now and now < since + wait:
            return min(when, since + wait)
        if when > now:  # it has waited long enough
            self._give_up(now)
        del self.waiting[call]
        self._released += 1
        self.sent(call, now)
        return call

    def leave(self, call: CallT) -> None:
        """Forget a call that has ended, or failed before the server said anything. Another one writes, then."""
        self.waiting.pop(call, None)
        self._out.pop(call, None)
        if self.writer is call:
            self.writer = None  # the prefix is known for long, and a call holds its request
        if self.phase is WRITING and not self._out:
            self.phase = COLD

    # --- what servers say ---

    def begun(self, call: CallT, now: float) -> None:
        """Note the first content of a call whose server does not say yet whether it has read the prefix."""
        probe = self._out.get(call)
        if self.phase is WRITING and probe is not None:
            self.phase = PROVING
            self._begin_proof(now, now - probe.at)
            self._is_late = True
            self._opens_at = now + (SURE if self.facts.lag is None else self.facts.lag)

    def report(self, call: CallT, now: float, *, has_read: bool, has_written: bool | None) -> None:
        """Note what the server says of a call's prefix. has_written: None if the server does not report writes."""
        probe = self._out.pop(call, None)
        if probe is None or self.is_left_alone:
            return
        probe.has_read = has_read
        self._expires = now + self.lifetime
        if self.phase is WRITING:
            self._written(probe, now, has_written)
        elif self.phase is PROVING and not self._is_late:
            self._probed(probe, now)
        elif has_read:
            self._misses = 0
            self.phase = OPEN
        else:
            self._missed(now, has_written)

    def _written(self, probe: Probe, now: float, has_written: bool | None) -> None:
        """Take the word on the first call."""
        if probe.has_read:
            self.phase = OPEN
            return
        if has_written is False:
            self._leave_alone()
            return
        self.phase = PROVING
        self.facts.machines = max(1.0, 0.8 * self.facts.machines)
        self._begin_proof(now, now - probe.at)
        self._make_plan(now)
        if has_written is None:  # there may be no cache: do not wait longer than a second prompt takes
            self._opens_at = now + 0.8 * self._cold_seconds
            self._plan.append((now + 0.4 * self._cold_seconds, -1))

    def _make_plan(self, now: float) -> None:
        lag, missed, machines = self.facts.lag, self.facts.missed, self.facts.machines
        if machines > 1.5:
            settled = now + self._cold_seconds + (SETTLED if lag is None else min(lag, SETTLED))
            self._plan = [(now, math.ceil(4 * machines)), (settled, -1)]
        elif lag is None:
            count = len(self.waiting)
            self._plan = [(now, max(1, min(6, count // 170)))] if count >= 4 else []
            if count >= MANY:
                self._plan += [(now + seconds, max(1, min(3, count // 300))) for seconds in EARLY]
            self._plan.append((now + SURE, -1))
        else:
            self._plan = [(now + lag, -1)]
            if lag - missed > SETTLED / 2 and len(self.waiting) >= 4:
                self._plan.insert(0, (now + (missed + lag) / 2, 1))

    def _probed(self, probe: Probe, now: float) -> None:
        """Take the word on a probe."""
        if not probe.has_read:
            self._missed_after = max(self._missed_after, probe.at - self._written_at)
            if now - self._written_at > SURE:
                self._plan.append((now + SETTLED, max(2, min(6, self._count // 160))))
            self._learn()
            return
        self._hits += 1
        if self._hits == 1:  # those that went before it prove nothing
            self._latest = deque((each for each in self._latest if each.at >= probe.at), self._latest.maxlen)
        self._warm_seconds = max(self._warm_seconds, now - probe.at)
        reads, looked_at = self._score(now)
        self._allowed += GROWTH if reads >= PROVEN * looked_at else max(1, min(2, self._count // 400))
        self._learn()

    def _missed(self, now: float, has_written: bool | None) -> None:
        """Take the word on a call that went because the prefix was readable, and has not read it."""
        self._misses += 1
        if self._misses < MISSES * self.facts.machines:
            return
        if self._is_late and not has_written:
            self._leave_alone()
        else:
            self._misses, self.phase = 0, PROVING
            self._begin_proof(now, self._cold_seconds)
            self._make_plan(now)

    def _leave_alone(self) -> None:
        self.facts.uncached = max(self.facts.uncached, self.tokens)
        self.phase, self.is_left_alone = OPEN, True

    def _give_up(self, now: float) -> None:
        """Leave the prefix alone for its lifetime if its probes have all missed."""
        answered = [probe for probe in self._latest if probe.has_read is not None]
        if self.phase is PROVING and not self._is_late and not self._hits and len(answered) >= MISSES:
            self.phase, self.is_left_alone, self._expires = OPEN, True, now + self.lifetime

    # --- the law ---

    def _score(self, now: float) -> tuple[int, int]:
        """Return how many of the latest probes have read that had the time to, and how many had."""
        due = [probe.has_read for probe in self._latest if probe.at + self._warm_seconds <= now][-LATEST:]
        return due.count(True), len(due)

    def _next_room(self, now: float) -> float:
        """Return the time at which the next call may go, as far as it is known; `now` if it may go now."""
        if self.phase is not PROVING:
            return math.inf if self.phase is WRITING else now
        if now >= self._opens_at and not self._hits:
            self.phase = OPEN
            return now
        self._plan.sort()
        while self._plan and self._plan[0][0] <= now:
            _, count = self._plan.pop(0)
            self._allowed += count if count >= 0 else max(2, min(18, self._count // 12))
        when = min(math.inf if self._hits else self._opens_at, self._plan[0][0] if self._plan else math.inf)
        if self._hits:
            reads, looked_at = self._score(now)
            needed = min(MOST_NEEDED, max(1, self._count // 8))
            if looked_at and reads >= max(needed, PROVEN * looked_at):
                self.phase = OPEN
                return now
            due = (probe.at + self._warm_seconds for probe in self._latest if probe.has_read is None)
            when = min([when, *(each for each in due if each > now)])
        return now if self._released < self._allowed else when

    @property
    def _count(self) -> int:
        return len(self.waiting) + self._released

    def _learn(self) -> None:
        """Keep what the probes show for the next prefix."""
        facts, answers = self.facts, [probe.has_read for probe in self._latest]
        reads, missed = answers.count(True), answers.count(False)
        if missed and reads:
            facts.machines = max(facts.machines, min((reads + missed) / reads, MOST_MACHINES))
        elif reads:
            lag = min(probe.at for probe in self._latest if probe.has_read) - self._written_at
            facts.lag = lag if facts.lag is None else min(facts.lag, lag)
            if self._missed_after < lag:
                facts.missed = self._missed_after
