"""What a client's transport checks before it sends a request, its words, and which failure each error is."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from types import ModuleType

import httpx
import httpx2
import pytest

import manystream as ms
import manystream.httpx2
from manystream.httpx import Transport
from manystream.sdk_clients.client_transport import (
    ClientTransport,
    _checked_origin,
    _headers,
    _target,
    _timeouts,
    _trace,
)
from manystream.sdk_clients.faults import ClientTransportError, Fault, translated
from manystream.sdk_clients.transfer import NetworkStream, Timeouts
from manystream.transport.errors import Phase, TransportError
from manystream.transport.url import Origin
from tests.support.threaded_server import Serve, always_ok, answers, half_a_body, hang, serving

ORIGIN = Origin("https", "example.org", 443, "")


def checked(*headers: tuple[bytes, bytes]) -> tuple[list[tuple[bytes, bytes]], int | None, bool]:
    return _headers(headers, ORIGIN)


def test_headers_go_out_as_they_are_with_host_first() -> None:
    given = [(b"Accept", b"*/*"), (b"HOST", b"other.org"), (b"X-Empty", b""), (b"X-Bytes", b"\xe9\tx")]
    assert checked(*given) == ([given[1], given[0], *given[2:]], None, False)
    assert checked() == ([(b"Host", b"example.org")], None, False)
    assert _headers((), Origin("http", "example.org", 8080, ""))[0] == [(b"Host", b"example.org:8080")]


@pytest.mark.parametrize(
    ("value", "last"),
    [(b"close", True), (b"Close", True), (b"keep-alive, CLOSE ,x", True), (b"keep-alive", False), (b"closed", False)],
)
def test_a_connection_that_the_client_ends_is_noticed(value: bytes, last: bool) -> None:
    header = (b"Connection", value)
    assert checked(header) == ([(b"Host", b"example.org"), header], None, last)
    assert checked(header, (b"connection", b"x"))[2] is last


def test_the_length_of_a_body_is_read_and_left_out() -> None:
    assert checked((b"Content-Length", b"12"), (b"content-length", b"12")) == ([(b"Host", b"example.org")], 12, False)
    assert checked((b"Transfer-Encoding", b"Chunked"))[:2] == ([(b"Host", b"example.org")], None)
    assert checked((b"Content-Length", b"0"))[1] == 0
    assert checked((b"Content-Length", b"9" * 18))[1] == 10**18 - 1


LENGTH = "Content-Length is not a number, or there are two different ones"
ILLEGAL = "illegal value of the header 'X': it has a line break, a control character or outer white space"
WRONG: list[tuple[list[tuple[bytes, bytes]], str]] = [
    ([(b"Content-Length", b"-1")], LENGTH),
    ([(b"Content-Length", b"")], LENGTH),
    ([(b"Content-Length", b"9" * 19)], LENGTH),
    ([(b"Content-Length", b"1"), (b"Content-Length", b"2")], LENGTH),
    ([(b"Upgrade", b"h2c")], "Upgrade is not supported: this transport speaks HTTP/1.1 only"),
    ([(b"Transfer-Encoding", b"gzip")], "Transfer-Encoding is not supported, except for chunked"),
    ([(b"Host", b"a"), (b"host", b"a")], "the request has more than one Host header"),
    ([(b"a b", b"")], "illegal header name b'a b'"),
    ([(b"", b"")], "illegal header name b''"),
    ([(b":" * 99, b"")], f"illegal header name b'{':' * 60}'"),
    ([(b"A", b"fine"), (b"X", b"a\nb")], ILLEGAL),
    *(([(b"X", value)], ILLEGAL) for value in (b"a\rb", b"\0", b"\x7f", b"\x1f", b" a", b"a ", b"\ta", b"a\t", b"\n")),
    ([(b"Y" * 99, b" ")], ILLEGAL.replace("X", "Y" * 60)),
]


@pytest.mark.parametrize(("headers", "words"), WRONG, ids=repr)
def test_a_header_that_http_forbids_is_refused_in_words(headers: list[tuple[bytes, bytes]], words: str) -> None:
    with pytest.raises(ClientTransportError) as caught:
        checked(*headers)
    assert (caught.value.fault, str(caught.value)) == (Fault.LOCAL, words)


FORBIDDEN = "the method or the request target has a character that HTTP forbids"


@pytest.mark.parametrize(
    ("method", "scheme", "host", "fault", "words"),
    [
        (b"GET", "ftp", b"h", Fault.UNSUPPORTED, "the scheme 'ftp' is not supported: use https:// or http://"),
        (b"GET", "x" * 30, b"h", Fault.UNSUPPORTED,
            f"the scheme '{'x' * 20}' is not supported: use https:// or http://"),
        (b"CONNECT", "http", b"h", Fault.LOCAL, "CONNECT is not supported: pass proxy= to Transport for a tunnel"),
        (b"G T", "http", b"h", Fault.LOCAL, FORBIDDEN),
        (b"", "http", b"h", Fault.LOCAL, FORBIDDEN),
        (b"GET", "http", b"", Fault.UNSUPPORTED, "the URL has no host"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_sent(method: bytes, scheme: str, host: bytes, fault: Fault, words: str) -> None:
    with pytest.raises(ClientTransportError) as caught:
        _checked_origin(method, (scheme, host, None, b"/"), {})
    assert (caught.value.fault, str(caught.value)) == (fault, words)


@pytest.mark.parametrize(
    ("scheme", "port", "extensions", "expected"),
    [
        ("https", None, {}, Origin("https", "h", 443, "")),
        ("http", None, {}, Origin("http", "h", 80, "")),
        ("http", 0, {"sni_hostname": None}, Origin("http", "h", 0, "")),
        ("https", 8443, {"sni_hostname": "a.org"}, Origin("https", "h", 8443, "a.org")),
        ("https", 8443, {"sni_hostname": b"b.org"}, Origin("https", "h", 8443, "b.org")),
    ],
)
def test_where_a_request_goes(scheme: str, port: int | None, extensions: dict[str, object], expected: Origin) -> None:
    found = _checked_origin(b"PATCH", (scheme, b"h", port, b"/"), extensions)
    assert found == expected
    assert found is _checked_origin(b"GET", (scheme, b"h", port, b"/x"), extensions)


def test_a_target_is_the_urls_or_the_clients_own() -> None:
    assert (_target(b"/a?b", {}), _target(b"/a", {"target": b"*"})) == (b"/a?b", b"*")
    for url, extensions in ((b"/a b", {}), (b"", {}), (b"/", {"target": "/x"}), (b"/", {"target": b"\xe9"})):
        with pytest.raises(ClientTransportError) as caught:
            _target(url, extensions)
        assert (caught.value.fault, str(caught.value)) == (Fault.LOCAL, FORBIDDEN)


def test_the_timeouts_of_a_client() -> None:
    given = {"pool": 1, "connect": 2.5, "read": None, "write": "x"}
    assert _timeouts({"timeout": given}) == Timeouts(pool=1, connect=2.5, read=math.inf, write=math.inf)
    assert _timeouts({"timeout": {"read": 3, "write": 4}}) == Timeouts(math.inf, math.inf, read=3, write=4)
    assert _timeouts({"timeout": 5}) == _timeouts({}) == Timeouts(math.inf, math.inf, math.inf, math.inf)
    for name in ("pool", "connect", "read", "write"):
        with pytest.raises(ClientTransportError, match=f"the timeout '{name}' must be a number of seconds, not NaN"):
            _timeouts({"timeout": {**given, name: math.nan}})
    with pytest.raises(ms.InvalidRequestError, match=r"limits\.idle_expiry"):
        ClientTransport(ms.PoolLimits(idle_expiry=math.nan), None, None, True, {})
    assert (_trace({"trace": print}), _trace({"trace": 3}), _trace({})) == (print, None, None)


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("how", ["lost", "protocol", "eof"])
def test_which_failure_an_error_of_the_transport_is(phase: Phase, how: str) -> None:
    error = TransportError("words", phase=phase, protocol=how == "protocol", eof=how == "eof")
    plain = {"proxy": Fault.PROXY, "send": Fault.WRITE, "head": Fault.READ, "body": Fault.READ}.get(
        phase, Fault.CONNECT
    )
    expected = Fault.REMOTE if how == "eof" or (how == "protocol" and plain is Fault.READ) else plain
    found = translated(error)
    assert (found.fault, str(found), found.__cause__) == (expected, "words", error)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"proxy": 3}, "proxy must be a URL as text, not int"),
        ({"proxy": ms.PoolLimits()}, "proxy must be a URL as text, not manystream.PoolLimits"),
        ({"colour": 3}, "Transport has no option 'colour'"),
        ({"uds": "x"}, "Transport has no option 'uds': a Unix socket is not supported"),
    ],
)
def test_a_wrong_option_is_refused_in_words(adapter: ModuleType, options: dict[str, object], words: str) -> None:
    with pytest.raises(TypeError) as caught:
        adapter.Transport(**options)
    assert str(caught.value) == words


async def closed_at_once(transport: ClientTransport) -> str:
    await transport.close()
    await transport.close()
    return repr(transport)


async def test_a_transport_says_what_it_is(adapter: ModuleType) -> None:
    transport = adapter.Transport(proxy="http://127.0.0.1:9", trust_env=False)
    assert repr(transport) == "<Transport unused>"
    assert await closed_at_once(transport._core) == "<Transport closed>"
    assert NetworkStream(None).get_extra_info("socket") is None


async def words_of(use: Callable[[], Awaitable[object]]) -> str:
    with pytest.raises(RuntimeError) as caught:
        await use()
    return str(caught.value)


async def ask(core: ClientTransport) -> object:
    return await core.send(b"GET", ("http", b"127.0.0.1", 9, b"/"), [], b"", {})


def test_a_transport_of_another_event_loop_says_so() -> None:
    core = ClientTransport(None, None, None, False, {})
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        with pytest.raises(ClientTransportError):
            first.run_until_complete(ask(core))
        assert second.run_until_complete(words_of(lambda: ask(core))) == (
            "this transport belongs to another event loop, which was not closed: create a client with its own"
            " Transport() for each event loop"
        )
        assert second.run_until_complete(words_of(core.close)) == (
            "this transport belongs to another event loop: close its client there"
        )
        assert repr(core).startswith("<Transport <Pool")
        first.run_until_complete(core.close())
        assert repr(core) == "<Transport closed>"
    finally:
        first.close()
        second.close()


def test_a_transport_without_an_event_loop_says_so() -> None:
    core = ClientTransport(None, None, None, False, {})
    with pytest.raises(RuntimeError) as caught:
        ask(core).__await__().send(None)  # type: ignore[attr-defined]
    assert str(caught.value) == ("this transport needs a running asyncio or trio event loop: use the async client")


Names = list[tuple[str, dict[str, object]]]


class Traced:
    """A client with one transport, and the trace of its requests."""

    def __init__(self, **options: object) -> None:
        self.events: Names = []
        self.client = httpx.AsyncClient(transport=Transport(trust_env=False, **options))  # type: ignore[arg-type]

    async def trace(self, name: str, info: Mapping[str, object]) -> None:
        self.events.append((name, dict(info)))

    async def get(self, url: str, **options: object) -> httpx.Response:
        request = self.client.build_request("GET", url, extensions={"trace": self.trace}, **options)  # type: ignore[arg-type]
        return await self.client.send(request)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.events]


def steps(*names: str) -> list[str]:
    return [f"{name}.{end}" for name in names for end in ("started", "complete")]


SENT = ("http11.send_request_headers", "http11.send_request_body")
RECEIVED = ("http11.receive_response_headers", "http11.receive_response_body", "http11.response_closed")


async def test_the_trace_of_two_requests_on_one_connection() -> None:
    traced = Traced()
    with serving(always_ok) as server:
        async with traced.client:
            await traced.get(server.url)
            assert traced.names == steps("connection.connect_tcp", *SENT, *RECEIVED)
            assert {str(info) for _, info in traced.events} == {"{}", "{'return_value': None}"}
            del traced.events[:]
            await traced.get(server.url)
            assert traced.names == steps(*SENT, *RECEIVED)


async def test_the_trace_of_a_request_that_is_refused() -> None:
    traced = Traced()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(httpx.ConnectError):
            await traced.get(f"http://127.0.0.1:{unused.getsockname()[1]}")
    assert traced.names == [
        "connection.connect_tcp.started", "connection.connect_tcp.failed", *steps("http11.response_closed"),
    ]  # fmt: skip
    error = traced.events[1][1]["exception"]
    assert isinstance(error, ClientTransportError)
    assert error.fault is Fault.CONNECT


async def test_the_trace_of_a_response_that_ends_early() -> None:
    traced = Traced()
    short = answers(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab")
    with serving(short) as server, pytest.raises(httpx.RemoteProtocolError):
        await traced.get(server.url)
    assert traced.names == [
        *steps("connection.connect_tcp", *SENT, RECEIVED[0]), "http11.receive_response_body.started",
        "http11.receive_response_body.failed", *steps("http11.response_closed"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("serve", "scheme", "options", "words"),
    [
        (hang, "http", {"read": 0.0625}, "read timeout after 0.0625 s"),
        (half_a_body, "http", {"read": 0.0625}, "read timeout after 0.0625 s"),
        (hang, "https", {"connect": 0.0625}, "connect timeout after 0.0625 s"),
    ],
)
async def test_a_timeout_names_its_seconds(serve: Serve, scheme: str, options: dict[str, float], words: str) -> None:
    traced = Traced()
    with serving(serve) as server, pytest.raises(httpx.TimeoutException) as caught:
        await traced.get(f"{scheme}://127.0.0.1:{server.port}", timeout=httpx.Timeout(None, **options))
    assert str(caught.value) == words


async def test_waiting_for_a_place_names_its_seconds() -> None:
    traced = Traced(limits=ms.PoolLimits(max_connections=1))
    with serving(half_a_body) as server:
        async with traced.client, traced.client.stream("GET", server.url):
            with pytest.raises(httpx.PoolTimeout) as caught:
                await traced.get(server.url, timeout=httpx.Timeout(None, pool=0.0625))
    assert str(caught.value) == "pool timeout after 0.0625 s"


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (4, "the body is longer than its Content-Length"),
        (5, None),
        (6, "the body is 1 bytes shorter than its Content-Length"),
        (100, "the body is 95 bytes shorter than its Content-Length"),
    ],
)
async def test_a_streamed_body_has_its_announced_length(length: int, words: str | None) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"hel"
        yield b"lo"

    with serving(always_ok) as server:
        async with httpx.AsyncClient(transport=Transport()) as client, aclosing(pieces()) as body:
            headers = {"Content-Length": str(length)}
            if words is None:
                assert (await client.post(server.url, content=body, headers=headers)).content == b"ok"
                return
            with pytest.raises(httpx.LocalProtocolError) as caught:
                await client.post(server.url, content=body, headers=headers)
            assert str(caught.value) == words


async def test_a_whole_body_has_its_announced_length() -> None:
    async with httpx.AsyncClient(transport=Transport()) as client:
        with pytest.raises(httpx.LocalProtocolError) as caught:
            await client.post("http://127.0.0.1:9", content=b"hello", headers={"Content-Length": "6"})
    assert str(caught.value) == "the body has 5 bytes, and its Content-Length is 6"


async def test_the_environments_proxies_are_used_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(answers(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", proxy.url)
        with serving(always_ok) as server:
            given = (({}, 403), ({"trust_env": True}, 403), ({"trust_env": False}, 200))
            for options, expected in (*given, ({"proxy": None}, 403), ({"proxy": ""}, 200)):
                async with httpx.AsyncClient(transport=Transport(**options)) as client:
                    try:
                        status = (await client.get(server.url)).status_code
                    except httpx.ProxyError:
                        status = 403
                    assert status == expected
                async with httpx2.AsyncClient(transport=manystream.httpx2.Transport(**options)) as client2:
                    try:
                        status = (await client2.get(server.url)).status_code
                    except httpx2.ProxyError:
                        status = 403
                    assert status == expected


async def test_what_a_network_stream_reports() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        plain = socket.create_connection(listener.getsockname())
        stream = NetworkStream(plain)
        assert stream.get_extra_info("socket") is plain
        assert stream.get_extra_info("server_addr") == listener.getsockname()
        assert stream.get_extra_info("client_addr") == plain.getsockname()
        assert (stream.get_extra_info("ssl_object"), stream.get_extra_info("is_readable")) == (None, None)
        plain.close()
        assert [stream.get_extra_info(name) for name in ("socket", "server_addr", "ssl_object")] == [None] * 3
    with socket.socket() as unconnected:
        assert NetworkStream(unconnected).get_extra_info("server_addr") is None
