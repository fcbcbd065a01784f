"""Coalescing: how long the loop pauses between two ticks, by the load."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

import pytest
import trio
from trio.testing import MockClock

from manystream.transport.coalescing import LONGEST_PAUSE, WINDOW, Coalescing
from manystream.transport.loop import PollerLoop
from manystream.transport.trio_backend import TrioBackend


def run_ticks(coalescing: Coalescing, begin: float, *, seconds: float, every: float, busy: float, served: int) -> float:
    """Record ticks that begin every `every` seconds and take `busy` seconds. Returns the end."""
    ticks = round(seconds / every)
    for number in range(ticks):
        started = begin + number * every
        coalescing.record(started, started + busy, served)
    return begin + ticks * every


@pytest.mark.parametrize(
    ("every", "busy", "served", "pause"),
    [
        (0.002, 0.00002, 1, 0.0),  # ten streams: the next event comes long after any pause
        (0.0002, 0.00002, 1, 0.36 * LONGEST_PAUSE),  # a hundred streams, a tick for each event
        (0.001, 0.0001, 5, 0.0),  # the same in bursts: wake-ups cost little
        (0.0002, 0.0001, 6, LONGEST_PAUSE),
        (0.0002, 0.00018, 12, 0.36 * LONGEST_PAUSE),
        (0.0002, 0.0002, 14, 0.0),  # a full core has a backlog anyway
        (0.0005, 0.0004, 1, 0.0),  # few events that are much work: a pause would gather none
    ],
)
def test_the_pause_follows_from_load_and_wake_ups(every: float, busy: float, served: int, pause: float) -> None:
    coalescing = Coalescing()
    run_ticks(coalescing, 100.0, seconds=4 * WINDOW, every=every, busy=busy, served=served)
    assert coalescing.pause == pytest.approx(pause, rel=0.1)


@pytest.mark.parametrize(("busy", "served", "pause"), [(0.00003, 1, 0.0), (0.0001, 6, LONGEST_PAUSE / 4)])
def test_a_program_may_limit_the_pause(busy: float, served: int, pause: float) -> None:
    """A pause that would gather nothing is left out, so five hundred streams of ten events a second have none."""
    coalescing = Coalescing()
    coalescing.longest = LONGEST_PAUSE / 4
    run_ticks(coalescing, 100.0, seconds=4 * WINDOW, every=0.0002, busy=busy, served=served)
    assert coalescing.pause == pytest.approx(pause, rel=0.1)


def test_the_load_of_one_window_counts_from_the_next_one() -> None:
    coalescing = Coalescing()
    end = run_ticks(coalescing, 100.0, seconds=WINDOW, every=0.0002, busy=0.0001, served=6)
    assert coalescing.pause == 0.0, "the first window began before the first tick: a quiet time"
    run_ticks(coalescing, end, seconds=2 * WINDOW, every=0.0002, busy=0.0001, served=6)
    assert coalescing.pause == pytest.approx(LONGEST_PAUSE, rel=0.1)


def test_there_is_no_pause_after_a_quiet_time() -> None:
    coalescing = Coalescing()
    end = run_ticks(coalescing, 100.0, seconds=4 * WINDOW, every=0.0002, busy=0.0001, served=6)
    assert coalescing.pause > 0
    coalescing.record(end + 1.0, end + 1.001, 200)
    assert coalescing.pause == 0.0


class Streams:
    """Connections whose bytes arrive at the times of the test's clock, and whose reading moves that clock.

    delays: from the arrival of each event to the end of its reading, in seconds.
    reads: the number of reads, each of which takes `work` seconds.
    """

    def __init__(self, clock: MockClock, work: float) -> None:
        self.clock = clock
        self.work = work
        self.delays: list[float] = []
        self.reads = 0

    async def send(self, streams: list[Stream], *, rate: float, seconds: float, burst: int = 1) -> None:
        """Send events to the streams by turns, `rate` per second, `burst` at a time."""
        begin = trio.current_time()
        for number in range(round(rate * seconds)):
            due = begin + (number - number % burst) / rate
            if due > trio.current_time():
                await trio.sleep_until(due)
            streams[number % len(streams)].arrive(due)


class Stream:
    """One connection. `_due`: when its unread events arrived."""

    label = "call"

    def __init__(self, owner: Streams) -> None:
        self.sock, self._peer = socket.socketpair()
        self._owner = owner
        self._due: list[float] = []

    def arrive(self, due: float) -> None:
        self._due.append(due)
        self._peer.send(b"x")

    def on_readable(self) -> None:
        self.sock.recv(100)
        self._owner.reads += 1
        self._owner.clock.jump(self._owner.work)
        self._owner.delays += [trio.current_time() - due for due in self._due]
        self._due.clear()

    def on_writable(self) -> None:
        raise AssertionError("nothing was to be written")

    def on_defect(self, error: Exception) -> None:
        raise error

    def close(self) -> None:
        self.sock.close()
        self._peer.close()


@pytest.fixture
def opened() -> Iterator[Callable[[Streams], Stream]]:
    """Return a function that opens a stream, which is closed after the test."""
    made: list[Stream] = []

    def open_stream(owner: Streams) -> Stream:
        made.append(Stream(owner))
        return made[-1]

    yield open_stream
    for stream in made:
        stream.close()


async def deliver(
    opened: Callable[[Streams], Stream],
    clock: MockClock,
    *,
    count: int,
    rate: float,
    work: float,
    seconds: float,
    burst: int = 1,
) -> tuple[Streams, int]:
    """Run a loop over `count` streams. Returns the streams' delays, and the number of ticks."""
    if not hasattr(select, "epoll"):
        pytest.skip("the loop on a poller is tested on epoll, which is not here")
    owner = Streams(clock, work)
    streams = [opened(owner) for _ in range(count)]
    async with trio.open_nursery() as nursery:
        loop = PollerLoop(select.epoll(), clock.current_time)
        for stream in streams:
            loop.add(stream)
        loop.start(TrioBackend(nursery))
        await owner.send(streams, rate=rate, seconds=seconds, burst=burst)
        while len(owner.delays) < round(rate * seconds):
            await trio.sleep(LONGEST_PAUSE)
        nursery.cancel_scope.cancel()
    loop.close()
    return owner, loop.ticks


