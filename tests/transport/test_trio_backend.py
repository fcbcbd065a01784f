"""The transport on trio: how a descriptor is served, with pauses."""

from __future__ import annotations

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


@pytest.mark.trio
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


@pytest.mark.trio
async def test_a_test_s_clock_measures_the_pauses(
    pair: tuple[socket.socket, socket.socket], autojump_clock: MockClock
) -> None:
    begin = trio.current_time()
    times = await serve(pair, [0.25, 0.0, 0.5])
    assert [time - begin for time in times] == pytest.approx([0.0, 0.25, 0.25, 0.75])


@pytest.mark.trio
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
