"""Converts the types that google-genai takes as `response_schema` beside classes with a JSON Schema of their own."""

from __future__ import annotations

from enum import Enum
from typing import get_args, get_origin

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject
from ..model.structured import makes_schema, schema_of

PLAIN_TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
"""Python type → the type in a JSON Schema."""


def is_type_form(value: object) -> bool:
    """Return True if `schema_members` converts this value."""
    if get_origin(value) is list:
        return True
    return isinstance(value, type) and (value in PLAIN_TYPES or issubclass(value, Enum))


def schema_members(value: object, where: str) -> dict[str, object]:
    """Return the member of `config` for a type, by name. Raises `InvalidRequestError` for a type without a schema.

    An enum alone becomes a `responseSchema`, because the media type `text/x.enum` needs that one.
    """
    schema = _schema(value, where)
    if isinstance(value, type) and issubclass(value, Enum):
        return {"responseSchema": {**schema, "type": "STRING"}}
    return {"responseJsonSchema": schema}


def _schema(value: object, where: str) -> JSONObject:
    if get_origin(value) is list:
        items = dict(_schema(get_args(value)[0], f"{where}[…]"))
        array: JSONObject = {"type": "array", "items": items}
        if "$defs" in items:
            array["$defs"] = items.pop("$defs")  # references begin at the root
        return array
    if not isinstance(value, type):
        raise InvalidRequestError(where, f"has no JSON Schema: {value!r}")
    return _schema_of_class(value, where)


def _schema_of_class(kind: type, where: str) -> JSONObject:
    if kind in PLAIN_TYPES:
        return {"type": PLAIN_TYPES[kind]}
    if makes_schema(kind):
        return schema_of(kind)
    if issubclass(kind, Enum):
        return {"type": "string", "enum": [_word(member, where) for member in kind]}
    raise InvalidRequestError(where, f"must be a class with model_json_schema(), not the class {kind.__name__}")


def _word(member: Enum, where: str) -> JSON:
    word: object = member.value
    if not isinstance(word, str):
        raise InvalidRequestError(where, f"must have texts as values: {type(member).__name__}.{member.name} has none")
    return str(word)
