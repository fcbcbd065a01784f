"""Servers that limit only the running calls, in simulated time: batches with a queue, 503s, slots."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Literal

from manystream.engine.traffic.limits.limiter import DeclaredLimit, LimiterState
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.charging import Charging
from manystream.providers.limits.quota_report import NOTHING, QuotaReport, Refusal
from manystream.providers.limits.server_load import ServerLoad

from .events import Events

LEAST_HORIZON = 120.0
CALLS_IN_HORIZON = 20.0
WARM_UP = 0.4
"""The part of the time that is not counted, in which the control law learns."""

TOKENS_PER_STEP = 8
ASKED_EVERY = 0.25
"""Seconds between two questions for the server's queue."""

LATER = 3.0
"""Seconds after which the next client of a server begins."""

RETRY_SECONDS = 0.5
"""The time for which a client with a fixed limit keeps the place of a refused call. It is that of a semaphore around an
SDK's call: the SDK waits this long before its first retry. A client that sent another call at once would do nothing but
ask a full server without a pause, and would serve as a measure for nobody."""


@dataclass(slots=True, frozen=True)
class InferencePlan:
    """One random server.

    A step takes `base` + `each` × running seconds and gives each running call some tokens. Prompts and answers of at
    most `room` tokens run at once. Other calls wait inside.

    queue: how many calls may wait; more get 503.
    slots: how many calls run at all; more get 429.
    """

    seed: int
    kind: Literal["batch", "503", "slots"]
    base: float
    each: float
    prefill: float
    room: float
    queue: int
    slots: int
    input_tokens: float
    output_tokens: float
    round_trip: float

    @property
    def horizon(self) -> float:
        """The length of a run, in lengths of a call."""
        steps = self.output_tokens / TOKENS_PER_STEP
        at_once = self.room / (self.input_tokens + self.output_tokens)
        return max(LEAST_HORIZON, CALLS_IN_HORIZON * steps * (self.base + self.each * at_once))


@dataclass(slots=True)
class _Running:
    client: int
    permit: Permit
    sent_at: float
    size: float
    left: float
    fitted: bool = False


def draw(seed: int) -> InferencePlan:
    """Return a random server."""
    chance = random.Random(seed)
    kind = chance.choice(("batch", "503", "slots"))
    input_tokens, output = 10 ** chance.uniform(2, 3.6), 10 ** chance.uniform(1.7, 2.7)
    at_once = 4 * 32 ** chance.random()
    return InferencePlan(
        seed=seed,
        kind=kind,
        base=TOKENS_PER_STEP * chance.uniform(0.01, 0.04),
        each=TOKENS_PER_STEP * chance.uniform(0.0, 0.02) / at_once,
        prefill=chance.uniform(2e-6, 2e-5),
        room=at_once * (input_tokens + output) * (4.0 if kind == "slots" else 1.0),
        queue=10**9 if kind != "503" else round(at_once * chance.uniform(0.1, 1.0)),
        slots=max(2, round(at_once)) if kind == "slots" else 10**9,
        input_tokens=input_tokens,
        output_tokens=output,
        round_trip=0.002 * 75 ** chance.random(),
    )


