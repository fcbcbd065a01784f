"""One wire event with thousands of parts is delivered a few at a time, with backpressure."""

import asyncio
import json
from collections.abc import Callable

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.engine.call.body import STEP_EVENTS
from manystream.engine.frontends.stream import HIGH_WATER
from manystream.portal import open_portal
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Peer,
    Recorder,
    answer,
    chat_stream,
    chunked,
    hello,
    open_descriptors,
    open_peer,
    stream_of,
    until,
)

PARTS = 5000
MOST_WAITING = HIGH_WATER + STEP_EVENTS


def frame(payload: object) -> str:
    return f"data: {json.dumps(payload)}\n\n"


def gemini(parts: list[str], finish: str | None = None) -> object:
    content = {"parts": [{"text": text} for text in parts]}
    return {"candidates": [{"content": content, **({"finishReason": finish} if finish else {})}]}


def gemini_of(peer: Peer) -> ms.Provider:
    return ms.Gemini("sk-canary-secret", base_url=peer.origin, name="peer")


MANY = [f"{number} " for number in range(PARTS)]
CHAT_CALLS = [
    {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}} for number in range(PARTS // 4)
]
OUTPUT = [
    {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"} for number in range(PARTS // 4)
]

FORMS: dict[str, tuple[Callable[[Peer], ms.Provider], list[bytes], int]] = {
    "parts in the middle": (
        gemini_of,
        [STREAM_HEAD.encode(), chunked(frame(gemini(MANY)), frame(gemini(["end"], "STOP")))],
        PARTS + 1,
    ),
    "two such events in one read": (
        gemini_of,
        [STREAM_HEAD.encode(), chunked(frame(gemini(MANY)) + frame(gemini(MANY)) + frame(gemini(["end"], "STOP")))],
        2 * PARTS + 1,
    ),
    "parts in the last event": (
        gemini_of,
        [STREAM_HEAD.encode(), chunked(frame(gemini(["a"])), frame(gemini(MANY, "STOP")))],
        PARTS + 1,
    ),
    "parts in an event whose end is missing": (
        gemini_of,
        [STREAM_HEAD.encode(), chunked(frame(gemini(["a"])), frame(gemini(MANY, "STOP")).rstrip("\n"))],
        PARTS + 1,
    ),
    "a stream that was answered as a whole": (
        gemini_of,
        [answer(json.dumps([gemini(MANY[:1000]), {"candidates": [{"content": {"parts": [
            {"functionCall": {"name": "f", "args": {}}}] * 1000}, "finishReason": "STOP"}]}]))],
        1 + 3 * 1000,
    ),
    "tool calls": (
        lambda peer: peer.chat,
        [STREAM_HEAD.encode(), chunked(
            frame({"choices": [{"index": 0, "delta": {"tool_calls": CHAT_CALLS}}]}), *chat_stream("a"))],
        3 * len(CHAT_CALLS) + 1,
    ),
    "the final response": (
        lambda peer: ms.OpenAIResponses("sk-canary-secret", base_url=peer.url, name="peer"),
        [STREAM_HEAD.encode(), chunked(frame(
            {"type": "response.completed", "response": {"status": "completed", "output": OUTPUT}}))],
        3 * len(OUTPUT),
    ),
}  # fmt: skip
"""Name → the bytes of the stream, and its number of events besides `Start` and `Done`."""


def serving(pieces: list[bytes]) -> Callable[[Line], object]:
    async def script(line: Line) -> None:
        while await line.request():
            for piece in pieces:
                await line.send(piece)

    return script


@pytest.mark.parametrize("name", FORMS)
async def test_the_high_water_mark_holds_within_one_event(name: str) -> None:
    provider, pieces, count = FORMS[name]
    most = 0
    async with (
        open_peer(serving(pieces)) as peer,  # type: ignore[arg-type]
        ms.open_engine([provider(peer)], proxy="", retry=NO_RETRY) as engine,
        engine.stream(hello()) as events,
    ):
        taken: list[ms.Event] = []
        async for event in events:
            taken.append(event)
            if len(taken) % 500 == 1:
                await trio.testing.wait_all_tasks_blocked(0.006)
            most = max(most, len(events._waiting))  # pyright: ignore[reportPrivateUsage]
    assert most <= MOST_WAITING
    assert [type(taken[0]), type(taken[-1])] == [ms.Start, ms.Done]
    assert len(taken) == count + 2
    assert events.completion.success
    text = "".join(event.text for event in taken if isinstance(event, ms.TextDelta))
    assert events.completion.response.text == text


@pytest.mark.parametrize("name", FORMS)
async def test_callbacks_get_all_parts_and_the_connection_is_reused(name: str) -> None:
    provider, pieces, count = FORMS[name]
    async with (
        open_peer(serving(pieces)) as peer,  # type: ignore[arg-type]
        ms.open_engine([provider(peer)], proxy="", retry=NO_RETRY) as engine,
    ):
        for _ in range(2):
            recorder = Recorder()
            call = engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
            with trio.fail_after(10):
                await call.wait()
            assert recorder.completion.success, recorder.completion
            assert len(recorder.events) == count + 2
            await until(lambda: not any(origin.active for origin in engine.statistics().connections.values()))
        assert len(peer.lines) == 1


async def test_other_streams_continue_meanwhile() -> None:
    """The callback of the large event records the progress of another call."""
    provider, pieces, _ = FORMS["parts in the middle"]
    progress: set[bool] = set()
    async with (
        open_peer(serving(pieces)) as large,  # type: ignore[arg-type]
        open_peer(serving([stream_of(*chat_stream("a"))])) as small,  # type: ignore[arg-type]
        ms.open_engine([provider(large)], proxy="") as engine,
        ms.open_engine([small.chat], proxy="") as others,
    ):
        other: list[ms.Call] = []

        def on_event(event: ms.Event) -> None:
            if not other:
                other.append(others.start_stream(hello()))
            progress.add(other[0].completion is not None)

        await engine.start_stream(hello(), on_event).wait()
    assert progress == {False, True}


@pytest.mark.parametrize("after", [1, STEP_EVENTS, 1000])
@pytest.mark.parametrize("name", ["parts in the middle", "the final response", "a stream that was answered as a whole"])
async def test_a_call_cancelled_within_an_event_gets_no_more_parts(name: str, after: int) -> None:
    provider, pieces, _ = FORMS[name]
    before = open_descriptors()
    async with (
        open_peer(serving(pieces)) as peer,  # type: ignore[arg-type]
        ms.open_engine([provider(peer)], proxy="", retry=NO_RETRY) as engine,
    ):
        recorder = Recorder()

        def on_event(event: ms.Event) -> None:
            recorder.on_event(event)
            if len(recorder.events) == after:
                call.cancel()

        call = engine.start_stream(hello(), on_event, recorder.on_completion)
        completion = await call.wait()
        assert completion.error_category is ms.ErrorCategory.CANCELLED
        await trio.testing.wait_all_tasks_blocked(0.006)
        assert len(recorder.events) == after + 1, "with its Error"
    assert open_descriptors() == before


async def test_a_broken_connection_is_reported_after_the_parts() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(frame(gemini(MANY)), end=False))
        line.reset()

    async with (
        open_peer(script) as peer,
        ms.open_engine([gemini_of(peer)], proxy="", retry=NO_RETRY) as engine,
        engine.stream(hello()) as events,
    ):
        taken = 0

        async def take() -> None:
            nonlocal taken
            async for _ in events:
                taken += 1
                if taken % 1000 == 1:
                    await trio.testing.wait_all_tasks_blocked(0.006)

        with pytest.raises(ms.ProviderError, match="truncated stream"):
            await take()
        assert taken == PARTS + 1


