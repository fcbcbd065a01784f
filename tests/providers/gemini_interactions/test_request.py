"""Requests: the whole body, each option, the conversation as steps, and what comes back is sent back unchanged."""

from __future__ import annotations

from typing import Any

import pytest
from google.genai._gaos.types.interactions.createmodelinteraction import CreateModelInteraction

import manystream as ms
from manystream.providers.catalog.provider import GeminiInteractions
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.messages import (
    Block,
    CacheControl,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

from .wire import DIALECT, MAKER, PROVIDER, TAG, decode, interaction, sent, text, warned

MODEL = "gemini-3.5-flash"
HELLO = [Message(Role.USER, [Text("Hello")])]
LOOK = ms.Tool("look", "Look.", {"type": "object", "properties": {"city": {"type": "string"}}})


def said(*blocks: Block) -> list[Message]:
    return [*HELLO, Message(Role.ASSISTANT, list(blocks)), Message(Role.USER, [Text("Go on.")])]


def steps(*blocks: Block) -> Any:
    """Return the steps of an assistant's message, without those of the user's around it."""
    return sent(ms.Request(MODEL, said(*blocks)))["input"][1:-1]


def test_a_whole_request() -> None:
    request = ms.Request(
        MODEL,
        HELLO,
        system=[Text("Be brief."), Text("Be kind.")],
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
    provider = GeminiInteractions("key", base_url)
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


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        (MODEL, "none", {"thinking_level": "minimal"}),
        (MODEL, "low", {"thinking_level": "low", "thinking_summaries": "auto"}),
        ("gemini-2.5-flash", "high", {"thinking_level": "high", "thinking_summaries": "auto"}),
        ("gemini-4-neon", "high", {"thinking_level": "xhigh", "thinking_summaries": "auto"}),
        (MODEL, ms.ThinkingConfig(effort="xhigh"), {"thinking_level": "xhigh", "thinking_summaries": "auto"}),
        (MODEL, ms.ThinkingConfig(include_summary=False), {"thinking_summaries": "none"}),
        ("gemini-2.0-flash", "none", None),
    ],
)
def test_thinking_is_a_level(model: str, thinking: Any, expected: Any) -> None:
    assert sent(ms.Request(model, HELLO, thinking=thinking)).get("generation_config") == expected


def test_a_budget_of_thinking_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match=r"thinking\.budget_tokens"):
        sent(ms.Request(MODEL, HELLO, thinking=ms.ThinkingConfig(budget_tokens=100)))


def test_what_cannot_be_sent_is_a_warning_or_an_error() -> None:
    mark = CacheControl()
    request = ms.Request(
        "gemini-2.0-flash",
        [Message(Role.USER, [Text("a", cache_control=mark), File(url="https://a.example/b.pdf", name="b")])],
        system=[Text("b", cache_control=mark)],
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
    with pytest.raises(InvalidRequestError, match=r"tools\[0\]\.name"):
        sent(ms.Request(MODEL, HELLO, tools=[ms.Tool("no name")]))
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]\.role"):
        sent(ms.Request(MODEL, [*HELLO, Message(Role.SYSTEM, [Text("b")])]))
    with pytest.raises(InvalidRequestError, match="messages"):
        sent(ms.Request(MODEL, [Message(Role.USER, [Text("")])]))


@pytest.mark.parametrize(
    ("block", "content"),
    [
        (Image(data=b"\0", media_type="image/png"), {"type": "image", "data": "AA==", "mime_type": "image/png"}),
        (Image(url="https://a.example/b.jpg", detail="high"),
            {"type": "image", "uri": "https://a.example/b.jpg", "mime_type": "image/jpeg", "resolution": "high"}),
        (File(data=b"\0", media_type="audio/wav"), {"type": "audio", "data": "AA==", "mime_type": "audio/wav"}),
        (File(url="https://a.example/b.mp4"),
            {"type": "video", "uri": "https://a.example/b.mp4", "mime_type": "video/mp4"}),
        (File(data=b"\0", media_type="application/pdf"),
            {"type": "document", "data": "AA==", "mime_type": "application/pdf"}),
        (File(file_id="files/x", media_type="text/csv"),
            {"type": "document", "uri": "https://generativelanguage.googleapis.com/v1beta/files/x",
            "mime_type": "text/csv"}),
        (File(url="data:text/plain;base64,YQ=="), {"type": "document", "data": "YQ==", "mime_type": "text/plain"}),
        (Image(data=b"\0", media_type="image/png", state=ProviderState(MAKER, {"resolution": "low"})),
            {"type": "image", "data": "AA==", "mime_type": "image/png", "resolution": "low"}),
        (ProviderBlock(MAKER, {"type": "document", "processing": "static"}),
            {"type": "document", "processing": "static"}),
    ],
)  # fmt: skip
def test_files_of_the_user_and_of_results(block: Any, content: dict[str, Any]) -> None:
    request = ms.Request(MODEL, [Message(Role.USER, [Text("See"), block])])
    assert sent(request)["input"] == [{"type": "user_input", "content": [text("See"), content]}]
    if not isinstance(block, ProviderBlock):
        result = ToolResult("c", [Text("See"), block])
        history = [*HELLO, Message(Role.ASSISTANT, [ToolCall("c", "look", "{}")]), Message(Role.TOOL, [result])]
        assert sent(ms.Request(MODEL, history))["input"][-1]["result"] == [text("See"), content]


