"""The transport for clients of the package httpx: `httpx.AsyncClient(transport=manystream.httpx.Transport())`."""

from __future__ import annotations

from .extras import not_installed

try:
    import httpx
except ImportError as _error:
    raise not_installed(__name__, "httpx", _error) from None

from .sdk_clients.adapter import Adapter, Package


class Transport(Adapter[httpx.Request, httpx.Response], httpx.AsyncBaseTransport):
    """An async transport for `httpx.AsyncClient`, on asyncio and trio. It speaks HTTP/1.1.

    A client that is given a transport ignores its own `limits`, `verify`, `cert` and the environment's proxies, so
    they are given here. A client's own `proxy` and `mounts` open connections that do not use this transport.
    """

    _package = Package(httpx)
