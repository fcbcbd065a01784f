"""Answers in a provider's own form: read into a completion, and kept as they came."""

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

import manystream as ms
from manystream.simulator import open_simulator
from tests.support.peers import NO_RETRY, answer, chat_chunk, hello, open_peer, replies, stream_of

KINDS: dict[str, Any] = {
    "openai": (ms.OpenAIChat, "/v1", ms.Completion.from_openai, ChatCompletion, ChatCompletionChunk),
    "responses": (ms.OpenAIResponses, "/v1", ms.Completion.from_openai_responses, Response, ResponseStreamEvent),
    "anthropic": (ms.Anthropic, "", ms.Completion.from_anthropic, Message, RawMessageStreamEvent),
    "gemini": (ms.Gemini, "", ms.Completion.from_gemini, GenerateContentResponse, GenerateContentResponse),
    "interactions": (ms.GeminiInteractions, "", ms.Completion.from_gemini_interactions, None, None),
}
TOOL = ms.Tool("weather", "", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})


def comparable(completion: ms.Completion) -> object:
    """What does not depend on how the answer was written: an SDK writes whole numbers as fractions, and base64 anew."""
    response = completion.response
    assert response is not None, completion.error
    calls = [(call.id, call.name, call.parsed) for call in response.tool_calls]
    return completion.success, response.text, calls, response.finish_reason, response.usage, response.id


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("asked", [{}, {"tools": [TOOL]}], ids=["text", "tools"])
@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_is_read_as_that_of_its_call(kind: str, asked: dict[str, list[ms.Tool]], stream: bool) -> None:
    make, path, read, whole_type, event_type = KINDS[kind]
    request = ms.Request("sim", "hi", max_output_tokens=4000, keep_received=True, **asked)  # type: ignore[arg-type]
    with open_simulator("events=20") as simulator:
        async with ms.open_engine([make("key", simulator.origin + path)], retry=NO_RETRY) as engine:
            call = engine.start_stream(request) if stream else engine.start_request(request)
            completion = await call.wait()
    response = completion.response
    assert response is not None
    assert (len(response.received) > 1) == stream
    forms: list[object] = [response.received, [json.loads(text) for text in response.received]]
    forms.append(b"".join(b"data: %b\n\n" % text for text in response.received) if stream else response.received[0])
    if whole_type is not None:
        adapter = TypeAdapter(event_type if stream else whole_type)
        events = [text for text in response.received if b'"ping"' not in text]  # the SDK leaves it out
        objects = [adapter.validate_json(text) for text in events]
        forms.append(objects if stream else objects[0])
    for form in forms:
        assert comparable(read(form)) == comparable(completion)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_what_was_received_is_unchanged(stream: bool) -> None:
    said = [chat_chunk("a", odd=[1e-7]).replace(":", " : "), chat_chunk("b", finish="stop"), "[DONE]"]
    whole = '{"choices":[{"message":{"content":"ab"},"finish_reason":"stop"}],"x":123456789012345678901234567890} '
    events = [text if text.startswith("data") else f"data: {text}\n\n" for text in said]
    script = replies(stream_of(*events) if stream else answer(whole))
    async with open_peer(script) as peer, ms.open_engine([peer.chat], retry=NO_RETRY) as engine:
        calls = [hello(keep_received=True), hello()]
        kept, other = [(await (engine.start_stream if stream else engine.start_request)(q).wait()) for q in calls]
    assert kept.response is not None
    expected = [event.removeprefix("data: ").strip() for event in events[:-1]] if stream else [whole]
    assert [text.decode() for text in kept.response.received] == expected
    assert other.response is not None
    assert (other.response.received, other.response) == ((), kept.response)


def test_what_is_no_whole_answer_is_an_error() -> None:
    chunks = [json.loads(chat_chunk(text).removeprefix("data: ")) for text in "ab"]
    cut = ms.Completion.from_openai(chunks)
    assert (cut.success, cut.error_category, cut.response and cut.response.text) == (False, "network", "ab")
    refused = ms.Completion.from_anthropic({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
    assert (refused.error_category, refused.response) == ("server", None)
    assert ms.Completion.from_gemini([]).error_category == "network"
    with pytest.raises(ms.InvalidRequestError, match=r"^received\[1\]: cannot be carried: object"):
        ms.Completion.from_openai([chunks[0], object()])
