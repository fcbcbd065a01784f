"""A route with its targets, the calls that wait for one of them, and its log lines.

Calls wait here only while every target is left alone. Calls that wait for a limit stand in the queues of limiters.
"""

from __future__ import annotations

import logging
import math
from typing import Protocol, TypeAlias

from ....providers.errors import ProviderError
from ....providers.model.options import Priority
from ...call.runtime import Runtime, TrafficWatch
from ..limits.host import OPEN_FOR, BreakerState, Host
from ..queue.pump import Notification, Pump, open_notice
from ..statistics import RouteStatistics, TargetStatistics
from .hedge import HedgeState
from .keys import Access, KeyRing
from .options import Route, Target
from .route_state import Balance, RouteState, TargetRecord
from .sessions import Sessions

logger: logging.Logger = logging.getLogger("manystream.traffic")

MOST_RINGS = 1_000
"""Models whose use of keys is remembered."""


PRIORITIES = tuple(Priority)

Group: TypeAlias = tuple[int, frozenset[int]]
"""Calls that wait for the same targets: their priority, from 0, and the targets that they cannot use."""


class Traveller(Protocol):
    """A call that waits for a target."""

    def look_again(self) -> None:
        """Choose a target again, if the call waits for none that may be used, or for one that may not."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library."""
        ...


class Place:
    """One target of a live route.

    target: its options; None for a provider with several keys, which needs no route.
    model: its name at the provider; empty where each request names its own.
    accesses: one for each key of its provider.
    host: the provider's address.
    """

    __slots__ = ("_rings", "_sessions", "accesses", "host", "model", "target", "was_reported")

    def __init__(self, accesses: tuple[Access, ...], host: Host, model: str = "", target: Target | None = None) -> None:
        self.accesses: tuple[Access, ...] = accesses
        self.host: Host = host
        self.model: str = model
        self.target: Target | None = target
        self.was_reported: bool = False
        self._rings: dict[str, KeyRing] = {}
        self._sessions = Sessions()

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self.accesses[0].provider.name

    def ring(self, model: str) -> KeyRing:
        """Return which key calls to a model are sent with."""
        ring = self._rings.get(model)
        if ring is None:
            if len(self._rings) >= MOST_RINGS:
                self._rings.clear()
                self._sessions = Sessions()
            ring = self._rings[model] = KeyRing(model, len(self.accesses), self._sessions)
        return ring

    def end_session(self, session: str) -> None:
        """Forget which keys a session has."""
        for ring in self._rings.values():
            ring.end_session(session)


