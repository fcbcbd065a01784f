"""JSON in and out: the one file where `Any` appears, and where it stops.

Knows orjson, and what to do with bytes that orjson refuses but other readers take. Must not know any dialect.

Requests are strict (what we send is valid JSON or an error); responses are lenient: the typed getters below
answer `None` (or an empty container) for a member that is absent, null or of the wrong shape, because servers
differ in which of the three they send and none of them is worth losing a stream for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import orjson

from .errors import ManystreamError
from .exact_numbers import (
    NumberWriter,
    UnheldNumber,
    decimal_number,
    find_unheld,
    has_odd_numbers,
    shortened,
    whole_number,
)

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
JSONObject: TypeAlias = "dict[str, JSON]"

SHOWN_BYTES = 200
"""How many of the offending bytes an error message quotes."""


LARGE = 1024 * 1024
"""Bytes of JSON for which it is worth looking whether nearly all of it is one string: a file, in base64."""

LARGE_QUOTES = 1000
"""Quotes that are looked at before that is given up."""

MAX_VALUES = 4_000_000
"""Values in one JSON text. The parser takes two bytes for a value that it makes sixty of, and a good part of a
microsecond; while it runs, no other stream is read."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, also one that the text ends in."""

STAND_IN = "\x1a in the place of a large string \x1a"

_NOT_PLAIN = bytes([*range(0x20), ord("\\")])
"""What a JSON string cannot hold as it is, or not as it means it (RFC 8259, section 7)."""

SMALLEST_WHOLE, LARGEST_WHOLE = -(2**63), 2**64 - 1
"""The whole numbers that are one: a server's `1e300` is whole, too, and no count of anything."""

_LOOKED_AT = 64 * 1024
"""Bytes that are looked at at once, as each look takes a copy."""


class MalformedJSONError(ManystreamError, ValueError):
    """Bytes that are no JSON, or JSON that is not what the place calls for. The message quotes them, bounded."""


class UnheldNumberError(MalformedJSONError):
    """JSON with a number that Python cannot hold. `path`: its place, such as `.a[0]`."""

    def __init__(self, path: str, number: UnheldNumber) -> None:
        super().__init__(f"{path.removeprefix('.') or 'the value'} is {shortened(number.text)}: Python cannot hold it")
        self.path: str = path


