"""Chunks of an answer in the common history: the content of a single chunk, and the message of all chunks."""

from __future__ import annotations

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai.interactions import Interaction
from google.genai.types import GenerateContentResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response as OpenAIResponse

import manystream as ms
from manystream.providers.anthropic.converter import AnthropicConverter
from manystream.providers.gemini.converter import GeminiConverter
from manystream.providers.gemini_interactions.converter import InteractionsConverter
from manystream.providers.history import (
    FinishReasonPart,
    HistoryError,
    HistoryMessage,
    OtherPart,
    Part,
    TextPart,
    ToolCallPart,
    UsagePart,
)
from manystream.providers.history.converter import HistoryConverter
from manystream.providers.json.json_values import JSONObject
from manystream.providers.openai.chat.converter import ChatConverter
from manystream.providers.openai.responses.converter import ResponsesConverter


def chat(delta: JSONObject, finish: str | None = None, **members: object) -> JSONObject:
    choice: JSONObject = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return {**chunk, **members}  # type: ignore[dict-item]


def chat_call(index: int, id: str | None, name: str | None, arguments: str) -> JSONObject:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "function": function} | ({"id": id, "type": "function"} if id else {})]}


CHAT: list[JSONObject] = [
    chat({"role": "assistant", "content": ""}), chat({"content": "I lo"}), chat({"content": "ok."}),
    chat(chat_call(0, "c1", "weather", "")), chat(chat_call(0, None, None, '{"city":')),
    chat(chat_call(0, None, None, '"Oslo"}')), chat(chat_call(1, "c2", "weather", '{"city":"Rome"}')),
    chat({}, "tool_calls"), {**chat({}), "choices": [],
    "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}},
]  # fmt: skip

ANTHROPIC: list[JSONObject] = [
    {"type": "message_start", "message": {"id": "m1", "model": "m", "content": [],
        "usage": {"input_tokens": 5, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I lo"}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "ok."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "c1", "name": "weather",
        "input": {}}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"city":'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '"Oslo"}'}},
    {"type": "content_block_stop", "index": 1},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "c2", "name": "weather",
        "input": {"city": "Rome"}}},
    {"type": "content_block_stop", "index": 2},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
]  # fmt: skip


def gemini(*parts: JSONObject, **members: object) -> JSONObject:
    candidate = {"index": 0, "content": {"role": "model", "parts": list(parts)}, **members}
    return {
        "candidates": [candidate],  # type: ignore[list-item]
        "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 7, "totalTokenCount": 12},
    }


GEMINI: list[JSONObject] = [
    gemini({"text": "I lo"}),
    gemini({"text": "ok."}),
    gemini({"functionCall": {"id": "c1", "name": "weather", "args": {"city": "Oslo"}}}),
    gemini({"functionCall": {"id": "c2", "name": "weather", "args": {"city": "Rome"}}}),
    gemini({"text": ""}, finishReason="STOP"),
]


def call_item(id: str, arguments: str, status: str = "completed") -> JSONObject:
    item = {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": "weather"}
    return {**item, "arguments": arguments, "status": status}


MESSAGE_ITEM: JSONObject = {
    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
}  # fmt: skip
RESPONSE: JSONObject = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [MESSAGE_ITEM, call_item("c1", '{"city":"Oslo"}'), call_item("c2", '{"city":"Rome"}')],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {"input_tokens": 5, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 12},
}  # fmt: skip
RESPONSES: list[JSONObject] = [
    {"type": "response.created", "response": {**RESPONSE, "status": "in_progress", "output": [], "usage": None}},
    {"type": "response.output_item.added", "output_index": 0, "item": {**MESSAGE_ITEM, "content": []}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": "I lo"},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": "ok."},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE_ITEM},
    {"type": "response.output_item.done", "output_index": 1, "item": call_item("c1", '{"city":"Oslo"}')},
    {"type": "response.output_item.done", "output_index": 2, "item": call_item("c2", '{"city":"Rome"}')},
    {"type": "response.completed", "response": RESPONSE},
]


