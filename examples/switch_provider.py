"""One conversation, several providers: each turn uses the next one, and each provider sees the whole conversation.

    python examples/switch_provider.py                                                simulated
    python examples/switch_provider.py gpt-5-mini claude-sonnet-4-5 gemini-2.5-flash  real, with their keys

Signatures of thinking and encrypted reasoning stay on their block. The library sends them back to the provider that
made them, and to no other. So a conversation may return to an earlier provider.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trio

import manystream as ms
from manystream.simulator import open_simulator

WEATHER = ms.Tool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
QUESTIONS = ("What is the weather in Oslo?", "And what should I wear?", "Sum it up in five words.")
SIMULATED = ("gpt-5-mini", "claude-sonnet-4-5", "gemini-2.5-flash", "gpt-5-mini")


async def turn(engine: ms.Engine, conversation: ms.Conversation, model: str) -> ms.Response:
    """Ask one question, run its tool calls, and return the answer."""
    while True:
        response = await engine.request(conversation.request(model, tools=[WEATHER], max_output_tokens=8_000))
        conversation.add_response(response)
        if response.finish_reason is not ms.FinishReason.TOOL_USE:
            return response
        results = [ms.ToolResult(call.id, "rain, 7 °C") for call in response.tool_calls]
        conversation.add(ms.Message(ms.Role.TOOL, results))


async def run(providers: Sequence[ms.Provider], models: Sequence[str], *, simulated: bool) -> None:
    conversation = ms.Conversation()
    async with ms.open_engine(providers) as engine:
        for number, model in enumerate(models):
            question = QUESTIONS[number % len(QUESTIONS)]
            if simulated and number == 0:
                question = "simulate: kind=tools"  # makes the simulator call a tool
            conversation.add(ms.Message.user(question))
            response = await turn(engine, conversation, model)
            print(f"{model:20} saw {len(conversation):2} messages, says: {response.text[:70]}")
    asked = sum(len(message.tool_calls) for message in conversation)
    print(f"{len(conversation)} messages, {asked} tool calls, {len(models)} turns")


def main() -> None:
    parser = argparse.ArgumentParser(description="Switch the provider in mid-conversation.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a real model for each turn")
    arguments = parser.parse_args()
    if arguments.models:
        trio.run(lambda: run([ms.OpenAIChat(), ms.Anthropic(), ms.Gemini()], arguments.models, simulated=False))
        return
    with open_simulator("events=8") as simulator:
        urls = simulator.base_urls
        providers: list[ms.Provider] = [
            ms.OpenAIResponses("any", urls["openai-responses"], name="openai"),
            ms.Anthropic("any", urls["anthropic"], name="anthropic"),
            ms.Gemini("any", urls["gemini"], name="google"),
        ]
        models = [
            f"{provider.name}/{model}" for provider, model in zip([*providers, providers[0]], SIMULATED, strict=True)
        ]
        trio.run(lambda: run(providers, models, simulated=True))


if __name__ == "__main__":
    main()
