"""Whole responses of each dialect: the head, and the body byte for byte.

Each file in the folder `responses` holds one response without the framing of HTTP chunks. A carriage return is shown as
`\\r`. A program that is tested against the simulator may compare with such texts: they are the same in every release.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .in_process import World, head_and_body
from .test_answers import KNOBS, REQUESTS

FOLDER = Path(__file__).parent / "responses"
CITY: dict[str, object] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
SHORT = "events=2,seed=7,text=unicode"
THOUGHT = f"{SHORT},kind=thinking"
CALLS = "kind=tools,calls=2,seed=7,text=unicode"
GEMINI_METHOD = {False: "generateContent", True: "streamGenerateContent?alt=sse"}


def chat(*, stream: bool = True, **members: object) -> tuple[str, dict[str, object]]:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello."}], "stream": stream}
    return CHAT, {**body, **members}


def responses(*, stream: bool = True, **members: object) -> tuple[str, dict[str, object]]:
    return RESPONSES, {"model": "m", "input": "Hello.", "stream": stream, **members}


def messages(*, stream: bool = True, **members: object) -> tuple[str, dict[str, object]]:
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello."}], "stream": stream}
    return MESSAGES, {**body, **members}


def gemini(
    *, stream: bool = True, model: str = "m", method: str = "", **members: object
) -> tuple[str, dict[str, object]]:
    body = {"contents": [{"role": "user", "parts": [{"text": "Hello."}]}]}
    return f"/v1beta/models/{model}:{method or GEMINI_METHOD[stream]}", {**body, **members}


def interaction(*, stream: bool = True, **members: object) -> tuple[str, dict[str, object]]:
    return "/v1beta/interactions", {"model": "m", "input": "Hello.", "stream": stream, **members}


def mixed(dialect: str) -> tuple[str, dict[str, object]]:
    path, body = REQUESTS[dialect]
    return path.replace(":generateContent", ":streamGenerateContent?alt=sse"), {**body, "stream": True}


CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": CITY}}]
RESPONSES_TOOLS = [{"type": "function", "name": "weather", "parameters": CITY}]
PLAIN_STREAM = {"include_usage": True, "include_obfuscation": False}
ENCRYPTED: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
SETTINGS: dict[str, Any] = {
    "instructions": "Be brief.", "max_output_tokens": 77,
    "reasoning": {"effort": "low"}, "store": False, "temperature": 0.5, "text": {"verbosity": "low"},
    "tool_choice": "none", "parallel_tool_calls": False, "top_p": 0.25, "metadata": {"run": "1"},
}  # fmt: skip
ARRAY = "streamGenerateContent"

CASES: dict[str, tuple[tuple[str, dict[str, object]], str]] = {
    "chat-mixed-stream": (mixed("openai-chat"), KNOBS),
    "chat-usage-stream": (chat(stream_options=PLAIN_STREAM), f"{THOUGHT},cached=1"),
    "chat-length-stream": (chat(tools=CHAT_TOOLS), f"{CALLS},finish=length"),
    "chat-filter-stream": (chat(), f"{SHORT},finish=content_filter"),
    "chat-error-stream": (chat(), f"{SHORT},error=2,error-status=429"),
    "chat-text": (chat(stream=False), SHORT),
    "chat-empty": (chat(stream=False), "events=0"),
    "chat-calls": (chat(stream=False, tools=CHAT_TOOLS), CALLS),
    "chat-length": (chat(stream=False), f"{THOUGHT},finish=length"),
    "responses-mixed-stream": (mixed("openai-responses"), KNOBS),
    "responses-redacted-stream": (responses(**SETTINGS, **ENCRYPTED), f"{SHORT},redacted=1,finish=length"),
    "responses-length-stream": (responses(tools=RESPONSES_TOOLS, stream_options={"include_obfuscation": False}),
        f"{CALLS},finish=length"),
    "responses-filter-stream": (responses(), f"{SHORT},finish=content_filter"),
    "responses-error-stream": (responses(), f"{SHORT},error=3,error-status=429"),
    "responses-error-first-stream": (responses(), f"{SHORT},error=0,error-status=500"),
    "responses-text": (responses(stream=False, **SETTINGS), SHORT),
    "responses-empty": (responses(stream=False), "events=0"),
    "responses-thinking": (responses(stream=False), THOUGHT),
    "responses-calls": (responses(stream=False, tools=RESPONSES_TOOLS), f"{CALLS},finish=length"),
    "responses-filter": (responses(stream=False), f"{SHORT},finish=content_filter"),
    "messages-mixed-stream": (mixed("anthropic"), KNOBS),
    "messages-redacted-stream": (messages(), f"{SHORT},redacted=1,cached=1"),
    "messages-length-stream": (messages(tools=[{"name": "weather", "input_schema": CITY}]), f"{CALLS},finish=length"),
    "messages-filter-stream": (messages(), f"{SHORT},finish=content_filter"),
    "messages-error-stream": (messages(), f"{SHORT},error=3,error-status=529"),
    "messages-text": (messages(stream=False), SHORT),
    "messages-empty": (messages(stream=False), "events=0"),
    "messages-redacted": (messages(stream=False), f"{SHORT},redacted=1"),
    "messages-length": (messages(stream=False, tools=[{"name": "weather", "input_schema": CITY}]),
        f"{CALLS},finish=length"),
    "messages-filter": (messages(stream=False), f"{SHORT},finish=content_filter"),
    "gemini-mixed-stream": (mixed("gemini"), KNOBS),
    "gemini-thinking-stream": (gemini(), THOUGHT),
    "gemini-redacted-stream": (gemini(), f"{SHORT},redacted=1"),
    "gemini-calls-stream": (gemini(model="gemini-2.5-flash"), f"{CALLS},redacted=1"),
    "gemini-length-stream": (gemini(), f"{CALLS},finish=length"),
    "gemini-filter-stream": (gemini(), f"{SHORT},finish=content_filter"),
    "gemini-error-stream": (gemini(), f"{SHORT},error=2,error-status=503"),
    "gemini-array-stream": (gemini(method=ARRAY), SHORT),
    "gemini-array-error-stream": (gemini(method=ARRAY), f"{SHORT},error=1,error-status=503"),
    "gemini-array-error-first-stream": (gemini(method=ARRAY), f"{SHORT},error=0,error-status=503"),
    "gemini-text": (gemini(stream=False), SHORT),
    "gemini-empty": (gemini(stream=False), "events=0"),
    "gemini-thinking": (gemini(stream=False), THOUGHT),
    "gemini-redacted": (gemini(stream=False), f"{SHORT},redacted=1"),
    "gemini-calls": (gemini(stream=False, model="gemini-1.5-pro"), f"{CALLS},redacted=1"),
    "gemini-length": (gemini(stream=False), f"{CALLS},finish=length"),
    "gemini-filter": (gemini(stream=False), f"{SHORT},finish=content_filter"),
    "interactions-mixed-stream": (mixed("gemini-interactions"), KNOBS),
    "interactions-length-stream": (interaction(tools=RESPONSES_TOOLS), f"{CALLS},finish=length"),
    "interactions-error-stream": (interaction(), f"{SHORT},error=4,error-status=503"),
    "interactions-filter": (interaction(stream=False), f"{SHORT},finish=content_filter"),
    "interactions-redacted": (interaction(stream=False, service_tier="flex"), f"{SHORT},redacted=1"),
}  # fmt: skip
"""Name of a file → path and body of the request, and the directive."""


def response(name: str) -> str:
    (path, body), directive = CASES[name]
    lines, text = head_and_body(World().ask(path, body, directive=directive))
    return "\n".join([*lines, "", text]).replace("\r", "\\r")


@pytest.mark.parametrize("name", CASES)
def test_a_response_is_this_text(name: str) -> None:
    assert response(name) == (FOLDER / f"{name}.http").read_text(encoding="utf-8")


def test_each_file_of_the_folder_is_compared() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(CASES)
