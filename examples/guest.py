"""What the examples with a loop of their own share: the engine as a guest of that loop.

`trio.lowlevel.start_guest_run` runs trio on a loop that belongs to somebody else. The loop has to offer one thing: a
function that runs a callback soon on the loop's thread and that any thread may call. trio waits for its sockets in a
thread beside the loop; everything else, the engine's callbacks included, runs on the loop's own thread.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

import manystream as ms

CallSoon = Callable[[Callable[[], object]], None]
"""A loop's function that runs a callback soon on the loop's thread."""


class Outcome(Protocol):
    """How a trio run ended."""

    def unwrap(self) -> object: ...


class Guest:
    """One engine on a loop that is not trio's. Create it and call its methods on the loop's thread, the main thread.
    Ctrl-C closes it.

    providers: as for `ms.open_engine`.
    on_open: called with the engine once it is open. From then on every callback of the loop may start calls.
    on_end: called once the engine is closed and the trio run has ended.
    call_soon_threadsafe: the loop's function for callbacks from any thread.
    call_soon: the loop's function for callbacks from its own thread, where it has a cheaper one.
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
        # A handler of our own, set before trio looks for one: a KeyboardInterrupt could hit the loop between taking a
        # callback of trio's and running it.
        self._call_soon = call_soon_threadsafe
        self._handler = signal.signal(signal.SIGINT, lambda *_: self._call_soon(self.close))
        trio.lowlevel.start_guest_run(
            self._hold_engine,
            run_sync_soon_threadsafe=call_soon_threadsafe,
            run_sync_soon_not_threadsafe=call_soon,
            done_callback=self._end,
        )

    def close(self) -> None:
        """Cancel the calls that still run and close the engine; `on_end` follows. The loop must run until then."""
        self._closing.set()

    def check(self) -> None:
        """After the end: raise the exception that ended the run, if there was one."""
        if self._outcome is not None:
            self._outcome.unwrap()

    async def _hold_engine(self) -> None:
        async with ms.open_engine(self._providers) as engine:
            self._on_open(engine)
            await self._closing.wait()

    def _end(self, outcome: Outcome) -> None:
        self._outcome = outcome
        signal.signal(signal.SIGINT, self._handler)
        self._on_end()
