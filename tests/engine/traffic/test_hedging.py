"""Hedging at the engine's level: calls whose first event is late run twice, from the user's side."""

import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.traffic.budgets.amounts import Amounts
from tests.support.charged import price
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    open_peer,
    stream_of,
)
from tests.support.targets import Server, ask, open_targets, path, provider

ROLE_ONLY = chat_chunk("")


QUICK = ms.Retry(base=0.01, jitter=0.0)


@dataclass
class Slow:
    """A server whose answers take the given seconds, in turn; the last one repeats.

    role: it sends an event without content at once.
    fault: the response of a failure, after the same time.
    """

    name: str
    seconds: tuple[float, ...] = (0.1,)
    role: bool = False
    fault: bytes | None = None
    sent: int = 0
    gone: int = 0
    running: int = 0
    bodies: list[bytes] = field(default_factory=list[bytes])

    async def serve(self, line: Line) -> None:
        while request := await line.request():
            seconds = self.seconds[min(self.sent, len(self.seconds) - 1)]
            self.sent += 1
            self.bodies.append(request)
            self.running += 1
            streamed = b'"stream":true' in request
            if streamed and self.role:
                await line.send(stream_of(ROLE_ONLY, end=False))
            with trio.move_on_after(seconds) as scope:
                await line.closed_by_peer()
            self.running -= 1
            if not scope.cancelled_caught:
                self.gone += 1
                return
            if self.fault is not None:
                await line.send(self.fault)
            elif not streamed:
                await line.send(answer(chat_answer(self.name)))
            else:
                await line.send("" if self.role else STREAM_HEAD)
                await line.send(chunked(*chat_stream(self.name, "!")))


@asynccontextmanager
async def open_hedged(
    *servers: Slow,
    hedge: ms.Hedge | None = None,
    targets: list[str | ms.Target] | None = None,
    balance: str = "order",
    traffic: Mapping[str, object] | None = None,
    **options: object,
) -> AsyncGenerator[ms.Engine, None]:
    """Open the servers, and an engine with a route that hedges every call after a second."""
    names = targets or [f"{server.name}/m" for server in servers]
    route = ms.Route("fast", names, balance=balance, hedge=hedge or ms.Hedge(1.0, at_most=1.0))  # type: ignore[arg-type]
    control = ms.Traffic(routes=[route], **(traffic or {}))  # type: ignore[arg-type]
    async with AsyncExitStack() as stack:
        providers = [
            provider(server, await stack.enter_async_context(open_peer(server.serve)))  # type: ignore[arg-type]
            for server in servers
        ]
        yield await stack.enter_async_context(ms.open_engine(providers, traffic=control, **options))  # type: ignore[arg-type]


def nothing_left(engine: ms.Engine) -> bool:
    """Whether no reservation, attempt or connection of a call is left."""
    statistics = engine.statistics()
    traffic = statistics.traffic
    targets = [target for route in traffic.routes.values() for target in route.targets]
    return (
        statistics.calls == {}
        and all(target.outstanding == 0 for target in targets)
        and all(scope.running == 0 and scope.waiting == 0 for scope in traffic.limiters.values())
        and all(budget.reserved == Amounts() and budget.waiting == 0 for budget in traffic.budgets)
        and all(origin.active == 0 and origin.waiting == 0 for origin in statistics.connections.values())
    )


