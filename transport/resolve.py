"""Names → addresses: DNS, shared by all who ask for the same name at once.

Knows getaddrinfo and its errors. Must not know what the addresses are for.

A thousand streams that start together to one host need one answer, not a thousand: each lookup costs a turn of a
worker thread. Answers are not kept once given, because getaddrinfo does not tell how long they hold; the
system's own cache does that. Tests and embedders can answer themselves: `trio.socket.set_custom_hostname_resolver`.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import trio

from .errors import Phase, TransportError

SocketAddress: TypeAlias = "tuple[str, int] | tuple[str, int, int, int]"

PERMANENT_DNS_ERRORS: Final = frozenset(
    getattr(socket, name)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY", "EAI_BADFLAGS", "EAI_SERVICE")
    if hasattr(socket, name)
)
"""getaddrinfo's answers that say "there is no such host" rather than "ask again" (RFC 3493, 6.1)."""

LOCAL_HINTS: Final[dict[int, str]] = {
    errno.EMFILE: "this process has no file descriptor left; raise `ulimit -n` or allow fewer connections",
    errno.ENFILE: "this machine has no file descriptor left; allow fewer connections",
    errno.EADDRNOTAVAIL: "no local port is left for this address, or it is none of this machine's",
    errno.ENETUNREACH: "this machine has no route to it",
    errno.EACCES: "a rule of this machine forbids it",
    errno.EPERM: "a rule of this machine forbids it",
}
"""What an errno means that speaks of this machine and not of the peer."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address that a connection can be tried to."""

    family: int
    sockaddr: SocketAddress

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(slots=True, eq=False)
class _Lookup:
    finished: trio.Event = field(default_factory=trio.Event)
    addresses: list[Address] | None = None
    error: TransportError | None = None


class Resolver:
    """Looks names up. One for each engine, so that concurrent questions for one name are asked once."""

    __slots__ = ("_running",)

    def __init__(self) -> None:
        self._running: dict[tuple[str, int], _Lookup] = {}

    def __repr__(self) -> str:
        return f"<Resolver running={len(self._running)}>"

    async def resolve(self, host: str, port: int, *, origin: str = "") -> list[Address]:
        """The addresses of a name, in the order to try them. Raises `TransportError` of phase DNS.

        Cancelling returns at once; a lookup that a thread has begun ends there, unobserved.
        """
        key = (host, port)
        while True:
            lookup = self._running.get(key)
            if lookup is None:
                return await self._look_up(key, origin)
            await lookup.finished.wait()
            if lookup.addresses is not None:
                return lookup.addresses
            if lookup.error is not None:
                known = lookup.error
                raise dns_error(str(known), origin, permanent=known.permanent, exhausted=known.exhausted)
            # Who asked was cancelled: ask again.

    async def _look_up(self, key: tuple[str, int], origin: str) -> list[Address]:
        lookup = self._running[key] = _Lookup()
        try:
            lookup.addresses = await _addresses(*key, origin)
        except TransportError as error:
            lookup.error = error
            raise
        finally:
            del self._running[key]
            lookup.finished.set()
        return lookup.addresses


def literal_address(host: str, port: int) -> Address | None:
    """The address that a host is when it is one, with no lookup; None for a name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET, (host, port)) if version == 4 else Address(socket.AF_INET6, (host, port, 0, 0))


def dns_error(text: str, origin: str, *, permanent: bool, exhausted: bool = False) -> TransportError:
    """The error of a failed lookup."""
    return TransportError(text, phase=Phase.DNS, origin=origin, permanent=permanent, exhausted=exhausted)


def is_exhaustion(error: OSError) -> bool:
    """Whether this process or this system has no descriptor left."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def reason(error: OSError) -> str:
    """An operating system's error with its name, and what to do where it is this machine's."""
    name = errno.errorcode.get(error.errno or 0, "")
    text = error.strerror or str(error)
    hint = LOCAL_HINTS.get(error.errno or 0)
    return " ".join(filter(None, (name, f"({text}" + (f": {hint})" if hint else ")"))))


async def _addresses(host: str, port: int, origin: str) -> list[Address]:
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        exhausted = not _has_descriptor()  # which getaddrinfo may report as a name that does not exist
        permanent = error.errno in PERMANENT_DNS_ERRORS and not exhausted
        text = f"cannot look up {host!r}: {error.strerror or error}"
        raise dns_error(text, origin, permanent=permanent, exhausted=exhausted) from error
    except OSError as error:
        # With no descriptor left getaddrinfo fails so, and not with an error of its own.
        text = f"cannot look up {host!r}: {reason(error)}"
        raise dns_error(text, origin, permanent=False, exhausted=is_exhaustion(error)) from error
    except UnicodeError as error:
        raise dns_error(f"cannot look up {host!r}: no host name", origin, permanent=True) from error
    addresses = dict.fromkeys(_address(int(family), sockaddr) for family, _, _, _, sockaddr in found)
    usable = [address for address in addresses if address is not None]
    if not usable:
        raise dns_error(f"cannot look up {host!r}: the answer holds no address", origin, permanent=True)
    return interleaved(usable)


def _has_descriptor() -> bool:
    """Whether this process can open one more descriptor."""
    try:
        socket.socket().close()
    except OSError as error:
        return not is_exhaustion(error)
    return True


def _address(family: int, sockaddr: Sequence[object]) -> Address | None:
    match sockaddr:
        case (str(host), int(port)):
            return Address(family, (host, port))
        case (str(host), int(port), int(flow), int(scope)):
            return Address(family, (host, port, flow, scope))
        case _:
            return None  # (int, bytes): an IPv6 address, from a Python that was built without IPv6


def interleaved(addresses: list[Address]) -> list[Address]:
    """The families by turns, the first one's first, so that one broken family costs one attempt (RFC 8305, 4)."""
    first = [address for address in addresses if address.family == addresses[0].family]
    other = [address for address in addresses if address.family != addresses[0].family]
    mixed: list[Address] = []
    for position in range(max(len(first), len(other))):
        mixed += first[position : position + 1] + other[position : position + 1]
    return mixed
