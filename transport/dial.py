"""Dial an origin: open a connected, non-blocking socket that is ready for the first request.

The socket is the standard library's and not trio's, because the multi-request loop waits for thousands of sockets at
once. A dial that does not return a socket closes every socket that it opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias, cast

import trio

from .backend import Backend, Event, TaskGroup
from .errors import Phase, TransportError, URLError
from .proxy import ProxyConfig, choose_proxy
from .resolve import Address, Resolver, is_exhaustion, literal_address, reason
from .tls import TLSConfig, TLSConfigError, handshake, make_context
from .tls_socket import TLSSocket
from .trio_backend import TRIO
from .tunnel import open_tunnel
from .url import Origin

Connect: TypeAlias = Callable[[str, int], Awaitable[socket.socket | trio.socket.SocketType]]
"""A function that opens a stream socket to a host and a port, in place of DNS and TCP.

It can use a Unix socket, a SOCKS proxy, or a socket pair in a test."""

ATTEMPT_DELAY: Final = 0.25
"""Seconds without a connection after which the next address is tried in parallel (RFC 8305, 5 and 8)."""

NAMED_ADDRESSES: Final = 8
"""The number of addresses that an error message names: a host may have thousands."""

_SOCKET_OPTIONS: Final[tuple[tuple[str, str, int], ...]] = (
    ("IPPROTO_TCP", "TCP_NODELAY", 1),  # a request is written at once; Nagle's algorithm would only delay it
    ("SOL_SOCKET", "SO_KEEPALIVE", 1),  # a model may think for minutes, and a NAT drops silent connections
    ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),  # seconds
    ("IPPROTO_TCP", "TCP_KEEPALIVE", 60),  # the name of TCP_KEEPIDLE on macOS
    ("IPPROTO_TCP", "TCP_KEEPINTVL", 60),
    ("IPPROTO_TCP", "TCP_KEEPCNT", 5),
    ("IPPROTO_TCP", "TCP_USER_TIMEOUT", 120_000),  # milliseconds without an acknowledgement (RFC 5482)
)

SOCKET_OPTIONS: Final[tuple[tuple[int, int, int], ...]] = tuple(
    (getattr(socket, level), getattr(socket, name), value)
    for level, name, value in _SOCKET_OPTIONS
    if hasattr(socket, name)
)
"""(level, option, value) of the options that this platform has. They are set before connecting."""

_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, getattr(errno, "WSAEWOULDBLOCK", -1)})


async def dial(
    origin: Origin,
    *,
    tls_context: ssl.SSLContext | None = None,
    proxy: ProxyConfig | None = None,
    resolver: Resolver | None = None,
    on_phase: Callable[[Phase], None] | None = None,
    connect: Connect | None = None,
    backend: Backend = TRIO,
) -> socket.socket | TLSSocket:
    """Connect to an origin. For https the socket is a `TLSSocket` whose handshake is complete.

    tls_context: required for https.
    proxy: the proxy through which to open a tunnel. The proxy then resolves the origin's name.
    resolver: shares lookups among concurrent dials; None for a resolver of this dial's own.
    on_phase: called with the phase at the start of each step.
    connect: opens the socket in place of DNS and TCP; `proxy` is then not used.
    backend: the event loop that this coroutine runs on.

    Raises `TransportError` of phase DNS, CONNECT, PROXY or TLS; its `permanent` is set if a retry would fail, too.
    """
    if origin.scheme == "https" and tls_context is None:
        raise ValueError(f"{origin} needs a tls_context")
    report = on_phase or _ignore_phase
    if connect is not None:
        proxy = None
        report(Phase.CONNECT)
        sock = await _connect_with(connect, origin)
    else:
        hop = origin if proxy is None else proxy.origin
        address = literal_address(hop.host, hop.port)
        if address is not None:
            addresses = [address]
        else:
            report(Phase.DNS)
            addresses = await (resolver or Resolver(backend)).resolve(hop.host, hop.port, origin=str(origin))
        report(Phase.CONNECT)
        sock = await _connect(addresses, origin, proxy, backend)
    try:
        if proxy is not None:
            report(Phase.PROXY)
            await open_tunnel(sock, proxy, origin, backend=backend)
        if origin.scheme == "https" and tls_context is not None:
            report(Phase.TLS)
            via = "" if proxy is None else str(proxy)
            return await handshake(
                sock, tls_context, origin.server_name or origin.host, origin=str(origin), via=via, backend=backend
            )
    except BaseException:
        sock.close()
        raise
    return sock


def dial_options(
    origin: Origin, tls: TLSConfig, proxy: ProxyConfig | None, environment: Mapping[str, str]
) -> tuple[ssl.SSLContext | None, ProxyConfig | None]:
    """Return the `tls_context` and the `proxy` with which to dial an origin.

    proxy: the proxy for all origins; None for the one that `environment` names.

    Raises `TransportError` for a TLS configuration or a proxy variable that cannot be used.
    """
    try:
        context = make_context(tls) if origin.scheme == "https" else None
        return context, proxy or choose_proxy(origin, environment)
    except (URLError, TLSConfigError) as error:
        raise TransportError(str(error), phase=Phase.CONNECT, origin=str(origin), permanent=True) from None
    except OSError as error:
        text = f"cannot set up TLS for {origin}: {reason(error)}"
        raise TransportError(text, phase=Phase.TLS, origin=str(origin)) from error


async def _connect_with(connect: Connect, origin: Origin) -> socket.socket:
    """Return the socket that the program's own function opens. Raises `TransportError` for any error of it."""
    try:
        made = cast("object", connect(origin.host, origin.port))
        sock = await cast("Awaitable[object]", made) if isinstance(made, Awaitable) else made
    except Exception as error:
        text = f"cannot connect to {origin}: dial raised {_raised(error)}"
        permanent = not isinstance(error, OSError)
        raise TransportError(text, phase=Phase.CONNECT, origin=str(origin), permanent=permanent) from error
    if isinstance(sock, trio.socket.SocketType):
        sock = socket.socket(fileno=sock.detach())
    if not isinstance(made, Awaitable):
        fault = f"dial must be an async function, but it returned {type(made).__name__}"
    elif not isinstance(sock, socket.socket) or sock.type != socket.SOCK_STREAM:
        fault = f"dial must return a connected stream socket, not {type(sock).__name__}"
    elif sock.fileno() < 0:
        fault = "dial must return a connected stream socket, not a closed one"
    else:
        sock.setblocking(False)
        return sock
    if isinstance(sock, socket.socket):
        sock.close()
    text = f"cannot connect to {origin}: {fault}"
    raise TransportError(text, phase=Phase.CONNECT, origin=str(origin), permanent=True)


