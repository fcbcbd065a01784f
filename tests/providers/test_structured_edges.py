"""Structured answers at their edges: the largest depth and size, the nearest variant, and whole errors."""

from __future__ import annotations

from typing import ClassVar

import pytest

import manystream as ms
from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.providers.model.structured import (
    SchemaMismatchError,
    add_parsed,
    fitted,
    is_schema,
    parse_structured,
    schema_of,
)

WHOLE: JSONObject = {"type": "integer"}


def refused(value: JSON, schema: JSONObject) -> str:
    with pytest.raises(SchemaMismatchError) as caught:
        fitted(value, schema)
    assert str(caught.value).startswith(f"{caught.value.path}: ")
    return str(caught.value)


def nested(form: str, levels: int) -> tuple[JSON, JSONObject]:
    """A value, and a schema that matches it, with so many levels of one keyword."""
    value: JSON = 1
    schema: JSONObject = WHOLE
    for _ in range(levels):
        if form == "items":
            value, schema = [value], {"items": schema}
        elif form == "properties":
            value, schema = {"a": value}, {"properties": {"a": schema}}
        else:
            schema = {form: [schema]}
    return value, schema


@pytest.mark.parametrize("form", ["items", "properties", "anyOf", "oneOf", "allOf"])
def test_a_hundred_levels_are_checked(form: str) -> None:
    value, schema = nested(form, 100)
    assert fitted(value, schema) == value
    value, schema = nested(form, 101)
    assert refused(value, schema).endswith(": value or schema is nested more than 100 deep, or too large")


def test_a_hundred_references_may_follow_each_other() -> None:
    definitions: JSONObject = {str(number): {"$ref": f"#/d/{number + 1}"} for number in range(1, 102)}
    definitions["100"] = definitions["200"] = WHOLE
    assert fitted(1, {"d": definitions, "$ref": "#/d/1"}) == 1
    definitions["100"] = {"$ref": "#/d/200"}
    assert refused(1, {"d": definitions, "$ref": "#/d/1"}).startswith("$: value or schema is nested more than 100 deep")


def test_a_hundred_thousand_values_are_checked() -> None:
    values: list[JSON] = [1] * 99_999
    assert fitted(values, {"items": WHOLE}) == values
    assert refused([*values, 1], {"items": WHOLE}).startswith("$[99999]: value or schema is nested more than 100 deep")


# --- keywords ---


def test_a_reference_is_a_json_pointer() -> None:
    schema: JSONObject = {"a/b": {"c~d": WHOLE, "e": 1}, "$ref": "#/a~1b/c~0d"}
    assert fitted(1, schema) == 1
    assert refused("x", schema) == '$: must be integer, not "x"'
    for target in ("#/a~1b/none", "#/a~1b/e/f", "a~1b", 7, "x#/a~1b"):
        wrong = refused(1, {**schema, "$ref": target})
        assert wrong == f"$: the schema's reference {target!r} points to nothing in it"


def test_the_type_may_be_a_list() -> None:
    assert fitted("x", {"type": ["integer", 7, "string"]}) == "x"
    assert refused(None, {"type": ["integer", 7]}) == "$: must be integer or 7, not null"
    assert refused(None, {"type": []}) == "$: must be , not null"


def test_values_are_equal_as_json() -> None:
    value: JSON = {"a": [1, {"b": True}], "c": None}
    assert fitted({"c": None, "a": [1.0, {"b": True}]}, {"const": value}) is not None
    others: list[JSON] = [
        {"a": [1, {"b": 1}], "c": None}, {"a": [True, {"b": True}], "c": None}, {"a": [1], "c": None},
        {"a": [1, {"b": True}]}, {"a": [1, {"b": True}], "d": None}, {"a": [{"b": True}, 1], "c": None},
    ]  # fmt: skip
    for other in others:
        assert refused(other, {"const": value}).startswith('$: must be {"a":[1,{"b":true}],"c":null}, not ')
        with pytest.raises(SchemaMismatchError):
            fitted(other, {"enum": [value, 7]})
    assert fitted(7, {"enum": [value, 7]}) == 7


