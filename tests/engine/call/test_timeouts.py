"""The timeouts: each is provoked alone by a peer, and each is named in its error."""

import math
import socket

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
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
    async def script(line: Line) -> None:
        await line.request()
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        started = trio.current_time()
        call = engine.start_stream(hello()) if stream else engine.start_request(hello())
        completion = await call.wait()
        assert trio.current_time() - started == pytest.approx(default, rel=0.01)
    assert "first_byte timeout" in (completion.error_message or "")
    assert completion.error_category is ms.ErrorCategory.TIMEOUT


async def test_idle_restarts_at_any_byte_and_keeps_what_arrived(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD + chunked(chat_chunk("a"), end=False).decode())
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
    async def script(line: Line) -> None:
        await line.request()
        await line.send(answer("{}", status="503 Busy", headers="Retry-After: 60\r\n"))
        await line.closed_by_peer()

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
    async def script(line: Line) -> None:
        await line.request()
        await line.send('HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\n{"error":')
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion, _ = await completion_of(engine, hello())
    assert completion.error_category is ms.ErrorCategory.AUTH
    assert completion.http_status == 401


async def test_infinity_switches_a_timeout_off(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await trio.sleep(100_000)
        await line.send(STREAM_HEAD + chunked(*chat_stream("at last")).decode())

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion, _ = await completion_of(engine, hello(timeouts=ms.Timeouts(first_byte=math.inf)))
    assert completion.success


async def test_the_idle_timeout_is_suspended_for_a_slow_consumer(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD + chunked(*chat_stream(*("x" * 1000))).decode())
        await line.closed_by_peer()

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
        await line.send(STREAM_HEAD + chunked(*chat_stream("late")).decode())


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
