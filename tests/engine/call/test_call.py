"""One call from start to completion: its events, their order, and that it ends exactly once."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest
import trio

import manystream as ms
from manystream.engine.call.call import Counters, RunningCall, Step
from manystream.providers.catalog.dialect import StreamMachine
from tests.support.peers import (
    CHAT_DONE,
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
    open_peer,
    replies,
    reply_and_hold,
    reply_once,
    stream_of,
    until,
)


async def test_a_stream_delivers_events_in_order_and_one_completion() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        for frame in chat_stream("Hel", "lo"):
            await line.send(chunked(frame, end=False))
        await line.send("0\r\n\r\n")
        await line.closed_by_peer()

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        call = engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
        assert recorder.events == []
        completion = await call.wait()
    assert recorder.types == ["START", "TEXT_DELTA", "TEXT_DELTA", "DONE"]
    assert recorder.text == "Hello"
    assert recorder.completions == [completion]
    assert completion.success
    assert completion.http_status == 200
    assert completion.attempts == 1
    assert completion.response.text == "Hello"
    assert completion.response.finish_reason is ms.FinishReason.STOP


async def test_the_connection_of_a_finished_stream_is_reused() -> None:
    async def script(line: Line) -> None:
        while await line.request():
            await line.send(STREAM_HEAD)
            await line.send(chunked(*chat_stream("one")))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        for _ in range(5):
            assert (await engine.start_stream(hello()).wait()).success
        assert len(peer.lines) == 1
        assert engine.statistics().reused == 4


async def test_done_is_delivered_before_the_body_s_end() -> None:
    release = trio.Event()

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(stream_of(*chat_stream("x"), end=False))
            await release.wait()
            await line.send("0\r\n\r\n")

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        assert (await engine.start_stream(hello()).wait()).success
        release.set()
        await until(lambda: engine.statistics().connections[peer.origin].idle == 1)
        assert (await engine.start_stream(hello()).wait()).success
        assert len(peer.lines) == 1


async def test_an_unstreamed_request_returns_its_response() -> None:

    async with open_peer(replies(answer(chat_answer("hi")))) as peer, ms.open_engine([peer.chat]) as engine:
        response = await engine.request(hello())
        assert response.text == "hi"
        assert response.model == "m"


async def test_request_raises_the_providers_error() -> None:
    script = replies(answer(error_body("no such model", code="model_not_found"), status="404 Not Found"))
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        with pytest.raises(ms.ProviderError, match="no such model") as raised:
            await engine.request(hello())
    assert raised.value.category is ms.ErrorCategory.NOT_FOUND
    assert raised.value.http_status == 404


async def test_the_iterator_yields_events_and_raises_the_error() -> None:
    script = reply_and_hold(stream_of(chat_chunk("par")))
    seen = []

    async def iterate(engine: ms.Engine) -> None:
        async with engine.stream(hello()) as events:
            async for event in events:
                seen.append(event.type)

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        with pytest.raises(ms.ProviderError, match="truncated stream"):
            await iterate(engine)
    assert seen == [ms.EventType.START, ms.EventType.TEXT_DELTA]


async def test_a_slow_consumer_stops_only_its_own_server() -> None:
    sent = 0

    async def script(line: Line) -> None:
        nonlocal sent
        request = await line.request()
        await line.send(STREAM_HEAD)
        if b"flood" not in request:
            await line.send(chunked(*chat_stream("quick")))
            return
        frame = chunked(chat_chunk("x" * 1000), end=False)
        for _ in range(20_000):
            await line.send(frame)
            sent += len(frame)
        await line.send(chunked(*chat_stream("end")))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        request = ms.Request("m", [ms.Message.user("flood")])
        async with engine.stream(request) as events:
            await events.__anext__()
            await trio.testing.wait_all_tasks_blocked(0.05)
            held_at = sent
            assert held_at < 18_000_000
            quick = await engine.start_stream(hello()).wait()
            assert quick.success
            assert sent == held_at
            count = 0
            async for event in events:
                count += isinstance(event, ms.TextDelta)
            assert count >= 20_000
        assert events.completion.success


async def test_a_cut_stream_is_truncated_and_keeps_its_events() -> None:
    script = reply_once(stream_of(chat_chunk("partial"), end=False))
    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    completion = recorder.completion
    assert not completion.success
    assert completion.error_category is ms.ErrorCategory.NETWORK
    assert "truncated stream" in (completion.error_message or "")
    assert completion.response.text == "partial"
    assert recorder.types == ["START", "TEXT_DELTA", "ERROR"]


async def test_a_reset_stream_is_truncated_after_its_events() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(chat_chunk("a"), chat_chunk("b"), end=False))
        await trio.testing.wait_all_tasks_blocked(0.01)
        line.reset()

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    assert recorder.text == "ab"
    assert recorder.completion.error_category is ms.ErrorCategory.NETWORK
    assert "truncated stream" in (recorder.completion.error_message or "")


async def test_a_callback_that_raises_ends_its_own_call_only() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        for frame in chat_stream(*"abcdef"):
            await line.send(chunked(frame, end=False))
            await trio.testing.wait_all_tasks_blocked(0.001)
        await line.send("0\r\n\r\n")
        await line.closed_by_peer()

    delivered = []

    def broken(event: ms.Event) -> None:
        delivered.append(event)
        if len(delivered) == 3:
            raise RuntimeError("mine")

    healthy = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        bad = engine.start_stream(hello(), broken)
        good = engine.start_stream(hello(), healthy.on_event, healthy.on_completion)
        completion = await bad.wait()
        await good.wait()
    assert completion.error_category is ms.ErrorCategory.CALLBACK
    assert isinstance(completion.error.__cause__, RuntimeError)  # type: ignore[union-attr]
    assert len(delivered) == 3
    assert completion.response.text == "ab"
    assert healthy.text == "abcdef"
    assert healthy.completion.success


async def test_an_on_completion_that_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:

    def broken(completion: ms.Completion) -> None:
        raise RuntimeError("mine")

    async with open_peer(replies(answer(chat_answer("hi")))) as peer, ms.open_engine([peer.chat]) as engine:
        assert (await engine.start_request(hello(), broken).wait()).success
        assert (await engine.start_request(hello()).wait()).success
    assert "on_completion raised" in caplog.text


async def test_an_unstreamed_response_to_a_stream_request_streams() -> None:

    recorder = Recorder()
    async with open_peer(reply_and_hold(answer(chat_answer("whole")))) as peer, ms.open_engine([peer.chat]) as engine:
        await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
    assert recorder.types == ["START", "TEXT_DELTA", "DONE"]
    assert recorder.completion.success


async def test_an_html_page_is_an_error_that_quotes_it() -> None:
    script = reply_and_hold(answer("<html>Welcome to the proxy</html>", kind="text/html"))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert not completion.success
    assert "<html>" in (completion.error_message or "")


async def test_statistics_count_calls_connections_and_bytes() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(chat_chunk("x"), end=False))
        await trio.sleep_forever()

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        calls = [engine.start_stream(hello()) for _ in range(3)]
        await until(lambda: engine.statistics().events == 6)
        statistics = engine.statistics()
        assert statistics.calls == {"reading": 3}
        assert statistics.started == 3
        assert statistics.opened == 3
        assert statistics.events == 6
        (origin,) = statistics.connections.values()
        assert (origin.active, origin.idle) == (3, 0)
        assert statistics.bytes_received > 300
        for call in calls:
            call.cancel()
            await call.wait()
        assert engine.statistics().cancelled == 3


@pytest.mark.parametrize("asked", [1, 2])
async def test_the_answer_of_several_choices_is_that_of_index_0(asked: int) -> None:
    choices = (
        [(1, "other", None), (1, "", "stop")]
        if asked == 1
        else [(1, "other", "stop"), (0, "an", None), (0, "swer", "stop")]
    )

    async def script(line: Line) -> None:
        await line.request()
        deltas = [
            {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": end}]}
            for index, text, end in choices
        ]
        body = "".join(f"data: {json.dumps(delta)}\n\n" for delta in deltas)
        await line.send(answer(f"{body}data: [DONE]\n\n", kind="text/event-stream"))

    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        request = hello(extra_body={"n": asked})
        response = (await engine.start_stream(request, recorder.on_event).wait()).response_or_raise()
    assert recorder.text == response.text == ("other" if asked == 1 else "answer")
    texts = ["other"] if asked == 1 else ["answer", "other"]
    assert [(choice.text, choice.finish_reason) for choice in response.choices] == [
        (text, ms.FinishReason.STOP) for text in texts
    ]


# --- the response of a call that failed ---

OVERLOADED = '{"error":{"message":"busy","code":503}}'


NAMED = chat_chunk(id="r")  # a role, and no content yet


@pytest.mark.parametrize(
    "response",
    [
        answer(OVERLOADED, status="503 Service Unavailable"),
        answer(OVERLOADED),
        answer(f"data: {OVERLOADED}\n\n", kind="text/event-stream"),
        answer(": hello\n\n", kind="text/event-stream"),
        answer("<p>Not here", kind="text/html"),
    ],
    ids=["status", "body", "event", "comment", "page"],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_failure_before_anything_of_an_answer_has_no_response(response: bytes, stream: bool) -> None:

    async with open_peer(reply_once(response)) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        call = engine.start_stream(hello()) if stream else engine.start_request(hello())
        completion = await call.wait()
    assert not completion.success
    assert completion.response is None


async def test_a_failure_after_the_first_name_or_count_keeps_it() -> None:
    script = reply_once(stream_of(NAMED, f"data: {OVERLOADED}\n\n"))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert completion.error_category is ms.ErrorCategory.SERVER
    assert completion.response == ms.Response(model="m", id="r")


ABORTED: dict[str, object] = {
    "finish_reason": "abort",
    "token_ids": [11, 12],
    "logprobs": {"content": [{"token": "Hel"}, {"token": "lo"}]},
}


def aborted(*, stream: bool) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    if not stream:
        choice = {"index": 0, "message": {"content": "Hello"}, **ABORTED}
        return answer(json.dumps({"model": "m", "id": "r", "choices": [choice], "usage": usage}))
    choice = {"index": 0, "delta": {}, **ABORTED}
    last = json.dumps({"choices": [choice], "usage": usage})
    return answer(chat_chunk("Hello", id="r") + f"data: {last}\n\ndata: [DONE]\n\n", kind="text/event-stream")


@pytest.mark.parametrize("routed", [True, False])
@pytest.mark.parametrize("sent_as", [True, False])
@pytest.mark.parametrize("asked_as", [True, False])
async def test_an_aborted_answer_is_no_success_and_not_repeated(asked_as: bool, sent_as: bool, routed: bool) -> None:
    async with open_peer(replies(aborted(stream=sent_as))) as peer:
        route = ms.Route("r", [f"{peer.chat.name}/m", f"{peer.chat.name}/other"])
        traffic = ms.Traffic(routes=[route]) if routed else None
        async with ms.open_engine([peer.chat], traffic=traffic) as engine:
            request = ms.Request("r" if routed else "m", "Hi", extra_body={"logprobs": True})
            call = engine.start_stream(request) if asked_as else engine.start_request(request)
            completion = await call.wait()
    assert (len(peer.requests), completion.attempts, completion.success) == (1, 1, False)
    assert (completion.error.provider_code, completion.error.retryable) == ("aborted", False)
    assert completion.error.partial is None
    response = completion.response
    assert (response.text, response.id) == ("Hello", "r")
    assert (response.finish_reason, response.raw_finish_reason) == (ms.FinishReason.ABORTED, "abort")
    assert response.usage.output_tokens == 2
    assert [*response.tokens.ids] == [11, 12]
    assert response.provider_data == {"logprobs": ABORTED["logprobs"]}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_route_goes_on_after_a_broken_generation(stream: bool) -> None:
    asked: list[str] = []

    async def script(line: Line) -> None:
        while request := await line.request():
            model = json.loads(request.partition(b"\r\n\r\n")[2])["model"]
            asked.append(model)
            word = "error" if model == "m" else "stop"
            if stream:
                choice = {"index": 0, "delta": {} if model == "m" else {"content": "Hello"}, "finish_reason": word}
                body = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
                await line.send(answer(body, kind="text/event-stream"))
            else:
                choice = {"index": 0, "message": {"content": "Hello"}, "finish_reason": word}
                await line.send(answer(json.dumps({"choices": [choice]})))

    async with open_peer(script) as peer:
        routes = [ms.Route("r", [f"{peer.chat.name}/m", f"{peer.chat.name}/other"])]
        async with ms.open_engine([peer.chat], traffic=ms.Traffic(routes=routes)) as engine:
            request = ms.Request("r", "Hi")
            completion = await (engine.start_stream if stream else engine.start_request)(request).wait()
    assert (completion.success, asked[-1]) == (True, "other")
    assert completion.response is not None
    assert completion.response.text == "Hello"


async def test_a_broken_generation_is_delivered_once_with_its_text() -> None:
    asked = 0

    async def script(line: Line) -> None:
        nonlocal asked
        while await line.request():
            asked += 1
            end = json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]})
            body = chat_chunk("Hello", id="r") + f"data: {end}\n\ndata: [DONE]\n\n"
            await line.send(answer(body, kind="text/event-stream"))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert (asked, completion.success, completion.error_category) == (1, False, ms.ErrorCategory.SERVER)
    assert completion.response is not None
    assert (completion.response.text, completion.response.finish_reason) == ("Hello", ms.FinishReason.ERROR)


class Broken(RunningCall):
    """A call whose named steps raise each time."""

    def __init__(self, broken: set[str], completed: list[ms.Completion]) -> None:
        engine: Any = SimpleNamespace(loop=SimpleNamespace(clock=lambda: 0.0))
        unused: Any = SimpleNamespace(stream=True, provider=SimpleNamespace(name="p"))
        super().__init__(
            engine,
            unused,
            unused,
            Counters(),
            1,
            0.0,
            unused,
            ms.Retry(),
            None,
            completed.append,
            lambda response: None,
        )
        self.broken = broken
        self.taken: list[str] = []

    def conclude(self, completion: ms.Completion) -> Step:
        self._settle(completion, ())
        self._finish_by_all_means()
        return self._step

    def _take(self, step: str) -> None:
        self.taken.append(step)
        if step in self.broken:
            raise RuntimeError(step)

    def _stop(self) -> None:
        self._take("stop")

    def _deliver_terminal(self) -> None:
        self._take("deliver")

    def _record(self) -> None:
        self._take("record")


@pytest.mark.parametrize(
    "broken",
    [set[str](), {"stop"}, {"deliver"}, {"record"}, {"stop", "deliver", "record"}],
    ids=lambda steps: "+".join(sorted(steps)) or "none",
)
def test_a_step_that_raises_does_not_stop_the_others(broken: set[str]) -> None:
    completed: list[ms.Completion] = []
    call = Broken(broken, completed)
    outcome = ms.Completion(success=True)
    assert call.conclude(outcome) is Step.WOKEN
    assert call.taken == ["stop", "deliver", "record"]
    assert completed == [outcome]


async def test_a_defect_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    defect = RuntimeError("a number was None")

    def feed(machine: StreamMachine, event: str, data: bytes) -> list[ms.Event]:
        raise defect

    script = reply_once(stream_of(chat_chunk("a"), chat_chunk(finish="stop"), CHAT_DONE))
    monkeypatch.setattr(StreamMachine, "feed", feed)
    with caplog.at_level(logging.ERROR, logger="manystream"):
        async with open_peer(script) as peer, ms.open_engine([peer.chat], proxy="") as engine:
            completion = await engine.start_stream(hello()).wait()
    assert "RuntimeError" in completion.error.message
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage().endswith(" failed because of a defect in manystream")
    assert record.exc_info[1] is defect


async def test_a_callback_that_raises_on_error_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    fault = ValueError("the caller's own")

    def on_event(event: ms.Event) -> None:
        raise fault

    script = reply_once("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    with caplog.at_level(logging.ERROR, logger="manystream"):
        async with open_peer(script) as peer, ms.open_engine([peer.chat], proxy="") as engine:
            completion = await engine.start_stream(hello(), on_event).wait()
    assert completion.error.http_status == 404
    (record,) = caplog.records
    assert record.getMessage() == "on_event raised on its Error event"
    assert record.exc_info[1] is fault