@pytest.mark.parametrize("role", [False, True], ids=["silent", "role only"])
async def test_the_second_attempt_answers_where_the_first_is_late(autojump_clock: MockClock, role: bool) -> None:
    one, two, recorder = Slow("one", (20,), role=role), Slow("two", role=role), Recorder()
    async with open_hedged(one, two) as engine:
        call = engine.start_stream(ask(), recorder.on_event, recorder.on_completion)
        completion = await call.wait()
        await trio.sleep(0.1)
        assert nothing_left(engine)
        figures = engine.statistics().traffic.routes["fast"]
        providers = engine.statistics().providers
    assert (completion.success, recorder.text, call.target) == (True, "two!", "two/m")
    assert recorder.types.count("START") == 1
    assert (one.sent, one.gone, two.sent) == (1, 1, 1)  # the loser was cancelled at once
    assert completion.timings.finished == pytest.approx(1.1, abs=0.1)
    assert completion.attempts == 2
    assert figures.hedged == 1
    assert {name: each.completed for name, each in providers.items()} == {"one": 0, "two": 1}
    lost, won = completion.attempt_records
    assert [(each.target, each.outcome, each.hedged) for each in (lost, won)] == [
        ("one/m", "cancelled", True),
        ("two/m", "ok", True),
    ]
    assert lost.estimated
    assert lost.usage is not None
    assert (lost.usage.input_tokens or 0) > 0
    assert lost.usage.output_tokens == 0
    assert (lost.started, lost.ended) == (pytest.approx(0, abs=0.05), pytest.approx(1.1, abs=0.1))
    assert won.started == pytest.approx(1, abs=0.05)


async def test_the_first_attempt_wins_if_its_event_comes_first(autojump_clock: MockClock) -> None:
    one, two, recorder = Slow("one", (1.5,)), Slow("two", (20,)), Recorder()
    async with open_hedged(one, two) as engine:
        completion = await engine.start_stream(ask(), recorder.on_event, recorder.on_completion).wait()
        await trio.sleep(0.1)
        assert nothing_left(engine)
    assert recorder.text == "one!"
    assert (two.sent, two.gone) == (1, 1)
    assert [(each.target, each.outcome, each.hedged) for each in completion.attempt_records] == [
        ("two/m", "cancelled", True),
        ("one/m", "ok", True),
    ]


async def test_unstreamed_calls_are_hedged(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (20,)), Slow("two")
    async with open_hedged(one, two) as engine:
        completion = await engine.start_request(ask()).wait()
        await trio.sleep(0.1)
        assert nothing_left(engine)
    assert completion.response.text == "two"
    assert (one.gone, path(completion)) == (1, [("one/m", "cancelled"), ("two/m", "ok")])


async def test_a_call_in_time_is_sent_once(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (0.5,)), Slow("two")
    async with open_hedged(one, two) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert (two.sent, path(completion), completion.attempt_records[0].hedged) == (0, [("one/m", "ok")], False)


async def test_a_route_with_one_target_hedges_there(autojump_clock: MockClock) -> None:
    one = Slow("one", (20, 0.1))
    async with open_hedged(one) as engine:
        completion = await engine.start_stream(ask()).wait()
        await trio.sleep(0.1)
        assert nothing_left(engine)
    assert completion.success
    assert (one.sent, one.gone) == (2, 1)
    assert path(completion) == [("one/m", "cancelled"), ("one/m", "ok")]


async def test_a_fallback_gets_no_second_attempt(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (20, 0.1)), Slow("two")
    targets: list[str | ms.Target] = ["one/m", ms.Target("two/m", fallback=True)]
    async with open_hedged(one, two, targets=targets) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert (completion.success, one.sent, two.sent) == (True, 2, 0)


async def test_a_second_attempt_has_its_own_idempotency_key(autojump_clock: MockClock) -> None:
    one = Slow("one", (20, 0.1))
    async with open_peer(one.serve) as peer:
        own = provider(one, peer, idempotency_header="Idempotency-Key")  # type: ignore[arg-type]
        traffic = ms.Traffic(routes=[ms.Route("fast", ["one/m"], hedge=ms.Hedge(1.0, 1.0))])
        async with ms.open_engine([own], traffic=traffic) as engine:
            assert (await engine.start_stream(ask()).wait()).success
    keys = [line for body in one.bodies for line in body.split(b"\r\n") if line.startswith(b"Idempotency-Key")]
    assert len(set(keys)) == 2


