"""Observers: what each hook gets and in which order, that they cannot harm a call, and that they are free if unused."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.monitor import quiet
from manystream.engine.observe.observer import HOOKS, CallStart, Observer
from manystream.engine.traffic.limits.rate_limit import LimiterStatistics
from tests.support.addresses import closed_port
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
    open_peer,
    replies,
    reply_and_hold,
    silent,
    stream_of,
    until,
)


class Notes(ms.Observer):
    """Notes each call of a hook with its arguments."""

    every_event = True

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def call_started(self, call: ms.Call, start: ms.CallStart) -> None:
        self.calls.append(("call_started", call, start))

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self.calls.append(("attempt_started", call, number))

    def first_token(self, call: ms.Call) -> None:
        self.calls.append(("first_token", call))

    def events_received(self, call: ms.Call, events: Sequence[ms.Event]) -> None:
        self.calls.append(("events_received", call, [event.type.value for event in events]))

    def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
        self.calls.append(("call_ended", call, completion))

    def connection_opened(self, origin: str) -> None:
        self.calls.append(("connection_opened", origin))

    def connection_closed(self, origin: str, served: int) -> None:
        self.calls.append(("connection_closed", origin, served))


async def streams(line: Line) -> None:
    while await line.request():
        await line.send(STREAM_HEAD)
        for frame in chat_stream("a", "b"):
            await line.send(chunked(frame, end=False))
            await trio.sleep(0.01)
        await line.send("0\r\n\r\n")


async def test_an_observer_is_given_the_call_and_its_values(autojump_clock: MockClock) -> None:
    notes = Notes()
    request = hello()
    async with open_peer(streams) as peer:
        provider = peer.chat
        async with ms.open_engine([provider], observer=notes) as engine:
            call = engine.start_stream(request)
            completion = await call.wait()
            await until(lambda: engine.statistics().connections[peer.origin].idle == 1)
    start = ms.CallStart(request, provider, "m", "127.0.0.1", peer.port, True)
    assert notes.calls == [
        ("call_started", call, start), ("attempt_started", call, 1), ("connection_opened", peer.origin),
        ("first_token", call), ("events_received", call, ["text_delta"]), ("call_ended", call, completion),
        ("connection_closed", peer.origin, 1),
    ]  # fmt: skip


async def test_an_unstreamed_call_has_no_first_token() -> None:
    script = replies(answer(chat_answer("x")))
    notes = Notes()
    async with open_peer(script) as peer, ms.open_engine([peer.chat], observer=notes) as engine:
        await engine.request(hello())
    assert [name for name, *_ in notes.calls] == [
        "call_started", "attempt_started", "connection_opened", "call_ended", "connection_closed",
    ]  # fmt: skip
    start = notes.calls[0][2]
    assert isinstance(start, ms.CallStart)
    assert not start.stream


async def test_the_hooks_are_the_methods_of_an_observer() -> None:
    assert HOOKS == (
        "call_started", "attempt_started", "first_token", "events_received", "call_ended", "connection_opened",
        "connection_closed", "limiter_changed", "route_changed", "budget_changed",
    )  # fmt: skip
    observer = ms.Observer()
    assert observer.every_event is False
    observer.connection_opened("a")
    observer.connection_closed("a", 1)
    observer.limiter_changed("a", LimiterStatistics())


@pytest.mark.parametrize("every", [1, "yes", None])
async def test_every_event_must_be_true(every: object, autojump_clock: MockClock) -> None:
    notes = Notes()
    notes.every_event = every  # type: ignore[assignment]
    async with open_peer(streams) as peer, ms.open_engine([peer.chat], observer=notes) as engine:
        await engine.start_stream(hello()).wait()
    assert "events_received" not in [name for name, *_ in notes.calls]


async def test_a_raising_observer_is_in_the_log(caplog: pytest.LogCaptureFixture, autojump_clock: MockClock) -> None:
    class Broken(ms.Observer):
        def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
            raise ValueError("mine")

    async with open_peer(streams) as peer, ms.open_engine([peer.chat], observer=Broken()) as engine:
        assert (await engine.start_stream(hello()).wait()).success
    (record,) = caplog.records
    assert (record.name, record.levelno, record.getMessage()) == (
        "manystream.observe", logging.ERROR, "the observer's call_ended raised"
    )  # fmt: skip
    assert record.exc_info is not None


@pytest.mark.parametrize("hook", ["call_started", "attempt_started", "first_token", "events_received", "call_ended"])
async def test_ctrl_c_in_a_hook_ends_the_engine(hook: str, autojump_clock: MockClock) -> None:
    class Interrupted(Notes):
        pass

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    setattr(Interrupted, hook, lambda self, *arguments: interrupt())

    async def use(provider: ms.Provider) -> None:
        async with ms.open_engine([provider], observer=Interrupted()) as engine:
            engine.start_stream(hello())
            await trio.sleep_forever()

    async with open_peer(streams) as peer:
        with pytest.raises(KeyboardInterrupt):
            await use(peer.chat)


async def test_an_observer_s_methods_must_be_plain_functions() -> None:
    class Asynchronous(ms.Observer):
        async def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:  # type: ignore[override]
            pass

    with pytest.raises(ms.InvalidRequestError) as raised:
        async with ms.open_engine([ms.OpenAIChat("k")], observer=Asynchronous()):
            pass
    assert raised.value.field == "observer.call_ended"


# --- an engine's text and its options ---


async def test_the_repr_of_an_engine_says_what_runs() -> None:

    async with open_peer(silent) as peer:
        async with ms.open_engine([peer.chat]) as engine:
            assert repr(engine) == "<Engine no calls yet>"
            assert repr(engine.from_thread) == "<Portal to no calls yet>"
            calls = [engine.start_stream(hello()) for _ in range(2)]
            await until(lambda: engine.statistics().calls == {"waiting": 2})
            assert repr(engine).startswith("<Engine 2 calls, <Pool ")
        assert repr(engine).startswith("<Engine 0 calls, <Pool ")
        assert repr(engine).endswith(", closed>")
        assert [call.state for call in calls] == [ms.CallState.ENDED] * 2
        assert repr(calls[0]) == "<Call stream to peer ended, attempt 1>"
    async with ms.open_engine([ms.OpenAIChat("k")]) as unused:
        pass
    assert repr(unused) == "<Engine no calls yet, closed>"


CLOSED_TEXT = "this engine is closed: its open_engine block was left. Start calls inside it"


DRAINED_TEXT = "this engine takes no more calls: engine.drain() was called. Open another engine"


async def test_the_errors_of_an_engine_that_takes_no_calls(tmp_path: Any) -> None:
    async with ms.open_engine([ms.OpenAIChat("k")]) as engine:
        assert await engine.drain(0)
        for start in (lambda: engine.start_request(hello()), lambda: engine.record(tmp_path / "a")):
            with pytest.raises(ms.EngineClosedError) as raised:
                start()
            assert str(raised.value) == DRAINED_TEXT
    for start in (lambda: engine.start_request(hello()), lambda: engine.record(tmp_path / "a")):
        with pytest.raises(ms.EngineClosedError) as raised:
            start()
        assert str(raised.value) == CLOSED_TEXT
    assert engine.statistics().started == 0


@pytest.mark.parametrize("timeout", [-1, -0.001, math.nan, "5", None])
async def test_a_drain_without_a_time_is_refused(timeout: float) -> None:
    async with ms.open_engine([ms.OpenAIChat("k")]) as engine:
        with pytest.raises(ValueError, match=r"^drain: timeout must be seconds, 0 or more") as raised:
            engine.drain(timeout)
        assert str(raised.value).endswith(f"not {timeout!r}")
        assert engine.end_session("s") is None  # type: ignore[func-returns-value]


async def test_too_many_calls_name_the_limit() -> None:
    async def script(line: Line) -> None:
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=ms.EngineLimits(max_calls=2)) as engine:
        calls = [engine.start_request(hello()) for _ in range(2)]
        with pytest.raises(ms.TooManyCallsError) as raised:
            engine.start_request(hello())
        assert str(raised.value) == (
            "2 calls are running already (limits.max_calls): start this one when another has ended, or open the engine"
            " with a higher limit"
        )
        assert engine.statistics().started == 2
        calls[0].cancel()
        await calls[0].wait()
        engine.start_request(hello())


async def test_calls_have_an_idempotency_key_of_22_characters() -> None:
    from manystream.engine.calls import make_id

    ids = {make_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(each) for each in ids} == {22}


# --- proxies of the environment ---


async def test_an_environment_s_proxy_is_used_unless_switched_off() -> None:
    port = closed_port()
    variables = {"https_proxy": f"http://127.0.0.1:{port}", "OTHER_PROXY": "x", "PLAIN": "y"}

    async def message(**options: Any) -> str:
        provider = ms.OpenAIChat("k", "https://127.0.0.1:9/v1")
        async with ms.open_engine([provider], retry=NO_RETRY, **options) as engine:
            return (await engine.start_request(hello()).wait()).error_message or ""

    assert f"{port}" in await message(environment=variables)
    assert f"{port}" not in await message(environment=variables, proxy="")
    assert f"{port}" in await message(environment={}, proxy=f"http://127.0.0.1:{port}")
    with pytest.raises(ms.InvalidRequestError) as raised:
        await message(proxy="ftp://127.0.0.1:9")
    assert raised.value.field == "proxy"


async def test_a_key_of_the_environment_is_used() -> None:
    async with open_peer(replies(answer(error_body("no"), status="401 No"))) as peer:
        provider = ms.OpenAIChat(None, peer.url, profile="openai-chat")
        async with ms.open_engine([provider], environment={"OPENAI_API_KEY": "from-the-environment"}) as engine:
            completion = await engine.start_request(hello()).wait()
    assert b"authorization: Bearer from-the-environment\r\n" in peer.requests[0]
    assert "from-the-environment" not in repr(completion)


# --- events of calls ---


async def test_the_start_of_a_stream_comes_with_its_first_content(autojump_clock: MockClock) -> None:
    seen: list[tuple[float, dict[str, object]]] = []

    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(chat_chunk(""), end=False))
        await trio.sleep(3)
        await line.send(chunked(chat_chunk("x"), end=False))
        await trio.sleep(3)
        await line.send(chunked(chat_chunk(finish="stop"), "data: [DONE]\n\n"))

    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        began = trio.current_time()

        def on_event(event: ms.Event) -> None:
            seen.append((round(trio.current_time() - began, 1), {"type": event.type.value, **asdict(event)}))

        completion = await engine.start_stream(hello(), on_event).wait()
    assert [(at, event["type"]) for at, event in seen] == [(3.0, "start"), (3.0, "text_delta"), (6.0, "done")]
    assert seen[1][1] == {"type": "text_delta", "index": 0, "text": "x"}
    assert completion.timings.first_token == pytest.approx(3, abs=0.1)


# --- the reason of an end ---


hangs = reply_and_hold(stream_of(chat_chunk("a"), end=False))


async def test_a_call_that_is_ended_says_by_whom() -> None:
    async with open_peer(hangs) as peer, ms.open_engine([peer.chat]) as engine:
        cancelled, closed = engine.start_stream(hello()), engine.start_stream(hello())
        await until(lambda: engine.statistics().events == 4)
        cancelled.cancel()
        assert cancelled.completion is None  # it is delivered at the next tick
        cancelled.cancel()
        assert (await cancelled.wait()).error_message == "the call was cancelled"
    assert closed.completion.error_message == "the engine was closed"
    for call in (cancelled, closed):
        error = call.completion.error
        assert (error.category, error.retryable, error.provider, error.model) == (
            ms.ErrorCategory.CANCELLED, False, "peer", "m"
        )  # fmt: skip
        assert (call.completion.http_status, call.completion.attempts) == (200, 1)
        assert call.completion.response.text == "a"


async def test_a_request_s_body_is_dropped_with_the_first_content() -> None:
    """No attempt follows, and a conversation may be many times as large as its answer."""
    release = trio.Event()

    async def late(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD)
        await release.wait()
        await line.send(chunked(chat_chunk("a"), end=False))
        await line.closed_by_peer()

    async with open_peer(late) as peer, ms.open_engine([peer.chat]) as engine:
        engine.start_stream(hello())
        (running,) = engine._calls.running()
        await until(lambda: engine.statistics().calls == {"reading": 1})
        assert b"hello" in running.prepared.body
        release.set()
        await until(lambda: engine.statistics().events == 2)
        assert running.prepared.body == b""


async def test_a_reading_call_is_quiet_since_its_last_byte(autojump_clock: MockClock) -> None:
    async with open_peer(hangs) as peer, ms.open_engine([peer.chat]) as engine:
        await trio.sleep(3)
        engine.start_stream(hello())
        (running,) = engine._calls.running()
        assert quiet(running, trio.current_time() + 2) == pytest.approx(2, abs=0.05)
        await until(lambda: engine.statistics().events == 2)
        await trio.sleep(7)
        assert quiet(running, trio.current_time()) == pytest.approx(7, abs=0.3)
        assert running.attempt is not None
        assert running.attempt.label == "call 1 (peer/m)"


@pytest.mark.parametrize("door", ["trio", "threads"])
async def test_a_map_runs_a_thousand_calls_unless_it_is_told(door: str) -> None:
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")]) as engine:
        requests = [hello()]
        maps: tuple[Any, ...] = (
            (engine.map(requests), engine.map(requests, concurrency=7), engine.map(requests, ordered=True))
            if door == "trio" else (engine.from_thread.map(requests), engine.from_thread.map(requests, concurrency=7),
            engine.from_thread.map(requests, ordered=True))
        )  # fmt: skip
        assert [each._calls.room for each in maps] == [1000, 7, 1000]
        assert [each._calls.ordered for each in maps] == [False, False, True]
        assert engine.statistics().started == 0


class HookNotes(Observer):
    """An observer that records the calls of its hooks."""

    every_event = True

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.starts: list[CallStart] = []

    def call_started(self, call: ms.Call, start: CallStart) -> None:
        self.starts.append(start)
        self.calls.append(f"call {start.model}")

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self.calls.append(f"attempt {number}")

    def first_token(self, call: ms.Call) -> None:
        self.calls.append("first token")

    def events_received(self, call: ms.Call, events: Sequence[ms.Event]) -> None:
        self.calls.append("chunk " + " ".join(event.text for event in events if isinstance(event, ms.TextDelta)))

    def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
        self.calls.append(f"ended {completion.error_category or 'well'}")

    def connection_opened(self, origin: str) -> None:
        self.calls.append("opened")

    def connection_closed(self, origin: str, served: int) -> None:
        self.calls.append(f"closed after {served}")


serve_streams = replies(stream_of(*chat_stream("a", "b", "c")))


async def test_a_stream_is_observed_from_its_start_to_its_end() -> None:
    notes = HookNotes()
    async with open_peer(serve_streams) as peer, ms.open_engine([peer.chat], observer=notes) as engine:
        recorder = Recorder()
        await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
        await engine.start_stream(hello()).wait()
        await until(lambda: engine.statistics().connections[peer.origin].idle == 1)
    stream = ["first token", "chunk b", "chunk c", "ended well"]
    expected = ["call m", "attempt 1", "opened", *stream, "call m", "attempt 1", *stream, "closed after 2"]
    assert notes.calls == expected
    assert recorder.text == "abc"
    (start, _) = notes.starts
    assert (start.host, start.port, start.stream, start.provider.name) == ("127.0.0.1", peer.port, True, "peer")


async def test_every_attempt_and_one_end_are_observed() -> None:
    notes = HookNotes()
    failures = iter(["503 Service Unavailable"])

    async def script(line: Line) -> None:
        while await line.request():
            failure = next(failures, None)
            await line.send(answer(error_body("busy"), status=failure) if failure else answer(chat_answer("hello")))

    retry = ms.Retry(max_attempts=2, base=0.01, jitter=0)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], observer=notes, retry=retry) as engine:
        assert (await engine.start_request(hello()).wait()).success
    assert [word for word in notes.calls if word[0] in "ae"] == ["attempt 1", "attempt 2", "ended well"]


async def test_the_end_of_a_cancelled_call_is_observed_once() -> None:
    notes = HookNotes()

    async with open_peer(silent) as peer, ms.open_engine([peer.chat], observer=notes) as engine:
        call = engine.start_stream(hello())
        await until(lambda: "opened" in notes.calls)
        call.cancel()
        await call.wait()
    assert notes.calls == ["call m", "attempt 1", "opened", "closed after 0", "ended cancelled"]


async def test_a_request_that_cannot_be_sent_is_not_observed() -> None:
    notes = HookNotes()
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], observer=notes) as engine:
        with pytest.raises(ms.InvalidRequestError):
            engine.start_stream(ms.Request("m", []))
    assert notes.calls == []


class Broken(Observer):
    """An observer whose every hook raises."""

    def __getattribute__(self, name: str) -> object:
        def fail(*_: object) -> None:
            raise ValueError(name)

        return fail if name in HOOKS else super().__getattribute__(name)

    every_event = True

    def events_received(self, call: ms.Call, events: Sequence[ms.Event]) -> None:
        raise AssertionError


async def test_an_observer_that_raises_is_logged_and_harms_no_call(caplog: pytest.LogCaptureFixture) -> None:
    traffic = ms.Traffic(routes=[ms.Route("fast", ["peer/m"])], budgets=[ms.Budget(calls=9)])
    with caplog.at_level(logging.ERROR, "manystream.observe"):
        async with (
            open_peer(serve_streams) as peer,
            ms.open_engine([peer.chat], observer=Broken(), traffic=traffic) as engine,
        ):
            recorder = Recorder()
            await engine.start_stream(
                ms.Request("fast", hello().messages), recorder.on_event, recorder.on_completion
            ).wait()
    assert recorder.text == "abc"
    assert recorder.completion.success
    hooks = {record.getMessage().split()[2].removesuffix("") for record in caplog.records}
    assert hooks == set(HOOKS)


async def test_chunks_cost_nothing_without_events_received() -> None:
    class Ends(Observer):
        ends = 0

        def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
            self.ends += 1

        def events_received(self, call: ms.Call, events: Sequence[ms.Event]) -> None:
            raise AssertionError("every_event is not set")

    seen: list[str] = []

    def on_event(event: ms.Event) -> None:
        import sys

        if isinstance(event, ms.TextDelta) and event.text == "c":
            frame = sys._getframe()
            while frame is not None:
                seen.append(frame.f_code.co_name)
                frame = frame.f_back

    async with open_peer(serve_streams) as peer, ms.open_engine([peer.chat], observer=(ends := Ends())) as engine:
        await engine.start_stream(hello(), on_event).wait()
    assert ends.ends == 1
    assert "deliver" in seen
    assert "events_received" not in seen
    await trio.lowlevel.checkpoint()


async def test_statistics_name_the_call_with_the_slow_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0

    class Time:
        perf_counter = staticmethod(lambda: now)

    async def script(line: Line) -> None:
        while await line.request():
            await line.send(STREAM_HEAD)
            await line.send(chunked(*chat_stream("one")))

    def slow(event: ms.Event) -> None:
        nonlocal now
        if isinstance(event, ms.TextDelta):
            now += 0.25

    monkeypatch.setattr("manystream.transport.loop.time", Time)
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        await engine.start_stream(hello()).wait()
        assert engine.statistics().loop_culprit == ""
        await engine.start_stream(hello(), slow).wait()
        statistics = engine.statistics()
    assert statistics.loop_lag == pytest.approx(0.25)
    assert statistics.loop_culprit == "call 2 (peer/m)"
