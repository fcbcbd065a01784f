"""The objects of a call in flight that the garbage collector tracks, over the transport for httpx2's client."""

import asyncio
import gc
import os
import socket
from contextlib import suppress

import httpx2

from manystream.httpx2 import Transport
from manystream.sdk_clients.transfer import Transfer

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
