"""The hot path of every dialect: a delta that repeats the bytes of the one before it, but for its text.

Knows where in the bytes of one JSON text the delta's string stands. Must not know any dialect: the machine says
where its text is, and vouches that the event told nothing else.

Within a block, servers send the same JSON again and again with another string in one place. Once that place is known,
the next delta needs no parsing: what is before and behind the string is compared, and only the string itself is read
(by the JSON parser, so escapes, bytes that are no UTF-8 and quotes in the wrong place are judged as ever). Equal bytes
around one whole JSON string are the same JSON with another string, so nothing is guessed. Whatever differs goes the
long way. Three things may differ and still be passed over, where a dialect has them: a sequence number before the text,
letters and digits of padding behind it, and counts behind it, which are kept for whoever asks what they are by then.

This takes a third to a half of what parsing the whole event takes (`benchmarks/decode.py`), and less of the caches.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .accumulate import InProgress, Placed, TextInProgress, ThinkingInProgress, ToolCallInProgress
from .events import Event, TextDelta, ThinkingDelta, ToolCallDelta
from .json_values import JSON, MalformedJSONError, ascii_dumps, dumps, loads, strict_loads

Pattern: TypeAlias = "re.Pattern[bytes]"

Path: TypeAlias = "tuple[str | int, ...]"
"""Members and positions that lead from the top of an event to its text."""

MakeDelta: TypeAlias = "Callable[[int, str], Event]"
"""The class of the event: `TextDelta`, `ThinkingDelta` or `ToolCallDelta`."""

Block: TypeAlias = "TextInProgress | ThinkingInProgress | ToolCallInProgress"
"""What deltas are appended to."""

PROBE = "\x01 another text \x02"
"""What is put in the text's place to see that it is the text's place; no delta says it."""

COUNTER = re.compile(rb'"sequence_number": ?([1-9][0-9]*)(?=,)')
"""A member before the text that differs from event to event and means nothing."""

PADDING = re.compile(rb'"(?:obfuscation|p)": ?"([0-9A-Za-z]+)"')
"""The same behind it. Unescaped, as here, it cannot be part of a string."""

COUNTS = re.compile(rb'"[^"\\]*": ?(?P<number>0|[1-9][0-9]*)(?=[\s,}])|"responseId": ?"(?P<id>[\w-]+)"', re.ASCII)
"""Members that differ where counts are, of which the latest ones hold. An id does not differ within a stream; taken for
a member that does, all streams have one pattern."""

VARYING = {"number": rb"(?:0|[1-9][0-9]*)", "id": rb"[\w-]+"}
"""What may stand in their places."""

LARGEST_DELTA = 64 * 1024
"""Bytes of a delta that is looked at this way: several copies of it are made."""

LARGEST_SHARED = 1024
"""Bytes behind a text that are kept for all streams, or made a pattern of, which costs microseconds for each of them;
more are hardly the same in two streams."""

SHARED_BY_ONE = 8
"""Deltas of one stream that may add to what is kept for all streams. A stream that always sends something else must not
take the place of what the others use, nor have a pattern made for each event."""

ZERO = ord("0")
"""No JSON number of several digits begins with it; a counter that is 0 goes the long way."""


class RepeatedDelta:
    """What the next delta has in common with this one.

    head: up to a counter; empty where there is none. before: from behind the counter and its comma (or the beginning)
    to the text's first quote. between: from behind its last quote up to padding; empty where there is none. after: from
    there (or from behind the text) to the end; or to the first count, and then `counts` is the pattern of all that
    follows. pieces, index: of the block that the text belongs to. make: its event. served: whether it has read
    anything. tails: what stood behind the latest text, where counts are in it. shared: whether its bytes may be kept
    for all streams.
    """

    __slots__ = (
        "_after",
        "_before",
        "_between",
        "_block",
        "_closing_size",
        "_counts",
        "_head",
        "_learned_at",
        "event",
        "index",
        "make",
        "pieces",
        "shared",
        "tails",
    )

    def __init__(
        self,
        event: str,
        block: Block,
        make: MakeDelta,
        head: bytes,
        before: bytes,
        between: bytes,
        after: bytes,
        counts: Pattern | None,
        *,
        shared: bool,
    ) -> None:
        self.event: str = event
        self.pieces: list[str] = block.pieces
        self.index: int = block.index
        self.make: MakeDelta = make
        self.tails: list[bytes] = [] if counts is None else [b""]
        self._block = block
        self._learned_at = len(block.pieces)
        self._head = head
        self._before = before
        self._between = between
        self._after = after
        self._counts = counts
        self._closing_size = 0
        self.shared: bool = shared

    @property
    def served(self) -> bool:
        return len(self.pieces) > self._learned_at

    def frame(self, repeated: RepeatedDelta, opening: bytes, closing: bytes) -> None:
        """Become the same as `repeated`, for data that stands between these bytes."""
        head, counts = repeated._head, repeated._counts
        self.event, self.pieces, self.index, self.make = repeated.event, repeated.pieces, repeated.index, repeated.make
        self.tails, self._block, self._learned_at = repeated.tails, repeated._block, repeated._learned_at
        self._head = opening + head if head else b""
        self._before = repeated._before if head else opening + repeated._before
        self._between = repeated._between
        after = repeated._after if counts is not None else repeated._after + closing
        self.shared = repeated.shared
        self._after = _kept_for_all(after) if self.shared and len(after) <= LARGEST_SHARED else after
        self._counts = None if counts is None else _with_closing(counts, closing)
        self._closing_size = len(closing)

    def text_of(self, event: str, data: bytes) -> str | None:
        """The text of a server-sent event that repeats this one; None, or an empty text, of any other."""
        return self.text_in(data) if event == self.event and len(data) <= LARGEST_DELTA else None

    def text_in(self, data: bytes) -> str | None:
        """The text of `data`, if that repeats this one, the event's name aside."""
        # What is cut off and leaves no less was not there. (To compare slices takes a quarter longer: CPython 3.11
        # makes an object of each.)
        head, between = self._head, self._between
        if head:
            rest = data.removeprefix(head)
            if len(rest) == len(data):
                return None
            counter, _, data = rest.partition(b",")
            if not counter.isdigit() or counter[0] == ZERO:
                return None
        rest = data.removeprefix(self._before)
        if len(rest) == len(data):
            return None
        if self._counts is not None:
            return self._text_before_counts(rest)
        quoted = rest.removesuffix(self._after)
        if len(quoted) == len(rest):
            return None
        if between:
            quoted, _, padding = quoted.rpartition(between)
            if not padding.isalnum():
                return None
        return _string(quoted)

    def _text_before_counts(self, rest: bytes) -> str | None:
        quoted, _, numbers = rest.partition(self._after)
        assert self._counts is not None
        if self._counts.fullmatch(numbers) is None:
            return None
        text = _string(quoted)
        if text is not None:
            self.tails[0] = rest[len(quoted) : len(rest) - self._closing_size]
        return text

    def latest(self) -> JSON:
        """The latest event, parsed, without its text; None where it told nothing new beside it."""
        tail = self.tails[0] if self.tails else b""
        return loads(self._before + b'""' + tail) if tail and not self._head else None


