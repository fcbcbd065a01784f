"""httpx2's synchronous client over our transport, which runs on an event loop in a thread of its own.

This is a prototype: it shows what such a transport would cost. It crosses to the other thread once per response, and
once more for each wait for bytes of its body.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import httpx2

import manystream as ms
import manystream.httpx2

from . import httpx2_sync
from .common import Task

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def call(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the event loop, and wait for its result."""
        waiting = threading.Lock()
        waiting.acquire()
        found: list[T] = []
        failed: list[BaseException] = []

        async def run() -> None:
            try:
                found.append(await function())
            except BaseException as error:
                failed.append(error)
            finally:
                waiting.release()

        self._loop.call_soon_threadsafe(lambda: self._loop.create_task(run()))
        waiting.acquire()
        if failed:
            raise failed[0]
        return found[0]


class Transport(httpx2.BaseTransport):
    """Carries the requests of a synchronous client over our transport."""

    def __init__(self) -> None:
        self._thread = LoopThread()
        self._ours = manystream.httpx2.Transport(limits=ms.PoolLimits())

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        async def start() -> tuple[httpx2.Response, Any, bytes]:
            response = await self._ours.handle_async_request(request)
            body: Any = response.stream
            return response, body, await arrived(body) if body._transfer._ended else b""

        response, body, data = self._thread.call(start)
        ended = body._transfer._ended and not body._transfer._pieces
        return httpx2.Response(
            response.status_code,
            headers=response.headers.raw,
            stream=httpx2.ByteStream(data) if ended else Body(self._thread, body),
            extensions=response.extensions,
        )


class Body(httpx2.SyncByteStream):
    """The body of a response."""

    def __init__(self, thread: LoopThread, body: Any) -> None:
        self._thread = thread
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        while data := self._thread.call(lambda: arrived(self._body)):
            yield data

    def close(self) -> None:
        self._thread.call(self._body.aclose)


async def arrived(body: Any) -> bytes:
    """Wait for bytes of a body. Returns all that have arrived; nothing at the end, which closes the body."""
    pieces = [await anext(body, b"")]
    while body._transfer._pieces:
        pieces.append(await anext(body, b""))
    data = b"".join(pieces)
    if not data or body._transfer._ended:
        await body.aclose()
    return data


def client_for(task: Task) -> httpx2.Client:
    """Return a synchronous client over our transport."""
    return httpx2.Client(transport=Transport(), timeout=60)


if __name__ == "__main__":
    httpx2_sync.main(client_for)
