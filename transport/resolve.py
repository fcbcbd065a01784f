"""Resolve host names to addresses. Concurrent lookups of one name share one DNS query.

A thousand streams that start together to one host need one lookup: each lookup occupies a worker thread. Results are
not cached, because getaddrinfo does not return how long they are valid; the system's own resolver caches them. Tests
and programs on trio can replace the resolver with `trio.socket.set_custom_hostname_resolver`.
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from .backend import Backend, Event
from .errors import Phase, TransportError
from .trio_backend import TRIO

SocketAddress: TypeAlias = tuple[str, int] | tuple[str, int, int, int]

PERMANENT_DNS_ERRORS: Final = frozenset(
    getattr(socket, name)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY", "EAI_BADFLAGS", "EAI_SERVICE")
    if hasattr(socket, name)
)
"""Error codes of getaddrinfo that another lookup would return again, such as for an unknown host (RFC 3493, 6.1)."""

LOCAL_HINTS: Final[dict[int, str]] = {
    errno.EMFILE: "this process has no file descriptor left; raise `ulimit -n` or allow fewer connections",
    errno.ENFILE: "this machine has no file descriptor left; allow fewer connections",
    errno.EADDRNOTAVAIL: "this machine has no free local port for this address, or cannot use the address",
    errno.ENETUNREACH: "this machine has no route to it",
    errno.EACCES: "a rule of this machine forbids it",
    errno.EPERM: "a rule of this machine forbids it",
}
"""Hints for errors of this machine, as opposed to errors of the peer. Keys: errno."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address to which a connection can be attempted.

    family: such as `socket.AF_INET6`.
    sockaddr: the address in the form that `socket.connect` takes.
    """

    family: int
    sockaddr: SocketAddress

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(slots=True, eq=False)
class _Lookup:
    finished: Event
    addresses: list[Address] | None = None
    error: TransportError | None = None


class Resolver:
    """Resolves host names. Each engine has one, so that concurrent lookups of one name share one query."""

    def __init__(self, backend: Backend = TRIO) -> None:
        self._backend = backend
        self._running: dict[tuple[str, int], _Lookup] = {}

    def __repr__(self) -> str:
        return f"<Resolver running={len(self._running)}>"

    async def resolve(self, host: str, port: int, *, origin: str = "") -> list[Address]:
        """Return the addresses of a name, in the order in which to try them. Raises `TransportError` of phase DNS.

        Cancellation takes effect at once; a lookup that runs in a thread continues, and its result is dropped.
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
            # The task that ran the lookup was cancelled: start another lookup.

    async def _look_up(self, key: tuple[str, int], origin: str) -> list[Address]:
        lookup = self._running[key] = _Lookup(self._backend.event())
        try:
            lookup.addresses = await _addresses(*key, origin, self._backend)
        except TransportError as error:
            lookup.error = error
            raise
        finally:
            del self._running[key]
            lookup.finished.set()
        return lookup.addresses


@functools.lru_cache(maxsize=1024)
def literal_address(host: str, port: int) -> Address | None:
    """Return the address of a host that is written as an IP address; None for a name."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET, (host, port)) if version == 4 else Address(socket.AF_INET6, (host, port, 0, 0))


def dns_error(text: str, origin: str, *, permanent: bool, exhausted: bool = False) -> TransportError:
    """Return the error of a failed lookup: a `TransportError` of phase DNS."""
    return TransportError(text, phase=Phase.DNS, origin=origin, permanent=permanent, exhausted=exhausted)


def is_exhaustion(error: OSError) -> bool:
    """Return whether the error reports that this process or this machine has no file descriptor left."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def reason(error: OSError) -> str:
    """Return an operating system's error as text: its name, its message and, if known, a hint (`LOCAL_HINTS`)."""
    name = errno.errorcode.get(error.errno or 0, "")
    text = error.strerror or str(error)
    hint = LOCAL_HINTS.get(error.errno or 0)
    return " ".join(filter(None, (name, f"({text}" + (f": {hint})" if hint else ")"))))


async def _addresses(host: str, port: int, origin: str, backend: Backend) -> list[Address]:
    try:
        found = await backend.getaddrinfo(host, port)
    except socket.gaierror as error:
        # Without a free descriptor, getaddrinfo may report that the name does not exist.
        exhausted = not _has_descriptor()
        permanent = error.errno in PERMANENT_DNS_ERRORS and not exhausted
        text = f"cannot look up {host!r}: {error.strerror or error}"
        raise dns_error(text, origin, permanent=permanent, exhausted=exhausted) from error
    except OSError as error:
        # Without a free descriptor, getaddrinfo may also raise an OSError that is not a gaierror.
        text = f"cannot look up {host!r}: {reason(error)}"
        raise dns_error(text, origin, permanent=False, exhausted=is_exhaustion(error)) from error
    except RuntimeError as error:  # Python can start no thread, in which to look up
        text = f"cannot look up {host!r} in a thread: {error} (fewer threads or a higher `ulimit -u` may help)"
        raise dns_error(text, origin, permanent=False) from error
    except UnicodeError as error:
        raise dns_error(f"cannot look up {host!r}: not a host name", origin, permanent=True) from error
    addresses = dict.fromkeys(_address(int(family), sockaddr) for family, _, _, _, sockaddr in found)
    usable = [address for address in addresses if address is not None]
    if not usable:
        raise dns_error(f"cannot look up {host!r}: the result contains no address", origin, permanent=True)
    return interleaved(usable)


def _has_descriptor() -> bool:
    """Return whether this process can open one more file descriptor."""
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
            return None  # (int, bytes): an IPv6 address, if Python was built without IPv6


def interleaved(addresses: list[Address]) -> list[Address]:
    """Return the addresses with alternating families, so that a broken family costs one attempt (RFC 8305, 4).

    The family of the first address comes first.
    """
    first = [address for address in addresses if address.family == addresses[0].family]
    other = [address for address in addresses if address.family != addresses[0].family]
    mixed: list[Address] = []
    for position in range(max(len(first), len(other))):
        mixed += first[position : position + 1] + other[position : position + 1]
    return mixed