def _string(quoted: bytes) -> str | None:
    try:
        value = strict_loads(quoted)
    except ValueError:
        return None
    return value if type(value) is str else None


def learn(
    event: str,
    data: bytes,
    value: JSON,
    path: Path,
    told: Event,
    blocks: Sequence[InProgress],
    counts: bytes = b"",
    *,
    shared: bool = True,
) -> RepeatedDelta | None:
    """Find the text's place in a delta's bytes; None where it cannot be told for certain.

    value: the delta's JSON, parsed. path: where the text stands in it. told: the delta's event, of one of the answer's
    `blocks`. counts: a member behind the text from which on numbers may differ, too; the machine then asks for the
    `latest`. shared: whether it may add to what is kept for all streams; without that, counts may not differ.
    """
    if isinstance(told, TextDelta | ThinkingDelta):
        text = told.text
    elif isinstance(told, ToolCallDelta):
        text = told.arguments
    else:
        return None
    block, make = blocks[told.index], type(told)
    if isinstance(block, Placed) or _value_at(value, path) != text:
        return None
    quoted = dumps(text)
    if data.count(quoted) != 1:
        quoted = ascii_dumps(text)
        if data.count(quoted) != 1:
            return None
    before, _, after = data.partition(quoted)
    # Where there are no escapes, the one place that reads like the text is the text's. With them, it may be another
    # member that reads so, and the text be written differently.
    if b"\\" in data and not _is_place(before, after, path):
        return None
    head = between = b""
    counter, padding, numbers = COUNTER.search(before), PADDING.search(after), None
    if counter is not None:
        head, before = before[: counter.start(1)], before[counter.end() + 1 :]
    if padding is not None:
        between, after = after[: padding.start(1)], after[padding.end(1) :]
    elif counts and shared and len(after) <= LARGEST_SHARED:
        after, numbers = _up_to_counts(after, counts)
    return RepeatedDelta(event, block, make, head, before, between, after, numbers, shared=shared)


def _is_place(before: bytes, after: bytes, path: Path) -> bool:
    """Whether a string between these bytes is the one at `path`."""
    try:
        return _value_at(loads(before + dumps(PROBE) + after), path) == PROBE
    except MalformedJSONError:
        return False


def _up_to_counts(after: bytes, member: bytes) -> tuple[bytes, Pattern | None]:
    """What stands behind a text up to its first count, and the pattern of what follows; None where there is none."""
    start = after.find(b'"%b"' % member)
    found = list(COUNTS.finditer(after, start)) if start >= 0 else []
    if not found:
        return after, None
    places = [each.span(each.lastgroup or 0) for each in found]
    kinds = tuple(each.lastgroup or "" for each in found)
    constant = [after[end:begin] for (_, end), (begin, _) in zip(places, [*places[1:], (len(after), 0)], strict=True)]
    return after[: places[0][0]], _counts_pattern(kinds, tuple(constant))


@functools.lru_cache(maxsize=256)
def _counts_pattern(kinds: tuple[str, ...], constant: tuple[bytes, ...]) -> Pattern:
    """Of what varies in these ways, each before something constant. The same for all streams of a server."""
    parts = (VARYING[kind] + re.escape(behind) for kind, behind in zip(kinds, constant, strict=True))
    return re.compile(b"".join(parts), re.ASCII)


@functools.lru_cache(maxsize=256)
def _kept_for_all(after: bytes) -> bytes:
    """The same bytes for all streams: what stands behind a text seldom differs between them, and a copy for each would
    have left the caches by its next event."""
    return after


@functools.lru_cache(maxsize=256)
def _with_closing(counts: Pattern, closing: bytes) -> Pattern:
    return re.compile(counts.pattern + re.escape(closing), re.ASCII)


def _value_at(value: JSON, path: Path) -> JSON:
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if type(value) is dict else None
        else:
            value = value[step] if type(value) is list and step < len(value) else None
    return value
