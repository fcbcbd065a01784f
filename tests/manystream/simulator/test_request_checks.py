"""Requests that the services refuse: members of a wrong type, and tools, messages and thinking that cannot be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.simulator.request_checks import ANTHROPIC, CHAT, GEMINI, GEMINI_CONFIG, KINDS, RESPONSES

from .in_process import World, head_and_body
from .raw_client import HEADERS, body_of, path_of

PATTERN = "^[a-zA-Z0-9_-]{1,64}$"
SCHEMA = {"type": "object"}


def refused(dialect: str, headers: dict[str, str] | None = None, /, **members: Any) -> dict[str, Any] | None:
    """Return the error object of a request with these members; None if it is accepted."""
    body = {**body_of(dialect), **members}
    lines, answer = head_and_body(World().ask(path_of(dialect), body, headers={**HEADERS, **(headers or {})}))
    if lines[0] == "HTTP/1.1 200 OK":
        return None
    assert lines[0] == "HTTP/1.1 400 Bad Request"
    error: dict[str, Any] = json.loads(answer)["error"]
    return error


def message(dialect: str, /, **members: Any) -> str:
    error = refused(dialect, **members)
    return "" if error is None else error["message"]


def function(name: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA}}


@pytest.mark.parametrize(
    ("member", "value", "expected"),
    [
        ("stream", "true", "a boolean"),
        ("stream", 1, "a boolean"),
        ("temperature", "hot", "a number"),
        ("temperature", True, "a number"),
        ("max_tokens", "5", "an integer of 1 or more"),
        ("max_tokens", True, "an integer of 1 or more"),
        ("max_tokens", 5.0, "an integer of 1 or more"),
        ("max_completion_tokens", 0, "an integer of 1 or more"),
        ("n", -1, "an integer of 1 or more"),
        ("seed", 1.5, "an integer"),
        ("stop", [1], "a string or an array of strings"),
        ("tools", {}, "an array of objects"),
        ("messages", "hello", "an array of objects"),
        ("messages", [{"role": "user", "content": "hi"}, 5], "an array of objects"),
        ("response_format", "json", "an object"),
        ("tool_choice", 5, "a string or an object"),
    ],
)
def test_openai_refuses_a_member_of_a_wrong_type(member: str, value: object, expected: str) -> None:
    shown = json.dumps(value, separators=(",", ":"))
    assert refused("openai-chat", **{member: value}) == {
        "message": f"Invalid value for '{member}': expected {expected}, but got {shown} instead.",
        "type": "invalid_request_error", "param": member, "code": "invalid_type",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "members", "words"),
    [
        ("openai-responses", {"input": 5}, "Invalid value for 'input': expected a string or an array of objects"),
        ("openai-responses", {"stream": "no"}, "Invalid value for 'stream': expected a boolean"),
        ("openai-responses", {"include": [1]}, "Invalid value for 'include': expected an array of strings"),
        ("anthropic", {"stream": "true"}, "stream: Input should be a boolean"),
        ("anthropic", {"system": 5}, "system: Input should be a string or an array of objects"),
        ("anthropic", {"stop_sequences": "x"}, "stop_sequences: Input should be an array of strings"),
        ("gemini", {"contents": "hi"}, "Invalid value at 'contents': \"hi\" is not an array of objects"),
        ("gemini", {"generationConfig": {"maxOutputTokens": "x"}},
            "Invalid value at 'generation_config.maxOutputTokens': \"x\" is not an integer"),
        ("gemini", {"systemInstruction": "Be kind."}, "Invalid value at 'systemInstruction': \"Be kind.\" is not an"),
    ],
)  # fmt: skip
def test_other_dialects_refuse_wrong_types_too(dialect: str, members: dict[str, object], words: str) -> None:
    assert message(dialect, **members).startswith(words)


@pytest.mark.parametrize(
    ("dialect", "table"), [("openai-chat", CHAT), ("openai-responses", RESPONSES), ("anthropic", ANTHROPIC)]
)
def test_null_and_unknown_members_are_accepted(dialect: str, table: dict[str, str]) -> None:
    members: dict[str, Any] = dict.fromkeys(table.keys() - body_of(dialect).keys())
    assert refused(dialect, **members, something=object.__name__) is None


def test_each_expectation_of_the_tables_can_be_checked() -> None:
    for table in (CHAT, RESPONSES, ANTHROPIC, GEMINI, GEMINI_CONFIG):
        assert set(table.values()) <= set(KINDS)


def test_gemini_takes_numbers_as_text() -> None:
    config = {"maxOutputTokens": "50", "temperature": "0.5", "candidate_count": 1}
    assert refused("gemini", generation_config=config) is None


@pytest.mark.parametrize("name", [None, "", "a b", "x" * 65, "naïve", 5])
def test_openai_refuses_a_function_without_a_proper_name(name: object) -> None:
    tools = [function("fine"), function(name)]
    words = f"Invalid 'tools[1].function.name': expected a string that matches the pattern '{PATTERN}'."
    assert message("openai-chat", tools=tools) == words
    flat = [{"type": "web_search"}, {"type": "function", "name": name, "parameters": SCHEMA}]
    assert message("openai-responses", tools=flat) == words.replace("function.name", "name")


def test_openai_refuses_the_choice_of_an_unknown_function() -> None:
    words = "Invalid value for 'tool_choice': '{}' is neither a mode nor a function in 'tools'."
    choice = {"type": "function", "function": {"name": "other"}}
    assert message("openai-chat", tools=[function("f")], tool_choice=choice) == words.format("other")
    assert message("openai-chat", tools=[function("f")], tool_choice="any") == words.format("any")
    flat = [{"type": "function", "name": "f", "parameters": SCHEMA}]
    named = {"type": "function", "name": "other"}
    assert message("openai-responses", tools=flat, tool_choice=named) == words.format("other")
    assert message("openai-chat", tools=[function("f")], tool_choice=function("f")) == ""


@pytest.mark.parametrize("content", [None, 5, [], [5], [{"text": "hi"}]])
def test_openai_refuses_a_message_without_content(content: object) -> None:
    error = refused("openai-chat", messages=[{"role": "user", "content": content}])
    assert error is not None
    assert (error["param"], error["code"]) == ("messages[0].content", "invalid_type")


def test_openai_takes_a_refusal_in_place_of_content() -> None:
    user = {"role": "user", "content": "hi"}
    said = {"role": "assistant", "content": None, "refusal": "I cannot."}
    assert refused("openai-chat", messages=[user, said, user]) is None
    assert refused("openai-chat", messages=[user, {"role": "assistant"}, user]) is not None


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"tools": [{"input_schema": SCHEMA}]}, "tools.0.custom.name: String should match pattern"),
        ({"tools": [{"name": "a b", "input_schema": SCHEMA}]}, "tools.0.custom.name: String should match pattern"),
        ({"tools": [{"name": "a"}]}, "tools.0.custom.input_schema: Field required"),
        ({"tools": [{"name": "a", "input_schema": SCHEMA}] * 2}, "tools: Tool names must be unique."),
        ({"tools": [{"name": "a", "input_schema": SCHEMA}], "tool_choice": {"type": "tool", "name": "b"}},
            "Tool 'b' not found in provided tools"),
        ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "s"}] * 2}, ""),
        ({"thinking": {"type": "enabled"}}, "thinking.enabled.budget_tokens: Field required"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1023}},
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1024},
            "`max_tokens` must be greater than `thinking.budget_tokens`."),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1025}, ""),
        ({"thinking": {"type": "adaptive"}}, ""),
    ],
)  # fmt: skip
def test_anthropic_refuses_tools_and_thinking_that_cannot_be(members: dict[str, object], words: str) -> None:
    found = message("anthropic", **members)
    assert found.startswith(words)
    assert bool(found) is bool(words)


def test_interleaved_thinking_may_exceed_the_limit_of_an_answer() -> None:
    members: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 9000}}
    assert refused("anthropic", **members) is not None
    assert refused("anthropic", {"anthropic-beta": "interleaved-thinking-2025-05-14"}, **members) is None


@pytest.mark.parametrize("name", ["", "1st", "a b", "x" * 129])
def test_gemini_refuses_a_function_without_a_proper_name(name: str) -> None:
    tools: list[dict[str, Any]] = [{"googleSearch": {}}, {"functionDeclarations": [{"name": "ok"}, {"name": name}]}]
    words = "* GenerateContentRequest.tools[1].function_declarations[1].name: Invalid function name."
    assert message("gemini", tools=tools).startswith(words)
