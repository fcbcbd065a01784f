"""Cache marks on the wire: reads them from messages, parts and tools, and writes them.

`cache_control` is Anthropic's; gateways take it in OpenAI's forms as well. `prompt_cache_breakpoint` is OpenAI's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Final, Literal, NamedTuple

from ..json.exact_numbers import UnwritableError
from ..json.json_values import JSONObject, MalformedJSONError, dumps, loads_object, mapping, string
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


_WIRE_MARK: Final = re.compile(rb'"(?:cache_control|prompt_cache_breakpoint)":\{[^{}]*\}')
"""A mark in a serialised body. It is in no text: a quotation mark in a text has a backslash."""

_PROMPT: Final = re.compile(rb'"(?:system|instructions|systemInstruction|system_instruction|messages|input|contents)":')
_TOOLS: Final = b'"tools":['
_BEHIND_TOOLS: Final = re.compile(rb',"(?:tool_choice|toolConfig)":')
_CONVERSATION: Final = b'"role":"user"'

_IN_ORDER: Final = (
    "system", "instructions", "systemInstruction", "system_instruction", "messages", "input", "contents", "tools",
    "tool_choice", CACHE_CONTROL,
)  # fmt: skip
"""The members of a prompt, in the order in which they are written here."""

LIFETIMES: Final = {b'"1h"': 3600.0, b'"30m"': 1800.0, b'"12h"': 43_200.0}
"""Lifetime in a mark on the wire → seconds."""

LIFETIME: Final = 300.0
"""Seconds that servers keep a prefix whose mark names no other lifetime, at least."""


class WirePrefix(NamedTuple):
    """A beginning of the prompt in a serialised body, which a server may cache.

    tools: where the tools in it begin and end in the body.
    rest: the same of what follows them: system prompt and messages.
    lifetime: seconds that the server keeps it.
    """

    tools: tuple[int, int]
    rest: tuple[int, int]
    lifetime: float

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.tools[1] - self.tools[0] + self.rest[1] - self.rest[0]

    def parts(self, body: bytes) -> tuple[bytes, bytes]:
        """Return tools and rest."""
        return body[self.tools[0] : self.tools[1]], body[self.rest[0] : self.rest[1]]


def digest_of(tools: bytes, rest: bytes) -> bytes:
    """Return the digest of a prefix."""
    return sha256(b"%d\0%b%b" % (len(tools), tools, rest)).digest()


def in_order(body: bytes) -> bytes:
    """Return the prompt of a body that a client wrote, in the form and order in which it is written here."""
    try:
        members = loads_object(body)
        return dumps({name: members[name] for name in _IN_ORDER if name in members})
    except (MalformedJSONError, UnwritableError):
        return body


def wire_prefixes(body: bytes, *, unmarked: bool) -> list[WirePrefix]:
    """Return the prefixes that the marks in a body end, the shortest first. In a prompt, tools come before the rest.

    unmarked: whether a body without marks has one, which ends before the conversation: tools and system prompt.
    """
    marks = [*_WIRE_MARK.finditer(body)]
    whole = system_prefix(body) if marks or unmarked else None
    if whole is None or not marks:
        return [] if whole is None else [whole]
    (tools, end_of_tools), (start, _), _ = whole
    prefixes: list[WirePrefix] = []
    for mark in marks:
        lifetime = next((seconds for word, seconds in LIFETIMES.items() if word in mark[0]), LIFETIME)
        at = mark.start()
        is_in_tools = tools <= at < end_of_tools
        ends = ((tools, at), (0, 0)) if is_in_tools else ((tools, end_of_tools), (start, at))
        prefixes.append(WirePrefix(*ends, lifetime))
    return sorted(prefixes, key=lambda prefix: prefix.size)


def system_prefix(body: bytes) -> WirePrefix | None:
    """Return tools and system prompt of a body; None if it has no prompt of a known form."""
    found = _PROMPT.search(body)
    end = -1 if found is None else body.find(_CONVERSATION, found.start())
    if found is None or end < 0:
        return None
    tools = body.rfind(_TOOLS)
    behind = None if tools < 0 else _BEHIND_TOOLS.search(body, tools)
    end_of_tools = -1 if tools < 0 else len(body) if behind is None else behind.start()
    return WirePrefix((tools, end_of_tools), (found.start(), end), LIFETIME)


_DIAGNOSIS: Final = {
    "anthropic": (b"diagnostics", b"previous_message_id"),
    "openai-chat": (b"prompt_cache_options", b"comparison_response_id"),
    "openai-responses": (b"prompt_cache_options", b"comparison_response_id"),
}
"""Dialect → the member that asks why a prompt was not in the cache, and its member for the answer to compare with."""


def asking_why(body: bytes, dialect: str, answer_id: str) -> bytes:
    """Return a body that asks why its prompt is not in the cache, unless it asks something there already.

    answer_id: of an answer whose prompt began alike.
    """
    member, compared = _DIAGNOSIS.get(dialect, (b"", b""))
    if not member or b'"%b":' % member in body or not body.endswith(b"}"):
        return body
    return b'%b,"%b":{"%b":%b}}' % (body[:-1], member, compared, dumps(answer_id))


def why_missed(provider_data: JSONObject) -> str:
    """Return why a prompt was not in the cache, in the server's words; empty if the server does not say so."""
    found = mapping(provider_data, "diagnostics") or mapping(provider_data, "prompt_cache_diagnostics") or {}
    reason = found.get("cache_miss_reason") or found.get("cache_miss")
    if type(reason) is dict:
        reason = reason.get("type") or reason.get("reason")
    return reason if type(reason) is str else ""
