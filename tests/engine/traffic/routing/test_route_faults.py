"""What calls on a route leave behind at faults, and how often they try."""

import gc
from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.traffic.admission import Admission
from tests.support.peers import Recorder, answer, chat_chunk, open_peer, reply_once, stream_of
from tests.support.targets import Server, ask, failing, hangs, open_targets, path, provider

NAMES = ("one", "two", "three")

BROKEN = stream_of(chat_chunk("half"), end=False) + b"no chunk\r\n"
"""A stream that breaks after its first event."""


def shared(balance: str = "fastest") -> ms.Route:
    return ms.Route("fast", [f"{name}/m" for name in NAMES], balance=balance)  # type: ignore[arg-type]


def limits() -> dict[str, ms.RateLimit]:
    """One call a minute for each target, so that the fourth one waits in three queues."""
    return {name: ms.RateLimit(requests_per_minute=1) for name in NAMES}


def assert_nothing_is_left(engine: ms.Engine) -> None:
    traffic = engine.statistics().traffic
    assert {(scope.waiting, scope.running, scope.unconfirmed) for scope in traffic.limiters.values()} == {(0, 0, 0)}
    assert [target.outstanding for target in traffic.routes["fast"].targets] == [0, 0, 0]
    assert traffic.routes["fast"].waiting == 0


async def test_a_closed_engine_ends_calls_that_wait_at_several_targets(autojump_clock: MockClock) -> None:
    recorders = [Recorder() for _ in range(9)]
    async with open_targets(*map(Server, NAMES), route=shared(), rates=limits()) as engine:
        calls = [engine.start_stream(ask(), each.on_event, each.on_completion) for each in recorders]
        await trio.sleep(1)
        assert [scope.waiting for scope in engine.statistics().traffic.limiters.values()] == [6, 6, 6]
    assert [call.completion is not None and call.completion.success for call in calls] == [True] * 3 + [False] * 6
    assert {call.completion.error_category for call in calls[3:] if call.completion} == {ms.ErrorCategory.CANCELLED}
    assert [len(recorder.completions) for recorder in recorders] == [1] * 9
    assert_nothing_is_left(engine)


async def test_a_drained_engine_sends_the_calls_that_wait(autojump_clock: MockClock) -> None:
    async with open_targets(*map(Server, NAMES), route=shared(), rates=limits()) as engine:
        calls = [engine.start_stream(ask()) for _ in range(6)]
        assert not await engine.drain(10)
        assert await engine.drain(100)
        assert all(call.completion and call.completion.success for call in calls)
        assert_nothing_is_left(engine)


@pytest.mark.parametrize("balance", ["order", "weighted", "fastest"])
async def test_a_cancelled_call_leaves_all_queues_and_others_go_on(autojump_clock: MockClock, balance: str) -> None:
    async with open_targets(*map(Server, NAMES), route=shared(balance), rates=limits()) as engine:
        calls = [engine.start_stream(ask()) for _ in range(8)]
        await trio.sleep(1)
        for call in calls[3:6]:
            call.cancel()
        completions = [await call.wait() for call in calls]
        assert_nothing_is_left(engine)
    assert [completion.success for completion in completions] == [True] * 3 + [False] * 3 + [True] * 2


async def test_callbacks_cancel_and_start_calls_that_wait(autojump_clock: MockClock) -> None:
    started: list[ms.Call] = []

    def on_completion(completion: ms.Completion) -> None:
        if completion.success and len(started) < 12:
            for call in started[-2:]:
                call.cancel()
            started.append(engine.start_stream(ask(), None, on_completion))

    async with open_targets(*map(Server, NAMES), route=shared(), rates=limits()) as engine:
        started += [engine.start_stream(ask(), None, on_completion) for _ in range(7)]
        for call in started:
            await call.wait()
        assert_nothing_is_left(engine)


@pytest.mark.parametrize("clock", ["queue", "total"])
async def test_a_deadline_ends_the_wait_at_several_targets(autojump_clock: MockClock, clock: str) -> None:
    timeouts = ms.Timeouts(**{clock: 5})
    async with open_targets(*map(Server, NAMES), route=shared(), rates=limits()) as engine:
        completions = [await call.wait() for call in [engine.start_stream(ask(timeouts=timeouts)) for _ in range(5)]]
        assert_nothing_is_left(engine)
    for completion in completions[3:]:
        assert (completion.error.category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, clock)
        assert completion.timings.finished == pytest.approx(5, abs=0.1)
        assert completion.timings.waited["quota"] == pytest.approx(5, abs=0.1)
        assert completion.attempt_records == ()


