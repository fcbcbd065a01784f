"""Faults in a response body (rows 64 to 80): resets, silence, floods, data that is not an event, timeouts, forks."""

import json
import time
import tracemalloc

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.engine import EngineLimits
from tests.faults.exchange import CLOCKS, ONCE_MORE, WHOLE, End, Wire, in_chunks, observe, ok, raw
from tests.support.dialects import CHAT, DIALECTS, Wording
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    hello,
    open_peer,
    reply_and_hold,
    reply_once,
    stream_of,
    until,
)

NETWORK, TIMEOUT, SERVER = ms.ErrorCategory.NETWORK, ms.ErrorCategory.TIMEOUT, ms.ErrorCategory.SERVER
THREE = "".join(chat_chunk(word) for word in ("one", " two", " three"))


async def test_a_reset_in_the_middle_keeps_the_events_before_it(autojump_clock: MockClock) -> None:
    seen = await observe(in_chunks(chunked(THREE, end=False), End.RESET))
    seen.check_once()
    assert (seen.error.category, seen.recorder.text) == (NETWORK, "one two three")
    assert seen.first.response.text == "one two three"
    assert "truncated stream" in seen.message
    assert "reset" in seen.message.lower()
    assert not seen.retried
    assert not seen.reused


async def test_a_complete_response_survives_the_reset_after_it(autojump_clock: MockClock) -> None:
    seen = await observe(in_chunks(chunked(WHOLE), End.RESET))
    seen.check_once()
    assert (seen.first.success, seen.recorder.text, seen.reused) == (True, "one", False)


async def dialect_call(
    wording: Wording, body: str, retry: ms.Retry = NO_RETRY, *, stream: bool = True, kind: str = "text/event-stream"
) -> tuple[ms.Completion, Recorder, int, int]:
    """Make a call whose response has that body, correctly framed, and another call.

    Returns the completion and recorder of the first call, the number of requests, and the number of connections.
    """
    requests = 0
    lines = 0

    async def script(line: Line) -> None:
        nonlocal requests, lines
        lines += 1
        while await line.request():
            requests += 1
            whole = wording.beginning + wording.rest
            head = STREAM_HEAD.replace("text/event-stream", kind if requests == 1 else "text/event-stream")
            await line.send(head.encode() + chunked(*filter(None, [body if requests == 1 else whole])))

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([wording.provider(peer.origin)], retry=retry) as engine:
        if stream:
            call = engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
        else:
            call = engine.start_request(hello(), recorder.on_completion)
        completion = await call.wait()
        await trio.testing.wait_all_tasks_blocked(0.005)
        again = await engine.start_stream(hello()).wait()
    assert again.success, again
    assert again.response.text == "one"
    return completion, recorder, requests, lines


@pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])
async def test_a_body_without_its_terminal_marker_is_truncated(wording: Wording) -> None:
    completion, recorder, requests, lines = await dialect_call(wording, wording.beginning, ONCE_MORE)
    assert completion.error_category is NETWORK
    assert "truncated stream" in (completion.error_message or "")
    assert completion.response.text == recorder.text == "one"
    assert (completion.attempts, requests) == (1, 2)  # an event was delivered: no second attempt
    assert lines == 1  # the HTTP message was complete: the connection is reused


@pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])
async def test_an_error_after_some_deltas_is_reported_after_them(wording: Wording) -> None:
    completion, recorder, requests, lines = await dialect_call(wording, wording.beginning + wording.overload, ONCE_MORE)
    assert completion.error_category is SERVER
    assert "we are overloaded" in (completion.error_message or "")
    assert recorder.text == "one"
    assert recorder.types[-1] == "ERROR"
    assert (completion.attempts, requests, lines) == (1, 2, 1)


@pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])
async def test_an_error_before_any_delta_is_retried(wording: Wording) -> None:
    completion, recorder, requests, lines = await dialect_call(wording, wording.overload, ONCE_MORE)
    assert completion.success
    assert recorder.text == "one"
    assert recorder.types.count("START") == 1
    assert (completion.attempts, requests, lines) == (2, 3, 1)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream", "text/html"])
@pytest.mark.parametrize("body", ["", " \n", "{}", "data: [DONE]\n\n", '{"error":{}}'])
@pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])
async def test_a_success_that_says_nothing_is_retried(wording: Wording, body: str, kind: str, stream: bool) -> None:
    completion, recorder, requests, lines = await dialect_call(wording, body, ONCE_MORE, stream=stream, kind=kind)
    assert completion.success
    assert completion.response.text == "one"
    assert recorder.types.count("START") <= 1
    assert (completion.attempts, requests, lines) == (2, 3, 1)


@pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])
async def test_a_permanent_error_is_not_retried(wording: Wording) -> None:
    completion, recorder, requests, _ = await dialect_call(wording, wording.spent, ONCE_MORE)
    assert not completion.success
    assert "quota spent" in (completion.error_message or "")
    assert (completion.attempts, requests, recorder.types) == (1, 2, ["ERROR"])


@pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])
async def test_an_event_that_is_not_json_ends_the_stream_and_is_quoted(wording: Wording) -> None:
    body = wording.beginning + wording.malformed + wording.rest
    completion, recorder, requests, lines = await dialect_call(wording, body, ONCE_MORE)
    assert completion.error is not None
    assert recorder.text == "one"
    assert "malformed" in completion.error.message
    assert completion.error.body.startswith(b'{"choices"')
    assert (completion.attempts, requests, lines) == (1, 2, 2)  # the origin of the bytes is unclear: no reuse


async def call(body: Wire, **options: object) -> tuple[ms.Completion, Recorder, float]:
    """Make a streamed call to a server that writes `body` and then sends nothing."""

    recorder = Recorder()
    async with open_peer(reply_and_hold(body.data)) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        started = trio.current_time()
        request = hello(timeouts=CLOCKS, **options)
        completion = await engine.start_stream(request, recorder.on_event, recorder.on_completion).wait()
        return completion, recorder, trio.current_time() - started


async def test_the_idle_timeout_covers_silence(autojump_clock: MockClock) -> None:
    completion, recorder, elapsed = await call(in_chunks(chunked(THREE, end=False)))
    assert (completion.error_category, completion.error.provider_code) == (TIMEOUT, "idle")
    assert elapsed == pytest.approx(CLOCKS.idle or 0, rel=0.1)
    assert recorder.text == "one two three"


async def test_a_slow_first_byte_has_its_own_timeout(autojump_clock: MockClock) -> None:
    completion, recorder, elapsed = await call(Wire(b""))
    assert (completion.error_category, completion.error.provider_code) == (TIMEOUT, "first_byte")
    assert completion.error.retryable
    assert elapsed == pytest.approx(CLOCKS.first_byte or 0, rel=0.1)
    assert recorder.types == ["ERROR"]


@pytest.mark.parametrize("ping", [": ping\n\n", ":\n\n", "\n"])
async def test_the_total_timeout_ends_a_stream_of_pings(ping: str, autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        while True:
            await trio.sleep(1)
            await line.send(chunked(ping, end=False))

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        started = trio.current_time()
        completion = await engine.start_stream(hello(timeouts=CLOCKS), recorder.on_event, recorder.on_completion).wait()
        assert trio.current_time() - started == pytest.approx(CLOCKS.total or 0, rel=0.1)
    assert (completion.error_category, completion.error.provider_code) == (TIMEOUT, "total")
    assert not completion.error.retryable
    assert recorder.types == ["ERROR"]


@pytest.mark.parametrize("wording", DIALECTS, ids=[wording.name for wording in DIALECTS])
async def test_single_bytes_deliver_the_same_events(wording: Wording, autojump_clock: MockClock) -> None:
    wire = stream_of(wording.beginning + wording.rest)

    async def script(line: Line) -> None:
        while await line.request():
            for place in range(len(wire)):
                await line.send(wire[place : place + 1])

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([wording.provider(peer.origin)]) as engine:
        completion = await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
        assert completion.success
        assert recorder.text == "one"
        await trio.testing.wait_all_tasks_blocked(0.006)
        assert (await engine.start_stream(hello()).wait()).success
    assert len(peer.lines) == 1


async def test_five_thousand_events_in_one_write_arrive_in_parts() -> None:
    flood = stream_of("".join(chat_stream(*["x" * 400] * 5_000)))
    ticks: list[int] = []

    async with open_peer(reply_once(flood)) as peer, ms.open_engine([peer.chat]) as engine:
        call = engine.start_stream(hello(), lambda event: ticks.append(engine.statistics().loop_ticks))
        tracemalloc.start()
        completion = await call.wait()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert completion.success
    assert len(ticks) == 5_002
    assert ticks[-1] - ticks[0] >= 5  # one connection never takes more than its share of a tick
    assert peak < len(flood) * 1.5 + 2_500_000


async def test_a_slow_consumer_exerts_backpressure(autojump_clock: MockClock) -> None:
    piece = chunked(chat_chunk("x" * 50_000), end=False)
    sent = 0

    async def script(line: Line) -> None:
        nonlocal sent
        await line.request()
        await line.send(STREAM_HEAD)
        for _ in range(1000):
            await line.send(piece)
            sent += len(piece)
        await line.send(chunked(chat_chunk(finish="stop"), "data: [DONE]\n\n"))

    received = 0
    async with open_peer(script) as peer, ms.open_engine([peer.chat], timeouts=ms.Timeouts(idle=10)) as engine:
        async with engine.stream(hello()) as events:
            async for event in events:
                if isinstance(event, ms.Start):
                    await trio.sleep(1000)  # far longer than the idle timeout
                    assert sent < 20_000_000  # the size of the two kernels' buffers, and no more
                    assert engine.statistics().bytes_received < 8_000_000
                if isinstance(event, ms.TextDelta):
                    received += len(event.text)
        assert events.completion.success
    assert received == 50_000_000


async def test_a_stream_beyond_the_cap_is_a_clear_error() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        while True:
            await line.send(chunked(chat_chunk("x" * 10_000), end=False))

    limits = EngineLimits(max_response_bytes=1_000_000)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=limits) as engine:
        completion = await engine.start_stream(hello()).wait()
        assert engine.statistics().bytes_received < 2_000_000
        assert engine.statistics().connections == {}
    assert (completion.error_category, completion.error.retryable) == (SERVER, False)
    assert "limits.max_response_bytes" in completion.error.message
    assert len(completion.response.text) > 500_000