class Fragment:
    """A value whose JSON text is at hand."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text: bytes = text


strict_loads: Callable[[bytes | str], JSON] = orjson.loads
"""Parse without the second look. Raises `ValueError`."""


NoteHalf: TypeAlias = "Callable[[str, str], None]"
"""Takes a string that holds half a surrogate pair, and the same string with U+FFFD for each half."""


def loads(data: bytes | str, note_half: NoteHalf | None = None) -> JSON:
    """Parse JSON text. Raises `MalformedJSONError`.

    A whole number beyond 64 bits becomes a float: `exact_loads` is for JSON in which numbers matter.

    orjson refuses lone surrogate escapes, NaN and bytes that are no UTF-8. Such an event still holds an answer,
    so the slow path reads it once more with replacement characters, as browsers do (WHATWG UTF-8 decode). `note_half`
    is called with each string among the values that holds half a surrogate pair. A text of more than `MAX_VALUES`
    values is not read.
    """
    try:
        result: JSON = orjson.loads(data) if len(data) < LARGE else _loads_large(data)
    except orjson.JSONDecodeError:
        pass  # and is over: it holds the whole text, and would hang on whatever were raised from here
    else:
        return result
    return _loads_leniently(data, note_half)


def exact_loads(data: bytes | str) -> JSON:
    """Parse JSON text with whole numbers of any size. One that Python cannot hold is an `UnheldNumber`. Raises
    `MalformedJSONError`."""
    return exactly(loads(data), data)


def held_loads(data: bytes | str) -> JSON:
    """The same for a caller, who is given only numbers that Python can hold. Raises `UnheldNumberError` for another."""
    value = exact_loads(data)
    unheld = find_unheld(value) if has_odd_numbers(data) else None
    if unheld is not None:
        raise UnheldNumberError(*unheld)
    return value


def exactly(value: JSON, data: bytes | str) -> JSON:
    """The JSON text `data`, which was parsed to `value`, with its numbers as `exact_loads` reads them."""
    if not has_odd_numbers(data):
        return value
    try:
        return _loads_leniently(data)
    except MalformedJSONError:
        return value  # Python's parser does not go as deep


def exactly_object(value: JSONObject, data: bytes) -> JSONObject:
    """The same for an object."""
    exact = exactly(value, data)
    return exact if type(exact) is dict else value


def loads_object(data: bytes | str) -> JSONObject:
    """Parse JSON text that must be an object, with exact numbers. Raises `MalformedJSONError`."""
    value = exact_loads(data)
    if type(value) is not dict:
        raise MalformedJSONError(f"expected a JSON object, got {shown(data)}")
    return value


def dumps(value: Any) -> bytes:
    """Serialise to compact UTF-8, whole numbers of any size. Raises `TypeError` for what JSON cannot hold."""
    try:
        return orjson.dumps(value, _fragment_text)
    except TypeError:
        return _EXACT.text(value).encode()


def ascii_dumps(text: str) -> bytes:
    """A string as other serialisers write it, with escapes for all that is not ASCII."""
    return json.dumps(text).encode()


def dumps_text(value: Any) -> str:
    """Serialise to compact text."""
    return dumps(value).decode()


def arguments_text(value: JSON, *, spaced: bool = False) -> str:
    """A call's arguments as text, every number as it was sent. `spaced`: a space after `:` and `,`. Raises
    `TypeError` where they are nested too deeply."""
    try:
        return _spaced_encode(value) if spaced else orjson.dumps(value).decode()
    except (TypeError, ValueError):
        pass  # a number beyond 64 bits, one that Python cannot hold, or more levels than orjson writes
    except RecursionError:
        raise TypeError("it is nested too deeply") from None
    try:
        return (_SPACED_ARGUMENTS if spaced else _ARGUMENTS).text(value)
    except TypeError:
        return _deep_text(value)


def fragment(text: bytes) -> JSON:
    """Return a value that `dumps` writes as this JSON text, which must be valid."""
    value: Any = Fragment(text)
    return cast("JSON", value)


def _deep_text(value: JSON) -> str:
    """JSON text of a value with many levels, which Python's encoder writes, up to its own limit."""
    try:
        return _compact_encode(value)
    except (ValueError, RecursionError):
        raise TypeError("it is nested too deeply") from None


def _fragment_text(value: object) -> orjson.Fragment:
    if isinstance(value, Fragment):
        return orjson.Fragment(value.text)
    raise TypeError


def _leaf(value: object) -> str:
    return orjson.dumps(value, _fragment_text).decode()


_compact_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_spaced_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_EXACT = NumberWriter(_leaf)
_ARGUMENTS = NumberWriter(_leaf, keep_unheld=True)
_SPACED_ARGUMENTS = NumberWriter(_leaf, spaced=True, keep_unheld=True)


def shown(data: bytes | str) -> str:
    """The first bytes of a body, fit for an error message: one line, bounded."""
    text = data if isinstance(data, str) else data[: SHOWN_BYTES * 4].decode("utf-8", "replace")
    return repr(text if len(text) <= SHOWN_BYTES else text[:SHOWN_BYTES] + "…")


def string(value: JSONObject, key: str) -> str | None:
    """The member when it is a string, else None."""
    member = value.get(key)
    return member if type(member) is str else None


def integer(value: JSONObject, key: str) -> int | None:
    """The member when it is a whole number (servers also send `12.0`), else None. A boolean is not a number.

    Nor is a number of more than 64 bits: nothing counts so far, and it could not be added to a float.
    """
    member = value.get(key)
    if type(member) is float and member.is_integer():
        member = int(member)
    if type(member) is int and SMALLEST_WHOLE <= member <= LARGEST_WHOLE:
        return member
    return None


def mapping(value: JSONObject, key: str) -> JSONObject:
    """The member when it is an object, else an empty one."""
    member = value.get(key)
    return member if type(member) is dict else {}


def items(value: JSONObject, key: str) -> list[JSON]:
    """The member when it is an array, else an empty one."""
    member = value.get(key)
    return member if type(member) is list else []


