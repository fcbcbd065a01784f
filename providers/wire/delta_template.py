"""Matches the next delta of a stream by its bytes, with a template that was made from an earlier delta.

Within a block, a server sends the same JSON again and again with another text in one place. Once that place is known,
the next delta needs no parsing: the bytes before and after the text are compared, and only the text, a JSON string, is
parsed. The JSON parser parses it, so escapes, invalid UTF-8 and misplaced quotes are treated as in any other event.
Equal bytes around one whole JSON string are the same JSON with another string: nothing is guessed. A delta that differs
in any other way does not match, and is parsed whole.

A dialect names the members whose values differ from delta to delta (`VolatileMembers`): a counter before the text,
padding after it, and members with any value, such as token counts and log probabilities. There are two templates:

- `DeltaTemplate` matches a delta with a text, a counter and padding. Most deltas have this form.
- `ValuesTemplate` matches a delta with any number of places, each with one JSON value; the text is one of them. It
  parses the value in each place. The machine gets the values with the text (`Delta`). If the values are tokens, the
  text may be empty, or there is none: a token need not be a whole character.

Matching takes a third to a half of the time of parsing the whole event (`benchmarks/decode.py`).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..json.json_values import JSON, MalformedJSONError, ascii_dumps, dumps, loads, strict_loads

Pattern: TypeAlias = "re.Pattern[bytes]"

Path: TypeAlias = tuple[str | int, ...]
"""Members and positions that lead from the top of an event to its text."""

PROBE = "\x01 another value \x02"
"""Put in the place of a value to check that it is its place. No server sends this string."""

LARGEST_DELTA = 64 * 1024
"""Bytes. Larger deltas are parsed whole: matching copies them several times."""

LARGEST_SHARED = 1024
"""Bytes. Longer parts of an event are not shared between streams: two streams rarely have equal ones."""

MOST_SEARCHED = 8
"""The number of places with a member's name that are tried to find the member."""

BACKSLASH = ord("\\")
"""As a number: `in` finds it in bytes ten times faster than bytes of length one (CPython 3.11)."""

ZERO = ord("0")
"""The first character of a counter that does not match: a JSON number of several digits does not begin with 0."""


class VolatileMembers:
    """The members of one dialect's deltas, besides the text, whose values differ from delta to delta.

    counter: a number before the text that means nothing for the answer, such as a sequence number; "" for none.
    padding: members after the text whose values are letters and digits that mean nothing.
    values: paths to members with any JSON value that the machine reads (`StreamMachine.take_value`). They count as
        volatile in a delta in which they are not empty.

    The counter and the padding are members of the event itself.
    """

    def __init__(self, *, counter: str = "", padding: Sequence[str] = (), values: Sequence[Path] = ()) -> None:
        self.counter: Pattern | None = _member_pattern([counter], rb"([1-9][0-9]*)(?=,)") if counter else None
        # An unescaped quote cannot be part of a string, so this matches a real member.
        self.padding: Pattern | None = _member_pattern(padding, rb'"([0-9A-Za-z]+)"') if padding else None
        self.values: tuple[Path, ...] = tuple(values)
        self.meaningless: tuple[Path, ...] = tuple((name,) for name in (counter, *padding) if name)


def _member_pattern(names: Sequence[str], value: bytes) -> Pattern:
    """Return a pattern of a member with one of these names and a value that matches."""
    return re.compile(rb'"(?:%b)": ?%b' % (b"|".join(re.escape(name.encode()) for name in names), value))


NOTHING_VOLATILE = VolatileMembers()


Delta: TypeAlias = tuple[str, Sequence[JSON], Sequence[bytes]]
"""What a `ValuesTemplate` has found: the text, the parsed values, and their JSON texts.

It is made per event. To make a dataclass would take a tenth of the time of matching.
"""

Match: TypeAlias = str | Delta
"""A delta that matched: its text, with the values of the volatile members if there are any."""


