"""The values of arguments and of structured answers: they fit the question and the names."""

from __future__ import annotations

import pytest

from manystream.simulator import Knobs, Prompt, ToolDeclaration, write_scenario
from manystream.simulator.example_values import QuestionValues
from manystream.simulator.json_text import JSON
from manystream.simulator.schema_example import example
from manystream.simulator.sentences import DEFAULT_TOPIC

ARGUMENTS: list[tuple[str, dict[str, JSON], JSON]] = [
    ("What is the weather in New York?", {"city": {"type": "string"}}, {"city": "New York"}),
    ("Will it rain?", {"city": {"type": "string"}}, {"city": "Rome"}),
    ("Book me a train from Porto to Łódź.", {"origin": {"type": "string"}, "destinationCity": {"type": "string"},
        "to_destination": {"type": "string"}},
        {"origin": "Porto", "destinationCity": "Porto", "to_destination": "Łódź"}),
    ("Find rivers in Poland.", {"query": {"type": "string"}}, {"query": "rivers in Poland"}),
    ("Buy 12 apples.", {"quantity": {"type": "integer"}, "year": {"type": "integer"}}, {"quantity": 12, "year": 2024}),
    ("Buy 12 apples.", {"quantity": {"type": "integer", "maximum": 5}}, {"quantity": 5}),
    ("Hello", {"price": {"type": "number"}, "paid": {"type": "boolean"}}, {"price": 19.5, "paid": True}),
    ("In fahrenheit, please.", {"unit": {"enum": ["celsius", "fahrenheit"]}}, {"unit": "fahrenheit"}),
    ("Hello", {"unit": {"enum": ["celsius", "fahrenheit"]}}, {"unit": "celsius"}),
    ("Hello", {"cities": {"type": "array", "items": {"type": "string"}}}, {"cities": ["Rome"]}),
    ("Hello", {"names": {"type": "array", "items": {"type": "string"}}}, {"names": ["Ada Lovelace"]}),
    ("Extract: Harbour Ltd., 12.50 EUR", {"seller": {"type": "string"}, "total": {"type": "number"},
        "currency": {"enum": ["USD", "EUR"]}}, {"seller": "Harbour Ltd", "total": 12.5, "currency": "EUR"}),
    ("Will it rain?", {"city1": {"type": "string"}, "city_2": {"type": "string"}, "pages3": {"type": "integer"}},
        {"city1": "Rome", "city_2": "Zürich", "pages3": 1}),
    ("Will it rain?", {"departureCity": {"type": "string"}, "Town": {"type": "string"}},
        {"departureCity": "Rome", "Town": "Zürich"}),
    ("pelican", {"abc": {"type": "string"}, "2024": {"type": "string"}}, {"abc": "pelican", "2024": "pelican"}),
    ("simulate: seed=7", {"abc": {"type": "string"}}, {"abc": DEFAULT_TOPIC}),
    ("simulate: seed=7", {"count": {"type": "integer"}}, {"count": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("question", "properties", "arguments"), ARGUMENTS)
def test_arguments_fit_the_question_and_the_names(question: str, properties: dict[str, JSON], arguments: JSON) -> None:
    assert example({"type": "object", "properties": properties}, QuestionValues(question)) == arguments


def test_each_call_of_an_answer_has_its_own_place() -> None:
    city: dict[str, JSON] = {"type": "object", "properties": {"city": {"type": "string"}}}
    prompt = Prompt(model="m", text="Will it rain in Paris?", tools=(ToolDeclaration("weather", city),))
    calls = write_scenario(prompt, Knobs(kind="tools", calls=3)).tool_calls
    assert [arguments for _, arguments in calls] == ['{"city":"Paris"}', '{"city":"Zürich"}', '{"city":"Łódź"}']


def value(name: str, question: str) -> JSON:
    whole: JSON = {"type": "object", "properties": {name: {"type": "string"}}}
    values = example(whole, QuestionValues(question))
    assert isinstance(values, dict)
    return values[name]


def test_the_places_that_a_question_does_not_name() -> None:
    places = [QuestionValues("Hello", position).text("city") for position in range(6)]
    assert places == ["Rome", "Zürich", "Łódź", "Lyon", "Porto", "Rome"]


PLACES: dict[str, tuple[str, str]] = {
    "cities": ("at Lyon", "Lyon"), "city": ("near Lyon", "Lyon"), "location": ("in Lyon", "Lyon"),
    "place": ("for Lyon", "Lyon"), "town": ("to Lyon", "Lyon"), "origin": ("to Lyon from Porto", "Porto"),
    "destination": ("from Lyon to Porto", "Porto"),
}  # fmt: skip
"""Last word of a property's name → words of a question, and the place in them that belongs to the property."""


@pytest.mark.parametrize("name", PLACES)
def test_a_property_gets_the_place_that_the_question_names(name: str) -> None:
    words, place = PLACES[name]
    assert value(name, f"The way {words}") == place
    assert value(name, "Hello") == "Rome"
