"""The gateway: bytes as without it, refusals, waits, clients that leave or do not read, slots, and traces.

One file because all tests look at it from the same side: a client's requests go in, and a scripted server is behind.
"""

import gzip
import json
import math
import os
import re
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anthropic
import h11
import httpx
import openai
import pytest
import trio
import trio.testing
from google import genai
from google.genai import errors as genai_errors
from trio.testing import MockClock

import manystream as ms
from manystream.http_server import BODY_LIMIT
from manystream.serve import Gateway, Slot, bodies, open_gateway
from manystream.serve.bodies import with_members, with_model
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Peer,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    open_peer,
    replies,
    reply_and_hold,
    reply_once,
    silent,
    stream_of,
    until,
    unused,
)

CHAT = "/v1/chat/completions"
HELLO = {"model": "sim", "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

FORMS: dict[str, tuple[str, dict[str, object]]] = {
    "openai-chat": (CHAT, {**HELLO, "tools": [{"type": "function",
        "function": {"name": "weather", "parameters": TOOL}}]}),
    "openai-responses": ("/v1/responses", {"model": "sim", "input": "hi",
        "tools": [{"type": "function", "name": "weather", "parameters": TOOL}]}),
    "anthropic": ("/v1/messages", {**HELLO, "max_tokens": 4000, "tools": [{"name": "weather", "input_schema": TOOL}]}),
    "gemini": ("/v1beta/models/sim:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "weather", "parameters": TOOL}]}]}),
    "gemini-interactions": ("/v1beta/interactions", {"model": "sim", "input": "hi",
        "tools": [{"type": "function", "name": "weather", "parameters": TOOL}]}),
}  # fmt: skip
"""Dialect → path and body of a request."""


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=20") as running:
        yield running


def providers(simulator: Simulator) -> list[ms.Provider]:
    urls = simulator.base_urls
    kinds: dict[str, type[ms.Provider]] = {
        "openai-chat": ms.OpenAIChat, "openai-responses": ms.OpenAIResponses, "anthropic": ms.Anthropic,
        "gemini": ms.Gemini, "gemini-interactions": ms.GeminiInteractions,
    }  # fmt: skip
    return [kind("secret", urls[name], name=name) for name, kind in kinds.items()]


@asynccontextmanager
async def gateway_to(peer: Peer, **options: object) -> AsyncGenerator[Gateway, None]:
    """Open a gateway to a scripted server, without retries."""
    traffic = options.pop("traffic", None)
    async with (
        ms.open_engine([peer.chat], retry=NO_RETRY, traffic=traffic) as engine,  # type: ignore[arg-type]
        open_gateway(engine, **options) as gateway,  # type: ignore[arg-type]
    ):
        yield gateway


class Answer:
    """A response as a client reads it."""

    def __init__(self, data: bytes) -> None:
        self.whole = True
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
        client.receive_data(data)
        client.receive_data(b"")
        self.status, self.headers, pieces = 0, dict[str, str](), list[bytes]()
        try:
            while True:
                event = client.next_event()
                if isinstance(event, h11.Response):
                    self.status = event.status_code
                    self.headers = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    pieces.append(bytes(event.data))
                elif not isinstance(event, h11.InformationalResponse):
                    break
        except h11.RemoteProtocolError:
            self.whole = False
        self.body = b"".join(pieces)

    @property
    def essence(self) -> tuple[int, str, bytes]:
        return self.status, self.headers.get("content-type", ""), self.body


def posted(path: str, body: object, *headers: str, version: str = "1.1", key: str = "key") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/{version}", "Host: 127.0.0.1", f"Content-Length: {len(data)}", "Connection: close",
        "Content-Type: application/json", f"Authorization: Bearer {key}", f"x-api-key: {key}", *headers,
    ]  # fmt: skip
    if "/messages" in path:
        lines.append("anthropic-version: 2023-06-01")
    if path.startswith("/v1beta"):
        lines = [line for line in lines if not line.startswith(("Authorization", "x-api"))] + [f"x-goog-api-key: {key}"]
    return "\r\n".join([*lines, "", ""]).encode() + data


async def connect(port: int) -> trio.SocketStream:
    return await trio.open_tcp_stream("127.0.0.1", port)


async def ask(port: int, request: bytes) -> Answer:
    """Send a request that closes its connection, and return the response."""
    stream = await connect(port)
    async with stream:
        await stream.send_all(request)
        received = b""
        while data := await stream.receive_some(65536):
            received += data
    return Answer(received)


def as_stream(dialect: str, path: str, body: dict[str, object]) -> tuple[str, dict[str, object]]:
    if dialect == "gemini":
        return path.replace(":generate", ":streamGenerate") + "?alt=sse", body
    return path, {**body, "stream": True}


# --- the bytes of the provider ---


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", FORMS)
@pytest.mark.parametrize(
    "knobs",
    [
        "events=20", "kind=mixed,events=60", "text=unicode,events=40", "chunk=7", "error=5", "error=0", "fail=400",
        "fail=401", "fail=429,retry-after=3", "fail=503", "malformed=4", "kind=tool_use",
    ],
)  # fmt: skip
async def test_clients_get_the_provider_s_bytes(simulator: Simulator, dialect: str, stream: bool, knobs: str) -> None:
    path, body = FORMS[dialect]
    if stream:
        path, body = as_stream(dialect, path, body)
    request = posted(path, body, f"x-simulate: {knobs}")
    async with (
        ms.open_engine([with_knobs(each, knobs) for each in providers(simulator)], retry=NO_RETRY) as engine,
        open_gateway(engine) as gateway,
    ):
        direct, forwarded = await ask(simulator.port, request), await ask(gateway.port, request)
    assert forwarded.whole
    assert forwarded.essence == direct.essence
    kept = ("retry-after", "x-should-retry", "x-request-id", "request-id", "openai-processing-ms")
    assert [forwarded.headers.get(name) for name in kept] == [direct.headers.get(name) for name in kept]


def with_knobs(provider: ms.Provider, knobs: str) -> ms.Provider:
    """Return a provider whose requests set knobs of the simulator: the gateway forwards no foreign header."""
    provider.headers["x-simulate"] = knobs
    return provider


@pytest.mark.parametrize(
    "said",
    [
        "".join(chat_stream("fine")),
        "".join([*chat_stream("fine")[:-2], f"data: {error_body('overloaded')}\n\n"]),
        "".join([*chat_stream("fine")[:-2], f"data: {error_body('no', 'invalid_request_error')}\n\n"]),
        "".join([*chat_stream("fine")[:-2], "data: {\n\n"]),
        'data: {"error": {"message": "late", "type": "timeout_error", "code": 504}}\n\n',
    ],
    ids=["answered", "overloaded", "refused", "malformed", "late"],
)
async def test_bytes_behind_an_answer_are_forwarded_and_recorded(tmp_path: Path, said: str) -> None:
    tail = ": later\n\n"

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(stream_of(said, end=False))
            await trio.testing.wait_all_tasks_blocked(0.01)
            await line.send(chunked(tail))

    recording = tmp_path / "calls.jsonl"
    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], retry=NO_RETRY) as engine,
        open_gateway(engine) as gateway,
    ):
        body = json.dumps({**HELLO, "stream": True}).encode()
        with engine.record(recording):
            for _ in range(3):
                got = await ask(gateway.port, posted(CHAT, body))
                assert got.body.decode() == said + tail
        assert len(peer.lines) == 1  # the connection was used again
    for line in recording.read_text().splitlines():
        exchange = json.loads(line)
        assert (exchange["chunks"][-1][1], exchange["end"]) == (tail, "whole")


async def test_the_end_of_a_body_that_does_not_come_is_not_waited_for(autojump_clock: MockClock) -> None:
    script = reply_and_hold(stream_of(*chat_stream("fine"), end=False))
    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, posted(CHAT, {**HELLO, "stream": True}))
    assert (got.whole, got.body.decode()) == (True, "".join(chat_stream("fine")))
    assert trio.current_time() < 5


SPLICED: Sequence[tuple[bytes, str, bytes]] = (
    (b'{"model":"a","x":1}', "a", b'{"model":"a","x":1}'),
    (b' { "x" : 1.10, "model" : "a" } ', "b/c", b' { "x" : 1.10, "model" : "b/c" } '),
    (b'{"x":"\\"model\\": \\"a\\"","model":"a"}', "b", b'{"x":"\\"model\\": \\"a\\"","model":"b"}'),
    (b'{"x":{"model":"a"},"model":"a"}', "b", b'{"x":{"model":"a"},"model":"b"}'),
    (b'{"x":{"model":"a"},"mod\\u0065l":"a"}', "b", b'{"x":{"model":"a"},"model":"b"}'),
    (b'{"model":"a","model":"z"}', "b", b'{"model":"b"}'),
    (b'{"model":"\\u00e4","x":[]}', "\u00fc", '{"model":"\u00fc","x":[]}'.encode()),
)


@pytest.mark.parametrize(("body", "model", "expected"), SPLICED)
def test_only_the_models_name_is_replaced(body: bytes, model: str, expected: bytes) -> None:
    assert with_model(body, json.loads(body), model) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1 }\n', b'{"a": 1 ,"logprobs":true}'),
        (b"{}", b'{"logprobs":true}'),
        (b'{"logprobs": false, "a": 1}', b'{"logprobs":true,"a":1}'),
    ],
)
def test_members_are_added_at_the_end(body: bytes, expected: bytes) -> None:
    assert with_members(body, json.loads(body), {"logprobs": True}) == expected
    assert with_members(body, json.loads(body), {}) is body


async def test_the_provider_gets_the_body_as_it_is_and_its_key() -> None:
    body = b'{ "model" : "peer/m-1",\n "messages":[{"role":"user","content":"\\u0041"}], "future": [1.50] }'
    async with open_peer(reply_once(answer(chat_answer("yes")))) as peer:
        provider = ms.OpenAIChat("own-key", f"{peer.url}?api-version=7", name="peer")
        async with ms.open_engine([provider]) as engine, open_gateway(engine) as gateway:
            extra = ("Cookie: c=1", "User-Agent: harness/1", "OpenAI-Organization: org", "Idempotency-Key: i-1")
            await ask(gateway.port, posted(f"{CHAT}?a=%26&key=theirs", body, *extra, key="theirs"))
    head, _, sent = peer.requests[0].partition(b"\r\n\r\n")
    assert sent == body.replace(b"peer/m-1", b"m-1")
    lines = head.decode().lower().split("\r\n")
    assert lines[0] == "post /v1/chat/completions?api-version=7&a=%26 http/1.1"
    assert "authorization: bearer own-key" in lines
    assert "user-agent: harness/1" in lines
    assert "idempotency-key: i-1" in lines
    assert "theirs" not in head.decode()
    assert not [line for line in lines if line.startswith(("cookie", "openai-organization"))]


