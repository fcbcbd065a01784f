"""Requests: every option's wire form, checked against Anthropic's own types, streamed and unstreamed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import manystream as ms
from manystream.providers.anthropic import DIALECT
from manystream.providers.catalog.dialect import WireRequest
from tests.providers.anthropic.wire import STRICT
from tests.providers.anthropic.wire_types import check_body
from tests.providers.whole_history import MARK, whole_history

MODEL = "claude-sonnet-4-5"

LOOK = ms.Tool(
    "look",
    "Looks out of the window.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def encode(provider: ms.Provider = STRICT, model: str = MODEL, *, stream: bool = False, **options: Any) -> WireRequest:
    options.setdefault("messages", [ms.Message.user("Hi")])
    return DIALECT.encode(ms.Request(model, **options), model, provider, stream=stream)


def body_of(model: str = MODEL, **options: Any) -> dict[str, Any]:
    """Return the body, checked against Anthropic's types, streamed and unstreamed."""
    bodies = {}
    for stream in (False, True):
        bodies[stream] = json.loads(encode(model=model, stream=stream, **options).body)
        check_body(bodies[stream], stream=stream)
    assert bodies[True].pop("stream") is True
    assert bodies[True] == bodies[False]
    return bodies[False]


def warnings_of(model: str = MODEL, **options: Any) -> list[str]:
    return encode(model=model, **options).warnings


def test_a_plain_request_has_only_the_required_members() -> None:
    assert body_of() == {"model": MODEL, "max_tokens": 4096, "messages": [{"role": "user", "content": "Hi"}]}
    assert warnings_of() == []


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        ("https://api.anthropic.com", "/v1/messages"),
        ("https://api.anthropic.com/", "/v1/messages"),
        ("https://host.example/anthropic", "/v1/messages"),
        ("https://host.example/v1", "/messages"),
        ("https://host.example/v1/", "/messages"),
        ("https://host.example/v10", "/v1/messages"),
    ],
)
def test_the_path_completes_the_base_url(base_url: str, path: str) -> None:
    assert encode(ms.Anthropic(api_key="k", base_url=base_url)).path == path


def test_extra_headers_replace_those_with_the_same_name() -> None:
    headers = encode(extra_headers={"Anthropic-Version": "2026-10-21", "anthropic-beta": "a,b"}).headers
    assert headers[2:] == [("anthropic-version", "2026-10-21"), ("anthropic-beta", "a,b")]


def test_a_profiles_query_headers_and_key_header_are_used() -> None:
    quirks = ms.Quirks(query="beta=true", headers=(("x-team", "a"),), auth_header="api-key")
    profile = ms.Profile(name="gateway", dialect="anthropic", base_url="https://gateway.example/v1", quirks=quirks)
    provider = ms.Anthropic(api_key="k", profile=profile)
    wire = encode(provider)
    assert wire.path == "/messages?beta=true"
    assert ("x-team", "a") in wire.headers
    assert DIALECT.auth_headers(provider, "k") == [("api-key", "k")]


def test_a_system_prompt_is_a_string_or_blocks() -> None:
    assert body_of(system="Be brief.")["system"] == "Be brief."
    assert body_of(system=[ms.Text("Be brief.")])["system"] == "Be brief."
    assert "system" not in body_of(system="")
    blocks = [ms.Text("a"), ms.Text(""), ms.Text("b", cache_control=ms.CacheControl("1h"))]
    assert body_of(system=blocks)["system"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]


