"""Functions that run an asyncio program in a test: with a time limit, and without unreported errors."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable

import manystream as ms
from tests.support.waiting import LONGEST

ENDLESS = "events=100000,rate=100"
"""The simulator's knobs for a stream that no test waits for."""


def ask(knobs: str = "") -> ms.Request:
    return ms.Request(f"sim/sim-text@{knobs}", [ms.Message.user("hello")])


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run `main` with `asyncio.run` and a time limit. An exception that only the loop's handler sees fails the test."""
    unseen: list[dict[str, object]] = []

    async def bounded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        async with asyncio.timeout(LONGEST):
            await main()

    asyncio.run(bounded())
    gc.collect()
    assert unseen == []
