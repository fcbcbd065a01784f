"""The timeouts and states of a call, with literal numbers; each timeout is provoked alone by a peer and named."""

import math
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.call.answer_body import AnswerBody
from manystream.engine.call.completion import NO_WAIT, AttemptRecord
from manystream.engine.call.next_step import retry_delay
from manystream.engine.call.timeouts import Clock, Clocks, effective, timeout_error
from manystream.engine.request.errors import cancelled
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_chunk,
    chat_stream,
    chunked,
    hello,
    open_peer,
    reply_and_hold,
    silent,
    stream_of,
)


async def completion_of(engine: ms.Engine, request: ms.Request) -> tuple[ms.Completion, float]:
    started = trio.current_time()
    completion = await engine.start_stream(request).wait()
    return completion, trio.current_time() - started


async def test_connect_covers_a_tls_handshake_that_stalls(autojump_clock: MockClock) -> None:
    async with open_peer(lambda line: line.closed_by_peer()) as peer:
        provider = ms.OpenAIChat(api_key="k", base_url=f"https://127.0.0.1:{peer.port}/v1")
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            completion, elapsed = await completion_of(engine, hello())
    assert completion.error_category is ms.ErrorCategory.TIMEOUT
    assert "connect timeout" in (completion.error_message or "")
    assert "TLS handshake" in (completion.error_message or "")
    assert elapsed == pytest.approx(10, rel=0.01)


async def test_connect_covers_a_black_hole(autojump_clock: MockClock) -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = [socket.socket() for _ in range(2)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
    provider = ms.OpenAIChat(api_key="k", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    async with ms.open_engine([provider], retry=NO_RETRY, timeouts=ms.Timeouts(connect=3)) as engine:
        completion, elapsed = await completion_of(engine, hello())
    assert "connect timeout" in (completion.error_message or "")
    assert elapsed == pytest.approx(3, rel=0.01)
    for sock in (listener, *fillers):
        sock.close()


@pytest.mark.parametrize(("stream", "default"), [(True, 120), (False, 600)])
async def test_first_byte_has_its_own_default_per_kind(autojump_clock: MockClock, stream: bool, default: float) -> None:

    async with open_peer(silent) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        started = trio.current_time()
        call = engine.start_stream(hello()) if stream else engine.start_request(hello())
        completion = await call.wait()
        assert trio.current_time() - started == pytest.approx(default, rel=0.01)
    assert "first_byte timeout" in (completion.error_message or "")
    assert completion.error_category is ms.ErrorCategory.TIMEOUT


async def test_idle_restarts_at_any_byte_and_keeps_what_arrived(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(chat_chunk("a"), end=False))
        for _ in range(5):
            await trio.sleep(9)
            await line.send(chunked(": ping\n\n", end=False))
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat], timeouts=ms.Timeouts(idle=10)) as engine:
        completion, elapsed = await completion_of(engine, hello())
    assert elapsed == pytest.approx(55, rel=0.02)
    assert "idle timeout" in (completion.error_message or "")
    assert completion.response.text == "a"


