"""Second attempts beside a first one: their own timeouts, what the journey says of both, and what the call reports."""

import socket
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import (
    STREAM_HEAD,
    ClosedSocket,
    Line,
    Peer,
    Recorder,
    Script,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    open_peer,
    replies,
    reply_and_hold,
    silent,
    stream_of,
    until,
)
from tests.support.targets import ask, provider

ONCE = ms.Retry(max_attempts=1)


class Named:
    """What a target needs of a server: its name."""

    def __init__(self, name: str) -> None:
        self.name = name


def after(seconds: float, text: str = "late") -> Script:
    """A server that answers every request after so many seconds."""

    async def script(line: Line) -> None:
        while await line.request():
            await trio.sleep(seconds)
            await line.send(stream_of(*chat_stream(text)))

    return script


@asynccontextmanager
async def open_pair(
    first: Script,
    second: Script,
    *,
    target: ms.Target | None = None,
    hedge: float = 1.0,
    traffic: dict[str, object] | None = None,
    **options: object,
) -> AsyncGenerator[tuple[ms.Engine, list[Peer]], None]:
    """Open an engine whose route sends calls to `one`, and after a second also to `two`."""
    route = ms.Route("fast", ["one/m", target or "two/m"], hedge=ms.Hedge(hedge, at_most=1.0))
    control = ms.Traffic(routes=[route], **(traffic or {}))  # type: ignore[arg-type]
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(open_peer(script)) for script in (first, second)]
        providers = [
            provider(Named(name), peer)  # type: ignore[arg-type]
            for name, peer in zip(("one", "two"), peers, strict=True)
        ]
        engine = await stack.enter_async_context(
            ms.open_engine(providers, traffic=control, **{"retry": ONCE, **options})  # type: ignore[arg-type]
        )
        yield engine, peers


def rows(completion: ms.Completion) -> list[tuple[object, ...]]:
    """Target, outcome, whether it was hedged, and rounded seconds of each attempt."""
    return [
        (each.target, each.outcome, each.hedged, round(each.started, 1), round(each.ended, 1))
        for each in completion.attempt_records
    ]


def error_of(completion: ms.Completion, place: int) -> ms.ProviderError:
    error = completion.attempt_records[place].error
    assert error is not None
    return error


# --- the timeouts of a second attempt ---


head_only = reply_and_hold(STREAM_HEAD)


async def pings(line: Line) -> None:
    """Send a comment after each of three seconds, and then nothing."""
    await line.request()
    await line.send(STREAM_HEAD)
    for _ in range(3):
        await trio.sleep(1)
        await line.send(chunked(": ping\n\n", end=False))
    await line.closed_by_peer()


slow_error = reply_and_hold("HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")


CLOCKS = ms.Timeouts(connect=9, first_byte=2, idle=3)

LATE = {
    "no response": (silent, 3.0, "first_byte timeout: no response byte within 2 s (waiting, {origin})"),
    "no event": (head_only, 4.0, "idle timeout: no byte for 3 s (reading, {origin})"),
    "comments only": (pings, 7.0, "idle timeout: no byte for 3 s (reading, {origin})"),
}


@pytest.mark.parametrize("name", LATE)
async def test_a_second_attempt_has_its_target_s_timeouts(autojump_clock: MockClock, name: str) -> None:
    script, ended, message = LATE[name]
    target = ms.Target("two/m", timeouts=CLOCKS)
    async with open_pair(after(20), script, target=target) as (engine, peers):
        completion = await engine.start_stream(ask()).wait()
        route = engine.statistics().traffic.routes["fast"]
    assert rows(completion) == [("two/m", "timeout", True, 1.0, ended), ("one/m", "ok", True, 0.0, 20.0)]
    error = error_of(completion, 0)
    assert error.message == message.format(origin=peers[1].origin)
    assert (error.provider, error.model, error.host) == ("two", "m", f"127.0.0.1:{peers[1].port}")
    assert (completion.success, completion.attempts) == (True, 2)
    assert (route.hedged, route.targets[1].outstanding) == (1, 0)
    assert route.targets[1].failures > 0


