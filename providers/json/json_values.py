"""Parsing and writing JSON: the only file in which `Any` appears.

Requests are strict: what is sent is valid JSON or an error. Responses are lenient: the typed getters below return
`None` (or an empty container) for a member that is absent, null or of the wrong shape. Servers differ in which of the
three they send, and none of them is a reason to fail a stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import orjson

from ..errors import ManystreamError
from .exact_numbers import (
    LOOKED_AT,
    NumberWriter,
    UnrepresentableNumber,
    decimal_number,
    find_unrepresentable,
    has_plain_numbers,
    shortened,
    whole_number,
)
from .json_types import JSON as JSON
from .json_types import JSONObject as JSONObject

SHOWN_BYTES = 200
"""The number of characters of malformed JSON that an error message quotes."""


LARGE = 1024 * 1024
"""Bytes. For larger JSON, `loads` first checks whether nearly all of it is one string, such as a file in base64."""

LARGE_QUOTES = 1000
"""The check for one large string stops after this many quotes."""

MAX_VALUES = 4_000_000
"""The most values in one JSON text. A value of two bytes takes sixty bytes in memory and a good part of a microsecond
to parse, during which no other stream is read.
"""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or the beginning of a string that the text cuts off."""

_SURROGATE = re.compile(r"[\ud800-\udfff]|\\u[dD][89a-fA-F]")
"""Half a surrogate pair, or its escape. Text without one needs no second look at its strings."""

STAND_IN = "\x1a in the place of a large string \x1a"
"""Replaces a large string while the rest of the JSON is parsed. No server sends this string."""

_NOT_PLAIN = bytes([*range(0x20), ord("\\")])
"""Bytes that a JSON string cannot contain, or that do not stand for themselves in one (RFC 8259, section 7)."""

SMALLEST_WHOLE, LARGEST_WHOLE = -(2**63), 2**64 - 1
"""Whole numbers outside this range are not treated as integers: a server's `1e300` is whole, but not a count."""

CONTAINER_ENDS = frozenset("}] \t\n\r")
"""Characters with which the text of an object or array may end."""

_NEXT_VALUE = re.compile(r"[}\]][ \t\n\r]*+[{\[]")
"""The end of a container and the beginning of another one, which are never side by side in one JSON text outside its
strings.
"""

_WHITESPACE = re.compile(r"[ \t\n\r]*+")
_ONE_VALUE = json.JSONDecoder(parse_int=whole_number, parse_float=decimal_number, parse_constant=UnrepresentableNumber)
"""Parses the first value of a text."""

_LONG_WHOLE = re.compile(rb"(?<![0-9.eE+-])-?[0-9]{19,}+(?![.eE])")
"""A whole number that may not fit into 64 bits."""


class MalformedJSONError(ManystreamError, ValueError):
    """Bytes that are not JSON, or JSON of the wrong shape. The message quotes at most `SHOWN_BYTES` of them."""


class UnrepresentableNumberError(MalformedJSONError):
    """JSON with a number that Python cannot represent, or that JSON does not have, such as NaN.

    path: the number's place, such as `.a[0]`.
    """

    def __init__(self, path: str, number: UnrepresentableNumber) -> None:
        what = path.removeprefix(".") or "the value"
        reason = "Python cannot hold it" if number.is_json else "JSON does not have it"
        super().__init__(f"{what} is {shortened(number.text)}: {reason}")
        self.path: str = path