class Router:
    """A route of one engine, or a provider with several keys.

    name: the route's name; empty for a provider with several keys.
    places: its targets.
    state: what is known of them.
    failover_on: errors after which a call also goes to another target.
    hedging: decides about second attempts; None if the route makes none.
    """

    __slots__ = (
        "_asked_at",
        "_away",
        "_looking",
        "_notice",
        "_parked",
        "_pump",
        "_returned_at",
        "_waiting",
        "failover_on",
        "hedging",
        "name",
        "places",
        "state",
    )

    def __init__(self, route: Route | None, places: tuple[Place, ...], runtime: Runtime) -> None:
        self.name: str = "" if route is None else route.name
        self.places: tuple[Place, ...] = places
        self.failover_on: frozenset[str] = frozenset() if route is None else route.failover_on
        hedge = None if route is None else route.hedge
        self.hedging: HedgeState | None = None if hedge is None else HedgeState(hedge)
        # A provider with several keys has one target, for which a breaker would only delay calls.
        balance = Balance.FASTEST if route is None else route.balance
        records = [
            TargetRecord(host=place.host)
            if place.target is None
            else TargetRecord(float(place.target.weight), place.target.fallback, host=place.host)
            for place in places
        ]
        self.state: RouteState = RouteState(balance, records, runtime.random)
        self._pump: Pump = Pump(self, runtime)
        self._parked: dict[Group, dict[Traveller, None]] = {}
        self._looking: dict[Traveller, None] = {}
        self._waiting: dict[Traveller, None] = {}  # for room at a target
        self._returned_at = -math.inf  # when calls last looked because a target that had failed answered
        self._asked_at = -math.inf  # when a call that waits was last to ask a target that had failed
        self._away = [place.host.is_away for place in places]  # when calls last looked
        self._notice = None if route is None else open_notice(runtime, self._send_notice, self._pump.on_defect)
        for place in places:
            place.host.listen(self.host_changed)

    def __repr__(self) -> str:
        return f"<Router {self.name or self.places[0].provider}, {self.parked} waiting>"

    @property
    def parked(self) -> int:
        """The number of calls that wait until a target is used again."""
        return sum(map(len, self._parked.values()))

    def label(self, place: int) -> str:
        """Return the target's name, `provider/model`."""
        target = self.places[place]
        return f"{target.provider}/{target.model}"

    # --- calls that wait ---

    def park(self, call: Traveller, priority: Priority, excluded: frozenset[int]) -> Group:
        """A call waits until a target is used again. Returns what `unpark` needs.

        excluded: targets that the call cannot use.
        """
        group = (PRIORITIES.index(priority), excluded)
        self._parked.setdefault(group, {})[call] = None
        self._pump.schedule()
        self._note()
        return group

    def unpark(self, call: Traveller, group: Group) -> None:
        """A call waits no longer. May be called again."""
        waiting = self._parked.get(group)
        if waiting is not None:
            waiting.pop(call, None)
            if not waiting:
                del self._parked[group]
            self._note()

    def wait_for_room(self, call: Traveller) -> None:
        """A call waits for room at one or more targets. May be called again."""
        self._waiting[call] = None
        if self._asks_at(self._pump.now) < math.inf:
            self._pump.schedule()

    def leave(self, call: Traveller) -> None:
        """A call waits no longer for room at any target. May be called again."""
        self._waiting.pop(call, None)
        self._looking.pop(call, None)

    def host_changed(self) -> None:
        """Let the calls that wait look for a target if an address takes connections now, or takes none."""
        away = [place.host.is_away for place in self.places]
        if away != self._away:
            for is_away, record in zip(away, self.state.targets, strict=True):
                if is_away:
                    record.breaker.reset()  # the address has a breaker of its own, which is as fast as it may be
            self._away = away
            self._look()
            self._note()

    def _look(self) -> None:
        """Let the calls that wait for room choose again."""
        self._looking.update(self._waiting)
        if self._looking:
            self._pump.schedule()

    def _asks_at(self, now: float) -> float:
        """Return when a call that waits elsewhere asks whether a target that has failed answers again."""
        return max(self._asked_at + OPEN_FOR, self.state.asks_at(now))

    def take(self, now: float) -> Notification | None:
        """Take the next call that should choose again: one whose target was left alone, else one that is parked and
        may go. None if there is no such call."""
        if self._looking:
            call = next(iter(self._looking))
            del self._looking[call]
            return call.look_again, call.on_defect
        for group in sorted(self._parked, key=_priority):
            if self.state.choose(now, (), tried=group[1]).among:
                call = next(iter(self._parked[group]))
                self.unpark(call, group)
                return call.look_again, call.on_defect
        if self._waiting and self._asks_at(now) <= now:
            self._asked_at = now
            call = next(iter(self._waiting))
            return call.look_again, call.on_defect
        return None

    def next_time(self, now: float) -> float:
        """Return when a target may be used again for which a call waits; `math.inf` where a call under way decides."""
        choices = [self.state.choose(now, (), tried=excluded) for _, excluded in self._parked]
        parked = min((max(now, choice.wait_until) for choice in choices), default=math.inf)
        return min(parked, self._asks_at(now)) if self._waiting else parked

    # --- calls under way ---

    def begin(self, place: int, now: float, session: str | None = None) -> int:
        """An attempt is sent to a target. Returns its number there."""
        self._note()
        return self.state.begin(place, now, session)

    def succeed(self, place: int, number: int, seconds: float, now: float) -> None:
        """A call's first event came after so many seconds."""
        record = self.state.targets[place]
        was_tripped, was_failing = record.breaker.is_tripped, record.score.is_failing
        self.state.succeed(place, number, seconds, now)
        self._note_recovery(place, was_tripped=was_tripped)
        if was_failing and now >= self._returned_at + OPEN_FOR:
            self._returned_at = now
            self._look()

    def complete(self, place: int, number: int) -> None:
        """A call's answer is complete."""
        was_tripped = self.state.targets[place].breaker.is_tripped
        self.state.complete(place, number)
        self._note_recovery(place, was_tripped=was_tripped)

    def _note_recovery(self, place: int, *, was_tripped: bool) -> None:
        if was_tripped and self._uses_breakers and not self.state.targets[place].breaker.is_tripped:
            logger.info("route %s: %s answers, and is used again", self.name, self.label(place))

    def fail(
        self, place: int, number: int, now: float, session: str | None, error: ProviderError, *, broke: bool = False
    ) -> None:
        """A call failed by its target's fault. broke: its first event had come."""
        breaker = self.state.targets[place].breaker
        was_tripped = breaker.is_tripped
        self.state.fail(place, number, now, session, broke=broke)
        if breaker.is_tripped and not was_tripped:
            if self._uses_breakers:
                logger.warning(
                    "route %s: %s is left alone for %g s at a time: %d of its last %d calls failed; the latest: %s, %s",
                    self.name,
                    self.label(place),
                    OPEN_FOR,
                    *breaker.counts,
                    error.category.value,
                    error.message,
                )
            if not self.state.is_healthy(place, now):
                self._looking.update(self._waiting)  # those that wait elsewhere see that when they look

    def end(self, place: int, number: int) -> None:
        """A call is no longer under way."""
        self.state.end(place, number)
        self._note()
        if self._looking or self._parked:
            self._pump.schedule()

    def cannot_take(self, place: int, why: Exception) -> None:
        """A target cannot carry a request. This is written to the log once for each target."""
        if self.name and not self.places[place].was_reported:
            self.places[place].was_reported = True
            logger.warning("route %s: %s cannot take a request: %s", self.name, self.label(place), why)

    def end_session(self, session: str) -> None:
        """Forget where a session goes."""
        self.state.sessions.end(session)
        for place in self.places:
            place.end_session(session)

    @property
    def _uses_breakers(self) -> bool:
        """Whether the state of a breaker matters: `fastest` and `sticky` use the score alone."""
        return self.state.balance in (Balance.ORDER, Balance.WEIGHTED)

    # --- figures ---

    def _note(self) -> None:
        if self._notice is not None:
            self._notice.note()

    def _send_notice(self, watch: TrafficWatch, now: float) -> bool:
        """Notify the observer of the route's figures."""
        watch.route_changed(self.name, self.statistics(now))
        return False

    def statistics(self, now: float) -> RouteStatistics:
        """Return the route in figures."""
        targets: list[TargetStatistics] = []
        for place, record in enumerate(self.state.targets):
            score = record.score
            breaker = record.breaker.state(now) if self._uses_breakers else BreakerState.CLOSED
            if record.host.is_away:
                breaker = BreakerState.OPEN
            targets.append(
                TargetStatistics(
                    target=self.label(place),
                    outstanding=score.outstanding,
                    sessions=self.state.sessions.counts[place],
                    breaker=breaker.value,
                    score=score.value() if score.is_known else None,
                    seconds=score.time if score.is_known else None,
                    failures=score.failures,
                )
            )
        return RouteStatistics(tuple(targets), self.parked, 0 if self.hedging is None else self.hedging.total)


def _priority(group: Group) -> int:
    return group[0]