KEY = "sk-canary-secret"
ECHOES = {
    "an error": answer(error_body(f"Incorrect API key provided: {KEY}"), status="401 Unauthorized"),
    "a page": answer(f"<html>Bearer {KEY}</html>", status="502 Bad Gateway", kind="text/html"),
    "a header": answer(chat_answer("fine"), headers=f"X-Debug: Bearer {KEY}\r\n"),
    "an answer": answer(chat_answer(f"your key is {KEY}, and it is secret")),
    "a stream": stream_of(*chat_stream("a", "b", "c", f"<{KEY}>", "d")),
    "a stream in halves": STREAM_HEAD.encode()
    + b"".join(
        chunked(event[:40], event[40:], end=False) for event in chat_stream("a", "b", f"<{KEY}>", "c")
    )
    + b"0\r\n\r\n",
    "a stream to the end": STREAM_HEAD.replace("Transfer-Encoding: chunked", "Connection: close").encode()
    + "".join(chat_stream("a", "b", "c", f"<{KEY}>", "d")).encode(),
    "an error in a stream": stream_of(chat_chunk("a"), f"data: {error_body(f'no such key: {KEY}')}\n\n"),
    "keep-alives": stream_of(f": {KEY}\n\n", *chat_stream("a")),
    "a stream that breaks": stream_of(chat_chunk("a"), f"data: {KEY}", end=False),
}  # fmt: skip
"""What a provider answers that repeats the key."""


@pytest.mark.parametrize("form", ECHOES)
@pytest.mark.parametrize("pause", [None, 0.9, 0.7, 0.5, 0.3, "bytes"])
async def test_a_key_that_a_provider_repeats_reaches_no_client(form: str, pause: float | str | None) -> None:
    said = ECHOES[form]
    direct, size = Answer(said), 1 if pause == "bytes" else int(len(said) * float(pause or 1))

    async def script(line: Line) -> None:
        await line.request()
        for start in range(0, len(said), size):
            await line.send(said[start : start + size])
            await trio.testing.wait_all_tasks_blocked(0.0005 if size == 1 else 0.01)

    stream = "stream" in form or form == "keep-alives"
    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, posted(CHAT, {**HELLO, "stream": stream}))
    assert KEY not in f"{got.body!r}{got.headers}"
    assert got.status == direct.status
    if form != "a stream that breaks":
        assert got.body == direct.body.replace(KEY.encode(), b"[key]")
        assert (got.headers.get("x-debug"), direct.whole) == ("Bearer [key]" if form == "a header" else None, True)


async def test_the_list_of_models_has_no_key_of_a_function() -> None:
    asked = []

    async def script(line: Line) -> None:
        while request := await line.request():
            [key] = re.findall(rb"Bearer (\S+)", request)
            asked.append(key)
            body = b'{"data": [{"id": "m", "key": "%b"}]}' % key
            head = b"HTTP/1.1 200 OK\r\nX-Key: %b\r\nContent-Length: %d\r\n\r\n" % (key, len(body))
            at = len(head) + body.index(key) + 5
            await line.send((head + body)[:at])
            await trio.testing.wait_all_tasks_blocked(0.01)
            await line.send((head + body)[at:])

    keys = iter(["key-of-monday-1", "key-of-monday-2"])
    async with open_peer(script) as peer:
        provider = ms.OpenAIChat(lambda: next(keys), peer.url, name="peer")
        async with ms.open_engine([provider]) as engine, open_gateway(engine) as gateway:
            for _ in range(2):
                request = posted("/v1/models", b"").replace(b"POST", b"GET", 1)
                got = await ask(gateway.port, request)
                assert got.body == b'{"data": [{"id": "m", "key": "[key]"}]}'
                assert got.headers["x-key"] == "[key]"
    assert asked == [b"key-of-monday-1", b"key-of-monday-2"]


# --- the official SDKs ---


def chat_sdk(url: str, stream: bool) -> Iterator[object]:
    tools = FORMS["openai-chat"][1]["tools"]
    with closing(openai.OpenAI(api_key="key", base_url=f"{url}/v1", max_retries=0)) as client:
        create = client.chat.completions.create
        if not stream:
            yield create(model="sim", messages=HELLO["messages"], tools=tools)  # type: ignore[call-overload]
            return
        yield from create(model="sim", messages=HELLO["messages"], tools=tools, stream=True)  # type: ignore[call-overload]


def responses_sdk(url: str, stream: bool) -> Iterator[object]:
    tools = FORMS["openai-responses"][1]["tools"]
    with closing(openai.OpenAI(api_key="key", base_url=f"{url}/v1", max_retries=0)) as client:
        if not stream:
            yield client.responses.create(model="sim", input="hi", tools=tools)  # type: ignore[call-overload]
            return
        with client.responses.stream(model="sim", input="hi") as events:
            yield from events
            yield events.get_final_response()


def anthropic_sdk(url: str, stream: bool) -> Iterator[object]:
    form = {**FORMS["anthropic"][1]}
    with closing(anthropic.Anthropic(api_key="key", base_url=url, max_retries=0)) as client:
        if not stream:
            yield client.messages.create(**form)  # type: ignore[call-overload]
            return
        with client.beta.messages.stream(**form) as events:  # type: ignore[arg-type]
            yield from events
            yield events.get_final_message()


def gemini_sdk(url: str, stream: bool) -> Iterator[object]:
    with closing(genai.Client(api_key="key", http_options={"base_url": url})) as client:
        if not stream:
            yield client.models.generate_content(model="sim", contents="hi")
            return
        yield from client.models.generate_content_stream(model="sim", contents="hi")


SDKS = {"openai-chat": chat_sdk, "openai-responses": responses_sdk, "anthropic": anthropic_sdk, "gemini": gemini_sdk}


def heard(dialect: str, url: str, stream: bool) -> list[object]:
    """Return what an SDK's program sees: its objects, then its exception."""
    seen: list[object] = []
    try:
        for value in SDKS[dialect](url, stream):
            shown = value.model_dump(warnings=False)  # type: ignore[attr-defined]
            shown.pop("sdk_http_response", None)
            seen.append(shown)
    except openai.APIStatusError as error:
        seen.append((type(error), error.status_code, error.body))
    except openai.APIError as error:
        seen.append((type(error), error.message, error.body))
    except anthropic.APIStatusError as error:
        seen.append((type(error), error.status_code, error.body))
    except genai_errors.APIError as error:
        seen.append((type(error), error.code, error.message))
    return seen