@dataclass(slots=True, frozen=True)
class DeltaTemplate:
    """The bytes of a delta around its text. Immutable.

    event: name of the server-sent event.
    shared: whether its bytes may be kept for all streams.
    start: bytes up to the counter, or up to the text's first quote where there is no counter.
    to_text: bytes from after the counter to the text's first quote; empty where there is no counter.
    to_padding: bytes from after the text's last quote to the padding; empty where there is none.
    end: bytes from there (or from after the text) to the end.
    """

    event: str
    shared: bool
    start: bytes
    to_text: bytes
    to_padding: bytes
    end: bytes

    def match(self, data: bytes, start: bytes, end: bytes) -> str | None:
        """Return the text of a delta, or None or an empty text if it does not match. Ignores the event's name.

        start: the template's `start`, behind the bytes that frame the delta in `data`.
        end: the template's `end`, before the bytes that frame it.
        """
        # `removeprefix` returns bytes of the same length where there was no such prefix. (To compare slices takes a
        # quarter longer: CPython 3.11 makes a slice object for each.)
        rest = data.removeprefix(start)
        if len(rest) == len(data):
            return None
        to_text, to_padding = self.to_text, self.to_padding
        if to_text:
            counter, _, data = rest.partition(b",")
            if not counter.isdigit() or counter[0] == ZERO:
                return None
            rest = data.removeprefix(to_text)
            if len(rest) == len(data):
                return None
        quoted = rest.removesuffix(end)
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


@dataclass(slots=True, frozen=True)
class ValuesTemplate:
    """The bytes of a delta around several values, one of which is the text. Immutable.

    Bytes that are equal around whole JSON values are the same JSON with other values. So a value that is cut in a wrong
    place, because it contains the bytes after it, does not parse, and the delta does not match.

    event: name of the server-sent event.
    shared: whether its bytes may be kept for all streams.
    between: the bytes between each value and the next one.
    text: the position of the text among the values; -1 if there is none, because the tokens are all that comes.
    read: position and member of each value that the machine reads.
    tokens: whether the values are tokens, so that the text may be empty or absent.
    member: with tokens, the value at the position of the text may be an object that is empty, or has the text in this
        member alone; "" if it is the text itself.
    """

    event: str
    shared: bool
    start: bytes
    between: tuple[bytes, ...]
    end: bytes
    text: int
    read: tuple[tuple[int, str], ...]
    tokens: bool = False
    member: str = ""

    def match(self, data: bytes, start: bytes, end: bytes) -> Delta | None:
        """Return the text and the values of a delta, or None if it does not match. Ignores the event's name.

        start, end: as in `DeltaTemplate.match`.
        """
        last = data.removeprefix(start).removesuffix(end)
        # A line end (10 or 13) is white space in JSON, but ends a line of a server-sent event.
        if len(last) != len(data) - len(start) - len(end) or 10 in last or 13 in last:
            return None
        between = self.between
        values: Sequence[JSON]
        raw: Sequence[bytes]
        try:
            if len(between) == 1:  # the usual case, without the cost of a loop
                first, _, last = last.partition(between[0])
                raw = (first, last)
                values = (strict_loads(first), strict_loads(last))
            else:
                raw = _parted(last, between)
                values = [*map(strict_loads, raw)]
        except ValueError:
            return None
        if not self.tokens:
            text = values[self.text]
            return (text, values, raw) if type(text) is str and text else None
        text = values[self.text] if self.text >= 0 else ""
        if self.member:
            text = "" if text == {} else text.get(self.member) if type(text) is dict and len(text) == 1 else None
        return (text, values, raw) if type(text) is str else None


def _parted(data: bytes, between: Sequence[bytes]) -> list[bytes]:
    """Return the parts of `data` before, between and after the first occurrences of these pieces, in order."""
    parts: list[bytes] = []
    for piece in between:
        value, _, data = data.partition(piece)
        parts.append(value)
    parts.append(data)
    return parts


Template: TypeAlias = DeltaTemplate | ValuesTemplate


