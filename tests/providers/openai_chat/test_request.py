"""Every option of a request in its wire form. An option that a server cannot express causes a warning or an error."""

from __future__ import annotations

import json
from typing import Literal, cast

import pytest

from manystream.providers.catalog.provider import OpenAIChat
from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.messages import CacheControl, File, Image, Message, Role, Text, ToolCall, ToolResult
from manystream.providers.model.request import Request, ThinkingLevel, Tool
from manystream.providers.openai.chat import DIALECT

from .wire import OPENAI, SERVER, encode, known, quirky, warnings

HELLO = [Message.user("hello")]
WEATHER = Tool(
    "weather",
    "Returns the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]},
)


def test_the_smallest_request() -> None:
    assert encode(Request("gpt-4o", HELLO)) == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "hello"}],
    }


def test_path_headers_and_query() -> None:
    wire = DIALECT.encode(Request("gpt-4o", HELLO, extra_headers={"X-Trace": "1"}), "gpt-4o", OPENAI, stream=True)
    assert wire.path == "/chat/completions"
    assert wire.method == "POST"
    assert wire.headers == [("content-type", "application/json"), ("accept", "text/event-stream"), ("x-trace", "1")]
    azure = OpenAIChat("key", base_url="https://mine.openai.azure.com/openai/deployments/gpt")
    assert DIALECT.encode(Request("gpt", HELLO), "gpt", azure, stream=False).path.startswith(
        "/chat/completions?api-version="
    )


def test_the_key_is_in_the_profiles_header() -> None:
    assert DIALECT.auth_headers(OPENAI, "k") == [("authorization", "Bearer k")]
    assert DIALECT.auth_headers(known("azure"), "k") == [("api-key", "k")]
    assert DIALECT.auth_headers(known("portkey"), "k") == [("x-portkey-api-key", "k")]
    assert DIALECT.auth_headers(SERVER, "") == []


@pytest.mark.parametrize(
    ("extra", "unasked"),
    [
        ({}, {"logprobs"}),
        ({"logprobs": False, "sampling_params": {"n_probs": 0}}, {"logprobs"}),
        ({"logprobs": True}, set()),
        ({"top_logprobs": 3}, set()),
        ({"sampling_params": {"return_logprob": True}}, set()),  # a gateway passes an object on
    ],
)
def test_log_probabilities_are_asked_for_anywhere_in_the_body(extra: JSONObject, unasked: set[str]) -> None:
    wire = DIALECT.encode(Request("gpt-4o", HELLO, extra_body=extra), "gpt-4o", SERVER, stream=True)
    assert wire.unasked == unasked


@pytest.mark.parametrize(
    ("extra", "choices"), [({}, 1), ({"n": 1}, 1), ({"n": 3}, 3), ({"best_of": 3}, 0), ({"n": None}, 0)]
)
def test_the_number_of_choices_is_known_unless_the_program_adds_members(extra: JSONObject, choices: int) -> None:
    wire = DIALECT.encode(Request("gpt-4o", HELLO, extra_body=extra), "gpt-4o", SERVER, stream=True)
    assert wire.choices == choices


def test_headers_of_the_request_replace_the_profiles() -> None:
    copilot = known("github-copilot")
    request = Request("gpt-4o", HELLO, extra_headers={"Editor-Version": "mine/1"})
    headers = dict(DIALECT.encode(request, "gpt-4o", copilot, stream=False).headers)
    assert headers["editor-version"] == "mine/1"
    assert headers["copilot-integration-id"] == "vscode-chat"


def test_a_stream_requests_usage_unless_the_server_refuses() -> None:
    body = encode(Request("gpt-4o", HELLO), stream=True)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    body = encode(Request("mistral-large", HELLO), known("mistral"), stream=True)
    assert "stream_options" not in body


