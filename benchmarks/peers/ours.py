"""manystream: one engine, one callback per event; or a task per stream that iterates over its events (`iterated`).

Beyond the other clients without a library, it has the whole dialect, four timeouts per call, accounting, isolation of
callbacks, and the final response.
"""

from __future__ import annotations

import asyncio
import time

import trio

import manystream as ms
from manystream.transport.loop import PollerLoop
from manystream.transport.tls import TLSConfig

from .common import Recorder, Task, read_task

PROVIDERS: dict[str, type[ms.Provider]] = {
    "chat": ms.OpenAIChat,
    "responses": ms.OpenAIResponses,
    "anthropic": ms.Anthropic,
    "gemini": ms.Gemini,
    "interactions": ms.GeminiInteractions,
}


def provider_for(task: Task, name: str = "bench") -> ms.Provider:
    """Return the dialect's provider at the source."""
    if task.form == "generate":
        return ms.VLLMGenerate("key", task.base_url, name=name)
    profile = "vllm" if task.form == "tokens" else None
    return PROVIDERS[task.dialect]("key", task.base_url, name=name, profile=profile)


def request_for(task: Task, name: str = "bench") -> ms.Request:
    """Return the request. The source ignores its content."""
    model = f"{name}/{task.model}"
    if task.form == "generate":
        return ms.Request(model, prompt_token_ids=[1, 2], logprobs=0)
    if task.form == "tokens":
        return ms.Request(model, "Say hello.", return_tokens=True, logprobs=0)
    return ms.Request(model, [ms.Message.user("Say hello.")])


def streams(engine: ms.Engine, task: Task, recorder: Recorder, name: str = "bench") -> list[ms.Call]:
    """Start all streams, and return their calls at once."""
    request, record = request_for(task, name), recorder.record

    def on_event(event: ms.Event) -> None:
        if type(event) is ms.TextDelta:
            record(event.text)

    def on_completion(completion: ms.Completion) -> None:
        if completion.success:
            recorder.complete()
        else:
            recorder.fail(completion.error)

    seen = on_event if task.mode in ("stream", "flood") else None
    return [engine.start_stream(request, seen, on_completion) for _ in range(task.streams)]


async def iterate(engine: ms.Engine, request: ms.Request, recorder: Recorder) -> None:
    """Iterate over the events of one stream."""
    try:
        async with engine.stream(request) as events:
            async for event in events:
                if type(event) is ms.TextDelta:
                    recorder.record(event.text)
    except ms.ProviderError as error:
        recorder.fail(error)
    else:
        recorder.complete()


async def iterate_all(engine: ms.Engine, task: Task, recorder: Recorder) -> None:
    """Iterate over all streams, with a task for each, on the loop that runs."""
    request = request_for(task)
    if task.over.startswith("asyncio"):
        await asyncio.gather(*(iterate(engine, request, recorder) for _ in range(task.streams)))
        return
    async with trio.open_nursery() as nursery:
        for _ in range(task.streams):
            nursery.start_soon(iterate, engine, request, recorder)


async def answers(engine: ms.Engine, task: Task, recorder: Recorder) -> None:
    """Keep `streams` unstreamed requests running until `events` of them have ended. On trio only."""
    request, ended = request_for(task), trio.Event()
    waiting, running = task.events - task.streams, task.streams

    def on_completion(completion: ms.Completion) -> None:
        nonlocal waiting, running
        if completion.success:
            recorder.complete()
        else:
            recorder.fail(completion.error)
        if waiting:
            waiting -= 1
            engine.start_request(request, on_completion)
        else:
            running -= 1
            if not running:
                ended.set()

    for _ in range(task.streams):
        engine.start_request(request, on_completion)
    await ended.wait()


def watch_ticks(recorder: Recorder) -> None:
    """Record every tick of the loop."""
    tick, clock = PollerLoop.tick, time.perf_counter

    def recorded(loop: PollerLoop) -> int:
        began = clock()
        served = tick(loop)
        recorder.tick(clock() - began)
        return served

    PollerLoop.tick = recorded  # type: ignore[method-assign]


async def main(task: Task) -> None:
    tls = TLSConfig(ca_file=task.ca) if task.ca else None
    recorder = Recorder(task)
    watch_ticks(recorder)
    async with ms.open_engine([provider_for(task)], tls=tls, retry=ms.Retry(max_attempts=1)) as engine:
        if task.mode == "answer":
            await answers(engine, task, recorder)
        elif task.over.endswith("iterated"):
            await iterate_all(engine, task, recorder)
        else:
            for call in streams(engine, task, recorder):
                await call.wait()
        recorder.report()


if __name__ == "__main__":
    given = read_task()
    if given.over.startswith("asyncio"):
        asyncio.run(main(given))
    else:
        trio.run(main, given)
