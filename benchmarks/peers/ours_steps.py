"""manystream in lockstep with the load source. For counting instructions, independent of time.

    python -m benchmarks.peers.ours_steps URL STREAMS STEPS

In each step the source sends one event on every stream and then answers. The engine runs after that. So every step
finds the same number of ready sockets.
"""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit

import trio

import manystream as ms

from ..source.load import load_path


async def main(url: str, count: int, steps: int) -> None:
    address = urlsplit(url)
    control = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)

    def step() -> None:
        control.request("GET", "/step")
        control.getresponse().read()

    seen = started = 0
    arrived = trio.Event()

    def on_event(event: ms.Event) -> None:
        nonlocal seen
        if type(event) is ms.TextDelta:
            seen += 1
            if seen % count == 0:
                arrived.set()

    provider = ms.OpenAIChat("key", url + load_path(mode="step", events=steps + 2) + "/v1", name="bench")
    clocks = ms.Timeouts(connect=300, first_byte=300, idle=300)  # an emulated processor is slow
    async with ms.open_engine([provider], timeouts=clocks) as engine:
        request = ms.Request("bench/gpt-4o-mini", [ms.Message.user("Say hello.")])
        calls = [engine.start_stream(request, on_event) for _ in range(count)]
        while started < count:
            await trio.sleep(0.05)
            started = sum(call.state.value == "reading" for call in calls)
        for _ in range(steps):
            arrived = trio.Event()
            step()
            await arrived.wait()  # sleep: polling would depend on time
    print(seen)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