async def test_a_session_is_forgotten_while_its_call_runs(autojump_clock: MockClock) -> None:
    async with open_targets(*(Server(name, 1.0) for name in NAMES), route=shared("sticky")) as engine:
        call = engine.start_stream(ask(session="s"))
        await trio.sleep(0.5)
        engine.end_session("s")
        assert (await call.wait()).success
        assert [target.sessions for target in engine.statistics().traffic.routes["fast"].targets] == [0, 0, 0]
        assert_nothing_is_left(engine)


async def test_parked_calls_go_on_after_a_probe_that_failed(autojump_clock: MockClock) -> None:
    down = failing("500 Broken")
    one = Server("one", fault=lambda server: down(server) if server.sent <= 7 else None)
    async with open_targets(one, retry=ms.Retry(max_attempts=1)) as engine:
        for _ in range(5):
            await engine.start_stream(ask()).wait()
        calls = [engine.start_stream(ask()) for _ in range(10)]
        await trio.sleep(60)
        completions = [call.completion for call in calls if call.completion is not None]
    assert [completion.success for completion in completions] == [False] * 2 + [True] * 8
    assert [round(completion.timings.finished or 0) for completion in completions[:3]] == [2, 4, 6]


async def test_targets_with_spent_daily_limits_are_not_asked(autojump_clock: MockClock) -> None:
    spent = failing("429 Too Many Requests", "Rate limit reached on requests per day (RPD): Limit 200, Used 200.")
    servers = [Server("one", fault=spent), Server("two", fault=spent)]
    async with open_targets(*servers, retry=ms.Retry(max_attempts=5, base=100, jitter=0)) as engine:
        began = trio.current_time()
        completion = await engine.start_stream(ask()).wait()
        assert trio.current_time() - began < 1
    assert [server.sent for server in servers] == [1, 1]
    assert path(completion) == [("one/m", "rate_limit"), ("two/m", "rate_limit")]
    assert not completion.error.retryable


async def test_attempts_count_in_later_rounds_too(autojump_clock: MockClock) -> None:
    servers = [Server(name, fault=failing("503 Service Unavailable")) for name in NAMES]
    async with open_targets(*servers, retry=ms.Retry(max_attempts=4, base=0.01)) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert [target for target, _ in path(completion)] == ["one/m", "two/m", "three/m", "one/m"]


async def test_a_target_that_is_too_late_is_asked_after_a_pause(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two", fault=failing("503 Service Unavailable"))
    route = ms.Route("fast", [ms.Target("one/m", timeouts=ms.Timeouts(queue=2)), "two/m"])
    rates = {"one": ms.RateLimit(requests_per_minute=1)}
    async with open_targets(one, two, route=route, rates=rates, retry=ms.Retry(base=40, cap=40, jitter=0)) as engine:
        calls = [engine.start_stream(ask()) for _ in range(3)]
        completions = [await call.wait() for call in calls]
    assert path(completions[2]) != []
    assert all(each.success or each.error_category is ms.ErrorCategory.SERVER for each in completions)
    assert one.sent >= 2


ROLE = (
    b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'
)


@pytest.mark.parametrize("lead", [b": keep-alive\n\n", ROLE], ids=["comment", "role"])
async def test_a_comment_or_a_role_is_no_first_event(autojump_clock: MockClock, lead: bytes) -> None:
    breaks = reply_once(stream_of(lead, end=False))
    two, recorder = Server("two"), Recorder()
    async with open_peer(breaks) as broken, open_peer(two.serve) as peer:
        providers = [provider(Server("one"), broken), provider(two, peer)]
        traffic = ms.Traffic(routes=[ms.Route("fast", ["one/m", "two/m"])])
        async with ms.open_engine(providers, traffic=traffic) as engine:
            completion = await engine.start_stream(ask(), recorder.on_event).wait()
    assert path(completion) == [("one/m", "network"), ("two/m", "ok")]
    assert (recorder.text, recorder.types.count("START")) == ("two", 1)


async def test_a_fallback_is_used_at_once_while_all_others_are_dead(autojump_clock: MockClock) -> None:
    servers = [Server("one", fault=hangs), Server("two", fault=hangs), Server("three")]
    quick = ms.Timeouts(first_byte=1)
    targets = [
        ms.Target("one/m", timeouts=quick),
        ms.Target("two/m", timeouts=quick),
        ms.Target("three/m", fallback=True),
    ]
    async with open_targets(*servers, route=ms.Route("fast", targets)) as engine:
        await trio.sleep(0)
        for call in [engine.start_stream(ask()) for _ in range(5)]:
            assert (await call.wait()).success
        completion = await engine.start_stream(ask()).wait()
    assert path(completion) == [("three/m", "ok")]


SESSIONS: dict[str, object] = {"a list": ["s"], "a number": 3, "empty": ""}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
@pytest.mark.parametrize("balance", ["order", "sticky"])
async def test_a_session_that_is_no_text_is_an_error(autojump_clock: MockClock, session: object, balance: str) -> None:
    async with open_targets(*map(Server, NAMES), route=shared(balance)) as engine:
        with pytest.raises(ms.InvalidRequestError, match="session: must be text that is not empty"):
            engine.start_stream(ask(session=session))
        assert engine.statistics().started == 0


NO_MODELS: dict[str, Callable[[], object]] = {
    "None": lambda: ask(None), "a list": lambda: ask(["fast"]), "no model": lambda: ask("one/"),
    "no request": lambda: "fast",
}  # fmt: skip


@pytest.mark.parametrize("make", NO_MODELS.values(), ids=NO_MODELS)
async def test_a_wrong_model_is_an_error_with_keys(autojump_clock: MockClock, make: Callable[[], object]) -> None:
    async with open_peer(Server("one").serve) as peer:
        one = provider(Server("one"), peer, api_key=["a", "b"])
        async with ms.open_engine([one], traffic=ms.Traffic()) as engine:
            with pytest.raises(ms.InvalidRequestError, match=r"^(model|request): "):
                engine.start_stream(make())  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["fast", "one/m"])
