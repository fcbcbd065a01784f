"""The words of an answer: readable sentences, or words that trouble parsers.

The knob `text` chooses between them. This module knows no wire format and no time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(slots=True, frozen=True)
class Wording:
    """The source of the words of one answer.

    text: makes so many pieces of an `answer` or a `thought`; one piece is one event of a stream.
    values: makes the values of a tool call's arguments, or of a structured answer, from the number of the call.
    """

    text: Callable[[int, str], tuple[str, ...]]
    values: Callable[[int], Values]


def sentences(question: str, source: random.Random) -> Wording:
    """Readable sentences about the question."""
    return Wording(
        lambda count, kind: write_text(question, count, source, kind),
        lambda position: QuestionValues(question, position),
    )


def unicode_words(question: str, source: random.Random) -> Wording:
    """Words of `WORDS` in a random order, whatever the question is."""
    return Wording(
        lambda count, kind: tuple(word + " " for word in source.choices(WORDS, k=max(0, count))),
        lambda position: WordValues(iter(lambda: source.choice(WORDS), "")),
    )


WORDINGS: dict[str, Callable[[str, random.Random], Wording]] = {"sentences": sentences, "unicode": unicode_words}
"""Value of the knob `text` → the wording of an answer to a question."""
