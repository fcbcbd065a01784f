"""Find the event loop that the calling code runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import trio

from .asyncio_backend import AsyncioBackend
from .backend import Backend
from .trio_backend import TrioBackend


class EventLoop:
    """An event loop: asyncio's, or a trio run."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop | trio.lowlevel.TrioToken) -> None:
        self._loop = loop

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EventLoop) and self._loop is other._loop

    def __hash__(self) -> int:
        return hash(self._loop)

    def __str__(self) -> str:
        on_asyncio = isinstance(self._loop, asyncio.AbstractEventLoop)
        rests = isinstance(self._loop, asyncio.AbstractEventLoop) and not self._loop.is_running()
        state = " (ended)" if self.ended else " (not running)" if rests else ""
        return f"{'asyncio loop' if on_asyncio else 'trio run'} {id(self._loop):#x}{state}"

    @property
    def ended(self) -> bool:
        """Whether nothing runs on it any more: it is closed."""
        if isinstance(self._loop, asyncio.AbstractEventLoop):
            return self._loop.is_closed()
        try:
            self._loop.run_sync_soon(_nothing)
        except trio.RunFinishedError:
            return True
        return False

    def backend(self, on_failure: Callable[[BaseException], None]) -> Backend:
        """Return a backend on this event loop, whose tasks are in the background.

        on_failure: called with an exception that ended a task.
        """
        if isinstance(self._loop, asyncio.AbstractEventLoop):
            return AsyncioBackend(self._loop, on_failure)
        return TrioBackend(on_failure=on_failure)


def running_event_loop() -> EventLoop | None:
    """Return the event loop that runs the calling task; None outside of any."""
    if trio.lowlevel.in_trio_task():
        return EventLoop(trio.lowlevel.current_trio_token())
    try:
        return EventLoop(asyncio.get_running_loop())
    except RuntimeError:
        return None


def describe(loop: object) -> str:
    """Return an asyncio loop, or the token of a trio run, as text that tells it from others."""
    return str(EventLoop(cast("asyncio.AbstractEventLoop | trio.lowlevel.TrioToken", loop)))


def _nothing() -> None:
    pass
