"""The figures of traffic control, as an observer and OpenTelemetry get them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
import trio.testing

import manystream as ms
from tests.support.telemetry import Telemetry

from .limited import Limited, open_limited, provider

pytestmark = pytest.mark.trio

QUESTION = ms.Request("openai/gpt-5", [ms.Message.user("hello")])


class Watcher(ms.Observer):
    """An observer that keeps the figures of all scopes, and the times at which it got them."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str, ms.ScopeStatistics]] = []

    def scope_changed(self, scope: str, statistics: ms.ScopeStatistics) -> None:
        self.seen.append((trio.current_time(), scope, statistics))


async def run_all(observer: ms.Observer, traffic: ms.Traffic | None, calls: int = 30) -> list[ms.Completion]:
    """Run calls at a server that holds 10 requests and allows one more per second."""
    server = Limited(per_minute=60, capacity=10)
    async with open_limited(server) as peer, ms.open_engine([provider(peer)], traffic=traffic, observer=observer) as e:
        started = [e.start_stream(QUESTION) for _ in range(calls)]
        completions = [await call.wait() for call in started]
        await trio.sleep(2)  # virtual time
    return completions


async def test_an_observer_gets_the_figures_of_a_scope_once_a_second(autojump_clock: trio.testing.MockClock) -> None:
    watcher = Watcher()
    await run_all(watcher, ms.Traffic())
    assert {name for _, name, _ in watcher.seen} == {"openai/gpt-5"}
    times = [at for at, _, _ in watcher.seen]
    assert min(later - earlier for earlier, later in pairwise(times)) >= 1 - 1e-6
    assert any(figures.waiting > 5 and "requests" in figures.reported for _, _, figures in watcher.seen)
    last = watcher.seen[-1][2]
    assert (last.waiting, last.running, last.unconfirmed) == (0, 0, 0)
    assert last.sent == 30 + last.refused


async def test_without_traffic_no_scope_is_reported(autojump_clock: trio.testing.MockClock) -> None:
    watcher = Watcher()
    await run_all(watcher, None, calls=3)
    assert watcher.seen == []


async def test_a_span_has_the_seconds_that_its_call_waited(autojump_clock: trio.testing.MockClock) -> None:
    telemetry = Telemetry()
    completions = await run_all(telemetry.observer, ms.Traffic())
    waited = [float((span.attributes or {}).get("manystream.waited.quota", 0)) for span in telemetry.spans]  # type: ignore[arg-type]
    assert sorted(waited) == pytest.approx(sorted(each.timings.waited.get("quota", 0.0) for each in completions))
    assert max(waited) > 10


async def test_metrics_have_the_figures_of_each_scope(autojump_clock: trio.testing.MockClock) -> None:
    telemetry = Telemetry()
    await run_all(telemetry.observer, ms.Traffic())
    metrics = telemetry.metrics()
    [sent] = metrics["manystream.traffic.sent"]
    assert sent.value >= 30
    assert dict(sent.attributes) == {"manystream.scope": "openai/gpt-5"}
    [waiting] = metrics["manystream.traffic.waiting"]
    assert waiting.value == 0
    rates = {point.attributes["manystream.limit"]: point for point in metrics["manystream.traffic.limit.rate"]}
    assert rates["requests"].value == pytest.approx(1)
    assert rates["requests"].attributes["manystream.limit.source"] in ("reported", "learned")
    assert "manystream.traffic.limit.level" in metrics


async def test_the_scopes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manystream.otel.MOST_SCOPES", 3)
    telemetry = Telemetry()
    for number in range(10):
        telemetry.observer.scope_changed(f"openai/{number}", ms.ScopeStatistics(sent=number))
    points = telemetry.metrics()["manystream.traffic.sent"]
    assert [point.value for point in points] == [7, 8, 9]
