"""The limit for running calls, with servers that report how many calls run and wait there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from tests.support.peers import Line, answer, chat_stream, open_peer, stream_of

HELLO = [ms.Message.user("a")]


def vllm(server: Batch) -> str:
    return f"vllm:num_requests_running{{}} {server.running}.0\nvllm:num_requests_waiting{{}} {server.waiting}.0\n"


def sglang(server: Batch) -> str:
    return json.dumps({"loads": [{"num_running_reqs": server.running, "num_waiting_reqs": server.waiting}]})


@dataclass
class Batch:
    """An inference server that runs so many calls at a time, with a queue inside.

    report: what it says of its queue; None: 404.
    late: seconds until it says so.
    in_heads: whether the head of an unstreamed answer says how many wait.
    spread: the seconds of a call differ by up to this part of them.
    """

    slots: int = 40
    seconds: float = 2.0
    report: Callable[[Batch], str] | None = vllm
    late: float = 0.0
    in_heads: bool = False
    spread: float = 0.0
    running: int = 0
    waiting: int = 0
    most: int = 0
    asked: list[float] = field(default_factory=list[float])
    heads: list[bytes] = field(default_factory=list[bytes])
    waits: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self._places = trio.Semaphore(self.slots)
        self._chance = random.Random(3)

    async def serve(self, line: Line) -> None:
        while request := await line.request():
            if request.startswith(b"GET"):
                self.asked.append(trio.current_time())
                self.heads.append(request)
                await trio.sleep(self.late)
                status = "404 Not Found" if self.report is None else "200 OK"
                await line.send(answer("" if self.report is None else self.report(self), status=status))
                continue
            self.waiting += 1
            self.most = max(self.most, self.waiting + self.running)
            since = trio.current_time()
            await self._places.acquire()
            self.waits.append(trio.current_time() - since)
            self.waiting -= 1
            self.running += 1
            try:
                await trio.sleep(self.seconds * (1 + self.spread * self._chance.uniform(-1, 1)))
                if b'"stream":true' in request:
                    await line.send(stream_of(*chat_stream("fine")))
                else:
                    waiting = json.dumps({"named_metrics": {"num_requests_waiting": float(self.waiting)}})
                    head = f"endpoint-load-metrics: JSON {waiting}\r\n" if self.in_heads else ""
                    await line.send(answer(json.dumps(WHOLE), headers=head))
            finally:
                self.running -= 1
                self._places.release()


WHOLE = {
    "id": "a",
    "choices": [{"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


@pytest.mark.parametrize(
    ("profile", "path", "report"), [("vllm", b"/metrics", vllm), ("sglang", b"/v1/loads?include=core", sglang)]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_limit_is_what_runs_and_a_tenth(
    profile: str, path: bytes, report: Callable[[Batch], str], stream: bool, autojump_clock: MockClock
) -> None:
    autojump_clock.autojump_threshold = 0.005  # what is sent arrives before the clock goes on
    server = Batch(slots=20, report=report)
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("sk-canary", peer.url, name="here", profile=profile)
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            started = trio.current_time()
            start = engine.start_stream if stream else engine.start_request
            calls = [start(ms.Request("here/m", HELLO)) for _ in range(400)]
            assert all([(await call.wait()).success for call in calls])
            seconds = trio.current_time() - started
            (limiter,) = engine.statistics().traffic.limiters.values()
    assert seconds < 1.15 * 400 / server.slots * server.seconds
    assert server.heads[0].startswith(b"GET " + path + b" HTTP/1.1\r\n")
    assert b"Bearer sk-canary" in server.heads[0]
    assert server.most <= 3 * server.slots
    assert limiter.concurrent is not None
    assert limiter.concurrent_by == "server_queue"
    assert limiter.server_load is not None
    assert len(server.asked) < 5 * seconds


async def test_hardly_a_call_waits_where_places_show(autojump_clock: MockClock) -> None:
    """A server that runs the same number each time that calls wait is used whole without a tenth that waits there."""
    autojump_clock.autojump_threshold = 0.005
    server = Batch(spread=0.8)
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            calls = [engine.start_stream(ms.Request("here/m", HELLO)) for _ in range(500)]
            assert all([(await call.wait()).success for call in calls])
            seconds = trio.current_time()
    assert seconds < 1.2 * 500 / server.slots * server.seconds
    assert fmean(server.waits[200:]) < 0.05 * server.seconds


async def test_it_is_asked_only_while_calls_wait(autojump_clock: MockClock) -> None:
    server = Batch()
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            for _ in range(5):
                assert (await engine.start_stream(ms.Request("here/m", HELLO)).wait()).success
    assert server.asked == []


async def test_a_report_that_comes_late_is_one_and_raises_nothing(autojump_clock: MockClock) -> None:
    """The timeouts of a request end with its answer, and do not take the place of the next one's."""
    server = Batch(late=1.5)
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            calls = [engine.start_stream(ms.Request("here/m", HELLO)) for _ in range(80)]
            assert all([(await call.wait()).success for call in calls])
            seconds = trio.current_time()
            (limiter,) = engine.statistics().traffic.limiters.values()
    assert limiter.concurrent_by == "server_queue"
    assert server.most < 32, "it does not double with such reports"
    assert len(server.asked) <= seconds / 1.75 + 1
    assert all(later - earlier >= 1.749 for earlier, later in zip(server.asked, server.asked[1:], strict=False))