def test_plain_options() -> None:
    body = encode(
        Request(
            "gpt-4o",
            HELLO,
            temperature=0.5,
            top_p=0.9,
            stop=["END", "STOP"],
            seed=7,
            metadata={"team": "a"},
            max_output_tokens=50,
        )
    )
    assert body["temperature"] == 0.5
    assert body["top_p"] == 0.9
    assert body["stop"] == ["END", "STOP"]
    assert body["seed"] == 7
    assert body["metadata"] == {"team": "a"}
    assert body["max_completion_tokens"] == 50


@pytest.mark.parametrize(
    ("provider", "model", "thinking", "sent"),
    [
        (OPENAI, "gpt-4o", None, True),
        (OPENAI, "o3-mini", None, False),
        (OPENAI, "gpt-5", ThinkingLevel.LOW, False),
        (OPENAI, "gpt-5.1", ThinkingLevel.NONE, True),
        (known("azure"), "gpt-5", None, False),
        (SERVER, "gpt-oss-20b", None, True),
        (known("groq"), "openai/gpt-oss-20b", ThinkingLevel.HIGH, True),
    ],
)
def test_sampling_is_not_sent_to_models_that_refuse_it(
    provider: OpenAIChat, model: str, thinking: ThinkingLevel | None, sent: bool
) -> None:
    wire = DIALECT.encode(
        Request(model, HELLO, thinking=thinking, temperature=0.5, top_p=0.5), model, provider, stream=False
    )
    body = json.loads(wire.body)
    assert {"temperature", "top_p"} & body.keys() == ({"temperature", "top_p"} if sent else set())
    assert len(wire.warnings) == (0 if sent else 2)


@pytest.mark.parametrize(
    ("provider", "model", "member"),
    [
        (OPENAI, "gpt-4o", "max_completion_tokens"),
        (known("azure"), "my-deployment", "max_completion_tokens"),
        (known("deepseek"), "deepseek-chat", "max_tokens"),
        (known("openrouter"), "openai/gpt-5", "max_tokens"),
        (SERVER, "llama-3", "max_tokens"),
        (SERVER, "gpt-4o", "max_tokens"),
        (SERVER, "gpt-5-mini", "max_completion_tokens"),
        (SERVER, "openai/o3", "max_completion_tokens"),
        (SERVER, "o4-mini-2025-04-16", "max_completion_tokens"),
    ],
)
def test_the_token_limit_has_the_servers_name(provider: OpenAIChat, model: str, member: str) -> None:
    wire = DIALECT.encode(Request(model, HELLO, max_output_tokens=9), model, provider, stream=False)
    body = json.loads(wire.body)
    assert body[member] == 9
    assert len({"max_tokens", "max_completion_tokens"} & body.keys()) == 1


def test_system_text_comes_first_in_one_message() -> None:
    body = encode(Request("gpt-4o", HELLO, system=[Text("Be brief."), Text(""), Text("Be kind.")]))
    assert body["messages"] == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "hello"},
    ]
    assert encode(Request("gpt-4o", HELLO, system="")) == encode(Request("gpt-4o", HELLO))


def test_the_system_role_is_the_servers() -> None:
    body = encode(Request("m", HELLO, system="Be brief."), quirky(system_role="developer"))
    assert body["messages"] == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "hello"},
    ]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("none", "none"),
        ("required", "required"),
        ("weather", {"type": "function", "function": {"name": "weather"}}),
    ],
)
def test_tool_choice(choice: str, expected: object) -> None:
    body = encode(Request("gpt-4o", HELLO, tools=[WEATHER], tool_choice=choice))
    assert body["tool_choice"] == expected


def test_tool_choice_has_the_servers_word() -> None:
    assert (
        encode(Request("m", HELLO, tools=[WEATHER], tool_choice="required"), known("mistral"))["tool_choice"] == "any"
    )
    with pytest.raises(InvalidRequestError, match="tool_choice"):
        encode(Request("m", HELLO, tools=[WEATHER], tool_choice="weather"), quirky(named_tool_choice=False))


def test_no_tool_choice_without_tools() -> None:
    assert "tool_choice" not in encode(Request("gpt-4o", HELLO, tool_choice="none"))


