"""Whatever is noted of a call touches no answer: a recording, a cache, an observer, a log."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import manystream as ms
from manystream.cache import AnswerCache
from tests.support.peers import Line, answer, chat_answer, chat_stream, hello, open_peer, stream_of

HOOKS = ("head", "body", "ended", "accepted")


async def both(line: Line) -> None:
    while request := await line.request():
        is_stream = b'"stream":true' in request
        await line.send(stream_of(*chat_stream("fine")) if is_stream else answer(chat_answer("fine")))


class Defect(Exception):
    """What a note raises."""


def fail(*_: object, **__: object) -> None:
    raise Defect


class RaisingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise Defect


@pytest.fixture
def raising_log() -> Iterator[None]:
    handler = RaisingHandler()
    logging.getLogger("manystream").addHandler(handler)
    yield
    logging.getLogger("manystream").removeHandler(handler)


async def texts(engine: ms.Engine) -> list[str]:
    """Return the answers of two calls of each kind."""
    found = []
    for _ in range(2):
        for completion in (await engine.start_request(hello()).wait(), await engine.start_stream(hello()).wait()):
            assert completion.error is None, completion.error
            assert completion.response is not None
            found.append(completion.response.text)
    return found


@pytest.mark.parametrize("hook", ["note", *HOOKS])
@pytest.mark.parametrize("kind", ["manystream.engine.observe.recording.ExchangeNote", "manystream.cache._Copy"])
async def test_a_note_that_raises_is_lost_and_said_once(
    kind: str, hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(f"{kind}.{'__init__' if hook == 'note' else hook}", fail)
    with AnswerCache(tmp_path / "cache") as cache:
        async with open_peer(both) as peer, ms.open_engine([peer.chat], cache=cache) as engine:
            with engine.record(tmp_path / "a.jsonl"):
                assert await texts(engine) == ["fine"] * 4
    silent = hook == "accepted" and "recording" in kind and not caplog.records  # called, and nothing to note
    assert len(caplog.records) == 1 or silent


async def test_a_cache_that_cannot_look_lets_the_call_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("manystream.cache._key", fail)
    with AnswerCache(tmp_path / "cache") as cache:
        async with open_peer(both) as peer, ms.open_engine([peer.chat], cache=cache) as engine:
            assert await texts(engine) == ["fine"] * 4
    assert [record.getMessage() for record in caplog.records] == [f"the cache {cache.path} is not used"]


@pytest.mark.usefixtures("raising_log")
async def test_a_log_that_raises_touches_no_call(tmp_path: Path) -> None:
    class Raising(ms.Observer):
        call_started = attempt_started = call_ended = fail  # type: ignore[assignment]

    async with (
        open_peer(both) as peer,
        ms.open_engine([peer.chat], observer=Raising(), traffic=ms.Traffic(), retry=ms.Retry(max_attempts=1)) as engine,
    ):
        assert await texts(engine) == ["fine"] * 4
        assert engine.statistics().observer_failures == 12
        assert (await engine.start_stream(hello(), on_completion=fail).wait()).success
