"""Hostile inputs that keep the shape of valid ones, as a server could send them to break its client.

A random fuzzer rarely writes a number of 400 digits, a thousand choices or 20 KB of spaces at a place where they are
parsed. Each function makes one such change to valid input; `shaped` makes several. Equal random generators create equal
inputs.
"""

import json
import random
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from tests.engine.request.test_redaction import SPELLINGS

Change: TypeAlias = Callable[[bytes, random.Random], bytes]

LARGEST = 256 * 1024
"""The maximum size of an input, in bytes. Superlinear cost is visible at much smaller sizes."""

NUMBERS = (
    b"0", b"-0", b"-1", b"1e400", b"-1e400", b"1e-400", b"1.5", b"00", b"0x10", b"NaN", b"Infinity", b"9" * 20,
    b"9" * 400, b"9" * 5000, b"1" + b"0" * 400, str(2**31).encode(), str(2**53 + 1).encode(), str(2**63).encode(),
    str(2**64).encode(), str(-(2**63) - 1).encode(), "٣".encode(), b"1_000", b"1" * 400 + b"." + b"1" * 400,
)  # fmt: skip
PATHS = (
    "$", "$.", "$.a", "$.a[100000000]", "$.a[999999999]", "$.a[0]" + "[1000]" * 63, "$.a" + "[0]" * 1000, "$['a']",
    "$['" + "\\'" * 500 + "']", "$[" + "'x'" * 500, "$.a[-1]", "$..a", "a", "$" + ".a" * 70, "$.a[1].b[2].c[3]",
)  # fmt: skip
SPACES = (b" ", b"\t", b"\r\n ", b"\n", b"\r", b"\xc2\xa0", b"\x0b")
VALUES: tuple[object, ...] = (
    None, True, False, 0, -1, 2**64, 1e308, "", "x" * 5000, [], {}, [[]], [None], {"": None}, "\ud800", "\udc00\ud800",
    "1s", "9" * 400 + "s", "try again in " + "9" * 400, "<title>" * 400, "\x00", "null", "{",
    '{"error": {"error": {}}}',
)  # fmt: skip
DEEP = (b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 2000, b'{"a":' * 1100)

_LINE_END = re.compile(rb"\n")
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
_TOKEN_END = re.compile(rb"[:,;{}\[\]\r\n ]")


def _place(data: bytes, pattern: re.Pattern[bytes], chance: random.Random) -> tuple[int, int]:
    found = [match.span() for match in pattern.finditer(data)]
    if found:
        return chance.choice(found)
    place = chance.randint(0, len(data))
    return place, place


def _object(data: bytes, chance: random.Random) -> tuple[int, int]:
    """Return the span of the outermost JSON object of one line."""
    starts = [
        place for place in (0, *(match.end() for match in _LINE_END.finditer(data))) if b"{" in data[place : place + 99]
    ]
    start = data.find(b"{", chance.choice(starts or [0]))
    line_end = data.find(b"\n", start)
    return max(0, start), data.rfind(b"}", 0, line_end if line_end >= 0 else len(data)) + 1


def number(data: bytes, chance: random.Random) -> bytes:
    """Replace a number by another one."""
    start, end = _place(data, _NUMBER, chance)
    return data[:start] + chance.choice(NUMBERS) + data[end:]


def spaces(data: bytes, chance: random.Random) -> bytes:
    """Insert white space after a token."""
    _, end = _place(data, _TOKEN_END, chance)
    return data[:end] + chance.choice(SPACES) * chance.choice((1, 65, 1000, 20_000)) + data[end:]


def repeat(data: bytes, chance: random.Random) -> bytes:
    """Repeat a part of the input many times: a line, an event, or any span."""
    ends = [match.end() for match in _TOKEN_END.finditer(data)] or [0, len(data)]
    start, end = sorted((chance.choice(ends), chance.choice(ends)))
    piece = data[start:end] or data[:1]
    return data[:start] + piece * min(chance.choice((2, 100, 5000)), LARGEST // max(1, len(piece))) + data[end:]


def deep(data: bytes, chance: random.Random) -> bytes:
    """Replace a value by deeply nested containers."""
    start, end = _place(data, _NUMBER, chance)
    return data[:start] + chance.choice(DEEP) + data[end:]


def echo(data: bytes, chance: random.Random) -> bytes:
    """Insert a key anywhere, in one of its spellings."""
    place = chance.randint(0, len(data))
    return data[:place] + chance.choice(list(SPELLINGS.values())).encode() + data[place:]


def cut(data: bytes, chance: random.Random) -> bytes:
    """Truncate the input."""
    return data[: chance.randint(0, len(data))]


def node(data: bytes, chance: random.Random) -> bytes:
    """Change one JSON object: give a member another type, repeat one, or insert a path."""
    start, end = _object(data, chance)
    try:
        value = json.loads(data[start:end])
    except (ValueError, RecursionError):
        return data
    places = list(_containers(value))
    if places:
        container = chance.choice(places)
        key = chance.choice(list(container) if isinstance(container, dict) else range(len(container)))
        container[key] = _other(container[key], chance)
    text = json.dumps(value, ensure_ascii=chance.random() < 0.7).encode("utf-8", "surrogatepass")
    return data[:start] + text + data[end:]


def _containers(value: Any) -> list[Any]:
    found, waiting = [], [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict | list) and each:
            found.append(each)
            waiting += each.values() if isinstance(each, dict) else each
    return found


def _other(value: Any, chance: random.Random) -> Any:
    kind = chance.randrange(5)
    if kind == 0 and isinstance(value, list):
        return value * chance.choice((2, 50, 2000))
    if kind == 1:
        return [value] * chance.choice((1, 50, 2000))
    if kind == 2:
        return {"functionCall": {"name": "f", "partialArgs": _pieces(chance)}} if isinstance(value, dict) else value
    if kind == 3:
        return chance.choice(PATHS)
    return chance.choice(VALUES)


def _pieces(chance: random.Random) -> list[object]:
    kinds = ("stringValue", "numberValue", "boolValue", "nullValue")
    many = chance.choice((1, 5, 200))
    return [{"jsonPath": chance.choice(PATHS), chance.choice(kinds): chance.choice(VALUES[:10])} for _ in range(many)]


CHANGES: tuple[Change, ...] = (number, spaces, repeat, deep, echo, cut, node, node, node)


def shaped(seeds: list[bytes], chance: random.Random, *, largest: int = LARGEST) -> bytes:
    """Return a valid input with some hostile changes, after a first byte that determines the cuts."""
    data = chance.choice(seeds)
    for _ in range(chance.randint(1, 3)):
        data = chance.choice(CHANGES)(data, chance)[:largest]
    return bytes([chance.randrange(256)]) + data
