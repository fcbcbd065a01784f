"""Proxies: which one an origin goes through, and the CONNECT that opens the tunnel.

Knows proxy URLs, the environment variables that name them, and CONNECT (RFC 9110, 9.3.6). Must not know what is
sent through the tunnel.

There is one way: a tunnel, for https and for plain http alike. The other way, absolute-form requests for plain
http, would put the proxy's password beside every request and its key into the proxy's sight, and would need
another request line. A proxy that refuses CONNECT to a port says so with a status, and the error passes it on.
Only `http://` proxies are spoken to; a proxy's own TLS and SOCKS are refused by name.

Rules for the environment (as curl and most HTTP clients have them):
- `https_proxy` for https origins, `http_proxy` for http origins, else `all_proxy`; lower case before upper case;
  the first that is set decides, and an empty value means no proxy.
- `HTTP_PROXY` in upper case is not read where `REQUEST_METHOD` is set: in a CGI program a client's header writes it.
- `no_proxy`: entries between commas or spaces. `*` is every host; `host` or `.host` is that host and all below it;
  an address is that address; `10.0.0.0/8` is a network (for hosts given as addresses: names are not looked up);
  `entry:port` is that port only.
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
import trio

from .errors import Phase, TransportError, URLError
from .response_head import HeadError, HeadReader
from .url import Origin, split_url

DEFAULT_PROXY_PORT: Final = 80
HEAD_LIMIT: Final = 16 * 1024
"""Bytes that a proxy may answer with before its final head is whole."""

ENVIRONMENT_VARIABLES: Final = {
    "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "http": ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"),
}
"""Scheme of the origin → variables, the first that is set decides."""

TRANSIENT_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Refusals that another attempt may cure. Any other status would be given again."""

STATUS_HINTS: Final[dict[int, str]] = {
    403: "its rules forbid this host or port",
    405: "it does not open tunnels",
}

_RECEIVE_BYTES = 4096
_SHOWN_BYTES = 60
_Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """A proxy: its origin (always http) and what it wants in Proxy-Authorization, which no repr shows."""

    origin: Origin
    authorization: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return str(self.origin)


def parse_proxy_url(text: str, what: str = "proxy URL") -> ProxyConfig:
    """Read `http://[user:password@]host[:port]`; without a scheme http is meant, without a port 80.

    `what` names the value in errors. Raises `URLError`, which shows neither user name nor password.
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
    # RFC 7617; percent-encoding lets a user name or password hold any byte.
    credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
    if b":" in unquote_to_bytes(user):
        raise URLError(f"{what}: a user name cannot hold a colon (RFC 7617)")
    return ProxyConfig(parts.origin, b"Basic " + base64.b64encode(credentials))


def choose_proxy(origin: Origin, environment: Mapping[str, str]) -> ProxyConfig | None:
    """The proxy that the environment names for an origin; None for a direct connection. Raises `URLError`."""
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
    """Whether a `no_proxy` value names the origin."""
    try:
        address: _Address | None = ipaddress.ip_address(origin.host)
    except ValueError:
        address = None
    return any(_entry_names(entry, origin, address) for entry in no_proxy.replace(",", " ").split())


async def open_tunnel(sock: socket.socket, proxy: ProxyConfig, origin: Origin) -> None:
    """Have the proxy at the other end of `sock` (connected, non-blocking) connect it to the origin.

    Raises `TransportError` of phase PROXY, which names the proxy and never its password. The socket stays the
    caller's to close. No clock: the caller cancels.
    """
    headers: list[tuple[bytes, bytes]] = [(b"Host", origin.authority.encode("ascii"))]
    if proxy.authorization is not None:
        headers.append((b"Proxy-Authorization", proxy.authorization))
    request = h11.Request(method=b"CONNECT", target=origin.authority.encode("ascii"), headers=headers)
    data = h11.Connection(h11.CLIENT).send(request) or b""
    try:
        await _send_all(sock, data)
        response, rest = await _receive_response(sock, proxy, origin)
    except OSError as error:
        raise _failure(proxy, origin, f"the connection was lost: {error.strerror or error}") from error
    if not 200 <= response.status_code <= 299:
        raise _refusal(proxy, origin, response.status_code)
    if rest:
        # Both TLS and HTTP begin with us, so whatever comes first is not from the origin.
        raise _failure(proxy, origin, "the proxy sent bytes after its answer", protocol=True)


async def _send_all(sock: socket.socket, data: bytes) -> None:
    await trio.lowlevel.checkpoint_if_cancelled()
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock.fileno())


async def _receive_response(sock: socket.socket, proxy: ProxyConfig, origin: Origin) -> tuple[h11.Response, bytes]:
    """The proxy's final head, and what came after it."""
    reader, received = HeadReader(), b""
    while True:
        if len(received) > HEAD_LIMIT:
            raise _failure(proxy, origin, f"the proxy's answer is longer than {HEAD_LIMIT} bytes", protocol=True)
        data = await _receive(sock)
        if not data:
            raise _failure(proxy, origin, "the proxy closed the connection without an answer")
        received += data
        try:
            response = reader.feed(data)
        except HeadError as error:
            if error.quotes:
                raise _not_http(proxy, origin, received) from None
            raise _failure(proxy, origin, f"the proxy's answer is refused: {error}", protocol=True) from None
        if response is not None:
            return response, reader.rest


async def _receive(sock: socket.socket) -> bytes:
    while True:
        try:
            return sock.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            await trio.lowlevel.wait_readable(sock.fileno())


def _not_http(proxy: ProxyConfig, origin: Origin, received: bytes) -> TransportError:
    # The first line only: a peer that repeats what it got has the password in a later one.
    line = received.split(b"\n", 1)[0][:_SHOWN_BYTES]
    return _failure(proxy, origin, f"the proxy's answer is no HTTP: {line!r}", protocol=True)


def _refusal(proxy: ProxyConfig, origin: Origin, status: int) -> TransportError:
    if status == http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        hint = (
            "put user name and password into the proxy URL"
            if proxy.authorization is None
            else "the proxy URL's user name and password were refused"
        )
    else:
        hint = STATUS_HINTS.get(status, "")
    # The standard phrase and not the proxy's own words, which could repeat what was sent to it.
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


def _entry_names(entry: str, origin: Origin, address: _Address | None) -> bool:
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
        return entry, None  # an IPv6 address without brackets, which has no place for a port
    host, separator, port = entry.rpartition(":")
    if not separator or not port.isdecimal() or entry.endswith("]"):
        host, port = entry, ""
    return host.strip("[]"), int(port) if port else None
