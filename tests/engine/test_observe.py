"""Observers: the calls of their hooks and the order, that they cannot harm a call, and that they are free if unused."""

import logging
from collections.abc import Sequence

import pytest
import trio

import manystream as ms
from manystream.engine.observe.observer import HOOKS, CallStart, Observer
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    error_body,
    hello,
    open_peer,
    until,
)


class Notes(Observer):
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


async def serve_streams(line: Line) -> None:
    while await line.request():
        await line.send(STREAM_HEAD + chunked(*chat_stream("a", "b", "c")).decode())


async def test_a_stream_is_observed_from_its_start_to_its_end() -> None:
    notes = Notes()
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
    notes = Notes()
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
    notes = Notes()

    async def script(line: Line) -> None:
        await line.request()
        await line.closed_by_peer()

    async with open_peer(script) as peer, ms.open_engine([peer.chat], observer=notes) as engine:
        call = engine.start_stream(hello())
        await until(lambda: "opened" in notes.calls)
        call.cancel()
        await call.wait()
    assert notes.calls == ["call m", "attempt 1", "opened", "closed after 0", "ended cancelled"]


async def test_a_request_that_cannot_be_sent_is_not_observed() -> None:
    notes = Notes()
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
