"""Whole error responses of each dialect: for statuses that a knob asks for, and for requests that a service refuses.

Each file in the folder `errors` holds the responses of one dialect. A line `--- …` names the request of a response.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .in_process import World, head_and_body
from .raw_client import DIALECTS, body_of, path_of

FOLDER = Path(__file__).parent / "errors"
STATUSES = (400, 401, 402, 403, 404, 405, 408, 409, 413, 418, 422, 429, 499, 500, 501, 502, 503, 504, 529, 599)
HINTS = ("fail=429,retry-after=2", "fail=503,retry-after=0.25,code=slow_down", "fail=429,code=insufficient_quota")
CITY: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}}


def user(text: object = "Hello.") -> dict[str, object]:
    return {"role": "user", "content": text}


def chat(*messages: object, **members: object) -> dict[str, object]:
    return {"model": "m", "messages": list(messages), **members}


def chat_calls(*ids: str) -> dict[str, object]:
    calls = [{"id": id, "type": "function", "function": {"name": f"tool-{id}", "arguments": "{}"}} for id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def chat_result(id: str) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": f"Result of {id}"}


def responses(*items: object, **members: object) -> dict[str, object]:
    return {"model": "m", "input": list(items), **members}


def response_call(id: str) -> dict[str, object]:
    return {"type": "function_call", "call_id": id, "name": f"tool-{id}", "arguments": "{}"}


def response_result(id: str) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": id, "output": f"Result of {id}"}


def messages(*turns: object, **members: object) -> dict[str, object]:
    return {"model": "m", "max_tokens": 9, "messages": list(turns), **members}


def assistant(*blocks: object) -> dict[str, object]:
    return {"role": "assistant", "content": list(blocks)}


def use(id: str) -> dict[str, object]:
    return {"type": "tool_use", "id": id, "name": f"tool-{id}", "input": {}}


def used(id: str) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": id, "content": f"Result of {id}"}


def contents(*turns: tuple[str, list[object]]) -> dict[str, object]:
    return {"contents": [{"role": role, "parts": parts} for role, parts in turns]}


CALL: dict[str, object] = {"functionCall": {"name": "f", "args": {"a": 1}}}
RESULT: dict[str, object] = {"functionResponse": {"name": "f", "response": {"output": "x"}}}
FORGED = "sims" + "0" * 64
REASONING: dict[str, object] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": FORGED}


def interaction(*steps: object, **members: object) -> dict[str, object]:
    return {"model": "m", "input": list(steps), **members}


FUNCTION_CALL: dict[str, object] = {"type": "function_call", "id": "a", "name": "f", "arguments": {}}
FUNCTION_RESULT: dict[str, object] = {"type": "function_result", "call_id": "a", "name": "f", "result": "x"}
THOUGHT: dict[str, object] = {"type": "thought", "signature": FORGED, "summary": [{"type": "text", "text": "x"}]}
BODIES: dict[str, list[object]] = {
    "openai-chat": [
        b"", b"[]", b"{}",
        {"model": 4, "messages": [user()]},
        {"model": "m"},
        chat(),
        chat(user(), {"role": "robot", "content": "x"}),
        chat(user(), {"content": "x"}),
        chat(user(), chat_result("a")),
        chat(user(), chat_calls("a"), chat_result("b")),
        chat(user(), chat_calls("a"), chat_result("a"), chat_result("a")),
        chat(user(), chat_calls("b", "a"), user()),
        chat(user(), chat_calls("b", "a"), chat_result("b"), user()),
        chat(user(), chat_calls("b", "a")),
        chat(user(), chat_calls("b", "a"), chat_result("a")),
        chat(user("simulate: speed=9")),
        chat(user("simulate: stamp=1,chunk=3")),
        {"model": "sim-text@kind=poem", "messages": [user()]},
    ],
    "openai-responses": [
        b"{", {},
        {"model": "m"},
        {"model": "m", "input": 4},
        responses(),
        responses(user(), response_result("a")),
        responses(user(), response_call("a"), response_result("b")),
        responses(user(), response_call("b"), response_call("a")),
        responses(user(), response_call("b"), response_call("a"), response_result("a")),
        responses(user(), REASONING),
        responses(user("simulate: rate=-1")),
    ],
    "anthropic": [
        b"x", {},
        {"model": "m", "messages": [user()]},
        {"model": "m", "max_tokens": 9},
        {"model": "", "max_tokens": 9, "messages": [user()]},
        {"model": "m", "max_tokens": -1, "messages": [user()]},
        {"model": "m", "max_tokens": "9", "messages": [user()]},
        messages(),
        messages(user(), {"role": "robot", "content": "x"}),
        messages({"role": "system", "content": "x"}, user()),
        messages(user(), {"role": "system", "content": "x"}, user()),
        messages(user(), {"role": "system", "content": ""}),
        messages(user(), {"role": "assistant", "content": []}),
        messages(user("")),
        messages(user([{"type": "text", "text": "a"}, {"type": "text", "text": ""}])),
        messages(user(), assistant({"type": "thinking", "thinking": "x", "signature": FORGED}), user()),
        messages(user([used("a")])),
        messages(user(), assistant(use("a")), user([used("b")])),
        messages(user(), assistant(use("a")), user([used("a"), used("a")])),
        messages(user(), assistant(use("b"), use("a")), user([used("a")])),
        messages(user(), assistant(use("b"), use("a")), user()),
        messages(user(), assistant(use("b"), use("a"))),
        messages(user("simulate: events")),
    ],
    "gemini": [
        b"null", {},
        {"contents": []},
        contents(("system", [{"text": "x"}])),
        contents(("user", [{"text": "x"}]), ("model", [])),
        contents(("user", [RESULT])),
        contents(("user", [{"text": "x"}]), ("model", [CALL]), ("user", [{"text": "x"}])),
        contents(("user", [{"text": "x"}]), ("model", [CALL, CALL]), ("user", [RESULT])),
        contents(("user", [{"text": "x"}]), ("model", [CALL])),
        contents(("user", [{"text": "x"}]), ("model", [{**CALL, "thoughtSignature": FORGED}]), ("user", [RESULT])),
        contents(("user", [{"text": "simulate: kind=poem"}])),
    ],
    "gemini-interactions": [
        b"null", {},
        interaction(),
        interaction(model="", input="x"),
        interaction(FUNCTION_RESULT),
        interaction(FUNCTION_CALL),
        interaction(FUNCTION_CALL, FUNCTION_RESULT, generation_config={"temperature": "hot"}),
        interaction(THOUGHT),
        interaction({"type": "text", "text": "x"}, tools=[{"type": "function", "name": "4"}]),
        interaction({"type": "text", "text": "x"}, previous_interaction_id="v1_unknown"),
        interaction({"type": "text", "text": "x"}, background=True, store=False),
        interaction({"type": "text", "text": "simulate: kind=poem"}),
    ],
}  # fmt: skip
"""Dialect → bodies that its service refuses."""

WITHOUT_A_KEY: dict[str, list[dict[str, str]]] = {
    "openai-chat": [{}, {"authorization": "Bearer "}, {"authorization": "Basic k"}, {"x-api-key": "k"}],
    "openai-responses": [{}, {"authorization": "Bearer "}, {"authorization": "Basic k"}, {"x-api-key": "k"}],
    "anthropic": [{}, {"x-api-key": "k"}, {"authorization": "Basic k", "anthropic-version": "2023-06-01"}],
    "gemini": [{}, {"x-api-key": "k"}],
    "gemini-interactions": [{}, {"x-api-key": "k"}],
}
"""Dialect → headers that do not let a client in."""


def block(title: str, lines: list[str], body: str) -> str:
    return "\n".join([f"--- {title}", *lines, "", body, ""])


def errors(dialect: str) -> str:
    world = World()
    path, good = path_of(dialect), body_of(dialect)
    shown: list[str] = []
    for directive in (*(f"fail={status}" for status in STATUSES), *HINTS):
        shown.append(block(directive, *head_and_body(world.ask(path, good, directive=directive))))
    for body in BODIES[dialect]:
        shown.append(block(f"{body}", *head_and_body(world.ask(path, body))))
    for headers in WITHOUT_A_KEY[dialect]:
        shown.append(block(f"{headers}", *head_and_body(world.ask(path, good, headers=headers))))
    for method in ("GET", "PUT"):
        shown.append(block(method, *head_and_body(world.ask(path, good, method=method))))
    shown.append(block("connection: close", *head_and_body(world.ask(path, b"", keep=False))))
    assert world.service.statistics.refused == len(shown)
    return "\n".join(shown)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_is_this_text(dialect: str) -> None:
    assert errors(dialect) == (FOLDER / f"{dialect}.http").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("dialect", "headers"),
    [
        ("openai-chat", {"authorization": "bearer k"}),
        ("openai-responses", {"authorization": "BEARER k"}),
        ("anthropic", {"x-api-key": "k", "anthropic-version": "2023-06-01"}),
        ("anthropic", {"authorization": "bearer k", "anthropic-version": "2023-06-01"}),
        ("gemini", {"x-goog-api-key": "k"}),
        ("gemini", {"authorization": "Bearer k"}),
        ("gemini-interactions", {"x-goog-api-key": "k"}),
    ],
)
def test_a_key_lets_a_client_in(dialect: str, headers: dict[str, str]) -> None:
    lines, _ = head_and_body(World().ask(path_of(dialect), body_of(dialect), headers=headers))
    assert lines[0] == "HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    "path",
    [
        "/", "/v1", "/v1/chat", "/v1/messages/", "/v1beta/models/m", "/v1beta/models/m:countTokens",
        "/v2/models/m:generateContent", "/v1/models/m:embedContent",
    ],
)  # fmt: skip
def test_an_unknown_path_is_an_error_of_openai(path: str) -> None:
    lines, body = head_and_body(World().ask(path, {}))
    assert lines[0] == "HTTP/1.1 404 Not Found"
    assert body == (
        f'{{"error":{{"message":"Invalid URL (POST {path})","type":"invalid_request_error","param":null,'
        '"code":"unknown_url"}}'
    )


@pytest.mark.parametrize("path", ["/v1/models/m:generateContent", "/v1beta/models/a/b:streamGenerateContent"])
def test_gemini_is_found_by_the_end_of_its_path(path: str) -> None:
    lines, _ = head_and_body(World().ask(path, body_of("gemini")))
    assert lines[0] == "HTTP/1.1 200 OK"
