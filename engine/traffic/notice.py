"""When the observer is notified of traffic control: at the tick after a change, but at most once per second.

It is never notified during a change, since its methods may start and cancel calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..call.runtime import Runtime, TrafficWatch

NOTICE_SECONDS = 1.0
"""The least seconds between two notifications about one limiter, route or budget."""


class Notice:
    """Calls a function at the tick after a change, but at most once per second.

    send: receives the observer and the time. It returns True if it has more to send; it is then called at the next
        tick.
    on_defect: called if `send` raises.
    """

    __slots__ = ("_at", "_is_due", "_on_defect", "_runtime", "_send")

    def __init__(
        self, runtime: Runtime, send: Callable[[TrafficWatch, float], bool], on_defect: Callable[[Exception], None]
    ) -> None:
        self._runtime = runtime
        self._send = send
        self._on_defect = on_defect
        self._is_due = False
        self._at = -math.inf

    def note(self) -> None:
        """Something has changed."""
        if not self._is_due:
            self._send_at(max(self._runtime.loop.clock(), self._at + NOTICE_SECONDS))

    def _send_at(self, when: float) -> None:
        self._is_due = True
        self._runtime.timers.at(when, self._deliver, self._on_defect)

    def _deliver(self) -> None:
        self._is_due = False
        self._at = now = self._runtime.loop.clock()
        watch = self._runtime.watch
        if watch is not None and self._send(watch, now):
            self._send_at(now)


def open_notice(
    runtime: Runtime, send: Callable[[TrafficWatch, float], bool], on_defect: Callable[[Exception], None]
) -> Notice | None:
    """Return a `Notice`; None in an engine without an observer."""
    return None if runtime.watch is None else Notice(runtime, send, on_defect)
