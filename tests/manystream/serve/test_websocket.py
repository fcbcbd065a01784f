"""The gateway's WebSockets: conversations, clients that leave, hostile frames, and the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import urllib.request
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
import trio
import trio.testing
from openai.lib.responses_websocket import AsyncResponsesWebSocketSession, ResponsesWebSocketLimits
from trio.testing import MockClock

import manystream as ms
from manystream.serve import Gateway, open_gateway
from manystream.serve import websocket as served
from manystream.simulator import Simulator, open_simulator_thread
from manystream.transport.websocket import CLOSE, PING, PONG, encode_close, encode_frame
from tests.support.peers import NO_RETRY, Line, answer, chunked, open_peer, replies, stream_of, until
from tests.support.websocket_client import LAST, WebSocketClient, create, handshake, id_of, three_turns

BETA = "openai-beta: responses_websockets=2026-02-06"


class Client(WebSocketClient):
    """A client over a stream of trio."""

    def __init__(self, stream: trio.SocketStream) -> None:
        super().__init__()
        self.stream = stream

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def until(self, has_come: Any) -> bool:
        """Receive until something has come. Returns False if the connection ends before."""
        while not has_come():
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                return False
            if not data:
                return False
            self.feed(data)
        return True

    async def next(self) -> list[dict[str, Any]]:
        """Receive the events of the next turn."""
        await self.until(lambda: any(event["type"] in LAST for event in self.events))
        events = self.turn()
        assert events is not None, (self.head, self.events, self.control)
        return events

    async def ask(self, text: str = "Hello.", **members: Any) -> list[dict[str, Any]]:
        await self.send(create(text, **members))
        return await self.next()

    async def end(self) -> int | None:
        """Wait for the end, and return the code of the close frame."""
        assert not await self.until(lambda: False)
        return self.closed


@asynccontextmanager
async def connected(gateway: Gateway, *headers: str, path: str = "/v1/responses") -> AsyncGenerator[Client, None]:
    async with await trio.open_tcp_stream("127.0.0.1", gateway.port) as stream:
        client = Client(stream)
        await client.send(handshake(path, *headers))
        await client.until(lambda: bool(client.head))
        yield client


@asynccontextmanager
async def gateway_to(url: str, *, websocket: bool = False, **options: Any) -> AsyncGenerator[Gateway, None]:
    provider = ms.OpenAIResponses("sk-canary-secret", url, name="peer", websocket=websocket)
    async with ms.open_engine([provider], retry=NO_RETRY) as engine, open_gateway(engine, **options) as gateway:
        yield gateway


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=8") as running:
        yield running


@pytest.fixture
def url(simulator: Simulator) -> str:
    return simulator.base_urls["openai-responses"]


def asked(simulator: Simulator) -> list[dict[str, Any]]:
    """Return the model calls of the simulator."""
    with urllib.request.urlopen(f"{simulator.origin}/sim/requests") as page:
        found: list[dict[str, Any]] = json.load(page)
    return [request for request in found if request["method"] == "POST"]


def bodies(simulator: Simulator) -> list[dict[str, Any]]:
    return [request["body"] for request in asked(simulator)]


def sse(*events: dict[str, Any]) -> list[bytes]:
    return [b"data: %b\n\n" % json.dumps(event).encode() for event in events]


def answered(number: int) -> list[bytes]:
    """Return the events of a short answer."""
    text = {"type": "output_text", "text": "Yes."}
    item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [text]}
    delta = {"item_id": item["id"], "output_index": 0, "content_index": 0, "delta": "Yes."}
    response: dict[str, Any] = {
        "id": f"resp_{number}",
        "object": "response",
        "status": "in_progress",
        "model": "m",
        "output": [],
    }
    return sse(
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", **delta},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [item]}},
    )  # fmt: skip


class Upstream:
    """A server of Responses over HTTP. asked: the requests. holds: answers stop before the last event."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.holds: trio.Event | None = None
        self.left = 0

    async def script(self, line: Line) -> None:
        while request := await line.request():
            self.asked.append(request)
            events = answered(len(self.asked))
            await line.send(stream_of(*events[:-1], end=False))
            if self.holds is not None:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, line)
                    await self.holds.wait()
                    nursery.cancel_scope.cancel()
            await line.send(chunked(events[-1]))

    async def _watch(self, line: Line) -> None:
        await line.closed_by_peer()
        self.left += 1

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.partition(b"\r\n\r\n")[2]) for request in self.asked]


