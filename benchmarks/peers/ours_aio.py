"""manystream on an asyncio loop: callbacks, with trio as the loop's guest."""

from __future__ import annotations

import asyncio

import manystream as ms

from .common import Recorder, read_task
from .ours import provider_for, request_for


async def main() -> None:
    task = read_task()
    recorder = Recorder(task)
    record, request = recorder.record, request_for(task)

    def on_event(event: ms.Event) -> None:
        if type(event) is ms.TextDelta:
            record(event.text)

    def on_completion(completion: ms.Completion) -> None:
        if completion.success:
            recorder.complete()
        else:
            recorder.fail(completion.error)

    async with ms.open_engine([provider_for(task)], retry=ms.Retry(max_attempts=1)) as engine:
        calls = [engine.start_stream(request, on_event, on_completion) for _ in range(task.streams)]
        await asyncio.gather(*(call.wait() for call in calls))
        recorder.report()


if __name__ == "__main__":
    asyncio.run(main())
