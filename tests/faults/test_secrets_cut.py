"""A server echoes a long key at the place where an error truncates its quotation.

In any escape and at any cut, the error contains no more than a few characters of the key. The same holds for the other
secrets of a request: header values, the base URL's query and a proxy's password.
"""

import base64
import itertools
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote, unquote

import pytest

import manystream as ms
from manystream.engine.request.redaction import LONGEST_PART
from manystream.providers.catalog.registry import DIALECTS
from tests.faults.servers import open_proxy
from tests.faults.test_secrets import everything_said
from tests.support.common_runs import longest_common_run
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    answer,
    chat_chunk,
    error_body,
    open_peer,
    replies,
    stream_of,
)

KEY = "sk-" + base64.b64encode(bytes(range(255, 130, -1))).decode()[:158] + "+/="
assert len(KEY) == 164

PROVIDERS: dict[str, Callable[[str], ms.Provider]] = {
    "chat": lambda origin: ms.OpenAIChat(api_key=KEY, base_url=f"{origin}/v1"),
    "responses": lambda origin: ms.OpenAIResponses(api_key=KEY, base_url=f"{origin}/v1"),
    "anthropic": lambda origin: ms.Anthropic(api_key=KEY, base_url=origin),
    "gemini": lambda origin: ms.Gemini(api_key=KEY, base_url=origin),
    "interactions": lambda origin: ms.GeminiInteractions(api_key=KEY, base_url=origin),
}

SPELLINGS: dict[str, str] = {
    "as it is": KEY, "json": json.dumps(KEY)[1:-1].replace("/", "\\/"), "url": quote(KEY, safe=""),
    "base64": base64.b64encode(b"user:" + KEY.encode()).decode(),
}  # fmt: skip

