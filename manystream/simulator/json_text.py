"""JSON for the simulator: parse, serialise, and read members without trusting their shape.

It stands apart from the library's own JSON code on purpose: the simulator is a witness, and shares nothing with
what it bears witness on.
"""

from __future__ import annotations

from typing import TypeAlias

import orjson

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
JSONObject: TypeAlias = "dict[str, JSON]"


EncodeError = orjson.JSONEncodeError
"""What cannot be serialised: of values that were parsed, those that are nested too deeply."""


def raw_json(data: bytes) -> object:
    """A value for `dumps` whose serialised form is at hand; it must be valid."""
    return orjson.Fragment(data)


def dumps(value: object) -> bytes:
    """Compact UTF-8. Non-ASCII text stays as it is, U+2028 and its like included."""
    return orjson.dumps(value)


def dumps_sorted(value: object) -> bytes:
    """Compact UTF-8 with members in order of their names: the same for values that are equal."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def dumps_text(value: object) -> str:
    """Compact text."""
    return orjson.dumps(value).decode()


def loads(data: bytes | str) -> JSON:
    """Parse. Raises `ValueError`."""
    value: JSON = orjson.loads(data)
    return value


def is_json(data: bytes) -> bool:
    """Whether this is JSON text."""
    try:
        loads(data)
    except ValueError:
        return False
    return True


def loads_object(data: bytes | str) -> JSONObject | None:
    """The object that the text holds; None where it holds anything else or is no JSON."""
    try:
        value = loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def string(value: JSON, key: str) -> str:
    """A member that is text, else the empty string."""
    member = value.get(key) if isinstance(value, dict) else None
    return member if isinstance(member, str) else ""


def integer(value: JSON, key: str) -> int | None:
    """A member that is a whole number, else None."""
    member = value.get(key) if isinstance(value, dict) else None
    return member if isinstance(member, int) and not isinstance(member, bool) else None


def mapping(value: JSON, key: str) -> JSONObject:
    """A member that is an object, else an empty one."""
    member = value.get(key) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}


def objects(value: JSON, key: str) -> list[JSONObject]:
    """The objects of a member that is an array, else none."""
    member = value.get(key) if isinstance(value, dict) else None
    return [item for item in member if isinstance(item, dict)] if isinstance(member, list) else []


def text_length(value: JSON) -> int:
    """Characters in all text below a value: the simulator's measure of a prompt."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(text_length(item) for item in value)
    if isinstance(value, dict):
        return sum(text_length(item) for item in value.values())
    return 0