@pytest.mark.parametrize("dialect", SDKS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("knobs", ["kind=mixed,events=60", "fail=400", "fail=500", "error=6"])
async def test_official_sdks_see_what_they_see_without_it(dialect: str, stream: bool, knobs: str) -> None:
    with open_simulator_thread(knobs) as simulator:
        async with ms.open_engine(providers(simulator), retry=NO_RETRY) as engine, open_gateway(engine) as gateway:
            direct = await trio.to_thread.run_sync(heard, dialect, simulator.origin, stream)
            forwarded = await trio.to_thread.run_sync(heard, dialect, gateway.base_url, stream)
    assert forwarded == direct
    assert direct


async def test_a_recording_replayed_behind_it_gives_the_recorded_bytes(simulator: Simulator, tmp_path: Path) -> None:
    recording = tmp_path / "calls.jsonl"
    requests = []
    for dialect, (path, body) in FORMS.items():
        requests += [posted(path, body), posted(*as_stream(dialect, path, body))]
    async with ms.open_engine(providers(simulator)) as engine, open_gateway(engine) as gateway:
        with engine.record(recording):
            first = [(await ask(gateway.port, request)).essence for request in requests]
    with open_simulator_thread(replay=str(recording), pace=0) as again:
        async with ms.open_engine(providers(again)) as engine, open_gateway(engine) as gateway:
            assert [(await ask(gateway.port, request)).essence for request in requests] == first


# --- refusals, retries, routes ---


# --- requests that are no model calls ---


@pytest.mark.parametrize(
    ("method", "path", "body", "sent"),
    [
        ("GET", "/v1/models?limit=3", None, "GET /v1/models?limit=3"),
        ("GET", "/models/a/b%20c", None, "GET /v1/models/a/b%20c"),
        ("POST", "/v1/messages/count_tokens?beta=true", {**HELLO, "model": "best"},
            "POST /v1/messages/count_tokens?beta=true"),
        ("POST", "/v1beta/models/best:countTokens", {"contents": []}, "POST /v1beta/models/real:countTokens"),
        ("GET", "/v1beta/models", None, "GET /v1beta/models"),
        ("POST", "/v1/responses/input_tokens", {"model": "best"}, "POST /v1/responses/input_tokens"),
        ("GET", "/v1/responses/r1?stream=true&starting_after=2", None,
            "GET /v1/responses/r1?stream=true&starting_after=2"),
        ("GET", "/v1/responses/r1/input_items", None, "GET /v1/responses/r1/input_items"),
        ("POST", "/v1/responses/compact", {**HELLO, "model": "best"}, "POST /v1/responses/compact"),
        ("POST", "/v1/responses/r1/cancel", None, "POST /v1/responses/r1/cancel"),
        ("DELETE", "/v1/responses/r1", None, "DELETE /v1/responses/r1"),
        ("GET", "/v1beta/interactions/i1", None, "GET /v1beta/interactions/i1"),
        ("POST", "/v1beta/interactions/i1/cancel", None, "POST /v1beta/interactions/i1/cancel"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reply", [answer("{}", headers="x-a: b\r\n"), answer("", status="404 Not Found"), STREAM_HEAD])
async def test_requests_that_are_no_model_calls_are_passed_on(
    method: str, path: str, body: dict[str, object] | None, sent: str, reply: bytes | str
) -> None:
    """They are sent as they came, with the provider's key and its name of a route's model, and are no calls."""
    seen: list[bytes] = []

    async def script(line: Line) -> None:
        while data := await line.request():
            seen.append(data)
            await line.send(reply)
            if reply == STREAM_HEAD:
                await line.send(chunked("data: {}\n\n", "data: {}\n\n"))

    async with open_peer(script) as peer:
        urls = {"openai-chat": peer.url, "openai-responses": peer.url}
        kinds = [ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini, ms.GeminiInteractions]
        names = list(FORMS)
        known = [
            kind("sk-real", urls.get(name, peer.origin), name=name) for name, kind in zip(names, kinds, strict=True)
        ]
        dialect = "anthropic" if "messages" in path else "gemini" if "beta" in path else "openai-responses"
        traffic = ms.Traffic(routes=[ms.Route("best", [f"{dialect}/real"])])
        async with ms.open_engine(known, traffic=traffic) as engine, open_gateway(engine) as gateway:
            slot = gateway.slot("a")
            key = "any" if re.search(r"/[ri]1\b", path) else slot.key  # a slot gets its own answers alone
            request = posted(path, b"" if body is None else body, key=key).replace(b"POST", method.encode(), 1)
            got = await ask(gateway.port, request)
            assert (slot.calls, engine.statistics().completed) == (0, 0)
            assert gateway.http.connections == set()
    [data] = seen
    head, _, content = data.decode().partition("\r\n\r\n")
    assert head.startswith(f"{sent} HTTP/1.1\r\n")
    assert "sk-real" in head
    assert slot.key not in head
    assert content == ("" if body is None else json.dumps(body).replace('"best"', '"real"'))
    whole = Answer(reply if isinstance(reply, bytes) else reply.encode() + chunked("data: {}\n\n" * 2))
    assert got.whole
    assert got.essence == whole.essence
    assert got.headers.get("x-a") == whole.headers.get("x-a")


CHOICE = {"index": 0, "text": " Rhine", "token_ids": [7, 8], "finish_reason": "stop"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
SGLANG = {"text": " Rhine", "output_ids": [7, 8], "meta_info": {"id": "r", "prompt_tokens": 3, "completion_tokens": 2,
    "finish_reason": {"type": "stop"}}}  # fmt: skip
PROMPTS: list[tuple[type[ms.Provider], str, dict[str, object], object]] = [
    (ms.OpenAICompletions, "/v1/completions", {"model": "m", "prompt": "A river:", "max_tokens": 5},
        {"id": "c", "model": "m", "choices": [CHOICE], "usage": USAGE}),
    (ms.OpenAICompletions, "/v1/completions", {"prompt": [1, 2, 3]}, {"id": "c", "choices": [CHOICE], "usage": USAGE}),
    (ms.VLLMGenerate, "/inference/v1/generate", {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 5}},
        {"request_id": "r", "choices": [CHOICE]}),
    (ms.SGLangGenerate, "/generate", {"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 5}}, SGLANG),
]  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("kind", "path", "body", "said"), PROMPTS)
async def test_prompts_go_on_as_they_came(
    kind: type[ms.Provider], path: str, body: dict[str, object], said: object, stream: bool
) -> None:
    """The clients are trainers and evaluations. The answer's bytes go back, and its usage counts."""
    text = json.dumps(said)
    reply = stream_of(f"data: {text}\n\n", "data: [DONE]\n\n") if stream else answer(text)
    async with open_peer(replies(reply)) as peer:
        provider = kind("sk-real", peer.url if "/v1/c" in path else peer.origin, name="p")
        traffic = ms.Traffic(budgets=[ms.Budget(output_tokens=100)])
        async with (
            ms.open_engine([provider], traffic=traffic, retry=NO_RETRY) as engine,
            open_gateway(engine) as gateway,
        ):
            slot = gateway.slot("a", extra_body={} if "max" in str(body) else {"max_tokens": 5})
            sent = {**body, "stream": stream}
            got = await ask(gateway.port, posted(path, sent, key=slot.key))
            await until(lambda: bool(slot.calls))
            [call] = slot.trace().calls
            tokenized = await ask(gateway.port, posted("/tokenize", {"prompt": "A"}, key=slot.key))
    whole = Answer(reply.encode() if isinstance(reply, str) else reply)
    assert got.essence == whole.essence
    assert call.completion.success
    assert call.response is not None
    assert call.response.text == " Rhine"
    assert call.response.tokens is not None
    assert list(call.response.tokens.ids or ()) == [7, 8]
    head, _, content = peer.requests[0].decode().partition("\r\n\r\n")
    assert head.startswith(f"POST {path} HTTP/1.1\r\n")
    assert json.loads(content).items() >= sent.items()
    assert ("model" in json.loads(content)) == ("model" in body)
    assert (tokenized.status, len(peer.requests)) == ((400, 1) if kind is ms.OpenAICompletions else (200, 2))
    assert len(peer.requests) == 1 or peer.requests[1].startswith(b"POST /tokenize HTTP/1.1\r\n")


async def test_a_kept_answer_is_asked_for_at_the_provider_that_made_it(simulator: Simulator) -> None:
    urls = simulator.base_urls
    kinds = [("one", "openai-responses"), ("two", "openai-responses")]
    known = [ms.OpenAIResponses(f"key-{name}", urls[dialect], name=name) for name, dialect in kinds]
    async with ms.open_engine(known) as engine, open_gateway(engine) as gateway:
        for name in ("two", "one"):
            body = {"model": f"{name}/sim", "input": "hi", "background": True}
            made = json.loads((await ask(gateway.port, posted("/v1/responses", body))).body)
            path = f"/v1/responses/{made['id']}"
            got = await ask(gateway.port, posted(path, b"").replace(b"POST", b"GET", 1))
            assert (got.status, json.loads(got.body)["id"]) == (200, made["id"])
            assert (await ask(gateway.port, posted(f"{path}/cancel", b""))).status == 200


@pytest.mark.parametrize("dialect", ["openai-responses", "gemini-interactions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_slot_gets_its_own_answers_alone(simulator: Simulator, dialect: str, stream: bool) -> None:
    path, member = (
        FORMS[dialect][0],
        "previous_" + ("response_id" if "responses" in FORMS[dialect][0] else "interaction_id"),
    )
    body: dict[str, object] = {"model": "sim", "input": "hi", "background": True, "stream": stream}
    async with ms.open_engine(providers(simulator), retry=NO_RETRY) as engine, open_gateway(engine) as gateway:
        own, other = gateway.slot("own"), gateway.slot("other")
        made = (await ask(gateway.port, posted(path, body, key=own.key))).body.decode()
        answer_id = re.search(r'"id": ?"((?:resp|v1|int)[^"]*)"', made)
        assert answer_id is not None
        asked = [("GET", ""), ("POST", "/cancel"), ("DELETE", "")]
        for key, expected in ((other.key, 404), ("any", 404), (own.key, 200)):
            for method, end in asked:
                request = posted(f"{path}/{answer_id[1]}{end}", b"", key=key).replace(b"POST", method.encode(), 1)
                assert (await ask(gateway.port, request)).status == expected
            if key != own.key:
                goes_on = {"model": "sim", "input": "and?", member: answer_id[1]}
                assert (await ask(gateway.port, posted(path, goes_on, key=key))).status == 404
                unknown = posted(f"{path}/unknown", b"", key=other.key).replace(b"POST", b"GET", 1)
                assert (await ask(gateway.port, unknown)).status == 404


async def test_an_endless_id_of_an_answer_is_not_kept() -> None:
    long = "r" * 1001

    async def script(line: Line) -> None:
        while await line.request():
            message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]}
            await line.send(answer(json.dumps({"id": long, "model": "m", "status": "completed", "output": [message]})))

    async with open_peer(script) as peer:
        provider = ms.OpenAIResponses("k", peer.url, name="p")
        async with ms.open_engine([provider], retry=NO_RETRY) as engine, open_gateway(engine) as gateway:
            slot = gateway.slot("own")
            for expected in (404, 200):
                made = await ask(gateway.port, posted("/v1/responses", {"model": "m", "input": "hi"}, key=slot.key))
                assert (made.status, json.loads(made.body)["id"]) == (200, long)
                request = posted(f"/v1/responses/{long}", b"", key=slot.key).replace(b"POST", b"GET", 1)
                assert (await ask(gateway.port, request)).status == expected
                long = "r" * 1000


@pytest.mark.parametrize(("bytes_", "status", "whole"), [(b"", 502, True), (STREAM_HEAD + "5\r\nab", 200, False)])
async def test_a_provider_that_dies_on_a_passed_on_request(bytes_: bytes | str, status: int, whole: bool) -> None:

    async with open_peer(reply_once(bytes_)) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, posted("/v1/models", b"").replace(b"POST", b"GET", 1))
        assert len(peer.lines) == (1 if bytes_ else 2)  # it is sent once more, as the connection may have been closed
    assert (got.status, got.whole) == (status, whole)
    assert got.body == (b"ab" if bytes_ else got.body)


async def test_a_client_that_leaves_ends_a_request_that_is_passed_on() -> None:
    begun, closed = trio.Event(), trio.Event()

    async def script(line: Line) -> None:
        await line.request()
        begun.set()
        await line.closed_by_peer()
        closed.set()

    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        async with await connect(gateway.port) as stream:
            await stream.send_all(posted("/v1/models", b"").replace(b"POST", b"GET", 1))
            await begun.wait()
        await closed.wait()


@pytest.mark.parametrize("path", ["/", "/health", "/healthz", "/slots/a", "/slots/a/", "/slots/a/health"])
async def test_a_probe_is_answered_by_the_gateway(path: str) -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer, key="right") as gateway:
        stream = await connect(gateway.port)
        async with stream:
            for method in ("HEAD", "GET"):
                await stream.send_all(f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                received = b""
                while not received.endswith(b"\r\n\r\n" if method == "HEAD" else b"}"):
                    received += await stream.receive_some(65536)
                assert received.startswith(b"HTTP/1.1 200 OK\r\n")
                assert received.endswith(b'{"status":"ok"}') == (method == "GET")
        assert gateway.slots == {}


async def refuse_once(line: Line) -> None:
    """Refuse the first request of the server, and answer the others."""
    await line.request()
    await line.send(answer(error_body("busy"), status="429 Busy", headers="retry-after: 2\r\n"))
    while await line.request():
        await line.send(answer(chat_answer("fine")))


async def test_refusals_are_waited_for_with_traffic_control(autojump_clock: MockClock) -> None:
    async with (
        open_peer(refuse_once) as peer,
        ms.open_engine([peer.chat], traffic=ms.Traffic()) as engine,
        open_gateway(engine) as gateway,
    ):
        slot, started = gateway.slot("a"), trio.current_time()
        got = await ask(gateway.port, posted(CHAT, HELLO, key=slot.key))
        [call] = slot.trace().calls
    assert (got.status, got.body.decode()) == (200, chat_answer("fine"))
    assert (call.completion.attempts, trio.current_time() - started >= 2) == (2, True)


async def test_refusals_are_passed_on_without_it() -> None:
    async with open_peer(refuse_once) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, posted(CHAT, HELLO))
    assert (got.status, got.headers["retry-after"], got.body.decode()) == (429, "2", error_body("busy"))


async def test_an_attempt_is_repeated_before_the_client_got_bytes() -> None:
    starts = iter(["before", "inside", "fine"])

    async def script(line: Line) -> None:
        while await line.request():
            how = next(starts)
            if how == "before":
                await line.send(stream_of(chat_chunk(), end=False))
                return
            await line.send(stream_of(chat_chunk(), chat_chunk("Hel"), end=False))
            return

    retry = ms.Retry(max_attempts=5, base=0.001)
    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], retry=retry) as engine,
        open_gateway(engine) as gateway,
    ):
        slot = gateway.slot("a")
        got = await ask(gateway.port, posted(CHAT, {**HELLO, "stream": True}, key=slot.key))
        [call] = slot.trace().calls
    sent, error = got.body.decode().split(chat_chunk("Hel"))
    assert sent == chat_chunk()
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == "network"
    assert call.completion.attempts == 2
    assert got.whole


async def test_a_stream_broken_in_an_event_is_cut_for_the_client() -> None:
    script = reply_once(stream_of(chat_chunk(), chat_chunk("Hel"), "data: {", end=False))
    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, posted(CHAT, {**HELLO, "stream": True}))
    assert not got.whole
    assert got.body.decode() == chat_chunk() + chat_chunk("Hel") + "data: {"