CUTS: dict[str, Callable[[str, int], bytes]] = {
    "a message of 1,000 characters": lambda said, cut: answer(error_body("x" * (1000 - cut) + said), status="400 No"),
    "a text of 8,000 bytes": lambda said, cut: answer(b"y " * (4000 - cut // 2) + said.encode(), status="400 No"),
    "a page": lambda said, cut: answer(f"<p>{'x' * (990 - cut)}{said}".encode(), status="502 Bad", kind="text/html"),
    "a body of 4,096 bytes": lambda said, cut: answer(b"x" * (4096 - cut) + said.encode(), status="400 No"),
    "a body of 64 KiB": lambda said, cut: answer(b"x" * (65536 - cut) + said.encode() * 3, status="400 No"),
    "a page instead of an answer": lambda said, cut: answer(f"<p>{'x' * (197 - cut)}{said}".encode(), kind="text/html"),
    "an answer that is no JSON": lambda said, cut: answer(f"{{{'x' * (199 - cut)}{said}".encode()),
    "an event that is no JSON": lambda said, cut: stream_of(f"data: {{{'x' * (199 - cut)}{said}\n\n"),
    "an error in a stream": lambda said, cut: stream_of(
        chat_chunk("a"), f"data: {error_body('x' * (1000 - cut) + said)}\n\n"
    ),
    "a status line": lambda said, cut: f"HTTP/1.1 {'9' * (160 - cut)} {said}\r\n\r\n".encode(),
    "a header line": lambda said, cut: f"HTTP/1.1 200 OK\r\n{'x' * (170 - cut)} {said}: y\r\n\r\n".encode(),
    "no HTTP": lambda said, cut: f"SSH {'x' * (56 - min(cut, 56))}{said}\r\n\r\n".encode(),
    "a chunk size line": lambda said, cut: STREAM_HEAD.encode() + f"{'x' * (60 - min(cut, 60))}{said}\r\n".encode(),
    "behind a chunk": lambda said, cut: STREAM_HEAD.encode() + b"1\r\nx" + said.encode()[cut:] + b"\r\n",
    "a trailer": lambda said, cut: STREAM_HEAD.encode() + f"0\r\n{said[cut:]} x\r\n\r\n".encode(),
    "a coding": lambda said, cut: (
        f"HTTP/1.1 200 OK\r\nContent-Encoding: {'x' * (40 - min(cut, 40))}{said}\r\nContent-Length: 0\r\n\r\n".encode()
    ),
    "a location": lambda said, cut: (
        f"HTTP/1.1 302 Go\r\nLocation: /{'x' * (199 - cut)}{said}\r\nContent-Length: 0\r\n\r\n".encode()
    ),
    "a request id": lambda said, cut: answer(error_body("no"), status="400 No", headers=f"X-Request-Id: {said}\r\n"),
    "a code": lambda said, cut: answer(
        json.dumps({"error": {"message": "no", "code": said, "type": said, "status": said}}), status="400 No"
    ),
}


DECODED = ("a message of 1,000 characters", "a text of 8,000 bytes", "a page", "a body of 4,096 bytes", "a code")
"""Errors whose body is redacted before it is truncated: no part of the key is left."""

OF_HTTP = (
    "a status line", "a header line", "no HTTP", "a chunk size line", "behind a chunk", "a trailer", "a coding",
    "a location",
)  # fmt: skip
"""Errors of HTTP, which no dialect reads."""

CHANCE = 3
"""The number of consecutive characters of the key that any text may contain."""


@pytest.mark.parametrize(
    ("dialect", "place"),
    [(dialect, place) for dialect in PROVIDERS for place in CUTS if dialect == "chat" or place not in OF_HTTP],
)
async def test_a_cut_leaves_no_part_of_the_key(dialect: str, place: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bodies = [CUTS[place](spelling, cut) for spelling, cut in itertools.product(SPELLINGS.values(), (6, 20, 84, 144))]
    texts: list[str] = []
    script = replies(lambda request: bodies[len(texts)])
    async with open_peer(script) as peer, ms.open_engine([PROVIDERS[dialect](peer.origin)], retry=NO_RETRY) as engine:
        model = {"anthropic": "claude-x", "gemini": "gemini-x", "interactions": "gemini-x"}.get(dialect, "m")
        request = ms.Request(model, [ms.Message.user("hello")], max_output_tokens=10)
        for number in range(len(bodies)):
            start = engine.start_request if number % 2 and "stream" not in place else engine.start_stream
            completion = await start(request).wait()
            error = completion.error
            assert error is not None
            texts.append(everything_said(error, error.__cause__, completion, completion.headers, completion.request_id))
    encoded = SPELLINGS["base64"][8:]
    most = CHANCE if place in DECODED else LONGEST_PART
    for said in texts:
        plain = unquote(said.replace("\\", ""))
        assert longest_common_run(KEY, plain) <= most
        assert longest_common_run(encoded, plain) <= LONGEST_PART + 1
    assert longest_common_run(KEY, caplog.text) <= LONGEST_PART


HEADER, EXTRA, QUERY, LONG = "ws_header-0123", "tok/extra+0123", "q~query-0123", "s3cret-" * 30
ALL = (HEADER, EXTRA, QUERY, LONG)


def other_secrets(request: bytes) -> list[bytes]:
    """Return the responses that echo a whole request head."""
    said = request.decode()
    return [
        answer(said.encode(), status="502 Bad", kind="text/plain"),
        answer(error_body(said), status="400 No"),
        answer(json.dumps({"message": json.dumps(said)}), status="400 No"),
        answer(f"<h1>no</h1>{quote(said)}".encode(), status="400 No", kind="text/html"),
        answer(error_body("no"), status="403 No", headers=f"X-Debug: {', '.join(ALL)}\r\nX-Request-Id: {LONG}\r\n"),
        answer(said.encode()),
        stream_of(f"data: {error_body(said)}\n\n"),
    ]


async def test_headers_and_the_query_are_secrets(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []

    async def script(line: Line) -> None:
        while request := await line.request():
            bodies = other_secrets(request)
            assert all(secret.encode() in request for secret in ALL)
            await line.send(bodies[len(texts) % len(bodies)])

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat(
            api_key=KEY,
            base_url=f"{peer.url}?sig={QUERY}&api-version=2025-01-01",
            headers={"X-Workspace": HEADER, "Cookie": LONG},
        )
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            request = ms.Request("m", [ms.Message.user("hi")], extra_headers={"X-Extra": EXTRA})
            for number in range(2 * len(other_secrets(b""))):
                call = engine.start_stream(request) if number % 2 else engine.start_request(request)
                completion = await call.wait()
                assert completion.error is not None
                texts.append(
                    everything_said(
                        completion.error, completion, completion.headers, completion.request_id, provider, request, call
                    )
                )
    for secret in ALL:
        for spelling in {secret, json.dumps(secret)[1:-1], quote(secret, safe=""), quote(secret)}:
            assert [said for said in texts if spelling in said] == []
            assert spelling not in caplog.text
    assert all(longest_common_run(LONG, said) <= LONGEST_PART for said in texts)


async def test_the_useful_part_of_an_error_is_kept() -> None:
    async def script(line: Line) -> None:
        while await line.request():
            await line.send(
                answer(error_body("api-version 2025-01-01 and beta computer-use-2025-01-24 do not go together"),
                status="400 No", headers="X-Request-Id: 0f8fad5b-d9cb-469f\r\n")
            )  # fmt: skip

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat(
            api_key=KEY,
            base_url=f"{peer.url}?api-version=2025-01-01",
            headers={"anthropic-beta": "computer-use-2025-01-24", "X-Request-Id": "0f8fad5b-d9cb-469f"},
        )
        async with ms.open_engine([provider], retry=NO_RETRY) as engine:
            completion = await engine.start_request(ms.Request("m", [ms.Message.user("hi")])).wait()
    assert completion.error is not None
    assert "2025-01-01 and beta computer-use-2025-01-24 do" in completion.error.message
    assert completion.request_id == "0f8fad5b-d9cb-469f"


async def test_an_echoed_proxy_password_is_redacted() -> None:
    word = "proxy-word-0123456789"
    token = base64.b64encode(f"canary:{word}".encode()).decode()
    script = replies(answer(f"Proxy-Authorization: Basic {token} {word}".encode(), status="502 Bad"))
    async with open_peer(script) as peer, open_proxy(upstream=int(peer.origin.rpartition(":")[2])) as proxy:
        provider = ms.OpenAIChat(api_key=KEY, base_url=peer.url)
        url = proxy.url_with(f"canary:{word}")
        async with ms.open_engine([provider], proxy=url, retry=NO_RETRY) as engine:
            completion = await engine.start_request(ms.Request("m", [ms.Message.user("hi")])).wait()
    assert completion.http_status == 502
    said = everything_said(completion, completion.error)
    assert longest_common_run(word, said) <= LONGEST_PART
    assert longest_common_run(token, said) <= LONGEST_PART


async def test_a_defect_that_quotes_the_key_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    """An exception while a response is decoded may quote the response, and the log contains the traceback."""

    def decode_error(status: int, headers: object, body: bytes, now: float) -> ms.ProviderError:
        raise ValueError(f"cannot read {KEY} of {status}")

    broken = replace(DIALECTS["openai-chat"], decode_error=decode_error)
    profile = ms.Profile(name="broken", dialect=broken, base_url="http://127.0.0.1")
    async with (
        open_peer(replies(answer(error_body("no"), status="400 No"))) as peer,
        ms.open_engine([ms.OpenAIChat(KEY, peer.origin, profile=profile)], retry=NO_RETRY) as engine,
    ):
        completion = await engine.start_request(ms.Request("m", [ms.Message.user("hi")])).wait()
    assert completion.error is not None
    assert "cannot read" in caplog.text
    assert completion.error.__cause__ is not None
    assert completion.error.__cause__.__traceback__ is None
    assert longest_common_run(KEY, everything_said(completion, completion.error, completion.error.__cause__)) <= CHANCE
    assert longest_common_run(KEY, caplog.text) <= LONGEST_PART
