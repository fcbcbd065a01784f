"""The transport for clients of the package httpx: `httpx.AsyncClient(transport=manystream.httpx.Transport())`."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Final, Never, cast

import httpx

from .sdk_clients.client_transport import ClientTransport
from .sdk_clients.faults import ClientTransportError, Fault
from .sdk_clients.transfer import NetworkStream, Transfer
from .transport.pool import PoolLimits
from .transport.tls import TLSConfig

EXCEPTIONS: Final[dict[Fault, type[httpx.TransportError]]] = {
    Fault.POOL_TIMEOUT: httpx.PoolTimeout,
    Fault.CONNECT_TIMEOUT: httpx.ConnectTimeout,
    Fault.WRITE_TIMEOUT: httpx.WriteTimeout,
    Fault.READ_TIMEOUT: httpx.ReadTimeout,
    Fault.CONNECT: httpx.ConnectError,
    Fault.PROXY: httpx.ProxyError,
    Fault.WRITE: httpx.WriteError,
    Fault.READ: httpx.ReadError,
    Fault.REMOTE: httpx.RemoteProtocolError,
    Fault.LOCAL: httpx.LocalProtocolError,
    Fault.UNSUPPORTED: httpx.UnsupportedProtocol,
    Fault.DEFECT: httpx.TransportError,
}


class Transport(httpx.AsyncBaseTransport):
    """An async transport for `httpx.AsyncClient`, on asyncio and trio. It speaks HTTP/1.1.

    limits: caps on connections; the default is `PoolLimits()`.
    tls: the CAs to trust and the client's certificate; the default trusts the system's CAs.
    proxy: the URL of a proxy for all requests, `http://[user:password@]host[:port]`; "" for no proxy.
    trust_env: use the proxies that the environment names at the first request of an event loop, where `proxy` is not
        given.

    A client that is given a transport ignores its own `limits`, `verify`, `cert` and the environment's proxies, so
    they are given here. A client's own `proxy` and `mounts` open connections that do not use this transport.

    Raises `TypeError` for an option of another type, such as `httpx.Limits`, and for options that it does not have,
    such as `http2`. Raises `URLError` for a proxy URL that cannot be used.
    """

    def __init__(
        self,
        *,
        limits: PoolLimits | None = None,
        tls: TLSConfig | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        **refused: Never,
    ) -> None:
        self._core = ClientTransport(limits, tls, proxy, trust_env, refused)

    def __repr__(self) -> str:
        return repr(self._core)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response, whose body is still to be read. The client calls this.

        Raises httpx's own exceptions. Raises `RuntimeError` after `aclose`, and on another event loop than that of the
        first request while that one is not closed.
        """
        url, stream = request.url, request.stream
        try:
            transfer = await self._core.send(
                request.method.encode("ascii", "replace"),  # "?" is refused
                (url.scheme, url.raw_host, url.port, url.raw_path),
                request.headers.raw,
                b"".join(stream) if isinstance(stream, httpx.ByteStream) else cast("AsyncIterable[bytes]", stream),
                request.extensions,
            )
        except ClientTransportError as error:
            raise EXCEPTIONS[error.fault](str(error), request=request) from error.__cause__
        return httpx.Response(
            transfer.status,
            headers=list(transfer.headers),
            stream=_Body(transfer, request),
            extensions={
                "http_version": b"HTTP/" + transfer.version,
                "reason_phrase": transfer.reason,
                "network_stream": NetworkStream(transfer.sock),
            },
        )

    async def aclose(self) -> None:
        """Close all connections. A request that runs is ended with an error."""
        await self._core.close()


class _Body(httpx.AsyncByteStream):
    """The body of a response."""

    def __init__(self, transfer: Transfer, request: httpx.Request) -> None:
        self._transfer = transfer
        self._request = request

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._transfer.read()
        except ClientTransportError as error:
            raise EXCEPTIONS[error.fault](str(error), request=self._request) from error.__cause__
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        await self._transfer.close()
