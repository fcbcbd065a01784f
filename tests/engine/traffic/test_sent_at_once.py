"""A call that waits for nothing skips the queue: the traces that it leaves are those of a call that was queued."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manystream.engine.traffic.limits.limiter import DeclaredLimit, LimiterState
from manystream.engine.traffic.limits.rate_limit import RateLimit
from manystream.engine.traffic.queue.fair_queue import FREE, Permit, PermitState
from manystream.providers.limits.charging import CHARGING, charging_of
from manystream.providers.limits.quota_report import MINUTE, NOTHING, QuotaReport, Refusal, ReportedLimit, Unit
from manystream.providers.model.options import Priority

STEPS = st.lists(
    st.tuples(st.sampled_from(["start", "start", "start", "confirm", "refuse", "settle", "cancel", "wait"]),
    st.integers(0, 1000), st.floats(0.001, 3.0)), max_size=120,
)  # fmt: skip

REPORT = QuotaReport(
    (ReportedLimit("requests", Unit.REQUESTS, MINUTE, 90, 40), ReportedLimit("tokens", Unit.TOKENS, MINUTE, 9000, 8000))
)


class Way:
    """Calls that are sent in one way: at once where that is possible, or always through the queue."""

    def __init__(self, provider: str, *, at_once: bool) -> None:
        self.declared = DeclaredLimit("", RateLimit(requests_per_minute=300, concurrent=9), 0.0)
        self.state = LimiterState("one", charging_of(provider), limits=[self.declared])
        self.at_once = at_once
        self.running: list[Permit] = []
        self.names: dict[Permit, int] = {}
        self.went: list[int] = []

    def start(self, number: int, now: float) -> None:
        ticket = Permit(1.0 + number, number % 300, priority=list(Priority)[number % 3], tenant=str(number % 4))
        self.names[ticket] = len(self.names)
        if self.at_once and self.state.admit_at_once(ticket, now):
            self.sent(ticket)
        elif self.state.quota.never(ticket, now) is None:
            self.state.queue.add(ticket)
            self.send(now)

    def send(self, now: float) -> None:
        while (first := self.state.queue.first(now)) is not None:
            if self.state.quota.never(first, now) is not None:
                self.state.cancel(first, now)
            elif self.state.admit(now) is not first:
                return
            else:
                self.sent(first)
        self.state.leave_lines()

    def sent(self, ticket: Permit) -> None:
        self.running.append(ticket)
        self.went.append(self.names[ticket])

    def end(self, action: str, number: int, now: float) -> None:
        if not self.running:
            return
        if action == "confirm":
            self.state.confirm(self.running[number % len(self.running)], REPORT if number % 3 else NOTHING, now)
            return
        ticket = self.running.pop(number % len(self.running))
        if action == "refuse":
            self.state.refuse(ticket, QuotaReport(refusal=Refusal.RATE), now)
        elif action == "settle":
            usage = self.state.quota.settled(number, 0, number)
            self.state.settle(ticket, usage, now, tokens=2.0 * number)
        else:
            self.state.cancel(ticket, now)

    def play(self, steps: list[tuple[str, int, float]]) -> None:
        now = 0.0
        for action, number, seconds in steps:
            if action == "start":
                self.start(number, now)
            elif action == "wait":
                now += seconds
            else:
                self.end(action, number, now)
            self.send(now)
        self.now = now

    def traces(self) -> dict[str, object]:
        quota = self.state.quota
        return {
            "order": self.went,
            "waiting": len(self.state.queue),
            "running": (quota.running, self.declared.running),
            "window": (quota.window.size, len(quota.window)),
            "levels": {name: reported.bucket.fill(self.now) for name, reported in quota.reported.items()},
            "learned": {unit: learned.fill(self.now) for unit, learned in quota.learned.items()},
            "news": quota.news,
        }


def taken(scope: LimiterState, count: int) -> list[Permit]:
    """Return the next calls of the queue, in their order."""
    return [scope.queue.take(0.0) for _ in range(count)]


@settings(derandomize=True, max_examples=150)
@given(st.sampled_from(sorted(CHARGING)), STEPS)
def test_calls_at_once_go_in_the_order_of_queued_calls(provider: str, steps: list[tuple[str, int, float]]) -> None:
    ways = [Way(provider, at_once=at_once) for at_once in (True, False)]
    for way in ways:
        way.play(steps)
    assert ways[0].traces() == ways[1].traces()


def test_the_service_of_a_call_at_once_is_charged_to_its_tenant() -> None:
    """A tenant whose calls went at once is behind another one as soon as calls wait."""
    scope = LimiterState("one", charging_of("openai-chat"), limits=[DeclaredLimit("", RateLimit(concurrent=3), 0.0)])
    for _ in range(3):
        assert scope.admit_at_once(Permit(1000.0, 10, tenant="busy"), 0.0)
    waiting = {name: Permit(10.0, 10, tenant=name.split()[0]) for name in ("quiet 1", "busy", "quiet 2")}
    for ticket in waiting.values():
        assert not scope.admit_at_once(ticket, 0.0)
        scope.queue.add(ticket)
    assert [name for ticket in taken(scope, 3) for name, one in waiting.items() if one is ticket] == [
        "quiet 1",
        "quiet 2",
        "busy",
    ]


def test_a_learned_limit_does_not_exceed_the_least_declared_one() -> None:
    """It starts at eight calls, or at the declared number if that is smaller."""
    rates = RateLimit(requests_per_second=100), RateLimit(concurrent=5), RateLimit(concurrent=3)
    limits = [DeclaredLimit("", rate, 0.0) for rate in rates]
    for declared, least in ((limits, 3), (limits[:2], 5), (limits[:1], 8)):
        scope = LimiterState("one", charging_of("vllm"), limits=declared)
        assert scope.concurrency.limit == least


@pytest.mark.parametrize("tokens", [601.0, 1e9])
def test_a_call_that_is_larger_than_a_limit_does_not_go_at_once(tokens: float) -> None:
    limits = [DeclaredLimit("", RateLimit(input_tokens_per_minute=600), 0.0)]
    scope = LimiterState("one", charging_of("anthropic"), limits=limits)
    ticket = Permit(tokens, 10)
    assert not scope.admit_at_once(ticket, 0.0)
    assert scope.quota.never(ticket, 0.0) is not None
    assert (ticket.state, ticket.charged, scope.running) == (PermitState.NEW, FREE, 0)


def test_a_call_does_not_go_at_once_before_one_that_waits() -> None:
    """Not even a small one, which would fit beside the large one that waits."""
    limits = [DeclaredLimit("", RateLimit(input_tokens_per_minute=600), 0.0)]
    scope = LimiterState("one", charging_of("anthropic"), limits=limits)
    assert scope.admit_at_once(Permit(500.0, 10), 0.0)
    scope.queue.add(Permit(500.0, 10))
    assert isinstance(scope.admit(0.0), float)
    assert not scope.admit_at_once(Permit(1.0, 10), 0.0)


def test_a_call_does_not_pass_another_scope_in_the_line() -> None:
    """The next call of another scope waits for the shared limit: a small call of this scope waits behind it."""
    shared = DeclaredLimit("*", RateLimit(tokens_per_minute=600), 0.0)
    first, second = (LimiterState(name, charging_of("groq"), limits=[shared]) for name in ("first", "second"))
    assert first.admit_at_once(Permit(500.0, 0), 0.0)
    first.queue.add(Permit(500.0, 0))
    assert isinstance(first.admit(0.0), float)
    assert not second.admit_at_once(Permit(1.0, 0), 0.0)
    second.queue.add(Permit(1.0, 0))
    assert isinstance(second.admit(0.0), float)
