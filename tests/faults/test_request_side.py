"""Faults around the request (rows 37 to 46): invalid values, early responses, redirects, Retry-After."""

import itertools
import socket
from email.utils import formatdate

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

import manystream as ms
from manystream.transport.tls import TLSConfig
from tests.faults.exchange import CLOCKS, ended
from tests.faults.servers import TLSLine, serving_tls
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    hello,
    open_descriptors,
    open_peer,
    replies,
    reply_once,
    stream_of,
    until,
    unused,
)

SECRET = "sk-canary-0123456789"
BIG = ms.Request("m", [ms.Message.user("x" * (8 * 1024 * 1024))], timeouts=CLOCKS)
STREAM = stream_of(*chat_stream("fine"))


@pytest.mark.parametrize("key", [f"{SECRET}\n", f"{SECRET}\r\nX-Evil: 1", f"{SECRET}\0", f"ключ{SECRET}", f"{SECRET} "])
async def test_an_invalid_key_is_refused_and_not_shown(key: str) -> None:
    async with open_peer(unused) as peer:
        provider = ms.OpenAIChat(api_key=key, base_url=peer.url)
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(ms.InvalidRequestError, match="api_key") as caught:
                engine.start_stream(hello())
            await trio.testing.wait_all_tasks_blocked(0.006)
        assert peer.lines == []
    assert SECRET not in f"{caught.value!r} {caught.value}"


@pytest.mark.parametrize("headers", [{"X-A": "a\nb"}, {"X-A": "ä"}, {"X A": "b"}, {"X-A\r\nX-B": "c"}, {"": "x"}])
async def test_a_header_that_breaks_its_line_is_refused(headers: dict[str, str]) -> None:
    async with open_peer(unused) as peer, ms.open_engine([peer.chat]) as engine:
        with pytest.raises(ms.InvalidRequestError, match="extra_headers"):
            engine.start_stream(hello(extra_headers=headers))
        assert engine.statistics().started == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/v1\r\nX: y",
        "http://127.0.0.1:1/v 1",
        f"http://user:{SECRET}@127.0.0.1:1/v1",
        f"http://127.0.0.1:1/v1#{SECRET}",
        "http://127.0.0.1:99999/",
        "ftp://127.0.0.1/",
        "127.0.0.1/v1",
        "http:///v1",
        "http://[::1/v1",
    ],
)
async def test_an_unusable_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match="base_url") as caught:
        async with ms.open_engine([ms.OpenAIChat(api_key="k", base_url=url)]):
            raise AssertionError
    assert SECRET not in f"{caught.value!r} {caught.value}"


async def test_a_url_is_percent_encoded_where_needed() -> None:
    async with open_peer(reply_once(answer(chat_answer("fine")))) as peer:
        provider = ms.OpenAIChat(api_key="k", base_url=f"{peer.origin}/füße%20?api-version=2")
        async with ms.open_engine([provider]) as engine:
            await engine.request(hello())
    assert peer.requests[0].startswith(b"POST /f%C3%BC%C3%9Fe%20/chat/completions?api-version=2 HTTP/1.1\r\n")


EARLY = {
    "413 Payload Too Large": ms.ErrorCategory.INVALID_ARG,
    "401 Unauthorized": ms.ErrorCategory.AUTH,
    "429 Too Many Requests": ms.ErrorCategory.RATE_LIMIT,
}


