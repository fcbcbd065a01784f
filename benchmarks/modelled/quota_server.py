"""A server with quotas: what it allows, charges, reports and hides."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from manystream.providers.limits.charging import CHARGING, Charging
from manystream.providers.limits.quota_report import MINUTE, QuotaReport, Refusal, ReportedLimit, Unit

HORIZON = 240.0
FIELDS = {
    Unit.REQUESTS: "requests",
    Unit.INPUT_TOKENS: "input tokens",
    Unit.OUTPUT_TOKENS: "output tokens",
    Unit.TOKENS: "tokens",
}
DIALECT_UNITS = {
    "openai-chat": (Unit.REQUESTS, Unit.TOKENS),
    "groq": (Unit.REQUESTS, Unit.TOKENS),
    "anthropic": (Unit.REQUESTS, Unit.INPUT_TOKENS, Unit.OUTPUT_TOKENS),
    "google": (Unit.REQUESTS, Unit.INPUT_TOKENS),
}


@dataclass(slots=True)
class Work:
    """One call with its real sizes.

    max_tokens: what its request declares.
    guess: the client's estimate of the input.
    """

    input_tokens: float
    output_tokens: float
    max_tokens: float
    guess: float
    seconds: float


@dataclass(slots=True, frozen=True)
class QuotaServerPlan:
    """One random server.

    rates: what it allows per second, of each unit.
    span: seconds of the rate that its bucket holds.
    by_the_second: whether it enforces the rate in each second, too.
    others: the part of the quota that others use; it varies.
    load: arrivals relative to the capacity; infinite: all at once.
    change: when limits change, and by what factor.
    """

    seed: int
    dialect: str
    charging: Charging
    rates: dict[Unit, float]
    binding: Unit
    span: float
    by_the_second: bool
    headers: str
    rounded: bool
    hints: str
    names_limit: bool
    change: tuple[float, float] | None
    others: float
    others_period: float
    round_trip: float
    seconds: float
    header_delay: float
    load: float
    mean_input: float
    mean_output: float
    calls_per_second: float

    def work(self, chance: random.Random) -> Work:
        """Return a random call."""
        input_tokens = self.mean_input * min(10.0, chance.lognormvariate(-0.32, 0.8))
        output = max(1.0, self.mean_output * chance.lognormvariate(-0.32, 0.8))
        most = self.mean_output * 6.0
        guess = input_tokens * chance.uniform(0.8, 1.25)
        seconds = self.seconds * chance.lognormvariate(-0.125, 0.5)
        return Work(input_tokens, min(output, most), most, guess, seconds)


def draw(seed: int) -> QuotaServerPlan:
    """Return a random server."""
    chance = random.Random(seed)
    dialect = chance.choice(list(DIALECT_UNITS))
    calls = 0.3 * 10 ** chance.uniform(0, 2)
    mean_input, mean_output = 10 ** chance.uniform(2, 4), 10 ** chance.uniform(1.5, 3)
    cost = {
        Unit.REQUESTS: 1.0,
        Unit.INPUT_TOKENS: mean_input,
        Unit.OUTPUT_TOKENS: mean_output,
        Unit.TOKENS: mean_input + mean_output,
    }
    if dialect == "openai-chat":
        cost[Unit.TOKENS] = max(mean_input, 6.0 * mean_output)
    units = DIALECT_UNITS[dialect]
    binding = chance.choice(units)
    rates = {unit: calls * cost[unit] * (1.0 if unit is binding else chance.uniform(1.2, 5.0)) for unit in units}
    return QuotaServerPlan(
        seed=seed,
        dialect=dialect,
        charging=CHARGING[dialect],
        rates=rates,
        binding=binding,
        span=chance.choice((1.0, 10.0, 60.0, 60.0)),
        by_the_second=chance.random() < 0.25,
        headers="absent"
        if dialect == "google"
        else chance.choice(("complete", "complete", "partial", "absent", "wrong")),
        rounded=chance.random() < 0.3,
        hints=chance.choice(("exact", "absent", "short", "long")),
        names_limit=chance.random() < 0.5,
        change=(chance.uniform(0.25, 0.75) * HORIZON, chance.choice((0.5, 2.0))) if chance.random() < 0.2 else None,
        others=chance.choice((0.0, 0.0, chance.uniform(0.0, 0.6))),
        others_period=chance.uniform(20.0, 120.0),
        round_trip=0.002 * 75 ** chance.random(),
        seconds=0.2 * 300 ** chance.random(),
        header_delay=chance.choice((0.0, 0.2, 1.0)),
        load=chance.choice((math.inf, math.inf, 0.5, 0.8, 1.0, 1.5, 3.0)),
        mean_input=mean_input,
        mean_output=mean_output,
        calls_per_second=calls,
    )


class _Level:
    """One limit of the server, with what is left of it."""

    __slots__ = ("at", "capacity", "level", "rate", "unit")

    def __init__(self, unit: Unit, rate: float, span: float) -> None:
        self.unit, self.rate = unit, rate
        self.capacity = self.level = rate * span
        self.at = 0.0


class QuotaServer:
    """A running server. It uses nothing of the engine except the form of its reports."""

    def __init__(self, plan: QuotaServerPlan) -> None:
        self.plan = plan
        self._factor = 1.0
        spans = (plan.span, 1.0) if plan.by_the_second and plan.span > 1 else (plan.span,)
        self._levels = [
            _Level(unit, rate, max(span, self._least_span(unit))) for unit, rate in plan.rates.items() for span in spans
        ]
        self._chance = random.Random(plan.seed)

    def _least_span(self, unit: Unit) -> float:
        """Return the size of a bucket: at least the largest single call."""
        plan = self.plan
        most = {Unit.REQUESTS: 1.0, Unit.INPUT_TOKENS: 12 * plan.mean_input, Unit.OUTPUT_TOKENS: 6 * plan.mean_output}
        return most.get(unit, 12 * plan.mean_input + 6 * plan.mean_output) / plan.rates[unit]

    def charge_at_start(self, work: Work, unit: Unit) -> float:
        """Return what a call is charged when it is accepted."""
        charging = self.plan.charging
        output = 0.0 if charging.output != "reserved" else work.max_tokens
        if unit is Unit.TOKENS:
            return max(work.input_tokens, output) if charging.combined == "larger" else work.input_tokens + output
        return (1.0, work.input_tokens, output)[unit]

    def charge_in_the_end(self, work: Work, unit: Unit) -> float:
        """Return what a call is charged at its end."""
        charging = self.plan.charging
        if charging.settlement == "unknown":
            return self.charge_at_start(work, unit)
        if unit is Unit.TOKENS:
            return work.input_tokens + work.output_tokens
        return (1.0, work.input_tokens, work.output_tokens)[unit]

    def ready_at(self, work: Work, now: float) -> float:
        """Return when a call would be accepted if nothing else arrived."""
        self._fill(now)
        wait = 0.0
        for level in self._levels:
            missing = max(1e-9, self.charge_at_start(work, level.unit)) - level.level
            if missing > 1e-6 * level.capacity:
                wait = max(wait, missing / (level.rate * self._factor * (1 - self._others(now))))
        return now + min(wait, 1.0) if wait else now

    def ask(self, work: Work, now: float) -> _Level | None:
        """Accept a call, or return the limit that refuses it."""
        self._fill(now)
        for level in self._levels:
            if level.level + 1e-6 * level.capacity < max(1e-9, self.charge_at_start(work, level.unit)):
                for other in self._levels:
                    if other.unit is Unit.REQUESTS and self.plan.charging.refused_requests:
                        other.level = max(0.0, other.level - 1.0)
                return level
        for level in self._levels:
            level.level -= self.charge_at_start(work, level.unit)
        return None

    def end(self, work: Work, now: float) -> None:
        """End a call."""
        self._fill(now)
        for level in self._levels:
            refund = self.charge_at_start(work, level.unit) - self.charge_in_the_end(work, level.unit)
            level.level = min(level.capacity, level.level + refund)

    def report(self, refused: _Level | None) -> QuotaReport:
        """Return the report in the response."""
        plan = self.plan
        limits = () if plan.headers == "absent" else tuple(self._limits())
        if refused is None:
            return QuotaReport(limits)
        unit = refused.unit if plan.names_limit or plan.dialect == "google" else None
        return QuotaReport(limits, Refusal.RATE, unit, self._hint(refused))

    def _limits(self) -> list[ReportedLimit]:
        plan = self.plan
        rows: list[ReportedLimit] = []
        for level in self._levels[:: len(self._levels) // len(plan.rates)]:
            if plan.headers == "partial" and level.unit is not Unit.REQUESTS:
                continue
            limit = level.rate * self._factor * MINUTE
            remaining: float | None = max(0.0, min(limit, level.level))
            if plan.headers == "wrong":
                # -1 for one limit, as some servers report an unknown value; twice the real value for the other.
                limit, remaining = (limit * 2, limit) if level.unit is plan.binding else (0.0, 0.0)
            if plan.rounded and level.unit is not Unit.REQUESTS:
                remaining = round(remaining / 1000) * 1000.0
            rows.append(ReportedLimit(FIELDS[level.unit], level.unit, MINUTE, limit, remaining))
        return rows

    def _hint(self, refused: _Level) -> float | None:
        kind = self.plan.hints
        if kind == "absent":
            return None
        rate = refused.rate * self._factor
        exact = max(0.0, (refused.capacity * 0.02 - refused.level) / rate) + 0.1
        if kind == "short":
            return 0.3 * exact
        return exact if kind == "exact" else (refused.capacity - refused.level) / rate

    def _others(self, now: float) -> float:
        half = int(now / self.plan.others_period) % 2
        return min(0.9, self.plan.others * (1.3 if half else 0.7))

    def _fill(self, now: float) -> None:
        if self.plan.change is not None and self._factor == 1.0 and now >= self.plan.change[0]:
            self._factor = self.plan.change[1]
            for level in self._levels:
                level.capacity *= self._factor
                level.level = min(level.level, level.capacity)
        free = 1.0 - self._others(now)
        for level in self._levels:
            level.level = min(level.capacity, level.level + (now - level.at) * level.rate * self._factor * free)
            level.at = now
