"""Every option of a request in its wire form. An option that a server cannot express causes a warning or an error."""

from __future__ import annotations

import json
from typing import Literal, cast

import pytest

import manystream as ms
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat import DIALECT
from manystream.providers.openai.chat.message_writer import wire_call_id
from tests.providers.openai.chat.wire import OPENAI, SERVER, encode, known, quirky, warnings

HELLO = [ms.Message.user("hello")]

WEATHER = ms.Tool(
    "weather",
    "Returns the weather.",
    {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]},
)


def test_the_smallest_request() -> None:
    assert encode(ms.Request("gpt-4o", HELLO)) == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "hello"}],
    }


def test_path_headers_and_query() -> None:
    wire = DIALECT.encode(ms.Request("gpt-4o", HELLO, extra_headers={"X-Trace": "1"}), "gpt-4o", OPENAI, stream=True)
    assert wire.path == "/chat/completions"
    assert wire.method == "POST"
    assert wire.headers == [("content-type", "application/json"), ("accept", "text/event-stream"), ("x-trace", "1")]
    azure = ms.OpenAIChat("key", base_url="https://mine.openai.azure.com/openai/deployments/gpt")
    assert DIALECT.encode(ms.Request("gpt", HELLO), "gpt", azure, stream=False).path.startswith(
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
    wire = DIALECT.encode(ms.Request("gpt-4o", HELLO, extra_body=extra), "gpt-4o", SERVER, stream=True)
    assert wire.unasked == unasked


@pytest.mark.parametrize(
    ("extra", "choices"), [({}, 1), ({"n": 1}, 1), ({"n": 3}, 3), ({"best_of": 3}, 0), ({"n": None}, 0)]
)
def test_the_number_of_choices_is_known_without_extra_members(extra: JSONObject, choices: int) -> None:
    wire = DIALECT.encode(ms.Request("gpt-4o", HELLO, extra_body=extra), "gpt-4o", SERVER, stream=True)
    assert wire.choices == choices


def test_headers_of_the_request_replace_the_profiles() -> None:
    copilot = known("github-copilot")
    request = ms.Request("gpt-4o", HELLO, extra_headers={"Editor-Version": "mine/1"})
    headers = dict(DIALECT.encode(request, "gpt-4o", copilot, stream=False).headers)
    assert headers["editor-version"] == "mine/1"
    assert headers["copilot-integration-id"] == "vscode-chat"


def test_a_stream_requests_usage_unless_the_server_refuses() -> None:
    body = encode(ms.Request("gpt-4o", HELLO), stream=True)
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    body = encode(ms.Request("mistral-large", HELLO), known("mistral"), stream=True)
    assert "stream_options" not in body


@pytest.mark.parametrize(
    ("provider", "model", "thinking", "sent"),
    [
        (OPENAI, "gpt-4o", None, True),
        (OPENAI, "o3-mini", None, False),
        (OPENAI, "gpt-5", ms.ThinkingLevel.LOW, False),
        (OPENAI, "gpt-5.1", ms.ThinkingLevel.NONE, True),
        (known("azure"), "gpt-5", None, False),
        (SERVER, "gpt-oss-20b", None, True),
        (known("groq"), "openai/gpt-oss-20b", ms.ThinkingLevel.HIGH, True),
    ],
)
def test_sampling_is_not_sent_to_models_that_refuse_it(
    provider: ms.OpenAIChat, model: str, thinking: ms.ThinkingLevel | None, sent: bool
) -> None:
    wire = DIALECT.encode(
        ms.Request(model, HELLO, thinking=thinking, temperature=0.5, top_p=0.5), model, provider, stream=False
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
def test_the_token_limit_has_the_servers_name(provider: ms.OpenAIChat, model: str, member: str) -> None:
    wire = DIALECT.encode(ms.Request(model, HELLO, max_output_tokens=9), model, provider, stream=False)
    body = json.loads(wire.body)
    assert body[member] == 9
    assert len({"max_tokens", "max_completion_tokens"} & body.keys()) == 1


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
    body = encode(ms.Request("gpt-4o", HELLO, tools=[WEATHER], tool_choice=choice))
    assert body["tool_choice"] == expected


def test_tool_choice_has_the_servers_word() -> None:
    assert (
        encode(ms.Request("m", HELLO, tools=[WEATHER], tool_choice="required"), known("mistral"))["tool_choice"]
        == "any"
    )
    with pytest.raises(ms.InvalidRequestError, match="tool_choice"):
        encode(ms.Request("m", HELLO, tools=[WEATHER], tool_choice="weather"), quirky(named_tool_choice=False))


def test_strict_false_is_sent_and_an_unset_strict_is_not() -> None:
    body = encode(ms.Request("gpt-4o", HELLO, tools=[ms.Tool("t", strict=False)]))
    assert body["tools"][0]["function"]["strict"] is False  # type: ignore[index]
    warned = warnings(ms.Request("m", HELLO, tools=[ms.Tool("t", strict=True)]), quirky(tool_strict=False))
    assert any("strict" in warning for warning in warned)


def test_parallel_tool_calls() -> None:
    request = ms.Request("gpt-4o", HELLO, tools=[WEATHER], parallel_tool_calls=False)
    assert encode(request)["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in encode(request, known("deepseek"))
    assert any("parallel_tool_calls" in warning for warning in warnings(request, known("deepseek")))
    alone = ms.Request("gpt-4o", HELLO, parallel_tool_calls=True)
    assert "parallel_tool_calls" not in encode(alone)
    assert warnings(alone)


def test_a_schema_that_cannot_be_strict_is_sent_with_a_warning() -> None:
    schema: JSONObject = {"type": "object", "additionalProperties": {"type": "integer"}}
    request = ms.Request("gpt-4o", HELLO, response_schema=schema)
    body = encode(request)
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "response", "schema": schema, "strict": False},
    }
    assert any("response_schema" in warning for warning in warnings(request))


def test_a_server_without_schemas_gets_the_schema_in_the_prompt() -> None:
    schema: JSONObject = {"type": "object", "properties": {"name": {"type": "string"}}}
    request = ms.Request("deepseek-chat", HELLO, system="Be brief.", response_schema=schema)
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
        (known("deepseek"), ms.Request("m", HELLO, seed=1), "seed"),
        (known("groq"), ms.Request("m", HELLO, metadata={"a": "b"}), "metadata"),
    ],
)
def test_an_option_without_a_member_causes_a_warning(
    provider: ms.OpenAIChat, request_: ms.Request, member: str
) -> None:
    assert member not in encode(request_, provider)
    assert any(warning.startswith(member) for warning in warnings(request_, provider))


