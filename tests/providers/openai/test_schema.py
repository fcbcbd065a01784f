"""Schemas and other options in a request, and the warnings for what is changed or not sent."""

from __future__ import annotations

import copy
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

import manystream as ms
from manystream.providers.model.messages import File, Image, Message, Text, Thinking
from manystream.providers.model.request import Request
from manystream.providers.openai.schema import DROPPED, REFUSED, is_strict, strict_schema
from tests.providers.openai.responses.wire import body_of, warnings_of


def object_of(**properties: ms.JSON) -> ms.JSONObject:
    return {"type": "object", "properties": properties}


def closed(**properties: ms.JSON) -> ms.JSONObject:
    return {**object_of(**properties), "required": [*properties], "additionalProperties": False}


def property_of(schema: ms.JSON, **root: ms.JSON) -> ms.JSON:
    """Return the adapted form of a property's schema."""
    properties = strict_schema({**object_of(a=schema), **root})["properties"]
    assert isinstance(properties, dict)
    return properties["a"]


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
        ({"type": "array", "items": object_of()}, {"type": "array", "items": closed()}),
        ({"items": {"type": "string"}}, {"type": "array", "items": {"type": "string"}}),
        ({"properties": {"x": {"type": "null"}}}, closed(x={"type": "null"})),
        ({"anyOf": [object_of(), {"type": "null"}]}, {"anyOf": [closed(), {"type": "null"}]}),
        ({"oneOf": [{"type": "string"}, {"type": "null"}], "discriminator": {"propertyName": "k"}},
            {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"allOf": [{"type": "string"}], "description": "d"}, {"type": "string", "description": "d"}),
        ({"type": ["object", "null"], "properties": {}}, {**closed(), "type": ["object", "null"]}),
    ],
)  # fmt: skip
def test_each_kind_of_schema(schema: ms.JSON, adapted: ms.JSON) -> None:
    assert property_of(schema) == adapted


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
    with pytest.raises(ms.InvalidRequestError) as raised:
        strict_schema(object_of(a={"type": "string", keyword: {}}), "tools[3].parameters")
    assert raised.value.field == f"tools[3].parameters.properties.a.{keyword}"
    assert f"strict mode {NOT_TAKEN[keyword]}" in str(raised.value)


@pytest.mark.parametrize("keyword", GONE)
def test_every_dropped_keyword_is_gone(keyword: str) -> None:
    assert property_of({"type": "string", keyword: "x"}) == {"type": "string"}


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
        **closed(kind={"const": "cash", "title": "Kind", "type": "string"}),
        "title": "Cash",
    }
    Order.model_validate({"payment": {"kind": "cash"}, "note": None, "parts": []})


TEXT: ms.JSONObject = {"type": "string"}


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

