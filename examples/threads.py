"""Synchronous code: threads wait for their answers, and one thread runs every call.

    python examples/threads.py                              simulated
    python examples/threads.py --model claude-sonnet-4-5    a real model, with its key

`open_portal` runs the engine in a thread of its own, for programs without an event loop. The worker threads of a trio
program use `engine.from_thread` instead. The second half shows it.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import trio
from setting import Setting, add_arguments, open_setting

import manystream as ms
from manystream.portal import Portal, open_portal

QUESTIONS = [f"Name {count} rivers." for count in range(1, 9)]


def ask(portal: Portal, model: str, question: str) -> int:
    """Ask a question. Block this thread until the answer has arrived."""
    response = portal.request(ms.Request(model, [ms.Message.user(question)]))
    return len(response.text)


def without_a_loop(setting: Setting) -> None:
    with open_portal(setting.providers) as portal:
        with ThreadPoolExecutor(4) as pool:
            lengths = list(pool.map(partial(ask, portal, setting.model), QUESTIONS))
        print(f"{len(lengths)} answers from 4 threads, {sum(lengths)} characters")

        with portal.stream(ms.Request(setting.model, [ms.Message.user("Name three rivers.")])) as events:
            for event in events:
                if isinstance(event, ms.TextDelta):
                    print(event.text, end="", flush=True)
        print()

        # A call needs no thread of its own: start all calls, then wait for each.
        requests = [ms.Request(setting.model, [ms.Message.user(question)]) for question in QUESTIONS]
        calls = [portal.start_request(request) for request in requests]
        completions = [call.wait(timeout=60) for call in calls]
        print(f"{sum(completion.success for completion in completions)} of {len(calls)} answers from one thread")


async def beside_trio(setting: Setting) -> None:
    request = ms.Request(setting.model, [ms.Message.user("Name a river.")])
    async with ms.open_engine(setting.providers) as engine:
        response = await trio.to_thread.run_sync(engine.from_thread.request, request)
        print(f"a worker thread of a trio program got {len(response.text)} characters")


def main() -> None:
    parser = argparse.ArgumentParser(description="Calls from threads.")
    add_arguments(parser)
    with open_setting(parser.parse_args(), "events=8") as setting:
        without_a_loop(setting)
        trio.run(beside_trio, setting)


if __name__ == "__main__":
    main()
