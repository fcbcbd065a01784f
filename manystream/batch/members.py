"""Members of a JSON object that a person wrote: read strictly, every complaint naming the member.

Knows JSON. Must not know what the members mean.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence

from ..providers.json_values import JSON, JSONObject


class MemberError(ValueError):
    """A member that is missing or wrong. `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class Members:
    """An object's members, each taken once: what is left at the end nobody knows.

    where: the path to the object, for messages; empty for the line itself.
    """

    __slots__ = ("_left", "_where")

    def __init__(self, value: JSONObject, where: str = "") -> None:
        self._left = dict(value)
        self._where = where

    def field(self, name: str) -> str:
        """The member's full path."""
        return f"{self._where}.{name}" if self._where else name

    def take(self, name: str) -> JSON:
        """The member as it is; None where it is absent."""
        return self._left.pop(name, None)

    def text(self, name: str) -> str | None:
        """A string, or None where it is absent."""
        value = self.take(name)
        if value is None or type(value) is str:
            return value
        raise self._wrong(name, "text", value)

    def flag(self, name: str) -> bool | None:
        """True, false, or None where it is absent."""
        value = self.take(name)
        if value is None or type(value) is bool:
            return value
        raise self._wrong(name, "true or false", value)

    def whole(self, name: str) -> int | None:
        """A whole number, or None where it is absent."""
        value = self.take(name)
        if value is None or type(value) is int:
            return value
        raise self._wrong(name, "a whole number", value)

    def number(self, name: str) -> float | None:
        """A number, or None where it is absent."""
        value = self.take(name)
        if value is None or type(value) is int or (type(value) is float and math.isfinite(value)):
            return value
        raise self._wrong(name, "a number", value)

    def object(self, name: str) -> JSONObject | None:
        """An object, or None where it is absent."""
        value = self.take(name)
        if value is None or type(value) is dict:
            return value
        raise self._wrong(name, "an object", value)

    def array(self, name: str) -> list[JSON] | None:
        """An array, or None where it is absent."""
        value = self.take(name)
        if value is None or type(value) is list:
            return value
        raise self._wrong(name, "an array", value)

    def objects(self, name: str) -> list[JSONObject]:
        """An array of objects; none where it is absent."""
        found: list[JSONObject] = []
        for position, value in enumerate(self.array(name) or []):
            if type(value) is not dict:
                raise self._wrong(f"{name}[{position}]", "an object", value)
            found.append(value)
        return found

    def texts(self, name: str) -> list[str]:
        """A string, or an array of strings; none where it is absent."""
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
        """An object of strings, or None where it is absent."""
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
        """What was not taken."""
        return self._left

    def end(self, known: Sequence[str]) -> None:
        """Raises `MemberError` for a member that is left: a misspelt option must not be passed over."""
        for name in self._left:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise MemberError(self.field(name), f"is no member of this form; {hint}")

    def _wrong(self, name: str, expected: str, value: JSON) -> MemberError:
        return MemberError(self.field(name), f"must be {expected}, not {_kind(value)}")


KINDS: dict[type, str] = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "an array"}


def _kind(value: JSON) -> str:
    return "null" if value is None else KINDS.get(type(value), "an object")
