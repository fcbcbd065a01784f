"""Chooses the target of a route for the next call."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field

from ..limits.host import Breaker, BreakerState, Host
from .score import STALE, Score
from .sessions import Sessions

MARGIN = 4.0
"""A session leaves its target if the target's score is more than this many times the best score."""


class Balance(enum.StrEnum):
    """The rule by which a route chooses among its healthy targets."""

    ORDER = "order"
    """The first target in the route's order."""
    WEIGHTED = "weighted"
    """A random target, in proportion to the weights."""
    FASTEST = "fastest"
    """The target with the best score."""
    STICKY = "sticky"
    """The target of the call's session; the one with the best score for a new session."""


@dataclass(slots=True)
class TargetRecord:
    """The record of one target of a route.

    weight: the target's share for `Balance.WEIGHTED`.
    fallback: True if the target is used only when no other target is left.
    breaker: its circuit breaker.
    score: its times and failures.
    host: the address of its server, which takes connections or not.
    """

    weight: float = 1.0
    fallback: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    score: Score = field(default_factory=Score)
    host: Host = field(default_factory=lambda: Host(""))


@dataclass(slots=True, frozen=True)
class Choice:
    """The result of choosing a target for a call.

    target: the index of the target; None: wait for a target.
    among: the indices of the targets to wait for, of which the first one with room is used; empty if all were tried
        or all are paused.
    wait_until: the time at which the pause of a target ends; `math.inf` if the outcome of a running call decides;
        `-math.inf` if there is no pause.
    """

    target: int | None
    among: tuple[int, ...] = ()
    wait_until: float = -math.inf


