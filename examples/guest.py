"""The engine as a guest of another event loop. `select_loop.py` and `tkinter_window.py` use this module.

`trio.lowlevel.start_guest_run` runs trio on a loop that is not trio's. The loop must offer one function: it runs a
callback soon on the loop's thread, and any thread may call it. trio waits for its sockets in a thread beside the loop.
Everything else, such as the engine's callbacks, runs on the loop's own thread.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Protocol

import trio

import manystream as ms

CallSoon = Callable[[Callable[[], object]], None]
"""A loop's function that runs a callback soon on the loop's thread."""


class Outcome(Protocol):
    """How a trio run ended."""

    def unwrap(self) -> object: ...


class Guest:
    """One engine on a loop that is not trio's. Ctrl-C closes it.

    Create it on the loop's thread, which must be the main thread, and call its methods there.

    providers: the providers, as for `ms.open_engine`.
    on_open: is called with the open engine. From then on, every callback of the loop may start calls.
    on_end: is called after the engine is closed and the trio run has ended.
    call_soon_threadsafe: the loop's function for callbacks from any thread.
    call_soon: the loop's cheaper function for callbacks from its own thread, if it has one.
    """

    def __init__(
        self,
        providers: Sequence[ms.Provider],
        on_open: Callable[[ms.Engine], None],
        on_end: Callable[[], None],
        *,
        call_soon_threadsafe: CallSoon,
        call_soon: CallSoon | None = None,
    ) -> None:
        self._providers = providers
        self._on_open = on_open
        self._on_end = on_end
        self._closing = trio.Event()
        self._outcome: Outcome | None = None
        # Set a handler before trio sets its own. A KeyboardInterrupt could hit the loop after it took one of trio's
        # callbacks and before it ran it.
        self._call_soon = call_soon_threadsafe
        self._handler = signal.signal(signal.SIGINT, self._on_interrupt)
        trio.lowlevel.start_guest_run(
            self._hold_engine,
            run_sync_soon_threadsafe=call_soon_threadsafe,
            run_sync_soon_not_threadsafe=call_soon,
            done_callback=self._end,
        )

    def close(self) -> None:
        """Cancel the running calls and close the engine. The loop must run until `on_end` is called."""
        self._closing.set()

    def check(self) -> None:
        """Raise the exception that ended the run, if any. Call it after `on_end`."""
        if self._outcome is not None:
            self._outcome.unwrap()

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self._call_soon(self.close)

    async def _hold_engine(self) -> None:
        async with ms.open_engine(self._providers) as engine:
            self._on_open(engine)
            await self._closing.wait()

    def _end(self, outcome: Outcome) -> None:
        self._outcome = outcome
        signal.signal(signal.SIGINT, self._handler)
        self._on_end()
