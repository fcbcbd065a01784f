"""Caps: too much of anything from a server or a caller is an error that names the cap, and uses no memory."""

import pytest
import trio

import manystream as ms
from manystream.engine import EngineLimits, TooManyCallsError
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_chunk,
    chunked,
    hello,
    open_peer,
    reply_once,
    stream_of,
    until,
)

SMALL = EngineLimits(max_event_bytes=100_000, max_response_bytes=200_000, max_error_bytes=10_000, max_calls=3)


async def outcome(script: object, *, stream: bool = True) -> tuple[ms.ProviderError, ms.Engine]:
    """Make a call with small caps; return its error and its engine, after a check that nothing is left open."""
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=SMALL, retry=NO_RETRY) as engine:  # type: ignore[arg-type]
        call = engine.start_stream(hello()) if stream else engine.start_request(hello())
        error = (await call.wait()).error
        assert error is not None
        await until(lambda: not any(origin.active for origin in engine.statistics().connections.values()))
        return error, engine


async def flood(line: Line, beginning: bytes, piece: bytes) -> None:
    await line.request()
    await line.send(beginning)
    while True:
        await line.send(piece)


async def test_one_event_beyond_its_cap() -> None:
    error, engine = await outcome(
        lambda line: flood(line, stream_of("data: ", end=False), chunked("x" * 10_000, end=False))
    )
    assert error.category is ms.ErrorCategory.SERVER
    # One read of 128 KiB may exceed both caps; the response's cap is then checked first.
    caps = ("one event is larger than 100000 bytes", "larger than 200000 bytes (limits.max_response_bytes)")
    assert any(cap in error.message for cap in caps)
    assert engine.statistics().bytes_received < 1_000_000


async def test_a_stream_beyond_the_cap_of_an_answer() -> None:
    piece = chunked(chat_chunk("x" * 5_000), end=False)
    error, engine = await outcome(lambda line: flood(line, STREAM_HEAD.encode(), piece))
    assert "larger than 200000 bytes (limits.max_response_bytes)" in error.message
    assert engine.statistics().bytes_received < 1_000_000


async def test_an_unstreamed_answer_beyond_its_cap() -> None:

    error, engine = await outcome(reply_once(answer(chat_answer("x" * 5_000_000))), stream=False)
    assert "larger than 200000 bytes (limits.max_response_bytes)" in error.message
    assert engine.statistics().bytes_received < 1_000_000


async def test_an_error_s_body_is_read_up_to_its_cap() -> None:
    head = b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
    error, engine = await outcome(lambda line: flood(line, head, chunked("busy " * 1000, end=False)))
    assert (error.category, error.http_status) == (ms.ErrorCategory.SERVER, 503)
    assert error.body.startswith(b"busy busy")
    assert len(error.body) == 4096
    assert len(error.message) < 5000
    assert engine.statistics().bytes_received < 1_000_000


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"choices":[{"delta":{"content":['])
@pytest.mark.parametrize("stream", [True, False])
async def test_endlessly_nested_json_is_malformed(opening: str, stream: bool) -> None:
    async def script(line: Line) -> None:
        await line.request()
        deep = (opening * 9_000)[:90_000]
        await line.send(stream_of(f"data: {deep}\n\n") if stream else answer(deep))

    error, _ = await outcome(script, stream=stream)
    assert "malformed" in error.message


async def test_one_call_more_than_allowed_is_refused() -> None:
    async with (
        open_peer(lambda line: line.closed_by_peer()) as peer,
        ms.open_engine([peer.chat], limits=SMALL) as engine,
    ):
        recorders = [Recorder() for _ in range(3)]
        calls = [engine.start_stream(hello(), one.on_event, one.on_completion) for one in recorders]
        with pytest.raises(TooManyCallsError, match=r"3 calls are running already \(limits.max_calls\)"):
            engine.start_stream(hello())
        assert engine.statistics().started == 3
        calls[0].cancel()
        await calls[0].wait()
        engine.start_stream(hello())
        await trio.testing.wait_all_tasks_blocked(0.006)
        assert [len(one.completions) for one in recorders] == [1, 0, 0]


async def test_the_cap_on_an_event_names_its_option() -> None:
    error, _ = await outcome(lambda line: flood(line, stream_of("data: ", end=False), chunked("x" * 1_000, end=False)))
    assert "limits.max_event_bytes" in error.message


async def test_a_page_is_read_up_to_the_cap_of_an_error_s_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n"
    _, engine = await outcome(lambda line: flood(line, head, chunked("x" * 1_000, end=False)))
    assert engine.statistics().bytes_received < 100_000
