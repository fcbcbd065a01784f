"""The transport's times: timers and their alarm, the kernel's timer, and the loop's pauses, value by value."""

import ctypes
import errno
import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from manystream.transport.coalescing import Coalescing
from manystream.transport.kernel_timer import KernelTimer, make_kernel_timer
from manystream.transport.timers import Timers
from manystream.transport.trio_backend import TrioBackend

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


def test_a_defect_is_reported_to_the_holder_and_logged(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
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


def test_a_clock_that_fails_is_asked_again(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    timers, fired = started(backend), list[str]()
    timers.at(100.0, lambda: fired.append("x"))
    timers._clock = lambda: 1 / 0
    backend.ring()
    assert (fired, backend.alarms[-1]) == ([], 100.0)
    assert [record.getMessage() for record in caplog.records] == [
        "finding the timers that are due raised: a defect in manystream"
    ]


# --- the kernel's timer ---


def test_the_kernel_gets_nanoseconds_below_a_second() -> None:
    asked: list[tuple[int, int, list[int], object]] = []

    def set_time(descriptor: int, flags: int, address: ctypes.c_void_p, old: object) -> None:
        assert address.value is not None
        asked.append((descriptor, flags, list((ctypes.c_long * 4).from_address(address.value)), old))

    library: Any = SimpleNamespace(timerfd_settime=set_time)
    timer = KernelTimer(-1, library)
    for seconds in (0.25, 0.0, 1e-12, 1.0, 0.9999999999):
        timer.start(seconds)
    timer.stop()
    nanoseconds = [250_000_000, 1, 1, 999_999_999, 999_999_999, 0]
    assert asked == [(-1, 0, [0, 0, 0, each], None) for each in nanoseconds]
    arguments: Any = set_time
    assert arguments.argtypes == (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def test_the_kernel_s_timer_does_not_block_and_is_not_inherited() -> None:
    timer = make_kernel_timer()
    if timer is None:
        pytest.skip("this system has no timerfd")
    assert (os.get_blocking(timer.fileno()), os.get_inheritable(timer.fileno())) == (False, False)
    with pytest.raises(BlockingIOError):
        os.read(timer.fileno(), 8)
    timer.close()


# --- pauses ---


def after(*ticks: tuple[float, float, int]) -> Coalescing:
    coalescing = Coalescing()
    for tick in ticks:
        coalescing.record(*tick)
    return coalescing


def pauses(coalescing: Coalescing, at: float, count: int) -> list[float]:
    """Record empty ticks at one time, and return the pause after each."""
    found: list[float] = []
    for _ in range(count):
        coalescing.record(at, at, 0)
        found.append(coalescing.pause)
    return found


HALF = (0.025, 0.05, 200)
"""A window whose second half is one tick. It is as long as a window must be."""


def test_a_pause_begins_when_too_many_wake_ups_were_used() -> None:
    assert Coalescing().pause == 0.0
    coalescing = after(HALF)
    assert coalescing.pause == 0.0
    found = pauses(coalescing, 0.05, 17)
    assert (found[:16], found[16]) == ([0.0] * 16, pytest.approx(0.001))


@pytest.mark.parametrize(("quiet", "pause"), [(0.0105, 0.001), (0.0107, 0.0)])
def test_the_account_owes_at_most_sixteen_wake_ups(quiet: float, pause: float) -> None:
    coalescing = after(HALF)
    pauses(coalescing, 0.05, 100)
    assert pauses(coalescing, 0.05 + quiet, 1) == [pytest.approx(pause)]


@pytest.mark.parametrize(
    ("tick", "pause"),
    [
        ((0.0375, 0.05, 200), 0.00075),
        ((0.0125, 0.05, 200), 0.00075),
        ((0.0, 0.05, 2000), 0.0),
        ((-0.05, 0.05, 2000), 0.0),
        ((0.025, 0.05, 74), 0.0),
        ((0.025, 0.05, 76), 0.001),
        ((0.025, 0.049, 200), 0.0),
    ],
)
def test_the_pause_of_a_window(tick: tuple[float, float, int], pause: float) -> None:
    coalescing = after(tick)
    assert pauses(coalescing, tick[1], 17)[-1] == pytest.approx(pause)


def test_each_window_counts_its_own_ticks() -> None:
    coalescing = after(HALF, (0.075, 0.1, 50))
    assert pauses(coalescing, 0.1, 17)[-1] == 0.0, "50 connections in 50 ms are too few"
    coalescing.record(0.1625, 0.175, 300)
    assert pauses(coalescing, 0.175, 40)[-1] == pytest.approx(4 * 0.001 * (1 / 6) * (5 / 6))
    coalescing = after((0.0, 0.01, 100), (0.02, 0.03, 100), (0.04, 0.05, 100))
    assert pauses(coalescing, 0.05, 17)[-1] == pytest.approx(4 * 0.001 * 0.6 * 0.4)


# --- trio ---


async def test_a_defect_in_a_system_task_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    defect, failed = OSError(errno.EIO, "Input/output error"), list[Exception]()

    async def work(error: Exception) -> None:
        raise error

    TrioBackend(None, failed.append).start(work, defect)
    TrioBackend().start(work, defect)
    await wait_all_tasks_blocked()
    assert failed == [defect]
    assert [record.getMessage() for record in caplog.records] == [
        "a task of the transport raised: a defect in manystream"
    ] * 2


async def test_an_alarm_rings_at_its_latest_time(autojump_clock: MockClock) -> None:
    rung: list[float] = []
    backend = TrioBackend()

    def ring() -> None:
        rung.append(trio.current_time() - begin)
        alarm.set(math.inf)

    alarm = backend.alarm(ring)
    begin = trio.current_time()
    alarm.set(begin + 5)
    await trio.sleep(1)
    alarm.set(begin + 3)
    await trio.sleep(1)
    alarm.set(begin + 10)
    await trio.sleep(9)
    assert rung == [10]
    await trio.sleep(100)
    alarm.set(begin + 120)
    await trio.sleep(100)
    assert rung == [10, 120]
    alarm.cancel()


async def test_waits_of_the_trio_backend(autojump_clock: MockClock) -> None:
    backend, begin = TrioBackend(), trio.current_time()
    event = backend.event()
    await backend.wait_at_most(event, 7)
    assert trio.current_time() - begin == 7
    event.set()
    await backend.wait_at_most(event, 7)
    assert trio.current_time() - begin == 7
    assert backend.handshake_lock() is TrioBackend().handshake_lock()
    assert backend.clock() == trio.current_time()
    found = await backend.getaddrinfo("127.0.0.1", 80)
    assert [entry[4] for entry in found] == [("127.0.0.1", 80)]
    log: list[str] = []

    async def work() -> None:
        log.append("begun")
        await trio.sleep_forever()

    async with backend.open_group() as group:
        group.start(work)
        await backend.checkpoint()
        await wait_all_tasks_blocked()
        group.cancel()
        with pytest.raises(trio.Cancelled):
            await backend.checkpoint_if_cancelled()
    assert log == ["begun"]


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
