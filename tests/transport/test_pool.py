"""The pool: the assignment of connections, caps, queues, and connections that are never assigned."""

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from manystream.transport.coalescing import LONGEST_PAUSE
from manystream.transport.errors import Phase, TransportError
from manystream.transport.http1 import Connection, State
from manystream.transport.pool import ConnectionWatch, Pool, PoolLimits
from manystream.transport.task_loop import make_loop
from manystream.transport.timers import Timers
from manystream.transport.trio_backend import TrioBackend
from manystream.transport.url import Origin
from tests.support.exchanges import BODY, HEAD, RecordedExchange

A = Origin("http", "a.test", 80)
B = Origin("http", "b.test", 80)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Asker:
    """A waiter that records the outcome."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.reused: bool | None = None
        self.error: TransportError | None = None
        self.defect: Exception | None = None

    def on_phase(self, phase: Phase) -> None: ...

    def on_connection(self, connection: Connection, reused: bool) -> None:
        assert self.connection is None
        self.connection, self.reused = connection, reused
        connection.send(HEAD, BODY, RecordedExchange())

    def on_connect_failure(self, error: TransportError) -> None:
        self.error = error

    def on_defect(self, error: Exception) -> None:
        self.defect = error


class Rig:
    def __init__(self) -> None:
        self.servers: dict[str, list[socket.socket]] = {}
        self.other_end: dict[socket.socket, socket.socket] = {}
        self.dials = 0
        self.fail: Exception | None = None
        self.hold: trio.Event | None = None

    async def dial(self, origin: Origin, on_phase: Callable[[Phase], None]) -> socket.socket:
        self.dials += 1
        on_phase(Phase.CONNECT)
        if self.hold is not None:
            await self.hold.wait()
        if self.fail is not None:
            raise self.fail
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.servers.setdefault(origin.host, []).append(theirs)
        self.other_end[ours] = theirs
        return ours

    def ask(self, origin: Origin = A) -> Asker:
        asker = Asker()
        self.pool.acquire(origin, asker)
        return asker

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked(LONGEST_PAUSE * 1.25)

    async def served(self, *askers: Asker) -> None:
        """Respond to the waiters' requests, so that their connections become idle."""
        for asker in askers:
            server = self.other_end[asker.connection.sock]
            server.recv(10_000)
            server.sendall(OK)
        await self.settle()


@asynccontextmanager
async def open_rig(limits: PoolLimits | None = None, watch: ConnectionWatch | None = None) -> AsyncGenerator[Rig, None]:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        loop = make_loop(nursery)
        timers = Timers(loop.catch_up)
        backend = TrioBackend(nursery)
        loop.start(backend)
        timers.start(backend)
        rig.pool = Pool(backend, loop, timers, rig.dial, limits or PoolLimits(), watch)  # type: ignore[attr-defined]
        try:
            yield rig
        finally:
            rig.pool.close()  # type: ignore[attr-defined]
            for servers in rig.servers.values():
                for server in servers:
                    server.close()
            nursery.cancel_scope.cancel()
    loop.close()


async def test_acquire_takes_the_youngest_idle_connection_at_once() -> None:
    async with open_rig() as rig:
        first, second = rig.ask(), rig.ask()
        await rig.settle()
        await rig.served(first)
        await rig.served(second)
        third = rig.ask()
        assert third.connection is second.connection
        assert third.reused
        assert rig.dials == 2
        assert (rig.pool.opened, rig.pool.reused) == (2, 1)


async def test_an_idle_connection_that_ends_leaves_the_others_in_order() -> None:
    async with open_rig() as rig:
        first, second, third = rig.ask(), rig.ask(), rig.ask()
        await rig.settle()
        for asker in (first, second, third):
            await rig.served(asker)
        rig.other_end[second.connection.sock].close()
        await rig.settle()
        assert second.connection.state is State.CLOSED
        assert [rig.ask().connection for _ in range(2)] == [third.connection, first.connection]
        assert rig.pool.counts()[str(A)] == (0, 2, 0, 0)


async def test_a_connection_whose_check_raises_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(_: Connection) -> bool:
        raise RuntimeError("a defect")

    async with open_rig() as rig:
        first = rig.ask()
        await rig.settle()
        await rig.served(first)
        monkeypatch.setattr(Connection, "looks_alive", defect)
        with pytest.raises(RuntimeError, match="a defect"):
            rig.ask()
        assert first.connection.state is State.CLOSED
        assert not rig.pool.counts()


async def test_a_fresh_connection_is_dialled_in_place_of_all_idle_ones() -> None:
    """After a connection turned out to be stale, those that were idle as long as it was are not used, either."""
    async with open_rig() as rig:
        first, second = rig.ask(), rig.ask()
        await rig.settle()
        await rig.served(first, second)
        third = Asker()
        rig.pool.acquire(A, third, fresh=True)
        assert third.connection is None
        await rig.settle()
        assert not third.reused
        assert (rig.dials, rig.pool.reused) == (3, 0)
        assert [asker.connection.state for asker in (first, second) if asker.connection] == [State.CLOSED] * 2


