"""Answers that were paid for once: what an engine with an `AnswerCache` sends, and what its calls get."""

from __future__ import annotations

import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.cache import AnswerCache, CacheError
from manystream.cli import main
from manystream.simulator import Simulator, open_simulator_thread
from tests.support.peers import Line, answer, chat_answer, open_peer

DIALECTS = [ms.OpenAIChat, ms.OpenAIResponses, ms.Anthropic, ms.Gemini, ms.GeminiInteractions]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread() as simulator:
        yield simulator


def provider_of(kind: type[ms.Provider], simulator: Simulator) -> ms.Provider:
    version = "/v1" if kind in (ms.OpenAIChat, ms.OpenAIResponses) else ""
    return kind(api_key="canary-key", base_url=f"http://127.0.0.1:{simulator.port}{version}")


def asked(text: str, **options: object) -> ms.Request:
    return ms.Request("m", [ms.Message.user(text)], **options)  # type: ignore[arg-type]


async def streamed(engine: ms.Engine, request: ms.Request) -> tuple[list[ms.Event], ms.Completion]:
    events: list[ms.Event] = []
    completion = await engine.start_stream(request, events.append).wait()
    return events, completion


@pytest.mark.parametrize("kind", DIALECTS)
async def test_an_answer_is_read_again_as_it_was(kind: type[ms.Provider], simulator: Simulator, tmp_path: Path) -> None:
    request = asked("simulate: kind=mixed seed=5")
    with AnswerCache(tmp_path) as cache:
        async with ms.open_engine([provider_of(kind, simulator)], cache=cache) as engine:
            first, paid = await streamed(engine, request)
            whole = await engine.request(request)
            sent = engine.statistics().bytes_sent
            again, free = await streamed(engine, request)
            assert await engine.request(request) == whole
            assert engine.statistics().bytes_sent == sent
        assert again == first
        assert free.response == paid.response
        assert (paid.cached, free.cached, free.attempts, free.cost, free.cost_unknown) == (False, True, 0, 0.0, "")
        assert (cache.hits, cache.misses) == (2, 2)
    assert b"canary-key" not in (tmp_path / "answers.sqlite").read_bytes()
    assert (tmp_path / "answers.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("where", ["in the body", "in a header"])
async def test_an_answer_that_repeats_the_key_is_not_kept(where: str, tmp_path: Path) -> None:
    key = "sk-canary-secret"  # of the peer

    async def script(line: Line) -> None:
        header = f"x-request-id: {key}\r\n" if where == "in a header" else ""
        while await line.request():
            await line.send(answer(chat_answer(f"Bearer {key}" if not header else "fine"), headers=header))

    with AnswerCache(tmp_path) as cache:
        async with open_peer(script) as peer, ms.open_engine([peer.chat], cache=cache) as engine:
            for _ in range(2):
                assert not (await engine.start_request(asked("hello")).wait()).cached
    assert key.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def _rows(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM answers").fetchone()[0])
    finally:
        connection.close()


async def test_another_process_finds_the_answers(simulator: Simulator, tmp_path: Path) -> None:
    program = f"""
import trio, manystream as ms
from manystream.cache import AnswerCache
async def main():
    with AnswerCache({str(tmp_path)!r}) as cache:
        provider = ms.OpenAIChat(api_key="k", base_url="http://127.0.0.1:{simulator.port}/v1")
        async with ms.open_engine([provider], cache=cache) as engine:
            call = engine.start_request(ms.Request("m", [ms.Message.user("hi")]))
            print((await call.wait()).cached)
trio.run(main)
"""
    for expected in ("False", "True"):
        done = await trio.run_process([sys.executable, "-c", program], capture_stdout=True)
        assert done.stdout.decode().strip() == expected


async def test_what_changes_an_answer_is_another_question(simulator: Simulator, tmp_path: Path) -> None:
    provider = provider_of(ms.OpenAIChat, simulator)
    same = [
        asked("a"), asked("a", metadata={"run": "2"}), asked("a", extra_body={"user": "x"}), asked("a", tags={"b": 1}),
    ]  # fmt: skip
    other = [
        asked("b"), asked("a", temperature=0.5), asked("a", seed=1), asked("a", system="s"), asked("a", stop=["x"]),
    ]  # fmt: skip
    with AnswerCache(tmp_path) as cache:
        async with ms.open_engine([provider], cache=cache) as engine:
            assert not (await engine.start_request(same[0]).wait()).cached
            assert [(await engine.start_request(request).wait()).cached for request in same] == [True] * len(same)
            assert [(await engine.start_request(request).wait()).cached for request in other] == [False] * len(other)


@pytest.mark.parametrize("fault", ["fail=500 times=9", "cut=2", "truncate=2", "error=2", "malformed=2", "reset=2"])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_incomplete_answer_is_not_kept(fault: str, stream: bool, simulator: Simulator, tmp_path: Path) -> None:
    request = asked(f"simulate: {fault}", retry=ms.Retry(max_attempts=1))
    with AnswerCache(tmp_path) as cache:
        async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
            start = engine.start_stream if stream else engine.start_request
            first = await start(request, None).wait()
            second = await start(request, None).wait()
            assert (second.success, second.cached) == (first.success, first.success and second.cached)
        if not first.success:
            assert _rows(cache.path) == 0


async def test_a_hit_uses_no_limit_and_no_budget(simulator: Simulator, tmp_path: Path) -> None:
    traffic = ms.Traffic(rates={"*": ms.RateLimit(requests_per_minute=1)}, budgets=[ms.Budget(calls=1)])
    with AnswerCache(tmp_path) as cache:
        async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache, traffic=traffic) as engine:
            await engine.request(asked("a"))
            completions = [await engine.start_request(asked("a")).wait() for _ in range(20)]
            assert all(completion.cached and completion.cost == 0 for completion in completions)
            refused = await engine.start_request(asked("b")).wait()
            assert refused.error_category is ms.ErrorCategory.BUDGET


async def test_a_paused_reader_gets_a_kept_stream_in_pieces(simulator: Simulator, tmp_path: Path) -> None:
    request = asked("simulate: events=20000")
    with AnswerCache(tmp_path) as cache:
        async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
            first, _ = await streamed(engine, request)
            seen: list[ms.Event] = []
            call = engine.start_stream(request, seen.append)
            call.pause()
            for _ in range(20):
                await trio.testing.wait_all_tasks_blocked()
            assert len(seen) == 0
            call.resume()
            assert (await call.wait()).cached
            assert seen == first
            cancelled = engine.start_stream(request, lambda event: cancelled.cancel())
            assert (await cancelled.wait()).error_category is ms.ErrorCategory.CANCELLED
            async with engine.stream(request) as events:
                assert [event async for event in events] == first


def test_asyncio_gets_kept_answers(simulator: Simulator, tmp_path: Path) -> None:
    import asyncio

    async def twice() -> list[bool]:
        with AnswerCache(tmp_path) as cache:
            async with ms.open_engine([provider_of(ms.Anthropic, simulator)], cache=cache) as engine:
                found = []
                for _ in range(2):
                    found.append((await engine.start_request(asked("a")).wait()).cached)
                return found

    assert asyncio.run(twice()) == [False, True]


async def test_old_answers_and_those_beyond_the_size_are_removed(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)

    async def cached(*numbers: int) -> list[bool]:
        nonlocal now
        found: list[bool] = []
        with AnswerCache(tmp_path, max_bytes=20_000, max_age=100) as cache:  # its end waits until all is written
            async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
                for number in numbers:
                    now += 1
                    found.append((await engine.start_request(asked(f"question {number}")).wait()).cached)
        return found

    assert not any(await cached(*range(40)))
    assert 5 < _rows(tmp_path / "answers.sqlite") < 38
    assert await cached(39, 0) == [True, False]
    now += 200
    assert await cached(39) == [False]


async def test_a_broken_file_is_no_harm(simulator: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with AnswerCache(tmp_path / "c") as cache:
        async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
            connection = sqlite3.connect(cache.path)
            connection.execute("DROP TABLE answers")
            connection.close()
            for _ in range(3):
                assert (await engine.start_request(asked("a")).wait()).success
    assert len(caplog.records) == 1
    assert "is not used: no such table" in caplog.text


@pytest.mark.parametrize("kind", DIALECTS)
async def test_a_query_value_of_the_base_url_is_part_of_it(
    kind: type[ms.Provider], simulator: Simulator, tmp_path: Path
) -> None:
    """It is hidden in errors, as it may be a secret, and it may select a deployment."""
    with AnswerCache(tmp_path) as cache:
        found: list[bool] = []
        for deployment in ("eastern-production-1", "western-production-2", "eastern-production-1"):
            provider = kind(api_key="k", base_url=f"{provider_of(kind, simulator).base_url}?deployment={deployment}")
            async with ms.open_engine([provider], cache=cache) as engine:
                found.append((await engine.start_request(asked("a")).wait()).cached)
        assert found == [False, False, True]


DAMAGE = [
    "head = NULL", "head = 7", "head = 'text'", "head = x''", "head = x'00ff'", "head = head || x'0a'",
    "body = NULL", "body = 7", "body = 'text'", "body = x''", "body = zeroblob(100)", "body = substr(body, 2)",
    "made = NULL", "made = 'text'", "made = x'00'", "made = 9e999", "made = -9e999", "size = 'text'", "used = 'text'",
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_row_is_no_answer(
    damage: str, simulator: Simulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for stream in (False, True):
        for request in (asked("a"), asked("b")):
            with AnswerCache(tmp_path) as cache:
                async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
                    start = engine.start_stream if stream else engine.start_request
                    assert (await start(request, None).wait()).success
    connection = sqlite3.connect(tmp_path / "answers.sqlite", isolation_level=None)
    connection.execute(f"UPDATE answers SET {damage}")
    with AnswerCache(tmp_path, max_bytes=1) as cache:
        async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
            for request in (asked("a"), asked("b")):
                assert (await engine.request(request)).text
                assert (await engine.start_stream(request).wait()).success
    connection.close()
    assert len(caplog.records) <= 1


async def test_a_lock_of_another_process_stops_nothing(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("manystream.cache.BUSY_SECONDS", math.inf)
    monkeypatch.setattr("manystream.cache.CLOSING_SECONDS", 0.0)
    cache = AnswerCache(tmp_path)
    other = sqlite3.connect(cache.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
        for number in range(5):
            assert (await engine.start_request(asked(str(number))).wait()).success
            assert (await engine.start_request(asked(str(number))).wait()).cached
    cache.close()  # it would wait forever
    other.close()
    assert len(caplog.records) == 1
    assert "is not used: database is locked" in caplog.text
    assert _rows(cache.path) == 0


async def test_answers_that_wait_for_the_file_are_bounded(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("manystream.cache.MOST_WAITING", 1000)
    monkeypatch.setattr("manystream.cache.CLOSING_SECONDS", math.inf)
    with AnswerCache(tmp_path) as cache:
        other = sqlite3.connect(cache.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache=cache) as engine:
            for number in range(20):
                assert (await engine.start_request(asked(str(number))).wait()).success
        other.close()
    assert "answers come faster than the file takes them" in caplog.text
    assert 0 < _rows(cache.path) < 20


def test_a_cache_in_a_finalizer_at_the_end_is_closed(tmp_path: Path) -> None:
    """The cache's thread has stopped then: waiting for it would last forever."""
    program = f"""
from manystream.cache import AnswerCache
class Late:
    def __init__(self): self.cache = AnswerCache({str(tmp_path)!r})
    def __del__(self): self.cache.close()
kept = Late()
"""
    subprocess.run([sys.executable, "-c", program], timeout=120, check=True)


@pytest.mark.parametrize("how", ["tables", "a log", "an id", "tables like ours"])
def test_no_byte_of_another_programs_database_is_changed(tmp_path: Path, how: str) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if how == "a log":
            connection.execute("PRAGMA journal_mode = WAL")
        if how == "an id":
            connection.execute("PRAGMA application_id = 7")
        connection.execute("CREATE TABLE other (x)")
        if how == "tables like ours":
            connection.execute("CREATE TABLE answers (x)")
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        for _ in range(2):
            with pytest.raises(CacheError, match="another program has made it"):
                AnswerCache(path)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_pipe_is_no_cache(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CacheError, match="it is not a regular file"):
        AnswerCache(tmp_path / "pipe")


def test_a_path_that_is_no_cache_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, and long enough to be read as one " * 40)
    with pytest.raises(CacheError, match="text is no cache of answers"):
        AnswerCache(tmp_path / "text")
    with pytest.raises(CacheError, match=r"cannot open .*nowhere"):
        AnswerCache(tmp_path / "nowhere" / "file")
    wrong: list[tuple[object, object, object, str]] = [
        (tmp_path, 0, 1, "max_bytes"), (tmp_path, None, 1, "max_bytes"), (tmp_path, 1, math.nan, "max_age"),
        (tmp_path, 1, "1", "max_age"), (None, 1, 1, "path"), (b"file", 1, 1, "path"), ("", 1, 1, "path"),
    ]  # fmt: skip
    for path, max_bytes, max_age, name in wrong:
        with pytest.raises(ms.InvalidRequestError, match=f"^{name}: must be "):
            AnswerCache(path, max_bytes=max_bytes, max_age=max_age)  # type: ignore[arg-type]
    AnswerCache(tmp_path, max_bytes=10**9, max_age=math.inf).close()
    assert threading.active_count() < 20


async def test_the_option_takes_a_cache_only(simulator: Simulator) -> None:
    with pytest.raises(ms.InvalidRequestError, match="cache"):
        async with ms.open_engine([provider_of(ms.OpenAIChat, simulator)], cache="answers.sqlite"):  # type: ignore[arg-type]
            pass


def test_a_batch_pays_for_an_answer_once(
    simulator: Simulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": 1, "prompt": "a"}\n{"id": 2, "prompt": "b"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{simulator.port}/v1")
    for name, expected in (("first", "2 answered"), ("second", "2 of the cache")):
        words = ["p.jsonl", "-o", f"{name}.jsonl", "--model", "gpt-5-mini", "--provider", "openai", "--cache", "."]
        assert main(["batch", *words]) == 0
        assert expected in capsys.readouterr().out
    first, second = (sorted((tmp_path / f"{name}.jsonl").read_text().splitlines()) for name in ("first", "second"))
    assert len(first) == len(second) == 2
    assert all('"cached":true' in line for line in second)
