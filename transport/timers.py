"""Timers: one alarm serves thousands of deadlines. A new timer that is the earliest one moves the alarm; no task is
started or woken for it.

A timeout compares two times: its deadline, and the time at which something arrived. A program that blocks its event
loop delays both the alarm and the reading of what has arrived, so the order in which the two are noticed says nothing.
Therefore a timeout is judged in two steps: when its deadline has passed, the loop reads what is ready and the event
loop makes `TURNS` iterations; then the owner is notified, and finds a later deadline if anything has arrived. No
received byte pays for this. Timers that begin work (`Timers.at`) need no such care: they fire at once.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from .backend import Alarm, Backend
from .fork import watch_forks

logger: logging.Logger = logging.getLogger("manystream.transport.timers")

_STALE_KEPT = 64
"""Cancelled deadlines that stay in the heap before it is rebuilt."""

TURNS: Final = 3
"""Iterations of the event loop between a timeout's deadline and its judgement. The longest chain that a ready socket
begins: a response ends and frees its place in the pool, the task that begins dials runs, the dial runs."""

_MOST_TURNS: Final = 100
"""Iterations after which a timeout is judged although further connections are ready: 25,600 were served by then, or 100
steps of TLS handshakes made."""


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
        """Process the deadline. What had arrived by then has been read."""
        ...

    def on_defect(self, error: Exception) -> None:
        """End after a defect in this library: `on_timer` raised. Otherwise it would wait forever."""
        ...


class Timer:
    """A function that is called at a deadline. `cancel` can be called at any time, any number of times.

    when: the deadline, in seconds on the backend's clock.
    is_timeout: it is judged like a timeout.
    """

    __slots__ = ("_callback", "_deadline", "_on_defect", "_timers", "is_timeout")

    def __init__(
        self,
        timers: Timers,
        when: float,
        callback: Callable[[], None],
        on_defect: Callable[[Exception], None] | None,
        is_timeout: bool,
    ) -> None:
        self._timers = timers
        self._callback: Callable[[], None] | None = callback
        self._on_defect = on_defect
        self.is_timeout: bool = is_timeout
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

    __slots__ = (
        "__weakref__",
        "_alarm",
        "_backend",
        "_catch_up",
        "_clock",
        "_heap",
        "_overdue",
        "_owners",
        "_sequence",
        "_turn",
        "_wakes",
    )

    def __init__(self, catch_up: Callable[[], bool]) -> None:
        """Create it without an alarm. `catch_up`: reads what has arrived, as `Loop.catch_up` does."""
        self._catch_up = catch_up
        watch_forks(self)
        self._heap: list[Deadline] = []
        self._owners: dict[int, TimerOwner] = {}
        """The number of each pending deadline → its owner. Other deadlines in the heap were cancelled."""
        self._sequence = 0
        self._alarm: Alarm | None = None
        self._backend: Backend | None = None
        self._clock: Callable[[], float] = _not_started
        self._wakes = math.inf  # the alarm's deadline
        self._turn = 0
        self._overdue: deque[tuple[int, int]] = deque()
        """The timeouts that wait for their judgement: the turn in which each was found, and its deadline's number."""

    def start(self, backend: Backend) -> None:
        """Notify owners from now on, until `close`."""
        self._backend = backend
        self._clock = backend.clock
        self._alarm = backend.alarm(self._ring)
        self._set_alarm()

    def on_fork(self) -> None:
        """Notify nobody: the owners belong to the parent process."""
        self._alarm = None

    def close(self) -> None:
        """Notify no more owners."""
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            alarm.cancel()

    def at(
        self,
        when: float,
        callback: Callable[[], None],
        on_defect: Callable[[Exception], None] | None = None,
        *,
        is_timeout: bool = False,
    ) -> Timer:
        """Call `callback` when the backend's clock has reached `when`; never, if `when` is `math.inf`.

        on_defect: called with the exception that `callback` raised, so that the code which depends on this timer can
            end instead of waiting forever.
        is_timeout: read first what has arrived by then, which may make the call needless.
        """
        return Timer(self, when, callback, on_defect, is_timeout)

    def notify(self, when: float, owner: TimerOwner) -> Deadline:
        """Call `owner.on_timer` when the backend's clock has reached `when`; never, if `when` is `math.inf`.

        An owner that is no `Timer` is judged like a timeout. NaN counts as `math.inf`: in the heap, it would compare as
        neither earlier nor later, and hide the deadlines below it.
        """
        self._sequence += 1
        deadline = (when, self._sequence)
        if when < math.inf:
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
        """Notify the owners that are due, and set the alarm for the next ones."""
        if self._alarm is None:
            return  # closed: the alarm's task was about to run
        self._wakes = math.inf
        try:
            if self._overdue:
                # Handshakes make one step per iteration, all together.
                more = self._catch_up() or (self._backend is not None and self._backend.handshaking)
                self._turn += 1
                self._judge(self._turn - (_MOST_TURNS if more else TURNS))
            self._fire(self._clock())
        except Exception:
            logger.exception("finding the timers that are due raised: a defect in manystream")
        finally:
            self._set_alarm()

    def _set_alarm(self) -> None:
        if self._overdue:
            self._wakes = self._clock()  # the event loop's next iteration
        else:
            self._wakes = self._heap[0][0] if self._heap else math.inf
        if self._alarm is not None:
            self._alarm.set(self._wakes)

    def _judge(self, turn: int) -> None:
        """Notify the owners of the timeouts that were found in this turn or earlier."""
        while self._overdue and self._overdue[0][0] <= turn:
            owner = self._owners.pop(self._overdue.popleft()[1], None)
            if owner is not None:
                _notify(owner)

    def _fire(self, now: float) -> None:
        """Take the deadlines that have passed from the heap: begin work at once, and let timeouts wait."""
        while self._heap and self._heap[0][0] <= now:
            _, number = heapq.heappop(self._heap)
            owner = self._owners.get(number)
            if owner is None:
                continue  # it was cancelled
            if not isinstance(owner, Timer) or owner.is_timeout:
                self._overdue.append((self._turn, number))
            else:
                del self._owners[number]
                _notify(owner)


def _notify(owner: TimerOwner) -> None:
    """Notify an owner of its deadline. An exception of one does not stop the others."""
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