def test_a_long_value_is_shown_in_part() -> None:
    assert refused("x" * 98, {"const": 1}) == f'$: must be 1, not "{"x" * 98}"'
    assert refused("x" * 99, {"const": 1}) == f'$: must be 1, not "{"x" * 99}…'


def test_the_properties_of_an_object() -> None:
    schema: JSONObject = {"properties": {"a": WHOLE}, "required": ["a", 7], "additionalProperties": {"type": "string"}}
    assert fitted({"a": 1, "b": "x", "c": None}, schema) == {"a": 1, "b": "x"}
    assert refused({"a": None}, schema) == "$.a: must be integer, not null"
    assert refused({"b": "x"}, schema) == "$: the property 'a' is missing"
    assert refused({"a": 1, "b": 2}, schema) == "$.b: must be string, not 2"
    assert fitted({"z": 1}, {"properties": {"a": WHOLE}}) == {"z": 1}
    assert fitted([1], schema) == [1]
    closed: JSONObject = {"properties": {"a": WHOLE}, "additionalProperties": False}
    assert refused({"b": None}, closed) == "$.b: is not allowed: the schema has no such property"
    assert fitted({"a": 1}, closed) == {"a": 1}


def test_elements_are_checked_only_in_an_array() -> None:
    assert fitted({"a": 1}, {"items": WHOLE}) == {"a": 1}
    assert refused([1, [2]], {"items": WHOLE}) == "$[1]: must be integer, not [2]"
    assert fitted([{"a": None}], {"items": {"properties": {"a": WHOLE}}}) == [{}]


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_the_error_of_the_deepest_variant_is_raised(keyword: str) -> None:
    near: JSONObject = {"properties": {"a": {"properties": {"b": WHOLE}}}, "required": ["a"]}
    far: JSONObject = {"type": "string"}
    value: JSON = {"a": {"b": "x"}}
    orders: list[list[JSON]] = [[far, near], [near, far]]
    for variants in orders:
        assert refused(value, {keyword: variants}) == '$.a.b: must be integer, not "x"'
    assert refused(value, {keyword: [far, {"type": "array"}]}) == '$: must be string, not {"a":{"b":"x"}}'
    assert refused(value, {keyword: []}) == "$: the schema has no variants"
    assert fitted({"a": None}, {keyword: [far, {"properties": {"a": WHOLE}}]}) == {}


def test_a_schema_that_allows_nothing() -> None:
    for nothing in (False, None, 1, "x"):
        assert refused([1], {"items": nothing}) == "$[0]: the schema allows nothing here"
    always: list[JSON] = [True, {}]
    for everything in always:
        assert fitted([1], {"items": everything}) == [1]


def test_limits_that_are_no_numbers_are_ignored() -> None:
    assert fitted(1, {"minimum": "2", "maximum": True}) == 1
    assert refused(3, {"minimum": 1, "maximum": 2.5}) == "$: must be at most 2.5, not 3"


# --- answers ---


def answer(text: str, reason: ms.FinishReason = ms.FinishReason.STOP) -> ms.Response:
    return ms.Response([ms.Text(text)], reason)


@pytest.mark.parametrize(
    ("text", "value"), [("```\n1\n```", 1), ("```json\n 1 ```", 1), (" 1\n", 1), ("```x\n```\n1```", None)]
)
def test_a_fence_around_the_answer_is_removed(text: str, value: JSON) -> None:
    if value is not None:
        assert parse_structured(answer(text), {}) == value
    else:
        with pytest.raises(ProviderError, match="is not JSON"):
            parse_structured(answer(text), {})


