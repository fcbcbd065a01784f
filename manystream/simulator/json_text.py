"""JSON for the simulator: parse, serialise, and read members of unknown shape.

The simulator is used to test the library's JSON code, so it does not import that code.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import orjson

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
JSONObject: TypeAlias = "dict[str, JSON]"


EncodeError = orjson.JSONEncodeError
"""Raised by `dumps` for values that are nested too deeply."""


def raw_json(data: bytes) -> JSON:
    """A value for `dumps`, and for nothing else, that is already serialised. `data` must be valid JSON."""
    return cast(JSON, orjson.Fragment(data))


def dumps(value: object) -> bytes:
    """Serialise to compact UTF-8. Non-ASCII text, U+2028 included, is not escaped."""
    return orjson.dumps(value)


def dumps_sorted(value: object) -> bytes:
    """Serialise to compact UTF-8 with sorted names: equal values give equal bytes."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def dumps_text(value: object) -> str:
    return orjson.dumps(value).decode()


def loads(data: bytes | str) -> JSON:
    """Parse JSON. Raises `ValueError`."""
    value: JSON = orjson.loads(data)
    return value


def is_json(data: bytes) -> bool:
    """Whether the bytes are valid JSON."""
    try:
        loads(data)
    except ValueError:
        return False
    return True


def loads_object(data: bytes | str) -> JSONObject | None:
    """The object that the text holds; None if it holds another value or is not JSON."""
    try:
        value = loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def string(value: JSON, key: str) -> str:
    """The member `key` if it is text, else the empty string."""
    member = value.get(key) if isinstance(value, dict) else None
    return member if isinstance(member, str) else ""


def integer(value: JSON, key: str) -> int | None:
    """The member `key` if it is a whole number, else None."""
    member = value.get(key) if isinstance(value, dict) else None
    return member if isinstance(member, int) and not isinstance(member, bool) else None


def mapping(value: JSON, key: str) -> JSONObject:
    """The member `key` if it is an object, else an empty object."""
    member = value.get(key) if isinstance(value, dict) else None
    return member if isinstance(member, dict) else {}


def objects(value: JSON, key: str) -> list[JSONObject]:
    """The objects in the member `key` if it is an array, else none."""
    member = value.get(key) if isinstance(value, dict) else None
    return [item for item in member if isinstance(item, dict)] if isinstance(member, list) else []


def text_length(value: JSON) -> int:
    """The number of characters in all text below a value. Token counts are estimated from it."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, list):
        return sum(text_length(item) for item in value)
    if isinstance(value, dict):
        return sum(text_length(item) for item in value.values())
    return 0
