"""What does a turn of a long tool loop cost, over HTTP and over the WebSocket of its conversation?

One agent makes turns that each bring a tool's result. Measured: the CPU of the client's process for a turn, and what is
sent, with ours and with OpenAI's library, each over both transports, in a process of its own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

import manystream as ms
from manystream.simulator import open_simulator

from .answers import Answer
from .peers.common import raise_priority
from .runs import Run, by_turns, run_program

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
    import openai  # only the clients' environment has it

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


def answer(run: Run) -> Answer:
    """Run all clients by turns."""
    result = Answer("A turn of a long tool loop, over HTTP and over a WebSocket")
    for turns, size in LOOPS[:1] if run.quick else LOOPS:
        sent: dict[str, float] = {}
        with open_simulator() as simulator:
            raise_priority(simulator.pid)
            url = simulator.base_urls["openai-responses"]

            def milliseconds(
                mode: str, url: str = url, turns: int = turns, size: int = size, sent: dict[str, float] = sent
            ) -> float:
                arguments = (mode, url, str(turns), str(size))
                found = json.loads(run_program(run, "benchmarks.tool_loop", *arguments, seconds=120))
                sent[mode] = found["sent"]
                return float(found["cpu"])

            cpu = by_turns(run, {mode: partial(milliseconds, mode) for mode in MODES}, ROUNDS)
        where = f"{turns} turns with results of {size:,} bytes"
        for mode in MODES:
            peer = mode.replace("manystream", "openai")
            result.add(f"{where}, {mode}", cpu[mode], "ms CPU", beside=(peer, cpu[peer]) if peer != mode else None)
        for mode in MODES[1::2]:
            http = mode.replace("WebSocket", "HTTP")
            what = f"{where}, {mode}, sent"
            result.add(what, sent[mode] / 1e6, "MB", beside=(http, sent[http] / 1e6), shown="many" in mode)
    return result


def main(mode: str, url: str, turns: str, size: str) -> None:
    """Run one client."""
    raise_priority()
    websocket, result = mode.endswith("Socket"), "x" * int(size)
    if mode.startswith("many"):
        trio.run(ours, url, int(turns), result, websocket)
    else:
        asyncio.run(theirs(url, int(turns), result, websocket))


if __name__ == "__main__":
    main(*sys.argv[1:])
