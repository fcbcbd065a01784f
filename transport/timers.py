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
    """One deadline. `cancel` may be called at any time, any number of times.

    callback: what is called; None once it was, or was cancelled. when: on trio's clock, in seconds.
    """

    __slots__ = ("_on_defect", "_timers", "callback", "when")

    def __init__(
        self,
        timers: Timers,
        when: float,
        callback: Callable[[], None],
        on_defect: Callable[[Exception], None] | None,
    ) -> None:
        self._timers = timers
        self.callback: Callable[[], None] | None = callback
        self._on_defect = on_defect
        self.when: float = when

    def cancel(self) -> None:
        """Forget the callback. Its place in the heap is given up in time, at no cost now."""
        if self.callback is not None:
            self.callback = self._on_defect = None
            self._timers.cancelled_one()

    def fire(self) -> None:
        """Call the callback, unless it was cancelled. What it raises goes to the log and to `on_defect`: the other
        timers go on."""
        callback, on_defect = self.callback, self._on_defect
        self.callback = self._on_defect = None
        if callback is None:
            return
        try:
            callback()
        except Exception as error:
            logger.exception("a timer's callback raised: a defect in manystream")
            if on_defect is not None:
                on_defect(error)

    @property
    def pending(self) -> bool:
        return self.callback is not None


class Timers:
    """A heap of timers and the task that fires them, in order of time, on trio's clock (seconds)."""

    __slots__ = ("_heap", "_scope", "_sequence", "_stale", "_wakes")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._stale = 0
        self._scope: trio.CancelScope | None = None
        self._wakes = math.inf  # the scope's deadline, which takes a call to ask for

    def at(
        self, when: float, callback: Callable[[], None], on_defect: Callable[[Exception], None] | None = None
    ) -> Timer:
        """Call `callback` once `trio.current_time()` has reached `when`. `math.inf` never comes.

        on_defect: called with what `callback` raised, so that whoever waits for this timer does not wait for ever.
        """
        timer = Timer(self, when, callback, on_defect)
        if when != math.inf:
            self._push(timer)
            if self._scope is not None and when < self._wakes:
                self._wakes = self._scope.deadline = when
        return timer

    def _push(self, timer: Timer) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (timer.when, self._sequence, timer))

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
            try:
                self._fire(trio.current_time())
            except Exception:
                logger.exception("looking for timers that are due raised: a defect in manystream")
            # Timers that are due again at once must not keep the other tasks from running.
            await trio.lowlevel.checkpoint()

    def _next(self) -> float:
        return self._heap[0][0] if self._heap else math.inf

    def _fire(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.callback is None:
                self._stale = max(0, self._stale - 1)
                continue
            try:
                timer.fire()
            except Exception:
                logger.exception("firing a timer raised: a defect in manystream")
                if timer.callback is not None:  # it was not called yet
                    self._push(timer)