@pytest.fixture
async def upstream() -> Upstream:
    return Upstream()


# --- conversations ---


OVER = pytest.mark.parametrize("websocket", [False, True], ids=["http", "websocket"])
"""What the gateway's own calls go over."""


@OVER
async def test_a_turn_has_the_whole_conversation(simulator: Simulator, url: str, websocket: bool) -> None:
    async with gateway_to(url, websocket=websocket) as gateway, connected(gateway, BETA, "x-codex-turn: 7") as client:
        warm = await client.ask(input=[], generate=False, instructions="Be brief.")
        one = await client.ask("One", store=False, previous_response_id=id_of(warm), stream_id="s")
        two = await client.ask("Two", store=False, previous_response_id=id_of(one), stream_id="s")
        fork = await client.ask("Three", store=False, previous_response_id=id_of(two))
        again = await client.ask("Four", store=False, previous_response_id=id_of(two), stream_id="s")
    inputs = [body["input"] for body in bodies(simulator)]
    assert [len(each) for each in inputs] == [1, 3, 5, 5]
    assert inputs[1][:1] == inputs[0]
    assert inputs[1][1]["content"][0]["text"] == one[-1]["response"]["output"][0]["content"][0]["text"]
    assert inputs[2][:3] == inputs[1] == inputs[3][:3]
    new = [request.get("sent", {}).get("previous_response_id") for request in asked(simulator)]
    assert new == ([None, id_of(one), None, id_of(two)] if websocket else [None] * 4)
    assert all(body.keys() == {"model", "input", "store", "stream"} for body in bodies(simulator))
    assert {event["stream_id"] for event in [*one, *two, *again]} == {"s"}
    assert "stream_id" not in fork[0]
    headers = asked(simulator)[0]["headers"]
    assert "openai-beta" not in headers
    assert (headers["x-codex-turn"], "upgrade" in headers) == ("7", websocket)


async def test_the_events_are_those_of_http(url: str) -> None:
    body = {"model": "sim-mixed", "input": [{"role": "user", "content": "Hello."}], "stream": True}
    async with gateway_to(url) as gateway, connected(gateway) as client:
        events = await client.ask(model="sim-mixed")
        http = await trio.to_thread.run_sync(_streamed, gateway.base_url, body)
    assert events == http


