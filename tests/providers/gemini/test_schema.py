"""JSON Schema in the form that Gemini accepts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from manystream.providers.errors import InvalidRequestError
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


def test_a_reference_has_no_other_keywords() -> None:
    schema = {
        "$defs": {"A": {"type": "string", "description": "old"}},
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "description": "new"}, "b": {"allOf": [{"$ref": "#/$defs/A"}]}},
    }
    assert written(schema)["properties"] == {"a": {"type": "string", "description": "new"}, "b": {"$ref": "#/$defs/A"}}


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
    with pytest.raises(InvalidRequestError) as raised:
        written(schema)
    assert raised.value.field == "response_schema.properties.a.items.$ref"


def test_a_literal_is_an_enum_of_one() -> None:
    assert written({"const": "x"}) == {"enum": ["x"]}
    assert written({"const": 5, "type": "integer"}) == {"enum": [5], "type": "integer"}


def test_openapi_spelling_is_converted() -> None:
    schema = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}, "b": {"type": "INTEGER"}}}
    assert written(schema) == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "integer"}},
    }


def test_an_unknown_type_is_refused_naming_its_place() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        written({"type": "object", "properties": {"a": {"type": "text"}}})
    assert raised.value.field == "response_schema.properties.a.type"


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


def test_an_endless_schema_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    with pytest.raises(InvalidRequestError, match="nested"):
        written(schema)


def test_a_functions_parameters_are_an_object() -> None:
    assert parameters_schema({"properties": {"a": {}}}, "p", None) == {"type": "object", "properties": {"a": {}}}
    assert parameters_schema({"type": "object", "properties": {}}, "p", None) is None
    assert parameters_schema({}, "p", None) is None
    assert parameters_schema({"type": "object", "additionalProperties": True}, "p", None) is not None
    with pytest.raises(InvalidRequestError, match=r"tools\[0\]\.parameters\.type"):
        parameters_schema({"type": "array"}, "tools[0].parameters", None)


def test_a_generated_schema_is_accepted() -> None:
    import pydantic

    class Leaf(pydantic.BaseModel):
        value: float | None = None

    class Tree(pydantic.BaseModel):
        leaf: Leaf = pydantic.Field(description="One.")
        leaves: list[Leaf]
        kind: str = pydantic.Field(pattern="^[a-z]+$")

    warnings: list[str] = []
    result = gemini_schema(Tree.model_json_schema(), "response_schema", warnings)
    properties: Any = result["properties"]
    assert properties["leaf"]["description"] == "One."
    assert properties["leaf"]["type"] == "object"
    assert properties["leaves"]["items"] == {"$ref": "#/$defs/Leaf"}
    assert warnings == ["response_schema.properties.kind.pattern: Gemini does not enforce it"]