async def test_waiters_are_served_first_in_first_out_within_the_cap() -> None:
    async with open_rig(PoolLimits(max_per_origin=1)) as rig:
        askers = [rig.ask() for _ in range(4)]
        await rig.settle()
        assert [asker.connection is not None for asker in askers] == [True, False, False, False]
        for position in range(3):
            await rig.served(askers[position])
            assert askers[position + 1].reused
        assert rig.dials == 1


async def test_an_abandoned_waiter_gives_up_its_place() -> None:
    async with open_rig(PoolLimits(max_per_origin=1)) as rig:
        first, second, third = rig.ask(), rig.ask(), rig.ask()
        await rig.settle()
        rig.pool.abandon(second)
        await rig.served(first)
        assert second.connection is None
        assert third.reused


async def test_no_dial_begins_for_a_waiter_that_gave_up() -> None:
    async with open_rig(PoolLimits(max_connections=2)) as rig:
        first, second, third = rig.ask(), rig.ask(), rig.ask(B)
        rig.pool.abandon(first)
        await rig.settle()
        assert (second.connection is not None, third.connection is not None) == (True, True)
        assert (first.connection, rig.dials) == (None, 2)
        assert rig.pool.counts()[str(A)] == (0, 1, 0, 0)


async def test_a_waiter_that_gives_up_cancels_its_dial() -> None:
    async with open_rig() as rig:
        rig.hold = trio.Event()
        asker = rig.ask()
        await rig.settle()
        assert rig.pool.counts()[str(A)] == (1, 0, 0, 0)
        rig.pool.abandon(asker)
        await rig.settle()
        assert str(A) not in rig.pool.counts()
        assert asker.connection is None
        assert asker.error is None


async def test_a_failed_dial_is_reported_and_frees_its_place() -> None:
    async with open_rig(PoolLimits(max_per_origin=1)) as rig:
        rig.fail = TransportError("refused", phase=Phase.CONNECT)
        first, second = rig.ask(), rig.ask()
        await rig.settle()
        assert first.error is rig.fail
        assert second.error is rig.fail
        assert rig.dials == 2


async def test_a_defect_in_a_dial_ends_the_calls_that_wait_for_it() -> None:
    async with open_rig(PoolLimits(max_per_origin=1)) as rig:
        rig.fail = ValueError("a defect")
        first, second = rig.ask(), rig.ask()
        await rig.settle()
        assert (first.defect, second.defect) == (rig.fail, rig.fail)
        assert (first.error, second.error) == (None, None)


async def test_a_closed_or_dirty_connection_is_never_assigned() -> None:
    async with open_rig() as rig:
        first = rig.ask()
        await rig.settle()
        await rig.served(first)
        rig.servers["a.test"][0].close()
        second = rig.ask()  # the loop has not run: the pool checks the connection itself
        assert second.connection is None
        await rig.settle()
        assert second.reused is False
        assert rig.pool.discarded == 1


async def test_at_the_total_cap_another_origin_s_idle_one_is_closed() -> None:
    async with open_rig(PoolLimits(max_connections=1)) as rig:
        first = rig.ask(A)
        await rig.settle()
        waiting = rig.ask(B)
        await rig.settle()
        assert waiting.connection is None
        await rig.served(first)
        assert waiting.connection is not None
        await rig.served(waiting)
        again = rig.ask(A)
        await rig.settle()
        assert again.connection is not None


@pytest.mark.parametrize("start", [0.1, 1e6 + 1 / 3, 123456789.123456789])
async def test_rounding_cannot_delay_the_expiry_of_a_connection(autojump_clock: MockClock, start: float) -> None:
    autojump_clock.jump(start)
    for step in range(60):
        async with open_rig(PoolLimits(idle_expiry=15 + step / 7)) as rig:
            asker = rig.ask()
            await rig.settle()
            await rig.served(asker)
            with trio.fail_after(3600):
                await trio.sleep(60)
            assert asker.connection.state is State.CLOSED


async def test_idle_connections_expire(autojump_clock: MockClock) -> None:
    async with open_rig(PoolLimits(idle_expiry=15)) as rig:
        first = rig.ask()
        await rig.settle()
        await rig.served(first)
        await trio.sleep(14)
        assert rig.pool.counts()[str(A)] == (0, 0, 1, 0)
        await trio.sleep(2)
        assert rig.pool.counts() == {}
        assert first.connection.state is State.CLOSED


async def test_a_thousand_waiters_never_exceed_the_cap() -> None:
    async with open_rig(PoolLimits(max_per_origin=20)) as rig:
        askers = [rig.ask() for _ in range(1000)]
        for asker in askers[::3]:
            rig.pool.abandon(asker)
        kept = [asker for number, asker in enumerate(askers) if number % 3]
        for _ in range(200):
            await rig.settle()
            connecting, active, idle, waiting = rig.pool.counts()[str(A)]
            assert connecting + active + idle <= 20
            for server in rig.servers["a.test"]:
                server.setblocking(False)
                try:
                    if server.recv(10_000):
                        server.sendall(OK)
                except BlockingIOError:
                    pass
            if not waiting and not active:
                break
        assert all(asker.connection is not None for asker in kept)
        assert rig.dials <= 20 + 334
