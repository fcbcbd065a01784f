"""The peers of the transport tests: loopback servers, certificates, a resolver, and addresses that never answer.

Sockets, TLS and the CONNECT proxy are real, on loopback. This file uses no code of the transport.
"""

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
"""A loopback address that only `black_hole` uses; it listens there and accepts no connection."""

Serve = Callable[[trio.SocketStream], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(serve: Serve, host: str = LOOPBACK) -> AsyncIterator[int]:
    """Run `serve` for each connection to the port that is yielded. A peer that disconnects is no error."""

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
    """Read and send nothing until the peer disconnects."""
    async for _ in stream:
        pass


def reset(stream: trio.SocketStream) -> None:
    """Close with RST instead of FIN."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def read_head(stream: trio.abc.ReceiveStream) -> bytes:
    """Read and return a request's head up to its blank line."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = await stream.receive_some()
        if not data:
            break
        head += data
    return head


@dataclass
class TLSPeer:
    """A TLS echo server that records the names and protocols of its clients."""

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
    """Return the inodes of this process's open sockets. A socket that a test adds to this set has leaked."""
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
    """Return whether the peer echoes `data`."""
    await send_all(sock, data)
    return await receive(sock) == data


async def echo(stream: trio.abc.Stream) -> None:
    """Send all received bytes back."""
    async for data in stream:
        await stream.send_all(data)


@contextlib.contextmanager
def black_hole() -> Iterator[int]:
    """Yield a port on `BLACK_HOLE` whose accept queue is full: the system drops every further SYN."""
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
    """Return a port on which no socket listens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.bind((host, 0))
        port: int = sock.getsockname()[1]
        return port


class Names(trio.abc.HostnameResolver):
    """A resolver with a table: name → addresses, or the error to raise. `asked` lists the lookups."""

    def __init__(self, table: dict[str, list[tuple[str, int]] | Exception], delay: float = 0) -> None:
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
        if isinstance(answer, Exception):
            raise answer
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (address, own_port, 0, 0)) if ":" in address
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, own_port)) for address, own_port in answer
        ]  # fmt: skip

    async def getnameinfo(self, sockaddr: object, flags: int) -> tuple[str, str]:  # type: ignore[override]
        raise NotImplementedError


@contextlib.contextmanager
def answering(names: Names) -> Iterator[Names]:
    """Install `names` as trio's resolver. Use it only while trio runs."""
    before = trio.socket.set_custom_hostname_resolver(names)
    try:
        yield names
    finally:
        trio.socket.set_custom_hostname_resolver(before)
