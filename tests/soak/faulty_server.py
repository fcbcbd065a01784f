"""A server on loopback, in a process of its own, that resets, stalls, cuts and corrupts its responses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

Writer = asyncio.StreamWriter
Act = Callable[[Writer], Awaitable[bool]]
"""Answers one request. Returns whether the connection carries another one."""

LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"64\r\n" + b"c" * 100 + b"\r\n"
UPLOAD = 8_000_000
"""The length of a request's body that the buffers of the kernel cannot hold."""


def sending(*parts: bytes, then: str = "keep", pause: float = 0.0) -> Act:
    """Send the parts. `then`: keep or close the connection, reset it, or stall until the client closes it."""

    async def act(writer: Writer) -> bool:
        for part in parts:
            writer.write(part)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        if then == "reset":
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif then == "stall":
            await asyncio.sleep(60)
        return then == "keep"

    return act


ACTS: dict[str, Act] = {
    "whole": sending(LENGTH + b"b" * 1000),
    "chunks": sending(CHUNKED, CHUNK, CHUNK, b"0\r\n\r\n"),
    "trailers": sending(CHUNKED, CHUNK, b"0\r\nX-Late: 1\r\n\r\n"),
    "slow": sending(LENGTH, *[b"b" * 50] * 20, pause=0.001),
    "until-the-end": sending(b"HTTP/1.1 200 OK\r\n\r\n", b"b" * 100, then="close"),
    "early-hints": sending(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", LENGTH + b"b" * 1000),
    "longer-than-its-length": sending(LENGTH + b"b" * 1200, then="close"),
    "no-response": sending(then="close"),
    "reset-before": sending(then="reset"),
    "only-a-100": sending(b"HTTP/1.1 100 Continue\r\n\r\n", then="close"),
    "half-head": sending(LENGTH[:30], then="close"),
    "reset-in-the-head": sending(LENGTH[:30], then="reset"),
    "half-body": sending(LENGTH, b"b" * 400, then="close"),
    "no-body": sending(LENGTH, then="close"),
    "half-chunks": sending(CHUNKED, CHUNK, CHUNK[:40], then="close"),
    "half-size-line": sending(CHUNKED, CHUNK, b"6", then="close"),
    "no-last-chunk": sending(CHUNKED, CHUNK, then="close"),
    "reset-in-the-body": sending(LENGTH, b"b" * 400, then="reset"),
    "reset-in-the-chunks": sending(CHUNKED, CHUNK, then="reset"),
    "bad-chunk": sending(CHUNKED, CHUNK, b"zz\r\n", then="close"),
    "not-HTTP": sending(b"SSH-2.0-OpenSSH\r\n\r\n", then="close"),
    "bad-status": sending(b"HTTP/1.1 abc OK\r\n\r\n", then="close"),
    "bad-header": sending(b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", then="close"),
    "two-lengths": sending(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", then="close"),
    "negative-length": sending(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nab", then="close"),
    "endless-head": sending(b"HTTP/1.1 200 OK\r\n", *[b"X-Many: " + b"v" * 10_000 + b"\r\n"] * 30, then="close"),
    "stalled-head": sending(LENGTH[:30], then="stall"),
    "stalled-body": sending(LENGTH, b"b" * 400, then="stall"),
    "stalled-upload": sending(then="stall"),
    "reset-upload": sending(then="reset"),
}
"""Path → what the server does."""

REFUSED = "refused"
"""The name of a fault that needs no server: nothing listens at the port."""

FAULTS = (*ACTS, REFUSED)


async def serve(reader: asyncio.StreamReader, writer: Writer) -> None:
    """Answer the requests of one connection as their paths say."""
    try:
        again = True
        while again:
            head = await reader.readuntil(b"\r\n\r\n")
            again = await ACTS[head.split(b" ")[1].decode().strip("/")](writer)
    except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass  # the client has closed the connection, or the server ends
    finally:
        writer.close()


async def main() -> None:
    """Print the port, and serve until the standard input ends."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()
    stalled = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in stalled:
        task.cancel()
    await asyncio.gather(*stalled, return_exceptions=True)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the server in a process of its own, whose memory is not the client's. Yields its origin."""
    command = [sys.executable, "-m", "tests.soak.faulty_server"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


@contextlib.contextmanager
def closed_port() -> Iterator[str]:
    """Yield an origin that refuses connections: its port is bound, and nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


if __name__ == "__main__":
    asyncio.run(main())
