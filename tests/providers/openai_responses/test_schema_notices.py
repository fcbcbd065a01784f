"""The whole text of every error about a schema that strict mode does not accept, and rare forms of schemas."""

from __future__ import annotations

import pytest

from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.openai.schema import is_strict, strict_schema

TEXT: JSONObject = {"type": "string"}


def object_of(**properties: JSON) -> JSONObject:
    return {"type": "object", "properties": properties}


def closed(**properties: JSON) -> JSONObject:
    return {**object_of(**properties), "required": [*properties], "additionalProperties": False}


NO_OBJECT = 'strict mode needs an object at the root: "type": "object"'
NO_CONDITIONS = "strict mode has no conditions"
NO_TUPLES = "strict mode has no tuples; use an object, or an array of one kind of item"
NOT_FREE = "strict mode has no free-form objects; name the properties"
OTHERS = "strict mode needs every property by its name; must be false or absent"
NO_TYPE = "strict mode needs a type for every value"
ONCE = "strict mode has no intersections; state it once"
NO_INTERSECTIONS = "strict mode has no intersections"
NO_ARRAY = "must be an array of schemas"
NO_SCHEMAS = "must be an object of schemas"

REFUSED: list[tuple[JSONObject, str]] = [
    (TEXT, f"schema: {NO_OBJECT}"),
    ({"type": ["object", "null"], "properties": {}}, f"schema: {NO_OBJECT}"),
    (object_of(a=True), "schema.properties.a: must be a JSON Schema object, not 'True'"),
    (object_of(a={}), f"schema.properties.a.type: {NO_TYPE}"),
    (object_of(a={"type": "object"}), f"schema.properties.a.properties: {NOT_FREE}"),
    ({**object_of(), "additionalProperties": True}, f"schema.additionalProperties: {OTHERS}"),
    ({**object_of(), "additionalProperties": None}, f"schema.additionalProperties: {OTHERS}"),
    (
        object_of(a={"type": "array"}),
        "schema.properties.a.items: strict mode needs the schema of an array's items",
    ),
    (object_of(a={"type": "array", "items": {}}), f"schema.properties.a.items.type: {NO_TYPE}"),
    (object_of(a={"type": ["array", "null"]}),
     "schema.properties.a.items: strict mode needs the schema of an array's items"),
    (object_of(a={"anyOf": []}), f"schema.properties.a.anyOf: {NO_ARRAY}"),
    (object_of(a={"anyOf": {}}), f"schema.properties.a.anyOf: {NO_ARRAY}"),
    (object_of(a={"oneOf": {}}), f"schema.properties.a.anyOf: {NO_ARRAY}"),
    (object_of(a={"anyOf": [TEXT, {"not": {}}]}), "schema.properties.a.anyOf[1].not: strict mode has no negation"),
    (object_of(a={"allOf": [TEXT, TEXT]}), f"schema.properties.a.allOf: {NO_INTERSECTIONS}"),
    (object_of(a={"allOf": []}), f"schema.properties.a.allOf: {NO_INTERSECTIONS}"),
    (object_of(a={"allOf": [1]}), f"schema.properties.a.allOf: {NO_INTERSECTIONS}"),
    (object_of(a={"allOf": {}}), f"schema.properties.a.allOf: {NO_INTERSECTIONS}"),
    (object_of(a={"allOf": [TEXT], "type": "string"}), f"schema.properties.a.type: {ONCE}"),
    (
        object_of(a={"anyOf": [TEXT], "oneOf": [TEXT]}),
        "schema.properties.a.oneOf: strict mode cannot hold anyOf and oneOf together",
    ),
    (object_of(a={"$ref": 7}), "schema.properties.a.$ref: must be a string"),
    (object_of(a={"$ref": "https://a/"}), "schema.properties.a.$ref: 'https://a/' points outside the schema"),
    (object_of(a={"$ref": "#a"}), "schema.properties.a.$ref: '#a' points outside the schema"),
    (object_of(a={"$ref": "#/$defs/B"}), "schema.properties.a.$ref: '#/$defs/B' points to nothing"),
    (object_of(a={"$ref": "#/type/B"}), "schema.properties.a.$ref: '#/type/B' points to nothing"),
    (
        {**object_of(a={"$ref": "#/$defs/B", "type": "string"}), "$defs": {"B": TEXT}},
        f"schema.properties.a.type: {ONCE}",
    ),
    ({**object_of(), "$defs": {"B": {"if": {}}}}, f"schema.$defs.B.if: {NO_CONDITIONS}"),
    ({**object_of(), "definitions": {"B": {"if": {}}}}, f"schema.definitions.B.if: {NO_CONDITIONS}"),
    ({**object_of(), "$defs": []}, f"schema.$defs: {NO_SCHEMAS}"),
    ({"type": "object", "properties": []}, f"schema.properties: {NO_SCHEMAS}"),
    (object_of(a={"type": "array", "prefixItems": []}), f"schema.properties.a.prefixItems: {NO_TUPLES}"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text"), REFUSED, ids=[f"{number} {row[1]}" for number, row in enumerate(REFUSED)])
def test_a_schema_is_refused_by_path_and_reason(schema: JSONObject, text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        strict_schema(schema)
    assert str(caught.value) == text
    assert not is_strict(schema)


def adapted(schema: JSON, **root: JSON) -> JSON:
    """Return the adapted form of a property's schema."""
    properties = strict_schema({**object_of(a=schema), **root})["properties"]
    assert isinstance(properties, dict)
    return properties["a"]


def test_a_root_without_properties_is_an_empty_object() -> None:
    assert strict_schema({"type": "object"}) == {**closed(), "type": "object"}
    assert strict_schema({"type": "object"}, "tools[0].parameters") == closed()


def test_a_root_with_another_name_is_a_root() -> None:
    root: JSONObject = {"$ref": "#/$defs/B", "$defs": {"B": object_of(a=TEXT)}}
    assert strict_schema(root, "tools[0].parameters") == {**closed(a=TEXT), "$defs": {"B": closed(a=TEXT)}}


def test_additional_properties_that_are_false_stay_false() -> None:
    assert strict_schema({**object_of(a=TEXT), "additionalProperties": False}) == closed(a=TEXT)


@pytest.mark.parametrize("required", [["b", "a"], ["a", "b"]])
def test_a_complete_list_of_required_names_keeps_its_order(required: list[JSON]) -> None:
    schema: JSONObject = {**object_of(a=TEXT, b=TEXT), "required": required}
    assert strict_schema(schema)["required"] == required


@pytest.mark.parametrize("required", [["a"], ["a", "b", "c"], "ab", None, [1, 2]])
def test_any_other_list_of_required_names_is_completed(required: JSON) -> None:
    schema = {**object_of(a=TEXT, b=TEXT), "required": required}
    assert strict_schema(schema)["required"] == ["a", "b"]


def test_types_follow_from_other_keywords() -> None:
    assert adapted({"properties": {"b": TEXT}}) == closed(b=TEXT)
    assert adapted({"items": TEXT}) == {"type": "array", "items": TEXT}
    assert adapted({"enum": ["a"]}) == {"enum": ["a"]}
    assert adapted({"const": None}) == {"const": None}
    assert adapted({"type": ["array", "null"], "items": TEXT}) == {"type": ["array", "null"], "items": TEXT}


@pytest.mark.parametrize("name", ["$defs", "definitions"])
def test_references_find_escaped_names(name: str) -> None:
    definitions: JSONObject = {"a/b~c": {**TEXT, "title": "T"}}
    found = adapted({"$ref": f"#/{name}/a~1b~0c", "description": "d"}, **{name: definitions})
    assert found == {**TEXT, "title": "T", "description": "d"}


def test_a_dropped_keyword_beside_a_reference_is_no_neighbour() -> None:
    reference: JSONObject = {"$ref": "#/$defs/B"}
    definitions: JSONObject = {"B": TEXT}
    assert adapted({**reference, "default": None, "$comment": "c"}, **{"$defs": definitions}) == reference


def test_definitions_of_both_schemas_are_merged() -> None:
    inner: JSONObject = {"type": "string", "$defs": {"A": TEXT}, "description": "inner"}
    assert adapted({"allOf": [inner], "$defs": {"B": TEXT}, "description": "outer"}) == {
        "type": "string", "$defs": {"B": TEXT}, "description": "outer",
    }  # fmt: skip


def test_a_list_of_recursions_ends() -> None:
    node = object_of(next={"$ref": "#/$defs/N"}, other={"$ref": "#/$defs/N", "title": "o"})
    schema: JSONObject = {**object_of(a={"$ref": "#/$defs/N", "title": "t"}), "$defs": {"N": node}}
    reference: JSONObject = {"$ref": "#/$defs/N"}
    inside = closed(next=reference, other={**closed(next=reference, other=reference), "title": "o"})
    assert strict_schema(schema) == {
        **closed(a={**closed(next=reference, other=reference), "title": "t"}),
        "$defs": {"N": inside},
    }


def test_a_value_that_is_no_json_is_not_strict() -> None:
    assert not is_strict({"type": "object", "properties": {}, "x": object()})  # type: ignore[dict-item]


def test_is_strict_compares_the_whole_schema() -> None:
    assert is_strict(closed(a=TEXT))
    assert not is_strict(object_of(a=TEXT))
    assert not is_strict({**closed(a=TEXT), "default": {}})
