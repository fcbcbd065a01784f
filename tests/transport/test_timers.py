"""Timers fire in order of their deadlines, from one task; cancelled timers never fire."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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


# --- timers ---
class Backend:
    """A backend whose alarm notes when it is set, and rings when the test calls `ring`."""

    handshakes = 0
    """the iterations in which handshakes are still under way"""

    @property
    def handshaking(self) -> bool:
        self.handshakes -= 1
        return self.handshakes >= 0

    def __init__(self) -> None:
        self.now = 100.0
        self.alarms: list[float | str] = []
        self.ring: Callable[[], None] = lambda: None

    def clock(self) -> float:
        return self.now

    def alarm(self, fire: Callable[[], None]) -> SimpleNamespace:
        self.ring = fire
        return SimpleNamespace(set=self.alarms.append, cancel=lambda: self.alarms.append("cancelled"))


@pytest.fixture
def backend() -> Backend:
    return Backend()


def started(backend: Any) -> Timers:
    timers = Timers(bool)
    timers.start(backend)
    return timers


def test_the_alarm_is_set_for_the_earliest_deadline(backend: Backend) -> None:
    timers, fired = started(backend), list[str]()
    for when, name in ((110.0, "a"), (110.0, "b"), (120.0, "c"), (105.0, "d"), (math.inf, "never")):
        timers.at(when, lambda name=name: fired.append(name))  # type: ignore[misc]
    assert backend.alarms == [math.inf, 110.0, 105.0], "only for an earlier one"
    backend.now = 105.0
    backend.ring()
    assert (fired, backend.alarms[3:]) == (["d"], [110.0])
    backend.now = 109.9
    backend.ring()
    assert (fired, backend.alarms[4:]) == (["d"], [110.0])
    backend.now = 130.0
    backend.ring()
    assert (fired, backend.alarms[5:]) == (["d", "a", "b", "c"], [math.inf])
    timers.at(131.0, lambda: None)
    assert backend.alarms[6:] == [131.0]
    timers.close()
    assert backend.alarms[7:] == ["cancelled"]


def test_timers_may_be_set_before_they_are_started(backend: Any) -> None:
    timers, fired = Timers(bool), list[str]()
    timer = timers.at(50.0, lambda: fired.append("x"))
    assert (timer.when, timer.pending) == (50.0, True)
    timers.close()
    with pytest.raises(RuntimeError, match="the timers were not started"):
        timers._clock()
    timers.start(backend)
    assert backend.alarms == [50.0]
    backend.ring()
    assert (fired, timer.pending) == (["x"], False)
    timer.on_timer()
    assert fired == ["x"]


def test_a_timer_that_is_cancelled_while_others_fire(backend: Backend) -> None:
    timers, fired = started(backend), list[str]()
    second = timers.at(102.0, lambda: fired.append("second"))
    timers.at(101.0, second.cancel)
    never = timers.at(math.inf, lambda: fired.append("never"))
    assert not never.pending
    never.cancel()
    backend.now = 103.0
    backend.ring()
    assert (fired, backend.alarms) == ([], [math.inf, 102.0, 101.0, math.inf])


def test_a_defect_is_reported_to_the_holder_and_logged(backend: Any, caplog: Any) -> None:
    timers, log = started(backend), list[str]()

    def fail() -> None:
        raise ValueError("a defect")

    def fail_again(error: Exception) -> None:
        log.append(f"again {error}")
        raise KeyError

    timers.at(100.0, fail, lambda error: log.append(str(error)))
    timers.at(100.0, fail, fail_again)
    timers.at(100.0, fail)
    timers.at(100.0, lambda: log.append("other"))
    backend.ring()
    assert log == ["a defect", "again a defect", "other"]
    raised, ending = "a timer's callback raised", "ending the owner of a timer raised"
    messages = [record.getMessage().removesuffix(": a defect in manystream") for record in caplog.records]
    assert messages == [raised, raised, ending, raised]


def test_cancelled_deadlines_leave_the_heap_by_and_by(backend: Backend) -> None:
    timers = started(backend)
    kept = [timers.at(200.0 + number, lambda: None) for number in range(100)]
    dropped = [timers.at(500.0, lambda: None) for _ in range(101)]
    for timer in dropped[:100]:
        timer.cancel()
        timer.cancel()
    assert len(timers._heap) == 201, "no more than there are pending ones"
    dropped[100].cancel()
    assert len(timers._heap) == 100
    for timer in kept[:64]:
        timer.cancel()
    assert len(timers._heap) == 100, "64 are kept in any case"
    kept[64].cancel()
    assert len(timers._heap) == 35
    backend.now = 300.0
    backend.ring()
    assert (timers._heap, backend.alarms[-1]) == ([], math.inf)


def test_a_clock_that_fails_is_asked_again(backend: Any, caplog: Any) -> None:
    timers, fired = started(backend), list[str]()
    timers.at(100.0, lambda: fired.append("x"))
    timers._clock = lambda: 1 / 0
    backend.ring()
    assert (fired, backend.alarms[-1]) == ([], 100.0)
    assert [record.getMessage() for record in caplog.records] == [
        "finding the timers that are due raised: a defect in manystream"
    ]


class Waiting:
    """The owner of a timeout."""

    def __init__(self) -> None:
        self.notified = 0

    def on_timer(self) -> None:
        self.notified += 1

    def on_defect(self, error: Exception) -> None:
        raise error


def rings_until_notified(backend: Any, timers: Timers, owner: Waiting) -> int:
    """How often the alarm rings at its deadline until the owner is notified."""
    for count in range(1, 1000):
        assert backend.alarms[-1] <= backend.now, "the alarm is set for now while a timeout waits"
        backend.ring()
        if owner.notified:
            return count
    raise AssertionError


@pytest.mark.parametrize(("ready", "rings"), [([], 4), ([True] * 10, 12), ([True] * 1000, 101)])
def test_a_timeout_is_judged_after_what_is_ready_was_read(backend: Any, ready: list[bool], rings: int) -> None:
    """Some iterations later; and while more connections are ready than one tick serves, not before a bound."""
    reads = 0

    def catch_up() -> bool:
        nonlocal reads
        reads += 1
        return ready.pop() if ready else False

    timers, owner, work = Timers(catch_up), Waiting(), list[int]()
    timers.start(backend)
    timers.notify(104.0, owner)
    timers.at(105.0, lambda: work.append(1))
    backend.now = 200.0
    assert rings_until_notified(backend, timers, owner) == rings
    assert (reads, work) == (rings - 1, [1])
    assert backend.alarms[-1] == math.inf


@pytest.mark.parametrize(("handshakes", "rings"), [(0, 4), (10, 12), (1000, 101)])
def test_a_timeout_is_judged_after_handshakes_that_are_ready(backend: Any, handshakes: int, rings: int) -> None:
    """Each iteration makes one step of one of them."""
    timers, owner = Timers(bool), Waiting()
    timers.start(backend)
    timers.notify(104.0, owner)
    backend.now, backend.handshakes = 200.0, handshakes
    assert rings_until_notified(backend, timers, owner) == rings


def test_each_timeout_waits_for_its_own_iterations(backend: Any) -> None:
    timers, first, second = Timers(bool), Waiting(), Waiting()
    timers.start(backend)
    timers.notify(104.0, first)
    backend.now = 104.0
    backend.ring()
    backend.ring()
    deadline = timers.notify(104.0, second)
    assert rings_until_notified(backend, timers, first) == 2
    assert (second.notified, timers.pending(deadline)) == (0, True)
    assert rings_until_notified(backend, timers, second) == 2


def test_what_arrives_meanwhile_cancels_a_timeout(backend: Any) -> None:
    timers, owner, fired = Timers(bool), Waiting(), list[str]()
    timers.start(backend)
    deadline = timers.notify(104.0, owner)
    late = timers.at(104.0, lambda: fired.append("late"), is_timeout=True)
    backend.now = 110.0
    backend.ring()
    timers.cancel(deadline)
    late.cancel()
    for _ in range(10):
        backend.ring()
    assert (owner.notified, fired, backend.alarms[-1]) == (0, [], math.inf)


def test_no_deadline_that_is_no_number_hides_another(backend: Any) -> None:
    timers, owner = Timers(bool), Waiting()
    timers.start(backend)
    for _ in range(3):
        timers.notify(math.nan, Waiting())
    timers.notify(104.0, owner)
    timers.notify(math.nan, Waiting())
    backend.now = 104.0
    rings_until_notified(backend, timers, owner)


def test_an_alarm_that_rings_after_the_end_reads_nothing(backend: Any) -> None:
    timers, owner = Timers(lambda: pytest.fail("the loop is closed")), Waiting()
    timers.start(backend)
    timers.notify(104.0, owner)
    timers.close()
    backend.now = 104.0
    for _ in range(10):
        backend.ring()
    assert not owner.notified
