"""What would have happened: predictions are compared with runs against the product's simulator, in simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream import whatif
from manystream.simulator import open_simulator_thread
from tests.manystream.whatif.day import SCENARIOS, Work, limited, lines, traffic, works, written


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_prediction_is_what_happens(name: str, tmp_path: Path) -> None:
    day, before, after = SCENARIOS[name]
    path = tmp_path / "day.jsonl"
    recorded = day.run(before, path)
    happens = day.run(after)
    report = whatif.run(path, traffic=after)
    assert report.valid, report.reasons
    assert report.before.refused == recorded.refused
    for share, found in ((0.5, report.latency.p50), (0.95, report.latency.p95)):
        assert found == pytest.approx(happens.percentile(share), rel=0.03, abs=0.05)
    assert report.cost == pytest.approx(happens.cost, rel=0.01)
    assert report.refused == pytest.approx(happens.refused, rel=0.1, abs=2)
    assert report.failures == dict(happens.failed)


def test_the_run_as_recorded_gives_the_recording(day_file: Path) -> None:
    report = whatif.run(day_file, traffic=traffic(), as_recorded=True)
    assert report.valid
    assert report.latency == report.before.latency
    assert report.waited == pytest.approx(report.before.waited, rel=0.01)
    checked = whatif.run(day_file)
    assert (checked.valid, checked.cost) == (True, None)
    assert any("the cost is unknown" in note for note in checked.notes)


def test_a_raised_limit_raises_no_wait(day_file: Path) -> None:
    waits = [whatif.run(day_file, traffic=limited(limit)).waited for limit in (60, 90, 120, 180)]
    assert all(later <= earlier * 1.01 for earlier, later in pairwise(waits)), waits


@pytest.mark.parametrize("usd", [0.001, 0.02, 0.05])
def test_a_budget_is_never_overspent(usd: float, day_file: Path) -> None:
    report = whatif.run(day_file, traffic=traffic(budgets=[ms.Budget(usd=usd)]))
    assert (report.cost or 0.0) <= usd
    assert report.failed == report.failures["budget"] > 0


@pytest.mark.parametrize("dialect", ["openai-responses", "anthropic", "gemini", "gemini-interactions"])
@pytest.mark.parametrize("stream", [True, False])
def test_every_dialect_has_a_server(stream: bool, dialect: str, day_file: Path, tmp_path: Path) -> None:
    changed = lines(day_file)
    for line in changed:
        line |= {"dialect": dialect, "provider": f"my-{dialect}", "stream": stream, "requested": f"my-{dialect}/gpt-5"}
        line["response"]["headers"] = []
    usual = traffic(rates={f"my-{dialect}": ms.RateLimit(requests_per_minute=100)})
    report = whatif.run(written(tmp_path / "x.jsonl", changed), traffic=usual)
    assert report.valid, report.reasons
    assert report.failures == {}
    assert report.cost == pytest.approx(report.before.cost)
    assert report.waited > report.before.waited


# --- in real time ---


async def live_day(made: Sequence[Work], options: ms.Traffic, path: Path | None = None) -> list[float]:
    """Make the calls of a day in real time, and return their latencies."""
    latencies: list[float] = []

    async def one(engine: ms.Engine, number: int, work: Work) -> None:
        await trio.sleep(work.at)
        knobs = f"events={work.events},delay={work.delay:.4f},rate={work.rate:.3f}"
        prompt = f"{number} " + "x" * work.characters
        request = ms.Request("openai/gpt-5", prompt, max_output_tokens=200, extra_headers={"x-simulate": knobs})
        completion = await engine.start_stream(request).wait()
        assert completion.success
        latencies.append(completion.timings.finished or 0.0)

    with open_simulator_thread(limits=["requests-per-minute=100 bucket=1"]) as simulator:
        provider = ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="openai")
        async with ms.open_engine([provider], traffic=options) as engine:
            with engine.record(path, content=False) if path else nullcontext():
                async with trio.open_nursery() as nursery:
                    for number, work in enumerate(made):
                        nursery.start_soon(one, engine, number, work)
    return sorted(latencies)


@pytest.mark.soak
@pytest.mark.parametrize(("before", "after"), [(80.0, 50.0), (50.0, 80.0), (60.0, None)])
def test_a_prediction_is_what_happens_in_real_time(before: float, after: float | None, tmp_path: Path) -> None:
    made, path = works(60, 3.0), tmp_path / "day.jsonl"
    change = traffic() if after is None else limited(after)
    trio.run(live_day, made, limited(before), path)
    happens = trio.run(live_day, made, change)
    report = whatif.run(path, traffic=change)
    assert report.valid, report.reasons
    for share, found in ((0.5, report.latency.p50), (0.95, report.latency.p95)):
        assert found == pytest.approx(happens[int(len(happens) * share)], rel=0.03, abs=0.05)
