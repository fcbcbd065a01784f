"""The errors of the transport with all their members: what the engine's retries and messages depend on."""

import errno
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio

from manystream.transport import dial as dial_module
from manystream.transport import resolve, tls
from manystream.transport.dial import dial, dial_options
from manystream.transport.errors import Phase, TransportError
from manystream.transport.proxy import ProxyConfig
from manystream.transport.resolve import Address, Resolver
from manystream.transport.tls import TLSConfig, TLSConfigError, make_context
from manystream.transport.tunnel import open_tunnel
from manystream.transport.url import Origin
from tests.transport.test_connection_calls import Part

ORIGIN = Origin("http", "h.test", 80)
SECURE = Origin("https", "h.test", 443)
PROXY = ProxyConfig(Origin("http", "p.test", 3128))
MEMBERS = ("unread", "protocol", "sent", "permanent", "exhausted", "eof")


def facts(error: BaseException | None) -> tuple[str, Phase, str, set[str]]:
    """Return an error's message, phase and origin, and the names of its members that are true."""
    assert isinstance(error, TransportError)
    return str(error), error.phase, error.origin, {name for name in MEMBERS if getattr(error, name)}


async def failure(of: Callable[[], Awaitable[object]]) -> tuple[str, Phase, str, set[str]]:
    with pytest.raises(TransportError) as caught:
        await of()
    return facts(caught.value)


def test_an_error_is_by_default_none_of_them() -> None:
    assert facts(TransportError("x", phase=Phase.TLS)) == ("x", Phase.TLS, "", set())


RESET = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
BEGIN = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("received", "message", "phase", "true"),
    [
        ([b""], "server disconnected without sending a response", Phase.HEAD, {"eof"}),
        ([RESET], "connection broken: Connection reset by peer", Phase.HEAD, set()),
        ([b"HTT", b""], "connection closed before the response's end", Phase.HEAD, {"eof"}),
        ([BEGIN, b""], "connection closed 7 bytes before the body's end", Phase.BODY, {"eof"}),
        ([BEGIN, RESET], "connection broken: Connection reset by peer", Phase.BODY, set()),
        ([CHUNKED + b"5\r\nab", b""], "connection closed before the response's end", Phase.BODY, {"eof"}),
        ([CHUNKED + b"2\r\nabc"], "expected CR LF after a chunk, got b'c'", Phase.BODY, {"protocol"}),
        ([b"SSH-2.0-x\r\n"], "the response is not HTTP/1.1: b'SSH-2.0-x\\r\\n'", Phase.HEAD, {"protocol"}),
    ],
)
def test_a_response_that_ends_early(received: list[Any], message: str, phase: Phase, true: set[str]) -> None:
    part = Part()
    exchange = part.send()
    part.receive(*received)
    assert facts(exchange.error) == (f"{message} [http://h:80]", phase, "http://h:80", true | {"sent"})


# --- dialling ---


def opens(result: object) -> Callable[[str, int], Awaitable[Any]]:
    async def connect(host: str, port: int) -> object:
        assert (host, port) == ("h.test", 80)
        if isinstance(result, Exception):
            raise result
        return result

    return connect


@pytest.mark.parametrize(
    ("result", "text", "true"),
    [
        (OSError(errno.ECONNREFUSED, "Connection refused"), "dial raised ECONNREFUSED (Connection refused)", set()),
        (ValueError("no such unit"), "dial raised ValueError: no such unit", {"permanent"}),
        (5, "dial must return a connected stream socket, not int", {"permanent"}),
    ],
)  # fmt: skip
async def test_an_error_of_the_program_s_own_dial(result: object, text: str, true: set[str]) -> None:
    found = await failure(lambda: dial(ORIGIN, connect=opens(result)))
    assert found == (f"cannot connect to http://h.test:80: {text}", Phase.CONNECT, "http://h.test:80", true)


async def test_a_datagram_socket_is_no_connection() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        text, *_ = await failure(lambda: dial(ORIGIN, connect=opens(sock)))
    assert text == "cannot connect to http://h.test:80: dial must return a connected stream socket, not socket"


async def test_the_program_s_own_dial_is_the_only_step() -> None:
    ours, theirs = socket.socketpair()
    phases: list[Phase] = []
    with theirs:
        sock = await dial(ORIGIN, connect=opens(ours), proxy=PROXY, on_phase=phases.append)
        assert sock is ours
        assert ours.getblocking() is False
        assert phases == [Phase.CONNECT]
        sock.close()
    with pytest.raises(ValueError, match="needs a tls_context"):
        await dial(SECURE)


