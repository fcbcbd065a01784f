"""Calls that wait in lines of any kind are notified one by one, and each completes once, whatever the others do."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

import manystream as ms
from manystream.engine.traffic.budgets.amounts import Amounts
from manystream.engine.traffic.queue.pump import Notification, Pump
from manystream.statistics import BudgetStatistics, LimiterStatistics, RouteStatistics, TrafficStatistics
from tests.engine.unit_runtime import Call, UnitRuntime
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Script,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    error_body,
    open_peer,
    stream_of,
)

# --- a pump by itself ---


class Row(Pump):
    """A line: its first call goes when the test says so. goes_at: the time at which to look again."""

    def __init__(self, runtime: UnitRuntime, *calls: Call, report: Callable[[float], bool] | None = None) -> None:
        self.calls = list(calls)
        self.goes_at = math.inf
        self.raises = False
        super().__init__(cast(Any, runtime))
        self._report = report

    def __repr__(self) -> str:
        return "<Row>"

    def take(self, now: float) -> Notification | float:
        if self.raises:
            raise RuntimeError("mine")
        if not self.calls:
            return self.goes_at
        call = self.calls.pop(0)
        return call, call.admitted

    def report_figures(self, now: float) -> bool:
        assert self._report is not None
        return self._report(now)


def test_figures_follow_a_change_by_a_tick_once_a_second() -> None:
    reported: list[float] = []
    more = [True, False, False, False]
    runtime = UnitRuntime()

    def report(now: float) -> bool:
        reported.append(now)
        return more.pop(0)

    pump = Row(runtime, report=report)
    runtime.loop.time = 7.0
    pump.note()
    pump.note()
    assert (runtime.timers.times, reported) == ([7.0], [])
    runtime.go_to(7.0)
    assert reported == [7.0, 7.0]  # it had more to report
    runtime.go_to(7.5)
    pump.note()
    pump.note()
    assert runtime.timers.times == [8.0]
    runtime.go_to(20.0)
    assert reported == [7.0, 7.0, 8.0]
    pump.note()
    assert runtime.timers.times == [20.0]


def test_64_calls_are_notified_in_a_tick() -> None:
    runtime, calls = UnitRuntime(), [Call() for _ in range(150)]
    row = Row(runtime, *calls)
    row.schedule()
    row.schedule()
    notified: list[int] = []
    while runtime.tick():
        notified.append(sum(call.reported == ["admitted"] for call in calls))
    assert notified == [64, 128, 150]


def test_a_call_that_raises_ends_alone() -> None:
    broken, whole = Call(raises="mine"), Call()
    Row(UnitRuntime(), broken, whole).run()
    assert (broken.reported, whole.reported) == (["admitted", "defect: mine"], ["admitted"])


def test_a_notified_call_may_empty_the_line_and_call_the_pump() -> None:
    runtime, gone, new = UnitRuntime(), Call(), Call()

    class Busy(Call):
        def admitted(self, permit: object = None, now: float = 0.0) -> None:
            row.calls[:] = [new]
            assert row.is_running
            row.run()
            assert new.reported == []  # it is the outer run that goes on

    row = Row(runtime, Busy(), gone)
    row.run()
    assert (gone.reported, new.reported, row.is_running) == ([], ["admitted"], False)


def test_the_timer_is_that_of_the_earliest_look() -> None:
    runtime = UnitRuntime()
    row = Row(runtime)
    times: list[list[float]] = []
    for row.goes_at in (math.inf, 5.0, 3.0, 9.0):
        row.run()
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
    row.run()
    assert [(each.name, each.levelno, each.getMessage()) for each in caplog.records] == [
        ("manystream.traffic", logging.ERROR, "<Row> raised: a defect in manystream")
    ]
    row.raises = False
    assert (call.reported, runtime.timers.times, row.is_running) == ([], [11.0], False)
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
MODELS = ["ordered", "spread", "quick", "sole", "one/m", "two/m", "keyed/m"]
CALLBACKS = ["nothing", "cancel the next", "cancel the last", "cancel all", "start another", "count"]
TIMES = [None, None, 0.5, 0.5, 2.0]
FAULTS = ["answer", "busy", "limited", "reset", "cut", "hang"]

STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from(MODELS),
            st.sampled_from(CALLBACKS),
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
"""Calls (model, what their callbacks do, timeouts `queue` and `total`, a number, how many) and what happens to them."""


@dataclass
class Started:
    """One call of the program."""

    call: ms.Call | None = None
    completions: list[ms.Completion] = field(default_factory=list[ms.Completion])


def faulty(faults: list[str]) -> Script:
    """Serve requests. faults: what the server does with the first ones."""

    async def script(line: Line) -> None:
        while request := await line.request():
            served = len(line.requests)
            fault = faults[served - 1] if served <= len(faults) else "answer"
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

    return script


class Program(ms.Observer):
    """A program whose functions call the engine.

    turns: what the program's functions do, in turn; "nothing" from then on. They are the price function, those of keys
        and of budgets, the one that dials, and the observer's methods.
    """

    def __init__(self, turns: list[str]) -> None:
        self.turns = turns
        self.started: list[Started] = []
        self.depth = 0
        self.engine: ms.Engine | None = None

    def start(self, model: str, callback: str, queue: float | None, total: float | None, number: int) -> None:
        assert self.engine is not None
        started = Started()

        def complete(completion: ms.Completion) -> None:
            started.completions.append(completion)
            self.act(callback, started)

        request = ms.Request(
            model,
            [ms.Message.user("hello")],
            max_output_tokens=100,
            tenant="ab"[number % 2],
            priority=list(ms.Priority)[number % 3].value,
            timeouts=ms.Timeouts(queue=queue, total=total),
        )
        try:
            if number == 5:
                started.call = self.engine.start_request(request, complete)
            elif number == 4:
                started.call = self.engine.start_stream(request, lambda event: self.act(callback, started), complete)
            else:
                started.call = self.engine.start_stream(request, None, complete)
        except ms.InvalidRequestError:
            return  # a function of the program raised
        self.started.append(started)

    def act(self, what: str, by: Started | None = None) -> None:
        calls = [each.call for each in self.started if each.call is not None]
        place = next((place for place, each in enumerate(self.started) if each is by), -1)
        if what == "cancel the next" and place + 1 < len(calls):
            calls[place + 1].cancel()
        elif what == "cancel the last" and calls:
            calls[-1].cancel()
        elif what == "cancel all":
            for call in calls:
                call.cancel()
        elif what == "start another" and len(calls) < 100 and self.depth < 3:
            self.depth += 1
            try:
                self.start("ordered", "cancel the last", None, 2.0, len(calls) % 6)
            finally:
                self.depth -= 1
        elif what == "count" and self.engine is not None:
            self.engine.statistics()
        elif what == "raise":
            raise ValueError("the program's own")

    def turn(self) -> None:
        """One of the program's functions is called."""
        if self.turns:
            self.act(self.turns.pop())

    def key(self) -> str:
        self.turn()
        return "k"

    def price(self, provider: ms.Provider, model: str, usage: ms.Usage) -> float:
        self.turn()
        return 1e-6 * ((usage.input_tokens or 0) + (usage.output_tokens or 0))

    def dollars(self, tenant: str | None) -> float:
        self.turn()
        return 1.0

    async def dial(self, host: str, port: int) -> trio.socket.SocketType:
        sock = trio.socket.socket()
        self.turn()
        await sock.connect((host, port))
        self.turn()
        return sock

    def call_started(self, call: ms.Call, start: object) -> None:
        self.turn()

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self.turn()

    def first_token(self, call: ms.Call) -> None:
        self.turn()

    def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
        self.turn()

    def connection_opened(self, origin: str) -> None:
        self.turn()

    def connection_closed(self, origin: str, served: int) -> None:
        self.turn()

    def limiter_changed(self, scope: str, statistics: LimiterStatistics) -> None:
        self.turn()

    def route_changed(self, route: str, statistics: RouteStatistics) -> None:
        self.turn()

    def budget_changed(self, statistics: BudgetStatistics) -> None:
        self.turn()


