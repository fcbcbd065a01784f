"""What an engine writes to the log: the logger, the level and the whole line."""

import errno
import logging
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine import monitor
from manystream.providers.catalog.dialect import StreamMachine
from tests.support.peers import Line, answer, chat_answer, chat_stream, error_body, hello, open_peer, stream_of
from tests.support.targets import Server, ask, open_targets


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int, str]]:
    return [(record.name, record.levelno, record.message) for record in caplog.records]


async def streams(line: Line) -> None:
    while request := await line.request():
        if b"refuse" in request:
            await line.send(answer(error_body("no"), status="404 No"))
        elif b'"stream":true' in request:
            await line.send(stream_of(*chat_stream("a", "b")))
        else:
            await line.send(answer(chat_answer("a")))


def broken(_: object) -> None:
    raise ValueError("mine")


async def test_callbacks_that_raise_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with open_peer(streams) as peer, ms.open_engine([peer.chat]) as engine:
        assert (await engine.start_request(hello(), broken).wait()).success
        failed = await engine.start_stream(ms.Request("m", "refuse"), broken).wait()
        raised = await engine.start_stream(hello(), broken).wait()
    assert failed.error_category is ms.ErrorCategory.NOT_FOUND
    assert raised.error_message == "on_event raised ValueError: mine"
    assert lines(caplog) == [
        ("manystream.engine", logging.ERROR, "on_completion raised"),
        ("manystream.engine", logging.ERROR, "on_event raised on its Error event"),
    ]
    assert all(record.exc_info for record in caplog.records)


async def test_a_defect_is_logged_with_the_call(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def feed(machine: StreamMachine, event: str, data: bytes) -> list[ms.Event]:
        raise RuntimeError("defect")

    monkeypatch.setattr(StreamMachine, "feed", feed)
    async with open_peer(streams) as peer, ms.open_engine([peer.chat]) as engine:
        completion = await engine.start_stream(hello()).wait()
    assert lines(caplog) == [
        ("manystream.engine", logging.ERROR,
        "<Call stream to peer reading, attempt 1> failed because of a defect in manystream")
    ]  # fmt: skip
    assert (completion.error.category, completion.error.provider) == (ms.ErrorCategory.UNKNOWN, "peer")
    assert completion.attempts == 1


async def test_a_full_disk_ends_a_recording_and_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Full:
        closes = 0

        def write(self, text: str) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            self.closes += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    full = Full()
    async with open_peer(streams) as peer, ms.open_engine([peer.chat]) as engine:
        with engine.record(tmp_path / "a.jsonl") as recording:
            recording._file._file.close()  # type: ignore[union-attr]
            recording._file._file = full  # type: ignore[assignment]
            assert (await engine.start_stream(hello()).wait()).success
            assert recording.closed
            assert (await engine.start_stream(hello()).wait()).success
        assert (recording.exchanges, full.closes) == (1, 1)
        with engine.record(tmp_path / "b.jsonl"):
            assert (await engine.request(hello())).text == "a"
    assert lines(caplog) == [
        ("manystream.record", logging.ERROR, f"the recording {tmp_path / 'a.jsonl'} ends here: No space left on device")
    ]


async def test_a_defect_of_a_report_costs_one_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.sock"

    def fails() -> str:
        raise RuntimeError("defect")

    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=path):
        with monkeypatch.context() as patched:
            patched.setattr(monitor, "_version", fails)
            async with await trio.open_unix_socket(str(path)) as stream:
                await stream.send_all(b"\n")
                assert await stream.receive_some(1) == b""
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(b"\n")
            assert (await stream.receive_some(1 << 20)).startswith(b'{"manystream":')
    assert lines(caplog) == [
        ("manystream.monitor", logging.ERROR, "a look at the engine raised: a defect in manystream")
    ]


async def test_calls_on_a_route_are_sent_in_the_order_of_their_start(autojump_clock: MockClock) -> None:
    one = Server("one")
    order: list[int] = []
    async with open_targets(one, rates={"one": ms.RateLimit(requests_per_minute=6)}) as engine:
        for _ in range(6):
            await engine.start_stream(ask()).wait()
        calls = [
            engine.start_stream(ask(), None, lambda completion, number=number: order.append(number))  # type: ignore[misc]
            for number in range(4)
        ]
        for call in calls:
            assert (await call.wait()).success
    assert order == [0, 1, 2, 3]
