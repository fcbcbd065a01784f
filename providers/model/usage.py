"""The token counts of one answer: the same six numbers for every provider."""

from __future__ import annotations

from dataclasses import dataclass

from ..json.json_types import JSONObject


@dataclass(slots=True)
class Usage:
    """Token counts, as whole numbers. A count that the provider did not report is None, never 0.

    input_tokens: all input, including what was read from or written to a cache.
    output_tokens: visible output, without thinking.
    thinking_tokens: thinking output.
    cached_tokens: the part of the input that was read from a cache.
    cache_write_tokens: the part of the input that was written to a cache.
    total_tokens: the total that the provider reports, else the sum if all parts are known.
    raw: the provider's own report, as received.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    total_tokens: int | None = None
    raw: JSONObject | None = None