def objects(value: JSONObject, key: str) -> list[JSONObject]:
    """The objects in the member when it is an array, else none. Anything else in the array is passed over."""
    return [member for member in items(value, key) if type(member) is dict]


def without_nulls(value: JSONObject) -> JSONObject:
    """The object without its null members, which say the same as absent ones. Members of members stay as they are."""
    if None not in value.values():
        return value
    return {name: member for name, member in value.items() if member is not None}


def _check_values(data: bytes | str) -> None:
    """Raises `MalformedJSONError` for too many values."""
    if len(data) < 2 * MAX_VALUES:
        return
    data = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    # What is counted here may stand inside strings; without them, only where that makes a difference.
    if _most_values(data) > MAX_VALUES and _most_values(_STRING.sub(b"", data)) > MAX_VALUES:
        raise MalformedJSONError(f"more than {MAX_VALUES} JSON values in {shown(data)}")


def _most_values(data: bytes) -> int:
    """How many values there are at the most: each comes first in its container, or after a comma."""
    containers = data.count(b"[") + data.count(b"{") - data.count(b"[]") - data.count(b"{}")
    return 1 + data.count(b",") + containers


def _loads_large(data: bytes | str) -> JSON:
    """Parse JSON that may be one large plain string with a little around it: that is decoded where it stands, and only
    the rest is parsed. The parser takes a copy of all that it is given, which would be the largest of all."""
    _check_values(data)
    start, end = _largest_string(data) if isinstance(data, bytes) else (0, 0)
    if isinstance(data, str) or end - start < LARGE // 2 or not _is_plain(data, start, end):
        return cast("JSON", orjson.loads(data))
    value: JSON = orjson.loads(data[:start] + orjson.dumps(STAND_IN)[1:-1] + data[end:])
    try:
        value, count = _replaced(value, str(memoryview(data)[start:end], "utf-8"))
    except (UnicodeDecodeError, RecursionError):
        return cast("JSON", orjson.loads(data))  # which says what is wrong with it, or can go deeper
    return value if count == 1 else cast("JSON", orjson.loads(data))


def _largest_string(data: bytes) -> tuple[int, int]:
    """Where the longest stretch without a quote is that stands between two of the first ones."""
    largest, start = (0, 0), data.find(b'"') + 1
    for _ in range(LARGE_QUOTES):
        end = data.find(b'"', start)
        if not start or end < 0:
            return largest
        if end - start > largest[1] - largest[0]:
            largest = start, end
        start = end + 1
    return 0, 0


def _is_plain(data: bytes, start: int, end: int) -> bool:
    pieces = (data[place : min(place + _LOOKED_AT, end)] for place in range(start, end, _LOOKED_AT))
    return all(len(piece.translate(None, _NOT_PLAIN)) == len(piece) for piece in pieces)


def _replaced(value: JSON, large: str) -> tuple[JSON, int]:
    """The value with `large` where `STAND_IN` was among its values, and how often that was."""
    if value == STAND_IN:
        return large, 1
    count = 0
    if type(value) is dict:
        for name, member in value.items():
            value[name], found = _replaced(member, large)
            count += found
    elif type(value) is list:
        for position, member in enumerate(value):
            value[position], found = _replaced(member, large)
            count += found
    return value, count


def _loads_leniently(data: bytes | str, note_half: NoteHalf | None = None) -> JSON:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    try:
        # Both steps recurse: what is nested too deeply for either cannot be read.
        return _without_surrogates(
            json.loads(text, parse_int=whole_number, parse_float=decimal_number, parse_constant=UnheldNumber),
            note_half,
        )
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise MalformedJSONError(f"malformed JSON {shown(data)}: {reason}")


def _without_surrogates(value: JSON, note_half: NoteHalf | None) -> JSON:
    if type(value) is str:
        # A lone surrogate cannot be encoded again, so it becomes U+FFFD; a pair that arrived as two becomes one.
        text = value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if note_half is not None and text != value:
            note_half(value, text)
        return text
    if type(value) is list:
        return [_without_surrogates(member, note_half) for member in value]
    if type(value) is dict:
        return {
            str(_without_surrogates(key, None)): _without_surrogates(member, note_half) for key, member in value.items()
        }
    return value
