"""Which target of a route the next call goes to.

Knows the targets' records and the time and chance that it is given. Must not know what a target is, nor its quota: the
caller says which targets have room.
"""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from .breaker import Breaker, BreakerState
from .score import Score

MARGIN = 4.0
"""A session leaves its target when that scores worse than this many times the best."""

SESSION_KEPT = 3600.0
"""Seconds after its last call for which a session keeps its target."""


class Balance(enum.StrEnum):
    """How a route chooses among its healthy targets."""

    ORDER = "order"
    WEIGHTED = "weighted"
    FASTEST = "fastest"
    STICKY = "sticky"


@dataclass(slots=True)
class TargetRecord:
    """One target of a route. fallback: used only when no other is left."""

    weight: float = 1.0
    fallback: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    score: Score = field(default_factory=Score)
    sessions: int = 0


@dataclass(slots=True, frozen=True)
class Choice:
    """Where a call goes.

    target: its place among the targets; None where the first one of `among` that has room should be taken.
    among: the targets that may be waited for; none where every one has been tried.
    wait_until: all are left alone until then; `math.inf` where a call under way decides; otherwise the present.
    """

    target: int | None
    among: tuple[int, ...] = ()
    wait_until: float = -math.inf


class RouteState:
    """What a route knows of its targets and sessions. `random` gives numbers in [0, 1)."""

    def __init__(self, balance: Balance, targets: Sequence[TargetRecord], random: Callable[[], float]) -> None:
        self.balance = balance
        self.targets: tuple[TargetRecord, ...] = tuple(targets)
        self._random = random
        self._sessions: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._uses_breakers = balance in (Balance.ORDER, Balance.WEIGHTED)

    def choose(
        self, now: float, has_room: Collection[int], *, tried: Collection[int] = (), session: str | None = None
    ) -> Choice:
        """The target for a call that is about to be sent.

        has_room: the places of the targets that could send it now. tried: those that failed it before.
        """
        left = [place for place in range(len(self.targets)) if place not in tried]
        healthy = self._healthy(left, now)
        if not healthy:
            times = (self.targets[place].breaker.next_time(now) for place in left)
            return Choice(None, (), min(times, default=-math.inf))
        own = [place for place in healthy if not self.targets[place].fallback]
        if not own or self.balance is Balance.ORDER:
            first = (own or healthy)[0]
            return Choice(first if first in has_room else None, (first,))
        if self.balance is Balance.STICKY and session is not None:
            kept = self._kept(session, own, now)
            if kept is not None:
                return Choice(kept if kept in has_room else None, (kept,))
        open_ones = [place for place in own if place in has_room]
        if not open_ones:
            return Choice(None, tuple(own))
        chosen = self._by_weight(open_ones) if self.balance is Balance.WEIGHTED else self._best(open_ones, now)
        return Choice(chosen, tuple(own))

    def begin(self, place: int, now: float, session: str | None = None) -> None:
        """A call is sent to a target, in the same step as it was chosen."""
        target = self.targets[place]
        target.score.outstanding += 1
        target.breaker.begin(now)
        if session is not None and self.balance is Balance.STICKY:
            self.end_session(session)
            self._sessions[session] = (place, now)
            target.sessions += 1
            self._expire(now)

    def succeed(self, place: int, first_event: float, now: float) -> None:
        """A call's first event came, after so many seconds. `end` is called besides."""
        self.targets[place].score.succeed(first_event, now)
        self.targets[place].breaker.succeed()

    def fail(self, place: int, sent_at: float, now: float, session: str | None = None) -> None:
        """A call failed by its target's fault; its session leaves the target. `end` is called besides."""
        self.targets[place].score.fail(now)
        self.targets[place].breaker.fail(sent_at, now)
        if session is not None and self._sessions.get(session, (-1, now))[0] == place:
            self.end_session(session)

    def end(self, place: int, sent_at: float) -> None:
        """A call is no longer under way, whatever came of it. It is called once for each `begin`, last."""
        self.targets[place].score.outstanding -= 1
        self.targets[place].breaker.end(sent_at)

    def end_session(self, session: str) -> None:
        """Forget where a session goes."""
        kept = self._sessions.pop(session, None)
        if kept is not None:
            self.targets[kept[0]].sessions -= 1

    def _healthy(self, places: list[int], now: float) -> list[int]:
        if not self._uses_breakers:
            return places
        states = {place: target.breaker.state(now) for place, target in enumerate(self.targets)}
        count = sum(state is BreakerState.OPEN for state in states.values())
        if len(self.targets) > count > len(self.targets) / 2:
            # Where most targets fail, they are overloaded: the rest would only be the next.
            return places
        return [place for place in places if states[place] is not BreakerState.OPEN]

    def _kept(self, session: str, places: list[int], now: float) -> int | None:
        self._expire(now)
        kept = self._sessions.get(session)
        if kept is None or kept[0] not in places:
            return None
        best = min(self.targets[place].score.value() for place in places)
        return kept[0] if self.targets[kept[0]].score.value() <= MARGIN * best else None

    def _expire(self, now: float) -> None:
        while self._sessions:
            session, (_, used_at) = next(iter(self._sessions.items()))
            if now - used_at < SESSION_KEPT:
                return
            self.end_session(session)

    def _by_weight(self, places: list[int]) -> int:
        point = self._random() * sum(self.targets[place].weight for place in places)
        for place in places:
            point -= self.targets[place].weight
            if point < 0:
                return place
        return places[-1]

    def _best(self, places: list[int], now: float) -> int:
        due = [place for place in places if self.targets[place].score.is_due(now)]
        if due:
            return due[int(self._random() * len(due))]
        known = [place for place in places if self.targets[place].score.is_known] or places
        scores = {place: (self.targets[place].score.value(), self.targets[place].score.outstanding) for place in known}
        least = min(scores.values())
        best = [place for place in known if scores[place] == least]
        return best[int(self._random() * len(best))]
