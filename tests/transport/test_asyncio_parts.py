"""The parts of the asyncio backend, call by call on an event loop that notes them, and its tasks on a real one."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from manystream.transport import asyncio_backend
from manystream.transport.asyncio_backend import AsyncioBackend, UnsupportedEventLoopError

SERVED, TIMER = 5, 77


class Handle:
    def __init__(self, loop: Loop, when: float) -> None:
        self.loop = loop
        self.at = when

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.loop.log.append(("cancel", self.at))


class Loop:
    """An event loop. log: its calls; readers and later: what it would call."""

    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []
        self.readers: dict[int, Callable[[], None]] = {}
        self.later: Callable[[], None] = lambda: None
        self.now = 100.0
        self.closed = False

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.log.append(("read", fd))
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.log.append(("unread", fd))
        self.readers.pop(fd, None)

    def add_writer(self, fd: int, callback: Callable[[], None]) -> None:
        self.log.append(("write", fd))
        self.readers[-fd] = callback

    def remove_writer(self, fd: int) -> None:
        self.log.append(("unwrite", fd))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        return self.call_at(self.now + seconds, callback)

    def call_at(self, when: float, callback: Callable[[], None], context: object = None) -> Handle:
        self.log.append(("at", when))
        self.later = callback
        return Handle(self, when)

    def time(self) -> float:
        return self.now

    def is_closed(self) -> bool:
        return self.closed


class KernelTimer:
    def __init__(self, loop: Loop) -> None:
        self.loop = loop

    def fileno(self) -> int:
        return TIMER

    def start(self, seconds: float) -> None:
        self.loop.log.append(("start", seconds))

    def stop(self) -> None:
        self.loop.log.append(("stop",))

    def close(self) -> None:
        self.loop.log.append(("close",))


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(asyncio_backend, "make_kernel_timer", lambda: KernelTimer(loop))
    monkeypatch.setattr(sys, "platform", "linux")
    return loop


def calls_of(loop: Loop) -> list[tuple[object, ...]]:
    found, loop.log = loop.log, []
    return found


def begin(loop: Any, pauses: list[float | Exception], failed: list[Exception] | None = None) -> Any:
    def turn() -> float:
        pause = pauses.pop(0)
        if isinstance(pause, Exception):
            raise pause
        return pause

    return AsyncioBackend(loop, failed.append if failed is not None else None).serve(SERVED, turn)


def test_a_service_waits_for_its_descriptor_or_its_timer(loop: Loop) -> None:
    service = begin(loop, [0.0, -1.0, 0.25, 0.5, -1.0, 0.125])
    assert calls_of(loop) == [("read", 5), ("write", 5)]
    for _ in range(2):
        loop.readers[SERVED]()
        assert calls_of(loop) == [], "it goes on to listen"
    loop.readers[SERVED]()
    assert calls_of(loop) == [("unread", 5), ("read", 77), ("start", 0.25)]
    loop.readers[TIMER]()
    assert calls_of(loop) == [("start", 0.5)]
    loop.readers[TIMER]()
    assert calls_of(loop) == [("stop",), ("read", 5)]
    loop.readers[SERVED]()
    assert calls_of(loop) == [("unread", 5), ("start", 0.125)], "the timer stays registered"
    service.cancel()
    assert calls_of(loop) == [("unread", 5), ("unwrite", 5), ("unread", 77), ("close",)]
    service.cancel()
    assert calls_of(loop) == []


def test_a_service_without_a_kernel_s_timer_uses_the_loop_s(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_backend, "make_kernel_timer", lambda: None)
    monkeypatch.setattr(sys, "platform", "darwin")
    service = begin(loop, [0.25, 0.5, 0.0])
    assert calls_of(loop) == [("read", 5)]
    loop.readers[SERVED]()
    assert calls_of(loop) == [("unread", 5), ("at", 100.25)]
    loop.later()
    assert calls_of(loop) == [("at", 100.5)]
    service.cancel()
    assert calls_of(loop) == [("unread", 5), ("unwrite", 5), ("cancel", 100.5)]


def test_a_service_of_a_closed_loop_closes_its_timer_only(loop: Loop) -> None:
    service = begin(loop, [0.25])
    loop.readers[SERVED]()
    calls_of(loop)
    loop.closed = True
    service.cancel()
    assert calls_of(loop) == [("close",)]


def test_a_turn_that_raises_ends_the_service(loop: Loop) -> None:
    failed: list[Exception] = []
    defect = ValueError("a defect")
    begin(loop, [defect], failed)
    calls_of(loop)
    loop.readers[SERVED]()
    assert (failed, calls_of(loop)) == ([defect], [("unread", 5), ("unwrite", 5)])


def test_a_turn_may_cancel_its_service(loop: Loop) -> None:
    served: Any = loop

    def turn() -> float:
        service.cancel()
        return 0.5

    service = AsyncioBackend(served).serve(SERVED, turn)
    calls_of(loop)
    loop.readers[SERVED]()
    assert calls_of(loop) == [("unread", 5), ("unwrite", 5)]


def test_a_descriptor_that_becomes_writable_is_not_watched(loop: Loop) -> None:
    begin(loop, [])
    calls_of(loop)
    loop.readers[-SERVED]()
    assert calls_of(loop) == [("unwrite", 5)]


def test_a_loop_that_waits_for_no_descriptor_is_named() -> None:
    class ProactorLoop(Loop):
        def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
            raise NotImplementedError

    with pytest.raises(UnsupportedEventLoopError) as caught:
        begin(ProactorLoop(), [])
    assert str(caught.value) == (
        "ProactorLoop cannot wait for a file descriptor (it has no add_reader): run the program"
        " on asyncio.SelectorEventLoop or on trio, or keep the client's own transport"
    )


def test_an_alarm_moves_its_timer_only_when_it_must(loop: Loop) -> None:
    fired: list[float] = []
    used: Any = loop
    alarm = AsyncioBackend(used).alarm(lambda: fired.append(loop.now))
    alarm.set(math.inf)
    assert calls_of(loop) == []
    alarm.set(110.0)
    alarm.set(110.0)
    alarm.set(120.0)
    assert calls_of(loop) == [("at", 110.0)], "a later deadline keeps the timer"
    alarm.set(105.0)
    assert calls_of(loop) == [("cancel", 110.0), ("at", 105.0)]
    loop.now = 105.0
    loop.later()
    assert (fired, calls_of(loop)) == ([105.0], [])
    alarm.set(110.0)
    alarm.set(130.0)
    loop.now = 110.0
    loop.later()
    assert (fired, calls_of(loop)) == ([105.0], [("at", 110.0), ("at", 130.0)]), "it begins again"
    alarm.cancel()
    assert calls_of(loop) == [("cancel", 130.0)]
    alarm.cancel()
    assert calls_of(loop) == []
    alarm.set(140.0)
    alarm.set(math.inf)
    loop.now = 140.0
    loop.later()
    assert (fired, calls_of(loop)) == ([105.0], [("at", 140.0)])


# --- tasks, on a real event loop ---


def run(test: Callable[[AsyncioBackend], Awaitable[None]], failed: list[Exception] | None = None) -> None:
    async def main() -> None:
        on_failure = failed.append if failed is not None else None
        await asyncio.wait_for(test(AsyncioBackend(asyncio.get_running_loop(), on_failure)), 30)

    asyncio.run(main())


async def turns(count: int = 20) -> None:
    """Let the event loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("by", ["the backend", "asyncio"])