async def test_few_events_are_delivered_at_once(opened: Callable[[Streams], Stream], autojump_clock: MockClock) -> None:
    streams, ticks = await deliver(opened, autojump_clock, count=10, rate=500, work=20e-6, seconds=0.4)
    assert ticks == 200
    assert max(streams.delays) < 40e-6


async def test_many_events_share_ticks_in_time(opened: Callable[[Streams], Stream], autojump_clock: MockClock) -> None:
    work = 14e-6
    streams, ticks = await deliver(opened, autojump_clock, count=400, rate=20_000, work=work, seconds=0.3)
    events, load = len(streams.delays), 20_000 * work
    pause = 4 * LONGEST_PAUSE * load * (1 - load)
    assert ticks < events / 4
    assert max(streams.delays) < (pause + 0.0001) / (1 - load)
    assert sorted(streams.delays)[events // 2] < pause


async def test_events_together_do_not_pause(opened: Callable[[Streams], Stream], autojump_clock: MockClock) -> None:
    """The streams of one server advance in step. A tick finds them all, so few wake-ups are needed."""
    work, burst = 14e-6, 50
    streams, _ = await deliver(opened, autojump_clock, count=100, rate=5_000, work=work, seconds=0.4, burst=burst)
    assert max(streams.delays) < burst * work * 1.1


async def test_pauses_between_bursts_are_given_up(
    opened: Callable[[Streams], Stream], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A burst each 0.55 ms, so often that wake-ups take their share of the core, and a pause that ends before it."""
    empty = 0
    gathered_nothing = Coalescing.gathered_nothing

    def count(self: Coalescing) -> None:
        nonlocal empty
        empty += 1
        gathered_nothing(self)

    monkeypatch.setattr(Coalescing, "gathered_nothing", count)
    streams, ticks = await deliver(
        opened, autojump_clock, count=100, rate=5 / 0.00055, work=14e-6, seconds=0.4, burst=5
    )
    assert len(streams.delays) / 5 * 0.9 < ticks, "a tick for each burst"
    assert 0 < empty < ticks / 10


async def test_a_full_core_does_not_pause(opened: Callable[[Streams], Stream], autojump_clock: MockClock) -> None:
    """The loop has the whole time for the events, which are more than it can serve."""
    work, begin = 14e-6, trio.current_time()
    streams, _ = await deliver(opened, autojump_clock, count=2000, rate=80_000, work=work, seconds=0.2)
    assert trio.current_time() - begin < streams.reads * work + 2 * LONGEST_PAUSE


async def test_an_event_after_silence_is_at_once(
    opened: Callable[[Streams], Stream], autojump_clock: MockClock
) -> None:
    owner, work = Streams(autojump_clock, 14e-6), 14e-6
    if not hasattr(select, "epoll"):
        pytest.skip("the loop on a poller is tested on epoll, which is not here")
    streams = [opened(owner) for _ in range(100)]
    async with trio.open_nursery() as nursery:
        loop = PollerLoop(select.epoll(), autojump_clock.current_time)
        for stream in streams:
            loop.add(stream)
        loop.start(TrioBackend(nursery))
        await owner.send(streams, rate=20_000, seconds=0.3)
        await trio.sleep(1)
        owner.delays.clear()
        await owner.send(streams, rate=100, seconds=0.1)
        await trio.sleep(2 * LONGEST_PAUSE)
        nursery.cancel_scope.cancel()
    loop.close()
    assert max(owner.delays) < 2 * work


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
