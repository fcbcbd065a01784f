"""Wait in real time for a condition in another process or thread, or at a server, that raises no event here."""

import asyncio
import time
from collections.abc import Callable

import trio

LONGEST = 100.0
EVERY = 0.005


def until(condition: Callable[[], object]) -> None:
    """Poll until the condition is true. Fails after `LONGEST` seconds."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(EVERY)


async def eventually(condition: Callable[[], object]) -> None:
    """Poll until the condition is true, on asyncio or trio. Fails after `LONGEST` seconds."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline
        await pause()


async def pause() -> None:
    """Let a millisecond pass, on asyncio or trio."""
    await (trio.sleep(0.001) if trio.lowlevel.in_trio_task() else asyncio.sleep(0.001))
