"""Calls against a quota server in simulated time: with the engine's traffic control, and with full knowledge."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass

from manystream.engine.traffic.limits.limiter import DeclaredLimit, LimiterState
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.quota_report import MINUTE, QuotaReport, Unit

from .events import Events
from .quota_server import HORIZON, QuotaServer, QuotaServerPlan, Work
from .sender import Sender

AT_ONCE = 1.3
"""If all calls arrive at once, their number relative to what the server allows within the horizon."""


@dataclass(slots=True)
class Outcome:
    """What one client received."""

    served: float = 0.0
    calls: int = 0
    sent: int = 0
    refused: int = 0


class Client:
    """A process with the engine's traffic control."""

    def __init__(self, events: Events, server: QuotaServer, declared: RateLimit | None = None) -> None:
        self.outcome = Outcome()
        limits = [] if declared is None else [DeclaredLimit("", declared, 0.0)]
        self.state = LimiterState("model", server.plan.charging, limits=limits)
        self._events = events
        self._server = server
        self._sender = Sender(events, self.state, self._send)

    def arrive(self, works: list[Work]) -> None:
        for work in works:
            self.state.queue.add(Permit(work.guess, work.max_tokens, owner=work))
        self._sender.pump()

    def _send(self, permit: Permit) -> None:
        self.outcome.sent += 1
        self._events.at(self._events.now + self._server.plan.round_trip / 2, self._at_server, permit)

    def _at_server(self, permit: Permit) -> None:
        work, now, plan = permit.owner, self._events.now, self._server.plan
        assert isinstance(work, Work)
        refused = self._server.ask(work, now)
        report = self._server.report(refused)
        if refused is not None:
            self.outcome.refused += 1
            self._events.at(now + plan.round_trip / 2, self._refused, permit, report)
            return
        self.outcome.calls += 1
        self.outcome.served += self._server.charge_in_the_end(work, plan.binding)
        delay = min(plan.header_delay, work.seconds)
        self._events.at(now + delay + plan.round_trip / 2, self._confirmed, permit, report)
        self._events.at(now + work.seconds, self._server.end, work, now + work.seconds)
        self._events.at(now + work.seconds + plan.round_trip / 2, self._ended, permit)

    def _refused(self, permit: Permit, report: QuotaReport) -> None:
        self.state.refuse(permit, report, self._events.now)
        self._sender.pump()

    def _confirmed(self, permit: Permit, report: QuotaReport) -> None:
        self.state.confirm(permit, report, self._events.now)
        self._sender.pump()

    def _ended(self, permit: Permit) -> None:
        work = permit.owner
        assert isinstance(work, Work)
        usage = self.state.quota.settled(work.input_tokens, 0.0, work.output_tokens)
        self.state.settle(permit, usage, self._events.now, tokens=work.input_tokens + work.output_tokens)
        self._sender.pump()


class Oracle:
    """A client that knows the state of the server, and whose calls arrive at once."""

    def __init__(self, events: Events, server: QuotaServer) -> None:
        self.outcome = Outcome()
        self._events, self._server = events, server
        self._waiting: deque[Work] = deque()
        self._timer = math.inf

    def arrive(self, works: list[Work]) -> None:
        self._waiting.extend(works)
        self.pump()

    def pump(self) -> None:
        now, server = self._events.now, self._server
        while self._waiting:
            work = self._waiting[0]
            at = server.ready_at(work, now)
            if at > now or server.ask(work, now) is not None:
                time = max(at, now + 1e-4)
                if time < self._timer:
                    self._timer = time
                    self._events.at(time, self._wake, time)
                return
            self._waiting.popleft()
            self.outcome.calls += 1
            self.outcome.served += server.charge_in_the_end(work, server.plan.binding)
            self._events.at(now + work.seconds, self._ended, work)

    def _wake(self, time: float) -> None:
        if time == self._timer:
            self._timer = math.inf
            self.pump()

    def _ended(self, work: Work) -> None:
        self._server.end(work, self._events.now)
        self.pump()


def offer(plan: QuotaServerPlan, events: Events, clients: list[Client] | list[Oracle]) -> None:
    """Deal the load of the plan to clients in turn."""
    chance = random.Random(plan.seed + 1)
    grown = max(1.0, plan.change[1]) if plan.change else 1.0
    if plan.load == math.inf:
        count = int(plan.calls_per_second * grown * (HORIZON + 2 * plan.span) * AT_ONCE) + 10
        works = [plan.work(chance) for _ in range(count)]
        for place, client in enumerate(clients):
            events.at(0.0, client.arrive, works[place :: len(clients)])
        return
    time, place = 0.0, 0
    while time < HORIZON:
        time += chance.expovariate(plan.calls_per_second * plan.load)
        events.at(time, clients[place % len(clients)].arrive, [plan.work(chance)])
        place += 1


def declaration(plan: QuotaServerPlan, factor: float) -> RateLimit:
    """Return the limits of the plan as a user would write them, times a factor."""
    per_minute = {unit: rate * MINUTE * factor for unit, rate in plan.rates.items()}
    return RateLimit(
        requests_per_minute=per_minute.get(Unit.REQUESTS),
        input_tokens_per_minute=per_minute.get(Unit.INPUT_TOKENS),
        output_tokens_per_minute=per_minute.get(Unit.OUTPUT_TOKENS),
        tokens_per_minute=per_minute.get(Unit.TOKENS),
    )


def run(plan: QuotaServerPlan, processes: int = 1, declared: float = 0.0) -> list[Outcome]:
    """Return what each of several processes with one key receives."""
    events, server = Events(), QuotaServer(plan)
    limits = declaration(plan, declared) if declared else None
    clients = [Client(events, server, limits) for _ in range(processes)]
    offer(plan, events, clients)
    events.run(HORIZON)
    return [client.outcome for client in clients]


def best(plan: QuotaServerPlan) -> Outcome:
    """Return what a client with full knowledge receives."""
    events = Events()
    oracle = Oracle(events, QuotaServer(plan))
    offer(plan, events, [oracle])
    events.run(HORIZON)
    return oracle.outcome
