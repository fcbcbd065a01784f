"""The transport for clients of the package httpx2: `httpx2.AsyncClient(transport=manystream.httpx2.Transport())`."""

from __future__ import annotations

from .extras import not_installed

try:
    import httpx2
except ImportError as _error:
    raise not_installed(__name__, "httpx2", _error) from None

from .sdk_clients.adapter import Adapter, Package


class Transport(Adapter[httpx2.Request, httpx2.Response], httpx2.AsyncBaseTransport):
    """An async transport for `httpx2.AsyncClient`, on asyncio and trio. It speaks HTTP/1.1.

    A client that is given a transport ignores its own `limits`, `verify`, `cert` and the environment's proxies, so
    they are given here. A client's own `proxy` and `mounts` open connections that do not use this transport.
    """

    _package = Package(httpx2)
