"""Properties of traffic control that hold for any events in any order."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.modelled.events import Events
from benchmarks.modelled.sender import Sender
from benchmarks.traffic_model import jain
from manystream.engine.traffic.limits.bucket import LearnedBucket
from manystream.engine.traffic.limits.limiter import DeclaredLimit, LimiterState
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.engine.traffic.queue.fair_queue import FREE, LONGEST_WAIT, FairQueue, Permit, PermitState
from manystream.providers.limits.charging import CHARGING, charging_of
from manystream.providers.limits.quota_report import MINUTE, NOTHING, QuotaReport, Refusal, ReportedLimit, Unit
from manystream.providers.model.options import Priority

bounded = settings(derandomize=True, max_examples=60)

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "admit", "admit", "confirm", "refuse", "overload", "settle", "cancel", "wait"]),
    st.integers(0, 1000), st.floats(0.001, 3.0)), max_size=150,
)  # fmt: skip


def new_ticket(number: int) -> Permit:
    return Permit(1.0 + number % 50, number % 30, priority=list(Priority)[number % 3], tenant=str(number % 4))


def play(scope: LimiterState, steps: list[tuple[str, int, float]]) -> tuple[list[Permit], float]:
    """Run random events on a scope. Return the running calls and the time."""
    now, waiting, sent = 0.0, list[Permit](), list[Permit]()
    report = QuotaReport((ReportedLimit("requests", Unit.REQUESTS, MINUTE, 600, 500),))
    for action, number, seconds in steps:
        ticket = sent[number % len(sent)] if sent else None
        if action == "add":
            waiting.append(new_ticket(number))
            scope.queue.add(waiting[-1])
        elif action == "admit":
            admitted = scope.admit(now)
            if isinstance(admitted, Permit):
                waiting.remove(admitted)
                sent.append(admitted)
        elif action == "wait":
            now += seconds
        elif action == "cancel" and waiting:
            scope.cancel(waiting.pop(number % len(waiting)), now)
        elif ticket is not None and action == "confirm":
            scope.confirm(ticket, report if number % 2 else NOTHING, now)
            scope.answered(ticket, now)
        elif ticket is not None and action in ("refuse", "overload"):
            sent.remove(ticket)
            waiting.append(ticket)
            scope.refuse(ticket, QuotaReport(refusal=Refusal.RATE if action == "refuse" else Refusal.OVERLOAD), now)
        elif ticket is not None and action == "settle":
            sent.remove(ticket)
            usage = scope.quota.settled(number, 0, number)
            scope.settle(ticket, usage, now, tokens=2.0 * number)
    return sent, now


@bounded
@given(st.sampled_from(sorted(CHARGING)), STEPS)
def test_reservations_balance_to_zero(provider: str, steps: list[tuple[str, int, float]]) -> None:
    declared = DeclaredLimit("", RateLimit(requests_per_second=5, tokens_per_minute=3000, concurrent=7), 0.0)
    scope = LimiterState("one", charging_of(provider), limits=[declared])
    sent, now = play(scope, steps)
    for number, ticket in enumerate(sent):
        if number % 2:
            scope.settle(ticket, None, now)
        else:
            scope.cancel(ticket, now)
        assert ticket.charged is FREE
    assert len(scope.quota.window) == 0
    assert declared.running == 0
    assert scope.concurrency is None or scope.concurrency.running == 0


@bounded
@given(STEPS)
def test_what_was_given_back_can_be_taken_again(steps: list[tuple[str, int, float]]) -> None:
    """Calls that are cancelled before they are sent change no level."""
    scope = LimiterState("one", charging_of("groq"), limits=[DeclaredLimit("", RateLimit(tokens_per_minute=1e6), 0.0)])
    bucket = scope.quota.reported["declared tokens_per_minute"].bucket
    tickets = [new_ticket(number) for _, number, _ in steps]
    for ticket in tickets:
        scope.queue.add(ticket)
    before = bucket.fill(0)
    while isinstance(admitted := scope.admit(0), Permit):
        scope.cancel(admitted, 0)
    assert bucket.fill(0) == pytest.approx(before)
    assert all(ticket.state is PermitState.ENDED for ticket in tickets)


def reachable(root: object) -> set[int]:
    """Return the ids of all tickets that can be reached from an object's own structures."""
    found, seen, todo = set[int](), set[int](), [root]
    while todo:
        item: Any = todo.pop()
        if id(item) in seen or isinstance(item, str | float | int | type | None):
            continue
        seen.add(id(item))
        if isinstance(item, Permit):
            found.add(id(item))
        if isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set):
            todo += list(item)
        else:
            names = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
            todo += [getattr(item, name) for name in names if hasattr(item, name)]
            todo += list(getattr(item, "__dict__", {}).values())
    return found


