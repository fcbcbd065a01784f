"""Reads the cache marks of messages, parts and tools: `cache_control`, which is Anthropic's, and which gateways take in
OpenAI's forms as well, and OpenAI's own mark. Knows no block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from .json_values import JSONObject, mapping, string
from .messages import CacheControl

MARKS: Final = ("cache_control", "prompt_cache_breakpoint")
"""Members that mark the end of a part of the prompt that may be cached."""

ANTHROPIC_LIFETIMES: Final[dict[str, Literal["5m", "1h"]]] = {"5m": "5m", "1h": "1h"}
"""Lifetime of a `cache_control` → `CacheControl.ttl`. There is no other."""

OPENAI_LIFETIMES: Final[dict[str, Literal["5m", "1h"]]] = {"30m": "5m", "12h": "1h"}
"""Lifetime of OpenAI's mark → `CacheControl.ttl`: the shortest one that OpenAI has for it. OpenAI's APIs have others; a
mark with one of these is read as a mark without a lifetime."""


def read_mark(wire: JSONObject, where: str, error: Callable[[str, str], Exception]) -> CacheControl | None:
    """Return the cache mark of a message, a part or a tool, or None if it has none.

    where: the path of `wire`.
    error: makes the exception for a lifetime that does not exist, from its path and the reason.
    """
    mark, breakpoint = (mapping(wire, name) for name in MARKS)
    if not mark:
        return CacheControl(OPENAI_LIFETIMES.get(string(breakpoint, "ttl") or "")) if breakpoint else None
    ttl = mark.get("ttl")
    if ttl is None:
        return CacheControl()
    if type(ttl) is not str or ttl not in ANTHROPIC_LIFETIMES:
        raise error(f"{where}.{MARKS[0]}.ttl", f"must be '5m' or '1h', not {ttl!r}")
    return CacheControl(ANTHROPIC_LIFETIMES[ttl])
