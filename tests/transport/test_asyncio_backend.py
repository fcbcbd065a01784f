"""The transport on asyncio: a dial and a pool on asyncio's own event loop and on uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import math
import selectors
import socket
import ssl
import sys
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from typing import cast

import pytest
import trio
import trustme

from manystream.transport import asyncio_backend
from manystream.transport.asyncio_backend import AsyncioBackend, UnsupportedEventLoopError
from manystream.transport.backend import WAIT, AddressInfo, Backend
from manystream.transport.dial import dial
from manystream.transport.errors import Phase, TransportError
from manystream.transport.http1 import Connection
from manystream.transport.loop import READ, PollerLoop, make_poller
from manystream.transport.pool import Pool, PoolLimits
from manystream.transport.proxy import parse_proxy_url
from manystream.transport.resolve import Resolver
from manystream.transport.timers import Timers
from manystream.transport.tls_socket import TLSSocket
from manystream.transport.trio_backend import TrioBackend
from manystream.transport.url import Origin
from tests.support.addresses import BLACK_HOLE, LOOPBACK, black_hole
from tests.support.exchanges import BODY, HEAD, RecordedExchange

uvloop = pytest.importorskip("uvloop")

NAME = "server.test"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[object, object, None]], None]:
    """Return a function that runs a coroutine on a new event loop."""

    def run(main: Coroutine[object, object, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(main, 60))

    return run


class Names(AsyncioBackend):
    """A backend whose every host name has the given addresses."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        super().__init__(asyncio.get_running_loop())
        self.addresses = addresses

    async def getaddrinfo(self, host: str, port: int) -> Sequence[AddressInfo]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in self.addresses]


@contextlib.asynccontextmanager
async def serving(context: ssl.SSLContext | None = None, *, answer: bool = True) -> AsyncGenerator[int]:
    """Open a server that answers each request of a connection; or accepts and never answers."""

    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while answer:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(len(BODY))
                writer.write(OK)
            await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:  # Python 3.12 warns of a writer that outlives the event loop
            writer.transport.abort()
        await asyncio.sleep(0)


class Asker:
    """A waiter that sends a request as soon as it has a connection."""

    def __init__(self) -> None:
        self.exchange = RecordedExchange()
        self.error: TransportError | None = None
        self.reused: bool | None = None

    def on_phase(self, phase: Phase) -> None:
        pass

    def on_connection(self, connection: Connection, reused: bool) -> None:
        self.reused = reused
        connection.send(HEAD, BODY, self.exchange)  # type: ignore[arg-type]

    def on_connect_failure(self, error: TransportError) -> None:
        self.error = error

    def on_defect(self, error: Exception) -> None:
        raise error


class Rig:
    """A pool on the running event loop. `sockets`: all that its dials have opened."""

    def __init__(self, backend: Backend | None = None, limits: PoolLimits | None = None) -> None:
        poller = make_poller()
        assert poller is not None
        self.backend = AsyncioBackend(asyncio.get_running_loop()) if backend is None else backend
        self.loop = PollerLoop(poller, self.backend.clock)
        self.timers = Timers(self.loop.catch_up)
        self.resolver = Resolver(self.backend)
        self.pool = Pool(self.backend, self.loop, self.timers, self._dial, limits or PoolLimits())
        self.loop.start(self.backend)
        self.timers.start(self.backend)

    async def _dial(self, origin: Origin, on_phase: Callable[[Phase], None]) -> socket.socket | TLSSocket:
        return await dial(origin, resolver=self.resolver, on_phase=on_phase, backend=self.backend)

    def close(self) -> None:
        self.pool.close()
        self.timers.close()
        self.loop.close()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """All sockets that dials open."""
    made = list[socket.socket]()

    class Recorded(socket.socket):
        def __init__(self, *arguments: int) -> None:
            super().__init__(*arguments)
            made.append(self)

    class Module:
        socket = Recorded

        def __getattr__(self, name: str) -> object:
            return getattr(socket, name)

    monkeypatch.setattr("manystream.transport.dial.socket", Module())
    return made


def test_a_pool_answers_and_reuses_a_connection(run: Callable[..., None]) -> None:
    async def main() -> None:
        async with serving() as port:
            rig, origin = Rig(), Origin("http", "localhost", port)
            for expected in (False, True):
                asker = Asker()
                rig.pool.acquire(origin, asker)
                await until(lambda asker=asker: asker.exchange.over)  # type: ignore[misc]
                assert asker.exchange.body == b"ok"
                assert asker.reused is expected
            rig.close()

    run(main())


