"""A route: the records of its targets, sessions and keys, the choice of a target, and the calls that wait for one.

Calls wait here only while every target is left alone. Calls that wait for a limit stand in the queues of limiters.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from ....providers.catalog.provider import Provider, keys_of
from ....providers.model.options import Priority
from ....providers.model.provider_error import ProviderError
from ...call.runtime import Runtime
from ...request.noting import NoteLogger
from ...request.preparer import Preparer
from ..limits.host import OPEN_FOR, Breaker, BreakerState, Host
from ..queue.fair_queue import CLASSES
from ..queue.pump import Notification, Pump, WaitingCall
from .options import Balance, Hedge, Route, RouteStatistics, Target, TargetStatistics

TIME_SMOOTHING = 0.2
"""Weight of the latest time to the first event in the smoothed time."""

FAILURE_SMOOTHING = 0.1
"""Weight of the latest outcome in the smoothed share of failures."""

MOST_FAILURES = 0.98
"""The share of failures above which the score grows no further."""

FAILURE_COST = 2.0
"""Seconds that are added to the score for one failure per success."""

STALE = 5.0
"""Seconds without an outcome after which an idle target is tried with one call."""


SESSION_KEPT = 3600.0
"""Seconds after its last call for which a session is kept."""

MOST_SESSIONS = 100_000
"""The number of sessions that are kept: about 40 MB, with names of 50 characters. Of more, those with the oldest last
call are forgotten first."""


class Sessions:
    """What each session has: the index of a target in its route, or of a key.

    counts: index → the number of sessions that it has.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()
        self.counts: Counter[int] = Counter()

    def kept(self, session: Hashable, now: float) -> int | None:
        self._expire(now)
        kept = self._kept.get(session)
        return None if kept is None else kept[0]

    def keep(self, session: Hashable, index: int, now: float) -> None:
        """A call of a session is sent to a target, or with a key, which the session keeps."""
        self.end(session)
        self._kept[session] = (index, now)
        self.counts[index] += 1
        if len(self._kept) > MOST_SESSIONS:
            self.end(next(iter(self._kept)))
        self._expire(now)

    def end(self, session: Hashable) -> None:
        kept = self._kept.pop(session, None)
        if kept is not None:
            self.counts[kept[0]] -= 1

    def _expire(self, now: float) -> None:
        while self._kept:
            session, (_, used_at) = next(iter(self._kept.items()))
            if now - used_at < SESSION_KEPT:
                return
            self.end(session)


ASIDE_FOR = 60.0
"""Seconds for which a key that the server refused is not used. Then one call tries it again."""


@dataclass(slots=True, frozen=True)
class Access:
    """One key of one provider.

    name: the provider's name; with several keys also the key's position, such as `openai[1]`.
    provider: the provider with this key alone.
    preparer: prepares requests with this key.
    """

    name: str
    provider: Provider
    preparer: Preparer


def accesses_of(provider: Provider, preparer: Preparer) -> tuple[Access, ...]:
    """Return one access for each key of a provider. preparer: the engine's, which knows the provider."""
    keys = keys_of(provider)
    if not keys:
        return (Access(provider.name, provider, preparer),)
    found: list[Access] = []
    for position, key in enumerate(keys):
        own, single = preparer.with_key(provider, key, position)
        found.append(Access(f"{provider.name}[{position}]", single, own))
    return tuple(found)


class ModelKeys:
    """The keys of one provider, for one model.

    model: the model's name, which names its sessions in `sessions`.
    count: how many keys there are.
    sessions: the keys of the sessions of all models.
    """

    def __init__(self, model: str, count: int, sessions: Sessions) -> None:
        self.count: int = count
        self._model = model
        self._aside_until = [0.0] * count
        self._sessions = sessions

    def usable(self, now: float, without: Collection[int] = ()) -> list[int]:
        """Return the positions of the keys that may be used: those that are not put aside, else all.

        without: keys that have failed the call.
        """
        left = [key for key in range(self.count) if key not in without]
        return [key for key in left if now >= self._aside_until[key]] or left

    def best(self, keys: Sequence[int], room: Mapping[int, float], session: str | None, now: float) -> int:
        """Return the key that a call should be sent with: the session's, else the one with the most room.

        keys: the ones that can send it now. room: key → how many such calls it could send.
        """
        if session is not None:
            kept = self._sessions.kept((self._model, session), now)
            if kept is not None and kept in keys:
                return kept
        return max(keys, key=room.__getitem__)

    def keep(self, key: int, session: str | None, now: float) -> None:
        """A call of a session is sent with a key, which the session keeps."""
        if session is not None and self.count > 1:
            self._sessions.keep((self._model, session), key, now)

    def put_aside(self, key: int, now: float) -> None:
        """The server refused the key."""
        self._aside_until[key] = now + ASIDE_FOR

    def restore(self, key: int) -> None:
        """The server accepted the key."""
        self._aside_until[key] = 0.0

    def end_session(self, session: str) -> None:
        self._sessions.end((self._model, session))


