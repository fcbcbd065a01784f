"""The figures of traffic control, as an observer and OpenTelemetry get them."""

import math
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.statistics import BudgetStatistics, LimiterStatistics, RouteStatistics
from tests.support import charged, targets
from tests.support.limited import Limited, open_limited, provider
from tests.support.telemetry import Telemetry

QUESTION = ms.Request("openai/gpt-5", [ms.Message.user("hello")])


class Watcher(ms.Observer):
    """An observer that keeps the figures of all scopes, and the times at which it got them."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str, LimiterStatistics]] = []
        self.routes: list[tuple[float, str, RouteStatistics]] = []
        self.budgets: list[tuple[float, BudgetStatistics]] = []

    def limiter_changed(self, scope: str, statistics: LimiterStatistics) -> None:
        self.seen.append((trio.current_time(), scope, statistics))

    def route_changed(self, route: str, statistics: RouteStatistics) -> None:
        self.routes.append((trio.current_time(), route, statistics))

    def budget_changed(self, statistics: BudgetStatistics) -> None:
        self.budgets.append((trio.current_time(), statistics))


async def run_all(observer: ms.Observer, traffic: ms.Traffic | None, calls: int = 30) -> list[ms.Completion]:
    """Run calls at a server that holds 10 requests and allows one more per second."""
    server = Limited(per_minute=60, capacity=10)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=traffic, observer=observer) as e:
        started = [e.start_stream(QUESTION) for _ in range(calls)]
        completions = [await call.wait() for call in started]
        await trio.sleep(2)  # virtual time
    return completions


async def test_an_observer_gets_the_figures_of_a_scope_once_a_second(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    await run_all(watcher, ms.Traffic())
    assert {name for _, name, _ in watcher.seen} == {"openai/gpt-5"}
    times = [at for at, _, _ in watcher.seen]
    assert min(later - earlier for earlier, later in pairwise(times)) >= 1 - 1e-6
    assert any(figures.waiting > 5 and "requests" in figures.reported for _, _, figures in watcher.seen)
    last = watcher.seen[-1][2]
    assert (last.waiting, last.running, last.unconfirmed) == (0, 0, 0)
    assert last.sent == 30 + last.refused


async def test_without_traffic_no_scope_is_reported(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    await run_all(watcher, None, calls=3)
    assert (watcher.seen, watcher.routes, watcher.budgets) == ([], [], [])


def gaps(times: list[float]) -> float:
    """Return the shortest time between two notifications."""
    return min((later - earlier for earlier, later in pairwise(times)), default=1.0)


async def run_routed(observer: ms.Observer, calls: int = 20) -> None:
    """Run calls on a route whose first target fails, one every quarter of a second."""
    broken, good = targets.Server("broken", fault=targets.failing("503 Service Unavailable")), targets.Server("good")
    async with targets.open_targets(broken, good, observer=observer) as engine:
        for _ in range(calls):
            await engine.start_stream(targets.ask()).wait()
            await trio.sleep(0.25)
        await trio.sleep(2)


async def test_an_observer_gets_the_figures_of_a_route_once_a_second(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    await run_routed(watcher)
    assert {name for _, name, _ in watcher.routes} == {"fast"}
    assert gaps([at for at, _, _ in watcher.routes]) >= 1 - 1e-6
    assert len(watcher.routes) >= 5
    assert any(figures.targets[0].breaker == "open" for _, _, figures in watcher.routes)
    broken, good = watcher.routes[-1][2].targets
    assert (broken.target, broken.failures > 0.5) == ("broken/m", True)
    assert (good.target, good.outstanding, good.score is not None) == ("good/m", 0, True)


async def test_calls_that_wait_for_a_target_are_reported(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    server = targets.Server("only", fault=targets.failing("500 Broken"))
    retry = ms.Retry(max_attempts=8, base=0.01, cap=0.01)
    async with targets.open_targets(server, observer=watcher, retry=retry) as engine:
        calls = [engine.start_stream(targets.ask()) for _ in range(4)]
        for call in calls:
            await call.wait()
        await trio.sleep(2)
    assert max(figures.waiting for _, _, figures in watcher.routes) > 0
    assert watcher.routes[-1][2].waiting == 0


async def test_a_route_is_reported_when_a_call_begins_to_wait(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    server = targets.Server("only", fault=targets.failing("500 Broken"))
    async with targets.open_targets(server, observer=watcher, retry=ms.Retry(max_attempts=1)) as engine:
        for _ in range(20):
            await engine.start_stream(targets.ask()).wait()
            await trio.sleep(0.25)
        await trio.sleep(1.5)
        assert watcher.routes[-1][2].targets[0].breaker == "open"
        reports = len(watcher.routes)
        call = engine.start_stream(targets.ask())
        await trio.sleep(1.1)
        assert [figures.waiting for _, _, figures in watcher.routes[reports:]] == [1]
        call.cancel()


async def test_an_observer_gets_each_budget_once_a_second(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    server = charged.Charged(seconds=0.3)
    each, whole = ms.Budget(output_tokens=200, per="tenant"), ms.Budget(usd=1)
    async with charged.open_charged(server, each, whole, observer=watcher) as engine:
        calls = [engine.start_stream(charged.ask(tenant=name)) for name in ("alice", "bob") for _ in range(5)]
        for call in calls:
            await call.wait()
        await trio.sleep(2)
        final = engine.statistics().traffic.budgets
    by_account = {(id(seen.budget), seen.tenant): seen for _, seen in watcher.budgets}
    assert sorted(by_account.values(), key=repr) == sorted(final, key=repr), "the last figures are the latest"
    for name in ("alice", "bob"):
        mine = [(at, seen) for at, seen in watcher.budgets if seen.tenant == name]
        assert gaps([at for at, _ in mine]) >= 1 - 1e-6
        assert (mine[0][1].reserved.output_tokens, mine[0][1].waiting) == (200, 3)
        assert (mine[-1][1].spent.output_tokens, mine[-1][1].waiting) == (150, 0)


async def test_a_budget_is_reported_when_a_waiting_call_reserves(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    server = charged.Charged(seconds=30)
    each, whole = ms.Budget(output_tokens=1000, per="tenant"), ms.Budget(output_tokens=160)
    async with charged.open_charged(server, each, whole, observer=watcher) as engine:
        began = trio.current_time()
        calls = [engine.start_stream(charged.ask(tenant=name)) for name in ("alice", "bob")]
        for call in calls:
            assert (await call.wait()).success
    of_bob = [(round(at - began), seen) for at, seen in watcher.budgets if seen.tenant == "bob"]
    assert of_bob[0][0] in (30, 31)  # alice's call used less than it had reserved
    assert of_bob[0][1].reserved.output_tokens == 100


async def test_many_budgets_are_reported_in_several_ticks(autojump_clock: MockClock) -> None:
    watcher = Watcher()
    budget = ms.Budget(calls=10, per="tenant")
    async with charged.open_charged(charged.Charged(), budget, observer=watcher) as engine:
        calls = [engine.start_stream(charged.ask(tenant=str(number))) for number in range(200)]
        for call in calls:
            await call.wait()
        await trio.sleep(3)
    last = {seen.tenant: seen for _, seen in watcher.budgets}
    assert len(last) == 200
    assert {(seen.spent.calls, seen.reserved.calls) for seen in last.values()} == {(1, 0)}


async def test_an_observer_may_end_calls_when_it_is_notified(autojump_clock: MockClock) -> None:
    calls: list[ms.Call] = []

    class Canceller(Watcher):
        def route_changed(self, route: str, statistics: RouteStatistics) -> None:
            for call in calls:
                call.cancel()

        def budget_changed(self, statistics: BudgetStatistics) -> None:
            self.route_changed("", RouteStatistics())

    server = targets.Server("slow", seconds=60)
    async with targets.open_targets(server, observer=Canceller()) as engine:
        calls += [engine.start_stream(targets.ask()) for _ in range(3)]
        assert {(await call.wait()).error_category for call in calls} == {ms.ErrorCategory.CANCELLED}
        assert engine.statistics().traffic.routes["fast"].targets[0].outstanding == 0
    async with charged.open_charged(charged.Charged(seconds=60), ms.Budget(calls=9), observer=Canceller()) as engine:
        calls[:] = [engine.start_stream(charged.ask()) for _ in range(3)]
        assert {(await call.wait()).error_category for call in calls} == {ms.ErrorCategory.CANCELLED}
        assert charged.of(engine).reserved.calls == 0


async def test_metrics_have_the_figures_of_each_route(autojump_clock: MockClock) -> None:
    telemetry = Telemetry()
    await run_routed(telemetry.observer)
    metrics = telemetry.metrics()
    outstanding = {
        str(point.attributes["manystream.target"]): point for point in metrics["manystream.route.outstanding"]
    }
    assert {name: point.value for name, point in outstanding.items()} == {"broken/m": 0, "good/m": 0}
    assert outstanding["good/m"].attributes["manystream.route"] == "fast"
    [score] = [p for p in metrics["manystream.route.score"] if p.attributes["manystream.target"] == "good/m"]
    assert score.value > 0
    assert max(point.value for point in metrics["manystream.route.failures"]) > 0.5
    assert {point.value for point in metrics["manystream.route.open"]} <= {0, 1}
    assert [point.value for point in metrics["manystream.route.hedged"]] == [0]
    assert [point.value for point in metrics["manystream.route.waiting"]] == [0]


async def test_metrics_have_the_figures_of_each_budget(autojump_clock: MockClock) -> None:
    telemetry = Telemetry()
    per_tenant = ms.Budget(calls=5, per="tenant", every=3600)
    whole = ms.Budget(usd=lambda tenant: 7.0, output_tokens=lambda tenant: math.inf)
    async with charged.open_charged(charged.Charged(), per_tenant, whole, observer=telemetry.observer) as engine:
        for name in ("alice", "bob", "alice"):
            await engine.start_stream(charged.ask(tenant=name)).wait()
        await trio.sleep(2)
    metrics = telemetry.metrics()
    calls = {
        str(point.attributes["manystream.budget.tenant"]): point
        for point in metrics["manystream.budget.spent"]
        if point.attributes["manystream.budget.amount"] == "calls"
    }
    assert {name: point.value for name, point in calls.items()} == {"alice": 2, "bob": 1}
    assert calls["bob"].attributes["manystream.budget.every"] == 3600
    limits = {str(p.attributes["manystream.budget.amount"]): p.value for p in metrics["manystream.budget.limit"]}
    assert limits == {"calls": 5, "usd": 7}, "an amount without a limit has no such metric"
    assert {point.value for point in metrics["manystream.budget.reserved"]} == {0}
    assert "manystream.budget.waiting" in metrics


async def test_a_span_has_the_seconds_that_its_call_waited(autojump_clock: MockClock) -> None:
    telemetry = Telemetry()
    completions = await run_all(telemetry.observer, ms.Traffic())
    waited = [float((span.attributes or {}).get("manystream.waited.quota", 0)) for span in telemetry.spans]  # type: ignore[arg-type]
    assert sorted(waited) == pytest.approx(sorted(each.timings.waited.get("quota", 0.0) for each in completions))
    assert max(waited) > 10


async def test_metrics_have_the_figures_of_each_scope(autojump_clock: MockClock) -> None:
    telemetry = Telemetry()
    await run_all(telemetry.observer, ms.Traffic())
    metrics = telemetry.metrics()
    [sent] = metrics["manystream.traffic.sent"]
    assert sent.value >= 30
    assert dict(sent.attributes) == {"manystream.limiter": "openai/gpt-5"}
    [waiting] = metrics["manystream.traffic.waiting"]
    assert waiting.value == 0
    rates = {point.attributes["manystream.limit"]: point for point in metrics["manystream.traffic.limit.rate"]}
    assert rates["requests"].value == pytest.approx(1)
    assert rates["requests"].attributes["manystream.limit.source"] in ("reported", "learned")
    assert "manystream.traffic.limit.level" in metrics


async def test_the_scopes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manystream.otel_traffic.MOST_RECORDS", 3)
    telemetry = Telemetry()
    for number in range(10):
        telemetry.observer.limiter_changed(f"openai/{number}", LimiterStatistics(sent=number))
    points = telemetry.metrics()["manystream.traffic.sent"]
    assert [point.value for point in points] == [7, 8, 9]
