"""A pump notifies the calls that wait in a line, one at a time: it takes one out, notifies it, and looks again.

What a notified call does is up to the program: it may start and cancel calls, also those that wait in the same line. So
no list of calls is made beforehand, and between two notifications nothing is assumed about the line. The waits of
limits, targets and budgets are such lines. A call whose time to wait is over is not the pump's concern: the call's own
timer ends it. The observer is notified at a tick after a change, never during it: its methods may start and cancel
calls, too.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import TypeAlias

from ....providers.model.provider_error import ProviderError
from ....transport.timers import Timer
from ...call.runtime import Runtime
from ...request.noting import NoteLogger
from .fair_queue import Permit

logger: NoteLogger = NoteLogger("manystream.traffic")

AT_ONCE = 64
"""The maximum number of calls that are notified in one tick. The streams are served between two ticks."""

DEFECT_DELAY = 1.0
"""Seconds until a line is looked at again after a defect in this library."""

REPORT_SECONDS = 1.0
"""The least seconds between two reports of a line's figures."""


class WaitingCall(abc.ABC):
    """A call that waits, as limiters, routes and budgets see it. They notify it once per wait."""

    __slots__ = ()

    @abc.abstractmethod
    def admitted(self, permit: Permit, now: float) -> None:
        """Send the call now: its limits allow it."""

    @abc.abstractmethod
    def rejected(self, permit: Permit, error: ProviderError) -> None:
        """Go elsewhere or fail: these limits never allow the call, or not in time."""

    @abc.abstractmethod
    def funded(self) -> None:
        """Go on: the amounts that the call may use are reserved."""

    @abc.abstractmethod
    def unfunded(self, error: ProviderError) -> None:
        """Go elsewhere or fail: the amounts cannot be reserved."""

    @abc.abstractmethod
    def look_again(self) -> None:
        """Choose a target again: another one may be better than those that the call waits for, or may be used again."""

    @abc.abstractmethod
    def on_defect(self, error: Exception) -> None:
        """End the call after a defect in this library: another method raised."""


Notification: TypeAlias = tuple[WaitingCall, Callable[[], object]]
"""A call, and what notifies it."""


class Pump(abc.ABC):
    """Notifies the calls of one line: now, at the next tick, or at the time that the line gives.

    runtime: the engine's.
    is_running: a call is being notified.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime: Runtime = runtime
        self.is_running: bool = False
        self._timer: Timer | None = None
        self._is_scheduled = False
        self._reported_at = -math.inf
        self._will_report = False

    @abc.abstractmethod
    def take(self, now: float) -> Notification | float:
        """Take the next call that need not wait any longer out of the line, and return how to notify it. If all calls
        must wait on, return the time at which to look again, although no change was noted until then; `math.inf`:
        never."""

    @abc.abstractmethod
    def report_figures(self, now: float) -> bool:
        """Report the line's figures to the observer. Return True if there is more to report at the next tick."""

    def schedule(self) -> None:
        """Look at the line at the next tick, because it has changed."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self.runtime.soon(self._tick, self._defect)

    def _tick(self) -> None:
        self._is_scheduled = False
        self.run()

    def run(self) -> None:
        """Notify the calls that need not wait any longer, at most 64. The next tick goes on, or the timer."""
        if self.is_running:
            return  # a notified call has called this: the outer run looks again
        self.is_running = True
        try:
            for _ in range(AT_ONCE):
                found = self.take(self.runtime.loop.clock())
                if not isinstance(found, tuple):
                    self._set_timer(found)
                    return
                call, notify = found
                try:
                    notify()
                except Exception as error:
                    call.on_defect(error)  # it ends only this call
            self.schedule()
        except Exception as error:
            self._defect(error)
        finally:
            self.is_running = False

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.pending and self._timer.when <= when:
                return  # it looks again then, and moves on
            self._timer.cancel()
            self._timer = None
        if when < math.inf:
            self._timer = self.runtime.timers.at(when, self.run, self._defect)

    def _defect(self, error: Exception) -> None:
        """Look at the line again later, so that no call waits forever after this or the line has raised."""
        self._is_scheduled = False
        logger.error("%r raised: a defect in manystream", self, exc_info=error)
        self._set_timer(self.runtime.loop.clock() + DEFECT_DELAY)

    # --- figures ---

    def note(self) -> None:
        """Report the line's figures at a later tick, because they have changed: at most once per second.

        Call it only if there is an observer.
        """
        if not self._will_report:
            self._report_at(max(self.runtime.loop.clock(), self._reported_at + REPORT_SECONDS))

    def _report_at(self, when: float) -> None:
        self._will_report = True
        self.runtime.timers.at(when, self._report_now, self._defect)

    def _report_now(self) -> None:
        self._will_report = False
        self._reported_at = now = self.runtime.loop.clock()
        if self.report_figures(now):
            self._report_at(now)
