"""Timers: one alarm serves thousands of deadlines.

Knows a heap and the backend's alarm. Must not know what its callbacks do. A new timer that is the earliest one moves
the alarm; no task is started or woken for it.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

from .backend import Alarm, Backend

logger: logging.Logger = logging.getLogger("manystream.transport.timers")

_STALE_KEPT = 64
"""Cancelled deadlines that stay in the heap before it is rebuilt."""


Deadline: TypeAlias = tuple[float, int]
"""A time in seconds on the backend's clock, and a number that no other deadline has.

A plain tuple of numbers: the garbage collector does not visit it, however many calls wait.
"""


class TimerOwner(Protocol):
    """An object whose methods the timers call.

    A call is the owner of its deadline. With functions in place of the owner, each of thousands of calls would need
    three more objects: its bound methods and a `Timer`.
    """

    def on_timer(self) -> None:
        """Process the deadline."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End after a defect in this library: `on_timer` raised. Otherwise it would wait forever."""
        ...


class Timer:
    """A function that is called at a deadline. `cancel` can be called at any time, any number of times.

    when: the deadline, in seconds on the backend's clock.
    """

    __slots__ = ("_callback", "_deadline", "_on_defect", "_timers")

    def __init__(
        self,
        timers: Timers,
        when: float,
        callback: Callable[[], None],
        on_defect: Callable[[Exception], None] | None,
    ) -> None:
        self._timers = timers
        self._callback: Callable[[], None] | None = callback
        self._on_defect = on_defect
        self._deadline = timers.notify(when, self)

    @property
    def when(self) -> float:
        return self._deadline[0]

    @property
    def pending(self) -> bool:
        """Whether the function is still to be called."""
        return self._timers.pending(self._deadline)

    def cancel(self) -> None:
        """Do not call the function."""
        self._timers.cancel(self._deadline)
        self._callback = self._on_defect = None

    def on_timer(self) -> None:
        if self._callback is not None:
            self._callback()
        self._callback = self._on_defect = None  # they may refer to the holder of this timer

    def on_defect(self, error: Exception) -> None:
        if self._on_defect is not None:
            self._on_defect(error)


class Timers:
    """A heap of deadlines, and the alarm that notifies their owners in order (seconds on the backend's clock)."""

    __slots__ = ("_alarm", "_clock", "_heap", "_owners", "_sequence", "_wakes")

    def __init__(self) -> None:
        self._heap: list[Deadline] = []
        self._owners: dict[int, TimerOwner] = {}
        """The number of each pending deadline → its owner. Other deadlines in the heap were cancelled."""
        self._sequence = 0
        self._alarm: Alarm | None = None
        self._clock: Callable[[], float] = _not_started
        self._wakes = math.inf  # the alarm's deadline

    def start(self, backend: Backend) -> None:
        """Notify owners from now on, until `close`."""
        self._clock = backend.clock
        self._alarm = backend.alarm(self._ring)
        self._set_alarm()

    def close(self) -> None:
        """Notify no more owners."""
        if self._alarm is not None:
            self._alarm.cancel()

    def at(
        self, when: float, callback: Callable[[], None], on_defect: Callable[[Exception], None] | None = None
    ) -> Timer:
        """Call `callback` when the backend's clock has reached `when`; never, if `when` is `math.inf`.

        on_defect: called with the exception that `callback` raised, so that the code which depends on this timer can
            end instead of waiting forever.
        """
        return Timer(self, when, callback, on_defect)

    def notify(self, when: float, owner: TimerOwner) -> Deadline:
        """Call `owner.on_timer` when the backend's clock has reached `when`; never, if `when` is `math.inf`."""
        self._sequence += 1
        deadline = (when, self._sequence)
        if when != math.inf:
            self._owners[self._sequence] = owner
            heapq.heappush(self._heap, deadline)
            if when < self._wakes and self._alarm is not None:
                self._wakes = when
                self._alarm.set(when)
        return deadline

    def pending(self, deadline: Deadline) -> bool:
        """Return whether the owner is still to be notified of this deadline."""
        return deadline[1] in self._owners

    def cancel(self, deadline: Deadline) -> None:
        """Drop the owner, if it was not notified yet. The heap's entry is removed later (amortised O(1))."""
        if self._owners.pop(deadline[1], None) is None:
            return
        heap, pending = self._heap, self._owners
        if len(heap) - len(pending) > max(_STALE_KEPT, len(pending)):
            self._heap = [entry for entry in heap if entry[1] in pending]
            heapq.heapify(self._heap)

    def _ring(self) -> None:
        """Notify the owners whose deadline has passed, and set the alarm for the next one."""
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
        """Notify the owners whose deadline has passed. An exception of one does not stop the others."""
        while self._heap and self._heap[0][0] <= now:
            owner = self._owners.pop(heapq.heappop(self._heap)[1], None)
            if owner is None:
                continue  # it was cancelled
            try:
                owner.on_timer()
            except Exception as error:
                with contextlib.suppress(Exception):
                    logger.exception("a timer's callback raised: a defect in manystream")
                try:
                    owner.on_defect(error)
                except Exception:
                    logger.exception("ending the owner of a timer raised: a defect in manystream")


def _not_started() -> float:
    raise RuntimeError("the timers were not started")