async def test_the_head_of_an_answer_says_how_many_wait(autojump_clock: MockClock) -> None:
    server = Batch(slots=20, report=None, in_heads=True)
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            calls = [engine.start_request(ms.Request("here/m", HELLO)) for _ in range(400)]
            assert all([(await call.wait()).success for call in calls])
            (limiter,) = engine.statistics().traffic.limiters.values()
    assert limiter.concurrent_by == "server_queue"
    assert limiter.server_load is not None
    assert limiter.server_load.is_by_header
    assert trio.current_time() < 1.5 * 400 / server.slots * server.seconds
    assert server.most <= 4 * server.slots


def no_figures(server: Batch) -> str:
    return "<html>"


def endless(server: Batch) -> str:
    return "#" * (1 << 20) + vllm(server)


@pytest.mark.parametrize("report", [None, no_figures, endless])
async def test_a_server_that_does_not_say_is_asked_once_a_minute(
    report: Callable[[Batch], str] | None, autojump_clock: MockClock
) -> None:
    server = Batch(slots=20, seconds=4.0, report=report)
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        async with ms.open_engine([provider], traffic=ms.Traffic()) as engine:
            calls = [engine.start_stream(ms.Request("here/m", HELLO)) for _ in range(400)]
            assert all([(await call.wait()).success for call in calls])
            (limiter,) = engine.statistics().traffic.limiters.values()
    assert (limiter.concurrent_by, limiter.server_load) == ("learned", None)
    assert len(server.asked) == 1 + int((trio.current_time() - server.asked[0]) / 60)
    assert all(later - earlier >= 60 for earlier, later in zip(server.asked, server.asked[1:], strict=False))


async def test_a_declared_number_is_kept_whatever_the_server_says(autojump_clock: MockClock) -> None:
    server = Batch()
    async with open_peer(server.serve) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="here", profile="vllm")
        traffic = ms.Traffic(rates={"here": ms.RateLimit(concurrent=20)})
        async with ms.open_engine([provider], traffic=traffic) as engine:
            calls = [engine.start_stream(ms.Request("here/m", HELLO)) for _ in range(100)]
            assert all([(await call.wait()).success for call in calls])
            (limiter,) = engine.statistics().traffic.limiters.values()
    assert (server.most, limiter.concurrent, limiter.concurrent_by) == (20, 20, "declared")
