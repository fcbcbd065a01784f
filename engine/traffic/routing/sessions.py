"""Which target, or which key of a provider, the calls of each session go to."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable

SESSION_KEPT = 3600.0
"""Seconds after its last call for which a session is kept."""

MOST_SESSIONS = 100_000
"""The number of sessions that are kept: about 40 MB, with names of 50 characters. Of more, those with the oldest last
call are forgotten first."""


class Sessions:
    """The places of sessions. A place is a number: of a target in its route, or of a key.

    counts: place → the number of sessions that it has.
    """

    __slots__ = ("_kept", "counts")

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[int, float]] = OrderedDict()
        self.counts: Counter[int] = Counter()

    def place(self, session: Hashable, now: float) -> int | None:
        """Return the place of a session; None if it has none."""
        self._expire(now)
        kept = self._kept.get(session)
        return None if kept is None else kept[0]

    def keep(self, session: Hashable, place: int, now: float) -> None:
        """A call of a session is sent to a place, which the session keeps."""
        self.end(session)
        self._kept[session] = (place, now)
        self.counts[place] += 1
        if len(self._kept) > MOST_SESSIONS:
            self.end(next(iter(self._kept)))
        self._expire(now)

    def end(self, session: Hashable) -> None:
        """Forget the place of a session."""
        kept = self._kept.pop(session, None)
        if kept is not None:
            self.counts[kept[0]] -= 1

    def _expire(self, now: float) -> None:
        while self._kept:
            session, (_, used_at) = next(iter(self._kept.items()))
            if now - used_at < SESSION_KEPT:
                return
            self.end(session)