async def play(steps: list[tuple[Any, ...]], faults: list[str], turns: list[str] | None = None) -> None:
    """Run a program. turns: what its functions do; None: it has none."""
    program = Program(turns or [])
    budgets = [
        ms.Budget(calls=3, per="tenant", every=4),
        ms.Budget(output_tokens=250, every=3),
        ms.Budget(calls=60, usd=0.03),
    ]
    options: dict[str, Any] = {}
    if turns is not None:
        budgets.append(ms.Budget(usd=program.dollars, per="tenant", every=5))
        options = {"observer": program, "dial": program.dial}
    traffic = ms.Traffic(routes=ROUTES, rates=RATES, budgets=budgets, price=program.price)
    key: Any = "k" if turns is None else program.key
    async with open_peer(faulty(faults)) as peer:
        providers = [
            ms.OpenAIChat(key, peer.url, name="one", profile="openai-chat"),
            ms.OpenAIChat("k", peer.url, name="two", profile="openai-chat"),
            ms.OpenAIChat([key, "kl"], peer.url, name="keyed", profile="openai-chat"),
        ]
        retry, timeouts = ms.Retry(max_attempts=3, base=0.1, jitter=0), ms.Timeouts(first_byte=3)
        async with ms.open_engine(providers, traffic=traffic, retry=retry, timeouts=timeouts, **options) as engine:
            program.engine = engine
            for step in steps:
                if step[0] == "sleep":
                    await trio.sleep(step[1])
                elif step[0] == "cancel":
                    if program.started:
                        call = program.started[step[1] % len(program.started)].call
                        call.cancel()
                else:
                    for _ in range(step[-1]):
                        program.start(*step[:-1])
            with trio.fail_after(300):
                for started in program.started:  # it may grow meanwhile
                    await started.call.wait()
            left = engine.statistics().traffic
    assert all(b"uthorization: Bearer k" in request for request in peer.requests)
    for started in program.started:
        assert [started.call.completion] == started.completions
    assert {name: (each.waiting, each.running) for name, each in left.limiters.items()} == dict.fromkeys(
        left.limiters, (0, 0)
    )
    for route in left.routes.values():
        assert (route.waiting, [target.outstanding for target in route.targets]) == (0, [0] * len(route.targets))
    assert [(each.reserved, each.waiting) for each in left.budgets] == [(Amounts(), 0)] * len(left.budgets)


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
    assert [each for each in found if not each.startswith("the observer's ")] == []