class RouteState:
    """The state of a route: its targets and sessions.

    balance: the rule by which it chooses.
    targets: the targets' records; methods name a target by its index.
    sessions: the targets of sessions.
    random: a function that returns random numbers in [0, 1).
    """

    def __init__(self, balance: Balance, targets: Sequence[TargetRecord], random: Callable[[], float]) -> None:
        self.balance = balance
        self.targets: tuple[TargetRecord, ...] = tuple(targets)
        self._random = random
        self.sessions: Sessions = Sessions()
        self._uses_breakers = balance in (Balance.ORDER, Balance.WEIGHTED)

    def choose(
        self, now: float, has_room: Container[int], *, tried: Collection[int] = (), session: str | None = None
    ) -> Choice:
        """Choose the target for a call that is about to be sent.

        now: the current time.
        has_room: the indices of the targets whose quota lets the call be sent now.
        tried: the indices of the targets on which this call has failed.
        session: the call's session; None if it has none.
        """
        left = [place for place in range(len(self.targets)) if place not in tried]
        healthy = self._healthy(left, now)
        if not healthy:
            times = (self.targets[place].breaker.next_time(now) for place in left)
            return Choice(None, (), min(times, default=-math.inf))
        own = [place for place in healthy if not self.targets[place].fallback]
        fallbacks = [place for place in healthy if self.targets[place].fallback]
        if not own or self.balance is Balance.ORDER:
            return self._in_order([*own, *fallbacks], has_room)
        if self.balance is Balance.STICKY and session is not None:
            kept = self._kept(session, own, now)
            if kept is not None:
                return Choice(kept if kept in has_room else None, (kept,))
        open_ones = [place for place in own if place in has_room]
        if not open_ones:
            here = any(map(self._is_here, own))
            return self._in_order([*own, *(() if here else fallbacks)], has_room, at_least=len(own))
        chosen = self._by_weight(open_ones) if self.balance is Balance.WEIGHTED else self._best(open_ones, now)
        return Choice(chosen, tuple(own))

    def _in_order(self, places: Sequence[int], has_room: Container[int], at_least: int = 1) -> Choice:
        """Choose the first target that takes connections. A call that waits for it also waits for those before it, so
        that one of them has a call to ask it whether it does so again.

        at_least: the number of targets to wait for.
        """
        last = next((index for index, place in enumerate(places) if self._is_here(place)), len(places))
        among = tuple(places[: max(last + 1, at_least)])
        return Choice(next((place for place in among if place in has_room), None), among)

    def _is_here(self, place: int) -> bool:
        return not self.targets[place].host.is_away

    def asks_at(self, now: float) -> float:
        """Return when a call that waits elsewhere asks whether a target that has failed answers again; `math.inf` if
        there is none, or a call under way decides. That of an address which takes no connections is asked by its own
        calls."""
        return min((self._asked_again_at(place, now) for place in range(len(self.targets))), default=math.inf)

    def may_be_asked(self, place: int, now: float) -> bool:
        """Return whether a target that failed on a call may be tried again by it."""
        return not self.targets[place].score.is_failing or self._asked_again_at(place, now) <= now

    def _asked_again_at(self, place: int, now: float) -> float:
        target = self.targets[place]
        if target.host.is_away or not target.score.is_failing:
            return math.inf
        if self._uses_breakers and target.breaker.is_tripped:
            return target.breaker.next_time(now)
        return math.inf if target.score.outstanding else target.score.heard_at + STALE

    def is_healthy(self, place: int, now: float) -> bool:
        """Whether a call may be sent to a target now. It may have waited for the target since it was chosen."""
        return place in self._healthy(list(range(len(self.targets))), now)

    def begin(self, place: int, now: float, session: str | None = None) -> int:
        """Record that a call is sent to a target, and return its number there. Call this directly after `choose`,
        without waiting in between."""
        target = self.targets[place]
        target.score.outstanding += 1
        if session is not None and self.balance is Balance.STICKY:
            self.sessions.keep(session, place, now)
        return target.breaker.begin(now)

    def succeed(self, place: int, number: int, first_event: float, now: float) -> None:
        """Record a call's first event. `end` is called later for the same call.

        number: the call's, as `begin` has returned it.
        first_event: seconds it took.
        """
        self.targets[place].score.succeed(first_event, now)
        self.targets[place].breaker.succeed(number)

    def complete(self, place: int, number: int) -> None:
        """Record a call's complete answer. `end` is called later for the same call."""
        self.targets[place].breaker.complete(number)

    def fail(self, place: int, number: int, now: float, session: str | None = None, *, broke: bool = False) -> None:
        """Record that a call failed by its target's fault. Its session leaves the target. Call `end` afterwards.

        broke: its first event had come.
        """
        target = self.targets[place]
        target.score.fail(now)
        if not target.host.is_away:  # otherwise its return is found out without the pauses of the breaker
            target.breaker.fail(number, now, broke=broke)
        if session is not None and self.sessions.place(session, now) == place:
            self.sessions.end(session)

    def end(self, place: int, number: int) -> None:
        """Record that a call has ended, with any outcome. This is the last method for a call, once per `begin`."""
        self.targets[place].score.outstanding -= 1
        self.targets[place].breaker.end(number)

    def _healthy(self, places: list[int], now: float) -> list[int]:
        if not self._uses_breakers:
            return places
        # A breaker that waits for the outcome of a probing call has not closed. Fallbacks are not counted, because they
        # are there for the case that the others fail.
        own = [target.breaker.is_tripped for target in self.targets if not target.fallback]
        if len(own) > sum(own) > len(own) / 2:
            # If most targets fail, the cause is overload, and moving all calls to the rest would overload it, too.
            return places
        return [place for place in places if self.targets[place].breaker.state(now) is not BreakerState.OPEN]

    def _kept(self, session: str, places: list[int], now: float) -> int | None:
        kept = self.sessions.place(session, now)
        if kept is None or kept not in places or not self._is_here(kept):
            return None
        best = min(self.targets[place].score.value() for place in places)
        return kept if self.targets[kept].score.value() <= MARGIN * best else None

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