@pytest.mark.parametrize("knobs", ["truncate=0", "truncate=3", "truncate=-1"])
@pytest.mark.parametrize("dialect", [*FORMS, "gemini array"])
async def test_a_stream_without_its_end_has_no_clean_end(simulator: Simulator, dialect: str, knobs: str) -> None:
    """The server ends the body as HTTP wants it, and not as its dialect does."""
    name = dialect.partition(" ")[0]
    path, body = as_stream(name, *FORMS[name])
    request = posted(path.removesuffix("?alt=sse") if "array" in dialect else path, body, f"x-simulate: {knobs}")
    async with (
        ms.open_engine([with_knobs(each, knobs) for each in providers(simulator)], retry=NO_RETRY) as engine,
        open_gateway(engine) as gateway,
    ):
        direct, forwarded = await ask(simulator.port, request), await ask(gateway.port, request)
    assert (direct.status, direct.whole) == (200, True)
    rest = forwarded.body.removeprefix(direct.body)
    if (dialect, knobs) == ("gemini-interactions", "truncate=-1"):
        assert (forwarded.whole, rest) == (True, b"")  # only [DONE] is missing, which this dialect does not need
    elif forwarded.status == 502:
        assert b"error" in forwarded.body
    elif forwarded.whole:
        assert forwarded.body.startswith(direct.body)
        assert b'"error":' in rest
        assert rest.startswith((b"event: error\ndata: ", b"data: "))
    else:
        assert direct.body.startswith(forwarded.body)


@pytest.mark.parametrize("framing", ["chunks", "length", "close"])
@pytest.mark.parametrize("events", [0, 1, 2, 3])
async def test_how_a_body_ends_does_not_hide_that_an_answer_did_not(events: int, framing: str) -> None:
    said = "".join([": hi\n\n", *chat_stream("a", "b")[:2]][:events])
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    whole = {
        "chunks": stream_of(*([said] if said else [])),
        "length": f"{head}Content-Length: {len(said)}\r\n\r\n{said}".encode(),
        "close": f"{head}Connection: close\r\n\r\n{said}".encode(),
    }

    async with open_peer(reply_once(whole[framing])) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, posted(CHAT, {**HELLO, "stream": True}))
    assert got.whole
    error = got.body.decode().removeprefix(said).removeprefix("data: ")
    assert json.loads(error)["error"]["code"] == "network"
    assert got.status == (502 if events < 2 else 200)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", [CHAT, "/v1/models"])
@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized"])
async def test_a_compressed_answer_says_why_it_is_none(status: str, path: str, stream: bool) -> None:
    said = gzip.compress(error_body("sk-canary-secret is wrong").encode())
    script = reply_once(answer(said, status=status, headers="Content-Encoding: gzip\r\n"))
    request = posted(path, {**HELLO, "stream": stream})
    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, request if path == CHAT else request.replace(b"POST", b"GET", 1))
    assert (got.status, "content-encoding" in got.headers) == (502, False)
    assert "sent content-encoding 'gzip'" in json.loads(got.body)["error"]["message"]


async def test_a_route_fails_over_to_the_second_answer_alone() -> None:

    sound = replies(stream_of(*chat_stream("fine")))
    async with open_peer(replies(answer(error_body("no"), status="503 No"))) as one, open_peer(sound) as two:
        both = [ms.OpenAIChat("k", f"{peer.url}/v1", name=name) for name, peer in (("one", one), ("two", two))]
        route = ms.Route("best", ["one/m", "two/n"])
        async with ms.open_engine(both, traffic=ms.Traffic(routes=[route])) as engine, open_gateway(engine) as gateway:
            slot = gateway.slot("a")
            body = {**HELLO, "model": "best", "stream": True}
            got = await ask(gateway.port, posted(CHAT, body, key=slot.key))
            assert slot.trace().calls[0].target == "two/n"
    assert got.body.decode() == "".join(chat_stream("fine"))


# --- errors of the gateway's own ---


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("dialect", "member", "expected"),
    [
        ("openai-chat", "type", "server_error"),
        ("openai-responses", "type", "server_error"),
        ("anthropic", "type", "api_error"),
        ("gemini", "status", "UNAVAILABLE"),
        ("gemini-interactions", "status", "UNAVAILABLE"),
    ],
)
async def test_its_errors_are_in_the_clients_dialect(dialect: str, member: str, expected: str, stream: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    urls = dict.fromkeys(FORMS, f"http://127.0.0.1:{port}")
    nowhere = Simulator("127.0.0.1", port, 0)
    assert urls
    path, body = FORMS[dialect]
    if stream:
        path, body = as_stream(dialect, path, body)
    async with ms.open_engine(providers(nowhere), retry=NO_RETRY) as engine, open_gateway(engine) as gateway:
        got = await ask(gateway.port, posted(path, body))
    error = json.loads(got.body)["error"]
    assert (got.status, got.headers["content-type"], error[member]) == (502, "application/json", expected)
    assert error["message"] == f"the connection to the provider {dialect!r} failed (Connection refused)"
    assert got.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    ("request_", "status", "words"),
    [
        (posted("/v1/embeddings", HELLO), 404, "/v1/embeddings"),
        (posted(CHAT, HELLO).replace(b"POST", b"GET", 1), 405, "takes POST"),
        (
            posted("/v1/responses", {}, "Upgrade: websocket").replace(b"POST", b"GET", 1),
            426,
            "does not ask for a WebSocket",
        ),
        (posted("/v1/models/a/../b", b"").replace(b"POST", b"GET", 1), 404, "/v1/models/a/../b"),
        (posted("/v1/responses/%2e%2e", b"").replace(b"POST", b"DELETE", 1), 404, "/v1/responses/.."),
        (posted("/v1/responses/x/input_items", b""), 405, "takes GET or DELETE"),
        (posted("/v1/messages/count_tokens", HELLO), 400, "no provider of this gateway speaks anthropic"),
        (posted(f"/slots/..{CHAT}", HELLO), 404, "/slots/.."),
        (posted(f"/slots/%2e{CHAT}", HELLO), 404, "/slots/."),
        (posted(f"http://evil.example{CHAT}", HELLO), 403, "localhost"),
        (posted(CHAT, b"{"), 400, "not a JSON object"),
        (posted(CHAT, b"[]"), 400, "not a JSON object"),
        (
            posted(CHAT, b'{"model":"peer/x","metadata":{"model":"y","z":%b}}' % (b"[" * 300 + b"]" * 300)),
            400,
            "cannot be written again: it is nested too deeply",
        ),
        (posted(CHAT, {"messages": []}), 400, "model"),
        (posted(CHAT, {"model": 7}), 400, "model"),
        (posted(CHAT, {**HELLO, "stream": "yes"}), 400, "stream: must be true or false"),
        (
            posted(CHAT, HELLO, "Content-Encoding: br"),
            415,
            "content-encoding 'br' is not supported",
        ),
        (posted(CHAT, HELLO, "Content-Encoding: gzip"), 400, "is not gzip"),
        (posted(CHAT, gzip.compress(b"{}")[:-1], "Content-Encoding: gzip"), 400, "not one whole gzip stream"),
        (posted(CHAT, gzip.compress(b"{}") + b"x", "Content-Encoding: gzip"), 400, "not one whole gzip stream"),
        (posted(CHAT, gzip.compress(bytes(BODY_LIMIT + 1)), "Content-Encoding: gzip"), 413, "without its compression"),
        (posted(CHAT, HELLO, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 400, "two transfer-"),
        (posted("/slots/new/nothing", HELLO), 404, "/nothing"),
        (posted("/v1/messages", {**HELLO, "max_tokens": 1}), 400, "no provider of this gateway speaks anthropic"),
        (posted(CHAT, HELLO, "Sec-Fetch-Site: cross-site"), 403, "another site"),
        (posted(CHAT, HELLO, "Sec-Fetch-Site: same-site"), 403, "another site"),
        (posted(CHAT, HELLO, "Origin: https://another.example"), 403, "another site"),
        (posted(CHAT, HELLO, "Origin: null"), 403, "another site"),
        (posted(CHAT, HELLO, "Origin: http://127.0.0.1:3000"), 403, "another site"),
        (posted(CHAT, HELLO, "Content-Type: text/plain;charset=UTF-8"), 415, "send application/json"),
        (posted(CHAT, HELLO, "Content-Type: Multipart/Form-Data; boundary=a"), 415, "send application/json"),
        (posted(CHAT, HELLO, "Content-Type: application/x-www-form-urlencoded"), 415, "send application/json"),
        (posted(CHAT, HELLO).replace(b"Host: 127.0.0.1", b"Host: evil.example"), 403, "localhost"),
        (posted(CHAT, HELLO).replace(b"Host: 127.0.0.1", b"Host: 1.2.3.4.5"), 403, "localhost"),
        (posted(CHAT, HELLO).replace(b"Host: 127.0.0.1", b"Host: [evil.example]:80"), 403, "localhost"),
        (posted(CHAT, HELLO, key="slot-unknown"), 401, "has ended"),
        (b"nonsense\r\n\r\n", 400, "request line"),
    ],
)
async def test_requests_that_cannot_go_on(request_: bytes, status: int, words: str) -> None:
    async with open_peer(unused) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, request_)
        assert not gateway.slots
    assert got.status == status
    assert words in json.loads(got.body)["error"]["message"]


def zstd_compressed(data: bytes) -> bytes:
    module = pytest.importorskip("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    compressed: bytes = module.compress(data)
    return compressed


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("zstd", zstd_compressed)])
async def test_a_compressed_body_goes_on_without_compression(coding: str, compress: Callable[[bytes], bytes]) -> None:
    body = json.dumps(HELLO).encode()
    async with open_peer(reply_once(answer(chat_answer("fine")))) as peer, gateway_to(peer, key="right") as gateway:
        sent = posted(CHAT, compress(body), f"Content-Encoding: {coding}", key="right")
        assert (await ask(gateway.port, sent)).status == 200
        bomb = posted(CHAT, compress(bytes(BODY_LIMIT + 1)), f"Content-Encoding: {coding}", key="right")
        assert (await ask(gateway.port, bomb)).status == 413
        assert (await ask(gateway.port, bomb.replace(b"right", b"wrong"))).status == 401
    head, _, content = peer.requests[0].partition(b"\r\n\r\n")
    assert content == body
    assert b"content-encoding" not in head.lower()


ODD_ANSWERS: dict[str, bytes] = {
    "page": answer("<html>no</html>", kind="text/html"), "nothing": b"", "garbage": b"garbage\r\n\r\n",
    "TLS": b"\x15\x03\x01\0\2", "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
    "late": b"",
}  # fmt: skip


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("said", ODD_ANSWERS)
async def test_its_errors_name_no_address(said: str, stream: bool) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(ODD_ANSWERS[said])
        if said == "late":
            await trio.sleep_forever()

    body = {**HELLO, "stream": stream}
    async with open_peer(script) as peer:
        timeouts = ms.Timeouts(first_byte=0.05 if said == "late" else None)
        async with (
            ms.open_engine([peer.chat], retry=NO_RETRY, timeouts=timeouts) as engine,
            open_gateway(engine) as gateway,
        ):
            got = await ask(gateway.port, posted(CHAT, body))
    text = got.body.decode()
    assert "127.0.0.1" not in text, text
    assert str(peer.port) not in text, text
    assert got.status in ((200, 502) if said == "page" else (502, 504))
    assert said in ("page", "late") or f"the provider '{peer.chat.name}' failed" in text


async def test_without_its_library_zstd_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "ZSTD_MODULES", ("no_such_module",))
    async with open_peer(unused) as peer, gateway_to(peer) as gateway:
        got = await ask(gateway.port, posted(CHAT, HELLO, "Content-Encoding: zstd"))
    assert got.status == 415
    assert "pip install '.[zstd]' in manystream's checkout" in json.loads(got.body)["error"]["message"]


