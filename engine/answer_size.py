"""How many bytes of one answer have been received, and when that number is compared with the limits.

The number is looked at once for every `STEP_BYTES`, so that it costs nothing per event: the reader of body bytes only
subtracts them from `bytes_left`.

Knows sizes. Must not know what is in an answer, nor how an attempt ends.
"""

from __future__ import annotations

from .buffered import STEP_BYTES


class AnswerSize:
    """The size of one answer.

    bytes_left: body bytes that may come until the size is looked at; negative when it is time to.
    """

    __slots__ = ("_limit", "_looked_at", "_next_look", "bytes_left")

    def __init__(self, limit: int) -> None:
        """limit: bytes of one answer."""
        self._limit = limit
        self._looked_at = 0
        self._next_look = min(STEP_BYTES, limit)
        self.bytes_left: int = self._next_look

    @property
    def received(self) -> int:
        """Body bytes so far."""
        return self._next_look - self.bytes_left

    def look(self) -> int | None:
        """Set the next look. Returns the bytes that came since the latest one; None where the answer is too large."""
        received = self.received
        if received > self._limit:
            return None
        self._next_look = min(received + STEP_BYTES, self._limit)
        self.bytes_left = self._next_look - received
        grown, self._looked_at = received - self._looked_at, received
        return grown
