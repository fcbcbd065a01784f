"""Whole answers before they have a wire format, whole texts, and whole values of schemas.

The files in the folder `scenarios` hold them. The same question and knobs give the same answer in every release.
"""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from manystream.simulator import Knobs, Prompt, Scenario, ToolDeclaration, ToolResult, combine, write_scenario
from manystream.simulator.example_values import QuestionValues, Values, WordValues
from manystream.simulator.json_text import JSON, JSONObject
from manystream.simulator.prompt import APIError
from manystream.simulator.scenario import ScriptedCall, Tokens, is_forged, sign
from manystream.simulator.schema_example import example
from manystream.simulator.sentences import write_text
from manystream.simulator.wording import WORDS

FOLDER = Path(__file__).parent / "scenarios"
TOOLS = (
    ToolDeclaration("first", {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}),
    ToolDeclaration("second", {"type": "string"}), ToolDeclaration("third", {}),
)  # fmt: skip
PLAIN = Prompt(model="m", text="What is the weather in Paris?", characters=29)
TOOLED = replace(PLAIN, tools=TOOLS)
RESULTS = (ToolResult("first", "Rain  all day"), ToolResult("second", ""))
SCHEMA: JSONObject = {"type": "object", "properties": {"city": {"type": "string"}, "sunny": {"type": "boolean"}}}

PROMPTS: dict[str, tuple[Prompt, tuple[str, ...]]] = {
    "plain": (
        PLAIN,
        (
            "", "kind=text,events=3", "kind=text,events=0", "kind=thinking", "kind=thinking,events=1",
            "kind=thinking,events=3", "kind=thinking,events=8", "kind=mixed", "kind=tools", "kind=tools,calls=0",
            "kind=tools,calls=3", "kind=mixed,calls=1,events=5", "kind=tools,steps=0", "seed=3", "seed=0,events=5",
            "text=unicode,events=6", "text=unicode,kind=mixed,events=9", "stamp=1,events=3",
            "stamp=1,kind=thinking,events=4",            "redacted=1,events=5", "redacted=1,kind=thinking,events=5",
            "cached=5", "cached=500",
            "finish=length,events=4",            "finish=length,kind=tools", "finish=length,kind=mixed,events=3",
            "finish=length,events=0",
            "finish=content_filter,kind=mixed,events=6", "finish=length,redacted=1,events=4",
        ),
    ),
    "tools": (TOOLED, ("", "kind=tools,calls=4", "kind=mixed", "finish=length,kind=mixed,events=2")),
    "one at a time": (replace(TOOLED, parallel=False), ("kind=mixed", "kind=tools,calls=0")),
    "named": (replace(TOOLED, tool_choice="second"), ("", "calls=2", "kind=mixed,events=2")),
    "unknown": (replace(TOOLED, tool_choice="fourth"), ("kind=tools",)),
    "required": (replace(TOOLED, tool_choice="required"), ("", "calls=0", "kind=mixed")),
    "required, no tools": (replace(PLAIN, tool_choice="required"), ("calls=2",)),
    "no call": (replace(TOOLED, tool_choice="none"), ("kind=mixed,events=4",)),
    "answered": (
        replace(TOOLED, tool_results=RESULTS, rounds=1),
        ("", "kind=tools", "kind=tools,steps=2", "kind=mixed,steps=2", "finish=length"),
    ),
    "answered, required": (
        replace(TOOLED, tool_results=RESULTS, rounds=1, tool_choice="required"),
        ("", "steps=2", "kind=tools,steps=2"),
    ),
    "schema": (replace(PLAIN, schema=SCHEMA), ("", "kind=thinking", "kind=tools", "text=unicode,seed=1")),
    "limit": (replace(PLAIN, max_tokens=3), ("", "kind=thinking", "events=9", "kind=tools", "redacted=1")),
    "limit of mixed": (replace(PLAIN, max_tokens=24), ("", "kind=mixed")),
    "limit of calls": (replace(TOOLED, max_tokens=28), ("kind=mixed", "kind=tools")),
    "limit of nothing": (replace(PLAIN, max_tokens=0), ("", "redacted=1", "events=0")),
    "long": (replace(PLAIN, characters=4000, tools=TOOLS), ("cached=1000", "cached=1100")),
}  # fmt: skip
"""Title → a prompt, and the directives with which it is answered."""


