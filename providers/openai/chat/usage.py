"""Converts token reports of chat servers to `Usage`. Tables and arithmetic only."""

from __future__ import annotations

from ...json.json_values import JSONObject, first_integer, integer, mapping
from ...model.tokens import Usage

_CACHED = ("prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens")
_CACHE_WRITES = ("cache_creation_input_tokens", "cache_write_tokens")


def read_usage(report: JSONObject) -> Usage:
    """Return a server's report as `Usage`. Counts that it does not have are None."""
    prompt = first_integer(report, ("prompt_tokens", "input_tokens"))
    completion = first_integer(report, ("completion_tokens", "output_tokens"))
    total = integer(report, "total_tokens")
    prompt_details = mapping(report, "prompt_tokens_details") or mapping(report, "input_tokens_details")
    details = mapping(report, "completion_tokens_details") or mapping(report, "output_tokens_details")
    thinking = integer(details, "reasoning_tokens")
    if thinking is None:
        thinking = integer(report, "reasoning_tokens")
    cached = integer(prompt_details, "cached_tokens")
    written = first_integer(prompt_details, (*_CACHE_WRITES, "cache_creation_tokens"))
    if total is None and prompt is not None and completion is not None:
        total = prompt + completion
    return Usage(
        input_tokens=prompt,
        output_tokens=_visible(prompt, completion, thinking, total),
        thinking_tokens=thinking,
        cached_tokens=first_integer(report, _CACHED) if cached is None else cached,
        cache_write_tokens=first_integer(report, _CACHE_WRITES) if written is None else written,
        total_tokens=total,
        raw=report,
    )


def _visible(prompt: int | None, completion: int | None, thinking: int | None, total: int | None) -> int | None:
    """Return the visible output.

    OpenAI counts reasoning inside `completion_tokens`. xAI and others count it separately, which shows in the total, or
    in more reasoning than completion.
    """
    if completion is None or not thinking:
        return completion
    beside = prompt is not None and total == prompt + completion + thinking
    return completion if beside or thinking > completion else completion - thinking
