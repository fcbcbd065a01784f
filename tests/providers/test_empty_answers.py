"""An answer without any content: with a finish reason it is an answer, whose message is not sent; else it is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers import anthropic, gemini
from manystream.providers.openai import chat, responses
from manystream.providers.wire.dialect import Dialect, StreamMachine

ANSWERS: list[tuple[Dialect, ms.Provider, dict[str, Any], str, Any]] = [
    (anthropic.DIALECT, ms.Anthropic(api_key="k"),
        {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"}, "messages",
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "Well?"}]}]),
    (chat.DIALECT, ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]},
        "messages", [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Well?"}]),
    (chat.DIALECT, ms.OpenAIChat(api_key="k", profile="deepseek"),
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}]},
        "messages", [{"role": "user", "content": "Hello"}, {"role": "user", "content": "Well?"}]),
    (responses.DIALECT, ms.OpenAIResponses(api_key="k"), {"object": "response", "status": "completed", "output": []},
        "input", [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Well?"}]}]),
    (gemini.DIALECT, ms.Gemini(api_key="k"), {"candidates": [{"content": {}, "finishReason": "STOP"}]}, "contents",
        [{"role": "user", "parts": [{"text": "Hello"}]}, {"role": "user", "parts": [{"text": "Well?"}]}]),
]  # fmt: skip


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


# --- an end is no answer ---

BY_NAME = {
    "chat": chat.DIALECT,
    "responses": responses.DIALECT,
    "anthropic": anthropic.DIALECT,
    "gemini": gemini.DIALECT,
}
PROVIDERS = {
    "chat": ms.OpenAIChat(api_key="k"),
    "responses": ms.OpenAIResponses(api_key="k"),
    "anthropic": ms.Anthropic(api_key="k"),
    "gemini": ms.Gemini(api_key="k"),
}
EMPTY_BODIES = [
    "", " \n", "null", "{}", "[]", '{"error":{}}', '{"error":{"message":""}}', '{"error":{"code":0,"status":""}}',
]  # fmt: skip
BODIES = [(name, body) for name in BY_NAME for body in EMPTY_BODIES] + [
    ("chat", '{"id":"c","choices":[]}'),
    ("chat", '{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":null},"finish_reason":null}]}'),
    ("chat", '{"id":"c","choices":[{"message":{"content":""},"finish_reason":""}],"usage":{"prompt_tokens":3}}'),
    ("chat", '{"id":"c","choices":[{"message":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}'),
    ("responses", '{"id":"r","object":"response","output":[]}'),
    ("responses", '{"id":"r","output":[{"type":"message","content":[{"type":"output_text","text":""}]}]}'),
    ("anthropic", '{"id":"m","type":"message","content":[],"stop_reason":null}'),
    ("anthropic", '{"id":"m","type":"message","content":null}'),
    ("anthropic", '{"id":"m","type":"message","content":[{"type":"text","text":""}]}'),
    ("gemini", '{"candidates":[],"modelVersion":"m"}'),
    ("gemini", '{"candidates":[{"content":{"role":"model","parts":[]},"index":0}]}'),
    ("gemini", '{"promptFeedback":{"safetyRatings":[{"category":"X"}]}}'),
    ("gemini", '{"usageMetadata":{"promptTokenCount":3}}'),
    ("gemini", '[{"modelVersion":"m"}]'),
]  # fmt: skip
CREATED = '{"type":"response.created","response":{"id":"r","status":"in_progress","output":[]}}'
MESSAGE_START = '{"type":"message_start","message":{"id":"m","content":[],"stop_reason":null}}'
STREAMS = [
    ("chat", ["[DONE]"]),
    ("chat", ['{"id":"c","choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}]}', "[DONE]"]),
    ("chat", ['{"id":"c","choices":[],"usage":{"prompt_tokens":3}}', "[DONE]"]),
    ("chat", ['{"error":{}}', "[DONE]"]),
    ("responses", ['{"type":"response.completed","response":{}}']),
    ("responses", [CREATED, '{"type":"response.completed"}']),
    ("responses", [CREATED, '{"type":"response.completed","response":{"status":"in_progress","output":[]}}']),
    ("anthropic", ['{"type":"message_stop"}']),
    ("anthropic", [MESSAGE_START, '{"type":"message_delta","delta":{},"usage":{"output_tokens":0}}',
                   '{"type":"message_stop"}']),
    ("anthropic", [MESSAGE_START, '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
                   '{"type":"content_block_stop","index":0}', '{"type":"message_stop"}']),
]  # fmt: skip


def is_no_answer(error: ms.ProviderError) -> bool:
    return (error.category, error.retryable, error.provider_code) == (ms.ErrorCategory.SERVER, True, "no_answer")


@pytest.mark.parametrize(("name", "body"), BODIES)
def test_a_body_that_says_nothing_is_an_error_that_may_be_retried(name: str, body: str) -> None:
    with pytest.raises(ms.ProviderError) as caught:
        BY_NAME[name].decode(body.encode(), PROVIDERS[name], lambda: "made")
    assert is_no_answer(caught.value)
    assert caught.value.body == body.encode()


@pytest.mark.parametrize(("name", "events"), STREAMS)
def test_an_end_without_an_answer_is_an_error_that_may_be_retried(name: str, events: list[str]) -> None:
    machine = BY_NAME[name].machine(PROVIDERS[name], lambda: "made")
    seen = [event for data in events for event in machine.feed("", data.encode())]
    assert isinstance(seen[-1], ms.Error)
    assert is_no_answer(seen[-1].error)
    assert machine.ended
    assert machine.end() == machine.feed("", b"[DONE]") == ()


FINISHED = [
    ("chat", ['{"choices":[{"delta":{},"finish_reason":"stop"}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{},"finish_reason":"a_new_word"}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{"refusal":"No."}}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{"content":"a"}}]}', "[DONE]"]),
    ("chat", ['{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":""}}]}}]}', "[DONE]"]),
    ("responses", [CREATED, '{"type":"response.completed","response":{"status":"completed","output":[]}}']),
    ("responses", ['{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}']),
    ("anthropic", [MESSAGE_START, '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
                   '{"type":"message_stop"}']),
]  # fmt: skip


@pytest.mark.parametrize(("name", "events"), FINISHED)
def test_an_end_with_a_reason_or_content_is_an_answer(name: str, events: list[str]) -> None:
    machine = BY_NAME[name].machine(PROVIDERS[name], lambda: "made")
    seen = [event for data in events for event in machine.feed("", data.encode())]
    assert isinstance(seen[-1], ms.Done)


def test_a_dialect_that_ends_before_its_answer_gets_the_error() -> None:
    """A machine may set `ended` before it calls `done`, as the guide shows."""

    class Machine(StreamMachine):
        def take_event(self, event: str, data: bytes) -> list[ms.Event]:
            self.ended = True
            return self.answer.done(ms.FinishReason.STOP, None)

        def take_end(self) -> list[ms.Event]:
            raise AssertionError

    (event,) = Machine(PROVIDERS["chat"], lambda: "made").feed("", b"{}")
    assert isinstance(event, ms.Error)
    assert is_no_answer(event.error)
