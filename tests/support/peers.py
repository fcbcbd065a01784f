"""Loopback servers whose every byte the test writes, and the wire text of OpenAI Chat to write.

A `Peer` runs a script for each connection: an async function that receives the connection. A `Recorder` keeps what a
call delivers to its callbacks.
"""

import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio

import manystream as ms

Script = Callable[["Line"], Awaitable[None]]
Reply = bytes | str | Callable[[bytes], bytes | str]
"""A whole response, or a function that returns the response to a request."""


class Line:
    """One accepted connection, from the server's side."""

    def __init__(self, stream: trio.SocketStream, requests: list[bytes] | None = None) -> None:
        self.stream = stream
        self.requests = [] if requests is None else requests
        self.received = b""

    async def request(self) -> bytes:
        """Read one whole request (head and Content-Length body). Returns b"" at the end of the connection."""
        while b"\r\n\r\n" not in self.received:
            data = await self.stream.receive_some(65536)
            if not data:
                return b""
            self.received += data
        head, _, rest = self.received.partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        while len(rest) < length:
            data = await self.stream.receive_some(65536)
            if not data:
                return b""
            rest += data
        self.received = rest[length:]
        self.requests.append(head + b"\r\n\r\n" + rest[:length])
        return self.requests[-1]

    async def send(self, data: bytes | str) -> None:
        await self.stream.send_all(data.encode() if isinstance(data, str) else data)

    async def closed_by_peer(self) -> None:
        """Wait until the client has closed (or reset) the connection."""
        try:
            while await self.stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            pass

    def reset(self) -> None:
        """Close with RST."""
        import struct

        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.socket.close()


class ClosedSocket(socket.socket):
    """A socket whose second request finds that the server has closed the connection."""

    requests = 0

    def send(self, data: Any, *flags: Any) -> int:
        self.requests += 1
        if self.requests > 1:
            self.shutdown(socket.SHUT_RDWR)
            raise BrokenPipeError
        return super().send(data, *flags)


@dataclass
class Peer:
    """A listening server, with its connections in the order in which they were accepted, and all whole requests."""

    port: int
    lines: list[Line] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def heads(self) -> list[list[str]]:
        """The lines of each request's head."""
        return [request.partition(b"\r\n\r\n")[0].decode().split("\r\n") for request in self.requests]

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def chat(self) -> ms.OpenAIChat:
        return ms.OpenAIChat(api_key="sk-canary-secret", base_url=self.url, name="peer")


@asynccontextmanager
async def open_peer(script: Script, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Peer, None]:
    """Open a server that runs `script` for each connection."""
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=4096)
        peer = Peer(listeners[0].socket.getsockname()[1])

        async def serve(stream: trio.SocketStream) -> None:
            line = Line(stream if tls is None else trio.SSLStream(stream, tls, server_side=True), peer.requests)  # type: ignore[arg-type]
            peer.lines.append(line)
            try:
                await script(line)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            finally:
                stream.socket.close()

        nursery.start_soon(trio.serve_listeners, serve, listeners)
        try:
            yield peer
        finally:
            nursery.cancel_scope.cancel()


def chunked(*bodies: str | bytes, end: bool = True) -> bytes:
    """Encode each body as one HTTP chunk; with `end`, add the last chunk."""
    parts = []
    for body in bodies:
        data = body.encode() if isinstance(body, str) else body
        parts.append(b"%x\r\n%b\r\n" % (len(data), data))
    return b"".join(parts) + (b"0\r\n\r\n" if end else b"")


STREAM_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def stream_of(*bodies: str | bytes, end: bool = True) -> bytes:
    """Return a whole streamed response; without `end`, the last chunk is missing."""
    return STREAM_HEAD.encode() + chunked(*bodies, end=end)


def answer(body: bytes | str, *, status: str = "200 OK", headers: str = "", kind: str = "application/json") -> bytes:
    """Return a whole unstreamed response."""
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{headers}\r\n".encode() + data


def chat_chunk(text: str | None = None, finish: str | None = None, **members: object) -> str:
    delta: dict[str, object] = {} if text is None else {"content": text}
    chunk = {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **members}
    return f"data: {json.dumps(chunk)}\n\n"


CHAT_DONE = "data: [DONE]\n\n"


def chat_stream(*texts: str) -> list[str]:
    """Return the frames of a whole Chat stream."""
    return [*(chat_chunk(text) for text in texts), chat_chunk(finish="stop"), CHAT_DONE]


def chat_answer(text: str) -> str:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"id": "c1", "model": "m", "choices": [choice]})


def error_body(message: str, kind: str = "server_error", code: str | None = None) -> str:
    return json.dumps({"error": {"message": message, "type": kind, "code": code}})


class Recorder:
    """Callbacks that record what they receive."""

    def __init__(self) -> None:
        self.events: list[ms.Event] = []
        self.completions: list[ms.Completion] = []

    def on_event(self, event: ms.Event) -> None:
        assert not self.completions, "an event after the completion"
        self.events.append(event)

    def on_completion(self, completion: ms.Completion) -> None:
        self.completions.append(completion)

    @property
    def types(self) -> list[str]:
        return [event.type.name for event in self.events]

    @property
    def completion(self) -> ms.Completion:
        assert len(self.completions) == 1, self.completions
        return self.completions[0]

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ms.TextDelta))


def hello(**options: object) -> ms.Request:
    return ms.Request("m", [ms.Message.user("hello")], **options)  # type: ignore[arg-type]


def replies(*responses: Reply) -> Script:
    """Reply to every request: with the responses in turn, over all connections, and with the last one from then on."""

    async def script(line: Line) -> None:
        while request := await line.request():
            response = responses[min(len(line.requests), len(responses)) - 1]
            await line.send(response(request) if callable(response) else response)

    return script


def reply_once(*parts: bytes | str, hold: bool = False) -> Script:
    """Send the parts after a connection's first request, and close it. hold: wait until the client closes it."""

    async def script(line: Line) -> None:
        await line.request()
        for part in parts:
            await line.send(part)
        if hold:
            await line.closed_by_peer()

    return script


reply_and_hold = partial(reply_once, hold=True)


async def unused(line: Line) -> None:
    raise AssertionError("something that must not be sent has opened a connection")


async def hang(line: Line) -> None:
    """Read nothing and send nothing until the client closes the connection."""
    await line.closed_by_peer()


async def silent(line: Line) -> None:
    await line.request()
    await line.closed_by_peer()


async def hang_in_body(line: Line) -> None:
    await line.request()
    await line.send(STREAM_HEAD + chunked(chat_chunk("partial"), end=False).decode())
    await line.closed_by_peer()


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition is true. Fails after some seconds."""
    for _ in range(5000):
        if condition():
            return
        await trio.sleep(0.001)
    raise AssertionError("it never came to that")


def open_descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


NO_RETRY = ms.Retry(max_attempts=1)