class Fragment:
    """A value whose JSON text is already known."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text: bytes = text


strict_loads: Callable[[bytes | str], JSON] = orjson.loads
"""Parse JSON with orjson alone, without the lenient parser. Raises `ValueError`."""


NoteHalf: TypeAlias = Callable[[str, str], None]
"""Receives a string with half a surrogate pair, and the same string with U+FFFD for each half."""


def loads(data: bytes | str, note_half: NoteHalf | None = None) -> JSON:
    """Parse JSON text. Raises `MalformedJSONError`.

    A whole number beyond 64 bits may become a float. Use `exact_loads` for JSON in which numbers matter.

    orjson refuses lone surrogate escapes, NaN and bytes that are not UTF-8. Such an event still contains an answer, so
    a lenient parser reads it again with replacement characters, as browsers do (WHATWG UTF-8 decode). A text with more
    than `MAX_VALUES` values is refused.

    note_half: called with each string that contains half a surrogate pair, except names of members.
    """
    try:
        return _loads_strictly(data)
    except orjson.JSONDecodeError:
        pass  # The handler must end here: the exception holds the whole text, and would be another one's context.
    return _loads_leniently(data, note_half)


def _loads_strictly(data: bytes | str) -> JSON:
    """Parse JSON text with orjson. Raises `orjson.JSONDecodeError`, and `MalformedJSONError` for too many values."""
    return cast("JSON", orjson.loads(data)) if len(data) < LARGE else _loads_large(data)


def exact_loads(data: bytes | str) -> JSON:
    """Parse JSON text with whole numbers of any size.

    A number that Python cannot represent becomes an `UnrepresentableNumber`.

    Raises `MalformedJSONError`.
    """
    return exactly(loads(data), data)


def exact_or_text(text: str) -> JSON:
    """Parse JSON text as `exact_loads` does; return the text itself if it is not JSON."""
    try:
        return exact_loads(text)
    except MalformedJSONError:
        return text


def json_at(text: str, start: int) -> tuple[JSON, int]:
    """Parse the JSON text that begins at a place of a text and may be followed by others.

    Returns its value, without numbers, and its end; `(None, start)` if there is none, or if it is not whole.
    """
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return cast("JSON", value), end


def leading_json(body: bytes) -> tuple[bytes, bytes] | None:
    """Split a body into the JSON texts at its beginning, one after another, and the rest.

    Returns None if it does not begin with JSON, and if all of it is one JSON text.
    """
    try:
        _check_values(body)
    except MalformedJSONError:
        return None
    text = body.decode("utf-8", "replace")
    count = start = 0
    end = -1
    while start != end:
        match = _SEPARATOR.match(text, max(end, 0))
        start = match.end() if match is not None else 0
        _, end = json_at(text, start)
        count += 1
    lines, rest = text[:start], text[start:].strip()
    return (lines.encode(), rest.encode()) if count > 2 or (count > 1 and rest) else None


_SEPARATOR = re.compile(r"[ \t\r\n,]*+")
"""What may stand between two JSON texts."""

_DECODER = json.JSONDecoder(parse_int=len, parse_float=len, strict=False)
"""Finds the end of a JSON text. A number's value is not needed, and parsing a long one could fail."""


def representable_loads(data: bytes | str) -> JSON:
    """Parse JSON text with whole numbers of any size, and only numbers that Python can represent.

    Raises `MalformedJSONError`, which is an `UnrepresentableNumberError` for another number.
    """
    try:
        return exactly(_loads_strictly(data), data)
    except orjson.JSONDecodeError:
        pass
    value = _loads_leniently(data)
    unrepresentable = find_unrepresentable(value)
    if unrepresentable is not None:
        raise UnrepresentableNumberError(*unrepresentable)
    return value


def parse_object(text: str, what: str) -> JSONObject:
    """Parse the text of a JSON object, with whole numbers of any size; the empty object if there is no text.

    Raises `MalformedJSONError` if it is no JSON object. For a number that Python cannot represent, or that JSON does
    not have, the error has the number's path.

    what: names the text in the error.
    """
    try:
        value = strict_loads(text)
    except ValueError:
        if not text.strip():
            return {}
        value = representable_loads(text)
    else:
        if not has_plain_numbers(text):
            value = representable_loads(text)
    if type(value) is not dict:
        raise MalformedJSONError(f"{what} are no JSON object: {text[:SHOWN_BYTES]!r}")
    return value


def exactly(value: JSON, data: bytes | str) -> JSON:
    """Return the value of the JSON text `data` with its numbers as `exact_loads` parses them.

    value: the parsed text. It is returned as it is if all its numbers are exact.
    """
    if _has_plain_numbers(data):
        return value
    try:
        return _loads_leniently(data)
    except MalformedJSONError:
        return value  # Python's parser accepts fewer levels than orjson


def _has_plain_numbers(data: bytes | str) -> bool:
    """Return whether all whole numbers of JSON text fit into 64 bits, those inside strings left out."""
    if has_plain_numbers(data):
        return True
    encoded = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    numbers = _LONG_WHOLE.findall(_STRING.sub(b"", encoded))
    return all(len(number) <= 20 and SMALLEST_WHOLE <= int(number) <= LARGEST_WHOLE for number in numbers)


