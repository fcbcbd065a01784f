"""An asyncio program with many model calls: the engine runs on the program's own loop.

    python examples/asyncio_app.py                              simulated
    python examples/asyncio_app.py --model claude-sonnet-4-5    a real model, with its key

Tasks await answers, a callback receives each event of a stream, and an asyncio timeout cancels its call.
"""

from __future__ import annotations

import argparse
import asyncio

from setting import Setting, add_arguments, open_setting

import manystream as ms

QUESTIONS = [f"Name {count} rivers." for count in range(1, 6)]


async def ask_all(engine: ms.Engine, model: str) -> None:
    """Await several requests, with one task each."""
    requests = [ms.Request(model, [ms.Message.user(question)]) for question in QUESTIONS]
    responses = await asyncio.gather(*(engine.request(request) for request in requests))
    print(f"{len(responses)} answers, {sum(response.usage.output_tokens or 0 for response in responses)} tokens")


async def read_stream(engine: ms.Engine, model: str) -> None:
    """Iterate over a stream. A slow consumer slows down its own server only."""
    async with engine.stream(ms.Request(model, [ms.Message.user("Name three rivers.")])) as events:
        async for event in events:
            if isinstance(event, ms.TextDelta):
                print(event.text, end="", flush=True)
    print()


async def watch_streams(engine: ms.Engine, model: str) -> None:
    """Use callbacks, which need no task. They run on this thread, directly after the read of the socket."""
    pieces = 0

    def on_event(event: ms.Event) -> None:
        nonlocal pieces
        pieces += isinstance(event, ms.TextDelta)

    request = ms.Request(model, [ms.Message.user("Name three bridges.")])
    calls = [engine.start_stream(request, on_event) for _ in range(20)]
    await asyncio.gather(*(call.wait() for call in calls))
    print(f"{pieces} pieces of text from {len(calls)} streams")


async def give_up(engine: ms.Engine, model: str) -> None:
    """Cancel a task. This cancels its call."""
    try:
        async with asyncio.timeout(0.05):
            await engine.request(ms.Request(model, [ms.Message.user("simulate: delay=60")]))
    except TimeoutError:
        print("gave up after 50 ms")


async def run(setting: Setting) -> None:
    async with ms.open_engine(setting.providers) as engine:
        await ask_all(engine, setting.model)
        await read_stream(engine, setting.model)
        await watch_streams(engine, setting.model)
        await give_up(engine, setting.model)
        await asyncio.sleep(0.01)  # a cancelled call is counted at the loop's next turn
        statistics = engine.statistics()
        print(f"{statistics.started} calls, {statistics.cancelled} cancelled, {statistics.opened} connections opened")


def main() -> None:
    parser = argparse.ArgumentParser(description="Many calls on an asyncio loop.")
    add_arguments(parser)
    with open_setting(parser.parse_args(), "events=8") as setting:
        asyncio.run(run(setting))


if __name__ == "__main__":
    main()
