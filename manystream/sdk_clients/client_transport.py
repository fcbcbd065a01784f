"""The core of the transports for httpx2's and httpx's clients: sends requests over the transport layer.

A transport belongs to the event loop of its first request, and closes its sockets when that loop ends. Then it begins
anew on the loop of the next request.
"""

from __future__ import annotations

import functools
import math
import os
import re
import socket
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from typing import Final, cast

from .. import TLSConfig
from ..engine.request.value_rules import POOL_LIMITS
from ..transport.dial import dial, dial_options
from ..transport.errors import Phase
from ..transport.exchange import WireHead
from ..transport.loop import PollerLoop, make_poller
from ..transport.pool import Pool, PoolLimits
from ..transport.proxy import ProxyConfig, parse_proxy_url
from ..transport.resolve import Resolver
from ..transport.running import EventLoop, running_event_loop
from ..transport.timers import Timers
from ..transport.tls_socket import TLSSocket
from ..transport.url import DEFAULT_PORTS, Origin
from .faults import ClientTransportError, Fault
from .transfer import Running, Timeouts, Trace, Transfer

REFUSED_OPTIONS: Final = {
    "http1": "this transport always speaks HTTP/1.1",
    "http2": "this transport speaks HTTP/1.1 only",
    "verify": "pass tls=manystream.TLSConfig(ca_file=…); verification cannot be switched off",
    "cert": "pass tls=manystream.TLSConfig(client_certificate=…)",
    "retries": "the SDK's own max_retries applies",
    "uds": "a Unix socket is not supported",
    "local_address": "a local address is not supported",
    "socket_options": "the transport sets the socket options itself",
}
"""Option of httpx2's and httpx's own transports → what to do instead."""

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")  # RFC 9110, 5.5, without LF; bytes above 0x7f are allowed
_OUTER = (b"\n ", b"\n\t", b" \n", b"\t\n")
"""White space at the beginning or the end of a value, where each value is a line."""
_SPECIAL = frozenset({b"host", b"connection", b"content-length", b"transfer-encoding", b"upgrade"})
"""The headers that mean something to this transport."""
_TARGET = re.compile(rb"[!-~]+")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SHOWN_NAME = 60
_LAST_PORT = 65_535
_BAD_REQUEST_LINE = "the method or the request target has a character that HTTP forbids"

_NO_TIMEOUTS: Final[Mapping[str, object]] = {}
"""The `timeout` extension of a client that gives none."""


