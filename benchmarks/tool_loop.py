"""What does a turn of a long tool loop cost, over HTTP and over the WebSocket of its conversation?

One agent makes turns that each bring a tool's result. Measured: the CPU of the client's process for a turn, and what is
sent, with ours and with OpenAI's library, each over both transports, in a process of its own.

`python -m benchmarks.tool_loop [TURNS SIZE]` prints the figures and the ratios. It is no question of the set.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import trio

import manystream as ms
from manystream.simulator import open_simulator

MODES = ("manystream HTTP", "manystream WebSocket", "openai HTTP", "openai WebSocket")
LOOPS = ((40, 6_000), (60, 20_000))
SYSTEM = "You are a coding agent. " * 200
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
QUESTION = "simulate: kind=tools,calls=1,steps=1000,events=20"
WARM = 3
ROUNDS = 3


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def report(turns: int, before: float, sent: int) -> None:
    print(json.dumps({"cpu": (cpu() - before) / turns * 1e3, "sent": sent}), flush=True)


async def ours(url: str, turns: int, result: str, websocket: bool) -> None:
    """Run the loop with manystream: a few turns to warm up, then those that count."""
    tool = ms.Tool("read_file", "Read a file.", PARAMETERS)
    provider = ms.OpenAIResponses("k", url, websocket=websocket)

    async with ms.open_engine([provider]) as engine:
        for count in (WARM, turns):
            talk, before, sent = ms.Conversation([ms.Message.user(QUESTION)]), cpu(), engine.statistics().bytes_sent
            for _ in range(count):
                events: list[ms.Event] = []
                request = talk.request("gpt-5", system=SYSTEM, tools=[tool])
                completion = await engine.start_stream(request, events.append).wait()
                assert completion.transport == ("websocket" if websocket else "http")
                talk.add_response(completion.response_or_raise())
                for call in completion.response_or_raise().tool_calls:
                    talk.add(ms.Message.tool_result(call.id, result))
            if count == turns:
                report(turns, before, engine.statistics().bytes_sent - sent)
            gc.collect()


async def theirs(url: str, turns: int, result: str, websocket: bool) -> None:
    """Run the loop with OpenAI's library."""
    client = openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0)
    tool = {"type": "function", "name": "read_file", "description": "", "parameters": PARAMETERS, "strict": False}
    common: Any = {"model": "gpt-5", "instructions": SYSTEM, "store": False, "tools": [tool]}

    async def over_http(history: list[Any], new: list[Any], previous: str | None) -> Any:
        response = None
        async for event in await client.responses.create(**common, input=history, stream=True):
            response = event.response if event.type == "response.completed" else response
        return response

    async def loop(count: int, ask: Callable[[list[Any], list[Any], str | None], Awaitable[Any]]) -> int:
        history: list[Any] = [{"role": "user", "content": QUESTION}]
        new, previous, sent = history, None, 0
        for _ in range(count):
            response = await ask(history, new, previous)
            sent += len(json.dumps({**common, "input": new if websocket else history}))
            previous = response.id
            outputs = [{"type": "function_call_output", "call_id": each.call_id, "output": result}
                       for each in response.output if each.type == "function_call"]  # fmt: skip
            history, new = [*history, *(each.to_dict() for each in response.output), *outputs], outputs
        return sent

    for count in (WARM, turns):
        before = cpu()
        if websocket:
            async with client.responses.connect(websocket_connection_options={"max_size": None}) as connection:

                async def over_socket(
                    history: list[Any], new: list[Any], previous: str | None, connection: Any = connection
                ) -> Any:
                    more = {} if previous is None else {"previous_response_id": previous}
                    await connection.send({"type": "response.create", **common, "input": new, **more})
                    while (event := await connection.recv()).type != "response.completed":
                        assert event.type != "error", event
                    return event.response

                sent = await loop(count, over_socket)
        else:
            sent = await loop(count, over_http)
        if count == turns:
            report(turns, before, sent)
        gc.collect()


def main(arguments: list[str]) -> None:
    """Run all clients, or in a process of its own one of them."""
    if arguments and arguments[0] in MODES:
        mode, url, turns, size = arguments
        run, websocket = (ours if mode.startswith("many") else theirs), mode.endswith("Socket")
        if run is ours:
            trio.run(ours, url, int(turns), "x" * int(size), websocket)
        else:
            asyncio.run(theirs(url, int(turns), "x" * int(size), websocket))
        return
    for turns, size in [(int(arguments[0]), int(arguments[1]))] if arguments else LOOPS:
        found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
        with open_simulator() as simulator:
            for mode in MODES * ROUNDS:
                command = [sys.executable, "-m", "benchmarks.tool_loop", mode, simulator.base_urls["openai-responses"]]
                lines = subprocess.run([*command, str(turns), str(size)], capture_output=True, check=True).stdout
                found[mode].append(json.loads(lines))
        print(f"{turns} turns with results of {size} bytes; the least CPU of {ROUNDS} runs")
        http = min(each["cpu"] for each in found[MODES[0]])
        sdk = min(each["cpu"] for each in found[MODES[3]])
        for mode, runs in found.items():
            used, sent = min(each["cpu"] for each in runs), runs[0]["sent"]
            ratios = f"{used / http:.2f} × our HTTP, {used / sdk:.2f} × openai's WebSocket"
            share = sent / found[MODES[0]][0]["sent"]
            print(f"  {mode:21} {used:7.2f} ms of CPU a turn ({ratios}), {sent / 1e6:6.2f} MB sent ({share:.3f})")


if __name__ == "__main__":
    main(sys.argv[1:])