class InferenceServer:
    """A running server, with an unlimited number of waiting calls.

    fixed: a limit that never changes.
    streamed: whether the answers are streams.
    reports: whether the server reports its queue, and is asked.
    clients: how many clients the server has. Each begins `LATER` seconds after the one before it.
    """

    def __init__(
        self, plan: InferencePlan, fixed: int = 0, *, streamed: bool = True, reports: bool = False, clients: int = 1
    ) -> None:
        self.plan, self.events = plan, Events()
        self._streamed = streamed
        self._fixed = fixed > 0
        limited_by = "slots" if plan.kind == "slots" else "concurrency"
        self.states = [
            LimiterState(
                "model",
                Charging(output="produced", limited_by=limited_by),
                limits=[DeclaredLimit("", RateLimit(concurrent=fixed), 0.0)] if fixed else [],
                adaptive=not fixed,
            )
            for _ in range(clients)
        ]
        self.done_by = [0] * clients
        self.refused = 0
        self.first_tokens: list[float] = []
        self._chance = random.Random(plan.seed)
        self._running: list[_Running] = []
        self._inside: deque[_Running] = deque()
        self._used = 0.0
        self._waiting = 0.0
        self._stepping = False
        self._timers = [math.inf] * clients
        self._reports = reports
        self.most = 0
        self.peak = 0

    @property
    def done(self) -> int:
        """The calls of all clients that have ended."""
        return sum(self.done_by)

    def run(self) -> None:
        """Run to the horizon."""
        for client in range(len(self.states)):
            self.events.at(client * LATER, self._begin, client)
        self.events.run(self.plan.horizon)

    def _begin(self, client: int) -> None:
        self._refill(client)
        if self._reports:
            self._ask(client)

    def _ask(self, client: int) -> None:
        self.events.at(self.events.now + self.plan.round_trip / 2, self._report, client)
        self.events.at(self.events.now + ASKED_EVERY, self._ask, client)

    def _report(self, client: int) -> None:
        load = ServerLoad(float(len(self._running)), float(len(self._inside)))
        self.events.at(self.events.now + self.plan.round_trip / 2, self._reported, client, load)

    def _reported(self, client: int, load: ServerLoad) -> None:
        concurrency = self.states[client].concurrency
        assert concurrency is not None
        concurrency.report(load, self.events.now)
        self._refill(client)

    def _refill(self, client: int) -> None:
        state = self.states[client]
        while len(state.queue) < 50:
            size = self.plan.input_tokens * self._chance.lognormvariate(-0.125, 0.5)
            output = max(1.0, self.plan.output_tokens * self._chance.lognormvariate(-0.125, 0.5))
            state.queue.add(Permit(size, output))
        now = self.events.now
        while isinstance(permit := state.admit(now), Permit):
            self.events.at(now + self.plan.round_trip / 2, self._arrive, client, permit, now)
            if len(state.queue) < 5:
                break
        time = permit if isinstance(permit, float) else math.inf
        if now < time < self._timers[client]:
            self._timers[client] = time
            self.events.at(time, self._wake, client, time)

    def _wake(self, client: int, time: float) -> None:
        if time == self._timers[client]:
            self._timers[client] = math.inf
            self._refill(client)

    def _arrive(self, client: int, permit: Permit, sent_at: float) -> None:
        full = len(self._running) + len(self._inside) >= self.plan.slots
        # A call that fits waits for the next step only, and takes no place in the queue.
        if full or (self._used + self._waiting > self.plan.room and len(self._inside) >= self.plan.queue):
            self.refused += 1
            refusal = Refusal.RATE if full else Refusal.OVERLOAD
            back = self.plan.round_trip / 2 + (RETRY_SECONDS if self._fixed else 0.0)
            self.events.at(self.events.now + back, self._refuse, client, permit, refusal)
            return
        size = permit.input_tokens + (permit.max_output or 0.0)
        self._waiting += size
        call = _Running(client, permit, sent_at, size, permit.max_output or 1.0)
        call.fitted = self._used + self._waiting <= self.plan.room
        if call.fitted:
            # The call joins the batch after the current token, on average after half of it.
            self.events.at(self.events.now + 1.5 * self._token(call), self._first_token, call)
        self._inside.append(call)
        if self.events.now > WARM_UP * self.plan.horizon:
            self.most = max(self.most, len(self._running) + len(self._inside))
        self.peak = max(self.peak, len(self._running) + len(self._inside))
        if not self._stepping:
            self._step()

    def _refuse(self, client: int, permit: Permit, refusal: Refusal) -> None:
        self.states[client].refuse(permit, QuotaReport(refusal=refusal), self.events.now)
        self._refill(client)

    def _step(self) -> None:
        prefill = 0.0
        while self._inside and (self._used + self._inside[0].size <= self.plan.room or not self._running):
            call = self._inside.popleft()
            self._waiting -= call.size
            self._used += call.size
            self._running.append(call)
            if not call.fitted:
                self.events.at(self.events.now + self._token(call), self._first_token, call)
            prefill += self.plan.prefill * call.permit.input_tokens
        self._stepping = bool(self._running)
        if self._running:
            seconds = self.plan.base + self.plan.each * len(self._running) + prefill
            self.events.at(self.events.now + seconds, self._stepped)

    def _token(self, call: _Running) -> float:
        """Return the seconds of a call's prompt and first token."""
        step = self.plan.base + self.plan.each * len(self._running)
        return step / TOKENS_PER_STEP + self.plan.prefill * call.permit.input_tokens + self.plan.round_trip / 2

    def _stepped(self) -> None:
        now, back = self.events.now, self.plan.round_trip / 2
        for call in self._running:
            call.left -= TOKENS_PER_STEP
            if call.left <= 0:
                self._used -= call.size
                self.events.at(now + back, self._end, call)
        self._running = [call for call in self._running if call.left > 0]
        self._step()

    def _first_token(self, call: _Running) -> None:
        now = self.events.now
        if now > WARM_UP * self.plan.horizon:
            self.first_tokens.append(now - call.sent_at)
        if not self._streamed:
            return
        self.states[call.client].confirm(call.permit, NOTHING, now)
        self.states[call.client].answered(call.permit, now)

    def _end(self, call: _Running) -> None:
        if self.events.now > WARM_UP * self.plan.horizon:
            self.done_by[call.client] += 1
        output, state = 0.0, self.states[call.client]
        if not self._streamed:
            output = call.permit.max_output or 0.0
            state.confirm(call.permit, NOTHING, self.events.now)
        state.settle(call.permit, None, self.events.now, output=output)
        self._refill(call.client)


@dataclass(slots=True, frozen=True)
class ConcurrencyOutcome:
    """Return throughput and median time to the first token.

    Throughput is relative to that of the best fixed limit. The time is relative to that of the smallest fixed limit
    with 95 % of the best throughput.
    """

    plan: InferencePlan
    throughput: float
    first_token: float
    limit: float


def measure(plan: InferencePlan, *, streamed: bool = True, reports: bool = False) -> ConcurrencyOutcome:
    """Run the control law on one server, beside fixed limits in steps of a quarter octave."""
    law = InferenceServer(plan, streamed=streamed, reports=reports)
    law.run()
    fixed: list[tuple[int, float, float]] = []
    limit = 2.0
    while limit <= 300 and (len(fixed) < 5 or fixed[-1][1] > fixed[-5][1] * 1.005):
        server = InferenceServer(plan, fixed=int(limit))
        server.run()
        fixed.append((int(limit), server.done, median(server.first_tokens or [plan.horizon])))
        limit = max(limit + 1, limit * 1.19)
    best = max(done for _, done, _ in fixed)
    least = next(row for row in fixed if row[1] >= 0.95 * best)
    concurrency = law.states[0].concurrency
    assert concurrency is not None
    first = median(law.first_tokens or [plan.horizon])
    return ConcurrencyOutcome(plan, law.done / max(1, best), first / least[2], concurrency.limit)
