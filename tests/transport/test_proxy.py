"""Proxies: the choice of the proxy, the CONNECT request, and error messages that contain no password."""

import base64
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from manystream.transport.dial import dial
from manystream.transport.errors import Phase, TransportError, URLError
from manystream.transport.proxy import ProxyConfig, choose_proxy, is_excepted, parse_proxy_url
from manystream.transport.tunnel import open_tunnel
from manystream.transport.url import Origin, parse_base_url
from tests.support.addresses import (
    Names,
    TLSPeer,
    answering,
    echo,
    echoes,
    hang,
    read_head,
    reset,
    serving,
)

pytestmark = pytest.mark.usefixtures("no_leak")

NAME = "api.example.test"
ORIGIN = Origin("https", NAME, 443)
USER, PASSWORD = "canary-user", "canary-p@ss:word"
CREDENTIALS = f"{USER}:canary-p%40ss%3Aword"
TOKEN = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
SECRETS = (USER, "canary-p", TOKEN)


def assert_shows_no_secret(error: BaseException) -> None:
    """Check that neither the error nor its causes quote the user name, the password or the header."""
    seen: BaseException | None = error
    while seen is not None:
        shown = f"{seen!r} {seen} {vars(seen)}"
        assert not any(secret in shown for secret in SECRETS)
        seen = seen.__cause__ or seen.__context__


@dataclass
class ConnectProxy:
    """A CONNECT proxy that connects every tunnel to one port and records the request heads."""

    upstream: int = 0
    reply: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    heads: list[bytes] = field(default_factory=list[bytes])

    async def serve(self, stream: trio.SocketStream) -> None:
        self.heads.append(await read_head(stream))
        await stream.send_all(self.reply)
        if not self.upstream:
            await hang(stream)
            return
        async with await trio.open_tcp_stream("127.0.0.1", self.upstream) as server, trio.open_nursery() as nursery:
            nursery.start_soon(self.copy, server, stream)
            await self.copy(stream, server)
            nursery.cancel_scope.cancel()

    @staticmethod
    async def copy(source: trio.SocketStream, sink: trio.SocketStream) -> None:
        async for data in source:
            await sink.send_all(data)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[socket.socket]:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    with socket.socket(fileno=stream.socket.detach()) as sock:
        sock.setblocking(False)
        yield sock


async def tunnel_error(proxy: ConnectProxy, credentials: str = CREDENTIALS + "@") -> TransportError:
    """Return the error with which the tunnel must fail, after checks that apply to every such error."""
    async with serving(proxy.serve) as port, connected(port) as sock:
        config = parse_proxy_url(f"http://{credentials}127.0.0.1:{port}")
        with pytest.raises(TransportError) as caught, trio.fail_after(5):
            await open_tunnel(sock, config, ORIGIN)
    assert caught.value.phase is Phase.PROXY
    assert caught.value.origin == str(ORIGIN)
    assert str(caught.value).startswith(f"proxy http://127.0.0.1:{port} for {ORIGIN}: ")
    assert_shows_no_secret(caught.value)
    return caught.value


# --- the URL ---


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("http://proxy.test:3128", Origin("http", "proxy.test", 3128)),
        ("http://proxy.test:3128/", Origin("http", "proxy.test", 3128)),
        ("http://proxy.test", Origin("http", "proxy.test", 80)),
        ("proxy.test:3128", Origin("http", "proxy.test", 3128)),
        ("HTTP://[::1]:3128", Origin("http", "::1", 3128)),
    ],
)
def test_a_proxy_url_is_an_origin(text: str, origin: Origin) -> None:
    assert parse_proxy_url(text) == ProxyConfig(origin)


def test_credentials_become_a_basic_authorization_not_shown() -> None:
    for text in (f"http://{CREDENTIALS}@proxy.test:3128", f"{CREDENTIALS}@proxy.test:3128"):
        proxy = parse_proxy_url(text)
        assert proxy.authorization == b"Basic " + TOKEN.encode()
        assert str(proxy) == "http://proxy.test:3128"
        assert not any(secret in f"{proxy!r} {proxy}" for secret in SECRETS)


