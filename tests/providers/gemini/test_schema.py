"""JSON Schema in the form that Gemini accepts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import manystream as ms
from manystream.providers.gemini.json_names import open_api_schema
from manystream.providers.gemini.schema import UNENFORCED, gemini_schema, parameters_schema


def written(schema: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy(schema)
    result = gemini_schema(schema, "response_schema", [])
    assert schema == before
    return result


def test_supported_keywords_are_unchanged() -> None:
    schema = {
        "$defs": {"P": {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}},
        "type": "object",
        "title": "T",
        "description": "d",
        "properties": {
            "a": {"type": ["string", "null"], "enum": ["x", "y", None]},
            "b": {"type": "array", "items": {"$ref": "#/$defs/P"}, "minItems": 1, "maxItems": 3},
            "c": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
            "d": {"type": "array", "prefixItems": [{"type": "number"}, {"$ref": "#/$defs/P"}]},
            "e": {"oneOf": [{"type": "boolean"}, {"type": "string", "format": "date"}]},
        },
        "required": ["a"],
        "additionalProperties": False,
        "propertyOrdering": ["b", "a"],
    }
    assert written(schema) == schema


def test_used_definitions_are_moved_to_the_roots_defs() -> None:
    schema = {
        "definitions": {"A/b": {"type": "string"}, "Unused": {"type": "string"}},
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/A~1b"}},
    }
    assert written(schema) == {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A~1b"}},
        "$defs": {"A/b": {"type": "string"}},
    }


def test_recursion_is_kept_as_a_reference() -> None:
    schema = {
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node", "description": "n"}}}},
        "$ref": "#/$defs/Node",
    }
    warnings: list[str] = []
    result = gemini_schema(schema, "response_schema", warnings)
    assert result == {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }
    assert any("beside a recursive $ref" in warning for warning in warnings)


def test_a_reference_to_the_whole_becomes_a_definition() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert written(schema) == {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/__root__"}},
        "$defs": {"__root__": {"type": "object", "properties": {"next": {"$ref": "#/$defs/__root__"}}}},
    }


@pytest.mark.parametrize("reference", ["#/$defs/Missing", "https://example.com/s", "#/properties/a", 5, None, ""])
def test_an_unresolved_reference_is_refused_naming_its_place(reference: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": reference}}}}
    with pytest.raises(ms.InvalidRequestError) as raised:
        written(schema)
    assert raised.value.field == "response_schema.properties.a.items.$ref"


def test_a_property_may_have_the_name_of_a_keyword() -> None:
    schema = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "const": {"type": "string"}, "type": {"type": "string"}},
    }
    assert written(schema) == schema


NOT_ENFORCED = (
    "const", "pattern", "minLength", "maxLength", "multipleOf", "exclusiveMinimum", "exclusiveMaximum",
    "uniqueItems", "contains", "minContains", "maxContains", "additionalItems", "unevaluatedItems",
    "minProperties", "maxProperties", "patternProperties", "propertyNames", "unevaluatedProperties",
    "dependentRequired", "dependentSchemas", "dependencies", "allOf", "not", "if", "then", "else",
)  # fmt: skip
"""The validating keywords of JSON Schema, except those that Gemini's page on structured output lists as supported."""


def test_every_constraint_of_the_table_is_tested() -> None:
    assert {*NOT_ENFORCED} == UNENFORCED


@pytest.mark.parametrize("keyword", NOT_ENFORCED)
def test_an_unenforced_constraint_is_sent_with_a_warning(keyword: str) -> None:
    warnings: list[str] = []
    schema = {"type": "string", keyword: True}
    assert gemini_schema(schema, "response_schema", warnings) == schema
    assert warnings == [f"response_schema.{keyword}: Gemini does not enforce it"]
    assert gemini_schema(schema, "response_schema", None) == schema


def test_a_functions_parameters_are_an_object() -> None:
    assert parameters_schema({"properties": {"a": {}}}, "p", None) == {"type": "object", "properties": {"a": {}}}
    assert parameters_schema({"type": "object", "properties": {}}, "p", None) is None
    assert parameters_schema({}, "p", None) is None
    assert parameters_schema({"type": "object", "additionalProperties": True}, "p", None) is not None
    with pytest.raises(ms.InvalidRequestError, match=r"tools\[0\]\.parameters\.type"):
        parameters_schema({"type": "array"}, "tools[0].parameters", None)


