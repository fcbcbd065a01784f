"""The multi-request loop: it names the connection that delays the others."""

import select
import selectors
import socket
from collections.abc import Callable, Iterator

import pytest

from manystream.transport import loop as module
from manystream.transport.loop import HELD_UP_SECONDS, LAG_WINDOW, READ, WRITE, Poller, PollerLoop, SelectorPoller


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now


class Reader:
    """A connection that calls `act` whenever it is readable, to simulate slow work."""

    def __init__(self, label: str, act: Callable[[], None]) -> None:
        self.sock, self.peer = socket.socketpair()
        self.sock.setblocking(False)
        self.label = label
        self.act = act

    def on_readable(self) -> None:
        self.sock.recv(100)
        self.act()

    def on_writable(self) -> None:
        raise AssertionError("nothing was to be written")

    def on_defect(self, error: Exception) -> None:
        self.act()

    def close(self) -> None:
        self.sock.close()
        self.peer.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def loop(clock: Clock) -> Iterator[PollerLoop]:
    if not hasattr(select, "epoll"):
        pytest.skip("the loop on a poller is tested on epoll, which is not here")
    loop = PollerLoop(select.epoll(), lambda: clock.now)
    yield loop
    loop.close()


@pytest.fixture
def readers(clock: Clock, loop: PollerLoop) -> Iterator[list[Reader]]:
    def take(seconds: float) -> Callable[[], None]:
        def act() -> None:
            clock.now += seconds

        return act

    readers = [Reader("call 1", take(0.001)), Reader("call 2", take(0.2)), Reader("call 3", take(0.03))]
    for reader in readers:
        loop.add(reader)
    yield readers
    for reader in readers:
        reader.close()


def test_the_slowest_connection_of_a_slow_tick_is_named(loop: PollerLoop, readers: list[Reader]) -> None:
    for reader in readers:
        reader.peer.send(b"x")
    assert loop.tick() == 3
    assert loop.lag == pytest.approx(0.231)
    assert loop.culprit == "call 2"


def test_no_connection_is_named_if_none_is_slow(loop: PollerLoop, readers: list[Reader]) -> None:
    readers[0].peer.send(b"x")
    loop.tick()
    assert 0 < loop.lag < HELD_UP_SECONDS
    assert loop.culprit == ""


def test_the_name_is_the_label_from_before_the_call(loop: PollerLoop, readers: list[Reader]) -> None:
    """The connection's callback may have begun another exchange on it."""
    slow = readers[1]
    act = slow.act

    def act_and_begin_another() -> None:
        act()
        slow.label = "call 4"

    slow.act = act_and_begin_another
    slow.peer.send(b"x")
    loop.tick()
    assert loop.culprit == "call 2"


def test_a_slow_tick_is_forgotten_after_the_window(loop: PollerLoop, readers: list[Reader], clock: Clock) -> None:
    readers[1].peer.send(b"x")
    loop.tick()
    for _ in range(2):
        assert loop.culprit == "call 2"
        clock.now += LAG_WINDOW + 0.1
        readers[0].peer.send(b"x")
        loop.tick()
    assert loop.culprit == ""
    assert loop.lag < HELD_UP_SECONDS


def test_a_slow_tick_is_remembered_for_a_whole_window(loop: PollerLoop, readers: list[Reader], clock: Clock) -> None:
    readers[1].peer.send(b"x")
    loop.tick()
    for seconds in (1.1, 0.3, 0.3, 0.3):
        assert (loop.culprit, loop.lag) == ("call 2", pytest.approx(0.2))
        clock.now += seconds
        readers[0].peer.send(b"x")
        loop.tick()
    assert (loop.culprit, loop.lag) == ("call 2", pytest.approx(0.2)), "the next window has not ended yet"
    clock.now += 0.2
    readers[0].peer.send(b"x")
    loop.tick()
    assert (loop.culprit, loop.lag) == ("", pytest.approx(0.001))


def test_of_two_equally_slow_ticks_the_later_is_named(loop: PollerLoop, readers: list[Reader], clock: Clock) -> None:
    clock.now = 0.0
    readers[0].act = lambda: setattr(clock, "now", 0.5)
    readers[0].peer.send(b"x")
    loop.tick()
    clock.now = 2.0
    readers[2].act = lambda: setattr(clock, "now", 2.5)
    readers[2].peer.send(b"x")
    loop.tick()
    assert (loop.lag, loop.culprit) == (0.5, "call 3")