async def test_an_end_directly_after_the_head_is_truncated(autojump_clock: MockClock) -> None:
    seen = await observe(in_chunks(b"", End.FIN))
    seen.check_once()
    assert (seen.error.category, seen.recorder.types, seen.retried) == (NETWORK, ["ERROR"], True)
    assert "truncated stream" in seen.message


async def test_a_half_close_is_an_end(autojump_clock: MockClock) -> None:
    """The server shuts down its sending side and would continue to read."""

    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        await line.stream.send_eof()
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert completion.error_category is NETWORK
    assert "truncated stream" in (completion.error_message or "")


PAGE = "<html><body>Please log in</body></html>"


async def test_a_page_instead_of_a_stream_is_quoted(autojump_clock: MockClock) -> None:
    seen = await observe(raw(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(PAGE)}\r\n", PAGE))
    seen.check_once()
    assert seen.error.category is SERVER
    assert not seen.retried
    assert seen.error.body == PAGE.encode()
    assert seen.reused  # the HTTP message was complete


async def test_other_json_instead_of_a_stream_is_quoted(autojump_clock: MockClock) -> None:
    body = json.dumps({"hello": ["world"]})
    seen = await observe(
        raw(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n", body)
    )
    seen.check_once()
    assert seen.error.category is SERVER
    assert seen.error.body == body.encode()


async def test_an_error_object_instead_of_a_stream_is_that_error(autojump_clock: MockClock) -> None:
    body = error_body("quota spent", "insufficient_quota", "insufficient_quota")
    seen = await observe(
        raw(f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n", body)
    )
    seen.check_once()
    assert (seen.error.category, seen.retried) == (ms.ErrorCategory.RATE_LIMIT, False)


UTF8 = [b"caf\xe9", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f"]


@pytest.mark.parametrize("text", UTF8)
async def test_invalid_utf_8_is_replaced(text: bytes, autojump_clock: MockClock) -> None:
    broken = chat_chunk("TEXT").encode().replace(b"TEXT", text)
    seen = await observe(ok("Transfer-Encoding: chunked\r\n", chunked(broken, *chat_stream("one")[1:])))
    seen.check_once()
    assert seen.first.success, seen.first
    assert "\ufffd" in seen.recorder.text


async def test_the_system_s_clock_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    jumps = iter(range(10**9))

    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        for frame in chat_stream(*"abcdefgh"):
            await line.send(chunked(frame, end=False))
            monkeypatch.setattr(time, "time", lambda: real() + (-1) ** next(jumps) * 10_000_000)
        await line.send("0\r\n\r\n")

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello(timeouts=CLOCKS)).wait()
        assert completion.success
        assert 0 <= (completion.timings.finished or -1) < 10
        await until(lambda: engine.statistics().completed == 1)


async def test_an_error_may_be_visible_only_in_the_status(autojump_clock: MockClock) -> None:
    seen = await observe(Wire(answer("", status="503 Busy", headers="Retry-After: 1\r\n")))
    seen.check_once()
    assert (seen.error.category, seen.error.http_status, seen.retried, seen.reused) == (SERVER, 503, True, True)
    assert CHAT.name == "chat"
