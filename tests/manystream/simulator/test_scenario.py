"""The content of answers: equal for equal questions, fitting the knobs and the schema, and whole texts and values."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from manystream.simulator import (
    Knobs,
    Prompt,
    Scenario,
    ToolDeclaration,
    ToolResult,
    combine,
    write_scenario,
)
from manystream.simulator.example_values import QuestionValues, Values, WordValues
from manystream.simulator.json_text import JSON, JSONObject
from manystream.simulator.knobs import TEXTS
from manystream.simulator.prompt import APIError
from manystream.simulator.scenario import is_forged, sign
from manystream.simulator.schema_example import example
from manystream.simulator.sentences import write_text

PROMPT = Prompt(model="sim-mixed", text="Hello.", characters=6)


TOOLS = (
    ToolDeclaration("first", {"type": "object", "properties": {"a": {"type": "string"}}}),
    ToolDeclaration("second", {"type": "object", "properties": {"b": {"type": "integer"}}}),
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_scenario_depends_on_the_question_and_the_seed(text: str) -> None:
    knobs = Knobs(kind="mixed", events=40, text=text)
    assert write_scenario(PROMPT, knobs) == write_scenario(PROMPT, knobs)
    assert write_scenario(PROMPT, replace(knobs, rate=50, delay=1)) == write_scenario(PROMPT, knobs)
    other = replace(PROMPT, text="Something else entirely.")
    assert write_scenario(other, knobs).text != write_scenario(PROMPT, knobs).text
    texts = {write_scenario(PROMPT, replace(knobs, seed=seed)).text for seed in range(8)}
    assert len(texts) > 1


def test_events_counts_the_pieces_of_thinking_and_text() -> None:
    for count, wording in itertools.product((0, 1, 2, 5, 40), TEXTS):
        text = write_scenario(PROMPT, Knobs(kind="text", events=count, text=wording))
        assert (len(text.thinking_pieces), len(text.text_pieces)) == (0, count)
        thinking = write_scenario(PROMPT, Knobs(kind="thinking", events=count, text=wording))
        assert len(thinking.thinking_pieces) + len(thinking.text_pieces) == count


def test_every_kind_has_its_parts() -> None:
    parts = {
        kind: (bool(scenario.thinking), bool(scenario.text), len(scenario.calls), scenario.finish)
        for kind in ("text", "thinking", "tools", "mixed")
        for scenario in [write_scenario(replace(PROMPT, tools=TOOLS), Knobs(kind=kind))]
    }
    assert parts == {
        "text": (False, True, 0, "stop"), "thinking": (True, True, 0, "stop"), "tools": (False, False, 1, "tool_use"),
        "mixed": (True, True, 2, "tool_use"),
    }  # fmt: skip


def test_tool_calls_are_to_declared_tools_and_fit_them() -> None:
    scenario = write_scenario(replace(PROMPT, tools=TOOLS), Knobs(kind="tools", calls=3))
    assert [name for name, _ in scenario.tool_calls] == ["first", "second", "first"]
    first, second, _ = (json.loads(arguments) for _, arguments in scenario.tool_calls)
    assert isinstance(first["a"], str)
    assert isinstance(second["b"], int)
    assert len({call.id for call in scenario.calls}) == 3


@pytest.mark.parametrize(
    ("choice", "called"), [("auto", []), ("none", []), ("required", ["first"]), ("second", ["second"])]
)
def test_tool_choice_is_obeyed(choice: str, called: list[str]) -> None:
    scenario = write_scenario(replace(PROMPT, tools=TOOLS, tool_choice=choice), Knobs())
    assert [name for name, _ in scenario.tool_calls] == called


def test_one_call_where_parallel_ones_are_not_allowed() -> None:
    assert len(write_scenario(replace(PROMPT, tools=TOOLS, parallel=False), Knobs(kind="mixed", calls=5)).calls) == 1


def test_steps_is_the_number_of_rounds_before_the_text() -> None:
    knobs = Knobs(kind="tools", steps=2)
    answers = (ToolResult("first", "Rain"),)
    rounds = [
        write_scenario(replace(PROMPT, tools=TOOLS, rounds=number, tool_results=answers if number else ()), knobs)
        for number in range(3)
    ]
    assert [scenario.finish for scenario in rounds] == ["tool_use", "tool_use", "stop"]
    assert "The tool first answered: Rain" in rounds[2].text
    assert len({scenario.identity for scenario in rounds}) == 3


def test_a_required_call_ends_too_so_that_agent_loops_do() -> None:
    answered = replace(
        PROMPT, tools=TOOLS, tool_choice="required", rounds=1, tool_results=(ToolResult("first", "Rain"),)
    )
    assert write_scenario(answered, Knobs()).finish == "stop"


def test_the_output_limit_applies_without_the_knob_events() -> None:
    limited = write_scenario(replace(PROMPT, max_tokens=5), Knobs())
    assert (len(limited.text_pieces), limited.finish, limited.tokens.output) == (5, "length", 5)
    assert write_scenario(replace(PROMPT, max_tokens=5), Knobs(events=9)).finish == "stop"


def test_length_cuts_the_last_tool_call_in_the_middle() -> None:
    scenario = write_scenario(replace(PROMPT, tools=TOOLS), Knobs(kind="tools", finish="length"))
    [call] = scenario.calls
    assert (call.complete, scenario.finish) == (False, "length")
    with pytest.raises(json.JSONDecodeError):
        json.loads(call.arguments)


def test_a_signature_of_another_text_is_forged() -> None:
    assert not is_forged(sign("thinking"), "thinking")
    assert is_forged(sign("thinking"), "thinking!")
    assert not is_forged("somebody else's", "anything")


@pytest.mark.parametrize(
    ("characters", "tools", "cached", "tokens"),
    [(0, (), 0, (1, 0)), (6, (), 1, (2, 1)), (400, TOOLS, 50, (117, 50)), (400, TOOLS, 1000, (117, 117))],
)
def test_input_tokens_follow_the_length_and_the_tools(
    characters: int, tools: tuple[ToolDeclaration, ...], cached: int, tokens: tuple[int, int]
) -> None:
    """Four characters are one token, a tool is eight tokens, and each prompt has at least one token."""
    scenario = write_scenario(replace(PROMPT, characters=characters, tools=tools), Knobs(cached=cached))
    assert (scenario.tokens.input, scenario.tokens.cached) == tokens


FOLDER = Path(__file__).parent / "scenarios"


TOOLS_WHOLE = (
    ToolDeclaration("first", {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}),
    ToolDeclaration("second", {"type": "string"}), ToolDeclaration("third", {}),
)  # fmt: skip


PLAIN = Prompt(model="m", text="What is the weather in Paris?", characters=29)


TOOLED = replace(PLAIN, tools=TOOLS_WHOLE)


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
    "long": (replace(PLAIN, characters=4000, tools=TOOLS_WHOLE), ("cached=1000", "cached=1100")),
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


SCHEMAS_WHOLE: list[JSON] = [
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
    for schema in SCHEMAS_WHOLE:
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
