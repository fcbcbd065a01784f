"""Collects what an answer has besides its content: safety ratings, grounding, log probabilities, other candidates.

It goes to `provider_data` under the wire's own names. In a stream, members of a later value replace those of an earlier
one; only lists that each chunk continues (`CONTINUED`) grow.
"""

from __future__ import annotations

from ..json.json_values import JSON, JSONObject, items, objects, without_nulls
from ..wire.accumulate import Accumulator, TextInProgress
from ..wire.answer_limits import AnswerCount
from .usage import read_usage

USAGE = "usageMetadata"
"""The member with the token counts."""

CONTINUED: dict[str, tuple[str, ...]] = {
    "citationMetadata": ("citations", "citationSources"),
    "logprobsResult": ("chosenCandidates", "topCandidates"),
}
"""Member → its lists that continue from chunk to chunk: each chunk has only the new elements."""

PLAIN_PART = {"text"}
"""The members of a part with text only."""


class Extras:
    """Collects the extras of one stream. `settle` adds them to the answer."""

    __slots__ = ("_others", "_usage", "_values")

    def __init__(self) -> None:
        self._usage: JSONObject | None = None
        self._values: dict[str, JSON] = {}
        self._others: dict[int, tuple[dict[str, JSON], list[JSON]]] = {}  # index → members, parts

    def take_usage(self, value: JSON, raw: bytes = b"") -> None:
        """Read `usageMetadata`. The counts are totals, so the last report counts, unless it is empty."""
        if value and type(value) is dict:
            self._usage = value

    def note(self, name: str, value: JSON) -> None:
        """Add one member of a chunk or of candidate 0."""
        _note(self._values, name, value)

    def other_candidate(self, index: int, candidate: JSONObject, count: AnswerCount) -> None:
        """Add a candidate that is not the answer. Raises `ProviderError` beyond the limit of choices."""
        if index not in self._others:
            count.check_choices(len(self._others) + 2)  # this one, and the answer's own
        members, parts = self._others.setdefault(index, ({"index": index}, []))
        for name, value in candidate.items():
            if name == "content" and type(value) is dict:
                parts.extend(without_nulls(part) if type(part) is dict else part for part in items(value, "parts"))
                members["content"] = {**value, "parts": []}
            else:
                _note(members, name, value)

    def settle(self, answer: Accumulator) -> None:
        """Add the extras to the answer. May be called any number of times."""
        if self._usage is not None:
            answer.usage = read_usage(self._usage)
        answer.provider_data.update(self._values)
        if self._others:
            answer.provider_data["candidates"] = [_candidate(*self._others[index]) for index in sorted(self._others)]
        citations = self._values.get("citationMetadata")
        if type(citations) is dict:
            # Offsets refer to the whole text, so they go to the last of several text blocks.
            text = next((block for block in reversed(answer.blocks) if isinstance(block, TextInProgress)), None)
            if text is not None:
                text.citations = objects(citations, "citations") or objects(citations, "citationSources")


def _note(values: dict[str, JSON], name: str, value: JSON) -> None:
    """Merge a member of a later chunk into the earlier values."""
    if value is None:
        return
    earlier = values.get(name)
    if type(value) is not dict or type(earlier) is not dict:
        values[name] = value
        return
    continued = CONTINUED.get(name, ())
    for key, member in value.items():
        so_far = earlier.get(key)
        if key in continued and type(so_far) is list and type(member) is list:
            so_far.extend(member)
        elif member is not None:
            earlier[key] = member


def _candidate(members: JSONObject, parts: list[JSON]) -> JSONObject:
    content = members.get("content")
    if type(content) is not dict:
        return dict(members)
    return {**members, "content": {**content, "parts": _merged(parts)}}


def _merged(parts: list[JSON]) -> list[JSON]:
    """Return parts with adjacent plain texts joined, as in an unstreamed answer."""
    merged: list[JSON] = []
    texts: list[str] = []
    for part in (*parts, None):
        text = part.get("text") if type(part) is dict and part.keys() == PLAIN_PART else None
        if type(text) is str:
            texts.append(text)
            continue
        if texts:
            merged.append({"text": "".join(texts)})
            texts = []
        if part is not None:
            merged.append(part)
    return merged
