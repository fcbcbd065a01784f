"""A value that fits a JSON Schema: for arguments of tool calls and for structured answers.

Knows the keywords that tools' schemas use (types, enum, const, required and optional properties, items, bounds,
anyOf, allOf, local references, nullable, Gemini's upper-case types). Deterministic: the choice is `words`' alone.
A keyword it does not know (pattern, if/then, …) is not heeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .json_text import JSON, JSONObject, integer, mapping, objects, string

DEPTH_LIMIT = 12
"""Schemas may refer to themselves; below this depth only what is required is made, and then nothing."""

LENGTH_LIMIT = 20
TEXT_LIMIT = 10_000
"""No array and no text gets longer for its schema's sake."""

FORMATS = {
    "date": "2024-05-17",
    "date-time": "2024-05-17T12:30:00Z",
    "time": "12:30:00Z",
    "email": "ada@example.org",
    "uri": "https://example.org/",
    "uuid": "0b6f0a52-6c1e-4c5e-9d57-5a0b1c2d3e4f",
    "ipv4": "192.0.2.1",
}


def example(schema: JSON, words: Iterator[str]) -> JSON:
    """A value that fits the schema. `words` gives its texts, without end."""
    root = schema if isinstance(schema, dict) else {}
    return _value(root, root, words, 0)


def _value(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    schema = _resolved(schema, root, depth)
    if "const" in schema:
        return schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    for keyword in ("anyOf", "oneOf"):
        options = [option for option in objects(schema, keyword) if option.get("type") not in ("null", "NULL")]
        if options:
            return _value(options[0], root, words, depth + 1) if depth < DEPTH_LIMIT else None
    return TYPES.get(_type(schema), _text)(schema, root, words, depth)


def _resolved(schema: JSONObject, root: JSONObject, depth: int) -> JSONObject:
    for _ in range(DEPTH_LIMIT):
        reference = string(schema, "$ref")
        if not reference.startswith("#/"):
            break
        target = root
        for step in reference[2:].split("/"):
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


def _object(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    required = schema.get("required")
    wanted = required if isinstance(required, list) else []
    return {
        name: _value(member if isinstance(member, dict) else {}, root, words, depth + 1)
        for name, member in mapping(schema, "properties").items()
        if depth < DEPTH_LIMIT and (depth < 3 or name in wanted)
    }


def _array(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    if depth >= DEPTH_LIMIT:
        return []
    length = min(max(1, integer(schema, "minItems") or 0), LENGTH_LIMIT if depth < 3 else 1)
    limit = integer(schema, "maxItems")
    if limit is not None:
        length = min(length, limit)
    return [_value(mapping(schema, "items"), root, words, depth + 1) for _ in range(length)]


def _text(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    text = FORMATS.get(string(schema, "format")) or next(words)
    least = min(integer(schema, "minLength") or 0, TEXT_LIMIT)
    while len(text) < least:
        text += " " + next(words)
    limit = integer(schema, "maxLength")
    return text if limit is None else text[: max(limit, least)]


def _integer(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    value = len(next(words))
    low, high = integer(schema, "minimum"), integer(schema, "maximum")
    above, below = integer(schema, "exclusiveMinimum"), integer(schema, "exclusiveMaximum")
    if above is not None:
        low = above + 1
    if below is not None:
        high = below - 1
    if high is not None:
        value = min(value, high)
    return max(value, low) if low is not None else value


def _number(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    low, high = schema.get("minimum"), schema.get("maximum")
    value = len(next(words)) + 0.5
    if isinstance(high, int | float):
        value = min(value, high)
    return max(value, low) if isinstance(low, int | float) else value


def _boolean(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    return len(next(words)) % 2 == 0


def _null(schema: JSONObject, root: JSONObject, words: Iterator[str], depth: int) -> JSON:
    return None


TYPES: dict[str, Callable[[JSONObject, JSONObject, Iterator[str], int], JSON]] = {
    "object": _object,
    "array": _array,
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "null": _null,
}