class FailingBackend:
    """A backend on which lookups end with this."""

    def __init__(self, found: object) -> None:
        self.found = found

    event = staticmethod(trio.Event)

    async def getaddrinfo(self, host: str, port: int) -> Sequence[object]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("found", "text", "true"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known", {"permanent"}),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "Temporary failure", set()),
        (OSError(errno.EMFILE, "Too many"), f"EMFILE (Too many: {resolve.LOCAL_HINTS[errno.EMFILE]})", {"exhausted"}),
        (OSError(errno.EIO, "Input/output error"), "EIO (Input/output error)", set()),
        (UnicodeError("label too long"), "not a host name", {"permanent"}),
        ([], "the result contains no address", {"permanent"}),
        ([(socket.AF_INET6, 1, 6, "", (10, b"x"))], "the result contains no address", {"permanent"}),
    ],
)
async def test_a_failing_lookup(found: object, text: str, true: set[str]) -> None:
    resolver = Resolver(FailingBackend(found))  # type: ignore[arg-type]
    error = await failure(lambda: resolver.resolve("h.test", 80, origin="http://h.test:80"))
    assert error == (f"cannot look up 'h.test': {text}", Phase.DNS, "http://h.test:80", true)
    assert repr(resolver) == "<Resolver running=0>"


async def test_a_lookup_without_a_descriptor_says_nothing_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    resolver = Resolver(FailingBackend(socket.gaierror(socket.EAI_NONAME, "Name unknown")))  # type: ignore[arg-type]
    monkeypatch.setattr(resolve.socket, "socket", none_left)
    *_, true = await failure(lambda: resolver.resolve("h.test", 80))
    assert true == {"exhausted"}