def test_tools_are_sent_with_schema_strictness_and_cache_mark() -> None:
    tools = [
        LOOK, ms.Tool("wait"), replace(LOOK, name="peek", strict=True, cache_control=ms.CacheControl()),
        ms.Tool("odd", parameters={"properties": {"a": {}}}, strict=False),
    ]  # fmt: skip
    body = body_of(tools=tools)
    assert body["tools"] == [
        {"name": "look", "description": "Looks out of the window.", "input_schema": LOOK.parameters},
        {"name": "wait", "input_schema": {"type": "object", "properties": {}}},
        {
            "name": "peek",
            "description": "Looks out of the window.",
            "input_schema": {**LOOK.parameters, "additionalProperties": False},
            "strict": True,
            "cache_control": {"type": "ephemeral"},
        },
        {"name": "odd", "input_schema": {"type": "object", "properties": {"a": {}}}, "strict": False},
    ]
    assert body["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        ("auto", None, {"type": "auto"}),
        ("auto", True, {"type": "auto"}),
        ("auto", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("none", None, {"type": "none"}),
        ("none", False, {"type": "none"}),
        ("required", None, {"type": "any"}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("look", None, {"type": "tool", "name": "look"}),
        ("look", False, {"type": "tool", "name": "look", "disable_parallel_tool_use": True}),
    ],
)
def test_every_tool_choice_has_its_form(choice: str, parallel: bool | None, expected: dict[str, object]) -> None:
    assert body_of(tools=[LOOK], tool_choice=choice, parallel_tool_calls=parallel)["tool_choice"] == expected
    assert warnings_of(tools=[LOOK], tool_choice=choice, parallel_tool_calls=parallel) == []


def test_parallel_calls_without_tools_cause_a_warning() -> None:
    assert "tool_choice" not in body_of(parallel_tool_calls=False)
    assert warnings_of(parallel_tool_calls=False) == ["parallel_tool_calls: not sent; the request has no tools"]


def test_a_temperature_above_the_range_is_sent_as_1() -> None:
    assert body_of(temperature=1.5)["temperature"] == 1.0
    assert warnings_of(temperature=1.5) == ["temperature: 1.5 is above Anthropic's range of 0 to 1; sent as 1"]


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-sonnet-5", "claude-opus-5-5", "claude-unheard-of-9"])
def test_sampling_is_left_out_for_models_that_refuse_it(model: str) -> None:
    body = body_of(model, temperature=0.5, top_p=0.5)
    assert not {"temperature", "top_p"} & body.keys()
    assert warnings_of(model, temperature=0.5, top_p=0.5) == [
        f"temperature: not sent; {model} takes none",
        f"top_p: not sent; {model} takes none",
    ]


TEMPERATURE_WITH_THINKING = "temperature: not sent; with thinking Anthropic takes only 1"

TOP_P_WITH_THINKING = "top_p: not sent; with thinking Anthropic takes 0.95 to 1"

LOW: dict[str, Any] = {"thinking": ms.ThinkingLevel.LOW}


@pytest.mark.parametrize(
    ("options", "sampling", "warnings"),
    [
        ({}, {}, []),
        ({"temperature": 0}, {"temperature": 0}, []),
        ({"top_p": 0}, {"top_p": 0}, []),
        ({"temperature": 1.0, "top_p": 0.1}, {"temperature": 1.0, "top_p": 0.1}, []),
        ({"temperature": 1.0, **LOW}, {"temperature": 1.0}, []),
        ({"temperature": 0.99, **LOW}, {}, [TEMPERATURE_WITH_THINKING]),
        ({"temperature": 1.01, **LOW}, {}, [TEMPERATURE_WITH_THINKING]),
        ({"top_p": 0.95, **LOW}, {"top_p": 0.95}, []),
        ({"top_p": 0.949, **LOW}, {}, [TOP_P_WITH_THINKING]),
        ({"temperature": 0, "top_p": 0, **LOW}, {}, [TEMPERATURE_WITH_THINKING, TOP_P_WITH_THINKING]),
    ],
)
def test_sampling_is_sent_in_part(options: dict[str, Any], sampling: dict[str, float], warnings: list[str]) -> None:
    body = body_of(**options)
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == sampling
    assert warnings_of(**options) == warnings


def test_sampling_is_sent_to_models_of_other_servers() -> None:
    body = json.loads(encode(model="kimi-k2", temperature=1.5, top_p=0.5, thinking=ms.ThinkingLevel.LOW).body)
    assert (body["temperature"], body["top_p"]) == (1.5, 0.5)


def test_max_tokens_is_always_above_the_budget() -> None:
    low: dict[str, Any] = {"thinking": ms.ThinkingConfig(budget_tokens=5000)}
    assert body_of(**low)["max_tokens"] == 5000 + 4096
    assert body_of(max_output_tokens=5001, **low)["max_tokens"] == 5001
    assert body_of(max_output_tokens=5000, **low)["max_tokens"] == 10_000
    assert body_of(max_output_tokens=100, **low)["max_tokens"] == 5100
    assert warnings_of(max_output_tokens=100, **low) == [
        "max_output_tokens: 100 leaves no room beside a thinking budget of 5000; sent as 5100"
    ]


@pytest.mark.parametrize(
    ("model", "thinking", "expected"),
    [
        ("claude-opus-4-6", None, 4096),
        ("claude-opus-4-6", ms.ThinkingLevel.LOW, 32_000),
        ("claude-opus-5", None, 32_000),
        ("claude-opus-5", ms.ThinkingLevel.NONE, 4096),
        ("claude-haiku-4-5", ms.ThinkingLevel.NONE, 1024 + 4096),
    ],
)
def test_a_model_that_thinks_freely_gets_room(model: str, thinking: ms.ThinkingLevel | None, expected: int) -> None:
    assert body_of(model, thinking=thinking)["max_tokens"] == expected


def test_a_budget_is_not_sent_with_a_forced_call() -> None:
    for choice in ("required", "look"):
        options: dict[str, Any] = {"tools": [LOOK], "tool_choice": choice, "thinking": ms.ThinkingLevel.LOW}
        assert "thinking" not in body_of(**options)
        assert body_of(**options)["max_tokens"] == 4096
        assert len(warnings_of(**options)) == 1
    assert "thinking" in body_of(tools=[LOOK], tool_choice="none", thinking=ms.ThinkingLevel.LOW)


def test_a_warning_is_given_once() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    tools = [ms.Tool("a", parameters=schema, strict=True)]
    found = warnings_of(tools=tools, response_schema=schema)
    assert len(found) == len(set(found)) == 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [ms.Message.user("")]}, "messages"),
        ({"messages": [ms.Message.user(" \n")]}, "messages"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"response_schema": {}}, "response_schema"),
        ({"thinking": ms.ThinkingConfig(budget_tokens=10)}, "thinking.budget_tokens"),
    ],
)
def test_a_request_that_cannot_be_sent_names_its_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        encode(**options)
    assert raised.value.field == field


