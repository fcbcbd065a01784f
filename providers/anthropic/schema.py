"""Adapts a JSON Schema to the subset that Anthropic's structured outputs accept.

In this subset objects are closed, most constraints on values are unknown, and `oneOf` is `anyOf`. What is left out is
put into the description, so that the model may still follow it, and is reported to the caller in a warning.
Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs (JSON Schema limitations).

Used for `response_schema` and for strict tools.
"""

from __future__ import annotations

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject, dumps_text, string

STRING_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}
)
DEFINITIONS = ("$defs", "definitions")
SILENT = frozenset({"$schema", "$id", "$comment"})
"""Keywords that do not describe the value."""

ANNOTATIONS = frozenset({"default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords that do not constrain the value: they are put into the description without a warning."""


def adapt_schema(schema: JSONObject, field: str, warnings: list[str]) -> JSONObject:
    """Return the schema in the accepted subset. The argument is not changed.

    field: the name of the schema in warnings and errors.
    warnings: gets a warning for each constraint that is not enforced.

    Raises `InvalidRequestError` for a part without any type.
    """
    rest = {key: value for key, value in schema.items() if key not in SILENT}
    result: dict[str, JSON] = {}
    for key in DEFINITIONS:
        definitions = rest.pop(key, None)
        if type(definitions) is dict:
            result[key] = _adapt_members(definitions, f"{field}.{key}", warnings)
    if "$ref" in rest:
        # Other members beside a `$ref` are refused. A description is the only common one, and constrains nothing.
        result["$ref"] = rest["$ref"]
        return result
    for key in ("description", "title"):
        if key in rest:
            result[key] = rest.pop(key)
    _adapt_kind(rest, result, field, warnings)
    _describe_rest(rest, result, field, warnings)
    return result


def _adapt_kind(rest: JSONObject, result: JSONObject, field: str, warnings: list[str]) -> None:
    """Move the keywords that select values: literals, alternatives, or a type with its members."""
    literal = False
    for key in ("enum", "const"):
        if key in rest:
            result[key] = rest.pop(key)
            literal = True
    alternatives = False
    for key, wire_key in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        options = rest.get(key)
        if type(options) is list and wire_key not in result:
            del rest[key]
            result[wire_key] = [_adapt_any(option, f"{field}.{key}", warnings) for option in options]
            alternatives = True
    kind = rest.pop("type", None)
    if literal:
        return
    if type(kind) is list:
        _adapt_type_list(kind, rest, result, field, warnings)
        return
    if kind is None:
        kind = "object" if "properties" in rest else "array" if "items" in rest else None
    if type(kind) is str:
        if not alternatives:
            result["type"] = kind
        _adapt_typed(kind, rest, result, field, warnings)
    elif not alternatives:
        raise InvalidRequestError(field, "needs a type, an enum, a const, an anyOf or a $ref to be sent to Anthropic")


def _adapt_type_list(kinds: list[JSON], rest: JSONObject, result: JSONObject, field: str, warnings: list[str]) -> None:
    members = dict(rest)
    rest.clear()
    result["anyOf"] = [
        {"type": "null"} if kind == "null" else adapt_schema({**members, "type": kind}, field, warnings)
        for kind in kinds
    ]


def _adapt_typed(kind: str, rest: JSONObject, result: JSONObject, field: str, warnings: list[str]) -> None:
    if kind == "object":
        properties = rest.pop("properties", None)
        result["properties"] = _adapt_members(
            properties if type(properties) is dict else {}, f"{field}.properties", warnings
        )
        if rest.pop("additionalProperties", False) is not False:
            warnings.append(f"{field}.additionalProperties: sent as false, the only value that Anthropic takes")
        result["additionalProperties"] = False
        if "required" in rest:
            result["required"] = rest.pop("required")
    elif kind == "array":
        if "items" in rest:
            result["items"] = _adapt_any(rest.pop("items"), f"{field}.items", warnings)
        if rest.get("minItems") in (0, 1):
            result["minItems"] = rest.pop("minItems")
    elif kind == "string" and string(rest, "format") in STRING_FORMATS:
        result["format"] = rest.pop("format")


def _adapt_members(members: JSONObject, field: str, warnings: list[str]) -> JSONObject:
    return {name: _adapt_any(member, f"{field}.{name}", warnings) for name, member in members.items()}


def _adapt_any(schema: JSON, field: str, warnings: list[str]) -> JSON:
    return adapt_schema(schema, field, warnings) if type(schema) is dict else schema


def _describe_rest(rest: JSONObject, result: JSONObject, field: str, warnings: list[str]) -> None:
    """Put the remaining keywords into the description, with a warning for constraints."""
    if not rest:
        return
    description = result.get("description")
    text = dumps_text(rest)
    result["description"] = f"{description}\n\n{text}" if description else text
    binding = [key for key in rest if key not in ANNOTATIONS]
    if binding:
        warnings.append(
            f"{field}: {', '.join(binding)} not enforced by Anthropic; sent to the model in the description"
        )
