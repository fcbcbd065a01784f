"""The memory of all running responses of one engine is bounded: beyond the limit the largest one fails, no other."""

import json

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.engine import EngineLimits
from manystream.engine.call.attempt import Attempt
from manystream.engine.call.buffered import STEP_BYTES, Buffered
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.wire.answer_bytes import kept_bytes
from tests.support.peers import (
    CHAT_DONE,
    NO_RETRY,
    STREAM_HEAD,
    Line,
    chat_answer,
    chat_chunk,
    chunked,
    hello,
    open_peer,
    reply_once,
    stream_of,
    until,
)

LIMIT = 1_000_000
LIMITS = EngineLimits(max_buffered_bytes=LIMIT)
NAMED = f"more than {LIMIT} bytes, this one the most (limits.max_buffered_bytes)"


class Holding:
    """A holder that reports the kept size that the test sets."""

    def __init__(self, kept: int = 0) -> None:
        self.kept = kept
        self.counted = 0
        self.gone = False

    def kept_bytes(self) -> int:
        self.counted += 1
        return self.kept

    def give_way(self) -> None:
        self.gone = True


def test_the_largest_response_fails_to_make_room() -> None:
    buffered = Buffered(1000)
    small, large, other = Holding(400), Holding(500), Holding(300)
    for holder in (small, large, other):
        buffered.grown(holder, holder.kept)
    assert [holder.gone for holder in (small, large, other)] == [False, True, False]
    assert buffered.total == 700
    for holder in (small, large, other):
        buffered.forget(holder)
        buffered.forget(holder)
    assert buffered.total == 0


def test_bytes_received_and_not_kept_do_not_count() -> None:
    buffered = Buffered(1000)
    holders = [Holding(10) for _ in range(10)]
    for _ in range(1000):
        for holder in holders:
            buffered.grown(holder, 50)
    assert not any(holder.gone for holder in holders)
    assert buffered.total <= 1000


def test_counting_takes_linear_time() -> None:
    """Responses that are kept whole, with the limit reached all the time."""
    buffered = Buffered(10_000)
    holders: list[Holding] = []
    received = work = 0
    for number in range(5000):
        if not number % 10:
            holders.append(Holding())
        holder = next((each for each in reversed(holders) if not each.gone), holders[-1])
        holder.kept += 100
        received += 100
        buffered.grown(holder, 100)
    work = sum(holder.counted * holder.kept for holder in holders)
    assert work < 10 * received


@pytest.mark.parametrize("stream", [True, False])
async def test_the_call_that_keeps_most_fails_naming_the_limit(stream: bool) -> None:
    """One of four responses is larger than the others; none is too large by itself."""
    sizes = [200_000, 200_000, 700_000, 200_000]
    go_on = trio.Event()

    async def script(line: Line) -> None:
        request = await line.request()
        size = sizes[int(request.partition(b"number-")[2][:1])]
        if stream:
            await line.send(STREAM_HEAD)
            for _ in range(size // 1000):
                await line.send(chunked(chat_chunk("x" * 1000), end=False))
            await go_on.wait()
            await line.send(chunked(chat_chunk("end"), chat_chunk(finish="stop"), CHAT_DONE))
        else:
            body = chat_answer("x" * size).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            await line.send(head.encode() + body[:-100])
            await go_on.wait()
            await line.send(body[-100:])

    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], limits=LIMITS, retry=NO_RETRY, proxy="") as engine,
    ):
        requests = [ms.Request("m", [ms.Message.user(f"number-{number}")]) for number in range(4)]
        start = engine.start_stream if stream else engine.start_request
        calls = [start(request) for request in requests]
        await until(lambda: calls[2].completion is not None)
        go_on.set()
        completions = [await call.wait() for call in calls]
    assert [completion.success for completion in completions] == [True, True, False, True]
    error = completions[2].error
    assert error.message.endswith(NAMED)
    assert not error.retryable


async def test_many_streams_of_short_deltas_do_not_count_as_large() -> None:
    """Each stream receives two megabytes, of which it keeps about ten thousand letters."""
    chunk = chat_chunk("word ", usage={"prompt_tokens": 5}, padding="x" * 900)
    body = chunked(*[chunk] * 2000, end=False)
    assert len(body) > 2 * LIMIT
    script = reply_once(STREAM_HEAD.encode() + body + chunked(chat_chunk(finish="stop"), CHAT_DONE))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=LIMITS, proxy="") as engine:
        calls = [engine.start_stream(hello()) for _ in range(8)]
        completions = [await call.wait() for call in calls]
    assert all(completion.success for completion in completions)