@bounded
@given(STEPS)
def test_a_cancelled_call_leaves_nothing_behind(steps: list[tuple[str, int, float]]) -> None:
    scope = LimiterState("one", charging_of("deepseek"))
    sent, now = play(scope, steps)
    for ticket in sent:
        scope.cancel(ticket, now)
    while (first := scope.queue.first(now)) is not None:
        scope.cancel(first, now)
    assert len(scope.queue) == 0
    assert reachable(scope) == set()


def test_a_hundred_thousand_cancelled_calls_leave_nothing_behind() -> None:
    queue = FairQueue()
    tickets = [new_ticket(number) for number in range(100_000)]
    for ticket in tickets:
        queue.add(ticket)
    random.Random(1).shuffle(tickets)
    for ticket in tickets:
        queue.remove(ticket)
    assert len(reachable(queue)) < 100


@bounded
@given(st.integers(0, 2**32), st.integers(2, 6))
def test_nobody_starves(seed: int, tenants: int) -> None:
    """With any arrivals, every class is served at least every 30 s, and every tenant of a class is served."""
    chance, queue = random.Random(seed), FairQueue()
    waiting_since: dict[Permit, float] = {}
    last_place = dict.fromkeys(Priority, 0.0)
    now = 0.0
    while now < 200:
        for _ in range(chance.choice((0, 1, 1, 3))):
            priority = chance.choices(list(Priority), (8, 1, 1))[0]
            ticket = Permit(chance.uniform(1, 5000), 0, priority=priority, tenant=str(chance.randrange(tenants)))
            queue.add(ticket)
            waiting_since[ticket] = now
        now += 1.0
        if not len(queue):
            continue
        taken = queue.take(now)
        del waiting_since[taken]
        last_place[taken.priority] = now
        for priority in Priority:
            first = min((t for ticket, t in waiting_since.items() if ticket.priority is priority), default=now)
            # Two other classes may be due in the same second.
            assert now - max(first, last_place[priority]) <= LONGEST_WAIT + 3


class TwoTenants:
    """Calls of two tenants, which share a limit, in simulated time. Each call uses 10 input and 20 output tokens."""

    USED = 20

    def __init__(self, profile: str, calls_per_second: float, seconds: float) -> None:
        limit = RateLimit(requests_per_minute=calls_per_second * MINUTE)
        self.events, self.seconds = Events(), seconds
        self.state = LimiterState("one", charging_of(profile), limits=[DeclaredLimit("", limit, 0.0)])
        self.sent: list[tuple[float, str]] = []
        self.sender = Sender(self.events, self.state, self.send)

    def start(self, tenant: str, reserved: float, calls: int) -> None:
        for _ in range(calls):
            self.state.queue.add(Permit(10.0, reserved, tenant=tenant))
        self.sender.pump()

    def send(self, ticket: Permit) -> None:
        self.sent.append((self.events.now, str(ticket.tenant)))
        self.events.at(self.events.now + min(0.02, self.seconds), self.confirm, ticket)
        self.events.at(self.events.now + self.seconds, self.end, ticket)

    def confirm(self, ticket: Permit) -> None:
        self.state.confirm(ticket, NOTHING, self.events.now)
        self.sender.pump()

    def end(self, ticket: Permit) -> None:
        usage = self.state.quota.settled(10, 0, self.USED)
        self.state.settle(ticket, usage, self.events.now, tokens=10 + self.USED)
        self.sender.pump()

    def least_fair(self, since: float, until: float) -> float:
        """Return the least of Jain's indices of all windows of ten seconds."""
        windows: list[float] = []
        while since + 10 <= until:
            sent = [tenant for at, tenant in self.sent if since <= at < since + 10]
            windows.append(jain([float(sent.count("big")), float(sent.count("small"))]))
            since += 0.5
        return min(windows)


@pytest.mark.parametrize("profile", ["openai-chat", "anthropic", "google", "vllm"])
@settings(bounded, max_examples=8)
@given(
    ratios=st.tuples(st.integers(1, 200), st.integers(1, 200)),
    calls_per_second=st.floats(2, 10),
    seconds=st.floats(0.05, 1.0),
    later=st.floats(0, 5),
)
def test_two_tenants_are_served_alike_whatever_they_reserve(
    profile: str, ratios: tuple[int, int], calls_per_second: float, seconds: float, later: float
) -> None:
    """A burst of one tenant, and another one that starts at the same time or some seconds later."""
    run = TwoTenants(profile, calls_per_second, seconds)
    run.events.at(0.0, run.start, "big", float(ratios[0] * run.USED), 1500)
    run.events.at(later, run.start, "small", float(ratios[1] * run.USED), 1500)
    run.events.run(later + 30)
    assert run.least_fair(later, later + 30) >= 0.97


