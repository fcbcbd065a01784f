"""Requests: the whole body, each option, the conversation as steps, and what comes back is sent back unchanged."""

from __future__ import annotations

import pytest
from google.genai._gaos.types.interactions.createmodelinteraction import CreateModelInteraction

import manystream as ms
from tests.providers.gemini_interactions.wire import (
    DIALECT,
    PROVIDER,
    sent,
    text,
    warned,
)

MODEL = "gemini-3.5-flash"

HELLO = [ms.Message(ms.Role.USER, [ms.Text("Hello")])]

LOOK = ms.Tool("look", "Look.", {"type": "object", "properties": {"city": {"type": "string"}}})


def test_a_whole_request() -> None:
    request = ms.Request(
        MODEL,
        HELLO,
        system=[ms.Text("Be brief."), ms.Text("Be kind.")],
        tools=[LOOK],
        tool_choice="look",
        thinking="med",
        max_output_tokens=100,
        temperature=0.5,
        top_p=0.9,
        stop=["END"],
        seed=7,
        response_schema={"type": "object", "properties": {"a": {"type": "integer"}}},
        metadata={"team": "a", "No": "b"},
        extra_body={
            "service_tier": "flex",
            "generation_config": {"speech_config": []},
            "tools": [{"type": "code_execution"}],
        },
    )
    body = sent(request, stream=True)
    assert body == {
        "model": MODEL,
        "system_instruction": "Be brief.\n\nBe kind.",
        "input": [{"type": "user_input", "content": [text("Hello")]}],
        "tools": [
            {"type": "function", "name": "look", "description": "Look.", "parameters": LOOK.parameters},
            {"type": "code_execution"},
        ],
        "generation_config": {
            "max_output_tokens": 100,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop_sequences": ["END"],
            "seed": 7,
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["look"]}},
            "thinking_level": "medium",
            "thinking_summaries": "auto",
            "speech_config": [],
        },
        "response_format": {
            "type": "text",
            "mime_type": "application/json",
            "schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
        "labels": {"team": "a"},
        "store": False,
        "stream": True,
        "service_tier": "flex",
    }
    assert CreateModelInteraction.model_validate(body).model_dump()["generation_config"]["seed"] == 7
    wire = DIALECT.encode(request, MODEL, PROVIDER, stream=True)
    assert wire.max_output_tokens == 100
    assert [warning.partition(":")[0] for warning in wire.warnings] == ["metadata.No"]


def test_nothing_is_stored_unless_it_is_asked_for() -> None:
    assert sent(ms.Request(MODEL, HELLO)) == {
        "model": MODEL,
        "input": [{"type": "user_input", "content": [text("Hello")]}],
        "store": False,
    }
    assert sent(ms.Request(MODEL, HELLO, extra_body={"store": True}))["store"] is True


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        (None, "/v1beta/interactions"),
        ("https://gateway.example", "/v1beta/interactions"),
        ("https://gateway.example/v1beta", "/interactions"),
        ("https://gateway.example/v1beta/interactions", "/interactions"),
        ("https://aiplatform.googleapis.com/v1beta1/projects/p/locations/global", "/interactions"),
    ],
)
def test_the_path_and_the_headers(base_url: str | None, path: str) -> None:
    provider = ms.GeminiInteractions("key", base_url)
    wire = DIALECT.encode(ms.Request(MODEL, HELLO), MODEL, provider, stream=True)
    assert (wire.method, wire.path) == ("POST", path)
    assert dict(wire.headers)["api-revision"] == "2026-05-20"
    assert DIALECT.auth_headers(provider, "key") == [("x-goog-api-key", "key")]


@pytest.mark.parametrize(
    ("choice", "strict", "expected"),
    [("auto", None, "auto"), ("none", None, "none"), ("required", None, "any"), ("auto", True, "validated")],
)
def test_the_choice_of_tools(choice: str, strict: bool | None, expected: str) -> None:
    tool = ms.Tool(LOOK.name, LOOK.description, LOOK.parameters, strict=strict)
    assert (
        sent(ms.Request(MODEL, HELLO, tools=[tool], tool_choice=choice))["generation_config"]["tool_choice"] == expected
    )


def test_what_cannot_be_sent_is_a_warning_or_an_error() -> None:
    mark = ms.CacheControl()
    request = ms.Request(
        "gemini-2.0-flash",
        [
            ms.Message(
                ms.Role.USER, [ms.Text("a", cache_control=mark), ms.File(url="https://a.example/b.pdf", name="b")]
            )
        ],
        system=[ms.Text("b", cache_control=mark)],
        tools=[ms.Tool("look", cache_control=mark)],
        parallel_tool_calls=False,
        thinking="low",
    )
    fields = [warning.partition(":")[0] for warning in warned(request)]
    assert fields == [
        "system.cache_control",
        "messages[0].content[0].cache_control",
        "messages[0].content[1].name",
        "tools[0].cache_control",
        "thinking",
        "parallel_tool_calls",
    ]
    with pytest.raises(ms.InvalidRequestError, match=r"tools\[0\]\.name"):
        sent(ms.Request(MODEL, HELLO, tools=[ms.Tool("no name")]))
    with pytest.raises(ms.InvalidRequestError, match=r"messages\[1\]\.role"):
        sent(ms.Request(MODEL, [*HELLO, ms.Message(ms.Role.SYSTEM, [ms.Text("b")])]))
    with pytest.raises(ms.InvalidRequestError, match="messages"):
        sent(ms.Request(MODEL, [ms.Message(ms.Role.USER, [ms.Text("")])]))
