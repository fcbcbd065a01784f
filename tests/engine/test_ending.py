"""The end of a call whose own steps raise: that is a defect, and the caller still receives the completion."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

import manystream as ms
from manystream.engine.call.call import Counters, RunningCall, Step
from manystream.providers.catalog.dialect import StreamMachine
from tests.support.peers import CHAT_DONE, STREAM_HEAD, Line, chat_chunk, chunked, hello, open_peer


class Broken(RunningCall):
    """A call whose named steps raise each time."""

    def __init__(self, broken: set[str], completed: list[ms.Completion]) -> None:
        engine: Any = SimpleNamespace(loop=SimpleNamespace(clock=lambda: 0.0))
        unused: Any = SimpleNamespace(stream=True, provider=SimpleNamespace(name="p"))
        super().__init__(
            engine, unused, unused, Counters(), 1, unused, ms.Retry(), None, completed.append, lambda response: None
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

    async def script(line: Line) -> None:
        await line.request()
        await line.send(STREAM_HEAD.encode() + chunked(chat_chunk("a"), chat_chunk(finish="stop"), CHAT_DONE))

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

    async def script(line: Line) -> None:
        await line.request()
        await line.send("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    with caplog.at_level(logging.ERROR, logger="manystream"):
        async with open_peer(script) as peer, ms.open_engine([peer.chat], proxy="") as engine:
            completion = await engine.start_stream(hello(), on_event).wait()
    assert completion.error.http_status == 404
    (record,) = caplog.records
    assert record.getMessage() == "on_event raised on its Error event"
    assert record.exc_info[1] is fault