@bounded
@given(
    st.floats(0.5, 500),
    st.lists(st.tuples(st.floats(0.01, 1000), st.floats(0, 2), st.sampled_from(["go", "go", "accept", "refuse"]))),
)
def test_the_learned_bucket_lets_no_more_go_than_its_rate(rate: float, steps: list[tuple[float, float, str]]) -> None:
    """In any interval, the sent cost is at most the inflow, one capacity, and the call that exceeded the level."""
    learned, now = LearnedBucket(rate, 10.0, 0.0), 0.0
    allowed, gone, largest, highest = 0.0, 0.0, 0.0, learned.capacity
    for cost, seconds, action in steps:
        now += seconds
        allowed += seconds * learned.rate
        if action == "accept":
            learned.accept(cost, math.inf, now)
        elif action == "refuse":
            learned.refuse(cost, math.inf, now)
        elif learned.ready_at(cost, now) <= now:
            learned.take(cost, now)
            gone += cost
            largest = max(largest, cost)
        highest = max(highest, learned.capacity)
        assert gone <= allowed + largest + highest * (1 + 1e-5)


@bounded
@given(st.floats(0.1, 1e4), st.floats(0.1, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e5))
def test_at_the_time_that_a_bucket_gives_there_is_room(rate: float, capacity: float, now: float, cost: float) -> None:
    learned = LearnedBucket(rate, capacity, now)
    learned.take(cost, now)
    at = learned.ready_at(cost, now)
    assert learned.ready_at(cost, at) == at


@bounded
@given(STEPS)
def test_a_scope_that_waits_says_when_it_will_not(steps: list[tuple[str, int, float]]) -> None:
    """The time of the next look is never in the past, and a caller that follows it sends every call."""
    scope = LimiterState("one", charging_of("openai-chat"))
    sent, now = play(scope, steps)
    for ticket in sent:
        scope.settle(ticket, None, now)
    for _ in range(2000):
        while isinstance(admitted := scope.admit(now), Permit):
            scope.settle(admitted, None, now)
        if not len(scope.queue):
            return
        assert now < admitted < math.inf
        now = admitted
    pytest.fail("the queue does not become empty")


class SharedLimits:
    """Limiters that share declared limits in any way, in simulated time, as the engine pumps them.

    looks: how often a limiter was looked at since the time has passed.
    """

    def __init__(self, chance: random.Random) -> None:
        limits = [
            DeclaredLimit(name, RateLimit(concurrent=chance.choice((None, 1, 3)),
            requests_per_second=chance.choice((2.0, 20.0)), tokens_per_minute=chance.choice((None, 6000.0))), 0.0)
            for name in "abc"
        ]  # fmt: skip
        self.chance, self.now, self.looks = chance, 0.0, 0
        self.states = [
            LimiterState(
                str(number), charging_of("openai-chat"), limits=[one for one in limits if chance.random() < 0.7]
            )
            for number in range(chance.randint(2, 7))
        ]
        self.scheduled = dict.fromkeys(self.states)
        self.timers: list[tuple[float, LimiterState]] = []
        self.running: list[tuple[float, LimiterState, Permit]] = []
        self.sent: list[tuple[float, LimiterState]] = []

    def pass_on(self, state: LimiterState, limits: Sequence[DeclaredLimit]) -> None:
        for limit in limits:
            first = limit.next_in_line()
            if isinstance(first, LimiterState) and first is not state:
                self.scheduled[first] = None

    def settle_turns(self) -> None:
        """Look at the scheduled limiters, in any order, until none is."""
        self.looks = 0
        while self.scheduled:
            state = self.chance.choice(list(self.scheduled))
            del self.scheduled[state]
            self.looks += 1
            assert self.looks < 500, "limiters make room for each other without an end"
            while isinstance(permit := state.admit(self.now), Permit):
                self.running.append((self.now + self.chance.choice((0.1, 1.0, 3.0)), state, permit))
                self.sent.append((self.now, state))
            if not state.queue.length:
                state.leave_lines()
            at = permit
            left, state.left = tuple(state.left), {}
            self.pass_on(state, left)
            assert at > self.now
            if at < math.inf:
                self.timers.append((at, state))

    def step(self) -> None:
        """Let the time pass until a call ends or a timer is due."""
        self.settle_turns()
        self.now = min([at for at, _ in self.timers] + [at for at, *_ in self.running])
        self.scheduled.update((state, None) for at, state in self.timers if at <= self.now)
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for ended in [each for each in self.running if each[0] <= self.now]:
            self.running.remove(ended)
            _, state, permit = ended
            state.settle(permit, None, self.now)
            self.scheduled[state] = None
            self.pass_on(state, state.limits)


@settings(derandomize=True, max_examples=100)
@given(st.integers(0, 2**32))
def test_sharing_limiters_send_all_calls_without_a_cycle(seed: int) -> None:
    chance = random.Random(seed)
    world = SharedLimits(chance)
    for state in world.states:
        for _ in range(chance.choice((1, 5, 30))):
            state.queue.add(Permit(chance.choice((1.0, 10.0, 400.0)), chance.choice((1, 50))))
    for _ in range(5000):
        if not any(state.queue.length for state in world.states):
            return
        world.step()
    pytest.fail("not every call is sent")
