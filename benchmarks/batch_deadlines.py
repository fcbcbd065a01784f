"""Deadlines of batches in simulated time: the planner of `manystream batch --by` against an oracle.

Each deadline is one run: so many lines, a time, a rate of live calls, and queues of one of ten models. The planner
gets one prior, made from eight of the models; two it has never seen. The oracle knows beforehand when each line would
be answered by each way, and sends each by the cheapest that is in time.

kept: deadlines that live calls alone can keep. missed: those of them that the planner misses.
luck: deadlines that live calls cannot keep, but the oracle does, since it knows that batches will come early; and how
    many of them the planner keeps.
price: what the planner pays, as a multiple of what the oracle pays, over all deadlines that both keep.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field

from manystream.batch.planner import Planner, UnderWay, Way

from . import answers, runs

DEADLINES = 100_000
MINUTE, HOUR = 60.0, 3600.0
DAY = 24 * HOUR
LONGEST_BATCH = 50_000
BATCH_STOP, WINDOW_STOP = 600.0, 30.0
WINDOWS = {"window-8h": (0.6, 8 * HOUR), "window-2h": (0.7, 2 * HOUR)}
"""Way → its price, as a part of the list price, and the time within which all of its answers come."""

SHARES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.97)
"""The shares of answers of which the prior says the time."""

PRIOR_SAMPLES = 20_000
SHORTEST = 15 * MINUTE
"""The shortest deadline; the longest is a day. A batch takes up to ten minutes to cancel: it is not tried for less."""

POLLS = 40
"""The client asks how far batches are at least a minute apart, and about so many times before the deadline."""

GUESSED = (0.75, 4 / 3)
"""The first guess of the rate of live calls is so many times the true one."""


@dataclass(slots=True)
class Queue:
    """One submission: its lines are answered evenly between two times, but for a share that is answered at a third."""

    begin: float
    end: float
    rest: float = 0.0
    rest_end: float = math.inf

    @property
    def last(self) -> float:
        """Seconds from the submission to its end."""
        return min(self.rest_end if self.rest else self.end, DAY)

    def share(self, seconds: float) -> float:
        """The share of lines that is answered within so many seconds."""
        if seconds < 0:
            return 0.0
        evenly = 1.0 if seconds >= self.end else max(0.0, seconds - self.begin) / max(1e-9, self.end - self.begin)
        return (1 - self.rest) * evenly + (self.rest if seconds >= self.rest_end else 0.0)


def lognormal(source: random.Random, median: float, p90: float) -> float:
    return median * math.exp(math.log(p90 / median) * source.gauss(0, 1) / 1.2815515655446004)


def queue(end: float, begin: float = 0.5) -> Queue:
    """A queue that waits for a part of its time."""
    return Queue(end * begin, end)


def two_humps(source: random.Random) -> Queue:
    quick = source.random() < 0.7
    return queue(lognormal(source, 300, 600) if quick else lognormal(source, 10 * HOUR, 16 * HOUR))


def stalls(source: random.Random) -> Queue:
    return Queue(0.0, lognormal(source, 600, 1800), rest=0.1)


SEEN: dict[str, Callable[[random.Random], Queue]] = {
    "as documented": lambda source: queue(lognormal(source, 7 * MINUTE, HOUR)),
    "quick": lambda source: queue(lognormal(source, MINUTE, 200)),
    "slow": lambda source: queue(lognormal(source, HOUR, 6 * HOUR)),
    "exponential": lambda source: queue(source.expovariate(1 / 1800)),
    "uniform": lambda source: queue(source.uniform(0, DAY)),
    "two humps": two_humps,
    "heavy tail": lambda source: queue(300 * source.paretovariate(0.8)),
    "drains": lambda source: queue(lognormal(source, 2 * HOUR, 8 * HOUR), begin=0.0),
}
UNSEEN: dict[str, Callable[[random.Random], Queue]] = {
    "stalls": stalls,
    "opens at night": lambda source: queue(source.uniform(0, 12 * HOUR) + lognormal(source, 300, 600), begin=0.95),
}
"""Name → one submission's queue."""


def prior_of(models: Sequence[Callable[[random.Random], Queue]], seed: int) -> tuple[tuple[float, float], ...]:
    """When which share of answers comes, over all models alike."""
    source, times = random.Random(seed), list[float]()
    for number in range(PRIOR_SAMPLES):
        one, share = models[number % len(models)](source), source.random()
        times.append(min(one.begin + share * (one.end - one.begin), DAY))
    times.sort()
    return tuple((share, times[int(share * len(times))]) for share in SHARES)