def test_seed_has_the_servers_name() -> None:
    assert encode(ms.Request("m", HELLO, seed=1), known("mistral"))["random_seed"] == 1


def test_cache_marks_are_sent_to_servers_that_accept_them() -> None:
    mark = ms.CacheControl("1h")
    request = ms.Request(
        "m", [ms.Message.user([ms.Text("long", cache_control=ms.CacheControl()), ms.Text("short")])],
        system=[ms.Text("rules", cache_control=mark)], tools=[ms.Tool("t", cache_control=mark)],
    )  # fmt: skip
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
    provider: ms.OpenAIChat, ttl: Literal["5m", "1h"] | None, mark: JSONObject
) -> None:
    control = ms.CacheControl(ttl)
    picture = ms.Image(data=b"x", media_type="image/png", cache_control=control)
    conversation = [
        ms.Message.user([ms.Text("long", cache_control=control), ms.Text("short"), picture]),
        ms.Message.user(ms.File(data=b"x", media_type="application/pdf", cache_control=control)),
        ms.Message.user(ms.File(data=b"x", media_type="audio/wav", cache_control=control)),
        ms.Message.assistant([ms.Text("I look.", cache_control=control), ms.ToolCall("c", "f", "{}")]),
        ms.Message(ms.Role.TOOL, ms.ToolResult("c", "done", cache_control=control)),
    ]
    system = [ms.Text("rules", cache_control=control), ms.Text("now")]

    def content(model: str) -> list[list[JSONObject]]:
        body = encode(ms.Request(model, conversation, system=system), provider)
        messages = cast("list[dict[str, list[JSONObject]]]", body["messages"])
        return [message["content"] for message in messages]

    for model in ("gpt-5.6", "gpt-5.6-sol", "gpt-6", "openai/gpt-6.2-astra"):
        marks = [[part.get("prompt_cache_breakpoint") for part in parts] for parts in content(model)]
        assert marks == [[mark, None], [mark, None, mark], [mark], [mark], [mark], [mark]]
    for model in ("gpt-5.5", "gpt-5", "gpt-4o", "o3", "llama-5.6"):
        request = ms.Request(model, conversation, system=system)
        assert "prompt_cache_breakpoint" not in json.dumps(encode(request, provider))
        assert len([warning for warning in warnings(request, provider) if "cache_control" in warning]) == 7


