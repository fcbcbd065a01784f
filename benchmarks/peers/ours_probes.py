"""manystream: single calls beside live streams: `python -m benchmarks.peers.ours_probes URL KIND STREAMS CALLS`."""

from __future__ import annotations

import time

import trio

import manystream as ms

from ..probes import read_probes, report
from .common import Recorder
from .ours import provider_for, request_for, streams


async def main() -> None:
    probes = read_probes()
    latencies: list[int] = []

    def on_event(event: ms.Event) -> None:
        if type(event) is ms.TextDelta:
            latencies.append(time.monotonic_ns() - int(event.text))

    def on_completion(completion: ms.Completion) -> None:
        if completion.response is not None:
            latencies.append(time.monotonic_ns() - int(completion.response.text))

    providers = [provider_for(probes.live), provider_for(probes.call, "call")]
    request = request_for(probes.call, "call")
    async with ms.open_engine(providers, retry=ms.Retry(max_attempts=1)) as engine:
        streams(engine, probes.live, Recorder(probes.live))
        await trio.sleep(1)  # every stream is open and paced
        for _ in range(probes.calls):
            if probes.call.mode == "answer":
                call = engine.start_request(request, on_completion)
            else:
                call = engine.start_stream(request, on_event)
            await call.wait()
        report(latencies)


if __name__ == "__main__":
    trio.run(main)