class ClientTransport:
    """Sends the requests of one client."""

    def __init__(
        self,
        limits: PoolLimits | None,
        tls: TLSConfig | None,
        proxy: str | None,
        trust_env: bool,
        refused: Mapping[str, object],
    ) -> None:
        """Check the options of a `Transport`. `refused`: options that it does not have."""
        for name in refused:
            hint = REFUSED_OPTIONS.get(name)
            raise TypeError(f"Transport has no option {name!r}" + (f": {hint}" if hint else ""))
        _check_type(limits, PoolLimits, "limits")
        _check_type(tls, TLSConfig, "tls")
        _check_type(proxy, str, "proxy")
        self._limits = limits or PoolLimits()
        POOL_LIMITS.check(self._limits, "limits")
        self._tls = tls or TLSConfig()
        self._proxy: ProxyConfig | None = parse_proxy_url(proxy, "proxy") if proxy else None
        self._trust_env = trust_env and proxy != ""  # as in the engine's option: an empty text is no proxy
        self._running: Running | None = None
        self._closed = False

    def __repr__(self) -> str:
        if self._closed:
            return "<Transport closed>"
        return "<Transport unused>" if self._running is None else f"<Transport {self._running.pool!r}>"

    async def send(
        self,
        method: bytes,
        url: tuple[str, bytes, int | None, bytes],
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | AsyncIterable[bytes],
        extensions: Mapping[str, object],
    ) -> Transfer:
        """Send a request, and return its transfer once the response's head has arrived.

        url: scheme, host (A-labels), port or None, and the target in origin-form.
        headers: as the client has made them, Host and Content-Length included.
        body: the whole body, or its pieces.
        extensions: the client's `timeout`, `sni_hostname`, `trace` and `target`; others are ignored.

        Raises `ClientTransportError`, and `RuntimeError` where the transport cannot be used: it is closed, or belongs
        to another event loop that still runs.
        """
        running = self._here()
        origin = _checked_origin(method, url, extensions)
        checked, size, last = _headers(headers, origin)
        if isinstance(body, bytes) and size not in (None, len(body)):
            raise ClientTransportError(Fault.LOCAL, f"the body has {len(body)} bytes, and its Content-Length is {size}")
        head = WireHead(method, _target(url[3], extensions), checked)
        transfer = Transfer(running, _timeouts(extensions), _trace(extensions), last=last)
        try:
            await transfer.connect(origin, fresh=False)
            if not await transfer.exchange(head, size, body, resend=True):
                await transfer.connect(origin, fresh=True)
                await transfer.exchange(head, size, body, resend=False)
        except BaseException as error:
            await transfer.close_after(error)
            raise
        return transfer

    async def close(self) -> None:
        """Close all connections. A request that runs is ended with an error."""
        running = self._running
        if running is not None and not running.loop.forked:
            if running.event_loop == running_event_loop():
                running.close()
            elif running.event_loop.ended:
                running.drop()
            else:
                raise RuntimeError("this transport belongs to another event loop: close its client there")
        self._closed, self._running = True, None

    def _here(self) -> Running:
        """Return what runs on this event loop; start it with the first request."""
        if self._closed:
            raise RuntimeError("this transport is closed: create a client with a new Transport()")
        here = running_event_loop()
        running = self._running
        if running is not None and running.loop.forked:
            running = self._running = None  # the connections are the parent's
        if running is not None and running.event_loop == here:
            return running
        if here is None:
            raise RuntimeError("this transport needs a running asyncio or trio event loop: use the async client")
        if running is not None:
            if not running.event_loop.ended:
                raise RuntimeError(
                    "this transport belongs to another event loop, which was not closed: create a client with its own"
                    " Transport() for each event loop"
                )
            running.drop()
        self._running = self._start(here)
        return self._running

    def _start(self, here: EventLoop) -> Running:
        poller = make_poller()
        if poller is None:
            raise RuntimeError(
                "this platform has neither epoll nor kqueue, which this transport needs: keep the client's own"
            )
        backend = here.backend(self._broken_down)
        loop, resolver = PollerLoop(poller, backend.clock), Resolver(backend)
        timers = Timers(loop.catch_up)

        # The environment is copied once: `os.environ` encodes and decodes each name and each value.
        environment: Mapping[str, str] = dict(os.environ) if self._trust_env else {}

        async def open_socket(origin: Origin, on_phase: Callable[[Phase], None]) -> socket.socket | TLSSocket:
            context, proxy = dial_options(origin, self._tls, self._proxy, environment)
            return await dial(
                origin, tls_context=context, proxy=proxy, resolver=resolver, on_phase=on_phase, backend=backend
            )

        try:
            loop.start(backend)
            timers.start(backend)
        except BaseException:
            timers.close()
            loop.close()
            raise
        running = Running(here, backend, loop, timers, Pool(backend, loop, timers, open_socket, self._limits))
        running.at_end = here.at_end(running.close)
        return running

    def _broken_down(self, error: BaseException) -> None:
        """End everything after a defect of a background task. The next request starts anew."""
        running, self._running = self._running, None
        if running is not None:
            running.close()


def _check_type(value: object, wanted: type, name: str) -> None:
    """Raise `TypeError` for a value of another package, such as an `httpx.Limits`."""
    if value is None or isinstance(value, wanted):
        return
    package = type(value).__module__.partition(".")[0]
    given = type(value).__name__ if package == "builtins" else f"{package}.{type(value).__name__}"
    expected = "a URL as text" if wanted is str else f"a manystream.{wanted.__name__}"
    raise TypeError(f"{name} must be {expected}, not {given}")


def _checked_origin(
    method: bytes, url: tuple[str, bytes, int | None, bytes], extensions: Mapping[str, object]
) -> Origin:
    """Return where to send a request. Raises `ClientTransportError` for a URL or a method that cannot be sent."""
    scheme, host, port, _ = url
    if scheme not in DEFAULT_PORTS:
        raise ClientTransportError(
            Fault.UNSUPPORTED, f"the scheme {scheme[:20]!r} is not supported: use https:// or http://"
        )
    if method == b"CONNECT":
        raise ClientTransportError(Fault.LOCAL, "CONNECT is not supported: pass proxy= to Transport for a tunnel")
    if not _TOKEN.fullmatch(method):
        raise ClientTransportError(Fault.LOCAL, _BAD_REQUEST_LINE)
    if not host:
        raise ClientTransportError(Fault.UNSUPPORTED, "the URL has no host")
    if port is not None and port > _LAST_PORT:
        raise ClientTransportError(Fault.CONNECT, f"the URL's port {port} is no port: the last one is {_LAST_PORT}")
    wanted = extensions.get("sni_hostname", "")
    server_name = wanted.decode("ascii", "replace") if isinstance(wanted, bytes) else str(wanted or "")
    return _origin(scheme, host, DEFAULT_PORTS[scheme] if port is None else port, server_name)