def test_openais_tools_have_no_cache_mark() -> None:
    request = ms.Request("gpt-5.6", HELLO, tools=[ms.Tool("f", cache_control=ms.CacheControl())])
    assert encode(request, OPENAI)["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    ]
    assert [warning.partition(":")[0] for warning in warnings(request)] == ["tools[0].cache_control"]


def test_nothing_to_send_is_an_error() -> None:
    with pytest.raises(ms.InvalidRequestError, match="messages"):
        encode(ms.Request("gpt-4o", []))
    with pytest.raises(ms.InvalidRequestError, match="messages"):
        encode(ms.Request("gpt-4o", [ms.Message.tool_call("a", "t", "{}")]))


# --- whole bodies of requests with every option, and the edges of single options ---
NONE, LOW, MED, HIGH = ms.ThinkingLevel

SCHEMA: JSONObject = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_every_option_at_once() -> None:
    request = ms.Request(
        "gpt-5.1", HELLO, system="Be brief.", tools=[ms.Tool("f", "Does it.", SCHEMA, strict=True)], tool_choice="f",
        thinking=NONE, max_output_tokens=9, temperature=0.5, top_p=0.25, stop=["x"], seed=0,
        response_schema={**SCHEMA, "title": "A/b"}, parallel_tool_calls=True, metadata={"a": "b"},
        extra_body={"user": "u", "stream_options": {"include_obfuscation": False}},
    )  # fmt: skip
    body: JSONObject = {
        "model": "gpt-5.1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "f", "description": "Does it.", "parameters": SCHEMA, "strict": True},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": True,
        "reasoning_effort": "none",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "A_b", "schema": {**SCHEMA, "title": "A/b"}, "strict": True},
        },
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.25,
        "stop": ["x"],
        "seed": 0,
        "metadata": {"a": "b"},
        "user": "u",
    }
    assert encode(request) == body
    assert list(encode(request)) == list(body)
    options: ms.JSON = {"include_obfuscation": False}
    assert encode(request, stream=True) == {**body, "stream": True, "stream_options": options}
    assert warnings(request) == []


@pytest.mark.parametrize(
    ("title", "name"),
    [("a" * 64, "a" * 64), ("a" * 65, "a" * 64), ("a.b c", "a_b_c"), ("", "response"), ("§", "_"), (5, "response")],
)
def test_the_name_of_a_schema(title: ms.JSON, name: str) -> None:
    body = encode(ms.Request("m", HELLO, response_schema={**SCHEMA, "title": title}))
    assert body["response_format"]["json_schema"]["name"] == name  # type: ignore[index]


def test_the_schema_in_the_prompt_is_a_text_of_its_own() -> None:
    request = ms.Request("m", HELLO, system="Be brief.", response_schema=SCHEMA)
    text = (
        "Be brief.\n\nAnswer with one JSON object that fits this JSON Schema: "
        '{"type":"object","properties":{},"required":[],"additionalProperties":false}'
    )
    assert encode(request, known("deepseek"))["messages"] == [
        {"role": "system", "content": text},
        {"role": "user", "content": "hello"},
    ]


@pytest.mark.parametrize(("name", "value"), [("temperature", 0), ("top_p", 0.5)])
def test_one_sampling_option_alone(name: str, value: float) -> None:
    options: dict[str, float] = {name: value}
    body = encode(ms.Request("gpt-4o", HELLO, **options))  # type: ignore[arg-type]
    assert body == {"model": "gpt-4o", "messages": [{"role": "user", "content": "hello"}], name: value}


