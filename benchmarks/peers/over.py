"""The HTTP client of a provider's library: its own, or one over another transport."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from ..wire import WIRES
from .common import Task

ANSWER = WIRES["chat"].answer


class Memory(httpx2.AsyncBaseTransport):
    """Answers each request without a socket, after a time: what the library itself costs. Unstreamed chat only.

    A call in flight is dozens of objects of the library, which the garbage collector visits again and again while
    further calls begin. No transport can avoid that.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(self._seconds)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=ANSWER)


def transport_of(task: Task) -> httpx2.AsyncBaseTransport | None:
    """Return the transport that the task names; None: one of the library's own."""
    if task.over == "manystream":
        import manystream.httpx2

        return manystream.httpx2.Transport()
    return {"at-once": Memory(0.0), "later": Memory(task.delay / 1000)}.get(task.over)


def http_client(library: Any, task: Task) -> Any:
    """Return the client for `http_client=` of a library; None: its default. library: `openai` or `anthropic`."""
    if task.over == "aiohttp":
        return library.DefaultAioHttpClient()
    over, context = transport_of(task), task.ssl_context()
    if over is not None:
        return getattr(library, "DefaultAsyncHttpx2Client", library.DefaultAsyncHttpxClient)(transport=over)
    return library.DefaultAsyncHttpxClient(verify=context) if context else None