@pytest.mark.parametrize("status", EARLY)
async def test_an_early_response_is_reported_at_once(status: str, autojump_clock: MockClock) -> None:
    """The server responds without reading the body, keeps the connection open and reads nothing more."""
    left = trio.Event()

    async def script(line: Line) -> None:
        if len(peer.lines) > 1:
            await line.request()
            await line.send(STREAM)
            return
        await line.stream.receive_some(1000)
        await line.send(answer(error_body("made up my mind"), status=status))
        await trio.sleep(5)
        await line.closed_by_peer()
        left.set()

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        started = trio.current_time()
        call = engine.start_stream(BIG, recorder.on_event, recorder.on_completion)
        completion = await call.wait()
        assert trio.current_time() - started < 0.1
        assert (completion.error_category, completion.http_status) == (EARLY[status], int(status[:3]))
        assert "made up my mind" in (completion.error_message or "")
        assert engine.statistics().bytes_sent < len(BIG.messages[0].content[0].text)  # type: ignore[union-attr]
        assert engine.statistics().connections == {}  # a half-sent request leaves no usable connection
        await left.wait()
        assert (await engine.start_stream(hello()).wait()).success
    assert recorder.types == ["ERROR"]


async def test_an_early_response_over_tls_is_reported_at_once(autojump_clock: MockClock) -> None:
    async def script(line: TLSLine) -> None:
        await line.receive()
        await line.stream.send_all(line.records(answer(error_body("too large"), status="413 Too Large")))
        await trio.sleep(5)

    ca = trustme.CA()
    async with serving_tls(ca, script) as server:
        provider = ms.OpenAIChat(api_key="k", base_url=server.url)
        trusted = TLSConfig(ca_data=ca.cert_pem.bytes().decode())
        async with ms.open_engine([provider], retry=NO_RETRY, tls=trusted) as engine:
            started = trio.current_time()
            completion = await engine.start_stream(BIG).wait()
            assert trio.current_time() - started < 0.1
    assert completion.http_status == 413


