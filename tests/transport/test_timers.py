"""Timers fire in order of their deadlines, from one task; cancelled timers never fire."""

import math

import pytest
import trio
from trio.testing import MockClock

from manystream.transport.timers import Timers
from manystream.transport.trio_backend import TrioBackend


async def test_timers_fire_in_the_order_of_their_deadlines(autojump_clock: MockClock) -> None:
    fired: list[tuple[str, float]] = []
    timers = Timers(bool)
    async with trio.open_nursery() as nursery:
        timers.start(TrioBackend(nursery))
        start = trio.current_time()
        for name, delay in (("late", 30.0), ("soon", 1.0), ("never", math.inf), ("middle", 5.0)):
            timers.at(start + delay, lambda name=name: fired.append((name, trio.current_time() - start)))
        await trio.sleep(2)
        timers.at(start + 3, lambda: fired.append(("added", trio.current_time() - start)))
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    assert fired == [
        ("soon", pytest.approx(1)), ("added", pytest.approx(3)), ("middle", pytest.approx(5)),
        ("late", pytest.approx(30)),
    ]  # fmt: skip


async def test_a_cancelled_timer_does_not_fire_and_leaves_the_heap(autojump_clock: MockClock) -> None:
    fired: list[int] = []
    timers = Timers(bool)
    async with trio.open_nursery() as nursery:
        timers.start(TrioBackend(nursery))
        now = trio.current_time()
        set_timers = [timers.at(now + 100 + number, lambda: fired.append(1)) for number in range(10_000)]
        for timer in set_timers[1:]:
            timer.cancel()
            timer.cancel()
        assert len(timers._heap) < 200
        assert len(timers._owners) == 1
        await trio.sleep(100_000)
        nursery.cancel_scope.cancel()
    assert fired == [1]


async def test_a_raising_callback_stops_no_timer(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    fired: list[str] = []
    timers = Timers(bool)

    def broken() -> None:
        timers.at(trio.current_time(), lambda: fired.append("set by broken"))
        raise RuntimeError("mine")

    async with trio.open_nursery() as nursery:
        timers.start(TrioBackend(nursery))
        now = trio.current_time()
        timers.at(now + 1, broken)
        timers.at(now + 1, lambda: fired.append("other"))
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert sorted(fired) == ["other", "set by broken"]
    assert "raised" in caplog.text
