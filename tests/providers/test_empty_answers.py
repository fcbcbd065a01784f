"""An answer without any content: its message can be appended to the conversation, and is not sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers import anthropic, gemini
from manystream.providers.openai import chat, responses
from manystream.providers.wire.dialect import Dialect

ANSWERS: list[tuple[Dialect, ms.Provider, dict[str, Any], str, Any]] = [
    (
        anthropic.DIALECT,
        ms.Anthropic(api_key="k"),
        {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"},
        "messages",
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "Well?"}]}],
    ),
    (
        chat.DIALECT,
        ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        "messages",
        [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Well?"}],
    ),
    (
        chat.DIALECT,
        ms.OpenAIChat(api_key="k", profile="deepseek"),
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}]},
        "messages",
        [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Well?"}],
    ),
    (
        responses.DIALECT,
        ms.OpenAIResponses(api_key="k"),
        {"object": "response", "status": "completed", "output": []},
        "input",
        [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Well?"}]},
        ],
    ),
    (
        gemini.DIALECT,
        ms.Gemini(api_key="k"),
        {"candidates": [{"content": {}, "finishReason": "STOP"}]},
        "contents",
        [{"role": "user", "parts": [{"text": "Hello"}]}, {"role": "user", "parts": [{"text": "Well?"}]}],
    ),
]


@pytest.mark.parametrize(("dialect", "provider", "answer", "member", "sent"), ANSWERS)
def test_an_answer_without_content_is_not_sent(
    dialect: Dialect, provider: ms.Provider, answer: dict[str, Any], member: str, sent: object
) -> None:
    response = dialect.decode(json.dumps(answer).encode(), provider, lambda: "made")
    assert response.content == []
    messages = [ms.Message.user("Hello"), response.to_message(), ms.Message.user("Well?")]
    wire = dialect.encode(ms.Request("m", messages), "m", provider, stream=False)
    assert json.loads(wire.body)[member] == sent
    assert wire.warnings == []


def test_an_empty_answer_between_calls_changes_no_pairing() -> None:
    messages = [
        ms.Message.user("Hello"),
        ms.Message.tool_call("c1", "look", "{}"),
        ms.Message.assistant([]),
        ms.Message.tool_result("c1", "sunny"),
    ]
    wire = anthropic.DIALECT.encode(ms.Request("m", messages), "m", ms.Anthropic(api_key="k"), stream=False)
    assert [message["role"] for message in json.loads(wire.body)["messages"]] == ["user", "assistant", "user"]