async def test_the_body_of_an_early_response_may_arrive_slowly(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.stream.receive_some(1000)
        whole = answer(error_body("made up my mind"), status="429 Slow", headers="Retry-After: 3\r\n")
        for start in range(0, len(whole), 20):
            await line.send(whole[start : start + 20])
            await trio.sleep(0.1)
        await trio.sleep(5)

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        completion = await engine.start_stream(BIG).wait()
    assert (completion.http_status, completion.retry_after_ms) == (429, 3000)


async def test_an_early_response_survives_the_reset_after_it() -> None:
    """The server closes with most of the request unread, so its kernel responds to further bytes with RST."""

    async def script(line: Line) -> None:
        await line.stream.receive_some(1000)
        await line.send(answer(error_body("too large"), status="413 Too Large"))

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        for _ in range(20):
            completion = await engine.start_stream(BIG).wait()
            assert completion.http_status == 413, completion
            assert "too large" in (completion.error_message or "")


@pytest.mark.parametrize("status", EARLY)
async def test_an_early_response_on_a_reused_connection_is_reported(status: str, autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        if len(peer.lines) == 1:
            await line.request()
            await line.send(STREAM)
            await line.stream.receive_some(1000)
            await line.send(answer(error_body("made up my mind"), status=status, headers="Connection: close\r\n"))
            await line.closed_by_peer()
            return
        await line.request()
        await line.send(STREAM)

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        assert (await engine.start_stream(hello()).wait()).success
        await trio.testing.wait_all_tasks_blocked(0.006)
        started = trio.current_time()
        completion = await engine.start_stream(BIG).wait()
        assert trio.current_time() - started < 0.1
        assert len(peer.lines) == 1
        assert (completion.http_status, completion.attempts) == (int(status[:3]), 1)
        assert (await engine.start_stream(hello()).wait()).success


async def test_a_large_body_is_sent_while_a_larger_response_is_read() -> None:
    """The server reads nothing until its response is sent, which is larger than all buffers; then it reads the whole
    body. A client that sends first and reads later would block forever, and so would a client that stops sending at the
    response's first byte.
    """
    piece = chunked(chat_chunk("x" * 50_000), end=False)
    received = 0

    async def script(line: Line) -> None:
        nonlocal received
        await line.send(STREAM_HEAD)
        for _ in range(400):
            await line.send(piece)
        received = len(await line.request())
        await line.send(chunked(*chat_stream("the end")))

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        recorder = Recorder()
        with trio.fail_after(20):
            await engine.start_stream(BIG, recorder.on_event, recorder.on_completion).wait()
    assert recorder.completion.success, recorder.completion.error
    assert len(recorder.text) == 400 * 50_000 + len("the end")
    assert received > 8 * 1024 * 1024


async def test_a_body_is_sent_and_a_response_read_concurrently(autojump_clock: MockClock) -> None:
    """The server sends an event for each part of the body while it reads the body. The call delivers each at once."""
    delivered_at: list[float] = []

    async def script(line: Line) -> None:
        await line.send(STREAM_HEAD)
        for _ in range(20):
            for _ in range(4):
                line.received += await line.stream.receive_some(65536)
            await line.send(chunked(chat_chunk(f"{len(line.received)} "), end=False))
            await trio.sleep(1)
        await line.request()
        await line.send(chunked(*chat_stream("the end")))

    def on_event(event: ms.Event) -> None:
        if isinstance(event, ms.TextDelta):
            delivered_at.append(trio.current_time())

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        completion = await engine.start_stream(BIG, on_event).wait()
    assert completion.success, completion.error
    assert len(delivered_at) == 21
    assert all(0.9 < later - earlier < 1.1 for earlier, later in itertools.pairwise(delivered_at[:-1]))


@pytest.mark.parametrize("big", [True, False])
async def test_a_reset_without_a_response(big: bool) -> None:
    async def script(line: Line) -> None:
        await line.stream.receive_some(1000)
        line.reset()

    async with open_peer(script) as peer:
        before = open_descriptors()
        retry = ms.Retry(max_attempts=3, base=0, jitter=0)
        async with ms.open_engine([peer.chat], retry=retry) as engine:
            completion = await engine.start_stream(BIG if big else hello()).wait()
        await ended(peer)
        await until(lambda: open_descriptors() == before)
    assert (completion.error_category, completion.attempts) == (ms.ErrorCategory.NETWORK, 3)
    assert "Connection reset by peer" in completion.error.message


async def test_a_server_that_never_reads(autojump_clock: MockClock) -> None:
    async with (
        open_peer(lambda line: trio.sleep_forever()) as peer,
        ms.open_engine([peer.chat], retry=NO_RETRY) as engine,
    ):
        started = trio.current_time()
        completion = await engine.start_stream(BIG).wait()
        assert trio.current_time() - started == pytest.approx(10, rel=0.1)
        call = engine.start_stream(BIG)
        await trio.sleep(1)
        call.cancel()
        assert engine.statistics().connections == {}
    assert (completion.error.category, completion.error.provider_code) == (ms.ErrorCategory.TIMEOUT, "idle")
    assert completion.error.retryable


async def test_a_417_is_a_status_like_any_other() -> None:
    async def script(line: Line) -> None:
        assert b"expect" not in (await line.request()).lower()
        await line.send(answer("{}", status="417 Expectation Failed"))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert (completion.http_status, completion.attempts) == (417, 1)


LOCATIONS = ["/elsewhere", "http://127.0.0.2:{port}/steal", "//127.0.0.2:{port}/steal", "file:///etc/passwd", None]


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308, 399])
@pytest.mark.parametrize("location", LOCATIONS)
async def test_redirects_are_reported_and_not_followed(status: int, location: str | None) -> None:
    with socket.create_server(("127.0.0.2", 0)) as elsewhere:
        elsewhere.setblocking(False)
        target = (location or "").format(port=elsewhere.getsockname()[1])
        header = f"Location: {target}?key=word\r\n" if location else ""
        script = replies(f"HTTP/1.1 {status} Moved\r\n{header}Content-Length: 0\r\n\r\n")
        async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
            for _ in range(2):
                completion = await engine.start_stream(hello()).wait()
                assert (completion.http_status, completion.attempts) == (status, 1)
                assert not completion.error.retryable
                assert "key=word" not in repr(completion.error)
                if location:
                    assert f"redirects are not followed; the server points to '{target}'" in completion.error.message
        assert len(peer.lines) == 1
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


