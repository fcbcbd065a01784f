"""A request's options on the wire, each checked against the types of OpenAI's own client."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manystream.providers.catalog.profile import Profile, Quirks
from manystream.providers.catalog.provider import OpenAIResponses
from manystream.providers.errors import InvalidRequestError
from manystream.providers.json.json_values import JSONObject
from manystream.providers.model.messages import Message, Text
from manystream.providers.model.request import Request, ThinkingConfig, ThinkingLevel, Tool
from manystream.providers.openai.responses.dialect import DIALECT
from manystream.providers.openai.responses.request import MIN_OUTPUT_TOKENS, NO_PLACE
from tests.providers.openai_responses.wire import PROVIDER, body_of, warnings_of

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


def test_stream_is_sent_only_for_streams() -> None:
    assert body_of(ASK, streamed=True)["stream"] is True
    assert "stream" not in body_of(ASK)


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


def test_requests_are_stateless_unless_extra_body_changes_it() -> None:
    assert body_of(ASK)["store"] is False
    assert body_of(replace(ASK, extra_body={"store": True}))["store"] is True


@pytest.mark.parametrize(
    ("system", "instructions"),
    [("Be brief.", "Be brief."), ([Text("Be"), Text(""), Text("brief.")], "Be\n\nbrief."), ("", None), ([], None)],
)
def test_system_blocks_become_instructions(system: str | list[Text], instructions: str | None) -> None:
    assert body_of(replace(ASK, system=system)).get("instructions") == instructions


def test_tools_are_flat_and_strict_follows_the_schema() -> None:
    body = body_of(replace(ASK, tools=[WEATHER, Tool("now")]))
    assert body["tools"] == [
        {
            "type": "function",
            "name": "weather",
            "description": "Weather at a place",
            "parameters": WEATHER.parameters,
            "strict": False,
        },
        {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}, "strict": False},
    ]
    assert body["tool_choice"] == "auto"


def test_a_strict_tool_has_its_schema_adapted() -> None:
    tools = body_of(replace(ASK, tools=[replace(WEATHER, strict=True)]))["tools"]
    assert isinstance(tools, list)
    assert isinstance(tools[0], dict)
    adapted = {
        "type": "object",
        "properties": {"at": {"type": "string"}},
        "required": ["at"],
        "additionalProperties": False,
    }
    assert (tools[0]["strict"], tools[0]["parameters"]) == (True, adapted)
    again = body_of(replace(ASK, tools=[replace(WEATHER, parameters=adapted)]))["tools"]
    assert again == tools, "a schema that is strict as it stands is sent as strict"
    declined = body_of(replace(ASK, tools=[replace(WEATHER, parameters=adapted, strict=False)]))["tools"]
    assert isinstance(declined, list)
    assert isinstance(declined[0], dict)
    assert declined[0]["strict"] is False


def test_a_tool_that_cannot_be_strict_is_refused() -> None:
    tool = Tool("free", parameters={"type": "object", "properties": {}, "additionalProperties": True}, strict=True)
    with pytest.raises(InvalidRequestError, match="strict mode") as raised:
        body_of(replace(ASK, tools=[WEATHER, tool]))
    assert raised.value.field == "tools[1].parameters.additionalProperties"


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


def test_a_response_schema_is_a_strict_format_with_a_name() -> None:
    assert body_of(replace(ASK, response_schema=SCHEMA))["text"] == {
        "format": {
            "type": "json_schema",
            "name": "A_place_",
            "schema": {**SCHEMA, "required": ["name"], "additionalProperties": False},
            "strict": True,
        }
    }
    untitled = {key: value for key, value in SCHEMA.items() if key != "title"}
    text = body_of(replace(ASK, response_schema=untitled))["text"]
    assert isinstance(text, dict)
    assert isinstance(text["format"], dict)
    assert text["format"]["name"] == "response"


def test_a_response_schema_that_cannot_be_strict_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        body_of(replace(ASK, response_schema={"type": "object", "properties": {"a": {"not": {}}}}))
    assert raised.value.field == "response_schema.properties.a.not"


@pytest.mark.parametrize(("asked", "sent"), [(1, MIN_OUTPUT_TOKENS), (15, MIN_OUTPUT_TOKENS), (16, 16), (9000, 9000)])
def test_the_output_limit_is_never_below_the_apis_minimum(asked: int, sent: int) -> None:
    request = replace(ASK, max_output_tokens=asked)
    assert body_of(request)["max_output_tokens"] == sent
    assert bool(warnings_of(request)) is (asked != sent)


def test_metadata() -> None:
    assert body_of(replace(ASK, metadata={"team": "a"}))["metadata"] == {"team": "a"}


@pytest.mark.parametrize("name", NO_PLACE)
def test_options_without_a_place_are_told_not_dropped_in_silence(name: str) -> None:
    request = replace(ASK, stop=["END"]) if name == "stop" else replace(ASK, seed=0)
    assert name not in body_of(request)
    assert [warning.partition(":")[0] for warning in warnings_of(request)] == [name]


def test_a_request_that_can_be_sent_in_full_has_no_warnings() -> None:
    assert warnings_of(replace(ASK, tools=[WEATHER], temperature=0.5, top_p=0.9, max_output_tokens=100)) == []


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
def test_sampling_is_sent_only_where_the_model_takes_it(
    model: str, thinking: ThinkingLevel | None, taken: bool
) -> None:
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
    ],
)
def test_thinking(model: str, thinking: ThinkingLevel | ThinkingConfig | None, reasoning: object) -> None:
    request = replace(ASK, model=model, thinking=thinking)
    assert body_of(request).get("reasoning") == reasoning
    assert warnings_of(request) == []


@pytest.mark.parametrize("model", ["gpt-4.1", "o1-mini"])
def test_thinking_that_the_model_takes_no_effort_for_is_told(model: str) -> None:
    request = replace(ASK, model=model, thinking=ThinkingLevel.HIGH)
    assert "effort" not in str(body_of(request).get("reasoning"))
    assert warnings_of(request)[0].startswith("thinking: not sent")


def test_a_thinking_budget_needs_a_level_or_an_effort() -> None:
    request = replace(ASK, model="gpt-5", thinking=ThinkingConfig(level=ThinkingLevel.LOW, budget_tokens=1000))
    assert warnings_of(request)[0].startswith("thinking.budget_tokens")
    with pytest.raises(InvalidRequestError) as raised:
        body_of(replace(ASK, model="gpt-5", thinking=ThinkingConfig(budget_tokens=1000)))
    assert raised.value.field == "thinking.budget_tokens"


def test_extra_body_goes_in_last_and_joins_objects() -> None:
    request = replace(
        ASK,
        model="gpt-5",
        response_schema=SCHEMA,
        thinking=ThinkingLevel.LOW,
        extra_body={"text": {"verbosity": "low"}, "reasoning": {"summary": "detailed"}, "include": [], "user": "u"},
    )
    body = body_of(request)
    text = body["text"]
    assert isinstance(text, dict)
    assert set(text) == {"format", "verbosity"}
    assert body["reasoning"] == {"effort": "low", "summary": "detailed"}
    assert (body["include"], body["user"]) == ([], "u")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_in_the_background_is_refused_by_name(streamed: bool) -> None:
    given = Request.from_openai_responses(model="gpt-5", input="Hello", background=True)
    for request in (replace(ASK, extra_body={"background": True}), given):
        with pytest.raises(InvalidRequestError, match="background is returned before its answer") as raised:
            body_of(request, streamed=streamed)
        assert raised.value.field == "extra_body.background"
    for value in (False, None):
        assert body_of(replace(ASK, extra_body={"background": value}), streamed=streamed)["background"] is value


def test_what_json_cannot_carry_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        body_of(replace(ASK, messages=[Message.user("\ud800")]))


def test_an_invalid_request_is_refused_before_it_is_written() -> None:
    with pytest.raises(InvalidRequestError) as raised:
        body_of(replace(ASK, messages=[]))
    assert raised.value.field == "messages"


def test_a_request_with_nothing_to_send_is_refused() -> None:
    request = replace(ASK, messages=[Message.tool_call("c", "f", "{}")])
    with pytest.raises(InvalidRequestError) as raised:
        body_of(request)
    assert raised.value.field == "messages"
    assert body_of(replace(request, extra_body={"previous_response_id": "resp_1"}))["input"] == []