@settings(derandomize=True, max_examples=30)
@given(STEPS, st.lists(st.sampled_from(FAULTS), max_size=30))
def test_every_call_completes_once_and_nothing_stays_reserved(steps: list[tuple[Any, ...]], faults: list[str]) -> None:
    with no_defects():
        trio.run(play, steps, faults, clock=MockClock(autojump_threshold=0))


TURNS = ["nothing", "nothing", "nothing", "cancel the last", "cancel all", "start another", "raise", "count"]


@settings(derandomize=True, max_examples=30)
@given(STEPS, st.lists(st.sampled_from(FAULTS), max_size=20), st.lists(st.sampled_from(TURNS), max_size=80))
def test_functions_of_the_program_end_calls(steps: list[tuple[Any, ...]], faults: list[str], turns: list[str]) -> None:
    with no_defects():
        trio.run(play, steps, faults, turns, clock=MockClock(autojump_threshold=0))


class Canceller(ms.Observer):
    """A program of which one function, at its turn, ends the call that it is asked for.

    name: the function's.
    turn: which of its calls ends the call, counted from 1.
    """

    def __init__(self, name: str, turn: int = 1) -> None:
        self.name = name
        self.turn = turn
        self.asked = 0
        self.call: ms.Call | None = None
        self.sent = 0
        self.answers = [b""]

    def on(self, name: str) -> None:
        if name == self.name:
            self.asked += 1
            if self.asked == self.turn:
                self.call.cancel()

    def key(self) -> str:
        self.on("key")
        return "k"

    def price(self, provider: ms.Provider, model: str, usage: ms.Usage) -> float:
        self.on("price")
        return 0.1

    def allowance(self, tenant: str | None) -> float:
        self.on("allowance")
        return 0.0 if self.name == "allowance" else 1.0

    async def dial(self, host: str, port: int) -> trio.socket.SocketType:
        sock = trio.socket.socket()
        await sock.connect((host, port))
        self.on("dial")
        return sock

    def call_started(self, call: ms.Call, start: object) -> None:
        self.call = call
        self.on("call_started")

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self.on("attempt_started")

    def connection_opened(self, origin: str) -> None:
        self.on("connection_opened")

    def connection_closed(self, origin: str, served: int) -> None:
        self.on("connection_closed")

    async def serve(self, line: Line) -> None:
        while await line.request():
            self.sent += 1
            if self.answers[0] == b"hang":
                await line.closed_by_peer()
                return
            if self.answers[0] == b"cut":
                del self.answers[0]
                return
            await line.send(self.answers.pop(0) if len(self.answers) > 1 else answer(chat_answer("fine")))


