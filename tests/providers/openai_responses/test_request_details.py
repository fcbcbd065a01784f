"""Whole bodies of requests with every option, and the edges of single options."""

from __future__ import annotations

import json

import pytest

from manystream.providers.catalog.profile import Profile, Quirks
from manystream.providers.catalog.provider import OpenAIResponses
from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSON, JSONObject
from manystream.providers.model.messages import (
    CacheControl,
    File,
    Image,
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

from .wire import PROVIDER, body_of, warnings_of

HI = [Message.user("Hi")]
SCHEMA: JSONObject = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
OWN = "openai-responses"


def said(*texts: str) -> JSONObject:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text} for text in texts]}


def input_of(*messages: Message, model: str = "gpt-5", provider: OpenAIResponses = PROVIDER, **extra: JSON) -> JSON:
    request = Request(model, [*messages], extra_body=extra)
    body: JSONObject = json.loads(DIALECT.encode(request, model, provider, stream=False).body)
    return body["input"]


def test_every_option_at_once() -> None:
    request = Request(
        "gpt-5.1",
        HI,
        system="Be brief.",
        tools=[Tool("f", "Does it.", SCHEMA), Tool("g", parameters={"type": "object"}, strict=True)],
        tool_choice="f",
        thinking=ThinkingLevel.NONE,
        max_output_tokens=20,
        temperature=0.5,
        top_p=0.25,
        response_schema={**SCHEMA, "title": "A/b"},
        parallel_tool_calls=False,
        metadata={"a": "b"},
        extra_body={"user": "u", "text": {"verbosity": "low"}, "include": "x"},
    )
    body: JSONObject = {
        "model": "gpt-5.1",
        "instructions": "Be brief.",
        "input": [said("Hi")],
        "store": False,
        "include": "x",
        "reasoning": {"effort": "none"},
        "parallel_tool_calls": False,
        "tools": [
            {"type": "function", "name": "f", "description": "Does it.", "parameters": SCHEMA, "strict": True},
            {"type": "function", "name": "g", "parameters": SCHEMA, "strict": True},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "text": {
            "format": {"type": "json_schema", "name": "A_b", "schema": {**SCHEMA, "title": "A/b"}, "strict": True},
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
    text = body_of(Request("gpt-4.1", HI, response_schema={**SCHEMA, "title": title}))["text"]
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


@pytest.mark.parametrize(
    ("model", "config", "reasoning"),
    [
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
def test_reasoning(model: str, config: ThinkingConfig, reasoning: JSON) -> None:
    request = Request(model, HI, thinking=config)
    assert json.loads(DIALECT.encode(request, model, PROVIDER, stream=False).body).get("reasoning") == reasoning
    assert warnings_of(request) == []


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


def test_a_result_of_a_kept_call_has_its_place_in_a_message() -> None:
    message = Message("tool", [Text("a"), ToolResult("c1", "r"), Text("b")])
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    assert input_of(message, previous_response_id="p") == [said("a"), output, said("b")]
    assert input_of(message, conversation="p") == [said("a"), output, said("b")]
    assert input_of(message, store=True) == [said("a"), said("b")]


def test_a_result_in_an_assistants_message_is_sent_where_it_is() -> None:
    message = Message.assistant([Text("a"), ToolResult("c1", "r"), Text("b")])
    spoken = [{"type": "message", "role": "assistant", "content": text} for text in "ab"]
    output = {"type": "function_call_output", "call_id": "c1", "output": "r"}
    assert input_of(message, previous_response_id="p") == [spoken[0], output, spoken[1]]


def test_a_call_between_texts_separates_them() -> None:
    message = Message.assistant([Text("a"), ToolCall("c1", "f", "{}"), Text("b"), Text("c")])
    assert input_of(message, Message.tool_result("c1", "r")) == [
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": "bc"},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
    ]


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


# --- parts ---

PARTS: list[tuple[Image | File, JSONObject]] = [
    (Image(url="u", detail="high"), {"type": "input_image", "detail": "high", "image_url": "u"}),
    (File(url="u", media_type="image/png"), {"type": "input_image", "detail": "auto", "image_url": "u"}),
    (File(file_id="f", media_type="image/png"), {"type": "input_image", "detail": "auto", "file_id": "f"}),
    (
        File(data=b"abc", media_type="application/x-new"),
        {"type": "input_file", "filename": "file.x-new", "file_data": "data:application/x-new;base64,YWJj"},
    ),
    (
        File(data=b"abc", media_type=" Text/Plain ;a=b"),
        {"type": "input_file", "filename": "file.txt", "file_data": "data: Text/Plain ;a=b;base64,YWJj"},
    ),
]


@pytest.mark.parametrize(("block", "part"), PARTS)
def test_parts(block: Image | File, part: JSONObject) -> None:
    assert input_of(Message.user(block)) == [{"type": "message", "role": "user", "content": [part]}]


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


def test_marks_of_pictures() -> None:
    block = Image(url="u", cache_control=CacheControl("1h"))
    part = {"type": "input_image", "detail": "auto", "image_url": "u",
            "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}  # fmt: skip
    assert input_of(Message.user(block), model="gpt-6") == [{"type": "message", "role": "user", "content": [part]}]