async def test_a_second_attempt_s_error_body_has_five_seconds(autojump_clock: MockClock) -> None:
    async with open_pair(after(20), slow_error) as (engine, _):
        completion = await engine.start_stream(ask()).wait()
    assert rows(completion) == [("two/m", "server", True, 1.0, 6.0), ("one/m", "ok", True, 0.0, 20.0)]
    assert error_of(completion, 0).http_status == 503


async def test_a_second_attempt_that_cannot_connect_times_out(autojump_clock: MockClock) -> None:
    with socket.socket() as listener, socket.socket() as filler, socket.socket() as other:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (filler, other):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        hole = ms.OpenAIChat("k", f"http://127.0.0.1:{listener.getsockname()[1]}/v1", name="two")
        route = ms.Route("fast", ["one/m", ms.Target("two/m", timeouts=CLOCKS)], hedge=ms.Hedge(1.0, at_most=1.0))
        async with open_peer(after(20)) as peer:
            one = provider(Named("one"), peer)  # type: ignore[arg-type]
            async with ms.open_engine([one, hole], traffic=ms.Traffic(routes=[route]), retry=ONCE) as engine:
                completion = await engine.start_stream(ask()).wait()
                connections = engine.statistics().connections
    assert rows(completion) == [("two/m", "timeout", True, 1.0, 10.0), ("one/m", "ok", True, 0.0, 20.0)]
    origin = hole.base_url.removesuffix("/v1")
    assert error_of(completion, 0).message == f"connect timeout: no connection within 9 s (connecting to {origin})"
    assert [(each.connecting, each.waiting) for name, each in connections.items() if name == origin] in ([], [(0, 0)])


async def test_a_second_attempt_s_request_that_is_not_read_is_idle(autojump_clock: MockClock) -> None:
    async def never_reads(line: Line) -> None:
        await trio.sleep_forever()

    async def reads(line: Line) -> None:
        size = 0
        while size < 20_000_000:
            size += len(await line.stream.receive_some(1 << 20))
        await trio.sleep(20)
        await line.send(stream_of(*chat_stream("read")))

    target = ms.Target("two/m", timeouts=CLOCKS)
    async with open_pair(reads, never_reads, target=target) as (engine, peers):
        request = ms.Request("fast", [ms.Message.user("x" * 20_000_000)])
        completion = await engine.start_stream(request).wait()
    assert [row[:3] for row in rows(completion)] == [("two/m", "timeout", True), ("one/m", "ok", True)]
    message = error_of(completion, 0).message
    assert message == f"idle timeout: no byte for 3 s (sending, {peers[1].origin})"


async def test_no_timeout_ends_a_second_attempt_of_a_paused_call(autojump_clock: MockClock) -> None:
    target = ms.Target("two/m", timeouts=CLOCKS)
    async with open_pair(after(100), pings, target=target, timeouts=ms.Timeouts(total=60)) as (engine, _):
        call = engine.start_stream(ask())
        await trio.sleep(2.5)
        call.pause()
        await trio.sleep(30)
        assert call.completion is None
        call.resume()
        completion = await call.wait()
    assert rows(completion)[0][:2] == ("two/m", "timeout")
    assert rows(completion)[0][4] == pytest.approx(35.5, abs=1)


# --- what the call reports of a second attempt ---


