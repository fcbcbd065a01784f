"""Agents with a tool over manystream's asyncio door: one task per agent, which iterates over the events.

python -m benchmarks.peers.ours_agents URL AGENTS EVENTS RATE
"""

from __future__ import annotations

import asyncio

import manystream as ms

from .agents_common import DESCRIPTION, PARAMETERS, TASK, TOOL, TURNS, get_weather, read_load, run

TOOLS = [ms.Tool(TOOL, DESCRIPTION, PARAMETERS)]


async def agent(engine: ms.Engine) -> int:
    """Run one agent. Return the number of its events with content."""
    conversation = ms.Conversation([ms.Message.user(TASK)])
    events = characters = 0
    for turn in range(TURNS):
        model = "text/gpt-4o-mini" if turn == TURNS - 1 else "tool/gpt-4o-mini"
        async with engine.stream(conversation.request(model, tools=TOOLS)) as stream:
            async for event in stream:
                if isinstance(event, ms.TextDelta):
                    characters += len(event.text)
                    events += 1
                elif isinstance(event, ms.ToolCallDelta):
                    events += 1
        assert stream.completion is not None
        assert stream.completion.response is not None
        response = stream.completion.response
        conversation.add_response(response)
        results = [ms.ToolResult(call.id, await get_weather(call.arguments)) for call in response.tool_calls]
        if results:
            conversation.add(ms.Message(ms.Role.TOOL, [*results]))
    assert characters
    return events


async def main() -> None:
    load = read_load()
    providers = [
        ms.OpenAIChat("key", load.base_url, name="text"),
        ms.OpenAIChat("key", load.tool_base_url, name="tool"),
    ]
    async with ms.open_engine(providers, retry=ms.Retry(max_attempts=1)) as engine:
        await run(load, lambda: agent(engine))


if __name__ == "__main__":
    asyncio.run(main())