MARGIN = 4.0
"""A session leaves its target if the target's score is more than this many times the best score."""


FREER = 0.75
LEAST_FREER = 8
"""A session whose target has no room goes to one with room that runs less than this part of its calls, and that many
fewer."""


@dataclass(slots=True)
class TargetRecord:
    """The record of one target of a route: how its calls go.

    weight: the target's share for `Balance.WEIGHTED`.
    fallback: True if the target is used only when no other target is left.
    host: its server, which may be away.
    outstanding: the number of running calls.
    time: the smoothed seconds to the first event of successful calls; `math.inf` before the first one.
    failures: the smoothed share of failed calls, from 0 to 1.
    heard_at: the time of the last outcome.
    is_failing: whether that was a failure.
    """

    weight: float = 1.0
    fallback: bool = False
    breaker: Breaker = field(default_factory=Breaker)
    host: Host = field(default_factory=lambda: Host(""))
    outstanding: int = 0
    time: float = math.inf
    failures: float = 0.0
    heard_at: float = -math.inf
    is_failing: bool = False

    @property
    def is_known(self) -> bool:
        """True if the target has answered a call."""
        return self.time < math.inf

    def is_stale(self, now: float) -> bool:
        """Return True if an idle target should get one call, because it has no outcome or none for `STALE` seconds."""
        return self.outstanding == 0 and (not self.is_known or now - self.heard_at >= STALE)

    @property
    def score(self) -> float:
        """The expected seconds of a call, with an allowance for failures. The lowest score is the best."""
        share = min(self.failures, MOST_FAILURES)
        return (self.outstanding + 1) * self.time + FAILURE_COST * share / (1.0 - share)

    def succeed(self, seconds: float, now: float) -> None:
        """Record that a call's first event came after `seconds`."""
        self.time = seconds if not self.is_known else self.time + TIME_SMOOTHING * (seconds - self.time)
        self.failures -= FAILURE_SMOOTHING * self.failures
        self.heard_at, self.is_failing = now, False

    def fail(self, now: float) -> None:
        """Record that a call failed by the target's fault."""
        self.failures += FAILURE_SMOOTHING * (1.0 - self.failures)
        self.heard_at, self.is_failing = now, True


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
    uses_breakers: whether the state of a breaker matters: `fastest` and `sticky` use the score alone.
    targets: the targets' records; methods name a target by its index.
    random: a function that returns random numbers in [0, 1).
    """

    def __init__(self, balance: Balance, targets: Sequence[TargetRecord], random: Callable[[], float]) -> None:
        self.balance = balance
        self.targets: tuple[TargetRecord, ...] = tuple(targets)
        self._random = random
        self.sessions: Sessions = Sessions()
        self.uses_breakers: bool = balance in (Balance.ORDER, Balance.WEIGHTED)

    def choose(
        self, now: float, roomy: Callable[[int], object], *, tried: Collection[int] = (), session: str | None = None
    ) -> Choice:
        """Choose the target for a call that is about to be sent.

        now: the current time.
        roomy: returns whether a target, given by its index, lets the call be sent now: something true.
        tried: the indices of the targets on which this call has failed.
        session: the call's session; None if it has none.
        """
        left = [index for index in range(len(self.targets)) if index not in tried]
        healthy = self._healthy(left, now)
        if not healthy:
            times = (self.targets[index].breaker.next_time(now) for index in left)
            return Choice(None, (), min(times, default=-math.inf))
        own = [index for index in healthy if not self.targets[index].fallback]
        fallbacks = [index for index in healthy if self.targets[index].fallback]
        if not own or self.balance is Balance.ORDER:
            return self._in_order([*own, *fallbacks], roomy)
        if self.balance is Balance.STICKY and session is not None:
            kept = self._kept(session, own, now)
            if kept is not None and not roomy(kept):
                kept = self._much_freer(kept, own, roomy, now)
            if kept is not None:
                return Choice(kept if roomy(kept) else None, (kept,))
        open_ones = [index for index in own if roomy(index)]
        if not open_ones:
            here = any(map(self._is_here, own))
            return self._in_order([*own, *(() if here else fallbacks)], roomy, at_least=len(own))
        chosen = self._by_weight(open_ones) if self.balance is Balance.WEIGHTED else self._best(open_ones, now)
        return Choice(chosen, tuple(own))

    def _in_order(self, indices: Sequence[int], roomy: Callable[[int], object], at_least: int = 1) -> Choice:
        """Choose the first target that is not away. A call that waits for it also waits for those before it, so
        that one of them has a call to ask it whether it does so again.

        at_least: the number of targets to wait for.
        """
        last = next((rank for rank, index in enumerate(indices) if self._is_here(index)), len(indices))
        among = tuple(indices[: max(last + 1, at_least)])
        return Choice(next((index for index in among if roomy(index)), None), among)

    def _is_here(self, index: int) -> bool:
        return not self.targets[index].host.is_away

    def asks_at(self, now: float) -> float:
        """Return when a call that waits elsewhere asks whether a target that has failed answers again; `math.inf` if
        there is none, or a call under way decides. A server that is away is asked by its own calls."""
        return min((self._asked_again_at(index, now) for index in range(len(self.targets))), default=math.inf)

    def may_be_asked(self, index: int, now: float) -> bool:
        """Return whether a target that failed on a call may be tried again by it."""
        return not self.targets[index].is_failing or self._asked_again_at(index, now) <= now

    def _asked_again_at(self, index: int, now: float) -> float:
        target = self.targets[index]
        if target.host.is_away or not target.is_failing:
            return math.inf
        if self.uses_breakers and target.breaker.is_tripped:
            return target.breaker.next_time(now)
        return math.inf if target.outstanding else target.heard_at + STALE

    def is_healthy(self, index: int, now: float) -> bool:
        """Whether a call may be sent to a target now. It may have waited for the target since it was chosen."""
        return index in self._healthy(list(range(len(self.targets))), now)

    def begin(self, index: int, now: float, session: str | None = None) -> int:
        """Record that a call is sent to a target, and return its number there. Call this directly after `choose`,
        without waiting in between."""
        target = self.targets[index]
        target.outstanding += 1
        if session is not None and self.balance is Balance.STICKY:
            self.sessions.keep(session, index, now)
        return target.breaker.begin(now)

    def succeed(self, index: int, number: int, first_event: float, now: float) -> None:
        """Record a call's first event. `end` is called later for the same call.

        number: the call's, as `begin` has returned it.
        first_event: seconds it took.
        """
        self.targets[index].succeed(first_event, now)
        self.targets[index].breaker.succeed(number)

    def complete(self, index: int, number: int) -> None:
        """Record a call's complete answer. `end` is called later for the same call."""
        self.targets[index].breaker.complete(number)

    def fail(self, index: int, number: int, now: float, session: str | None = None, *, broke: bool = False) -> None:
        """Record that a call failed by its target's fault. Its session leaves the target. Call `end` afterwards.

        broke: its first event had come.
        """
        target = self.targets[index]
        target.fail(now)
        if not target.host.is_away:  # otherwise its return is found out without the pauses of the breaker
            target.breaker.fail(number, now, broke=broke)
        if session is not None and self.sessions.kept(session, now) == index:
            self.sessions.end(session)

    def end(self, index: int, number: int) -> None:
        """Record that a call has ended, with any outcome. This is the last method for a call, once per `begin`."""
        self.targets[index].outstanding -= 1
        self.targets[index].breaker.end(number)

    def _healthy(self, indices: list[int], now: float) -> list[int]:
        if not self.uses_breakers:
            return indices
        # A breaker that waits for the outcome of a probing call has not closed. Fallbacks are not counted, because they
        # are there for the case that the others fail.
        own = [target.breaker.is_tripped for target in self.targets if not target.fallback]
        if len(own) > sum(own) > len(own) / 2:
            # If most targets fail, the cause is overload, and moving all calls to the rest would overload it, too.
            return indices
        breakers = ((index, self.targets[index].breaker) for index in indices)
        return [
            index
            for index, breaker in breakers
            if not breaker.is_tripped or breaker.state(now) is not BreakerState.OPEN
        ]

    def _kept(self, session: str, indices: list[int], now: float) -> int | None:
        kept = self.sessions.kept(session, now)
        if kept is None or kept not in indices or not self._is_here(kept):
            return None
        best = min(self.targets[index].score for index in indices)
        return kept if self.targets[kept].score <= MARGIN * best else None

    def _much_freer(self, kept: int, indices: list[int], roomy: Callable[[int], object], now: float) -> int:
        """Return a target that has room and runs much less than the one that a session has, such as one that is back
        after an outage; else the session's."""
        running = self.targets[kept].outstanding
        most = min(FREER * running, running - LEAST_FREER)
        free = [index for index in indices if self.targets[index].outstanding < most and self._is_here(index)]
        free = [index for index in free if not self.targets[index].is_failing and roomy(index)]
        return self._best(free, now) if free else kept

    def _by_weight(self, indices: list[int]) -> int:
        point = self._random() * sum(self.targets[index].weight for index in indices)
        for index in indices:
            point -= self.targets[index].weight
            if point < 0:
                return index
        return indices[-1]

    def _best(self, indices: list[int], now: float) -> int:
        stale = [index for index in indices if self.targets[index].is_stale(now)]
        if stale:
            return stale[int(self._random() * len(stale))]
        known = [index for index in indices if self.targets[index].is_known] or indices
        scores = {index: (self.targets[index].score, self.targets[index].outstanding) for index in known}
        least = min(scores.values())
        best = [index for index in known if scores[index] == least]
        return best[int(self._random() * len(best))]


