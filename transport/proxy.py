"""Choose the proxy for an origin.

Only `http://` proxies are supported; `https://` and SOCKS proxies are refused with an error that names the scheme.

Rules for the environment (those of curl and most HTTP clients):
- `https_proxy` applies to https origins, `http_proxy` to http origins, and `all_proxy` to both. The first variable that
  is set decides; lower case comes before upper case; an empty value means no proxy.
- `HTTP_PROXY` in upper case is ignored if `REQUEST_METHOD` is set: in a CGI program, a client's header can set it.
- `no_proxy` contains entries between commas or spaces. `*` matches every host. `host`, `.host` or `*.host` matches that
  host and its subdomains. An address matches that address. `10.0.0.0/8` matches the addresses of a network (names are
  not resolved for that). `entry:port` matches that port only.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from urllib.parse import unquote_to_bytes

from .errors import URLError
from .url import Origin, split_url

PORT_DIGITS: Final = 5
FORM: Final = "http://host:port"
ENVIRONMENT_VARIABLES: Final = {
    "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "http": ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"),
}
"""Scheme of the origin → variable names. The first variable that is set decides."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """A proxy.

    origin: the proxy's own address; its scheme is always http.
    authorization: the value for Proxy-Authorization, or None. Not part of the repr.
    variable: the environment variable that names the proxy; empty if the program does.
    """

    origin: Origin
    authorization: bytes | None = field(default=None, repr=False)
    variable: str = field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.origin} ({self.variable})" if self.variable else str(self.origin)


def parse_proxy_url(text: str, what: str = "proxy URL") -> ProxyConfig:
    """Parse `http://[user:password@]host[:port]`. The default scheme is http, the default port 80.

    what: the name of the value in error messages.
    Raises `URLError`, whose message contains neither the user name nor the password.
    """
    scheme, separator, _ = text.partition("://")
    if separator and scheme.lower() != "http":
        raise URLError(f"{what}: scheme {scheme[:20]!r} is not supported; only http:// proxies are")
    parts = split_url(text if separator else f"http://{text}", what, FORM)
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise URLError(f"{what}: has a path, query or fragment; write {FORM}")
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
        return replace(parse_proxy_url(value.strip(), variable), variable=variable)
    return None


def is_excepted(origin: Origin, no_proxy: str) -> bool:
    """Return whether an entry of a `no_proxy` value matches the origin."""
    try:
        address: _Address | None = ipaddress.ip_address(origin.host)
    except ValueError:
        address = None
    return any(_entry_matches(entry, origin, address) for entry in no_proxy.replace(",", " ").split())


def _entry_matches(entry: str, origin: Origin, address: _Address | None) -> bool:
    if entry == "*":
        return True
    host, port = _entry_parts(entry)
    if port is not None and port != origin.port:
        return False
    if address is None:
        name, host = origin.host.removesuffix("."), host.lower().removeprefix("*.").strip(".")
        return bool(host) and (name == host or name.endswith("." + host))
    try:
        return address in ipaddress.ip_network(host, strict=False)
    except ValueError:
        return False


def _entry_parts(entry: str) -> tuple[str, int | None]:
    if entry.count(":") > 1 and not entry.startswith("["):
        return entry, None  # an IPv6 address without brackets, after which no port can follow
    host, separator, port = entry.rpartition(":")
    if not separator or not (port.isdecimal() and len(port) <= PORT_DIGITS) or entry.endswith("]"):
        host, port = entry, ""
    return host.strip("[]"), int(port) if port else None
