"""The whole statistics of an engine, the whole report of its monitor, and a whole recorded line, literally."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.monitor import figures_of
from manystream.engine.observe.statistics import OriginStatistics, ProviderStatistics, Statistics
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    chunked,
    error_body,
    hello,
    open_peer,
    stream_of,
    until,
)


async def by_word(line: Line) -> None:
    """Respond to a request by the word in it."""
    busy = True
    while request := await line.request():
        if b"hang" in request:
            await line.send(stream_of(chat_chunk("a"), end=False))
            await line.closed_by_peer()
            return
        if b"refuse" in request:
            await line.send(answer(error_body("no"), status="404 Not Found"))
        elif b"busy" in request and busy:
            busy = False
            await line.send(answer(error_body("busy"), status="503 Busy"))
        elif b'"stream":true' in request:
            await line.send(stream_of(*chat_stream("b", "c")))
        else:
            await line.send(answer(chat_answer("d")))


def asking(word: str, model: str = "peer/m") -> ms.Request:
    return ms.Request(model, [ms.Message.user(word)])


async def test_an_engine_without_calls_has_empty_figures() -> None:
    providers = [ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="one"), ms.Gemini("k", name="two")]
    async with ms.open_engine(providers) as engine:
        statistics = engine.statistics()
    none = ProviderStatistics(running=0, completed=0, events=0, failures={})
    assert statistics == Statistics(providers={"one": none, "two": none})
    assert repr(Statistics()) == (
        "Statistics(calls={}, started=0, completed=0, failed=0, cancelled=0, retried=0, resent=0, providers={},"
        " connections={}, opened=0, reused=0, discarded=0, events=0, bytes_received=0, bytes_sent=0, loop_lag=0.0,"
        " loop_culprit='', loop_ticks=0, observer_failures=0,"
        " traffic=TrafficStatistics(limiters={}, routes={}, budgets=(), caches={}))"
    )
    assert OriginStatistics() == OriginStatistics(connecting=0, active=0, idle=0, waiting=0)


async def test_the_statistics_count_every_kind_of_end() -> None:
    quick = ms.Retry(base=0.001, cap=0.001, jitter=0)
    async with open_peer(by_word) as peer, ms.open_engine([peer.chat, ms.Gemini("k")], retry=quick) as engine:
        for word in ("stream", "stream", "refuse", "busy"):
            await engine.start_stream(asking(word)).wait()
        await engine.request(asking("whole"))
        cancelled, running = engine.start_stream(asking("hang")), engine.start_stream(asking("hang"))
        await until(lambda: engine.statistics().calls == {"reading": 2} and engine.statistics().events == 17)
        cancelled.cancel()
        await cancelled.wait()
        statistics = engine.statistics()
        assert statistics.bytes_received > statistics.events
        assert statistics.bytes_sent > 1000
        assert statistics.loop_ticks > 0
        assert running.completion is None
    assert replace(
        statistics, bytes_received=0, bytes_sent=0, loop_ticks=0, loop_lag=0.0, loop_culprit=""
    ) == Statistics(
        calls={"reading": 1},
        started=7,
        completed=6,
        failed=1,
        cancelled=1,
        retried=1,
        resent=0,
        providers={
            "peer": ProviderStatistics(running=1, completed=6, events=18, failures={"not_found": 1, "cancelled": 1}),
            "google": ProviderStatistics(),
        },
        connections={peer.origin: OriginStatistics(connecting=0, active=1, idle=0, waiting=0)},
        opened=2,
        reused=6,
        discarded=0,
        events=18,
    )


async def test_a_report_of_the_monitor_is_complete(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "engine.sock"
    async with open_peer(by_word) as peer, ms.open_engine([peer.chat], monitor=path) as engine:
        await trio.sleep(5)
        call = engine.start_stream(asking("hang"))
        await until(lambda: engine.statistics().events == 2)
        await trio.sleep(20)
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(b"look\n")
            received = b""
            while not received.endswith(b"\n"):
                received += await stream.receive_some(65536)
        assert call.completion is None
    look: dict[str, Any] = json.loads(received)
    assert received.count(b"\n") == 1
    assert look.pop("time") > 1.7e9
    assert look.pop("uptime") == pytest.approx(25, abs=2)
    for figures in (*look["oldest"], *look["quietest"]):
        assert figures.pop("age") == pytest.approx(20, abs=1)
        assert figures.pop("quiet") == pytest.approx(20, abs=1)
    for name in ("bytes_received", "bytes_sent", "loop_ticks", "loop_lag"):
        assert look["statistics"].pop(name) >= 0
    culprit = look["statistics"].pop("loop_culprit")  # names a callback if the machine held the loop up
    assert type(culprit) is str
    sockets: dict[str, object] = {"continued": 0, "whole": {}, "over_http": {}}
    figures = {
        "number": 1, "provider": "peer", "model": "m", "stream": True, "state": "reading", "attempts": 1,
        "request_id": None,
    }  # fmt: skip
    assert look == {
        "manystream": ms.__version__,
        "format": 1,
        "pid": os.getpid(),
        "streams": 1,
        "statistics": {
            "calls": {"reading": 1},
            "started": 1,
            "completed": 0,
            "failed": 0,
            "cancelled": 0,
            "retried": 0,
            "resent": 0,
            "providers": {"peer": {"running": 1, "completed": 0, "events": 2, "failures": {}}},
            "connections": {peer.origin: {"connecting": 0, "active": 1, "idle": 0, "waiting": 0, **sockets}},
            "opened": 1,
            "reused": 0,
            "discarded": 0,
            "events": 2,
            "observer_failures": 0,
            "traffic": {"limiters": {}, "routes": {}, "budgets": []},
        },
        "oldest": [figures],
        "quietest": [figures],
    }


async def test_the_figures_of_a_call_are_complete(autojump_clock: MockClock) -> None:
    """A call that never got a connection has been quiet since its start."""
    provider = ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="closed")
    async with ms.open_engine([provider], retry=ms.Retry(base=100, cap=100, jitter=0)) as engine:
        engine.start_request(hello())
        await until(lambda: engine.statistics().calls == {"backoff": 1})
        await trio.sleep(30)
        (running,) = engine._calls.running()
        figures = asdict(figures_of(running, trio.current_time()))
    assert figures == {
        "number": 1, "provider": "closed", "model": "m", "stream": False, "state": "backoff",
        "age": pytest.approx(30, abs=1), "quiet": pytest.approx(30, abs=1), "attempts": 1, "request_id": None,
    }  # fmt: skip


# --- recordings ---

KEPT = (
    "CF-Ray: 1\r\nContent-Type: text/event-stream\r\nDate: today\r\nRequest-Id: 2\r\nRetry-After: 3\r\n"
    "Retry-After-Ms: 4\r\nServer: mine\r\nX-Request-Id: 5\r\nX-Goog-Request-Id: 6\r\nX-Should-Retry: false\r\n"
    "Content-Encoding: identity\r\nAnthropic-Ratelimit-Requests-Limit: 7\r\nX-Ratelimit-Limit-Tokens: 8\r\n"
)


async def test_a_recorded_line_is_complete(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Of headers and query parameters, only the known ones are written."""
    path = tmp_path / "traffic.jsonl"
    frames = chat_stream("Zü", "rich")
    cut = frames[0].encode() if "ü" in frames[0] else frames[0].replace("\\u00fc", "ü").encode()
    middle = cut.index("ü".encode()) + 1

    async def script(line: Line) -> None:
        while await line.request():
            await trio.sleep(0.12345678)
            head = f"HTTP/1.1 200 OK\r\n{KEPT}Set-Cookie: a=b\r\nX-Own: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
            await line.send(head)
            for part in (cut[:middle], cut[middle:], *frames[1:]):
                await line.send(chunked(part, end=False))
                await trio.sleep(0.01)
            await line.send("0\r\n\r\n")

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat(
            "the-key-1", f"{peer.url}?alt=sse&own=1&api-version=7&beta=true", headers={"X-Own": "1", "OpenAI-Beta": "b"}
        )
        async with ms.open_engine([provider]) as engine:
            with engine.record(path) as recording:
                assert repr(recording) == "<Recording traffic.jsonl, 0 exchanges>"
                await engine.start_stream(hello(extra_headers={"anthropic-beta": "c"})).wait()
                await until(lambda: recording.exchanges == 1)
            assert repr(recording) == "<Recording traffic.jsonl, 1 exchanges, closed>"
    (written,) = path.read_text("utf-8").splitlines()
    line: dict[str, Any] = json.loads(written)
    assert [at for at, _ in line["chunks"]] == [0.1235, 0.1335, 0.1435, 0.1535, 0.1635]
    assert (line.pop("started"), line["response"].pop("at"), line.pop("ended")) == (0.0, 0.1235, 0.1635)
    body = json.loads(line["request"].pop("body"))
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert [text for _, text in line.pop("chunks")] == [
        {"base64": _base64(cut[:middle])},
        {"base64": _base64(cut[middle:])},
        *frames[1:],
    ]
    assert line.pop("began") > 1.7e9
    assert line == {
        "version": 2, "call": 1, "asked": 0.0, "requested": "m", "stream": True, "session": None, "tenant": None,
        "priority": "normal", "caps": None, "bytes": 114, "provider": "openai-compatible", "dialect": "openai-chat",
        "model": "m", "key": 1, "attempt": 1, "usage": {name: None for name in asdict(ms.Usage()) if name != "raw"},
        "origin": peer.origin,
        "request": {
            "method": "POST",
            "target": "/v1/chat/completions?alt=sse&api-version=7&beta=true",
            "headers": [
                ["user-agent", "manystream"],
                ["content-type", "application/json"],
                ["accept", "text/event-stream"],
                ["anthropic-beta", "c"],
                ["openai-beta", "b"],
            ],
        },
        "response": {
            "status": 200,
            "headers": [
                [name.lower(), value] for name, _, value in (row.partition(": ") for row in KEPT.split("\r\n")[:-1])
            ],
        },
        "end": "whole",
    }  # fmt: skip


async def test_chunks_that_a_secret_spans_are_written_as_one(tmp_path: Path, autojump_clock: MockClock) -> None:
    """It has the time of the first of them. An exchange that the attempt leaves has its known part."""
    path = tmp_path / "traffic.jsonl"
    body = "data: my key is the-key-1234, as you know\n\n"

    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        for place in range(0, len(body), 9):
            await line.send(chunked(body[place : place + 9], end=False))
            await trio.sleep(0.01)
        await line.closed_by_peer()

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat("the-key-1234", peer.url)
        async with ms.open_engine([provider], retry=ms.Retry(max_attempts=1)) as engine:
            with engine.record(path) as recording:
                completion = await engine.start_stream(hello()).wait()
            assert recording.exchanges == 1
    (line,) = [json.loads(written) for written in path.read_text("utf-8").splitlines()]
    ((at, text),) = line["chunks"]
    assert text == body.replace("the-key-1234", "[key]")
    assert line["response"]["at"] <= at < line["ended"]
    assert line["end"] == "left"
    assert "the-key" not in repr(completion)  # its event is no JSON, and is quoted


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()
