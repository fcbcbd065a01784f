"""Matches the next delta of a stream by its bytes, with a template that was made from an earlier delta.

Within a block, a server sends the same JSON again and again with another text in one place. Once that place is known,
the next delta needs no parsing: the bytes before and after the text are compared, and only the text, a JSON string, is
parsed. The JSON parser parses it, so escapes, invalid UTF-8 and misplaced quotes are treated as in any other event.
Equal bytes around one whole JSON string are the same JSON with another string: nothing is guessed. A delta that differs
in any other way does not match, and is parsed whole.

A dialect names the members whose values differ from delta to delta (`VolatileMembers`). Three kinds are skipped: a
counter before the text, padding after it, and counts after it.

Knows where the text is in the bytes of one JSON object. Must not know any dialect: a dialect's machine names the path
to its text and its volatile members, and guarantees that the event contained nothing else. Must not know the framing of
server-sent events or chunks, which it gets as bytes (`framed`).

Matching takes a third to a half of the time of parsing the whole event (`benchmarks/decode.py`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .json_values import JSON, MalformedJSONError, ascii_dumps, dumps, loads, strict_loads

Pattern: TypeAlias = "re.Pattern[bytes]"

Path: TypeAlias = "tuple[str | int, ...]"
"""Members and positions that lead from the top of an event to its text."""

PROBE = "\x01 another text \x02"
"""Put in the text's place to check that it is the text's place. No server sends this string."""

LARGEST_DELTA = 64 * 1024
"""Bytes. Larger deltas are parsed whole: matching copies them several times."""

LARGEST_SHARED = 1024
"""Bytes. Longer ends of an event are neither shared between streams nor compiled to a pattern: two streams rarely have
equal ones, and a pattern takes microseconds per byte to compile.
"""

ZERO = ord("0")
"""The first character of a counter that does not match: a JSON number of several digits does not begin with 0."""

COUNT_VALUE = rb"(?:0|[1-9][0-9]*)"
"""What matches in the place of a count."""

ID_VALUE = rb"[\w-]+"
"""What matches in the place of an id."""


class VolatileMembers:
    """The members of one dialect's deltas, besides the text, whose values differ from delta to delta.

    counter: a number before the text that means nothing for the answer, such as a sequence number; "" for none.
    padding: members after the text whose values are letters and digits that mean nothing.
    counts: a member after the text, "" for none. From it on, every number may differ, and the latest values hold.
    ids: members after `counts` whose values differ between streams, never within one. If they were constant bytes,
        every stream would need its own pattern.
    """

    __slots__ = ("counter", "counts", "numbers", "padding")

    def __init__(
        self, *, counter: str = "", padding: Sequence[str] = (), counts: str = "", ids: Sequence[str] = ()
    ) -> None:
        self.counter: Pattern | None = _member_pattern([counter], rb"([1-9][0-9]*)(?=,)") if counter else None
        # An unescaped quote cannot be part of a string, so this matches a real member.
        self.padding: Pattern | None = _member_pattern(padding, rb'"([0-9A-Za-z]+)"') if padding else None
        self.counts: bytes = dumps(counts) if counts else b""
        self.numbers: Pattern | None = _numbers_pattern(ids) if counts else None


def _member_pattern(names: Sequence[str], value: bytes) -> Pattern:
    """Return a pattern of a member with one of these names and a value that matches."""
    return re.compile(rb'"(?:%b)": ?%b' % (b"|".join(re.escape(name.encode()) for name in names), value))


def _numbers_pattern(ids: Sequence[str]) -> Pattern:
    """Return a pattern of a member with a whole number, and of a member with one of the ids."""
    number = rb'"[^"\\]*": ?(?P<number>0|[1-9][0-9]*)(?=[\s,}])'
    names = b"|".join(re.escape(name.encode()) for name in ids)
    return re.compile(rb'%b|"(?:%b)": ?"(?P<id>[\w-]+)"' % (number, names) if ids else number, re.ASCII)


NOTHING_VOLATILE = VolatileMembers()


@dataclass(slots=True, frozen=True)
class DeltaTemplate:
    """The bytes of a delta around its text. Immutable.

    event: name of the server-sent event.
    to_counter: bytes up to the counter; empty where there is none.
    to_text: bytes from after the counter (or from the beginning) to the text's first quote.
    to_padding: bytes from after the text's last quote to the padding; empty where there is none.
    to_end: bytes from there (or from after the text) to the end, or to the first count.
    counts: pattern of the bytes from the first count to the end; None where there are no counts.
    shared: whether its bytes may be kept for all streams.
    """

    event: str
    to_counter: bytes
    to_text: bytes
    to_padding: bytes
    to_end: bytes
    counts: Pattern | None
    shared: bool

    def framed(self, opening: bytes, closing: bytes) -> DeltaTemplate:
        """Return the template of the same delta between these bytes."""
        to_end, counts = self.to_end, self.counts
        if counts is None:
            to_end += closing
        else:
            counts = _with_closing(counts, closing)
        if self.shared and len(to_end) <= LARGEST_SHARED:
            to_end = _kept_for_all(to_end)
        to_counter = opening + self.to_counter if self.to_counter else b""
        to_text = self.to_text if self.to_counter else opening + self.to_text
        return DeltaTemplate(self.event, to_counter, to_text, self.to_padding, to_end, counts, self.shared)

    def text_in(self, data: bytes) -> str | None:
        """Return the text of a delta, or None or an empty text if it does not match. Ignores the event's name."""
        # `removeprefix` returns bytes of the same length where there was no such prefix. (To compare slices takes a
        # quarter longer: CPython 3.11 makes a slice object for each.)
        to_counter, to_padding = self.to_counter, self.to_padding
        if to_counter:
            rest = data.removeprefix(to_counter)
            if len(rest) == len(data):
                return None
            counter, _, data = rest.partition(b",")
            if not counter.isdigit() or counter[0] == ZERO:
                return None
        rest = data.removeprefix(self.to_text)
        if len(rest) == len(data):
            return None
        if self.counts is not None:
            quoted, _, numbers = rest.partition(self.to_end)
            if self.counts.fullmatch(numbers) is None:
                return None
        else:
            quoted = rest.removesuffix(self.to_end)
            if len(quoted) == len(rest):
                return None
            if to_padding:
                quoted, _, padding = quoted.rpartition(to_padding)
                if not padding.isalnum():
                    return None
        try:
            text = strict_loads(quoted)
        except ValueError:
            return None
        return text if type(text) is str else None