def test_calls_and_their_results_are_steps_in_order() -> None:
    history = [
        *HELLO,
        Message(
            Role.ASSISTANT,
            [
                Thinking("hm", "s", state=TAG),
                Text("Two."),
                ToolCall("a", "look", '{"n": 1}', state=ProviderState(MAKER, {"signature": "t"})),
                ToolCall("b", "look", "no JSON"),
                ToolCall("c", "look", "{}"),
            ],
        ),
        Message(Role.TOOL, [ToolResult("b", "no", is_error=True), ToolResult("a", "yes"), ToolResult("x", "?")]),
        Message(Role.USER, [Text("Well?")]),
    ]
    assert sent(ms.Request(MODEL, history))["input"] == [
        {"type": "user_input", "content": [text("Hello")]},
        {"type": "thought", "signature": "s", "summary": [text("hm")]},
        {"type": "model_output", "content": [text("Two.")]},
        {"type": "function_call", "id": "a", "name": "look", "arguments": {"n": 1}, "signature": "t"},
        {"type": "function_call", "id": "b", "name": "look", "arguments": {"arguments": "no JSON"}},
        {"type": "function_result", "call_id": "a", "name": "look", "result": "yes"},
        {"type": "function_result", "call_id": "b", "name": "look", "result": "no", "is_error": True},
        {"type": "user_input", "content": [text("Well?")]},
    ]
    assert len(warned(ms.Request(MODEL, history))) == 3  # the arguments, the call and the result that stand alone


ANSWER: list[dict[str, Any]] = [
    {"type": "thought", "signature": "s1", "summary": [text("a"),
        {"type": "image", "mime_type": "image/png", "data": "AA=="}]},
    {"type": "google_search_call", "id": "g", "arguments": {"queries": ["q"], "n": 12345678901234567890},
        "signature": "s2"},
    {"type": "google_search_result", "call_id": "g", "result": [{"url": "u"}], "signature": "s3"},
    {"type": "memory_write", "key": "k"},
    {"type": "model_output", "content": [{**text("a"), "annotations": [{"type": "url_citation", "url": "u"}]},
        {"type": "image", "data": "AAEC", "mime_type": "image/png"}]},
    {"type": "thought", "signature": "s4"},
    {"type": "function_call", "id": "f1", "name": "list_files", "arguments": {}, "signature": "s5"},
    {"type": "function_result", "call_id": "f1", "result": [text("a.txt")]},
]  # fmt: skip


def test_an_answer_is_sent_back_to_its_maker_as_it_came() -> None:
    response = decode(interaction("completed", steps=ANSWER))
    assert steps(*response.content) == ANSWER
    assert warned(ms.Request(MODEL, said(*response.content))) == []


def test_thoughts_and_signatures_of_others_are_not_sent() -> None:
    foreign = ProviderState("google", {"thoughtSignature": "s"})
    blocks: list[Block] = [
        Thinking("a", "s", state=foreign),
        Thinking("b", "sig"),
        ProviderBlock("google", {"executableCode": {}}),
        Text("c", citations=[{"type": "char_location"}], state=foreign),
    ]
    assert steps(*blocks) == [{"type": "model_output", "content": [text("c")]}]
    assert len(warned(ms.Request(MODEL, said(*blocks)))) == 2
    own = decode(interaction("completed", steps=ANSWER)).content
    other = ms.Gemini("k")
    dialect = ms.Request("gemini-2.5-flash", said(*own))
    body = DIALECTS["gemini"].encode(dialect, dialect.model, other, stream=False).body
    assert not [mark for mark in (b"s1", b"s2", b"s3", b"s4", b"s5") if b'"%b"' % mark in body]


def test_thinking_that_nobody_signed_is_sent() -> None:
    assert steps(Thinking("hm"), Text("a"))[0] == {"type": "thought", "summary": [text("hm")]}


def test_a_conversation_begun_by_the_assistant_gets_an_opening() -> None:
    request = ms.Request(MODEL, [Message(Role.ASSISTANT, [Text("Hi")]), *HELLO])
    assert [step["type"] for step in sent(request)["input"]] == ["user_input", "model_output", "user_input"]
    assert "begin with the assistant" in warned(request)[0]
