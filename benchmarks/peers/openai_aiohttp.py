"""OpenAI's library over its aiohttp transport."""

from __future__ import annotations

import asyncio

import openai

from . import openai_sdk
from .common import Task


def client_for(task: Task) -> openai.AsyncOpenAI:
    """Return a client over the library's aiohttp transport."""
    http_client = openai.DefaultAioHttpClient()
    return openai.AsyncOpenAI(api_key="key", base_url=task.base_url, max_retries=0, timeout=60, http_client=http_client)


if __name__ == "__main__":
    asyncio.run(openai_sdk.main(client_for))