def scenarios() -> str:
    return "\n".join(
        f"--- {title}: {directive}\n" + json.dumps(asdict(write_scenario(prompt, combine(Knobs(), directive))),
        ensure_ascii=False, indent=1) for title, (prompt, directives) in PROMPTS.items() for directive in directives
    )  # fmt: skip


QUESTIONS = (
    "Tell me of rivers.", "Why is the sky blue?", "word " * 13, "",
    "Explain my very long and rather complicated topic now",
)  # fmt: skip


def texts() -> str:
    counts = (*range(-1, 14), 20, 21, 22, 80)
    return "\n".join(
        f"--- {name}, {count}: {question}\n" + "|".join(write_text(question, count, random.Random(count), kind))
        for name, kind in (("answer", "answer"), ("thinking", "thought")) for question in QUESTIONS for count in counts
    )  # fmt: skip


SCHEMAS: list[JSON] = [
    {}, True, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "null"}, {"type": "odd"},
    {"type": []}, {"type": ["null"]}, {"type": ["null", "integer"]}, {"type": "ARRAY", "items": {"type": "NUMBER"}},
    {"const": None}, {"const": {"a": 1}, "enum": [2]}, {"enum": []}, {"enum": [3, "Paris", "paris"]}, {"enum": 4},
    {"anyOf": [{"type": "null"}, {"const": 1}], "type": "integer"}, {"oneOf": [{"const": 2}], "anyOf": []},
    {"anyOf": [{"type": "null"}], "type": "boolean"},
    {"allOf": [{"type": "integer"}, {"minimum": 7, "type": "string"}]},
    {"properties": {"a": {"const": 1}}, "allOf": [{"properties": {"a": {"const": 2}, "b": {"const": 3}}}]},
    {"allOf": [{"$ref": "#/$defs/x~1y~0z"}], "$defs": {"x/y~z": {"const": 5}}}, {"$ref": "#/$defs/none", "$defs": {}},
    {"$ref": "other.json", "const": 6}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"const": 7}}},
    {"items": {"const": 8}}, {"type": "array"}, {"type": "array", "items": {"const": 1}, "minItems": 3},
    {"type": "array", "items": {"const": 1}, "minItems": 21}, {"type": "array", "items": {"const": 1}, "minItems": 20},
    {"type": "array", "items": {"const": 1}, "minItems": 3, "maxItems": 2}, {"type": "array", "maxItems": 0},
    {"type": "string", "minLength": 40}, {"type": "string", "maxLength": 4}, {"type": "string", "maxLength": 0},
    {"type": "string", "minLength": 5, "maxLength": 3}, {"type": "string", "format": "uuid", "maxLength": 8},
    {"type": "string", "format": "date-time", "minLength": 25}, {"type": "string", "minLength": True},
    {"type": "integer", "minimum": 3}, {"type": "integer", "minimum": 4}, {"type": "integer", "maximum": 3},
    {"type": "integer", "maximum": 2}, {"type": "integer", "exclusiveMinimum": 3},
    {"type": "integer", "exclusiveMinimum": 2},    {"type": "integer", "exclusiveMaximum": 4},
    {"type": "integer", "exclusiveMaximum": 3},
    {"type": "integer", "minimum": 9, "exclusiveMinimum": 4}, {"type": "integer", "maximum": 1, "exclusiveMaximum": 9},
    {"type": "integer", "minimum": 5, "maximum": 2}, {"type": "number", "minimum": 5, "maximum": 2},
    {"type": "number", "minimum": 3.25}, {"type": "number", "maximum": 2.75}, {"type": "number", "maximum": "2"},
    {"type": "object", "properties": {"city": {}, "to": True, "hour": {"type": "integer"}}, "required": ["city"]},
    {"type": "object", "required": "all", "properties": {"a": {"properties": {"b": {"properties": {"c": {"properties": {
        "d": {"const": 1}, "e": {"const": 2}}, "required": ["e"]}}}}}}},
    {"type": "array", "minItems": 2, "items": {"type": "array", "minItems": 2, "items": {"type": "array", "minItems": 2,
        "items": {"type": "array", "minItems": 2, "items": {"const": 1}}}}},
    {"properties": {"next": {"$ref": "#"}}, "required": ["next"]},
    {"properties": {"next": {"anyOf": [{"$ref": "#"}]}}, "required": ["next"]},
    {"items": {"$ref": "#"}}, {"anyOf": [{"$ref": "#"}]},
]  # fmt: skip