REFUSED_SCHEMA_NOTICE: list[tuple[ms.JSONObject, str]] = [
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


@pytest.mark.parametrize(
    ("schema", "text"),
    REFUSED_SCHEMA_NOTICE,
    ids=[f"{number} {row[1]}" for number, row in enumerate(REFUSED_SCHEMA_NOTICE)],
)
def test_a_schema_is_refused_by_path_and_reason(schema: ms.JSONObject, text: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        strict_schema(schema)
    assert str(caught.value) == text
    assert not is_strict(schema)


def test_a_root_without_properties_is_an_empty_object() -> None:
    assert strict_schema({"type": "object"}) == {**closed(), "type": "object"}
    assert strict_schema({"type": "object"}, "tools[0].parameters") == closed()


def test_a_root_with_another_name_is_a_root() -> None:
    root: ms.JSONObject = {"$ref": "#/$defs/B", "$defs": {"B": object_of(a=TEXT)}}
    assert strict_schema(root, "tools[0].parameters") == {**closed(a=TEXT), "$defs": {"B": closed(a=TEXT)}}


@pytest.mark.parametrize("required", [["b", "a"], ["a", "b"]])
def test_a_complete_list_of_required_names_keeps_its_order(required: list[ms.JSON]) -> None:
    schema: ms.JSONObject = {**object_of(a=TEXT, b=TEXT), "required": required}
    assert strict_schema(schema)["required"] == required


@pytest.mark.parametrize("required", [["a"], ["a", "b", "c"], "ab", None, [1, 2]])
def test_any_other_list_of_required_names_is_completed(required: ms.JSON) -> None:
    schema = {**object_of(a=TEXT, b=TEXT), "required": required}
    assert strict_schema(schema)["required"] == ["a", "b"]


@pytest.mark.parametrize("name", ["$defs", "definitions"])
def test_references_find_escaped_names(name: str) -> None:
    definitions: ms.JSONObject = {"a/b~c": {**TEXT, "title": "T"}}
    found = property_of({"$ref": f"#/{name}/a~1b~0c", "description": "d"}, **{name: definitions})
    assert found == {**TEXT, "title": "T", "description": "d"}


def test_a_dropped_keyword_beside_a_reference_is_no_neighbour() -> None:
    reference: ms.JSONObject = {"$ref": "#/$defs/B"}
    definitions: ms.JSONObject = {"B": TEXT}
    assert property_of({**reference, "default": None, "$comment": "c"}, **{"$defs": definitions}) == reference


def test_definitions_of_both_schemas_are_merged() -> None:
    inner: ms.JSONObject = {"type": "string", "$defs": {"A": TEXT}, "description": "inner"}
    assert property_of({"allOf": [inner], "$defs": {"B": TEXT}, "description": "outer"}) == {
        "type": "string", "$defs": {"B": TEXT}, "description": "outer",
    }  # fmt: skip


def test_a_list_of_recursions_ends() -> None:
    node = object_of(next={"$ref": "#/$defs/N"}, other={"$ref": "#/$defs/N", "title": "o"})
    schema: ms.JSONObject = {**object_of(a={"$ref": "#/$defs/N", "title": "t"}), "$defs": {"N": node}}
    reference: ms.JSONObject = {"$ref": "#/$defs/N"}
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


HI = [Message.user("Hi")]
OPEN: ms.JSONObject = {"type": "object", "additionalProperties": {"type": "integer"}}
CLOSED = "strict mode needs every property by its name; must be false or absent"
CALL = Message.tool_call("c1", "f", "{}")
OWN, ELSEWHERE = "openai-responses", "elsewhere"

ERRORS: list[tuple[Request, str]] = [
    (Request("gpt-4.1", [CALL]), "messages: contain nothing that can be sent to Responses: no text, no call, no file"),
    (Request("gpt-5", HI, thinking=ms.ThinkingConfig(budget_tokens=1)),
        "thinking.budget_tokens: the server takes no budget; give a level or an effort"),
    (Request("gpt-5", HI, tools=[ms.Tool("f"), ms.Tool("g", parameters=OPEN, strict=True)]),
        f"tools[1].parameters.additionalProperties: {CLOSED}"),
    (Request("gpt-5", HI, response_schema=OPEN), f"response_schema.additionalProperties: {CLOSED}"),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "text"), ERRORS, ids=[row[1] for row in ERRORS])
def test_an_error_names_the_field_and_the_reason(request_: Request, text: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        body_of(request_)
    assert str(caught.value) == text


MARK = ms.CacheControl()
MARK_LEFT_OUT = "cache_control: not sent where Responses has no place for it; it caches by itself"
FOREIGN = "messages: thinking that 'openai-responses' did not make is not sent to it"

WARNINGS: dict[str, tuple[Request, list[str]]] = {
    "no stop sequences, no seed": (Request("gpt-4.1", HI, stop=["x"], seed=0),
        ["stop: not sent; the Responses API has no stop sequences", "seed: not sent; the Responses API has no seed"]),
    "a small limit": (Request("gpt-4.1", HI, max_output_tokens=15),
        ["max_output_tokens: 15 is below the API's minimum; sent as 16"]),
    "the smallest limit": (Request("gpt-4.1", HI, max_output_tokens=16), []),
    "sampling": (Request("o3", HI, temperature=0.5, top_p=0.5),
        [f"{name}: not sent; 'o3' takes it only without reasoning" for name in ("temperature", "top_p")]),
    "no effort": (Request("gpt-4.1", HI, thinking=ms.ThinkingLevel.LOW),
        ["thinking: not sent; 'gpt-4.1' takes no effort"]),
    "a budget beside a level": (Request("gpt-5", HI,
        thinking=ms.ThinkingConfig(level=ms.ThinkingLevel.LOW, budget_tokens=0)),
        ["thinking.budget_tokens: not sent; the Responses API has efforts, no budgets"]),
    "a budget beside an effort": (Request("gpt-5", HI, thinking=ms.ThinkingConfig(effort="low", budget_tokens=9)),
        ["thinking.budget_tokens: not sent; the Responses API has efforts, no budgets"]),
    "a mark of a tool": (Request("gpt-5.6", HI, tools=[ms.Tool("f", cache_control=MARK)]), [MARK_LEFT_OUT]),
    "a mark of the system prompt": (Request("gpt-5.6", HI, system=[Text("s", cache_control=MARK)]), [MARK_LEFT_OUT]),
    "two marks of an older model": (Request("gpt-5.5", [Message.user([Text("a", cache_control=MARK)])],
        system=[Text("s", cache_control=MARK)]), [MARK_LEFT_OUT]),
    "a mark that is sent": (Request("gpt-5.6", [Message.user([Text("a", cache_control=MARK)])]), []),
    "a call without a result": (Request("gpt-4.1", [*HI, CALL]), ["messages: call 'c1' has no result and is not sent"]),
    "a result without a call": (Request("gpt-4.1", [*HI, Message.tool_result("c9", "1")]),
        ["messages: result 'c9' has no call and is not sent"]),
    "a failed result": (Request("gpt-4.1", [CALL, Message.tool_result("c1", "no", is_error=True)]),
        ["messages: a result's is_error is not sent; Responses has no mark for failed results"]),
    "an assistant's picture and file": (Request("gpt-4.1",
        [*HI, Message.assistant([Text("a"), Image(url="u"), File(file_id="f")])]),
        [f"messages: an assistant's {kind} is not sent; Responses takes none" for kind in ("Image", "File")]),
    "another maker's thinking": (Request("gpt-5", [*HI,
        Message.assistant([Thinking("t", state=ms.ProviderState(ELSEWHERE, {})), Text("a")])]), [FOREIGN]),
    "thinking of no maker": (Request("gpt-5", [*HI, Message.assistant([Thinking("t"), Text("a")])]), [FOREIGN]),
    "redacted thinking": (Request("gpt-5", [*HI,
        Message.assistant([ms.RedactedThinking("x", ms.ProviderState(OWN, {})), Text("a")])]), [FOREIGN]),
    "thinking without a ciphertext": (Request("gpt-5",
        [*HI, Message.assistant([Thinking("t", state=ms.ProviderState(OWN, {"id": "r"})), Text("a")])]),
        ["messages: reasoning without its ciphertext is not sent; the server keeps none"]),
    "thinking that led to nothing": (Request("gpt-5",
        [*HI, Message.assistant(Thinking("t", state=ms.ProviderState(OWN, {"encrypted_content": "e"}))), *HI]),
        ["messages: reasoning without the item that it led to is not sent; Responses refuses it"]),
    "an own call without an output": (Request("gpt-5",
        [*HI, Message.assistant([ms.ProviderBlock(OWN, {"type": "shell_call", "call_id": "s1", "id": "i1"})])]),
        ["messages: shell_call 's1' has no output and is not sent"]),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "texts"), WARNINGS.values(), ids=WARNINGS)
def test_a_warning_names_the_field_and_the_reason(request_: Request, texts: list[str]) -> None:
    assert warnings_of(request_) == texts