BUSY = answer(error_body("busy"), status="503 Service Unavailable")
STALE = answer(chat_answer("fine"), headers="Connection: close\r\n")

ENDS: dict[str, tuple[Canceller, list[bytes], int]] = {
    "the observer, at the start": (Canceller("call_started"), [b""], 0),
    "the observer, at an attempt": (Canceller("attempt_started"), [b""], 0),
    "the key function": (Canceller("key"), [b""], 0),
    "the dial function": (Canceller("dial"), [b""], 0),
    "the observer, at a new connection": (Canceller("connection_opened"), [b""], 0),
    "the observer, at a second attempt": (Canceller("attempt_started", 2), [BUSY, b""], 1),
    "the key function, for a second attempt": (Canceller("key", 2), [BUSY, b""], 1),
    "the price function, after an attempt": (Canceller("price", 2), [b"cut", b""], 1),
    "the observer, at a closed connection": (Canceller("connection_closed"), [STALE + BUSY, b""], 1),
    "the budget, before a refusal": (Canceller("allowance", 2), [b""], 0),
}
"""Who ends the call → the program, the answers before the last one, and the requests that are sent nevertheless."""


@pytest.mark.parametrize("who", ENDS)
@pytest.mark.parametrize("model", ["one/m", "route"])
def test_a_call_that_a_function_has_ended_is_not_sent(who: str, model: str) -> None:
    template, answers, sent = ENDS[who]
    program = Canceller(template.name, template.turn)
    program.answers = [*answers]

    async def main() -> tuple[list[ms.Completion], TrafficStatistics]:
        done: list[ms.Completion] = []
        traffic = ms.Traffic(
            routes=[ms.Route("route", ["one/m"])],
            budgets=[ms.Budget(usd=program.allowance, calls=9)],
            price=program.price,
        )
        retry = ms.Retry(base=0.1, jitter=0)
        async with open_peer(program.serve) as peer:
            one = ms.OpenAIChat(program.key, peer.url, name="one", profile="openai-chat")
            async with ms.open_engine(
                [one], traffic=traffic, retry=retry, observer=program, dial=program.dial
            ) as engine:
                request = ms.Request(model, "hello", max_output_tokens=10)
                call = engine.start_request(request, done.append)
                with trio.fail_after(60):
                    await call.wait()
                await trio.sleep(10)
                return done, engine.statistics().traffic

    with no_defects():
        done, left = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [completion.error_category for completion in done] == [ms.ErrorCategory.CANCELLED]
    assert program.sent == sent
    assert [(each.reserved, each.waiting) for each in left.budgets] == [(Amounts(), 0)]
    assert all((each.running, each.waiting) == (0, 0) for each in left.limiters.values())