def test_a_schema_is_written_whole_with_all_its_warnings() -> None:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "c",
        "$defs": {
            "Name": {"type": "STRING", "pattern": "a", "$comment": "c"},
            "Place": {"type": "object", "properties": {"name": {"$ref": "#/$defs/Name"}}},
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node", "title": "t", "$id": "i"}}},
        },
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "$id": "i"},
            "titled": {"allOf": [{"$ref": "#/$defs/Place"}], "title": "t"},
            "node": {"$ref": "#/$defs/Node"},
            "both": {"allOf": [{"minLength": 1}, {"maxLength": 2}]},
            "overlap": {"allOf": [{"type": "string", "title": "a"}], "title": "b"},
            "described": {"allOf": [{"type": "string", "description": "a"}], "description": "b"},
            "flag": {"const": True},
            "nothing": {"const": None},
            "number": {"const": 1.5},
            "chosen": {"const": "a", "enum": ["a", "b"]},
            "anything": True,
            "list": {"type": "array", "items": {"type": "string", "nullable": False}, "contains": {"const": 1}},
            "some": {"anyOf": [{"type": "string", "maxLength": 3}, True]},
            "pairs": {"type": "array", "prefixItems": [{"nullable": True}]},
            "map": {"patternProperties": {"^a": {"minLength": 1}}, "additionalProperties": {"minLength": 2}},
        },
        "not": {"required": ["x"]},
    }
    warnings: list[str] = []
    assert gemini_schema(schema, "s", warnings) == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place"},
            "titled": {"type": "object", "properties": {"name": {"$ref": "#/$defs/Name"}}, "title": "t"},
            "node": {"$ref": "#/$defs/Node"},
            "both": {"allOf": [{"minLength": 1}, {"maxLength": 2}]},
            "overlap": {"allOf": [{"type": "string", "title": "a"}], "title": "b"},
            "described": {"type": "string", "description": "b"},
            "flag": {"const": True},
            "nothing": {"const": None},
            "number": {"enum": [1.5]},
            "chosen": {"const": "a", "enum": ["a", "b"]},
            "anything": True,
            "list": {"type": "array", "items": {"type": "string"}, "contains": {"enum": [1]}},
            "some": {"anyOf": [{"type": "string", "maxLength": 3}, True]},
            "pairs": {"type": "array", "prefixItems": [{"nullable": True}]},
            "map": {"patternProperties": {"^a": {"minLength": 1}}, "additionalProperties": {"minLength": 2}},
        },
        "not": {"required": ["x"]},
        "$defs": {
            "Place": {"type": "object", "properties": {"name": {"$ref": "#/$defs/Name"}}},
            "Name": {"type": "string", "pattern": "a"},
            "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
        },
    }
    assert warnings == [
        "s.$defs.Name.pattern: Gemini does not enforce it",
        "s.$defs.Node.properties.next: title beside a recursive $ref cannot be sent",
        "s.properties.both.allOf: Gemini does not enforce it",
        "s.properties.both.allOf[0].minLength: Gemini does not enforce it",
        "s.properties.both.allOf[1].maxLength: Gemini does not enforce it",
        "s.properties.overlap.allOf: Gemini does not enforce it",
        "s.properties.flag.const: Gemini does not enforce it",
        "s.properties.nothing.const: Gemini does not enforce it",
        "s.properties.chosen.const: Gemini does not enforce it",
        "s.properties.list.contains: Gemini does not enforce it",
        "s.properties.some.anyOf[0].maxLength: Gemini does not enforce it",
        "s.properties.map.patternProperties: Gemini does not enforce it",
        "s.properties.map.patternProperties.^a.minLength: Gemini does not enforce it",
        "s.properties.map.additionalProperties.minLength: Gemini does not enforce it",
        "s.not: Gemini does not enforce it",
    ]


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_a_schema_has_at_most_100_levels_below_the_root() -> None:
    assert written(nested(100)) == nested(100)
    with pytest.raises(ms.InvalidRequestError) as raised:
        written(nested(101))
    assert str(raised.value) == f"response_schema{'.items' * 101}: is nested more than 100 deep"


