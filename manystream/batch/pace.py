"""How fast requests may start: so many a second, so many tokens a minute. Arithmetic only; time is passed in."""

from __future__ import annotations

BURST_SECONDS = 5.0
"""What a token budget may run ahead: a minute's budget at once would allow two of them in the first minute."""

CATCH_UP = 0.05
"""Seconds of lateness that are made up for: timers are always a little late, and the rate is to be kept."""

CLOCK_STEP = 1e-6
"""Seconds. A shorter wait is none: added to a clock's reading, it may not change it."""


class Pace:
    """Two budgets. max_rps: requests a second. max_tpm: tokens a minute, input and output together. None: no bound.

    A request is charged an estimate when it starts, and what it really took when it has ended. One that is larger than
    the whole budget goes when the budget is full.
    """

    __slots__ = ("_full", "_level", "_level_at", "_next_start", "_per_second", "_spacing")

    def __init__(self, max_rps: float | None, max_tpm: float | None, now: float) -> None:
        self._spacing = 1 / max_rps if max_rps is not None else 0.0
        self._next_start = now
        self._per_second = max_tpm / 60 if max_tpm is not None else None
        self._full = self._level = (self._per_second or 0.0) * BURST_SECONDS
        self._level_at = now

    def delay(self, now: float, tokens: float) -> float:
        """Seconds until a request of about so many tokens may start; 0: it may now."""
        wait = self._next_start - now
        if self._per_second is not None:
            self._refill(now, self._per_second)
            wait = max(wait, (min(tokens, self._full) - self._level) / self._per_second)
        return wait if wait > CLOCK_STEP else 0.0

    def start(self, now: float, tokens: float) -> None:
        """One starts."""
        self._next_start = max(self._next_start, now - CATCH_UP) + self._spacing
        if self._per_second is not None:
            self._refill(now, self._per_second)
            self._level -= tokens

    def settle(self, estimated: float, used: float) -> None:
        """One has ended, and took so many."""
        self._level = min(self._full, self._level + estimated - used)

    def _refill(self, now: float, per_second: float) -> None:
        self._level = min(self._full, self._level + (now - self._level_at) * per_second)
        self._level_at = now


class TokenEstimate:
    """What a request is likely to take, from its size and from what earlier ones took."""

    __slots__ = ("_output", "_per_byte")

    def __init__(self) -> None:
        self._per_byte = 0.25
        self._output = 256.0

    def tokens(self, size: int, limit: int | None) -> float:
        """Of a line of so many bytes, whose answer may have `limit` tokens."""
        output = self._output if limit is None else min(self._output, limit)
        return size * self._per_byte + output

    def learn(self, size: int, input_tokens: int | None, output_tokens: int | None) -> None:
        """What one really took; the last hundred or so count."""
        if input_tokens is not None and size:
            self._per_byte += (input_tokens / size - self._per_byte) * 0.02
        if output_tokens is not None:
            self._output += (output_tokens - self._output) * 0.02