MISMATCHES = [
    ("```json\n1", "the answer is not JSON: '```json\\n1'", "```json\n1"),
    ("1\n```", "the answer is not JSON: '1\\n```'", "1\n```"),
    ("```1```", "the answer is not JSON: '```1```'", "```1```"),
    (" ", "the answer has no text", ""),
    ("```\nx\n```", "the answer is not JSON: 'x'", "x"),
    ("x", "the answer is not JSON: 'x'", "x"),
    ('"x"', 'the answer does not fit the response schema at $: must be integer, not "x"', '"x"'),
    ("NaN", "the answer does not fit the response schema at $: must be integer, not NaN", "NaN"),
    ("[-Infinity]", "the answer does not fit the response schema at $: must be integer, not [-Infinity]",
        "[-Infinity]"),
    (f'{{"a":{"[" * 900}{"]" * 900}}}',
        "the answer does not fit the response schema at $: must be integer, not " + f'{{"a":{"[" * 95}…',
        f'{{"a":{"[" * 900}{"]" * 900}}}'),
    ("[1e999]", "the answer holds a number that cannot be kept: [0] is 1e999: Python cannot hold it", "[1e999]"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words", "body"), MISMATCHES)
def test_the_error_of_an_answer_that_does_not_fit(text: str, words: str, body: str) -> None:
    expected = ProviderError(
        words, category=ErrorCategory.UNKNOWN, http_status=200, retryable=False, body=body.encode()
    )
    for read in (parse_structured, add_parsed):
        with pytest.raises(ProviderError) as caught:
            read(answer(text), WHOLE)
        assert caught.value == expected


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "number"}, "does not fit the response schema at $.a: must be number, not %s"),
        ({"type": "string"}, "does not fit the response schema at $.a: must be string, not %s"),
        ({"enum": [1]}, "does not fit the response schema at $.a: must be one of [1], not %s"),
        ({"const": 1}, "does not fit the response schema at $.a: must be 1, not %s"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "at $.a: must be integer, not %s"),
        ({}, "holds a number that cannot be kept: a is %s: JSON does not have it"),
    ],
)
def test_a_number_that_json_does_not_have_fits_no_schema(schema: JSONObject, words: str, number: str) -> None:
    whole: JSONObject = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ProviderError) as caught:
        add_parsed(answer(f'{{"a": {number}}}'), whole)
    assert caught.value.message.endswith(words % number)
    assert (caught.value.category, caught.value.retryable) == (ErrorCategory.UNKNOWN, False)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (ms.FinishReason.LENGTH, "the answer was cut off by the length limit"),
        (ms.FinishReason.CONTENT_FILTER, "the answer was stopped by the content filter"),
        (ms.FinishReason.ERROR, "the answer ended with an error"),
        (ms.FinishReason.UNKNOWN, "the answer has no known finish reason"),
    ],
)
def test_the_warning_of_an_answer_that_was_cut_off(reason: ms.FinishReason, words: str) -> None:
    response = answer("[1", reason)
    add_parsed(response, WHOLE)
    assert response.warnings == [f"response_schema: nothing was parsed; {words} (the answer is not JSON: '[1')"]
    assert response.parsed is None


# --- schemas ---


class Raises:
    @staticmethod
    def model_json_schema() -> JSONObject:
        raise KeyError("a")


class Lists:
    @staticmethod
    def model_json_schema() -> list[int]:
        return []


class Counts:
    calls = 0

    @classmethod
    def model_json_schema(cls) -> JSONObject:
        cls.calls += 1
        return {"title": "Counts"}


class Holds:
    model_json_schema: ClassVar[JSONObject] = {}


def test_a_class_makes_its_schema_once() -> None:
    assert schema_of(Counts) == {"title": "Counts"}
    assert schema_of(Counts) is schema_of(Counts)
    assert Counts.calls == 1
    assert schema_of(WHOLE) is WHOLE


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Raises, "response_schema: Raises.model_json_schema() raised KeyError: 'a'"),
        (Lists, "response_schema: Lists.model_json_schema() must return a dict, not list"),
    ],
)
def test_a_class_that_makes_no_schema_is_named(kind: type, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        schema_of(kind)
    assert (str(caught.value), caught.value.field) == (words, "response_schema")
    assert isinstance(caught.value.__cause__, KeyError if kind is Raises else type(None))


def test_what_can_be_a_schema() -> None:
    schemas: list[object] = [WHOLE, Counts, Lists]
    others: list[object] = [int, Counts(), Holds, "x", None, [WHOLE]]
    assert [is_schema(value) for value in schemas] == [True] * 3
    assert [is_schema(value) for value in others] == [False] * 6
