"""The words of an answer: readable sentences, or words that trouble parsers.

The knob `text` chooses between them. This module knows no wire format and no time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Protocol

from .example_values import QuestionValues, Values, WordValues
from .sentences import write_text

WORDS: tuple[str, ...] = (
    "the", "stream", "carries", "many", "small", "pieces", "and", "each", "of", "them", "arrives", "in", "order",
    "while", "others", "wait", "a", "river", "crosses", "the", "plain", "under", "stone", "bridges", "where", "boats",
    "move", "slowly", "towards", "Zürich", "naïve", "façade", "Łódź", "Ελλάδα", "москва", "東京", "서울", "🙂",
    "👩\u200d🚀", "line\u2028break", "quote\"d", "back\\slash", "tab\tbed", "new\nline",
)  # fmt: skip
"""The words of `text=unicode`. Some of them trouble parsers: several scripts, a code point that some parsers take for
the end of a line, an emoji of several code points, and characters that JSON escapes."""


class Wording(Protocol):
    """The source of the words of one answer. Each text is a tuple of pieces: one piece is one event of a stream."""

    def thinking(self, count: int) -> tuple[str, ...]:
        """Thinking of `count` pieces."""
        ...

    def text(self, count: int) -> tuple[str, ...]:
        """Visible text of `count` pieces."""
        ...

    def values(self, position: int = 0) -> Values:
        """Values of a tool call's arguments, or of a structured answer. position: the number of the call, from 0."""
        ...


class Sentences:
    """Readable sentences about the question."""

    def __init__(self, question: str, source: random.Random) -> None:
        self._question = question
        self._source = source

    def thinking(self, count: int) -> tuple[str, ...]:
        return write_text(self._question, count, self._source, "thought")

    def text(self, count: int) -> tuple[str, ...]:
        return write_text(self._question, count, self._source)

    def values(self, position: int = 0) -> Values:
        return QuestionValues(self._question, position)


class UnicodeWords:
    """Words of `WORDS` in a random order, whatever the question is."""

    def __init__(self, question: str, source: random.Random) -> None:
        self._source = source

    def thinking(self, count: int) -> tuple[str, ...]:
        return self.text(count)

    def text(self, count: int) -> tuple[str, ...]:
        return tuple(word + " " for word in self._source.choices(WORDS, k=max(0, count)))

    def values(self, position: int = 0) -> Values:
        return WordValues(self._endless())

    def _endless(self) -> Iterator[str]:
        while True:
            yield self._source.choice(WORDS)


WORDINGS: dict[str, Callable[[str, random.Random], Wording]] = {"sentences": Sentences, "unicode": UnicodeWords}
"""Value of the knob `text` → the wording of an answer to a question."""
