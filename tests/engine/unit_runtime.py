"""A runtime without a loop: time is a number, timers and ticks run when the test says so; and a call that waits."""

from __future__ import annotations

import math
from collections.abc import Callable


class Timer:
    """A function that the test runs at its time."""

    def __init__(self, when: float, action: Callable[[], None], on_defect: object) -> None:
        self.when = when
        self.pending = True
        self.action = action
        self.on_defect = on_defect

    def cancel(self) -> None:
        self.pending = False


class Clock:
    """The loop, of which only the clock is used."""

    def __init__(self) -> None:
        self.time = 0.0

    def clock(self) -> float:
        return self.time


class Timers:
    """Keeps the timers, and runs those that are due."""

    def __init__(self, loop: Clock) -> None:
        self._loop = loop
        self.made: list[Timer] = []

    def at(
        self, when: float, action: Callable[[], None], on_defect: object = None, *, is_timeout: bool = False
    ) -> Timer:
        timer = Timer(when, action, on_defect)
        self.made.append(timer)
        return timer

    @property
    def times(self) -> list[float]:
        """The times of the timers that are set."""
        return sorted(timer.when for timer in self.made if timer.pending and timer.when < math.inf)


class UnitRuntime:
    """What lanes, routes and budgets use of an engine's runtime."""

    def __init__(self) -> None:
        self.loop = Clock()
        self.timers = Timers(self.loop)
        self.due: list[Callable[[], None]] = []

    def wall_clock(self) -> float:
        return 0.0

    def random(self) -> float:
        return 0.5

    def soon(self, action: Callable[[], None], on_defect: object) -> None:
        self.due.append(action)

    def tick(self) -> int:
        """Perform what is due at the next tick. Returns how many actions that were."""
        due, self.due = self.due, []
        for action in due:
            action()
        return len(due)

    def go_to(self, time: float) -> None:
        """Run the timers up to this time, in order."""
        while True:
            ready = [timer for timer in self.timers.made if timer.pending and timer.when <= time]
            if not ready:
                break
            first = min(ready, key=lambda timer: timer.when)
            first.pending = False
            self.loop.time = max(self.loop.time, first.when)
            first.action()
        self.loop.time = time


class Call:
    """A call that notes what is reported to it."""

    def __init__(self, name: str = "", *, raises: str = "") -> None:
        self.name = name
        self.reported: list[object] = []
        self.raises = raises
        self.permit: object = None  # that it was admitted with

    def _report(self, what: object) -> None:
        self.reported.append(what)
        if self.raises:
            raise RuntimeError(self.raises)

    def admitted(self, permit: object = None, now: float = 0.0) -> None:
        self.permit = permit
        self._report("admitted")

    begin = admitted

    def rejected(self, *reported: object) -> None:
        """As a call is rejected, with an error; or as a limiter rejects it, with its permit and the error."""
        self._report(reported[-1])

    def look_again(self) -> None:
        self._report("look")

    def on_defect(self, error: Exception) -> None:
        self.reported.append(f"defect: {error}")