def _raised(error: Exception) -> str:
    """Return an exception of the program's own function as text."""
    if isinstance(error, OSError) and error.errno in errno.errorcode:
        return reason(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _connect(
    addresses: Sequence[Address], origin: Origin, proxy: ProxyConfig | None, backend: Backend
) -> socket.socket:
    race = _Race(addresses, backend)
    sock = await race.run()
    if sock is not None:
        return sock
    where = str(origin) if proxy is None else f"proxy {proxy} for {origin}"
    tried = "; ".join(f"{address} {reason(error)}" for address, error in race.failures[:NAMED_ADDRESSES])
    more = len(race.failures) - NAMED_ADDRESSES
    errors = [error for _, error in race.failures]
    raise TransportError(
        f"cannot connect to {where}: {tried}" + (f"; and {more} more addresses" if more > 0 else ""),
        phase=Phase.CONNECT,
        origin=str(origin),
        exhausted=any(is_exhaustion(error) for error in errors),
    ) from ExceptionGroup("connection attempts", errors[:NAMED_ADDRESSES])


class _Race:
    """Connection attempts to several addresses by Happy Eyeballs (RFC 8305).

    The addresses are tried in order; each attempt starts `ATTEMPT_DELAY` after the previous one, or when that one has
    failed. The first attempt that connects cancels the others.
    """

    __slots__ = ("_backend", "_next", "addresses", "failures", "winner")

    def __init__(self, addresses: Sequence[Address], backend: Backend) -> None:
        self._backend = backend
        self._next = backend.event()  # set when the next attempt may begin, or when none is needed
        self.addresses = addresses
        self.failures: list[tuple[Address, OSError]] = []
        self.winner: socket.socket | None = None

    async def run(self) -> socket.socket | None:
        """Return the first socket that connects; None if no address accepts, with the errors in `failures`."""
        if len(self.addresses) == 1:
            await self._attempt(self.addresses[0])
            return self.winner
        try:
            async with self._backend.open_group() as group:
                for address in self.addresses:
                    self._next = self._backend.event()
                    group.start(self._run_attempt, address, self._next, group)
                    await self._backend.wait_at_most(self._next, ATTEMPT_DELAY)
                    if self.winner is not None:
                        break
        except BaseException:
            if self.winner is not None:
                self.winner.close()
            raise
        return self.winner

    async def _run_attempt(self, address: Address, failed: Event, group: TaskGroup) -> None:
        await self._attempt(address)
        if self.winner is None:
            failed.set()
        else:
            self._next.set()
            group.cancel()

    async def _attempt(self, address: Address) -> None:
        try:
            sock = await _connect_one(address, self._backend)
        except OSError as error:
            self.failures.append((address, error))
            return
        if self.winner is None:
            self.winner = sock
        else:
            sock.close()  # two attempts connected within one iteration of the event loop


async def _connect_one(address: Address, backend: Backend) -> socket.socket:
    await backend.checkpoint_if_cancelled()
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        _set_options(sock)
        code = sock.connect_ex(address.sockaddr)
        if code in _IN_PROGRESS:
            await backend.wait_writable(sock.fileno())
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code != 0:
            raise OSError(code, os.strerror(code))
    except BaseException:
        sock.close()
        raise
    return sock


def _set_options(sock: socket.socket) -> None:
    """Set the options that the system accepts: they are not essential, and some sandboxes refuse them."""
    try:
        for level, option, value in SOCKET_OPTIONS:
            sock.setsockopt(level, option, value)
    except OSError:
        for level, option, value in SOCKET_OPTIONS:
            with contextlib.suppress(OSError):
                sock.setsockopt(level, option, value)


def _ignore_phase(_: Phase) -> None:
    pass
