"""Reads the marks for prompt caching, which OpenAI's chat form has borrowed from Anthropic's. Knows no block."""

from __future__ import annotations

from collections.abc import Callable

from .json_values import JSONObject, mapping
from .messages import CacheControl


def read_mark(wire: JSONObject, where: str, error: Callable[[str, str], Exception]) -> CacheControl | None:
    """Return the cache mark of a block, a part or a tool. Raises `error` of a place and a reason."""
    mark = mapping(wire, "cache_control")
    ttl = mark.get("ttl")
    if not mark or ttl is None:
        return CacheControl() if mark else None
    if ttl == "5m":
        return CacheControl("5m")
    if ttl == "1h":
        return CacheControl("1h")
    raise error(f"{where}.cache_control.ttl", f"must be '5m' or '1h', not {ttl!r}")
