"""A limit on how fast requests start: requests per second and tokens per minute.

Knows arithmetic only. Must not read a clock: the caller passes the time in seconds.
"""

from __future__ import annotations

BURST_SECONDS = 5.0
"""The token budget may save up tokens for this many seconds.

A full minute's budget would allow twice the tokens in the first minute.
"""

CATCH_UP = 0.05
"""The most that a late start is made up for, in seconds. Timers are a little late, which would lower the rate."""

CLOCK_STEP = 1e-6
"""The shortest wait, in seconds. A shorter one, added to the clock's time, may not change it."""


class Pace:
    """Two budgets: requests per second and tokens per minute.

    max_rps: requests per second; None for no limit.
    max_tpm: input and output tokens per minute; None for no limit.
    now: the current time in seconds.

    A request is charged an estimate when it starts, and the difference to the real number when it has ended. A request
    that is larger than the whole budget starts when the budget is full.
    """

    __slots__ = ("_full", "_level", "_level_at", "_next_start", "_per_second", "_spacing")

    def __init__(self, max_rps: float | None, max_tpm: float | None, now: float) -> None:
        self._spacing = 1 / max_rps if max_rps is not None else 0.0
        self._next_start = now
        self._per_second = max_tpm / 60 if max_tpm is not None else None
        self._full = self._level = (self._per_second or 0.0) * BURST_SECONDS
        self._level_at = now

    def delay(self, now: float, tokens: float) -> float:
        """Return the seconds until a request of about so many tokens may start; 0 if it may start now."""
        wait = self._next_start - now
        if self._per_second is not None:
            self._refill(now, self._per_second)
            wait = max(wait, (min(tokens, self._full) - self._level) / self._per_second)
        return wait if wait > CLOCK_STEP else 0.0

    def start(self, now: float, tokens: float) -> None:
        """Charge a request of about so many tokens, which starts now."""
        self._next_start = max(self._next_start, now - CATCH_UP) + self._spacing
        if self._per_second is not None:
            self._refill(now, self._per_second)
            self._level -= tokens

    def settle(self, estimated: float, used: float) -> None:
        """Correct the charge of a request that has ended. `used` is the number of tokens it really took."""
        self._level = min(self._full, self._level + estimated - used)

    def _refill(self, now: float, per_second: float) -> None:
        self._level = min(self._full, self._level + (now - self._level_at) * per_second)
        self._level_at = now


class TokenEstimate:
    """An estimate of a request's tokens, from its size and from earlier requests."""

    __slots__ = ("_output", "_per_byte")

    def __init__(self) -> None:
        self._per_byte = 0.25
        self._output = 256.0

    def tokens(self, size: int, limit: int | None) -> float:
        """Return the estimated input and output tokens of a request.

        size: the length of its line in bytes.
        limit: the largest number of output tokens that the request allows, or None.
        """
        output = self._output if limit is None else min(self._output, limit)
        return size * self._per_byte + output

    def learn(self, size: int, input_tokens: int | None, output_tokens: int | None) -> None:
        """Adjust the estimate to the tokens of a request that has ended. About the last hundred requests count."""
        if input_tokens is not None and size:
            self._per_byte += (input_tokens / size - self._per_byte) * 0.02
        if output_tokens is not None:
            self._output += (output_tokens - self._output) * 0.02
