"""JSON Schemas in the subset that Anthropic's structured outputs accept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from anthropic.lib._parse._transform import SupportedStringFormats, transform_schema

import manystream as ms
from manystream.providers.anthropic.schema import STRING_FORMATS, adapt_schema


def adapted(schema: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    before = copy.deepcopy(schema)
    warnings: list[str] = []
    result = adapt_schema(schema, "schema", warnings)
    assert schema == before
    return result, warnings


def test_an_object_that_was_open_is_closed_with_a_warning() -> None:
    for more in (True, {"type": "string"}):
        result, warnings = adapted({"type": "object", "additionalProperties": more})
        assert result == {"type": "object", "properties": {}, "additionalProperties": False}
        assert warnings == ["schema.additionalProperties: sent as false, the only value that Anthropic takes"]


FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
"""The string formats that Anthropic's guide on structured outputs lists."""


def test_unsupported_constraints_are_described_with_a_warning() -> None:
    result, warnings = adapted({"type": "integer", "description": "An age", "minimum": 1, "maximum": 9})
    assert result == {"type": "integer", "description": 'An age\n\n{"minimum":1,"maximum":9}'}
    assert len(warnings) == 1
    assert warnings[0].startswith("schema: minimum, maximum")
    result, _ = adapted({"type": "string", "pattern": "^a"})
    assert result["description"] == '{"pattern":"^a"}'


def test_the_formats_are_those_of_the_guide_and_the_sdk() -> None:
    assert {*FORMATS} == STRING_FORMATS == {*SupportedStringFormats}


@pytest.mark.parametrize("name", FORMATS)
def test_known_string_formats_are_kept(name: str) -> None:
    assert adapted({"type": "string", "format": name}) == ({"type": "string", "format": name}, [])


@pytest.mark.parametrize("least", [0, 1])
def test_a_small_minimum_of_items_is_kept(least: int) -> None:
    schema = {"type": "array", "items": {"type": "string"}, "minItems": least}
    assert adapted(schema) == (schema, [])


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"enum": ["a", None, 1]}, {"enum": ["a", None, 1]}),
        ({"type": "string", "enum": ["a"]}, {"enum": ["a"]}),
        ({"const": 3, "description": "three"}, {"description": "three", "const": 3}),
        ({"oneOf": [{"type": "string"}]}, {"anyOf": [{"type": "string"}]}),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}, {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}),
        ({"allOf": [{"type": "string"}], "title": "T"}, {"title": "T", "allOf": [{"type": "string"}]}),
        ({"$ref": "#/$defs/A", "description": "x"}, {"$ref": "#/$defs/A"}),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": ["object", "null"], "properties": {}, "description": "d"},
            {"description": "d", "anyOf": [{"type": "object", "properties": {}, "additionalProperties": False},
            {"type": "null"}]}),
        ({"properties": {}}, {"type": "object", "properties": {}, "additionalProperties": False}),
        ({"items": {"type": "null"}}, {"type": "array", "items": {"type": "null"}}),
        ({"type": "array", "items": True}, {"type": "array", "items": True}),
    ],
)  # fmt: skip
def test_each_form_has_its_adapted_form(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert adapted(schema) == (expected, [])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "array", "items": {"type": "object", "properties": {}}, "minItems": 1},
        {"$defs": {"A": {"type": "object", "properties": {}}}, "$ref": "#/$defs/A"},
        {"anyOf": [{"type": "string", "format": "date"}, {"enum": [1, 2]}], "description": "d"},
        {"type": "object", "properties": {"a": {"oneOf": [{"type": "null"}, {"type": "boolean"}]}}},
        {"type": "number", "title": "N"},
    ],
)
def test_a_schema_is_adapted_as_by_the_official_client(schema: dict[str, Any]) -> None:
    assert adapted(schema)[0] == transform_schema(schema)


