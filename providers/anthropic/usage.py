"""Converts Anthropic's token counts to `Usage`. Must not know where they come from."""

from __future__ import annotations

from ..json_values import JSONObject, integer, mapping
from ..usage import Usage


def read_usage(raw: JSONObject) -> Usage:
    """Return Anthropic's token counts as `Usage`.

    Anthropic's `input_tokens` exclude tokens that were read from or written to a cache; those of `Usage` include them.
    Its `output_tokens` include thinking; those of `Usage` do not. Only some models report thinking
    (`output_tokens_details`).
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
