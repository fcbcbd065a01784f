"""The SDKs' own arguments: what is read of them, encoded again, is the body that the SDK sends. The SDK is the witness.

The examples are those of the SDKs' documentation, in our words: each option, each form of content, dicts and objects.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Literal

import openai
import pydantic
import pytest
from anthropic.resources.beta.messages import Messages as BetaMessages
from anthropic.resources.messages import Messages
from google.genai import types
from google.genai.interactions import CreateModelInteractionParam
from openai.resources.chat.completions import Completions
from openai.resources.responses import Responses

import manystream as ms
from manystream.providers.anthropic.arguments import ARGUMENTS as ANTHROPIC_ARGUMENTS
from manystream.providers.convert.sdk_arguments import plain
from manystream.providers.gemini.arguments import CONFIG_MEMBERS
from manystream.providers.gemini_interactions.arguments import ARGUMENTS as INTERACTION_ARGUMENTS
from manystream.providers.openai.chat.arguments import ARGUMENTS as CHAT_ARGUMENTS
from manystream.providers.openai.responses.arguments import ARGUMENTS as RESPONSES_ARGUMENTS
from manystream.providers.openai.responses.arguments import NO_REQUEST
from tests.providers.sdk_bodies import PROVIDERS, READERS, sent_by_sdk, sent_by_us, warnings_of
from tests.providers.sdk_examples import BASES, CHAT, CHAT_TOOL, CLAUDE, GEMINI, INTERACTIONS, RESPONSES, SCHEMA, USER

EXAMPLES = [
    pytest.param(sdk, {**BASES[sdk], **example}, id=f"{sdk}: {name}") for sdk,
    examples in (("openai", CHAT), ("openai_responses", RESPONSES), ("anthropic", CLAUDE), ("gemini", GEMINI),
    ("interactions", INTERACTIONS)) for name, example in examples.items()
]  # fmt: skip


@pytest.mark.parametrize(("sdk", "arguments"), EXAMPLES)
def test_the_body_is_the_one_that_the_sdk_sends(sdk: str, arguments: dict[str, object]) -> None:
    assert sent_by_us(sdk, READERS[sdk](**arguments)) == sent_by_sdk(sdk, arguments)


@pytest.mark.parametrize(("sdk", "arguments"), EXAMPLES)
def test_every_example_can_be_written_from_its_fields_alone(sdk: str, arguments: dict[str, object]) -> None:
    """Without the body as given: what another dialect, or a changed request, is written from."""
    request = dataclasses.replace(READERS[sdk](**arguments), _given=None)
    assert sent_by_us(sdk, request)
    assert request.messages


def test_what_is_sent_as_given_is_not_warned_about() -> None:
    request = ms.Request.from_openai(**BASES["openai"], temperature=0.2)
    assert warnings_of("openai", request) == []
    assert warnings_of("openai", dataclasses.replace(request, top_p=0.5)) != []


# --- fields ---


def test_fields_hold_what_all_dialects_share() -> None:
    request = ms.Request.from_openai(
        model="gpt-5", messages=[{"role": "system", "content": "Be brief."}, USER], tools=[CHAT_TOOL],
        tool_choice={"type": "function", "function": {"name": "look"}}, parallel_tool_calls=False,
        reasoning_effort="low", response_format=CHAT["json schema"]["response_format"], max_completion_tokens=9,
        temperature=0.1, top_p=0.5, stop="A", seed=3, metadata={"a": "b"}, logit_bias={"1": 2}, timeout=5,
        extra_headers={"x-a": "b"}, extra_body={"top_k": 4},
    )  # fmt: skip
    assert request == ms.Request(
        "gpt-5", [ms.Message.user("Which river?")], system="Be brief.",
        tools=[ms.Tool("look", "Look.", SCHEMA, strict=True)], tool_choice="look", parallel_tool_calls=False,
        thinking=ms.ThinkingConfig(effort="low"), response_schema=SCHEMA, max_output_tokens=9, temperature=0.1,
        top_p=0.5, stop=["A"], seed=3, metadata={"a": "b"}, timeouts=ms.Timeouts(connect=5, first_byte=5, idle=5),
        extra_headers={"x-a": "b"}, extra_body={"logit_bias": {"1": 2}, "top_k": 4},
    )  # fmt: skip


def test_geminis_options_are_fields_that_another_dialect_writes() -> None:
    config = types.GenerateContentConfig(
        system_instruction="Be brief.", max_output_tokens=9, temperature=0.1, top_p=0.5, top_k=4, stop_sequences=["A"],
        seed=3, labels={"a": "b"},
    )  # fmt: skip
    request = ms.Request.from_gemini(model="gemini-2.5-flash", contents="Which river?", config=config)
    assert request == ms.Request(
        "gemini-2.5-flash", [ms.Message.user("Which river?")], system="Be brief.", tools=[], max_output_tokens=9,
        temperature=0.1, top_p=0.5, stop=["A"], seed=3, metadata={"a": "b"},
        extra_body={"generationConfig": {"topK": 4}},
    )  # fmt: skip
    body = sent_by_us("openai", dataclasses.replace(request, model="gpt-4o", extra_body=None))
    assert (body["seed"], body["stop"], body["top_p"]) == (3, ["A"], 0.5)


def test_another_dialect_is_written_from_the_fields() -> None:
    request = ms.Request.from_openai(**BASES["openai"], tools=[CHAT_TOOL], max_tokens=9)
    body = sent_by_us("anthropic", dataclasses.replace(request, model="claude-sonnet-4-5"))
    assert body["max_tokens"] == 9
    assert body["messages"] == [{"role": "user", "content": "Which river?"}]
    assert [tool["name"] for tool in body["tools"]] == ["look"]  # type: ignore[index, union-attr, call-overload]  # pyright: ignore


def test_only_a_changed_field_is_written_in_another_form() -> None:
    request = ms.Request.from_openai(
        model="gpt-4o", messages=[{"role": "user", "content": "Hi", "name": "ada"}], max_tokens=9, tools=[CHAT_TOOL]
    )
    body = sent_by_us("openai", dataclasses.replace(request, max_output_tokens=7))
    assert (body["max_completion_tokens"], body["messages"]) == (7, [{"role": "user", "content": "Hi", "name": "ada"}])
    assert "tool_choice" not in body
    assert "max_tokens" not in body
    request.messages[0].content[0] = ms.Text("Bye")
    assert sent_by_us("openai", request)["messages"] == [{"role": "user", "content": "Bye"}]


def test_what_the_caller_changes_afterwards_changes_nothing() -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Hi"}]
    request = ms.Request.from_openai(model="gpt-5", messages=messages)
    messages[0]["content"] = "Bye"
    messages.append(USER)
    assert sent_by_us("openai", request)["messages"] == [{"role": "user", "content": "Hi"}]


def test_a_generator_of_messages_is_read_once() -> None:
    request = ms.Request.from_openai(model="gpt-5", messages=(message for message in (USER, USER)))
    assert len(request.messages) == 2


class Place(pydantic.BaseModel):
    city: str


@pytest.mark.parametrize(
    ("sdk", "name"),
    [("openai", "response_format"), ("openai_responses", "text_format"), ("anthropic", "output_format")],
)
def test_a_class_is_the_schema_of_the_answer(sdk: str, name: str) -> None:
    request = READERS[sdk](**BASES[sdk], **{name: Place})
    assert request.response_schema is Place
    assert "city" in str(sent_by_us(sdk, request))


def test_a_class_in_geminis_config_is_the_schema_of_the_answer() -> None:
    config = types.GenerateContentConfig(response_mime_type="application/json", response_schema=Place)
    request = ms.Request.from_gemini(**BASES["gemini"], config=config)
    assert request.response_schema is Place
    assert "city" in str(sent_by_us("gemini", request))


TOOL_CHOICES: list[tuple[str, dict[str, object], str]] = [
    *[("openai", {"tools": [CHAT_TOOL], "tool_choice": mode}, mode) for mode in ("auto", "none", "required")],
    *[("openai_responses", {"tools": [{"type": "function", "name": "look", "parameters": SCHEMA, "strict": True}],
        "tool_choice": mode}, mode) for mode in ("auto", "none", "required")],
    *[("anthropic", {"tools": [{"name": "look", "input_schema": SCHEMA}], "tool_choice": {"type": kind}}, mode)
        for kind, mode in (("auto", "auto"), ("none", "none"), ("any", "required"))],
    *[("gemini", {"config": {"tools": [{"function_declarations": [{"name": "look",
        "parameters_json_schema": SCHEMA}]}], "tool_config": {"function_calling_config": {"mode": kind}}}}, mode)
        for kind, mode in (("AUTO", "auto"), ("NONE", "none"), ("ANY", "required"))],
]  # fmt: skip


@pytest.mark.parametrize(("sdk", "arguments", "mode"), TOOL_CHOICES)
def test_a_choice_of_tools_is_written_by_every_dialect(sdk: str, arguments: dict[str, object], mode: str) -> None:
    request = READERS[sdk](**BASES[sdk], **arguments)
    assert (request.tool_choice, request.extra_body or {}) == (mode, {})
    assert [tool.name for tool in request.tools or []] == ["look"]
    body = sent_by_us("anthropic", dataclasses.replace(request, model="claude-sonnet-4-5"))
    kind = {"auto": "auto", "none": "none", "required": "any"}[mode]
    assert body.get("tool_choice", {"type": "auto"}) == {"type": kind}


FORMS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "json": ({"response_mime_type": "application/json"}, {"responseMimeType": "application/json"}),
    "a word of a list": (
        {"response_mime_type": "text/x.enum", "response_json_schema": {"type": "string", "enum": ["a"]}},
        {"responseMimeType": "text/x.enum", "responseJsonSchema": {"type": "string", "enum": ["a"]}},
    ),
    "a schema alone": ({"response_json_schema": SCHEMA}, {"responseJsonSchema": SCHEMA}),
}


@pytest.mark.parametrize(("config", "sent"), FORMS.values(), ids=FORMS)
def test_geminis_other_forms_of_an_answer_are_kept(config: dict[str, object], sent: dict[str, object]) -> None:
    request = ms.Request.from_gemini(**BASES["gemini"], config=config)
    assert request.response_schema is None
    assert sent_by_us("gemini", dataclasses.replace(request, seed=3))["generationConfig"] == {**sent, "seed": 3}


def test_only_the_types_of_a_schema_are_read_as_openapis() -> None:
    values = [{"type": "STRING", "nullable": True}]
    schema = {"type": "ARRAY", "items": {"anyOf": [{"type": "STRING"}, {"type": "OBJECT"}]}, "default": values}
    tool = {"function_declarations": [{"name": "look", "parameters": schema}]}
    request = ms.Request.from_gemini(**BASES["gemini"], config={"tools": [tool]})
    assert request.tools[0].parameters == {
        "type": "array",
        "items": {"anyOf": [{"type": "string"}, {"type": "object"}]},
        "default": values,
    }


def test_a_prompt_of_the_server_needs_no_input() -> None:
    request = ms.Request.from_openai_responses(model="gpt-5", prompt={"id": "pmpt_1"})
    assert sent_by_us("openai_responses", request) == {"model": "gpt-5", "prompt": {"id": "pmpt_1"}}
    assert request.messages == [ms.Message.user([ms.Text("")])]


# --- the call's own options ---


def test_stream_is_decided_by_how_the_request_is_sent() -> None:
    request = ms.Request.from_openai(**BASES["openai"], stream=True, stream_options={"include_obfuscation": False})
    assert sent_by_us("openai", request) == BASES["openai"]
    streamed = sent_by_us("openai", request, stream=True)
    assert streamed["stream_options"] == {"include_obfuscation": False}
    assert "stream_options" not in sent_by_us("openai_responses", request)


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (5, ms.Timeouts(connect=5, first_byte=5, idle=5)),
        (None, ms.Timeouts(connect=math.inf, first_byte=math.inf, idle=math.inf)),
        (openai.Timeout(60, connect=2), ms.Timeouts(connect=2, first_byte=60, idle=60)),
        (openai.NOT_GIVEN, None),
    ],
)
def test_a_timeout_becomes_clocks(timeout: object, expected: ms.Timeouts | None) -> None:
    assert ms.Request.from_openai(**BASES["openai"], timeout=timeout).timeouts == expected


def test_geminis_http_options_are_carried() -> None:
    options = types.HttpOptions(timeout=5000, headers={"x-a": "b"}, extra_body={"labels": {"a": "b"}})
    request = ms.Request.from_gemini(**BASES["gemini"], config={"http_options": options})
    assert request.timeouts == ms.Timeouts(connect=5, first_byte=5, idle=5)
    assert (request.extra_headers, request.extra_body) == ({"x-a": "b"}, {"labels": {"a": "b"}})


def test_betas_are_a_header() -> None:
    request = ms.Request.from_anthropic(**BASES["anthropic"], betas=["a", "b"], extra_headers={"x-a": "b"})
    assert request.extra_headers == {"x-a": "b", "anthropic-beta": "a,b"}


# --- errors ---

Sdk = Literal["openai", "openai_responses", "anthropic", "gemini"]

REFUSED: list[tuple[Sdk, dict[str, object], str]] = [
    ("openai", {"mesages": []},
        "mesages: is no argument of openai's client.chat.completions.create; did you mean 'messages'?"),
    ("openai", {"top_k": 3}, "top_k: is no argument of"),
    ("openai", {"messages": []}, "messages: must hold at least one message"),
    ("openai", {"messages": [USER, {"role": "function", "content": "x"}]}, "messages[1].role: unknown role"),
    ("openai", {"messages": [USER, USER, {"role": "user", "content": [{"type": "smell"}]}]},
        "messages[2].content[0].type: unknown part 'smell'"),
    ("openai", {"messages": [{"role": "user", "content": b"x"}]}, "messages[0].content: cannot be carried: bytes"),
    ("openai", {"messages": [ms.Message.user("x")]}, "messages[0]: is a value of manystream"),
    ("openai", {"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "§"}}]}]},
        "messages[0].content[0].input_audio.data: is not base64 text"),
    ("openai", {"temperature": "warm"}, "temperature: must be a number, not text"),
    ("openai", {"temperature": math.nan}, "temperature: JSON cannot carry the number nan"),
    ("openai", {"tools": [print]}, "tools[0]: cannot be carried: a function"),
    ("openai", {"tools": [{"type": "function", "function": {"parameters": {}}}]}, "tools[0].name: is missing"),
    ("openai", {"tools": [CHAT_TOOL], "tool_choice": {"type": "function", "function": {"name": "hear"}}},
        "tool_choice: 'hear' is the name of no tool"),
    ("openai", {"response_format": int}, "response_format: must be a class with model_json_schema()"),
    ("openai", {"extra_query": {"a": "b"}}, "extra_query: cannot be carried"),
    ("openai", {"timeout": -1}, "timeout: must be seconds above 0"),
    ("openai", {"extra_body": [1]}, "extra_body: must be a dict"),
    ("openai_responses", {"input": []}, "input: must hold at least one message"),
    ("openai_responses", {"input": [{"type": "smell"}]}, "input[0].type: unknown item 'smell'"),
    ("openai_responses", {"response_id": "resp_1"}, "response_id: cannot be carried"),
    ("anthropic", {"messages": [{"role": "user", "content": [{"type": "smell"}]}]},
        "messages[0].content[0].type: unknown block 'smell'"),
    ("anthropic", {"system": [{"type": "smell"}]}, "system[0].type: unknown block 'smell'"),
    ("anthropic", {"tools": [{"name": "look"}]}, "tools[0].input_schema: is missing"),
    ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": "9"}},
        "thinking.budget_tokens: must be a whole number"),
    ("gemini", {"contents": None}, "contents: are missing"),
    ("gemini", {"contents": 3}, "contents: must be text, a part, a content or a file"),
    ("gemini", {"contents": [{"role": "user", "parts": [{"smell": 1}]}]}, "contents[0].parts[0]: unknown part 'smell'"),
    ("gemini", {"config": {"temprature": 1}}, "config.temprature: is no argument of"),
    ("gemini", {"config": {"tools": [print]}}, "config.tools[0]: cannot be carried: a function"),
    ("gemini", {"config": {"http_options": {"extra_body": [1]}}}, "config.http_options.extra_body: must be a dict"),
    ("gemini", {"config": {"http_options": {"base_url": "x"}}}, "config.http_options.baseUrl: cannot be carried"),
    ("gemini", {"temperature": 1}, "temperature: is no argument of google-genai's client.models.generate_content"),
]  # fmt: skip


@pytest.mark.parametrize(("sdk", "arguments", "message"), REFUSED)
def test_what_cannot_be_carried_is_named_by_its_path(sdk: Sdk, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        READERS[sdk](**{**BASES[sdk], **arguments})
    assert str(caught.value).startswith(message)


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(ms.InvalidRequestError, match="nested too deeply"):
        ms.Request.from_openai(model="gpt-5", messages=endless)


WRAPPED: dict[str, Callable[[object], object]] = {
    "lists": lambda inner: [inner], "tuples": lambda inner: (inner,), "iterators": lambda inner: iter([inner]),
    "objects": lambda inner: {"a": inner},
}  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_an_argument_may_be_nested_200_levels_deep(wrap: Callable[[object], object]) -> None:
    def nested(levels: int) -> object:
        value: object = 0.5
        for _ in range(levels):
            value = wrap(value)
        return value

    assert str(plain(nested(200), "metadata")).count("0.5") == 1
    with pytest.raises(ms.InvalidRequestError, match=r"^metadata.*: is nested too deeply$"):
        plain(nested(201), "metadata")


@pytest.mark.parametrize("sdk", list(PROVIDERS))
def test_a_missing_model_is_named(sdk: str) -> None:
    with pytest.raises(ms.InvalidRequestError, match="model: is missing"):
        READERS[sdk](**{name: value for name, value in BASES[sdk].items() if name != "model"})


# --- the lists of arguments ---


def parameters(*methods: Callable[..., object]) -> set[str]:
    return {name for method in methods for name in inspect.signature(method).parameters} - {"self"}


def test_every_argument_of_the_installed_sdks_is_known() -> None:
    chat, responses = Completions, Responses
    claude = Messages
    assert parameters(chat.create, chat.parse, chat.stream) <= CHAT_ARGUMENTS
    assert parameters(responses.create, responses.parse, responses.stream) <= RESPONSES_ARGUMENTS | {*NO_REQUEST}
    methods = (claude.create, claude.parse, claude.stream, BetaMessages.create, BetaMessages.parse, BetaMessages.stream)
    assert parameters(*methods) - {"tool_runner"} <= ANTHROPIC_ARGUMENTS
    config = {str(field.alias) for field in types.GenerateContentConfig.model_fields.values()}
    assert config - {"shouldReturnHttpResponse"} <= CONFIG_MEMBERS
    assert {*CreateModelInteractionParam.__annotations__} <= INTERACTION_ARGUMENTS
