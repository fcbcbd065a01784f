"""Timers: thousands of deadlines, one sleeping task.

Knows a heap and trio's clock. Must not know what its callbacks do. Setting a timer earlier than all others only
moves the deadline of the scope that the one task sleeps in: no task is started, none is woken.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable

import trio

logger: logging.Logger = logging.getLogger("manystream.transport.timers")

_STALE_KEPT = 64


class Timer:
    """One deadline. `cancel` may be called at any time, any number of times."""

    __slots__ = ("_callback", "_timers", "when")

    def __init__(self, timers: Timers, when: float, callback: Callable[[], None]) -> None:
        self._timers = timers
        self._callback: Callable[[], None] | None = callback
        self.when: float = when

    def cancel(self) -> None:
        """Forget the callback. Its place in the heap is given up in time, at no cost now."""
        if self._callback is not None:
            self._callback = None
            self._timers.cancelled_one()

    def fire(self) -> None:
        """Call the callback, unless it was cancelled. One that raises is logged: the other timers go on."""
        callback, self._callback = self._callback, None
        if callback is not None:
            try:
                callback()
            except Exception:
                logger.exception("a timer's callback raised")

    @property
    def pending(self) -> bool:
        return self._callback is not None


class Timers:
    """A heap of timers and the task that fires them, in order of time, on trio's clock (seconds)."""

    __slots__ = ("_heap", "_scope", "_sequence", "_stale", "_wakes")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._stale = 0
        self._scope: trio.CancelScope | None = None
        self._wakes = math.inf  # the scope's deadline, which takes a call to ask for

    def at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once `trio.current_time()` has reached `when`. `math.inf` never comes."""
        timer = Timer(self, when, callback)
        if when != math.inf:
            self._sequence += 1
            heapq.heappush(self._heap, (when, self._sequence, timer))
            if self._scope is not None and when < self._wakes:
                self._wakes = self._scope.deadline = when
        return timer

    def cancelled_one(self) -> None:
        """A timer in the heap was cancelled; once most of them are, the heap is rebuilt (amortised O(1))."""
        self._stale += 1
        if self._stale > _STALE_KEPT and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].pending]
            heapq.heapify(self._heap)
            self._stale = 0

    async def run(self) -> None:
        """Fire timers until cancelled."""
        while True:
            self._wakes = self._next()
            with trio.CancelScope(deadline=self._wakes) as self._scope:
                await trio.sleep_forever()
            if not self._scope.cancelled_caught:
                return
            self._fire(trio.current_time())
            # Timers that are due again at once must not keep the other tasks from running.
            await trio.lowlevel.checkpoint()

    def _next(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def _fire(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.pending:
                timer.fire()
            else:
                self._stale = max(0, self._stale - 1)
