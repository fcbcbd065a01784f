"""The hot path of every dialect: a delta that repeats the bytes of the one before it, but for its text.

Knows where in the bytes of one JSON text the delta's string stands. Must not know any dialect: the machine says
where its text is, and vouches that the event told nothing else.

Within a block, servers send the same JSON again and again with another string in one place. Once that place is known,
the next delta needs no parsing: what is before and behind the string is compared, and only the string itself is read
(by the JSON parser, so escapes, bytes that are no UTF-8 and quotes in the wrong place are judged as ever). Equal bytes
around one whole JSON string are the same JSON with another string, so nothing is guessed. Whatever differs goes the
long way. Two things may differ and still be passed over, where a dialect has them: a sequence number before the text,
and letters and digits of padding behind it.

This takes a third to a half of what parsing the whole event takes (`benchmarks/decode.py`), and less of the caches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .accumulate import InProgress, Placed, TextInProgress, ThinkingInProgress, ToolCallInProgress
from .events import Event, TextDelta, ThinkingDelta, ToolCallDelta
from .json_values import JSON, MalformedJSONError, ascii_dumps, dumps, loads, loads_string

Path: TypeAlias = "tuple[str | int, ...]"
"""Members and positions that lead from the top of an event to its text."""

MakeDelta: TypeAlias = "Callable[[int, str], Event]"
"""The class of the event: `TextDelta`, `ThinkingDelta` or `ToolCallDelta`."""

Block: TypeAlias = "TextInProgress | ThinkingInProgress | ToolCallInProgress"
"""What deltas are appended to."""

PROBE = "\x01 another text \x02"
"""What is put in the text's place to see that it is the text's place; no delta says it."""

COUNTER = re.compile(rb'"sequence_number": ?([1-9][0-9]*)(?=,)')
PADDING = re.compile(rb'"(?:obfuscation|p)": ?"([0-9A-Za-z]+)"')
"""Members that differ from event to event and mean nothing. Unescaped, as here, they cannot be part of a string."""

ZERO = ord("0")
"""No JSON number of several digits begins with it; a counter that is 0 goes the long way."""


class RepeatedDelta:
    """What the next delta has in common with this one.

    head: up to a counter; empty where there is none. before: from there (or the beginning) to the text's first quote.
    between: from its last quote up to padding; empty where there is none. after: from there (or the text's last quote)
    to the end. pieces, index: of the block that the text belongs to. make: its event. served: whether it has read
    anything.
    """

    __slots__ = ("_learned_at", "after", "before", "between", "event", "head", "index", "make", "pieces")

    def __init__(
        self,
        event: str,
        pieces: list[str],
        index: int,
        make: MakeDelta,
        *,
        head: bytes,
        before: bytes,
        between: bytes,
        after: bytes,
    ) -> None:
        self.event: str = event
        self.pieces: list[str] = pieces
        self.index: int = index
        self.make: MakeDelta = make
        self.head: bytes = head
        self.before: bytes = before
        self.between: bytes = between
        self.after: bytes = after
        self._learned_at = len(pieces)

    @property
    def served(self) -> bool:
        return len(self.pieces) > self._learned_at

    def framed(self, opening: bytes, closing: bytes) -> RepeatedDelta:
        """The same for data that stands between these bytes."""
        return RepeatedDelta(
            self.event,
            self.pieces,
            self.index,
            self.make,
            head=opening + self.head if self.head else b"",
            before=self.before if self.head else opening + self.before,
            between=self.between,
            after=self.after + closing,
        )

    def text_of(self, event: str, data: bytes) -> str | None:
        """The text of a server-sent event that repeats this one; None, or an empty text, of any other."""
        return self.text_at(data, 0, len(data)) if event == self.event else None

    def text_at(self, data: bytes, start: int, end: int) -> str | None:
        """The text of `data[start:end]`, if that repeats this one, the event's name aside."""
        # Slices are compared, as `startswith` takes half as long again (CPython 3.11: it parses its arguments anew).
        before, between = self.before, self.between
        if self.head:
            counter = start + len(self.head)
            if data[start:counter] != self.head:
                return None
            start = data.find(b",", counter, end)
            if not data[counter:start].isdigit() or data[counter] == ZERO:
                return None
        end_of_text = end - len(self.after)
        text = start + len(before)
        if data[start:text] != before or data[end_of_text:end] != self.after:
            return None
        if between:
            padding = data.rfind(b'"', text, end_of_text) + 1
            if not data[padding:end_of_text].isalnum():
                return None
            end_of_text = padding - len(between)
            if data[end_of_text:padding] != between:
                return None
        try:
            return loads_string(data[text - 1 : end_of_text + 1])
        except ValueError:
            return None


def learn(event: str, data: bytes, path: Path, told: Event, blocks: Sequence[InProgress]) -> RepeatedDelta | None:
    """Find the text's place in a delta's bytes; None where it cannot be told for certain.

    path: where the text stands in the parsed JSON. told: the delta's event, of one of the answer's `blocks`.
    """
    if isinstance(told, TextDelta | ThinkingDelta):
        text = told.text
    elif isinstance(told, ToolCallDelta):
        text = told.arguments
    else:
        return None
    block, make = blocks[told.index], type(told)
    if isinstance(block, Placed):
        return None
    quoted = dumps(text)
    if data.count(quoted) != 1:
        quoted = ascii_dumps(text)
        if data.count(quoted) != 1:
            return None
    start = data.index(quoted)
    before, after = data[: start + 1], data[start + len(quoted) - 1 :]
    try:
        if _value_at(loads(before + dumps(PROBE)[1:-1] + after), path) != PROBE:
            return None  # the same string stood elsewhere, and the text is written with escapes
    except MalformedJSONError:
        return None
    counter, padding = COUNTER.search(before), PADDING.search(after)
    head, between = b"", b""
    if counter is not None:
        head, before = before[: counter.start(1)], before[counter.end() :]
    if padding is not None:
        between, after = after[: padding.start(1)], after[padding.end(1) :]
    return RepeatedDelta(event, block.pieces, block.index, make, head=head, before=before, between=between, after=after)


def _value_at(value: JSON, path: Path) -> JSON:
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if type(value) is dict else None
        else:
            value = value[step] if type(value) is list and step < len(value) else None
    return value
