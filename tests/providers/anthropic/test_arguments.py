"""The arguments of `client.messages.create` as a request: the whole request for each form, and the whole error."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import manystream as ms
from manystream.providers.anthropic.arguments import read_body
from manystream.providers.convert.sdk_arguments import CallOptions
from tests.providers.sdk_bodies import sent_by_us

MODEL = "claude-opus-4-6"
USER: dict[str, object] = {"role": "user", "content": "Which river?"}
BASE: dict[str, Any] = {"model": MODEL, "max_tokens": 100, "messages": [USER]}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
LOOK: dict[str, Any] = {"name": "look", "description": "Look.", "input_schema": SCHEMA}
TOOL = ms.Tool("look", "Look.", SCHEMA)


def read(**arguments: object) -> ms.Request:
    return ms.Request.from_anthropic(**{**BASE, **arguments})


def request(**options: Any) -> ms.Request:
    """Return the expected request. `from_anthropic` gives lists where `Request` has empty tuples."""
    defaults: dict[str, Any] = {"max_output_tokens": 100, "tools": [], "stop": []}
    return ms.Request(MODEL, [ms.Message.user("Which river?")], **{**defaults, **options})


def test_each_option_becomes_its_field() -> None:
    arguments: dict[str, Any] = {
        "system": "Be brief.",
        "tools": [
            LOOK,
            {
                "type": "custom",
                "name": "wait",
                "input_schema": {"type": "object"},
                "strict": True,
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            },
        ],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 4,
        "stop_sequences": ["A", "B"],
        "metadata": {"user_id": "ada"},
        "service_tier": "auto",
        "betas": ["a", "b"],
        "timeout": 5,
        "extra_headers": {"x-a": "b"},
        "extra_body": {"speed": "fast"},
    }
    assert read(**arguments) == request(
        system="Be brief.",
        tools=[TOOL, ms.Tool("wait", "", {"type": "object"}, True, ms.CacheControl("1h"))],
        tool_choice="look",
        parallel_tool_calls=False,
        thinking=ms.ThinkingConfig(budget_tokens=2048, effort="low", include_summary=False),
        response_schema=SCHEMA,
        temperature=0.5,
        top_p=0.25,
        stop=["A", "B"],
        metadata={"user_id": "ada"},
        timeouts=ms.Timeouts(connect=5, first_byte=5, idle=5),
        extra_headers={"x-a": "b", "anthropic-beta": "a,b"},
        extra_body={"top_k": 4, "service_tier": "auto", "speed": "fast"},
    )


SPECIAL: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "nothing": ({}, {}),
    "a system prompt of one plain block": ({"system": [{"type": "text", "text": "a"}]}, {"system": "a"}),
    "a system prompt of blocks": ({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        {"system": [ms.Text("a", cache_control=ms.CacheControl())]}),
    "a system prompt of two blocks": ({"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"system": [ms.Text("a"), ms.Text("b")]}),
    "an empty system prompt": ({"system": ""}, {"system": None}),
    "a tool of the server": ({"tools": [LOOK, {"type": "web_search_20250305", "name": "web_search"}]},
        {"extra_body": {"tools": [LOOK, {"type": "web_search_20250305", "name": "web_search"}]}}),
    "a tool with another member": ({"tools": [{**LOOK, "eager_input_streaming": True}]},
        {"extra_body": {"tools": [{**LOOK, "eager_input_streaming": True}]}}),
    "parallel calls": ({"tools": [LOOK], "tool_choice": {"type": "any", "disable_parallel_tool_use": False}},
        {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": True}),
    "a choice without an option": ({"tools": [LOOK], "tool_choice": {"type": "none"}},
        {"tools": [TOOL], "tool_choice": "none"}),
    "a choice without tools": ({"tool_choice": {"type": "any"}}, {"extra_body": {"tool_choice": {"type": "any"}}}),
    "an unknown choice": ({"tools": [LOOK], "tool_choice": {"type": "some"}},
        {"tools": [TOOL], "extra_body": {"tool_choice": {"type": "some"}}}),
    "a choice of a tool without its name": ({"tools": [LOOK], "tool_choice": {"type": "tool"}},
        {"tools": [TOOL], "extra_body": {"tool_choice": {"type": "tool"}}}),
    "a choice with another member": ({"tools": [LOOK], "tool_choice": {"type": "auto", "most": 3}},
        {"tools": [TOOL], "extra_body": {"tool_choice": {"type": "auto", "most": 3}}}),
    "an effort alone": ({"output_config": {"effort": "max"}}, {"thinking": ms.ThinkingConfig(effort="max")}),
    "adaptive thinking": ({"thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "max"}}, {"thinking": ms.ThinkingConfig(effort="max", include_summary=True)}),
    "thinking that is disabled": ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}},
        {"thinking": ms.ThinkingConfig(ms.ThinkingLevel.NONE, effort="low")}),
    "thinking of an unknown type": ({"thinking": {"type": "between_tools"}},
        {"extra_body": {"thinking": {"type": "between_tools"}}}),
    "thinking of an unknown type, and an effort": ({"thinking": {"type": "between_tools"},
        "output_config": {"effort": "low"}},
        {"thinking": ms.ThinkingConfig(effort="low"), "extra_body": {"thinking": {"type": "between_tools"}}}),
    "an output with another member": ({"output_config": {"effort": "low", "task_budget": {"total": 9}}},
        {"extra_body": {"output_config": {"effort": "low", "task_budget": {"total": 9}}}}),
    "a format without a schema": ({"output_config": {"effort": "low", "format": {"type": "text"}}},
        {"extra_body": {"output_config": {"effort": "low", "format": {"type": "text"}}}}),
    "no format": ({"output_config": {"effort": "low", "format": None}}, {"thinking": ms.ThinkingConfig(effort="low")}),
    "an empty output": ({"output_config": {}}, {}),
    "metadata with a number": ({"metadata": {"user_id": 3}}, {"extra_body": {"metadata": {"user_id": 3}}}),
    "a member given twice": ({"top_k": 3, "extra_body": {"top_k": 4}}, {"extra_body": {"top_k": 4}}),
    "no betas": ({"betas": []}, {}),
    "betas that are None": ({"betas": None}, {}),
    "betas in a header as well": ({"betas": ["a"], "extra_headers": {"Anthropic-Beta": "b"}},
        {"extra_headers": {"Anthropic-Beta": "b"}}),
    "a user's profile": ({"user_profile_id": "profile_1"},
        {"extra_headers": {"anthropic-user-profile-id": "profile_1"}}),
    "a workspace": ({"workspace_id": "wrkspc_1", "extra_headers": {"x-a": "b"}},
        {"extra_headers": {"x-a": "b", "anthropic-workspace-id": "wrkspc_1"}}),
    "a workspace that is None": ({"workspace_id": None}, {}),
    "a workspace in a header as well": ({"workspace_id": "wrkspc_1",
        "extra_headers": {"Anthropic-Workspace-Id": "wrkspc_2"}},
        {"extra_headers": {"Anthropic-Workspace-Id": "wrkspc_2"}}),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "fields"), SPECIAL.values(), ids=SPECIAL)
def test_a_special_form_becomes_fields_or_extra_body(arguments: dict[str, object], fields: dict[str, object]) -> None:
    assert read(**arguments) == request(**fields)


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"mesages": []}, "mesages: is no argument of anthropic's client.messages.create; did you mean 'messages'?"),
    ({"betas": [print]}, "betas[0]: cannot be carried: a function"),
    ({"metadata": {"user_id": print}}, "metadata.user_id: cannot be carried: a function"),
    ({"betas": 3}, "betas: must be a list of texts"),
    ({"betas": "a"}, "betas: must be a list of texts"),
    ({"betas": ["a", 3]}, "betas: must be a list of texts"),
    ({"workspace_id": 3}, "workspace_id: must be text"),
    ({"output_format": int}, "output_format: must be a class with model_json_schema(), not the class int"),
    ({"tools": [LOOK, {"name": "look"}]}, "tools[1].input_schema: is missing"),
    ({"tools": [{"input_schema": SCHEMA}]}, "tools[0].name: is missing"),
    ({"tools": [{**LOOK, "description": 3}]}, "tools[0].description: must be text, not a number"),
    ({"tools": [{**LOOK, "strict": "yes"}]}, "tools[0].strict: must be true or false, not text"),
    ({"tools": [{**LOOK, "cache_control": {"type": "ephemeral", "ttl": "1d"}}]},
        "tools[0].cache_control.ttl: must be '5m' or '1h', not '1d'"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1.5}}, "thinking.budget_tokens: must be a whole number, not a"),
    ({"system": [{"type": "text", "text": "a"}, {"type": "tool_result", "tool_use_id": "t"}]},
        "system[1].type: must be 'text'"),
    ({"system": [{"type": "text", "text": "a", "cache_control": {"ttl": "1d"}}]},
        "system[0].cache_control.ttl: must be '5m' or '1h', not '1d'"),
    ({"tools": 3}, "tools: must be an array, not a number"),
    ({"system": 3}, "system: must be text or a list of blocks"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content: must be text or a list of blocks"),
    ({"max_tokens": "9"}, "max_tokens: must be a whole number, not text"),
    ({"stop_sequences": [3]}, "stop_sequences[0]: must be text, not a number"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_an_argument_that_cannot_be_read_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ms.InvalidRequestError) as raised:
        read(**arguments)
    assert str(raised.value).startswith(message)


def test_errors_about_a_body_begin_with_its_place() -> None:
    bodies: list[tuple[dict[str, Any], str]] = [
        ({**BASE, "messages": []}, "lines[3].messages: must hold at least one message"),
        ({**BASE, "messages": [{"role": "robot"}]}, "lines[3].messages[0].role: unknown role 'robot'"),
        ({**BASE, "tools": [{"name": "look"}]}, "lines[3].tools[0].input_schema: is missing"),
        ({**BASE, "thinking": {"type": "enabled", "budget_tokens": "9"}}, "lines[3].thinking.budget_tokens: must be"),
    ]
    for body, message in bodies:
        with pytest.raises(ms.InvalidRequestError) as raised:
            read_body(body, CallOptions(), "lines[3]")
        assert str(raised.value).startswith(message)


def test_a_changed_effort_keeps_the_format_as_given() -> None:
    form = {"type": "json_schema", "schema": {**SCHEMA, "additionalProperties": False}, "name": "place"}
    given = read(output_config={"effort": "low", "format": form}, temperature=0.5)
    changed = dataclasses.replace(given, thinking=ms.ThinkingConfig(effort="high"))
    assert sent_by_us("anthropic", changed)["output_config"] == {"effort": "high", "format": form}
