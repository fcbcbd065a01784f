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

    pieces, index: of the block that the text belongs to. make: its event. served: whether it has read anything.
    """

    __slots__ = ("_after", "_before", "_event", "_learned_at", "_start", "index", "make", "pieces")

    def __init__(self, event: str, before: bytes, after: bytes, block: Block, make: MakeDelta) -> None:
        self._event = event
        self._before = before
        self._after = after
        self._start = len(before) - 1
        self._learned_at = len(block.pieces)
        self.pieces: list[str] = block.pieces
        self.index: int = block.index
        self.make: MakeDelta = make

    @property
    def served(self) -> bool:
        return len(self.pieces) > self._learned_at

    def text_of(self, event: str, data: bytes) -> str | None:
        """The text of a server-sent event that repeats this one; None, or an empty text, of any other."""
        after = self._after
        if data.startswith(self._before) and data.endswith(after) and event == self._event:
            try:
                return loads_string(data[self._start : len(data) - len(after) + 1])
            except ValueError:
                return None
        return None


class PaddedDelta(RepeatedDelta):
    """The same with a counter before the text, or with padding behind it."""

    __slots__ = ("_between", "_head")

    def __init__(
        self, event: str, head: bytes, before: bytes, between: bytes, after: bytes, block: Block, make: MakeDelta
    ) -> None:
        super().__init__(event, before, after, block, make)
        self._head = head  # up to the counter; empty: there is none
        self._between = between  # from the text's end up to the padding; empty: there is none

    def text_of(self, event: str, data: bytes) -> str | None:
        head, between, after = self._head, self._between, self._after
        position = 0
        if head:
            position = data.find(b",", len(head))
            counter = data[len(head) : position]
            if not data.startswith(head) or not counter.isdigit() or counter[0] == ZERO:
                return None
        if not data.startswith(self._before, position) or not data.endswith(after) or event != self._event:
            return None
        end = len(data) - len(after)
        if between:
            padding = data.rfind(b'"', 0, end) + 1
            end_of_text = padding - len(between)
            if data[end_of_text:padding] != between or not data[padding:end].isalnum():
                return None
            end = end_of_text
        try:
            return loads_string(data[position + self._start : end + 1])
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
    if counter is None and padding is None:
        return RepeatedDelta(event, before, after, block, make)
    head, between = b"", b""
    if counter is not None:
        head, before = before[: counter.start(1)], before[counter.end() :]
    if padding is not None:
        between, after = after[: padding.start(1)], after[padding.end(1) :]
    return PaddedDelta(event, head, before, between, after, block, make)


def _value_at(value: JSON, path: Path) -> JSON:
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if type(value) is dict else None
        else:
            value = value[step] if type(value) is list and step < len(value) else None
    return value