def learn(
    event: str,
    data: bytes,
    value: JSON,
    path: Path,
    text: str,
    volatile: VolatileMembers,
    *,
    shared: bool = True,
    tokens: bool = False,
) -> Template | None:
    """Make a template of a delta. Returns None if the place of the text, or of a value, is not certain.

    event: the name of the server-sent event.
    value: its data, parsed.
    path: the path to the text in `value`; empty for a delta that has tokens and no text.
    volatile: the dialect's members that differ from delta to delta.
    shared: whether bytes of the template may be kept for all streams.
    tokens: whether the values are tokens, which the next delta may have without a text.
    """
    if path and _value_at(value, path) != text:
        return None
    quoted = dumps(text)
    if data.count(quoted) != 1:
        quoted = ascii_dumps(text)
    if not path and not tokens:
        return None
    values = [each for each in volatile.values if _value_at(value, each)]
    if values:
        present = [each for each in volatile.meaningless if _value_at(value, each) is not None]
        owner = _value_at(value, path[:-1])
        if tokens and path and type(owner) is dict and len(owner) == 1:
            # Without a text, the object that has it is empty.
            path, member = path[:-1], str(path[-1])
        else:
            member = ""
        return _learn_values(event, data, path, values, present, member, shared=shared, tokens=tokens)
    if not path:
        return None
    if data.count(quoted) != 1:
        return None
    to_text, _, after = data.partition(quoted)
    # Without escapes, the only place with these bytes is the text's. With escapes, these bytes may belong to another
    # member while the text itself is escaped.
    if BACKSLASH in data and not _is_place(to_text, after, path):
        return None
    to_counter = to_padding = b""
    counter = volatile.counter.search(to_text) if volatile.counter is not None else None
    if counter is not None:
        to_counter, to_text = to_text[: counter.start(1)], to_text[counter.end() + 1 :]
    padding = volatile.padding.search(after) if volatile.padding is not None else None
    if padding is not None:
        to_padding, after = after[: padding.start(1)], after[padding.end(1) :]
    end = shared_bytes(after, shared)
    if not to_counter:
        return DeltaTemplate(event, shared, to_text, b"", to_padding, end)
    return DeltaTemplate(event, shared, to_counter, to_text, to_padding, end)


def _learn_values(
    event: str,
    data: bytes,
    path: Path,
    values: Sequence[Path],
    meaningless: Sequence[Path],
    member: str,
    *,
    shared: bool,
    tokens: bool,
) -> ValuesTemplate | None:
    """Make a template of a delta with values. Returns None if the place of one of them is not certain.

    path: the path to the text, or to the object that has it as its only `member`; empty if there is none.
    meaningless: the paths to values that are not read.
    """
    places: list[tuple[int, int, Path]] = []
    for each in (*([path] if path else ()), *values, *meaningless):
        found = _place_of(data, each)
        if found is None:
            return None
        places.append((*found, each))
    places.sort(key=_start_of)
    ends = [0, *(end for _, end, _ in places)]
    starts = [*(start for start, _, _ in places), len(data)]
    pieces = [data[end:start] for end, start in zip(ends, starts, strict=True)]
    if not all(pieces):
        return None  # two places overlap or touch
    paths = [each for _, _, each in places]
    read = tuple((position, str(each[-1])) for position, each in enumerate(paths) if each in values)
    between = tuple(shared_bytes(piece, shared) for piece in pieces[1:-1])
    end = shared_bytes(pieces[-1], shared)
    text = paths.index(path) if path else -1
    return ValuesTemplate(event, shared, pieces[0], between, end, text, read, tokens, member)


def _start_of(place: tuple[int, int, Path]) -> int:
    return place[0]


def _place_of(data: bytes, path: Path) -> tuple[int, int] | None:
    """Return the start and the end of the value at `path`, or None if it is not found."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    name = json.dumps(path[-1])
    end = 0
    for _ in range(MOST_SEARCHED):
        found = text.find(name, end)
        if found < 0:
            break
        end = found + len(name)
        rest = text[end:].lstrip(" \t")
        if rest[:1] != ":":
            continue
        start = len(text) - len(rest[1:].lstrip(" \t"))
        try:
            _, stop = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue  # these bytes are part of a string
        before, after = text[:start].encode(), text[stop:].encode()
        if _is_place(before, after, path):
            return len(before), len(data) - len(after)
    return None


_DECODER = json.JSONDecoder()


def _is_place(before: bytes, after: bytes, path: Path) -> bool:
    """Return whether a value between these bytes is the one at `path`."""
    try:
        return _value_at(loads(before + dumps(PROBE) + after), path) == PROBE
    except MalformedJSONError:
        return False


def shared_bytes(piece: bytes, shared: bool) -> bytes:
    """Return these bytes; equal bytes as one object for all streams if they may be kept."""
    return _kept_for_all(piece) if shared and len(piece) <= LARGEST_SHARED else piece


@functools.lru_cache(maxsize=256)
def _kept_for_all(piece: bytes) -> bytes:
    """Return equal bytes as one object for all streams. The end of a delta seldom differs between streams. Thousands of
    copies would evict each other from the processor's caches before the stream's next event.
    """
    return piece


def _value_at(value: JSON, path: Path) -> JSON:
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if type(value) is dict else None
        else:
            value = value[step] if type(value) is list and step < len(value) else None
    return value
