"""A pump notifies the calls that wait in a line, one at a time: it takes one out, notifies it, and looks again.

What a notified call does is up to the program: it may start and cancel calls, also those that wait in the same line. So
no list of calls is made beforehand, and between two notifications nothing is assumed about the line. The waits of
limits, targets and budgets are such lines. A call whose time to wait is over is not the pump's concern: the call's own
timer ends it. The observer is notified at a tick after a change, never during it: its methods may start and cancel
calls, too.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

from ....transport.timers import Timer
from ...call.runtime import Runtime

logger: logging.Logger = logging.getLogger("manystream.traffic")

AT_ONCE = 64
"""The maximum number of calls that are notified in one tick. The streams are served between two ticks."""

DEFECT_DELAY = 1.0
"""Seconds until a line is looked at again after a defect in this library."""

REPORT_SECONDS = 1.0
"""The least seconds between two reports of a line's figures."""

Notification: TypeAlias = tuple[Callable[[], object], Callable[[Exception], object]]
"""What notifies a call, and what ends it after a defect in this library: its notification raised."""


class Line(Protocol):
    """The calls that wait for one limit, target or budget."""

    def take(self, now: float) -> Notification | None:
        """Take the next call that need not wait any longer out of the line, and return how to notify it. Return None if
        all calls must wait on."""
        ...

    def next_time(self, now: float) -> float:
        """Return the time at which to look again, although no change was noted until then; `math.inf` for never."""
        ...


class Pump:
    """Notifies the calls of one line: now, at the next tick, or at the time that the line gives.

    report: reports the line's figures to the observer. It receives the time, and returns True if it has more to report
        at the next tick. None: there is no observer.
    """

    __slots__ = (
        "_is_running",
        "_is_scheduled",
        "_line",
        "_report",
        "_reported_at",
        "_runtime",
        "_timer",
        "_will_report",
    )

    def __init__(self, line: Line, runtime: Runtime, report: Callable[[float], bool] | None = None) -> None:
        self._line = line
        self._runtime = runtime
        self._timer: Timer | None = None
        self._is_scheduled = False
        self._is_running = False
        self._report = report
        self._reported_at = -math.inf
        self._will_report = False

    @property
    def is_running(self) -> bool:
        """True while a call is notified."""
        return self._is_running

    @property
    def now(self) -> float:
        """The time on the engine's clock."""
        return self._runtime.loop.clock()

    def schedule(self) -> None:
        """Look at the line at the next tick, because it has changed."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._runtime.soon(self.tick, self.on_defect)

    def tick(self) -> None:
        """Perform the work of the tick."""
        self._is_scheduled = False
        self.run()

    def run(self) -> None:
        """Notify the calls that need not wait any longer, at most 64. The next tick goes on, or the timer."""
        if self._is_running:
            return  # a notified call has called this: the outer run looks again
        self._is_running = True
        try:
            if self._notify():
                self.schedule()
            else:
                self._set_timer(self._line.next_time(self.now))
        except Exception as error:
            self.on_defect(error)
        finally:
            self._is_running = False

    def _notify(self) -> bool:
        """Notify some calls. Return True if others may be next."""
        for _ in range(AT_ONCE):
            found = self._line.take(self.now)
            if found is None:
                return False
            notify, on_defect = found
            try:
                notify()
            except Exception as error:
                on_defect(error)  # it ends only this call
        return True

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.pending and self._timer.when <= when:
                return  # it looks again then, and moves on
            self._timer.cancel()
            self._timer = None
        if when < math.inf:
            self._timer = self._runtime.timers.at(when, self.run, self.on_defect)

    def on_defect(self, error: Exception) -> None:
        """Look at the line again later, so that no call waits forever after this or the line has raised."""
        self._is_scheduled = False
        logger.error("%r raised: a defect in manystream", self._line, exc_info=error)
        self._set_timer(self.now + DEFECT_DELAY)

    # --- figures ---

    def note(self) -> None:
        """Report the line's figures at a later tick, because they have changed: at most once per second."""
        if self._report is not None and not self._will_report:
            self._report_at(max(self.now, self._reported_at + REPORT_SECONDS))

    def _report_at(self, when: float) -> None:
        self._will_report = True
        self._runtime.timers.at(when, self._report_now, self.on_defect)

    def _report_now(self) -> None:
        self._will_report = False
        self._reported_at = now = self.now
        if self._report is not None and self._report(now):
            self._report_at(now)