@dataclass(slots=True)
class Case:
    """One deadline.

    rate, tail: live answers per second, and the seconds of the longest of them. guess: the first guess of the rate is
        so many times the rate.
    queues: those of the submissions, in turn. windows: when a window's lines are answered.
    stops: the parts of the longest time that cancellations take.
    """

    lines: int
    deadline: float
    rate: float
    tail: float
    queues: list[Queue]
    windows: dict[str, Queue]
    guess: float
    stops: list[float] = field(default_factory=list[float])


def draw(source: random.Random, model: Callable[[random.Random], Queue]) -> Case:
    """One deadline."""

    def between(low: float, high: float) -> float:
        return math.exp(source.uniform(math.log(low), math.log(high)))

    lines = round(between(1, 200_000))
    windows: dict[str, Queue] = {}
    if source.random() < 0.5:
        for name, (_, longest) in WINDOWS.items():
            windows[name] = Queue(0.0, min(longest, lognormal(source, longest / 6, longest / 2)))
    return Case(
        lines=lines,
        deadline=between(SHORTEST, DAY),
        rate=between(2, 300),
        tail=between(2, 60),
        queues=[model(source) for _ in range(math.ceil(lines / LONGEST_BATCH))],
        windows=windows,
        guess=between(*GUESSED),
        stops=[source.uniform(0, 1) for _ in range(8)],
    )


def ways_of(case: Case, prior: tuple[tuple[float, float], ...]) -> list[Way]:
    ways = [Way("batch", 0.5, prior, BATCH_STOP), Way("live", 1.0)]
    for name in case.windows:
        price, longest = WINDOWS[name]
        ways.append(Way(name, price, ((0.5, longest / 6), (0.9, longest / 2), (1.0, longest)), WINDOW_STOP))
    return ways


def oracle(case: Case) -> float | None:
    """The least price at which the deadline can be kept, as a part of the list price; None if it cannot be kept."""
    sizes = [min(LONGEST_BATCH, case.lines - LONGEST_BATCH * n) for n in range(len(case.queues))]
    answered = sum(int(size * one.share(case.deadline)) for size, one in zip(sizes, case.queues, strict=True))
    left, cost = case.lines - answered, answered * 0.5
    for name in case.windows:
        taken = int(left * case.windows[name].share(case.deadline))
        left, cost = left - taken, cost + taken * WINDOWS[name][0]
    if left and left / case.rate + case.tail > case.deadline:
        return None
    return (cost + left) / case.lines


class Sent:
    """Lines that are under way together."""

    def __init__(self, key: str, way: str, lines: int, since: float, line: Queue) -> None:
        self.key = key
        self.way = way
        self.lines = lines
        self.since = since
        self.queue = line
        self.stops_at = math.inf
        self.next_way = ""

    def answered(self, now: float) -> int:
        return int(self.lines * self.queue.share(now - self.since) + 1e-9)

    @property
    def ends_at(self) -> float:
        return min(self.since + self.queue.last, self.stops_at)


