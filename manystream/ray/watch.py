"""The driver's watch over its actors: which of them it must give up.

Ray reports a killed machine after 13 seconds and a frozen one after 64. So the driver measures the silence itself.
"""

from __future__ import annotations

SILENT_SECONDS = 5.0
"""An actor without a reply for so many seconds is given up. An exchange takes about 1 second."""

READY_SECONDS = 20.0
"""A new actor that is not ready after so many seconds is given up."""

PAUSE_SECONDS = 1.0
"""A longer time between two looks is a pause of the driver itself, and counts as this much silence of the actors."""


class Watch:
    """The deadlines of the actors. The caller looks several times per second."""

    def __init__(self, now: float) -> None:
        self._deadlines: dict[int, float] = {}
        self._looked_at = now

    def started(self, actor: int, now: float, seconds: float = READY_SECONDS) -> None:
        """Note that an actor was started. Its first reply, to anything, makes it ready.

        seconds: the time that it has for this.
        """
        self._deadlines[actor] = now + seconds

    def asked(self, actor: int, now: float) -> None:
        """Note that an exchange was opened. A repetition of it must not be noted."""
        self._deadlines[actor] = now + SILENT_SECONDS

    def replied(self, actor: int) -> None:
        """Note a reply. The actor has no deadline until it is asked again."""
        self._deadlines.pop(actor, None)

    def forget(self, actor: int) -> None:
        self._deadlines.pop(actor, None)

    def overdue(self, now: float) -> list[int]:
        """Return the actors whose deadline has passed. Note all replies that have arrived before you look.

        A driver that was stopped itself (a debugger, a suspended laptop) could not note replies. The deadlines move by
        such a pause.
        """
        pause = now - self._looked_at - PAUSE_SECONDS
        self._looked_at = now
        if pause > 0:
            self._deadlines = {actor: deadline + pause for actor, deadline in self._deadlines.items()}
        return [actor for actor, deadline in self._deadlines.items() if now >= deadline]