async def test_a_location_header_of_an_error_is_not_a_redirect() -> None:
    async def script(line: Line) -> None:
        await line.request()
        body = '{"error": {"message": "no such model"}}'
        await line.send(
            f"HTTP/1.1 400 Bad Request\r\nLocation: /elsewhere\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        )

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert (completion.http_status, completion.error_message) == (400, "no such model")


async def test_a_location_with_a_line_break_does_no_harm() -> None:
    script = reply_once("HTTP/1.1 302 Found\r\nLocation: /x\rX-Evil: 1\r\nContent-Length: 0\r\n\r\n")
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert completion.error_category is ms.ErrorCategory.NETWORK
    assert "malformed response" in (completion.error_message or "")


def seconds_from_now(seconds: float) -> str:
    import time

    return formatdate(time.time() + seconds, usegmt=True)


BACK_OFF = 1.0
HINTS: list[tuple[str, float | None]] = [
    ("Retry-After: 1", 1),
    ("Retry-After: 0.5", 0.5),
    ("Retry-After: 0", 0.1),
    ("Retry-After: 120", 120),
    ("Retry-After: 121", None),
    ("Retry-After: 86400", None),
    ("Retry-After: 1e9", BACK_OFF),
    ("Retry-After: 99999999999999999999999", BACK_OFF),
    ("Retry-After: -1", BACK_OFF),
    ("Retry-After: inf", BACK_OFF),
    ("Retry-After: nan", BACK_OFF),
    ("Retry-After: soon", BACK_OFF),
    ("Retry-After: ", BACK_OFF),
    ("Retry-After: Wed, 21 Oct 2015 07:28:00 GMT", 0.1),
    ("Retry-After: Wed, 99 Foo 2015 07:28:00 GMT", BACK_OFF),
    ("Retry-After: 5\r\nRetry-After: 7", 5),
    ("Retry-After: 9\r\nRetry-After-Ms: 2500", 2.5),
    ("Retry-After-Ms: nan\r\nRetry-After: 2", 2),
]
"""Header → seconds before the second attempt; None: no second attempt."""


@pytest.mark.parametrize(("header", "waited"), HINTS, ids=[header for header, _ in HINTS])
async def test_a_hint_is_followed_within_bounds(header: str, waited: float | None, autojump_clock: MockClock) -> None:
    times: list[float] = []

    async def script(line: Line) -> None:
        while await line.request():
            times.append(trio.current_time())
            rejected = answer(error_body("later"), status="429 Later", headers=f"{header}\r\n")
            await line.send(STREAM if len(times) > 1 else rejected)

    retry = ms.Retry(jitter=0)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=retry) as engine:
        completion = await engine.start_stream(hello()).wait()
    if waited is None:
        assert (completion.success, completion.attempts, len(times)) == (False, 1, 1)
        assert completion.retry_after_ms > 120_000
    else:
        assert completion.success
        assert times[1] - times[0] == pytest.approx(waited, abs=0.05)
        assert times[1] - times[0] >= waited


@pytest.mark.parametrize("seconds", [5, 30])
async def test_a_retry_after_date_is_followed(seconds: float, autojump_clock: MockClock) -> None:
    times: list[float] = []

    async def script(line: Line) -> None:
        while await line.request():
            times.append(trio.current_time())
            header = f"Retry-After: {seconds_from_now(seconds)}\r\n"
            await line.send(STREAM if len(times) > 1 else answer("{}", status="503 Busy", headers=header))

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=ms.Retry(jitter=0)) as engine:
        assert (await engine.start_stream(hello()).wait()).success
    assert seconds - 2 <= times[1] - times[0] <= seconds + 0.1  # a date has whole seconds
