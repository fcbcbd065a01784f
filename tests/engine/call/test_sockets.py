"""A conversation keeps a WebSocket: what is sent, and what becomes of a turn when the socket or the server fails."""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock

import manystream as ms
from manystream.transport.websocket import encode_frame
from tests.support.peers import NO_RETRY, Line, Recorder, answer, open_peer, until
from tests.support.websockets import (
    ResponsesServer,
    Socket,
    Turn,
    events_of,
    open_responses,
    plain,
    text_item,
    tool_loop,
)

USER = ms.Message.user("begin")
SOON = ms.Retry(base=0.001, cap=0.001, jitter=0.0)


def wss(engine: ms.Engine, server: ResponsesServer) -> Any:
    return engine.statistics().connections[server.peer.origin.replace("http", "ws")]


async def test_a_tool_loop_sends_what_is_new() -> None:
    async with open_responses() as server:
        talk, same = ms.Conversation([USER]), ms.Conversation([USER])
        async with ms.open_engine([server.provider]) as engine:
            completions = await tool_loop(engine, talk, 4, system="Be brief.")
            figures = engine.statistics().connections
        http = ms.OpenAIResponses("k", server.peer.url, name="p")
        over_ws, server.turns = server.turns, []
        async with ms.open_engine([http]) as engine:
            await tool_loop(engine, same, 4, system="Be brief.")
    assert [completion.transport for completion in completions] == ["websocket"] * 4
    assert [completion.continued for completion in completions] == [False, True, True, True]
    assert all(completion.attempts == 1 and not completion.resent for completion in completions)
    assert len(server.sockets) == 1
    assert [len(turn.body["input"]) for turn in over_ws] == [1, 1, 1, 1]
    assert [plain(turn.whole) for turn in over_ws] == [plain(turn.whole) for turn in server.turns]
    assert talk == same
    wss = figures[server.peer.origin.replace("http", "ws")]
    assert (wss.active, wss.idle, wss.continued, wss.whole, wss.over_http) == (0, 1, 3, {"new": 1}, {})
    assert figures[server.peer.origin].active == 0


Change = Callable[[ms.Conversation, dict[str, Any]], object]
CHANGES: dict[str, tuple[Change, str]] = {
    "edit": (lambda talk, _: talk.messages[0].content.append(ms.Text("more")), "messages"),
    "removal": (lambda talk, _: talk.messages.pop(2), "messages"),
    "answer": (lambda talk, _: setattr(talk.messages[1].content[0], "arguments", "{}"), "messages"),
    "no result": (lambda talk, _: talk.messages.pop(), "messages"),
    "tools": (lambda _, options: options.update(tools=[ms.Tool("other")]), "options"),
    "system": (lambda _, options: options.update(system="Be long."), "options"),
}


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES)
async def test_a_change_sends_the_whole_conversation(change: Change, why: str) -> None:
    async with open_responses() as server:
        talk, options = ms.Conversation([USER]), dict[str, Any](system="Be brief.")
        async with ms.open_engine([server.provider]) as engine:
            await tool_loop(engine, talk, 2, **options)
            change(talk, options)
            talk.add(ms.Message.user("again"))
            (third,) = await tool_loop(engine, talk, 1, **options)
            (fourth,) = await tool_loop(engine, talk, 1, **options)
            assert wss(engine, server).whole == {"new": 1, why: 1} or why == "messages"
    assert (third.transport, third.continued, fourth.continued) == ("websocket", False, True)
    assert not server.turns[2].continued
    assert len(server.sockets) == 1


def raw(first: int, payload: bytes = b"", **options: Any) -> bytes:
    return bytes((first, options.get("bit", 0) | len(payload))) + payload