async def test_a_call_reports_the_times_of_the_attempt_that_answers(autojump_clock: MockClock) -> None:
    async def two(line: Line) -> None:
        await line.request()
        await trio.sleep(2)
        await line.send(STREAM_HEAD.replace("\r\n\r\n", "\r\nX-Request-Id: r2\r\n\r\n"))
        await trio.sleep(2)
        await line.send(chunked(chat_chunk("two"), end=False))
        await trio.sleep(2)
        await line.send(chunked(chat_chunk(finish="stop"), "data: [DONE]\n\n"))

    recorder = Recorder()
    async with open_pair(after(20), two) as (engine, _):
        call = engine.start_stream(ask(), recorder.on_event, recorder.on_completion)
        assert call.target == "one/m"
        await trio.sleep(4)
        assert call.target == "one/m"
        await trio.sleep(2)
        assert (call.target, call.state) == ("two/m", ms.CallState.READING)
        completion = await call.wait()
        statistics = engine.statistics()
    timings = completion.timings
    times = (timings.queued, timings.connected, timings.first_byte, timings.first_token, timings.finished)
    assert times == tuple(pytest.approx(seconds, abs=0.1) for seconds in (1, 1, 3, 5, 7))
    assert rows(completion) == [("one/m", "cancelled", True, 0.0, 5.0), ("two/m", "ok", True, 1.0, 7.0)]
    assert timings.waited == {}
    assert (completion.http_status, completion.request_id, completion.attempts) == (200, "r2", 2)
    assert (recorder.types, recorder.text) == (["START", "TEXT_DELTA", "DONE"], "two")
    lost = error_of(completion, 0)
    assert lost.message == "ended because the other attempt had the first event, or because the call ended"
    assert (lost.category, lost.retryable) == (ms.ErrorCategory.CANCELLED, False)
    assert (statistics.providers["one"].completed, statistics.providers["two"].completed) == (0, 1)
    assert (statistics.started, statistics.completed, statistics.retried) == (1, 1, 0)
    assert statistics.providers["two"].events == 3


async def test_what_both_attempts_used_is_in_the_journey(autojump_clock: MockClock) -> None:
    """The attempt that lost is estimated: its input was sent, and a part of its answer had come."""

    one = reply_and_hold(stream_of(chat_chunk(""), end=False))

    async def two(line: Line) -> None:
        await line.request()
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        await line.send(STREAM_HEAD)
        await line.send(chunked(chat_chunk("two"), chat_chunk(finish="stop", usage=usage), "data: [DONE]\n\n"))

    async with open_pair(one, two, traffic={"budgets": [ms.Budget(calls=9, output_tokens=1000)]}) as (engine, _):
        completion = await engine.start_stream(ask(max_output_tokens=100)).wait()
        (budget,) = engine.statistics().traffic.budgets
        scopes = engine.statistics().traffic.limiters
    lost, won = completion.attempt_records
    assert (lost.usage.output_tokens, lost.estimated, lost.usage.total_tokens) == (0, True, lost.usage.input_tokens)
    assert (won.usage.input_tokens, won.usage.output_tokens, won.estimated) == (11, 7, False)
    assert (budget.spent.calls, budget.spent.output_tokens) == (1.0, 7.0)
    assert (budget.reserved.calls, budget.reserved.output_tokens, budget.waiting) == (0, 0, 0)
    assert [(each.sent, each.running, each.waiting, each.refused) for each in scopes.values()] == [(1, 0, 0, 0)] * 2


async def test_a_second_attempt_that_could_not_be_sent_costs_nothing(autojump_clock: MockClock) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refused = ms.OpenAIChat("k", f"http://127.0.0.1:{closed.getsockname()[1]}/v1", name="two")
        route = ms.Route("fast", ["one/m", "two/m"], hedge=ms.Hedge(1.0, at_most=1.0))
        traffic = ms.Traffic(routes=[route], budgets=[ms.Budget(output_tokens=1000)])
        async with open_peer(after(5)) as peer:
            one = provider(Named("one"), peer)  # type: ignore[arg-type]
            async with ms.open_engine([one, refused], traffic=traffic, retry=ONCE) as engine:
                call = engine.start_stream(ask(max_output_tokens=100))
                await trio.sleep(3)
                (budget,) = engine.statistics().traffic.budgets
                assert (budget.reserved.output_tokens, budget.spent.output_tokens) == (100, 0)
                completion = await call.wait()
                scope = engine.statistics().traffic.limiters["two/m"]
    assert rows(completion) == [("two/m", "network", True, 1.0, 1.0), ("one/m", "ok", True, 0.0, 5.0)]
    assert (completion.attempt_records[0].usage, completion.attempt_records[0].estimated) == (None, False)
    assert (scope.running, scope.waiting, scope.unconfirmed) == (0, 0, 0)


