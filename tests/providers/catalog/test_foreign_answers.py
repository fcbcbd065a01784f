"""An answer in the form of another API: a base URL of the wrong API, or a gateway that passes an answer on as it is."""

import json
from typing import Any

import pytest

import manystream as ms
from manystream.providers.catalog.json_stream import foreign_answer
from manystream.providers.catalog.registry import DIALECTS
from tests.conformance.exchange import provider_for

MESSAGE = {"type": "message", "id": "i", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}
RESPONSE = {"id": "r", "object": "response", "status": "completed", "output": [MESSAGE]}
ANTHROPIC_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "usage": {"input_tokens": 1}}


def _chunk(**members: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, **members}]}


def _candidate(text: str, **members: Any) -> dict[str, Any]:
    return {"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **members}]}


STREAMS: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [_chunk(delta={"role": "assistant", "content": "Hi"}, finish_reason=None),
        _chunk(delta={}, finish_reason="stop"), {"id": "c", "object": "chat.completion.chunk", "choices": [],
        "usage": {"prompt_tokens": 1}}],
    "openai-responses": [{"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "i", "delta": "Hi"},
        {"type": "response.completed", "response": RESPONSE}],
    "anthropic": [
        {"type": "message_start", "message": {**ANTHROPIC_MESSAGE, "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ],
    "gemini": [_candidate("H"), _candidate("i", finishReason="STOP")],
    "gemini-interactions": [{"event_type": "interaction.created", "interaction": {"id": "i", "status": "in_progress"}},
        {"event_type": "step.start", "index": 0, "step": {"type": "model_output"}},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "text", "text": "Hi"}},
        {"event_type": "interaction.completed", "interaction": {"id": "i", "status": "completed"}}],
    "ollama": [{"model": "m", "message": {"role": "assistant", "content": "Hi"}, "done": False},
        {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}],
}  # fmt: skip

BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"id": "c", "object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]},
    "openai-responses": RESPONSE,
    "anthropic": {**ANTHROPIC_MESSAGE, "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"},
    "gemini": _candidate("Hi", finishReason="STOP"),
    "gemini-interactions": {"object": "interaction", "status": "completed",
        "steps": [{"type": "model_output", "content": [{"type": "text", "text": "Hi"}]}]},
    "ollama": STREAMS["ollama"][1],
}  # fmt: skip

NAMES = {
    "openai-chat": "OpenAI's Chat Completions (OpenAIChat reads it)",
    "openai-responses": "OpenAI's Responses (OpenAIResponses reads it)",
    "anthropic": "Anthropic's Messages (Anthropic reads it)",
    "gemini": "Gemini's generateContent (Gemini reads it)",
    "gemini-interactions": "Gemini's Interactions (GeminiInteractions reads it)",
    "ollama": "Ollama's own API (OpenAIChat reads what Ollama sends below /v1)",
}

PAIRS = [(own, other) for own in DIALECTS if own in STREAMS for other in STREAMS if other != own]


def check(error: ms.ProviderError, other: str) -> None:
    assert f"the answer has the form of another API, {NAMES[other]}: '{{" in error.message
    assert (error.category, error.retryable) == (ms.ErrorCategory.SERVER, False)


def last(own: str, events: list[dict[str, Any]], *, named: bool = True, mark: bool = False) -> object:
    machine = DIALECTS[own].machine(provider_for(own, "openai"), lambda: "made")
    for event in events:
        machine.feed(event.get("type", "") if named else "", json.dumps(event).encode())
    marked = machine.feed("", b"[DONE]") if mark else ()
    return [*marked, *machine.end()][-1]


@pytest.mark.parametrize(("own", "other"), PAIRS)
def test_a_stream_of_another_api_is_named_and_not_retried(own: str, other: str) -> None:
    for named, mark in ((True, False), (False, False), (False, True)):
        end = last(own, STREAMS[other], named=named, mark=mark)
        assert isinstance(end, ms.ErrorEvent)
        check(end.error, other)


@pytest.mark.parametrize(("own", "other"), PAIRS)
def test_a_body_of_another_api_is_named_and_not_retried(own: str, other: str) -> None:
    with pytest.raises(ms.ProviderError) as failed:
        DIALECTS[own].decode(json.dumps(BODIES[other]).encode(), provider_for(own, "openai"), lambda: "made")
    check(failed.value, other)


@pytest.mark.parametrize("own", ["openai-chat", "openai-responses", "anthropic", "gemini"])
def test_a_stream_of_the_own_api_that_ends_early_is_only_cut(own: str) -> None:
    for count in range(1, len(STREAMS[own])):
        end = last(own, STREAMS[own][:count])
        if isinstance(end, ms.ErrorEvent):
            assert (end.error.category, end.error.retryable) == (ms.ErrorCategory.NETWORK, True)


def test_an_answer_with_text_is_cut_whatever_came_with_it() -> None:
    events = [STREAMS["openai-responses"][1], *STREAMS["gemini"][:1]]
    machine = DIALECTS["openai-responses"].machine(provider_for("openai-responses", "openai"), lambda: "made")
    came = [event for value in events for event in machine.feed("", json.dumps(value).encode())]
    assert any(isinstance(event, ms.TextDelta) for event in came)
    end = machine.end()[-1]
    assert isinstance(end, ms.ErrorEvent)
    assert end.error.category is ms.ErrorCategory.NETWORK


def test_an_own_dialect_may_have_the_form_of_any_api() -> None:
    assert foreign_answer(BODIES["gemini"], "openai-chat", b"") is not None
    assert foreign_answer(BODIES["gemini"], "mine", b"") is None


@pytest.mark.parametrize("data", [b"{", b"7", b"[]", b"{}", b'{"type": 7}', b'{"choices": 7}', b'{"done": true}'])
def test_data_without_the_form_of_an_api(data: bytes) -> None:
    assert foreign_answer(None, "openai-chat", data) is None
