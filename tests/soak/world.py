"""The other process of a soak: a server, and in front of it a proxy that causes the planned faults.

`python -m tests.soak.world PACE` prints the ports of the proxy and of a server that closes its connections at random.
It serves until its standard input ends; then it prints its records as JSON. PACE is the factor by which responses are
faster than planned.
"""

from __future__ import annotations

import json
import random
import re
import struct
import sys
import time
from dataclasses import asdict, dataclass, field

import trio

from tests.soak.plan import HEAD, MARK, Fault, Plan, plan

NUMBER = re.compile(rb"%b(\d+)" % MARK.encode())
PIECE = 1000
"""The size of one write of the server, in bytes."""


@dataclass
class Books:
    """The records of the proxy.

    They count the requests, the repeated requests, the forwarded bytes of responses and the responses with a fault.
    `processor` is the CPU time of this process, in seconds.
    """

    requests: int = 0
    again: list[int] = field(default_factory=list[int])
    bytes: int = 0
    strikes: int = 0
    processor: float = 0.0


BOOKS = Books()
SEEN: set[int] = set()
PACE = float(sys.argv[1]) if __name__ == "__main__" else 1.0


async def read_request(stream: trio.SocketStream, data: bytes = b"") -> tuple[bytes, bytes]:
    """Read one request. Returns it and the bytes after it; empty at the end of the connection."""
    while True:
        head, blank, body = data.partition(b"\r\n\r\n")
        if blank:
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if len(body) >= length:
                return head + blank + body[:length], body[length:]
        more = await stream.receive_some(65536)
        if not more:
            return b"", b""
        data += more


async def serve(stream: trio.SocketStream) -> None:
    """Send correct and complete responses, in pieces. This is the server behind the proxy."""
    rest = b""
    async with stream:
        try:
            while True:
                request, rest = await read_request(stream, rest)
                found = NUMBER.search(request)
                if found is None:
                    return
                planned = plan(int(found[1]))
                pause = planned.seconds / PACE * PIECE / len(planned.wire)
                for place in range(0, len(planned.wire), PIECE):
                    await stream.send_all(planned.wire[place : place + PIECE])
                    await trio.sleep(pause)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


ON_THE_LINE = frozenset({Fault.CUT, Fault.RESET, Fault.STALL, Fault.CORRUPT})


def reset(stream: trio.SocketStream) -> None:
    stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


class Proxied:
    """One connection through the proxy."""

    def __init__(self, client: trio.SocketStream, server: trio.SocketStream) -> None:
        self.client = client
        self.server = server
        self.plan: Plan | None = None
        self.passed = 0
        """The number of forwarded bytes of the current response."""

    async def up(self, scope: trio.CancelScope) -> None:
        rest = b""
        while True:
            request, rest = await read_request(self.client, rest)
            found = NUMBER.search(request)
            if found is None:
                break
            number = int(found[1])
            self.plan, self.passed = plan(number), 0
            BOOKS.requests += 1
            if number in SEEN:
                BOOKS.again.append(number)
            SEEN.add(number)
            await self.server.send_all(request)
        scope.cancel()

    async def down(self, scope: trio.CancelScope) -> None:
        while data := await self.server.receive_some(65536):
            assert self.plan is not None
            if not await self.treat(data, self.plan):
                break
        scope.cancel()

    async def treat(self, data: bytes, plan: Plan) -> bool:
        """Forward bytes as planned. Returns False if the fault ends the connection."""
        before, self.passed = self.passed, self.passed + len(data)
        strikes = before <= plan.at < self.passed and plan.fault in ON_THE_LINE
        BOOKS.strikes += strikes
        BOOKS.bytes += len(data) if plan.fault is Fault.CORRUPT or not strikes else plan.at - before
        if plan.fault is Fault.DRIBBLE:
            for place in range(0, len(data), 37):
                await self.client.send_all(data[place : place + 37])
            return True
        if not strikes:
            await self.client.send_all(data)
            return True
        place = plan.at - before
        if plan.fault is Fault.CORRUPT:
            damaged = bytearray(data)
            damaged[place] ^= 1 << plan.number % 8
            await self.client.send_all(bytes(damaged))
            return True
        await self.client.send_all(data[:place])
        if plan.fault is Fault.STALL:
            await trio.sleep_forever()  # until the client disconnects
        if plan.fault is Fault.RESET:
            reset(self.client)
        return False


async def proxy(client: trio.SocketStream, port: int) -> None:
    async with client:
        try:
            async with await trio.open_tcp_stream("127.0.0.1", port) as server, trio.open_nursery() as nursery:
                proxied = Proxied(client, server)
                nursery.start_soon(proxied.up, nursery.cancel_scope)
                nursery.start_soon(proxied.down, nursery.cancel_scope)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass


async def fickle(stream: trio.SocketStream, chance: random.Random) -> None:
    """Serve a connection and close it at random, by FIN or RST.

    It closes with a response, a moment after it, or after it has received the next request; never before the first
    response.
    """
    answer = (
        b'{"id": "c", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {"content": "x"}}]}'
    )
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer)
    rest = b""
    try:
        while True:
            request, rest = await read_request(stream, rest)
            if not request:
                return
            await stream.send_all(head + answer)
            fate = chance.randrange(100)
            if fate < 4:
                break
            if fate < 8:
                await trio.sleep(chance.random() * 0.002)
                break
            if fate < 10:
                await stream.receive_some(1)
                break
            if fate < 12:
                await read_request(stream, rest)
                break
        if chance.random() < 0.5:
            reset(stream)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    finally:
        stream.socket.close()


async def main() -> None:
    chance = random.Random(1)
    async with trio.open_nursery() as nursery:
        servers = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
        proxies = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
        fickles = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
        port = servers[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, serve, servers)
        nursery.start_soon(trio.serve_listeners, lambda client: proxy(client, port), proxies)
        nursery.start_soon(trio.serve_listeners, lambda stream: fickle(stream, chance), fickles)
        print(proxies[0].socket.getsockname()[1], fickles[0].socket.getsockname()[1], flush=True)
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()
    BOOKS.processor = time.process_time()
    print(json.dumps(asdict(BOOKS)), flush=True)


if __name__ == "__main__":
    assert HEAD
    trio.run(main)