@pytest.mark.parametrize("written", [False, True])
async def test_a_second_attempt_that_was_not_read_is_sent_again(written: bool, autojump_clock: MockClock) -> None:
    served: list[int] = []

    async def two(line: Line) -> None:
        """Close the first connection when its second request comes."""
        number = len(peers[1].lines)
        while await line.request():
            served.append(number)
            if served == [1, 1]:
                return
            await line.send(answer(chat_answer("two")))

    async def dial(host: str, port: int) -> socket.socket:
        stream = await trio.open_tcp_stream(host, port)
        return (socket.socket if written else ClosedSocket)(fileno=stream.socket.detach())

    async with open_pair(after(20), two, dial=dial) as (engine, peers):
        assert (await engine.start_request(ask("two/m")).wait()).success
        completion = await engine.start_request(ask()).wait()
        statistics = engine.statistics()
    assert (completion.success, completion.resent, statistics.traffic.limiters["two/m"].running) == (True, 0, 0)
    if written:
        assert (served, completion.attempts) == ([1, 1], 2)
        assert rows(completion) == [("two/m", "network", True, 1.0, 1.0), ("one/m", "ok", True, 0.0, 20.0)]
    else:
        assert (served, completion.attempts) == ([1, 2], 3)
        assert rows(completion) == [("one/m", "cancelled", True, 0.0, 1.0), ("two/m", "ok", True, 1.0, 1.0)]


async def test_an_observer_sees_each_attempt_with_its_number(autojump_clock: MockClock) -> None:
    class Numbers(ms.Observer):
        def __init__(self) -> None:
            self.seen: list[tuple[int, str]] = []

        def attempt_started(self, call: ms.Call, number: int) -> None:
            self.seen.append((number, call.target))

    observer = Numbers()
    async with open_pair(after(20), after(0.5), observer=observer) as (engine, _):
        assert (await engine.start_stream(ask()).wait()).attempts == 2
    assert observer.seen == [(1, "one/m"), (2, "one/m")]


async def test_only_one_second_attempt_is_made(autojump_clock: MockClock) -> None:
    fault = answer(error_body("busy"), status="503 Busy")

    async with open_pair(after(20), replies(fault)) as (engine, peers):
        call = engine.start_stream(ask())
        await until(lambda: len(peers[1].lines) == 1)
        completion = await call.wait()
        assert len(peers[1].lines) == 1
    assert rows(completion) == [("two/m", "server", True, 1.0, 1.0), ("one/m", "ok", True, 0.0, 20.0)]


async def test_a_late_retry_is_hedged_from_its_own_start(autojump_clock: MockClock) -> None:
    """The first attempt fails early: the second one begins a second after the retry."""
    sent: list[float] = []

    async def one(line: Line) -> None:
        while await line.request():
            sent.append(trio.current_time())
            if len(sent) == 1:
                await line.send(answer(error_body("busy"), status="503 Busy"))
            else:
                await trio.sleep(20)

    async def two(line: Line) -> None:
        while await line.request():
            if len(sent) == 1:
                await line.send(answer(error_body("busy"), status="503 Busy"))
            else:
                await line.send(stream_of(*chat_stream("two")))

    retry = ms.Retry(max_attempts=4, base=5, jitter=0)
    async with open_pair(one, two, retry=retry) as (engine, _):
        completion = await engine.start_stream(ask()).wait()
    assert rows(completion) == [
        ("one/m", "server", False, 0.0, 0.0), ("two/m", "server", False, 0.0, 0.0),
        ("one/m", "cancelled", True, 10.0, 11.0), ("two/m", "ok", True, 11.0, 11.0),
    ]  # fmt: skip


# --- limits and keys ---

REPORT = "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 59\r\nx-ratelimit-reset-requests: 1s\r\n"


async def test_a_second_response_s_limits_are_used(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "manystream.traffic")

    async def two(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD.replace("\r\n\r\n", f"\r\n{REPORT}\r\n"))
        await trio.sleep(3)
        await line.send(chunked(*chat_stream("two")))

    async with open_pair(after(20), two) as (engine, _):
        call = engine.start_stream(ask())
        await trio.sleep(2)
        scope = engine.statistics().traffic.limiters["two/m"]
        assert (scope.running, scope.unconfirmed, list(scope.reported)) == (1, 0, ["requests"])
        assert [record.getMessage() for record in caplog.records] == ["two/m: limit reported: requests, 60 in 60 s"]
        assert (await call.wait()).success
        assert engine.statistics().traffic.limiters["two/m"].running == 0