async def test_addresses_are_tried_with_families_by_turns() -> None:
    entries = [
        (socket.AF_INET6, 1, 6, "", ("::1", 80, 0, 0)), (socket.AF_INET6, 1, 6, "", ("::2", 80, 0, 3)),
        (socket.AF_INET6, 1, 6, "", ("::1", 80, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", 80)),
    ]  # fmt: skip
    found = await Resolver(FailingBackend(entries)).resolve("h.test", 80)  # type: ignore[arg-type]
    assert found == [
        Address(socket.AF_INET6, ("::1", 80, 0, 0)),
        Address(socket.AF_INET, ("127.0.0.1", 80)),
        Address(socket.AF_INET6, ("::2", 80, 0, 3)),
    ]
    assert [str(address) for address in found] == ["[::1]:80", "127.0.0.1:80", "[::2]:80"]
    assert resolve.literal_address("::1", 80) == found[0]
    assert resolve.literal_address("127.0.0.1", 80) == found[1]
    assert resolve.literal_address("h.test", 80) is None


def test_an_errno_has_its_name_its_text_and_a_hint() -> None:
    forbidden = "a rule of this machine forbids it"
    for error, text in (
        (OSError(errno.ENETUNREACH, "No way"), "ENETUNREACH (No way: this machine has no route to it)"),
        (OSError(errno.EACCES, "Denied"), f"EACCES (Denied: {forbidden})"),
        (OSError(errno.EPERM, "Denied"), f"EPERM (Denied: {forbidden})"),
        (
            OSError(errno.EADDRNOTAVAIL, "No"),
            "EADDRNOTAVAIL (No: this machine has no free local port for this address, or cannot use the address)",
        ),
        (OSError(errno.ENFILE, "No"), "ENFILE (No: this machine has no file descriptor left; allow fewer connections)"),
        (
            OSError(errno.EMFILE, "No"),
            "EMFILE (No: this process has no file descriptor left; raise `ulimit -n` or allow fewer connections)",
        ),
        (OSError("only words"), "(only words)"),
    ):
        assert resolve.reason(error) == text


@pytest.mark.parametrize(("count", "more"), [(8, ""), (9, "; and 1 more addresses"), (12, "; and 4 more addresses")])
async def test_eight_addresses_are_named(count: int, more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(address: Address, backend: object) -> socket.socket:
        raise OSError(errno.EMFILE if address.sockaddr[0] == "10.0.0.9" else errno.ECONNREFUSED, "No")

    class Many(Resolver):
        async def resolve(self, host: str, port: int, *, origin: str = "") -> list[Address]:
            assert (host, port, origin) == ("p.test", 3128, "http://h.test:80")
            return [Address(socket.AF_INET, (f"10.0.0.{number}", 80)) for number in range(1, count + 1)]

    monkeypatch.setattr(dial_module, "_connect_one", refuse)
    phases: list[Phase] = []
    tried = "; ".join(f"10.0.0.{number}:80 ECONNREFUSED (No)" for number in range(1, 9))
    assert await failure(lambda: dial(ORIGIN, resolver=Many(), proxy=PROXY, on_phase=phases.append)) == (
        f"cannot connect to proxy http://p.test:3128 for http://h.test:80: {tried}{more}", Phase.CONNECT,
        "http://h.test:80", {"exhausted"} if count > 8 else set(),
    )  # fmt: skip
    assert phases == [Phase.DNS, Phase.CONNECT]


def test_options_of_a_dial_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TransportError) as caught:
        dial_options(ORIGIN, TLSConfig(), None, {"http_proxy": "socks5://p"})
    assert facts(caught.value)[1:] == (Phase.CONNECT, "http://h.test:80", {"permanent"})
    with pytest.raises(TransportError) as caught:
        dial_options(SECURE, TLSConfig(ca_file="/nonexistent/ca.pem"), PROXY, {})
    assert facts(caught.value) == (
        "cannot load the CA certificates of /nonexistent/ca.pem: No such file or directory", Phase.CONNECT,
        "https://h.test:443", {"permanent"},
    )  # fmt: skip

    def none_left(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", none_left)
    with pytest.raises(TransportError) as caught:
        dial_options(SECURE, TLSConfig(ca_data="never read"), None, {})
    assert facts(caught.value) == (
        "cannot set up TLS for https://h.test:443: EIO (Input/output error)", Phase.TLS, "https://h.test:443", set(),
    )  # fmt: skip
    assert dial_options(ORIGIN, TLSConfig(ca_file="/nonexistent"), PROXY, {"http_proxy": "x"}) == (None, PROXY)
    assert dial_options(ORIGIN, TLSConfig(), None, {"http_proxy": "http://p.test:3128"}) == (None, PROXY)


# --- TLS ---


def ssl_error(kind: type[ssl.SSLError], text: str, **members: object) -> ssl.SSLError:
    error = kind(1, text)
    for name, value in members.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("error", "via", "text", "phase", "true"),
    [
        (ssl_error(ssl.SSLCertVerificationError, "x", verify_code=10, verify_message="certificate has expired"), "",
            ": certificate verify failed: certificate has expired (renew the server's certificate, or correct this"
            " machine's clock)", Phase.TLS, {"permanent"}),
        (ssl_error(ssl.SSLCertVerificationError, "x", verify_code=1, verify_message="unspecified"), "http://p:80",
            " through proxy http://p:80: certificate verify failed: unspecified", Phase.TLS, {"permanent"}),
        (ssl_error(ssl.SSLError, "x", reason="WRONG_VERSION_NUMBER"), "",
            ": wrong version number (plain HTTP on this port? then write http://)", Phase.TLS,
            {"protocol", "permanent"}),
        (ssl_error(ssl.SSLError, "x", reason="TLSV1_ALERT_INTERNAL_ERROR"), "", ": tlsv1 alert internal error",
            Phase.TLS, {"protocol"}),
        (ssl_error(ssl.SSLEOFError, "x", strerror="EOF occurred"), "",
            ": connection lost during the handshake: EOF occurred", Phase.TLS, set()),
        (RESET, "http://p:80",
            " through proxy http://p:80: broke the tunnel during the handshake: Connection reset by peer", Phase.PROXY,
            set()),
        (ValueError("a\x00b"), "", ": the host name cannot be used: a\x00b", Phase.TLS, {"permanent"}),
    ],
)  # fmt: skip
def test_a_handshake_that_fails(error: Any, via: str, text: str, phase: Phase, true: set[str]) -> None:
    with pytest.raises(TransportError) as caught:
        tls._raise_transport_error(error, "https://h.test:443", via)
    assert facts(caught.value) == (f"TLS with https://h.test:443{text}", phase, "https://h.test:443", true)


def test_authorities_that_cannot_be_read_are_named() -> None:
    with pytest.raises(TLSConfigError) as caught:
        make_context(TLSConfig(ca_data="no certificate"))
    assert str(caught.value).startswith("cannot load the CA certificates of ca_data: ")


# --- a tunnel ---


@pytest.mark.parametrize(
    ("reply", "text", "true"),
    [
        (b"", "the proxy closed the connection without a response", set()),
        (b"HTTP/1.1 200 OK\r\n\r\nx", "the proxy sent bytes after its response", {"protocol"}),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 2730, "the proxy's response is longer than 16384 bytes", {"protocol"}),
    ],
)
async def test_a_tunnel_that_is_not_opened(reply: bytes, text: str, true: set[str]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(reply)
        theirs.shutdown(socket.SHUT_WR)
        message, phase, origin, found = await failure(lambda: open_tunnel(ours, PROXY, ORIGIN))
        assert theirs.recv(1000) == b"CONNECT h.test:80 HTTP/1.1\r\nHost: h.test:80\r\n\r\n"
    assert message.endswith(text)
    assert (phase, origin, found) == (Phase.PROXY, "http://h.test:80", true)
