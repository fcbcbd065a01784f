"""The tunnel of a proxy: the CONNECT request, its answers, and error messages that contain no password."""

import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
import trustme
from trio.testing import MockClock

from manystream.transport.dial import dial
from manystream.transport.errors import Phase, TransportError
from manystream.transport.proxy import parse_proxy_url
from manystream.transport.tunnel import STATUS_HINTS, TRANSIENT_STATUSES, open_tunnel
from manystream.transport.url import Origin
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
from tests.transport.test_dial import PLAIN_ORIGIN, PROXY, dial_failure
from tests.transport.test_proxy import CREDENTIALS, NAME, ORIGIN, PASSWORD, SECRETS, TOKEN, assert_shows_no_secret


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
        message, phase, origin, found = await dial_failure(lambda: open_tunnel(ours, PROXY, PLAIN_ORIGIN))
        assert theirs.recv(1000) == b"CONNECT h.test:80 HTTP/1.1\r\nHost: h.test:80\r\n\r\n"
    assert message.endswith(text)
    assert (phase, origin, found) == (Phase.PROXY, "http://h.test:80", true)


def test_the_proxy_statuses_that_are_retried() -> None:
    assert {408, 425, 429, 500, 502, 503, 504} == TRANSIENT_STATUSES
    assert STATUS_HINTS.keys() == {403, 405}
    assert "rules" in STATUS_HINTS[403]
    assert "tunnels" in STATUS_HINTS[405]