def test_a_user_name_alone_has_an_empty_password() -> None:
    assert parse_proxy_url("http://u@h").authorization == b"Basic " + base64.b64encode(b"u:")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"https://{CREDENTIALS}@proxy.test", "'https' is not supported; only http://"),
        (f"socks5://{CREDENTIALS}@proxy.test", "'socks5' is not supported"),
        (f"http://{CREDENTIALS}@proxy.test/path", "path, query or fragment"),
        (f"http://{CREDENTIALS}@proxy.test?{PASSWORD}", "path, query or fragment"),
        (f"http://{CREDENTIALS}@proxy.test:port", "the host or port is malformed; write http://host:port$"),
        (f"http://{CREDENTIALS}@", "no host"),
        (f"http://{CREDENTIALS}@pro xy", "space"),
        (f"http://{CREDENTIALS}@proxy.test\r\nX: y", "line break"),
        ("http://canary-p%3A:x@proxy.test", "cannot contain a colon"),
        ("", "no host"),
    ],
)
def test_an_unusable_proxy_url_is_refused_without_its_password(text: str, reason: str) -> None:
    with pytest.raises(URLError, match=reason) as caught:
        parse_proxy_url(text, "HTTPS_PROXY")
    assert str(caught.value).startswith("HTTPS_PROXY: ")
    assert_shows_no_secret(caught.value)


# --- the environment ---

HTTPS, HTTP = ORIGIN, Origin("http", NAME, 8000)


