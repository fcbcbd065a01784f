"""Texts, numbers and choices for the arguments of tool calls and for structured answers.

`QuestionValues` derives them from the question and from the names of properties: the `city` of "What is the weather in
Rome?" is Rome. `WordValues` takes the next of a series of words, whatever the property is called.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Protocol

from .json_text import JSON
from .sentences import QUESTION_CHARACTERS, topic_of


class Values(Protocol):
    """The source of all values of one schema's example."""

    def text(self, name: str) -> str:
        """A text for the property `name`. It is never empty."""
        ...

    def number(self, name: str) -> float: ...

    def flag(self) -> bool:
        """True or false."""
        ...

    def choice(self, choices: list[JSON]) -> JSON:
        """One of the choices, of which there is at least one."""
        ...


class WordValues:
    """Values made of words. Numbers and flags depend on the length of the next word. `words` must not end."""

    def __init__(self, words: Iterator[str]) -> None:
        self._words = words

    def text(self, name: str) -> str:
        return next(self._words)

    def number(self, name: str) -> float:
        return len(next(self._words)) + 0.5

    def flag(self) -> bool:
        return len(next(self._words)) % 2 == 0

    def choice(self, choices: list[JSON]) -> JSON:
        return choices[0]


TEXTS: dict[str, str] = {
    "address": "1 Example Street",
    "author": "Ada Lovelace",
    "code": "print(1)",
    "command": "ls",
    "content": "An example.",
    "country": "Italy",
    "currency": "EUR",
    "date": "2024-05-17",
    "day": "Friday",
    "email": "ada@example.org",
    "end": "2024-05-18",
    "file": "notes.txt",
    "filename": "notes.txt",
    "id": "example-1",
    "key": "example",
    "lang": "en",
    "language": "en",
    "month": "May",
    "name": "Ada Lovelace",
    "path": "notes.txt",
    "phone": "+44 20 7946 0000",
    "start": "2024-05-17",
    "time": "12:30",
    "timezone": "UTC",
    "unit": "celsius",
    "units": "celsius",
    "url": "https://example.org/",
}
"""Last word of a property's name → its text."""

PLACES: dict[str, tuple[str, ...]] = {
    "cities": (),
    "city": (),
    "destination": ("to",),
    "location": (),
    "origin": ("from",),
    "place": (),
    "town": (),
}
"""Last word of a property's name → the prepositions of its place in the question; none: any preposition will do."""

CITIES = ("Rome", "Zürich", "Łódź", "Lyon", "Porto")
"""Places that the question does not name, one after the other."""

FIXED_NUMBERS: dict[str, float] = {
    "hour": 12,
    "lat": 41.9,
    "latitude": 41.9,
    "lng": 12.5,
    "lon": 12.5,
    "longitude": 12.5,
    "minute": 30,
    "month": 5,
    "year": 2024,
}
"""Last word of a property's name → its number, whatever number the question mentions."""

NUMBERS: dict[str, float] = {
    "age": 36,
    "amount": 19.5,
    "limit": 10,
    "page": 1,
    "price": 19.5,
    "temperature": 21.5,
    "total": 19.5,
}
"""Last word of a property's name → its number, where the question mentions none."""

DEFAULT_NUMBER = 3.0
_WORD = re.compile(r"[a-z]+|[A-Z][a-z]*")
_PLACE = re.compile(r"\b(in|at|for|from|to|near) ((?:[^\W\d_a-z][\w'-]*)(?: [^\W\d_a-z][\w'-]*){0,2})")
_DIGITS = re.compile(r"\b[0-9]{1,6}(?:\.[0-9]{1,4})?\b")
_NAME = re.compile(r"(?<=\S )[^\W\d_a-z][\w'&-]*(?: [^\W\d_a-z][\w'&-]*){0,3}")
"""A name: capitalised words that do not begin the message."""


class QuestionValues:
    """Values about a question: the place and the number that it mentions, else what the property's name suggests.

    position: number of the tool call, from 0. The question's place is used in call 0, other places in the others.
    """

    def __init__(self, question: str, position: int = 0) -> None:
        text = question[:QUESTION_CHARACTERS]
        self._question = "" if text.lstrip().startswith(("simulate:", "{")) else text
        self._places = [] if position else [(found[1], found[2]) for found in _PLACE.finditer(self._question)]
        self._cities = itertools.islice(itertools.cycle(CITIES), position, None)
        digits = _DIGITS.search(self._question)
        self._number = float(digits[0]) if digits else None
        named = _NAME.search(self._question)
        self._name = named[0] if named else ""

    def text(self, name: str) -> str:
        word = _last_word(name)
        if word in PLACES:
            prepositions = PLACES[word]
            named = (place for preposition, place in self._places if not prepositions or preposition in prepositions)
            return next(named, "") or next(self._cities)
        return TEXTS.get(word) or (self._name if word != "query" else "") or topic_of(self._question)

    def number(self, name: str) -> float:
        word = _last_word(name)
        if word in FIXED_NUMBERS:
            return FIXED_NUMBERS[word]
        return NUMBERS.get(word, DEFAULT_NUMBER) if self._number is None else self._number

    def flag(self) -> bool:
        return True

    def choice(self, choices: list[JSON]) -> JSON:
        asked = self._question.lower()
        named = (choice for choice in choices if isinstance(choice, str) and choice and choice.lower() in asked)
        return next(named, choices[0])


def _last_word(name: str) -> str:
    """The last word of a name: `city` for `departure_city`, `departureCity` and `city_2`, `tag` for `tags`."""
    words = _WORD.findall(name)
    word = words[-1].lower() if words else ""
    return word if word in TEXTS or word in PLACES else word.removesuffix("s")
