"""Parse base URLs and build request targets.

A URL is checked once, when it is configured. After that, no URL can put a line break into a request, send a password to
the wrong host, or fail for a mistyped port after a connection was opened. No error message of this file contains a user
name, a password or a query, because each of them may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final, NamedTuple
from urllib.parse import quote, urlsplit

from .errors import URLError

DEFAULT_PORTS: Final = {"http": 80, "https": 443}

HOST_LIMIT: Final = 253
"""The maximum length of a host name in DNS, in characters (RFC 1035, 2.3.4)."""

# RFC 952 and 1123, and the underscore that container networks use in names.
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_NUMBER_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_TARGET = re.compile(r"/[!-\"$-~]*")  # printable ASCII except the space and "#"
_PATH_SAFE = "/%:@!$&'()*+,;=-._~"  # RFC 3986 pchar and "/"; "%" so that percent-encoded characters stay unchanged
_QUERY_SAFE = _PATH_SAFE + "?"


class Origin(NamedTuple):
    """The server that a connection leads to. `parse_base_url` checks the parts and creates it.

    scheme: "http" or "https".
    host: in lower case; international names as A-labels; IPv6 addresses without brackets.
    port: 1 to 65535.
    server_name: the name for TLS (SNI, and in the certificate) if it is not `host`; else empty.
    """

    scheme: str
    host: str
    port: int
    server_name: str = ""

    @property
    def host_header(self) -> str:
        """The value of the Host header: without the default port (RFC 9110, 4.2.3), IPv6 in brackets."""
        host = bracketed(self.host)
        return host if DEFAULT_PORTS.get(self.scheme) == self.port else f"{host}:{self.port}"

    @property
    def authority(self) -> str:
        """The target of a CONNECT request: `host:port` (RFC 9110, 9.3.6)."""
        return f"{bracketed(self.host)}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


class BaseURL(NamedTuple):
    """The common part of the URLs of an API's requests.

    origin: the server.
    path: the path to which each request's path is appended. Empty, or begins with "/" and does not end with one;
        percent-encoded.
    query: the query that each request carries, without "?"; may be empty. Some gateways expect `api-version=…` there.
    """

    origin: Origin
    path: str = ""
    query: str = ""

    def __str__(self) -> str:
        """Return the URL without its query, which may contain a key."""
        return f"{self.origin}{self.path}{'?…' if self.query else ''}"

    def __repr__(self) -> str:
        return f"BaseURL({str(self)!r})"


class SplitURL(NamedTuple):
    """The parts of a URL whose characters, scheme, host and port were checked. The repr shows only origin and path.

    origin: scheme, host and port.
    path: as written.
    query: without "?".
    fragment: without "#".
    user_info: the part before "@"; None without an "@".
    """

    origin: Origin
    path: str
    query: str
    fragment: str
    user_info: str | None

    def __repr__(self) -> str:
        return f"SplitURL({self.origin!r}, {self.path!r})"


def parse_base_url(text: str) -> BaseURL:
    """Parse and check an API's base URL. Raises `URLError`, whose message gives the correction.

    The path's percent-encoding is kept, and added for characters that need it; a "/" at the end is removed.
    The query is kept; each request sends it before its own query. A user name, a password and a fragment are refused:
    credentials belong in `api_key` or `headers`, and HTTP never sends a fragment.
    """
    parts = split_url(text, "base URL")
    if parts.user_info is not None:
        raise URLError("base URL: contains a user name or password; pass them as api_key or as a header")
    if parts.fragment:
        raise URLError("base URL: contains a fragment ('#…'), which is never sent; remove it")
    return BaseURL(
        parts.origin,
        quote(parts.path.rstrip("/"), safe=_PATH_SAFE),
        quote(parts.query, safe=_QUERY_SAFE),
    )


def target(base: BaseURL, path_with_query: str) -> str:
    """Return the request target in origin-form (RFC 9112, 3.2.1): base path, path, base query, the path's own query.

    A member of the own query that the base query has as well is left out: the base URL is the user's word.

    path_with_query: percent-encoded. It begins with "/", or is empty, or is only a query.
    Raises `URLError` if it has other characters than printable ASCII, or a path that does not begin with "/".
    """
    path, mark, query = path_with_query.partition("?")
    if base.query:
        names = {member.partition("=")[0] for member in base.query.split("&")}
        own = (member for member in query.split("&") if member and member.partition("=")[0] not in names)
        query = "&".join((base.query, *own))
        mark = "?"
    whole = f"{base.path}{path}" or "/"
    whole = f"{whole}{mark}{query}"
    if not _TARGET.fullmatch(whole) or (path and not path.startswith("/")):
        raise URLError("request path: must begin with '/' and be percent-encoded printable ASCII without '#'")
    return whole


def split_url(text: str, what: str, form: str = "https://host:port/path") -> SplitURL:
    """Split an http or https URL and check its origin. Raises `URLError`.

    what: the name of the value in error messages.
    form: the right form of the URL, for an error message.
    """
    for position, character in enumerate(text):
        # urlsplit removes tabs and line breaks silently, so they are refused before.
        if character == " " or not character.isprintable():
            raise URLError(f"{what}: contains a space, line break or invisible character at position {position}")
    scheme, separator, _ = text.partition("://")
    if not separator or not scheme:
        raise URLError(f"{what}: has no scheme; begin it with https:// or http://")
    if scheme.lower() not in DEFAULT_PORTS:
        raise URLError(f"{what}: scheme {scheme[:20]!r} is not supported; use https:// or http://")
    if "\\" in text:
        raise URLError(f"{what}: contains a backslash; separate with '/'")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        # The standard library's message may quote the whole authority, including a password.
        raise URLError(f"{what}: the host or port is malformed; write {form}") from None
    if not host:
        raise URLError(f"{what}: has no host")
    if port == 0:
        raise URLError(f"{what}: port 0 cannot be connected to")
    user_info = parts.netloc.rpartition("@")[0] if "@" in parts.netloc else None
    is_bracketed = parts.netloc.rpartition("@")[2].startswith("[")
    origin = Origin(parts.scheme, _checked_host(host, is_bracketed, what), port or DEFAULT_PORTS[parts.scheme])
    return SplitURL(origin, parts.path, parts.query, parts.fragment, user_info)


def bracketed(host: str) -> str:
    """Return the host in the form that URLs use: an IPv6 address in brackets, other hosts unchanged."""
    return f"[{host}]" if ":" in host else host


def _checked_host(host: str, is_bracketed: bool, what: str) -> str:
    if is_bracketed:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            raise URLError(f"{what}: host [{host}] is not an IPv6 address") from None
        if address.scope_id:
            raise URLError(f"{what}: host [{host}] has a zone, which a Host header cannot contain (RFC 6874)")
        return address.compressed
    name = host if host.isascii() else _a_labels(host, what)
    labels = name.removesuffix(".").split(".")
    if len(name) > HOST_LIMIT or not all(_LABEL.fullmatch(label) for label in labels):
        raise URLError(f"{what}: {host[:HOST_LIMIT]!r} is not a host name")
    if _NUMBER_LABEL.fullmatch(labels[-1]):
        # Resolvers disagree on the host that "127.1" or "2130706433" means.
        try:
            return ipaddress.IPv4Address(name).compressed
        except ValueError:
            raise URLError(f"{what}: {host!r} is not an IPv4 address; write four numbers") from None
    return name.lower()


def _a_labels(host: str, what: str) -> str:
    # The standard library's codec implements IDNA 2003, which maps some names to another host than browsers do.
    # The idna package is a dependency of trio. It is imported only when a name needs it.
    import idna

    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError:
        raise URLError(f"{what}: {host[:HOST_LIMIT]!r} is not a host name (IDNA 2008)") from None
