"""Anthropic's token counts → `Usage`. Arithmetic only."""

from __future__ import annotations

from ..json_values import JSONObject, integer, mapping
from ..usage import Usage


def read_usage(raw: JSONObject) -> Usage:
    """Anthropic's token counts → ours.

    Its `input_tokens` leave out what was read from or written to a cache, ours do not; its `output_tokens` include
    thinking, ours do not. Thinking is reported only by some models (`output_tokens_details`).
    """
    if not raw:
        return Usage()
    uncached = integer(raw, "input_tokens")
    read = integer(raw, "cache_read_input_tokens")
    written = integer(raw, "cache_creation_input_tokens")
    generated = integer(raw, "output_tokens")
    thinking = integer(mapping(raw, "output_tokens_details"), "thinking_tokens")
    given = None if uncached is None else uncached + (read or 0) + (written or 0)
    return Usage(
        input_tokens=given,
        output_tokens=None if generated is None else max(0, generated - (thinking or 0)),
        thinking_tokens=thinking,
        cached_tokens=read,
        cache_write_tokens=written,
        total_tokens=None if given is None or generated is None else given + generated,
        raw=raw,
    )