def test_a_task_is_begun_even_if_it_is_cancelled_before(by: str) -> None:
    log: list[str] = []

    def cancel(task: object) -> None:
        task.cancel() if by == "the backend" else task.task.cancel()  # type: ignore[attr-defined]

    async def work(name: str) -> None:
        log.append(name)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            log.append(f"end of {name}")

    async def test(backend: AsyncioBackend) -> None:
        early = backend.start(work, "early")
        cancel(early)
        cancel(early)
        late = backend.start(work, "late")
        assert len(backend._tasks) == 2
        await backend.checkpoint()
        await backend.checkpoint()
        cancel(late)
        cancel(late)
        await turns()
        assert backend._tasks == set()
        cancel(late)

    run(test)
    assert log == ["early", "end of early", "late", "end of late"]


def test_what_ends_a_task_is_logged_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    defect, failed = ValueError("a defect"), list[Exception]()

    async def work() -> None:
        raise defect

    async def test(backend: AsyncioBackend) -> None:
        backend.start(work)
        await turns()
        assert backend._tasks == set()

    run(test, failed)
    assert failed == [defect]
    run(test)
    assert (
        caplog.record_tuples == [("manystream.transport.asyncio_backend", logging.ERROR,
        "a task of the transport raised: a defect in manystream")] * 2
    )  # fmt: skip
    assert all(record.exc_info and record.exc_info[1] is defect for record in caplog.records)


