"""Choose the proxy for an origin, and open a tunnel through it with CONNECT.

Knows proxy URLs, the environment variables that name them, and CONNECT (RFC 9110, 9.3.6). Must not know what is
sent through the tunnel.

Both https and plain http origins are reached through a tunnel. The alternative for plain http, requests in
absolute-form, would send the proxy's password with each request, would let the proxy read the request's API key, and
would need another request line. If a proxy refuses CONNECT, the error contains its status. Only `http://` proxies are
supported; `https://` and SOCKS proxies are refused with an error that names the scheme.

Rules for the environment (those of curl and most HTTP clients):
- `https_proxy` applies to https origins, `http_proxy` to http origins, and `all_proxy` to both. The first variable that
  is set decides; lower case comes before upper case; an empty value means no proxy.
- `HTTP_PROXY` in upper case is ignored if `REQUEST_METHOD` is set: in a CGI program, a client's header can set it.
- `no_proxy` contains entries between commas or spaces. `*` matches every host. `host` or `.host` matches that host and
  its subdomains. An address matches that address. `10.0.0.0/8` matches the addresses of a network (names are not
  resolved for that). `entry:port` matches that port only.
"""

from __future__ import annotations

import base64
import http
import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

import h11

from .backend import Backend
from .errors import Phase, TransportError, URLError
from .response_head import HeadError, HeadReader
from .trio_backend import TRIO
from .url import Origin, split_url

DEFAULT_PROXY_PORT: Final = 80
HEAD_LIMIT: Final = 16 * 1024
"""The maximum size of a proxy's response, in bytes, up to the end of its final head."""

ENVIRONMENT_VARIABLES: Final = {
    "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "http": ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"),
}
"""Scheme of the origin → variable names. The first variable that is set decides."""

TRANSIENT_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses of a refusal after which a retry may succeed. After any other status a retry would fail, too."""

STATUS_HINTS: Final[dict[int, str]] = {
    403: "its rules forbid this host or port",
    405: "it does not open tunnels",
}

_RECEIVE_BYTES = 4096
_SHOWN_BYTES = 60
_Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """A proxy.

    origin: the proxy's own address; its scheme is always http.
    authorization: the value for Proxy-Authorization, or None. Not part of the repr.
    """

    origin: Origin
    authorization: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return str(self.origin)


def parse_proxy_url(text: str, what: str = "proxy URL") -> ProxyConfig:
    """Parse `http://[user:password@]host[:port]`. The default scheme is http, the default port 80.

    what: the name of the value in error messages.
    Raises `URLError`, whose message contains neither the user name nor the password.
    """
    scheme, separator, _ = text.partition("://")
    if separator and scheme.lower() != "http":
        raise URLError(f"{what}: scheme {scheme[:20]!r} is not supported; only http:// proxies are")
    parts = split_url(text if separator else f"http://{text}", what)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise URLError(f"{what}: has a path, query or fragment; write http://host:port")
    if parts.user_info is None:
        return ProxyConfig(parts.origin)
    user, separator, password = parts.user_info.partition(":")
    # RFC 7617. With percent-encoding, a user name or password can contain any byte.
    credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    if b":" in unquote_to_bytes(user):
        raise URLError(f"{what}: a user name cannot contain a colon (RFC 7617)")
    return ProxyConfig(parts.origin, b"Basic " + base64.b64encode(credentials))


def choose_proxy(origin: Origin, environment: Mapping[str, str]) -> ProxyConfig | None:
    """Return the proxy that the environment names for an origin; None for a direct connection. Raises `URLError`."""
    for variable in ENVIRONMENT_VARIABLES[origin.scheme]:
        if variable == "HTTP_PROXY" and "REQUEST_METHOD" in environment:
            continue
        value = environment.get(variable)
        if value is None:
            continue
        excepted = environment.get("no_proxy", environment.get("NO_PROXY", ""))
        if not value.strip() or is_excepted(origin, excepted):
            return None
        return parse_proxy_url(value.strip(), variable)
    return None


def is_excepted(origin: Origin, no_proxy: str) -> bool:
    """Return whether an entry of a `no_proxy` value matches the origin."""
    try:
        address: _Address | None = ipaddress.ip_address(origin.host)
    except ValueError:
        address = None
    return any(_entry_matches(entry, origin, address) for entry in no_proxy.replace(",", " ").split())


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
        if response is not None:
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
    if status == http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        hint = (
            "put user name and password into the proxy URL"
            if proxy.authorization is None
            else "the proxy URL's user name and password were refused"
        )
    else:
        hint = STATUS_HINTS.get(status, "")
    # Use the standard phrase: the proxy's own text could repeat what was sent to it.
    phrase = f" {http.HTTPStatus(status).phrase}" if status in http.HTTPStatus.__members__.values() else ""
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


def _entry_matches(entry: str, origin: Origin, address: _Address | None) -> bool:
    if entry == "*":
        return True
    host, port = _entry_parts(entry)
    if port is not None and port != origin.port:
        return False
    if address is None:
        name, host = origin.host.removesuffix("."), host.lower().strip(".")
        return bool(host) and (name == host or name.endswith("." + host))
    try:
        return address in ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False


def _entry_parts(entry: str) -> tuple[str, int | None]:
    if entry.count(":") > 1 and not entry.startswith("["):
        return entry, None  # an IPv6 address without brackets, after which no port can follow
    host, separator, port = entry.rpartition(":")
    if not separator or not port.isdecimal() or entry.endswith("]"):
        host, port = entry, ""
    return host.strip("[]"), int(port) if port else None
