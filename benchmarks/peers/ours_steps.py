"""manystream in lockstep with the load source. For counting instructions, independent of time.

    python -m benchmarks.peers.ours_steps URL STREAMS STEPS [FORM]

In each step the source sends once on every stream and then answers. The engine runs after that. So every step finds the
same number of ready sockets. FORM is a wire form; see `FORMS` in source/load.py.
"""

from __future__ import annotations

import sys

import trio

import manystream as ms

from .steps import Steps


async def main(steps: Steps) -> None:
    count = steps.streams
    per_step = count * steps.events
    seen = started = 0
    arrived = trio.Event()

    def on_event(event: ms.Event) -> None:
        nonlocal seen
        if type(event) is ms.TextDelta:
            seen += 1
            if seen % per_step == 0:
                arrived.set()

    def on_completion(completion: ms.Completion) -> None:
        if completion.error_category is not ms.ErrorCategory.CANCELLED:
            sys.exit(f"a stream ended early: {completion.error or 'a whole answer'}")  # the steps would wait for it

    provider = ms.OpenAIChat("key", steps.base_url, name="bench")
    clocks = ms.Timeouts(connect=300, first_byte=300, idle=300)  # an emulated processor is slow
    async with ms.open_engine([provider], timeouts=clocks) as engine:
        request = ms.Request("bench/gpt-4o-mini", [ms.Message.user("Say hello.")])
        calls = [engine.start_stream(request, on_event, on_completion) for _ in range(count)]
        while started < count:
            await trio.sleep(0.05)
            started = sum(call.state.value == "reading" for call in calls)
        for _ in range(steps.count):
            arrived = trio.Event()
            steps.step()
            await arrived.wait()  # sleep: polling would depend on time
    print(seen)


if __name__ == "__main__":
    trio.run(main, Steps(*sys.argv[1:]))
