"""The handle of a call: cancelling in every phase, and its state, text and timings at each step."""

import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Recorder,
    Script,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    hang,
    hang_in_body,
    hello,
    open_descriptors,
    open_peer,
    replies,
    reply_and_hold,
    silent,
    stream_of,
    until,
)

hang_in_head = reply_and_hold("HTTP/1.1 200 OK\r\nContent-Ty")


hang_in_error_body = reply_and_hold("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{")


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
    script = reply_and_hold(stream_of(*chat_stream(*"abcdef")))
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
    script = reply_and_hold(stream_of(*chat_stream("x")))
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
        attempt = call._running.attempt
        attempt.arm()
        call._running._arm()
        assert attempt._timer is None
        assert call._running._timer is None
        assert not (await call.wait()).success


TIMEOUTS = ms.Timeouts(connect=3, first_byte=4, idle=5, total=60, queue=6)


@pytest.fixture
def hole() -> Iterator[str]:
    """The origin of a listener whose queue is full, so that connects hang."""
    with socket.socket() as listener, socket.socket() as filler, socket.socket() as other:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (filler, other):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


async def ended(engine: ms.Engine, request: ms.Request | None = None) -> tuple[str, str, float]:
    """The message, the timeout and the rounded seconds of a call that fails."""
    began = trio.current_time()
    completion = await engine.start_stream(request or hello()).wait()
    assert completion.error is not None
    return completion.error.message, completion.error.provider_code or "", round(trio.current_time() - began, 1)


# --- timeouts ---


async def test_a_connect_that_hangs_is_named(autojump_clock: MockClock, hole: str) -> None:
    async with ms.open_engine([ms.OpenAIChat("k", f"{hole}/v1")], retry=NO_RETRY, timeouts=TIMEOUTS) as engine:
        assert await ended(engine) == (
            f"connect timeout: no connection within 3 s (connecting to {hole})", "connect", 3.0
        )  # fmt: skip
        await until(lambda: engine.statistics().connections == {})


async def test_a_lookup_that_hangs_is_named(autojump_clock: MockClock) -> None:
    class Silent(trio.abc.HostnameResolver):
        async def getaddrinfo(self, *args: object, **kwargs: object) -> list[object]:  # type: ignore[override]
            await trio.sleep_forever()
            raise AssertionError

        async def getnameinfo(self, *args: object) -> tuple[str, str]:  # type: ignore[override]
            raise AssertionError

    trio.socket.set_custom_hostname_resolver(Silent())
    provider = ms.OpenAIChat("k", "http://slow.test/v1")
    async with ms.open_engine([provider], proxy="", retry=NO_RETRY, timeouts=TIMEOUTS) as engine:
        assert await ended(engine) == (
            "connect timeout: no connection within 3 s (looking up http://slow.test:80)", "connect", 3.0
        )  # fmt: skip


async def test_a_handshake_that_hangs_is_named(autojump_clock: MockClock) -> None:
    async with open_peer(hang) as peer:
        origin = f"https://127.0.0.1:{peer.port}"
        async with ms.open_engine([ms.OpenAIChat("k", f"{origin}/v1")], retry=NO_RETRY, timeouts=TIMEOUTS) as engine:
            assert await ended(engine) == (
                f"connect timeout: no connection within 3 s (TLS handshake with {origin})", "connect", 3.0
            )  # fmt: skip


async def test_a_tunnel_that_hangs_is_named(autojump_clock: MockClock) -> None:
    async with open_peer(hang) as proxy:
        provider = ms.OpenAIChat("k", "https://models.example/v1")
        async with ms.open_engine([provider], proxy=proxy.origin, retry=NO_RETRY, timeouts=TIMEOUTS) as engine:
            assert await ended(engine) == (
                "connect timeout: no connection within 3 s (proxy tunnel to https://models.example:443)",
                "connect",
                3.0,
            )


async def head_only(line: Line) -> None:
    await line.request()
    await trio.sleep(1)
    await line.send(STREAM_HEAD)
    await line.closed_by_peer()


busy = replies(answer("{}", status="503 Busy", headers="Retry-After: 100\r\n"))


async def never_reads(line: Line) -> None:
    await trio.sleep_forever()


LATE: dict[str, tuple[Script, str, str, float]] = {
    "no response": (silent, "first_byte timeout: no response byte within 4 s (waiting, {0})", "first_byte", 4.0),
    "no event": (head_only, "idle timeout: no byte for 5 s (reading, {0})", "idle", 6.0),
    "back-off": (busy, "total timeout: the call did not end within 60 s (backoff, {0})", "total", 60.0),
}


