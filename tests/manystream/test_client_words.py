"""The words of a client's transport, the trace of a request, and what its network stream reports."""

import socket
from collections.abc import AsyncGenerator, Mapping

import httpx
import httpx2
import pytest

import manystream as ms
import manystream.httpx2
from manystream.httpx import Transport
from manystream.sdk_clients.faults import ClientTransportError, Fault
from manystream.sdk_clients.transfer import NetworkStream
from tests.support.threaded_server import Serve, always_ok, answers, half_a_body, hang, serving

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
        async with httpx.AsyncClient(transport=Transport()) as client:
            headers = {"Content-Length": str(length)}
            if words is None:
                assert (await client.post(server.url, content=pieces(), headers=headers)).content == b"ok"
                return
            with pytest.raises(httpx.LocalProtocolError) as caught:
                await client.post(server.url, content=pieces(), headers=headers)
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
