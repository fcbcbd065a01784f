"""Calls that wait in lines of any kind are notified one by one, and each completes once, whatever the others do."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, cast

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.engine.traffic.budgets.amounts import Amounts
from manystream.engine.traffic.pump import Pump
from tests.engine.unit_runtime import Call, UnitRuntime
from tests.support.peers import STREAM_HEAD, Line, answer, chat_answer, chat_stream, chunked, error_body, open_peer

# --- a pump by itself ---


class Row:
    """A line: its first call goes when the test says so. goes_at: when `next_time` says so."""

    def __init__(self, runtime: UnitRuntime, *calls: Call) -> None:
        self.calls = list(calls)
        self.goes_at = math.inf
        self.raises = False
        self.pump: Pump[Call] = Pump(self, cast(Any, runtime))

    def __repr__(self) -> str:
        return "<Row>"

    def take(self, now: float) -> tuple[Call, Callable[[Call], object]] | None:
        if self.raises:
            raise RuntimeError("mine")
        return (self.calls.pop(0), methodcaller("admitted")) if self.calls else None

    def next_time(self, now: float) -> float:
        return self.goes_at


def test_64_calls_are_notified_in_a_tick() -> None:
    runtime, calls = UnitRuntime(), [Call() for _ in range(150)]
    row = Row(runtime, *calls)
    row.pump.schedule()
    row.pump.schedule()
    notified: list[int] = []
    while runtime.tick():
        notified.append(sum(call.reported == ["admitted"] for call in calls))
    assert notified == [64, 128, 150]


def test_a_call_that_raises_ends_alone() -> None:
    broken, whole = Call(raises="mine"), Call()
    Row(UnitRuntime(), broken, whole).pump.run()
    assert (broken.reported, whole.reported) == (["admitted", "defect: mine"], ["admitted"])


def test_a_notified_call_may_empty_the_line_and_call_the_pump() -> None:
    runtime, gone, new = UnitRuntime(), Call(), Call()

    class Busy(Call):
        def admitted(self) -> None:
            row.calls[:] = [new]
            assert row.pump.is_running
            row.pump.run()
            assert new.reported == []  # it is the outer run that goes on

    row = Row(runtime, Busy(), gone)
    row.pump.run()
    assert (gone.reported, new.reported, row.pump.is_running) == ([], ["admitted"], False)


def test_the_timer_is_that_of_the_earliest_look() -> None:
    runtime = UnitRuntime()
    row = Row(runtime)
    times: list[list[float]] = []
    for row.goes_at in (math.inf, 5.0, 3.0, 9.0):
        row.pump.run()
        times.append(runtime.timers.times)
    assert times == [[], [5.0], [3.0], [3.0]]
    row.calls.append(call := Call())
    runtime.go_to(3.0)
    assert (call.reported, runtime.timers.times) == (["admitted"], [9.0])


def test_a_line_that_raised_is_looked_at_again_after_a_second(caplog: pytest.LogCaptureFixture) -> None:
    runtime, call = UnitRuntime(), Call()
    row = Row(runtime, call)
    runtime.loop.time = 10.0
    row.raises = True
    row.pump.run()
    assert [(each.name, each.levelno, each.getMessage()) for each in caplog.records] == [
        ("manystream.traffic", logging.ERROR, "<Row> raised: a defect in manystream")
    ]
    row.raises = False
    assert (call.reported, runtime.timers.times, row.pump.is_running) == ([], [11.0], False)
    runtime.go_to(11.0)
    assert call.reported == ["admitted"]


# --- all kinds of lines at once ---

ROUTES = [
    ms.Route("ordered", ["one/m", ms.Target("two/m", timeouts=ms.Timeouts(queue=1.5, first_byte=2))]),
    ms.Route("spread", ["one/m", "two/m"], balance="weighted"),
    ms.Route("quick", ["one/m", "two/m"], balance="fastest", hedge=ms.Hedge(1.0, at_most=0.5)),
    ms.Route("sole", ["two/m"]),
]
RATES = {
    "*": ms.RateLimit(concurrent=4),
    "one": ms.RateLimit(requests_per_second=1),
    "keyed": ms.RateLimit(requests_per_minute=30, concurrent=1),
}
BUDGETS = [
    ms.Budget(calls=3, per="tenant", every=4),
    ms.Budget(output_tokens=250, every=3),
    ms.Budget(calls=60),
]
MODELS = ["ordered", "spread", "quick", "sole", "one/m", "two/m", "keyed/m"]
REACTIONS = ["nothing", "cancel the next", "cancel the last", "cancel all", "start another", "count"]
TIMES = [None, None, 0.5, 0.5, 2.0]
FAULTS = ["answer", "busy", "limited", "reset", "cut", "hang"]

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(MODELS),
            st.sampled_from(REACTIONS),
            st.sampled_from(TIMES),
            st.sampled_from(TIMES),
            st.integers(0, 5),
            st.sampled_from([1, 1, 3, 6]),
        ),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("sleep"), st.sampled_from([0.0, 0.0, 0.3, 0.5, 1.0, 2.0, 4.0])),
    ),
    min_size=5,
    max_size=30,
)


@dataclass
class World:
    """The calls of one run. faults: what the servers do with the first requests."""

    faults: list[str]
    calls: list[ms.Call] = field(default_factory=list[ms.Call])
    completions: list[list[ms.Completion]] = field(default_factory=list[list[ms.Completion]])
    served: int = 0

    async def serve(self, line: Line) -> None:
        while request := await line.request():
            fault = self.faults[self.served] if self.served < len(self.faults) else "answer"
            self.served += 1
            if fault == "busy":
                await line.send(answer(error_body("busy"), status="503 Service Unavailable"))
            elif fault == "limited":
                await line.send(answer(error_body("slow", code="rate_limit_exceeded"), status="429 Too Many Requests"))
            elif fault == "reset":
                line.reset()
                return
            elif fault == "hang":
                await line.closed_by_peer()
                return
            elif b'"stream":true' not in request:
                await trio.sleep(0.4)
                await line.send(answer(chat_answer("fine")))
            else:
                await line.send(STREAM_HEAD)
                await trio.sleep(0.3)
                await line.send(chunked(*chat_stream("fine", "fine")[: 1 if fault == "cut" else 4], end=fault != "cut"))
                if fault == "cut":
                    return

    def start(
        self, engine: ms.Engine, model: str, reaction: str, queue: float | None, total: float | None, number: int
    ) -> None:
        done: list[ms.Completion] = []
        place = len(self.calls)

        def react(of: object) -> None:
            if reaction == "cancel the next" and place + 1 < len(self.calls):
                self.calls[place + 1].cancel()
            elif reaction == "cancel the last":
                self.calls[-1].cancel()
            elif reaction == "cancel all":
                for call in self.calls:
                    call.cancel()
            elif reaction == "start another" and len(self.calls) < 100:
                self.start(engine, model, "cancel the last", queue, total, number)
            elif reaction == "count":
                engine.statistics()

        def complete(completion: ms.Completion) -> None:
            done.append(completion)
            react(completion)

        request = ms.Request(
            model,
            [ms.Message.user("hello")],
            max_output_tokens=100,
            tenant="ab"[number % 2],
            priority=list(ms.Priority)[number % 3].value,
            timeouts=ms.Timeouts(queue=queue, total=total),
        )
        start = engine.start_request if number == 5 else engine.start_stream
        self.completions.append(done)
        if number == 4:
            self.calls.append(engine.start_stream(request, react, complete))
        else:
            self.calls.append(start(request, on_completion=complete))


async def play(steps: list[tuple[Any, ...]], faults: list[str]) -> None:
    world = World(faults)
    retry = ms.Retry(max_attempts=3, base=0.1, jitter=0)
    timeouts = ms.Timeouts(first_byte=3)
    traffic = ms.Traffic(routes=ROUTES, rates=RATES, budgets=BUDGETS)
    async with open_peer(world.serve) as peer:
        providers = [
            *(ms.OpenAIChat("k", peer.url, name=name, profile="openai-chat") for name in ("one", "two")),
            ms.OpenAIChat(["k", "l"], peer.url, name="keyed", profile="openai-chat"),
        ]
        async with ms.open_engine(providers, traffic=traffic, retry=retry, timeouts=timeouts) as engine:
            for step in steps:
                if step[0] == "sleep":
                    await trio.sleep(step[1])
                elif step[0] == "cancel":
                    if world.calls:
                        world.calls[step[1] % len(world.calls)].cancel()
                else:
                    for _ in range(step[-1]):
                        world.start(engine, *step[:-1])
            with trio.fail_after(300):
                for call in world.calls:  # it may grow meanwhile
                    await call.wait()
            traffic_left = engine.statistics().traffic
    assert [len(done) for done in world.completions] == [1] * len(world.calls)
    for call, done in zip(world.calls, world.completions, strict=True):
        assert call.completion is done[0]
    assert {name: (each.waiting, each.running) for name, each in traffic_left.scopes.items()} == dict.fromkeys(
        traffic_left.scopes, (0, 0)
    )
    for route in traffic_left.routes.values():
        assert (route.waiting, [target.outstanding for target in route.targets]) == (0, [0] * len(route.targets))
    assert [(each.reserved, each.waiting) for each in traffic_left.budgets] == [(Amounts(), 0)] * len(
        traffic_left.budgets
    )


@contextmanager
def no_defects() -> Iterator[None]:
    """Fail if a defect of the library is logged."""
    found: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("manystream")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert found == []


@settings(derandomize=True, max_examples=60)
@given(STEPS, st.lists(st.sampled_from(FAULTS), max_size=30))
def test_every_call_completes_once_and_nothing_stays_reserved(steps: list[tuple[Any, ...]], faults: list[str]) -> None:
    with no_defects():
        trio.run(play, steps, faults, clock=trio.testing.MockClock(autojump_threshold=0))