def step(index: int, step: JSONObject, *deltas: JSONObject) -> list[JSONObject]:
    return [
        {"event_type": "step.start", "index": index, "step": step},
        *({"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas),
        {"event_type": "step.stop", "index": index},
    ]


CALL_STEP: JSONObject = {"type": "function_call", "id": "c1", "name": "weather", "arguments": {}}
COUNTED: JSONObject = {"total_input_tokens": 5, "total_output_tokens": 7, "total_tokens": 12}
BEGUN: JSONObject = {"id": "v1_1", "object": "interaction", "model": "m", "status": "in_progress"}
INTERACTIONS: list[JSONObject] = [
    {"event_type": "interaction.created", "interaction": BEGUN},
    *step(0, {"type": "model_output"}, {"type": "text", "text": "I lo"}, {"type": "text", "text": "ok."}),
    *step(1, CALL_STEP, {"type": "arguments_delta", "arguments": '{"city":"Oslo"}'}),
    *step(2, {**CALL_STEP, "id": "c2"}, {"type": "arguments_delta", "arguments": '{"city":'},
        {"type": "arguments_delta", "arguments": '"Rome"}'}),
    {"event_type": "interaction.completed",
        "interaction": {**BEGUN, "status": "requires_action", "usage": COUNTED}},
]  # fmt: skip

STREAMS: list[tuple[type[HistoryConverter], list[JSONObject], str]] = [
    (ChatConverter, CHAT, "tool_calls"), (AnthropicConverter, ANTHROPIC, "tool_use"),
    (GeminiConverter, GEMINI, "STOP"), (ResponsesConverter, RESPONSES, "completed"),
    (InteractionsConverter, INTERACTIONS, "requires_action"),
]  # fmt: skip
each = pytest.mark.parametrize(
    ("converter", "chunks", "finish"), STREAMS, ids=lambda value: getattr(value, "__name__", "")
)

CONTENT: list[Part] = [
    TextPart("I look."), ToolCallPart("c1", "weather", {"city": "Oslo"}),
    ToolCallPart("c2", "weather", {"city": "Rome"}), UsagePart(5, 7),
]  # fmt: skip


@each
def test_all_chunks_make_one_message(converter: type[HistoryConverter], chunks: list[JSONObject], finish: str) -> None:
    expected = HistoryMessage("model", [*CONTENT, FinishReasonPart(finish)])
    assert converter().message_from_chunks(chunks) == expected


@each
def test_single_chunks_have_the_parts(converter: type[HistoryConverter], chunks: list[JSONObject], finish: str) -> None:
    views = [converter().wrap_chunk(chunk) for chunk in (chunks[:-1] if converter is ResponsesConverter else chunks)]
    texts = [view.get_text() for view in views if view.get_text()]
    assert texts[:2] == ["I lo", "ok."]
    assert [call.id for view in views for call in view.get_tool_calls()] == ["c1", "c2"]


@each
def test_the_last_chunk_has_the_finish(
    converter: type[HistoryConverter], chunks: list[JSONObject], finish: str
) -> None:
    found = [converter().wrap_chunk(chunk).get_finish_message() for chunk in chunks]
    assert [message for message in found if message is not None] == [finish]


@each
def test_cut_chunks_make_a_message(converter: type[HistoryConverter], chunks: list[JSONObject], finish: str) -> None:
    item = converter().message_from_chunks(chunks[:3])
    assert item.text in ("I lo", "I look.")
    assert not any(isinstance(part, FinishReasonPart) for part in item.parts)


@each
def test_no_chunks_make_no_message(converter: type[HistoryConverter], chunks: list[JSONObject], finish: str) -> None:
    assert converter().message_from_chunks([]) is None


WHOLE: list[tuple[type[HistoryConverter], JSONObject, type]] = [
    (
        ChatConverter,
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"},
            ],
        },
        ChatCompletion,
    ),
    (
        AnthropicConverter,
        {
            "id": "m1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "hi"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 7},
        },
        AnthropicMessage,
    ),
    (GeminiConverter, gemini({"text": "hi"}, finishReason="STOP"), GenerateContentResponse),
    (ResponsesConverter, {**RESPONSE, "output": [{**MESSAGE_ITEM, "content": [
        {"type": "output_text", "text": "hi", "annotations": []}]}]}, OpenAIResponse),
    (InteractionsConverter, {**BEGUN, "status": "completed", "usage": COUNTED,
        "steps": [{"type": "model_output", "content": [{"type": "text", "text": "hi"}]}]}, Interaction),
]  # fmt: skip


