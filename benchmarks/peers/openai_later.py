"""OpenAI's library over a transport that answers after the delay, without a socket: what calls in flight cost by
themselves. Unstreamed chat only.

A call in flight is dozens of objects of the library, which the garbage collector visits again and again while further
calls begin. No transport can avoid that.
"""

from __future__ import annotations

import asyncio

import httpx2
import openai

from . import openai_sdk
from .common import Task
from .openai_at_once import AtOnce


class Later(AtOnce):
    """Answers each request after a time, without a socket."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(self._seconds)
        return await super().handle_async_request(request)


def client_for(task: Task) -> openai.AsyncOpenAI:
    """Return a client that opens no connection."""
    http_client = openai.DefaultAsyncHttpx2Client(transport=Later(task.delay / 1000))
    return openai.AsyncOpenAI(api_key="key", base_url=task.base_url, max_retries=0, timeout=60, http_client=http_client)


if __name__ == "__main__":
    asyncio.run(openai_sdk.main(client_for))