def test_the_name_of_a_tool_is_checked() -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        encode(ms.Request("m", HELLO, tools=[ms.Tool("a b")]))
    assert caught.value.field == "tools[0].name"
    with pytest.raises(ms.InvalidRequestError) as caught:
        encode(ms.Request("m", HELLO, temperature=-1))
    assert caught.value.field == "temperature"


@pytest.mark.parametrize(
    ("extra", "found"),
    [({"max_tokens": 5}, 5), ({"max_completion_tokens": 6, "max_tokens": 5, "n": 2}, 12), ({"n": 3}, None)],
)
def test_the_limit_of_output_tokens_is_known(extra: JSONObject, found: int | None) -> None:
    wire = DIALECT.encode(ms.Request("m", HELLO, extra_body=extra), "m", SERVER, stream=False)
    assert wire.max_output_tokens == found


def test_a_warning_is_given_once() -> None:
    mark = ms.CacheControl()
    texts = [ms.Text("a", cache_control=mark), ms.Text("b", cache_control=mark)]
    text = "messages[1]: cache_control not sent; the server caches by itself, or not at all"
    assert warnings(ms.Request("m", [*HELLO, ms.Message.assistant([*texts])])) == [text]


# --- thinking ---
THINKING: dict[str, tuple[ms.OpenAIChat, str, ms.ThinkingConfig, JSONObject]] = {
    "no effort for chat models": (OPENAI, "chatgpt-4o-latest", ms.ThinkingConfig(level=LOW), {}),
    "no effort for old models": (OPENAI, "openai/gpt-4o", ms.ThinkingConfig(level=LOW), {}),
    "an effort for others": (OPENAI, "x/y", ms.ThinkingConfig(level=LOW), {"reasoning_effort": "low"}),
    "a budget of 0": (OPENAI, "o3", ms.ThinkingConfig(budget_tokens=0), {"reasoning_effort": "none"}),
    "a budget of 0 beside an effort": (
        OPENAI, "o3", ms.ThinkingConfig(budget_tokens=0, effort="low"), {"reasoning_effort": "low"},
    ),
    "a summary alone": (OPENAI, "o3", ms.ThinkingConfig(include_summary=True), {}),
    "openrouter: a budget of 0": (
        known("openrouter"), "x", ms.ThinkingConfig(budget_tokens=0), {"reasoning": {"max_tokens": 0}},
    ),
    "openrouter: a budget and a summary": (
        known("openrouter"), "x", ms.ThinkingConfig(budget_tokens=5, include_summary=True),
        {"reasoning": {"max_tokens": 5}},
    ),
    "openrouter: an effort and a summary": (
        known("openrouter"), "x", ms.ThinkingConfig(effort="x", include_summary=True), {"reasoning": {"effort": "x"}},
    ),
    "deepseek: an effort of none": (
        known("deepseek"), "x", ms.ThinkingConfig(effort="none"), {"thinking": {"type": "disabled"}},
    ),
    "deepseek: a budget": (
        known("deepseek"), "x", ms.ThinkingConfig(budget_tokens=1), {"thinking": {"type": "enabled"}},
    ),
    "deepseek: a budget of 0 beside a level": (
        known("deepseek"), "x", ms.ThinkingConfig(budget_tokens=0, level=HIGH), {"thinking": {"type": "disabled"}},
    ),
    "databricks: a budget of 0": (
        known("databricks"), "x", ms.ThinkingConfig(budget_tokens=0), {"thinking": {"type": "disabled"}},
    ),
    "databricks: a budget beside a level": (
        known("databricks"), "x", ms.ThinkingConfig(budget_tokens=7, level=HIGH),
        {"thinking": {"type": "enabled", "budget_tokens": 7}},
    ),
    "databricks: an effort of none": (
        known("databricks"), "x", ms.ThinkingConfig(effort="none"), {"reasoning_effort": "none"},
    ),
    "alibaba: a medium level": (
        known("alibaba"), "x", ms.ThinkingConfig(level=MED), {"enable_thinking": True, "thinking_budget": 12288},
    ),
    "alibaba: a budget beside a high level": (
        known("alibaba"), "x", ms.ThinkingConfig(level=HIGH, budget_tokens=3),
        {"enable_thinking": True, "thinking_budget": 3},
    ),
    "alibaba: a budget of 0": (known("alibaba"), "x", ms.ThinkingConfig(budget_tokens=0), {"enable_thinking": False}),
    "alibaba: an effort": (known("alibaba"), "x", ms.ThinkingConfig(effort="low"), {"enable_thinking": True}),
    "alibaba: an effort of none beside a level": (
        known("alibaba"), "x", ms.ThinkingConfig(effort="none", level=LOW), {"enable_thinking": False},
    ),
    "vllm: an effort": (known("vllm"), "x", ms.ThinkingConfig(effort="low"), {"reasoning_effort": "low"}),
    "vllm: a budget of 0": (
        known("vllm"), "x", ms.ThinkingConfig(budget_tokens=0), {"chat_template_kwargs": {"enable_thinking": False}},
    ),
    "vllm: a medium level": (
        known("vllm"), "x", ms.ThinkingConfig(level=MED), {"chat_template_kwargs": {"enable_thinking": True}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("provider", "model", "config", "members"), THINKING.values(), ids=THINKING)
def test_thinking(provider: ms.OpenAIChat, model: str, config: ms.ThinkingConfig, members: JSONObject) -> None:
    wire = DIALECT.encode(ms.Request(model, HELLO, thinking=config), model, provider, stream=False)
    body = json.loads(wire.body)
    assert {name: body[name] for name in body if name not in ("model", "messages")} == members


# --- the conversation ---
REPLACED = {"nine": "RksXkbv4v", "forty": "call_w2LCGZi5CRZ7rRl13Il4iIzF", "half": "r3DjF8Rsb"}
"""Ids in stored conversations must stay the same in later versions."""


def test_ids_that_replace_others_never_change() -> None:
    assert wire_call_id("call_1", "nine_alphanumerics") == REPLACED["nine"]
    assert wire_call_id("x" * 41, "at_most_40") == REPLACED["forty"]
    assert wire_call_id("\ud800", "nine_alphanumerics") == REPLACED["half"]
    assert wire_call_id("x" * 40, "at_most_40") == "x" * 40
    assert wire_call_id("a\nb", "at_most_40") == "a\nb"
    for id in ("abcdefgh-", "abcdefgh", "abcdefghij", "abcdefgh\n"):
        assert wire_call_id(id, "nine_alphanumerics") != id
    assert wire_call_id("", "at_most_40").startswith("call_")


def test_ids_that_are_replaced_by_the_same_text_stay_apart() -> None:
    turn = ms.Message.assistant([ms.ToolCall("a", "f", "1"), ms.ToolCall("a", "g", "2")])
    results = ms.Message("tool", [ms.ToolResult("a", "r"), ms.ToolResult("a", "s")])
    wire = encode(ms.Request("m", [*HELLO, turn, results]), SERVER)["messages"]
    assert [message.get("tool_call_id") for message in wire] == [None, None, "a", "a_2"]  # type: ignore[attr-defined]


def own(text: str, provider: ms.OpenAIChat, **data: ms.JSON) -> ms.Thinking:
    return ms.Thinking(text, state=ms.ProviderState(provider.maker, {**data}))


FOREIGN = ms.Thinking("foreign", "signature")

ASSISTANT = "messages: thinking that {!r} did not make is not sent to it"

REASONING: dict[str, tuple[str, list[ms.Thinking], JSONObject]] = {
    "joined": ("moonshot", [own("a", known("moonshot")), own("b", known("moonshot"))], {"reasoning_content": "ab"}),
    "beside a foreign one": ("moonshot", [FOREIGN, own("b", known("moonshot"))], {"reasoning_content": "b"}),
    "foreign and required": ("deepseek", [FOREIGN], {"reasoning_content": ""}),
    "as received, by the last": (
        "fireworks",
        [
            own("a", known("fireworks"), reasoning_member="reasoning_content"),
            own("b", known("fireworks"), reasoning_member="reasoning"),
        ],
        {"reasoning": "ab"},
    ),
    "as received, not text": ("fireworks", [own("a", known("fireworks"), reasoning_member=5)], {}),
    "as received, empty": ("fireworks", [own("", known("fireworks"), reasoning_member="reasoning")], {}),
    "its own member": ("groq", [own("a", known("groq"), reasoning_member=5)], {"reasoning": "a"}),
    "parts without text": ("mistral", [own("", known("mistral"))], {}),
    "parts": (
        "mistral",
        [own("a", known("mistral"))],
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]},
    ),
    "details of the last": (
        "openrouter",
        [own("a", known("openrouter"), reasoning_details=[{"a": 1}]), own("b", known("openrouter"))],
        {"reasoning_details": [{"a": 1}]},
    ),
    "empty details": ("openrouter", [own("a", known("openrouter"), reasoning_details=[])], {"reasoning": "a"}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "blocks", "members"), REASONING.values(), ids=REASONING)