async def test_no_timeout_ends_a_call_while_its_consumer_pauses(autojump_clock: MockClock) -> None:
    for name in ("parts in the middle", "parts in the last event", "the final response"):
        provider, pieces, count = FORMS[name]
        async with (
            open_peer(serving(pieces)) as peer,  # type: ignore[arg-type]
            ms.open_engine([provider(peer)], proxy="", retry=NO_RETRY) as engine,
            engine.stream(hello()) as events,
        ):
            taken = 0
            async for _ in events:
                taken += 1
                if taken % 1000 == 1:
                    await trio.sleep(3600)
            assert taken == count + 2


async def test_the_high_water_mark_holds_for_asyncio_and_threads() -> None:
    _, pieces, count = FORMS["parts in the middle"]

    async def with_asyncio(provider: ms.Provider) -> None:
        async with ms.open_engine([provider], proxy="") as engine, engine.stream(hello()) as events:
            taken = 0
            async for _ in events:
                taken += 1
                if taken == 10:
                    await asyncio.sleep(0.05)
                    assert len(events._waiting) <= MOST_WAITING  # pyright: ignore[reportPrivateUsage]
            assert taken == count + 2

    def with_a_portal(provider: ms.Provider) -> None:
        with open_portal([provider], proxy="") as portal, portal.stream(hello()) as events:
            assert sum(1 for _ in events) == count + 2

    async with open_peer(serving(pieces)) as peer:  # type: ignore[arg-type]
        provider = gemini_of(peer)
        await trio.to_thread.run_sync(lambda: asyncio.run(with_asyncio(provider)))
        await trio.to_thread.run_sync(lambda: with_a_portal(provider))
