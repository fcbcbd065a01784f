"""The transports for httpx2's and httpx's async clients, on asyncio and trio, and what a call in flight costs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import httpx2
import pytest
import trustme

import manystream as ms
from manystream.httpx2 import Transport
from manystream.sdk_clients.transfer import Transfer
from tests.support.threaded_server import (
    CHUNKED,
    OK,
    Serve,
    Wire,
    always_ok,
    answers,
    cancelled_after,
    closed_by_the_client,
    half_a_body,
    hang,
    serving,
    slow_trace,
    together,
    wait_for_the_gate,
)
from tests.support.waiting import eventually, pause

Main = Callable[[], Awaitable[None]]


Run = Callable[[Main], None]
Module = Any  # httpx2 or httpx: their names are the same


# --- bodies ---


def test_a_response_has_status_headers_body_and_extensions(run: Run, package: Module, adapter: Module) -> None:
    async def main() -> None:
        with serving(always_ok) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                for _ in range(3):
                    response = await client.post(f"{server.url}/path?q=1", content=b"hello")
                    assert (response.status_code, response.content, response.headers["x-one"]) == (200, b"ok", "1")
                    assert (response.http_version, response.reason_phrase) == ("HTTP/1.1", "Fine")
                    assert response.extensions["network_stream"].get_extra_info("server_addr")[1] == server.port
            assert server.connections == 1

    run(main)


def test_a_request_goes_out_as_the_client_made_it(run: Run, package: Module, adapter: Module) -> None:
    seen: list[tuple[bytes, bytes]] = []

    def serve(wire: Wire) -> None:
        while True:
            head = wire.head()
            seen.append((head, wire.body(head)))
            wire.send(OK)

    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one", b"", b"two"):
            yield piece

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport(), headers={"User-Agent": "me"}) as client:
                await client.get(f"{server.url}/a%20b")
                await client.post(server.url, content=b"")
                await client.post(server.url, content=pieces())
                await client.post(server.url, content=pieces(), headers={"Content-Length": "6"})
                await client.post(server.url, content=b"x" * 300_000)
                await client.post(server.url, files={"f": b"data"})
            assert server.connections == 1

    run(main)
    assert seen[0][0].startswith(b"GET /a%20b HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nUser-Agent: me" in seen[0][0]
    assert b"ontent-" not in seen[0][0]
    assert b"Content-Length: 0" in seen[1][0]
    assert b"Transfer-Encoding: chunked" in seen[2][0]
    assert seen[2][1] == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    assert seen[3][1] == b"onetwo"
    assert seen[4][1] == b"x" * 300_000
    assert b"data" in seen[5][1]


def test_a_streamed_response_arrives_as_it_is_sent(run: Run, package: Module, adapter: Module) -> None:
    def serve(wire: Wire) -> None:
        wire.head()
        wire.send(CHUNKED + b"3\r\none\r\n")
        wire.gate.wait(30)
        wire.send(b"3\r\ntwo\r\n0\r\n\r\n")
        hang(wire)

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                async with client.stream("GET", server.url) as response:
                    received: list[bytes] = []
                    async for data in response.aiter_raw():
                        received.append(data)
                        server.gate.set()
                assert received == [b"one", b"two"]

    run(main)


def test_a_large_body_that_nobody_reads_stops_the_server(run: Run, package: Module, adapter: Module) -> None:
    size = 64 * 1024 * 1024

    def serve(wire: Wire) -> None:
        wire.head()
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // 65536):
            wire.send(b"x" * 65536)

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                async with client.stream("GET", server.url) as response:
                    for _ in range(100):
                        await pause()
                    assert response.stream._stream._transfer._held < 1_000_000
                    total = 0
                    async for data in response.aiter_raw():
                        total += len(data)
                assert total == size

    run(main)


def test_an_upload_stops_where_the_server_refuses_it(run: Run, package: Module, adapter: Module) -> None:
    sent: list[int] = []

    def serve(wire: Wire) -> None:
        wire.head()
        wire.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        wire.gate.wait(30)

    async def pieces() -> AsyncGenerator[bytes]:
        for number in range(10_000):
            sent.append(number)
            yield b"x" * 65536

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                async with contextlib.aclosing(pieces()) as body:
                    response = await client.post(server.url, content=body)
                assert (response.status_code, response.content) == (413, b"no")

    run(main)
    assert len(sent) < 10_000


@pytest.mark.parametrize("length", [2, 100])
def test_a_wrong_content_length_is_a_local_error(run: Run, package: Module, adapter: Module, length: int) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"hel"
        yield b"lo"

    async def main() -> None:
        with serving(hang) as server:
            client = package.AsyncClient(transport=adapter.Transport())
            async with client, contextlib.aclosing(pieces()) as body:
                with pytest.raises(package.LocalProtocolError, match="Content-Length"):
                    await client.post(server.url, content=body, headers={"Content-Length": str(length)})
            await closed_by_the_client(server)

    run(main)


# --- failures ---


FAILURES: dict[str, tuple[Serve, str]] = {
    "closed before the request": (lambda wire: None, "TransportError"),
    "bytes before the request": (lambda wire: wire.send(b"HTTP/1.1 200 OK\r\n"), "TransportError"),
    "no response": (answers(), "RemoteProtocolError"),
    "not HTTP": (answers(b"SSH-2.0\r\n\r\n"), "RemoteProtocolError"),
    "short body": (answers(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"), "RemoteProtocolError"),
    "short chunks": (answers(CHUNKED + b"3\r\none\r\n"), "RemoteProtocolError"),
    "bad chunk": (answers(CHUNKED + b"zz\r\n"), "RemoteProtocolError"),
    "reset": (answers(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", reset=True), "ReadError"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_is_the_client_s_own_exception(run: Run, package: Module, adapter: Module, name: str) -> None:
    serve, expected = FAILURES[name]

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                for extensions in ({}, {"trace": slow_trace}):
                    with pytest.raises(getattr(package, expected)) as caught:
                        await client.get(server.url, extensions=extensions)
                    assert caught.value.request.url.port == server.port

    run(main)


def test_errors_before_the_connection(run: Run, package: Module, adapter: Module) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        async def main() -> None:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                with pytest.raises(package.ConnectError, match="ECONNREFUSED"):
                    await client.get(f"http://127.0.0.1:{port}")
                with pytest.raises(package.UnsupportedProtocol, match="scheme 'ws'"):
                    await client.get(f"ws://127.0.0.1:{port}")
                with pytest.raises(package.ConnectError, match="port 65536 is no port: the last one is 65535"):
                    await client.get("http://127.0.0.1:65536")
                with pytest.raises(package.LocalProtocolError, match="the method or the request target"):
                    await client.request("GÉT", f"http://127.0.0.1:{port}")
                with pytest.raises(package.LocalProtocolError, match="CONNECT"):
                    await client.request("CONNECT", f"http://127.0.0.1:{port}")
                with pytest.raises(package.LocalProtocolError, match="Upgrade"):
                    await client.get(f"http://127.0.0.1:{port}", headers={"Upgrade": "websocket"})
                with pytest.raises(package.LocalProtocolError, match="'Authorization'") as caught:
                    await client.get(f"http://127.0.0.1:{port}", headers={"Authorization": "Bearer sk-1\n"})
                assert "sk-1" not in str(caught.value)
            async with package.AsyncClient(transport=adapter.Transport(proxy=f"http://127.0.0.1:{port}")) as client:
                with pytest.raises(package.ConnectError, match="proxy"):
                    await client.get("http://server.test")

        run(main)


def test_a_proxy_that_refuses_is_a_proxy_error(run: Run, package: Module, adapter: Module) -> None:
    async def main() -> None:
        with serving(answers(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")) as server:
            async with package.AsyncClient(transport=adapter.Transport(proxy=server.url)) as client:
                with pytest.raises(package.ProxyError, match="403"):
                    await client.get("http://server.test")

    run(main)


# --- timeouts ---


def test_each_phase_has_its_timeout(run: Run, package: Module, adapter: Module) -> None:
    async def main() -> None:
        limits = ms.PoolLimits(max_connections=1)
        with serving(hang) as server, serving(half_a_body) as slow, serving(wait_for_the_gate) as unread:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                with pytest.raises(package.ReadTimeout):
                    await client.get(server.url, timeout=package.Timeout(None, read=0.05))
                with pytest.raises(package.ReadTimeout):
                    await client.get(slow.url, timeout=package.Timeout(None, read=0.05))
                with pytest.raises(package.WriteTimeout):
                    await client.post(unread.url, content=b"x" * 30_000_000, timeout=package.Timeout(None, write=0.05))
                with pytest.raises(package.ConnectTimeout):  # the server never begins its handshake
                    await client.get(f"https://127.0.0.1:{server.port}", timeout=package.Timeout(None, connect=0.05))
            client = package.AsyncClient(transport=adapter.Transport(limits=limits))
            async with client, client.stream("GET", slow.url):
                with pytest.raises(package.PoolTimeout):
                    await client.get(server.url, timeout=package.Timeout(None, pool=0.05))

    run(main)


def test_a_defect_at_an_end_leaves_the_next_request_alone(
    run: Run, package: Module, adapter: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection already belongs to the second request when the end of the first response is delivered."""
    on_end, defects = Transfer.on_end, [ValueError("injected")]

    def fails_once(transfer: Transfer) -> None:
        if defects:
            raise defects.pop()
        on_end(transfer)

    monkeypatch.setattr(Transfer, "on_end", fails_once)
    outcomes: list[object] = []

    async def main() -> None:
        async def request(client: Module, url: str) -> None:
            try:
                outcomes.append((await client.post(url, content=b"hello")).content)
            except package.TransportError as error:
                outcomes.append(str(error))

        with serving(always_ok) as server:
            transport = adapter.Transport(limits=ms.PoolLimits(max_per_origin=1))
            async with package.AsyncClient(transport=transport) as client, anyio.create_task_group() as group:
                group.start_soon(request, client, server.url)
                group.start_soon(request, client, server.url)
            assert server.connections == 1

    run(main)
    assert [outcome for outcome in outcomes if outcome == b"ok"] == [b"ok"]
    assert [outcome for outcome in outcomes if outcome != b"ok"] == ["internal error: ValueError: injected"]


