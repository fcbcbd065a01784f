"""The client transports with what real servers, proxies and programs do, on asyncio and trio."""

import asyncio
import contextlib
import gzip
import socket
import struct
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import httpx2
import pytest
import trio

import manystream as ms
import manystream.httpx2
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
    together,
)
from tests.support.waiting import eventually, pause

Run = Callable[[Callable[[], Awaitable[None]]], None]
Module = Any  # httpx2 or httpx: their names are the same


def reset_the_connection(wire: Wire) -> None:
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def each(*responses: bytes) -> Serve:
    """Answer one request after the other with these responses, then with `OK`."""

    def serve(wire: Wire) -> None:
        for response in responses:
            wire.body(wire.head())
            wire.send(response)
        always_ok(wire)

    return serve


# --- responses ---


RESPONSES: dict[str, tuple[str, bytes, int, bytes]] = {
    "100-continue": ("POST", b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
    "early hints": ("GET", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK, 200, b"ok"),
    "204": ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "304": ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: 1\r\n\r\n", 304, b""),
    "HEAD": ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n", 200, b""),
    "no reason phrase": ("GET", b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", 200, b""),
    "empty chunked": ("GET", CHUNKED + b"0\r\n\r\n", 200, b""),
    "trailers": ("GET", CHUNKED + b"2\r\nok\r\n0\r\nX-Checksum: 1\r\n\r\n", 200, b"ok"),
    "gzip": ("GET", b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(gzip.compress(b"words")), gzip.compress(b"words")), 200, b"words"),
    "large headers": ("GET", b"HTTP/1.1 200 OK\r\n" + b"X-Many: " + b"v" * 60_000 + b"\r\nContent-Length: 2\r\n\r\nok",
        200, b"ok"),
}  # fmt: skip


@pytest.mark.parametrize("name", RESPONSES)
def test_a_response_leaves_the_connection_for_the_next(run: Run, package: Module, adapter: Module, name: str) -> None:
    method, response, status, body = RESPONSES[name]

    async def main() -> None:
        with serving(each(response)) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                answer = await client.request(method, server.url)
                assert (answer.status_code, answer.content) == (status, body)
                assert (await client.get(server.url)).content == b"ok"
            assert server.connections == 1

    run(main)


def test_a_body_may_end_with_the_connection(run: Run, package: Module, adapter: Module) -> None:
    async def main() -> None:
        with serving(answers(b"HTTP/1.0 200 OK\r\n\r\n", b"until ", b"the end")) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                for _ in range(2):
                    response = await client.get(server.url)
                    assert (response.text, response.http_version) == ("until the end", "HTTP/1.0")
            assert server.connections == 2

    run(main)


@pytest.mark.parametrize("value", ["close", "Close", "TE, close"])
def test_a_request_may_be_the_connection_s_last(run: Run, package: Module, adapter: Module, value: str) -> None:
    """The server may keep the connection, but it closes it soon after, and the next request would be lost."""

    async def main() -> None:
        with serving(always_ok) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                for _ in range(2):
                    assert (await client.get(server.url, headers={"Connection": value})).content == b"ok"
                assert server.connections == 2
                assert (await client.get(server.url, headers={"Connection": "keep-alive"})).content == b"ok"
                assert (await client.get(server.url, headers={"X-Connection": "close"})).content == b"ok"
            assert server.connections == 3

    run(main)


def test_a_head_without_end_is_a_protocol_error(run: Run, package: Module, adapter: Module) -> None:
    async def main() -> None:
        with serving(answers(b"HTTP/1.1 200 OK\r\n", b"X-Many: 1\r\n" * 50_000)) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                with pytest.raises(package.RemoteProtocolError, match="response head"):
                    await client.get(server.url)

    run(main)


def test_redirects_and_cookies_stay_the_client_s(run: Run, package: Module, adapter: Module) -> None:
    heads: list[bytes] = []

    def serve(wire: Wire) -> None:
        wire.head()
        wire.send(b"HTTP/1.1 302 Found\r\nLocation: /next\r\nSet-Cookie: a=1\r\nContent-Length: 3\r\n\r\nsee")
        heads.append(wire.head())
        wire.send(OK)
        hang(wire)

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport(), follow_redirects=True) as client:
                assert (await client.get(server.url)).content == b"ok"
            assert server.connections == 1

    run(main)
    assert heads[0].startswith(b"GET /next ")
    assert b"Cookie: a=1" in heads[0]


# --- uploads ---


