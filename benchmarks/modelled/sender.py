"""Sends the calls of a scope in simulated time, as the engine's lane does."""

from __future__ import annotations

import math
from collections.abc import Callable

from manystream.engine.traffic.limits.limiter import LimiterState
from manystream.engine.traffic.queue.fair_queue import Permit

from .events import Events


class Sender:
    """Calls `send` with each permit of a scope when it may be sent."""

    def __init__(self, events: Events, scope: LimiterState, send: Callable[[Permit], None]) -> None:
        self._events, self._scope, self._send = events, scope, send
        self._timer = math.inf

    def pump(self) -> None:
        """Send the calls that may be sent, and run again when more may be."""
        now = self._events.now
        while isinstance(permit := self._scope.admit(now), Permit):
            self._send(permit)
        time = permit
        if time < self._timer:
            self._timer = time
            self._events.at(time, self._wake, time)

    def _wake(self, time: float) -> None:
        if time == self._timer:
            self._timer = math.inf
            self.pump()
