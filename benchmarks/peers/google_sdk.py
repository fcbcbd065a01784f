"""Google's library for Gemini, asynchronous."""

from __future__ import annotations

import asyncio
import os

import httpx2
from google import genai
from google.genai import errors, types

from .common import Recorder, Task, read_task
from .over import transport_of


async def one(client: genai.Client, task: Task, recorder: Recorder) -> None:
    try:
        stream = await client.aio.models.generate_content_stream(model=task.model, contents="Say hello.")
        async for chunk in stream:
            if chunk.text:
                recorder.record(chunk.text)
        recorder.complete()
    except (errors.APIError, OSError) as error:
        recorder.fail(error)


def client_for(task: Task) -> genai.Client:
    """Return the library in its default form. It reads the certificate authority from the environment."""
    if task.ca:
        os.environ["SSL_CERT_FILE"] = task.ca
    over = transport_of(task)
    client = httpx2.AsyncClient(transport=over, timeout=60) if over else None
    options = types.HttpOptions(base_url=task.base_url, api_version="v1beta", timeout=60_000, httpx_async_client=client)
    return genai.Client(api_key="key", http_options=options)


async def main() -> None:
    task = read_task()
    warm = task.warm_up()
    await one(client_for(warm), warm, Recorder(warm))
    client, recorder = client_for(task), Recorder(task)
    await asyncio.gather(*(one(client, task, recorder) for _ in range(task.streams)))
    recorder.report()


if __name__ == "__main__":
    asyncio.run(main())