def test_an_upload_whose_source_raises_closes_the_connection(run: Run, package: Module, adapter: Module) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b"one"
        raise ValueError("no more")

    async def main() -> None:
        with serving(hang) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                with pytest.raises(ValueError, match="no more"):
                    await client.post(server.url, content=pieces())
                await closed_by_the_client(server)
                assert repr(client._transport).startswith("<Transport <Pool 0 open")

    run(main)


def test_a_server_that_answers_an_upload_early_and_closes(run: Run, package: Module, adapter: Module) -> None:
    def serve(wire: Wire) -> None:
        wire.head()
        wire.send(OK)
        wire.sock.shutdown(socket.SHUT_WR)
        hang(wire)

    async def pieces() -> AsyncGenerator[bytes]:
        while True:
            yield b"x" * 65536
            await pause()

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                async with contextlib.aclosing(pieces()) as body:  # httpx leaves it open
                    assert (await client.post(server.url, content=body)).content == b"ok"
                assert (await client.post(server.url, content=b"x" * 20_000_000)).content == b"ok"

    run(main)


@pytest.mark.parametrize("size", [1, 20_000_000])
@pytest.mark.parametrize("end", ["a reset", "an end", "an end after the whole request"])
def test_a_request_once_read_is_sent_once(run: Run, package: Module, adapter: Module, size: int, end: str) -> None:
    """The server reads the second request on the kept-alive connection, or a part of it, acts, and closes."""
    acted: list[int] = []

    def serve(wire: Wire) -> None:
        wire.body(wire.head())
        wire.send(OK)
        if end == "an end after the whole request":
            wire.body(wire.head())
        else:
            wire.sock.recv(1)
        acted.append(1)
        if end == "a reset":
            reset_the_connection(wire)

    async def main() -> None:
        with serving(serve) as server:
            async with package.AsyncClient(transport=adapter.Transport(), timeout=None) as client:
                assert (await client.get(server.url)).content == b"ok"
                with pytest.raises(package.TransportError):
                    await client.post(server.url, content=b"x" * size)
            assert (acted, server.connections) == ([1], 1)

    run(main)