def learn(
    event: str, data: bytes, value: JSON, path: Path, text: str, volatile: VolatileMembers, *, shared: bool = True
) -> DeltaTemplate | None:
    """Make a template of a delta. Returns None if the text's place is not certain.

    event: the name of the server-sent event.
    data: its data.
    value: its data, parsed.
    path: the path to the text in `value`.
    text: the text, as it was delivered.
    volatile: the dialect's members that differ from delta to delta.
    shared: whether bytes of the template may be kept for all streams. If not, the template has no counts.
    """
    if _value_at(value, path) != text:
        return None
    quoted = dumps(text)
    if data.count(quoted) != 1:
        quoted = ascii_dumps(text)
        if data.count(quoted) != 1:
            return None
    to_text, _, after = data.partition(quoted)
    # Without escapes, the only place with these bytes is the text's. With escapes, these bytes may belong to another
    # member while the text itself is escaped.
    if b"\\" in data and not _is_place(to_text, after, path):
        return None
    to_counter = to_padding = b""
    counter = volatile.counter.search(to_text) if volatile.counter is not None else None
    if counter is not None:
        to_counter, to_text = to_text[: counter.start(1)], to_text[counter.end() + 1 :]
    padding = volatile.padding.search(after) if volatile.padding is not None else None
    counts = None
    if padding is not None:
        to_padding, after = after[: padding.start(1)], after[padding.end(1) :]
    elif volatile.numbers is not None and shared and len(after) <= LARGEST_SHARED:
        after, counts = _up_to_counts(after, volatile.counts, volatile.numbers)
    return DeltaTemplate(event, to_counter, to_text, to_padding, after, counts, shared)


def _is_place(before: bytes, after: bytes, path: Path) -> bool:
    """Return whether a string between these bytes is the one at `path`."""
    try:
        return _value_at(loads(before + dumps(PROBE) + after), path) == PROBE
    except MalformedJSONError:
        return False


def _up_to_counts(after: bytes, member: bytes, numbers: Pattern) -> tuple[bytes, Pattern | None]:
    """Split the bytes after a text at the first count.

    Returns the bytes before it, and a pattern of the rest (None if there is no count).
    """
    start = after.find(member)
    found = list(numbers.finditer(after, start)) if start >= 0 else []
    if not found:
        return after, None
    places = [each.span(each.lastgroup or 0) for each in found]
    kinds = tuple(each.lastgroup or "" for each in found)
    constant = [after[end:begin] for (_, end), (begin, _) in zip(places, [*places[1:], (len(after), 0)], strict=True)]
    return after[: places[0][0]], _counts_pattern(kinds, tuple(constant))


@functools.lru_cache(maxsize=256)
def _counts_pattern(kinds: tuple[str, ...], constant: tuple[bytes, ...]) -> Pattern:
    """Return a pattern of values of these kinds, each followed by constant bytes. All streams of a server share it."""
    parts = (
        (ID_VALUE if kind == "id" else COUNT_VALUE) + re.escape(behind)
        for kind, behind in zip(kinds, constant, strict=True)
    )
    return re.compile(b"".join(parts), re.ASCII)


@functools.lru_cache(maxsize=256)
def _kept_for_all(to_end: bytes) -> bytes:
    """Return equal bytes as one object for all streams. The end of a delta seldom differs between streams. Thousands of
    copies would evict each other from the processor's caches before the stream's next event.
    """
    return to_end


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
