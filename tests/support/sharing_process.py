"""A process that shares limits with others: `python -m tests.support.sharing_process OPTIONS`, where they are JSON.

url: of the server. path: of the file. rate, budget: the options of `RateLimit` and `Budget`. calls: how many run at a
time. It prints a line when its engine is open, begins when it can read a line, and prints how many calls have succeeded
and how many were refused. It ends when a budget is spent, or when its standard input is closed. Each request has the
time at which it was sent, by a clock that all processes share, as its key.
"""

import json
import sys
import time
from typing import Any

import trio

import manystream as ms


async def run(url: str, path: str, calls: int, rate: dict[str, Any] | None, budget: dict[str, Any] | None) -> None:
    provider = ms.OpenAIChat(api_key=lambda: repr(time.monotonic()), base_url=url)
    traffic = ms.Traffic(
        rates={"*": ms.RateLimit(**rate)} if rate else {}, budgets=[ms.Budget(**budget)] if budget else [], shared=path
    )
    counts = {"succeeded": 0, "refused": 0}
    request = ms.Request("m", [ms.Message.user("hello")], max_output_tokens=10)
    async with ms.open_engine([provider], traffic=traffic, proxy="") as engine, trio.open_nursery() as nursery:
        print("open", flush=True)
        await trio.to_thread.run_sync(sys.stdin.readline)

        async def go_on() -> None:
            while True:
                try:
                    await engine.request(request)
                    counts["succeeded"] += 1
                except ms.ProviderError as error:
                    if error.category is not ms.ErrorCategory.BUDGET:
                        raise
                    counts["refused"] += 1
                    return

        async def stop() -> None:
            await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            nursery.cancel_scope.cancel()

        nursery.start_soon(stop)
        async with trio.open_nursery() as running:
            for _ in range(calls):
                running.start_soon(go_on)
        nursery.cancel_scope.cancel()
    print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    trio.run(run, options["url"], options["path"], options["calls"], options.get("rate"), options.get("budget"))
