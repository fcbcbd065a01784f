"""A canary key is used in every kind of call and failure, with everything logged.

It must appear only on the wire, in one header, to its own origin.
"""

import gc
import logging
import traceback
from collections.abc import Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from tests.faults.servers import open_proxy
from tests.support.addresses import closed_port
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_chunk,
    error_body,
    hello,
    open_peer,
    replies,
    stream_of,
)

KEY = "sk-canary-0123456789abcdef"
PROXY_WORD = "canary-proxy-word"
SECRETS = (KEY, PROXY_WORD, "Y2FuYXJ5")

PROVIDERS: dict[str, Callable[[str], ms.Provider]] = {
    "chat": lambda origin: ms.OpenAIChat(api_key=KEY, base_url=f"{origin}/v1"),
    "responses": lambda origin: ms.OpenAIResponses(api_key=KEY, base_url=f"{origin}/v1"),
    "anthropic": lambda origin: ms.Anthropic(api_key=KEY, base_url=origin),
    "gemini": lambda origin: ms.Gemini(api_key=KEY, base_url=origin),
    "interactions": lambda origin: ms.GeminiInteractions(api_key=KEY, base_url=origin),
}


def echo(request: bytes) -> bytes:
    """Respond like a gateway's debug page: an error whose body contains the whole request head."""
    return answer(request, status="502 Bad Gateway", kind="text/plain")


def echo_in_json(request: bytes) -> bytes:
    return answer(error_body(f"bad request: {request.decode()}"), status="400 Bad Request")


def echo_as_head(request: bytes) -> bytes:
    """Respond with the request's own bytes."""
    return request


def echo_in_a_header(request: bytes) -> bytes:
    key_line = next(line for line in request.split(b"\r\n") if KEY.encode() in line)
    return b"HTTP/1.1 200 OK\r\n" + key_line.replace(b":", b" :") + b"\r\n\r\n"


def echo_in_sound_headers(request: bytes) -> bytes:
    headers = f"X-Request-Id: {KEY}\r\nX-Debug: Bearer {KEY}\r\nSet-Cookie: session={KEY}; Secure\r\n"
    return answer(error_body("no"), status="403 Forbidden", headers=headers)


def echo_in_headers_of_a_coded_answer(request: bytes) -> bytes:
    return answer(b"x", headers=f"X-Debug: {KEY}\r\nContent-Encoding: br\r\n")


def echo_in_a_status_line(request: bytes) -> bytes:
    return b"HTTP/1.1 2000 " + KEY.encode() + b"\r\n\r\n"


def echo_in_a_location(request: bytes) -> bytes:
    return b"HTTP/1.1 302 Found\r\nLocation: https://evil.test/" + KEY.encode() + b"\r\nContent-Length: 0\r\n\r\n"


def echo_in_the_stream(request: bytes) -> bytes:
    return stream_of(chat_chunk("x"), f"data: {error_body('your key is ' + KEY)}\n\n")


def echo_as_malformed_event(request: bytes) -> bytes:
    return stream_of(f"data: {KEY} {{\n\n")


def echo_in_a_chunk_size(request: bytes) -> bytes:
    return STREAM_HEAD.encode() + KEY.encode() + b"\r\n"