# --- a request with every option and every kind of block: the whole body and all warnings, as they are sent ---
OWN = ms.ProviderState("anthropic", {})

NATIVE = ms.ProviderBlock("anthropic", {"type": "container_upload", "file_id": "f"})

HISTORY = whole_history(OWN, NATIVE)

TIFF = ms.Image(data=b"x", media_type="image/tiff")

READS_IMAGES = "Anthropic reads image/gif, image/jpeg, image/png, image/webp, not"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([ms.Text("a"), TIFF], f"messages[1].content[1].media_type: {READS_IMAGES} 'image/tiff'"),
        ([ms.File(data=b"x", media_type="image/x-icon")],
            f"messages[1].content[0].media_type: {READS_IMAGES} 'image/x-icon'"),
        ([ms.File(data=b"x", media_type="Audio/WAV; a=b")],
            "messages[1].content[0].media_type: Anthropic reads PDF, text and images, not 'audio/wav'"),
        ([ms.File(data=b"a\xff", media_type="text/plain")],
            "messages[1].content[0].data: a text file must be UTF-8: invalid start byte"),
        ([ms.ToolResult("t", [ms.Text("a"), TIFF])],
            f"messages[1].content[0].content[1].media_type: {READS_IMAGES} 'image/tiff'"),
    ],
)  # fmt: skip
def test_a_block_that_cannot_be_sent_is_named(content: list[Any], message: str) -> None:
    request = ms.Request("claude-opus-4-6", [ms.Message.tool_call("t", "look", "{}"), ms.Message.user(content)])
    with pytest.raises(ms.InvalidRequestError) as raised:
        DIALECT.encode(request, request.model, ms.Anthropic(api_key="k"), stream=True)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "messages", [[ms.Message.user("")], [ms.Message.assistant(" ")], [ms.Message.tool_call("a", "b", "{}")]]
)
def test_a_conversation_without_content_is_refused(messages: list[ms.Message]) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        DIALECT.encode(ms.Request("m", messages), "m", ms.Anthropic(api_key="k"), stream=True)
    assert str(raised.value) == "messages: contain nothing that Anthropic accepts: no text, no call, no file"


