"""aiohttp with a hand-written loop over server-sent events, and orjson. It finds the text and has no dialect."""

from __future__ import annotations

import asyncio
from array import array
from functools import partial
from typing import Any

import aiohttp
import orjson

from ..source.load import TOKEN_FORMS
from .common import LAST_LINES, TEXT_OF, Lines, Recorder, Task, read_task

HEADERS = {"content-type": "application/json", "authorization": "Bearer key"}


def take_tokens(ids: array[int], logprobs: array[float], event: Any) -> str | None:
    """Append the ids and log probabilities of an event. Returns its text."""
    for choice in event["choices"]:
        ids.extend(choice.get("token_ids") or ())
        if choice["logprobs"]:
            logprobs.extend(entry["logprob"] for entry in choice["logprobs"]["content"])
        return choice["text"] if "text" in choice else choice["delta"].get("content")
    return None


async def stream(session: aiohttp.ClientSession, task: Task, recorder: Recorder) -> None:
    text_of, last = TEXT_OF[task.dialect], LAST_LINES[task.dialect]
    if task.form in TOKEN_FORMS:
        text_of = partial(take_tokens, array("q"), array("d"))
    lines, ended = Lines(), False
    async with session.post(task.base_url + task.path, data=task.body, headers=HEADERS) as response:
        async for chunk in response.content.iter_any():
            for line in lines.feed(chunk):
                if line.startswith(b"data: {"):
                    text = text_of(orjson.loads(line[6:]))
                    if text:
                        recorder.record(text)
                    if line.startswith(last):
                        ended = True
                elif line == last:
                    ended = True
    if ended:
        recorder.complete()


async def answers(session: aiohttp.ClientSession, task: Task, recorder: Recorder) -> None:
    """Run one of the workers that share the unstreamed requests."""
    for _ in range(task.events // task.streams):
        async with session.post(task.base_url + task.path, data=task.body, headers=HEADERS) as response:
            orjson.loads(await response.read())
        recorder.complete()


async def main() -> None:
    task = read_task()
    context = task.ssl_context()
    work = answers if task.mode == "answer" else stream
    connector = aiohttp.TCPConnector(limit=0, ssl=context) if context else aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        recorder = Recorder(task)

        async def one() -> None:
            try:
                await work(session, task, recorder)
            except (aiohttp.ClientError, OSError) as error:
                recorder.fail(error)

        await asyncio.gather(*(one() for _ in range(task.streams)))
        recorder.report()


if __name__ == "__main__":
    asyncio.run(main())
