"""OpenAI's library over a transport that answers at once: what the library itself costs. Unstreamed chat only."""

from __future__ import annotations

import asyncio

import httpx2
import openai

from ..wire import WIRES
from . import openai_sdk
from .common import Task

ANSWER = WIRES["chat"].answer


class AtOnce(httpx2.AsyncBaseTransport):
    """Answers each request without a socket."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=ANSWER)


def client_for(task: Task) -> openai.AsyncOpenAI:
    """Return a client that opens no connection."""
    http_client = openai.DefaultAsyncHttpx2Client(transport=AtOnce())
    return openai.AsyncOpenAI(api_key="key", base_url=task.base_url, max_retries=0, timeout=60, http_client=http_client)


if __name__ == "__main__":
    asyncio.run(openai_sdk.main(client_for))