def test_tools() -> None:
    body = encode(Request("gpt-4o", HELLO, tools=[WEATHER, Tool("now")]))
    assert body["tools"] == [
        {
            "type": "function",
            "function": {"name": "weather", "description": "Returns the weather.", "parameters": WEATHER.parameters},
        },
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    ]


def test_a_strict_tool_has_its_schema_adapted() -> None:
    tool = Tool("weather", parameters=WEATHER.parameters, strict=True)
    body = encode(Request("gpt-4o", HELLO, tools=[tool]))
    function = body["tools"][0]["function"]  # type: ignore[index]
    assert function["strict"] is True
    assert function["parameters"]["required"] == ["city", "unit"]
    assert function["parameters"]["additionalProperties"] is False
    assert "required" in WEATHER.parameters
    assert WEATHER.parameters["required"] == ["city"]


def test_a_strict_tool_that_cannot_be_strict_is_refused() -> None:
    open_ended: JSONObject = {"type": "object", "additionalProperties": {"type": "string"}}
    with pytest.raises(InvalidRequestError) as caught:
        encode(Request("gpt-4o", HELLO, tools=[Tool("t", parameters=open_ended, strict=True)]))
    assert caught.value.field.startswith("tools[0].parameters")


def test_strict_false_is_sent_and_an_unset_strict_is_not() -> None:
    body = encode(Request("gpt-4o", HELLO, tools=[Tool("t", strict=False)]))
    assert body["tools"][0]["function"]["strict"] is False  # type: ignore[index]
    warned = warnings(Request("m", HELLO, tools=[Tool("t", strict=True)]), quirky(tool_strict=False))
    assert any("strict" in warning for warning in warned)


def test_parallel_tool_calls() -> None:
    request = Request("gpt-4o", HELLO, tools=[WEATHER], parallel_tool_calls=False)
    assert encode(request)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in encode(request, known("deepseek"))
    assert any("parallel_tool_calls" in warning for warning in warnings(request, known("deepseek")))
    alone = Request("gpt-4o", HELLO, parallel_tool_calls=True)
    assert "parallel_tool_calls" not in encode(alone)
    assert warnings(alone)


def test_a_response_schema_is_strict_if_possible() -> None:
    schema: JSONObject = {"title": "City of 1", "type": "object", "properties": {"name": {"type": "string"}}}
    body = encode(Request("gpt-4o", HELLO, response_schema=schema))
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {
            "name": "City_of_1",
            "schema": {
                "title": "City of 1",
                "type": "object",
                "properties": {"name": {"type": "string"}},
                "required": ["name"],
                "additionalProperties": False,
            },
            "strict": True,
        },
    }


def test_a_schema_that_cannot_be_strict_is_sent_with_a_warning() -> None:
    schema: JSONObject = {"type": "object", "additionalProperties": {"type": "integer"}}
    request = Request("gpt-4o", HELLO, response_schema=schema)
    body = encode(request)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "response", "schema": schema, "strict": False},
    }
    assert any("response_schema" in warning for warning in warnings(request))


def test_a_server_without_schemas_gets_the_schema_in_the_prompt() -> None:
    schema: JSONObject = {"type": "object", "properties": {"name": {"type": "string"}}}
    request = Request("deepseek-chat", HELLO, system="Be brief.", response_schema=schema)
    body = encode(request, known("deepseek"))
    assert body["response_format"] == {"type": "json_object"}
    system = body["messages"][0]["content"]  # type: ignore[index]
    assert system.startswith("Be brief.")
    assert '"name"' in system
    assert any("response_schema" in warning for warning in warnings(request, known("deepseek")))
    assert request.system == "Be brief."


@pytest.mark.parametrize(
    ("provider", "request_", "member"),
    [
        (known("deepseek"), Request("m", HELLO, seed=1), "seed"),
        (known("groq"), Request("m", HELLO, metadata={"a": "b"}), "metadata"),
    ],
)
def test_an_option_without_a_member_causes_a_warning(provider: OpenAIChat, request_: Request, member: str) -> None:
    assert member not in encode(request_, provider)
    assert any(warning.startswith(member) for warning in warnings(request_, provider))


