"""The map of a portal: how much is read ahead of a program with threads, with literal numbers."""

from collections.abc import Callable, Iterator

import pytest

import manystream as ms
from manystream.engine.frontends.portal_map import PortalMap
from tests.engine.frontends.test_stream import Call, Calls, Thread, request


class Numbers:
    """A source that notes what was read."""

    def __init__(self, count: int) -> None:
        self.read = 0
        self.count = count

    def __iter__(self) -> Iterator[ms.Request]:
        while self.read < self.count:
            self.read += 1
            yield request(self.read)


def test_a_portal_s_map_refills_when_an_eighth_is_free() -> None:
    """Each start wakes the engine's thread, so several requests are started at a time, at most sixteen."""
    thread, calls, source = Thread(), Calls(), Numbers(100)
    results: PortalMap[ms.Request] = PortalMap(thread, calls, source, 24, ordered=False)  # type: ignore[arg-type]
    with results:
        assert source.read == 0
        for _ in range(5):
            results._start_some(results._calls.room)
        assert (source.read, thread.runs) == (24, 2)  # sixteen and eight
        runs: list[int] = []
        for _ in range(9):
            calls.end()
            next(results)
            runs.append(thread.runs)
        assert runs == [2, 2, 3, 3, 3, 4, 4, 4, 5]
        assert source.read == 33
    assert thread.soons == 1
    assert {tuple(call.done) for _, _, call in calls.running} == {("cancel",)}


class EndingThread(Thread):
    """Ends each call when the function that started it has returned."""

    def __init__(self, calls: Calls) -> None:
        super().__init__()
        self.calls = calls

    def run(self, function: Callable[[], object]) -> object:
        try:
            return super().run(function)
        finally:
            while self.calls.running:
                self.calls.end()


@pytest.mark.parametrize("concurrency", [1, 2, 3, 20])
def test_a_portal_s_map_ends_behind_its_last_completion(concurrency: int) -> None:
    calls = Calls()
    thread = EndingThread(calls)
    results: PortalMap[ms.Request] = PortalMap(thread, calls, Numbers(5), concurrency, ordered=False)  # type: ignore[arg-type]
    with results:
        assert [key.model for key, _ in results] == ["1", "2", "3", "4", "5"]
        assert list(results) == []


def test_a_portal_s_map_raises_a_start_s_error_last() -> None:
    calls = Calls()

    def start(request: ms.Request, end: Callable[[ms.Completion], object]) -> Call:
        if request.model == "3":
            raise ms.EngineClosedError("closed")
        return calls(request, end)

    results: PortalMap[ms.Request] = PortalMap(EndingThread(calls), start, Numbers(5), 4, ordered=False)  # type: ignore[arg-type]
    seen: list[str] = []

    def read() -> None:
        for key, _ in results:
            seen.append(key.model)

    with results, pytest.raises(ms.EngineClosedError):
        read()
    assert seen == ["1", "2"]
