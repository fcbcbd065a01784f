"""Cache marks on the wire: reads them from messages, parts and tools, and writes them.

`cache_control` is Anthropic's; gateways take it in OpenAI's forms as well. `prompt_cache_breakpoint` is OpenAI's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from ..json.json_values import JSONObject, mapping, string
from ..model.messages import CacheControl

CACHE_CONTROL: Final = "cache_control"
BREAKPOINT: Final = "prompt_cache_breakpoint"

MARKS: Final = (CACHE_CONTROL, BREAKPOINT)
"""Members that mark the end of a part of the prompt that may be cached."""

ANTHROPIC_LIFETIMES: Final[dict[str, Literal["5m", "1h"]]] = {"5m": "5m", "1h": "1h"}
"""Lifetime of a `cache_control` → `CacheControl.ttl`. There is no other."""

OPENAI_LIFETIMES: Final[dict[str, Literal["5m", "1h"]]] = {"30m": "5m", "12h": "1h"}
"""Lifetime of OpenAI's mark → the longest `CacheControl.ttl` that it keeps. A mark is written with the shortest
lifetime that is long enough. A mark with any other lifetime is read as a mark without one.
"""

_WRITTEN_LIFETIMES: Final = {ours: theirs for theirs, ours in OPENAI_LIFETIMES.items()}


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
        raise error(f"{where}.{CACHE_CONTROL}.ttl", f"must be '5m' or '1h', not {ttl!r}")
    return CacheControl(ANTHROPIC_LIFETIMES[ttl])


def written_mark(mark: CacheControl, member: str) -> JSONObject:
    """Return the value of a cache mark's member, which is one of `MARKS`."""
    if member == BREAKPOINT:
        return {"mode": "explicit"} if mark.ttl is None else {"mode": "explicit", "ttl": _WRITTEN_LIFETIMES[mark.ttl]}
    return {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": mark.ttl}
