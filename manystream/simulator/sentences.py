"""Readable text about a question: the same question, seed and length always give the same sentences.

A sentence is a template that may name the topic of the question. Templates are split into words once, at import, so
that a long text costs one step per sentence, not one per word. This module knows no wire format and no time.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterator

TOPIC = "{topic}"
KIND = "{kind}"
DEFAULT_TOPIC = "streamed answers"
"""The topic of a message that names none: a greeting, or knobs of the simulator."""

TOPIC_WORDS = 12
"""A longer topic is shortened to so many words."""

BARE_TOPIC_WORDS = 3
"""A message of so few words is a topic itself, unless it is a question."""

QUESTION_CHARACTERS = 400
"""The topic is looked for in so many characters of the message."""

SENTENCES_PER_PARAGRAPH = 6
LONGEST_CLOSING = 8


OPENING = "This is a simulated {kind} about {topic}."
"""The first sentence."""

BRIEF = {
    1: "Simulated.",
    2: "Simulated {kind}.",
    3: "A simulated {kind}.",
    4: "This {kind} is simulated.",
    5: "This is a simulated {kind}.",
    6: "This {kind} comes from the simulator.",
    7: "This short {kind} comes from the simulator.",
}
"""Number of words → a text of so many words, where there is no room for the opening."""

SENTENCES = (
    "Most questions about {topic} have a short answer and a long one.",
    "There are several ways to look at {topic}.",
    "One example says more about {topic} than a long explanation.",
    "Much has been written about {topic}, and not all of it agrees.",
    "It helps to compare {topic} with something familiar.",
    "People who know more about {topic} would add details here.",
    "A real model would now say what it knows about {topic}.",
    "Three things matter to anyone who thinks about {topic}.",
    "The history of {topic} is longer than most people expect.",
    "Opinions about {topic} differ from place to place.",
    "It is easy to say too much about {topic}.",
    "A diagram would help to explain {topic}.",
    "The first point is the most important one.",
    "The second point follows from the first.",
    "Details matter, but they can wait.",
    "Numbers make the difference easier to see.",
    "The order of the steps can be changed.",
    "Some of this depends on the circumstances.",
    "It is worth checking the sources.",
    "An example makes this clearer.",
    "In practice, the simple way is good enough.",
    "There are exceptions, but they are rare.",
    "The same idea appears in other fields.",
    "Each word of this text is one event.",
    "The request decides how long this text is.",
    "A different question gives a different answer.",
    "The same question gives the same answer again.",
    "Nothing here was looked up or computed.",
)
"""What may follow the opening. Those that name the topic and the others take turns."""

CLOSINGS = {
    1: "Done.",
    2: "That's all.",
    3: "That is all.",
    4: "That is the {kind}.",
    5: "That is the whole {kind}.",
    6: "That is all there is here.",
    7: "That is the end of this {kind}.",
    8: "That is all that the simulator can say.",
}
"""Number of words → a last sentence of so many words, up to `LONGEST_CLOSING`."""

_SENTENCE_END = re.compile(r"[.?!](?=\s|$)|\n")
_COMMAND = re.compile(
    r"(?:please )?(?:can you |could you )?"
    r"(?:(?:what|who)(?: is| are| was| were|'s)|(?:tell me|and what|what|how|and)(?: about| of)"
    r"|explain|describe|summari[sz]e|name|list|define|discuss|compare|find|show me|give me|write(?: me)?) ",
    re.IGNORECASE,
)
"""What stands before the topic of a question or of a request."""

_QUESTION = re.compile(r"(?:why|how|when|where|which|what|who|can|could|do|does|did|is|are|should|will|would)\b", re.I)
_GREETING = re.compile(r"(?:hello|hi|hey|good (?:morning|evening|day))\b", re.IGNORECASE)
_FOR_THE_READER = {"my": "your", "our": "your", "your": "my", "me": "you", "i": "you"}


def topic_of(question: str) -> str:
    """The topic of a question, as a noun phrase that fits behind "about".

    `Name three rivers.` gives `three rivers`; `Why is the sky blue?`, which has no such phrase, gives `the question
    "Why is the sky blue?"`; a message without a topic gives `DEFAULT_TOPIC`.
    """
    text = question[:QUESTION_CHARACTERS].strip()
    end = _SENTENCE_END.search(text)
    sentence = text[: end.start()] if end else text
    found = _COMMAND.match(sentence)
    words = sentence[found.end() if found else 0 :].split()
    if not words or sentence.startswith(("simulate:", "{")) or _GREETING.match(sentence):
        return DEFAULT_TOPIC
    is_question = _QUESTION.match(sentence)
    if found or (len(words) <= BARE_TOPIC_WORDS and not is_question):
        named = (_FOR_THE_READER.get(word.lower(), word) for word in words[:TOPIC_WORDS])
        return " ".join(named).rstrip(",;:。？！")
    quoted = " ".join(words[:TOPIC_WORDS])
    mark = "…" if len(words) > TOPIC_WORDS else end.group().strip() if end else ""
    return f'the {"question" if is_question else "message"} "{quoted}{mark}"'


def write_text(question: str, count: int, source: random.Random, kind: str = "answer") -> tuple[str, ...]:
    """Whole sentences about a question, as exactly `count` words. Each word but the first begins with its space.

    source: decides which sentences are used and in which order.
    kind: the noun for the text, such as `answer` or `thought`.
    """
    if count <= 0:
        return ()
    topic, beginning = topic_of(question), OPENING.replace(KIND, kind)
    opening = _first(beginning.replace(TOPIC, topic).replace('?".', '?"'))
    if len(opening) > count and count in BRIEF:
        return _first(BRIEF[count].replace(KIND, kind))
    if len(opening) > count or topic.endswith('"'):
        topic = "this question"
    if len(opening) > count:
        opening = _first(beginning.replace(TOPIC, topic))
    pieces = list(opening)
    sentences = _endless(topic, source)
    written = 1
    while len(pieces) < count:
        room = count - len(pieces)
        if room <= LONGEST_CLOSING:
            sentence = _following(CLOSINGS[room].replace(KIND, kind))
        else:
            sentence = next(sentence for sentence in sentences if len(sentence) <= room)
        if written % SENTENCES_PER_PARAGRAPH == 0:
            sentence = ("\n\n" + sentence[0][1:], *sentence[1:])
        pieces += sentence
        written += 1
    return tuple(pieces)


def _first(sentence: str) -> tuple[str, ...]:
    """The words of the first sentence of a text."""
    first, *others = sentence.split()
    return (first, *(" " + word for word in others))


def _following(sentence: str) -> tuple[str, ...]:
    """The words of a later sentence."""
    return tuple(" " + word for word in sentence.split())


def _endless(topic: str, source: random.Random) -> Iterator[tuple[str, ...]]:
    """Sentences without end: one that names the topic, then one that does not. No list is shuffled: that would cost
    more than the few sentences that most answers use."""
    orders = zip(_endless_order(len(_NAMING), source), _endless_order(len(_GENERAL), source), strict=False)
    for named, other in orders:
        yield _following(_NAMING[named].replace(TOPIC, topic))
        yield _GENERAL[other]


def _endless_order(count: int, source: random.Random) -> Iterator[int]:
    """The numbers below `count` in a random order, again and again: a step that has no factor in common with `count`
    meets each number once in a round."""
    place = int(source.random() * count)
    steps = _STEPS[count]
    step = steps[int(source.random() * len(steps))]
    while True:
        yield place
        place = (place + step) % count


_NAMING = tuple(sentence for sentence in SENTENCES if TOPIC in sentence)
_GENERAL = tuple(_following(sentence) for sentence in SENTENCES if TOPIC not in sentence)
"""The sentences without the topic, split into words once."""

_STEPS = {
    len(sentences): [step for step in range(1, len(sentences) + 1) if math.gcd(step, len(sentences)) == 1]
    for sentences in (_NAMING, _GENERAL)
}
"""Number of sentences → the steps that meet each of them once in a round."""
