"""A server on loopback in threads, for tests of clients that run on any event loop."""

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
import trio

from tests.support.waiting import eventually, pause

OK = b"HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nX-One: 1\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

Serve = Callable[["Wire"], None]


@dataclass
class Wire:
    """A server's side of one connection, in a thread."""

    sock: socket.socket | ssl.SSLSocket
    buffer: bytes = b""
    gate: threading.Event = field(default_factory=threading.Event)

    def head(self) -> bytes:
        """Read a request's head. Raises `EOFError` at the end."""
        while b"\r\n\r\n" not in self.buffer:
            self.receive()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head

    def body(self, head: bytes) -> bytes:
        """Read the body that the head announces."""
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if b"content-length" in lines:
            while len(self.buffer) < int(lines[b"content-length"]):
                self.receive()
            body, self.buffer = self.buffer, b""
            return body
        if b"transfer-encoding" in lines:
            while not self.buffer.endswith(b"0\r\n\r\n"):
                self.receive()
            body, self.buffer = self.buffer, b""
            return body
        return b""

    def receive(self) -> None:
        data = self.sock.recv(1_000_000)
        if not data:
            raise EOFError
        self.buffer += data

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def reset(self) -> None:
        """Let the end of the connection be a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


class Server:
    """A server whose `serve` runs in a thread for each connection. `connections`: how many there were."""

    def __init__(self, serve: Serve, context: ssl.SSLContext | None = None) -> None:
        self.serve = serve
        self.context = context
        self.connections = 0
        self.gate = threading.Event()
        self.ended = threading.Semaphore(0)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http{'s' if self.context else ''}://127.0.0.1:{self.port}"

    def accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock = self.listener.accept()[0]
                self.connections += 1
                threading.Thread(target=self.run, args=(sock,), daemon=True).start()

    def run(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            secured = sock if self.context is None else self.context.wrap_socket(sock, server_side=True)
            try:
                self.serve(Wire(secured, gate=self.gate))
            finally:
                secured.close()
        self.ended.release()

    def close(self) -> None:
        self.gate.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@contextlib.contextmanager
def serving(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server(serve, context)
    try:
        yield server
    finally:
        server.close()


def always_ok(wire: Wire) -> None:
    while True:
        wire.body(wire.head())
        wire.send(OK)


def hang(wire: Wire) -> None:
    """Read everything until the client closes the connection."""
    while True:
        wire.receive()


def half_a_body(wire: Wire) -> None:
    wire.head()
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
    hang(wire)


def wait_for_the_gate(wire: Wire) -> None:
    """Read nothing."""
    wire.gate.wait(30)


def answers(*parts: bytes, reset: bool = False) -> Serve:
    def serve(wire: Wire) -> None:
        wire.head()
        for part in parts:
            wire.send(part)
        if reset:
            wire.reset()

    return serve


async def slow_trace(name: str, info: Mapping[str, object]) -> None:
    """A `trace` extension during which the server can close the connection."""
    for _ in range(5):
        await pause()


async def closed_by_the_client(server: Server) -> None:
    """Wait until the server's side of a connection has ended."""
    await eventually(lambda: server.ended.acquire(blocking=False))


async def together(*functions: Callable[[], Awaitable[object]]) -> None:
    """Run the functions at the same time, on asyncio or trio."""
    if not trio.lowlevel.in_trio_task():
        await asyncio.gather(*(function() for function in functions))
        return
    async with trio.open_nursery() as nursery:
        for function in functions:
            nursery.start_soon(function)


async def cancelled_after(function: Callable[[], Awaitable[object]], condition: Callable[[], object]) -> None:
    """Run the function in a task, and cancel it once the condition holds."""

    if trio.lowlevel.in_trio_task():
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await function()

            nursery.start_soon(call)
            await eventually(condition)
            nursery.cancel_scope.cancel()
        return
    task = asyncio.ensure_future(function())
    await eventually(condition)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