def test_seed_has_the_servers_name() -> None:
    assert encode(Request("m", HELLO, seed=1), known("mistral"))["random_seed"] == 1


def test_extra_body_is_merged_last() -> None:
    body = encode(Request("gpt-4o", HELLO, temperature=1.0, extra_body={"temperature": 0.1, "service_tier": "flex"}))
    assert body["temperature"] == 0.1
    assert body["service_tier"] == "flex"


def test_cache_marks_are_sent_to_servers_that_accept_them() -> None:
    mark = CacheControl("1h")
    request = Request(
        "m",
        [Message.user([Text("long", cache_control=CacheControl()), Text("short")])],
        system=[Text("rules", cache_control=mark)],
        tools=[Tool("t", cache_control=mark)],
    )
    body = encode(request, known("openrouter"))
    assert body["messages"] == [
        {
            "role": "system",
            "content": [{"type": "text", "text": "rules", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "long", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "short"},
            ],
        },
    ]
    assert body["tools"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}  # type: ignore[index]
    assert "cache_control" not in json.dumps(encode(request))
    assert len([warning for warning in warnings(request) if "cache_control" in warning]) == 3


@pytest.mark.parametrize(
    ("ttl", "mark"),
    [(None, {"mode": "explicit"}), ("5m", {"mode": "explicit", "ttl": "30m"}),
     ("1h", {"mode": "explicit", "ttl": "12h"})],
)  # fmt: skip
@pytest.mark.parametrize("provider", [OPENAI, SERVER, known("azure"), known("azure-deployment")])
def test_openais_cache_marks_are_sent_to_models_that_accept_them(
    provider: OpenAIChat, ttl: Literal["5m", "1h"] | None, mark: JSONObject
) -> None:
    control = CacheControl(ttl)
    picture = Image(data=b"x", media_type="image/png", cache_control=control)
    conversation = [
        Message.user([Text("long", cache_control=control), Text("short"), picture]),
        Message.user(File(data=b"x", media_type="application/pdf", cache_control=control)),
        Message.user(File(data=b"x", media_type="audio/wav", cache_control=control)),
        Message.assistant([Text("I look.", cache_control=control), ToolCall("c", "f", "{}")]),
        Message(Role.TOOL, ToolResult("c", "done", cache_control=control)),
    ]
    system = [Text("rules", cache_control=control), Text("now")]

    def content(model: str) -> list[list[JSONObject]]:
        body = encode(Request(model, conversation, system=system), provider)
        messages = cast("list[dict[str, list[JSONObject]]]", body["messages"])
        return [message["content"] for message in messages]

    for model in ("gpt-5.6", "gpt-5.6-sol", "gpt-6", "openai/gpt-6.2-astra"):
        marks = [[part.get("prompt_cache_breakpoint") for part in parts] for parts in content(model)]
        assert marks == [[mark, None], [mark, None, mark], [mark], [mark], [mark], [mark]]
    for model in ("gpt-5.5", "gpt-5", "gpt-4o", "o3", "llama-5.6"):
        request = Request(model, conversation, system=system)
        assert "prompt_cache_breakpoint" not in json.dumps(encode(request, provider))
        assert len([warning for warning in warnings(request, provider) if "cache_control" in warning]) == 7


def test_openais_tools_have_no_cache_mark() -> None:
    request = Request("gpt-5.6", HELLO, tools=[Tool("f", cache_control=CacheControl())])
    assert encode(request, OPENAI)["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    ]
    assert [warning.partition(":")[0] for warning in warnings(request)] == ["tools[0].cache_control"]


def test_nothing_to_send_is_an_error() -> None:
    with pytest.raises(InvalidRequestError, match="messages"):
        encode(Request("gpt-4o", []))
    with pytest.raises(InvalidRequestError, match="messages"):
        encode(Request("gpt-4o", [Message.tool_call("a", "t", "{}")]))