@pytest.mark.parametrize("name", LATE)
async def test_each_timeout_says_what_the_call_was_doing(autojump_clock: MockClock, name: str) -> None:
    script, message, code, seconds = LATE[name]
    async with open_peer(script) as peer, ms.open_engine([peer.chat], timeouts=TIMEOUTS, retry=LONG[name]) as engine:
        assert await ended(engine) == (message.format(peer.origin), code, seconds)


LONG = {"no response": NO_RETRY, "no event": NO_RETRY, "back-off": ms.Retry(jitter=0)}


async def test_a_request_that_is_not_read_is_idle(autojump_clock: MockClock) -> None:
    async with open_peer(never_reads) as peer, ms.open_engine([peer.chat], timeouts=TIMEOUTS, retry=NO_RETRY) as engine:
        message, code, _ = await ended(engine, ms.Request("m", "x" * 20_000_000))
        assert (message, code) == (f"idle timeout: no byte for 5 s (sending, {peer.origin})", "idle")


async def test_a_first_byte_timeout_may_be_shorter_than_idle(autojump_clock: MockClock) -> None:
    for first_byte, idle in ((2, 50), (50, 2)):
        timeouts = ms.Timeouts(first_byte=first_byte, idle=idle)
        async with open_peer(silent) as peer, ms.open_engine([peer.chat], timeouts=timeouts, retry=NO_RETRY) as engine:
            _, code, seconds = await ended(engine)
            assert (code, seconds) == ("first_byte", first_byte)


async def test_a_wait_for_a_connection_is_named(autojump_clock: MockClock) -> None:
    limits = ms.EngineLimits(pool=ms.PoolLimits(max_connections=1))
    timeouts = ms.Timeouts(first_byte=100, queue=6)
    async with open_peer(silent) as peer, ms.open_engine([peer.chat], timeouts=timeouts, limits=limits) as engine:
        first = engine.start_stream(hello())
        assert await ended(engine) == (
            f"queue timeout: the call was not sent within 6 s (queued, {peer.origin})", "queue", 6.0
        )  # fmt: skip
        total = hello(timeouts=ms.Timeouts(total=4))
        assert await ended(engine, total) == (
            f"total timeout: the call did not end within 4 s (queued, {peer.origin})", "total", 4.0
        )  # fmt: skip
        assert engine.statistics().connections[peer.origin].waiting == 0
        assert first.completion is None


async def test_an_error_s_body_has_five_seconds(autojump_clock: MockClock) -> None:
    """It has them from its head on, however often a byte comes, and less if the idle timeout is shorter."""

    async def slow_error(line: Line) -> None:
        await line.request()
        await trio.sleep(2)
        await line.send("HTTP/1.1 401 No\r\nContent-Length: 100\r\n\r\n")
        for _ in range(50):
            await trio.sleep(1)
            await line.send(" ")

    for idle, seconds in ((100.0, 7.0), (0.5, 2.5)):
        timeouts = ms.Timeouts(idle=idle, first_byte=50)
        async with open_peer(slow_error) as peer, ms.open_engine([peer.chat], timeouts=timeouts) as engine:
            began = trio.current_time()
            completion = await engine.start_stream(hello()).wait()
            assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)
        assert (completion.error_category, completion.http_status) == (ms.ErrorCategory.AUTH, 401)


async def test_the_connect_timeout_begins_when_a_connection_is_opened(autojump_clock: MockClock, hole: str) -> None:
    """A call that waited for its turn has its whole timeout."""
    limits = ms.EngineLimits(pool=ms.PoolLimits(max_connections=1))
    provider = ms.OpenAIChat("k", f"{hole}/v1")
    async with ms.open_engine([provider], retry=NO_RETRY, timeouts=ms.Timeouts(connect=3), limits=limits) as engine:
        calls = [engine.start_stream(hello()) for _ in range(2)]
        times = [(await call.wait()).timings for call in calls]
    assert [round(each.finished or 0, 1) for each in times] == [3.0, 6.0]
    assert [round(each.queued or 0, 1) for each in times] == [0.0, 3.0]
    assert [each.connected for each in times] == [None, None]
    assert [dict(each.waited) for each in times] == [{}, {"connection": pytest.approx(3, abs=0.05)}]


# --- states ---


async def test_a_call_passes_through_its_states(autojump_clock: MockClock) -> None:
    failed = False

    async def script(line: Line) -> None:
        nonlocal failed
        while await line.request():
            await trio.sleep(2)
            if not failed:
                failed = True
                await line.send(answer(error_body("busy"), status="503 Busy"))
                continue
            await line.send(STREAM_HEAD)
            await trio.sleep(2)
            await line.send(chunked(*chat_stream("x")))

    retry = ms.Retry(base=5, jitter=0)
    seen: list[tuple[str, str]] = []
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=retry) as engine:
        call = engine.start_stream(hello())

        def look() -> None:
            if not seen or seen[-1] != (call.state.value, repr(call)):
                seen.append((call.state.value, repr(call)))

        look()
        while call.completion is None:
            await trio.sleep(0.25)
            look()
    named = "<Call stream to peer {0}, attempt {1}>"
    assert seen == [
        ("queued", named.format("queued", 1)), ("waiting", named.format("waiting", 1)),
        ("backoff", named.format("backoff", 1)), ("waiting", named.format("waiting", 2)),
        ("reading", named.format("reading", 2)), ("ended", named.format("ended", 2)),
    ]  # fmt: skip
    assert call.completion.timings.finished == pytest.approx(11, abs=0.3)