def echo_in_a_coding(request: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Encoding: " + KEY.encode() + b"\r\nContent-Length: 0\r\n\r\n"


ECHOES = [
    echo, echo_in_json, echo_as_head, echo_in_a_header, echo_in_a_status_line, echo_in_a_location,
    echo_in_the_stream, echo_as_malformed_event, echo_in_a_chunk_size, echo_in_a_coding, echo_in_sound_headers,
    echo_in_headers_of_a_coded_answer,
]  # fmt: skip


def everything_said(*things: object) -> str:
    """Return each object's repr and str; for errors also the whole chain with its tracebacks."""
    said = []
    for thing in things:
        said += [repr(thing), str(thing)]
        if isinstance(thing, BaseException):
            said.append("".join(traceback.format_exception(thing)))
            said.append(repr(getattr(thing, "__dict__", "")))
        if isinstance(thing, ms.ProviderError):
            said += [thing.body.decode("latin-1"), repr(thing.provider_code), repr(thing.request_id)]
    return "\n".join(said)


def found_in(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("manystream").setLevel(logging.DEBUG)
    return caplog


@pytest.mark.parametrize("dialect", PROVIDERS)
@pytest.mark.parametrize("reply", ECHOES, ids=[reply.__name__ for reply in ECHOES])
async def test_echoed_keys_are_hidden(
    reply: Callable[[bytes], bytes], dialect: str, log: pytest.LogCaptureFixture
) -> None:
    async def script(line: Line) -> None:
        while request := await line.request():
            await line.send(reply(request))

    recorder = Recorder()

    def on_event(event: ms.Event) -> None:
        recorder.on_event(event)

    async with open_peer(script) as peer:
        provider = PROVIDERS[dialect](peer.origin)
        async with ms.open_engine([provider], retry=ms.Retry(max_attempts=1)) as engine:
            model = {"anthropic": "claude-x", "gemini": "gemini-x", "interactions": "gemini-x"}.get(dialect, "m")
            request = ms.Request(model, [ms.Message.user("hello")], max_output_tokens=10)
            call = engine.start_stream(request, on_event, recorder.on_completion)
            completion = await call.wait()
            plain = await engine.start_request(request).wait()
            said = everything_said(
                provider, request, engine, engine._calls.starter.runtime.pool, engine.statistics(), call, call.state,
                completion.error, plain.error, *recorder.events, completion, plain, completion.headers, plain.headers,
            )  # fmt: skip
    assert not completion.success
    assert found_in(said) == []
    assert found_in(log.text) == []


@pytest.mark.parametrize("dialect", PROVIDERS)
async def test_the_key_goes_in_one_header_to_its_own_origin(dialect: str, log: pytest.LogCaptureFixture) -> None:
    script = replies("HTTP/1.1 307 Away\r\nLocation: http://127.0.0.2:9/\r\nContent-Length: 0\r\n\r\n")
    async with open_peer(script) as peer, ms.open_engine([PROVIDERS[dialect](peer.origin)]) as engine:
        model = {"anthropic": "claude-x", "gemini": "gemini-x", "interactions": "gemini-x"}.get(dialect, "m")
        await engine.start_stream(ms.Request(model, [ms.Message.user("x")], max_output_tokens=9)).wait()
        assert list(engine.statistics().connections) == [peer.origin]
    head, _, body = peer.requests[0].partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert len(peer.requests) == 1
    assert KEY.encode() not in lines[0]
    assert KEY.encode() not in body
    assert sum(KEY.encode() in line for line in lines) == 1
    assert found_in(log.text) == []


async def test_connect_errors_hide_the_password(log: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    said: list[object] = []
    answers: list[bytes | None] = [
        b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nstray",
        b"CONNECT x HTTP/1.1\r\nProxy-Authorization: Basic " + PROXY_WORD.encode() + b"\r\n\r\n", None,
    ]  # fmt: skip
    for reply in answers:
        async with open_proxy(reply=reply) as proxy:
            provider = ms.OpenAIChat(api_key=KEY, base_url="https://api.test/v1")
            url = proxy.url_with(f"canary:{PROXY_WORD}")
            async with ms.open_engine([provider], proxy=url, timeouts=ms.Timeouts(connect=5)) as engine:
                completion = await engine.start_stream(hello()).wait()
                said += [engine, engine._calls.starter.runtime.pool, completion, completion.error]
    assert found_in(everything_said(*said)) == []
    assert found_in(log.text) == []


async def test_a_defect_in_a_callback_is_logged_without_the_key(log: pytest.LogCaptureFixture) -> None:

    def on_completion(completion: ms.Completion) -> None:
        raise ValueError("a defect in the program")

    async with open_peer(replies(answer(error_body("no"), status="400 No"))) as peer:
        provider = PROVIDERS["chat"](peer.origin)
        async with ms.open_engine([provider]) as engine:
            await engine.start_stream(hello(), None, on_completion).wait()
    assert "a defect in the program" in log.text
    assert found_in(log.text) == []


async def test_a_refused_connection_error_shows_no_key(log: pytest.LogCaptureFixture) -> None:
    provider = PROVIDERS["chat"](f"http://127.0.0.1:{closed_port()}")
    async with ms.open_engine([provider], retry=ms.Retry(max_attempts=1)) as engine:
        with pytest.raises(ms.ProviderError) as caught:
            await engine.request(hello())
    assert found_in(everything_said(caught.value)) == []
    assert found_in(log.text) == []


async def test_an_engine_keeps_nothing_of_a_completed_call() -> None:
    """The key is kept as long as the engine; a request's content no longer than its call."""

    script = replies(answer("{}", status="400 No"))

    def calls() -> dict[int, ms.Call]:
        gc.collect()
        return {id(thing): thing for thing in gc.get_objects() if isinstance(thing, ms.Call)}

    earlier = calls()  # the traceback of a failed test keeps its calls alive
    async with open_peer(script) as peer, ms.open_engine([PROVIDERS["chat"](peer.origin)]) as engine:
        await engine.start_stream(ms.Request("m", [ms.Message.user("canary " * 10)])).wait()
        await trio.testing.wait_all_tasks_blocked(0.006)
        assert calls().keys() <= earlier.keys()