async def test_a_session_does_not_move(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (0.1, 20, 0.1)), Slow("two", (0.1,))
    async with open_hedged(one, two, balance="sticky") as engine:
        first = await engine.start_stream(ask(session="s")).wait()
        home, other = (one, two) if path(first)[0][0] == "one/m" else (two, one)
        home.seconds, home.sent = (20, 0.1), 0
        other.seconds = (0.1,)
        late = await engine.start_stream(ask(session="s")).wait()
        after = await engine.start_stream(ask(session="s")).wait()
    assert path(late) == [(f"{home.name}/m", "cancelled"), (f"{other.name}/m", "ok")]
    assert path(after) == [(f"{home.name}/m", "ok")]


async def test_never_more_than_the_allowed_part_of_the_calls(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (5,)), Slow("two")
    async with open_hedged(one, two, hedge=ms.Hedge(1.0, at_most=0.05)) as engine:
        calls = [engine.start_stream(ask()) for _ in range(100)]
        for call in calls:
            assert (await call.wait()).success
        assert engine.statistics().traffic.routes["fast"].hedged <= 5
    assert 1 <= two.sent <= 5


async def test_the_percentile_is_learned(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (*[0.2] * 40, 20.0)), Slow("two")
    async with open_hedged(one, two, hedge=ms.Hedge(at_most=1.0)) as engine:
        for _ in range(40):
            await engine.start_stream(ask()).wait()
        late = await engine.start_stream(ask()).wait()
    assert late.timings.finished == pytest.approx(0.3, abs=0.1)


@pytest.mark.parametrize("full", ["quota", "budget"])
async def test_a_call_that_stays_late_gets_another_chance(autojump_clock: MockClock, full: str) -> None:
    one, two = Slow("one", (20,)), Slow("two", (2.5, 0.1))
    quota = {"rates": {"two": ms.RateLimit(concurrent=1)}}
    traffic = quota if full == "quota" else {"budgets": [ms.Budget(output_tokens=250)]}
    async with open_hedged(one, two, traffic=traffic) as engine:
        busy = engine.start_stream(ask("two/m", max_output_tokens=100))
        completion = await engine.start_stream(ask(max_output_tokens=100)).wait()
        assert (await busy.wait()).success
    assert completion.timings.finished == pytest.approx(4.1, abs=0.2)  # it looked after 1, 2 and 4 seconds
    assert path(completion) == [("one/m", "cancelled"), ("two/m", "ok")]


async def test_never_past_a_quota(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (3,)), Slow("two", (0.1,))
    rates = {"two": ms.RateLimit(requests_per_minute=1)}
    async with open_hedged(one, two, traffic={"rates": rates}) as engine:
        completions = [await engine.start_stream(ask()).wait() for _ in range(2)]
    assert two.sent == 1
    assert [each.success for each in completions] == [True, True]
    assert path(completions[1]) == [("one/m", "ok")]


async def test_never_past_a_budget(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (3,)), Slow("two", (0.1,))
    budget = ms.Budget(output_tokens=150)
    async with open_hedged(one, two, traffic={"budgets": [budget]}) as engine:
        completion = await engine.start_stream(ask(max_output_tokens=100)).wait()
        assert nothing_left(engine)
    assert (two.sent, completion.success) == (0, True)


async def test_both_attempts_are_paid(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (20,)), Slow("two", (0.1,))
    budget = ms.Budget(usd=1.0, calls=5)
    async with open_hedged(one, two, traffic={"budgets": [budget], "price": price}) as engine:
        completion = await engine.start_stream(ask(max_output_tokens=100)).wait()
        figures = engine.statistics().traffic.budgets[0]
        assert nothing_left(engine)
    tokens = [each.usage for each in completion.attempt_records]
    assert completion.cost == pytest.approx(
        sum((each.input_tokens or 0) * 1e-6 + (each.output_tokens or 0) * 1e-5 for each in tokens if each)
    )
    assert figures.spent.usd == completion.cost
    assert figures.spent.calls == 1
    assert ((tokens[0] is not None and tokens[0].input_tokens) or 0) > 0