REMEMBERED = 200
"""The number of latest first events from which the percentile is computed."""

LEAST_KNOWN = 20
"""The number of first events below which there is no percentile, and no second attempt."""

_ROUNDING = 1e-9

MINUTE = 60
"""The number of seconds over which calls and second attempts are counted."""


class HedgeState:
    """When a call of a route without a first event is sent a second time, to another target: by its recent first events
    and second attempts.

    hedge: the options.
    total: the number of second attempts so far.
    """

    def __init__(self, hedge: Hedge) -> None:
        self.hedge = hedge
        self.total: int = 0
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        # Calls and second attempts in each of the last 60 seconds. The index is the second modulo 60.
        self._calls = [0] * MINUTE
        self._hedges = [0] * MINUTE
        self._second = 0

    def count(self, now: float, *, again: bool = False) -> float:
        """Record that a call is sent. Return the time of its second attempt; `math.inf` if that is not known.

        again: the call was sent before, and is counted.
        """
        self._turn(now)
        if not again:
            self._calls[self._second % MINUTE] += 1
        if not isinstance(self.hedge.after, str):
            return now + self.hedge.after
        if len(self._sorted) < LEAST_KNOWN:
            return math.inf
        return now + self._sorted[int(0.95 * len(self._sorted))]

    def first_event(self, seconds: float) -> None:
        """Record the seconds from a call's first attempt to its first event."""
        self._recent.append(seconds)
        bisect.insort(self._sorted, seconds)
        if len(self._recent) > REMEMBERED:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft())]

    def allows(self, now: float) -> bool:
        """Return whether one more second attempt may be made now."""
        self._turn(now)
        return sum(self._hedges) + 1 <= self.hedge.at_most * sum(self._calls) + _ROUNDING

    def take(self, now: float) -> bool:
        """Return True, and count a second attempt, if one may be made now."""
        if not self.allows(now):
            return False
        self._hedges[self._second % MINUTE] += 1
        self.total += 1
        return True

    def _turn(self, now: float) -> None:
        """Clear the counts of the seconds that have begun since the last call of this method."""
        second = int(now)
        for passed in range(max(self._second + 1, second - MINUTE + 1), second + 1):
            self._calls[passed % MINUTE] = self._hedges[passed % MINUTE] = 0
        self._second = max(self._second, second)