class Run:
    """One run of the planner."""

    def __init__(self, case: Case, prior: tuple[tuple[float, float], ...]) -> None:
        self._case = case
        self._planner = Planner(ways_of(case, prior), case.deadline, rate=case.rate * case.guess, tail=case.tail)
        self._now = 0.0
        self._unsent = case.lines
        self._may_start: int = 0
        self._moved = 0
        self._capacity = 0.0
        self._started_last = 0.0
        self._under_way: list[Sent] = []
        self._created = 0
        self._observed = False
        self.cost = 0.0
        self.end = 0.0

    def play(self) -> None:
        """Run to the last answer."""
        case, poll = self._case, max(MINUTE, self._case.deadline / POLLS)
        while self._unsent or self._moved or self._under_way:
            look = self._decide()
            waiting = self._moved + self._may_start
            if not waiting and not self._under_way:
                raise AssertionError("nothing was sent")
            then = min([look, *(one.ends_at for one in self._under_way)])
            if self._under_way:
                then = min(then, self._now + poll)
            if waiting:
                then = min(then, self._now + waiting / case.rate)
            self._advance(max(then, self._now + 1e-6))
        self.cost /= case.lines

    def _decide(self) -> float:
        case, now = self._case, self._now
        in_flight = min(self._live_in_flight(), case.lines)
        decision = self._planner.decide(
            now,
            unsent=self._unsent,
            live=self._moved + in_flight,
            under_way=[
                UnderWay(one.key, one.way, one.lines - one.answered(now), one.since, stopping=bool(one.next_way))
                for one in self._under_way
            ],
        )
        for one in self._under_way:
            if one.key in decision.move and not one.next_way:
                one.next_way = decision.move[one.key]
                stop = BATCH_STOP if one.way == "batch" else WINDOW_STOP
                one.stops_at = now + stop * case.stops[self._created % len(case.stops)]
        send: dict[str, int] = dict(decision.send)
        self._may_start = send.pop("live", 0)
        for way, lines in send.items():
            self._send(way, lines)
        return self._decide() if send else decision.look

    def _live_in_flight(self) -> int:
        return round(self._case.rate * min(self._case.tail, self._now)) if self._now <= self._started_last else 0

    def _send(self, way: str, lines: int) -> None:
        self._unsent = max(0, self._unsent - lines)
        while lines > 0:
            size = min(lines, LONGEST_BATCH) if way == "batch" else lines
            queues = self._case.queues
            line = queues[self._created % len(queues)] if way == "batch" else self._case.windows[way]
            self._under_way.append(Sent(f"{way} {self._created}", way, size, self._now, line))
            self._created += 1
            lines -= size

    def _advance(self, then: float) -> None:
        """Let live calls start until a time, and end what has ended by then."""
        case = self._case
        self._capacity += (then - self._now) * case.rate
        capacity = int(self._capacity + 1e-6)
        moved = min(capacity, self._moved)
        fresh = min(capacity - moved, self._may_start, self._unsent)
        idle = capacity > moved + fresh
        self._capacity = 0.0 if idle else self._capacity - capacity
        self._moved -= moved
        self._unsent -= fresh
        self._may_start -= fresh
        self.cost += moved + fresh
        if moved + fresh:
            self._started_last = then
            self.end = max(self.end, then + case.tail)
            if not self._observed and then > case.tail:
                self._observed = True
                self._planner.observe_live(case.rate, case.tail)
        self._now = then
        for one in [one for one in self._under_way if one.ends_at <= then]:
            self._under_way.remove(one)
            answered = one.answered(one.ends_at)
            price = 0.5 if one.way == "batch" else WINDOWS[one.way][0]
            self.cost += answered * price
            if answered:
                self.end = max(self.end, one.ends_at)
            if answered == one.lines:
                self._planner.observe(one.way, one.ends_at - one.since)
            elif one.next_way in ("", "live"):
                self._moved += one.lines - answered
            else:
                self._send(one.next_way, 0)
                self._under_way.append(
                    Sent(f"{one.next_way} {self._created}", one.next_way, one.lines - answered, then,
                         self._case.windows[one.next_way])
                )  # fmt: skip
                self._created += 1


@dataclass(slots=True)
class Total:
    """The figures of one model."""

    deadlines: int = 0
    kept: int = 0
    missed: int = 0
    luck: int = 0
    lucky: int = 0
    paid: float = 0.0
    least: float = 0.0

    @property
    def ratio(self) -> float:
        """What the planner pays, as a multiple of what the oracle pays."""
        return self.paid / self.least if self.least else 1.0


def measure(deadlines: int, seed: int) -> dict[str, Total]:
    """The figures of each model. deadlines: of all models together."""
    models = {**SEEN, **UNSEEN}
    prior = prior_of([*SEEN.values()], seed)
    totals: dict[str, Total] = {}
    for name, model in models.items():
        source, total = random.Random(f"{seed}/{name}"), Total()
        totals[name] = total
        for _ in range(deadlines // len(models)):
            case = draw(source, model)
            total.deadlines += 1
            least = oracle(case)
            if least is None:
                continue
            run = Run(case, prior)
            run.play()
            in_time = run.end <= case.deadline
            if case.lines / case.rate + case.tail <= case.deadline:
                total.kept += 1
                total.missed += not in_time
            else:
                total.luck += 1
                total.lucky += in_time
            if in_time:
                total.paid += run.cost
                total.least += least
    return totals


def answer(run: runs.Run) -> answers.Answer:
    """Run the deadlines of all models."""
    result = answers.Answer("Deadlines of batches, the planner beside an oracle, in simulated time")
    totals = measure(1000 if run.quick else DEADLINES, 1)
    every = Total(*(sum(column) for column in zip(*map(astuple, totals.values()), strict=True)))
    result.add("deadlines that live calls alone can keep", every.kept, "deadlines", shown=True)
    result.add("of those missed", every.missed, "deadlines", target="none", met=not every.missed)
    result.add(
        "price", every.ratio, "×", ratio=every.ratio, against="the oracle", target="≤ 1.1 ×", met=every.ratio <= 1.1
    )
    result.add("others that the oracle keeps", every.luck, "deadlines")
    result.add("others that the planner keeps", every.lucky, "deadlines")
    for name, total in totals.items():
        label = f"{name}, never seen by the prior" if name in UNSEEN else name
        result.add(f"price of {label}", total.ratio, "×")
    return result