def test_references_count_as_levels() -> None:
    links: dict[str, Any] = {f"D{n}": {"$ref": f"#/$defs/D{n + 1}", "title": "t"} for n in range(120)}
    for length, accepted in ((98, True), (99, False)):
        definitions = {**links, f"D{length}": {"type": "string"}}
        schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/D0", "title": "t"}}, "$defs": definitions}
        if accepted:
            assert written(schema)["properties"] == {"a": {"type": "string", "title": "t"}}
        else:
            with pytest.raises(ms.InvalidRequestError, match="is nested more than 100 deep"):
                written(schema)


@pytest.mark.parametrize(
    ("schema", "field", "message"),
    [
        ({"type": "Text"}, "s.type", "'Text' is not a JSON Schema type"),
        ({"items": {"$ref": "#/$defs/A"}}, "s.items.$ref", "'#/$defs/A' names nothing in the root's $defs"),
        ({"anyOf": [{}, {"type": "x"}]}, "s.anyOf[1].type", "'x' is not a JSON Schema type"),
    ],
)
def test_a_part_that_cannot_be_sent_is_named(schema: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        gemini_schema(schema, "s", None)
    assert str(raised.value) == f"{field}: {message}"


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "additionalProperties"])
def test_parameters_without_properties_may_still_be_some(keyword: str) -> None:
    value: Any = {"type": "string"} if keyword == "additionalProperties" else [{"type": "object"}]
    cases: list[list[str] | None] = [None, []]
    for warnings in cases:
        assert parameters_schema({keyword: value}, "p", warnings) == {"type": "object", keyword: value}
        assert parameters_schema({"required": ["a"], "properties": {}}, "p", warnings) is None


def test_warnings_about_parameters_are_given_each_time() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string", "pattern": "b"}}}
    for _ in range(2):
        warnings: list[str] = []
        assert parameters_schema(schema, "p", None) == schema
        assert parameters_schema(schema, "p", warnings) == schema
        assert warnings == ["p.properties.a.pattern: Gemini does not enforce it"]


def test_parameters_that_are_no_json_are_left_to_the_writer() -> None:
    odd: Any = object()
    assert parameters_schema({"properties": {"a": {"default": odd}}}, "p", None) == {
        "properties": {"a": {"default": odd}},
        "type": "object",
    }


NULLABLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one type": ({"type": "STRING"}, {"type": ["string", "null"]}),
    "several types": ({"type": ["STRING", "INTEGER"]}, {"type": ["string", "integer", "null"]}),
    "null among the types": ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    "values": ({"type": "STRING", "enum": ["x", "y"]}, {"type": ["string", "null"], "enum": ["x", "y", None]}),
    "values alone": ({"enum": [1, None]}, {"enum": [1, None]}),
    "variants": ({"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}),
    "a type and variants": ({"type": "OBJECT", "anyOf": [{"required": ["a"]}]},
        {"type": ["object", "null"], "anyOf": [{"required": ["a"]}, {"type": "null"}]}),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "expected"), NULLABLE.values(), ids=NULLABLE)
def test_a_nullable_value_may_be_null(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    given: dict[str, Any] = {"type": "OBJECT", "properties": {"a": {**schema, "nullable": True}}}
    assert written(given) == {"type": "object", "properties": {"a": expected}}
    if type(schema.get("type", "")) is str:
        assert open_api_schema(given) == {"type": "object", "properties": {"a": expected}}
    plain = {"properties": {"a": {**schema, "nullable": False}}}
    assert "nullable" not in written(plain)["properties"]["a"]


@pytest.mark.parametrize(
    "members",
    [
        {"patternProperties": {"^x-": {"type": "string"}}},
        {"allOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"minProperties": 1},
        {"additionalProperties": {"type": "integer"}},
    ],
    ids=str,
)
def test_parameters_without_names_are_sent(members: dict[str, Any]) -> None:
    schema: dict[str, Any] = {"type": "object", **members}
    assert parameters_schema(schema, "parameters", None) == schema
    assert parameters_schema({"type": "object", "description": "d", "required": []}, "parameters", None) is None