@pytest.mark.parametrize(
    "headers", [("Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1"), ("Sec-Fetch-Site: none",)]
)
@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]:8080", "LocalHost:1"])
async def test_requests_that_no_foreign_page_sends(headers: Sequence[str], host: str) -> None:

    request = posted(CHAT, HELLO, *headers).replace(b"127.0.0.1", host.encode())
    async with open_peer(reply_once(answer(chat_answer("fine")))) as peer, gateway_to(peer) as gateway:
        assert (await ask(gateway.port, request)).status == 200


async def test_a_key_does_not_let_a_foreign_page_in() -> None:
    async with open_peer(unused) as peer, gateway_to(peer, key="right") as gateway:
        for key in ("right", gateway.slot("a").key):
            got = await ask(gateway.port, posted(CHAT, HELLO, "Origin: https://another.example", key=key))
            assert got.status == 403


async def test_a_key_is_asked_for_before_the_body_is_read() -> None:
    async with open_peer(unused) as peer, gateway_to(peer, key="right") as gateway:
        head = posted(CHAT, HELLO, key="wrong").partition(b"\r\n\r\n")[0].replace(b"Length: ", b"Length: 99")
        got = await ask(gateway.port, head + b"\r\n\r\n")
        assert got.status == 401
        slot = gateway.slot("a")
        assert (await ask(gateway.port, posted("/nothing", HELLO, key="right"))).status == 404
        assert (await ask(gateway.port, posted("/nothing", HELLO, key=slot.key))).status == 404


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_another_address_than_loopback_needs_a_key(host: str) -> None:
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1")]) as engine:
        with pytest.raises(ms.InvalidRequestError, match="key: is needed"):
            open_gateway(engine, host=host)


WRONG_OPTIONS: list[tuple[str, object]] = [
    ("host", "http://127.0.0.1"), ("host", "127.0.0.1:80"), ("key", "http://secret"),
    ("host", None), ("host", b"::1"), ("port", None), ("port", -1), ("port", 65_536), ("port", "80"), ("port", True),
    ("key", ""), ("key", 3), ("key", "se cret"), ("key", "secret\r\n"), ("keep_alive", 0), ("keep_alive", None),
    ("keep_alive", math.nan), ("grace", -1), ("grace", "2"), ("trace", True), ("trace", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG_OPTIONS)
async def test_an_option_that_cannot_work_is_refused_by_name(name: str, value: object) -> None:
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1")]) as engine:
        with pytest.raises(ms.InvalidRequestError, match=rf"^{name}: must (not )?be ") as raised:
            open_gateway(engine, **{name: value})  # type: ignore[arg-type]
        assert "secret" not in str(raised.value)
        async with open_gateway(engine, grace=math.inf, keep_alive=math.inf, key="k~1"):
            pass


@pytest.mark.parametrize("engine", [None, "engine", ms.open_engine([ms.OpenAIChat("k")])])
async def test_a_gateway_needs_an_open_engine(engine: object) -> None:
    with pytest.raises(ms.InvalidRequestError, match="engine: must be the engine of an open_engine block"):
        open_gateway(engine)  # type: ignore[arg-type]


# --- connections ---


async def test_a_client_of_http_1_0_gets_a_body_without_chunks() -> None:
    script = replies(stream_of(*chat_stream("fine")))
    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        stream = await connect(gateway.port)
        async with stream:
            await stream.send_all(posted(CHAT, {**HELLO, "stream": True}, version="1.0"))
            received = b""
            while data := await stream.receive_some(65536):
                received += data
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body.decode() == "".join(chat_stream("fine"))


async def test_pipelined_requests_are_answered_in_order() -> None:
    async def script(line: Line) -> None:
        while data := await line.request():
            await line.send(answer(chat_answer(json.loads(data.partition(b"\r\n\r\n")[2])["user"])))

    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        requests = [posted(CHAT, {**HELLO, "user": str(number)}) for number in range(3)]
        pipelined = b"".join(request.replace(b"Connection: close\r\n", b"") for request in requests[:2]) + requests[2]
        wrong = b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        stream = await connect(gateway.port)
        async with stream:
            await stream.send_all(pipelined)
            received = b""
            while data := await stream.receive_some(65536):
                received += data
        assert [received.index(chat_answer(str(number)).encode()) for number in range(3)]
        assert received.count(b"HTTP/1.1 200") == 3
        assert (await ask(gateway.port, wrong * 3000 + requests[0])).status == 404  # without recursion


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_leaves_cancels_its_call_at_the_provider(stream: bool, begun: bool) -> None:
    left = trio.Event()

    async def script(line: Line) -> None:
        await line.request()
        if begun:
            await line.send(stream_of(chat_chunk("partial"), end=False))
        await line.closed_by_peer()
        left.set()

    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        slot = gateway.slot("a")
        client = await connect(gateway.port)
        await client.send_all(posted(CHAT, {**HELLO, "stream": stream}, key=slot.key))
        await until(lambda: bool(peer.lines))
        await trio.testing.wait_all_tasks_blocked(0.01)
        await client.aclose()
        with trio.fail_after(10):
            await left.wait()
        await until(lambda: bool(slot.trace().calls))
        [call] = slot.trace().calls
        assert call.client_left
        assert call.completion.error_category is ms.ErrorCategory.CANCELLED
        assert not slot.running
        assert not gateway.http.connections


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("begun", [True, False])
async def test_a_client_that_closes_one_direction_gets_its_answer(stream: bool, begun: bool) -> None:
    """It is no client that has left, though TCP reports both alike. The next request that it has sent counts, too."""
    go = trio.Event()

    async def script(line: Line) -> None:
        if b"GET" in (await line.request())[:3]:
            await line.send(answer("{}"))
            return
        first, rest = chunked(chat_chunk("one"), end=False), chunked(*chat_stream("two"))
        if stream and begun:
            await line.send(STREAM_HEAD.encode() + first)
        await go.wait()
        if not stream:
            await line.send(answer(chat_answer("two")))
        else:
            await line.send(rest if begun else STREAM_HEAD.encode() + first + rest)
        await script(line)

    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        client = await connect(gateway.port)
        async with client:
            request = posted(CHAT, {**HELLO, "stream": stream}).replace(b"Connection: close\r\n", b"")
            await client.send_all(request + b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until(lambda: bool(peer.lines))
            if begun:
                await trio.testing.wait_all_tasks_blocked(0.05)
            await client.send_eof()
            await trio.testing.wait_all_tasks_blocked(0.05)
            go.set()
            received = b""
            with trio.fail_after(30):
                while data := await client.receive_some(65536):
                    received += data
        answered = Answer(received)
        assert (answered.whole, answered.status) == (True, 200)
        assert b"two" in answered.body
        assert received.count(b"HTTP/1.1 200 ") == 2
        await until(lambda: not gateway.http.connections)
        assert gateway.http.answering == 0


SLOW: list[tuple[bytes, bytes, int]] = [
    (b"", b"", 0),
    (b"POST", b"", 408),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nX: ", b"y", 408),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n123", b"", 408),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n", b"y", 408),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\ny\r\n", 408),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n", b"y" * 70_000, -1),
    (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"11170\r\n" + b"y" * 70_000 + b"\r\n", -1),
]  # fmt: skip
"""The beginning of a request, what follows every 7 seconds, and the status; 0: no answer; -1: it goes on."""


@pytest.mark.parametrize(("beginning", "more", "status"), SLOW)
async def test_a_stalled_request_ends(beginning: bytes, more: bytes, status: int, autojump_clock: MockClock) -> None:
    """The others wait for none of them."""
    received: list[bytes] = []

    async def listen() -> None:
        while data := await client.receive_some(65536):
            received.append(data)
        nursery.cancel_scope.cancel()

    async with (
        open_peer(answer_all) as peer,
        gateway_to(peer, grace=0) as gateway,
        await connect(gateway.port) as client,
    ):
        with trio.move_on_after(80) as limit:
            async with trio.open_nursery() as nursery:
                await client.send_all(beginning)
                nursery.start_soon(listen)
                assert (await ask(gateway.port, posted(CHAT, HELLO))).status == 200
                while True:
                    await trio.sleep(7)
                    if more:
                        await client.send_all(more)
    assert limit.cancelled_caught is (status < 0)
    assert (Answer(b"".join(received)).status if status > 0 else received) == (status if status > 0 else [])


@pytest.mark.parametrize("size", [10, 20_000_000])
async def test_a_client_that_still_sends_can_read_why_it_is_refused(size: int) -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer, key="secret") as gateway:
        client = await connect(gateway.port)
        async with client, trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, posted(CHAT, b"x" * size))
            received = b""
            while data := await client.receive_some(65536):
                await trio.sleep(0)
                received += data
        assert Answer(received).status == 401
        await until(lambda: not gateway.http.connections)


async def test_silent_clients_keep_no_one_out(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer) as gateway:
        silent = [await connect(gateway.port) for _ in range(40)]
        await until(lambda: len(gateway.http.connections) == 40)
        full_once(gateway, monkeypatch)
        assert (await ask(gateway.port, posted(CHAT, HELLO))).status == 200
        assert 0 < len(gateway.http.connections) < 40
        monkeypatch.undo()
        for client in silent:
            await client.aclose()


@pytest.mark.parametrize(
    "request_", [posted(CHAT, {**HELLO, "stream": True}), posted("/v1/models", b"").replace(b"POST", b"GET", 1)]
)
async def test_a_client_that_does_not_read_stops_the_provider(request_: bytes) -> None:
    """The bytes in between are bounded, and none is lost."""
    sent = 0
    event = chat_chunk("x" * 50_000)
    count = 600

    async def script(line: Line) -> None:
        nonlocal sent
        await line.request()
        await line.send(STREAM_HEAD)
        for _ in range(count):
            await line.send(chunked(event, end=False))
            sent += 1
        await line.send(chunked(*chat_stream("")[-2:]))

    limits = ms.EngineLimits(max_response_bytes=1 << 30)
    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], limits=limits) as engine,
        open_gateway(engine) as gateway,
    ):
        client = await connect(gateway.port)
        async with client:
            await client.send_all(request_)
            await trio.testing.wait_all_tasks_blocked(0.2)
            assert 0 < sent < count  # what the kernel's buffers hold
            [connection] = gateway.http.connections
            assert len(connection.unsent) < 1_000_000
            received = bytearray()
            while data := await client.receive_some(1 << 20):
                received += data
    got = Answer(bytes(received))
    assert got.whole
    assert got.body.count(event.encode()) == count


async def read_late(client: trio.SocketStream) -> None:
    await trio.sleep(20)
    received = bytearray()
    while data := await client.receive_some(1 << 20):
        received += data
    assert Answer(bytes(received)).whole


