"""Scarce resources: no descriptor left, slow error bodies, calls cancelled in the queue, huge DNS results."""

import errno
import gc
import socket
import tracemalloc

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.engine import EngineLimits
from manystream.transport import dial as dialling
from manystream.transport.backend import Backend
from manystream.transport.pool import PoolLimits
from manystream.transport.resolve import Address
from tests.support.peers import (
    NO_RETRY,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_chunk,
    chat_stream,
    error_body,
    hello,
    open_peer,
    replies,
    reply_and_hold,
    stream_of,
)

serve_soundly = replies(answer(chat_answer("fine")))


async def test_idle_connections_free_descriptors(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    """Ten idle connections use the descriptors that another origin's dial needs: it succeeds in the first attempt."""
    opened: list[socket.socket] = []
    original = dialling._connect_one

    async def limited(address: Address, backend: Backend) -> socket.socket:
        if sum(sock.fileno() >= 0 for sock in opened) >= 10:
            raise OSError(errno.EMFILE, "Too many open files")
        sock = await original(address, backend)
        opened.append(sock)
        return sock

    monkeypatch.setattr(dialling, "_connect_one", limited)
    async with open_peer(serve_soundly) as one, open_peer(serve_soundly) as other:
        first = ms.OpenAIChat(api_key="k", base_url=one.url, name="first")
        second = ms.OpenAIChat(api_key="k", base_url=other.url, name="second")
        async with ms.open_engine([first, second], retry=NO_RETRY) as engine:
            calls = [engine.start_request(ms.Request("first/m", [ms.Message.user("x")])) for _ in range(10)]
            assert all([(await call.wait()).success for call in calls])
            began = trio.current_time()
            completion = await engine.start_request(ms.Request("second/m", [ms.Message.user("x")])).wait()
            assert (completion.error, completion.attempts) == (None, 1)
            assert trio.current_time() - began < 1


async def test_without_idle_connections_exhaustion_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def none_left(_: Address, backend: Backend) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(dialling, "_connect_one", none_left)
    provider = ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:9/v1")
    async with ms.open_engine([provider], retry=NO_RETRY) as engine:
        completion = await engine.start_request(hello()).wait()
    assert completion.error_category is ms.ErrorCategory.NETWORK
    assert "EMFILE" in str(completion.error)


async def test_the_body_of_an_error_has_its_own_short_timeout(autojump_clock: MockClock) -> None:
    """A 429 whose body arrives at a byte per second is reported after five seconds, with the bytes so far."""

    async def script(line: Line) -> None:
        await line.request()
        body = error_body("slow down, please")
        head = f"HTTP/1.1 429 Too Many Requests\r\nContent-Length: {len(body) + 1000}\r\nRetry-After: 7\r\n\r\n"
        await line.send(head + body)
        for _ in range(1000):
            await trio.sleep(1)
            await line.send(" ")

    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        began = trio.current_time()
        completion = await engine.start_stream(hello()).wait()
        elapsed = trio.current_time() - began
    assert (completion.error_category, completion.http_status) == (ms.ErrorCategory.RATE_LIMIT, 429)
    assert completion.retry_after_ms == 7000
    assert "slow down, please" in str(completion.error)
    assert 4.9 < elapsed < 5.5


async def test_a_pause_before_the_connection_exists_takes_effect(autojump_clock: MockClock) -> None:
    script = reply_and_hold(stream_of(*chat_stream("one")))
    recorder = Recorder()
    async with open_peer(script) as peer, ms.open_engine([peer.chat]) as engine:
        call = engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
        call.pause()
        await trio.sleep(500)  # longer than the idle timeout: a paused call is not idle
        assert (recorder.events, recorder.completions) == ([], [])
        call.resume()
        await call.wait()
    assert (recorder.text, recorder.completion.success) == ("one", True)


async def test_calls_cancelled_in_the_queue_leak_nothing() -> None:
    script = reply_and_hold(stream_of(chat_chunk("one"), end=False))
    limits = EngineLimits(pool=PoolLimits(max_per_origin=1))
    request = hello()

    async def cancel_many(engine: ms.Engine, count: int) -> None:
        for _ in range(count // 500):
            calls = [engine.start_stream(request) for _ in range(500)]
            for call in calls:
                call.cancel()
            await trio.testing.wait_all_tasks_blocked()
            del calls, call

    async with open_peer(script) as peer, ms.open_engine([peer.chat], limits=limits) as engine:
        engine.start_stream(request)
        await cancel_many(engine, 1000)
        gc.collect()
        tracemalloc.start()
        try:
            await cancel_many(engine, 10_000)
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held < 10 * 10_000, "bytes for ten thousand calls that are gone"


async def test_thousands_of_addresses_have_an_error(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    async def refuse(_: Address, backend: Backend) -> socket.socket:
        raise OSError(errno.ECONNREFUSED, "Connection refused")

    async def many(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.{n >> 16}.{n >> 8 & 255}.{n & 255}", 9))
            for n in range(3000)
        ]

    monkeypatch.setattr(dialling, "_connect_one", refuse)
    monkeypatch.setattr(trio.socket, "getaddrinfo", many)
    provider = ms.OpenAIChat(api_key="k", base_url="http://many.test:9/v1")
    async with ms.open_engine([provider], retry=NO_RETRY, timeouts=ms.Timeouts(connect=100_000)) as engine:
        completion = await engine.start_request(hello()).wait()
    assert completion.error_category is ms.ErrorCategory.NETWORK
    message = str(completion.error)
    assert len(message) < 1500
    assert "and 2992 more addresses" in message


async def test_a_connection_beyond_its_maximum_age_is_not_reused(autojump_clock: MockClock) -> None:
    """A busy keep-alive connection is replaced after `max_age`, so that a load balancer's new replicas get calls."""
    limits = EngineLimits(pool=PoolLimits(max_age=60))
    async with open_peer(serve_soundly) as peer, ms.open_engine([peer.chat], limits=limits) as engine:
        for _ in range(21):
            assert (await engine.start_request(hello()).wait()).success
            await trio.sleep(10)
        assert len(peer.lines) == 4
        assert engine.statistics().discarded == 3
