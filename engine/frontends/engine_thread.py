"""Run functions on an engine's thread from other threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...transport.running import EventLoop, EventLoopEndedError
from ..call.home import Home
from ..request.errors import EngineClosedError

Result = TypeVar("Result")

CLOSED = "this portal is closed: the block of its engine was left"
ENDING = "the program is ending, and the thread of this portal has stopped: end the portal's block before that"
FORKED = "this portal was opened in another process: open one after the fork"


class EngineThread:
    """Runs functions on the thread in which an engine lives."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._event_loop = EventLoop.of(home.loop)

    @property
    def is_running(self) -> bool:
        """Whether the thread can run: a fork copies no threads, and a daemon thread stops when Python ends."""
        return not self._home.is_forked and not sys.is_finalizing()

    def soon(self, function: Callable[[], None]) -> None:
        """Schedule the function on the thread and return at once. After the engine is closed, nothing is called."""
        self._check_runs()
        try:
            self._event_loop.soon(function)
        except EventLoopEndedError:
            pass

    def leave(self, function: Callable[[], None]) -> None:
        """As `soon`, at the end of a block, where the thread runs. A forked process may leave the blocks of its parent,
        and the interpreter leaves blocks when it ends."""
        if self.is_running:
            self.soon(function)

    def run(self, function: Callable[[], Result]) -> Result:
        """Call the function on the thread and return its result.

        Raises `EngineClosedError`, and any exception of the function.
        """
        self._check_runs()
        if threading.get_ident() == self._home.thread:
            return function()  # in a callback
        try:
            return self._event_loop.call(function)
        except EventLoopEndedError:
            raise EngineClosedError(CLOSED) from None

    def run_async(self, function: Callable[[], Awaitable[Result]]) -> Result:
        """Run the async function as a task on the thread and return its result.

        Raises `EngineClosedError`, any exception of the function, and `RuntimeError` on the thread itself.
        """
        self.check_may_block()
        try:
            return self._event_loop.run(function)
        except EventLoopEndedError:
            raise EngineClosedError(CLOSED) from None

    def check_may_block(self) -> None:
        """Raises `RuntimeError` on the engine's own thread, and `EngineClosedError` where nobody would end the wait."""
        self._check_runs()
        if threading.get_ident() == self._home.thread:
            raise RuntimeError("a callback must not wait for a call: it holds up the thread that would end it")

    def _check_runs(self) -> None:
        if not self.is_running:
            raise EngineClosedError(FORKED if self._home.is_forked else ENDING)
