"""What the simulator reads from a request of each dialect: the whole `Prompt`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from manystream.http_server import HTTPRequest
from manystream.simulator import (
    Prompt,
    Scenario,
    ToolDeclaration,
    ToolResult,
)
from manystream.simulator.json_text import JSON
from manystream.simulator.scenario import ScriptedCall, Tokens
from manystream.simulator.service import GEMINI, WIRES
from manystream.simulator.wire import Wire

CITY: dict[str, JSON] = {"type": "object", "properties": {"city": {"type": "string"}}}


ANSWER: dict[str, JSON] = {"type": "object", "properties": {"answer": {"type": "string"}}}


def read(wire: Wire, body: dict[str, object], target: str = "/") -> Prompt:
    """The prompt of a request, without the body that it repeats."""
    prompt = wire.read(HTTPRequest("POST", target, {}, json.dumps(body).encode()))
    if wire is not GEMINI:
        assert prompt.body == body
    return replace(prompt, body={})


def chat(**members: object) -> Prompt:
    return read(
        WIRES["/v1/chat/completions"], {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **members}
    )


def responses(**members: object) -> Prompt:
    return read(WIRES["/v1/responses"], {"model": "m", "input": "Hi", **members})


def messages(**members: object) -> Prompt:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}], **members}
    return read(WIRES["/v1/messages"], body)


def gemini(target: str = "/v1beta/models/m:generateContent", /, **members: object) -> Prompt:
    return read(GEMINI, {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}], **members}, target)


NOTHING: dict[str, JSON] = {}


SHORT = Prompt(model="m", text="Hi", characters=2)


def test_a_short_request_has_only_a_model_and_a_text() -> None:
    assert chat() == SHORT
    assert responses() == SHORT
    assert messages() == replace(SHORT, max_tokens=1)
    assert gemini() == replace(SHORT, array=True)


def test_a_conversation_without_a_user_has_no_rounds_and_no_text() -> None:
    silent = replace(SHORT, text="")
    assert chat(messages=[{"role": "assistant", "content": "Hi"}]) == silent
    assert responses(input=[{"role": "assistant", "content": "Hi"}]) == silent
    assert messages(messages=[{"role": "assistant", "content": "Hi"}]) == replace(silent, max_tokens=1)
    assert gemini(contents=[{"role": "model", "parts": [{"text": "Hi"}]}]) == replace(silent, array=True)


# --- OpenAI Chat Completions ---

CHAT_CALLS = [
    {"id": "a", "type": "function", "function": {"name": "first", "arguments": "{}"}},
    {"id": "b", "type": "function", "function": {"name": "second", "arguments": "{}"}},
]


CHAT_HISTORY: list[dict[str, object]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "developer", "content": [{"type": "text", "text": "Now."}]},
    {"role": "user", "content": "Old"},
    {"role": "assistant", "content": None, "tool_calls": CHAT_CALLS},
    {"role": "tool", "tool_call_id": "b", "content": "Sun"},
    {"role": "tool", "tool_call_id": "a", "content": "Rain"},
    {"role": "assistant", "content": "Done"},
    {"role": "user", "content": [{"type": "text", "text": "New "}, {"type": "image_url"},
        {"type": "text", "text": "one"}]},
    {"role": "assistant", "content": "", "tool_calls": CHAT_CALLS[:1]},
    {"role": "tool", "tool_call_id": "a", "content": "Snow"},
    {"role": "assistant", "content": None, "tool_calls": CHAT_CALLS},
    {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "Wind"}]},
    {"role": "tool", "tool_call_id": "a", "content": "Hail"},
]  # fmt: skip


def test_a_chat_request_is_read_whole() -> None:
    prompt = chat(
        messages=CHAT_HISTORY,
        stream=True,
        tools=[
            {"type": "function", "function": {"name": "first", "parameters": CITY}},
            {"type": "function", "function": {"name": "second"}},
        ],
        tool_choice={"type": "function", "function": {"name": "second"}},
        parallel_tool_calls=False,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": CITY}},
        max_completion_tokens=77,
        max_tokens=99,
    )
    assert prompt == Prompt(
        model="m", text="New one", stream=True, tools=(ToolDeclaration("first", CITY), ToolDeclaration("second", {})),
        tool_choice="second", parallel=False, tool_results=(ToolResult("second", "Wind"), ToolResult("first", "Hail")),
        rounds=2, schema=CITY, max_tokens=77, characters=71,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("members", "changed"),
    [
        ({"stream": False}, {}),
        ({"parallel_tool_calls": None}, {}),
        ({"parallel_tool_calls": True}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": "none"}, {"tool_choice": "none"}),
        ({"tool_choice": {"type": "allowed_tools"}}, {}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": {"type": "json_object"}}, {"schema": ANSWER}),
        ({"tools": [{"type": "custom"}]}, {"tools": (ToolDeclaration("", {}),)}),
    ],
)
def test_a_member_of_a_chat_request_changes_this(members: dict[str, object], changed: dict[str, Any]) -> None:
    assert chat(**members) == replace(SHORT, **changed)


# --- OpenAI Responses ---


def called(id: str, name: str) -> dict[str, object]:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": "{}"}


def result(id: str, output: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": id, "output": output}


RESPONSES_HISTORY: list[dict[str, object]] = [
    {"role": "user", "content": "Old"},
    called("a", "first"),
    called("b", "second"),
    result("b", "Sun"),
    result("a", "Rain"),
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "New"}]},
    {"type": "reasoning", "id": "rs_1", "encrypted_content": "another server's"},
    called("c", "first"),
    result("c", "Snow"),
    called("d", "second"),
    called("e", "first"),
    result("d", [{"type": "input_text", "text": "Wind"}]),
    result("e", "Hail"),
]


def test_a_responses_request_is_read_whole() -> None:
    prompt = responses(
        input=RESPONSES_HISTORY, instructions="Be brief.", stream=True,
        tools=[{"type": "function", "name": "first", "parameters": CITY}, {"type": "web_search"},
        {"type": "function", "name": "second"}], tool_choice={"type": "function", "name": "second"},
        parallel_tool_calls=False, text={"format": {"type": "json_schema", "name": "x", "schema": CITY}},
        max_output_tokens=77,
    )  # fmt: skip
    assert prompt == Prompt(
        model="m", text="New", stream=True, tools=(ToolDeclaration("first", CITY), ToolDeclaration("second", {})),
        tool_choice="second", parallel=False, tool_results=(ToolResult("second", "Wind"), ToolResult("first", "Hail")),
        rounds=2, schema=CITY, max_tokens=77, characters=69,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("members", "changed"),
    [
        ({"parallel_tool_calls": None}, {}),
        ({"tool_choice": "required"}, {"tool_choice": "required"}),
        ({"tool_choice": {"type": "web_search"}}, {}),
        ({"max_output_tokens": None}, {}),
        ({"instructions": "Briefly."}, {"characters": 10}),
        ({"text": {"format": {"type": "text"}}}, {}),
        ({"text": {"format": {"type": "json_object"}}}, {"schema": ANSWER}),
        ({"tools": [{"type": "custom", "name": "x"}]}, {}),
    ],
)
def test_a_member_of_a_responses_request_changes_this(members: dict[str, object], changed: dict[str, Any]) -> None:
    assert responses(**members) == replace(SHORT, **changed)


# --- Anthropic Messages ---


def use(id: str, name: str) -> dict[str, object]:
    return {"type": "tool_use", "id": id, "name": name, "input": {}}


def used(id: str, content: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": id, "content": content}


MESSAGES_HISTORY: list[dict[str, object]] = [
    {"role": "user", "content": "Old"},
    {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, use("a", "first"), use("b", "second")]},
    {"role": "user", "content": [used("b", "Sun"), used("a", "Rain")]},
    {"role": "assistant", "content": "Done"},
    {"role": "user", "content": [{"type": "text", "text": "New "}, {"type": "image"}, {"type": "text", "text": "one"}]},
    {"role": "assistant", "content": [use("c", "first")]},
    {"role": "user", "content": [used("c", "Snow")]},
    {"role": "assistant", "content": [use("d", "second"), use("e", "first")]},
    {"role": "user", "content": [used("e", [{"type": "text", "text": "Wind"}]), used("d", "Hail")]},
]


def test_a_messages_request_is_read_whole() -> None:
    prompt = messages(
        messages=MESSAGES_HISTORY, system=[{"type": "text", "text": "Be brief."}], stream=True,
        tools=[{"name": "first", "input_schema": CITY}, {"type": "web_search"},
        {"name": "second", "input_schema": NOTHING}],
        tool_choice={"type": "tool", "name": "second", "disable_parallel_tool_use": True},
        output_config={"format": {"type": "json_schema", "schema": CITY}}, max_tokens=77,
    )  # fmt: skip
    assert prompt == Prompt(
        model="m", text="New one", stream=True, tools=(ToolDeclaration("first", CITY), ToolDeclaration("second", {})),
        tool_choice="second", parallel=False, tool_results=(ToolResult("first", "Wind"), ToolResult("second", "Hail")),
        rounds=2, schema=CITY, max_tokens=77, characters=210,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("members", "changed"),
    [
        ({"max_tokens": 2}, {"max_tokens": 2}),
        ({"system": "Briefly."}, {"characters": 10}),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
        ({"tool_choice": {"type": "auto", "disable_parallel_tool_use": False}}, {}),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        ({"tool_choice": {"type": "else"}}, {}),
        ({"output_format": {"type": "json_schema", "schema": CITY}}, {"schema": CITY}),
    ],
)
def test_a_member_of_a_messages_request_changes_this(members: dict[str, object], changed: dict[str, Any]) -> None:
    assert messages(**members) == replace(SHORT, **{"max_tokens": 1, **changed})


# --- Gemini ---


def call(name: str) -> dict[str, object]:
    return {"functionCall": {"name": name, "args": {}}}


def answer(name: str, response: dict[str, object]) -> dict[str, object]:
    return {"functionResponse": {"name": name, "response": response}}


GEMINI_HISTORY: list[dict[str, object]] = [
    {"parts": [{"text": "Old"}]},
    {"role": "model", "parts": [{"text": "Let me see."}, call("first"), call("second")]},
    {"role": "user", "parts": [answer("second", {"output": "Sun"}), answer("first", {"output": "Rain"})]},
    {"role": "model", "parts": [{"text": "Done"}]},
    {"role": "user", "parts": [{"text": "New "}, {"inlineData": {}}, {"text": "one"}]},
    {"role": "model", "parts": [call("first")]},
    {"role": "function", "parts": [answer("first", {"result": "Snow"})]},
    {"role": "model", "parts": [call("first"), call("second"), call("third")]},
    {"role": "user", "parts": [answer("first", {"result": "Wind", "output": ""}), answer("second", {"error": "Hail"}),
        answer("third", {"level": 3})]},
]  # fmt: skip


def test_a_gemini_request_is_read_whole() -> None:
    prompt = gemini(
        "/v1beta/models/m:streamGenerateContent?alt=sse",
        contents=GEMINI_HISTORY,
        systemInstruction={"parts": [{"text": "Be brief."}]},
        tools=[
            {"functionDeclarations": [{"name": "first", "parametersJsonSchema": CITY}]},
            {"googleSearch": NOTHING},
            {"functionDeclarations": [{"name": "second", "parameters": CITY}, {"name": "third"}]},
        ],
        toolConfig={"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["second"]}},
        generationConfig={"responseJsonSchema": CITY, "maxOutputTokens": 77},
    )
    assert prompt == Prompt(
        model="m", text="New one", stream=True, tools=(ToolDeclaration("first", CITY), ToolDeclaration("second", CITY),
        ToolDeclaration("third", {})), tool_choice="second",
        tool_results=(ToolResult("first", "Wind"), ToolResult("second", "Hail"), ToolResult("third", '{"level":3}')),
        rounds=2, schema=CITY, max_tokens=77, characters=117,
    )  # fmt: skip


def test_geminis_names_may_be_in_snake_case() -> None:
    written = {
        "contents": [
            {"role": "user", "parts": [{"text": "Hi"}]},
            {"role": "model", "parts": [{"function_call": {"name": "f", "args": {"some_city": "Rome"}}}]},
            {"role": "user", "parts": [{"function_response": {"name": "f", "response": {"some_city": "Rome"}}}]},
        ],
        "system_instruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"some_word": {"a_b": 1}}}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
        "generation_config": {"response_schema": {"some_word": 1}, "max_output_tokens": 7},
    }
    assert gemini(**written) == Prompt(
        model="m", text="Hi", tools=(ToolDeclaration("f", {"some_word": {"a_b": 1}}),), tool_choice="f",
        tool_results=(ToolResult("f", '{"some_city":"Rome"}'),), rounds=1, schema={"some_word": 1}, max_tokens=7,
        characters=21, array=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "member", "history", "counts", "results"),
    [
        (chat, "messages", CHAT_HISTORY, (3, 6, 7, 8, 10, 13), 2),
        (responses, "input", RESPONSES_HISTORY, (1, 5, 6, 7, 10, 14), 2),
        (messages, "messages", MESSAGES_HISTORY, (1, 3, 4, 5, 7, 9), 2),
        (gemini, "contents", GEMINI_HISTORY, (1, 3, 4, 5, 7, 9), 3),
    ],
)
def test_rounds_count_from_the_last_user_message(
    reader: Any, member: str, history: list[dict[str, object]], counts: tuple[int, ...], results: int
) -> None:
    prompts = [reader(**{member: history[:count]}) for count in counts]
    assert [prompt.rounds for prompt in prompts] == [0, 1, 1, 0, 1, 2]
    assert [len(prompt.tool_results) for prompt in prompts] == [0, 2, 0, 0, 1, results]


def calling(mode: str, *allowed: str) -> dict[str, object]:
    return {"toolConfig": {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": list(allowed)}}}


@pytest.mark.parametrize(
    ("members", "changed"),
    [
        (calling("ANY"), {"tool_choice": "required"}),
        (calling("ANY", "a", "b"), {"tool_choice": "required"}),
        (calling("AUTO", "a"), {}),
        (calling("NONE", "a"), {"tool_choice": "none"}),
        (calling("VALIDATED"), {}),
        ({"generationConfig": {"responseMimeType": "application/json"}}, {"schema": ANSWER}),
        ({"generationConfig": {"responseMimeType": "text/plain"}}, {}),
        ({"generationConfig": {"responseMimeType": "application/json", "responseSchema": CITY}}, {"schema": CITY}),
    ],
)
def test_a_member_of_a_gemini_request_changes_this(members: dict[str, object], changed: dict[str, Any]) -> None:
    assert gemini(**members) == replace(SHORT, array=True, **changed)


@pytest.mark.parametrize(
    ("target", "model", "stream", "array"),
    [
        ("/v1beta/models/m:generateContent", "m", False, True),
        ("/v1/models/tuned/m%20x:streamGenerateContent", "tuned/m x", True, True),
        ("/v1beta/models/m:streamGenerateContent?alt=sse", "m", True, False),
        ("/v1beta/models/m:streamGenerateContent?key=k&alt=sse", "m", True, False),
        ("/v1beta/models/m:streamGenerateContent?alt=json", "m", True, True),
    ],
)
def test_geminis_path_names_the_model_and_the_form(target: str, model: str, stream: bool, array: bool) -> None:
    assert gemini(target) == Prompt(model=model, text="Hi", characters=2, stream=stream, array=array)


def test_prompts_and_answers_are_empty_by_default() -> None:
    assert Prompt(model="m") == Prompt(
        model="m", text="", stream=False, tools=(), tool_choice="auto", parallel=True, tool_results=(), rounds=0,
        schema=None, max_tokens=None, characters=0, array=False, body={},
    )  # fmt: skip
    assert Scenario(identity="i", model="m") == Scenario(
        identity="i", model="m", thinking_pieces=(), redacted=None, text_pieces=(), calls=(), finish="stop",
        tokens=Tokens(input=0, cached=0, output=0, thinking=0),
    )  # fmt: skip
    assert ScriptedCall("1", "f", ("{", "}")).complete
    assert ScriptedCall("1", "f", ("{", "}")).arguments == "{}"
