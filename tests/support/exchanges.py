"""A connection on one end of a socket pair, a scripted server on the other end, and an exchange that records."""

import select
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from manystream.transport.coalescing import LONGEST_PAUSE
from manystream.transport.errors import TransportError
from manystream.transport.exchange import RawHeaders, WireHead
from manystream.transport.http1 import Connection
from manystream.transport.loop import Loop, PollerLoop, SelectorPoller
from manystream.transport.task_loop import TaskLoop
from manystream.transport.trio_backend import TrioBackend

HEAD = WireHead(b"POST", b"/v1/x", [(b"Host", b"example.test")])
BODY = b"{}"


class RecordedExchange:
    """An exchange that records what the connection delivers."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        self.ended = 0
        self.error: TransportError | None = None

    def on_head(self, status: int, headers: RawHeaders) -> None:
        assert not self.status
        self.status = status
        self.headers = dict(headers)

    def on_body(self, data: bytes) -> None:
        assert data
        assert self.status
        assert not self.over
        self.pieces.append(data)

    def on_end(self) -> None:
        assert not self.over
        self.ended = 1

    def on_failure(self, error: TransportError) -> None:
        assert not self.over
        self.error = error

    @property
    def over(self) -> bool:
        return bool(self.ended or self.error)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


class Owner:
    """The owner of a connection; counts how often it became idle or was closed."""

    def __init__(self) -> None:
        self.idle = 0
        self.closed = 0

    def on_idle(self, connection: Connection) -> None:
        self.idle += 1

    def on_closed(self, connection: Connection) -> None:
        self.closed += 1


class Rig:
    """A connection, its owner, and the server's end of the wire."""

    def __init__(self, loop: Loop) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.loop = loop
        self.server = theirs
        self.owner = Owner()
        self.connection = Connection(ours, "http://example.test:80", loop, self.owner.on_idle, self.owner.on_closed)

    def start(self, head: WireHead = HEAD, body: bytes = BODY) -> RecordedExchange:
        exchange = RecordedExchange()
        self.connection.send(head, body, exchange)
        return exchange

    def send(self, data: bytes) -> None:
        self.server.setblocking(True)
        self.server.sendall(data)
        self.server.setblocking(False)

    async def settle(self) -> None:
        """Wait until the loop has nothing to read."""
        await trio.testing.wait_all_tasks_blocked(LONGEST_PAUSE * 1.25)

    def end(self) -> None:
        """Close the server's end with a FIN: read everything first, because unread bytes would cause a reset."""
        try:
            while self.server.recv(1_000_000):
                pass
        except BlockingIOError:
            pass
        self.server.close()

    def close(self) -> None:
        self.server.close()
        self.connection.close()


@asynccontextmanager
async def open_rig(kind: str = "epoll") -> AsyncGenerator[Rig, None]:
    """Open a rig on a loop of the kind `epoll`, `selector` (as with kqueue) or `tasks`."""
    async with trio.open_nursery() as nursery:
        loop = make(kind, nursery)
        loop.start(TrioBackend(nursery))
        rig = Rig(loop)
        try:
            yield rig
        finally:
            rig.close()
            nursery.cancel_scope.cancel()
    loop.close()


def make(kind: str, nursery: trio.Nursery) -> Loop:
    current_time = trio.lowlevel.current_clock().current_time
    if kind == "epoll":
        return PollerLoop(select.epoll(), current_time)
    if kind == "selector":
        import selectors

        return PollerLoop(SelectorPoller(selectors.EpollSelector()), current_time)
    return TaskLoop(nursery, current_time)
