"""manystream: live streams, then many calls at once, each on a new TLS connection.

    python -m benchmarks.peers.ours_handshakes PLAIN_URL TLS_URL CA STREAMS CALLS

Prints the latencies of the live streams while the calls start.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import trio

import manystream as ms
from manystream.transport.tls import TLSConfig

from .common import Recorder, Task, raise_priority
from .ours import provider_for, request_for, streams

SECONDS = 8


async def main(plain: str, tls: str, ca: str, live: int, calls: int) -> None:
    raise_priority()
    background = Task(plain, live, 50 * SECONDS, 50.0, "chat", 0, "stream", 0, ca)
    burst = replace(background, url=tls, streams=calls, events=1, rate=1.0)
    recorder, unwatched = Recorder(background), Recorder(burst)
    providers = [provider_for(background), provider_for(burst, "burst")]
    async with ms.open_engine(providers, tls=TLSConfig(ca_file=ca), retry=ms.Retry(max_attempts=1)) as engine:
        streams(engine, background, recorder)
        first = engine.start_request(request_for(burst, "burst"))  # make the TLS context, which takes time
        await trio.sleep(1)
        first.cancel()
        before = len(recorder.latencies)
        for call in streams(engine, burst, unwatched, "burst"):
            await call.wait()
        during = recorder.latencies[before:]
    print(
        json.dumps(
            {
                "completed": unwatched.completed,
                "max_ms": max(during, default=0) / 1e6,
                "p99_ms": sorted(during)[len(during) * 99 // 100] / 1e6 if during else 0,
                "events": len(during),
                "failures": unwatched.failures,
            }
        )
    )


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