@pytest.mark.parametrize("turn", [2, 3])
def test_a_price_that_ends_a_hedged_call_loses_nothing(turn: int) -> None:
    """The price of the second attempt is asked before it is sent, and that of the first one when it has lost."""
    program = Canceller("price", turn)
    program.answers = [b"hang"]
    slow = Canceller("nobody")
    slow.answers = [b"hang"] if turn == 2 else [b""]

    async def main() -> tuple[list[ms.Completion], TrafficStatistics]:
        done: list[ms.Completion] = []
        route = ms.Route("route", ["one/m", "two/m"], hedge=ms.Hedge(0.5, at_most=1))
        traffic = ms.Traffic(routes=[route], budgets=[ms.Budget(usd=1.0)], price=program.price)
        async with open_peer(program.serve) as peer, open_peer(slow.serve) as other:
            providers = [
                ms.OpenAIChat("k", each.url, name=name, profile="openai-chat")
                for name, each in (("one", peer), ("two", other))
            ]
            async with ms.open_engine(providers, traffic=traffic, observer=program) as engine:
                call = engine.start_request(ms.Request("route", "hello", max_output_tokens=10), done.append)
                with trio.fail_after(60):
                    await call.wait()
                await trio.sleep(10)
                return done, engine.statistics().traffic

    with no_defects():
        done, left = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [completion.error_category for completion in done] == [ms.ErrorCategory.CANCELLED]
    assert (program.sent, slow.sent) == (1, turn - 2)
    assert [(each.reserved, each.waiting) for each in left.budgets] == [(Amounts(), 0)]
    assert [target.outstanding for target in left.routes["route"].targets] == [0, 0]
    assert all((each.running, each.waiting) == (0, 0) for each in left.limiters.values())


def test_a_call_ended_by_a_discarded_connection_is_not_sent() -> None:
    program = Canceller("connection_closed")

    async def main() -> list[bool]:
        limits = ms.EngineLimits(pool=ms.PoolLimits(max_age=5))
        async with (
            open_peer(program.serve) as peer,
            ms.open_engine([ms.OpenAIChat("k", peer.url, name="one")], observer=program, limits=limits) as engine,
        ):
            outcomes: list[bool] = []
            for _ in range(3):
                outcomes.append((await engine.start_request(ms.Request("one/m", "hello")).wait()).success)
                await trio.sleep(6)
            assert engine.statistics().connections[peer.origin].waiting == 0
            return outcomes

    with no_defects():
        assert trio.run(main, clock=MockClock(autojump_threshold=0)) == [True, False, True]
    assert program.sent == 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("ending", ["answer", "cancel", "error"])
@pytest.mark.parametrize("function", ["price", "connection_closed"])
def test_a_call_whose_end_closes_the_engine_ends_once(function: str, ending: str, stream: bool) -> None:
    asked = trio.Event()

    async def serve(line: Line) -> None:
        while await line.request():
            if ending == "cancel":
                asked.set()
                await line.closed_by_peer()
                return
            if ending == "error":
                await line.send(answer(error_body("no"), status="400 No"))
            elif stream:
                await line.send(stream_of(*chat_stream("fine")))
            else:
                await line.send(answer(chat_answer("fine"), headers="Connection: close\r\n"))

    async def main() -> list[ms.Completion]:
        completions: list[ms.Completion] = []
        closes = ms.Observer()

        def close(*_: object) -> float:
            if call is not None:
                engine.close()
            return 0.1

        call: ms.Call | None = None
        if function == "connection_closed":
            closes.connection_closed = close  # type: ignore[method-assign, assignment]
        traffic = ms.Traffic(price=close if function == "price" else lambda *_: 0.1)
        async with (
            open_peer(serve) as peer,
            ms.open_engine([peer.chat], traffic=traffic, observer=closes, retry=ms.Retry(max_attempts=1)) as engine,
        ):
            request = ms.Request(f"{peer.chat.name}/m", "hello")
            if stream:
                call = engine.start_stream(request, None, completions.append)
            else:
                call = engine.start_request(request, completions.append)
            if ending == "cancel":
                await asked.wait()
                call.cancel()
            await call.wait()
        assert [call.completion] == completions
        return completions

    with no_defects():
        assert len(trio.run(main, clock=MockClock(autojump_threshold=0))) == 1
