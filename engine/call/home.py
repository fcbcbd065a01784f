"""Where an engine lives: the process, the thread and the event loop in which it was opened."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Final

from ..request.errors import EngineClosedError

FORKED: Final = "this engine was opened in another process: open one after the fork"
ELSEWHERE: Final = "open an engine there, or use engine.from_thread there"
"""What a program does on another event loop or thread."""


class Home:
    """The process, the thread and the event loop of one engine. An engine that is used elsewhere would wait forever.

    loop: the event loop: a trio run's token, or an asyncio loop.
    context: the context variables of the code that opened the engine. The engine's own tasks have the same.
    thread: the id of the thread.
    """

    __slots__ = ("_current", "_process", "_thread_name", "context", "loop", "thread")

    def __init__(self, current: Callable[[], object]) -> None:
        """Take the event loop that runs here and now.

        current: returns the running event loop of this kind. Raises `RuntimeError` where none runs.
        """
        self._current = current
        self.loop: object = current()
        self.context: Context = copy_context()
        self._process = os.getpid()
        self.thread: int = threading.get_ident()
        self._thread_name = threading.current_thread().name

    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the engine's."""
        return os.getpid() != self._process

    def check(self, hint: str = ELSEWHERE) -> None:
        """Raise `EngineClosedError` in a forked process, on another event loop and on another thread.

        hint: what a program does there instead, for the error.
        """
        if os.getpid() != self._process:
            raise EngineClosedError(FORKED)
        try:
            if self._current() is self.loop:
                return
        except RuntimeError:
            if threading.get_ident() == self.thread:
                return  # plain code between two runs of the event loop
        raise EngineClosedError(self._elsewhere(hint))

    def _elsewhere(self, hint: str) -> str:
        from ...transport.running import EventLoop, running_event_loop

        here, thread = running_event_loop(), threading.current_thread().name
        where = f"on {here} of thread {thread!r}" if here else f"in thread {thread!r} without an event loop"
        own = f"{EventLoop.of(self.loop)} of thread {self._thread_name!r}"
        return f"this engine belongs to {own}, and was used {where}: {hint}"
