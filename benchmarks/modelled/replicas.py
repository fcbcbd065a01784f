"""Sets of replicas in simulated time: different speeds, failures, outages, and randomly slow calls."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from manystream.engine.traffic.routing.options import Balance, Hedge
from manystream.engine.traffic.routing.router import HedgeState, RouteState, TargetRecord

from .events import Events

HORIZON = 120.0
IN_TIME = 1.0


@dataclass(slots=True, frozen=True)
class Replica:
    """One replica.

    It serves `slots` calls at a time, each in about `seconds`. Other calls wait inside. A failure is quick.

    down: from when to when it fails all calls.
    """

    seconds: float
    slots: int
    failing: float = 0.0
    down: tuple[float, float] = (0.0, 0.0)


@dataclass(slots=True, frozen=True)
class ReplicaPlan:
    """A set of replicas and its load, in calls per second.

    slow: the part of the calls that take 20 times as long.
    """

    seed: int
    replicas: tuple[Replica, ...]
    rate: float
    slow: float = 0.0


THREE = ReplicaPlan(1, (Replica(0.1, 64), Replica(1.0, 64), Replica(0.1, 64, failing=0.3)), 50.0)
"""Three replicas: one ten times slower, one that fails 30 % quickly; 50 calls per second."""

TAIL = ReplicaPlan(1, (Replica(0.3, 10**6), Replica(0.3, 10**6)), 50.0, slow=0.02)
"""Two equal replicas; 2 % of the calls are twenty times slower."""


def draw(seed: int) -> ReplicaPlan:
    """Return a random set."""
    chance = random.Random(seed)
    replicas: list[Replica] = []
    for _ in range(chance.randint(2, 6)):
        began = chance.uniform(20.0, 80.0)
        replicas.append(
            Replica(
                seconds=0.05 * 6 ** chance.random() * chance.choice((1, 1, 1, 5)),
                slots=chance.choice((8, 32, 128)),
                failing=chance.choice((0.0, 0.0, 0.0, chance.uniform(0.05, 0.5))),
                down=(began, began + 15) if chance.random() < 0.2 else (0.0, 0.0),
            )
        )
    capacity = sum(replica.slots / replica.seconds for replica in replicas)
    return ReplicaPlan(seed, tuple(replicas), min(150.0, capacity * chance.uniform(0.1, 0.6)))


@dataclass(slots=True)
class _Call:
    began: float
    session: str
    tried: set[int] = field(default_factory=lambda: set())
    attempts: int = 0
    answered: bool = False


class ReplicaRun:
    """One run of a plan with one balance."""

    def __init__(self, plan: ReplicaPlan, balance: Balance, hedge: Hedge | None = None) -> None:
        self.plan, self.events = plan, Events()
        self.route = RouteState(balance, [TargetRecord() for _ in plan.replicas], random.Random(plan.seed).random)
        self.hedge = None if hedge is None else HedgeState(hedge)
        self.times: list[float] = []
        self.calls = self.attempts = self.failed = self.kept = self.followed = 0
        self._chance = random.Random(plan.seed + 1)
        self._free_at = [[0.0] * min(replica.slots, 256) for replica in plan.replicas]
        self._last: dict[str, int] = {}

    def run(self) -> ReplicaRun:
        """Run to the horizon, and until every call has ended."""
        time = 0.0
        while time < HORIZON:
            time += self._chance.expovariate(self.plan.rate)
            self.events.at(time, self._begin, time)
        self.events.run(HORIZON * 10)
        return self

    def _begin(self, now: float) -> None:
        self.calls += 1
        call = _Call(now, f"s{self._chance.randrange(100)}")
        if self.hedge is not None:
            self.events.at(min(HORIZON * 9, self.hedge.count(now)), self._hedge, call)
        self._attempt(call)

    def _hedge(self, call: _Call) -> None:
        if not call.answered and self.hedge is not None and self.hedge.take(self.events.now):
            self._attempt(call)

    def _attempt(self, call: _Call) -> None:
        now, places = self.events.now, range(len(self.plan.replicas))
        session = call.session if self.route.balance is Balance.STICKY else None
        tried = call.tried if len(call.tried) < len(places) else ()
        choice = self.route.choose(now, places.__contains__, tried=tried, session=session)
        if choice.target is None:
            self.events.at(max(now + 0.01, min(choice.wait_until, now + 1)), self._attempt, call)
            return
        place, replica = choice.target, self.plan.replicas[choice.target]
        number = self.route.begin(place, now, session)
        call.tried.add(place)
        call.attempts += 1
        self.attempts += 1
        if session is not None:
            self.followed += session in self._last
            self.kept += self._last.get(session) == place
            self._last[session] = place
        if replica.down[0] <= now < replica.down[1] or self._chance.random() < replica.failing:
            self.events.at(now + 0.01, self._fail, call, place, number)
            return
        slow = 20.0 if self._chance.random() < self.plan.slow else 1.0
        free = self._free_at[place]
        slot = min(range(len(free)), key=free.__getitem__) if replica.slots < 10**6 else 0
        start = max(now, free[slot]) if replica.slots < 10**6 else now
        end = start + replica.seconds * slow * self._chance.uniform(0.8, 1.2)
        free[slot] = end
        self.events.at(end, self._end, call, place, number, now)

    def _fail(self, call: _Call, place: int, number: int) -> None:
        now = self.events.now
        self.route.fail(place, number, now, call.session)
        self.route.end(place, number)
        if call.attempts < 4 + len(self.plan.replicas):
            self._attempt(call)
        elif not call.answered:
            self.failed += 1

    def _end(self, call: _Call, place: int, number: int, sent_at: float) -> None:
        now = self.events.now
        if not call.answered:
            call.answered = True
            self.times.append(now - call.began)
            self.route.succeed(place, number, now - sent_at, now)
            if self.hedge is not None:
                self.hedge.first_event(now - call.began)
        self.route.complete(place, number)
        self.route.end(place, number)

    @property
    def goodput(self) -> float:
        """The part of the calls that were answered in time."""
        return sum(time <= IN_TIME for time in self.times) / max(1, self.calls)

    def percentile(self, part: float) -> float:
        """A percentile of the times to the answer."""
        times = sorted(self.times)
        return times[min(len(times) - 1, int(part * len(times)))]
