"""Loopback servers that need more than a script: TLS written record by record, and a faulty CONNECT proxy."""

import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field

import trio
import trustme

LOOPBACK = "127.0.0.1"


@dataclass
class TLSServer:
    """A TLS server on loopback that records the names that clients send."""

    port: int = 0
    connections: int = 0
    names: list[str | None] = field(default_factory=list[str | None])
    protocols: list[str | None] = field(default_factory=list[str | None])

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.port}/v1"


class TLSLine:
    """The server's end of one TLS connection, with access to the ciphertext: records can be joined and split."""

    def __init__(self, stream: trio.SocketStream, context: ssl.SSLContext) -> None:
        self.stream = stream
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._in, self._out, server_side=True)

    async def handshake(self) -> None:
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.flush()
                await self._fill()
            else:
                await self.flush()
                return

    async def _fill(self) -> None:
        data = await self.stream.receive_some(65536)
        if not data:
            self._in.write_eof()
        else:
            self._in.write(data)

    async def flush(self) -> None:
        if data := self._out.read():
            await self.stream.send_all(data)

    def records(self, *texts: bytes) -> bytes:
        """Encode each text as a record of its own (more than one above 16 KiB), without sending it."""
        for text in texts:
            self.tls.write(text)
        return self._out.read()

    async def receive(self) -> bytes:
        """Receive the client's next bytes; empty at the end."""
        while True:
            try:
                return self.tls.read(65536)
            except ssl.SSLWantReadError:
                await self._fill()
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return b""

    async def request(self) -> bytes:
        """Receive one request with its whole body; empty at the end."""
        data = b""
        while True:
            head, blank, body = data.partition(b"\r\n\r\n")
            if blank:
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                if len(body) >= length:
                    return data
            more = await self.receive()
            if not more:
                return b""
            data += more


Configure = Callable[["TLSServer", ssl.SSLContext], None]


def leave_alone(server: TLSServer, context: ssl.SSLContext) -> None:
    """Change nothing of the context."""


@contextlib.asynccontextmanager
async def serving_tls_with(
    certificate: trustme.LeafCert, script: object, configure: Configure = leave_alone
) -> AsyncGenerator[TLSServer, None]:
    """Run `script(line)` for each TLS connection whose handshake succeeds."""
    server = TLSServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    context.set_alpn_protocols(["http/1.1"])
    context.sni_callback = lambda _socket, name, _context: server.names.append(name)
    configure(server, context)

    async def serve(stream: trio.SocketStream) -> None:
        server.connections += 1
        line = TLSLine(stream, context)
        try:
            await line.handshake()
            server.protocols.append(line.tls.selected_alpn_protocol())
            await script(line)  # type: ignore[operator]
        except ssl.SSLError:
            with contextlib.suppress(trio.BrokenResourceError):
                await line.flush()  # the alert
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            stream.socket.close()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=LOOPBACK)
        server.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()


def serving_tls(
    ca: trustme.CA, script: object, *identities: str, configure: Configure = leave_alone
) -> contextlib.AbstractAsyncContextManager[TLSServer]:
    """Run `script(line)` for each TLS connection, with a certificate for those names (default: for 127.0.0.1)."""
    return serving_tls_with(ca.issue_cert(*(identities or (LOOPBACK,))), script, configure)


@contextlib.asynccontextmanager
async def serve_records(ca: trustme.CA, answers: Sequence[Sequence[bytes]]) -> AsyncGenerator[TLSServer, None]:
    """Respond on connection n to each request with `answers[n]`: one record per text, all in one segment."""

    async def script(line: TLSLine) -> None:
        texts = answers[min(server.connections, len(answers)) - 1]
        while await line.request():
            await line.stream.send_all(line.records(*texts))

    async with serving_tls(ca, script) as server:
        yield server


@dataclass
class Proxy:
    """A CONNECT proxy on loopback that connects every tunnel to one port and records the request heads."""

    port: int = 0
    heads: list[bytes] = field(default_factory=list[bytes])

    @property
    def url(self) -> str:
        return self.url_with("")

    def url_with(self, credentials: str) -> str:
        return f"http://{credentials}{'@' if credentials else ''}{LOOPBACK}:{self.port}"


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@contextlib.asynccontextmanager
async def open_proxy(
    *, upstream: int = 0, reply: bytes | None = ESTABLISHED, leaves: bool = False, resets: bool = False
) -> AsyncGenerator[Proxy, None]:
    """Open a proxy that responds to CONNECT with `reply` (None: never).

    After the reply it connects to the port `upstream`, closes (`leaves`), or resets at the first byte of the tunnel
    (`resets`).
    """
    proxy = Proxy()

    async def serve(stream: trio.SocketStream) -> None:
        try:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += await stream.receive_some() or b"\r\n\r\n"
            proxy.heads.append(head)
            if reply:
                await stream.send_all(reply)
            if resets:
                await stream.receive_some()
                stream.socket.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            elif upstream:
                await _join(stream, upstream)
            elif not leaves:
                async for _ in stream:
                    pass
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            stream.socket.close()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host=LOOPBACK)
        proxy.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, listeners)
        try:
            yield proxy
        finally:
            nursery.cancel_scope.cancel()


async def _join(stream: trio.SocketStream, port: int) -> None:
    async def copy(source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in source:
                await sink.send_all(data)
        scope.cancel()

    async with await trio.open_tcp_stream(LOOPBACK, port) as server, trio.open_nursery() as nursery:
        nursery.start_soon(copy, server, stream, nursery.cancel_scope)
        nursery.start_soon(copy, stream, server, nursery.cancel_scope)
