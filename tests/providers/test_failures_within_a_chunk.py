"""Content before a failure in the same chunk is part of the answer, so its events are delivered before the error."""

from __future__ import annotations

import pytest

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import JSONObject, dumps
from manystream.providers.wire.answer_limits import AnswerLimits

CALL: JSONObject = {"functionCall": {"name": "look", "args": {"x": 1}}}
CHAT_CALL: JSONObject = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ITEM_CALL: JSONObject = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
MESSAGE: JSONObject = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}

CHUNKS: dict[str, tuple[ms.Provider, JSONObject]] = {
    "chat, a malformed choice": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello"}}, {"index": 0, "delta": ["Hello"]}]}),
    "chat, malformed tool calls": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello", "tool_calls": "look"}}]}),
    "chat, too many tool calls": (ms.OpenAIChat(api_key="k"),
        {"choices": [{"index": 0, "delta": {"content": "Hello",
        "tool_calls": [{**CHAT_CALL, "index": index, "id": f"call_{index}"} for index in range(3)]}}]}),
    "gemini, too many tool calls": (ms.Gemini(api_key="k"),
        {"candidates": [{"content": {"parts": [{"text": "Hello"}, CALL, CALL, CALL]}}]}),
    "responses, too many tool calls": (ms.OpenAIResponses(api_key="k"),
        {"type": "response.completed", "response": {"status": "completed",
        "output": [MESSAGE, *({**ITEM_CALL, "call_id": f"call_{index}"} for index in range(3))]}}),
}  # fmt: skip


@pytest.mark.parametrize("name", CHUNKS)
def test_events_before_a_failure_are_delivered(name: str) -> None:
    provider, chunk = CHUNKS[name]
    machine = DIALECTS[provider.profile.dialect_name].machine(provider, lambda: "id", AnswerLimits(max_tool_calls=2))
    events = [*machine.feed("", dumps(chunk))]
    assert isinstance(events[-1], ms.Error), events
    assert "".join(event.text for event in events if isinstance(event, ms.TextDelta)) == "Hello"
    assert machine.response().text == "Hello"
    started = [event for event in events if isinstance(event, ms.ToolCallStart)]
    assert len(started) == len(machine.response().tool_calls)
    assert machine.ended