async def test_a_callback_may_cancel_a_call_that_is_overdue_too(autojump_clock: MockClock, model: str) -> None:
    calls: list[ms.Call] = []

    def cancel_all(completion: ms.Completion) -> None:
        for call in calls:
            call.cancel()

    rates = {"one": ms.RateLimit(requests_per_minute=1)}
    async with open_targets(Server("one"), rates=rates) as engine:
        assert (await engine.start_stream(ask(model)).wait()).success
        late = ask(model, timeouts=ms.Timeouts(queue=5))
        calls += [engine.start_stream(late, None, cancel_all) for _ in range(4)]
        categories = {(await call.wait()).error_category for call in calls}
    assert categories <= {ms.ErrorCategory.TIMEOUT, ms.ErrorCategory.CANCELLED}


async def test_a_target_that_breaks_every_stream_is_left_alone(autojump_clock: MockClock) -> None:
    one, two = Server("one", fault=lambda server: BROKEN), Server("two")
    async with open_targets(one, two) as engine:
        completions = []
        for _ in range(100):
            completions.append(await engine.start_stream(ask()).wait())
            await trio.sleep(0.1)
        assert engine.statistics().traffic.routes["fast"].targets[0].breaker != "closed"
        one.fault = None
        await trio.sleep(3)
        assert (await engine.start_stream(ask()).wait()).success
        assert engine.statistics().traffic.routes["fast"].targets[0].breaker == "closed"
    assert sum(not completion.success for completion in completions) <= 15  # five, and a probe every two seconds


async def test_an_ended_wait_is_freed_without_the_garbage_collector(autojump_clock: MockClock) -> None:
    servers = [Server(name) for name in NAMES]
    async with open_targets(*servers, route=shared(), rates=limits()) as engine:
        for _ in NAMES:
            assert (await engine.start_stream(ask()).wait()).success
        gc.collect()
        before = count(Admission)
        gc.disable()
        try:
            calls = [engine.start_stream(ask()) for _ in range(30)]
            assert count(Admission) == before + 30
            for call in calls:
                call.cancel()
                await call.wait()
            del calls, call
            assert count(Admission) == before
        finally:
            gc.enable()


def count(kind: type) -> int:
    return sum(type(each) is kind for each in gc.get_objects())


@pytest.mark.parametrize("hedge", [None, ms.Hedge(after=10)])
@pytest.mark.parametrize("stream", [True, False])
async def test_after_a_code_the_next_is_asked(autojump_clock: MockClock, stream: bool, hedge: ms.Hedge | None) -> None:
    coded = answer(b"x", headers="Content-Encoding: gzip\r\n")
    one, two = Server("one", fault=lambda server: coded), Server("two")
    route = ms.Route("fast", ["one/m", "two/m"], hedge=hedge)
    async with open_targets(one, two, route=route) as engine:
        call = engine.start_stream(ask()) if stream else engine.start_request(ask())
        completion = await call.wait()
    assert completion.response_or_raise().text == "two"
    assert path(completion) == [("one/m", "server"), ("two/m", "ok")]
