"""manystream on an asyncio loop, a task per stream that iterates its events."""

from __future__ import annotations

import asyncio

import manystream as ms
from manystream.engine import aio

from .common import Recorder, read_task
from .ours import provider_for, request_for


async def main() -> None:
    task = read_task()
    recorder = Recorder(task)
    record, request = recorder.record, request_for(task)

    async with aio.open_engine([provider_for(task)], retry=ms.Retry(max_attempts=1)) as engine:

        async def read() -> None:
            try:
                async with engine.stream(request) as events:
                    async for event in events:
                        if type(event) is ms.TextDelta:
                            record(event.text)
            except ms.ProviderError as error:
                recorder.fail(error)
            else:
                recorder.complete()

        await asyncio.gather(*(read() for _ in range(task.streams)))
        recorder.report()


if __name__ == "__main__":
    asyncio.run(main())
