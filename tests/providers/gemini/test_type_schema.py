"""Types as the schema of an answer."""

from __future__ import annotations

import enum
from typing import Any

import pydantic
import pytest
from google.genai import types

import manystream as ms
from tests.providers.sdk_bodies import sent_by_us


class City(pydantic.BaseModel):
    name: str
    twin: City | None = None


class River(enum.Enum):
    RHINE = "Rhine"
    WESER = "Weser"


TYPES: list[tuple[Any, dict[str, object]]] = [
    (list[str], {"type": "array", "items": {"type": "string"}}),
    (list[list[int]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
    (list[River], {"type": "array", "items": {"type": "string", "enum": ["Rhine", "Weser"]}}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
]


@pytest.mark.parametrize(("kind", "schema"), TYPES)
def test_a_type_is_the_schema_of_geminis_answer(kind: type, schema: dict[str, object]) -> None:
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=kind)
    request = ms.Request.from_gemini(model="gemini-2.5-flash", contents="Which?", config=config)
    assert request.response_schema == schema
    written: Any = sent_by_us("gemini", request)
    assert written["generationConfig"] == {"responseMimeType": "application/json", "responseJsonSchema": schema}


def test_a_list_of_a_class_has_its_definitions_at_the_root() -> None:
    config = {"response_mime_type": "application/json", "response_schema": list[City]}
    request = ms.Request.from_gemini(model="gemini-2.5-flash", contents="Which?", config=config)
    schema: Any = request.response_schema
    assert schema["items"] == {"$ref": "#/$defs/City"}
    assert schema["$defs"]["City"]["required"] == ["name"]


def test_an_enum_is_the_schema_of_geminis_answer() -> None:
    config = types.GenerateContentConfig(response_mime_type="text/x.enum", response_schema=River)
    request = ms.Request.from_gemini(model="gemini-2.5-flash", contents="Which?", config=config)
    written: Any = sent_by_us("gemini", request)
    assert written["generationConfig"] == {
        "responseMimeType": "text/x.enum",
        "responseSchema": {"type": "STRING", "enum": ["Rhine", "Weser"]},
    }


class Level(enum.Enum):
    LOW = 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Level, r"config\.response_schema: must have texts as values: Level\.LOW has none"),
        (list[Level], r"config\.response_schema\[…\]: must have texts as values: Level\.LOW has none"),
        (list[object],
            r"config\.response_schema\[…\]: must be a class with model_json_schema\(\), not the class object"),
        (list[str | int], r"config\.response_schema\[…\]: has no JSON Schema: str \| int"),
        (dict, r"config\.response_schema: must be a class with model_json_schema\(\)"),
    ],
)  # fmt: skip
def test_a_type_without_a_schema_is_named(kind: type, message: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match=message):
        ms.Request.from_gemini(model="gemini-2.5-flash", contents="Which?", config={"response_schema": kind})