async def test_total_ends_a_stream_that_only_pings(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        for _ in range(1000):
            await trio.sleep(1)
            await line.send(chunked(": ping\n\n", end=False))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion, elapsed = await completion_of(engine, hello(timeouts=ms.Timeouts(total=30)))
    assert elapsed == pytest.approx(30, rel=0.02)
    assert "total timeout" in (completion.error_message or "")
    assert completion.attempts == 1


async def test_total_ends_a_back_off(autojump_clock: MockClock) -> None:
    script = reply_and_hold(answer("{}", status="503 Busy", headers="Retry-After: 60\r\n"))
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion, elapsed = await completion_of(engine, hello(timeouts=ms.Timeouts(total=20)))
    assert elapsed == pytest.approx(20, rel=0.02)
    assert "total timeout" in (completion.error_message or "")


async def test_idle_covers_a_server_that_never_reads(autojump_clock: MockClock) -> None:
    clocks = ms.Timeouts(idle=7)
    async with (
        open_peer(lambda line: trio.sleep_forever()) as peer,
        ms.open_engine([peer.chat], retry=NO_RETRY, timeouts=clocks) as engine,
    ):
        request = ms.Request("m", [ms.Message.user("x" * 20_000_000)])
        completion, elapsed = await completion_of(engine, request)
    assert "idle timeout" in (completion.error_message or "")
    assert elapsed == pytest.approx(7, rel=0.1)


async def test_an_error_s_status_wins_over_a_timeout_of_its_body(autojump_clock: MockClock) -> None:
    script = reply_and_hold('HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\n{"error":')
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion, _ = await completion_of(engine, hello())
    assert completion.error_category is ms.ErrorCategory.AUTH
    assert completion.http_status == 401


async def test_infinity_switches_a_timeout_off(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await trio.sleep(100_000)
        await line.send(stream_of(*chat_stream("at last")))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion, _ = await completion_of(engine, hello(timeouts=ms.Timeouts(first_byte=math.inf)))
    assert completion.success


async def test_the_idle_timeout_is_suspended_for_a_slow_consumer(autojump_clock: MockClock) -> None:
    script = reply_and_hold(stream_of(*chat_stream(*("x" * 1000))))
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        async with engine.stream(hello()) as events:
            async for event in events:
                if isinstance(event, ms.Start):
                    await trio.sleep(10_000)
        assert events.completion.success


async def test_timings_are_in_order(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await trio.sleep(1)
        await line.send(STREAM_HEAD)
        await trio.sleep(2)
        await line.send(chunked(chat_chunk("x"), end=False))
        await trio.sleep(4)
        await line.send(chunked(chat_chunk(finish="stop"), "data: [DONE]\n\n"))

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    timings = recorder.completion.timings
    assert timings.first_byte == pytest.approx(1, abs=0.1)
    assert timings.first_token == pytest.approx(3, abs=0.1)
    assert timings.finished == pytest.approx(7, abs=0.1)


ONE_CONNECTION = ms.EngineLimits(pool=ms.PoolLimits(max_connections=1))


async def slow_answers(line: Line) -> None:
    """Respond to each request after eight seconds."""
    while await line.request():
        await trio.sleep(8)
        await line.send(stream_of(*chat_stream("late")))


async def test_queue_bounds_the_wait_for_a_connection(autojump_clock: MockClock) -> None:
    async with open_peer(slow_answers) as peer, ms.open_engine([peer.chat], limits=ONE_CONNECTION) as engine:
        first = engine.start_stream(hello(timeouts=ms.Timeouts(queue=5)))
        second = engine.start_stream(hello(timeouts=ms.Timeouts(queue=5)))
        started = trio.current_time()
        completion = await second.wait()
        assert trio.current_time() - started == pytest.approx(5, rel=0.01)
        assert (await first.wait()).success  # once it has a connection, the clock stands still
    assert completion.error.category is ms.ErrorCategory.TIMEOUT
    assert completion.error.provider_code == "queue"
    assert not completion.error.retryable
    assert (completion.error_message or "").startswith("queue timeout: the call was not sent within 5 s")
    assert completion.timings.waited == {"connection": pytest.approx(5, rel=0.01)}


async def test_the_wait_for_a_connection_is_reported(autojump_clock: MockClock) -> None:
    async with open_peer(slow_answers) as peer, ms.open_engine([peer.chat], limits=ONE_CONNECTION) as engine:
        calls = [engine.start_stream(hello()) for _ in range(2)]
        first, second = [(await call.wait()).timings.waited for call in calls]
    assert first == {}
    assert second == {"connection": pytest.approx(8, rel=0.05)}


INF = math.inf


# --- timeouts ---


def test_the_default_timeouts_depend_on_the_kind_of_the_call() -> None:
    assert effective(None, None, stream=False) == Clocks(10.0, 600.0, 120.0, INF, INF)
    assert effective(None, None, stream=True) == Clocks(10.0, 120.0, 120.0, INF, INF)


def test_a_call_s_timeouts_go_before_those_of_the_engine() -> None:
    engine = ms.Timeouts(connect=1, first_byte=2, idle=3, total=4, queue=5)
    assert effective(None, engine, stream=True) == Clocks(1, 2, 3, 4, 5)
    assert effective(ms.Timeouts(idle=30, total=INF), engine, stream=False) == Clocks(1, 2, 30, INF, 5)


TIMEOUTS = {
    Clock.CONNECT: ("connect timeout: no connection within 2.5 s (here)", True),
    Clock.FIRST_BYTE: ("first_byte timeout: no response byte within 2.5 s (here)", True),
    Clock.IDLE: ("idle timeout: no byte for 2.5 s (here)", True),
    Clock.TOTAL: ("total timeout: the call did not end within 2.5 s (here)", False),
    Clock.QUEUE: ("queue timeout: the call was not sent within 2.5 s (here)", False),
}


@pytest.mark.parametrize("clock", list(Clock))
def test_a_timeout_s_error_names_the_timeout(clock: Clock) -> None:
    error = timeout_error(clock, 2.5, "here")
    assert (error.message, error.retryable) == TIMEOUTS[clock]
    assert (error.category, error.provider_code) == (ms.ErrorCategory.TIMEOUT, clock.value)
    assert error.http_status == 0


# --- retries ---


def busy(hint: int = -1) -> ms.ProviderError:
    return ms.ProviderError("busy", category=ms.ErrorCategory.SERVER, retry_after_ms=hint)


@pytest.mark.parametrize(
    ("attempts", "expected"), [(1, 1.0), (2, 2.0), (3, 4.0), (61, 2.0**60), (62, 2.0**60), (63, 2.0**60)]
)
def test_the_back_off_doubles_up_to_a_bound(attempts: int, expected: float) -> None:
    options = ms.Retry(max_attempts=100, cap=1e30, jitter=0)
    assert retry_delay(busy(), attempts, options, lambda: 0.5) == expected


def test_the_last_attempt_is_followed_by_none() -> None:
    assert retry_delay(busy(), 1, ms.Retry(max_attempts=2), lambda: 0.0) == 1.0
    assert retry_delay(busy(), 2, ms.Retry(max_attempts=2), lambda: 0.0) is None


@pytest.mark.parametrize(
    ("hint", "jitter", "expected"),
    [(120_000, 1.0, 121.0), (120_001, 1.0, None), (1, 1.0, 0.11), (2000, 0.05, 2.05), (2000, 1.0, 2.2)],
)
def test_a_server_s_hint_is_obeyed_with_a_tenth_of_jitter(hint: int, jitter: float, expected: float | None) -> None:
    delay = retry_delay(busy(hint), 1, ms.Retry(jitter=jitter), lambda: 1.0)
    assert delay == (None if expected is None else pytest.approx(expected))


def test_a_cancelled_call_has_the_reason_as_its_message() -> None:
    error = cancelled()
    assert (error.message, error.category, error.retryable) == (
        "the call was cancelled", ms.ErrorCategory.CANCELLED, False
    )  # fmt: skip
    assert cancelled("the engine was closed").message == "the engine was closed"


# --- values ---


def test_a_completion_says_what_is_known() -> None:
    assert repr(ms.Completion(False)) == (
        "Completion(success=False, http_status=0, response=None, error=None, attempts=0, timings=Timings(queued=None,"
        " connected=None, first_byte=None, first_token=None, finished=None, waited={}), request_id=None, headers={},"
        " resent=0, attempt_records=(), cost=None, tags={}, cost_unknown='the engine has no price function: open it"
        " with traffic=Traffic(price=…)', cached=False, resumed=0, cache=None, transport='http', continued=False)"
    )
    assert repr(AttemptRecord("one/m", 0.5, 1.5, "ok")) == (
        "AttemptRecord(target='one/m', started=0.5, ended=1.5, outcome='ok', error=None, hedged=False, usage=None,"
        " estimated=False)"
    )


def test_a_completion_repeats_its_error() -> None:
    done, failed = ms.Completion(True), ms.Completion(False, error=busy(1500))
    assert (done.error_category, done.error_message, done.retry_after_ms) == (None, None, -1)
    assert (failed.error_category, failed.error_message, failed.retry_after_ms) == (
        ms.ErrorCategory.SERVER, "busy", 1500
    )  # fmt: skip


def test_a_call_that_did_not_wait_has_an_empty_mapping() -> None:
    assert (dict(NO_WAIT), len(NO_WAIT), list(NO_WAIT), repr(NO_WAIT)) == ({}, 0, [], "{}")
    assert hash(NO_WAIT) == 0
    assert NO_WAIT.get("quota") is None
    with pytest.raises(KeyError, match="quota"):
        NO_WAIT["quota"]


def test_the_default_limits() -> None:
    assert repr(ms.EngineLimits()) == (
        "EngineLimits(max_choices=1024, max_blocks=16384, max_tool_calls=4096, pool=PoolLimits(max_connections=20000,"
        " max_per_origin=20000, max_idle=20000, idle_expiry=15.0, drain_seconds=2.0, max_age=300.0),"
        " max_event_bytes=33554432, max_response_bytes=268435456, max_error_bytes=65536, max_calls=1000000,"
        " max_buffered_bytes=1073741824, retry_reserve=100.0)"
    )


# --- sizes of answers ---


@pytest.mark.parametrize("limit", [200_000, 10])
def test_the_size_of_an_answer_is_checked_every_64_kib(limit: int) -> None:
    grown: list[int] = []
    errors: list[str] = []
    attempt: Any = SimpleNamespace(
        prepared=SimpleNamespace(shared=SimpleNamespace(limits=ms.EngineLimits(max_response_bytes=limit))),
        runtime=SimpleNamespace(buffered=SimpleNamespace(grown=lambda _, size: grown.append(size))),
        give_up=lambda error: errors.append(error.message),
    )
    body = AnswerBody(attempt)
    if limit == 10:
        body.feed(b"x" * 10)
        assert (body.bytes_left, grown, errors) == (0, [], [])
    else:
        body.feed(b"x" * 65_536)
        assert (body.bytes_left, grown) == (0, [])
        body.feed(b"x")
        assert (body.bytes_left, grown) == (65_536, [65_537])
        body.feed(b"x" * 70_000)
        assert grown == [65_537, 70_000]
        assert body.bytes_left == limit - 135_537  # the limit is nearer than the next 64 KiB
        body.feed(b"x" * body.bytes_left)
        assert (body.received, errors) == (limit, [])
    body.feed(b"x")
    assert errors == [f"the answer is larger than {limit} bytes (limits.max_response_bytes)"]