# --- cancellation ---


@pytest.mark.parametrize("phase", ["handshake", "send", "head", "body"])
def test_a_cancelled_request_closes_its_connection(run: Run, package: Module, adapter: Module, phase: str) -> None:
    started = threading.Event()

    def serve(wire: Wire) -> None:
        if phase == "send":
            started.set()
            wire.gate.wait(30)
        if phase in ("head", "body"):
            wire.head()
        if phase == "body":
            wire.send(CHUNKED + b"3\r\none\r\n")
        started.set()
        hang(wire)

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport(), timeout=None) as client:
                body = b"x" * (30_000_000 if phase == "send" else 1)
                url = server.url.replace("http:", "https:") if phase == "handshake" else server.url
                await cancelled_after(lambda: client.post(url, content=body), started.is_set)
                server.gate.set()
                await closed_by_the_client(server)
                assert repr(client._transport).startswith("<Transport <Pool 0 open")

    run(main)


def test_leaving_a_stream_early_closes_its_connection(run: Run, package: Module, adapter: Module) -> None:
    def serve(wire: Wire) -> None:
        wire.head()
        wire.send(CHUNKED + b"3\r\none\r\n")
        hang(wire)

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                async with client.stream("GET", server.url) as response:
                    assert response.status_code == 200
                await closed_by_the_client(server)
                with pytest.raises(package.StreamClosed):
                    await response.aread()

    run(main)