def test_a_connection_that_ends_before_the_request_is_replaced(run: Run, package: Module, adapter: Module) -> None:
    """The server closes the idle connection after the pool has assigned it, and before the body's first piece."""
    taken: list[int] = []

    def serve(wire: Wire) -> None:
        later = server.connections > 1
        wire.body(wire.head())
        wire.send(OK)
        if later:
            hang(wire)
        wire.gate.wait(30)

    async def trace(name: str, info: object) -> None:
        if name == "http11.send_request_headers.started" and not server.gate.is_set():
            server.gate.set()
            await closed_by_the_client(server)
            for _ in range(5):
                await pause()

    async def pieces() -> AsyncGenerator[bytes]:
        taken.append(1)
        yield b"body"

    with serving(serve) as server:

        async def main() -> None:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                assert (await client.get(server.url)).content == b"ok"
                response = await client.post(server.url, content=pieces(), extensions={"trace": trace})
                assert response.content == b"ok"
            assert server.connections == 2

        run(main)
    assert taken == [1]


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "not a number": ({"Content-Length": "abc"}, "Content-Length is not a number"),
    "a huge number": ({"Content-Length": "9" * 5000}, "Content-Length is not a number"),
    "another length": ({"Content-Length": "2"}, "the body has 5 bytes, and its Content-Length is 2"),
    "another coding": ({"Transfer-Encoding": "gzip, chunked"}, "Transfer-Encoding is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_headers_that_contradict_the_body_are_refused(run: Run, package: Module, adapter: Module, name: str) -> None:
    headers, message = REFUSED[name]

    async def main() -> None:
        with serving(hang) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                with pytest.raises(package.LocalProtocolError, match=message):
                    await client.post(server.url, content=b"hello", headers=headers)
                twice = [("Host", "a.test"), ("Host", "b.test")]
                with pytest.raises(package.LocalProtocolError, match="more than one Host"):
                    await client.get(server.url, headers=twice)
                with pytest.raises(package.ConnectError):
                    await client.get("http://127.0.0.1:0")
            assert server.connections == 0

    run(main)


# --- cancellation ---


@pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning")
def test_a_response_that_is_half_read_can_be_closed_twice(run: Run, package: Module, adapter: Module) -> None:
    async def main() -> None:
        with serving(half_a_body) as server:
            async with package.AsyncClient(transport=adapter.Transport()) as client:
                request = client.build_request("GET", server.url)
                response = await client.send(request, stream=True)
                pieces = response.aiter_raw()
                assert await anext(pieces) == b"ab"
                await response.aclose()
                await response.aclose()
                await pieces.aclose()
                await closed_by_the_client(server)

    run(main)


@pytest.mark.filterwarnings("ignore:Async generator 'httpx:ResourceWarning")
def test_closing_a_response_ends_another_task_s_read(run: Run, package: Module, adapter: Module) -> None:
    """A program's stop button: one task reads a stream, another one closes it."""
    ended: list[str] = []

    async def main() -> None:
        with serving(half_a_body) as server:
            async with package.AsyncClient(transport=adapter.Transport(), timeout=None) as client:
                response = await client.send(client.build_request("GET", server.url), stream=True)
                read: list[bytes] = []

                async def reading() -> None:
                    pieces = response.aiter_raw()
                    read.append(await anext(pieces))
                    with pytest.raises(package.ReadError, match="the response was closed"):
                        await anext(pieces)
                    ended.append("reading")

                async def closing() -> None:
                    await eventually(lambda: read)
                    for _ in range(5):
                        await pause()  # the reader waits for the next piece
                    await response.aclose()

                await together(reading, closing)
                await closed_by_the_client(server)

    run(main)
    assert ended == ["reading"]


def test_thousands_of_waiting_requests_can_be_cancelled(run: Run, package: Module, adapter: Module) -> None:
    count = 2000

    async def main() -> None:
        limits = ms.PoolLimits(max_connections=1)
        transport = adapter.Transport(limits=limits)
        client = package.AsyncClient(transport=transport, timeout=None)
        with serving(half_a_body) as server:
            async with client, client.stream("GET", server.url):

                async def all_of_them() -> None:
                    if trio.lowlevel.in_trio_task():
                        async with trio.open_nursery() as nursery:
                            for _ in range(count):
                                nursery.start_soon(client.get, server.url)
                    else:
                        await asyncio.gather(*(client.get(server.url) for _ in range(count)))

                waiting = f"<Transport <Pool 1 open, 0 idle, {count} waiting>>"
                await cancelled_after(all_of_them, lambda: repr(transport) == waiting)
                for _ in range(5):
                    await pause()
                assert repr(transport) == "<Transport <Pool 1 open, 0 idle, 0 waiting>>"
                assert len(transport._core._running.transfers) == 1

    run(main)


def test_a_timeout_of_asyncio_ends_a_request() -> None:
    async def main() -> None:
        with serving(hang) as server:
            async with httpx2.AsyncClient(transport=manystream.httpx2.Transport()) as client:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await client.get(server.url)
                await closed_by_the_client(server)

    asyncio.run(main())


def test_a_task_that_is_cancelled_twice_ends_once() -> None:
    started = threading.Event()

    def serve(wire: Wire) -> None:
        wire.head()
        started.set()
        hang(wire)

    async def main() -> None:
        with serving(serve) as server:
            async with httpx2.AsyncClient(transport=manystream.httpx2.Transport()) as client:
                task = asyncio.create_task(client.get(server.url))
                await eventually(started.is_set)
                task.cancel()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await closed_by_the_client(server)

    asyncio.run(main())


# --- event loops ---


def test_the_debug_mode_of_asyncio_finds_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = 60
        with serving(always_ok) as server:
            async with httpx2.AsyncClient(transport=manystream.httpx2.Transport()) as client:
                for _ in range(3):
                    assert (await client.get(server.url)).content == b"ok"

    asyncio.run(main(), debug=True)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_the_program_s_task_factory_does_not_run_the_dial() -> None:
    """A factory such as asyncio's eager one (Python 3.12) would run its first step inside the pool."""
    names: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        names.append(getattr(coroutine, "__qualname__", ""))  # what closes a generator at the loop's end has none
        return asyncio.Task(coroutine, loop=loop, **options)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        with serving(always_ok) as server:
            async with httpx2.AsyncClient(transport=manystream.httpx2.Transport()) as client:
                assert (await client.get(server.url.replace("127.0.0.1", "localhost"))).content == b"ok"

    asyncio.run(main())
    assert not [name for name in names if "Backend" in name or "_Task" in name or "_Group" in name]


def test_a_client_that_nobody_closes_disturbs_no_later_loop(recwarn: pytest.WarningsRecorder) -> None:
    transports: list[manystream.httpx2.Transport] = []

    async def main() -> None:
        transports.append(manystream.httpx2.Transport())
        client = httpx2.AsyncClient(transport=transports[-1])
        assert (await client.get(server.url)).content == b"ok"

    async def close() -> None:
        for transport in transports:
            await transport.aclose()

    with serving(always_ok) as server:
        for _ in range(3):
            asyncio.run(main())
        asyncio.run(close())  # on another event loop, after the transports' own have been closed
    assert not list(recwarn)