@pytest.mark.parametrize("reads", [True, False])
async def test_clients_that_never_read_hold_no_place_for_ever(reads: bool, autojump_clock: MockClock) -> None:
    """One that reads late keeps its call."""
    event = chat_chunk("x" * 50_000)

    async def script(line: Line) -> None:
        if b'"long"' not in await line.request():
            await line.send(answer(chat_answer("fine")))
            return
        await line.send(STREAM_HEAD)
        for _ in range(600):
            await line.send(chunked(event, end=False))
        await line.send(chunked(*chat_stream("")[-2:]))

    limits = ms.EngineLimits(max_response_bytes=1 << 30)
    traffic = ms.Traffic(rates={"peer": ms.RateLimit(concurrent=2)})
    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], retry=NO_RETRY, limits=limits, traffic=traffic) as engine,
        open_gateway(engine) as gateway,
    ):
        slot = gateway.slot("a")
        long = posted(CHAT, {**HELLO, "user": "long", "stream": True}, key=slot.key)
        clients = [await connect(gateway.port) for _ in range(2)]
        for client in clients:
            await client.send_all(long)
        if reads:
            async with trio.open_nursery() as nursery:
                for client in clients:
                    nursery.start_soon(read_late, client)
        else:
            got = await ask(gateway.port, posted(CHAT, HELLO, key=slot.key))
            assert (got.status, trio.current_time() < 60) == (200, True)
        assert [call.client_left for call in slot.trace().calls] == ([False] * 2 if reads else [True, True, False])
        for client in clients:
            await client.aclose()


@pytest.mark.parametrize(
    ("dialect", "keep_alive"),
    [
        ("openai-chat", ": keep-alive\n\n"),
        ("openai-responses", ": keep-alive\n\n"),
        ("anthropic", 'event: ping\ndata: {"type": "ping"}\n\n'),
        ("gemini", "\n"),
    ],
)
@pytest.mark.parametrize("refused", [False, True])
async def test_keep_alives_fill_silence(
    autojump_clock: MockClock, dialect: str, keep_alive: str, refused: bool
) -> None:
    """After them, a refusal comes as an event of the stream."""
    error = json.dumps({"error": {"message": "busy", "type": "x", "code": 503}}, indent=1)

    async def script(line: Line) -> None:
        await line.request()
        await trio.sleep(35)
        if refused:
            await line.send(answer(error, status="503 Busy"))
        else:
            await line.send(stream_of("data: [DONE]\n\n"))
        await line.closed_by_peer()

    async with open_peer(script) as peer:
        reached = Simulator("127.0.0.1", int(peer.origin.rpartition(":")[2]), 0)
        async with (
            ms.open_engine(providers(reached), retry=NO_RETRY, timeouts=ms.Timeouts(first_byte=60)) as engine,
            open_gateway(engine) as gateway,
        ):
            got = await ask(gateway.port, posted(*as_stream(dialect, *FORMS[dialect])))
    assert (got.status, got.headers["content-type"], got.whole) == (200, "text/event-stream", True)
    assert got.body.decode().startswith(keep_alive * 2)
    rest = got.body.decode().removeprefix(keep_alive * 2)
    assert not rest.startswith(keep_alive)
    if refused:
        data = "\n".join(line.removeprefix("data: ") for line in rest.splitlines() if line.startswith("data: "))
        assert json.loads(data) == json.loads(error)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("agent", "interim"),
    [
        ("OpenAI/Python 2.1", 6),
        ("AsyncAnthropic/Python 1.0", 6),
        ("google-genai-sdk/1.9 gl-python/3.12", 6),
        ("python-httpx/0.28", 6),
        ("OpenAI/JS 6.1", 0),
        ("python-requests/2.32", 0),
    ],
)
async def test_httpx_gets_interim_responses(autojump_clock: MockClock, stream: bool, agent: str, interim: int) -> None:
    """They keep the status of the answer open. Any other client that does not stream gets no keep-alive."""

    async def script(line: Line) -> None:
        await line.request()
        await trio.sleep(100)
        await line.send(answer(error_body("no"), status="503 Busy"))

    async with open_peer(script) as peer, gateway_to(peer) as gateway, await connect(gateway.port) as client:
        await client.send_all(posted(CHAT, {**HELLO, "stream": stream}, f"User-Agent: {agent}"))
        received = b""
        while data := await client.receive_some(65536):
            received += data
    assert received.startswith(b"HTTP/1.1 102 Processing\r\n\r\n" * interim)
    got = Answer(received)
    assert received.count(b"HTTP/1.1 102") == interim
    assert got.status == (200 if stream and not interim else 503)
    assert error_body("no").encode() in got.body.replace(b"data: ", b"")


# --- refusals in time ---


@pytest.mark.parametrize("traffic", [None, ms.Traffic()])
@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ((), 20, 21),
        (("x-stainless-read-timeout: 5.0", "User-Agent: OpenAI/Python 2.1"), 3.9, 5),
        (("X-Stainless-Timeout: 2",), 0.9, 2),
        (("X-Server-Timeout: 3", "User-Agent: google-genai-sdk/1.9 gl-python/3.12"), 1.9, 3),
        (("x-stainless-read-timeout: 0.2",), 0.1, 0.2),
        (("x-stainless-read-timeout: nan", "x-stainless-timeout: 600"), 595, 600),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refusal_comes_within_the_clients_timeout(
    autojump_clock: MockClock,
    traffic: ms.Traffic | None,
    headers: Sequence[str],
    least: float,
    most: float,
    stream: bool,
) -> None:
    """Keep-alives would let it wait for ever. It is the provider's own, with its hint."""
    refusal = answer(error_body("slow down"), status="429 No", headers="retry-after: 7\r\n")

    retry = ms.Retry(max_attempts=1000)
    async with (
        open_peer(replies(refusal)) as peer,
        ms.open_engine([peer.chat], retry=retry, traffic=traffic) as engine,
        open_gateway(engine, queue=20, keep_alive=30) as gateway,
    ):
        began, slot = trio.current_time(), gateway.slot("a")
        got = await ask(gateway.port, posted(CHAT, {**HELLO, "stream": stream}, *headers, key=slot.key))
        seconds = trio.current_time() - began
        await until(lambda: bool(slot.calls))
        [call] = slot.trace().calls
    assert least <= seconds <= most
    assert error_body("slow down").encode() in got.body.replace(b"data: ", b"")
    assert got.status == (200 if stream and most > 30 else 429)  # after a keep-alive, it is an event of the stream
    assert got.headers.get("retry-after") == (None if got.status == 200 else "7")
    assert call.completion.error is not None
    assert "could not be sent in time" in call.completion.error.message
    assert not call.client_left


LATE_FAILURES: dict[str, str | bytes] = {
    "a hint": answer(error_body("x"), status="500 No", headers="retry-after: 90\r\n"),
    "a hint in milliseconds": answer(error_body("x"), status="408 No", headers="retry-after-ms: 90000\r\n"),
    "a refusal": answer(error_body("x"), status="503 No", headers="retry-after: 90\r\n"),
    "a stream's error": stream_of(f"data: {error_body('x', 'server_error')}\n\n"),
    "an end": "",
    "an end after the head": STREAM_HEAD,
    "no byte": "silence",
}
"""What ends an attempt, after which the call would be repeated."""


@pytest.mark.parametrize("traffic", [None, ms.Traffic()])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("failure", LATE_FAILURES.values(), ids=LATE_FAILURES)
async def test_no_pause_holds_a_request_whose_time_is_over(
    autojump_clock: MockClock, failure: str | bytes, stream: bool, traffic: ms.Traffic | None
) -> None:
    """The time passed while an attempt was under way."""
    sent = 0

    async def script(line: Line) -> None:
        nonlocal sent
        while await line.request():
            sent += 1
            await trio.sleep(11)
            if failure == "silence":
                await line.closed_by_peer()
            await line.send(failure)
            if len(failure) < 200:
                return

    retry, timeouts = ms.Retry(max_attempts=9, base=20), ms.Timeouts(first_byte=12)
    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], retry=retry, traffic=traffic, timeouts=timeouts) as engine,
        open_gateway(engine, queue=10) as gateway,
    ):
        got = await ask(gateway.port, posted(CHAT, {**HELLO, "stream": stream}))
    assert trio.current_time() <= 13.5
    assert sent == 1
    assert got.status >= 400 or b"error" in got.body


async def test_what_was_never_sent_is_refused_with_the_hint(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        assert await line.request()
        await line.send(answer(error_body("no"), status="429 No", headers="retry-after: 40\r\n"))
        assert not await line.request()

    traffic = ms.Traffic(adaptive=False)
    async with (
        open_peer(script) as peer,
        gateway_to(peer, queue=10, traffic=traffic) as gateway,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask, gateway.port, posted(CHAT, HELLO))
        await trio.sleep(1)
        got = await ask(gateway.port, posted(CHAT, HELLO))
    assert (got.status, got.headers["retry-after"]) == (429, "29")
    assert "x-should-retry" not in got.headers
    assert "waiting for" in json.loads(got.body)["error"]["message"]


async def test_a_server_that_is_away_is_waited_for_in_time(autojump_clock: MockClock) -> None:
    async with open_peer(unused) as peer:
        url = peer.url
    away = ms.OpenAIChat("k", url)
    async with (
        ms.open_engine([away], traffic=ms.Traffic()) as engine,
        open_gateway(engine, queue=10) as gateway,
    ):
        got = await ask(gateway.port, posted(CHAT, HELLO))
    assert got.status == 504


# --- slots ---


answer_all = replies(answer(chat_answer("fine")))


async def test_a_slot_is_a_tenant_a_session_and_tags() -> None:
    async with open_peer(replies(answer(chat_answer("fine")))) as peer, gateway_to(peer) as gateway:
        with gateway.slot("task-17", tags={"run": 3}, extra_body={"logprobs": True}) as slot:
            assert (await ask(gateway.port, posted(CHAT, HELLO, key=slot.key))).status == 200
            [call] = slot.trace().calls
            assert call.completion.tags == {"slot": "task-17", "run": 3}
            assert (slot.options["tenant"], slot.options["session"], slot.calls) == ("task-17", "task-17", 1)
            assert json.loads(peer.requests[0].partition(b"\r\n\r\n")[2]) == {**HELLO, "logprobs": True}
            with pytest.raises(ms.InvalidRequestError, match="already"):
                gateway.slot("task-17")
        assert slot.ended
        assert (await ask(gateway.port, posted(CHAT, HELLO, key=slot.key))).status == 401
        assert slot.trace().calls == [call]
        assert gateway.slot("task-17").key != slot.key
        for name in ("", "a/b", "default", "x" * 101, "x\n", None, b"x", 3):
            with pytest.raises(ms.InvalidRequestError, match="name"):
                gateway.slot(name)  # type: ignore[arg-type]
        wrong: dict[str, object] = {
            "tags": {1: "a"}, "priority": "first", "extra_body": [("a", 1)], "idle": math.nan, "trace": None,
        }  # fmt: skip
        for option, value in wrong.items():
            with pytest.raises(ms.InvalidRequestError, match=rf"^{option}: must "):
                gateway.slot("b", **{option: value})  # type: ignore[arg-type]
        assert list(gateway.slots) == ["task-17"]


async def test_a_slots_budget_limits_its_calls_alone() -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer, traffic=ms.Traffic()) as gateway:
        slot, other = gateway.slot("a", budget=ms.Budget(calls=2)), gateway.slot("b")
        statuses = [(await ask(gateway.port, posted(CHAT, HELLO, key=slot.key))).status for _ in range(3)]
        assert statuses == [200, 200, 402]
        assert (await ask(gateway.port, posted(CHAT, HELLO, key=other.key))).status == 200
        slot.end()
        again = gateway.slot("a", budget=ms.Budget(calls=1))
        assert (await ask(gateway.port, posted(CHAT, HELLO, key=again.key))).status == 200
        with pytest.raises(ms.InvalidRequestError, match=r"budget\.usd: needs prices"):
            gateway.slot("c", budget=ms.Budget(usd=1.0))
        assert "c" not in gateway.slots


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_counts_what_may_be_made(stream: bool) -> None:

    async with open_peer(silent) as peer, gateway_to(peer, traffic=ms.Traffic()) as gateway:
        gateway.slot("a", budget=ms.Budget(output_tokens=1000))
        slot = gateway.slots["a"]
        async with await connect(gateway.port) as client:
            await client.send_all(posted(CHAT, {**HELLO, "stream": stream, "max_tokens": 400}, key=slot.key))
            await until(lambda: bool(peer.lines))
            await trio.testing.wait_all_tasks_blocked(0.05)
        await until(lambda: slot.calls == 1)
        [figures] = gateway.calls.starter.traffic.statistics().budgets  # type: ignore[union-attr]
    assert (figures.spent.output_tokens, figures.reserved.output_tokens) == (400, 0)