@pytest.mark.parametrize(("seconds", "culprit"), [(0.005, ""), (0.006, "call 1")])
def test_more_than_five_milliseconds_are_slow(
    seconds: float, culprit: str, loop: PollerLoop, readers: list[Reader], clock: Clock
) -> None:
    clock.now = 0.0
    readers[0].act = lambda: setattr(clock, "now", seconds)
    readers[0].peer.send(b"x")
    loop.tick()
    assert (loop.lag, loop.culprit) == (seconds, culprit)


def test_a_tick_does_not_wait_and_serves_at_most_256(loop: PollerLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[float, int]] = []

    class Quiet:
        def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
            asked.append((timeout, maxevents))
            return []

    monkeypatch.setattr(loop, "_poller", Quiet())
    assert (loop.tick(), asked) == (0, [(0, 256)])
    monkeypatch.undo()


def test_a_tick_is_counted_if_it_serves_a_connection(loop: PollerLoop, readers: list[Reader], clock: Clock) -> None:
    assert (loop.tick(), loop.ticks, loop.now) == (0, 0, 0.0)
    readers[0].peer.send(b"x")
    assert (loop.tick(), loop.ticks, loop.now) == (1, 1, 100.0)


def test_a_defect_ends_its_connection(
    loop: PollerLoop, readers: list[Reader], caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    def fail() -> None:
        ended.append("raised")
        raise ValueError("a defect")

    readers[0].act = fail  # it raises a second time when it is ended
    for reader in readers[:2]:
        reader.peer.send(b"x")
    assert loop.tick() == 2
    assert ended == ["raised", "raised"]
    assert [record.getMessage().partition(" <")[0] for record in caplog.records] == ["serving", "ending"]
    readers[0].peer.send(b"x")
    readers[1].peer.send(b"x")
    assert loop.tick() == 1, "the loop watches it no more"


def test_a_tick_that_fails_ten_times_in_a_row_is_raised(
    loop: PollerLoop, readers: list[Reader], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> int:
        raise OSError(9, "Bad file descriptor")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "tick", fail)
        assert [loop._guarded_tick() for _ in range(9)] == [0] * 9
    assert loop._guarded_tick() == 0, "one that succeeds begins the count again"
    monkeypatch.setattr(loop, "tick", fail)
    assert [loop._turn() for _ in range(9)] == [-1.0] * 9
    with pytest.raises(OSError, match="Bad file descriptor"):
        loop._turn()
    assert {record.getMessage() for record in caplog.records} == {"a tick of the loop raised: a defect in manystream"}
    assert len(caplog.records) == 18


@pytest.mark.parametrize(("served", "pause"), [(0, -1.0), (1, -1.0), (255, -1.0), (256, 0.0), (300, 0.0)])
def test_full_ticks_follow_at_once(
    served: int, pause: float, loop: PollerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "tick", lambda: served)
    assert loop._turn() == pause


def test_a_connection_that_hangs_up_is_read(loop: PollerLoop, clock: Clock) -> None:
    log: list[str] = []

    class Both(Reader):
        def on_readable(self) -> None:
            log.append("read")

        def on_writable(self) -> None:
            log.append("write")

    both = Both("call", lambda: None)
    loop.add(both)
    loop.watch(both, read=True, write=True)
    loop.tick()
    assert log == ["write"]
    both.peer.send(b"x")
    loop.tick()
    assert log == ["write", "write", "read"]
    loop.watch(both, read=False, write=False)
    loop.tick()
    assert log == ["write", "write", "read"]
    both.peer.close()
    loop.tick()
    assert log == ["write", "write", "read", "read"], "errors and hang-ups are reported without being asked for"
    loop.remove(both)
    loop.remove(both)
    assert loop.tick() == 0
    both.close()


@pytest.fixture(params=["epoll", "selector"])
def poller(request: pytest.FixtureRequest) -> Iterator[Poller]:
    if not hasattr(select, "epoll"):
        pytest.skip("the pollers are tested on epoll, which is not here")
    poller: Poller = select.epoll() if request.param == "epoll" else SelectorPoller(selectors.EpollSelector())
    yield poller
    poller.close()


def test_a_poller_reports_the_events_registered_last(poller: Poller) -> None:
    near, far = socket.socketpair()
    with near, far:
        far.send(b"x")
        fd = near.fileno()
        poller.register(fd, READ)
        assert poller.poll(0, 8) == [(fd, READ)]
        for mask in (READ | WRITE, WRITE, READ, WRITE):
            poller.modify(fd, mask)
            assert poller.poll(0, 8) == [(fd, mask)]
        poller.modify(fd, 0)
        assert poller.poll(0, 8) == []
        poller.modify(fd, READ | WRITE)
        assert poller.poll(0, 8) == [(fd, READ | WRITE)]
        poller.unregister(fd)
        assert poller.poll(0, 8) == []
