"""The transport on trio: how a descriptor is served, with pauses."""

import errno
import functools
import math
import socket
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from manystream.transport import trio_backend
from manystream.transport.backend import WAIT
from manystream.transport.trio_backend import TrioBackend


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield near, far


class Turns:
    """A function that reads one byte per call, and asks for each of `pauses` in turn."""

    def __init__(self, sock: socket.socket, pauses: list[float]) -> None:
        self.sock = sock
        self.pauses = pauses
        self.times: list[float] = []
        self.over = trio.Event()

    def __call__(self) -> float:
        self.times.append(trio.current_time())
        self.sock.recv(1)
        if len(self.times) <= len(self.pauses):
            return self.pauses[len(self.times) - 1]
        self.over.set()
        return WAIT


async def serve(pair: tuple[socket.socket, socket.socket], pauses: list[float]) -> list[float]:
    """Serve a descriptor that is readable all the time. Returns the times of the turns."""
    near, far = pair
    turns = Turns(near, pauses)
    far.send(b"x" * (len(pauses) + 1))
    async with trio.open_nursery() as nursery:
        TrioBackend(nursery).serve(near.fileno(), turns)
        await turns.over.wait()
        nursery.cancel_scope.cancel()
    return turns.times


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel timer", "trio's sleep"])
async def test_a_service_is_called_after_its_pauses(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    if not kernel:
        monkeypatch.setattr(trio_backend, "make_kernel_timer", lambda: None)
    times = await serve(pair, [0.0003, 0.0, WAIT, 0.0003])
    assert len(times) == 5
    assert times[1] - times[0] >= 0.0003
    assert times[4] - times[3] >= 0.0003


async def test_a_test_s_clock_measures_the_pauses(
    pair: tuple[socket.socket, socket.socket], autojump_clock: MockClock
) -> None:
    begin = trio.current_time()
    times = await serve(pair, [0.25, 0.0, 0.5])
    assert [time - begin for time in times] == pytest.approx([0.0, 0.25, 0.25, 0.75])


async def test_a_cancelled_service_closes_its_timer(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    make = trio_backend.make_kernel_timer

    def recorded() -> object:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(trio_backend, "make_kernel_timer", recorded)
    near, far = pair
    far.send(b"x")
    async with trio.open_nursery() as nursery:
        service = TrioBackend(nursery).serve(near.fileno(), lambda: 0.9)  # it pauses when it is cancelled
        await wait_all_tasks_blocked()
        service.cancel()
    assert [timer.fileno() for timer in made if timer is not None] == [-1] * len(made)  # type: ignore[attr-defined]


@pytest.mark.parametrize("attempt", range(5))  # trio shuffles the tasks that are ready
async def test_a_service_cancelled_when_ready_is_not_called(attempt: int, caplog: pytest.LogCaptureFixture) -> None:
    """The descriptor is readable and its task is about to run when the owner cancels and closes."""
    pairs = [socket.socketpair(), socket.socketpair()]
    called: list[int] = []

    def turn(own: int) -> float:
        called.append(own)
        services[1 - own].cancel()
        pairs[1 - own][0].close()
        pairs[own][0].recv(1)
        return WAIT

    services = [TrioBackend().serve(pairs[own][0].fileno(), functools.partial(turn, own)) for own in range(2)]
    await wait_all_tasks_blocked()
    for _, far in pairs:
        far.send(b"x")  # both are readable in the same iteration of trio
    await wait_all_tasks_blocked()
    assert len(called) == 1
    services[called[0]].cancel()
    await wait_all_tasks_blocked()
    for near, far in pairs:
        near.close()
        far.close()
    assert caplog.text == ""


async def test_a_service_cancels_itself(
    pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    near, far = pair

    def turn() -> float:
        service.cancel()
        near.close()
        return WAIT

    service = TrioBackend().serve(near.fileno(), turn)
    await wait_all_tasks_blocked()
    far.send(b"x")
    await wait_all_tasks_blocked()
    assert caplog.text == ""


@pytest.mark.parametrize("attempt", range(5))
async def test_an_alarm_cancelled_at_its_time_is_silent(attempt: int, autojump_clock: MockClock) -> None:
    fired: list[int] = []

    def fire(own: int) -> None:
        fired.append(own)
        alarms[own].set(math.inf)
        alarms[1 - own].cancel()

    alarms = [TrioBackend().alarm(functools.partial(fire, own)) for own in range(2)]
    for alarm in alarms:
        alarm.set(1)
    await trio.sleep(2)
    assert len(fired) == 1
    alarms[fired[0]].cancel()


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
