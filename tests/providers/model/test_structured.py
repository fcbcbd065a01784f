"""Structured answers: a match is parsed, a mismatch is an error naming its place, a cut-off answer is a warning."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, cast

import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.model.structured import (
    MAX_DEPTH,
    SchemaMismatchError,
    add_parsed,
    fitted,
    is_schema,
    json_of,
    parse_structured,
    reader_of,
    schema_of,
)

PERSON: ms.JSONObject = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "friend": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["name"],
    "additionalProperties": False,
}  # fmt: skip


def answer(text: str, reason: ms.FinishReason = ms.FinishReason.STOP, **members: object) -> ms.Response:
    return ms.Response([ms.Text(text)], reason, **members)  # type: ignore[arg-type]


FITS: list[tuple[ms.JSONObject, ms.JSON]] = [
    (PERSON, {"name": "Ada", "age": 36, "tags": ["a"], "friend": {"name": "Bob", "friend": None}}),
    ({"type": "integer"}, 1.0),
    ({"type": ["string", "null"]}, None),
    ({"const": {"a": [1]}}, {"a": [1.0]}),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}]}, "x"),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": 1}),
    ({"$defs": {"a/b": {"type": "integer"}}, "items": {"$ref": "#/$defs/a~1b"}}, [1, 2]),
    ({"minimum": 5}, "a text is no number, so the limit is not about it"),
    ({"format": "date", "pattern": "^x"}, "unchecked"),
    ({"properties": {"free": True}}, {"free": [1]}),
    ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5),
]


@pytest.mark.parametrize(("schema", "value"), FITS)
def test_a_matching_value_is_returned_equal(schema: ms.JSONObject, value: ms.JSON) -> None:
    assert fitted(value, schema) == value


DOES_NOT_FIT: list[tuple[ms.JSONObject, ms.JSON, str]] = [
    (PERSON, [], r"^\$: must be object, not \[\]$"),
    (PERSON, {"age": 1}, r"^\$: the property 'name' is missing$"),
    (PERSON, {"name": ""}, r"^\$.name: must have a length of at least 1, not \"\"$"),
    (PERSON, {"name": "x", "age": "1"}, r'^\$.age: must be integer, not "1"$'),
    (PERSON, {"name": "x", "age": True}, r"^\$.age: must be integer, not true$"),
    (PERSON, {"name": "x", "age": -1}, r"^\$.age: must be at least 0, not -1$"),
    (PERSON, {"name": "x", "tags": ["a", "c"]}, r'^\$.tags\[1\]: must be one of \["a","b"\], not "c"$'),
    (PERSON, {"name": "x", "tags": ["a", "b", "a"]}, r"^\$.tags: must have at most this many items: 2"),
    (PERSON, {"name": "x", "other": 1}, r"^\$.other: is not allowed"),
    (PERSON, {"name": "x", "friend": {"name": 1}}, r"^\$.friend.name: must be string, not 1$"),
    (PERSON, {"name": None}, r"^\$.name: must be string, not null$"),
    ({"enum": [1]}, True, "must be one of"),
    ({"const": 0}, False, "must be 0"),
    ({"oneOf": []}, 1, "no variants"),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 4, "at most 3"),
    ({"additionalProperties": {"type": "integer"}}, {"x": "1"}, r"\$.x"),
    ({"type": "blue"}, 1, "must be blue"),
    ({"$ref": "#/$defs/none"}, 1, "points to nothing"),
    ({"$ref": "https://host/schema"}, 1, "points to nothing"),
    ({"$ref": "#"}, 1, f"more than {MAX_DEPTH} deep"),
    ({"items": False}, [1], r"\$\[0\]: the schema allows nothing"),
]

TYPES: dict[str, tuple[list[ms.JSON], list[ms.JSON]]] = {
    "null": ([None], [0, False, ""]), "boolean": ([True, False], [0, 1, "true", None]),
    "integer": ([0, 1.0], [0.5, True, "1"]), "number": ([0, 1.0, 0.5], [True, "1", None]),
    "string": ([""], [0, None, []]), "array": ([[]], [{}, "", None]), "object": ([{}], [[], "", None]),
}  # fmt: skip
"""Type → values that have it, and values that do not."""


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_takes_its_values_and_no_others(kind: str) -> None:
    fitting, others = TYPES[kind]
    for value in fitting:
        assert fitted(value, {"type": kind}) == value
    for value in others:
        with pytest.raises(SchemaMismatchError, match=f"must be {kind}"):
            fitted(value, {"type": kind})


@pytest.mark.parametrize(("schema", "value", "complaint"), DOES_NOT_FIT)
def test_a_mismatch_is_an_error_naming_its_place(schema: ms.JSONObject, value: ms.JSON, complaint: str) -> None:
    with pytest.raises(SchemaMismatchError, match=complaint):
        fitted(value, schema)


# Every checked limit of JSON Schema: a value at the limit, one beyond it, and one of a type that it does not apply to.
LIMITS: list[tuple[str, int, ms.JSON, ms.JSON, ms.JSON, str]] = [
    ("minimum", 2, 2, 1.5, "", "be at least 2, not 1.5"),
    ("maximum", 2, 2.0, 3, [1, 2, 3], "be at most 2, not 3"),
    ("exclusiveMinimum", 2, 2.5, 2, "", "be above 2, not 2"),
    ("exclusiveMaximum", 2, 1, 2, "abc", "be below 2, not 2"),
    ("minLength", 2, "ab", "é", [], 'have a length of at least 2, not "é"'),
    ("maxLength", 2, "éé", "abc", [1, 2, 3], 'have a length of at most 2, not "abc"'),
    ("minItems", 2, [1, 2], [1], "a", "have at least this many items: 2, not"),
    ("maxItems", 2, [1, 2], [1, 2, 3], "abc", "have at most this many items: 2, not"),
    ("minProperties", 2, {"a": 1, "b": 2}, {"a": 1}, [], "have at least this many properties: 2, not"),
    ("maxProperties", 2, {"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, [1, 2, 3], "at most this many properties: 2, not"),
]


@pytest.mark.parametrize(("keyword", "limit", "fits", "beyond", "other", "complaint"), LIMITS)
def test_all_limits_are_checked(
    keyword: str, limit: int, fits: ms.JSON, beyond: ms.JSON, other: ms.JSON, complaint: str
) -> None:
    assert fitted(fits, {keyword: limit}) == fits
    assert fitted(other, {keyword: limit}) == other
    with pytest.raises(SchemaMismatchError, match=re.escape(complaint)):
        fitted(beyond, {keyword: limit})


def test_a_null_for_an_optional_property_counts_as_absent() -> None:
    """Strict modes make every property required, so a model sends null to leave one out."""
    assert fitted({"name": "x", "age": None, "friend": None}, PERSON) == {"name": "x", "friend": None}


def test_deep_nesting_is_an_error() -> None:
    deep: ms.JSON = []
    for _ in range(10 * MAX_DEPTH):
        deep = [deep]
    with pytest.raises(SchemaMismatchError, match="nested"):
        fitted(deep, {"$defs": {}, "items": {"$ref": "#"}})


def test_variants_that_refer_to_each_other_stop_at_a_limit() -> None:
    both: ms.JSON = {"type": "object", "properties": {"left": {"$ref": "#"}}, "required": ["left"]}
    deep: ms.JSON = 1
    for _ in range(40):
        deep = {"left": deep}
    with pytest.raises(SchemaMismatchError):
        fitted(deep, {"anyOf": [both, dict(both), dict(both)]})


@pytest.mark.parametrize("text", ['```json\n{"name": "Ada"}\n```', ' \n{"name": "Ada"}\n '])
def test_a_code_fence_and_white_space_are_removed(text: str) -> None:
    assert parse_structured(answer(text), PERSON) == {"name": "Ada"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"name": 1}', r"does not fit the response schema at \$.name: must be string, not 1"),
        ("Sure! Here it is", "the answer is not JSON: 'Sure! Here it is'"),
        ("", "the answer has no text"),
    ],
)
def test_a_mismatching_answer_is_an_error_not_retryable(text: str, complaint: str) -> None:
    with pytest.raises(ms.ProviderError, match=complaint) as caught:
        add_parsed(answer(text), PERSON)
    assert (caught.value.category, caught.value.retryable) == (ms.ErrorCategory.UNKNOWN, False)
    assert caught.value.body == text.encode()


@pytest.mark.parametrize("reason", [ms.FinishReason.LENGTH, ms.FinishReason.CONTENT_FILTER, ms.FinishReason.UNKNOWN])
def test_a_cut_off_answer_has_a_warning_and_no_error(reason: ms.FinishReason) -> None:
    response = answer('{"name": "A', reason)
    add_parsed(response, PERSON)
    assert (response.parsed, response.finish_reason) == (None, reason)
    assert response.warnings[0].startswith("response_schema: nothing was parsed;")


def test_a_cut_off_answer_that_matches_is_parsed() -> None:
    response = answer('{"name": "Ada"}', ms.FinishReason.LENGTH)
    add_parsed(response, PERSON)
    assert (response.parsed, response.warnings) == ({"name": "Ada"}, [])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(VALUES)
def test_every_value_fits_its_own_const_and_the_empty_schema(value: ms.JSON) -> None:
    assert fitted(value, {"const": value}) == value
    assert fitted(json.loads(json.dumps(value)), {}) == value


# --- types ---
class River(pydantic.BaseModel):
    name: str
    km: float = 1.0
    seen: datetime.date | None = None

    @pydantic.field_validator("name")
    @classmethod
    def _is_upper(cls, name: str) -> str:
        if name == "boom":
            raise ZeroDivisionError("of the validator")
        if not name[:1].isupper():
            raise ValueError("a river begins with a capital")
        return name


class Exact(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    seen: datetime.date


class Node(pydantic.BaseModel):
    value: int
    nodes: list[Node] = []


class Several(pydantic.RootModel[list[River]]):
    pass


class OfTyping(typing_extensions.TypedDict):
    name: str


@dataclasses.dataclass
class Lake:
    name: str
    depth: int = 3


class Colour(enum.Enum):
    RED = "r"


class Point(NamedTuple):
    x: int
    y: int


RHINE = {"name": "Rhine", "km": 1230.0, "seen": "2024-01-02"}

A_RHINE = River(name="Rhine", km=1230.0, seen=datetime.date(2024, 1, 2))

READ: list[tuple[Any, object, object]] = [
    (River, RHINE, A_RHINE),
    (River, {"name": "Rhine", "km": None, "seen": None}, River(name="Rhine")),  # null where the schema has no null
    (Exact, {"seen": "2024-01-02"}, Exact(seen=datetime.date(2024, 1, 2))),
    (Node, {"value": 1, "nodes": [{"value": 2, "nodes": []}]}, Node(value=1, nodes=[Node(value=2)])),
    (Lake, {"name": "Como", "depth": 400}, Lake("Como", 400)),
    (OfTyping, {"name": "Como"}, {"name": "Como"}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (list[River], {"value": [RHINE]}, [A_RHINE]),
    (list[River], [RHINE], [A_RHINE]),  # of a server that does not enforce the schema
    (Several, {"value": [RHINE]}, Several([A_RHINE])),
    (River | Lake, {"value": {"name": "Como", "depth": 3}}, Lake("Como")),
    (River | None, {"value": None}, None),
    (Literal["a", "b"], {"value": "b"}, "b"),
    (Annotated[int, pydantic.Field(gt=3)], {"value": 4}, 4),
    (Colour, {"value": "r"}, Colour.RED),
    (Point, {"value": [1, 2]}, Point(1, 2)),
    (typing_extensions.TypeAliasType("Rivers", list[River]), {"value": [RHINE]}, [A_RHINE]),
    (Annotated[list[int], ["no hash"]], {"value": [1]}, [1]),
]


@pytest.mark.parametrize(("kind", "wire", "expected"), READ)
def test_an_answer_is_an_instance_of_its_type(kind: Any, wire: object, expected: object) -> None:
    assert is_schema(kind)
    response = answer(f"```json\n{json.dumps(wire)}\n```")
    reader_of(kind)(response)
    assert (response.parsed, response.parse_error, response.warnings) == (expected, None, [])
    assert type(response.parsed) is type(expected)
    boxed = isinstance(wire, dict) and wire.keys() == {"value"} and kind is not Node
    inner = cast("dict[str, object]", wire)["value"] if boxed else wire
    if None not in (inner.values() if isinstance(inner, dict) else [inner]):
        assert json_of(response, kind) == inner


@pytest.mark.parametrize("kind", [row[0] for row in READ])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_schema_of_a_type_is_that_of_an_object(kind: Any, dialect: str) -> None:
    schema = schema_of(kind)
    assert schema.get("type") == "object" or "$ref" in schema
    assert schema_of(kind) == schema
    provider = {"openai-chat": ms.OpenAIChat, "openai-responses": ms.OpenAIResponses, "anthropic": ms.Anthropic}.get(
        dialect, ms.Gemini
    )("k")
    request = ms.Request("gpt-5", "x", response_schema=kind)
    if kind not in (dict[str, int], Point) or dialect == "gemini":  # strict schemas have no open objects and no tuples
        assert DIALECTS[dialect].encode(request, "gpt-5", provider, stream=False).body


REFUSED: list[tuple[Any, str, str]] = [
    (River, '{"name":"rhine"}', "1 validation error for River\nname\n  Value error, a river begins with a capital"),
    (River, '{"km":"x"}', "2 validation errors for River\nname\n  Field required"),
    (River, "no", "1 validation error for River\n  Invalid JSON"),
    (River, "", "1 validation error for River\n  Invalid JSON"),
    (River, '{"name":"boom"}', "ZeroDivisionError: of the validator"),
    (list[River], '{"value":[{"name":"rhine"}]}', "1 validation error for list[River]\n0.name\n  Value error"),
    (Annotated[int, pydantic.Field(gt=3)], '{"value":3}',
        "1 validation error for constrained-int\n  Input should be gr"),
    (River, "[" * 500 + "]" * 500, "1 validation error for River\n  Invalid JSON: recursion limit exceeded"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "words"), REFUSED)
def test_an_answer_that_is_no_instance_has_pydantic_s_words(kind: Any, text: str, words: str) -> None:
    response = answer(text)
    reader_of(kind)(response)
    assert response.parsed is None
    assert response.parse_error.startswith(words)
    assert "https://" not in response.parse_error
    assert json_of(response, kind) is None


def test_only_a_complete_answer_has_a_parse_error() -> None:
    read = reader_of(River)
    cut = answer('{"name":"Rhi', ms.FinishReason.LENGTH)
    refused = answer("", refusal="No.")
    calls = ms.Response([ms.ToolCall("c", "f", "{}")], ms.FinishReason.TOOL_USE)
    for response in (cut, refused, calls):
        read(response)
        assert (response.parsed, response.parse_error) == (None, None)
    assert cut.warnings[0].startswith(
        "response_schema: nothing was parsed; the answer was cut off by the length limit ("
    )
    assert refused.warnings == ["response_schema: nothing was parsed; the model refused"]
    assert calls.warnings == []


def test_a_class_that_only_makes_a_schema_gives_json() -> None:
    class Plain:
        @staticmethod
        def model_json_schema() -> ms.JSONObject:
            return {"type": "array"}

    response = answer("[1]")
    reader_of(Plain)(response)
    assert (response.parsed, schema_of(Plain)) == ([1], {"type": "array"})
    assert json_of(response, Plain) == [1]
    with pytest.raises(ms.ProviderError, match="does not fit"):
        reader_of(Plain)(answer("{}"))


class Unknown:
    pass


UNUSABLE: list[tuple[Any, str]] = [
    (list[Unknown], r"pydantic cannot read list\[.*Unknown\]: Unable to generate pydantic-core schema for"),
    (list[Callable[[], int]], "has no JSON Schema: Cannot generate a JsonSchema for"),
]


@pytest.mark.parametrize(("kind", "words"), UNUSABLE)
def test_a_type_that_pydantic_cannot_use_is_refused(kind: Any, words: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=f"^response_schema: .*{words}"):
        schema_of(kind)


def test_a_type_needs_pydantic_and_a_schema_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass
    class Sea:
        name: str

    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ms.InvalidRequestError, match=r"needs pydantic for the type Sea: pip install pydantic$"):
        schema_of(Sea)
    response = answer('{"name":"x"}')
    reader_of({"type": "object"})(response)
    assert response.parsed == {"name": "x"}