async def test_the_timings_are_those_of_the_last_attempt(autojump_clock: MockClock) -> None:
    requests = 0

    async def script(line: Line) -> None:
        nonlocal requests
        while await line.request():
            requests += 1
            await trio.sleep(1)
            if requests == 1:
                await line.send(answer(error_body("busy"), status="503 Busy"))
                continue
            await line.send(STREAM_HEAD)
            await trio.sleep(1)
            await line.send(chunked(chat_chunk("x"), end=False))
            await trio.sleep(1)
            await line.send(chunked(chat_chunk(finish="stop"), "data: [DONE]\n\n"))

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=ms.Retry(base=3, jitter=0)) as engine:
        completion = await engine.start_stream(hello()).wait()
    timings = completion.timings
    times = [timings.queued, timings.connected, timings.first_byte, timings.first_token, timings.finished]
    assert times == [pytest.approx(seconds, abs=0.1) for seconds in (4, 4, 5, 6, 7)]
    assert timings.waited == {}


async def test_a_paused_call_reads_nothing_until_it_is_resumed(autojump_clock: MockClock) -> None:
    """The idle timeout stands still meanwhile."""

    script = replies(stream_of(*chat_stream("x")))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], timeouts=ms.Timeouts(idle=5)) as engine:
        call = engine.start_stream(hello())
        call.pause()  # before it has a connection
        await trio.sleep(60)
        assert (call.completion, engine.statistics().events) == (None, 0)
        call.resume()
        assert (await call.wait()).success
        call.pause()
        call.resume()  # after the end, both do nothing


async def test_the_idle_timeout_runs_again_after_a_resume(autojump_clock: MockClock) -> None:
    script = reply_and_hold(stream_of(chat_chunk("x"), end=False))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], timeouts=ms.Timeouts(idle=5)) as engine:
        call = engine.start_stream(hello())
        await trio.sleep(1)
        call.pause()
        await trio.sleep(60)
        call.resume()
        began = trio.current_time()
        completion = await call.wait()
        assert completion.error.category is ms.ErrorCategory.TIMEOUT
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)


# --- retries ---


async def test_retries_without_a_hint_are_bounded_by_the_engine(autojump_clock: MockClock) -> None:
    """A hint of at least the base is obeyed all the same."""
    headers = [""]
    script = replies(lambda _: answer(error_body("busy"), status="503 Busy", headers=headers[0]))
    retry = ms.Retry(max_attempts=50, base=1, cap=1, jitter=0)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=retry) as engine:
        attempts = [(await engine.start_stream(hello()).wait()).attempts for _ in range(4)]
        assert attempts == [50, 50, 3, 1]  # a hundred retries, and a fifth of one for each call
        assert engine.statistics().retried == 100
        hinted: list[int] = []
        for hint in (999, 1000):
            headers[0] = f"Retry-After-Ms: {hint}\r\n"
            request = hello(retry=ms.Retry(max_attempts=2, base=1, cap=1, jitter=0))
            hinted.append((await engine.start_stream(request).wait()).attempts)
    assert hinted == [1, 2]


async def test_each_attempt_after_a_lost_connection_is_a_retry(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(answer(chat_answer("first")))
        if len(peer.lines) < 3:
            await line.request()  # and close without a response
            return
        while await line.request():
            await line.send(answer(chat_answer("again")))

    observed: list[int] = []

    class Watch(ms.Observer):
        def attempt_started(self, call: ms.Call, number: int) -> None:
            observed.append(number)

    async with open_peer(script) as peer, ms.open_engine([peer.chat], observer=Watch(), retry=NO_RETRY) as engine:
        await engine.request(hello())
        failed = await engine.start_request(hello()).wait()
        again = await engine.start_request(hello(retry=ms.Retry(base=5, jitter=0))).wait()
        await until(lambda: engine.statistics().calls == {})
        statistics = engine.statistics()
    assert (failed.success, failed.attempts, failed.resent) == (False, 1, 0)
    assert (again.success, again.resent) == (True, again.attempts - 1)
    assert (statistics.retried, statistics.resent) == (again.resent, again.resent)
    assert observed == [1, 1, *range(1, again.attempts + 1)]