@pytest.mark.parametrize(("converter", "answer", "kind"), WHOLE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_whole_answer_is_read_as_json_and_as_the_sdks_object(
    converter: type[HistoryConverter], answer: JSONObject, kind: type
) -> None:
    item = converter().message_from_chunks([answer])
    assert item.text == "hi"
    assert converter().message_from_chunks([kind.model_validate(answer)]) == item  # type: ignore[attr-defined]
    assert converter().wrap_chunk(answer).get_text() == "hi"


def test_a_chunk_may_be_the_sdks_object() -> None:
    chunks = [ChatCompletionChunk.model_validate(chunk) for chunk in CHAT]
    assert ChatConverter().message_from_chunks(chunks) == ChatConverter().message_from_chunks(CHAT)  # type: ignore[arg-type]


def test_an_event_of_the_sdks_helper_has_its_chunks_text() -> None:
    event: JSONObject = {"type": "chunk", "chunk": chat({"content": "hi"}), "snapshot": {"choices": []}}
    assert ChatConverter().wrap_chunk(event).get_text() == "hi"


def test_thinking_is_kept_as_another_part() -> None:
    chunks: list[JSONObject] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "sig"}},
    ]
    item = AnthropicConverter().message_from_chunks(chunks)
    assert item == HistoryMessage("model", [OtherPart(ms.Thinking("hm", "sig"))])


def test_malformed_arguments_of_a_stream_are_flagged() -> None:
    item = ChatConverter().message_from_chunks([chat(chat_call(0, "c", "f", '{"a": ')), chat({}, "length")])
    assert item.tool_calls == [ToolCallPart("c", "f", {}, malformed='{"a": ')]


def test_the_first_of_several_candidates_is_the_answer() -> None:
    chunk = gemini({"text": "one"}, finishReason="STOP")
    chunk["candidates"] = [*chunk["candidates"], {"index": 1, "content": {"parts": [{"text": "two"}]}}]  # type: ignore[misc]
    item = GeminiConverter().message_from_chunks([chunk])
    assert item.text == "one"


def test_geminis_finish_message_is_read() -> None:
    chunk = gemini({"text": "x"}, finishReason="MALFORMED_FUNCTION_CALL", finishMessage="Bad call.")
    assert GeminiConverter().wrap_chunk(chunk).get_finish_message() == "MALFORMED_FUNCTION_CALL: Bad call."


def test_a_refusal_is_part_of_the_finish_message() -> None:
    view = ChatConverter().wrap_chunk(chat({"refusal": "I will not."}, "stop"))
    assert view.get_finish_message() == "stop: I will not."


ERRORS: list[tuple[type[HistoryConverter], JSONObject]] = [
    (ChatConverter, {"error": {"message": "boom", "type": "server_error"}}),
    (AnthropicConverter, {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}),
    (GeminiConverter, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "boom"}}),
    (ResponsesConverter, {"type": "error", "code": "server_error", "message": "boom"}),
    (InteractionsConverter, {"event_type": "error", "error": {"code": "internal_error", "message": "boom"}}),
    (InteractionsConverter, {"error": {"code": 503, "status": "UNAVAILABLE", "message": "boom"}}),
]


@pytest.mark.parametrize(("converter", "chunk"), ERRORS)
def test_an_error_among_the_chunks_is_raised(converter: type[HistoryConverter], chunk: JSONObject) -> None:
    with pytest.raises(ms.ProviderError, match="boom"):
        converter().message_from_chunks([chunk])


def test_a_chunk_that_is_no_object_is_refused() -> None:
    with pytest.raises(HistoryError, match="chunk: must be an object, not str"):
        ChatConverter().wrap_chunk("data: {}")  # type: ignore[arg-type]