async def test_the_second_attempt_goes_on_alone_where_the_first_fails(autojump_clock: MockClock) -> None:
    fault = answer(error_body("busy"), status="503 Service Unavailable")
    one, two, recorder = Slow("one", (1.5,), fault=fault), Slow("two", (3,)), Recorder()
    async with open_hedged(one, two, retry=QUICK) as engine:
        call = engine.start_stream(ask(), recorder.on_event, recorder.on_completion)
        completion = await call.wait()
        assert nothing_left(engine)
    assert (recorder.text, one.sent, two.sent) == ("two!", 1, 1)
    assert path(completion) == [("one/m", "server"), ("two/m", "ok")]
    assert completion.timings.finished == pytest.approx(4, abs=0.1)
    assert completion.timings.first_byte == pytest.approx(4, abs=0.1)


async def test_the_first_attempt_goes_on_alone_where_the_second_fails(autojump_clock: MockClock) -> None:
    fault = answer(error_body("busy"), status="503 Service Unavailable")
    one, two, recorder = Slow("one", (3,)), Slow("two", (0.1,), fault=fault), Recorder()
    async with open_hedged(one, two, retry=QUICK) as engine:
        completion = await engine.start_stream(ask(), recorder.on_event, recorder.on_completion).wait()
        assert nothing_left(engine)
    assert (recorder.text, one.sent, two.sent) == ("one!", 1, 1)
    assert path(completion) == [("two/m", "server"), ("one/m", "ok")]
    error = completion.attempt_records[0].error
    assert (error.provider, error.model) == ("two", "m")


async def test_both_attempts_failing_is_one_truthful_completion(autojump_clock: MockClock) -> None:
    one = Slow("one", (1.5,), fault=answer(error_body("first"), status="503 Service Unavailable"))
    two = Slow("two", (2,), fault=answer(error_body("second"), status="500 Internal Server Error"))
    recorder = Recorder()
    async with open_hedged(one, two, retry=ms.Retry(max_attempts=1)) as engine:
        completion = await engine.start_stream(ask(), recorder.on_event, recorder.on_completion).wait()
        assert nothing_left(engine)
    assert (completion.success, len(recorder.completions), recorder.types) == (False, 1, ["ERROR"])
    assert (completion.error.provider, completion.error.message, completion.error.http_status) == ("two", "second", 500)
    assert path(completion) == [("one/m", "server"), ("two/m", "server")]
    assert (one.sent, two.sent) == (1, 1)


async def test_a_requests_own_fault_ends_both(autojump_clock: MockClock) -> None:
    one = Slow("one", (1.5,), fault=answer(error_body("temperature"), status="400 Bad Request"))
    two = Slow("two", (20,))
    async with open_hedged(one, two) as engine:
        completion = await engine.start_stream(ask()).wait()
        await trio.sleep(0.1)
        assert nothing_left(engine)
    assert completion.error_category is ms.ErrorCategory.INVALID_ARG
    assert two.gone == 1
    assert path(completion) == [("one/m", "invalid_arg"), ("two/m", "cancelled")]


ENDINGS = ["cancel", "close", "total", "first byte", "callback", "observer"]