def test_a_group_ends_when_its_tasks_have_ended() -> None:
    log: list[str] = []

    async def work(name: str, steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        log.append(name)

    async def test(backend: AsyncioBackend) -> None:
        async with backend.open_group() as group:
            assert list(backend.groups.values()) == [group]
            group.start(work, "slow", 9)
            group.start(work, "quick", 1)
            log.append("begun")
        assert backend.groups == {}
        log.append("ended")

    run(test)
    assert log == ["begun", "quick", "slow", "ended"]


async def forever(log: list[str], name: str) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        log.append(name)
        raise


def test_a_group_that_is_cancelled_ends_without_an_error() -> None:
    log: list[str] = []

    async def test(backend: AsyncioBackend) -> None:
        async with backend.open_group() as group:
            group.start(forever, log, "one")
            group.start(forever, log, "two")
            await backend.checkpoint()
            group.cancel()

    run(test)
    assert log == ["one", "two"]


@pytest.mark.parametrize("where", ["task", "block"])
def test_an_error_in_a_group_cancels_the_others(where: str) -> None:
    log: list[str] = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError("by zero")

    async def test(backend: AsyncioBackend) -> None:
        async def work() -> None:
            async with backend.open_group() as group:
                group.start(forever, log, "other")
                if where == "task":
                    group.start(fail)
                else:
                    await fail()

        with pytest.raises(ZeroDivisionError, match="by zero"):
            await work()
        assert backend.groups == {}

    run(test)
    assert log == ["other"]


def test_a_cancelled_task_cancels_its_group() -> None:
    log: list[str] = []

    async def work(backend: AsyncioBackend) -> None:
        try:
            async with backend.open_group() as group:
                group.start(forever, log, "one")
        except asyncio.CancelledError:
            log.append("owner")
            raise

    async def test(backend: AsyncioBackend) -> None:
        task = backend.start(work, backend)
        await turns()
        task.cancel()
        await turns()
        assert (backend.groups, backend._tasks) == ({}, set())

    run(test)
    assert log == ["one", "owner"]


def test_waits_end_when_a_descriptor_is_ready() -> None:
    near, far = socket.socketpair()
    near.setblocking(False)

    async def test(backend: AsyncioBackend) -> None:
        loop = asyncio.get_running_loop()
        await backend.wait_writable(near.fileno())
        assert not loop.remove_writer(near.fileno()), "it was removed"
        reading = asyncio.create_task(backend.wait_readable(near.fileno()))
        await turns()
        assert not reading.done()
        far.send(b"x")
        await reading
        assert not loop.remove_reader(near.fileno())
        assert backend.clock == loop.time
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        with pytest.raises(asyncio.CancelledError):
            await backend.checkpoint_if_cancelled()

    with near, far, pytest.raises(asyncio.CancelledError):
        run(test)


async def enter(backend: AsyncioBackend) -> None:
    async with backend.handshake_lock():
        pass


def test_events_signals_and_times() -> None:
    async def test(backend: AsyncioBackend) -> None:
        await backend.checkpoint_if_cancelled()
        event, signal = backend.event(), backend.signal()
        await backend.wait_at_most(event, 0.001)
        assert not event.is_set()  # type: ignore[attr-defined]
        event.set()
        await backend.wait_at_most(event, 3600)
        signal.set()
        signal.set()
        await signal.wait()
        assert backend.handshake_lock() is backend.handshake_lock()
        assert not backend.handshaking
        async with backend.handshake_lock():
            assert backend.handshaking
            waiter = asyncio.create_task(enter(backend))
            await asyncio.sleep(0)
        assert backend.handshaking, "the next one has its turn"
        await waiter
        assert not backend.handshaking
        found = await backend.getaddrinfo("127.0.0.1", 80)
        assert [(entry[1], entry[4]) for entry in found] == [(socket.SOCK_STREAM, ("127.0.0.1", 80))]

    run(test)
