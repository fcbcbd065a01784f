"""Converts the token counts of a Responses object to `Usage`. Arithmetic only."""

from __future__ import annotations

from ...json.json_values import JSONObject, integer, mapping
from ...model.usage import Usage


def read_usage(raw: JSONObject) -> Usage:
    """Return the token counts as `Usage`.

    `input_tokens` include cached input. `output_tokens` include reasoning, which is subtracted unless the total shows
    that the server counts it separately.
    """
    inputs, details = integer(raw, "input_tokens"), mapping(raw, "input_tokens_details")
    outputs, thinking = (
        integer(raw, "output_tokens"),
        integer(mapping(raw, "output_tokens_details"), "reasoning_tokens"),
    )
    total = integer(raw, "total_tokens")
    visible = outputs
    if outputs is not None and thinking is not None:
        apart = inputs is not None and total == inputs + outputs + thinking
        visible = outputs if apart else max(outputs - thinking, 0)
    if total is None and inputs is not None and outputs is not None:
        total = inputs + outputs
    return Usage(
        input_tokens=inputs,
        output_tokens=visible,
        thinking_tokens=thinking,
        cached_tokens=integer(details, "cached_tokens"),
        cache_write_tokens=integer(details, "cache_write_tokens"),
        total_tokens=total,
        raw=raw,
    )
