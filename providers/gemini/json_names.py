"""Names of members as google-genai's callers write them → as they are on the wire; OpenAPI's form of a schema → JSON
Schema; and the members of a part that are not content. They stay with the block, in its `state`.

Some gateways answer with these names as well.
"""

from __future__ import annotations

import re

from ..json.json_values import JSON, JSONObject, mapping, objects, string

TEXT_ANNOTATIONS = ("partMetadata", "speechMetadata")
"""Members beside a text that are sent with it: the caller's own, and who speaks it in which style."""

MEDIA_ANNOTATIONS = (
    "partMetadata", "videoMetadata", "mediaResolution", "mediaProcessing", "documentMetadata", "spreadsheetMetadata",
    "audioMetadata",
)  # fmt: skip
"""Members beside a file that are sent with it: the clip of a film, the pages of a document, the resolution."""

ANNOTATIONS = frozenset({"thought", "thoughtSignature", "audioTranscription", *TEXT_ANNOTATIONS, *MEDIA_ANNOTATIONS})
"""All of them. Any other member of a part is content."""


OWN_VALUES = frozenset({
    "args", "response", "labels", "parametersJsonSchema", "responseJsonSchema", "default", "example", "enum",
    "partMetadata",
})  # fmt: skip
"""Members whose values are the caller's own, names included."""

OWN_NAMES = frozenset({"properties", "defs", "$defs"})
"""Members whose names are the caller's own, and whose values are schemas."""

SNAKE_CASE = frozenset({
    "usage_metadata", "model_version", "response_id", "prompt_feedback", "finish_reason", "function_call",
    "thought_signature", "inline_data", "file_data", "executable_code", "code_execution_result",
})  # fmt: skip
"""Names of members of a chunk, a candidate or a part, as Python's serialisers of the protobuf write them."""

_WORD = re.compile(r"_([a-z0-9])")


def camel(name: str) -> str:
    """`max_output_tokens` → `maxOutputTokens`. A name without underscores stays as it is."""
    return _WORD.sub(lambda found: found[1].upper(), name)


def wire_names(value: JSON, member: str) -> JSON:
    """The value with its members' names as on the wire, without members that are null. member: what holds it."""
    if type(value) is list:
        return [wire_names(item, member) for item in value]
    if type(value) is not dict or member in OWN_VALUES:
        return value
    if member in OWN_NAMES:
        return {name: wire_names(schema, "") for name, schema in value.items()}
    names = {camel(name): each for name, each in value.items() if each is not None}
    return {name: wire_names(each, name) for name, each in names.items()}


def chunk_as_on_the_wire(chunk: JSONObject) -> JSONObject:
    """A chunk with names as on the wire; the chunk itself if it has them."""
    candidates = objects(chunk, "candidates")
    parts = [part for each in candidates for part in objects(mapping(each, "content"), "parts")]
    if all(SNAKE_CASE.isdisjoint(each) for each in (chunk, *candidates, *parts)):
        return chunk
    try:
        written = wire_names(chunk, "")
    except RecursionError:
        return chunk
    return written if type(written) is dict else chunk


def open_api_schema(schema: JSONObject) -> JSONObject:
    """A schema of OpenAPI's form (`{"type": "STRING", "nullable": true}`) as JSON Schema."""
    read: JSONObject = {}
    for name, value in schema.items():
        if name == "nullable":
            continue
        if name == "properties" and type(value) is dict:
            read[name] = {key: _schema(each) for key, each in value.items()}
        elif name == "anyOf" and type(value) is list:
            read[name] = [_schema(each) for each in value]
        else:
            read[name] = _schema(value) if name == "items" else value
    kind = string(schema, "type")
    if kind is not None:
        read["type"] = kind.lower()
    return with_null(read) if schema.get("nullable") is True else read


def with_null(schema: JSONObject) -> JSONObject:
    """A JSON Schema that allows null as well: among the types, the values and the variants, wherever it has them."""
    written = dict(schema)
    kind, values, variants = schema.get("type"), schema.get("enum"), schema.get("anyOf")
    kinds = kind if type(kind) is list else [kind]
    if kind is not None and "null" not in kinds:
        written["type"] = [*kinds, "null"]
    if type(values) is list and None not in values:
        written["enum"] = [*values, None]
    null: JSONObject = {"type": "null"}
    if type(variants) is list and null not in variants:
        written["anyOf"] = [*variants, null]
    return written


def _schema(value: JSON) -> JSON:
    return open_api_schema(value) if type(value) is dict else value