def values() -> str:
    kinds: list[tuple[str, Values]] = []
    for schema in SCHEMAS:
        kinds.append((json.dumps(schema), QuestionValues("Is Paris nice?")))
        kinds.append((json.dumps(schema), WordValues(itertools.cycle(["a", "some", "words"]))))
    return "\n".join(f"{title}\n    {json.dumps(example(json.loads(title), source))}" for title, source in kinds)


ASKED = (
    "Book 3 seats from New York City to St. John's near Zürich, 12.5 EUR each.", "Is it 1234567 or 12.34567 in rome?",
    "Extract: Harbour & Sons Ltd. owes Ada 40", "simulate: events=4 in Paris", ' {"simulate": {"events": 4}} in Paris',
    "x" * 395 + " in Paris", "x" * 394 + " in Paris at 7", "Explain rivers.",
)  # fmt: skip
NAMES = (
    "", "city", "cities", "departureCity", "origin_city", "destination", "destinations", "origin", "location2", "Place",
    "town", "address", "addresses", "name", "names", "fullName", "id", "URL", "url", "query", "queries", "unit",
    "units",
    "other", "others", "s", "123", "hour", "hours", "year", "month", "latitude", "lng", "age", "price", "total_amount",
    "page", "limit", "temperature", "count",
)  # fmt: skip


def arguments() -> str:
    lines: list[str] = []
    for question, position in itertools.product(ASKED, (0, 1, 6)):
        lines.append(f"--- {question} ({position})")
        values = QuestionValues(question, position)
        lines += [f"{name}: {values.text(name)} / {values.number(name)}" for name in NAMES]
        lines.append(
            f"{values.flag()} / {values.choice([1, '', 'EUR', 'rome', 'PARIS'])} / {values.choice(['b', 'q'])}"
        )
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["scenarios", "texts", "values", "arguments"])
def test_the_answers_are_these_texts(name: str) -> None:
    shown = {"scenarios": scenarios, "texts": texts, "values": values, "arguments": arguments}[name]
    assert shown() == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def test_words_that_trouble_parsers_are_in_this_order() -> None:
    assert " ".join(WORDS[:29]) == (
        "the stream carries many small pieces and each of them arrives in order while others wait a river crosses the"
        " plain under stone bridges where boats move slowly towards"
    )
    assert WORDS[29:] == (
        "Zürich", "naïve", "façade", "Łódź", "Ελλάδα", "москва", "東京", "서울", "🙂", "👩\u200d🚀", "line\u2028break",
        'quote"d', "back\\slash", "tab\tbed", "new\nline",
    )  # fmt: skip


def test_prompts_and_answers_are_empty_by_default() -> None:
    assert Prompt(model="m") == Prompt(
        model="m", text="", stream=False, tools=(), tool_choice="auto", parallel=True, tool_results=(), rounds=0,
        schema=None, max_tokens=None, characters=0, array=False, body={},
    )  # fmt: skip
    assert Scenario(identity="i", model="m") == Scenario(
        identity="i", model="m", thinking_pieces=(), redacted=None, text_pieces=(), calls=(), finish="stop",
        tokens=Tokens(input=0, cached=0, output=0, thinking=0),
    )  # fmt: skip
    assert ScriptedCall("1", "f", ("{", "}")).complete
    assert ScriptedCall("1", "f", ("{", "}")).arguments == "{}"


def test_an_error_has_only_a_status_and_a_message_by_default() -> None:
    failure = APIError(404, "gone")
    assert vars(failure) == {
        "status": 404, "message": "gone", "param": None, "code": None, "retry_after": None, "type": None,
        "headers": [], "details": None,
    }  # fmt: skip
    assert str(failure) == "gone"


def test_ids_and_signatures_are_made_of_identity_and_text() -> None:
    scenario = Scenario(identity="1", model="m", thinking_pieces=("a", "b"))
    assert scenario.id("x_") == "x_136ddb1a78c95a183310f2d0"
    assert scenario.id("x_", 4, "y") == "x_bc51"
    assert scenario.signature == sign("ab") == "simsf65a5e77ff5e2690ad316b7b9fc28dd90cc5c9a37e617ac3eee1403de3cf9a55"
    assert (is_forged("sims", ""), is_forged("sim", ""), is_forged(sign("a"), "a")) == (True, False, False)
