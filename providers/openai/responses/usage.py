"""Converts the token counts of a Responses object to `Usage`. Arithmetic only."""

from __future__ import annotations

from ...json.json_values import JSONObject, first_integer, integer, mapping
from ...model.tokens import Usage


def read_usage(raw: JSONObject) -> Usage:
    """Return the token counts as `Usage`.

    `input_tokens` include cached input. `output_tokens` include reasoning, which is subtracted unless the total shows
    that the server counts it separately. SGLang sends the names of Chat Completions.
    """
    inputs = first_integer(raw, ("input_tokens", "prompt_tokens"))
    outputs = first_integer(raw, ("output_tokens", "completion_tokens"))
    details = mapping(raw, "input_tokens_details") or mapping(raw, "prompt_tokens_details")
    parts = mapping(raw, "output_tokens_details") or mapping(raw, "completion_tokens_details") or raw
    thinking = integer(parts, "reasoning_tokens")
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
        cache_write_tokens=first_integer(details, ("cache_write_tokens", "cache_creation_input_tokens")),
        total_tokens=total,
        raw=raw,
    )
