"""Reasoning in a chat answer: under which member it comes, and what of it has to go back.

Knows the members that servers put reasoning text in, and OpenRouter's `reasoning_details`. Must not know events
or requests.
"""

from __future__ import annotations

from ...answer_limits import AnswerCount
from ...json_values import JSON, JSONObject, integer, mapping, string, without_nulls

TEXT_MEMBERS = ("reasoning_content", "reasoning", "reasoning_text")
"""Where reasoning text comes (DeepSeek and most; OpenRouter, Groq, Ollama; Copilot). The first that has text is
the source for the whole answer: servers repeat the same text under a second name and in the details."""

DETAILS = "reasoning_details"

STATE_MEMBER = "reasoning_member"
"""In a thinking block's state: the member that its text came in."""

_PIECES: dict[str, str] = {"reasoning.text": "text", "reasoning.summary": "summary"}
"""Type of a detail → the member of it that is cut into pieces by a stream."""


def plain_text(value: JSON) -> str:
    """The text of a reasoning member: a string, or an object around one."""
    if type(value) is str:
        return value
    if type(value) is dict:
        return string(value, "content") or string(value, "text") or ""
    return ""


def details_text(details: list[JSON]) -> str:
    """The text and the summaries in a list of details."""
    pieces: list[str] = []
    for detail in details:
        if type(detail) is dict:
            name = _PIECES.get(string(detail, "type") or "")
            pieces.append((string(detail, name) or "") if name else "")
    return "".join(pieces)


class _Detail:
    """One detail that fragments are being merged into."""

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
                # A signature comes with the last fragment, and the ones before it say null.
                self.members[key] = value

    def value(self) -> JSONObject:
        return self.members if self.name is None else {**self.members, self.name: "".join(self.pieces)}


class ReasoningDetails:
    """OpenRouter's list of signed or encrypted reasoning, put together again from a stream's fragments.

    A fragment of text or summary continues the detail of its type and index, unless their ids differ. Encrypted
    details come whole. The order is that of their first fragments, as the servers want it back.
    """

    __slots__ = ("_count", "_details", "_open")

    def __init__(self, count: AnswerCount) -> None:
        self._count = count
        self._details: list[_Detail] = []
        self._open: dict[tuple[str, int | None], _Detail] = {}

    def add(self, fragments: list[JSON]) -> None:
        """Take the details of one delta. Raises `ProviderError` for more than an answer may have blocks."""
        for fragment in fragments:
            if type(fragment) is not dict:
                continue
            kind = string(fragment, "type") or ""
            name = _PIECES.get(kind)
            key = (kind, integer(fragment, "index"))
            detail = self._open.get(key)
            if name is None or detail is None or _different(detail.members, fragment):
                self._count.add_block()  # it takes as much, and goes back like one
                detail = _Detail(fragment, name)
                self._details.append(detail)
                self._open[key] = detail
            else:
                detail.merge(fragment)

    def values(self) -> list[JSON]:
        """The details so far, whole."""
        return [detail.value() for detail in self._details]


def _different(members: JSONObject, fragment: JSONObject) -> bool:
    known, id = members.get("id"), fragment.get("id")
    return known is not None and id is not None and known != id


def state_members(data: JSONObject) -> JSONObject:
    """The members of a thinking block's state that go back into the assistant message as they came."""
    members: JSONObject = {}
    details = data.get(DETAILS)
    if type(details) is list and details:
        members[DETAILS] = details
    extra = mapping(data, "extra_content")
    if extra:
        members["extra_content"] = extra
    return members
