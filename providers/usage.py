"""Token counts of one answer. Knows the six numbers every provider's report is turned into, nothing of how."""

from __future__ import annotations

from dataclasses import dataclass

from .json_values import JSONObject


@dataclass(slots=True)
class Usage:
    """Tokens, as whole numbers. Unknown is None, never 0.

    input_tokens: all input, what was read from or written to a cache included.
    output_tokens: visible output; thinking is not in it.
    thinking_tokens: thinking output.
    cached_tokens: the part of the input that was read from a cache.
    cache_write_tokens: the part of the input that was written to a cache.
    total_tokens: as the provider reports it, else the sum where all parts are known.
    raw: the provider's own report, as received.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None
    raw: JSONObject | None = None
