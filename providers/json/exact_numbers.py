"""Numbers in JSON text that a parser would change: how to find them, and how to write them as they were sent.

orjson reads a whole number beyond 64 bits as a float, and refuses numbers that are infinite as a float. Python reads a
whole number exactly, up to 4,300 digits (its limit for converting text), and reads `1e400` as infinity. An
`UnrepresentableNumber` stands for a number that Python cannot represent, and keeps its text. Other numbers with a
fraction or an exponent are the same float from both parsers, however many digits they have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

LOOKED_AT = 64 * 1024
"""Bytes that are searched at once. Each search makes a copy."""

DEEPEST = 254
"""The most levels of objects and arrays that are written: as many as orjson writes."""

_SHAPES = bytes.maketrans(b"123456789[: \t\n\r", b"000000000,,,,,,")
"""Digits become 0, and all that may stand before a number becomes a comma. A fraction's digits follow its point."""

_LONG_NUMBER = b"," + b"0" * 20
_LONG_NEGATIVE = b"-" + b"0" * 19
"""The beginnings of whole numbers with so many digits that they may not fit into 64 bits."""

_LONGEST = len(_LONG_NUMBER) - 1


class UnrepresentableNumber(float):
    """A number that Python cannot represent (infinite as a float), or `NaN` or `Infinity`, which JSON does not have.

    text: the number as sent.
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> UnrepresentableNumber:
        """Return the number with this text."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    @property
    def is_json(self) -> bool:
        """Whether the text is a number of JSON, as `NaN` and `Infinity` are not."""
        return self.text[-1:].isdigit()

    def __repr__(self) -> str:
        return f"UnrepresentableNumber({shortened(self.text)})"


class UnwritableError(TypeError):
    """A value that cannot be written as JSON text. The message says why."""


class UnwritableNumberError(UnwritableError):
    """A value contains a number that cannot be written.

    path: the number's place in the value, such as `.a[0]`.
    number: the number as text, shortened.
    """

    def __init__(self, path: str, number: str) -> None:
        super().__init__(f"{path.removeprefix('.') or 'the value'} is {number}, which JSON or Python cannot hold")
        self.path: str = path
        self.number: str = number


def has_plain_numbers(text: bytes | str) -> bool:
    """Return False if JSON text that orjson accepts may contain a whole number beyond 64 bits, which it changes.

    Text inside strings counts as well.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    before = b","  # the text may itself be a number
    for place in range(0, len(data), LOOKED_AT):
        # `find` and not `in`: in CPython 3.11, `in` first raises and catches a `TypeError`, as the part is no number.
        find = (before + data[place : place + LOOKED_AT + _LONGEST]).translate(_SHAPES).find
        if find(_LONG_NUMBER) >= 0 or find(_LONG_NEGATIVE) >= 0:
            return False
        before = b""
    return True


def whole_number(text: str) -> int | UnrepresentableNumber:
    """Convert a whole number of JSON text exactly."""
    try:
        return int(text)
    except ValueError:  # more digits than Python converts (`sys.set_int_max_str_digits`)
        return UnrepresentableNumber(text)


def decimal_number(text: str) -> float:
    """Convert a number of JSON text with a fraction or an exponent."""
    number = float(text)
    return UnrepresentableNumber(text) if math.isinf(number) else number


def find_unrepresentable(value: Plain) -> tuple[str, UnrepresentableNumber] | None:
    """Return the first number in a value that Python cannot represent, with its path, or None."""
    open_values: list[tuple[str, Plain]] = [("", value)]
    while open_values:
        path, value = open_values.pop()
        if isinstance(value, UnrepresentableNumber):
            return path, value
        if type(value) is dict:
            open_values += reversed([(f"{path}.{name}", member) for name, member in value.items()])
        elif type(value) is list:
            open_values += reversed([(f"{path}[{place}]", member) for place, member in enumerate(value)])
    return None


class NumberWriter:
    """Writes JSON text with every number exact, for values that orjson refuses.

    leaf: writes a value that is no object, array or number.
    spaced: write a space after `,` and `:`.
    keep_unrepresentable: write a number that Python cannot represent as it was sent, instead of raising.
    """

    def __init__(
        self, leaf: Callable[[object], str], *, spaced: bool = False, keep_unrepresentable: bool = False
    ) -> None:
        self._leaf = leaf
        self._comma, self._colon = (", ", ": ") if spaced else (",", ":")
        self._keep_unrepresentable = keep_unrepresentable

    def text(self, value: object, path: str = "", depth: int = 0) -> str:
        """Return the value as JSON text. Raises `UnwritableNumberError`, and `TypeError` for a type that JSON does not
        have, or too many levels.
        """
        if depth > DEEPEST:
            raise UnwritableError("it is nested too deeply")
        if isinstance(value, dict):
            return self._object(cast("dict[object, object]", value), path, depth)
        if isinstance(value, list | tuple):
            items = cast("Sequence[object]", value)
            members = (self.text(member, f"{path}[{place}]", depth + 1) for place, member in enumerate(items))
            return f"[{self._comma.join(members)}]"
        if type(value) is int:
            try:
                return str(value)
            except ValueError:
                raise UnwritableNumberError(path, "a whole number of too many digits") from None
        if isinstance(value, float) and not math.isfinite(value):
            if not self._keep_unrepresentable:
                number = value.text if isinstance(value, UnrepresentableNumber) else repr(value)
                raise UnwritableNumberError(path, shortened(number))
            return value.text if isinstance(value, UnrepresentableNumber) else json.dumps(value)
        return self._leaf(value)

    def _object(self, value: dict[object, object], path: str, depth: int) -> str:
        members: list[str] = []
        for name, member in value.items():
            if not isinstance(name, str):
                raise TypeError("the name of a member must be a string")
            text = self.text(member, f"{path}.{name}", depth + 1)
            members.append(f"{self._leaf(name)}{self._colon}{text}")
        return f"{{{self._comma.join(members)}}}"


def shortened(number: str) -> str:
    """Return a number's text, at most 40 characters of it in full, for a message."""
    return number if len(number) <= 40 else f"{number[:20]}… ({len(number)} characters)"
