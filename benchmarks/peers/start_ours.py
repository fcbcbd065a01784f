"""manystream's start of a call, without the network. For counting instructions, independent of time.

    python -m benchmarks.peers.start_ours STARTS [declared]

Starts calls one after the other in one iteration. Each is checked, encoded, gets its timeouts and waits for a
connection; no connection is opened. Then it cancels them. Prints the number of calls. With `declared`, traffic control
charges each call to a limit that lets it go at once, and gives back what it was charged. Without the garbage collector:
each of its passes would be in one run and not in the other, and be counted as if it were of the starts.
"""

from __future__ import annotations

import gc
import sys
from functools import partial

import trio

import manystream as ms

NOWHERE = "http://127.0.0.1:9/v1"
"""A loopback address that no call connects to: all are cancelled before the engine runs."""

WEATHER = ms.Tool(
    "get_weather", "The weather at a place.", {"type": "object", "properties": {"place": {"type": "string"}}}
)


def history() -> list[ms.Message]:
    """The second request of an agent: a question, a tool call and its result."""
    call = ms.ToolCall("call_1", "get_weather", '{"place":"Oslo"}')
    return [
        ms.Message.user("What is the weather in Oslo?"),
        ms.Message(ms.Role.ASSISTANT, [ms.Text("I look it up."), call]),
        ms.Message(ms.Role.TOOL, [ms.ToolResult("call_1", [ms.Text("sunny, 21 °C")])]),
    ]


LIMIT = ms.RateLimit(requests_per_minute=1e9)


async def main(starts: int, *, declared: bool) -> None:
    provider = ms.OpenAIChat("key", NOWHERE, name="bench")
    traffic = ms.Traffic(rates={"*": LIMIT}, adaptive=False) if declared else None
    async with ms.open_engine([provider], traffic=traffic) as engine:
        request = ms.Request("bench/gpt-4o-mini", history(), system="Answer in one sentence.", tools=[WEATHER])
        calls = [engine.start_stream(request) for _ in range(starts)]
        for call in calls:
            call.cancel()
    print(len(calls))


if __name__ == "__main__":
    gc.disable()
    trio.run(partial(main, int(sys.argv[1]), declared=sys.argv[2:] == ["declared"]))