def _streamed(base_url: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with openai.OpenAI(api_key="k", base_url=f"{base_url}/v1") as client:
        create_response: Any = client.responses.create
        return [event.to_dict() for event in create_response(**body)]


@OVER
async def test_openais_session_goes_through(simulator: Simulator, url: str, websocket: bool) -> None:
    limits = ResponsesWebSocketLimits(
        max_lanes=30, max_events_per_lane=256, max_events=4096, max_bytes_per_lane=1 << 24, max_bytes=1 << 26
    )

    async def session(base_url: str) -> Sequence[list[str]]:
        async with (
            openai.AsyncOpenAI(api_key="k", base_url=f"{base_url}/v1") as client,
            client.responses.connect() as connection,
            AsyncResponsesWebSocketSession(connection, limits=limits) as session,
        ):
            return await asyncio.gather(*(three_turns(session.lane(f"agent-{number}")) for number in range(20)))

    async with gateway_to(url, websocket=websocket) as gateway:
        said = await trio.to_thread.run_sync(lambda: asyncio.run(session(gateway.base_url)))
    assert said == [["completed"] * 3] * 20
    assert sorted(len(body["input"]) for body in bodies(simulator)) == [1] * 20 + [3] * 20 + [5] * 20


async def test_a_message_into_an_answer_is_passed_on(simulator: Simulator, url: str) -> None:
    async with gateway_to(url, websocket=True) as gateway, connected(gateway) as client:
        await client.send(create(model="sim@rate=100,events=30", store=False, stream_id="s"))
        await client.until(lambda: len(client.events) > 6)
        steer = {"type": "response.steer", "previous_response_id": id_of(client.events[:1]), "input": "Left."}
        other = {**steer, "previous_response_id": "resp_other"}
        await client.send(b"".join(encode_frame(json.dumps(each).encode(), masked=True) for each in (other, steer)))
        one, two = await client.next(), await client.next()
        lost = await client.ask(store=False, previous_response_id=id_of(two), stream_id="s")
        again = await client.ask(store=False, stream_id="s")
    kinds = [event["type"] for event in one]
    assert [kind for kind in kinds if "steer" in kind] == ["response.steer.failed", "response.steer.accepted"]
    assert one[-1]["response"]["incomplete_details"] == {"reason": "steered"}
    assert (two[0]["type"], two[-1]["type"]) == ("response.created", "response.completed")
    assert bodies(simulator)[1]["input"][-1] == {"role": "user", "content": "Left."}
    assert lost[0]["error"]["code"] == "previous_response_not_found"
    assert again[-1]["type"] == "response.completed"


async def test_a_message_into_no_answer_comes_back(url: str) -> None:
    async with gateway_to(url) as gateway, connected(gateway) as client:
        steer = {"type": "response.steer", "previous_response_id": id_of(await client.ask()), "input": "Left."}
        await client.send(encode_frame(json.dumps(steer).encode(), masked=True))
        await client.until(lambda: bool(client.events))
    [event] = client.events
    assert (event["type"], event["error"]["code"]) == ("response.steer.failed", "steering_not_supported")
    assert event["steer"] == {"previous_response_id": steer["previous_response_id"], "input": "Left."}


async def test_sixteen_turns_run_at_a_time(upstream: Upstream) -> None:
    upstream.holds = trio.Event()
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        for number in range(20):
            await client.send(create(stream_id=f"s{number % 18}"))
        await until(lambda: len(upstream.asked) == 16)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert len(upstream.asked) == 16
        upstream.holds.set()
        turns = [await client.next() for _ in range(20)]
    assert sorted({turn[-1]["type"] for turn in turns}) == ["response.completed"] or len(turns) == 20
    assert len(upstream.asked) == 20


async def test_what_cannot_be_sent_again_is_left_out(upstream: Upstream) -> None:
    def with_reasoning(number: int) -> list[bytes]:
        lost: dict[str, Any] = {"type": "reasoning", "id": "rs_a", "summary": []}
        kept = {**lost, "id": "rs_b"}
        events = answered(number)
        last = json.loads(events[-1][6:])
        last["response"]["output"][:0] = [lost, {**kept, "encrypted_content": "x"}]
        return [*events[:-1], *sse(last)]

    async def script(line: Line) -> None:
        while request := await line.request():
            upstream.asked.append(request)
            await line.send(stream_of(*with_reasoning(len(upstream.asked))))

    async with open_peer(script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        for store in (False, True):
            first = await client.ask("One", store=store)
            await client.ask("Two", store=store, previous_response_id=id_of(first))
    sent = [[item.get("id") for item in body["input"]] for body in upstream.bodies]
    assert sent[1::2] == [[None, "rs_b", "msg_1", None], [None, "rs_a", "rs_b", "msg_3", None]]


@pytest.mark.parametrize("kind", ["response.completed", "error"])
async def test_an_event_that_is_nested_deeply_is_passed_on(upstream: Upstream, kind: str) -> None:
    deep = b"[" * 300 + b"]" * 300
    event = answered(1)[-1].replace(b'"output": [', b'"output": [{"x": ' + deep + b"}, ", 1)
    assert deep in event
    if kind == "error":
        event = b'event: error\ndata: {"type": "error", "message": "no", "x": ' + deep + b"}\n\n"

    script = replies(stream_of(event))
    async with open_peer(script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        for _ in range(2):
            assert (await client.ask("One"))[-1]["type"] == kind


async def test_an_answer_of_the_provider_s_is_continued(upstream: Upstream) -> None:
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        one = await client.ask("One", previous_response_id="resp_kept")
        await client.ask("Two", previous_response_id=id_of(one))
        lost = await client.ask("Three", previous_response_id="resp_kept", store=False)
    assert [(body["previous_response_id"], len(body["input"])) for body in upstream.bodies] == [
        ("resp_kept", 1), ("resp_kept", 3),
    ]  # fmt: skip
    assert (lost[0]["status"], lost[0]["error"]["code"]) == (400, "previous_response_not_found")


async def test_what_is_kept_is_bounded(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "KEPT_BYTES", 10_000)
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway:
        async with connected(gateway) as client, connected(gateway) as other:
            first = id_of(await client.ask("x" * 6000, store=False))
            second = id_of(await other.ask("y" * 6000, store=False))
            lost = await client.ask("more", store=False, previous_response_id=first)
            kept = await other.ask("more", store=False, previous_response_id=second)
        assert lost[0]["error"]["code"] == "previous_response_not_found"
        assert kept[-1]["type"] == "response.completed"
        await until(lambda: not gateway.http.connections)
        assert gateway.chains.bytes == 0


# --- what goes wrong ---


@pytest.mark.parametrize(
    ("model", "status", "code"),
    [
        ("sim@fail=400", 400, None),
        ("sim@fail=429,retry_after=7", 429, "rate_limit_exceeded"),
        ("sim@fail=503", 503, None),
        ("sim@error=5", 502, "server_error"),
        ("sim@error=0,error_status=429", 429, "rate_limit_exceeded"),
        ("sim@cut=6", 502, "network"),
        ("sim@truncate=6", 502, "network"),
        ("sim@drop=1", 502, "network"),
    ],
)
@OVER
async def test_a_failure_is_an_error_with_a_status(
    url: str, model: str, status: int, code: str | None, websocket: bool
) -> None:
    async with gateway_to(url, websocket=websocket) as gateway, connected(gateway) as client:
        events = await client.ask(model=model, stream_id="s")
        again = await client.ask(stream_id="s")
    error = events[-1]
    assert (error["type"], error["status"], error["stream_id"]) == ("error", status, "s")
    assert code is None or error["error"]["code"] == code
    assert isinstance(error["error"]["message"], str)
    assert ("retry-after" in error["error"].get("headers", {})) == ("retry_after" in model)
    assert (again[0]["type"], again[-1]["type"]) == ("response.created", "response.completed")


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name", [b"", b"event: error\n"])
@pytest.mark.parametrize("member", ["type", "none", "flat", "text"])
async def test_an_error_of_any_form_has_a_status(begun: bool, name: bytes, member: str) -> None:
    error = {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}
    events = {"type": {"type": "error", "error": error}, "none": {"error": error}, "flat": {**error, "type": "error"}}
    events["text"] = {"error": "slow down", "code": "rate_limit_exceeded"}

    async def script(line: Line) -> None:
        while await line.request():
            sent = [*answered(1)[: 3 * begun], name + sse(events[member])[0]]
            await line.send(stream_of(*sent))

    async with open_peer(script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        events_got = await client.ask()
        assert not client.events
    shown = events_got[-1]
    assert (len(events_got), shown["type"], shown["status"]) == (3 * begun + 1, "error", 429)
    assert (shown["error"]["code"], shown["error"]["message"]) == ("rate_limit_exceeded", "slow down")


async def test_a_whole_answer_is_its_last_event(upstream: Upstream) -> None:
    async def script(line: Line) -> None:
        while await line.request():
            response = json.loads(answered(1)[-1][6:])["response"]
            await line.send(answer(json.dumps(response, indent=1)))

    async with open_peer(script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        [event] = await client.ask()
    assert (event["type"], event["response"]["id"]) == ("response.completed", "resp_1")


async def test_a_keep_alive_is_a_ping(autojump_clock: MockClock, upstream: Upstream) -> None:
    async def script(line: Line) -> None:
        await line.request()
        await trio.sleep(40)
        await line.send(stream_of(*answered(1)))

    async with open_peer(script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        events = await client.ask()
    assert client.control == [(PING, b"")] * 2
    assert len(events) == 5


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"type": "response.cancel"}, "invalid_request_error"),
        ({"stream_id": "a/b"}, "invalid_stream_id"),
        ({"background": True}, "refused"),
        ({"model": None}, "refused"),
        ({"input": 7}, None),
    ],
)
async def test_a_wrong_message_is_an_error(url: str, members: dict[str, Any], code: str | None) -> None:
    async with gateway_to(url) as gateway, connected(gateway) as client:
        [error] = await client.ask(**members)
        await client.send(encode_frame(b"[1", masked=True))
        [no_json] = await client.next()
        assert (await client.ask())[-1]["type"] == "response.completed"
    assert (error["type"], error["status"], no_json["status"]) == ("error", 400, 400)
    assert code is None or error["error"]["code"] == code


async def test_the_provider_s_key_is_hidden() -> None:
    async def script(line: Line) -> None:
        while await line.request():
            events = b"".join(answered(1)).replace(b"Yes.", b"sk-canary-secret")
            await line.send(stream_of(*(events[at : at + 9] for at in range(0, len(events), 9))))

    async with open_peer(script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        events = await client.ask()
        first = await client.ask(previous_response_id=id_of(events))
    assert "sk-canary" not in json.dumps([events, first])
    assert events[2]["delta"] == "[key]"


# --- who may come in ---


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        (("origin: http://evil.example",), "/v1/responses", 403),
        (("sec-fetch-site: cross-site",), "/v1/responses", 403),
        (("host: rebound.example",), "/v1/responses", 403),
        (("authorization: Bearer slot-unknown",), "/v1/responses", 401),
        (("sec-websocket-version: 8",), "/v1/responses", 426),
        (("sec-websocket-key: x",), "/v1/responses", 400),
        (("connection: close",), "/v1/responses", 426),
        ((), "/v1/chat/completions", 426),
        ((), "/v1/responses/compact", 426),
        ((), "/v1/responses/resp_1", 426),
        ((), "/v1/nothing", 426),
        ((), "/responses", 101),
        (("origin: http://127.0.0.1",), "/slots/a/v1/responses", 101),
    ],
)
async def test_a_handshake_is_checked(url: str, headers: Sequence[str], path: str, status: int) -> None:
    async with gateway_to(url) as gateway, connected(gateway, *headers, path=path) as client:
        assert client.head.startswith(f"HTTP/1.1 {status} ")
        assert ("sec-websocket-version: 13" in client.head.lower()) == (status == 426)
        if status == 101:
            assert (await client.ask())[-1]["type"] == "response.completed"
            assert list(gateway.slots) == (["a"] if "slots" in path else [])


async def test_a_handshake_over_http_1_0_opens_nothing(url: str) -> None:
    async with gateway_to(url) as gateway, await trio.open_tcp_stream("127.0.0.1", gateway.port) as stream:
        await stream.send_all(handshake().replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert (await stream.receive_some(65536)).startswith(b"HTTP/1.1 426 ")


async def test_the_key_of_the_gateway_is_needed(url: str) -> None:
    async with gateway_to(url, key="sesame") as gateway:
        async with connected(gateway) as client:
            assert client.head.startswith("HTTP/1.1 401 ")
        async with connected(gateway, "authorization: Bearer sesame") as client:
            assert (await client.ask())[-1]["type"] == "response.completed"


async def test_a_slot_that_has_ended_takes_no_turn(url: str) -> None:
    async with gateway_to(url) as gateway:
        slot = gateway.slot("task")
        async with connected(gateway, f"authorization: Bearer {slot.key}") as client:
            await client.ask()
            assert slot.calls == 1
            slot.end()
            [error] = await client.ask()
    assert (error["status"], error["error"]["message"]) == (401, "the slot of this key has ended")


# --- hostile clients ---

TEXT_HEAD = b"\x81"
HOSTILE: list[tuple[str, bytes, int]] = [
    ("no mask", encode_frame(b"{}", masked=False), 1002),
    ("a reserved bit", b"\xc1\x80abcd", 1002),
    ("an unknown kind", b"\x83\x80abcd", 1002),
    ("a length of 2^63", b"\x81\xff" + (1 << 63).to_bytes(8, "big") + b"abcd", 1002),
    ("a length of 2^62", b"\x81\xff" + (1 << 62).to_bytes(8, "big") + b"abcd", 1009),
    ("a long ping", b"\x89\xfe\x00\xff" + b"abcd" + b"x" * 255, 1002),
    ("half a ping", b"\x09\x80abcd", 1002),
    ("a continuation of nothing", b"\x80\x80abcd", 1002),
    ("a message inside a message", b"\x01\x80abcd\x81\x80abcd", 1002),
    ("a code that may not be sent", encode_frame(encode_close(1005), CLOSE, masked=True), 1002),
    ("a farewell", encode_frame(encode_close(1000, "bye"), CLOSE, masked=True), 1000),
    ("65 turns", b"".join(create(stream_id="s") for _ in range(66)), 1008),
    ("and more", b"".join(create(stream_id="s") for _ in range(66)) + encode_frame(b"{}", masked=True) * 99, 1008),
    ("a turn after a farewell", encode_frame(encode_close(1000), CLOSE, masked=True) + create(), 1000),
]  # fmt: skip


@pytest.mark.parametrize(("data", "code"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE])
@pytest.mark.parametrize("is_busy", [False, True])
async def test_frames_that_break_the_rules_end_it(data: bytes, code: int, is_busy: bool) -> None:
    upstream = Upstream()
    upstream.holds = trio.Event()
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        if is_busy:
            await client.send(create())
            await until(lambda: len(upstream.asked) == 1)
        await client.send(data)
        assert await client.end() == code
        await client.stream.aclose()
        await until(lambda: not gateway.http.connections)
        await until(lambda: upstream.left == len(upstream.asked))
        assert gateway.http.answering == 0


async def test_a_large_message_is_read_to_its_refusal(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("manystream.http_server.BODY_LIMIT", 1 << 20)
    async with gateway_to(url) as gateway, connected(gateway) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.send, create("x" * 1_300_000))
        assert await client.end() == 1009


@pytest.mark.parametrize(
    "message", [b"{}", b'{"type":"response.create"}', b'{"type":"response.create","model":"m","input":"x"}'],
    ids=["nothing", "no model", "a turn"],
)  # fmt: skip
async def test_a_client_that_reads_no_errors_is_dropped(url: str, message: bytes) -> None:
    """And costs no one much time."""
    async with gateway_to(url) as gateway, connected(gateway) as client:
        frames = encode_frame(message, masked=True) * 10_000
        with trio.move_on_after(60) as limit, contextlib.suppress(trio.BrokenResourceError):
            while gateway.http.connections:
                await client.send(frames)
        assert not limit.cancelled_caught


BODIES: list[tuple[str, str]] = [
    ("large numbers", f'{{"type":"response.create","model":"m","input":"x","metadata":{{"n":{2**70}}}}}'),
    ("half a pair", '{"type":"response.create","model":"m","input":"\\ud83d"}'),
    *((f"deep {depth}", f'{{"type":"response.create","model":"m","input":{"[" * depth + "]" * depth}}}')
      for depth in (252, 253, 254, 255, 300, 1000, 2000)),
    ("deep elsewhere", f'{{"type":"response.create","model":"m","input":"x","metadata":{"[" * 300 + "]" * 300}}}'),
    ("deep model", f'{{"type":"response.create","generate":false,"model":{"[" * 300 + "]" * 300}}}'),
    ("deep text for an answer", f'{{"type":"response.steer","input":{"[" * 300 + "]" * 300}}}'),
    ("deeper", f'{{"type":"response.create","model":"m","input":{"[" * 100_000 + "]" * 100_000}}}'),
    ("twice", '{"type":"response.create","type":"response.create","model":"m","input":"x","input":"y"}'),
]  # fmt: skip


@pytest.mark.parametrize("body", [row[1] for row in BODIES], ids=[row[0] for row in BODIES])
async def test_odd_json_ends_nothing_else(url: str, body: str) -> None:
    async with gateway_to(url) as gateway, connected(gateway) as client:
        for _ in range(2):
            await client.send(encode_frame(body.encode(), masked=True))
            assert (await client.next())[-1]["type"] in LAST
        first = await client.ask()
        assert (await client.ask(previous_response_id=id_of(first)))[-1]["type"] == "response.completed"


async def test_pings_are_answered_once_a_read(url: str) -> None:
    async with gateway_to(url) as gateway, connected(gateway) as client:
        await client.send(b"".join(encode_frame(b"%d" % number, PING, masked=True) for number in range(5000)))
        await client.until(lambda: (PONG, b"4999") in client.control)
        assert len(client.control) < 500


SLOW: list[tuple[str, bytes, bytes, int | None]] = [
    ("silent", b"", b"", None),
    ("a byte", create()[:20], create()[20:21], 1008),
    ("large", b"\x81\xff" + (1 << 25).to_bytes(8, "big") + b"abcd", b"x" * 70_000, -1),
    ("pongs", b"", encode_frame(b"", PONG, masked=True), -1),
]  # fmt: skip
"""Title, the beginning of a message, what follows every 9 seconds, and the code of the end; -1: there is none."""


@pytest.mark.parametrize(("beginning", "more", "code"), [row[1:] for row in SLOW], ids=[row[0] for row in SLOW])
async def test_a_client_that_says_nothing_is_dropped(
    beginning: bytes, more: bytes, code: int | None, autojump_clock: MockClock
) -> None:
    upstream = Upstream()
    async with (
        open_peer(upstream.script) as peer,
        gateway_to(peer.url, grace=0) as gateway,
        connected(gateway) as client,
    ):
        with trio.move_on_after(200) as limit:
            async with trio.open_nursery() as nursery:

                async def listen() -> None:
                    assert await client.end() == code
                    nursery.cancel_scope.cancel()

                nursery.start_soon(listen)
                await client.send(beginning)
                while True:
                    await trio.sleep(9)
                    if more:
                        await client.send(more)
        assert limit.cancelled_caught is (code == -1)
        assert trio.current_time() < 300


async def test_a_websocket_lives_an_hour(autojump_clock: MockClock) -> None:
    upstream = Upstream()
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        while trio.current_time() < 3540:
            await trio.sleep(50)
            await client.send(encode_frame(b"", PONG, masked=True))
        upstream.holds = trio.Event()
        await client.send(create())
        await until(lambda: len(upstream.asked) == 1)
        await trio.sleep(60)
        await client.send(create())
        upstream.holds.set()
        assert (await client.next())[-1]["type"] == "response.completed"
        await client.until(lambda: bool(client.events))
        assert await client.end() == 1001
    assert [event["error"]["code"] for event in client.events if event["type"] == "error"] == [
        "websocket_connection_limit_reached"
    ]


# --- clients that leave ---


async def test_a_client_that_leaves_cancels_its_turns(upstream: Upstream) -> None:
    upstream.holds = trio.Event()
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway:
        async with connected(gateway) as client:
            for number in range(3):
                await client.send(create(stream_id=f"s{number}"))
            await until(lambda: len(upstream.asked) == 3)
        await until(lambda: upstream.left == 3)
        assert not gateway.http.connections


async def test_every_cut_of_a_create_is_read(upstream: Upstream) -> None:
    frame = create("é")
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway, connected(gateway) as client:
        for cut in range(1, len(frame)):
            await client.send(frame[:cut])
            await trio.sleep(0)
            await client.send(frame[cut:])
            assert (await client.next())[-1]["type"] == "response.completed"
    assert all(body == upstream.bodies[0] for body in upstream.bodies)


@pytest.mark.parametrize("reset", [False, True])
async def test_a_client_that_leaves_at_any_byte_leaves_nothing(upstream: Upstream, reset: bool) -> None:
    sent = handshake() + create("One")
    upstream.holds = trio.Event()
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway:
        for cut in range(len(sent) + 1):
            stream = await trio.open_tcp_stream("127.0.0.1", gateway.port)
            await stream.send_all(sent[:cut])
            if reset:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await stream.aclose()
        await until(lambda: not gateway.http.connections and upstream.left == len(upstream.asked))
        assert (gateway.http.answering, gateway.chains.bytes) == (0, 0)


async def test_a_client_that_reads_nothing_pauses_its_call(autojump_clock: MockClock) -> None:
    async def script(line: Line) -> None:
        await line.request()
        delta = sse({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0,
            "delta": "x" * 60_000})  # fmt: skip
        await line.send(stream_of(*answered(1)[:2], end=False))
        while True:
            await line.send(chunked(*delta, end=False))

    async with open_peer(script) as peer, gateway_to(peer.url, grace=0) as gateway, connected(gateway) as client:
        await client.send(create())
        await until(lambda: gateway.http.answering == 1)
        await trio.sleep(65)
        assert not gateway.http.connections


async def test_idle_sockets_hold_no_one_up(upstream: Upstream) -> None:
    async with open_peer(upstream.script) as peer, gateway_to(peer.url) as gateway:
        streams = [await trio.open_tcp_stream("127.0.0.1", gateway.port) for _ in range(200)]
        for stream in streams:
            await stream.send_all(handshake())
        await until(lambda: sum(each.websocket is not None for each in gateway.http.connections) == 200)
        assert gateway.http.answering == 0
        async with connected(gateway) as client:
            assert (await client.ask())[-1]["type"] == "response.completed"
    for stream in streams:
        client = Client(stream)
        assert await client.end() == 1001
        await stream.aclose()


async def test_the_end_waits_for_turns(autojump_clock: MockClock, upstream: Upstream) -> None:
    upstream.holds = trio.Event()
    got: list[int | None] = []
    async with open_peer(upstream.script) as peer, trio.open_nursery() as nursery:  # noqa: SIM117
        async with gateway_to(peer.url, grace=20) as gateway:

            async def talk() -> None:
                async with connected(gateway) as client:
                    await client.send(create())
                    await until(lambda: gateway.http.is_draining)
                    *_, refused = await client.ask(stream_id="s")
                    assert (refused["status"], refused["error"]["headers"]) == (503, {"retry-after-ms": "20000"})
                    upstream.holds.set()  # type: ignore[union-attr]
                    [*_, last] = await client.next()
                    assert last["type"] == "response.completed"
                    got.append(await client.end())

            nursery.start_soon(talk)
            await until(lambda: len(upstream.asked) == 1)
    assert got == [1001]
    assert trio.current_time() < 20


async def test_turns_that_are_not_complete_end_with_an_error(autojump_clock: MockClock, upstream: Upstream) -> None:
    upstream.holds = trio.Event()
    async with open_peer(upstream.script) as peer, trio.open_nursery() as nursery:
        async with gateway_to(peer.url, grace=5) as gateway:

            async def talk() -> None:
                async with connected(gateway) as client:
                    events = await client.ask()
                    assert (events[-1]["status"], events[-1]["error"]["message"]) == (503, "the gateway has ended")
                    assert await client.end() == 1001

            nursery.start_soon(talk)
            await until(lambda: len(upstream.asked) == 1)
        await until(lambda: upstream.left == 1)
