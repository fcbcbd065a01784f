"""The pool's limits: ages, idle and draining connections, queues of waiters that gave up, and dials that fail."""

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.transport.errors import Phase, TransportError
from manystream.transport.http1 import Connection, State
from manystream.transport.url import Origin
from tests.transport.test_pool import A, Asker, B, Rig, open_rig

EXHAUSTED = TransportError("no descriptor is left", phase=Phase.CONNECT, exhausted=True)


def state(asker: Asker) -> State:
    return asker.connection.state


async def idle(rig: Rig, count: int) -> list[Asker]:
    """Return askers whose connections are idle, the oldest first."""
    askers = [rig.ask() for _ in range(count)]
    await rig.settle()
    for asker in askers:
        await rig.served(asker)
    return askers


async def test_the_limits_of_a_pool() -> None:
    limits = ms.PoolLimits()
    assert (limits.max_connections, limits.max_per_origin, limits.max_idle) == (20_000, 20_000, 20_000)
    assert (limits.idle_expiry, limits.drain_seconds, limits.max_age) == (15.0, 2.0, 300.0)


class Watch:
    def __init__(self) -> None:
        self.log: list[tuple[object, ...]] = []

    def connection_opened(self, origin: str) -> None:
        self.log.append(("opened", origin))

    def connection_closed(self, origin: str, served: int) -> None:
        self.log.append(("closed", origin, served))


async def test_each_connection_is_reported_when_it_opens_and_closes() -> None:
    watch = Watch()
    async with open_rig(watch=watch) as rig:
        (first,) = await idle(rig, 1)
        second, third = rig.ask(), rig.ask(B)
        await rig.settle()
        assert repr(rig.pool) == "<Pool 2 open, 0 idle, 0 waiting>"
        assert rig.pool.counts() == {"http://a.test:80": (0, 1, 0, 0), "http://b.test:80": (0, 1, 0, 0)}
        await rig.served(second)
        assert repr(rig.pool) == "<Pool 2 open, 1 idle, 0 waiting>"
        third.connection.close()
        assert first.connection is second.connection
        assert watch.log == [
            ("opened", "http://a.test:80"),
            ("opened", "http://b.test:80"),
            ("closed", "http://b.test:80", 0),
        ]
    assert watch.log[3:] == [("closed", "http://a.test:80", 2)]


async def test_only_so_many_idle_connections_are_kept() -> None:
    async with open_rig(ms.PoolLimits(max_idle=2)) as rig:
        askers = await idle(rig, 3)
        assert [state(asker) for asker in askers] == [State.IDLE, State.IDLE, State.CLOSED]


async def test_an_old_connection_is_not_used_again(autojump_clock: MockClock) -> None:
    async with open_rig(ms.PoolLimits(idle_expiry=1e6, max_age=100)) as rig:
        (first,) = await idle(rig, 1)
        opened = first.connection.opened_at
        await trio.sleep(opened + 99.5 - trio.current_time())
        second = rig.ask()
        assert second.connection is first.connection
        await trio.sleep(0.4)
        await rig.served(second)
        assert state(second) is State.IDLE
        third = rig.ask()
        assert third.connection is first.connection
        await trio.sleep(opened + 100 - trio.current_time())
        await rig.served(third)
        assert (state(third), rig.pool.discarded) == (State.CLOSED, 1)


async def test_a_connection_that_became_old_while_idle_is_closed(autojump_clock: MockClock) -> None:
    async with open_rig(ms.PoolLimits(idle_expiry=1e6, max_age=100)) as rig:
        old, young = await idle(rig, 1), Asker()
        await trio.sleep(200)
        rig.ask(B)
        await rig.settle()  # the pool uses the loop's latest reading of the clock
        rig.pool.acquire(A, young)
        assert (young.connection, state(old[0]), rig.pool.discarded) == (None, State.CLOSED, 1)


