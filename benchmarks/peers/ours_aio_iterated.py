"""manystream on an asyncio loop: one task per stream, which iterates over its events."""

from __future__ import annotations

import asyncio

import manystream as ms

from .common import Recorder, read_task
from .ours import iterate, provider_for, request_for


async def main() -> None:
    task = read_task()
    recorder = Recorder(task)
    request = request_for(task)

    async with ms.open_engine([provider_for(task)], retry=ms.Retry(max_attempts=1)) as engine:
        await asyncio.gather(*(iterate(engine, request, recorder) for _ in range(task.streams)))
        recorder.report()


if __name__ == "__main__":
    asyncio.run(main())
