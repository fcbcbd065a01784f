"""Calls with one beginning of their prompts: the servers of `benchmarks.prefixes`, and random workloads."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
import trio

import manystream as ms
from benchmarks.answers import Answer
from benchmarks.prefixes import COLD, MODEL, ROWS, WARM, ModelledServer, check, simulated
from manystream.simulator import HEADER
from manystream.simulator.knobs import Knobs
from manystream.simulator.prompt_caches import CacheModel
from manystream.simulator.service import ServiceSettings

RULES = "Rule of the house. " * 300
HANG = 20.0
"""Seconds after which a call gives up a server that does not respond."""

ONE_WRITE = 1.15 * 1450
"""What a write costs more than a read, in tokens."""

FAULTS = ("fail=500", "drop=1", "stall=0", "cut=1")


@dataclass(slots=True)
class Work:
    """One call. at: when it starts. prefix: its beginning; None: unmarked. fault: how its first attempt goes wrong.
    leaves: when its program cancels it."""

    at: float
    prefix: int | None
    priority: ms.Priority
    streamed: bool
    fault: str
    leaves: float | None


@dataclass(slots=True)
class Workload:
    """Calls and the server's caches. shared: prefix → how many calls have it."""

    caches: CacheModel
    works: list[Work]
    shared: dict[int | None, int] = field(default_factory=dict[int | None, int])


@dataclass(slots=True)
class Played:
    """What a workload cost, when it ended, and how each call ended."""

    cost: float
    end: float
    completions: list[ms.Completion]


def draw(seed: int) -> Workload:
    source = random.Random(seed)
    server = source.choices(("", "none"), (4, 1))[0]
    caches = CacheModel(
        server=server, machines=source.choice((1, 1, 2, 4)), lag=source.choice((0, 0.3, 2)), cold=COLD, warm=WARM,
        spread=0.25, seed=seed,
    )  # fmt: skip
    works: list[Work] = []
    for prefix in range(source.randint(1, 3)):
        start, over = source.uniform(0, 10), source.choice((0, 0, 5, 60))
        for _ in range(source.choice((1, 2, 5, 20, 60))):
            kind = source.random()
            works.append(
                Work(
                    start + source.uniform(0, over),
                    None if kind < 0.05 else 100 + len(works) if kind < 0.1 else prefix,
                    ms.Priority.INTERACTIVE if source.random() < 0.1 else ms.Priority.NORMAL,
                    source.random() < 0.8,
                    source.choice(FAULTS) if source.random() < 0.05 else "",
                    source.uniform(0, 10) if source.random() < 0.05 else None,
                )
            )
    workload = Workload(caches, sorted(works, key=lambda work: work.at))
    for work in works:
        workload.shared[work.prefix] = workload.shared.get(work.prefix, 0) + 1
    return workload


async def play(workload: Workload, warm: bool) -> Played:
    completions: list[ms.Completion | None] = [None] * len(workload.works)
    async with trio.open_nursery() as nursery:
        server = ModelledServer(nursery, ServiceSettings(knobs=Knobs(events=2), journal=0, caches=workload.caches))
        provider = ms.Anthropic("key", base_url="http://modelled.test")
        async with ms.open_engine([provider], dial=server.dial, traffic=ms.Traffic(warm=warm)) as engine:
            async with trio.open_nursery() as callers:
                for number, work in enumerate(workload.works):
                    callers.start_soon(_run, engine, number, work, completions)
            end = trio.current_time()
        nursery.cancel_scope.cancel()
    found = [completion for completion in completions if completion is not None]
    return Played(server.counts.cost, end, found)


async def _run(engine: ms.Engine, number: int, work: Work, completions: list[ms.Completion | None]) -> None:
    mark = None if work.prefix is None else ms.CacheControl()
    request = ms.Request(
        MODEL,
        [ms.Message.user(f"Task {number}")],
        system=[ms.Text(f"{work.prefix} {RULES}", cache_control=mark)],
        max_output_tokens=500,
        priority=work.priority,
        timeouts=ms.Timeouts(first_byte=HANG),
        extra_headers={HEADER: f"{work.fault},times=1,key={number}"} if work.fault else None,
    )
    await trio.sleep(work.at)
    start = engine.start_stream if work.streamed else engine.start_request
    call = start(request)
    with trio.move_on_after(float("inf") if work.leaves is None else work.leaves):
        completions[number] = await call.wait()
        return
    call.cancel()
    completions[number] = await call.wait()


def problems(seed: int) -> list[str]:
    """What is wrong with a workload under `warm`, beside the same without it."""
    workload = draw(seed)
    off, on = (simulated(play, workload, warm) for warm in (False, True))
    found: list[str] = []
    if len(on.completions) < len(workload.works):
        found.append("a call did not complete")
    for work, completion in zip(workload.works, on.completions, strict=False):
        if not completion.success and work.leaves is None:
            found.append(f"a call failed: {completion.error_message}")
        waited = completion.cache.waited if completion.cache else 0.0
        alone = workload.shared[work.prefix] == 1 or work.priority is ms.Priority.INTERACTIVE
        if waited and (alone or work.prefix is None):
            found.append(f"a call with a beginning of its own, or an interactive one, waited {waited:.1f} s: {work}")
    faults = {work.fault for work in workload.works}
    again = HANG if "stall=0" in faults else 1.0 + 1.25 * COLD if faults != {""} else 0.0  # at the end instead of early
    later = 1.25 * (COLD + 5 * WARM) + workload.caches.lag + again
    if on.end > off.end + later:
        found.append(f"it ended at {on.end:.1f} s instead of {off.end:.1f} s")
    if on.cost > off.cost + 2 * (workload.caches.machines - 1) * ONE_WRITE:  # another order meets other machines
        found.append(f"it cost {on.cost:.0f} instead of {off.cost:.0f}")
    return found


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.caches.machines == 1])
def test_a_fan_out_is_within_its_bounds(name: str) -> None:
    result = Answer(name)
    check(result, name, replace(ROWS[name], calls=min(80, ROWS[name].calls)))
    assert not [(row.what, row.value, row.target) for row in result.rows if row.met is False]


@pytest.mark.parametrize("seed", range(12))
def test_random_workloads_are_not_dearer_and_end_in_time(seed: int) -> None:
    assert not problems(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(12, 500))
def test_more_random_workloads(seed: int) -> None:
    assert not problems(seed)