async def test_a_budget_needs_traffic_control() -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer) as gateway:
        with pytest.raises(ms.InvalidRequestError, match="traffic"):
            gateway.slot("a", budget=ms.Budget(calls=2))
        assert not gateway.slots


async def test_the_cost_of_a_slot_is_that_of_its_calls() -> None:
    def price(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
        return 0.25

    async with open_peer(answer_all) as peer, gateway_to(peer, traffic=ms.Traffic(price=price)) as gateway:
        slot = gateway.slot("a", budget=ms.Budget(output_tokens=1_000_000))
        for _ in range(2):
            body = {**HELLO, "max_tokens": 10}
            assert (await ask(gateway.port, posted(CHAT, body, key=slot.key))).status == 200
        assert slot.cost == 0.5
        unbounded = await ask(gateway.port, posted(CHAT, HELLO, key=slot.key))
        assert (unbounded.status, "max_output_tokens" in unbounded.body.decode()) == (400, True)


async def test_a_slot_ends_by_itself(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        while await line.request():
            await trio.sleep(100)
            await line.send(answer(chat_answer("late")))

    async with open_peer(script) as peer, gateway_to(peer) as gateway:
        slot, forever = gateway.slot("a", idle=30), gateway.slot("b", idle=math.inf)
        await trio.sleep(20)
        assert (await ask(gateway.port, posted(CHAT, HELLO, key=slot.key))).status == 200  # a running call is a use
        await trio.sleep(25)
        assert not slot.ended
        await trio.sleep(40)
        assert slot.ended
        assert list(gateway.slots) == ["b"]
        assert not forever.ended
    assert forever.ended


async def test_the_end_of_a_slot_cancels_its_calls() -> None:

    async with open_peer(silent) as peer, gateway_to(peer) as gateway, trio.open_nursery() as nursery:
        slot = gateway.slot("a")
        got: list[Answer] = []

        async def client() -> None:
            got.append(await ask(gateway.port, posted(CHAT, HELLO, key=slot.key)))

        nursery.start_soon(client)
        await until(lambda: bool(slot.running))
        slot.end()
        await until(lambda: bool(got))
        assert got[0].status == 503


async def test_a_base_url_may_name_a_slot() -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer) as gateway:
        assert (await ask(gateway.port, posted(f"/slots/run-1{CHAT}", HELLO))).status == 200
        assert (await ask(gateway.port, posted(f"/slots/run-1{CHAT}", HELLO))).status == 200
        assert gateway.slots["run-1"].calls == 2
        with pytest.raises(RuntimeError, match="trace=False"):
            gateway.slots["run-1"].trace()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", SDKS)
async def test_the_official_sdks_see_that_the_gateway_ended(dialect: str, stream: bool) -> None:
    with open_simulator_thread("stall=6" if stream else "delay=600") as simulator:
        async with (
            ms.open_engine(providers(simulator)) as engine,
            open_gateway(engine) as gateway,
            trio.open_nursery() as nursery,
        ):
            seen: list[object] = []

            async def client() -> None:
                seen.extend(await trio.to_thread.run_sync(heard, dialect, gateway.base_url, stream))

            nursery.start_soon(client)
            await until(lambda: engine.statistics().calls.get("reading" if stream else "waiting", 0) == 1)
            await trio.testing.wait_all_tasks_blocked(0.05)
            await gateway.drain(0)
            await until(lambda: bool(seen))
    *before, error = seen
    assert bool(before) is stream
    assert "the gateway has ended" in str(error), seen


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dialect", FORMS)
async def test_an_answer_that_outlasts_the_end_ends_with_an_error(dialect: str, stream: bool) -> None:
    path, body = as_stream(dialect, *FORMS[dialect]) if stream else FORMS[dialect]
    got: list[Answer] = []
    with open_simulator_thread("stall=6" if stream else "delay=600") as simulator:
        async with ms.open_engine(providers(simulator)) as engine, trio.open_nursery() as nursery:
            async with open_gateway(engine, grace=0) as gateway:
                slot = gateway.slot("a")
                await running(nursery, gateway, posted(path, body, key=slot.key), got)
                await until(lambda: engine.statistics().calls.get("reading" if stream else "waiting", 0) == 1)
                await trio.testing.wait_all_tasks_blocked(0.05)
            await until(lambda: bool(got))
            await until(lambda: slot.calls == 1)
    [answer_], [call] = got, slot.trace().calls
    events = answer_.body.decode().replace("\r\n", "\n").rstrip().split("\n\n")
    error = json.loads(events[-1].rpartition("data: ")[2])["error"]
    assert (answer_.whole, answer_.status, len(events) > 3) == (True, 200 if stream else 503, stream)
    assert error["message"] == "the gateway has ended"
    assert not call.client_left


async def running(nursery: trio.Nursery, gateway: Gateway, request: bytes, got: list[Answer]) -> None:
    """Send a request, and wait until it is being answered."""

    async def client() -> None:
        got.append(await ask(gateway.port, request))

    before = gateway.http.answering
    nursery.start_soon(client)
    await until(lambda: gateway.http.answering > before)


@pytest.mark.parametrize("stream", [True, False])
async def test_the_end_waits_for_answers_and_refuses_requests(stream: bool, autojump_clock: MockClock) -> None:
    held, go = trio.Event(), trio.Event()
    pieces = [chunk.encode() for chunk in chat_stream("one", "two")]

    async def script(line: Line) -> None:
        request = await line.request()
        if stream and b"GET" not in request[:3]:
            await line.send(stream_of(pieces[0], end=False))
        held.set()
        await go.wait()
        await line.send(chunked(*pieces[1:]) if stream and b"GET" not in request[:3] else answer(chat_answer("late")))

    got: list[Answer] = []
    async with open_peer(script) as peer, trio.open_nursery() as nursery:

        async def late() -> None:
            await until(lambda: gateway.http.is_draining)
            for dialect, form in FORMS.items():
                refused = await ask(gateway.port, posted(*form))
                assert (refused.status, refused.headers["retry-after"]) == (503, "20"), dialect
                assert "x-should-retry" not in refused.headers
                assert "the gateway is ending" in json.loads(refused.body)["error"]["message"]
            assert (await ask(gateway.port, b"GET /health HTTP/1.0\r\n\r\n")).status == 503
            await trio.sleep(19)
            go.set()

        async with gateway_to(peer, grace=20) as gateway:
            await running(nursery, gateway, posted(CHAT, {**HELLO, "stream": stream}), got)
            await held.wait()
            await running(nursery, gateway, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", got)
            nursery.start_soon(late)
        await until(lambda: len(got) == 2)
    assert [each.whole for each in got] == [True, True]
    assert {each.status for each in got} == {200}


async def test_leaving_the_block_ends_everything(autojump_clock: MockClock) -> None:

    async with open_peer(silent) as peer, ms.open_engine([peer.chat]) as engine:
        async with open_gateway(engine) as gateway:
            client = await connect(gateway.port)
            await client.send_all(posted(CHAT, HELLO))
            await until(lambda: bool(peer.lines))
        async with client:
            assert (await client.receive_some(1000)).startswith(b"HTTP/1.1 503 ")
        with pytest.raises(OSError, match="failed"):
            await connect(gateway.port)
        assert engine.statistics().calls == {}


def test_it_runs_on_asyncio(simulator: Simulator) -> None:
    import asyncio

    async def main() -> str:
        async with (
            ms.open_engine(providers(simulator)) as engine,
            open_gateway(engine) as gateway,
            openai.AsyncOpenAI(api_key="key", base_url=f"{gateway.base_url}/v1") as client,
        ):
            stream = await client.chat.completions.create(model="sim", messages=HELLO["messages"], stream=True)  # type: ignore[call-overload]
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    assert asyncio.run(main())


async def test_accepting_goes_on_without_descriptors(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer) as gateway:
        full_once(gateway, monkeypatch)
        assert (await ask(gateway.port, posted(CHAT, HELLO))).status == 200
        monkeypatch.undo()


def full_once(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next connection that would be accepted find no file descriptor."""
    listener = gateway.http.sock
    failures = iter([OSError(24, "too many open files")])

    class Full:
        def accept(self) -> object:
            for failure in failures:
                raise failure
            return listener.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(listener, name)

    monkeypatch.setattr(gateway.http, "sock", Full())


# --- traces ---


def turn(*messages: dict[str, object], **members: object) -> dict[str, object]:
    return {"model": "sim", "messages": list(messages), **members}


ASKED: dict[str, object] = {"role": "user", "content": "one"}
MORE: dict[str, object] = {"role": "user", "content": "two"}
SAID: dict[str, object] = {"role": "assistant", "content": "fine"}
CALLED = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("second", "continues", "fork"),
    [
        (turn(ASKED, SAID, MORE), 1, ""),
        (turn({"role": "user", "content": [{"type": "text", "text": "one"}]}, SAID, MORE), 1, ""),
        (turn(ASKED, {**SAID, "content": "other"}, MORE), None, "the answer of call 1 came back with another text"),
        (turn(ASKED, SAID, MORE, tools=[{"x": 1}]), None, "another tools than that of call 1"),
        (turn(MORE, SAID, MORE), None, "message 0 is not that of call 1"),
        (turn(ASKED), None, "the same conversation as that of call 1"),
        (
            turn(ASKED, {**SAID, "tool_calls": [CALLED]}),
            None,
            "the answer of call 1 came back with 1 tool calls, not 0",
        ),
    ],
)  # fmt: skip
async def test_a_trace_joins_turns_or_says_why_not(
    second: dict[str, object], continues: int | None, fork: str, tmp_path: Path
) -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer, trace=tmp_path / "traces") as gateway:
        slot = gateway.slot("a")
        await ask(gateway.port, posted(CHAT, turn(ASKED), key=slot.key))
        await ask(gateway.port, posted(CHAT, second, key=slot.key))
        trace = slot.trace()
    first, other = trace.calls
    assert (first.continues, first.fork) == (None, "")
    assert (other.continues, other.fork) == (continues, fork)
    assert other.request == second
    assert other.response.text == "fine"
    assert len(trace.conversations()) == (1 if continues else 2)
    assert bool(other.prefix) == bool(continues)
    lines = [json.loads(line) for line in (tmp_path / "traces" / "a.jsonl").read_text().splitlines()]
    assert [line["call"] for line in lines] == [1, 2]
    assert lines[1]["request"] == second
    assert lines[1]["answer"]["content"] == [{"type": "text", "text": "fine"}]
    assert lines[1]["fork"] == fork
    assert lines[1]["usage"]["input_tokens"] == other.response.usage.input_tokens
    assert lines[1]["tokens"] is None
    assert (tmp_path / "traces" / "a.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("prompt", "shared", "fork"),
    [
        ([1, 2, 7, 8, 3], 4, ""),
        ([1, 2, 7, 9, 3], 0, "token 3 of its prompt is not that of call 1, whose text was tokenised again"),
        ([1, 2, 7], 0, "token 3 of its prompt is not that of call 1, whose text was tokenised again"),
        (None, 0, ""),
    ],
)
async def test_tokens_prove_that_a_turn_continues_another(
    prompt: list[int] | None, shared: int, fork: str, stream: bool, tmp_path: Path
) -> None:
    """The server's own ids decide, where it sends them: equal texts may have become other tokens."""
    prompts: list[list[int] | None] = [[1, 2], prompt]

    async def script(line: Line) -> None:
        while await line.request():
            ids, body = prompts.pop(0), json.loads(chat_answer("fine"))
            said = {"prompt_token_ids": ids} if ids else {}
            if not stream:
                body["choices"][0]["token_ids"] = [7, 8]
                await line.send(answer(json.dumps({**body, **said})))
                continue
            first = json.loads(chat_chunk("fine").removeprefix("data: "))
            first["choices"][0]["token_ids"] = [7, 8]
            events = [f"data: {json.dumps({**first, **said})}\n\n", *chat_stream("")[-2:]]
            await line.send(stream_of(*events))

    async with open_peer(script) as peer, gateway_to(peer, trace=tmp_path) as gateway:
        slot = gateway.slot("a")
        for body in (turn(ASKED, stream=stream), turn(ASKED, SAID, MORE, stream=stream)):
            assert (await ask(gateway.port, posted(CHAT, body, key=slot.key))).status == 200
        first, second = slot.trace().calls
    assert first.tokens is not None
    assert ([*first.tokens.ids], [*(first.tokens.prompt_ids or ())]) == ([7, 8], [1, 2])
    assert (second.continues, second.shared_tokens, second.fork) == (None if fork else 1, shared, fork)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert lines[0]["tokens"]["ids"] == [7, 8]
    assert lines[1]["shared_tokens"] == shared


async def test_a_conversation_that_goes_on_twice_forks() -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer) as gateway:
        slot = gateway.slot("a")
        for body in (turn(ASKED), turn(ASKED, SAID, MORE), turn(ASKED, SAID, {**MORE, "content": "three"})):
            await ask(gateway.port, posted(CHAT, body, key=slot.key))
        trace = slot.trace()
    assert [call.continues for call in trace.calls] == [None, 1, 1]
    assert trace.calls[2].fork == "call 2 continues call 1, too"
    assert [[call.number for call in turns] for turns in trace.conversations()] == [[1, 2], [1, 3]]
    assert trace.calls[1].prefix == trace.calls[2].prefix


@pytest.mark.parametrize("dialect", FORMS)
async def test_an_agents_turns_are_joined_in_every_dialect(simulator: Simulator, dialect: str) -> None:
    """Each turn of an official SDK's program sends back the answer, tool calls included."""
    async with ms.open_engine(providers(simulator)) as engine, open_gateway(engine) as gateway:
        slot = gateway.slot("a")
        await trio.to_thread.run_sync(three_turns, dialect, gateway, slot)
        trace = slot.trace()
    assert [call.fork for call in trace.calls] == ["", "", ""]
    assert [[call.number for call in turns] for turns in trace.conversations()] == [[1, 2, 3]]


def three_turns(dialect: str, gateway: Gateway, slot: Slot) -> None:
    key, url = slot.key, gateway.base_url
    messages: list[object] = []
    with (
        closing(openai.OpenAI(api_key=key, base_url=url)) as chat,
        closing(anthropic.Anthropic(api_key=key, base_url=url)) as claude,
        closing(genai.Client(api_key=key, http_options={"base_url": url})) as gemini,
    ):
        history = gemini.chats.create(model="sim")
        knobs = "simulate: kind=mixed,events=30"
        for text in (knobs if dialect in ("openai-responses", "gemini-interactions") else "one", "two", "three"):
            if dialect != "gemini-interactions":
                messages.append({"role": "user", "content": text})
            if dialect == "gemini":
                history.send_message(text)
            elif dialect == "gemini-interactions":
                messages.append({"type": "user_input", "content": [{"type": "text", "text": text}]})
                steps = gemini.interactions.create(model="sim", input=messages).steps  # type: ignore[arg-type]
                messages += [step.model_dump(exclude_none=True) for step in steps]
                for step in steps:
                    if step.type == "function_call":
                        output = {"type": "function_result", "call_id": step.id, "name": step.name, "result": "sunny"}
                        messages.append(output)
            elif dialect == "openai-responses":
                items = chat.responses.create(model="sim", input=messages).output  # type: ignore[arg-type]
                messages += [item.model_dump(exclude_none=True) for item in items]
                for item in items:
                    if item.type == "function_call":
                        result = {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
                        messages.append(result)
            elif dialect == "anthropic":
                done = claude.messages.create(model="sim", max_tokens=100, messages=messages)  # type: ignore[arg-type]
                blocks = [block.model_dump(exclude_none=True) for block in done.content]
                messages.append({"role": "assistant", "content": blocks})
            else:
                said = chat.chat.completions.create(model="sim", messages=messages)  # type: ignore[arg-type]
                messages.append(said.choices[0].message.model_dump(exclude_none=True))


async def test_calls_of_clients_without_a_slot_are_traced(tmp_path: Path) -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer, trace=tmp_path) as gateway:
        await ask(gateway.port, posted(CHAT, turn(ASKED)))
        await ask(gateway.port, posted(CHAT, turn(ASKED, SAID, MORE)))
        await ask(gateway.port, posted(f"/slots/x{CHAT}", turn(ASKED)))
    lines = [json.loads(line) for line in (tmp_path / "default.jsonl").read_text().splitlines()]
    assert [(line["continues"], line["shared_messages"]) for line in lines] == [(None, 0), (1, 1)]
    assert len((tmp_path / "x.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("kind", ["pipe", "link", "text"])
async def test_a_trace_is_written_to_no_other_file(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, other = tmp_path / "default.jsonl", tmp_path / "other"
    other.write_text("kept")
    async with open_peer(answer_all) as peer, gateway_to(peer, trace=tmp_path) as gateway:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to(other)
        else:
            path.write_text("kept")
        for _ in range(2):
            assert (await ask(gateway.port, posted(CHAT, HELLO))).status == 200
    assert (other.read_text(), caplog.text.count("lacks calls")) == ("kept", 1)
    assert kind == "pipe" or path.read_text() == "kept"


async def test_a_folder_of_traces_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    async with open_peer(answer_all) as peer:
        with pytest.raises(ms.InvalidRequestError, match=r"^trace: .*link is a link: name the folder"):
            async with gateway_to(peer, trace=tmp_path / "link"):
                raise AssertionError


async def test_a_full_disk_costs_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with open_peer(answer_all) as peer, gateway_to(peer, trace=tmp_path) as gateway:
        (tmp_path / "default.jsonl").mkdir()
        for _ in range(2):
            assert (await ask(gateway.port, posted(CHAT, HELLO))).status == 200
    assert caplog.text.count("lacks calls") == 1


UNWRITABLE = ("1e999", "NaN", "9" * 5000, "[" * 500 + "]" * 500)
"""JSON values that can be read, or that others read, and that are not written again."""


@pytest.mark.parametrize("value", UNWRITABLE, ids=["infinite", "no number", "digits", "levels"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("side", ["request", "usage"])
async def test_what_cannot_be_traced_touches_no_answer(
    side: str, stream: bool, value: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    usage = f'"usage":{{"prompt_tokens":3,"completion_tokens":2,"x":{value if side == "usage" else 1}}}'
    said = [*chat_stream("fine")[:-2], chat_chunk(finish="stop").replace('"id"', f'{usage},"id"'), chat_stream()[-1]]
    whole = chat_answer("fine").replace('"id"', f'{usage},"id"', 1)
    script = replies(stream_of(*said) if stream else answer(whole))
    body = json.dumps({**HELLO, "stream": stream})
    if side == "request":
        body = body.replace("{", f'{{"x":{value},', 1)
    async with open_peer(script) as peer, gateway_to(peer, trace=tmp_path) as gateway:
        for _ in range(2):
            got = await ask(gateway.port, posted(CHAT, body.encode()))
            if got.status == 200:
                assert (got.whole, got.body.decode()) == (True, "".join(said) if stream else whole)
            else:
                assert (side, b"not a JSON object" in got.body or b"usage" in got.body) == ("request", True)
    assert caplog.text.count("lacks calls") == 1
    assert not caplog.records[0].exc_info  # its text explains it, in one line


async def test_a_long_conversation_is_traced_in_bounded_work(tmp_path: Path) -> None:
    calls: list[str] = []

    def count(frame: object, event: str, _: object) -> None:
        calls.append(event)

    async with open_peer(answer_all) as peer, gateway_to(peer, trace=tmp_path) as gateway:
        slot = gateway.slot("a")
        for body in (turn(ASKED), turn(*[ASKED, SAID] * 50_000), turn(ASKED, *[SAID] * 45_000)):
            await ask(gateway.port, posted(CHAT, body, key=slot.key))
        first, long, short = slot.trace().calls
        sys.setprofile(count)
        for call in (long, short):
            call.follow([first])
        sys.setprofile(None)
    assert len(long.request["messages"]) == 100_000  # type: ignore[arg-type]
    assert (long.fork, long.continues) == ("it is too long to be compared", None)
    assert short.fork == "the answer of call 1 came back with another text"
    assert len(calls) < 2_000_000


async def test_a_streaming_client_sees_each_chunk_as_it_comes() -> None:
    """No byte of a stream is held back once its content has begun."""
    go_on = trio.Event()

    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(chat_chunk("one"), end=False))
        await go_on.wait()
        await line.send(chunked(*chat_stream("")[-2:]))
        await line.closed_by_peer()

    async with (
        open_peer(script) as peer,
        gateway_to(peer) as gateway,
        httpx.AsyncClient() as client,
        client.stream("POST", gateway.base_url + CHAT, json={**HELLO, "stream": True}) as response,
    ):
        pieces = response.aiter_bytes()
        assert (await anext(pieces)).decode() == chat_chunk("one")
        go_on.set()
        assert b"".join([piece async for piece in pieces]).decode() == "".join(chat_stream("")[-2:])