async def drained(rig: Rig) -> Connection:
    """Return a connection that reads the rest of a body without an exchange."""
    asker = rig.ask()
    await rig.settle()
    server = rig.other_end[asker.connection.sock]  # type: ignore[index]
    server.recv(10_000)
    server.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")
    await rig.settle()
    asker.connection.drain()
    return asker.connection


async def test_a_drained_connection_has_two_seconds_for_the_rest(autojump_clock: MockClock) -> None:
    async with open_rig() as rig:
        first, second = await drained(rig), await drained(rig)
        await trio.sleep(1.0)
        third = await drained(rig)
        rig.other_end[second.sock].sendall(b"67890")  # type: ignore[index]
        await trio.sleep(0.95)
        assert [one.state for one in (first, second, third)] == [State.BODY, State.IDLE, State.BODY]
        await trio.sleep(0.1)
        assert [one.state for one in (first, second, third)] == [State.CLOSED, State.IDLE, State.BODY]
        again = rig.ask()
        assert again.connection is second
        await trio.sleep(1.0)
        assert [one.state for one in (second, third)] == [State.HEAD, State.CLOSED]


async def test_a_raising_end_of_a_drain_is_repeated(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    close = Connection.close

    def failing(connection: Connection) -> None:
        calls.append(trio.current_time())
        if len(calls) == 1:
            raise RuntimeError("a defect")
        close(connection)

    async with open_rig() as rig:
        connection = await drained(rig)
        since = trio.current_time()
        monkeypatch.setattr(Connection, "close", failing)
        await trio.sleep(2.5)
        assert connection.state is State.BODY
        await trio.sleep(1.0)
        assert [round(at - since, 1) for at in calls[:2]] == [2.0, 3.0]
        assert connection.state is State.CLOSED


async def test_a_raising_expiry_is_repeated_later(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    close = Connection.close

    def failing(connection: Connection) -> None:
        calls.append(trio.current_time())
        if len(calls) == 1:
            raise RuntimeError("a defect")
        close(connection)

    async with open_rig(ms.PoolLimits(idle_expiry=5)) as rig:
        (asker,) = await idle(rig, 1)
        since = asker.connection.idle_since
        monkeypatch.setattr(Connection, "close", failing)
        await trio.sleep(20)
        assert [round(at - since, 2) for at in calls[:2]] == [5.0, 6.0]
        assert state(asker) is State.CLOSED


async def test_idle_connections_make_room_for_a_dial_s_descriptor() -> None:
    async with open_rig() as rig:
        askers = await idle(rig, 10)
        rig.fail, dials = EXHAUSTED, rig.dials
        asked = Asker()
        rig.pool.acquire(B, asked)
        await rig.settle()
        assert asked.error is EXHAUSTED
        assert rig.dials - dials == 3, "each time, eight idle ones are closed"
        assert [state(asker) for asker in askers] == [State.CLOSED] * 10


async def test_another_error_of_a_dial_closes_no_idle_connection() -> None:
    async with open_rig() as rig:
        askers = await idle(rig, 2)
        rig.fail, dials = TransportError("refused", phase=Phase.CONNECT), rig.dials
        asked = rig.ask(B)
        await rig.settle()
        assert (asked.error, rig.dials - dials) == (rig.fail, 1)
        assert [state(asker) for asker in askers] == [State.IDLE] * 2


async def test_waiters_that_gave_up_do_not_fill_the_queue() -> None:
    async with open_rig(ms.PoolLimits(max_per_origin=1)) as rig:
        askers = [rig.ask() for _ in range(201)]
        host = rig.pool._hosts[A]
        await rig.settle()
        for asker in askers[1:101]:
            rig.pool.abandon(asker)
        assert (len(host.queue), host.waiting) == (200, 100), "half of them still wait"
        rig.pool.abandon(askers[101])
        assert (len(host.queue), host.waiting) == (99, 99)
        for asker in askers[102:150]:
            rig.pool.abandon(asker)
        assert (len(host.queue), host.waiting) == (99, 51)
        rig.pool.abandon(askers[150])
        rig.pool.abandon(askers[151])
        assert (len(host.queue), host.waiting) == (49, 49)
        for asker in askers[152:]:
            rig.pool.abandon(asker)
            rig.pool.abandon(asker)
        assert (len(host.queue), host.waiting) == (49, 0), "a short queue is not made anew"
        await rig.served(askers[0])
        assert repr(rig.pool) == "<Pool 1 open, 1 idle, 0 waiting>"


class Broken(Asker):
    """A waiter that raises when it gets its connection."""

    def on_connection(self, connection: Connection, reused: bool) -> None:
        self.connection = connection
        raise ValueError("a defect of the waiter")


@pytest.mark.parametrize("how", ["dialled", "idle", "handed over"])
async def test_a_connection_whose_waiter_raises_is_closed(how: str) -> None:
    async with open_rig(ms.PoolLimits(max_per_origin=1)) as rig:
        first, broken = rig.ask(), Broken()
        if how == "dialled":
            rig.pool.abandon(first)
        elif how == "idle":
            await rig.settle()
            await rig.served(first)
        rig.pool.acquire(A, broken)
        await rig.settle()
        if how == "handed over":
            await rig.served(first)
        assert state(broken) is State.CLOSED
        assert repr(broken.defect) == "ValueError('a defect of the waiter')"
        assert repr(rig.pool) == "<Pool 0 open, 0 idle, 0 waiting>"


async def test_a_connection_that_cannot_be_watched_is_a_connect_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rig() as rig:

        def full(connection: Connection) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(rig.pool._loop, "add", full)
        asker = rig.ask()
        await rig.settle()
        assert asker.error is not None
        assert str(asker.error) == "cannot watch the connection: No space left on device"
        assert (asker.error.phase, asker.error.origin) == (Phase.CONNECT, "http://a.test:80")
        assert (rig.pool.counts(), rig.pool.opened) == ({}, 0)


async def test_a_dial_that_ends_after_its_pool_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with open_rig() as rig:
        (kept,) = await idle(rig, 1)
        rig.hold = trio.Event()
        asker = rig.ask(B)
        await rig.settle()
        rig.pool.drop()
        assert state(kept) is State.CLOSED
        rig.hold.set()
        await rig.settle()
        assert (asker.connection, str(asker.error)) == (None, "the engine was closed")
    assert caplog.record_tuples == []


async def test_a_dropped_pool_knows_no_waiter() -> None:
    """The tasks of its dials have ended with the event loop, so none of them may be cancelled."""
    async with open_rig() as rig:
        rig.hold = trio.Event()
        asker = rig.ask()
        await rig.settle()
        rig.pool.drop()
        rig.pool.abandon(asker)
        rig.hold.set()
        await rig.settle()
        assert str(asker.error) == "the engine was closed"


async def test_a_fresh_waiter_takes_no_connection_that_was_used() -> None:
    async with open_rig(ms.PoolLimits(max_per_origin=1)) as rig:
        first, fresh = rig.ask(), Asker()
        await rig.settle()
        rig.pool.acquire(A, fresh, fresh=True)
        await rig.served(first)
        assert (state(first), fresh.reused, rig.dials) == (State.CLOSED, False, 2)


async def test_origins_take_turns_under_the_total_cap() -> None:
    async with open_rig(ms.PoolLimits(max_connections=1)) as rig:
        c = Origin("http", "c.test", 80)
        askers = [rig.ask(c), rig.ask(A), rig.ask(A), rig.ask(A), rig.ask(B), rig.ask(B)]
        order: list[int] = []
        for _ in askers:
            await rig.settle()
            (number,) = [
                number for number, asker in enumerate(askers) if asker.connection and not asker.connection.closed
            ]
            order.append(number)
            connection = askers[number].connection
            connection.close()
        assert order == [0, 1, 4, 2, 5, 3]