def test_an_idle_connection_expires_by_the_loop_s_alarm(run: Callable[..., None]) -> None:
    async def main() -> None:
        async with serving() as port:
            rig = Rig(limits=PoolLimits(idle_expiry=0.01))
            asker = Asker()
            rig.pool.acquire(Origin("http", LOOPBACK, port), asker)
            await until(lambda: asker.exchange.over)
            await until(lambda: not rig.pool.counts())
            rig.close()

    run(main())


@pytest.mark.parametrize("ticks", range(6))
def test_a_cancelled_dial_closes_in_a_tick(run: Callable[..., None], made: list[socket.socket], ticks: int) -> None:
    """Cancelled before it begins, or while it connects: the socket and the place in the pool are free at once."""

    async def main() -> None:
        with black_hole() as dead:
            rig, asker = Rig(Names([(BLACK_HOLE, dead)])), Asker()
            rig.pool.acquire(Origin("http", NAME, 80), asker)
            for _ in range(ticks):
                await asyncio.sleep(0)
            rig.pool.abandon(asker)
            await asyncio.sleep(0)
            assert all(sock.fileno() == -1 for sock in made)
            assert not rig.pool.counts()
            rig.close()

    run(main())


def test_a_cancelled_dial_closes_all_its_sockets_in_one_tick(
    run: Callable[..., None], made: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("manystream.transport.dial.ATTEMPT_DELAY", 0.001)

    async def main() -> None:
        with black_hole() as dead, black_hole() as other, black_hole() as third:
            rig, asker = Rig(Names([(BLACK_HOLE, port) for port in (dead, other, third)])), Asker()
            rig.pool.acquire(Origin("http", NAME, 80), asker)
            await until(lambda: len(made) == 3)
            rig.pool.abandon(asker)
            await asyncio.sleep(0)
            assert all(sock.fileno() == -1 for sock in made)
            await until(lambda: not rig.pool.counts())
            rig.close()

    run(main())


def test_the_first_address_to_connect_wins(run: Callable[..., None], made: list[socket.socket]) -> None:
    async def main() -> None:
        with black_hole() as dead:
            async with serving() as port:
                backend = Names([(BLACK_HOLE, dead), (LOOPBACK, port), (BLACK_HOLE, dead)])
                sock = await dial(Origin("http", NAME, 80), backend=backend)
                assert sock.fileno() != -1
                assert [each.fileno() == -1 for each in made].count(False) == 1
                assert len(made) == 2
                sock.close()

    run(main())


def test_every_address_refused_is_one_error(run: Callable[..., None], made: list[socket.socket]) -> None:
    async def main() -> None:
        with socket.socket() as unused:
            unused.bind((LOOPBACK, 0))
            port = unused.getsockname()[1]
            with pytest.raises(TransportError, match=r"ECONNREFUSED.*; .*ECONNREFUSED"):
                await dial(Origin("http", NAME, 80), backend=Names([(LOOPBACK, port), ("127.0.0.2", port)]))
        assert all(sock.fileno() == -1 for sock in made)

    run(main())


def test_a_handshake_ends_and_a_cancelled_one_leaves_none(run: Callable[..., None], made: list[socket.socket]) -> None:
    ca = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    ca.issue_cert("localhost").configure_cert(server)
    ca.configure_trust(client)

    async def main() -> None:
        backend = AsyncioBackend(asyncio.get_running_loop())
        phases = list[Phase]()
        async with serving(server) as port:
            sock = await dial(Origin("https", "localhost", port), tls_context=client, backend=backend)
            assert isinstance(sock, TLSSocket)
            sock.close()
        async with serving(answer=False) as port:
            task = asyncio.create_task(
                dial(  # type: ignore[arg-type]
                    Origin("https", "localhost", port), tls_context=client, on_phase=phases.append, backend=backend
                )
            )
            await until(lambda: Phase.TLS in phases)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        assert all(each.fileno() == -1 for each in made)

    run(main())


def test_a_cancelled_tunnel_leaves_no_socket(run: Callable[..., None], made: list[socket.socket]) -> None:
    async def main() -> None:
        backend = AsyncioBackend(asyncio.get_running_loop())
        phases = list[Phase]()
        async with serving(answer=False) as port:
            proxy = parse_proxy_url(f"http://127.0.0.1:{port}")
            task = asyncio.create_task(
                dial(Origin("http", NAME, 80), proxy=proxy, on_phase=phases.append, backend=backend)  # type: ignore[arg-type]
            )
            await until(lambda: Phase.PROXY in phases)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        assert all(each.fileno() == -1 for each in made)

    run(main())


def test_an_event_loop_without_add_reader_is_refused_by_name() -> None:
    class ProactorLike(asyncio.SelectorEventLoop):
        def add_reader(self, fd: object, callback: object, *arguments: object) -> None:  # type: ignore[override]
            raise NotImplementedError

    loop = ProactorLike()
    with pytest.raises(UnsupportedEventLoopError, match=r"ProactorLike cannot wait .* asyncio\.SelectorEventLoop"):
        AsyncioBackend(loop).serve(0, lambda: -1.0)
    loop.close()


# --- what an engine needs besides ---

Test = Callable[[Backend], Awaitable[None]]


def on_asyncio(test: Test) -> None:
    async def main() -> None:
        await test(AsyncioBackend(asyncio.get_running_loop()))

    asyncio.run(main())


def on_trio(test: Test) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await test(TrioBackend(nursery))
            nursery.cancel_scope.cancel()

    trio.run(main)


@pytest.fixture(params=[on_asyncio, on_trio])
def on(request: pytest.FixtureRequest) -> Callable[[Test], None]:
    return cast("Callable[[Test], None]", request.param)


def test_a_scope_ends_at_its_deadline_or_by_a_cancellation(on: Callable[[Test], None]) -> None:
    async def test(backend: Backend) -> None:
        ends: list[str] = []
        async with backend.scope(backend.clock() + 0.01):
            await backend.event().wait()
            ends.append("never")
        async with backend.scope(math.inf) as outer:
            async with backend.scope(math.inf) as inner:
                backend.soon(inner.cancel)
                await backend.event().wait()
                ends.append("never")
            ends.append("inner")
            outer.cancel()
            outer.cancel()
            await backend.event().wait()
            ends.append("never")
        outer.cancel()  # it has ended
        with pytest.raises(TimeoutError, match="of the program"):
            async with backend.scope(math.inf):
                raise TimeoutError("of the program")
        await backend.checkpoint()
        assert ends == ["inner"]

    on(test)


@pytest.mark.parametrize("abandon", [False, True])
def test_a_function_in_a_thread_is_awaited_unless_abandoned(on: Callable[[Test], None], abandon: bool) -> None:
    async def test(backend: Backend) -> None:
        begun, end = threading.Event(), threading.Event()
        results: list[object] = []
        cancelled = backend.event()

        def block() -> str:
            begun.set()
            assert end.wait(30)
            return "result"

        async def call() -> None:
            try:
                results.append(await backend.run_in_thread(block, abandon=abandon))
                await backend.event().wait()
            finally:
                cancelled.set()

        task = backend.start(call)
        while not begun.is_set():
            await backend.sleep(0.001)
        task.cancel()
        for _ in range(20):
            await backend.checkpoint()
        assert cancelled.is_set() is abandon
        end.set()
        await cancelled.wait()
        assert results == ([] if abandon else ["result"])
        with pytest.raises(LookupError):
            await backend.run_in_thread(fail)

    def fail() -> None:
        raise LookupError

    on(test)


def test_a_lock_has_one_holder(on: Callable[[Test], None]) -> None:
    async def test(backend: Backend) -> None:
        order, lock = list[str](), backend.lock()

        async def hold(name: str) -> None:
            async with lock:
                order.append(f"{name} in")
                await backend.checkpoint()
                order.append(f"{name} out")

        async with backend.open_group() as group:
            group.start(hold, "a")
            group.start(hold, "b")
        assert order in (["a in", "a out", "b in", "b out"], ["b in", "b out", "a in", "a out"])

    on(test)


VALUE: ContextVar[str] = ContextVar("VALUE", default="")


def test_an_engine_s_functions_run_in_the_context_of_its_opening(on: Callable[[Test], None]) -> None:
    async def test(backend: Backend) -> None:
        seen, over = list[str](), backend.event()

        def note() -> None:
            seen.append(VALUE.get())
            if len(seen) == 3:
                over.set()

        async def task() -> None:
            note()

        alarm = backend.alarm(note)
        VALUE.set("of a call")
        backend.start(task)
        backend.soon(note)
        alarm.set(backend.clock())
        await over.wait()
        assert seen == ["", "", ""]

    async def opened(backend: Backend) -> None:
        of_an_engine = isinstance(backend, TrioBackend)
        here = backend if of_an_engine else AsyncioBackend(asyncio.get_running_loop(), context=copy_context())
        await test(here)

    on(opened)


class ManualTimer:
    """A kernel timer that expires when the test says so. `started`: the seconds of each start."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self.started: list[float] = []
        self.closed = False

    def fileno(self) -> int:
        return self._near.fileno()

    def start(self, seconds: float) -> None:
        self.stop()
        self.started.append(seconds)

    def stop(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._near.recv(100)

    def expire(self) -> None:
        self._far.send(b"x")

    def close(self) -> None:
        self._near.close()
        self._far.close()
        self.closed = True


async def iterations(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_readable_descriptor_waits_for_a_pause(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    timer = ManualTimer()
    monkeypatch.setattr(asyncio_backend, "make_kernel_timer", lambda: timer)
    near, far = socket.socketpair()
    pauses = [0.001, 0.002, WAIT, 0.003, 0.0]
    calls = 0

    def turn() -> float:
        nonlocal calls
        calls += 1
        if len(pauses) < calls:
            near.recv(1)
            return WAIT
        return pauses[calls - 1]

    async def main() -> None:
        service = AsyncioBackend(asyncio.get_running_loop()).serve(near.fileno(), turn)
        far.send(b"x")
        await until(lambda: calls == 1)
        await iterations()
        assert calls == 1, "the pause has not ended"
        timer.expire()
        await until(lambda: calls == 2)
        await iterations()
        assert calls == 2
        timer.expire()
        # The third turn waits for the descriptor, which is readable: the fourth follows, and pauses again.
        await until(lambda: calls == 4)
        await iterations()
        assert calls == 4
        timer.expire()
        await until(lambda: calls == 6)  # no pause after the fifth; the sixth reads the byte
        await iterations()
        assert calls == 6
        assert timer.started == [0.001, 0.002, 0.003]
        service.cancel()
        service.cancel()
        assert timer.closed
        far.send(b"x")
        await iterations()
        assert calls == 6

    with near, far:
        run(main())


class CountingSelector(selectors.DefaultSelector):
    """A selector that counts how often each descriptor is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.registered: Counter[int] = Counter()

    def register(self, fileobj: int, events: int, data: object = None) -> selectors.SelectorKey:  # type: ignore[override]
        self.registered[fileobj] += 1
        return super().register(fileobj, events, data)


@pytest.mark.skipif(sys.platform != "linux", reason="a rule for epoll")
def test_a_poller_stays_registered_during_pauses() -> None:
    """To register it, Linux visits all connections in it."""
    selector = CountingSelector()
    near, far = socket.socketpair()
    calls = 0

    def turn() -> float:
        nonlocal calls
        calls += 1
        return 0.0001

    async def main() -> None:
        poller = make_poller()
        poller.register(near.fileno(), READ)
        service = AsyncioBackend(asyncio.get_running_loop()).serve(poller.fileno(), turn)
        far.send(b"x")
        await until(lambda: calls == 5)
        assert selector.registered[poller.fileno()] == 1
        service.cancel()
        assert poller.fileno() not in selector.get_map()
        poller.close()

    with near, far, asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("kernel", [True, False], ids=["kernel timer", "event loop's timer"])
def test_a_service_follows_its_pause(run: Callable[..., None], monkeypatch: pytest.MonkeyPatch, kernel: bool) -> None:
    if not kernel:
        monkeypatch.setattr(asyncio_backend, "make_kernel_timer", lambda: None)
    near, far = socket.socketpair()
    answers = [0.0002, 0.0002, 0.0002]
    calls = 0

    def turn() -> float:
        nonlocal calls
        calls += 1
        near.recv(1)
        return answers[calls - 1] if calls <= len(answers) else WAIT

    async def main() -> None:
        service = AsyncioBackend(asyncio.get_running_loop()).serve(near.fileno(), turn)
        far.send(b"xxxx")
        await until(lambda: calls == 4)
        far.send(b"x")  # the service listens again
        await until(lambda: calls == 5)
        service.cancel()

    with near, far:
        run(main())


def test_a_service_may_be_cancelled_by_itself_and_in_a_pause(run: Callable[..., None]) -> None:
    near, far = socket.socketpair()
    calls = 0

    async def main() -> None:
        nonlocal calls

        def turn() -> float:
            nonlocal calls
            calls += 1
            if calls == 2:
                service.cancel()
            return 0.0002

        for expected in (2, 3):
            service = AsyncioBackend(asyncio.get_running_loop()).serve(near.fileno(), turn)
            await until(lambda expected=expected: calls == expected)  # type: ignore[misc]
            service.cancel()
            await iterations()
            assert calls == expected

    with near, far:
        far.send(b"x")
        run(main())
