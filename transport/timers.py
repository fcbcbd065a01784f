"""Timers: one alarm serves thousands of deadlines.

Knows a heap and the backend's alarm. Must not know what its callbacks do. A new timer that is the earliest one moves
the alarm; no task is started or woken for it.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable
from typing import Protocol

from .backend import Alarm, Backend

logger: logging.Logger = logging.getLogger("manystream.transport.timers")

_STALE_KEPT = 64
"""Cancelled timers that stay in the heap before it is rebuilt."""


class TimerOwner(Protocol):
    """An object whose methods a timer calls.

    A call is the owner of its timer. With two functions in place of the owner, each of thousands of calls would need
    two more objects: its bound methods.
    """

    def on_timer(self) -> None:
        """Process the deadline."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End after a defect in this library: `on_timer` raised. Otherwise it would wait forever."""
        ...


class _Functions:
    """The owner of a timer that calls a function."""

    __slots__ = ("_callback", "_on_defect")

    def __init__(self, callback: Callable[[], None], on_defect: Callable[[Exception], None] | None) -> None:
        self._callback = callback
        self._on_defect = on_defect

    def on_timer(self) -> None:
        self._callback()

    def on_defect(self, error: Exception) -> None:
        if self._on_defect is not None:
            self._on_defect(error)


class Timer:
    """One deadline. `cancel` can be called at any time, any number of times.

    owner: the object that is notified; None after that or after `cancel`.
    when: the deadline, in seconds on the backend's clock.
    """

    __slots__ = ("_timers", "owner", "when")

    def __init__(self, timers: Timers, when: float, owner: TimerOwner) -> None:
        self._timers = timers
        self.owner: TimerOwner | None = owner
        self.when: float = when

    def cancel(self) -> None:
        """Drop the owner. The heap entry is removed later, at no cost now."""
        if self.owner is not None:
            self.owner = None
            self._timers.timer_cancelled()

    def fire(self) -> None:
        """Notify the owner, unless the timer was cancelled.

        An exception that the owner raises is logged and passed to its `on_defect`; the other timers are not affected.
        """
        owner, self.owner = self.owner, None
        if owner is None:
            return
        try:
            owner.on_timer()
        except Exception as error:
            logger.exception("a timer's callback raised: a defect in manystream")
            owner.on_defect(error)

    @property
    def pending(self) -> bool:
        """Whether the owner is still to be notified."""
        return self.owner is not None


class Timers:
    """A heap of timers, and the alarm that fires them in order of their deadlines (seconds on the backend's clock)."""

    __slots__ = ("_alarm", "_clock", "_heap", "_sequence", "_stale", "_wakes")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._stale = 0
        self._alarm: Alarm | None = None
        self._clock: Callable[[], float] = _not_started
        self._wakes = math.inf  # the alarm's deadline

    def start(self, backend: Backend) -> None:
        """Fire timers from now on, until `close`."""
        self._clock = backend.clock
        self._alarm = backend.alarm(self._ring)
        self._set_alarm()

    def close(self) -> None:
        """Fire no more timers."""
        if self._alarm is not None:
            self._alarm.cancel()

    def at(
        self, when: float, callback: Callable[[], None], on_defect: Callable[[Exception], None] | None = None
    ) -> Timer:
        """Call `callback` when the backend's clock has reached `when`; never, if `when` is `math.inf`.

        on_defect: called with the exception that `callback` raised, so that the code which depends on this timer can
            end instead of waiting forever.
        """
        return self.notify(when, _Functions(callback, on_defect))

    def notify(self, when: float, owner: TimerOwner) -> Timer:
        """Call `owner.on_timer` when the backend's clock has reached `when`; never, if `when` is `math.inf`."""
        timer = Timer(self, when, owner)
        if when != math.inf:
            self._push(timer)
            if when < self._wakes and self._alarm is not None:
                self._wakes = when
                self._alarm.set(when)
        return timer

    def _push(self, timer: Timer) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (timer.when, self._sequence, timer))

    def timer_cancelled(self) -> None:
        """Count a cancelled timer; rebuild the heap once most of its timers are cancelled (amortised O(1))."""
        self._stale += 1
        if self._stale > _STALE_KEPT and self._stale * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].pending]
            heapq.heapify(self._heap)
            self._stale = 0

    def _ring(self) -> None:
        """Fire the timers that are due, and set the alarm for the next one."""
        self._wakes = math.inf
        try:
            self._fire(self._clock())
        except Exception:
            logger.exception("finding the timers that are due raised: a defect in manystream")
        finally:
            self._set_alarm()

    def _set_alarm(self) -> None:
        self._wakes = self._heap[0][0] if self._heap else math.inf
        if self._alarm is not None:
            self._alarm.set(self._wakes)

    def _fire(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.owner is None:
                self._stale = max(0, self._stale - 1)
                continue
            try:
                timer.fire()
            except Exception:
                logger.exception("firing a timer raised: a defect in manystream")
                if timer.pending:  # the owner was not notified
                    self._push(timer)


def _not_started() -> float:
    raise RuntimeError("the timers were not started")