@functools.lru_cache(maxsize=1024)
def _origin(scheme: str, host: bytes, port: int, server_name: str) -> Origin:
    """Return the same object for the same origin."""
    return Origin(scheme, host.decode("ascii"), port, server_name)


def _target(target: bytes, extensions: Mapping[str, object]) -> bytes:
    """Return the request target: the URL's, or the client's own. Raises `ClientTransportError`."""
    given = extensions.get("target", target)
    if not isinstance(given, bytes) or not _TARGET.fullmatch(given):
        raise ClientTransportError(Fault.LOCAL, _BAD_REQUEST_LINE)
    return given


def _headers(
    headers: Sequence[tuple[bytes, bytes]], origin: Origin
) -> tuple[list[tuple[bytes, bytes]], int | None, bool]:
    """Check the headers. Returns them without those of the body's length, Host first; the length or None; and whether
    they announce that the connection ends after this request (RFC 9112, 9.6)."""
    last = False
    host: tuple[bytes, bytes] | None = None
    rest: list[tuple[bytes, bytes]] = []
    size: int | None = None
    _check_values(headers)
    for header in headers:
        special = _special(header[0])
        if not special:
            rest.append(header)
        elif special == b"connection":
            rest.append(header)
            last = last or b"close" in [option.strip() for option in header[1].lower().split(b",")]
        elif special == b"content-length":
            size = _content_length(header[1], size)
        elif special == b"upgrade":
            raise ClientTransportError(Fault.LOCAL, "Upgrade is not supported: this transport speaks HTTP/1.1 only")
        elif special == b"transfer-encoding":
            if header[1].lower() != b"chunked":
                raise ClientTransportError(Fault.LOCAL, "Transfer-Encoding is not supported, except for chunked")
        elif host is None:
            host = header
        else:
            raise ClientTransportError(Fault.LOCAL, "the request has more than one Host header")
    return [host or (b"Host", origin.host_header.encode("ascii")), *rest], size, last


@functools.lru_cache(maxsize=1024)
def _special(name: bytes) -> bytes:
    """Return the lower-case name of a header that means something to this transport; empty for all others.

    Raises `ClientTransportError` for a name that HTTP forbids.
    """
    if not _TOKEN.fullmatch(name):
        raise ClientTransportError(Fault.LOCAL, f"illegal header name {name[:_SHOWN_NAME]!r}")
    lowered = name.lower()
    return lowered if lowered in _SPECIAL else b""


def _check_values(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise `ClientTransportError` for a value that HTTP forbids. All values are checked in one text, as its lines."""
    lines = b"\n".join((b"", *[value for _, value in headers], b""))
    if lines.count(b"\n") == len(headers) + 1 and not _BAD_VALUE.search(lines) and not any(map(lines.count, _OUTER)):
        return
    for name, value in headers:
        if b"\n" in value or _BAD_VALUE.search(value) or value != value.strip(b" \t"):
            shown = name[:_SHOWN_NAME].decode("ascii", "replace")
            raise ClientTransportError(
                Fault.LOCAL,
                f"illegal value of the header {shown!r}: it has a line break, a control character or outer white space",
            )


def _content_length(value: bytes, before: int | None) -> int:
    """Return the value of Content-Length. `before`: the value of an earlier header of this name."""
    if not _LENGTH.fullmatch(value) or before not in (None, int(value)):
        raise ClientTransportError(Fault.LOCAL, "Content-Length is not a number, or there are two different ones")
    return int(value)


def _timeouts(extensions: Mapping[str, object]) -> Timeouts:
    given = extensions.get("timeout")
    values = cast("Mapping[str, object]", given) if isinstance(given, Mapping) else _NO_TIMEOUTS
    get = values.get
    return _shared_timeouts(
        _seconds("pool", get("pool")),
        _seconds("connect", get("connect")),
        _seconds("read", get("read")),
        _seconds("write", get("write")),
    )


@functools.lru_cache(maxsize=64)
def _shared_timeouts(pool: float, connect: float, read: float, write: float) -> Timeouts:
    """Return the same object for the same timeouts: most requests of a client have the same ones."""
    return Timeouts(pool=pool, connect=connect, read=read, write=write)


def _seconds(name: str, value: object) -> float:
    """Return a timeout; `math.inf` for None. Raises `ClientTransportError` for NaN, which no time exceeds."""
    seconds = float(value) if isinstance(value, (int, float)) else math.inf
    if math.isnan(seconds):
        raise ClientTransportError(Fault.LOCAL, f"the timeout {name!r} must be a number of seconds, not NaN")
    return seconds


def _trace(extensions: Mapping[str, object]) -> Trace | None:
    trace = extensions.get("trace")
    return cast("Trace", trace) if callable(trace) else None
