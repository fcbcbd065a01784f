"""Strict schemas: the adapted form, what is refused, and that no additional value becomes allowed."""

from __future__ import annotations

import copy
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.openai.schema import DROPPED, REFUSED, is_strict, strict_schema


def object_of(**properties: JSON) -> JSONObject:
    return {"type": "object", "properties": properties}


def strict_object(**properties: JSON) -> JSONObject:
    return {**object_of(**properties), "required": [*properties], "additionalProperties": False}


def property_of(schema: JSON) -> JSON:
    """Return a schema in the form that it has as a property."""
    adapted = strict_schema(object_of(a=schema))["properties"]
    assert isinstance(adapted, dict)
    return adapted["a"]


def test_every_property_becomes_required_and_objects_are_closed() -> None:
    schema = {**object_of(a={"type": "string"}, b=object_of(c={"type": "integer"})), "required": ["a"]}
    assert strict_schema(schema) == strict_object(a={"type": "string"}, b=strict_object(c={"type": "integer"}))


def test_the_schema_given_is_not_changed() -> None:
    schema = object_of(a={"oneOf": [object_of(b={"type": "string", "default": "x"}), {"type": "null"}]})
    before = copy.deepcopy(schema)
    strict_schema(schema)
    assert schema == before


@pytest.mark.parametrize(
    ("schema", "adapted"),
    [
        ({"type": "string", "default": "x", "examples": ["y"], "title": "A"}, {"type": "string", "title": "A"}),
        ({"type": "integer", "minimum": 1, "description": "n"}, {"type": "integer", "minimum": 1, "description": "n"}),
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"const": 1}, {"const": 1}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"type": "array", "items": object_of()}, {"type": "array", "items": strict_object()}),
        ({"items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"properties": {"x": {"type": "null"}}}, strict_object(x={"type": "null"})),
        ({"anyOf": [object_of(), {"type": "null"}]}, {"anyOf": [strict_object(), {"type": "null"}]}),
        (
            {"oneOf": [{"type": "string"}, {"type": "null"}], "discriminator": {"propertyName": "k"}},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        ({"allOf": [{"type": "string"}], "description": "d"}, {"type": "string", "description": "d"}),
        ({"type": ["object", "null"], "properties": {}}, {**strict_object(), "type": ["object", "null"]}),
    ],
)
def test_each_kind_of_schema(schema: JSON, adapted: JSON) -> None:
    assert property_of(schema) == adapted


def test_a_lone_reference_stays_and_its_definition_is_adapted() -> None:
    schema = {**object_of(a={"$ref": "#/$defs/B"}), "$defs": {"B": object_of(c={"type": "string"})}}
    adapted = {**strict_object(a={"$ref": "#/$defs/B"}), "$defs": {"B": strict_object(c={"type": "string"})}}
    assert strict_schema(schema) == adapted


def test_a_reference_with_neighbours_is_written_out() -> None:
    schema = {
        **object_of(a={"$ref": "#/$defs/B", "description": "d"}),
        "$defs": {"B": {"type": "string", "title": "B"}},
    }
    adapted = strict_schema(schema)["properties"]
    assert adapted == {"a": {"type": "string", "title": "B", "description": "d"}}


def test_the_words_beside_a_reference_win() -> None:
    own = {"title": "A", "description": "d"}
    schema = {
        **object_of(a={"$ref": "#/$defs/B", **own}),
        "$defs": {"B": {"type": "string", "title": "B", "description": "b"}},
    }
    assert strict_schema(schema)["properties"] == {"a": {"type": "string", **own}}


def test_a_recursive_reference_ends() -> None:
    node = object_of(next={"$ref": "#/$defs/Node", "description": "the next one"})
    adapted = strict_schema({"$ref": "#/$defs/Node", "$defs": {"Node": node}})
    assert adapted["properties"] == {"next": {"$ref": "#/$defs/Node"}}
    assert strict_schema(object_of(again={"$ref": "#"}))["properties"] == {"again": {"$ref": "#"}}


NOT_TAKEN = {
    "not": "has no negation",
    "if": "has no conditions",
    "then": "has no conditions",
    "else": "has no conditions",
    "dependentSchemas": "has no conditions",
    "dependencies": "has no conditions",
    "patternProperties": "needs every property by its name",
    "propertyNames": "needs every property by its name",
    "minProperties": "requires every property",
    "maxProperties": "requires every property",
    "dependentRequired": "requires every property",
    "unevaluatedProperties": "closes objects by additionalProperties alone",
    "unevaluatedItems": "has no tuples",
    "prefixItems": "has no tuples",
    "additionalItems": "has no tuples",
    "contains": "checks all items alike",
    "minContains": "checks all items alike",
    "maxContains": "checks all items alike",
    "uniqueItems": "cannot compare items",
    "$dynamicRef": "has plain references only",
}
"""Keywords that OpenAI's guide on structured outputs lists as unsupported → the reason in the error."""

GONE = ("default", "discriminator", "$schema", "$id", "$comment", "examples")


def test_every_keyword_of_the_tables_is_tested() -> None:
    assert NOT_TAKEN.keys() == REFUSED.keys()
    assert {*GONE} == DROPPED


@pytest.mark.parametrize("keyword", NOT_TAKEN)
def test_every_refused_keyword_is_named(keyword: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        strict_schema(object_of(a={"type": "string", keyword: {}}), "tools[3].parameters")
    assert raised.value.field == f"tools[3].parameters.properties.a.{keyword}"
    assert f"strict mode {NOT_TAKEN[keyword]}" in str(raised.value)


@pytest.mark.parametrize("keyword", GONE)
def test_every_dropped_keyword_is_gone(keyword: str) -> None:
    assert property_of({"type": "string", keyword: "x"}) == {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "string"}, "schema"),
        ({"anyOf": [object_of()]}, "schema"),
        (object_of(a=True), "schema.properties.a"),
        (object_of(a={}), "schema.properties.a.type"),
        (object_of(a={"type": "object"}), "schema.properties.a.properties"),
        ({**object_of(), "additionalProperties": {"type": "string"}}, "schema.additionalProperties"),
        (object_of(a={"type": "array"}), "schema.properties.a.items"),
        (object_of(a={"anyOf": []}), "schema.properties.a.anyOf"),
        (object_of(a={"anyOf": [{"not": {}}]}), "schema.properties.a.anyOf[0].not"),
        (object_of(a={"allOf": [{"type": "string"}, {"minLength": 1}]}), "schema.properties.a.allOf"),
        (object_of(a={"allOf": [{"type": "string"}], "type": "string"}), "schema.properties.a.type"),
        (object_of(a={"anyOf": [object_of()], "oneOf": [object_of()]}), "schema.properties.a.oneOf"),
        (object_of(a={"$ref": "https://a.example/"}), "schema.properties.a.$ref"),
        (object_of(a={"$ref": "#/$defs/missing"}), "schema.properties.a.$ref"),
        (object_of(a={"$ref": 7}), "schema.properties.a.$ref"),
        ({"type": "object", "properties": []}, "schema.properties"),
    ],
)  # fmt: skip
def test_what_strict_mode_cannot_take_is_refused_by_its_path(schema: JSONObject, field: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        strict_schema(schema)
    assert raised.value.field == field
    assert not is_strict(schema)


def test_adapting_twice_changes_nothing() -> None:
    adapted = strict_schema(Order.model_json_schema())
    assert strict_schema(adapted) == adapted
    assert is_strict(adapted)


class Card(BaseModel):
    kind: Literal["card"]
    number: str = ""


class Cash(BaseModel):
    kind: Literal["cash"]


class Order(BaseModel):
    """A schema that pydantic writes: definitions, discriminated unions, defaults, recursion."""

    payment: Annotated[Card | Cash, Field(discriminator="kind", description="how")]
    note: str | None = None
    parts: list[Order] = []


def test_pydantic_models_are_adapted_and_match_the_answer() -> None:
    schema = Order.model_json_schema()
    assert not is_strict(schema)
    adapted = strict_schema(schema)
    definitions = adapted["$defs"]
    assert isinstance(definitions, dict)
    assert definitions["Cash"] == {
        **strict_object(kind={"const": "cash", "title": "Kind", "type": "string"}),
        "title": "Cash",
    }
    Order.model_validate({"payment": {"kind": "cash"}, "note": None, "parts": []})
