"""Base URLs: where requests go, and the target that each one names.

Knows RFC 3986 as far as an API's base URL needs it. Must not know providers, nor which paths exist.

A URL is checked once, when it is configured, so that nothing later can smuggle a line break into a request,
send a password to the wrong host, or fail for a mistyped port after a connection was made. No message of this
file shows a user name, a password or a query: any of them may be a key.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from .errors import URLError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

HOST_LIMIT: Final = 253
"""The longest host name that DNS can hold, in characters (RFC 1035, 2.3.4)."""

# RFC 952 and 1123, and the underscore that container networks put into names.
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_TARGET = re.compile(r"/[!-\"$-~]*")  # printable ASCII but the space and "#"
_PATH_SAFE = "/%:@!$&'()*+,;=-._~"  # RFC 3986 pchar and "/"; "%" so that what is encoded stays as it is
_QUERY_SAFE = _PATH_SAFE + "?"


class Origin(NamedTuple):
    """Scheme, host and port: what a connection belongs to. Made by `parse_base_url`, which does the checking.

    host: lower case, A-labels for international names, IPv6 without brackets.
    """

    scheme: str
    host: str
    port: int

    @property
    def host_header(self) -> str:
        """The value of the Host header: no default port (RFC 9110, 4.2.3), IPv6 in brackets."""
        host = bracketed(self.host)
        return host if DEFAULT_PORTS.get(self.scheme) == self.port else f"{host}:{self.port}"

    @property
    def authority(self) -> str:
        """`host:port`, as CONNECT names it (RFC 9110, 9.3.6)."""
        return f"{bracketed(self.host)}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True, slots=True, repr=False)
class BaseURL:
    """An origin, the path that every request's path is appended to, and a query that every request carries.

    path: empty, or begins with "/" and does not end with one; percent-encoded.
    query: without "?"; empty where there is none. Some gateways want `api-version=…` there.
    """

    origin: Origin
    path: str = ""
    query: str = ""

    def __str__(self) -> str:
        """Without the query, which may hold a key."""
        return f"{self.origin}{self.path}{'?…' if self.query else ''}"

    def __repr__(self) -> str:
        return f"BaseURL({str(self)!r})"


@dataclass(frozen=True, slots=True)
class SplitURL:
    """The parts of a URL, checked for what no URL of ours may hold. `user_info` is shown in no repr."""

    origin: Origin
    path: str
    query: str = field(repr=False)
    fragment: str = field(repr=False)
    user_info: str | None = field(repr=False)


def parse_base_url(text: str) -> BaseURL:
    """Read and check an API's base URL. Raises `URLError`, which says what to mend.

    A path keeps its percent-encoding and gets it where characters need it; a "/" at its end is dropped.
    A query is kept, and sent with every request before the request's own. User name, password and fragment
    are refused: the first two belong into `api_key` or `headers`, the third never leaves a browser.
    """
    parts = split_url(text, "base URL")
    if parts.user_info is not None:
        raise URLError("base URL: holds a user name or password; pass them as api_key or as a header")
    if parts.fragment:
        raise URLError("base URL: holds a fragment ('#…'), which is never sent; remove it")
    return BaseURL(
        parts.origin,
        quote(parts.path.rstrip("/"), safe=_PATH_SAFE),
        quote(parts.query, safe=_QUERY_SAFE),
    )


def target(base: BaseURL, path_with_query: str) -> str:
    """The request target in origin-form (RFC 9112, 3.2.1): base path, path, base query, the path's own query.

    `path_with_query` begins with "/" (or is empty, or only a query) and is percent-encoded by its maker.
    Raises `URLError` for anything but printable ASCII.
    """
    path, mark, query = path_with_query.partition("?")
    if base.query:
        query = f"{base.query}&{query}" if query else base.query
        mark = "?"
    whole = f"{base.path}{path}" or "/"
    whole = f"{whole}{mark}{query}"
    if not _TARGET.fullmatch(whole) or (path and not path.startswith("/")):
        raise URLError("request path: must begin with '/' and be percent-encoded printable ASCII without '#'")
    return whole


def split_url(text: str, what: str) -> SplitURL:
    """Split an http or https URL and check its origin. `what` names the value in errors. Raises `URLError`."""
    for position, character in enumerate(text):
        # urlsplit drops tabs and line breaks silently, so they are refused before it sees them.
        if character == " " or not character.isprintable():
            raise URLError(f"{what}: holds a space, line break or invisible character at position {position}")
    scheme, separator, _ = text.partition("://")
    if not separator or not scheme:
        raise URLError(f"{what}: has no scheme; begin it with https:// or http://")
    if scheme.lower() not in DEFAULT_PORTS:
        raise URLError(f"{what}: scheme {scheme[:20]!r} is not supported; use https:// or http://")
    if "\\" in text:
        raise URLError(f"{what}: holds a backslash; separate with '/'")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The standard library's text may quote the whole authority, and so a password.
        raise URLError(f"{what}: the host or port is malformed; write https://host:port/path") from None
    if not host:
        raise URLError(f"{what}: has no host")
    if port == 0:
        raise URLError(f"{what}: port 0 cannot be connected to")
    user_info = parts.netloc.rpartition("@")[0] if "@" in parts.netloc else None
    is_bracketed = parts.netloc.rpartition("@")[2].startswith("[")
    origin = Origin(parts.scheme, _checked_host(host, is_bracketed, what), port or DEFAULT_PORTS[parts.scheme])
    return SplitURL(origin, parts.path, parts.query, parts.fragment, user_info)


def bracketed(host: str) -> str:
    """The host as URLs write it: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host


def _checked_host(host: str, is_bracketed: bool, what: str) -> str:
    if is_bracketed:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise URLError(f"{what}: host [{host}] is no IPv6 address") from None
        if address.scope_id:
            raise URLError(f"{what}: host [{host}] has a zone, which a Host header cannot carry (RFC 6874)")
        return address.compressed
    name = host if host.isascii() else _a_labels(host, what)
    labels = name.removesuffix(".").split(".")
    if len(name) > HOST_LIMIT or not all(_LABEL.fullmatch(label) for label in labels):
        raise URLError(f"{what}: {host[:HOST_LIMIT]!r} is no host name")
    if _NUMBER_LABEL.fullmatch(labels[-1]):
        # "127.1" or "2130706433" would mean different hosts to different resolvers.
        try:
            return ipaddress.IPv4Address(name).compressed
        except ValueError:
            raise URLError(f"{what}: {host!r} is no IPv4 address; write four numbers") from None
    return name.lower()


def _a_labels(host: str, what: str) -> str:
    # The standard library's codec is IDNA 2003, which sends some names to another host than browsers do.
    # The idna package comes with trio, which needs it for the same reason; it is loaded only here.
    import idna

    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise URLError(f"{what}: {host[:HOST_LIMIT]!r} is no host name (IDNA 2008)") from None
