"""What an answer carries beside its content: safety ratings, grounding, log probabilities, other candidates.

It goes to `provider_data` under the wire's own names. In a stream a later value replaces an earlier one member by
member; only lists that each chunk continues (`CONTINUED`) grow. Must not know content blocks, but for the citations
that belong on a text.
"""

from __future__ import annotations

from ..accumulate import Accumulator, TextInProgress
from ..answer_limits import AnswerCount
from ..json_values import JSON, JSONObject, items, objects, without_nulls

CONTINUED: dict[str, tuple[str, ...]] = {
    "citationMetadata": ("citations", "citationSources"),
    "logprobsResult": ("chosenCandidates", "topCandidates"),
}
"""Member → its lists of which each chunk holds only what is new."""

PLAIN_PART = {"text"}


class Extras:
    """Gathers during a stream; `settle` brings the result into the answer."""

    __slots__ = ("_others", "_values")

    def __init__(self) -> None:
        self._values: dict[str, JSON] = {}
        self._others: dict[int, tuple[dict[str, JSON], list[JSON]]] = {}  # index → members, parts

    def note(self, name: str, value: JSON) -> None:
        """One member of a chunk or of candidate 0."""
        _note(self._values, name, value)

    def other_candidate(self, index: int, candidate: JSONObject, count: AnswerCount) -> None:
        """A candidate that is not the answer. Raises `ProviderError` for one too many."""
        if index not in self._others:
            count.check_choices(len(self._others) + 2)  # with the answer's own
        members, parts = self._others.setdefault(index, ({"index": index}, []))
        for name, value in candidate.items():
            if name == "content" and type(value) is dict:
                parts.extend(without_nulls(part) if type(part) is dict else part for part in items(value, "parts"))
                members["content"] = {**value, "parts": []}
            else:
                _note(members, name, value)

    def settle(self, answer: Accumulator) -> None:
        """Bring it into the answer. May be done any number of times."""
        answer.provider_data.update(self._values)
        if self._others:
            answer.provider_data["candidates"] = [_candidate(*self._others[index]) for index in sorted(self._others)]
        citations = self._values.get("citationMetadata")
        if type(citations) is dict:
            # Offsets are those of the whole text, so the last block of a divided one takes them.
            text = next((block for block in reversed(answer.blocks) if isinstance(block, TextInProgress)), None)
            if text is not None:
                text.citations = objects(citations, "citations") or objects(citations, "citationSources")


def _note(values: dict[str, JSON], name: str, value: JSON) -> None:
    """Bring a member of a later chunk into what earlier ones said."""
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
    """Parts with neighbouring plain texts made one, as an unstreamed answer has them."""
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
