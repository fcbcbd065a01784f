"""The server's loop in virtual time: its sockets are socket pairs, and its clock moves when nothing can be read.

So the time of each sent byte is exact, however busy the machine is.
"""

from __future__ import annotations

import math
import selectors
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from manystream import http_server
from manystream.simulator import Server, Settings
from manystream.simulator import connection as connection_module
from manystream.simulator import server as server_module

START = 128.0
ROUNDING = 1e-9
"""The clock moves a little further than asked, so that a moment that was waited for has come."""


class Pipe(socket.socket):
    """One end of a socket pair. It notes the options that are set instead of setting them."""

    options: list[tuple[object, ...]]
    shortest: int = 0
    error: OSError | None = None
    blocks: int = 0
    """So many times, `send` takes nothing."""

    def setsockopt(self, *option: Any) -> None:
        self.options.append(option)

    def send(self, data: Any, flags: int = 0) -> int:
        if self.error is not None:
            raise self.error
        if self.blocks:
            self.blocks -= 1
            raise BlockingIOError
        return super().send(data[: self.shortest] if self.shortest else data, flags)


class Client:
    """A client of the server, and what it has received: the milliseconds since the start, and the bytes."""

    def __init__(self, world: VirtualServer) -> None:
        ours, theirs = socket.socketpair()
        self.socket = ours
        self.socket.setblocking(False)
        self.pipe = Pipe(fileno=theirs.detach())
        self.pipe.options = []
        self.received: list[tuple[int, bytes]] = []
        self.closed_at: int | None = None
        self.reads = True
        self._world = world

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.reads = False
        self.socket.close()

    def read(self) -> bool:
        """Receive what there is. Returns whether there was anything."""
        found = False
        while self.reads and self.closed_at is None:
            try:
                data = self.socket.recv(1 << 20)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            found = True
            if not data:
                self.closed_at = self._world.milliseconds
                break
            self.received.append((self._world.milliseconds, data))
        return found

    @property
    def times(self) -> list[int]:
        return [at for at, _ in self.received]

    @property
    def data(self) -> bytes:
        return b"".join(data for _, data in self.received)


class VirtualServer:
    """A server whose loop runs in `run`, until nothing is due and no step is left."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, settings: Settings | None = None, *, request_seconds: float = math.inf
    ) -> None:
        monkeypatch.setattr(http_server, "REQUEST_SECONDS", request_seconds)
        self.now = START
        self.clients: list[Client] = []
        self.waiting: deque[Client | OSError] = deque()
        self.accepted_at_once: list[int] = []
        clock = SimpleNamespace(monotonic=lambda: self.now, monotonic_ns=lambda: round(self.now * 1e6) * 1000)
        monkeypatch.setattr(server_module, "time", clock)
        monkeypatch.setattr(connection_module, "time", clock)
        self.server = Server(settings or Settings())
        self._steps: deque[tuple[float, Callable[[], object]]] = deque()
        self._selector: selectors.BaseSelector = self.server.loop.selector
        listener = self.server.http.sock
        loop: Any = self.server.loop
        loop.selector = self
        server: Any = self.server.http
        server.sock = SimpleNamespace(accept=self._accept, close=listener.close, fileno=listener.fileno)

    @property
    def milliseconds(self) -> int:
        return round((self.now - START) * 1000)

    def connect(self) -> Client:
        client = Client(self)
        self.clients.append(client)
        self.waiting.append(client)
        return client

    def at(self, seconds: float, step: Callable[[], object]) -> None:
        """Do something so many seconds after the start; steps are given in their order."""
        self._steps.append((START + seconds, step))

    def run(self) -> None:
        """Run the loop until nothing is due any more; then the server closes its sockets."""
        try:
            self.server.run()
            for client in self.clients:
                client.read()
        finally:
            for client in self.clients:
                client.socket.close()

    # --- what the server uses ---

    def select(self, timeout: float | None) -> list[tuple[Any, int]]:
        if self.waiting and self.server.http.sock in self._selector.get_map():
            before = len(self.waiting)
            return [
                (SimpleNamespace(data=SimpleNamespace(on_readable=partial(self._note, before))), selectors.EVENT_READ)
            ]
        found = self._selector.select(0)
        if found:
            return found
        if sum(client.read() for client in self.clients):
            return self._selector.select(0)
        step = self._steps[0][0] if self._steps else None
        if timeout not in (None, math.inf) and (step is None or self.now + timeout < step):
            self.now += timeout + ROUNDING
        elif step is not None:
            self.now = max(self.now, step)
            self._steps.popleft()[1]()
        else:
            self.server.stop()
        return []

    def _note(self, before: int) -> None:
        self.server.http.on_readable()
        self.accepted_at_once.append(before - len(self.waiting))

    def _accept(self) -> tuple[socket.socket, str]:
        if not self.waiting:
            raise BlockingIOError
        first = self.waiting.popleft()
        if isinstance(first, OSError):
            raise first
        return first.pipe, ""

    def register(self, file: Any, events: int, data: Any) -> None:
        self._selector.register(file, events, data)

    def modify(self, file: Any, events: int, data: Any) -> None:
        self._selector.modify(file, events, data)

    def unregister(self, file: Any) -> None:
        self._selector.unregister(file)

    def close(self) -> None:
        self._selector.close()