def same_value(one: JSON, other: JSON) -> bool:
    """Return whether two values are equal as JSON: `true` does not equal 1, but 1.0 does.

    The order of an object's members does not matter.
    """
    pairs: list[tuple[JSON, JSON]] = [(one, other)]
    while pairs:
        one, other = pairs.pop()
        if type(one) is bool or type(other) is bool:
            same = one is other
        elif isinstance(one, UnrepresentableNumber) and isinstance(other, UnrepresentableNumber):
            same = one.text == other.text
        elif type(one) is list and type(other) is list:
            same = len(one) == len(other)
            pairs += zip(one, other, strict=False)
        elif type(one) is dict and type(other) is dict:
            same = one.keys() == other.keys()
            pairs += [(member, other.get(name)) for name, member in one.items()]
        else:
            same = one == other
        if not same:
            return False
    return True


def same_text(one: str, other: str) -> bool:
    try:
        return same_value(exact_loads(one), exact_loads(other))
    except MalformedJSONError:
        return False


def without_repetition(text: str) -> str:
    """Return JSON text without the repetitions of its value: the text of an object or array, once, of a text that
    consists of several of equal value. Any other text is returned as it is.
    """
    if not _NEXT_VALUE.search(text):
        return text
    try:
        _check_values(text)
        first, end = _ONE_VALUE.raw_decode(text, _skip(text, 0))
        place = _skip(text, end)
        while place < len(text):
            value, place = _ONE_VALUE.raw_decode(text, place)
            if not same_value(value, first):
                return text
            place = _skip(text, place)
    except (ValueError, RecursionError):
        return text
    return text[:end]


def _skip(text: str, place: int) -> int:
    """Return the place after the whitespace at a place of JSON text."""
    match = _WHITESPACE.match(text, place)
    return place if match is None else match.end()


def exactly_object(value: JSONObject, data: bytes) -> JSONObject:
    """Return the object of the JSON text `data` with its numbers as `exact_loads` parses them.

    value: the parsed text. It is returned as it is if all its numbers are exact.
    """
    exact = exactly(value, data)
    return exact if type(exact) is dict else value


def loads_object(data: bytes | str) -> JSONObject:
    """Parse JSON text that must be an object, with whole numbers of any size. Raises `MalformedJSONError`."""
    return as_object(exact_loads(data), data)


def as_object(value: JSON, data: bytes | str) -> JSONObject:
    """Return a parsed value that must be an object. `data`: its text, for the error. Raises `MalformedJSONError`."""
    if type(value) is not dict:
        raise MalformedJSONError(f"expected a JSON object, got {shown(data)}")
    return value


