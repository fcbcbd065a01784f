"""Where an engine lives: the process, the thread and the event loop in which it was opened."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context, copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ..request.errors import EngineClosedError, refuse_await

Calls = TypeVar("Calls")
Opened = TypeVar("Opened")

FORKED: Final = "this engine was opened in another process: open one after the fork"


class Home:
    """The process, the thread and the event loop of one engine. An engine that is used elsewhere would wait forever.

    loop: the event loop: a trio run's token, or an asyncio loop.
    context: the context variables of the code that opened the engine. The engine's own tasks have the same.
    """

    __slots__ = ("_current", "_hint", "_process", "_thread", "_thread_name", "context", "loop")

    def __init__(self, current: Callable[[], object], hint: str) -> None:
        """Take the event loop that runs here and now.

        current: returns the running event loop of this kind. Raises `RuntimeError` where none runs.
        hint: what a program does elsewhere instead, for the error.
        """
        self._current = current
        self._hint = hint
        self.loop: object = current()
        self.context: Context = copy_context()
        self._process = os.getpid()
        self._thread = threading.get_ident()
        self._thread_name = threading.current_thread().name

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the engine's."""
        return os.getpid() != self._process

    def check(self) -> None:
        """Raise `EngineClosedError` in a forked process, on another event loop and on another thread."""
        if os.getpid() != self._process:
            raise EngineClosedError(FORKED)
        try:
            if self._current() is self.loop:
                return
        except RuntimeError:
            if threading.get_ident() == self._thread:
                return  # plain code between two runs of the event loop
        raise EngineClosedError(self._elsewhere())

    def _elsewhere(self) -> str:
        from ...transport.running import describe, running_event_loop

        here, thread = running_event_loop(), threading.current_thread().name
        where = f"on {here} of thread {thread!r}" if here else f"in thread {thread!r} without an event loop"
        own = f"{describe(self.loop)} of thread {self._thread_name!r}"
        return f"this engine belongs to {own}, and was used {where}: {self._hint}"


class EngineBlock(AbstractAsyncContextManager[Opened], Generic[Calls, Opened]):
    """The block of `open_engine`: one that yields an engine's calls, for which `make_engine` makes the engine.

    It must be left where it was entered.
    """

    if not TYPE_CHECKING:
        __await__ = refuse_await("open_engine is not awaited; write: async with open_engine(…) as engine:")

    def __init__(
        self,
        block: AbstractAsyncContextManager[Calls],
        make_engine: Callable[[Calls], Opened],
        current: Callable[[], object],
    ) -> None:
        self._block = block
        self._make_engine = make_engine
        self._current = current

    async def __aenter__(self) -> Opened:
        calls = await self._block.__aenter__()
        self._home = Home(self._current, "leave the block of open_engine on the event loop on which it was entered")
        return self._make_engine(calls)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if not self._home.is_forked:
            self._home.check()
        return await self._block.__aexit__(kind, error, trace)