def test_reasoning_beside_a_call(name: str, blocks: list[ms.Thinking], members: JSONObject) -> None:
    provider = known(name)
    conversation = [*HELLO, ms.Message.assistant([*blocks, ms.ToolCall("abcdefghi", "f", "{}")]),
                    ms.Message.tool_result("abcdefghi", "ok")]  # fmt: skip
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert encode(ms.Request("m", conversation), provider)["messages"][1] == {  # type: ignore[index]
        "role": "assistant", "content": None, **members, "tool_calls": [call],
    }  # fmt: skip
    expected = [ASSISTANT.format(name)] if FOREIGN in blocks else []
    assert warnings(ms.Request("m", conversation), provider) == expected


def test_the_files_of_two_results_follow_in_order() -> None:
    turn = ms.Message.assistant([ms.ToolCall("a", "f", "{}"), ms.ToolCall("b", "f", "{}")])
    first = ms.ToolResult("a", [ms.Text("x"), ms.Image(url="u"), ms.Text("y")])
    second = ms.ToolResult("b", [ms.File(file_id="i")], cache_control=ms.CacheControl())
    wire = encode(ms.Request("m", [*HELLO, turn, ms.Message("tool", [first, second])]), OPENAI)["messages"]
    assert wire[2:] == [  # type: ignore[index]
        {"role": "tool", "tool_call_id": "a", "content": "xy"},
        {"role": "tool", "tool_call_id": "b", "content": "The files of tool result b follow."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "The files of tool result a:"},
                {"type": "image_url", "image_url": {"url": "u"}},
                {"type": "text", "text": "The files of tool result b:"},
                {"type": "file", "file": {"file_id": "i"}},
            ],
        },
    ]