logger: NoteLogger = NoteLogger("manystream.traffic")

MOST_MODELS = 1_000
"""Models whose use of keys is remembered."""

Group: TypeAlias = tuple[int, frozenset[int]]
"""Calls that wait for the same targets: their priority, from 0, and the targets that they cannot use."""


class RouteTarget:
    """One target of a live route.

    declared: it as the program declares it; None for a provider with several keys, which needs no route.
    model: its name at the provider; empty where each request names its own.
    accesses: one for each key of its provider.
    host: its server.
    """

    def __init__(
        self, accesses: tuple[Access, ...], host: Host, model: str = "", declared: Target | None = None
    ) -> None:
        self.accesses: tuple[Access, ...] = accesses
        self.host: Host = host
        self.model: str = model
        self.declared: Target | None = declared
        self.was_reported: bool = False
        self._keys: dict[str, ModelKeys] = {}
        self._sessions = Sessions()

    @property
    def provider(self) -> str:
        return self.accesses[0].provider.name

    def keys_of(self, model: str) -> ModelKeys:
        keys = self._keys.get(model)
        if keys is None:
            if len(self._keys) >= MOST_MODELS:
                self._keys.clear()
                self._sessions = Sessions()
            keys = self._keys[model] = ModelKeys(model, len(self.accesses), self._sessions)
        return keys

    def end_session(self, session: str) -> None:
        for keys in self._keys.values():
            keys.end_session(session)


