"""A chat in the terminal: shows the answer as it arrives. Ctrl-C stops the answer and not the chat.

    python examples/chat.py                              with the simulator
    python examples/chat.py --model claude-sonnet-4-5    with a key in ANTHROPIC_API_KEY

An empty line, /quit or the end of the input ends it.
"""

from __future__ import annotations

import argparse
import signal
import sys

import trio
from setting import Setting, add_arguments, open_setting

import manystream as ms

DIM, PLAIN = ("\x1b[2m", "\x1b[0m") if sys.stdout.isatty() else ("", "")


def show(event: ms.Event) -> None:
    """Write an event to the terminal as it arrives."""
    if isinstance(event, ms.ThinkingDelta):
        print(f"{DIM}{event.text}{PLAIN}", end="", flush=True)
    elif isinstance(event, ms.TextDelta):
        print(event.text, end="", flush=True)


async def answer(engine: ms.Engine, request: ms.Request) -> ms.Completion:
    """Stream one answer. Ctrl-C cancels it and keeps the part that has arrived."""
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        call = engine.start_stream(request, show)

        async def cancel_on_ctrl_c() -> None:
            async for _ in signals:
                call.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_on_ctrl_c)
            completion = await call.wait()
            nursery.cancel_scope.cancel()
    return completion


async def chat(setting: Setting, system: str | None) -> None:
    """Ask and answer until the input ends."""
    conversation = ms.Conversation()
    lines = trio.wrap_file(sys.stdin)
    async with ms.open_engine(setting.providers) as engine:
        while True:
            print("\n> ", end="", flush=True)
            question = (await lines.readline()).strip()
            if question in ("", "/quit"):
                return
            conversation.add(ms.Message.user(question))
            completion = await answer(engine, conversation.request(setting.model, system=system))
            response, error = completion.response, completion.error
            if response is not None and response.content:
                conversation.add_response(response)  # a cancelled answer, too, so that the model knows its own words
            if error is None and response is not None:
                print(f"\n{DIM}[{response.usage.output_tokens} tokens]{PLAIN}")
            elif error is not None:
                print(f"\n{DIM}[{error.category}: {error.message}]{PLAIN}")
                if response is None or not response.content:
                    conversation.messages.pop()  # do not keep a question without an answer


def main() -> None:
    parser = argparse.ArgumentParser(description="Chat with a model in the terminal.")
    add_arguments(parser)
    parser.add_argument("--system", help="the system prompt")
    arguments = parser.parse_args()
    with open_setting(arguments, "kind=thinking,rate=100") as setting:
        trio.run(chat, setting, arguments.system)


if __name__ == "__main__":
    main()