@pytest.mark.parametrize("ending", ENDINGS)
async def test_an_end_during_a_hedge_leaves_nothing(autojump_clock: MockClock, ending: str) -> None:
    class Ender(ms.Observer):
        def attempt_started(self, call: ms.Call, number: int) -> None:
            if ending == "observer" and number == 2:
                call.cancel()

    def on_event(event: ms.Event) -> None:
        if ending == "callback":
            raise RuntimeError("mine")

    one, two = Slow("one", (20,)), Slow("two", (30,) if ending != "callback" else (1,))
    timeouts = {"total": ms.Timeouts(total=2), "first byte": ms.Timeouts(first_byte=3)}.get(ending)
    budgets = {"budgets": [ms.Budget(output_tokens=1000)]}
    async with open_hedged(one, two, traffic=budgets, observer=Ender(), retry=ms.Retry(max_attempts=1)) as engine:
        call = engine.start_stream(ask(max_output_tokens=100, timeouts=timeouts), on_event)
        await trio.sleep(1.5)
        if ending == "cancel":
            call.cancel()
        if ending != "close":
            await call.wait()
            await trio.sleep(0.1)
            assert nothing_left(engine)
    completion = call.completion
    assert not completion.success
    assert (one.running, two.running) == (0, 0)
    if ending == "first byte":
        assert completion.error.provider_code == "first_byte"
        assert path(completion) == [("one/m", "timeout"), ("two/m", "timeout")]
        assert completion.timings.finished == pytest.approx(4, abs=0.1)


async def test_drain_waits_for_a_hedged_call(autojump_clock: MockClock) -> None:
    one, two = Slow("one", (20,)), Slow("two", (2,))
    async with open_hedged(one, two) as engine:
        call = engine.start_stream(ask())
        await trio.sleep(0.5)
        assert await engine.drain(60)
        assert call.completion.success


async def test_a_paused_call_is_not_hedged_and_pauses_both(autojump_clock: MockClock) -> None:
    one, two, recorder = Slow("one", (20,)), Slow("two", (2,)), Recorder()
    async with open_hedged(one, two) as engine:
        call = engine.start_stream(ask(), recorder.on_event)
        await trio.sleep(1.5)
        call.pause()
        await trio.sleep(5)
        assert (two.sent, recorder.events) == (1, [])
        call.resume()
        assert (await call.wait()).success
        paused = engine.start_stream(ask())
        paused.pause()
        await trio.sleep(3)
        assert two.sent == 1
        paused.resume()
        assert (await paused.wait()).success
        assert two.sent == 2


async def test_a_key_that_the_server_refuses_the_second_time(autojump_clock: MockClock) -> None:
    fault = answer(error_body("wrong key", code="invalid_api_key"), status="401 Unauthorized")
    one, two = Slow("one", (3,)), Slow("two", (0.1,), fault=fault)
    async with open_hedged(one, two) as engine:
        completion = await engine.start_stream(ask()).wait()
        assert nothing_left(engine)
    assert completion.success
    assert path(completion) == [("two/m", "auth"), ("one/m", "ok")]


async def test_a_limit_refuses_the_second_attempt(autojump_clock: MockClock) -> None:
    fault = answer(error_body("slow", code="rate_limit_exceeded"), status="429 Too Many Requests")
    one, two = Slow("one", (3,)), Slow("two", (0.1,), fault=fault)
    async with open_hedged(one, two) as engine:
        completion = await engine.start_stream(ask()).wait()
        assert nothing_left(engine)
    assert path(completion) == [("two/m", "rate_limit"), ("one/m", "ok")]


@pytest.mark.parametrize(
    ("after", "at_most"), [(0, 0.05), (-1, 0.05), (True, 0.05), ("p99", 0.05), (1, 0), (1, 1.5), (1, True), (1, "5%")]
)
async def test_wrong_options(after: object, at_most: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match=r"hedge\."):
        ms.Hedge(after, at_most)  # type: ignore[arg-type]
    with pytest.raises(ms.InvalidRequestError, match="hedge: must be a Hedge"):
        ms.Route("fast", ["one/m"], hedge=at_most or 7)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
