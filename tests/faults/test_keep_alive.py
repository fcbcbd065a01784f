"""Faults of kept-alive connections (rows 1 to 14): which ones are reused, and the effects of a dead or dirty one."""

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

import manystream as ms
from tests.faults.exchange import ONCE_MORE, End, Wire, observe, ok, raw
from tests.faults.servers import serve_records
from tests.support.peers import (
    NO_RETRY,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    error_body,
    hello,
    open_descriptors,
    open_peer,
    replies,
    reply_once,
    stream_of,
    until,
)

STREAM = stream_of(*chat_stream("fine"))
ONE_CONNECTION = ms.EngineLimits(pool=ms.PoolLimits(max_per_origin=1))


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked(0.006)


serve_soundly = replies(STREAM)


async def test_a_connection_that_ended_while_idle_is_not_used(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM)
        await trio.sleep(0.05)

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        for _ in range(5):
            completion = await engine.start_stream(hello()).wait()
            assert (completion.success, completion.attempts) == (True, 1)
            await trio.sleep(0.2)
        statistics = engine.statistics()
    assert (statistics.opened, statistics.reused, statistics.retried) == (5, 0, 0)


@pytest.mark.parametrize("with_reset", [False, True])
async def test_an_end_that_races_with_the_next_request_is_hidden(with_reset: bool) -> None:
    """The server closes directly after its response; the next call starts in the callback of the completion."""

    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM)
        if with_reset:
            line.reset()

    ended: list[ms.Completion] = []
    everything = trio.Event()
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:

        def on_completion(completion: ms.Completion) -> None:
            ended.append(completion)
            if len(ended) < 200:
                engine.start_stream(hello(), None, on_completion)
            else:
                everything.set()

        engine.start_stream(hello(), None, on_completion)
        await everything.wait()
    assert [completion.error for completion in ended if not completion.success] == []
    assert {completion.attempts for completion in ended} == {1}


async def test_a_stale_connection_is_replaced_once() -> None:
    """Each connection of this server reads a second request and closes without a response."""

    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM)
        await line.request()

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=ONCE_MORE) as engine:
        completions = [await engine.start_stream(hello()).wait() for _ in range(20)]
        statistics = engine.statistics()
    assert all(completion.success for completion in completions)
    assert [completion.attempts for completion in completions] == [1] + 19 * [2]
    assert (statistics.resent, statistics.retried) == (19, 19)
    assert len(peer.lines) == 20


async def test_waiting_calls_get_a_fresh_connection() -> None:
    """With one connection allowed and a queue, a fresh connection must not be another call's, which is as old."""

    async def script(line: Line) -> None:
        for _ in range(2):  # the third request on each connection is lost
            if not await line.request():
                return
            await line.send(STREAM)
        await line.request()

    limits = ms.EngineLimits(pool=ms.PoolLimits(max_per_origin=2))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=ONCE_MORE, limits=limits) as engine:
        calls = [engine.start_stream(hello()) for _ in range(60)]
        completions = [await call.wait() for call in calls]
    assert [completion.error for completion in completions if not completion.success] == []


async def test_after_one_byte_a_connection_is_not_stale(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM)
        if await line.request() and len(peer.lines) == 1:
            await line.send("HTTP/1.1 2")
            await settle()
            line.reset()
        else:
            await line.send(STREAM)

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        await engine.start_stream(hello()).wait()
        broken = await engine.start_stream(hello(retry=NO_RETRY)).wait()
        assert broken.error_category is ms.ErrorCategory.NETWORK
        assert (broken.error.provider_code, broken.error.retryable) == ("head", True)
        assert (await engine.start_stream(hello()).wait()).success


@pytest.mark.parametrize("end", [End.FIN, End.RESET])
async def test_a_fresh_connection_without_a_byte_is_an_error(end: End, autojump_clock: MockClock) -> None:
    seen = await observe(Wire(b"", end))
    seen.check_once()
    assert (seen.error.category, seen.reused, seen.retried) == (ms.ErrorCategory.NETWORK, False, True)
    assert seen.recorder.types == ["ERROR"]


async def test_a_restart_that_ends_all_idle_connections_is_hidden() -> None:
    async with open_peer(serve_soundly) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        for call in [engine.start_stream(hello()) for _ in range(50)]:
            await call.wait()
        assert engine.statistics().opened == 50
        await settle()
        for line in peer.lines:
            line.reset()
        completions = [await call.wait() for call in [engine.start_stream(hello()) for _ in range(50)]]
        await settle()
        statistics = engine.statistics()
    assert all(completion.success and completion.attempts == 1 for completion in completions)
    assert (statistics.opened, statistics.retried) == (100, 0)
    assert statistics.connections[peer.origin].idle == 50


async def test_a_keep_alive_header_is_not_relied_upon() -> None:
    script = reply_once(STREAM.replace(b"\r\n", b"\r\nKeep-Alive: timeout=5, max=100\r\n", 1))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        for _ in range(30):
            completion = await engine.start_stream(hello()).wait()
            assert (completion.success, completion.attempts) == (True, 1)


POISON = stream_of(*chat_stream("POISON"))


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_second_response_is_discarded(waiting: bool) -> None:
    async def script(line: Line) -> None:
        while await line.request():
            await line.send(STREAM + (POISON if line is peer.lines[0] else b""))

    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=ONE_CONNECTION) as engine:
        if waiting:
            calls = [engine.start_stream(hello()) for _ in range(3)]
            completions = [await call.wait() for call in calls]
        else:
            completions = [await engine.start_stream(hello()).wait() for _ in range(3)]
    assert [completion.response and completion.response.text for completion in completions] == ["fine"] * 3
    assert len(peer.lines) == 2