def test_a_schema_is_adapted_whole_with_all_its_warnings() -> None:
    schema: dict[str, Any] = {
        "$schema": "s",
        "$comment": "c",
        "definitions": {"A": {"type": "string", "minLength": 1}},
        "$defs": {"B": True, "C": {"type": "array", "items": {"type": "number", "multipleOf": 2}, "minItems": 2}},
        "title": "T",
        "type": "object",
        "properties": {
            "a": {"$ref": "#/definitions/A", "pattern": "x", "$defs": {"D": {"type": "null"}}},
            "b": {"type": ["string", "null"], "format": "date", "maxLength": 3, "title": "t"},
            "c": {"anyOf": [{"type": "string"}], "oneOf": [{"type": "null"}]},
            "d": {"type": "object", "anyOf": [{"type": "object"}], "required": []},
            "e": {"enum": [1], "type": "integer", "minimum": 0, "examples": [1]},
            "f": {"type": "string", "format": "isbn", "description": "d", "readOnly": True},
            "g": {"type": "integer", "format": "date"},
            "h": {"type": "array", "minItems": 1, "uniqueItems": True},
        },
        "required": ["a"],
        "additionalProperties": False,
        "minProperties": 1,
    }
    empty_object: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
    result, warnings = adapted(schema)
    assert result == {
        "$defs": {
            "B": True,
            "C": {
                "type": "array",
                "items": {"type": "number", "description": '{"multipleOf":2}'},
                "description": '{"minItems":2}',
            },
        },
        "definitions": {"A": {"type": "string", "description": '{"minLength":1}'}},
        "title": "T",
        "type": "object",
        "properties": {
            "a": {"$defs": {"D": {"type": "null"}}, "$ref": "#/definitions/A"},
            "b": {
                "title": "t",
                "anyOf": [{"type": "string", "format": "date", "description": '{"maxLength":3}'}, {"type": "null"}],
            },
            "c": {"anyOf": [{"type": "string"}], "description": '{"oneOf":[{"type":"null"}]}'},
            "d": {"anyOf": [empty_object], "properties": {}, "additionalProperties": False, "required": []},
            "e": {"enum": [1], "description": '{"minimum":0,"examples":[1]}'},
            "f": {"type": "string", "description": 'd\n\n{"format":"isbn","readOnly":true}'},
            "g": {"type": "integer", "description": '{"format":"date"}'},
            "h": {"type": "array", "minItems": 1, "description": '{"uniqueItems":true}'},
        },
        "additionalProperties": False,
        "required": ["a"],
        "description": '{"minProperties":1}',
    }
    reason = "not enforced by Anthropic; sent to the model in the description"
    assert warnings == [
        f"schema.$defs.C.items: multipleOf {reason}", f"schema.$defs.C: minItems {reason}",
        f"schema.definitions.A: minLength {reason}", f"schema.properties.b: maxLength {reason}",
        f"schema.properties.c: oneOf {reason}", f"schema.properties.e: minimum {reason}",
        f"schema.properties.f: format {reason}", f"schema.properties.g: format {reason}",
        f"schema.properties.h: uniqueItems {reason}", f"schema: minProperties {reason}",
    ]  # fmt: skip


def test_a_schema_that_cannot_be_adapted_is_named() -> None:
    schemas: list[tuple[dict[str, Any], str]] = [
        ({}, "schema"), ({"items": {"anyOf": [{"type": "null"}, {"title": "t"}]}}, "schema.items.anyOf"),
        ({"$defs": {"A": {}}, "type": "null"}, "schema.$defs.A"), ({"type": 3}, "schema"),
    ]  # fmt: skip
    for schema, field in schemas:
        with pytest.raises(ms.InvalidRequestError) as raised:
            adapted(schema)
        assert str(raised.value) == (
            f"{field}: needs a type, an enum, a const, an anyOf or a $ref to be sent to Anthropic"
        )


@pytest.mark.parametrize("member", ["default", "examples", "deprecated", "readOnly", "writeOnly"])
def test_an_annotation_is_described_without_a_warning(member: str) -> None:
    warnings: list[str] = []
    assert adapt_schema({"type": "string", member: True}, "s", warnings) == {
        "type": "string",
        "description": f'{{"{member}":true}}',
    }
    assert warnings == []
