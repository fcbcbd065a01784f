"""manystream: many live streams, and from time to time one more on a warm connection.

    python -m benchmarks.peers.ours_starts URL STREAMS STARTS

The message of the request has its start time. The load source subtracts it from the arrival. Prints the median time of
`start_stream` (ns), which passes a request on a warm connection to the kernel.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import trio

import manystream as ms

from .common import Recorder, Task
from .ours import provider_for, request_for, streams

EVERY = 0.01
"""Seconds between two starts. The previous call has ended by then, and its connection is warm."""


async def main(url: str, live: int, starts: int) -> None:
    seconds = starts * EVERY * 1.5 + 1
    background = Task(url, live, int(50 * seconds), 50.0, "chat", 0, "stream", 0, "")
    short = replace(background, streams=1, events=1, rate=0.0)
    providers = [provider_for(background), provider_for(short, "short")]
    durations: list[int] = []
    async with ms.open_engine(providers, retry=ms.Retry(max_attempts=1)) as engine:
        streams(engine, background, Recorder(background))
        await trio.sleep(1)  # every stream is open and paced
        model = request_for(short, "short").model
        said = ms.Text("Say hello.")
        request = ms.Request(model, [ms.Message(ms.Role.USER, [said])])
        warm = engine.start_stream(request)
        await warm.wait()
        for _ in range(starts):
            await trio.sleep(EVERY)
            begin = time.monotonic_ns()
            said.text = f"started: {begin}"
            engine.start_stream(request)
            durations.append(time.monotonic_ns() - begin)
    print(sorted(durations)[starts // 2])


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
