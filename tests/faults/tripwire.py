"""Count the system calls of the transport, and make one of them fail."""

import errno
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from manystream.transport import dial, loop
from manystream.transport.tls_socket import TLSSocket
from tests.support.addresses import Names


def error(code: int) -> OSError:
    return OSError(code, errno.errorcode[code])


FAULTS: dict[str, list[Exception]] = {
    "getaddrinfo": [socket.gaierror(socket.EAI_AGAIN, "try again"), error(errno.EMFILE)],
    "socket": [error(errno.EMFILE), error(errno.ENOBUFS)],
    "setsockopt": [error(errno.ENOPROTOOPT)],
    "connect": [error(errno.ECONNREFUSED), error(errno.ENETUNREACH)],
    "handshake": [error(errno.ECONNRESET), ssl.SSLError(1, "[SSL: TLSV1_ALERT_INTERNAL_ERROR] internal error")],
    "register": [error(errno.ENOSPC)],
    "send": [error(errno.ECONNRESET), error(errno.EPIPE), error(errno.ETIMEDOUT), error(errno.ENOBUFS)],
    "recv": [error(errno.ECONNRESET), error(errno.ETIMEDOUT)],
}
"""System call → the errors that it can be made to raise."""

NOT_NOW: dict[str, list[Exception]] = {
    "send": [BlockingIOError(errno.EAGAIN, "not now")],
    "recv": [BlockingIOError(errno.EAGAIN, "not now")],
}
"""System call → exceptions that are not errors: the call must be repeated."""


@dataclass
class Tripwire:
    """A counter of system calls that makes one of them fail with `fault`, once."""

    at: int = 0
    fault: Exception | None = None
    only: str = ""
    count: int = 0
    tripped: bool = False
    seen: list[str] = field(default_factory=list[str])
    at_most: int = 1 << 30
    """Bytes that one `send` takes."""

    def arm(self, only: str, at: int, fault: Exception | None) -> None:
        """Make the `at`-th call of `only` from now on fail."""
        self.only, self.at, self.fault = only, at, fault
        self.count, self.tripped = 0, False
        self.seen.clear()

    def hit_line(self, name: str, sock: socket.socket) -> None:
        """Count a call like `hit`; if the error implies a broken connection, break the connection, too."""
        try:
            self.hit(name)
        except BlockingIOError:
            raise
        except OSError as fault:
            if fault.errno != errno.ENOBUFS:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            raise

    def hit(self, name: str) -> None:
        self.seen.append(name)
        if name != self.only:
            return
        self.count += 1
        if self.count == self.at and self.fault is not None:
            self.tripped = True
            raise self.fault


def sockets_of(wire: Tripwire) -> type[socket.socket]:
    """Return a socket class whose system calls are counted by the tripwire."""

    class Plain(socket.socket):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            wire.hit("socket")
            super().__init__(*arguments, **keywords)

        def setsockopt(self, *arguments: Any) -> None:  # type: ignore[override]
            wire.hit("setsockopt")
            super().setsockopt(*arguments)

        def connect_ex(self, address: Any, /) -> int:
            try:
                wire.hit("connect")
            except OSError as fault:
                return fault.errno or 0
            return super().connect_ex(address)

        def send(self, data: Any, flags: int = 0, /) -> int:
            wire.hit_line("send", self)
            return super().send(data[: wire.at_most], flags)

        def recv(self, *arguments: Any) -> bytes:
            wire.hit_line("recv", self)
            return super().recv(*arguments)

    return Plain


class Poller:
    """An epoll object whose `register` is counted by the tripwire."""

    def __init__(self, wire: Tripwire) -> None:
        self._epoll = select.epoll()
        self._wire = wire

    def __getattr__(self, name: str) -> Any:
        return getattr(self._epoll, name)

    def register(self, fd: int, eventmask: int) -> None:
        self._wire.hit("register")
        self._epoll.register(fd, eventmask)


class Shim:
    """A module with some names replaced."""

    def __init__(self, module: object, **replaced: object) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class TrippedNames(Names):
    """A resolver whose lookups are counted by the tripwire."""

    def __init__(self, table: dict[str, list[tuple[str, int]] | OSError], wire: Tripwire) -> None:
        super().__init__(table)
        self._wire = wire

    async def getaddrinfo(self, *arguments: Any, **keywords: Any) -> Any:  # type: ignore[override]
        self._wire.hit("getaddrinfo")
        return await super().getaddrinfo(*arguments, **keywords)


@contextmanager
def tripwired(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tripwire]:
    """Install the tripwire in all modules of the transport."""
    wire = Tripwire()
    do_handshake = TLSSocket.do_handshake

    def tripwired_handshake(secured: TLSSocket) -> None:
        wire.hit("handshake")
        do_handshake(secured)

    make_poller: Callable[[], Poller] = lambda: Poller(wire)  # noqa: E731
    with monkeypatch.context() as patch:
        patch.setattr(dial, "socket", Shim(socket, socket=sockets_of(wire)))
        patch.setattr(loop, "select", Shim(select, epoll=make_poller))
        patch.setattr(TLSSocket, "do_handshake", tripwired_handshake)
        yield wire
