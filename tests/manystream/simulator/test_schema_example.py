"""A value that fits a JSON Schema."""

from __future__ import annotations

import itertools
import json

import pytest

from manystream.simulator.example_values import WordValues
from manystream.simulator.json_text import JSON
from manystream.simulator.schema_example import example

SCHEMAS: list[tuple[dict[str, JSON], type]] = [
    ({"type": "string", "enum": ["a", "b"]}, str),
    ({"const": 4}, int),
    ({"type": "integer", "minimum": 50, "maximum": 60}, int),
    ({"type": "integer", "exclusiveMaximum": -3}, int),
    ({"type": "number", "maximum": 0.5}, float),
    ({"type": "boolean"}, bool),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, list),
    ({"type": ["null", "string"]}, str),
    ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, int),
    ({"type": "STRING", "minLength": 30}, str),
    ({"type": "string", "maxLength": 2}, str),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}]}, dict),
    ({"$ref": "#/$defs/thing", "$defs": {"thing": {"type": "boolean"}}}, bool),
]


@pytest.mark.parametrize(("schema", "kind"), SCHEMAS)
def test_an_example_fits_its_schema(schema: dict[str, JSON], kind: type) -> None:
    value = example(schema, WordValues(itertools.cycle(["some", "words"])))
    assert type(value) is kind
    if isinstance(value, int | float) and not isinstance(value, bool):
        minimum, maximum = schema.get("minimum", -1000), schema.get("maximum", 1000)
        assert isinstance(minimum, int | float)
        assert isinstance(maximum, int | float)
        assert minimum <= value <= maximum
    if isinstance(value, str) and "minLength" in schema:
        assert len(value) >= 30


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, "some"),
        ({"type": "string", "format": "email"}, "ada@example.org"),
        ({"type": "string", "minLength": 7}, "some words"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "som"),
        ({"type": "string", "enum": ["a", "b"]}, "a"),
        ({"type": "integer"}, 4),
        ({"type": "integer", "minimum": 50}, 50),
        ({"type": "integer", "maximum": 3}, 3),
        ({"type": "integer", "exclusiveMinimum": 4}, 5),
        ({"type": "integer", "exclusiveMaximum": 4}, 3),
        ({"type": "number"}, 4.5),
        ({"type": "number", "minimum": 50.25}, 50.25),
        ({"type": "number", "maximum": 0.5}, 0.5),
        ({"type": "boolean"}, True),
        ({"type": ["null"]}, None),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [4, 5]),
        ({"type": "array", "items": {"type": "integer"}, "maxItems": 0}, []),
        ({"items": {"type": "string"}}, ["some"]),
        ({"properties": {"a": {"const": 1}, "b": {"type": "string"}}}, {"a": 1, "b": "some"}),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 4),
        ({"oneOf": [{"type": "NULL"}, {"type": "BOOLEAN"}]}, True),
    ],
)
def test_an_example_is_the_same_every_time(schema: dict[str, JSON], value: JSON) -> None:
    assert example(schema, WordValues(itertools.cycle(["some", "words"]))) == value


def test_a_reference_to_the_root_is_followed() -> None:
    root: dict[str, JSON] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["name"],
    }
    assert example(root, WordValues(itertools.cycle(["x"]))) == {
        "name": "x",
        "children": [{"name": "x", "children": [{"name": "x"}]}],
    }


def test_a_schema_that_refers_to_itself_has_an_end() -> None:
    node: dict[str, JSON] = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "others": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["next", "others"],
    }
    assert len(json.dumps(example(node, WordValues(itertools.cycle(["x"]))))) < 1_000_000
    circle: dict[str, JSON] = {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "minItems": 10**9, "minLength": 10**9}
    assert example(circle, WordValues(itertools.cycle(["x"]))) is not None
