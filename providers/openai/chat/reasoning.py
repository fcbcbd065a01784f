"""Reasoning in a chat answer: the members that it comes in, and what of it must be sent back."""

from __future__ import annotations

from ...json.json_values import JSON, JSONObject, integer, mapping, string, without_nulls
from ...wire.accumulate import REFUSAL
from ...wire.answer_limits import AnswerCount

TEXT_MEMBERS = ("reasoning_content", "reasoning", "reasoning_text")
"""Members with reasoning text (DeepSeek and most servers; OpenRouter, Groq, Ollama; Copilot). The first one with text
is used for the whole answer: servers repeat the text in a second member and in the details.
"""

DETAILS = "reasoning_details"

STATE_MEMBER = "reasoning_member"
"""Member of a thinking block's state: the name of the member that its text came in."""

_PIECES: dict[str, str] = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""Type of a detail → its member that a stream sends in pieces."""


def plain_text(value: JSON) -> str:
    """Return the text of a reasoning member: a string, or an object with one."""
    if type(value) is str:
        return value
    if type(value) is dict:
        return string(value, "content") or string(value, "text") or ""
    return ""


def details_text(details: list[JSON]) -> str:
    """Return the texts and summaries in a list of details, joined."""
    pieces: list[str] = []
    for detail in details:
        if type(detail) is dict:
            name = _PIECES.get(string(detail, "type") or "")
            if name is not None:
                pieces.append(string(detail, name) or "")
    return "".join(pieces)


class _Detail:
    """One detail that is merged from fragments.

    name: the member that comes in pieces, or None.
    """

    __slots__ = ("members", "name", "pieces")

    def __init__(self, fragment: JSONObject, name: str | None) -> None:
        self.members = dict(without_nulls(fragment))
        self.name = name
        self.pieces: list[str] = [] if name is None else [string(fragment, name) or ""]

    def merge(self, fragment: JSONObject) -> None:
        for key, value in fragment.items():
            if key == self.name:
                self.pieces.append(value if type(value) is str else "")
            elif value is not None:
                # The last fragment has the signature; earlier ones have null.
                self.members[key] = value

    def value(self) -> JSONObject:
        return self.members if self.name is None else {**self.members, self.name: "".join(self.pieces)}


class ReasoningDetails:
    """OpenRouter's list of signed or encrypted reasoning, merged from a stream's fragments.

    A fragment of a text or summary continues the detail of its type and index, unless their ids differ. Encrypted
    details come whole. They are in the order of their first fragments, as the servers want them back.
    """

    __slots__ = ("_count", "_details", "_open")

    def __init__(self, count: AnswerCount) -> None:
        self._count = count
        self._details: list[_Detail] = []
        self._open: dict[tuple[str, int | None], _Detail] = {}

    def add(self, fragments: list[JSON]) -> None:
        """Add the details of one delta. Raises `ProviderError` beyond the limit of content blocks."""
        for fragment in fragments:
            if type(fragment) is not dict:
                continue
            kind = string(fragment, "type") or ""
            name = _PIECES.get(kind)
            key = (kind, integer(fragment, "index"))
            detail = self._open.get(key)
            if name is None or detail is None or _different(detail.members, fragment):
                self._count.add_block()  # a detail takes as much memory as a block
                detail = _Detail(fragment, name)
                self._details.append(detail)
                self._open[key] = detail
            else:
                detail.merge(fragment)

    def values(self) -> list[JSON]:
        return [detail.value() for detail in self._details]


def _different(members: JSONObject, fragment: JSONObject) -> bool:
    """Return whether a fragment belongs to another detail: both have ids, and these differ."""
    known, id = members.get("id"), fragment.get("id")
    return known is not None and id is not None and known != id


def state_members(data: JSONObject) -> JSONObject:
    """Return the members of a block's state that are sent back in the assistant message as they came."""
    members: JSONObject = {}
    details = data.get(DETAILS)
    if type(details) is list and details:
        members[DETAILS] = details
    extra = mapping(data, "extra_content")
    if extra:
        members["extra_content"] = extra
    refusal = string(data, REFUSAL)
    if refusal:
        members[REFUSAL] = refusal
    return members