# --- TLS, trace ---


def test_tls_verifies_and_sni_hostname_names_the_certificate(run: Run, package: Module, adapter: Module) -> None:
    ca, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("server.test").configure_cert(context)
    trusting = ms.TLSConfig(ca_data=ca.cert_pem.bytes().decode())

    async def main() -> None:
        with serving(always_ok, context) as server:
            async with package.AsyncClient(transport=adapter.Transport(tls=trusting)) as client:
                with pytest.raises(package.ConnectError, match="certificate verify failed"):
                    await client.get(server.url)
                response = await client.get(server.url, extensions={"sni_hostname": "server.test"})
                assert response.content == b"ok"
                assert response.extensions["network_stream"].get_extra_info("ssl_object").version()

    run(main)


def test_trace_receives_the_steps_in_order(run: Run, package: Module, adapter: Module) -> None:
    names: list[str] = []

    async def trace(name: str, info: dict[str, object]) -> None:
        names.append(name)

    async def main() -> None:
        with serving(always_ok) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                await client.get(server.url, extensions={"trace": trace})

    run(main)
    steps = ["connection.connect_tcp", "http11.send_request_headers", "http11.send_request_body"]
    steps += ["http11.receive_response_headers", "http11.receive_response_body", "http11.response_closed"]
    assert names == [f"{step}.{end}" for step in steps for end in ("started", "complete")]


# --- use that is refused ---


def test_options_of_another_kind_are_refused_by_name(package: Module, adapter: Module) -> None:
    with pytest.raises(TypeError, match=rf"limits must be a manystream.PoolLimits, not {package.__name__}.Limits"):
        adapter.Transport(limits=package.Limits())
    with pytest.raises(TypeError, match=r"'http2': this transport speaks HTTP/1\.1 only"):
        adapter.Transport(http2=True)
    with pytest.raises(TypeError, match="verification cannot be switched off"):
        adapter.Transport(verify=False)
    with pytest.raises(TypeError, match=r"tls must be a manystream.TLSConfig, not ssl.SSLContext"):
        adapter.Transport(tls=ssl.create_default_context())
    with pytest.raises(ValueError, match=r"only http:// proxies"):
        adapter.Transport(proxy="socks5://localhost")


