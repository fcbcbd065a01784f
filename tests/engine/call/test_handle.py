"""Cancelling: in every phase the socket closes at once, and the call completes exactly once, CANCELLED."""

import socket

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Recorder,
    chat_stream,
    chunked,
    error_body,
    hang,
    hang_in_body,
    hello,
    open_descriptors,
    open_peer,
    silent,
)


async def hang_in_head(line: Line) -> None:
    await line.request()
    await line.send("HTTP/1.1 200 OK\r\nContent-Ty")
    await line.closed_by_peer()


async def hang_in_error_body(line: Line) -> None:
    await line.request()
    await line.send("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{")
    await line.closed_by_peer()


@pytest.mark.parametrize("script", [silent, hang_in_head, hang_in_body, hang_in_error_body])
@pytest.mark.parametrize("stream", [True, False])
async def test_cancelling_while_the_peer_hangs_closes_the_socket(script: object, stream: bool) -> None:
    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:  # type: ignore[arg-type]
        if stream:
            call = engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
        else:
            call = engine.start_request(hello(), recorder.on_completion)
        await trio.testing.wait_all_tasks_blocked(0.01)
        before = open_descriptors()
        call.cancel()
        assert open_descriptors() == before - 1  # the client's socket, at once
        assert recorder.completions == []  # never from within cancel
        completion = await call.wait()
        call.cancel()
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert recorder.completions == [completion]
    assert completion.error_category is ms.ErrorCategory.CANCELLED
    if script is hang_in_body and stream:
        assert completion.response.text == "partial"
        assert recorder.types == ["START", "TEXT_DELTA", "ERROR"]


async def test_cancelling_in_the_queue() -> None:
    limits = ms.EngineLimits(pool=ms.transport.pool.PoolLimits(max_per_origin=1))
    async with open_peer(hang) as peer, ms.open_engine([peer.chat], limits=limits) as engine:
        first = engine.start_stream(hello())
        second = engine.start_stream(hello())
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert second.state == "queued"
        second.cancel()
        assert (await second.wait()).error_category is ms.ErrorCategory.CANCELLED
        assert first.state in ("sending", "waiting")


async def test_cancelling_while_looking_up_the_host() -> None:
    class Silent(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *args: object, **kwargs: object) -> list[object]:  # type: ignore[override]
            await trio.sleep_forever()
            raise AssertionError

        async def getnameinfo(self, *args: object) -> tuple[str, str]:  # type: ignore[override]
            raise AssertionError

    trio.socket.set_custom_hostname_resolver(Silent())
    provider = ms.OpenAIChat(api_key="k", base_url="http://slow.test/v1")
    async with ms.open_engine([provider], proxy="") as engine:
        call = engine.start_stream(hello())
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert call.state == "connecting"
        call.cancel()
        assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED


async def test_cancelling_while_connecting() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(2):  # once the backlog is full, further connects hang
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    provider = ms.OpenAIChat(api_key="k", base_url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1")
    async with ms.open_engine([provider]) as engine:
        call = engine.start_stream(hello())
        await trio.testing.wait_all_tasks_blocked(0.01)
        before = open_descriptors()
        assert call.state == "connecting"
        call.cancel()
        await call.wait()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert open_descriptors() == before - 1
    for sock in (listener, *fillers):
        sock.close()


async def test_cancelling_in_the_tls_handshake() -> None:
    async with open_peer(hang) as peer:
        provider = ms.OpenAIChat(api_key="k", base_url=f"https://127.0.0.1:{peer.port}/v1")
        async with ms.open_engine([provider]) as engine:
            call = engine.start_stream(hello())
            await trio.testing.wait_all_tasks_blocked(0.02)
            assert call.state == "connecting"
            call.cancel()
            assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED


async def test_cancelling_while_a_large_body_is_being_sent() -> None:
    async with open_peer(lambda line: trio.sleep_forever()) as peer, ms.open_engine([peer.chat]) as engine:
        call = engine.start_stream(ms.Request("m", [ms.Message.user("x" * 20_000_000)]))
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert call.state == "sending"
        call.cancel()
        assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED


async def test_cancelling_during_a_back_off(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        body = error_body("busy")
        await line.send(f"HTTP/1.1 503 Busy\r\nContent-Length: {len(body)}\r\nRetry-After: 60\r\n\r\n{body}")
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        call = engine.start_stream(hello())
        await trio.sleep(5)
        assert call.state == "backoff"
        call.cancel()
        completion = await call.wait()
        assert completion.error_category is ms.ErrorCategory.CANCELLED
        await trio.sleep(200)
        assert len(peer.lines) == 1


async def test_after_a_callback_cancels_its_call_only_the_end_follows() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD + chunked(*chat_stream(*"abcdef")).decode())
        await line.closed_by_peer()

    recorder = Recorder()

    def on_event(event: ms.Event) -> None:
        recorder.on_event(event)
        if len(recorder.events) == 3:
            call.cancel()

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        call = engine.start_stream(hello(), on_event, recorder.on_completion)
        await call.wait()
    assert recorder.types == ["START", "TEXT_DELTA", "TEXT_DELTA", "ERROR"]
    assert recorder.completion.error_category is ms.ErrorCategory.CANCELLED


async def test_a_callback_can_cancel_a_call_ready_in_the_same_tick() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD + chunked(*chat_stream("x")).decode())
        await line.closed_by_peer()

    calls: list[ms.Call] = []
    completions: list[ms.Completion] = []

    def on_event(event: ms.Event) -> None:
        for call in calls:
            call.cancel()

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        calls += [engine.start_stream(hello(), on_event, completions.append) for _ in range(20)]
        for call in calls:
            await call.wait()
    assert len(completions) == 20
    assert {completion.error_category for completion in completions} == {ms.ErrorCategory.CANCELLED}


async def test_cancelling_request_cancels_the_call() -> None:
    async with open_peer(silent) as peer, ms.open_engine([peer.chat]) as engine:
        with trio.move_on_after(0.05):
            await engine.request(hello())
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert engine.statistics().cancelled == 1
        assert engine.statistics().connections == {}


async def test_leaving_the_iterator_s_block_cancels_the_call() -> None:
    async with open_peer(hang_in_body) as peer, ms.open_engine([peer.chat]) as engine:
        async with engine.stream(hello()) as events:
            async for event in events:
                if isinstance(event, ms.TextDelta):
                    break
        assert (await events.call.wait()).error_category is ms.ErrorCategory.CANCELLED


async def test_a_call_that_was_cancelled_sets_no_timer() -> None:
    """An observer may cancel the call while a read is processed, after which the timer is set for the next state."""
    timeouts = ms.Timeouts(total=60)
    async with open_peer(silent) as peer, ms.open_engine([peer.chat], timeouts=timeouts) as engine:
        call = engine.start_stream(hello())
        call.cancel()
        attempt = call._running._attempt
        attempt.arm()
        call._running._arm()
        assert attempt._timer is None
        assert call._running._timer is None
        assert not (await call.wait()).success