OPTIONS: dict[str, Any] = {
    "system": [ms.Text("Be"), ms.Text("brief", cache_control=MARK)],
    "tools": [ms.Tool("look", "Look.", {"properties": {"a": {"type": "integer", "minimum": 1}}}, strict=True,
        cache_control=MARK), ms.Tool("wait")],
    "tool_choice": "look",
    "max_output_tokens": 9,
    "temperature": 0.5,
    "top_p": 0.5,
    "stop": ["A"],
    "seed": 3,
    "response_schema": {"type": "object", "properties": {"n": {"type": "string", "pattern": "a"}}},
    "parallel_tool_calls": False,
    "metadata": {"user_id": "u", "Team": "a"},
}  # fmt: skip


def test_a_request_with_everything_is_sent_whole() -> None:
    request = ms.Request(
        "claude-opus-4-6", HISTORY, thinking=ms.ThinkingConfig(effort="high"), extra_body={"x": 1}, **OPTIONS
    )
    wire = DIALECT.encode(request, request.model, ms.Anthropic(api_key="k"), stream=True)
    assert (wire.path, wire.max_output_tokens) == ("/v1/messages", 9)
    assert wire.headers == [
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
        ("anthropic-version", "2023-06-01"),
    ]
    assert json.loads(wire.body) == {
        "model": "claude-opus-4-6",
        "max_tokens": 9,
        "system": [
            {"type": "text", "text": "Be"},
            {"type": "text", "text": "brief", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        "messages": [
            {"role": "user", "content": "(The conversation begins with the assistant's message.)"},
            {"role": "assistant", "content": "Hello."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "One", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "iVBORw=="}},
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"},
                        "title": "a.csv",
                        "cache_control": {"type": "ephemeral"},
                    },
                    {"type": "container_upload", "file_id": "f"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "call_1_e8b7b7b3", "name": "look", "input": {"city": "Oslo"}},
                    {"type": "tool_use", "id": "call_2", "name": "look", "input": {"INVALID_JSON": '{"city"'}},
                    {"type": "container_upload", "file_id": "f"},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_2",
                        "content": "none",
                        "is_error": True,
                        "cache_control": {"type": "ephemeral", "ttl": "1h"},
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1_e8b7b7b3",
                        "content": [
                            {"type": "text", "text": "wet"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
                            },
                            {"type": "document", "source": {"type": "url", "url": "https://a.example/a.mp3?x=1"}},
                        ],
                    },
                    {"type": "text", "text": "Wait."},
                ],
            },
            {"role": "assistant", "content": "So:"},
        ],
        "tools": [
            {
                "name": "look",
                "description": "Look.",
                "input_schema": {
                    "type": "object",
                    "properties": {"a": {"type": "integer", "description": '{"minimum":1}'}},
                    "additionalProperties": False,
                },
                "strict": True,
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            },
            {"name": "wait", "input_schema": {"type": "object", "properties": {}}},
        ],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {
            "effort": "high",
            "format": {
                "type": "json_schema",
                "schema": {
                    "type": "object",
                    "properties": {"n": {"type": "string", "description": '{"pattern":"a"}'}},
                    "additionalProperties": False,
                },
            },
        },
        "stop_sequences": ["A"],
        "metadata": {"user_id": "u"},
        "stream": True,
        "x": 1,
    }
    assert wire.warnings == [
        "messages: result 'unasked' has no call and is not sent",
        "messages: an image's detail is not sent; Anthropic has no such setting",
        "messages: 'thing' of 'elsewhere' is not sent; only its provider understands it",
        "messages: thinking that 'anthropic' did not make is not sent to it",
        "messages: the arguments of call 'call_2' are no JSON object; sent as text inside one",
        "messages: an assistant's Image is not sent; Anthropic takes none",
        "messages: thinking at the end of an assistant's message is not sent; Anthropic refuses it",
        'messages: begin with the assistant, which Anthropic refuses; sent with "(The conversation begins '
        "with the assistant's message.)\" as the user's first",
        "messages: call 'lost' has no result and is not sent",
        "tools[0].parameters.properties.a: minimum not enforced by Anthropic; sent to the model in the description",
        "response_schema.properties.n: pattern not enforced by Anthropic; sent to the model in the description",
        "temperature: not sent; with thinking Anthropic takes only 1",
        "top_p: not sent; with thinking Anthropic takes 0.95 to 1",
        "metadata.Team: not sent; Anthropic takes only user_id",
        "seed: not sent; Anthropic has no such setting",
    ]
