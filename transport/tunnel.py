"""Open a tunnel through a proxy with CONNECT (RFC 9110, 9.3.6).

Both https and plain http origins are reached through a tunnel. The alternative for plain http, requests in
absolute-form, would send the proxy's password with each request, would let the proxy read the request's API key, and
would need another request line. If a proxy refuses CONNECT, the error contains its status.
"""

from __future__ import annotations

import socket
from http import HTTPStatus
from typing import Final

import h11

from .backend import Backend
from .errors import Phase, TransportError
from .proxy import ProxyConfig
from .response_head import HeadError, HeadReader
from .trio_backend import TRIO
from .url import Origin

HEAD_LIMIT: Final = 16 * 1024
"""The maximum size of a proxy's response, in bytes, up to the end of its final head."""

TRANSIENT_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a refusal after which a retry may succeed. After any other status a retry would fail, too."""

STATUS_HINTS: Final[dict[int, str]] = {
    403: "its rules forbid this host or port",
    405: "it does not open tunnels",
}

_RECEIVE_BYTES = 4096
_SHOWN_BYTES = 60


async def open_tunnel(sock: socket.socket, proxy: ProxyConfig, origin: Origin, *, backend: Backend = TRIO) -> None:
    """Ask the proxy at the other end of `sock` to open a tunnel to the origin.

    sock: connected and non-blocking. The caller closes it, also after an error.
    Raises `TransportError` of phase PROXY; its message names the proxy and never its password. There is no timeout:
    the caller cancels.
    """
    headers: list[tuple[bytes, bytes]] = [(b"Host", origin.authority.encode("ascii"))]
    if proxy.authorization is not None:
        headers.append((b"Proxy-Authorization", proxy.authorization))
    request = h11.Request(method=b"CONNECT", target=origin.authority.encode("ascii"), headers=headers)
    data = h11.Connection(h11.CLIENT).send(request) or b""
    try:
        await _send_all(sock, data, backend)
        response, rest = await _receive_response(sock, proxy, origin, backend)
    except OSError as error:
        raise _failure(proxy, origin, f"the connection was lost: {error.strerror or error}") from error
    if not 200 <= response.status_code <= 299:
        raise _refusal(proxy, origin, response.status_code)
    if rest:
        # In TLS and in HTTP the client sends first, so these bytes are not from the origin.
        raise _failure(proxy, origin, "the proxy sent bytes after its response", protocol=True)


async def _send_all(sock: socket.socket, data: bytes, backend: Backend) -> None:
    await backend.checkpoint_if_cancelled()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await backend.wait_writable(sock.fileno())


async def _receive_response(
    sock: socket.socket, proxy: ProxyConfig, origin: Origin, backend: Backend
) -> tuple[h11.Response, bytes]:
    """Return the proxy's final head, and the bytes after it."""
    reader, received = HeadReader(), b""
    while True:
        if len(received) > HEAD_LIMIT:
            raise _failure(proxy, origin, f"the proxy's response is longer than {HEAD_LIMIT} bytes", protocol=True)
        data = await _receive(sock, backend)
        if not data:
            raise _failure(proxy, origin, "the proxy closed the connection without a response")
        received += data
        try:
            response = reader.feed(data)
        except HeadError as error:
            if error.quotes:
                raise _not_http(proxy, origin, received) from None
            raise _failure(proxy, origin, f"the proxy's response is refused: {error}", protocol=True) from None
        if isinstance(response, h11.Response):  # 101 was not asked for
            return response, reader.rest


async def _receive(sock: socket.socket, backend: Backend) -> bytes:
    while True:
        try:
            return sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            await backend.wait_readable(sock.fileno())


def _not_http(proxy: ProxyConfig, origin: Origin, received: bytes) -> TransportError:
    # Quote only the first line: a peer that echoes the request returns the password in a later one.
    line = received.split(b"\n", 1)[0][:_SHOWN_BYTES]
    return _failure(proxy, origin, f"the proxy's response is not HTTP: {line!r}", protocol=True)


def _refusal(proxy: ProxyConfig, origin: Origin, status: int) -> TransportError:
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        hint = (
            "put user name and password into the proxy URL"
            if proxy.authorization is None
            else "the proxy URL's user name and password were refused"
        )
    else:
        hint = STATUS_HINTS.get(status, "")
    # Use the standard phrase: the proxy's own text could repeat what was sent to it.
    phrase = f" {HTTPStatus(status).phrase}" if status in HTTPStatus.__members__.values() else ""
    text = f"the proxy answered {status}{phrase}" + (f" ({hint})" if hint else "")
    return _failure(proxy, origin, text, permanent=status not in TRANSIENT_STATUSES)


def _failure(
    proxy: ProxyConfig, origin: Origin, text: str, *, protocol: bool = False, permanent: bool = False
) -> TransportError:
    return TransportError(
        f"proxy {proxy} for {origin}: {text}",
        phase=Phase.PROXY,
        origin=str(origin),
        protocol=protocol,
        permanent=permanent,
    )
