"""An agent with two tools that saves each message of its conversation in a store.

As a program, `python agent.py FILE CONVERSATION ORIGIN`, it loads a conversation in another process and continues it.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import trio

import manystream as ms

TOOLS = [
    ms.Tool("weather", "The weather in a city.", {"type": "object", "properties": {"city": {"type": "string"}}}),
    ms.Tool("clock", "The time in a city.", {"type": "object", "properties": {"city": {"type": "string"}}}),
]

THINK_AND_CALL_BOTH = "kind=mixed,calls=2,events=8"
"""The request for the simulator: thinking, text, then a call of each tool."""

LOST = ms.Message.assistant([ms.Text("I try once more."), ms.ToolCall("lost_1", "weather", '{"ci', complete=False)])
"""A response that is truncated inside its call: the call is never executed and has no result."""

ROUTE = [
    ("openai-responses/gpt-5.1", "And tomorrow?"), ("google/gemini-3-pro-preview", "And the day after?"),
    ("google-interactions/gemini-3-flash-preview", "And after that?"), ("openai-chat/gpt-4.1", "And next week?"),
    ("mistral/mistral-large-latest", "And next month?"),
]  # fmt: skip
"""The models with which the second process continues, in order."""


def providers(origin: str) -> list[ms.Provider]:
    """Return all providers, each at the simulator and with its first party's profile."""
    return [
        ms.Anthropic("key", origin, profile="anthropic"),
        ms.OpenAIResponses("key", f"{origin}/v1", profile="openai-responses"),
        ms.Gemini("key", origin, profile="google"),
        ms.GeminiInteractions("key", origin, profile="google-interactions"),
        ms.OpenAIChat("key", f"{origin}/v1", profile="openai-chat"),
        ms.OpenAIChat("key", f"{origin}/v1", profile="mistral"),
    ]


def weather(arguments: str) -> str:
    return f"rain, 7 degrees (asked with {arguments})"


def clock(arguments: str) -> str:
    raise RuntimeError("the clock has stopped")


RUN: dict[str, Callable[[str], str]] = {"weather": weather, "clock": clock}


class Agent:
    """An agent that saves each message as soon as it is in the conversation."""

    def __init__(self, engine: ms.Engine, store: ms.ConversationStore, id: str) -> None:
        self.engine = engine
        self.store = store
        self.id = id
        self.conversation = store.restore(id)
        self.warnings: list[str] = []

    def add(self, message: ms.Message) -> None:
        self.conversation.add(message)
        self.store.append(self.id, message)

    async def ask(self, model: str, text: str, *, stream: bool = True) -> None:
        """Send a message, and run tools until the model calls none."""
        self.add(ms.Message.user(text))
        while True:
            response = await self.answer(model, stream)
            self.warnings += response.warnings
            self.add(response.to_message())
            if not response.tool_calls:
                return
            self.add(ms.Message("tool", await self.run_tools(response.tool_calls)))

    async def answer(self, model: str, stream: bool) -> ms.Response:
        thinking = None if model.startswith(("openai-chat", "mistral")) else ms.ThinkingLevel.LOW
        request = self.conversation.request(
            model, system="Be brief.", tools=TOOLS, thinking=thinking, extra_headers={"x-simulate": THINK_AND_CALL_BOTH}
        )
        if not stream:
            return await self.engine.request(request)
        completion = await self.engine.start_stream(request).wait()
        if completion.error is not None:
            raise completion.error
        assert completion.response is not None
        return completion.response

    async def run_tools(self, calls: list[ms.ToolCall]) -> list[ms.ToolResult]:
        """Run all calls concurrently. Returns the results in the order in which they finish, not that of the calls."""
        results: list[ms.ToolResult] = []

        async def run(call: ms.ToolCall, delay: int) -> None:
            for _ in range(delay):
                await trio.lowlevel.checkpoint()
            try:
                results.append(ms.ToolResult(call.id, RUN[call.name](call.arguments)))
            except RuntimeError as error:
                results.append(ms.ToolResult(call.id, str(error), is_error=True))

        async with trio.open_nursery() as nursery:
            for place, call in enumerate(calls):
                nursery.start_soon(run, call, 3 * (len(calls) - place))
        return results


async def go_on(path: Path, id: str, origin: str) -> None:
    """Continue a fork of the conversation with each model in order."""
    with ms.ConversationStore(path) as store:
        async with ms.open_engine(providers=providers(origin)) as engine:
            agent = Agent(engine, store, store.fork(id, title="went on"))
            for stream, (model, text) in enumerate(ROUTE):
                await agent.ask(model, text, stream=bool(stream % 2))
        print(agent.id)
        print(*agent.warnings, sep="\n", file=sys.stderr)


if __name__ == "__main__":
    trio.run(go_on, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