def test_a_mark_of_a_result_is_on_its_last_text() -> None:
    result = ms.ToolResult("a", [ms.Text("x"), ms.Text("y")], cache_control=ms.CacheControl("1h"))
    conversation = [*HELLO, ms.Message.tool_call("a", "f", "{}"), ms.Message("tool", result)]
    assert encode(ms.Request("m", conversation), known("openrouter"))["messages"][2] == {  # type: ignore[index]
        "role": "tool",
        "tool_call_id": "a",
        "content": [
            {"type": "text", "text": "x"},
            {"type": "text", "text": "y", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
    }
    text = "messages[2].content[0]: cache_control not sent; the server caches by itself, or not at all"
    assert warnings(ms.Request("m", conversation)) == [text]
    assert encode(ms.Request("m", conversation))["messages"][2]["content"] == "xy"  # type: ignore[index]


def test_marked_texts_of_an_assistant_are_parts() -> None:
    message = ms.Message.assistant([ms.Text("a", cache_control=ms.CacheControl()), ms.Text("b")])
    provider = quirky(cache_mark="cache_control")
    assert encode(ms.Request("m", [*HELLO, message]), provider)["messages"][1] == {  # type: ignore[index]
        "role": "assistant",
        "content": [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "b"},
        ],
    }


def test_parameters_of_a_media_type_do_not_hide_the_format() -> None:
    sound = ms.File(data=b"abc", media_type="audio/wav; rate=1")
    part = {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}}
    assert encode(ms.Request("m", [ms.Message.user(sound)]), OPENAI)["messages"] == [
        {"role": "user", "content": [part]}
    ]


def test_media_types_are_read_in_any_case() -> None:
    picture = ms.File(data=b"abc", media_type=" IMAGE/PNG ")
    body = encode(ms.Request("m", [ms.Message.user(picture)]), OPENAI)
    url = "data: IMAGE/PNG ;base64,YWJj"
    assert body["messages"] == [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