@pytest.mark.parametrize("waiting", [False, True])
async def test_a_second_response_in_its_own_tls_record_is_discarded(waiting: bool) -> None:
    """The second response may be in another TLS record than the first, and so in another read."""
    ca = trustme.CA()
    trusted = ms.TLSConfig(ca_data=ca.cert_pem.bytes().decode())
    async with serve_records(ca, [[STREAM, POISON], [STREAM]]) as server:
        provider = ms.OpenAIChat(api_key="k", base_url=server.url)
        async with ms.open_engine([provider], limits=ONE_CONNECTION, tls=trusted, retry=NO_RETRY) as engine:
            if waiting:
                calls = [engine.start_stream(hello()) for _ in range(3)]
                completions = [await call.wait() for call in calls]
            else:
                completions = [await engine.start_stream(hello()).wait() for _ in range(3)]
    assert [completion.response and completion.response.text for completion in completions] == ["fine"] * 3
    assert server.connections == 2


@pytest.mark.parametrize("junk", [b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", b"\r\n", POISON])
async def test_bytes_on_an_idle_connection_close_it(junk: bytes, autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM)
        await trio.sleep(0.1)
        await line.send(junk)
        while await line.request():
            await line.send(POISON)

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        for _ in range(3):
            completion = await engine.start_stream(hello()).wait()
            assert completion.response.text == "fine"
            await trio.sleep(1)
    assert len(peer.lines) == 3


@pytest.mark.parametrize(
    "header", ["close", "Close", "keep-alive, close", "close, TE", "x\r\nConnection: CLOSE", " close "]
)
async def test_connection_close_is_obeyed(header: str, autojump_clock: MockClock) -> None:
    body = "".join(chat_stream("one"))
    seen = await observe(ok(f"Connection: {header}\r\nContent-Length: {len(body)}\r\n", body))
    seen.check_once()
    assert (seen.first.success, seen.recorder.text, seen.reused) == (True, "one", False)


@pytest.mark.parametrize("connection", ["", "Connection: keep-alive\r\n"])
@pytest.mark.parametrize("sized", [True, False])
async def test_http_1_0_is_read_and_not_kept_alive(connection: str, sized: bool, autojump_clock: MockClock) -> None:
    body = "".join(chat_stream("one"))
    length = f"Content-Length: {len(body)}\r\n" if sized else ""
    seen = await observe(
        raw(f"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n{connection}{length}", body,
        End.OPEN if sized else End.FIN)
    )  # fmt: skip
    seen.check_once()
    assert (seen.first.success, seen.recorder.text, seen.reused) == (True, "one", False)


async def test_an_abandoned_stream_closes_its_socket(autojump_clock: MockClock) -> None:
    left = trio.Event()

    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(chat_chunk("one"), end=False))
        await line.closed_by_peer()
        left.set()

    async with open_peer(script) as peer:
        before = open_descriptors()
        async with ms.open_engine([peer.chat]) as engine:
            async with engine.stream(hello()) as events:
                async for event in events:
                    if isinstance(event, ms.TextDelta):
                        break
            with trio.fail_after(1):
                await left.wait()
            assert engine.statistics().connections == {}
        await until(lambda: open_descriptors() == before)


@pytest.mark.parametrize(("seconds", "kept"), [(0.3, True), (30.0, False)])
async def test_the_last_chunk_is_not_waited_for(seconds: float, kept: bool, autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        while await line.request():
            await line.send(stream_of(*chat_stream("fine"), end=False))
            await trio.sleep(seconds)
            await line.send("0\r\n\r\n")

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        started = trio.current_time()
        assert (await engine.start_stream(hello()).wait()).success
        assert trio.current_time() - started < 0.1
        await trio.sleep(60 if not kept else 1)
        assert (await engine.start_stream(hello()).wait()).success
    assert len(peer.lines) == (1 if kept else 2)


async def test_rejected_answers_leave_their_connections_usable(autojump_clock: MockClock) -> None:
    seen = [0]

    async def script(line: Line) -> None:
        while await line.request():
            seen[0] += 1
            rejected = answer(error_body("slow down " * 100), status="429 Too Many", headers="Retry-After-Ms: 10\r\n")
            await line.send(rejected if seen[0] <= 20 else STREAM)

    limits = ms.EngineLimits(pool=ms.PoolLimits(max_per_origin=2))
    retry = ms.Retry(max_attempts=30)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=limits, retry=retry) as engine:
        calls = [engine.start_stream(hello()) for _ in range(4)]
        assert all([(await call.wait()).success for call in calls])
        assert engine.statistics().retried == 20
    assert len(peer.lines) == 2


async def test_two_keys_share_connections_and_nothing_else() -> None:
    async with open_peer(replies(answer(chat_answer("fine")))) as peer:
        providers = [ms.OpenAIChat(api_key=f"sk-{name}", base_url=peer.url, name=name) for name in ("ann", "bob")]
        async with ms.open_engine(providers) as engine:
            for name in ("ann", "bob", "bob", "ann"):
                await engine.request(ms.Request(f"{name}/m", [ms.Message.user("x")]))
    assert [b"sk-ann" in request for request in peer.requests] == [True, False, False, True]
    assert [b"sk-bob" in request for request in peer.requests] == [False, True, True, False]
    assert len(peer.lines) == 1


async def test_each_call_completes_once_despite_stale_connections() -> None:
    async def script(line: Line) -> None:
        for _ in range(3):
            if not await line.request():
                return
            await line.send(STREAM)

    recorders = [Recorder() for _ in range(300)]
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=ONE_CONNECTION, retry=ONCE_MORE) as engine:
        for recorder in recorders:
            engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
        await until(lambda: engine.statistics().completed == len(recorders))
    assert [recorder.completion.error for recorder in recorders if not recorder.completion.success] == []
