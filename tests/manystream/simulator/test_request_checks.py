"""Requests are checked as the real services check them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from manystream.simulator import Simulator
from manystream.simulator.request_checks import ANTHROPIC, CHAT, GEMINI, GEMINI_CONFIG, KINDS, RESPONSES

from .in_process import World, head_and_body
from .raw_client import DIALECTS, HEADERS, Answer, body_of, connected, path_of, request_bytes


def send(simulator: Simulator, data: bytes) -> Answer:
    """The response to these bytes."""
    with connected(simulator) as line:
        line.send(data)
        return line.read()


ERROR_WITHOUT_KEY = {
    "openai-chat": b"You didn't provide an API key", "openai-responses": b"You didn't provide an API key",
    "anthropic": b'"type":"authentication_error"', "gemini": b'"status":"UNAUTHENTICATED"',
    "gemini-interactions": b'"status":"UNAUTHENTICATED"',
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_request_without_a_key_gets_the_dialects_error(simulator: Simulator, dialect: str) -> None:
    answer = send(simulator, request_bytes(path_of(dialect), body_of(dialect), headers={}))
    assert answer.status == 401
    assert ERROR_WITHOUT_KEY[dialect] in answer.body


INVALID = [
    ("openai-chat", {"messages": [{"role": "user", "content": "x"}]}, "you must provide a model parameter"),
    ("openai-chat", {"model": "m"}, "'messages'"),
    ("openai-chat", {"model": "m", "messages": []}, "'messages'"),
    ("openai-chat", {"model": "m", "messages": [{"role": "robot", "content": "x"}]}, "Invalid value: 'robot'"),
    ("openai-chat", {"model": "m", "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
        "must be a response to a preceding message"),
    ("openai-responses", {"input": "x"}, "'model'"),
    ("openai-responses", {"model": "m"}, "'input'"),
    ("openai-responses", {"model": "m", "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        "No tool call found for function call output with call_id c"),
    ("openai-responses", {"model": "m", "input": [{"type": "function_call", "call_id": "c", "name": "f",
        "arguments": "{}"}]}, "No tool output found for function call c"),
    ("anthropic", {"model": "m", "messages": [{"role": "user", "content": "x"}]}, "max_tokens: Field required"),
    ("anthropic", {"max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}, "model: Field required"),
    ("anthropic", {"model": "m", "max_tokens": 9}, "messages: Field required"),
    ("anthropic", {"model": "m", "max_tokens": 9, "messages": []}, "at least one message"),
    ("anthropic", {"model": "m", "max_tokens": -1, "messages": [{"role": "user", "content": "x"}]}, "max_tokens"),
    ("anthropic", {"model": "m", "max_tokens": 9, "messages": [{"role": "system", "content": "x"}]},
        "messages.0: a `system` message must follow a `user` message"),
    ("gemini", {}, "contents is not specified"),
    ("gemini", {"contents": [{"role": "user", "parts": []}]}, "must not be empty"),
    ("gemini", {"contents": [{"role": "system", "parts": [{"text": "x"}]}]}, "valid role"),
    ("gemini", {"contents": [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}]},
        "equal to the number of function call parts"),
    ("gemini-interactions", {"input": "x"}, "Either model or agent"),
    ("gemini-interactions", {"model": "m"}, "Input is required"),
    ("gemini-interactions", {"model": "m", "input": 4}, "Invalid value at 'input'"),
    ("gemini-interactions", {"model": "m", "input": "x", "background": True, "store": False}, "requires store=true"),
    ("gemini-interactions", {"model": "m", "input": [{"type": "function_result", "call_id": "c", "result": "x"}]},
        "No function call was found for the function result with call_id 'c'"),
    ("gemini-interactions", {"model": "m", "input": [{"type": "function_call", "id": "c", "name": "f"}]},
        "No function result was found for the function call with id 'c'"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "body", "words"), INVALID)
def test_an_invalid_request_is_refused_with_what_is_wrong(
    simulator: Simulator, dialect: str, body: dict[str, object], words: str
) -> None:
    answer = send(simulator, request_bytes(path_of(dialect), body))
    assert answer.status == 400
    error = answer.json()["error"]
    assert isinstance(error, dict)
    assert words in error["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"\xff\xfe"])
def test_a_body_that_is_no_json_object_is_refused(simulator: Simulator, dialect: str, body: bytes) -> None:
    assert send(simulator, request_bytes(path_of(dialect), body)).status == 400


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_server_survives_deep_nesting(simulator: Simulator, dialect: str) -> None:
    deep = b'{"model":"m","max_tokens":9,"input":"x","%b":' + b'[{"parts":' * 490 + b"[]" + b"}]" * 490 + b"}"
    for member in (b"messages", b"input", b"contents", b"tools"):
        assert send(simulator, request_bytes(path_of(dialect), deep % member)).status in (200, 400)
    assert send(simulator, request_bytes("/sim/requests", method="GET")).body.count(b"parts") == 4 * 490
    assert send(simulator, request_bytes(path_of(dialect), body_of(dialect))).status == 200


def test_anthropic_needs_its_version_header(simulator: Simulator) -> None:
    headers = {"x-api-key": "k"}
    answer = send(simulator, request_bytes(path_of("anthropic"), body_of("anthropic"), headers=headers))
    assert (answer.status, b"anthropic-version" in answer.body) == (400, True)


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/v2/chat", 404), ("GET", "/v1/messages", 405)])
def test_other_paths_and_methods_are_refused(simulator: Simulator, method: str, path: str, status: int) -> None:
    assert send(simulator, request_bytes(path, {}, method=method)).status == status


def test_without_alt_sse_gemini_streams_one_json_array(simulator: Simulator) -> None:
    path = "/v1beta/models/sim-text:streamGenerateContent"
    answer = send(simulator, request_bytes(path, body_of("gemini")))
    events = json.loads(answer.body)
    assert len(events) == 9
    assert len(answer.chunks) == 10
    assert events[-1]["candidates"][0]["finishReason"] == "STOP"


def test_the_last_user_message_may_carry_a_directive(simulator: Simulator) -> None:
    for text in ("simulate: events=2 finish=length", '{"simulate": {"events": 2, "finish": "length"}}'):
        answer = send(simulator, request_bytes(path_of("anthropic"), body_of("anthropic", text)))
        assert (answer.json()["stop_reason"], len(str(answer.json()["content"])) > 0) == ("max_tokens", True)


def test_a_models_name_may_hold_a_directive_the_header_wins(simulator: Simulator) -> None:
    body = body_of("openai-chat", model="sim-thinking@events=3,fail=404")
    assert send(simulator, request_bytes(path_of("openai-chat"), body)).status == 404
    assert send(simulator, request_bytes(path_of("openai-chat"), body, directive="fail=503")).status == 503


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_same_request_gives_the_same_bytes(simulator: Simulator, dialect: str) -> None:
    data = request_bytes(path_of(dialect, stream=True, model="sim-mixed"), body_of(dialect, stream=True))
    assert send(simulator, data).body == send(simulator, data).body


PARAMETERS = {"type": "object", "properties": {}}


TOOLS: dict[str, list[object]] = {
    "openai-chat": [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in ("first",
        "second")],
    "openai-responses": [{"type": "function", "name": name, "parameters": PARAMETERS} for name in ("first", "second")],
    "anthropic": [{"name": name, "input_schema": PARAMETERS} for name in ("first", "second")],
    "gemini": [{"functionDeclarations": [{"name": "first"}, {"name": "second"}]}],
    "gemini-interactions": [{"type": "function", "name": name, "parameters": PARAMETERS} for name in ("first",
        "second")],
}  # fmt: skip


GEMINI_SECOND = {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["second"]}}


CHOICES: dict[str, dict[str, dict[str, object]]] = {
    "openai-chat": {"none": {"tool_choice": "none"},
        "second": {"tool_choice": {"type": "function", "function": {"name": "second"}}}},
    "openai-responses": {"none": {"tool_choice": "none"},
        "second": {"tool_choice": {"type": "function", "name": "second"}}},
    "anthropic": {"none": {"tool_choice": {"type": "none"}},
        "second": {"tool_choice": {"type": "tool", "name": "second"}}},
    "gemini": {"none": {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
        "second": {"toolConfig": GEMINI_SECOND}},
    "gemini-interactions": {"none": {"generation_config": {"tool_choice": "none"}},
        "second": {"generation_config": {"tool_choice": {"allowed_tools": {"mode": "any", "tools": ["second"]}}}}},
}  # fmt: skip
"""Tool choice in each dialect: no tool, or a named tool."""


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("choice", ["none", "second"])
def test_the_tool_choice_of_every_dialect_is_obeyed(simulator: Simulator, dialect: str, choice: str) -> None:
    body = {**body_of(dialect, model="sim-tools"), "tools": TOOLS[dialect], **CHOICES[dialect][choice]}
    answer = send(simulator, request_bytes(path_of(dialect, model="sim-tools"), body))
    assert answer.status == 200
    called = [name for name in ("first", "second") if f'"name":"{name}"'.encode() in answer.body]
    wanted = [] if choice == "none" else ["second"]
    if dialect == "openai-responses":
        # The answer repeats the request's tools, so only the output counts.
        output = json.dumps(answer.json()["output"])
        called = [name for name in ("first", "second") if f'"{name}"' in output]
    assert called == wanted


@pytest.mark.parametrize("dialect", ["openai-chat", "openai-responses"])
def test_padding_is_left_out_where_it_is_not_wanted(simulator: Simulator, dialect: str) -> None:
    body = body_of(dialect, stream=True)
    for options, padded in (({}, True), ({"include_obfuscation": True}, True), ({"include_obfuscation": False}, False)):
        data = request_bytes(path_of(dialect, stream=True), {**body, "stream_options": options})
        assert (b'"obfuscation":"' in send(simulator, data).body) is padded


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
