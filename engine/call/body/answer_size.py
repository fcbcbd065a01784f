"""Count the received bytes of one answer, and decide when the count is compared with the limits.

The count is compared once per `STEP_BYTES`, so that it costs nothing per event: the reader of body bytes only subtracts
them from `bytes_left`.
"""

from __future__ import annotations

from ...request.buffered import STEP_BYTES


class AnswerSize:
    """The size of one answer.

    bytes_left: the number of body bytes until the next check of the size; negative when the check is due.
    """

    __slots__ = ("_limit", "_looked_at", "_next_look", "bytes_left")

    def __init__(self, limit: int) -> None:
        """Create the count. `limit` is the maximum size of one answer, in bytes."""
        self._limit = limit
        self._looked_at = 0
        self._next_look = min(STEP_BYTES, limit)
        self.bytes_left: int = self._next_look

    def count(self, size: int) -> bool:
        """Count `size` more bytes. Returns whether the check is due."""
        self.bytes_left -= size
        return self.bytes_left < 0

    @property
    def received(self) -> int:
        """The number of body bytes so far."""
        return self._next_look - self.bytes_left

    def look(self) -> int | None:
        """Schedule the next check. Returns the bytes received since the last one; None if the answer is too large."""
        received = self.received
        if received > self._limit:
            return None
        self._next_look = min(received + STEP_BYTES, self._limit)
        self.bytes_left = self._next_look - received
        grown, self._looked_at = received - self._looked_at, received
        return grown