async def test_a_second_attempt_s_limit_is_learned(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "manystream.traffic")
    refusal = answer(
        error_body("slow down", "requests", "rate_limit_exceeded"),
        status="429 Too Many Requests",
        headers="retry-after: 4\r\n",
    )

    async with open_pair(after(3), replies(refusal)) as (engine, _):
        call = engine.start_stream(ask())
        await trio.sleep(2)
        statistics = engine.statistics().traffic
        scope, target = statistics.limiters["two/m"], statistics.routes["fast"].targets[1]
        assert (scope.refused, scope.sent, scope.running, scope.waiting) == (1, 1, 0, 0)
        assert scope.held > 0
        assert (target.failures, target.outstanding) == (0.0, 0)
        completion = await call.wait()
    assert rows(completion) == [("two/m", "rate_limit", True, 1.0, 1.0), ("one/m", "ok", True, 0.0, 3.0)]
    assert len([record for record in caplog.records if record.getMessage().startswith("two/m: limit learned")]) == 1


async def test_a_target_that_failed_a_hedge_is_not_asked_again(autojump_clock: MockClock) -> None:
    sent: list[str] = []

    def failing(name: str, seconds: float) -> Script:
        async def script(line: Line) -> None:
            while await line.request():
                sent.append(name)
                await trio.sleep(seconds)
                await line.send(answer(error_body(name), status="503 Busy"))

        return script

    async with open_pair(failing("one", 3), failing("two", 0.5)) as (engine, _):
        completion = await engine.start_stream(ask()).wait()
        figures = engine.statistics().traffic.routes["fast"]
    assert sent == ["one", "two"]
    assert rows(completion) == [("two/m", "server", True, 1.0, 1.5), ("one/m", "server", True, 0.0, 3.0)]
    assert completion.error_message == "one"
    assert [target.outstanding for target in figures.targets] == [0, 0]
    assert all(target.failures > 0 for target in figures.targets)


async def test_a_key_that_refuses_a_second_attempt_is_put_aside(autojump_clock: MockClock) -> None:
    """The other key is used by the next calls."""
    keys: list[bytes] = []

    async def script(line: Line) -> None:
        while request := await line.request():
            key = request.partition(b"Bearer ")[2].partition(b"\r\n")[0]
            keys.append(key)
            if len(keys) == 1:
                await trio.sleep(5)
            elif key == keys[1] != keys[0]:
                await line.send(answer(error_body("wrong key"), status="401 No"))
                continue
            await line.send(stream_of(*chat_stream("fine")))

    async with open_peer(script) as peer:
        one = provider(Named("one"), peer, api_key=["sk-first", "sk-second"])  # type: ignore[arg-type]
        traffic = ms.Traffic(routes=[ms.Route("fast", ["one/m"], hedge=ms.Hedge(1.0, at_most=1.0))])
        async with ms.open_engine([one], traffic=traffic, retry=ONCE) as engine:
            first = await engine.start_stream(ask()).wait()
            later = [await engine.start_stream(ask()).wait() for _ in range(3)]
    assert len({keys[0], keys[1]}) == 2
    assert rows(first) == [("one/m", "auth", True, 1.0, 1.0), ("one/m", "ok", True, 0.0, 5.0)]
    assert keys[2:] == [keys[0]] * 3
    assert [rows(each)[0][:2] for each in later] == [("one/m", "ok")] * 3


async def test_a_second_attempt_waits_until_a_budget_allows_it(autojump_clock: MockClock) -> None:
    """It is tried after one second, two, four and eight."""
    async with open_pair(after(30), after(0.5, "two"), traffic={"budgets": [ms.Budget(output_tokens=200)]}) as (
        engine,
        peers,
    ):
        busy = engine.start_stream(ask("one/m", max_output_tokens=100))
        call = engine.start_stream(ask(max_output_tokens=100))
        await trio.sleep(6)
        assert (len(peers[1].lines), busy.completion) == (0, None)
        busy.cancel()
        completion = await call.wait()
    assert rows(completion) == [("one/m", "cancelled", True, 0.0, 8.5), ("two/m", "ok", True, 8.0, 8.5)]
