"""A request: its members, its thinking, and what is refused before it is written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from manystream.providers.catalog.profile import Profile
from manystream.providers.catalog.provider import OpenAIResponses
from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.model.messages import (
    CacheControl,
    Message,
    ProviderBlock,
    ProviderState,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from manystream.providers.model.request import Request, ThinkingConfig, ThinkingLevel, Tool
from manystream.providers.openai.responses.dialect import DIALECT
from manystream.providers.wire.quirks import Quirks
from tests.providers.openai.responses.wire import PROVIDER, body_of, warnings_of

ASK = Request("gpt-4.1", [Message.user("Hi")])

WEATHER = Tool("weather", "Weather at a place", {"type": "object", "properties": {"at": {"type": "string"}}})

SCHEMA: JSONObject = {"type": "object", "title": "A place!", "properties": {"name": {"type": "string"}}}


def test_the_smallest_request() -> None:
    assert body_of(ASK) == {
        "model": "gpt-4.1",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
        "store": False,
    }


def test_the_models_name_has_no_provider_prefix() -> None:
    assert body_of(replace(ASK, model="openai/gpt-4.1"), "gpt-4.1")["model"] == "gpt-4.1"


def test_path_headers_and_key() -> None:
    wire = DIALECT.encode(ASK, "gpt-4.1", PROVIDER, stream=True)
    assert (wire.method, wire.path) == ("POST", "/responses")
    assert wire.headers == [("content-type", "application/json"), ("accept", "text/event-stream")]
    wire = DIALECT.encode(
        replace(ASK, extra_headers={"Accept": "a/b", "X-Trace": "1"}), "gpt-4.1", PROVIDER, stream=False
    )
    assert wire.headers == [("content-type", "application/json"), ("accept", "a/b"), ("x-trace", "1")]
    assert DIALECT.auth_headers(PROVIDER, "secret") == [("authorization", "Bearer secret")]
    assert DIALECT.auth_headers(PROVIDER, "") == []
    assert DIALECT.name == "openai-responses"


def test_a_profile_may_set_key_header_query_and_headers() -> None:
    quirks = Quirks(auth_header="api-key", query="api-version=preview", headers=(("editor", "x"),))
    profile = Profile(name="elsewhere", dialect="openai-responses", base_url="https://a.example", quirks=quirks)
    provider = OpenAIResponses(profile=profile)
    assert DIALECT.auth_headers(provider, "secret") == [("api-key", "secret")]
    wire = DIALECT.encode(ASK, "gpt-4.1", provider, stream=True)
    assert wire.path == "/responses?api-version=preview"
    assert ("editor", "x") in wire.headers


@pytest.mark.parametrize(
    ("model", "carries"),
    [
        ("gpt-5", True),
        ("o3", True),
        ("grok-4", True),
        ("gpt-6-sol", True),
        ("gpt-4o", False),
        ("gpt-5-chat-latest", False),
    ],
)
def test_encrypted_reasoning_is_requested_if_a_model_may_reason(model: str, carries: bool) -> None:
    assert body_of(replace(ASK, model=model)).get("include") == (["reasoning.encrypted_content"] if carries else None)


@pytest.mark.parametrize(
    ("system", "instructions"),
    [("Be brief.", "Be brief."), ([Text("Be"), Text(""), Text("brief.")], "Be\n\nbrief."), ("", None), ([], None)],
)
def test_system_blocks_become_instructions(system: str | list[Text], instructions: str | None) -> None:
    assert body_of(replace(ASK, system=system)).get("instructions") == instructions


def test_tools_are_flat_and_strict_follows_the_schema() -> None:
    body = body_of(replace(ASK, tools=[WEATHER, Tool("now")]))
    assert body["tools"] == [
        {"type": "function", "name": "weather", "description": "Weather at a place", "parameters": WEATHER.parameters,
        "strict": False}, {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}},
        "strict": False},
    ]  # fmt: skip
    assert body["tool_choice"] == "auto"


def test_a_strict_tool_has_its_schema_adapted() -> None:
    tools = body_of(replace(ASK, tools=[replace(WEATHER, strict=True)]))["tools"]
    assert isinstance(tools, list)
    assert isinstance(tools[0], dict)
    adapted = {
        "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"], "additionalProperties": False,
    }  # fmt: skip
    assert (tools[0]["strict"], tools[0]["parameters"]) == (True, adapted)
    again = body_of(replace(ASK, tools=[replace(WEATHER, parameters=adapted)]))["tools"]
    assert again == tools, "a schema that is strict as it stands is sent as strict"
    declined = body_of(replace(ASK, tools=[replace(WEATHER, parameters=adapted, strict=False)]))["tools"]
    assert isinstance(declined, list)
    assert isinstance(declined[0], dict)
    assert declined[0]["strict"] is False


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("weather", {"type": "function", "name": "weather"}),
    ],
)
def test_every_tool_choice(choice: str, wire: object) -> None:
    assert body_of(replace(ASK, tools=[WEATHER], tool_choice=choice))["tool_choice"] == wire


def test_a_tool_choice_applies_to_tools_of_extra_body() -> None:
    request = replace(ASK, tool_choice="none", extra_body={"tools": [{"type": "web_search"}]})
    assert body_of(request)["tool_choice"] == "none"
    assert "tool_choice" not in body_of(replace(ASK, tool_choice="none"))


@pytest.mark.parametrize("parallel", [True, False])
def test_parallel_tool_calls(parallel: bool) -> None:
    assert body_of(replace(ASK, parallel_tool_calls=parallel))["parallel_tool_calls"] is parallel
    assert "parallel_tool_calls" not in body_of(ASK)


@pytest.mark.parametrize(
    ("model", "thinking", "taken"),
    [
        ("gpt-4.1", None, True),
        ("grok-4", None, True),
        ("gpt-5", None, False),
        ("o3", ThinkingLevel.LOW, False),
        ("gpt-5.1", None, True),
        ("gpt-5.4-mini-2026-03-17", None, True),
        ("gpt-5.1", ThinkingLevel.LOW, False),
        ("gpt-5.5", None, False),
        ("gpt-5.5", ThinkingLevel.NONE, True),
        ("gpt-5.1-codex", None, False),
    ],
)
def test_sampling_is_sent_where_the_model_takes_it(model: str, thinking: ThinkingLevel | None, taken: bool) -> None:
    request = replace(ASK, model=model, thinking=thinking, temperature=0.2, top_p=0.9)
    body = body_of(request)
    assert (body.get("temperature"), body.get("top_p")) == ((0.2, 0.9) if taken else (None, None))
    assert [warning.partition(":")[0] for warning in warnings_of(request)] == (
        [] if taken else ["temperature", "top_p"]
    )


@pytest.mark.parametrize(
    ("model", "thinking", "reasoning"),
    [
        ("gpt-5", None, None),
        ("gpt-5", ThinkingLevel.NONE, {"effort": "minimal", "summary": "auto"}),
        ("gpt-5.1", ThinkingLevel.NONE, {"effort": "none"}),
        ("gpt-5.2", ThinkingLevel.HIGH, {"effort": "xhigh", "summary": "auto"}),
        ("gpt-5.2", ThinkingConfig(level=ThinkingLevel.HIGH, effort="medium"), {"effort": "medium", "summary": "auto"}),
        ("gpt-5", ThinkingConfig(level=ThinkingLevel.LOW, include_summary=False), {"effort": "low"}),
        ("gpt-5", ThinkingConfig(include_summary=True), {"summary": "auto"}),
        ("gpt-5", ThinkingConfig(include_summary=False), None),
        ("gpt-4.1", ThinkingConfig(include_summary=True), None),
        ("grok-4.3", ThinkingConfig(effort="low"), {"effort": "low", "summary": "auto"}),
        ("grok-4.3", ThinkingLevel.HIGH, {"effort": "high", "summary": "auto"}),
        ("gpt-4.1", ThinkingLevel.NONE, None),
        ("gpt-5.1", ThinkingConfig(budget_tokens=0), {"effort": "none"}),
        ("gpt-5", ThinkingConfig(budget_tokens=0), {"effort": "minimal", "summary": "auto"}),
        ("o3", ThinkingConfig(budget_tokens=0), {"effort": "none"}),
        ("gpt-5", ThinkingConfig(effort="none"), {"effort": "none"}),
        ("gpt-5", ThinkingConfig(effort="low", include_summary=True), {"effort": "low", "summary": "auto"}),
        ("gpt-5", ThinkingConfig(), {"summary": "auto"}),
        ("grok-4", ThinkingConfig(), None),
        ("grok-4", ThinkingConfig(level=ThinkingLevel.NONE), {"effort": "none"}),
        ("grok-4", ThinkingConfig(level=ThinkingLevel.MED), {"effort": "medium", "summary": "auto"}),
        ("o1-mini", ThinkingConfig(level=ThinkingLevel.NONE), {"summary": "auto"}),
        ("gpt-4.1", ThinkingConfig(effort="low"), {"effort": "low", "summary": "auto"}),
    ],
)
def test_thinking(model: str, thinking: ThinkingLevel | ThinkingConfig | None, reasoning: object) -> None:
    request = replace(ASK, model=model, thinking=thinking)
    assert body_of(request).get("reasoning") == reasoning
    assert warnings_of(request) == []


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_in_the_background_is_refused_by_name(streamed: bool) -> None:
    given = Request.from_openai_responses(model="gpt-5", input="Hello", background=True)
    for request in (replace(ASK, extra_body={"background": True}), given):
        with pytest.raises(InvalidRequestError, match="background is returned before its answer") as raised:
            body_of(request, streamed=streamed)
        assert raised.value.field == "extra_body.background"
    for value in (False, None):
        assert body_of(replace(ASK, extra_body={"background": value}), streamed=streamed)["background"] is value


# --- whole bodies of requests with every option, and the edges of single options ---
HI = [Message.user("Hi")]

PLAIN_SCHEMA: JSONObject = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

OWN = "openai-responses"


def said(*texts: str) -> JSONObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


def input_of(*messages: Message, model: str = "gpt-5", provider: OpenAIResponses = PROVIDER, **extra: JSON) -> JSON:
    request = Request(model, [*messages], extra_body=extra)
    body: JSONObject = json.loads(DIALECT.encode(request, model, provider, stream=False).body)
    return body["input"]


def test_every_option_at_once() -> None:
    request = Request(
        "gpt-5.1", HI, system="Be brief.", tools=[Tool("f", "Does it.", PLAIN_SCHEMA),
        Tool("g", parameters={"type": "object"}, strict=True)], tool_choice="f", thinking=ThinkingLevel.NONE,
        max_output_tokens=20, temperature=0.5, top_p=0.25, response_schema={**PLAIN_SCHEMA, "title": "A/b"},
        parallel_tool_calls=False, metadata={"a": "b"},
        extra_body={"user": "u", "text": {"verbosity": "low"}, "include": "x"},
    )  # fmt: skip
    body: JSONObject = {
        "model": "gpt-5.1",
        "instructions": "Be brief.",
        "input": [said("Hi")],
        "store": False,
        "include": "x",
        "reasoning": {"effort": "none"},
        "parallel_tool_calls": False,
        "tools": [
            {"type": "function", "name": "f", "description": "Does it.", "parameters": PLAIN_SCHEMA, "strict": True},
            {"type": "function", "name": "g", "parameters": PLAIN_SCHEMA, "strict": True},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {
            "format": {
                "type": "json_schema",
                "name": "A_b",
                "schema": {**PLAIN_SCHEMA, "title": "A/b"},
                "strict": True,
            },
            "verbosity": "low",
        },
        "max_output_tokens": 20,
        "temperature": 0.5,
        "top_p": 0.25,
        "metadata": {"a": "b"},
        "user": "u",
    }
    wire = DIALECT.encode(request, "gpt-5.1", PROVIDER, stream=False)
    assert json.loads(wire.body) == body
    assert list(json.loads(wire.body)) == list(body)
    assert (wire.max_output_tokens, wire.warnings) == (20, [])
    streamed = DIALECT.encode(request, "gpt-5.1", PROVIDER, stream=True)
    assert json.loads(streamed.body) == {**body, "stream": True}


def test_stream_options_are_sent_with_a_stream_only() -> None:
    request = Request("gpt-4.1", HI, extra_body={"stream_options": {"include_obfuscation": False}})
    assert "stream_options" not in body_of(request)
    assert body_of(request, streamed=True)["stream_options"] == {"include_obfuscation": False}


@pytest.mark.parametrize(
    ("title", "name"), [("a" * 64, "a" * 64), ("a" * 65, "a" * 64), ("a.b", "a_b"), ("", "response"), (5, "response")]
)
def test_the_name_of_a_schema(title: JSON, name: str) -> None:
    text = body_of(Request("gpt-4.1", HI, response_schema={**PLAIN_SCHEMA, "title": title}))["text"]
    assert text["format"]["name"] == name  # type: ignore[index,call-overload]


def test_a_request_is_checked_first() -> None:
    for request, field in (
        (Request("m", HI, temperature=-1), "temperature"),
        (Request("m", HI, tools=[Tool("a b")]), "tools[0].name"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            body_of(request)
        assert caught.value.field == field


@pytest.mark.parametrize("limit", [15, 16, 17])
def test_the_limit_of_output_tokens_is_known(limit: int) -> None:
    request = Request("m", HI, max_output_tokens=limit)
    wire = DIALECT.encode(request, "m", PROVIDER, stream=False)
    assert wire.max_output_tokens == max(limit, 16)
    assert json.loads(wire.body)["max_output_tokens"] == max(limit, 16)


def test_one_sampling_option_alone() -> None:
    assert body_of(Request("gpt-4.1", HI, temperature=0)) == {
        "model": "gpt-4.1", "input": [said("Hi")], "store": False, "temperature": 0,
    }  # fmt: skip
    assert body_of(Request("gpt-4.1", HI, top_p=0.5))["top_p"] == 0.5


def test_the_efforts_of_a_profile() -> None:
    quirks = Quirks(efforts=("a", "b", "c", "d"))
    profile = Profile(name="elsewhere", dialect=OWN, base_url="https://a.example", quirks=quirks)
    provider = OpenAIResponses(profile=profile)
    for level, effort in zip(ThinkingLevel, "abcd", strict=True):
        wire = DIALECT.encode(Request("x", HI, thinking=level), "x", provider, stream=False)
        assert json.loads(wire.body)["reasoning"] == {"effort": effort, "summary": "auto"}
        wire = DIALECT.encode(Request("gpt-4o", HI, thinking=level), "gpt-4o", provider, stream=False)
        assert "reasoning" not in json.loads(wire.body)


@pytest.mark.parametrize("member", ["input", "prompt", "previous_response_id", "conversation"])
def test_members_that_make_messages_optional(member: str) -> None:
    call = Message.tool_call("c", "f", "{}")
    request = Request("m", [call], extra_body={member: "x"})
    assert json.loads(DIALECT.encode(request, "m", PROVIDER, stream=False).body)[member] == "x"
    with pytest.raises(InvalidRequestError):
        body_of(Request("m", [call], extra_body={member: ""}))


# --- the conversation ---
REPLACED = "call_b30855e510446ac34706c5acafeedefd5122fe94"
"""The id that replaces one of 65 times `c`. Ids in stored conversations must stay the same in later versions."""


def test_ids_of_64_characters_fit() -> None:
    fits, long = "c" * 64, "c" * 65
    turn = [Message.assistant([ToolCall(fits, "f", "{}"), ToolCall(long, "f", "{}")]),
            Message("tool", [ToolResult(fits, "1"), ToolResult(long, "2")])]  # fmt: skip
    wire = input_of(*turn)
    assert isinstance(wire, list)
    assert [item["call_id"] for item in wire] == [fits, REPLACED] * 2  # type: ignore[index,call-overload]


def test_a_custom_call_with_empty_input_stays_empty() -> None:
    custom = ToolCall("c1", "f", "", state=ProviderState(OWN, {"type": "custom_tool_call"}))
    plain = ToolCall("c2", "f", "", state=ProviderState(OWN, {"namespace": "n"}))
    results = Message("tool", [ToolResult("c1", "r"), ToolResult("c2", "r")])
    assert input_of(Message.assistant([custom, plain]), results) == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": ""},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}", "namespace": "n"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "r"},
        {"type": "function_call_output", "call_id": "c2", "output": "r"},
    ]


def test_another_makers_state_of_a_call_is_not_sent() -> None:
    call = ToolCall("c1", "f", "", state=ProviderState("elsewhere", {"type": "custom_tool_call", "x": 1}))
    assert input_of(Message.assistant(call), Message.tool_result("c1", "r")) == [
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
    ]


def test_an_own_call_is_kept_by_any_of_its_ids() -> None:
    asked: JSONObject = {"type": "shell_call", "id": "i1", "call_id": "c1"}
    for member in ("call_id", "approval_request_id", "id"):
        for id in ("i1", "c1"):
            answer: JSONObject = {"type": "shell_call_output", member: id}
            conversation = [Message.assistant(ProviderBlock(OWN, asked)), Message.user(ProviderBlock(OWN, answer))]
            assert input_of(*conversation) == [asked, answer]
    other: JSONObject = {"type": "shell_call_output", "call_id": "x"}
    assert input_of(Message.assistant(ProviderBlock(OWN, asked)), Message.user(ProviderBlock(OWN, other))) == [other]
    nameless: JSONObject = {"type": "shell_call"}
    assert input_of(Message.assistant(ProviderBlock(OWN, nameless))) == [nameless]


def test_reasoning_before_an_own_call_without_output_is_left_out() -> None:
    thought = Thinking("", state=ProviderState(OWN, {"encrypted_content": "e"}))
    asked: JSONObject = {"type": "shell_call", "call_id": "c1"}
    search: JSONObject = {"type": "web_search_call", "id": "w"}
    assert input_of(*HI, Message.assistant([thought, ProviderBlock(OWN, asked)])) == [said("Hi")]
    assert input_of(*HI, Message.assistant([thought, ProviderBlock(OWN, search)])) == [
        said("Hi"), {"type": "reasoning", "summary": [], "encrypted_content": "e"}, search,
    ]  # fmt: skip
    output: JSONObject = {"type": "shell_call_output", "call_id": "c1"}
    assert input_of(Message.assistant([thought, ProviderBlock(OWN, output)])) == [output]


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("gpt-5.6", True), ("gpt-5.5", False), ("gpt-5", False), ("gpt-6", True), ("gpt-6.1-x", True), ("gpt-10", True),
        ("openai/gpt-5.6", True), ("gpt-5.60", True), ("gpt-5.6x", False), ("x-gpt-6", False), ("o3", False),
    ],
)  # fmt: skip
def test_models_that_take_cache_marks(model: str, taken: bool) -> None:
    mark: JSONObject = {"prompt_cache_breakpoint": {"mode": "explicit"}} if taken else {}
    text: JSONObject = {"type": "input_text", "text": "a", **mark}
    messages = [
        Message.user([Text("a", cache_control=CacheControl())]),
        Message.tool_call("c", "f", "{}"),
        Message("tool", ToolResult("c", "a", cache_control=CacheControl())),
        Message.tool_call("d", "f", "{}"),
        Message("tool", ToolResult("d", [Text("b"), Text("a")], cache_control=CacheControl())),
        Message.tool_call("e", "f", "{}"),
        Message("tool", ToolResult("e", [], cache_control=CacheControl())),
    ]
    wire = input_of(*messages, model=model)
    assert isinstance(wire, list)
    assert wire[0] == {"type": "message", "role": "user", "content": [text]}
    outputs = [item["output"] for item in wire if isinstance(item, dict) and "output" in item]
    assert outputs == [[text] if taken else "a", [{"type": "input_text", "text": "b"}, text], ""]
    warned = [] if taken else ["cache_control: not sent where Responses has no place for it; it caches by itself"]
    assert warnings_of(Request(model, messages)) == warned
