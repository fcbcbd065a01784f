"""The other ends that the transport tests talk to: loopback servers, certificates, a resolver, dead addresses.

Everything is real (sockets, TLS, a CONNECT proxy) and on loopback; nothing here is shared with the code it tests.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field

import trio
import trustme

from manystream.transport.tls_socket import TLSSocket

LOOPBACK = "127.0.0.1"
BLACK_HOLE = "127.0.0.3"
"""A loopback address of our own, where `black_hole` listens and accepts nothing."""

Serve = Callable[[trio.SocketStream], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(serve: Serve, host: str = LOOPBACK) -> AsyncIterator[int]:
    """Run `serve` for each connection to the port that is yielded; a peer that goes away ends it quietly."""

    async def serve_one(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                await serve(stream)
            except (OSError, ssl.SSLError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=host)
        try:
            nursery.start_soon(trio.serve_listeners, serve_one, listeners)
            yield listeners[0].socket.getsockname()[1]
        finally:
            nursery.cancel_scope.cancel()


async def hang(stream: trio.SocketStream) -> None:
    """Say nothing until the peer goes away, whatever it sends."""
    async for _ in stream:
        pass


def reset(stream: trio.SocketStream) -> None:
    """Close with RST instead of FIN."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def read_head(stream: trio.abc.ReceiveStream) -> bytes:
    """A request's head, to its blank line."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = await stream.receive_some()
        if not data:
            break
        head += data
    return head


@dataclass
class TLSPeer:
    """A TLS echo server with the certificate it is given; notes what it saw."""

    certificate: trustme.LeafCert
    client_ca: trustme.CA | None = None
    protocols: list[str] = field(default_factory=lambda: ["h2", "http/1.1"])
    names: list[str | None] = field(default_factory=list[str | None])
    chosen: list[str | None] = field(default_factory=list[str | None])
    shown: list[bytes | None] = field(default_factory=list[bytes | None])
    received: bytes = b""

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.certificate.configure_cert(context)
        context.set_alpn_protocols(self.protocols)
        context.sni_callback = lambda _socket, name, _context: self.names.append(name)
        if self.client_ca is not None:
            self.client_ca.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def serve(self, stream: trio.abc.Stream) -> None:
        secured = trio.SSLStream(stream, self.context(), server_side=True, https_compatible=True)
        await secured.do_handshake()
        self.chosen.append(secured.selected_alpn_protocol())
        self.shown.append(secured.getpeercert(binary_form=True))
        async for data in secured:
            self.received += data
            await secured.send_all(data)


def open_sockets() -> set[str]:
    """This process's open sockets, by inode; what is there after a test and was not before has leaked."""
    found: set[str] = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            link = os.readlink(f"/proc/self/fd/{number}")
            if link.startswith("socket:"):
                found.add(link)
    return found


async def send_all(sock: socket.socket | TLSSocket, data: bytes) -> None:
    """Send on a non-blocking socket."""
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock.fileno())


async def receive(sock: socket.socket | TLSSocket) -> bytes:
    """Receive on a non-blocking socket."""
    while True:
        try:
            return sock.recv(4096)
        except (BlockingIOError, ssl.SSLWantReadError):
            await trio.lowlevel.wait_readable(sock.fileno())


async def echoes(sock: socket.socket | TLSSocket, data: bytes = b"ping") -> bool:
    """Whether the peer sends back what it gets."""
    await send_all(sock, data)
    return await receive(sock) == data


async def echo(stream: trio.abc.Stream) -> None:
    """Send back what comes."""
    async for data in stream:
        await stream.send_all(data)


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """A port on `BLACK_HOLE` whose queue is full: the system drops every further SYN."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((BLACK_HOLE, 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


def closed_port(host: str = LOOPBACK) -> int:
    """A port that nobody listens on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


class Names(trio.abc.HostnameResolver):
    """A resolver that answers from a table: name → addresses, or the error to raise. Counts its questions."""

    def __init__(self, table: dict[str, list[tuple[str, int]] | OSError], delay: float = 0) -> None:
        self.table = table
        self.delay = delay
        self.asked: list[str] = []

    async def getaddrinfo(  # type: ignore[override]
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> list[tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]]:
        name = host.decode() if isinstance(host, bytes) else str(host)
        self.asked.append(name)
        await trio.sleep(self.delay)
        answer = self.table[name]
        if isinstance(answer, OSError):
            raise answer
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, own_port, 0, 0))
            if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, own_port))
            for address, own_port in answer
        ]

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:  # type: ignore[override]
        raise NotImplementedError


@contextlib.contextmanager
def answering(names: Names) -> Iterator[Names]:
    """Have trio ask `names`; inside a running trio only."""
    before = trio.socket.set_custom_hostname_resolver(names)
    try:
        yield names
    finally:
        trio.socket.set_custom_hostname_resolver(before)
