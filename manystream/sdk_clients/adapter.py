"""The transport that a client of httpx2 or httpx takes. The two packages have the same names, so it is written once.

A package's own module derives its `Transport` from `Adapter` and from the base class that the package's client expects.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Generic, Never, TypeVar, cast

from .. import PoolLimits, TLSConfig
from .client_transport import ClientTransport
from .faults import ClientTransportError, Fault
from .transfer import NetworkStream, Transfer

if TYPE_CHECKING:
    import httpx
    import httpx2

RequestT = TypeVar("RequestT", "httpx.Request", "httpx2.Request")
ResponseT = TypeVar("ResponseT", "httpx.Response", "httpx2.Response")


class Package:
    """What the transport uses of a client's package.

    body: the class of a response's body.
    whole: the class of a request's body that is in memory as a whole.
    """

    def __init__(self, module: ModuleType) -> None:
        self.exceptions: Mapping[Fault, Callable[..., Exception]] = {
            fault: getattr(module, fault.value) for fault in Fault
        }
        self.response: Callable[..., object] = module.Response
        self.body: Callable[[Transfer, object], object] = type(
            "Body", (Body, module.AsyncByteStream), {"exceptions": self.exceptions}
        )
        self.whole: type[Iterable[bytes]] = module.ByteStream


class Body:
    """The body of a response. `Package` derives a class from this one and from the package's own."""

    exceptions: Mapping[Fault, Callable[..., Exception]]

    def __init__(self, transfer: Transfer, request: object) -> None:
        self._transfer = transfer
        self._request = request

    def __aiter__(self) -> Body:
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._transfer.read()
        except ClientTransportError as error:
            raise self.exceptions[error.fault](str(error), request=self._request) from error.__cause__
        if not data:
            raise StopAsyncIteration
        return data

    async def aclose(self) -> None:
        await self._transfer.close()


class Adapter(Generic[RequestT, ResponseT]):
    """Translates the requests, responses and exceptions of a client's package. A subclass names the package."""

    _package: Package

    def __init__(
        self,
        *,
        limits: PoolLimits | None = None,
        tls: TLSConfig | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        **refused: Never,
    ) -> None:
        """Check the options. No connection is opened before the first request.

        limits: caps on connections; the default is `PoolLimits()`.
        tls: the CAs to trust and the client's certificate; the default trusts the system's CAs.
        proxy: the URL of a proxy for all requests, `http://[user:password@]host[:port]`; "" for no proxy.
        trust_env: use the proxies that the environment names at the first request of an event loop, where `proxy` is
            not given.

        Raises `TypeError` for an option of another type, such as the package's own `Limits`, and for options that the
        transport does not have, such as `http2`. Raises `URLError` for a proxy URL that cannot be used.
        """
        self._core = ClientTransport(limits, tls, proxy, trust_env, refused)

    def __repr__(self) -> str:
        return repr(self._core)

    async def handle_async_request(self, request: RequestT) -> ResponseT:
        """Send a request and return its response, whose body is still to be read. The client calls this.

        Raises the package's own exceptions. Raises `RuntimeError` after `aclose`, and on another event loop than that
        of the first request while that one is not closed.
        """
        package, url, stream = self._package, request.url, request.stream
        try:
            transfer = await self._core.send(
                request.method.encode("ascii", "replace"),  # "?" is refused
                (url.scheme, url.raw_host, url.port, url.raw_path),
                request.headers.raw,
                b"".join(stream) if isinstance(stream, package.whole) else cast("AsyncIterable[bytes]", stream),
                request.extensions,
            )
        except ClientTransportError as error:
            raise package.exceptions[error.fault](str(error), request=request) from error.__cause__
        response = package.response(
            transfer.status,
            headers=list(transfer.headers),
            stream=package.body(transfer, request),
            extensions={
                "http_version": b"HTTP/" + transfer.version,
                "reason_phrase": transfer.reason,
                "network_stream": NetworkStream(transfer.sock),
            },
        )
        return cast("ResponseT", response)

    async def aclose(self) -> None:
        """Close all connections. A request that runs is ended with an error."""
        await self._core.close()
