"""Agents with a tool over OpenAI's library, asynchronous and streamed, as in its documentation.

python -m benchmarks.peers.openai_agents URL AGENTS EVENTS RATE
"""

from __future__ import annotations

import asyncio
from typing import Any

import openai

from .agents_common import DESCRIPTION, PARAMETERS, TASK, TOOL, TURNS, get_weather, read_load, run

TOOLS: Any = [{"type": "function", "function": {"name": TOOL, "description": DESCRIPTION, "parameters": PARAMETERS}}]


async def agent(text: openai.AsyncOpenAI, tool: openai.AsyncOpenAI) -> int:
    """Run one agent. Return the number of its events with content."""
    messages: list[Any] = [{"role": "user", "content": TASK}]
    events = characters = 0
    for turn in range(TURNS):
        client = text if turn == TURNS - 1 else tool
        stream = await client.chat.completions.create(
            model="gpt-4o-mini", messages=messages, tools=TOOLS, stream=True, stream_options={"include_usage": True}
        )
        content: list[str] = []
        calls: dict[int, dict[str, Any]] = {}
        async for chunk in stream:
            delta = chunk.choices[0].delta if chunk.choices else None
            if delta is None:
                continue
            if delta.content:
                content.append(delta.content)
                events += 1
            for part in delta.tool_calls or ():
                call = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": []})
                if part.function is not None:
                    call["name"] += part.function.name or ""
                    if part.function.arguments:
                        call["arguments"].append(part.function.arguments)
                        events += 1
        characters += len("".join(content))
        requested = [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": "".join(call["arguments"])},
            }
            for call in calls.values()
        ]
        if not requested:
            messages.append({"role": "assistant", "content": "".join(content)})
            continue
        messages.append({"role": "assistant", "content": "".join(content) or None, "tool_calls": requested})
        for request in requested:
            result = await get_weather(request["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": request["id"], "content": result})
    assert characters
    return events


async def main() -> None:
    load = read_load()
    text = openai.AsyncOpenAI(api_key="key", base_url=load.base_url, max_retries=0, timeout=120)
    tool = text.with_options(base_url=load.tool_base_url)
    await run(load, lambda: agent(text, tool))


if __name__ == "__main__":
    asyncio.run(main())
