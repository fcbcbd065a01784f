"""Anthropic's library, asynchronous, with the raw event stream, which is its cheaper form."""

from __future__ import annotations

import asyncio

import anthropic

from .common import Recorder, Task, read_task
from .over import http_client


async def one(client: anthropic.AsyncAnthropic, task: Task, recorder: Recorder) -> None:
    try:
        stream = await client.messages.create(
            model=task.model, max_tokens=1024, messages=[{"role": "user", "content": "Say hello."}], stream=True
        )
        async for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                recorder.record(event.delta.text)
            elif event.type == "message_stop":
                recorder.complete()
    except (anthropic.AnthropicError, OSError) as error:
        recorder.fail(error)


def client_for(task: Task) -> anthropic.AsyncAnthropic:
    client = http_client(anthropic, task)
    return anthropic.AsyncAnthropic(
        api_key="key", base_url=task.base_url, max_retries=0, timeout=60, http_client=client
    )


async def main() -> None:
    task = read_task()
    warm = task.warm_up()
    await one(client_for(warm), warm, Recorder(warm))
    client, recorder = client_for(task), Recorder(task)
    await asyncio.gather(*(one(client, task, recorder) for _ in range(task.streams)))
    recorder.report()


if __name__ == "__main__":
    asyncio.run(main())