HANDSHAKES: dict[str, tuple[bytes, str]] = {
    "404": (answer("{}", status="404 Not Found"), ""),
    "404 page": (answer("<html>no</html>", status="404 Not Found", kind="text/html"), ""),
    "405": (answer("", status="405 Method Not Allowed"), ""),
    "426": (answer("{}", status="426 Upgrade Required"), ""),
    "501": (answer("", status="501 Not Implemented"), ""),
    "503": (answer('{"error": {"message": "x"}}', status="503 Unavailable"), ""),
    "200": (answer('{"ok": true}'), ""),
    "401 page": (answer("<html>sign in</html>", status="401 Unauthorized", kind="text/html"), ""),
    "nothing": (b"", ""),
    "no HTTP": (b"\x16\x03\x01 no", ""),
    "wrong accept": (
        b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n", ""),
    "extension": (b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                  b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", ""),
    "half a head": (b"HTTP/1.1 101 Switching", ""),
    "401": (answer('{"error": {"message": "no key", "code": "invalid_api_key"}}', status="401 No"), "AUTH"),
    "403": (answer('{"error": {"message": "no"}}', status="403 No"), "AUTH"),
    "429": (answer('{"error": {"message": "slow"}}', status="429 No", headers="retry-after: 7\r\n"), "RATE_LIMIT"),
}  # fmt: skip


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_handshakes_that_open_no_socket(name: str) -> None:
    sent, category = HANDSHAKES[name]
    async with open_responses(handshake=sent) as server, ms.open_engine([server.provider], retry=NO_RETRY) as engine:
        talk = ms.Conversation([USER])
        first = await engine.start_stream(talk.request("p/m")).wait()
        second = await engine.start_stream(ms.Conversation([USER]).request("p/m")).wait()
        figures = wss(engine, server)
    upgrades = sum(b"websocket" in head for head in server.heads)
    if category:
        assert first.error_category is ms.ErrorCategory[category]
        assert first.http_status == int(name)
        assert first.retry_after_ms == (7000 if name == "429" else -1)
        assert upgrades == 2
        return
    assert (first.success, first.attempts, first.transport, first.resent) == (True, 1, "http", 0)
    assert (second.success, second.transport, upgrades) == (True, "http", 1)
    assert figures.over_http == {"refused": 2}
    assert (figures.active, figures.idle) == (0, 0)


async def test_a_server_that_answers_no_handshake(autojump_clock: MockClock) -> None:
    """It is asked again after a minute, then after two, up to an hour."""
    waits: list[float] = []

    async with open_responses() as server:
        script = server.script

        async def silent(line: Any) -> None:
            request = await line.request()
            if b"websocket" in request:
                waits.append(trio.current_time())
                await line.closed_by_peer()
                return
            line.received = request
            await script(line)

        server.script = silent  # type: ignore[method-assign]
        async with ms.open_engine([server.provider]) as engine:
            for _ in range(140):
                call = engine.start_stream(ms.Conversation([USER]).request("p/m"))
                completion = await call.wait()
                assert (completion.success, completion.transport, completion.attempts) == (True, "http", 1)
                await trio.sleep(50)
    gaps = [round((after - before) / 60) for before, after in itertools.pairwise(waits)]
    assert gaps == [2, 3, 4, 8, 17, 33], "at the first call after each rest"


def refusal(code: str, status: int = 400, **error: Any) -> dict[str, Any]:
    return {"type": "error", "status": status, "error": {"type": "invalid_request_error", "code": code, **error}}


async def test_a_forgotten_answer_costs_no_attempt() -> None:
    async def forget(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        if socket is None or not turn.continued:
            return False
        await socket.send(refusal("previous_response_not_found", message="gone"))
        return True

    async with open_responses(forget) as server, ms.open_engine([server.provider]) as engine:
        completions = await tool_loop(engine, ms.Conversation([USER]), 3)
        assert wss(engine, server).whole == {"new": 1, "forgotten": 2}
    assert [(each.attempts, each.continued, each.resent) for each in completions] == [(1, False, 0)] * 3
    assert [turn.continued for turn in server.turns] == [False, True, False, True, False]
    assert len(server.sockets) == 1


@pytest.mark.parametrize("first", [0, 1], ids=["first", "after an event"])
@pytest.mark.parametrize("code", [1000, 1001, 1006, 1008, 1009, 1011, 1012, 1013, 4000])
async def test_close_codes(code: int, first: int) -> None:
    """1008 and 1011 say that there is no WebSocket, 1009 that the message is too large, if no event has come."""

    async def close(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        if socket is None or turn.number != 2:
            return False
        await socket.send(*events_of(2, server.output(2))[:first])
        if code == 1006:
            socket.line.reset()
        else:
            await socket.close(code, "because")
        return True

    async with open_responses(close) as server, ms.open_engine([server.provider], retry=SOON) as engine:
        completions = await tool_loop(engine, ms.Conversation([USER]), 3)
        figures = wss(engine, server)
    second, third = completions[1:]
    over_http = not first and code in (1008, 1009, 1011)
    assert (second.success, second.attempts) == (True, 1 + first)
    assert (second.transport, second.continued) == ("http" if over_http else "websocket", False)
    assert second.resent == (0 if over_http else 1)
    if over_http:
        assert figures.over_http == ({"size": 2} if code == 1009 else {"refused": 2})
    assert third.transport == ("http" if over_http else "websocket")


FAULTS = {
    "masked": encode_frame(b"{}", masked=True),
    "RSV1": raw(0xC1, b"{}"),
    "opcode 3": raw(0x83),
    "long ping": bytes((0x89, 126, 0, 126)) + bytes(126),
    "continuation": raw(0x80, b"{}"),
    "2^63": bytes((0x81, 127, 128, 0, 0, 0, 0, 0, 0, 0)),
    "too large": bytes((0x81, 127, 0, 0, 0, 0, 127, 0, 0, 0)),
    "no JSON": raw(0x81, b"what"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_violations_end_the_turn(name: str) -> None:
    async def violate(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        assert socket is not None
        await socket.send(events_of(1, server.output(1))[0])
        await socket.line.send(FAULTS[name])
        return True

    async with open_responses(violate) as server, ms.open_engine([server.provider], retry=NO_RETRY) as engine:
        completion = await engine.start_stream(ms.Conversation([USER]).request("p/m")).wait()
        assert wss(engine, server).idle == 0
    assert completion.error is not None
    if name.startswith("no "):
        assert completion.error.category is not ms.ErrorCategory.UNKNOWN
    else:
        assert completion.error.category is ms.ErrorCategory.NETWORK
        assert "violated the WebSocket protocol" in completion.error.message


async def test_frames_in_any_cut_are_read() -> None:
    """Fragments, pings between them, bytes one by one, and white space of JSON."""

    async def cut(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        assert socket is not None
        wire = b""
        for event in events_of(turn.number, server.output(turn.number)):
            text = json.dumps(event, indent=1).encode()
            wire += raw(0x01, text[:50]) + raw(0x89, b"p") + raw(0x00, text[50:100])
            wire += encode_frame(text[100:], 0, masked=False)
        for start in range(0, len(wire), 1 if turn.number == 1 else 97):
            await socket.line.send(wire[start : start + (1 if turn.number == 1 else 97)])
        socket.known = {f"resp_{turn.number}": []}
        return True

    async with open_responses(cut) as server, ms.open_engine([server.provider]) as engine:
        completions = await tool_loop(engine, ms.Conversation([USER]), 2)
        await until(lambda: len(server.sockets[0].pongs) > 0)
    assert [completion.continued for completion in completions] == [False, True]
    assert server.sockets[0].pongs[0] == b"p"


async def test_an_error_frame_is_an_error_of_http() -> None:
    headers = {"retry-after": "3", "x-request-id": "req_9", "x-ratelimit-remaining-requests": "0"}

    async def refuse(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        assert socket is not None
        if turn.number > 1:
            return False
        await socket.send(refusal("rate_limit_exceeded", 429, message="slow down", headers=headers))
        return True

    async with open_responses(refuse) as server, ms.open_engine([server.provider], retry=NO_RETRY) as engine:
        talk = ms.Conversation([USER])
        completion = await engine.start_stream(talk.request("p/m")).wait()
        after = await tool_loop(engine, talk, 1)
    error = completion.error
    assert error is not None
    assert (error.category, error.http_status, error.retry_after_ms) == (ms.ErrorCategory.RATE_LIMIT, 429, 3000)
    assert (completion.request_id, completion.http_status) == ("req_9", 429)
    assert completion.headers["x-ratelimit-remaining-requests"] == "0"
    assert (after[0].transport, len(server.sockets)) == ("websocket", 1)


async def test_a_cut_after_content_creates_nothing_again() -> None:
    async def cut(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        assert socket is not None
        await socket.send(*events_of(turn.number, server.output(turn.number))[:4])
        socket.line.reset()
        return True

    recorder = Recorder()
    async with open_responses(cut) as server, ms.open_engine([server.provider], retry=SOON) as engine:
        request = ms.Conversation([USER]).request("p/m")
        await engine.start_stream(request, recorder.on_event, recorder.on_completion).wait()
    completion = recorder.completion
    assert completion.error_category is ms.ErrorCategory.NETWORK
    assert completion.response is not None
    assert completion.response.id == "resp_1"
    assert recorder.types[-1] == "ERROR"
    assert len(server.turns) == 1


async def test_silence_in_a_turn(autojump_clock: MockClock) -> None:
    """A model that thinks is not disturbed; a dead socket is found in 40 seconds; pongs are no activity."""
    seconds, dead = 510, False

    async def think(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        assert socket is not None
        socket.answers_pings = not dead
        with trio.move_on_after(seconds):
            while await socket.receive() is not None:
                pass
        return dead

    async with open_responses(think) as server:
        timeouts = ms.Timeouts(first_byte=600.0, idle=600.0)
        async with ms.open_engine([server.provider], timeouts=timeouts, retry=NO_RETRY) as engine:
            talk, started = ms.Conversation([USER]), trio.current_time()
            await tool_loop(engine, talk, 1)
            assert trio.current_time() - started == pytest.approx(510, abs=1)
            seconds, dead = 1000, True
            started = trio.current_time()
            failed = await engine.start_stream(talk.request("p/m")).wait()
            assert trio.current_time() - started == pytest.approx(40, abs=1)
            assert failed.error_category is ms.ErrorCategory.NETWORK
            dead = False
            short = talk.request("p/m", timeouts=ms.Timeouts(first_byte=70.0))
            started = trio.current_time()
            failed = await engine.start_stream(short).wait()
            assert trio.current_time() - started == pytest.approx(70, abs=1)
            assert failed.error_category is ms.ErrorCategory.TIMEOUT


async def test_an_hour_of_turns(autojump_clock: MockClock) -> None:
    """A socket gets no turn after 55 minutes; what a server says between turns disturbs nothing."""
    async with open_responses() as server, ms.open_engine([server.provider]) as engine:
        talk, continued = ms.Conversation([USER]), list[bool]()
        for minute in range(12):
            continued += [each.continued for each in await tool_loop(engine, talk, 1)]
            await server.sockets[-1].line.send(raw(0x89, b"hello") + raw(0x81, b'{"type":"later"}'))
            await trio.sleep(301)
            if minute == 10:
                assert wss(engine, server).idle == 0
    assert continued == [False, *[True] * 10, False]
    assert len(server.sockets) == 2


async def test_a_socket_ends_with_its_conversation() -> None:
    async with open_responses() as server, ms.open_engine([server.provider]) as engine:
        talk, other = ms.Conversation([USER]), ms.Conversation([USER])
        await tool_loop(engine, talk, 1)
        await tool_loop(engine, other, 1)
        await tool_loop(engine, ms.Conversation([USER]), 1, session="agent-17")
        gc.collect()
        assert wss(engine, server).idle == 3
        talk.clear()
        await until(lambda: wss(engine, server).idle == 2)
        del other
        gc.collect()
        await until(lambda: wss(engine, server).idle == 1)
        engine.end_session("agent-17")
        assert wss(engine, server).idle == 0
        again = ms.Conversation([USER])
        first = await engine.start_stream(again.request("p/m", session="a")).wait()
        again.add_response(first.response_or_raise())
        again.add(ms.Message.tool_result(first.response_or_raise().tool_calls[0].id, "r"))
        same = ms.Conversation(again.messages)  # read from a store: the session is the same
        second = await engine.start_stream(same.request("p/m", session="a")).wait()
        assert second.continued


async def test_cancelling_closes_the_socket_in_a_tick() -> None:
    ended = trio.Event()

    async def hang(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        assert socket is not None
        await socket.send(*events_of(turn.number, server.output(turn.number))[:4])
        await socket.line.closed_by_peer()
        ended.set()
        return True

    async with open_responses(hang) as server, ms.open_engine([server.provider]) as engine:
        recorder, talk = Recorder(), ms.Conversation([USER])
        call = engine.start_stream(talk.request("p/m"), recorder.on_event, recorder.on_completion)
        await until(lambda: len(recorder.events) > 1)
        call.cancel()
        assert wss(engine, server).active == wss(engine, server).idle == 0
        await trio.lowlevel.checkpoint()
        with trio.fail_after(5):
            await ended.wait()
    assert recorder.completion.error_category is ms.ErrorCategory.CANCELLED


async def test_cancelling_in_a_handshake_leaves_nothing() -> None:
    async with open_responses() as server:
        script = server.script

        async def wait(line: Any) -> None:
            await line.request()
            server.heads.append(b"upgrade")
            await line.closed_by_peer()

        server.script = wait  # type: ignore[method-assign]
        async with ms.open_engine([server.provider]) as engine:
            talk = ms.Conversation([USER])
            call = engine.start_stream(talk.request("p/m"))
            await until(lambda: bool(server.heads))
            call.cancel()
            assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED
            server.script = script  # type: ignore[method-assign]
            completions = await tool_loop(engine, talk, 2)
    assert [each.continued for each in completions] == [False, True]


async def test_a_second_call_at_the_same_time_goes_over_http() -> None:
    async with open_responses() as server, ms.open_engine([server.provider]) as engine:
        talk = ms.Conversation([USER])
        calls = [engine.start_stream(talk.request("p/m")) for _ in range(3)]
        completions = [await call.wait() for call in calls]
        assert wss(engine, server).over_http == {"busy": 2}
    assert sorted(each.transport for each in completions) == ["http", "http", "websocket"]
    assert all(each.success and each.attempts == 1 for each in completions)


async def test_keys_and_signatures_of_handshakes() -> None:
    keys, signed = iter(["key-number-1", "key-number-1", "key-number-2"]), list[tuple[str, str, bytes]]()

    def sign(method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        signed.append((method, url, body))
        return {"x-signature": "canary-signed"}

    async with open_responses() as server:
        provider = ms.OpenAIResponses(
            lambda: next(keys), f"{server.peer.url}?v=1", name="p", websocket=True, sign=sign, headers={"x-own": "b"}
        )
        async with ms.open_engine([provider]) as engine:
            completions = await tool_loop(engine, ms.Conversation([USER]), 3)
    assert [each.continued for each in completions] == [False, True, False]
    assert signed == [("GET", f"{server.peer.origin}/v1/responses?v=1", b"")] * 2
    first, second = (head.decode().lower() for head in server.heads)
    assert "get /v1/responses?v=1 http/1.1" in first
    assert "bearer key-number-1" in first
    assert "bearer key-number-2" in second
    assert "x-signature: canary-signed" in first
    assert "x-own: b" in first
    assert "content-type" not in first
    assert "sec-websocket-protocol" not in first
    assert "sec-websocket-extensions" not in first


async def test_what_goes_over_http() -> None:
    async with open_responses() as server, ms.open_engine([server.provider]) as engine:
        talk = ms.Conversation([USER])
        for request in (
            ms.Request("p/m", [USER]),
            talk.request("p/m", extra_body={"previous_response_id": "resp_x"}),
        ):
            completion = await engine.start_stream(request).wait()
            assert (completion.success, completion.transport) == (True, "http")
        response = await engine.request(talk.request("p/m"))
    assert [turn.transport for turn in server.turns] == ["http", "http", "websocket"]
    assert response.tool_calls
    with pytest.raises(ms.InvalidRequestError, match="websocket: is for OpenAIResponses"):
        ms.OpenAIChat("k", websocket=True)


@pytest.mark.parametrize("outcome", ["goes on", "pending", "failed", "cut"])
async def test_a_text_into_an_answer(outcome: str) -> None:
    """The answer goes on with the text, or is as without it. The next turn is sent whole if it went on."""
    recorder = Recorder()

    async def steered(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        assert socket is not None
        if turn.number > 1:
            return False
        events = events_of(1, [text_item(1, "one two")], "incomplete")
        events[-1]["response"]["incomplete_details"] = {"reason": "steered"}
        await socket.send(*events[:4])
        sent = await socket.receive()
        assert sent is not None
        message = {"type": "response.steer", "previous_response_id": "resp_1", "input": "in French"}
        assert json.loads(sent) == message
        steer = {"id": "steer_1", "previous_response_id": "resp_1"}
        await socket.send({"type": "response.steer.accepted", "steer": steer}, *events[4:])
        if outcome == "goes on":
            await socket.send(*events_of(7, [text_item(7, "un deux")]))
        elif outcome == "cut":
            socket.line.reset()
        else:
            await socket.send(
                {"type": f"response.steer.{outcome}", "steer": steer, "error": {"code": "x", "message": ""}}
            )
        socket.known = {"resp_7": []}
        return True

    async with open_responses(steered) as server, ms.open_engine([server.provider]) as engine:
        talk = ms.Conversation([USER])
        call = engine.start_stream(talk.request("p/m"), recorder.on_event, recorder.on_completion)
        with pytest.raises(ms.InvalidRequestError, match="steer"):
            call.steer("too early")
        await until(lambda: bool(recorder.text))
        call.steer("in French")
        completion = await call.wait()
        with pytest.raises(ms.InvalidRequestError, match="steer"):
            call.steer("too late")
        response = completion.response_or_raise()
        talk.add_response(response)
        talk.add(ms.Message.user("in French"))
        (after,) = await tool_loop(engine, talk, 1)
    assert response.text == recorder.text == ("one twoun deux" if outcome == "goes on" else "one two")
    assert response.id == ("resp_7" if outcome == "goes on" else "resp_1")
    assert recorder.types.count("START") == recorder.types.count("DONE") == 1
    assert not after.continued


# --- a proxy that cuts ---


class CuttingProxy:
    """Passes bytes on. The first connection ends after `size` bytes of the server's; None: it does not."""

    def __init__(self, port: int, size: int | None) -> None:
        self.port, self.left, self.passed = port, size, 0

    async def script(self, line: Line) -> None:
        left, self.left = self.left, None
        upstream = await trio.open_tcp_stream("127.0.0.1", self.port)
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with upstream, trio.open_nursery() as nursery:
                nursery.start_soon(self._send, line, upstream)
                async for data in upstream:
                    part = data if left is None else data[:left]
                    self.passed += len(part)
                    await line.send(part)
                    if left is not None:
                        left -= len(part)
                        if not left:
                            break
                nursery.cancel_scope.cancel()

    async def _send(self, line: Line, upstream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in line.stream:
                await upstream.send_all(data)


async def cut_turns(server: ResponsesServer, size: int | None, authority: trustme.CA | None) -> tuple[list[Any], int]:
    """Three turns over a proxy. Returns the events and the completion of each, and the bytes that the server sent."""
    proxy, found = CuttingProxy(server.peer.port, size), list[Any]()
    server.turns.clear()
    context, tls = None, ms.TLSConfig()
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        tls = ms.TLSConfig(ca_data=authority.cert_pem.bytes().decode())
    async with open_peer(proxy.script, context) as peer:
        url = peer.url if authority is None else peer.url.replace("http", "https")
        provider = ms.OpenAIResponses("k", url, name="p", websocket=True)
        async with ms.open_engine([provider], retry=SOON, tls=tls) as engine:
            talk = ms.Conversation([USER])
            for _ in range(3):
                recorder, seen = Recorder(), list[int]()

                def on_event(event: ms.Event, recorder: Recorder = recorder, seen: list[int] = seen) -> None:
                    recorder.on_event(event)
                    seen.append(len(server.turns))

                completion = await engine.start_stream(talk.request("p/m"), on_event).wait()
                if len(seen) > 1:
                    assert len(server.turns) == seen[1], "nothing is created again after content"
                found.append((recorder.events, completion))
                if not completion.success:
                    break
                response = completion.response_or_raise()
                talk.add_response(response)
                talk.add(ms.Message.tool_result(response.tool_calls[0].id, "result"))
    return found, proxy.passed


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_a_cut_at_any_byte_of_three_turns(secure: bool) -> None:
    """The events are those of an uncut connection, or the beginning of them and a NETWORK error."""
    authority = trustme.CA() if secure else None
    async with open_responses(by_rounds=True) as server:
        whole, total = await cut_turns(server, None, authority)
        step = 1 if os.environ.get("MANYSTREAM_EVERY_BYTE") else 151 if secure else 61
        for size in range(1, total, step):
            found, _ = await cut_turns(server, size, authority)
            for (events, completion), (expected, _) in zip(found, whole, strict=False):
                if completion.success:
                    assert events == expected, size
                else:
                    assert completion.error_category is ms.ErrorCategory.NETWORK, size
                    assert events[:-1] == expected[: len(events) - 1], size
                    assert len(events) > 2


async def test_the_body_of_an_addition_is_written_when_it_is_needed(tmp_path: Path) -> None:
    """A recording and estimates count the whole conversation; warnings are those of HTTP."""

    async def forget(server: ResponsesServer, socket: Socket | None, turn: Turn) -> bool:
        if socket is None or turn.number != 3:
            return False
        await socket.send(refusal("previous_response_not_found"))
        return True

    options: dict[str, Any] = {"stop": ["x"], "system": "Be brief."}
    async with open_responses(forget) as server, ms.open_engine([server.provider]) as engine:
        talk = ms.Conversation([USER])
        with engine.record(tmp_path / "record"):
            completions = await tool_loop(engine, talk, 3, **options)
        whole = server.turns[3].body
    sizes = [json.loads(line).get("bytes", 0) for line in (tmp_path / "record").read_text().splitlines()]
    assert sorted(filter(None, sizes))[-1] > len(json.dumps(whole["input"], separators=(",", ":")))
    assert whole["input"] == server.turns[3].whole
    assert [each.response_or_raise().warnings for each in completions] == [
        ["stop: not sent; the Responses API has no stop sequences"]
    ] * 3
