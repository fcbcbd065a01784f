"""The first answer wins: several models get one question, and the other calls are cancelled.

    python examples/race.py                                                  three simulated providers
    python examples/race.py --model gpt-5-mini --model claude-sonnet-4-5     real ones, with their keys

The engine closes the socket of a cancelled call at once. A failure does not end the race.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import trio

import manystream as ms
from manystream.simulator import open_simulator

SIMULATED_DELAYS = {"openai-chat/slow": "delay=5", "anthropic/quick": "delay=0.1", "google/broken": "fail=401"}
"""Simulated model → the options of the simulator."""


async def race(engine: ms.Engine, requests: Sequence[ms.Request]) -> tuple[str, ms.Response]:
    """Return the first answer and its model. Raises the last `ProviderError` if all calls fail."""
    calls: dict[ms.Call, str] = {}

    def ended(completion: ms.Completion) -> None:
        if completion.success:
            for call in calls:
                call.cancel()  # has no effect on a call that has ended

    for request in requests:
        calls[engine.start_request(request, ended)] = request.model
    winner: tuple[str, ms.Response] | None = None
    failure: ms.ProviderError | None = None
    for call, model in calls.items():
        completion = await call.wait()
        how = "won" if completion.error is None and winner is None else completion.error_category
        print(f"{model:20} {how}, after {completion.timings.finished:.2f} s")
        if completion.error is None and completion.response is not None:
            winner = winner or (model, completion.response)
        elif completion.error is not None:
            failure = completion.error
    if winner is None:
        raise failure or ValueError("a race needs a model")
    return winner


async def run(providers: Sequence[ms.Provider], requests: Sequence[ms.Request]) -> None:
    async with ms.open_engine(providers) as engine:
        model, response = await race(engine, requests)
        print(f"\n{model} answers: {response.text}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask several models; the first answer wins.")
    parser.add_argument("--model", action="append", default=[], help="a real model; give several")
    parser.add_argument("question", nargs="?", default="Name a river in one word.")
    arguments = parser.parse_args()
    messages = [ms.Message.user(arguments.question)]
    if arguments.model:
        requests = [ms.Request(model, messages) for model in arguments.model]
        trio.run(run, [ms.OpenAIChat(), ms.Anthropic(), ms.Gemini()], requests)
        return
    with open_simulator() as simulator:
        urls = simulator.base_urls
        providers: list[ms.Provider] = [
            ms.OpenAIChat("any", urls["openai-chat"], name="openai-chat"),
            ms.Anthropic("any", urls["anthropic"], name="anthropic"),
            ms.Gemini("any", urls["gemini"], name="google"),
        ]
        requests = [
            ms.Request(model, messages, extra_headers={"x-simulate": knobs})
            for model, knobs in SIMULATED_DELAYS.items()
        ]
        trio.run(run, providers, requests)


if __name__ == "__main__":
    main()
