"""The loop with a task for each connection, on platforms without a poller that has a descriptor of its own."""

import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from manystream.transport import loop as loop_module
from manystream.transport import task_loop as module
from manystream.transport.task_loop import TaskLoop, make_loop
from manystream.transport.trio_backend import TRIO


class Clock:
    """A clock in place of the module `time`. It moves only while a connection is served."""

    def __init__(self) -> None:
        self.now = 50.0

    def perf_counter(self) -> float:
        return self.now


class End:
    """A connection. log: what the loop has called; act: what it does when it is read."""

    def __init__(self, label: str = "call 1") -> None:
        self.sock, self.peer = socket.socketpair()
        self.sock.setblocking(False)
        self.label = label
        self.log: list[str] = []
        self.act: Callable[[], None] = lambda: None

    def on_readable(self) -> None:
        self.sock.recv(1)
        self.log.append("read")
        self.act()

    def on_writable(self) -> None:
        self.log.append("write")
        self.act()

    def on_defect(self, error: Exception) -> None:
        self.log.append(str(error))

    def close(self) -> None:
        self.sock.close()
        self.peer.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(loop_module, "time", clock)
    return clock


@asynccontextmanager
async def opened(*ends: End) -> AsyncGenerator[TaskLoop, None]:
    async with trio.open_nursery() as nursery:
        loop = TaskLoop(nursery, trio.current_time)
        loop.start(TRIO)
        for end in ends:
            loop.add(end)
        try:
            yield loop
        finally:
            loop.close()
    for end in ends:
        end.close()


async def test_a_connection_is_served_when_it_is_ready(autojump_clock: MockClock) -> None:
    end = End()
    await trio.sleep(5)
    async with opened(end) as loop:
        assert loop.now == trio.current_time()
        await wait_all_tasks_blocked()
        assert (end.log, loop.ticks) == ([], 0)
        await trio.sleep(5)
        end.peer.send(b"xx")
        await wait_all_tasks_blocked(0.01)
        assert (end.log, loop.ticks) == (["read", "read"], 2)
        assert loop.now >= 10
        loop.watch(end, read=False, write=False)
        end.peer.send(b"x")
        await wait_all_tasks_blocked(0.01)
        assert loop.ticks == 2
        end.act = lambda: loop.watch(end, read=False, write=False)
        loop.watch(end, read=True, write=False)
        await wait_all_tasks_blocked(0.01)
        loop.watch(end, read=False, write=True)
        await wait_all_tasks_blocked(0.01)
        assert (end.log, loop.ticks) == (["read", "read", "read", "write"], 4)
        loop.remove(end)
        loop.remove(end)


@pytest.mark.parametrize(("seconds", "culprit"), [(0.005, ""), (0.006, "call 1")])
async def test_a_slow_connection_is_named(seconds: float, culprit: str, clock: Clock) -> None:
    clock.now = 0.0
    end = End()

    def act() -> None:
        clock.now += seconds
        end.label = "call 2"

    end.act = act
    async with opened(end) as loop:
        end.peer.send(b"x")
        await wait_all_tasks_blocked(0.01)
        assert (loop.lag, loop.culprit) == (seconds, culprit)


async def test_a_defect_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    bad, good = End(), End()

    def fail() -> None:
        raise ValueError("a defect")

    bad.act = fail
    async with opened(bad, good) as loop:
        for end in (bad, good):
            end.peer.send(b"x")
        await wait_all_tasks_blocked(0.01)
        assert (bad.log, good.log, loop.ticks) == (["read", "a defect"], ["read"], 2)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_a_removed_connection_can_be_closed_at_once() -> None:
    end = End()
    async with opened(end) as loop:
        await wait_all_tasks_blocked()
        loop.remove(end)
        end.sock.close()
        await wait_all_tasks_blocked()
        assert (end.log, loop.ticks) == ([], 0)


async def test_the_loop_of_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    async with trio.open_nursery() as nursery:
        monkeypatch.setattr(module, "make_poller", lambda: None)
        assert isinstance(make_loop(nursery), TaskLoop)
        monkeypatch.undo()
        loop = make_loop(nursery)
        assert loop.clock() <= trio.current_time()
        loop.close()
