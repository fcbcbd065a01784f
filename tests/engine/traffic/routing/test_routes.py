"""Routes at the engine's level: calls to several targets, from the user's side."""

from __future__ import annotations

import logging
import random

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import Recorder, answer, error_body, reply_once, stream_of
from tests.support.targets import HANG, Server, ask, failing, hangs, open_targets, path

QUICK = ms.Retry(base=0.01, jitter=0.0)


async def run(engine: ms.Engine, count: int, interval: float, request: ms.Request) -> list[ms.Completion]:
    """Start a call every `interval` seconds."""
    calls: list[ms.Call] = []
    for _ in range(count):
        calls.append(engine.start_stream(request))
        await trio.sleep(interval)
    return [await call.wait() for call in calls]


def within(completions: list[ms.Completion], seconds: float) -> float:
    """The part of the calls that were answered in this time."""
    good = [each for each in completions if each.success and (each.timings.finished or 0) <= seconds]
    return len(good) / len(completions)


async def test_a_route_is_a_model_name_of_its_own(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    recorder = Recorder()
    async with open_targets(one, two) as engine:
        call = engine.start_stream(ask(), recorder.on_event, recorder.on_completion)
        completion = await call.wait()
        assert (await engine.request(ask())).text == "one"
        direct = await engine.start_stream(ask("two/other")).wait()
        statistics = engine.statistics()
    assert (call.target, recorder.text, completion.attempts) == ("one/m", "one", 1)
    assert path(completion) == [("one/m", "ok")]
    assert completion.attempt_records[0].ended == pytest.approx(0.05, abs=0.02)
    assert path(direct) == [("two/other", "ok")]
    assert (one.sent, two.sent) == (2, 1)
    assert b'"model":"m"' in one.requests[0]
    assert statistics.traffic.routes["fast"].targets[0].target == "one/m"
    assert {name: each.completed for name, each in statistics.providers.items()} == {"one": 2, "two": 1}


async def test_a_failure_moves_the_call_to_the_next_target(autojump_clock: MockClock) -> None:
    one, two = Server("one", fault=failing("503 Service Unavailable")), Server("two")
    recorder = Recorder()
    async with open_targets(one, two) as engine:
        call = engine.start_stream(ask(), recorder.on_event, recorder.on_completion)
        completion = await call.wait()
        providers = engine.statistics().providers
    assert (completion.success, recorder.text, call.target) == (True, "two", "two/m")
    assert recorder.types.count("START") == 1
    assert path(completion) == [("one/m", "server"), ("two/m", "ok")]
    error = completion.attempt_records[0].error
    assert (error.provider, error.model) == ("one", "m")
    assert completion.timings.finished == pytest.approx(0.05, abs=0.03)  # no pause between two targets
    assert (providers["one"].running, providers["one"].completed) == (0, 0)
    assert (providers["two"].running, providers["two"].completed) == (0, 1)


MOVING = {
    "500": ("500 Internal Server Error", "oops", None),
    "520": ("520 Unknown", "oops", None),
    "a full flex tier": ("498 Capacity Exceeded", "full", None),
    "a timeout of the server": ("504 Gateway Timeout", "late", None),
    "a wrong key": ("401 Unauthorized", "Incorrect API key provided", "invalid_api_key"),
    "no permission": ("403 Forbidden", "no", None),
    "an unknown model": ("404 Not Found", "no such model", "model_not_found"),
    "a spent quota": ("429 Too Many Requests", "You exceeded your current quota", "insufficient_quota"),
    "a rate limit": ("429 Too Many Requests", "slow down", "rate_limit_exceeded"),
}


@pytest.mark.parametrize("fault", MOVING.values(), ids=MOVING)
async def test_which_failures_move_on(autojump_clock: MockClock, fault: tuple[str, str, str | None]) -> None:
    one, two = Server("one", fault=failing(*fault)), Server("two")
    async with open_targets(one, two, retry=ms.Retry(max_attempts=1)) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert completion.success
    assert [target for target, _ in path(completion)] == ["one/m", "two/m"]


STAYING = {
    "a wrong argument": ("400 Bad Request", "temperature is wrong", "invalid_value"),
    "an unprocessable request": ("422 Unprocessable Entity", "field required", None),
    "a content filter": ("400 Bad Request", "filtered", "content_filter"),
    "a long prompt": ("400 Bad Request", "maximum context length is 10 tokens", "context_length_exceeded"),
}


@pytest.mark.parametrize("fault", STAYING.values(), ids=STAYING)
async def test_a_requests_own_fault_never_moves(autojump_clock: MockClock, fault: tuple[str, str, str | None]) -> None:
    one, two = Server("one", fault=failing(*fault)), Server("two")
    async with open_targets(one, two) as engine:
        completions = [await engine.start_stream(ask()).wait() for _ in range(7)]
        figures = engine.statistics().traffic.routes["fast"].targets[0]
    assert (one.sent, two.sent) == (7, 0)
    assert not any(completion.success for completion in completions)
    assert (figures.breaker, figures.failures, figures.outstanding) == ("closed", 0.0, 0)


@pytest.mark.parametrize("name", ["content_filter", "context_overflow"])
async def test_failover_on_adds_errors(autojump_clock: MockClock, name: str) -> None:
    fault = STAYING["a content filter" if name == "content_filter" else "a long prompt"]
    one, two = Server("one", fault=failing(*fault)), Server("two")
    route = ms.Route("fast", ["one/m", "two/m"], failover_on=[name])  # type: ignore[list-item]
    async with open_targets(one, two, route=route) as engine:
        completion = await engine.start_stream(ask()).wait()
    assert completion.success
    assert (one.sent, two.sent) == (1, 1)


async def test_nothing_is_stitched_after_the_first_event(autojump_clock: MockClock) -> None:
    from tests.support.peers import chat_chunk, open_peer

    breaks = reply_once(stream_of(chat_chunk("half"), end=False))
    two, recorder = Server("two"), Recorder()
    async with open_peer(breaks) as broken, open_peer(two.serve) as peer:
        providers = [
            ms.OpenAIChat("k", broken.url, name="one", profile="openai-chat"),
            ms.OpenAIChat("k", peer.url, name="two", profile="openai-chat"),
        ]
        traffic = ms.Traffic(routes=[ms.Route("fast", ["one/m", "two/m"])])
        async with ms.open_engine(providers, traffic=traffic) as engine:
            completion = await engine.start_stream(ask(), recorder.on_event).wait()
    assert (completion.success, recorder.text, two.sent) == (False, "half", 0)
    assert path(completion) == [("one/m", "network")]


async def test_after_all_targets_the_call_pauses_and_begins_again(autojump_clock: MockClock) -> None:
    one = Server("one", fault=lambda server: failing("503 Service Unavailable")(server) if server.sent < 2 else None)
    two = Server("two", fault=failing("401 Unauthorized"))
    async with open_targets(one, two, retry=QUICK) as engine:
        completion = await engine.start_stream(ask()).wait()
    # The second target refuses the key, and the first one may still come back.
    assert path(completion) == [("one/m", "server"), ("two/m", "auth"), ("one/m", "ok")]
    assert completion.attempts == 3


async def test_attempts_count_over_the_whole_journey(autojump_clock: MockClock) -> None:
    servers = [Server(name, fault=failing("503 Service Unavailable")) for name in ("one", "two", "three")]
    async with open_targets(*servers, retry=ms.Retry(max_attempts=2, base=0.01)) as engine:
        completion = await engine.start_stream(ask()).wait()
    # Each healthy target gets one attempt, whatever the number; there is no further one.
    assert [server.sent for server in servers] == [1, 1, 1]
    assert (completion.attempts, completion.error_category) == (3, ms.ErrorCategory.SERVER)
    assert len(completion.attempt_records) == 3


# --- what a target is sent ---


async def test_a_targets_options_are_laid_over_the_request(autojump_clock: MockClock) -> None:
    one, two = Server("one", fault=hangs), Server("two")
    first = ms.Target("one/m", timeouts=ms.Timeouts(first_byte=2), temperature=0.5)
    second = ms.Target("two/m", max_output_tokens=7, extra_body={"b": 2}, extra_headers={"x-target": "two"})
    route = ms.Route("fast", [first, second])
    request = ask(extra_body={"a": 1}, timeouts=ms.Timeouts(total=30), temperature=0.25, extra_headers={"x-trace": "t"})
    async with open_targets(one, two, route=route) as engine:
        completion = await engine.start_stream(request).wait()
    assert path(completion) == [("one/m", "timeout"), ("two/m", "ok")]
    assert completion.timings.finished == pytest.approx(2.05, abs=0.05)
    assert b'"temperature":0.5' in one.requests[0]
    for part in ('"temperature":0.25', '"max_completion_tokens":7', '"a":1', '"b":2', "x-trace: t", "x-target: two"):
        assert part in two.requests[0].decode()


async def test_the_total_clock_ends_the_journey(autojump_clock: MockClock) -> None:
    one, two = Server("one", fault=hangs), Server("two")
    async with open_targets(one, two) as engine:
        completion = await engine.start_stream(ask(timeouts=ms.Timeouts(total=3))).wait()
    assert (completion.error.provider_code, two.sent) == ("total", 0)


async def test_a_target_that_cannot_is_passed_over(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    one, two = Server("one"), Server("two")
    route = ms.Route("fast", [ms.Target("one/m", extra_headers={"host": "other"}), "two/m"])
    async with open_targets(one, two, route=route) as engine:
        completions = [await engine.start_stream(ask()).wait() for _ in range(2)]
        with pytest.raises(ms.InvalidRequestError, match="temperature"):
            engine.start_stream(ask(temperature=-1))
    assert all(completion.success for completion in completions)
    assert (one.sent, two.sent) == (0, 2)
    lines = [record.getMessage() for record in caplog.records if "cannot take" in record.getMessage()]
    assert lines[0].startswith("route fast: one/m cannot take a request: extra_headers: 'host'")
    assert len(lines) == 2  # once for each target


# --- full is no failure ---


async def test_order_waits_for_its_first_target(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    rates = {"one": ms.RateLimit(requests_per_minute=60)}
    async with open_targets(one, two, rates=rates) as engine:
        calls = [engine.start_stream(ask()) for _ in range(70)]
        assert calls[69].target == ""
        assert calls[69].waiting_for.startswith("the first responses of one/m, 59 ahead")
        completions = [await call.wait() for call in calls]
    assert all(completion.success for completion in completions)
    assert (one.sent, two.sent) == (70, 0)
    assert completions[69].timings.waited["quota"] > 5


async def test_a_targets_queue_timeout_bounds_the_wait(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    rates = {"one": ms.RateLimit(requests_per_minute=1)}
    route = ms.Route("fast", [ms.Target("one/m", timeouts=ms.Timeouts(queue=2)), "two/m"])
    async with open_targets(one, two, route=route, rates=rates) as engine:
        completions = [await call.wait() for call in [engine.start_stream(ask()) for _ in range(3)]]
    assert (one.sent, two.sent) == (1, 2)
    assert completions[1].timings.finished == pytest.approx(2.05, abs=0.1)
    # What waits before the third call takes a minute, so it does not wait at all.
    assert completions[2].timings.finished == pytest.approx(0.05, abs=0.1)
    assert path(completions[1]) == path(completions[2]) == [("two/m", "ok")]


@pytest.mark.parametrize("balance", ["weighted", "fastest"])
async def test_the_first_target_with_room_gets_a_waiting_call(autojump_clock: MockClock, balance: str) -> None:
    one, two = Server("one"), Server("two")
    rates = {name: ms.RateLimit(requests_per_minute=60) for name in ("one", "two")}
    route = ms.Route("fast", ["one/m", "two/m"], balance=balance)  # type: ignore[arg-type]
    async with open_targets(one, two, route=route, rates=rates) as engine:
        started = trio.current_time()
        completions = [await call.wait() for call in [engine.start_stream(ask()) for _ in range(140)]]
        seconds = trio.current_time() - started
        scopes = engine.statistics().traffic.limiters
    assert all(completion.success for completion in completions)
    assert seconds < 13  # both limits are used
    assert (one.sent + two.sent, min(one.sent, two.sent)) == (140, pytest.approx(70, abs=3))
    assert [(scope.waiting, scope.running) for scope in scopes.values()] == [(0, 0), (0, 0)]


async def test_a_refused_call_goes_where_there_is_room(autojump_clock: MockClock) -> None:
    one, two = Server("one", fault=failing("429 Too Many Requests", code="rate_limit_exceeded")), Server("two")
    async with open_targets(one, two, retry=ms.Retry(max_attempts=1)) as engine:
        completions = [await engine.start_stream(ask()).wait() for _ in range(3)]
        routes = engine.statistics().traffic.routes
    assert all(completion.success for completion in completions)
    assert routes["fast"].targets[0].breaker == "closed"
    assert routes["fast"].targets[0].failures == 0


async def test_a_cancelled_call_leaves_every_queue(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    rates = {name: ms.RateLimit(requests_per_minute=1) for name in ("one", "two")}
    route = ms.Route("fast", ["one/m", "two/m"], balance="fastest")
    async with open_targets(one, two, route=route, rates=rates) as engine:
        calls = [engine.start_stream(ask()) for _ in range(6)]
        assert [scope.waiting for scope in engine.statistics().traffic.limiters.values()] == [4, 4]
        for call in calls:
            call.cancel()
        statistics = engine.statistics().traffic
    assert [(scope.waiting, scope.running) for scope in statistics.limiters.values()] == [(0, 0), (0, 0)]
    assert [target.outstanding for target in statistics.routes["fast"].targets] == [0, 0]


# --- breakers ---


def dead_between(begin: float, end: float, fault: bytes) -> object:
    started = trio.current_time()

    def respond(server: Server) -> bytes | None:
        return fault if begin <= trio.current_time() - started < end else None

    return respond


DEAD: dict[str, tuple[bytes, int, float]] = {
    "500": (answer(error_body("down"), status="500 Internal Server Error"), 26, 1.0),
    "hangs": (HANG, 130, 2.0),
}


@pytest.mark.parametrize(("fault", "late", "first_byte"), DEAD.values(), ids=DEAD)
async def test_a_dead_target_is_left_alone_and_used_again(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, fault: bytes, late: int, first_byte: float
) -> None:
    caplog.set_level(logging.INFO, "manystream.traffic")
    one, two = Server("one"), Server("two")
    one.fault = dead_between(3.0, 9.0, fault)  # type: ignore[assignment]
    route = ms.Route("fast", [ms.Target("one/m", timeouts=ms.Timeouts(first_byte=first_byte)), "two/m"])
    async with open_targets(one, two, route=route) as engine:
        started = trio.current_time()
        completions = await run(engine, 700, 0.02, ask())
        open_at_the_end = engine.statistics().traffic.routes["fast"].targets[0].breaker
    assert all(completion.success for completion in completions)
    assert len(completions) * (1 - within(completions, 1.0)) <= late
    after = [place for place in range(len(completions)) if place * 0.02 > 12]
    assert all(completions[place].attempt_records[-1].target == "one/m" for place in after)
    asked = [at for at in one.at if 6 <= at - started <= 8.9]
    assert len(asked) <= 2  # one probe every two seconds
    assert open_at_the_end == "closed"
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("route fast")]
    assert len(lines) == 2
    assert "one/m is left alone for 2 s at a time: 11 of its last 20 calls failed" in lines[0]
    assert lines[1] == "route fast: one/m answers, and is used again"


@pytest.mark.parametrize("every", [25, 4])
async def test_failures_at_once_do_not_hide_answers_under_way(autojump_clock: MockClock, every: int) -> None:
    """Of hundreds of calls at a time, each n-th fails at once, and the others take a second: only these move on."""
    one, two = Server("one", seconds=1.0), Server("two")
    busy = failing("503 Service Unavailable")
    one.fault = lambda server: busy(server) if server.sent % every == 0 else None
    route = ms.Route("fast", ["one/m", ms.Target("two/m", fallback=True)])
    async with open_targets(one, two, route=route) as engine:
        completions = await run(engine, 400, 0.005, ask())
        (record, _) = engine.statistics().traffic.routes["fast"].targets
    assert all(completion.success for completion in completions)
    assert (two.sent, one.sent, record.breaker) == (400 // every, 400, "closed")


async def test_calls_wait_for_the_first_target_to_come_back(autojump_clock: MockClock) -> None:
    one = Server("one", fault=lambda server: failing("500 Broken")(server) if server.sent <= 5 else None)
    async with open_targets(one, retry=ms.Retry(max_attempts=1)) as engine:
        for _ in range(5):
            assert not (await engine.start_stream(ask()).wait()).success
        calls = [engine.start_stream(ask()) for _ in range(100)]
        hurried = engine.start_stream(ask(timeouts=ms.Timeouts(queue=1)))
        await trio.sleep(0.5)
        assert calls[0].waiting_for == "a target of fast to be used again"
        assert engine.statistics().traffic.routes["fast"].waiting == 101
        calls[1].cancel()
        late = await hurried.wait()
        completions = [await call.wait() for call in calls]
        assert engine.statistics().traffic.routes["fast"].waiting == 0
    assert sum(completion.success for completion in completions) == 99
    assert completions[0].timings.waited["target"] == pytest.approx(2, abs=0.1)
    assert (late.error.provider_code, late.attempts) == ("queue", 0)
    assert "a target of fast to be used again" in late.error.message


# --- balance ---


async def test_fastest_avoids_slow_and_failing_replicas(autojump_clock: MockClock) -> None:
    def every_third(server: Server) -> bytes | None:
        return answer(error_body("oops"), status="500 Internal Server Error") if server.sent % 10 in (2, 5, 8) else None

    servers = [Server("good", 0.1), Server("slow", 1.0), Server("bad", 0.1, fault=every_third)]
    route = ms.Route("fast", [f"{server.name}/m" for server in servers], balance="fastest")
    async with open_targets(*servers, route=route) as engine:
        completions = await run(engine, 1000, 0.02, ask())
    assert all(completion.success for completion in completions)
    assert within(completions, 1.0) >= 0.97


async def test_weights(autojump_clock: MockClock) -> None:
    one, two = Server("one"), Server("two")
    route = ms.Route("fast", [ms.Target("one/m", weight=9), "two/m"], balance="weighted")
    async with open_targets(one, two, route=route) as engine:
        await run(engine, 300, 0.02, ask())
    assert 230 < one.sent < 295


async def test_a_fallback_is_used_when_no_other_is_left(autojump_clock: MockClock) -> None:
    one, two, three = (Server(name) for name in ("one", "two", "three"))
    route = ms.Route("fast", [ms.Target("one/m", fallback=True), "two/m", "three/m"], balance="fastest")
    async with open_targets(one, two, three, route=route) as engine:
        await run(engine, 20, 0.02, ask())
        assert one.sent == 0
        two.fault = three.fault = failing("500 Internal Server Error")
        completion = await engine.start_stream(ask()).wait()
    assert completion.success
    assert one.sent == 1


async def test_sessions_stay(autojump_clock: MockClock) -> None:
    servers = [Server(name) for name in ("one", "two", "three")]
    route = ms.Route("fast", [f"{server.name}/m" for server in servers], balance="sticky")
    async with open_targets(*servers, route=route) as engine:
        homes = dict[str, str]()
        for turn in range(4):
            for number in range(9):
                completion = await engine.start_stream(ask(session=f"s{number}")).wait()
                home = homes.setdefault(f"s{number}", completion.attempt_records[0].target)
                assert completion.attempt_records[0].target == home, turn
        sessions = [target.sessions for target in engine.statistics().traffic.routes["fast"].targets]
        assert sum(sessions) == 9
        engine.end_session("s0")
        engine.end_session("unknown")
        after = [target.sessions for target in engine.statistics().traffic.routes["fast"].targets]
        assert sum(after) == 8
        gone = next(server for server in servers if f"{server.name}/m" == homes["s1"])
        gone.fault = failing("500 Internal Server Error")
        moved = await engine.start_stream(ask(session="s1")).wait()
        assert moved.success
        again = await engine.start_stream(ask(session="s1")).wait()
        assert path(again) == [(moved.attempt_records[-1].target, "ok")]


# --- several keys ---


# --- bad input ---


async def refused(traffic: ms.Traffic, field: str, *, api_key: object = "k") -> None:
    one = ms.OpenAIChat(api_key, "http://127.0.0.1:9/v1", name="one")  # type: ignore[arg-type]
    with pytest.raises(ms.InvalidRequestError, match=field):
        async with ms.open_engine([one], traffic=traffic):
            pass


async def test_a_route_to_an_unknown_provider_is_an_error() -> None:
    traffic = ms.Traffic(routes=[ms.Route("fast", ["one/m", "other/m"])])
    await refused(
        traffic, r"traffic.routes\['fast'\]: no provider is known for the target 'other/m'; configured are one"
    )


async def test_several_keys_need_traffic() -> None:
    one = ms.OpenAIChat(["a", "b"], "http://127.0.0.1:9/v1", name="one")
    with pytest.raises(ms.InvalidRequestError, match=r"providers\[0\].api_key: several keys need an engine with"):
        async with ms.open_engine([one]):
            pass


async def test_a_sticky_route_needs_a_session() -> None:
    route = ms.Route("fast", ["one/m"], balance="sticky")
    async with open_targets(Server("one"), route=route) as engine:
        with pytest.raises(ms.InvalidRequestError, match="session: the route 'fast' is sticky"):
            engine.start_stream(ask())
        assert engine.statistics().started == 0


# --- whatever happens ---


@pytest.mark.parametrize("balance", ["order", "weighted", "fastest", "sticky"])
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_left_behind(autojump_clock: MockClock, balance: str, seed: int) -> None:
    """Servers that fail in every way, limits, cancelled calls and short timeouts, at random."""
    chance = random.Random(f"{balance} {seed}")
    faults = [
        None, None, failing("503 Service Unavailable"), failing("429 Too Many Requests", code="rate_limit_exceeded"),
        failing("401 Unauthorized"), failing("400 Bad Request"), hangs,
    ]  # fmt: skip

    def respond(server: Server) -> bytes | None:
        fault = chance.choice(faults)
        return None if fault is None else fault(server)

    servers = [Server(name, chance.uniform(0.01, 0.5), respond) for name in ("one", "two", "three")]
    targets = [ms.Target(f"{server.name}/m", fallback=server.name == "three") for server in servers]
    # The same model twice, with other options: both targets have one queue.
    route = ms.Route("fast", [*targets, ms.Target("one/m", temperature=0)], balance=balance)  # type: ignore[arg-type]
    rates = {"two": ms.RateLimit(requests_per_second=20), "three": ms.RateLimit(concurrent=2)}
    timeouts = ms.Timeouts(first_byte=1, queue=5)
    async with open_targets(*servers, route=route, rates=rates, timeouts=timeouts, retry=QUICK) as engine:
        calls: list[ms.Call] = []
        for number in range(150):
            calls.append(engine.start_stream(ask(session=f"s{number % 7}")))
            if chance.random() < 0.1:
                chance.choice(calls).cancel()
            await trio.sleep(chance.choice([0.0, 0.0, 0.02, 0.1]))
        completions = [await call.wait() for call in calls]
        statistics = engine.statistics()
    assert all(len(completion.attempt_records) == completion.attempts for completion in completions)
    assert {(scope.waiting, scope.running) for scope in statistics.traffic.limiters.values()} == {(0, 0)}
    figures = statistics.traffic.routes["fast"]
    assert figures.waiting == 0
    assert [target.outstanding for target in figures.targets] == [0, 0, 0, 0]
    assert [provider.running for provider in statistics.providers.values()] == [0, 0, 0]
    assert any(completion.success for completion in completions)