def test_a_closed_transport_is_refused(run: Run, package: Module, adapter: Module) -> None:
    async def main() -> None:
        transport = adapter.Transport()
        await transport.aclose()
        with pytest.raises(RuntimeError, match=r"^this transport is closed: create a client with a new Transport\(\)$"):
            await transport.handle_async_request(package.Request("GET", "http://127.0.0.1"))

    run(main)


def test_closing_a_transport_ends_what_runs(run: Run, package: Module, adapter: Module) -> None:
    started = threading.Event()

    def serve(wire: Wire) -> None:
        wire.head()
        started.set()
        hang(wire)

    async def main() -> None:
        transport = adapter.Transport()
        ended: list[str] = []

        async def request() -> None:
            with pytest.raises(package.ReadError, match="closed during the request"):
                await transport.handle_async_request(package.Request("GET", server.url))
            ended.append("request")

        async def close() -> None:
            await eventually(started.is_set)
            await transport.aclose()

        with serving(serve) as server:
            await together(request, close)
            await closed_by_the_client(server)
        assert ended

    run(main)


def test_after_its_event_loop_has_ended_a_transport_begins_anew(run: Run, package: Module, adapter: Module) -> None:
    with serving(always_ok) as server:
        client = package.AsyncClient(transport=adapter.Transport())

        async def main() -> None:
            assert (await client.get(server.url)).content == b"ok"

        async def last() -> None:
            await main()
            await client.aclose()

        run(main)
        run(main)
        run(last)
        assert server.connections == 3
        for _ in range(3):
            assert server.ended.acquire(timeout=30)


CALLS = 40

MOST_TRACKED = 20
"""The most tracked objects of one call that waits for its response: its task, its connection and the socket included,
and without its request, which belongs to the client."""


class Silent:
    """A server on plain descriptors, which the garbage collector does not track. It never answers."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=2 * CALLS)
        self.listener.setblocking(False)
        self.descriptors: list[int] = []

    async def receive(self, number: int) -> None:
        """Accept so many connections, and read the request of each."""
        loop = asyncio.get_running_loop()
        for _ in range(number):
            connection, _ = await loop.sock_accept(self.listener)
            await loop.sock_recv(connection, 65536)
            self.descriptors.append(connection.detach())

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.listener.close()


def request(server: Silent) -> httpx2.Request:
    """Return a request with the headers and timeouts of an SDK's client."""
    headers = {"authorization": "Bearer key", **{f"x-stainless-{number}": "value" for number in range(10)}}
    timeouts = {"connect": 5.0, "read": 600.0, "write": 600.0, "pool": 600.0}
    url = f"http://127.0.0.1:{server.listener.getsockname()[1]}/v1/chat/completions"
    return httpx2.Request("POST", url, headers=headers, content=b"{}", extensions={"timeout": timeouts})


def tracked() -> int:
    """Return the number of objects that the garbage collector tracks after it has run."""
    gc.collect()
    return len(gc.get_objects())


def test_a_call_in_flight_is_few_objects() -> None:
    async def main() -> float:
        server, transport = Silent(), Transport()
        calls: list[asyncio.Task[httpx2.Response]] = []

        async def start(requests: list[httpx2.Request]) -> None:
            calls.extend(asyncio.create_task(transport.handle_async_request(each)) for each in requests)
            await server.receive(len(requests))

        try:
            await start([request(server) for _ in range(3)])  # what is made once per transport
            requests = [request(server) for _ in range(CALLS)]
            before = tracked()
            await start(requests)
            return (tracked() - before) / CALLS
        finally:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            await transport.aclose()
            server.close()

    assert asyncio.run(main()) <= MOST_TRACKED


def test_an_ended_call_is_kept_by_no_timer() -> None:
    """Its wait for a place has a far deadline, which is replaced by the near one of the connection."""

    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()
        await writer.wait_closed()
        ended.set()

    async def main() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as peer:
            url = f"http://127.0.0.1:{peer.sockets[0].getsockname()[1]}/"
            timeouts = {"pool": 600.0, "connect": 5.0, "write": 300.0, "read": 60.0}
            async with Transport() as transport:
                for _ in range(2):  # on a new connection, and on the idle one
                    request = httpx2.Request("GET", url, extensions={"timeout": timeouts})
                    response = await transport.handle_async_request(request)
                    assert await response.aread() == b"ok"
                    await response.aclose()
                    del response
                await asyncio.sleep(0)
                gc.collect()
                kept = [each for each in gc.get_objects() if isinstance(each, Transfer)]
            await ended.wait()
            assert kept == []

    asyncio.run(main())