def says_nothing(value: JSON) -> bool:
    """Return whether a value is null, false, zero or empty, or contains such values only."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if type(value) is dict:
            waiting += value.values()
        elif type(value) is list:
            waiting += value
        elif value:
            return False
    return True


def dumps(value: Any) -> bytes:
    """Write compact JSON in UTF-8, with whole numbers of any size. Raises `TypeError` for a type that JSON has not."""
    try:
        return orjson.dumps(value, _fragment_text)
    except TypeError:
        return _EXACT.text(value).encode()


def escaped_dumps(value: Any) -> bytes:
    """Write compact JSON as `dumps` does, with an escape for half a surrogate pair. UTF-8 has no form for it, and
    servers send the escape. Raises `TypeError`.
    """
    try:
        return orjson.dumps(value, _fragment_text)
    except TypeError:
        return _ESCAPED.text(value).encode()


def escaped_text(value: Any) -> str:
    """Write compact JSON as text, with an escape for half a surrogate pair. Raises `TypeError`."""
    return escaped_dumps(value).decode()


def check_numbers(value: Any) -> None:
    """Raise `UnwritableNumberError` if a value contains NaN or infinity, which `dumps` writes as null."""
    try:
        _FINITE.encode(value)
    except ValueError:
        _EXACT.text(value)  # finds the path


def ascii_dumps(text: str) -> bytes:
    """Write a string as JSON with escapes for all characters that are not ASCII, as many servers do."""
    return json.dumps(text).encode()


def dumps_text(value: Any) -> str:
    """Write compact JSON as text, with whole numbers of any size. Raises `TypeError` for a type that JSON has not."""
    return dumps(value).decode()


def dumps_printable(value: Any) -> bytes:
    """Write JSON as `dumps` does, with escapes for the control characters that JSON allows in text: DEL, C1, and those
    of bidirectional text.

    So a line of it can be printed, whoever wrote its texts.
    """
    return _CONTROLS.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), dumps(value))


def arguments_text(value: JSON, *, spaced: bool = False) -> str:
    """Write a call's arguments as JSON text, with every number as it was sent, and half a surrogate pair as an escape.

    spaced: write a space after `:` and `,`.

    Raises `TypeError` if they are nested too deeply.
    """
    try:
        if spaced:
            return _spaced_encode(value)
        written = orjson.dumps(value)
        if b"null" in written:
            _FINITE.encode(value)  # orjson writes null for NaN
        return written.decode()
    except (TypeError, ValueError):
        pass  # a number that is not plain, half a surrogate pair, or more levels than orjson writes
    except RecursionError:
        raise TypeError("it is nested too deeply") from None
    try:
        return (_SPACED_ARGUMENTS if spaced else _ARGUMENTS).text(value)
    except TypeError:
        return _deep_text(value)


def received_dumps(value: JSON) -> bytes:
    """Write what a server sent, with every number as it came. What is nested too deeply to be written becomes null."""
    try:
        return arguments_text(value).encode()
    except TypeError:
        return b"null"


def fragment(text: bytes) -> JSON:
    """Return a value that `dumps` writes as this JSON text, which must be valid."""
    value: Any = Fragment(text)
    return cast("JSON", value)


def _deep_text(value: JSON) -> str:
    """Write a value with many levels, with Python's encoder. Raises `TypeError` beyond the encoder's own limit."""
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


def _escaped_leaf(value: object) -> str:
    try:
        return _leaf(value)
    except TypeError:
        if not isinstance(value, str):
            raise
        return json.dumps(value)


def _without_numbers(_: object) -> None:
    """Stand in for a value that has no numbers, such as JSON text, or that cannot be written at all."""


_compact_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_spaced_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_EXACT = NumberWriter(_leaf)
_CONTROLS = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]"
    rb"|\xd8\x9c|\xe2(?:\x80[\x8e\x8f\xaa-\xae]|\x81[\xa6-\xa9])"  # what has the property Bidi_Control
)

_FINITE = json.JSONEncoder(allow_nan=False, default=_without_numbers)
_ESCAPED = NumberWriter(_escaped_leaf)
_ARGUMENTS = NumberWriter(_escaped_leaf, keep_unrepresentable=True)
_SPACED_ARGUMENTS = NumberWriter(_escaped_leaf, spaced=True, keep_unrepresentable=True)


def shown(data: bytes | str) -> str:
    """Return the beginning of a text as an error message quotes it: one line, at most `SHOWN_BYTES` characters."""
    text = data if isinstance(data, str) else data[: SHOWN_BYTES * 4].decode("utf-8", "replace")
    return repr(text if len(text) <= SHOWN_BYTES else text[:SHOWN_BYTES] + "…")


def string(value: JSONObject, key: str) -> str | None:
    """Return the member if it is a string, else None."""
    member = value.get(key)
    return member if type(member) is str else None


def integer(value: JSONObject, key: str) -> int | None:
    """Return the member if it is a whole number, else None. Servers also send `12.0`, which counts as 12.

    A boolean is not a number. Nor is a number beyond 64 bits: no count is so large, and it cannot be added to a float.
    """
    member = value.get(key)
    if type(member) is float and member.is_integer():
        member = int(member)
    if type(member) is int and SMALLEST_WHOLE <= member <= LARGEST_WHOLE:
        return member
    return None


def first_integer(source: JSONObject, keys: tuple[str, ...]) -> int | None:
    """Return the first of these members that is a whole number, or None."""
    for key in keys:
        value = integer(source, key)
        if value is not None:
            return value
    return None


def mapping(value: JSONObject, key: str) -> JSONObject:
    """Return the member if it is an object, else an empty one."""
    member = value.get(key)
    return member if type(member) is dict else {}


def items(value: JSONObject, key: str) -> list[JSON]:
    """Return the member if it is an array, else an empty one."""
    member = value.get(key)
    return member if type(member) is list else []


def objects(value: JSONObject, key: str) -> list[JSONObject]:
    """Return the objects in the member if it is an array, else an empty list. Other elements are skipped."""
    return [member for member in items(value, key) if type(member) is dict]


def required_objects(value: JSON, name: str) -> list[JSONObject]:
    """Return an array of objects: empty if it is absent. Raises `MalformedJSONError` for any other value."""
    if not value:
        return []
    if type(value) is not list:
        raise MalformedJSONError(f"{name} is no array")
    found: list[JSONObject] = []
    for item in value:
        if type(item) is dict:
            found.append(item)
        elif item is not None:
            raise MalformedJSONError(f"{name} contains a value that is no object")
    return found


def without_nulls(value: JSONObject) -> JSONObject:
    """Return the object without its null members, which mean the same as absent ones. Nested objects are unchanged."""
    if None not in value.values():
        return value
    return {name: member for name, member in value.items() if member is not None}


def _check_values(data: bytes | str) -> None:
    """Raise `MalformedJSONError` for more than `MAX_VALUES` values."""
    if len(data) < 2 * MAX_VALUES:
        return
    data = data if isinstance(data, bytes) else data.encode("utf-8", "replace")
    # Commas and brackets inside strings count as well. The strings are removed only where that changes the result.
    if _most_values(data) > MAX_VALUES and _most_values(_STRING.sub(b"", data)) > MAX_VALUES:
        raise MalformedJSONError(f"more than {MAX_VALUES} JSON values in {shown(data)}")


def _most_values(data: bytes) -> int:
    """Return an upper bound of the number of values: each is the first in its container or follows a comma."""
    containers = data.count(b"[") + data.count(b"{") - data.count(b"[]") - data.count(b"{}")
    return 1 + data.count(b",") + containers


def _loads_large(data: bytes | str) -> JSON:
    """Parse JSON that may be one large plain string with a little around it.

    Such a string is decoded where it is, and only the rest is parsed. The parser copies all its input, and this copy
    would be the largest of all.
    """
    _check_values(data)
    start, end = _largest_string(data) if isinstance(data, bytes) else (0, 0)
    if isinstance(data, str) or end - start < LARGE // 2 or not _is_plain(data, start, end):
        return cast("JSON", orjson.loads(data))
    value: JSON = orjson.loads(data[:start] + orjson.dumps(STAND_IN)[1:-1] + data[end:])
    try:
        value, count = _replaced(value, str(memoryview(data)[start:end], "utf-8"))
    except (UnicodeDecodeError, RecursionError):
        return cast("JSON", orjson.loads(data))  # raises the exact error, or accepts more levels
    return value if count == 1 else cast("JSON", orjson.loads(data))


def _largest_string(data: bytes) -> tuple[int, int]:
    """Return the start and the end of the longest piece without a quote between two of the first `LARGE_QUOTES`."""
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
    """Return whether these bytes stand for themselves in a JSON string."""
    pieces = (data[place : min(place + LOOKED_AT, end)] for place in range(start, end, LOOKED_AT))
    return all(len(piece.translate(None, _NOT_PLAIN)) == len(piece) for piece in pieces)


def _replaced(value: JSON, large: str) -> tuple[JSON, int]:
    """Put `large` in every place of `STAND_IN` in a value. Returns the value and the number of places."""
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
    """Parse JSON text with Python's parser. Raises `MalformedJSONError`."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff")  # some servers put a byte order mark before every body
    try:
        # Both steps recurse, so both can refuse a deeply nested text.
        value: JSON = json.loads(
            text, parse_int=whole_number, parse_float=decimal_number, parse_constant=UnrepresentableNumber
        )
        return _without_surrogates(value, note_half) if _SURROGATE.search(text) else value
    except (ValueError, RecursionError) as error:
        reason = str(error)
    raise MalformedJSONError(f"malformed JSON {shown(data)}: {reason}")


def _without_surrogates(value: JSON, note_half: NoteHalf | None) -> JSON:
    """Return a value without lone surrogates, in strings and in names of members."""
    if type(value) is str:
        # A lone surrogate cannot be encoded again, so it becomes U+FFFD. A pair of two escapes becomes one character.
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