async def test_the_size_of_a_response_is_checked_once_per_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check must cost nothing per event. The server waits until each of its last chunks has been read."""
    steps: list[int] = []
    texts: list[str] = []
    grown = Buffered.grown

    def counted(buffered: Buffered, owner: Attempt, size: int) -> None:
        steps.append(size)
        grown(buffered, owner, size)

    def on_event(event: ms.Event) -> None:
        if isinstance(event, ms.TextDelta):
            texts.append(event.text)

    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of(*[chat_chunk("x" * 1000)] * 100, end=False))
        for number in range(20):
            await until(lambda awaited=100 + number: len(texts) == awaited)
            await line.send(chunked(chat_chunk("x"), end=False))
        await line.send(chunked(chat_chunk(finish="stop"), CHAT_DONE))

    monkeypatch.setattr(Buffered, "grown", counted)
    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=LIMITS, proxy="") as engine:
        completion = await engine.start_stream(hello(), on_event).wait()
    assert completion.success
    assert len(texts) == 120
    assert steps
    assert all(size >= STEP_BYTES for size in steps)


async def test_an_incomplete_event_counts() -> None:
    async def script(line: Line) -> None:
        await line.request()
        await line.send(stream_of("data: ", end=False))
        for _ in range(700):
            await line.send(chunked("x" * 1000, end=False))
        await trio.sleep_forever()

    async with (
        open_peer(script) as peer,
        ms.open_engine([peer.chat], limits=LIMITS, retry=NO_RETRY, proxy="") as engine,
    ):
        calls = [engine.start_stream(hello()) for _ in range(5)]
        await until(lambda: sum(call.completion is not None for call in calls) >= 4)
        await trio.testing.wait_all_tasks_blocked(0.006)
        ended = [call.completion for call in calls if call.completion is not None]
        assert len(ended) == 4, "one of them has room"
        assert all(NAMED in (completion.error_message or "") for completion in ended)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_machine_s_kept_size_is_about_its_text(dialect: str) -> None:
    frames = {
        "openai-chat": {"choices": [{"index": 0, "delta": {"content": "x" * 1000}, "logprobs": None}]},
        "openai-responses": {
            "type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "x" * 1000},
        "anthropic": {
            "type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 1000}},
        "gemini": {"candidates": [{"content": {"parts": [{"text": "x" * 1000}]}}]},
        "gemini-interactions": {
            "event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "x" * 1000}},
    }  # fmt: skip
    providers = {
        "openai-chat": ms.OpenAIChat, "openai-responses": ms.OpenAIResponses,
        "anthropic": ms.Anthropic, "gemini": ms.Gemini,
        "gemini-interactions": ms.GeminiInteractions,
    }  # fmt: skip
    machine = DIALECTS[dialect].machine(providers[dialect]("key", "http://127.0.0.1"), lambda: "id")
    for number in range(100):
        before = kept_bytes(machine)
        machine.feed("", json.dumps(frames[dialect]).encode())
        assert 1000 <= kept_bytes(machine) - before < (1200 if number > 1 else 3000)
    assert STEP_BYTES < kept_bytes(machine) < 105_000


def test_an_answer_is_counted_again_after_growing_by_a_quarter() -> None:
    buffered = Buffered(100)
    one, other = Holding(8), Holding(200)
    buffered.grown(one, 100)
    assert (buffered.total, one.counted) == (100, 0)
    buffered.grown(one, 1)
    assert (buffered.total, one.counted) == (8, 1)
    buffered.grown(one, 2)
    buffered.grown(other, 91)
    assert (one.counted, other.counted, other.gone, buffered.total) == (1, 1, True, 10)
    one.kept = 11
    buffered.grown(one, 1)
    buffered.grown(Holding(200), 90)
    assert (one.counted, buffered.total) == (2, 11)


def test_counting_stops_when_half_of_the_limit_is_free() -> None:
    for kept, counts in ((10, (1, 0)), (11, (1, 1))):
        buffered = Buffered(100)
        large, small = Holding(kept), Holding(40)
        buffered.grown(small, 40)
        buffered.grown(large, 61)
        assert (large.counted, small.counted) == counts
        assert (buffered.total, large.gone, small.gone) == (40 + kept, False, False)
