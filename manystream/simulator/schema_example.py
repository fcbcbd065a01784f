"""A value that fits a JSON Schema: for arguments of tool calls and for structured answers.

It follows the keywords that tools' schemas use (types, enum, const, required and optional properties, items, bounds,
anyOf, allOf, local references, nullable, Gemini's upper-case types) and ignores all others (pattern, if/then, …). The
same schema and the same `Values` give the same value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .example_values import Values
from .json_text import JSON, JSONObject, integer, mapping, objects, string

DEPTH_LIMIT = 12
"""A schema may refer to itself: values nested more deeply than this are left out."""

LENGTH_LIMIT = 20
TEXT_LIMIT = 10_000
"""No array and no text is made longer than this, whatever its schema requires."""

FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T12:30:00Z",
    "time": "12:30:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/",
    "uuid": "0b6f0a52-6c1e-4c5e-9d57-5a0b1c2d3e4f",
    "ipv4": "192.0.2.1",
}


def example(schema: JSON, values: Values) -> JSON:
    """A value that fits the schema. `values` supplies its texts, numbers and choices."""
    root = schema if isinstance(schema, dict) else {}
    return _value(root, root, values, _At("", 0))


@dataclass(slots=True, frozen=True)
class _At:
    """A place in the value.

    name: the property that holds it. Items of an array have the array's name; the whole value has none.
    depth: how many objects and arrays it is nested in.
    """

    name: str
    depth: int

    def inside(self, name: str) -> _At:
        return _At(name, self.depth + 1)


def _value(schema: JSONObject, root: JSONObject, values: Values, at: _At) -> JSON:
    schema = _resolved(schema, root, at.depth)
    if "const" in schema:
        return schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return values.choice(choices)
    for keyword in ("anyOf", "oneOf"):
        options = [option for option in objects(schema, keyword) if option.get("type") not in ("null", "NULL")]
        if options:
            return _value(options[0], root, values, at.inside(at.name)) if at.depth < DEPTH_LIMIT else None
    return TYPES.get(_type(schema), _text)(schema, root, values, at)


def _resolved(schema: JSONObject, root: JSONObject, depth: int) -> JSONObject:
    for _ in range(DEPTH_LIMIT):
        reference = string(schema, "$ref")
        where, *steps = reference.split("/")
        if where != "#":
            break
        target = root
        for step in steps:
            target = mapping(target, step.replace("~1", "/").replace("~0", "~"))
        schema = target
    merged = dict(schema)
    for part in objects(schema, "allOf") if depth < DEPTH_LIMIT else ():
        part = _resolved(part, root, depth + 1)
        properties: JSONObject = {**mapping(merged, "properties"), **mapping(part, "properties")}
        merged = {**part, **merged}
        if properties:
            merged["properties"] = properties
    return merged


def _type(schema: JSONObject) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "null")
    if isinstance(kind, str):
        return kind.lower()
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _object(schema: JSONObject, root: JSONObject, values: Values, at: _At) -> JSON:
    required = schema.get("required")
    wanted = required if isinstance(required, list) else []
    return {
        name: _value(member if isinstance(member, dict) else {}, root, values, at.inside(name))
        for name, member in mapping(schema, "properties").items()
        if at.depth < DEPTH_LIMIT and (at.depth < 3 or name in wanted)
    }


def _array(schema: JSONObject, root: JSONObject, values: Values, at: _At) -> JSON:
    if at.depth >= DEPTH_LIMIT:
        return []
    length = min(max(1, integer(schema, "minItems") or 0), LENGTH_LIMIT if at.depth < 3 else 1)
    limit = integer(schema, "maxItems")
    if limit is not None:
        length = min(length, limit)
    return [_value(mapping(schema, "items"), root, values, at.inside(at.name)) for _ in range(length)]


def _text(schema: JSONObject, root: JSONObject, values: Values, at: _At) -> JSON:
    text = FORMATS.get(string(schema, "format")) or values.text(at.name)
    least = min(integer(schema, "minLength") or 0, TEXT_LIMIT)
    while len(text) < least:
        text += " " + values.text(at.name)
    limit = integer(schema, "maxLength")
    return text if limit is None else text[: max(limit, least)]


def _integer(schema: JSONObject, root: JSONObject, values: Values, at: _At) -> JSON:
    value = int(values.number(at.name))
    low, high = integer(schema, "minimum"), integer(schema, "maximum")
    above, below = integer(schema, "exclusiveMinimum"), integer(schema, "exclusiveMaximum")
    if above is not None:
        low = above + 1
    if below is not None:
        high = below - 1
    if high is not None:
        value = min(value, high)
    return max(value, low) if low is not None else value


def _number(schema: JSONObject, root: JSONObject, values: Values, at: _At) -> JSON:
    low, high = schema.get("minimum"), schema.get("maximum")
    value = values.number(at.name)
    if isinstance(high, int | float):
        value = min(value, high)
    return max(value, low) if isinstance(low, int | float) else value


TYPES: dict[str, Callable[[JSONObject, JSONObject, Values, _At], JSON]] = {
    "object": _object,
    "array": _array,
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": lambda schema, root, values, at: values.flag(),
    "null": lambda schema, root, values, at: None,
}