@pytest.mark.parametrize(
    ("origin", "environment", "expected"),
    [
        (HTTPS, {}, None),
        (HTTPS, {"HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        (HTTPS, {"https_proxy": "http://a:1"}, "http://a:1"),
        (HTTPS, {"https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:1"}, "http://a:1"),
        (HTTPS, {"https_proxy": "", "HTTPS_PROXY": "http://b:1", "ALL_PROXY": "http://c:1"}, None),
        (HTTPS, {"HTTP_PROXY": "http://a:1"}, None),
        (HTTPS, {"ALL_PROXY": "http://c:1"}, "http://c:1"),
        (HTTPS, {"all_proxy": "http://c:1", "HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        (HTTPS, {"ALL_PROXY": "socks5://c:1", "HTTPS_PROXY": "http://a:1"}, "http://a:1"),
        (HTTP, {"HTTPS_PROXY": "http://a:1"}, None),
        (HTTP, {"HTTP_PROXY": "http://a:1"}, "http://a:1"),
        (HTTP, {"http_proxy": "a:1"}, "http://a:1"),
        (HTTP, {"ALL_PROXY": " http://c:1 "}, "http://c:1"),
        (HTTP, {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}, None),
        (HTTP, {"http_proxy": "http://a:1", "REQUEST_METHOD": "GET"}, "http://a:1"),
        (HTTPS, {"HTTPS_PROXY": "http://a:1", "NO_PROXY": ".example.test"}, None),
        (HTTPS, {"HTTPS_PROXY": "http://a:1", "no_proxy": "", "NO_PROXY": "*"}, "http://a:1"),
        (HTTPS, {"HTTPS_PROXY": "http://a:1", "no_proxy": "other.test"}, "http://a:1"),
        (HTTPS, {"HTTPS_PROXY": "socks5://a:1", "no_proxy": "*"}, None),
        (parse_base_url("https://x").origin, {"HTTPS_PROXY": "http://a:1"}, "http://a:1"),
    ],
)
def test_the_environment_names_the_proxy(origin: Origin, environment: dict[str, str], expected: str | None) -> None:
    proxy = choose_proxy(origin, environment)
    assert (None if proxy is None else str(proxy.origin)) == expected
    if proxy is not None:
        assert str(proxy) == f"{expected} ({proxy.variable})"
        assert proxy.variable in environment


def test_an_unusable_variable_is_an_error_that_names_it() -> None:
    with pytest.raises(URLError, match="HTTPS_PROXY: scheme 'socks5'") as caught:
        choose_proxy(HTTPS, {"HTTPS_PROXY": f"socks5://{CREDENTIALS}@h"})
    assert_shows_no_secret(caught.value)


@pytest.mark.parametrize(
    ("no_proxy", "url", "expected"),
    [
        ("", "https://h", False),
        (" , ,", "https://h", False),
        ("*", "https://h", True),
        ("a,*", "https://h", True),
        ("example.test", "https://example.test", True),
        ("Example.TEST", "https://example.test", True),
        ("example.test", "https://example.test.", True),
        ("example.test.", "https://example.test", True),
        ("example.test", "https://api.example.test", True),
        (".example.test", "https://api.example.test", True),
        (".example.test", "https://example.test", True),
        ("*.example.test", "https://api.example.test", True),
        ("*.example.test", "https://example.test", True),
        ("*.example.test:8443", "https://api.example.test", False),
        ("*.example.test", "https://badexample.test", False),
        ("*example.test", "https://badexample.test", False),
        ("*.", "https://example.test", False),
        ("example.test", "https://badexample.test", False),
        ("api.example.test", "https://example.test", False),
        ("a b,c\texample.test", "https://example.test", True),
        ("example.test:443", "https://example.test", True),
        ("example.test:8443", "https://example.test", False),
        ("example.test:8443", "https://example.test:8443", True),
        ("example.test:", "https://example.test", False),
        ("example.test:" + "9" * 5000, "https://example.test", False),
        (".", "https://example.test", False),
        ("127.0.0.1", "http://127.0.0.1:8000", True),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", True),
        ("127.0.0.1:8001", "http://127.0.0.1:8000", False),
        ("127.0.0.1", "http://127.0.0.11", False),
        ("10.0.0.0/8", "http://10.1.2.3", True),
        ("10.0.0.1/8", "http://10.1.2.3", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.0.0.0/8", "https://ten.example.test", False),
        ("10.0.0.0/99", "http://10.1.2.3", False),
        ("0.0.1", "http://127.0.0.1", False),
        ("[::1]", "http://[::1]:8000", True),
        ("::1", "http://[::1]:8000", True),
        ("[::1]:8000", "http://[::1]:8000", True),
        ("[::1]:8001", "http://[::1]:8000", False),
        ("fd00::/8", "http://[fd12::1]", True),
        ("fd00::/8", "http://[fe80::1]", False),
        ("fd00::/8", "http://127.0.0.1", False),
    ],
)
def test_no_proxy_matches_hosts_suffixes_ports_and_networks(no_proxy: str, url: str, expected: bool) -> None:
    assert is_excepted(parse_base_url(url).origin, no_proxy) is expected


@given(st.text(alphabet="a.:/[]*0123 ,-é", max_size=20))
@settings(deadline=None)
def test_any_no_proxy_is_read_without_error(no_proxy: str) -> None:
    """None of these texts matches the host, except `*`, which matches every host."""
    assert "*" in no_proxy or not is_excepted(parse_base_url("https://never.example").origin, no_proxy)
    for url in ("https://a", "http://10.0.0.1", "http://[::1]:3"):
        assert is_excepted(parse_base_url(url).origin, no_proxy) in (True, False)
        assert is_excepted(parse_base_url(url).origin, f"{no_proxy},*") is True


# --- the tunnel ---


async def test_connect_carries_only_the_proxy_s_password() -> None:
    async with serving(echo) as upstream:
        proxy = ConnectProxy(upstream)
        async with serving(proxy.serve) as port, connected(port) as sock:
            await open_tunnel(sock, parse_proxy_url(f"http://{CREDENTIALS}@127.0.0.1:{port}"), ORIGIN)
            assert await echoes(sock)
    lines = proxy.heads[0].decode().split("\r\n")
    assert lines == [f"CONNECT {NAME}:443 HTTP/1.1", f"Host: {NAME}:443", f"Proxy-Authorization: Basic {TOKEN}", "", ""]


async def test_connect_without_credentials_sends_no_authorization() -> None:
    proxy = ConnectProxy()
    async with serving(proxy.serve) as port, connected(port) as sock:
        await open_tunnel(sock, parse_proxy_url(f"http://127.0.0.1:{port}"), Origin("http", "::1", 8000))
    assert proxy.heads == [b"CONNECT [::1]:8000 HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n"]


GOOD_REPLIES = [
    b"HTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.0 200 Connection established\r\nProxy-agent: x\r\n\r\n",
    b"HTTP/1.1 204\r\n\r\n",
    b"HTTP/1.1 299 Odd\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",  # ignore both (RFC 9110)
]


@pytest.mark.parametrize("reply", GOOD_REPLIES)
async def test_every_2xx_opens_the_tunnel(reply: bytes) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await read_head(stream)
        await stream.send_all(reply)
        await echo(stream)

    async with serving(serve) as port, connected(port) as sock:
        with trio.fail_after(5):
            await open_tunnel(sock, parse_proxy_url(f"http://127.0.0.1:{port}"), ORIGIN)
            # The next byte must be the origin's: the client has read the whole reply and nothing after it.
            assert await echoes(sock)


async def test_a_reply_may_come_byte_by_byte(autojump_clock: MockClock) -> None:
    async def drip(stream: trio.SocketStream) -> None:
        await read_head(stream)
        for byte in b"HTTP/1.1 200 OK\r\nVia: 1.1 p\r\n\r\n":
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.01)
        await echo(stream)

    async with serving(drip) as port, connected(port) as sock:
        await open_tunnel(sock, parse_proxy_url(f"http://127.0.0.1:{port}"), ORIGIN)
        assert await echoes(sock)


@pytest.mark.parametrize(
    ("status", "text", "permanent"),
    [
        (400, "the proxy answered 400 Bad Request", True),
        (403, r"403 Forbidden \(its rules forbid this host or port\)", True),
        (405, r"405 Method Not Allowed \(it does not open tunnels\)", True),
        (407, r"407 Proxy Authentication Required \(the proxy URL's user name and password were refused\)", True),
        (429, "429 Too Many Requests", False),
        (500, "500 Internal Server Error", False),
        (502, "502 Bad Gateway", False),
        (503, "503 Service Unavailable", False),
        (504, "504 Gateway Timeout", False),
        (300, "300 Multiple Choices", True),
        (302, "302 Found", True),
        (599, "the proxy answered 599$", True),
    ],
)
async def test_a_refusal_is_named_by_its_status(status: int, text: str, permanent: bool) -> None:
    reply = f"HTTP/1.1 {status} {PASSWORD}\r\nX-Echo: {TOKEN}\r\nContent-Length: 3\r\n\r\nabc".encode()
    error = await tunnel_error(ConnectProxy(reply=reply))
    assert error.permanent is permanent
    assert not error.protocol
    assert re.search(text, str(error))


async def test_a_407_without_credentials_gives_the_remedy() -> None:
    reply = b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n"
    error = await tunnel_error(ConnectProxy(reply=reply), credentials="")
    assert "put user name and password into the proxy URL" in str(error)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the proxy's response is not HTTP: b'SSH-2.0-OpenSSH_9.2\\\\r'"),
        (b"\x05\xff\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nBad Header: x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nstray", "sent bytes after its response"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2 * 16_384, "longer than|not HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, "longer than"),
    ],
)
async def test_an_invalid_proxy_response_is_a_protocol_error(reply: bytes, text: str) -> None:
    error = await tunnel_error(ConnectProxy(reply=reply))
    assert error.protocol
    assert re.search(text, str(error))


async def test_an_echo_of_the_request_does_not_show_the_password() -> None:
    async def repeat(stream: trio.SocketStream) -> None:
        await stream.send_all(await read_head(stream))

    proxy = ConnectProxy()
    proxy.serve = repeat  # type: ignore[method-assign]
    assert "not HTTP" in str(await tunnel_error(proxy))


@pytest.mark.parametrize("beginning", [b"", b"HTTP/1.1 200 OK\r\n"])
@pytest.mark.parametrize("with_reset", [False, True])
async def test_a_proxy_that_disconnects_is_named(beginning: bytes, with_reset: bool) -> None:
    async def leave(stream: trio.SocketStream) -> None:
        await read_head(stream)
        if beginning:
            await stream.send_all(beginning)
        if with_reset:
            reset(stream)

    proxy = ConnectProxy()
    proxy.serve = leave  # type: ignore[method-assign]
    error = await tunnel_error(proxy)
    assert not error.permanent
    assert ("connection was lost" if with_reset else "closed the connection without a response") in str(error)


async def test_a_proxy_that_hangs_can_be_cancelled(autojump_clock: MockClock) -> None:
    async with serving(ConnectProxy(reply=b"HTTP/1.1 200").serve) as port, connected(port) as sock:
        with trio.move_on_after(10) as scope:
            await open_tunnel(sock, parse_proxy_url(f"http://127.0.0.1:{port}"), ORIGIN)
    assert scope.cancelled_caught


# --- dialling through it ---


async def test_tls_inside_the_tunnel_is_with_the_origin(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    peer, phases = TLSPeer(ca.issue_cert(NAME)), list[Phase]()
    async with serving(peer.serve) as upstream:
        proxy = ConnectProxy(upstream)
        async with serving(proxy.serve) as port:
            with answering(Names({"proxy.test": [("127.0.0.1", port)]})) as names:
                config = parse_proxy_url(f"http://{CREDENTIALS}@proxy.test:{port}")
                with await dial(ORIGIN, tls_context=trusting, proxy=config, on_phase=phases.append) as sock:
                    assert await echoes(sock)
    assert names.asked == ["proxy.test"]
    assert peer.names == [NAME]
    assert peer.chosen == ["http/1.1"]
    assert phases == [Phase.DNS, Phase.CONNECT, Phase.PROXY, Phase.TLS]
    assert not any(secret.encode() in peer.received for secret in SECRETS)


async def test_plain_http_goes_through_a_tunnel_too() -> None:
    async with serving(echo) as upstream:
        proxy, phases = ConnectProxy(upstream), list[Phase]()
        async with serving(proxy.serve) as port:
            origin = Origin("http", "plain.example.test", 8000)
            config = parse_proxy_url(f"http://127.0.0.1:{port}")
            with await dial(origin, proxy=config, on_phase=phases.append) as sock:
                assert await echoes(sock)
    assert proxy.heads[0].startswith(b"CONNECT plain.example.test:8000 HTTP/1.1\r\n")
    assert phases == [Phase.CONNECT, Phase.PROXY]


@pytest.mark.parametrize("with_reset", [False, True])
async def test_a_tunnel_that_breaks_after_the_200_is_a_proxy_error(trusting: ssl.SSLContext, with_reset: bool) -> None:
    async def break_off(stream: trio.SocketStream) -> None:
        await read_head(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n")
        await stream.receive_some()
        if with_reset:
            reset(stream)

    async with serving(break_off) as port:
        config = parse_proxy_url(f"http://{CREDENTIALS}@127.0.0.1:{port}")
        with pytest.raises(TransportError, match=f"through proxy http://127.0.0.1:{port}: broke the tunnel") as caught:
            await dial(ORIGIN, tls_context=trusting, proxy=config)
    assert caught.value.phase is Phase.PROXY
    assert not caught.value.permanent
    assert_shows_no_secret(caught.value)


async def test_a_wrong_certificate_inside_the_tunnel_is_a_tls_error(ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    peer = TLSPeer(ca.issue_cert("other.example.test"))
    async with serving(peer.serve) as upstream, serving(ConnectProxy(upstream).serve) as port:
        with pytest.raises(TransportError, match=r"through proxy .* Hostname mismatch") as caught:
            await dial(ORIGIN, tls_context=trusting, proxy=parse_proxy_url(f"http://127.0.0.1:{port}"))
    assert caught.value.phase is Phase.TLS
    assert caught.value.permanent
