"""Converts the token counts of an interaction to `Usage`."""

from __future__ import annotations

from ..json.json_values import JSONObject, integer
from ..model.tokens import Usage


def read_usage(raw: JSONObject) -> Usage:
    """Return the token counts as `Usage`. A missing count is None.

    `total_output_tokens` exclude thoughts. The results of built-in tools (`total_tool_use_tokens`), which
    `total_input_tokens` exclude, are input: they are billed as such.
    """
    given, output = integer(raw, "total_input_tokens"), integer(raw, "total_output_tokens")
    thoughts, total = integer(raw, "total_thought_tokens"), integer(raw, "total_tokens")
    tool_results = integer(raw, "total_tool_use_tokens")
    if tool_results:
        given = (given or 0) + tool_results
    if total is None and given is not None and output is not None:
        total = given + output + (thoughts or 0)
    return Usage(
        input_tokens=given,
        output_tokens=output,
        thinking_tokens=thoughts,
        cached_tokens=integer(raw, "total_cached_tokens"),
        total_tokens=total,
        raw=raw,
    )