async def test_random_faults_leave_nothing(autojump_clock: MockClock, seed: int) -> None:
    """Failures, breaks, cancelled calls in any order: one completion per call, and the events of one attempt only."""
    draw = random.Random(seed)

    class Random(Slow):
        async def serve(self, line: Line) -> None:
            fault = draw.random()
            self.seconds = (draw.choice([0.01, 0.5, 1.0, 1.1, 3.0]),)
            self.role = draw.random() < 0.3
            if fault < 0.15:
                await line.request()
                await trio.sleep(draw.random() * 3)
                await line.send(answer(error_body("busy"), status="503 Service Unavailable"))
            elif fault < 0.25:
                await line.request()
                await trio.sleep(draw.random() * 3)
                return
            elif fault < 0.35:
                await line.request()
                await line.send(stream_of(chat_chunk(self.name), end=False))
                await trio.sleep(draw.random() * 3)
                return
            elif fault < 0.45:
                await line.request()
                await trio.sleep(1)
                code = "rate_limit_exceeded"
                await line.send(answer(error_body("slow", code=code), status="429 Too Many Requests"))
            await super().serve(line)

    servers = [Random(name) for name in ("one", "two", "three")]
    budgets = [ms.Budget(output_tokens=4_000), ms.Budget(usd=1.0)]
    recorders: list[Recorder] = []
    async with open_hedged(
        *servers,
        balance=draw.choice(["order", "weighted", "fastest"]),
        traffic={"budgets": budgets, "price": price},
        retry=QUICK,
        timeouts=ms.Timeouts(first_byte=2.5, total=30),
    ) as engine:
        calls: list[ms.Call] = []
        for _ in range(60):
            recorder = Recorder()
            recorders.append(recorder)
            request = ask(max_output_tokens=50)
            calls.append(engine.start_stream(request, recorder.on_event, recorder.on_completion))
            if draw.random() < 0.3:
                await trio.sleep(draw.random())
                draw.choice(calls).cancel()
        completions = [await call.wait() for call in calls]
        await trio.sleep(0.1)
        assert nothing_left(engine)
    for recorder, completion in zip(recorders, completions, strict=True):
        assert len(recorder.completions) == 1
        assert recorder.types.count("START") <= 1
        assert recorder.text in {"", "one", "two", "three", "one!", "two!", "three!"}
        last = completion.attempt_records[-1:] if completion.success else ()
        assert all(record.outcome == "ok" for record in last)


HEDGED = ms.Route("fast", ["one/m", "two/m"], hedge=ms.Hedge(1.0, at_most=1.0))


def one_at_a_time(name: str) -> dict[str, ms.RateLimit]:
    return {name: ms.RateLimit(concurrent=1)}


async def test_an_attempt_that_is_too_late_gives_its_place_back(autojump_clock: MockClock) -> None:
    """The second attempt takes the only place of `two` from 1 s on. The first one answers after 3 s."""
    one, two = Server("one", seconds=3.0), Server("two", seconds=60.0)
    async with open_targets(one, two, route=HEDGED, rates=one_at_a_time("two/m")) as engine:
        began = trio.current_time()
        hedged = engine.start_stream(ask())
        await trio.sleep(2)
        waiting = engine.start_stream(ask("two/m"))
        assert path(await hedged.wait()) == [("two/m", "cancelled"), ("one/m", "ok")]
        await trio.sleep(0.5)
        assert [round(at - began, 3) for at in two.at] == [1.0, 3.0]
        waiting.cancel()


async def test_a_late_first_attempt_gives_its_place_back(autojump_clock: MockClock) -> None:
    """The first attempt takes the only place of `one`. The second one answers after 1.5 s."""
    one, two = Server("one", seconds=60.0), Server("two", seconds=0.5)
    async with open_targets(one, two, route=HEDGED, rates=one_at_a_time("one/m")) as engine:
        began = trio.current_time()
        hedged = engine.start_stream(ask())
        await trio.sleep(1)
        waiting = engine.start_stream(ask("one/m"))
        assert path(await hedged.wait()) == [("one/m", "cancelled"), ("two/m", "ok")]
        await trio.sleep(0.5)
        assert [round(at - began, 3) for at in one.at] == [0.0, 1.5]
        waiting.cancel()