class Router(Pump):
    """A route of one engine, or a provider with several keys.

    name: the route's name; empty for a provider with several keys.
    state: what is known of them.
    failover_on: errors after which a call also goes to another target.
    hedging: decides about second attempts; None if the route makes none.
    """

    def __init__(
        self,
        route: Route | None,
        targets: tuple[RouteTarget, ...],
        runtime: Runtime,
        watch: Callable[[str, RouteStatistics], None] | None = None,
    ) -> None:
        super().__init__(runtime)
        self.name: str = "" if route is None else route.name
        self.targets: tuple[RouteTarget, ...] = targets
        self.failover_on: frozenset[str] = frozenset() if route is None else route.failover_on
        hedge = None if route is None else route.hedge
        self.hedging: HedgeState | None = None if hedge is None else HedgeState(hedge)
        # A provider with several keys has one target, for which a breaker would only delay calls.
        balance = Balance.FASTEST if route is None else route.balance
        records = [
            TargetRecord(host=target.host)
            if target.declared is None
            else TargetRecord(float(target.declared.weight), target.declared.fallback, host=target.host)
            for target in targets
        ]
        self.state: RouteState = RouteState(balance, records, runtime.random)
        self._watch = watch
        self._held: dict[Group, dict[WaitingCall, None]] = {}
        self._looking: dict[WaitingCall, None] = {}
        self._waiting: dict[WaitingCall, None] = {}  # for room at a target
        self._returned_at = -math.inf  # when calls last looked because a target that had failed answered
        self._asked_at = -math.inf  # when a call that waits was last to ask a target that had failed
        self._away = [target.host.is_away for target in targets]  # when calls last looked
        for target in targets:
            target.host.listen(self.host_changed)

    @property
    def held(self) -> int:
        """The number of calls that wait until a target is used again."""
        return sum(map(len, self._held.values()))

    def label(self, index: int) -> str:
        """Return the target's name, `provider/model`."""
        target = self.targets[index]
        return f"{target.provider}/{target.model}"

    # --- calls that wait ---

    def hold(self, call: WaitingCall, priority: Priority, excluded: frozenset[int]) -> Group:
        """A call waits until a target is used again. Returns what `end_hold` needs.

        excluded: targets that the call cannot use.
        """
        group = (CLASSES.index(priority), excluded)
        self._held.setdefault(group, {})[call] = None
        self.schedule()
        if self._watch is not None:
            self.note()
        return group

    def end_hold(self, call: WaitingCall, group: Group) -> None:
        """A call waits no longer. May be called again."""
        waiting = self._held.get(group)
        if waiting is not None:
            waiting.pop(call, None)
            if not waiting:
                del self._held[group]
            if self._watch is not None:
                self.note()

    def wait_for_room(self, call: WaitingCall) -> None:
        """A call waits for room at one or more targets. May be called again."""
        self._waiting[call] = None
        if self._asks_at(self.runtime.loop.clock()) < math.inf:
            self.schedule()

    def leave(self, call: WaitingCall) -> None:
        """A call waits no longer for room at any target. May be called again."""
        self._waiting.pop(call, None)
        self._looking.pop(call, None)

    def host_changed(self) -> None:
        """Let the calls that wait look for a target if a server is away now, or back."""
        away = [target.host.is_away for target in self.targets]
        if away != self._away:
            for is_away, record in zip(away, self.state.targets, strict=True):
                if is_away:
                    record.breaker.reset()  # the server has a breaker of its own, which is as fast as it may be
            self._away = away
            self._look()
            if self._watch is not None:
                self.note()

    def _look(self) -> None:
        """Let the calls that wait for room choose again."""
        self._looking.update(self._waiting)
        if self._looking:
            self.schedule()

    def _asks_at(self, now: float) -> float:
        """Return when a call that waits elsewhere asks whether a target that has failed answers again."""
        return max(self._asked_at + OPEN_FOR, self.state.asks_at(now))

    def take(self, now: float) -> Notification | float:
        """Take the next call that should choose again: one whose target was left alone, else one whose target is used
        again. If there is none, return when a target may be used again for which a call waits; `math.inf` where a call
        under way decides."""
        if self._looking:
            call = next(iter(self._looking))
            del self._looking[call]
            return call, call.look_again
        at = math.inf
        for group in sorted(self._held, key=itemgetter(0)):
            choice = self.state.choose(now, lambda _: False, tried=group[1])
            if choice.among:
                call = next(iter(self._held[group]))
                self.end_hold(call, group)
                return call, call.look_again
            at = min(at, max(now, choice.wait_until))
        if self._waiting:
            asks_at = self._asks_at(now)
            if asks_at <= now:
                self._asked_at = now
                call = next(iter(self._waiting))
                return call, call.look_again
            at = min(at, asks_at)
        return at

    # --- calls under way ---

    def begin(self, index: int, now: float, session: str | None = None) -> int:
        """An attempt is sent to a target. Returns its number there."""
        number = self.state.begin(index, now, session)
        if self._watch is not None:
            self.note()
        return number

    def succeed(self, index: int, number: int, seconds: float, now: float) -> None:
        """A call's first event came after so many seconds."""
        record = self.state.targets[index]
        was_tripped, was_failing = record.breaker.is_tripped, record.is_failing
        self.state.succeed(index, number, seconds, now)
        self._note_recovery(index, was_tripped=was_tripped)
        if was_failing and now >= self._returned_at + OPEN_FOR:
            self._returned_at = now
            self._look()

    def complete(self, index: int, number: int) -> None:
        was_tripped = self.state.targets[index].breaker.is_tripped
        self.state.complete(index, number)
        self._note_recovery(index, was_tripped=was_tripped)

    def _note_recovery(self, index: int, *, was_tripped: bool) -> None:
        if was_tripped and self.state.uses_breakers and not self.state.targets[index].breaker.is_tripped:
            logger.info("route %s: %s answers, and is used again", self.name, self.label(index))

    def fail(
        self, index: int, number: int, now: float, session: str | None, error: ProviderError, *, broke: bool = False
    ) -> None:
        """A call failed by its target's fault. broke: its first event had come."""
        breaker = self.state.targets[index].breaker
        was_tripped = breaker.is_tripped
        self.state.fail(index, number, now, session, broke=broke)
        if breaker.is_tripped and not was_tripped:
            if self.state.uses_breakers:
                logger.warning(
                    "route %s: %s is left alone for %g s at a time: %d of its last %d calls failed; the latest: %s, %s",
                    self.name,
                    self.label(index),
                    OPEN_FOR,
                    *breaker.counts,
                    error.category.value,
                    error.message,
                )
            if not self.state.is_healthy(index, now):
                self._looking.update(self._waiting)  # those that wait elsewhere see that when they look

    def end(self, index: int, number: int) -> None:
        """A call is no longer under way."""
        self.state.end(index, number)
        if self._watch is not None:
            self.note()
        if self._looking or self._held:
            self.schedule()

    def cannot_take(self, index: int, why: Exception) -> None:
        """A target cannot carry a request. This is written to the log once for each target."""
        if self.name and not self.targets[index].was_reported:
            self.targets[index].was_reported = True
            logger.warning("route %s: %s cannot take a request: %s", self.name, self.label(index), why)

    def end_session(self, session: str) -> None:
        """Forget where a session goes."""
        self.state.sessions.end(session)
        for target in self.targets:
            target.end_session(session)

    # --- figures ---

    def report_figures(self, now: float) -> bool:
        if self._watch is not None:
            self._watch(self.name, self.statistics(now))
        return False

    def statistics(self, now: float) -> RouteStatistics:
        targets: list[TargetStatistics] = []
        for index, record in enumerate(self.state.targets):
            breaker = record.breaker.state(now) if self.state.uses_breakers else BreakerState.CLOSED
            if record.host.is_away:
                breaker = BreakerState.OPEN
            targets.append(
                TargetStatistics(
                    target=self.label(index),
                    outstanding=record.outstanding,
                    sessions=self.state.sessions.counts[index],
                    breaker=breaker.value,
                    score=record.score if record.is_known else None,
                    seconds=record.time if record.is_known else None,
                    failures=record.failures,
                )
            )
        return RouteStatistics(tuple(targets), self.held, 0 if self.hedging is None else self.hedging.total)
