"""OpenAI's library, asynchronous, as in its documentation. Chat and Responses."""

from __future__ import annotations

import asyncio

import openai

from .common import Recorder, Task, read_task
from .over import http_client


def client_for(task: Task) -> openai.AsyncOpenAI:
    client = http_client(openai, task)
    return openai.AsyncOpenAI(api_key="key", base_url=task.base_url, max_retries=0, timeout=60, http_client=client)


async def chat(client: openai.AsyncOpenAI, task: Task, recorder: Recorder) -> None:
    stream = await client.chat.completions.create(
        model=task.model,
        messages=[{"role": "user", "content": "Say hello."}],
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            recorder.record(chunk.choices[0].delta.content)
    recorder.complete()


async def responses(client: openai.AsyncOpenAI, task: Task, recorder: Recorder) -> None:
    stream = await client.responses.create(model=task.model, input="Say hello.", stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            recorder.record(event.delta)
        elif event.type == "response.completed":
            recorder.complete()


async def answers(client: openai.AsyncOpenAI, task: Task, recorder: Recorder) -> None:
    """Run one of the workers that share the unstreamed requests."""
    for _ in range(task.events // task.streams):
        await client.chat.completions.create(model=task.model, messages=[{"role": "user", "content": "Say hello."}])
        recorder.complete()


async def main() -> None:
    task = read_task()
    client = client_for(task)
    work = answers if task.mode == "answer" else {"chat": chat, "responses": responses}[task.dialect]

    async def one() -> None:
        try:
            await work(client, task, recorder)
        except (openai.OpenAIError, OSError) as error:
            recorder.fail(error)

    warm = task.warm_up()
    await work(client_for(warm), warm, Recorder(warm))
    recorder = Recorder(task)
    await asyncio.gather(*(one() for _ in range(task.streams)))
    recorder.report()


if __name__ == "__main__":
    asyncio.run(main())
