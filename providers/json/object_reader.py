"""A strict reader of a JSON object that a person wrote. Each of its errors names the member."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence

from ..errors import InvalidRequestError
from .json_values import JSON, JSONObject


class Members:
    """The members of an object. Each method takes one member; `end` refuses members that were not taken.

    value: the object.
    where: the object's path, for messages; empty for the outermost object.
    """

    def __init__(self, value: JSONObject, where: str = "") -> None:
        self._left = dict(value)
        self._where = where

    def field(self, name: str) -> str:
        """Return the member's full path."""
        return f"{self._where}.{name}" if self._where else name

    def take(self, name: str) -> JSON:
        """Take a member of any type, or return None if it is missing."""
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        """Take a string, or return None if it is missing. Raises `InvalidRequestError`."""
        value = self.take(name)
        if value is None or type(value) is str:
            return value
        raise self._wrong(name, "text", value)

    def flag(self, name: str) -> bool | None:
        """Take a boolean, or return None if it is missing. Raises `InvalidRequestError`."""
        value = self.take(name)
        if value is None or type(value) is bool:
            return value
        raise self._wrong(name, "true or false", value)

    def whole(self, name: str) -> int | None:
        """Take a whole number, or return None if it is missing. Raises `InvalidRequestError`."""
        value = self.take(name)
        if value is None or type(value) is int:
            return value
        raise self._wrong(name, "a whole number", value)

    def number(self, name: str) -> float | None:
        """Take a finite number, or return None if it is missing. Raises `InvalidRequestError`."""
        value = self.take(name)
        if value is None or type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
        raise self._wrong(name, "a number", value)

    def object(self, name: str) -> JSONObject | None:
        """Take an object, or return None if it is missing. Raises `InvalidRequestError`."""
        value = self.take(name)
        if value is None or type(value) is dict:
            return value
        raise self._wrong(name, "an object", value)

    def array(self, name: str) -> list[JSON] | None:
        """Take an array, or return None if it is missing. Raises `InvalidRequestError`."""
        value = self.take(name)
        if value is None or type(value) is list:
            return value
        raise self._wrong(name, "an array", value)

    def objects(self, name: str) -> list[JSONObject]:
        """Take an array of objects, or an empty list if it is missing. Raises `InvalidRequestError`."""
        found: list[JSONObject] = []
        for position, value in enumerate(self.array(name) or []):
            if type(value) is not dict:
                raise self._wrong(f"{name}[{position}]", "an object", value)
            found.append(value)
        return found

    def some_objects(self, name: str) -> list[JSONObject]:
        """Take an array of objects. Raises `InvalidRequestError` if it is missing or empty."""
        found = self.objects(name)
        if not found:
            raise InvalidRequestError(self.field(name), "must hold at least one message")
        return found

    def needed_text(self, name: str) -> str:
        """Take a string. Raises `InvalidRequestError` if it is missing."""
        text = self.text(name)
        if text is None:
            raise InvalidRequestError(self.field(name), "is missing")
        return text

    def texts(self, name: str) -> list[str]:
        """Take a string or an array of strings, or an empty list if it is missing. Raises `InvalidRequestError`."""
        value = self.take(name)
        values = [value] if type(value) is str else value
        if values is None:
            return []
        if type(values) is not list:
            raise self._wrong(name, "text or an array of texts", value)
        found: list[str] = []
        for position, item in enumerate(values):
            if type(item) is not str:
                raise self._wrong(f"{name}[{position}]", "text", item)
            found.append(item)
        return found

    def strings(self, name: str) -> dict[str, str] | None:
        """Take an object whose values are strings, or return None if it is missing. Raises `InvalidRequestError`."""
        value = self.object(name)
        if value is None:
            return None
        found: dict[str, str] = {}
        for key, item in value.items():
            if type(item) is not str:
                raise self._wrong(f"{name}.{key}", "text", item)
            found[key] = item
        return found

    def rest(self) -> JSONObject:
        """Return the members that were not taken."""
        return self._left

    def end(self, known: Sequence[str]) -> None:
        """Raise `InvalidRequestError` if a member was not taken, so that a misspelt option is not ignored.

        known: the names of the form's members, for the message.
        """
        for name in self._left:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"its members are {', '.join(known)}"
            raise InvalidRequestError(self.field(name), f"is not a member of this form; {hint}")

    def _wrong(self, name: str, expected: str, value: JSON) -> InvalidRequestError:
        return InvalidRequestError(self.field(name), f"must be {expected}, not {_kind(value)}")


KINDS: dict[type, str] = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "an array"}


def _kind(value: JSON) -> str:
    return "null" if value is None else KINDS.get(type(value), "an object")
