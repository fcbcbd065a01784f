"""Record and replay: the content of a recording, that it has no secrets, and that its replay gives equal responses."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
import trio

import manystream as ms
from manystream.cli import main
from manystream.simulator import ReplayError, Simulator, open_simulator_thread, read_replay
from tests.support.peers import NO_RETRY, STREAM_HEAD, Line, answer, chat_answer, chat_stream, chunked, hello, open_peer

KEY = "sk-canary-5ecret"
HINTS = "X-Rate-Limit-Reset-Tokens: 1\r\nRateLimit-Reset: 1\r\nllm_provider-retry-after: 1\r\n"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def provider_of(dialect: str, simulator: Simulator, key: str = KEY) -> ms.Provider:
    kinds = {
        "openai-chat": ms.OpenAIChat, "openai-responses": ms.OpenAIResponses, "anthropic": ms.Anthropic,
        "gemini": ms.Gemini, "gemini-interactions": ms.GeminiInteractions,
    }  # fmt: skip
    return kinds[dialect](key, simulator.base_urls[dialect], name=dialect, headers={"X-Secret": f"{key}-header"})


async def test_a_line_has_request_head_and_chunks_with_times(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"

    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        for frame in chat_stream("Zü", "rich"):
            await trio.sleep(0.02)
            await line.send(chunked(frame, end=False))
        await line.send("0\r\n\r\n")
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        with engine.record(path) as recording:
            completion = await engine.start_stream(hello()).wait()
            assert recording.exchanges == 1
        assert recording.closed
    assert completion.success
    (line,) = lines(path)
    assert line["origin"] == peer.origin
    assert (line["request"]["method"], line["request"]["target"]) == ("POST", "/v1/chat/completions")
    assert json.loads(line["request"]["body"])["messages"] == [{"role": "user", "content": "hello"}]
    assert line["response"]["status"] == 200
    assert "".join(text for _, text in line["chunks"]) == "".join(chat_stream("Zü", "rich"))
    times = [at for at, _ in line["chunks"]]
    assert times == sorted(times)
    assert times[-1] - times[0] >= 0.03
    assert line["end"] == "whole"


async def test_a_recording_s_arguments_are_checked_first(tmp_path: Path) -> None:
    provider, path, none = ms.OpenAIChat("key"), tmp_path / "traffic.jsonl", cast(Any, None)
    async with ms.open_engine([provider]) as engine:
        with pytest.raises(ms.InvalidRequestError, match="path: must be a path, not None"):
            engine.record(none)
        with pytest.raises(ms.InvalidRequestError, match="path: must be a path, not bytes"):
            engine.record(cast(Any, bytes(path)))
        with pytest.raises(ms.InvalidRequestError, match="replace: must be True or False, not 'no'"):
            engine.record(path, replace=cast(Any, "no"))
    assert list(tmp_path.iterdir()) == []


async def test_no_key_is_ever_written(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"

    async def script(line: Line) -> None:
        await line.request()
        body = f'{{"error": {{"message": "Incorrect API key provided: {KEY}.", "type": "x"}}}}'
        head = answer(
            body, status="401 Unauthorized", headers=f"Set-Cookie: session={KEY}\r\nX-Request-Id: r1\r\n{HINTS}"
        )
        for start in range(0, len(head), 7):  # the key is sent in several pieces
            await line.send(head[start : start + 7])
            await trio.sleep(0)
        await line.closed_by_peer()

    async with open_peer(script) as peer:
        provider = ms.OpenAIChat(
            KEY, f"{peer.url}?token=other-5ecret&api-version=7", name="p", headers={"X-Own": "own-5ecret"}
        )
        request = ms.Request("m", [ms.Message.user(f"my key is {KEY}")], extra_headers={"X-More": "more-5ecret"})
        async with ms.open_engine([provider]) as engine:
            with engine.record(path):
                await engine.start_stream(request).wait()
    text = path.read_text("utf-8")
    assert "5ecret" not in text
    (line,) = lines(path)
    assert line["request"]["target"] == "/v1/chat/completions?api-version=7"
    assert "my key is [key]" in line["request"]["body"]
    assert ["x-request-id", "r1"] in line["response"]["headers"]
    assert {"x-rate-limit-reset-tokens", "ratelimit-reset", "llm_provider-retry-after"} <= dict(
        line["response"]["headers"]
    ).keys()
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"])
async def test_a_replay_returns_the_same_responses(dialect: str, tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    requests = [
        ms.Request(f"{dialect}/m", [ms.Message.user("one")], extra_headers={"x-simulate": "kind=mixed,chunk=50"}),
        ms.Request(f"{dialect}/m", [ms.Message.user("two")], extra_headers={"x-simulate": "kind=text"}),
    ]

    async def answers(engine: ms.Engine) -> list[ms.Response]:
        completions = [await engine.start_stream(request).wait() for request in requests]
        completions += [await engine.start_request(request).wait() for request in requests]
        return [completion.response or ms.Response() for completion in completions]

    with open_simulator_thread() as simulator:
        async with ms.open_engine([provider_of(dialect, simulator)]) as engine:
            with engine.record(path):
                recorded = await answers(engine)
    assert len(lines(path)) == 4
    with open_simulator_thread(replay=str(path), pace=0) as simulator:
        async with ms.open_engine([provider_of(dialect, simulator, key="another")]) as engine:
            replayed = await answers(engine)
    for before, after in zip(recorded, replayed, strict=True):
        assert before.text == after.text != ""
        assert before.thinking == after.thinking
        assert [(c.name, c.arguments) for c in before.tool_calls] == [(c.name, c.arguments) for c in after.tool_calls]
        assert (before.usage, before.finish_reason, before.id) == (after.usage, after.finish_reason, after.id)


@pytest.mark.parametrize(("pace", "least", "most"), [(1.0, 0.25, 5.0), (10.0, 0.02, 0.25), (0.0, 0.0, 0.25)])
async def test_a_replay_can_change_the_pace(pace: float, least: float, most: float, tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    chunks = [[0.1 + place * 0.02, frame] for place, frame in enumerate(chat_stream(*"abcdefgh"))]
    path.write_text(json.dumps(exchange(chunks=chunks)), "utf-8")
    with open_simulator_thread(replay=str(path), pace=pace) as simulator:
        async with ms.open_engine([provider_of("openai-chat", simulator)]) as engine:
            began = trio.current_time()
            completion = await engine.start_stream(hello()).wait()
            elapsed = trio.current_time() - began
    assert completion.success
    assert completion.response.text == "abcdefgh"
    assert elapsed >= least
    assert elapsed < most or pace == 1.0


def exchange(**members: object) -> dict[str, object]:
    """Return a line of a recording."""
    return {
        "version": 1,
        "started": 0.0,
        "origin": "https://example.test:443",
        "request": {"method": "POST", "target": "/any/chat/completions", "headers": [], "body": "{}"},
        "response": {"at": 0.01, "status": 200, "headers": [["content-type", "text/event-stream"]]},
        "chunks": [],
        "end": "whole",
        "ended": 0.3,
        **members,
    }


async def test_a_failure_and_the_response_after_it_are_replayed(tmp_path: Path) -> None:
    """The same request twice gets the recorded responses in order."""
    path = tmp_path / "traffic.jsonl"
    failures = iter(["429 Too Many Requests", "reset"])

    async def script(line: Line) -> None:
        while await line.request():
            failure = next(failures, "")
            if failure == "reset":
                line.reset()
                return
            if failure:
                await line.send(answer("{}", status=failure, headers="Retry-After: 0\r\n"))
            else:
                await line.send(answer(chat_answer("at last")))

    retry = ms.Retry(max_attempts=3, base=0.01, jitter=0)

    async def ask(provider: ms.Provider, path: Path | None) -> ms.Completion:
        async with ms.open_engine([provider], retry=retry) as engine:
            if path is None:
                return await engine.start_request(hello()).wait()
            with engine.record(path):
                return await engine.start_request(hello()).wait()

    async with open_peer(script) as peer:
        recorded = await ask(peer.chat, path)
    assert recorded.success
    assert [line["end"] for line in lines(path)].count("broken") >= 1
    with open_simulator_thread(replay=str(path)) as simulator:
        replayed = await ask(provider_of("openai-chat", simulator), None)
    assert replayed.success
    assert replayed.response.text == "at last"


async def test_a_cancelled_stream_is_recorded_and_its_replay_stalls(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    with open_simulator_thread("rate=200,events=500") as simulator:
        async with ms.open_engine([provider_of("anthropic", simulator)]) as engine:
            with engine.record(path):
                call = engine.start_stream(hello(), lambda event: call.cancel() if event.type == "text_delta" else None)
                await call.wait()
    (line,) = lines(path)
    assert line["end"] == "left"
    assert line["chunks"]
    with open_simulator_thread(replay=str(path)) as simulator:
        async with ms.open_engine([provider_of("anthropic", simulator)], retry=NO_RETRY) as engine:
            request = hello(timeouts=ms.Timeouts(idle=0.2))
            completion = await engine.start_stream(request).wait()
    assert completion.error_category is ms.ErrorCategory.TIMEOUT
    assert completion.response.text


async def test_a_call_beyond_the_recording_s_end_continues(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    with open_simulator_thread("rate=100,events=30") as simulator:
        async with ms.open_engine([provider_of("gemini", simulator)]) as engine:
            with engine.record(path):
                first = trio.Event()
                call = engine.start_stream(hello(), lambda event: first.set())
                await first.wait()
            assert [line["end"] for line in lines(path)] == ["left"]
            assert (await call.wait()).success
            with engine.record(path, replace=True):
                with pytest.raises(RuntimeError, match="leave its block first"):
                    engine.record(tmp_path / "other.jsonl")
                await engine.start_request(hello()).wait()
            assert [line["end"] for line in lines(path)] == ["whole"]


async def test_an_unrecorded_request_gets_the_next_of_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text(json.dumps(exchange(chunks=[[0.0, frame] for frame in chat_stream("other")])), "utf-8")
    with open_simulator_thread(replay=str(path)) as simulator:
        async with ms.open_engine([provider_of("openai-chat", simulator)], retry=NO_RETRY) as engine:
            assert (await engine.start_stream(hello()).wait()).success
            completion = await engine.start_stream(hello()).wait()
    assert completion.http_status == 404
    assert "the recording holds no exchange" in (completion.error_message or "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "holds no exchange"),
        ("{", "line 1 is not a recorded exchange"),
        (json.dumps(exchange(version=3)), "its version is not 1 or 2"),
        (json.dumps(exchange(request={"target": "/v1/x", "body": None})), "recorded without content"),
        (json.dumps(exchange(end="somehow")), "line 1 is not a recorded exchange: 'somehow'"),
        (json.dumps(exchange(chunks=[["x", "y"]])), "a time is not a number"),
        (json.dumps(exchange(response={"status": 200, "headers": [["a", "b\r\nc"]]})), "a control character"),
    ],
)
def test_an_invalid_recording_is_refused_with_its_line(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(ReplayError, match=why):
        read_replay(str(path))


def test_the_command_reports_an_invalid_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--replay", "/nonexistent/traffic.jsonl"]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["simulate", "--replay", "x", "rate=5"]) == 2
    assert "leave the knobs out" in capsys.readouterr().err


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses", "anthropic", "gemini", "gemini-interactions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_tags_are_recorded_and_not_sent(dialect: str, stream: bool, tmp_path: Path, simulator: Simulator) -> None:
    tags = {"agent": "canary-planner", "canary-step": 3, "late": False, KEY: f"it is {KEY}"}
    request = ms.Request("m", [ms.Message.user("hello")], tags=tags, max_output_tokens=5)
    async with ms.open_engine([provider_of(dialect, simulator)]) as engine:
        with engine.record(tmp_path / "traffic.jsonl"):
            call = engine.start_stream(request) if stream else engine.start_request(request)
            completion = await call.wait()
    assert completion.success
    assert call.tags is completion.tags is tags
    (line,) = lines(tmp_path / "traffic.jsonl")
    recorded = line.pop("tags")
    assert "canary" not in str(line)
    assert {name: recorded[name] for name in ("agent", "canary-step", "late")} == {
        "agent": "canary-planner", "canary-step": 3, "late": False
    }  # fmt: skip
    assert len(recorded) == 4
    assert KEY not in str(recorded)


MEMBERS = {
    "version", "began", "call", "asked", "attempt", "session", "tenant", "priority", "requested", "model", "provider",
    "dialect", "key", "caps", "stream", "usage", "bytes", "origin", "started", "ended", "end", "request", "response",
    "chunks",
}  # fmt: skip


@pytest.mark.parametrize("content", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_line_says_what_its_call_is(stream: bool, content: bool, tmp_path: Path, simulator: Simulator) -> None:
    session = "user-5ecret" if content else "user-5ecret \ud83d"
    path = tmp_path / "traffic.jsonl"
    fails = {"x-simulate": f"fail=503,times=1,key={stream}{content}"}
    request = ms.Request(
        "m", "prompt-5ecret", max_output_tokens=50, session=session, tenant="blue", priority="batch",
        tags={"who": "5ecret"}, extra_headers=fails, retry=ms.Retry(base=0.01, jitter=0),
    )  # fmt: skip
    response: ms.Response | None = None
    async with ms.open_engine([provider_of("openai-chat", simulator)]) as engine:
        with engine.record(path, content=content) as recording:
            for _ in range(2):
                call = engine.start_stream(request) if stream else engine.start_request(request)
                response = (await call.wait()).response
        assert recording.exchanges == 3
    assert response is not None
    refused, first, last = lines(path)
    text = path.read_text("utf-8")
    assert KEY not in text
    assert "user-5ecret" not in text
    for line in (refused, first, last):
        assert line.keys() - {"tags"} == MEMBERS
        assert (line["version"], line["tenant"], line["priority"], line["caps"]) == (2, "blue", "batch", 50)
        assert (line["model"], line["requested"], line["provider"], line["key"]) == ("m", "m", "openai-chat", 1)
        assert line["stream"] is stream
        assert 0 <= line["asked"] <= line["started"]
    assert (refused["call"], refused["attempt"], refused["usage"]) == (1, 1, None)
    assert (first["call"], first["attempt"], last["call"], last["attempt"]) == (1, 2, 2, 1)
    assert first["session"] == last["session"] != "user-5ecret"
    assert (last["usage"]["input_tokens"], last["usage"]["output_tokens"]) == (
        response.usage.input_tokens, response.usage.output_tokens
    )  # fmt: skip
    if content:
        assert "tags" in first
        assert len(last["request"]["body"]) == last["bytes"]
    else:
        assert "5ecret" not in text
        assert response.text[:20] not in text
        assert (last["request"]["body"], last["request"]["headers"]) == (None, [])
        assert sum(size for _, size in last["chunks"]) > len(response.text)
        with pytest.raises(ReplayError, match="line 1 is not a recorded exchange: it was recorded without content"):
            read_replay(str(path))


async def test_a_call_that_was_never_sent_is_recorded(tmp_path: Path, simulator: Simulator) -> None:
    path = tmp_path / "traffic.jsonl"
    traffic = ms.Traffic(budgets=[ms.Budget(calls=1)])
    async with ms.open_engine([provider_of("openai-chat", simulator)], traffic=traffic) as engine:
        with engine.record(path):
            sent = await engine.start_stream(hello()).wait()
            refused = await engine.start_stream(hello()).wait()
    assert (sent.success, refused.error_category) == (True, ms.ErrorCategory.BUDGET)
    first, unsent = lines(path)
    assert (first["end"], unsent["end"], unsent["call"], unsent["request"]) == ("whole", "unsent", 2, None)
    read_replay(str(path))  # it has no exchange to send


async def test_a_recording_that_ends_first_has_its_calls(tmp_path: Path, simulator: Simulator) -> None:
    path = tmp_path / "traffic.jsonl"
    request = ms.Request("m", "hello", extra_headers={"x-simulate": "stall=3"})
    async with ms.open_engine([provider_of("openai-chat", simulator)]) as engine:
        with engine.record(path, content=False):
            async with engine.stream(request) as events:
                await anext(aiter(events))
    (line,) = lines(path)
    assert (line["end"], line["usage"]) == ("left", None)
